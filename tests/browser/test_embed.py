"""The card in a frame of another site: shown to the one that may, refused to all others."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.axe import violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book, open_book

pytestmark = pytest.mark.deep


class Framed(NamedTuple):
    """A daemon, a site that may frame its card, and one that may not."""

    book: Book
    board: str
    stranger: str


class _Page(http.server.BaseHTTPRequestHandler):
    """Answers with a page that frames the address after its question mark."""

    def do_GET(self) -> None:
        """Answer any path."""
        address = self.path.partition("?")[2]
        frame = f'<iframe src="{address}" width=420 height=240 title="card"></iframe>'
        body = f'<!doctype html><link rel="icon" href="data:,"><title>site</title>{frame}'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def site() -> Iterator[str]:
    """Serve a site of its own origin; yield it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def framed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framed]:
    """Return a daemon whose card one of two sites may frame."""
    assert browser.is_connected()
    with ExitStack() as stack:
        board, stranger = (stack.enter_context(site()) for _ in range(2))
        http = {"port": 0, "embed_sites": [board]}
        book = stack.enter_context(open_book(tmp_path_factory.mktemp("embed"), http=http))
        yield Framed(book, board, stranger)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_that_may_shows_the_card(
    framed: Framed, open_page: Callable[..., Opened], scheme: str
) -> None:
    """Its frame has shares and counts in the reader's colours, and a link to the search."""
    address = f"{framed.book.address}/embed?q=coffee"
    page, _ = open_page(f"{framed.board}/?{address}", color_scheme=scheme)
    card = page.frame_locator("iframe")
    expect(card.locator("h1")).to_have_text("Sentiment analysis for coffee")
    expect(card.locator("tbody tr")).to_have_count(2)
    expect(card.locator("tbody b").first).to_contain_text("%")
    is_dark = card.locator("body").evaluate(
        "body => getComputedStyle(body).backgroundColor === 'rgb(15, 22, 27)'"
    )
    assert is_dark == (scheme == "dark")
    # All of it fits: nothing has to be scrolled to the side.
    assert card.locator("html").evaluate("html => html.scrollWidth <= html.clientWidth")
    with page.context.expect_page() as opened:
        card.locator("h1 a").click()
    expect(opened.value.get_by_test_id("search-box")).to_have_value("coffee")


def test_the_card_is_asked_for_again(framed: Framed, open_page: Callable[..., Opened]) -> None:
    """What has come is told after half a minute, but not under the hands of who is in the card."""
    framed.book.write(*["a loris climbs"] * 40)
    framed.book.until_found("loris", 40)
    page, _ = open_page("about:blank")
    page.clock.install()
    page.goto(f"{framed.book.address}/embed?q=loris")
    note = page.locator(".note")
    before, after = re.compile("^40 "), re.compile("^41 ")  # the time of day ends the note
    expect(note).to_have_text(before)
    page.locator("h1 a").focus()
    framed.book.write("one more loris")
    framed.book.until_found("loris", 41)
    for _ in range(2):  # the first answer is dealt with when the second one comes
        with page.expect_response("**/embed?*"):
            page.clock.run_for(31_000)
    expect(note).to_have_text(before)
    page.locator("h1 a").blur()
    page.clock.run_for(31_000)
    expect(note).to_have_text(after)


@pytest.mark.parametrize(("who", "path"), [("stranger", "/embed?q=tea"), ("board", "/?q=tea")])
def test_all_other_frames_stay_empty(
    framed: Framed, open_page: Callable[..., Opened], who: str, path: str
) -> None:
    """Another site may not frame the card, and none may frame the page."""
    page, watch = open_page("about:blank")
    watch.expect("frame-ancestors")
    watch.expect("BLOCKED_BY_RESPONSE|chrome-error")
    with page.expect_console_message(lambda said: "frame-ancestors" in said.text):
        page.goto(f"{getattr(framed, who)}/?{framed.book.address}{path}")
    assert "coffee" not in page.frames[1].content()
    assert page.frames[1].locator("h1").filter(has_text="Sentiment").count() == 0


@pytest.mark.parametrize("width", [1440, 1280, 390, 320])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_card_is_accessible(
    framed: Framed, open_page: Callable[..., Opened], width: int, scheme: str
) -> None:
    """By itself it has no violation that a checker finds: with shares, and with too few."""
    size = {"viewport": {"width": width, "height": 400}}
    page, _ = open_page(f"{framed.book.address}/embed", color_scheme=scheme, **size)
    expect(page.locator("tbody b")).to_have_count(2)
    for query in ("", "?q=nobodywritesthis"):
        page.goto(f"{framed.book.address}/embed{query}")
        expect(page.locator("h1")).to_contain_text(query.partition("=")[2])
        assert violations(page) == [], query
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_card_says_that_the_daemon_does_not_answer(
    framed: Framed, open_page: Callable[..., Opened]
) -> None:
    """A request that is taken and never answered ends; the next answer is shown."""
    page, _ = open_page("about:blank")
    page.clock.install()
    page.goto(f"{framed.book.address}/embed?q=coffee")
    page.route("**/embed?*", lambda _: None)  # never answered
    with page.expect_request("**/embed?*"):
        page.clock.fast_forward(31_000)
    page.clock.fast_forward(16_000)
    problem = page.locator(".problem")
    expect(problem).to_contain_text("does not answer")
    expect(page.locator("h1")).to_have_text("Sentiment analysis for coffee")
    page.unroute("**/embed?*")
    page.clock.fast_forward(31_000)
    expect(problem).to_have_count(0)


def test_a_card_stays_while_the_daemon_cannot_answer(
    framed: Framed, open_page: Callable[..., Opened]
) -> None:
    """An answer without a card, as that of a proxy in between, leaves the last one."""
    page, watch = open_page("about:blank")
    watch.expect("502")
    page.clock.install()
    page.goto(f"{framed.book.address}/embed?q=coffee")
    expect(page.locator("h1")).to_have_text("Sentiment analysis for coffee")
    page.route("**/embed?*", lambda route: route.fulfill(status=502, body="<p>Bad gateway"))
    with page.expect_response("**/embed?*"):
        page.clock.fast_forward(31_000)
    page.unroute("**/embed?*")
    with page.expect_response("**/embed?*"):
        page.clock.fast_forward(31_000)
    expect(page.locator("h1")).to_have_text("Sentiment analysis for coffee")
    expect(page.locator("body")).not_to_contain_text("null")
