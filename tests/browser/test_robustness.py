"""Odd tweets, odd addresses, odd storage, odd daemons: the page stays whole, and says what is."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.axe import sticking_out, violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book, open_book
from tests.browser.test_appearance import PHONE
from tests.endtoend.daemon_process import Daemon, write_config

pytestmark = pytest.mark.deep

KEPT = "streamnb.saved"
ZALGO = "z" + "\u0355\u030d\u0316\u0311" * 60
ODD_CLASSES = [
    *("negative", "positive", "constructor", "__proto__", "10", "2", "<b>bold</b>", "\u202eturned"),
    "a class with a name that is longer than anybody would choose for one",
]


def kept(what: str) -> str:
    """Return a script that has these saved searches stand in the browser's storage."""
    return f"localStorage.getItem('{KEPT}') ?? localStorage.setItem('{KEPT}', {json.dumps(what)})"


@pytest.mark.parametrize("media", ["screen", "print"])
def test_odd_tweets(book: Book, open_page: Callable[..., Opened], media: str) -> None:
    """Endless words and texts, marks upon marks and turned letters widen nothing, on a phone."""
    word = f"axis{media}"
    texts = [
        f"{word} {'W' * 3_000}",
        f"{word} {ZALGO}",
        f"\u202e{word}",
        f"{word} " + "long " * 900,
    ]
    for text, user in zip(texts, ("W" * 300, ZALGO, "\u2067iso", "\u200b"), strict=True):
        book.write(text, user=user, lang=f"xx-{'y' * 300}", label=None)
    book.until_found(word, len(texts))
    page, _ = open_page(f"{book.address}/?q={word}", **PHONE)
    rows = page.get_by_test_id("message")
    expect(rows).to_have_count(len(texts))
    page.emulate_media(media=media)  # type: ignore[arg-type]  # one of two that it knows
    assert sticking_out(page) == []
    if media == "screen":
        assert violations(page) == []
    first = rows.first
    height = first.evaluate("row => row.offsetHeight")
    assert height < 400
    page.emulate_media(media="screen")
    first.get_by_test_id("message-why").click()
    first.get_by_test_id("numbers").click()
    expect(first.get_by_test_id("intercept-row")).to_be_visible()
    assert first.get_by_test_id("message-text").evaluate("text => text.offsetHeight") > height


def test_what_is_refused(book: Book, open_page: Callable[..., Opened]) -> None:
    """Where the daemon refuses to answer a page it says why; the next query is answered."""
    page, watch = open_page("about:blank")
    watch.expect("422")
    page.route(
        "**/v1/events?q=coffee*",
        lambda route: route.fulfill(status=422, json={"detail": "no coffee here"}),
    )
    page.goto(f"{book.address}/?q=coffee")
    expect(page.get_by_test_id("offline-banner")).to_contain_text("no coffee here")
    page.get_by_test_id("tab-search").click()
    expect(page.get_by_test_id("offline-banner")).to_be_hidden()
    expect(page.get_by_test_id("message").nth(20)).to_be_visible()


def test_a_question_that_is_too_long(book: Book, open_page: Callable[..., Opened]) -> None:
    """A link may hold one: the page says in its place what is wrong with it, and stays live."""
    page, _ = open_page(f"{book.address}/?q={'x' * 600}")
    expect(page.get_by_test_id("search-problem")).to_contain_text("600 characters")
    expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "live")
    expect(page.get_by_test_id("offline-banner")).to_be_hidden()


def test_a_link_that_no_daemon_answers(book: Book, open_page: Callable[..., Opened]) -> None:
    """It, and a search that was saved at one, is asked as far as it can be, and stays live."""
    page, _ = open_page("about:blank")
    page.context.add_init_script(kept(json.dumps([{"q": "\0", "lang": "y" * 40}])))
    page.goto(f"{book.address}/?q=coffee%00&lang={'z' * 40}")
    expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "live")
    expect(page.get_by_test_id("messages-empty")).to_be_visible()
    expect(page.get_by_test_id("saved-count")).to_have_text("0 found")
    page.get_by_test_id("search-lang").select_option("")
    expect(page.get_by_test_id("message").first).to_be_visible()
    expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "live")


@pytest.mark.parametrize("what", ["{", "7", '[{"q": "coffee"}, null]'])
def test_broken_storage(book: Book, open_page: Callable[..., Opened], what: str) -> None:
    """What cannot be read from the browser's storage is no saved search; a new one is kept."""
    page, _ = open_page("about:blank")
    page.context.add_init_script(kept(what))
    page.goto(f"{book.address}/?q=monday")
    page.get_by_test_id("save-search").click()
    expect(page.get_by_test_id("saved-card")).to_have_count(1)
    page.reload()
    expect(page.get_by_test_id("saved-card")).to_have_count(1)


def test_repeated_and_too_many_saved_searches(book: Book, open_page: Callable[..., Opened]) -> None:
    """A search that is kept twice is shown once, with its own figures; no more than eight are."""
    book.write("a solenodon", "a desman", "a desman")
    book.until_found("desman", 2)
    queries = ["solenodon", "solenodon", "desman", *(f"nobody{i}" for i in range(20))]
    page, _ = open_page("about:blank")
    page.context.add_init_script(kept(json.dumps([{"q": query} for query in queries])))
    page.goto(book.address)
    cards = page.get_by_test_id("saved-card")
    expect(cards).to_have_count(8)
    expect(cards.nth(0).get_by_test_id("saved-newest")).to_contain_text("a solenodon")
    expect(cards.nth(1).get_by_test_id("saved-newest")).to_contain_text("a desman")
    cards.nth(7).get_by_test_id("saved-remove").click()
    expect(page.get_by_test_id("save-search")).to_be_focused()


def test_no_storage_at_all(book: Book, open_page: Callable[..., Opened]) -> None:
    """Where the browser forbids storage, saving holds for the visit."""
    page, _ = open_page("about:blank")
    page.context.add_init_script(
        """for (const name of ['localStorage', 'sessionStorage'])
            Object.defineProperty(window, name, {get() { throw new DOMException('no') }})"""
    )
    page.goto(f"{book.address}/?q=coffee")
    page.get_by_test_id("save-search").click()
    expect(page.get_by_test_id("saved-card")).to_have_count(1)
    page.get_by_test_id("theme-toggle").click()
    expect(page.get_by_test_id("theme-toggle")).to_have_attribute("aria-pressed", "true")


def test_two_tabs(book: Book, open_page: Callable[..., Opened]) -> None:
    """What one tab saves the other has as well, and adds to."""
    one, _ = open_page(f"{book.address}/?q=coffee")
    other = one.context.new_page()
    other.goto(f"{book.address}/?q=monday")
    expect(other.get_by_test_id("save-search")).to_be_enabled()
    one.get_by_test_id("save-search").click()
    expect(other.get_by_test_id("saved-card")).to_have_count(1)
    other.get_by_test_id("save-search").click()
    for page in (one, other):
        expect(page.get_by_test_id("saved-card")).to_have_count(2)


def test_leaving_while_typing(book: Book, open_page: Callable[..., Opened]) -> None:
    """Whoever leaves the search with a word half typed is not called back to it."""
    page, _ = open_page("about:blank")
    page.clock.install()
    page.goto(book.address)
    expect(page.get_by_test_id("message").first).to_be_visible()
    page.get_by_test_id("search-box").press_sequentially("coff")
    page.get_by_test_id("tab-model").click()
    page.clock.run_for(1_000)
    expect(page.get_by_test_id("model-examples")).to_contain_text(re.compile(r"\d"))
    expect(page.get_by_test_id("view-model")).to_be_visible()
    assert page.url.endswith("view=model")


def test_figures_of_the_query_before(book: Book, open_page: Callable[..., Opened]) -> None:
    """What was to be drawn in the next frame is not drawn for a query that has come meanwhile."""
    book.write("a dibbler digs")
    book.until_found("dibbler", 1)
    page, watch = open_page(f"{book.address}/?q=dibbler")
    watch.expect("ERR_ABORTED")
    figures = page.get_by_test_id("search-figures")
    expect(figures).to_have_attribute("aria-busy", "false")
    page.clock.install()
    page.clock.pause_at(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=10))
    page.evaluate(
        """() => {
            window.asked = 0;
            const frame = requestAnimationFrame;
            window.requestAnimationFrame = (...all) => { window.asked += 1; return frame(...all); };
        }"""
    )
    book.write("another dibbler digs")
    while not page.evaluate("window.asked"):
        pass  # until the page is told, and waits for a frame
    page.route("**/v1/events*", lambda _: None)  # never answered
    page.get_by_test_id("search-box").fill("dunnart")
    page.get_by_test_id("search-box").press("Enter")
    expect(page.get_by_test_id("search-heading")).to_contain_text("dunnart")
    page.clock.run_for(100)
    expect(figures).to_have_attribute("aria-busy", "true")


def test_typing_fast(book: Book, open_page: Callable[..., Opened]) -> None:
    """The address follows a sentence that is typed without a pause, and is not written too often.

    Browsers take some hundred changes of it within a few seconds, and then no more.
    """
    page, _ = open_page(f"{book.address}/?view=try")
    page.evaluate(
        """() => {
            window.written = 0;
            for (const name of ['pushState', 'replaceState']) {
                const write = history[name].bind(history);
                history[name] = (...all) => { window.written += 1; write(...all); };
            }
        }"""
    )
    began_s = time.monotonic()
    page.get_by_test_id("try-text").press_sequentially("so sad " * 40)
    page.wait_for_url("**" + "so+sad+" * 40)
    # Behind a pause of 100 ms each; browsers take twice as many.
    assert page.evaluate("window.written") <= 1 + 10 * (time.monotonic() - began_s)


def test_a_list_that_fills(book: Book, open_page: Callable[..., Opened]) -> None:
    """All that comes to a short list can be shown; once it is full, older ones can be leafed to."""
    book.write("a first markhor")
    book.until_found("markhor", 1)
    page, _ = open_page(f"{book.address}/?q=markhor")
    rows = page.get_by_test_id("message")
    expect(rows).to_have_count(1)
    book.write(*[f"markhor number {i}" for i in range(20)], label=None)
    show_new = page.get_by_test_id("show-new")
    expect(show_new).to_have_text("Show 20 new")
    show_new.click()
    expect(rows).to_have_count(21)
    expect(page.get_by_test_id("older")).to_be_hidden()
    book.write(*[f"markhor number {i}" for i in range(60)], label=None)
    expect(show_new).to_have_text("Show 50+ new")
    expect(page.get_by_test_id("older")).to_be_hidden()
    show_new.click()
    expect(rows).to_have_count(50)
    expect(page.get_by_test_id("older")).to_be_visible()


def test_the_focus_is_never_lost(book: Book, open_page: Callable[..., Opened]) -> None:
    """Buttons that vanish hand the focus on; a row that vanishes does not hold the list still.

    A list from which a row has gone fills up from below.
    """
    book.write(*[f"a saiga, number {i}" for i in range(60)], label=None)
    book.until_found("saiga", 60)
    page, _ = open_page(f"{book.address}/?q=saiga")
    follow = page.get_by_test_id("follow")
    for button in ("older", "newest"):
        expect(page.get_by_test_id(button)).to_be_visible()
        page.get_by_test_id(button).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_test_id(button)).to_be_hidden()
        expect(follow).to_be_focused()
    book.write("one more saiga")
    expect(page.get_by_test_id("show-new")).to_be_visible()
    page.get_by_test_id("show-new").focus()
    page.keyboard.press("Enter")
    expect(follow).to_be_focused()
    expect(page.get_by_test_id("message-text").first).to_have_text("one more saiga")
    page.keyboard.press("Enter")  # follows
    expect(follow).to_have_attribute("aria-pressed", "true")
    row = page.get_by_test_id("message").first
    row.get_by_test_id("message-why").focus()
    name = row.get_attribute("data-id")
    page.evaluate("id => fetch(`/v1/messages/${id}`, {method: 'DELETE'})", name)
    expect(page.locator(f"[data-id={name}]")).to_have_count(0)
    expect(page.get_by_test_id("message")).to_have_count(50)
    (last,) = book.write("the very last saiga")
    expect(page.get_by_test_id("message").first).to_have_attribute("data-id", last)


@pytest.fixture(scope="module")
def odd(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    """Return a daemon of nine classes with odd names, whose model has credible intervals."""
    assert browser.is_connected()
    model = {"classes": ODD_CLASSES, "features": {"text": {"hybrid": False}}}
    with open_book(tmp_path_factory.mktemp("odd"), model=model) as book:
        yield book


def test_nearly_certain_is_not_certain(odd: Book, open_page: Callable[..., Opened]) -> None:
    """What is nearly certain is never said to be 100%, nor the rest 0%; nor are intervals."""
    gloom = "gloomy dismal dreary bleak grim woeful gharials"
    odd.write(*[gloom] * 300, label=0)
    odd.until_found("gharials", 300)
    page, _ = open_page(f"{odd.address}/?view=try")
    page.get_by_test_id("try-text").fill(f"{gloom} so awful")
    shares = page.get_by_test_id("try-share")
    expect(shares.first).to_have_text("> 99.99%")
    expect(page.get_by_test_id("try-label").locator(".note")).to_contain_text("%")
    # Also where the class that it is weighed against is called "constructor".
    expect(page.get_by_test_id("intercept-row")).to_be_visible()
    told = page.get_by_test_id("try-posterior").inner_text()
    assert "< 0.01%" in told
    assert not re.search(r"100(\.0+)?%|(?<![\d.])0(\.0+)?%", told)


def test_a_step_without_a_class_of_an_odd_name(odd: Book, open_page: Callable[..., Opened]) -> None:
    """Its share there is none of a hundred, though every object has a "constructor"."""
    odd.write(*["an okapi"] * 40)
    odd.until_found("okapi", 40)
    page, _ = open_page("about:blank")

    def leave_out(route: Route) -> None:
        answer = route.fetch().json()
        for point in answer["series"]["points"]:
            point["counts"].pop("constructor", None)
        route.fulfill(json=answer)

    page.route("**/v1/summary*", leave_out)
    page.goto(f"{odd.address}/?q=okapi&range=15m")
    figure = page.get_by_test_id("series-value").and_(page.locator("[data-class=constructor]"))
    expect(figure).to_contain_text("%")


def test_a_comparison_of_odd_classes_fits_a_phone(
    odd: Book, open_page: Callable[..., Opened]
) -> None:
    """A class's name is longer than the phone is wide."""
    odd.write(*["a tarsier"] * 40)
    odd.until_found("tarsier", 40)
    page, _ = open_page(f"{odd.address}/?q=&vs=tarsier", **PHONE)
    expect(page.get_by_test_id("compare-chart").locator("canvas")).to_be_visible()
    assert sticking_out(page) == []


@pytest.mark.parametrize(
    "size", [{}, pytest.param(PHONE, marks=pytest.mark.deep)], ids=["wide", "phone"]
)
def test_odd_classes(odd: Book, open_page: Callable[..., Opened], size: dict[str, object]) -> None:
    """Nine classes, whatever their names are, are shown in every view, and cover no text."""
    word = f"odd{len(size)}"
    odd.write(*[f"{word} {i}" for i in range(9)])
    odd.until_found(word, 9)
    page, _ = open_page(f"{odd.address}/?q={word}", reduced_motion="reduce", **size)
    expect(page.get_by_test_id("count-row")).to_have_count(9)
    row = page.get_by_test_id("message").first
    box, text = (row.get_by_test_id(name) for name in ("teach-select", "message-text"))
    expect(box.locator("option")).to_have_count(10)
    chooser, words = box.bounding_box(), text.bounding_box()
    assert chooser is not None
    assert words is not None
    beside = chooser["x"] >= words["x"] + words["width"]
    assert beside or chooser["y"] + chooser["height"] <= words["y"]
    assert sticking_out(page) == []
    row.get_by_test_id("message-why").click()
    expect(row.get_by_test_id("credible-interval")).to_contain_text("%")
    page.get_by_test_id("tab-model").click()
    expect(page.get_by_test_id("telling")).to_have_count(9)
    expect(page.get_by_test_id("confusion").locator("tbody tr")).to_have_count(9)
    assert sticking_out(page) == []
    assert violations(page) == []
    page.get_by_test_id("tab-try").click()
    page.get_by_test_id("try-text").fill("what a lovely day")
    expect(page.get_by_test_id("try-share")).to_have_count(9)
    assert sticking_out(page) == []


def test_a_refresh_keeps_where_a_table_was_scrolled_to(
    odd: Book, open_page: Callable[..., Opened]
) -> None:
    """The confusion matrix is drawn anew every ten seconds, and stands where it was moved to."""
    page, _ = open_page("about:blank", **PHONE)
    page.clock.install()
    page.goto(f"{odd.address}/?view=model")
    matrix = page.get_by_role("region", name="Confusion matrix")
    expect(matrix.locator("tbody tr")).to_have_count(9)
    matrix.evaluate("each => { each.isOld = true; each.scrollLeft = 40; }")
    while matrix.evaluate("each => each.isOld"):
        page.clock.run_for(2_000)
    expect(matrix).to_have_js_property("scrollLeft", 40)


def test_nothing_kept_and_nothing_learned(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """Without a store the page says so and asks for none; without examples the model is empty."""
    assert browser.is_connected()
    (tmp_path / "tweets.jsonl").touch()
    sections: dict[str, object] = {"source": f"file:{tmp_path / 'tweets.jsonl'}"}
    with Daemon(write_config(tmp_path / "c.yaml", recent={"enabled": False}, **sections)) as daemon:
        daemon.until_page("/readyz", 200)  # while it starts, /v1/model has no answer
        page, _ = open_page(daemon.address)
        expect(page.get_by_test_id("no-recent")).to_be_visible()
        for name in ("search-form", "search-heading", "connection", "search-problem"):
            expect(page.get_by_test_id(name)).to_be_hidden()
        page.get_by_test_id("tab-model").click()
        expect(page.get_by_test_id("model-examples")).to_have_text("0")
        expect(page.get_by_test_id("model-accuracy")).to_have_text("–")
        expect(page.get_by_test_id("confusion")).to_have_text("No labelled messages yet.")
        assert not re.search("NaN|null|undefined|Infinity", page.inner_text("main"))
        assert violations(page) == []
        page.get_by_test_id("tab-try").click()
        page.get_by_test_id("try-text").fill("a word")
        expect(page.get_by_test_id("try-label")).to_contain_text("nothing is learned yet")
        assert daemon.stop() == 0
