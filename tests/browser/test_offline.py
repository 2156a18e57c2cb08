"""The daemon goes away and comes back: the page says so, and goes on by itself."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from consumers.http.state import ApiEventSerializer
from consumers.search.live_updater import LiveUpdater
from consumers.search.store import RecentStore
from tests.broker.broker import free_ports
from tests.browser.axe import violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book
from tests.browser.test_appearance import tab_to
from tests.browser.test_search import shown
from tests.consumers.http.loopback_server import app_state, served, settings
from tests.consumers.search.stores import running, tell, wall_of
from tests.endtoend.daemon_process import Daemon, write_config

_HIDDEN = "Object.defineProperty(document, 'hidden', { value: false, writable: true })"
_CHANGED = "document.dispatchEvent(new Event('visibilitychange'))"


@pytest.fixture
def path(browser: Browser, tmp_path: Path) -> Path:
    """Return an empty file to follow."""
    assert browser.is_connected()
    path = tmp_path / "tweets.jsonl"
    path.touch()
    return path


def test_the_daemon_goes_and_returns(path: Path, open_page: Callable[..., Opened]) -> None:
    """While it is away the page says so and keeps what it has; then it goes on without reload.

    It takes no corrections, and says why.
    """
    sections: dict[str, object] = {"source": f"file:{path}", "corrections": {"to": "none"}}
    (port,) = free_ports(1)  # it is served again: the system must not give it away meanwhile
    config = write_config(path.parent / "config.yaml", http={"port": port}, **sections)
    with Daemon(config) as daemon:
        book = Book(daemon, path)
        (first,) = book.write("a serval is here")
        book.until_found("serval", 1)
        page, watch = open_page(f"{book.address}/?q=serval")
        watch.expect("ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|answered 503|status of 503")
        connection = page.get_by_test_id("connection")
        expect(connection).to_have_attribute("data-state", "live")
        expect(page.get_by_test_id("offline-banner")).to_be_hidden()
        expect(page.get_by_test_id("corrections-off")).to_contain_text("corrections.to")
        expect(page.get_by_test_id("teach").first).to_be_hidden()
        page.evaluate("window.still = true")
        assert daemon.stop() == 0
        expect(connection).to_have_attribute("data-state", "offline")
        expect(page.get_by_test_id("offline-banner")).to_be_visible()
        expect(page.get_by_test_id("message")).to_have_count(1)
        assert violations(page) == []
        tab_to(page, "retry-now")
        page.keyboard.press("Enter")
    with Daemon(config) as daemon:
        again = Book(daemon, path)
        expect(connection).to_have_attribute("data-state", "live")
        expect(page.get_by_test_id("offline-banner")).to_be_hidden()
        expect(page.locator("#main")).to_be_focused()  # the button that had the focus is gone
        again.write("a serval is back")
        page.get_by_test_id("show-new").click()
        expect(page.get_by_test_id("message")).to_have_count(2)
        expect(page.get_by_test_id("message").last).to_have_attribute("data-id", first)
        assert page.evaluate("window.still") is True
        assert daemon.stop() == 0
    # A daemon with another model, and with nothing kept, has a page of its own.
    path.write_text("")
    other = write_config(
        path.parent / "other.yaml", http={"port": port}, model={"classes": ["calm", "cross"]},
        checkpoint={"folder": None}, **{**sections, "corrections": {"to": "none"}},
    )  # fmt: skip
    with Daemon(other) as daemon:
        expect(page.get_by_test_id("messages-empty")).to_be_visible()
        expect(page.get_by_test_id("message")).to_have_count(0)
        expect(page.get_by_test_id("count-row")).to_contain_text(["calm", "cross"])
        page.goto("about:blank")
        assert daemon.stop() == 0


def test_a_page_that_loads_unseen_asks_for_no_events(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """Connections to a host are few: a tab that was opened in the background waits to be seen."""
    page, _ = open_page("about:blank")
    page.add_init_script(
        "Object.defineProperty(document, 'hidden', { value: true, writable: true })"
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{book.address}/?q=coffee")
    expect(page.get_by_test_id("search-heading")).to_contain_text("coffee")
    page.evaluate("dispatchEvent(new Event('storage'))")  # as another tab saves a search
    assert not any("/v1/events" in url for url in asked)
    page.evaluate(f"document.hidden = false; {_CHANGED}")
    expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "live")


def test_what_was_deleted_while_nobody_was_connected_leaves_the_list(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """No event told of it: the next list does, as it lacks the message."""
    ids = book.write(*[f"a pademelon, number {i}" for i in range(4)])
    book.until_found("pademelon", 4)
    page, _ = open_page("about:blank")
    page.add_init_script(
        "Object.defineProperty(document, 'hidden', { value: false, writable: true })"
    )
    page.clock.install()
    page.goto(f"{book.address}/?q=pademelon")
    expect(page.get_by_test_id("message")).to_have_count(4)
    page.evaluate(f"document.hidden = true; {_CHANGED}")
    with page.expect_event("requestfailed", lambda request: "/v1/events" in request.url):
        page.clock.fast_forward(61_000)
    page.evaluate("id => fetch(`/v1/messages/${id}`, { method: 'DELETE' })", ids[1])
    book.daemon.until(lambda: book.json("/v1/summary?q=pademelon")["n"] == 3, "three of them")
    page.evaluate(f"document.hidden = false; {_CHANGED}")
    expect(page.get_by_test_id("message")).to_have_count(3)
    assert ids[1] not in shown(page, 3)


def test_what_was_deleted_meanwhile_leaves_a_page_of_older_ones(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """The newest list does not reach so far down: after a reconnect the page is asked for again."""
    ids = book.write(*[f"a tenrec, number {i}" for i in range(54)])
    book.until_found("tenrec", 54)
    page, _ = open_page("about:blank")
    page.add_init_script(_HIDDEN)
    page.clock.install()
    page.goto(f"{book.address}/?q=tenrec")
    page.get_by_test_id("older").click()
    expect(page.get_by_test_id("message")).to_have_count(4)
    page.evaluate(f"document.hidden = true; {_CHANGED}")
    with page.expect_event("requestfailed", lambda request: "/v1/events" in request.url):
        page.clock.fast_forward(61_000)
    page.evaluate("id => fetch(`/v1/messages/${id}`, { method: 'DELETE' })", ids[1])
    book.daemon.until(lambda: book.json("/v1/summary?q=tenrec")["n"] == 53, "53 of them")
    page.evaluate(f"document.hidden = false; {_CHANGED}")
    expect(page.get_by_test_id("message")).to_have_count(3)
    assert ids[1] not in shown(page, 3)


def test_what_went_wrong_with_older_ones_is_over_once_the_daemon_is_well(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """New figures, or the stream's return, take the words away that told of it."""
    book.write(*[f"a thylacine, number {i}" for i in range(54)])
    book.until_found("thylacine", 54)
    page, watch = open_page("about:blank")
    watch.expect("503")
    page.add_init_script(_HIDDEN)
    began = dt.datetime.now(dt.UTC)
    page.clock.set_fixed_time(began)  # timers go on; the ten seconds are over when the test says so
    page.goto(f"{book.address}/?q=thylacine")
    older, problem = page.get_by_test_id("older"), page.get_by_test_id("search-problem")

    def fail() -> None:
        refuse = {"status": 503, "json": {"detail": "busy"}}
        page.route("**/v1/search*", lambda route: route.fulfill(**refuse), times=1)
        older.click()
        expect(problem).to_have_text("busy")

    fail()
    book.write("one more thylacine")
    expect(page.get_by_test_id("counts")).to_contain_text("55")
    expect(problem).to_have_text("busy")  # the figures come each second, and it is to be read
    page.clock.set_fixed_time(began + dt.timedelta(seconds=11))
    book.write("and another thylacine")
    expect(problem).to_be_hidden()
    fail()
    page.evaluate(
        """() => {
            window.EventSource = class extends EventTarget {
                constructor() { super(); window.source = this; }
                close() {}
            };
        }"""
    )
    page.evaluate(f"document.hidden = true; {_CHANGED}")
    page.clock.fast_forward(61_000)
    page.evaluate(f"document.hidden = false; {_CHANGED}")
    expect(problem).to_have_text("busy")
    page.evaluate("source.dispatchEvent(new Event('open'))")  # and no figures yet
    expect(problem).to_be_hidden()


def test_languages_and_source_that_come_later(book: Book, open_page: Callable[..., Opened]) -> None:
    """A page that was opened before the first messages offers their languages once there are any.

    When the stream comes back, there may be others.
    """
    page, _ = open_page("about:blank")
    page.add_init_script(_HIDDEN)
    told = book.json("/v1/page")
    early = {**told, "languages": [], "source": "nothing yet"}
    page.route("**/v1/page", lambda route: route.fulfill(json=early), times=1)
    page.goto(book.address)
    languages = page.get_by_test_id("search-lang")
    expect(languages.locator("option[value=en]")).to_have_count(1)
    expect(languages).to_be_visible()
    foot = page.locator("#foot")
    expect(foot).to_contain_text(f"learning from {told['source']}.")
    page.clock.install()
    page.evaluate(f"document.hidden = true; {_CHANGED}")
    with page.expect_event("requestfailed", lambda request: "/v1/events" in request.url):
        page.clock.fast_forward(61_000)
    later = {**told, "languages": ["tlh", "en"], "source": "another one"}
    page.route("**/v1/page", lambda route: route.fulfill(json=later))
    page.evaluate(f"document.hidden = false; {_CHANGED}")
    offered = {*told["languages"], *later["languages"]}  # what was offered once stays
    expect(languages.locator("option")).to_have_text([re.compile(r"\w")] * (1 + len(offered)))
    expect(foot).to_contain_text("learning from another one.")


def test_a_stream_that_is_taken_when_it_is_asked_why_not(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """The page asks why it was refused; taken by then, that question is not left open."""
    page, watch = open_page("about:blank")
    watch.expect("503")
    page.add_init_script("AbortSignal.timeout = () => new AbortController().signal")
    page.route("**/v1/events*", lambda route: route.fulfill(status=503), times=1)
    with page.expect_event(
        "requestfailed",
        lambda request: "/v1/events" in request.url and request.resource_type == "fetch",
    ):
        page.goto(book.address)
    expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "live")


def test_stored_messages_that_are_still_being_opened(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """After a restart the page says what it waits for, and shows no figure until it has the right.

    The store is not opened before the test says so, however large it is.
    """
    assert browser.is_connected()
    path, of = tmp_path / "recent.db", settings()
    with running(path) as store:
        wall_of(store).now_s = time.time()
        tell(store, ["a serval is here"] * 40)
    reopened = RecentStore(of.recent, path, of.model.classes, of.model.fields, of.page.unsure_below)
    with app_state(of) as made:
        updater = LiveUpdater(reopened, ApiEventSerializer(made), made.metrics)
        updater.start()
        with served(made, recent=reopened, live_updater=updater) as port:
            page, watch = open_page(f"http://127.0.0.1:{port}/?q=serval")
            watch.expect("503")
            problem = page.get_by_test_id("search-problem")
            expect(problem).to_have_text(re.compile("The stored messages are still loading;"))
            expect(page.get_by_test_id("search-figures")).to_have_attribute("aria-busy", "true")
            for name in ("count-row", "share", "message", "messages-empty", "sample-note"):
                expect(page.get_by_test_id(name).locator("visible=true")).to_have_count(0)
            assert re.findall(r"\d+%|\b0\b", page.inner_text("main")) == []
            reopened.start()
            counts = page.get_by_test_id("count-row").get_by_test_id("count")
            expect(counts).to_have_text(["20", "20"])
            expect(page.get_by_test_id("message")).to_have_count(40)
            expect(problem).to_be_hidden()
            page.goto("about:blank")
        updater.stop()
        reopened.stop()
