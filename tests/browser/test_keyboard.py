"""Tasks of the page by keys alone: lists, times of the chart, what changed, files and pictures."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book
from tests.browser.test_appearance import tab_to
from tests.browser.test_search import query_of, span_of

PAGE = 50  # rows that the list shows at a time
TABS_OF_A_LIST = 4 * PAGE  # of each row three buttons, and what stands before and behind


def from_the_top(page: Page, test_id: str, *, n_max: int = 80) -> None:
    """Reach an element by Tab alone from where a page begins that was just opened."""
    assert page.evaluate("document.activeElement === document.body")
    tab_to(page, test_id, n_max=n_max)


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


def test_the_list_by_keys(book: Book, open_page: Callable[..., Opened]) -> None:
    """New messages, following, older ones and the way back; the focus is then at the list's top."""
    book.write(*[f"a pika squeaks {i}" for i in range(PAGE + 5)])
    book.until_found("pika", PAGE + 5)
    page, _ = open_page(f"{book.address}/?q=pika")
    rows, follow = page.get_by_test_id("message"), page.get_by_test_id("follow")
    expect(rows).to_have_count(PAGE)
    (newest,) = book.write("the pika whistles")
    from_the_top(page, "show-new")
    assert violations(page) == []
    page.keyboard.press("Enter")
    expect(rows.first).to_have_attribute("data-id", newest)
    expect(follow).to_be_focused()
    page.reload()
    expect(rows).to_have_count(PAGE)
    from_the_top(page, "older", n_max=TABS_OF_A_LIST)
    page.keyboard.press("Enter")
    expect(rows).to_have_count(6)
    expect(follow).to_be_focused()
    assert violations(page) == []
    tab_to(page, "newest")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(PAGE)
    expect(follow).to_be_focused()
    page.reload()
    from_the_top(page, "follow")
    page.keyboard.press("Space")
    expect(follow).to_have_attribute("aria-pressed", "true")
    (last,) = book.write("the pika runs")
    expect(rows.first).to_have_attribute("data-id", last)
    expect(follow).to_be_focused()


def test_the_way_back_from_a_time_by_keys(book: Book, open_page: Callable[..., Opened]) -> None:
    """From the messages of a time that was chosen Enter leads to the latest, and the focus too."""
    book.write("a dhole whistles")
    book.until_found("dhole", 1)
    page, _ = open_page(f"{book.address}/?q=dhole&range=1000-2000")
    expect(page.get_by_test_id("messages-empty")).to_be_visible()
    from_the_top(page, "newest")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("message")).to_have_count(1)
    expect(page.get_by_test_id("newest")).to_be_hidden()
    expect(page.get_by_test_id("follow")).to_be_focused()


def test_saved_searches_by_keys(book: Book, open_page: Callable[..., Opened]) -> None:
    """One is opened and keeps the focus; one is removed, and the button that saves has it."""
    book.write("a coati climbs")
    book.until_found("coati", 1)
    page, _ = open_page(f"{book.address}/?q=coati")
    from_the_top(page, "save-search")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("saved-card")).to_have_count(1)
    page.goto(book.address)
    from_the_top(page, "saved-open")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("search-heading")).to_contain_text("coati")
    expect(page.get_by_test_id("message")).to_have_count(1)
    expect(page.get_by_test_id("saved-open")).to_be_focused()
    page.reload()
    from_the_top(page, "saved-remove")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("saved-card")).to_have_count(0)
    expect(page.get_by_test_id("save-search")).to_be_focused()


def test_language_and_class_by_keys(book: Book, open_page: Callable[..., Opened]) -> None:
    """Both lists take arrows and letters, do what is chosen at once, and keep the focus."""
    book.write("ein kudu grast", lang="de")
    book.write("a kudu grazes", label=0)
    book.until_found("kudu", 2)
    page, _ = open_page(f"{book.address}/?q=kudu", locale="en-GB")
    expect(page.get_by_test_id("message")).to_have_count(2)
    language = page.get_by_test_id("search-lang")
    expect(language.locator("option[value=de]")).to_have_count(1)
    from_the_top(page, "search-lang")
    page.keyboard.type("Germ")
    page.wait_for_url(re.compile("q=kudu&lang=de"))
    expect(page.get_by_test_id("message-text")).to_have_text(["ein kudu grast"])
    expect(language).to_be_focused()
    page.keyboard.press("Home")
    expect(page.get_by_test_id("message")).to_have_count(2)
    expect(language).to_be_focused()
    page.goto(f"{book.address}/?q=coffee&vs=monday")
    shares = page.get_by_test_id("compare-share")
    expect(shares).to_have_text([re.compile("%")] * 2)
    before = shares.all_inner_texts()
    choice = page.get_by_test_id("compare-class")
    was = choice.input_value()
    from_the_top(page, "compare-class")
    page.keyboard.press("ArrowUp" if was == "positive" else "ArrowDown")
    expect(choice).not_to_have_value(was)
    expect(shares).not_to_have_text(before)
    expect(choice).to_be_focused()


def test_the_focus_outlives_what_had_it(book: Book, open_page: Callable[..., Opened]) -> None:
    """A box and a link of the comparison that vanish when they are used leave it to the content."""
    page, _ = open_page(f"{book.address}/?q=coffee&vs=monday&vs=school")
    expect(page.get_by_test_id("compare-row")).to_have_count(3)
    from_the_top(page, "compare-box")
    page.keyboard.type("football")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("compare-row")).to_have_count(4)
    expect(page.get_by_test_id("compare-box")).to_be_hidden()
    expect(page.locator("#main")).to_be_focused()
    word = page.get_by_test_id("compare-words").locator("a").first
    href = word.get_attribute("href")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#compare-words a')"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("comparison")).to_be_hidden()
    assert page.url == f"{book.address}{href}"
    expect(page.locator("#main")).to_be_focused()
