"""The open page hears of the stream: new tweets wait or come in, nothing else moves."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book
from tests.browser.page_watch import TASKS, growth, heap_bytes, task_times_ms
from tests.endtoend.daemon_process import Daemon, write_config

CLS_MAX = 0.02  # how much of the screen may move by itself in a minute
HEAP_GROWTH_MAX = 0.1  # in a minute
TASK_P99_MS_MAX = 50.0  # of the thread's own time
LONG_SHARE_MAX = 0.01  # of frames, each of which has a task

# Marks each row that stands there, and counts rows that are taken away from then on.
MARK = """() => {
    window.gone = 0;
    const list = document.querySelector('[data-testid=messages]');
    for (const row of list.children) row.mark = row.dataset.id;
    new MutationObserver(changes => {
        for (const change of changes) window.gone += change.removedNodes.length;
    }).observe(list, {childList: true});
}"""

# The marks, from the top; null for a row that came later.
MARKS = """() => [...document.querySelectorAll('[data-testid=messages] > *')].map(
    row => row.mark ?? null)"""


# Looks at every frame for cards that show less than all of their colour once they showed it all;
# and adds up by how much what is on the screen jumped by itself, and by how much in shifts that
# moved anything beside the cards of the list.
FADING = """() => {
    window.faint = [];
    window.shifted = window.shifted_beside = window.frames_seen = 0;
    const cards = document.querySelector('[data-testid=messages]');
    new PerformanceObserver(list => {
        for (const entry of list.getEntries()) {
            window.shifted += entry.value;
            // A card that has left the document meanwhile has no node any more.
            const isBeside = ({node}) => node !== null && !cards.contains(node);
            if (entry.sources.some(isBeside)) window.shifted_beside += entry.value;
        }
    }).observe({type: 'layout-shift'});
    const seen = new Set();  // messages whose card has been at full opacity
    const look = () => {
        window.frames_seen += 1;
        for (const card of document.querySelectorAll('[data-testid=message]')) {
            if (!card.checkVisibility()) continue;
            let opacity = 1;
            for (let node = card; node; node = node.parentElement)
                opacity *= getComputedStyle(node).opacity;
            if (opacity === 1) seen.add(card.dataset.id);
            else if (seen.has(card.dataset.id)) window.faint.push(`${card.dataset.id}: ${opacity}`);
        }
        requestAnimationFrame(look);
    };
    look();
}"""

# Resolves once the cards have slid to their places, two frames later.
SETTLED = """async () => {
    const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
    await frame();
    await Promise.allSettled(document.getAnimations()
        .filter(each => each.effect.target.matches('.messages')).map(each => each.finished));
    await frame();
    await frame();
}"""


def test_new_tweets_wait_to_be_asked_for(book: Book, open_page: Callable[..., Opened]) -> None:
    """What is written is counted on a button and moves nothing; asked for, it comes in on top."""
    before = book.write("an ocelot sleeps", "an ocelot wakes")
    book.until_found("ocelot", 2)
    page, _ = open_page(f"{book.address}/?q=ocelot")
    rows = page.get_by_test_id("message")
    expect(rows).to_have_count(2)
    show_new = page.get_by_test_id("show-new")
    expect(show_new).to_be_hidden()
    page.evaluate(MARK)
    page.evaluate(FADING)
    book.write("the ocelot eats", "the ocelot hunts")
    expect(show_new).to_have_text("Show 2 new")
    book.write("the ocelot rests")
    expect(show_new).to_have_text("Show 3 new")
    expect(page.get_by_test_id("count-note")).to_have_text(re.compile(r"^5 matches"))
    assert page.evaluate(MARKS) == before[::-1]
    assert page.evaluate("window.shifted") < 0.001
    show_new.click()
    expect(rows).to_have_count(5)
    assert page.evaluate(MARKS) == [None, None, None, *before[::-1]]
    assert page.evaluate("window.gone") == 0
    expect(show_new).to_be_hidden()
    assert sum(map(int, page.get_by_test_id("count").all_inner_texts())) == 5


def test_the_first_tweets_of_an_empty_list(book: Book, open_page: Callable[..., Opened]) -> None:
    """In a list with nothing in it what comes first is shown at once; what follows waits."""
    page, _ = open_page(f"{book.address}/?q=binturong")
    expect(page.get_by_test_id("messages-empty")).to_be_visible()
    book.write("a first binturong")
    expect(page.get_by_test_id("message")).to_have_count(1)
    book.write("a second binturong")
    expect(page.get_by_test_id("show-new")).to_have_text("Show 1 new")
    expect(page.get_by_test_id("message")).to_have_count(1)


def test_following(book: Book, open_page: Callable[..., Opened]) -> None:
    """A reader who follows sees new tweets come in by themselves, until he stops following."""
    before = book.write(*[f"a margay sleeps {i}" for i in range(15)])[::-1]
    book.until_found("margay", 15)
    page, _ = open_page(f"{book.address}/?q=margay")
    rows = page.get_by_test_id("message")
    expect(rows).to_have_count(15)
    page.evaluate(MARK)
    page.evaluate(FADING)
    follow = page.get_by_test_id("follow")
    expect(follow).to_have_attribute("aria-pressed", "false")
    follow.focus()
    page.keyboard.press("Enter")
    expect(follow).to_have_attribute("aria-pressed", "true")
    book.write("the margay eats", "the margay rests")
    expect(rows).to_have_count(17)
    assert page.evaluate(MARKS) == [None, None, *before]
    assert page.evaluate("window.gone") == 0
    page.evaluate(SETTLED)
    assert page.evaluate("window.shifted") < 0.001  # what was there slides down, and does not jump
    assert page.get_by_test_id("messages").evaluate("node => node.style.length") == 0
    page.keyboard.press("Enter")
    expect(follow).to_have_attribute("aria-pressed", "false")
    book.write("the margay hunts")
    expect(page.get_by_test_id("show-new")).to_have_text("Show 1 new")
    expect(rows).to_have_count(17)
    page.keyboard.press("Enter")  # follows again, and catches up
    expect(rows).to_have_count(18)


def test_no_card_fades(book: Book, open_page: Callable[..., Opened]) -> None:
    """No card is below full opacity after it appeared: not with new ones, nor another view."""
    book.write("a caracal sleeps")
    book.until_found("caracal", 1)
    page, _ = open_page(f"{book.address}/?q=caracal")
    rows = page.get_by_test_id("message")
    expect(rows).to_have_count(1)
    page.evaluate(FADING)
    page.get_by_test_id("follow").click()
    for i in range(3):
        book.write(f"a caracal eats {i}", f"a caracal hunts {i}")
        expect(rows).to_have_count(2 * i + 3)
        page.evaluate(SETTLED)
    page.get_by_test_id("tab-model").click()
    expect(page.get_by_test_id("view-model")).to_be_visible()
    page.get_by_test_id("tab-search").click()
    expect(page.get_by_test_id("messages-heading")).to_be_visible()
    page.go_back()
    page.go_back()
    expect(page.get_by_test_id("search-heading")).to_contain_text("caracal")
    page.get_by_test_id("search-box").fill("caracal -eats")
    expect(rows).to_have_count(4)
    page.evaluate(SETTLED)
    assert page.evaluate("window.faint") == []


@pytest.mark.deep
def test_a_minute_of_a_fast_stream(
    tmp_path: Path, open_page: Callable[..., Opened], browser: Browser
) -> None:
    """Two thousand a second: no card fades twice, and nothing moves while the reader reads.

    One reader reads, another follows the stream. Neither's page stands still for long, or holds
    more and more.
    """
    assert browser.is_connected()
    generator = {"seed": 7, "rate_per_s": 2_000.0}
    with Daemon(write_config(tmp_path / "config.yaml", generator=generator)) as daemon:
        daemon.until_metric("streamnb_messages_total", 4_000)
        still, follows = (open_page(daemon.address).page for _ in range(2))
        for page in (still, follows):
            expect(page.get_by_test_id("message").nth(20)).to_be_visible()
            expect(page.get_by_test_id("series-chart")).to_be_visible()
        follows.get_by_test_id("follow").click()
        for page in (still, follows):
            page.evaluate(FADING)
            page.evaluate(MARK)
        seen = daemon.metric("streamnb_messages_total")
        browser.start_tracing(categories=[*TASKS])
        heaps: dict[Page, list[float]] = {still: [], follows: []}
        # In its first ten seconds a browser compiles what it runs often.
        for n in range(20_000, 120_001, 20_000):
            daemon.until_metric("streamnb_messages_total", seen + n)
            for page, sizes in heaps.items():
                sizes.append(heap_bytes(page))
        for sizes in heaps.values():
            assert growth(sizes) <= HEAP_GROWTH_MAX, sizes
        times_ms = task_times_ms(browser.stop_tracing())
        assert statistics.quantiles(times_ms, n=100)[-1] <= TASK_P99_MS_MAX
        # Most tasks are tiny, and would hide the long ones: of the frames few may be held up too.
        n_long = sum(time_ms > TASK_P99_MS_MAX for time_ms in times_ms)
        n_frames = sum(page.evaluate("window.frames_seen") for page in (still, follows))
        assert n_long <= LONG_SHARE_MAX * n_frames, (n_long, n_frames, max(times_ms))
        assert [page.evaluate("window.faint") for page in (still, follows)] == [[], []]
        expect(still.get_by_test_id("show-new")).to_have_text("Show 50+ new")
        assert None not in still.evaluate(MARKS)
        assert still.evaluate("window.shifted") <= CLS_MAX
        # The cards slide down to make room for new ones; all else stands still.
        assert follows.evaluate("window.shifted_beside") <= CLS_MAX
        assert follows.evaluate("window.gone") > 0  # it did follow
        for page in (still, follows):
            page.close()  # it would ask the daemon that ends
        assert daemon.stop() == 0


def test_tweets_of_other_words_stay_out(book: Book, open_page: Callable[..., Opened]) -> None:
    """Only what matches the query comes in."""
    page, _ = open_page(f"{book.address}/?q=kinkajou")
    expect(page.get_by_test_id("messages-empty")).to_be_visible()
    book.write("a kinkajoo, wrongly written")
    right = book.write("a kinkajou, rightly written")
    row = page.get_by_test_id("message")
    expect(row).to_have_count(1)
    expect(row).to_have_attribute("data-id", right[0])
    expect(page.get_by_test_id("messages-empty")).to_be_hidden()


def test_hovering_holds_the_list(book: Book, open_page: Callable[..., Opened]) -> None:
    """Who follows with the pointer over the list sees nothing move; afterwards it catches up."""
    book.write("a tapir here", "a tapir there")
    book.until_found("tapir", 2)
    page, _ = open_page(f"{book.address}/?q=tapir")
    rows = page.get_by_test_id("message")
    expect(rows).to_have_count(2)
    page.get_by_test_id("follow").click()
    rows.first.hover()
    page.evaluate(MARK)
    book.write("one more tapir", "and another tapir")
    expect(page.get_by_test_id("show-new")).to_have_text("Show 2 new")
    assert None not in page.evaluate(MARKS)
    page.get_by_test_id("search-box").hover()
    expect(rows).to_have_count(4)
    assert page.evaluate("window.gone") == 0


def test_saved_searches_side_by_side(book: Book, open_page: Callable[..., Opened]) -> None:
    """Saved searches stand side by side, move with the stream, and survive a reload."""
    book.write("a lemur sings", "a gibbon sings", "a gibbon swings")
    book.until_found("gibbon", 2)
    page, _ = open_page(f"{book.address}/?q=lemur")
    page.get_by_test_id("save-search").click()
    page.get_by_test_id("search-box").fill("gibbon")
    page.get_by_test_id("search-button").click()
    expect(page.get_by_test_id("search-heading")).to_contain_text("gibbon")
    page.get_by_test_id("save-search").click()
    page.reload()
    cards = {
        query: page.locator(f"[data-testid=saved-card][data-q={query}]")
        for query in ("lemur", "gibbon")
    }
    expect(page.get_by_test_id("saved-card")).to_have_count(2)
    expect(cards["gibbon"].get_by_test_id("saved-count")).to_contain_text("2")
    book.write("the lemur sings again")
    expect(cards["lemur"].get_by_test_id("saved-count")).to_contain_text("2")
    expect(cards["lemur"].get_by_test_id("saved-newest")).to_contain_text("sings again")
    cards["lemur"].get_by_test_id("saved-open").click()
    expect(page.get_by_test_id("search-heading")).to_contain_text("lemur")
    cards["gibbon"].get_by_test_id("saved-remove").click()
    expect(page.get_by_test_id("saved-card")).to_have_count(1)
    page.reload()
    expect(page.get_by_test_id("saved-card")).to_have_count(1)
