"""Searching on the page: what is typed is what is asked, shown and kept in the address.

Each test writes tweets with a word of its own into the book that all of them share.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, Request, Route, expect

from consumers.search.history import STEPS_S, Uncounted, write
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book, first_tweets, open_book, stamp
from tests.endtoend.daemon_process import Daemon, write_config


def query_of(page: Page | Request) -> dict[str, list[str]]:
    """Return the parts of the query in an address."""
    return parse_qs(urlsplit(page.url).query)


def ask(page: Page, query: str) -> None:
    """Type a query and send it off."""
    page.get_by_test_id("search-box").fill(query)
    page.get_by_test_id("search-button").click()
    expect(page.get_by_test_id("search-heading")).to_contain_text(query)
    expect(page.get_by_test_id("search-figures")).to_have_attribute("aria-busy", "false")


def shown(page: Page, n: int) -> list[str]:
    """Wait until so many tweets are listed; return their ids, newest first."""
    rows = page.get_by_test_id("message")
    expect(rows).to_have_count(n)
    return [row.get_attribute("data-id") or "" for row in rows.all()]


@pytest.fixture(scope="module")
def quetzals(book: Book) -> Book:
    """Return the book with four tweets that have one word in common."""
    both, apart = "a quetzal moon both", "moon of a quetzal apart"
    book.write(both, apart, "look #quetzal tagged", "a quetzal alone")
    book.until_found("quetzal", 4)
    return book


def test_what_is_shown_can_be_downloaded(quetzals: Book, open_page: Callable[..., Opened]) -> None:
    """The links hand out what the query finds, in both forms."""
    page, _ = open_page(quetzals.address)
    ask(page, "quetzal")
    shown(page, 4)
    for name, n_lines in (("export-csv", 5), ("export-jsonl", 4)):
        with page.expect_download() as under_way:
            page.get_by_test_id(name).click()
        assert under_way.value.path().read_bytes().count(b"\n") == n_lines
    page.get_by_test_id("series-range").select_option("15m")
    expect(page.get_by_test_id("exports")).to_contain_text("the time of the chart")
    link = page.get_by_test_id("export-csv").get_attribute("href") or ""
    assert {"q", "from", "to"} < parse_qs(urlsplit(link).query).keys()
    page.goto(f"{quetzals.address}/?q=quetzal&range=1000-2000")
    expect(page.get_by_test_id("export-csv")).to_have_attribute("href", re.compile("from=1000"))
    with page.expect_download() as under_way:
        page.get_by_test_id("export-csv").click()
    assert under_way.value.path().read_bytes().count(b"\n") == 1


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("wether:wet", "Conditions begin with lang:, label:, confidence:."),
        ("confidence>0.9 xyzzyx", "Conditions begin with lang:, label:, confidence:."),
        ("xyzzyx", None),
    ],
)
def test_what_is_no_condition_is_told(
    quetzals: Book, open_page: Callable[..., Opened], query: str, said: str | None
) -> None:
    """Where nothing is found for what looks like a condition, the page says what is one."""
    page, _ = open_page(quetzals.address)
    ask(page, query)
    empty = page.get_by_test_id("messages-empty")
    expect(empty).to_contain_text("New ones appear here")
    expect(empty).to_have_text(re.compile(f"{re.escape(said or 'as they come.')}$"))


def test_a_chart_can_be_saved(book: Book, open_page: Callable[..., Opened]) -> None:
    """As a picture, on the page's ground and with the classes' names, and its table as CSV."""
    book.write(*["an fossa regrows"] * 40)
    book.until_found("fossa", 40)
    page, _ = open_page(f"{book.address}/?q=fossa")
    expect(page.get_by_test_id("series-chart").locator("canvas")).to_be_visible()
    with page.expect_download() as under_way:
        page.get_by_test_id("series").get_by_test_id("save-picture").click()
    assert under_way.value.suggested_filename.endswith(".png")
    picture = Image.open(under_way.value.path())
    width, height = picture.size
    assert picture.getpixel((width - 1, 0)) == (255, 255, 255, 255)
    assert np.ptp(np.asarray(picture.crop((0, 0, width, 28)))[:, :, 2]) > 100  # the names
    assert height > 28 + 100
    page.get_by_test_id("series-numbers").click()
    expect(page.get_by_test_id("series-table").locator("tr").last).to_be_visible()
    named = """() => {
      const cell = document.createElement("th");
      cell.textContent = '=A1&"x"'; // a class may join by a message, whatever its name is
      document.querySelector("#series-table tr").append(cell);
      document.querySelector("[data-save=csv]").click();
    }"""
    with page.expect_download() as under_way:
        page.evaluate(named)
    head, *rows = under_way.value.path().read_bytes().decode().split("\r\n")
    assert head == '"Time","messages","negative","positive","\'=A1&""x"""'
    assert sum(int(row.split('","')[1]) for row in rows) == 40


def test_the_daemon_is_asked_first(quetzals: Book, open_page: Callable[..., Opened]) -> None:
    """The answer is what takes time: it is asked for before anything on the page changes."""
    page, _ = open_page(quetzals.address)
    shown_before = "Sentiment analysis for everything"  # until the names come it says Predictions
    expect(page.get_by_test_id("search-heading")).to_have_text(shown_before)
    page.evaluate("""() => {
        const heading = document.querySelector('[data-testid=search-heading]');
        window.EventSource = class extends EventSource {
            constructor(path) {
                super(path);
                // The first one: a slow click comes behind what was asked while typing.
                window.asked_at ??= heading.innerText + location.search;
            }
        };
    }""")
    ask(page, "quetzal")
    shown(page, 4)
    assert page.evaluate("() => window.asked_at") == shown_before


def test_a_word(book: Book, open_page: Callable[..., Opened]) -> None:
    """A word finds its tweets: heading, percent, counts, line, and a list with the word in bold."""
    book.write(*[f"the marmoset is great, number {i}" for i in range(24)])
    book.write(*[f"the marmoset is awful, number {i}" for i in range(12)], label=0)
    book.until_found("marmoset", 36)
    page, _ = open_page(book.address)
    ask(page, "marmoset")
    expect(page.get_by_test_id("search-heading")).to_have_text("Sentiment analysis for marmoset")
    expect(page.get_by_test_id("messages-heading")).to_have_text("Messages with marmoset")
    shown(page, 36)
    expect(page.get_by_test_id("message-text").locator("b")).to_have_text(["marmoset"] * 36)
    counts = page.get_by_test_id("count-row").get_by_test_id("count").all_inner_texts()
    assert sum(map(int, counts)) == 36
    expect(page.get_by_test_id("ring")).to_be_visible()
    expect(page.get_by_test_id("series-chart")).to_be_visible()
    shares = page.get_by_test_id("share").all_inner_texts()
    assert len(shares) == 2
    assert all(re.search(r"\d+", share) for share in shares)
    assert query_of(page) == {"q": ["marmoset"]}


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("quetzal", {"both", "apart", "tagged", "alone"}),
        ('"quetzal moon"', {"both"}),
        ("quetzal moon", {"both", "apart"}),
        ("quetzal -moon", {"tagged", "alone"}),
        ("#quetzal", {"tagged"}),
        ("quetz*", {"both", "apart", "tagged", "alone"}),
    ],
)
def test_kinds_of_queries(
    quetzals: Book, open_page: Callable[..., Opened], query: str, wanted: set[str]
) -> None:
    """Words, phrases, words that must not be there, tags and beginnings find what they say."""
    page, _ = open_page(quetzals.address)
    ask(page, query)
    shown(page, len(wanted))
    texts = page.get_by_test_id("message-text").all_inner_texts()
    assert {text.split()[-1] for text in texts} == wanted


def test_beginnings_are_found_while_one_types(book: Book, open_page: Callable[..., Opened]) -> None:
    """Letters without Enter find the words that begin so; Enter asks for the word itself."""
    ids = book.write("wolverines everywhere", "one wolverine", "a wolf")
    book.until_found("wolverine*", 2)
    page, _ = open_page(book.address)
    box = page.get_by_test_id("search-box")
    box.press_sequentially("wolverin")
    assert set(shown(page, 2)) == set(ids[:2])
    page.wait_for_url("**/?q=wolverin*")
    box.press_sequentially("e")
    box.press("Enter")
    assert shown(page, 1) == ids[1:2]
    assert query_of(page) == {"q": ["wolverine"]}


def open_held(page: Page, address: str) -> Route:
    """Open an address, and return the page's first request, which waits to be continued."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    with page.expect_request("**/v1/page"):
        page.route("**/v1/page", hold)
        page.goto(address)
    while not held:  # the request is told first, and each call lets one more event in
        page.evaluate("null")
    return held[0]


def test_what_is_typed_early_counts(book: Book, open_page: Callable[..., Opened]) -> None:
    """What is typed before the daemon has answered the page for the first time is not lost."""
    page, _ = open_page("about:blank")
    held = open_held(page, book.address)
    page.get_by_test_id("search-box").press_sequentially("coff")
    held.continue_()
    expect(page.get_by_test_id("search-heading")).to_contain_text("coff*")
    expect(page.get_by_test_id("search-box")).to_have_value("coff")


def test_a_sentence_typed_early_is_judged(book: Book, open_page: Callable[..., Opened]) -> None:
    """The same holds for a sentence to try: the address, which lacks it, does not empty the box."""
    page, _ = open_page("about:blank")
    held = open_held(page, f"{book.address}/?view=try")
    page.get_by_test_id("try-text").fill("what a lovely morning")
    held.continue_()
    expect(page.get_by_test_id("try-label")).to_contain_text("positive", ignore_case=True)
    expect(page.get_by_test_id("try-text")).to_have_value("what a lovely morning")


def test_one_language(book: Book, open_page: Callable[..., Opened]) -> None:
    """The language chooser offers the languages there are, and shows the chosen one only."""
    german = book.write("ein axolotl, wie schön", lang="de")
    english = book.write("an axolotl, how nice")
    book.until_found("axolotl", 2)
    page, _ = open_page(f"{book.address}/?q=axolotl")
    assert shown(page, 2) == english + german
    page.get_by_test_id("search-lang").select_option("de")
    assert shown(page, 1) == german
    assert query_of(page) == {"q": ["axolotl"], "lang": ["de"]}


def test_a_query_that_is_refused(book: Book, open_page: Callable[..., Opened]) -> None:
    """A beginning of one letter is refused in a sentence, and the next query is answered."""
    page, _ = open_page(book.address)
    box = page.get_by_test_id("search-box")
    box.fill("o*")
    box.press("Enter")
    problem = page.get_by_test_id("search-problem")
    expect(problem).to_be_visible()
    assert len(problem.inner_text().split()) > 4
    ask(page, "obama")
    expect(problem).to_be_hidden()


def test_nothing_found(book: Book, open_page: Callable[..., Opened]) -> None:
    """Where no tweet matches the page says so, and draws no share."""
    page, _ = open_page(f"{book.address}/?q=nobodywritesthis")
    expect(page.get_by_test_id("messages-empty")).to_be_visible()
    expect(page.get_by_test_id("percent-note")).not_to_be_empty()
    expect(page.get_by_test_id("ring")).to_have_count(0)


def test_too_few_for_a_share(book: Book, open_page: Callable[..., Opened]) -> None:
    """Below the stated number of tweets the page says so instead of drawing, and counts them."""
    book.write("a narwhal is great", "the narwhal is lovely")
    book.until_found("narwhal", 2)
    page, _ = open_page(f"{book.address}/?q=narwhal")
    shown(page, 2)
    expect(page.get_by_test_id("percent-note")).to_contain_text("30")
    expect(page.get_by_test_id("ring")).to_have_count(0)
    counts = page.get_by_test_id("count-row").get_by_test_id("count").all_inner_texts()
    assert sum(map(int, counts)) == 2


def test_the_raw_share_on_request(book: Book, open_page: Callable[..., Opened]) -> None:
    """The share without correction appears beside the corrected one when it is asked for."""
    page, _ = open_page(book.address)
    raw = page.get_by_test_id("raw-share").first
    expect(page.get_by_test_id("ring")).to_be_visible()
    expect(raw).to_be_hidden()
    page.get_by_test_id("raw-switch").check()
    expect(raw).to_be_visible()
    expect(raw).to_contain_text(re.compile(r"\d"))


def test_an_address_shows_what_it_was_copied_from(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """An address with a query and a language opens on them, in another browser as well."""
    ids = book.write("der pangolin lacht", "der pangolin lebt", lang="de")
    book.until_found("pangolin", 2)
    first, _ = open_page(book.address)
    ask(first, "pangolin")
    first.get_by_test_id("search-lang").select_option("de")
    first.wait_for_url("**lang=de*")
    second, _ = open_page(first.url)
    expect(second.get_by_test_id("search-box")).to_have_value("pangolin")
    expect(second.get_by_test_id("search-lang")).to_have_value("de")
    assert shown(second, 2) == ids[::-1]


def test_a_letter_behind_an_underscore_is_not_the_beginning_of_a_word(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """To the index it stands alone, and a single letter would find nearly everything."""
    page, _ = open_page(f"{book.address}/?q=coffee")
    expect(page.get_by_test_id("search-figures")).to_have_attribute("aria-busy", "false")
    box = page.get_by_test_id("search-box")
    box.press("End")
    box.press_sequentially("_b")
    expect(page).to_have_url(re.compile(r"q=coffee(_|$)"))
    box.press_sequentially("ean")
    expect(page).to_have_url(re.compile(r"q=coffee_bean"))
    expect(page.get_by_test_id("search-problem")).to_be_hidden()


def test_an_empty_box_shows_everything(book: Book, open_page: Callable[..., Opened]) -> None:
    """Without a query the page shows the newest of all, and counts all there are."""
    page, _ = open_page(book.address)
    expect(page.get_by_test_id("search-heading")).to_have_text("Sentiment analysis for everything")
    expect(page.get_by_test_id("message").nth(20)).to_be_visible()
    assert query_of(page) == {}


def test_older_tweets(book: Book, open_page: Callable[..., Opened]) -> None:
    """More matches than a list holds are leafed through, and back to the newest."""
    book.write(*[f"capybara number {i}" for i in range(70)])
    book.until_found("capybara", 70)
    page, _ = open_page(f"{book.address}/?q=capybara")
    newest = shown(page, 50)
    page.get_by_test_id("older").click()
    expect(page.get_by_test_id("message").first).not_to_have_attribute("data-id", newest[0])
    assert not set(shown(page, 20)) & set(newest)
    page.get_by_test_id("newest").click()
    assert shown(page, 50) == newest


def test_older_ones_behind_a_page_that_ended_early(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """Leafing goes on where the search ended, which may lie far behind what it found."""
    ids = book.write(*[f"tamandua number {i}" for i in range(52)])
    book.until_found("tamandua", 52)
    page, _ = open_page(f"{book.address}/?q=tamandua")
    shown(page, 50)
    oldest = book.json("/v1/search?q=tamandua&limit=52")["messages"][-1]
    asked: list[str] = []

    def answer(route: Route) -> None:
        """Find nothing, then one message, and say each time that there is more."""
        asked.extend(query_of(route.request)["before"])
        found = [oldest] if len(asked) == 2 else []
        before = int(oldest["key"]) - 10 * len(asked)
        route.fulfill(json={"messages": found, "more": len(asked) < 3, "before": before})

    page.route("**/v1/search?*", answer)
    page.get_by_test_id("older").click()
    assert shown(page, 1) == ids[:1]
    page.get_by_test_id("older").click()
    expect(page.get_by_test_id("message")).to_have_count(0)
    expect(page.get_by_test_id("older")).to_be_hidden()
    assert asked[1:] == [str(int(oldest["key"]) - 10 * n) for n in (1, 2)]


def test_older_ones_that_come_too_late(book: Book, open_page: Callable[..., Opened]) -> None:
    """A page of older tweets that comes after another search has begun is dropped."""
    book.write(*[f"echidna number {i}" for i in range(60)], "one kowari", label=None)
    book.until_found("echidna", 60)
    book.until_found("kowari", 1)
    page, _ = open_page(f"{book.address}/?q=echidna")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/search?*", hold)
    with page.expect_request("**/v1/search?*"):
        page.get_by_test_id("older").click()
    ask(page, "kowari")
    with page.expect_response("**/v1/search?*"):
        held[0].continue_()
    (last,) = book.write("another kowari")
    page.get_by_test_id("show-new").click()
    expect(page.get_by_test_id("message").first).to_have_attribute("data-id", last)
    shown(page, 2)


def wilson(k: float, n: float) -> tuple[float, float]:
    """Return the 95% interval of a share by Wilson's formula."""
    middle, spread = (
        k / n + 1.96**2 / (2 * n),
        1.96 * (k * (n - k) / n**3 + (1.96 / n) ** 2 / 4) ** 0.5,
    )
    return ((middle - spread) / (1 + 1.96**2 / n), (middle + spread) / (1 + 1.96**2 / n))


# How opaque the chart is at given shares, in the middle of the first step.
OPACITIES = """shares => {
    const canvas = document.querySelector('[data-testid=series-chart] canvas');
    const over = canvas.parentElement.querySelector('.u-over').getBoundingClientRect();
    const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
    const x = Math.round((over.left + 3 - box.left) * scale);
    const {data} = canvas.getContext('2d').getImageData(x, 0, 1, canvas.height);
    const y = share => over.top - box.top + over.height * (1 - share) / 1.42;
    return shares.map(share => data[4 * Math.round(y(share) * scale) + 3]);
}"""


def test_shares_of_few_over_time(book: Book, open_page: Callable[..., Opened]) -> None:
    """In the chart each share has its interval, and the last step is drawn as unfinished."""
    now = stamp(0.0)  # all are of one step: the first ones alone would have no interval to see
    book.write(*[f"the kodkod is great, number {i}" for i in range(24)], created_at=now)
    book.write(*[f"the kodkod is awful, number {i}" for i in range(12)], label=0, created_at=now)
    book.until_found("kodkod", 36)
    page, _ = open_page("about:blank")
    page.clock.set_fixed_time(now)  # a second later the step, which is as short, would be over
    page.goto(f"{book.address}/?q=kodkod")
    chart = page.get_by_test_id("series-chart")
    expect(chart).to_have_attribute("aria-label", re.compile("^Share over time. From "))
    first = next(
        p
        for p in book.json("/v1/summary?q=kodkod")["series"]["points"]
        if any(p["counts"].values())
    )
    k, n = first["counts"]["negative"], sum(first["counts"].values())
    low, high = wilson(k, n)
    page.get_by_test_id("series-numbers").click()
    row = page.get_by_test_id("series-table").locator("tbody tr").first.locator("td")
    expect(row.first).to_have_text(str(n))
    half, is_even = 50 * (high - low), abs((high + low) / 2 - k / n) <= 0.006
    wanted = f"± {half:.0f}" if is_even else f"({100 * low:.0f}–{100 * high:.0f})"
    expect(row.nth(1)).to_have_text(f"{k / n:.0%} {wanted}")
    expect(page.get_by_test_id("series-table").locator("tbody th").last).to_contain_text(
        "unfinished"
    )
    # Between a line and an end of its interval, and beside both; grid lines lie at whole quarters.
    tries = [low + part * (k / n - low) for part in (0.2, 0.4, 0.6, 0.8)]
    inside = max(tries, key=lambda share: abs((4 * share + 0.5) % 1 - 0.5))
    outside = min(low, wilson(n - k, n)[0]) / 2
    assert page.evaluate(OPACITIES, [inside, outside]) == [pytest.approx(51, abs=2), 0]
    veil, over = (
        chart.locator(where).bounding_box()
        for where in ("[data-testid=series-unfinished]", ".u-over")
    )
    assert veil is not None
    assert over is not None
    assert veil["width"] > 0
    assert veil["x"] + veil["width"] == pytest.approx(over["x"] + over["width"], abs=0.6)


def span_of(page: Page) -> list[int]:
    """Return the time that a chart was zoomed to, as the address has it."""
    page.wait_for_url(re.compile(r"range=\d+-\d+"))
    return [int(end) for end in query_of(page)["range"][0].split("-")]


def test_a_time_is_chosen(book: Book, open_page: Callable[..., Opened]) -> None:
    """A time is chosen from a list, dragged over or zoomed to; it stands in the address."""
    book.write_past("a mulgara looks for crickets")
    book.until_found("mulgara", 90)
    page, _ = open_page(f"{book.address}/?q=mulgara")
    when, chart = page.get_by_test_id("series-when"), page.get_by_test_id("series-chart")
    choice = page.get_by_test_id("series-range")
    expect(when).to_contain_text(re.compile(r"in \d+ sec"))
    choice.select_option("6h")
    expect(when).to_contain_text("in 10 min")
    assert query_of(page) == {"q": ["mulgara"], "range": ["6h"]}
    expect(page.get_by_test_id("series-source")).to_contain_text("Stored matches go back to")
    page.reload()
    expect(choice).to_have_value("6h")
    choice.select_option("15m")
    expect(when).to_contain_text("in 30 sec")
    area = chart.locator(".u-over").bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + area["width"] * 0.5, area["y"] + 20)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.7, area["y"] + 20, steps=4)
    page.mouse.up()
    begin_ms, end_ms = span_of(page)
    assert end_ms - begin_ms == pytest.approx(0.2 * 900_000, rel=0.1)
    expect(when).to_contain_text("in 5 sec")
    expect(choice).to_have_value("chosen")
    page.get_by_test_id("series-in").click()
    expect(when).to_contain_text("in 2 sec")
    inner_ms = span_of(page)
    assert begin_ms < inner_ms[0] < inner_ms[1] < end_ms
    page.get_by_test_id("series-out").click()
    expect(when).to_contain_text("in 5 sec")
    for _ in range(3):
        page.go_back()
    expect(choice).to_have_value("15m")
    chart.locator(".u-over").dblclick()
    expect(choice).to_have_value("")
    assert query_of(page) == {"q": ["mulgara"]}
    page.goto(f"{book.address}/?q=mulgara&range=1-900001")
    expect(page.get_by_test_id("series")).to_contain_text("No messages in this time.")
    expect(chart).to_be_hidden()


def test_the_crosshair(book: Book, open_page: Callable[..., Opened]) -> None:
    """Pointer and keys tell the values of a step, in the page and to who hears it."""
    book.write_past("a potoroo digs for truffles")
    book.until_found("potoroo", 90)
    page, _ = open_page("about:blank")
    page.clock.set_fixed_time(dt.datetime.now(dt.UTC))  # no step ends meanwhile
    page.goto(f"{book.address}/?q=potoroo&range=15m")
    when, chart = page.get_by_test_id("series-when"), page.get_by_test_id("series-chart")
    expect(when).to_contain_text("in 30 sec")
    newest = when.inner_text()
    chart.focus()
    page.keyboard.press("Home")
    expect(when).not_to_have_text(newest)
    first = when.inner_text()
    expect(chart).to_have_attribute("aria-valuenow", "0")
    expect(chart).to_have_attribute("aria-valuetext", re.compile(f"^{re.escape(first)}.*positive"))
    expect(page.get_by_test_id("series-value")).to_have_text([re.compile(r"^\d+%|–")] * 2)
    page.keyboard.press("ArrowRight")
    expect(chart).to_have_attribute("aria-valuenow", "1")
    page.keyboard.press("Escape")
    expect(when).to_have_text(newest)
    area = chart.locator(".u-over").bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + 20)
    expect(when).not_to_have_text(newest)
    assert when.inner_text() != first


def test_a_chart_has_the_colours_of_the_theme(book: Book, open_page: Callable[..., Opened]) -> None:
    """The other theme repaints it, and the first one brings its colours back."""
    page, _ = open_page(f"{book.address}/?q=coffee")
    expect(page.get_by_test_id("series-chart").locator("canvas")).to_be_visible()
    drawn = "document.querySelector('[data-testid=series-chart] canvas').toDataURL()"
    before = page.evaluate(f"() => {drawn}")
    page.get_by_test_id("theme-toggle").click()
    page.wait_for_function(f"before => {drawn} !== before", arg=before)
    page.get_by_test_id("theme-toggle").click()
    page.wait_for_function(f"before => {drawn} === before", arg=before)


def test_history_that_is_off_is_not_asked_for(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """Where nothing is counted over time, the page draws the stored messages, and asks no more."""
    assert browser.is_connected()
    with open_book(tmp_path, history={"enabled": False}) as book:
        assert not book.json("/v1/page")["has_history"]
        page, _ = open_page("about:blank")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{book.address}/?range=all")
        expect(page.get_by_test_id("series-source")).to_contain_text("Stored matches go back to")
        with page.expect_response("**/v1/summary?*"):
            page.get_by_test_id("series-range").select_option("7d")
        expect(page.get_by_test_id("series-when")).to_contain_text("in 3 hr")
        assert not any("/v1/history" in url for url in asked)
        page.goto("about:blank")


def test_history_reaches_further_back(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """Of a time before the stored messages came all that were counted then are shown."""
    assert browser.is_connected()
    sections = {"source": f"file:{tmp_path / 'tweets.jsonl'}"}
    (tmp_path / "tweets.jsonl").write_text("".join(itertools.islice(first_tweets(), 200)))
    config = write_config(tmp_path / "config.yaml", **sections)
    with Daemon(config) as daemon:
        Book(daemon, tmp_path / "tweets.jsonl").until_found("", 200)
        assert daemon.stop() == 0
    (file,) = tmp_path.rglob("recent.db")
    days = range(1, 6)
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        now_s = int(time.time())
        minutes = {(now_s - day * 86_400) // 60 * 60: np.array([30, 10 * day]) for day in days}
        steps = dict.fromkeys(STEPS_S.values(), 10_000)
        write(db, Uncounted(by_minute=minutes), lambda _: 0, steps)
    with Daemon(config) as daemon:
        page, _ = open_page(f"{daemon.address}/?range=7d")
        expect(page.get_by_test_id("series-source")).to_contain_text("by when they came")
        page.get_by_test_id("series-numbers").click()
        cells = page.get_by_test_id("series-table").locator("tbody td:nth-child(2)")
        expect(cells.first).to_have_text("80")
        assert cells.all_inner_texts()[:5] == [f"{30 + 10 * day}" for day in reversed(days)]
        page.get_by_test_id("series-range").select_option("all")
        expect(cells.first).to_have_text("80")
        page.goto("about:blank")
        assert daemon.stop() == 0
