"""Tasks of the page by keys alone: times of the chart, what changed, files and pictures."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book
from tests.browser.test_appearance import tab_to
from tests.browser.test_search import query_of, span_of


def test_a_time_is_chosen_by_keys(book: Book, open_page: Callable[..., Opened]) -> None:
    """The list of times, zooming in and out, and the way back to the latest take no pointer."""
    book.write_past("a grison smells of popcorn", n=120)
    book.until_found("grison", 120)
    page, _ = open_page(f"{book.address}/?q=grison")
    expect(page.get_by_test_id("series-chart")).to_have_attribute(
        "aria-label", re.compile("^Share over time. From ")
    )
    tab_to(page, "series-range")
    page.keyboard.press("ArrowDown")
    page.wait_for_url(re.compile("range=15m"))
    spans = []
    for name in ("series-in", "", "series-out"):  # the focus stays on a button that was pressed
        if name:
            tab_to(page, name)
        before = page.get_by_test_id("series-chart").get_attribute("aria-label") or ""
        page.keyboard.press("Enter")
        expect(page.get_by_test_id("series-chart")).not_to_have_attribute("aria-label", before)
        begin, end = span_of(page)
        spans.append(end - begin)
    assert spans[1] < spans[0] < 900_000
    assert spans[2] > spans[1]
    page.reload()  # the list stands before the chart
    tab_to(page, "series-range")
    page.keyboard.press("Home")
    page.wait_for_url(re.compile(r"\?q=grison$"))


def test_what_changed_is_asked_by_keys(book: Book, open_page: Callable[..., Opened]) -> None:
    """Enter at the crosshair offers the two times, and the button compares them."""
    book.write_past("a linsang naps", n=60)
    book.write_past("a linsang snores", n=60, label=0)
    book.until_found("linsang", 120)
    page, _ = open_page(f"{book.address}/?q=linsang&range=15m")
    expect(page.get_by_test_id("series-chart")).to_have_attribute(
        "aria-label", re.compile("^Share over time. From ")
    )
    tab_to(page, "series-chart")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("what-changed")).to_contain_text("What changed at ")
    tab_to(page, "what-changed")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("compare-row")).to_have_count(2)
    assert re.fullmatch(r"\d+-\d+-\d+", query_of(page)["change"][0])
    page.reload()  # the comparison stands before the chart
    expect(page.get_by_test_id("compare-row")).to_have_count(2)
    for name in ("compare-csv", "compare-jsonl"):
        tab_to(page, name)
        with page.expect_download() as under_way:
            page.keyboard.press("Enter")
        assert under_way.value.path().read_bytes().count(b"\n") > 2


def test_files_and_pictures_by_keys(book: Book, open_page: Callable[..., Opened]) -> None:
    """Both forms of the model, its table and the picture of a chart are saved by keys."""
    page, _ = open_page(f"{book.address}/?view=model")
    expect(page.get_by_test_id("model-classes")).to_be_visible()
    for name in ("model-csv", "model-jsonl"):
        tab_to(page, name)
        with page.expect_download() as under_way:
            page.keyboard.press("Enter")
        assert under_way.value.path().read_bytes().count(b"\n") > 10
    page.goto(f"{book.address}/?q=coffee")
    expect(page.get_by_test_id("series-chart").locator("canvas")).to_be_visible()
    tab_to(page, "series-numbers")
    page.keyboard.press("Enter")
    for name, ending in (("save-table", ".csv"), ("save-picture", ".png")):
        if name == "save-picture":
            page.reload()  # the button stands before the table
            expect(page.get_by_test_id("series-chart").locator("canvas")).to_be_visible()
            page.get_by_test_id("series-range").focus()
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.dataset.testid") == name:
                break
        with page.expect_download() as under_way:
            page.keyboard.press("Enter")
        assert under_way.value.suggested_filename.endswith(ending)


def test_pictures_of_what_the_daemon_draws_by_keys(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """Each is saved by Enter on its button, which keeps the focus; tables unfold by keys, too."""
    page, _ = open_page(f"{book.address}/?view=model")
    expect(page.get_by_test_id("model-classes")).to_be_visible()
    expect(page.get_by_test_id("curves").locator(".xy")).to_have_count(2)
    page.locator("#main").focus()
    for place in ("calibration", "the confusion matrix", "the curves", "the strongest features"):
        name = f"Save a picture of {place}"
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.ariaLabel") == name:
                break
        with page.expect_download() as under_way:
            page.keyboard.press("Enter")
        assert under_way.value.path().read_bytes().startswith(b"\x89PNG")
        assert page.evaluate("document.activeElement.ariaLabel") == name
        if place == "the curves":
            table = page.get_by_test_id("curves").get_by_role("row", name="90%")
            expect(table).to_be_hidden()
            for _ in range(5):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.tagName") == "SUMMARY":
                    break
            page.keyboard.press("Enter")
            expect(table).to_be_visible()
