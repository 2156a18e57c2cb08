"""How quick the page is: its first paint, its size, and its answers while tweets rush in."""

from __future__ import annotations

import gzip
import itertools
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book
from tests.endtoend.daemon_process import Daemon, write_config

PAGE_FOLDER = Path(__file__).parents[2] / "consumers" / "http" / "static"
FIRST_PAINT_MS_MAX = 300
SCRIPT_BYTES_MAX = 60_000
ANSWER_MS_MAX = 100
SEARCHED_MS_MAX = 250  # for all fifty rows that were found
RUSH_PER_S = 1_000.0
ROWS_MAX = 50  # that the page lists at a time
TRIES = 30
ROUNDS = 8

# Resolves to the time from the first request to the first frame that shows something of the page.
# (Playwright's own waiting for an expression is refused by the page: it takes no script from text.)
FIRST_PAINT = """() => new Promise(resolve => new PerformanceObserver(list => {
    const [paint] = list.getEntriesByName('first-contentful-paint');
    if (paint) resolve(paint.startTime);
}).observe({type: 'paint', buffered: true}))"""

# Times each key and click: from the moment the browser got it to the frame that shows what came of
# it, both by the page's own clock. Whatever holds the page up delays that frame.
TIMING = """() => {
    window.answers_ms = [];
    const time = event => requestAnimationFrame(() => {
        const channel = new MessageChannel();  // its message comes once the frame is drawn
        channel.port1.onmessage = () =>
            window.answers_ms.push(performance.now() - event.timeStamp);
        channel.port2.postMessage(null);
    });
    for (const kind of ['keydown', 'click']) addEventListener(kind, time, {capture: true});
}"""

# Resolves to what was timed, once it is so many.
ANSWERS = """n => new Promise(resolve => {
    const look = () => {
        if (window.answers_ms.length >= n) resolve(window.answers_ms);
        else requestAnimationFrame(look);
    };
    look();
})"""

# Sends the search off; resolves, once all rows are there, to the times until the heading was, until
# the frame was drawn that has heading, figures and tweets, and until all were; and to where the
# last of the tweets of that frame ends on the screen.
SEARCH = """([word, rows]) => new Promise(resolve => {
    const find = id => document.querySelector(`[data-testid=${id}]`);
    let heading_ms = null, drawn_ms = null, screens = 0, isDrawing = false;
    const since = () => performance.now() - start_ms;
    const look = () => {
        if (find('search-heading').textContent.endsWith(word)) heading_ms ??= since();
        const isThere = heading_ms !== null
            && find('search-figures').getAttribute('aria-busy') === 'false'
            && find('message-text')?.querySelector('b')?.textContent.toLowerCase() === word;
        if (!isThere) return;
        if (drawn_ms !== null && find('messages').childElementCount === rows) {
            watch.disconnect();
            resolve([heading_ms, drawn_ms, since(), screens]);
        }
        if (isDrawing) return;
        isDrawing = true;
        const channel = new MessageChannel();  // its message comes once the frame is drawn
        channel.port1.onmessage = () => {
            drawn_ms = since();
            const last = find('messages').lastElementChild;
            screens = last.getBoundingClientRect().bottom / innerHeight;
            look();
        };
        channel.port2.postMessage(null);
    };
    const watch = new MutationObserver(look);  // hears of changes before they are drawn
    watch.observe(find('view-search'), {attributes: true, childList: true, subtree: true});
    const start_ms = performance.now();
    find('search-form').requestSubmit();
})"""


@pytest.fixture(scope="module")
def rush(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a daemon to which a thousand tweets come each second."""
    assert browser.is_connected()
    generator = {"seed": 7, "rate_per_s": RUSH_PER_S}
    path = tmp_path_factory.mktemp("rush") / "config.yaml"
    with Daemon(write_config(path, generator=generator)) as daemon:
        daemon.until_metric("streamnb_messages_total", 2 * RUSH_PER_S)
        yield daemon.address
        assert daemon.stop() == 0


def best_ms(measure: Callable[[], float], limit_ms: float) -> float:
    """Measure until it is below a limit, a few times at most; return the best.

    Whoever else uses the machine can only add to what is measured.
    """
    best_ms = float("inf")
    for _ in range(ROUNDS):
        best_ms = min(best_ms, measure())
        if best_ms <= limit_ms:
            break
    return best_ms


def slowest_ms(page: Page, use: Callable[[], None]) -> float:
    """Use the page; return what 95 in a hundred of its answers took at most."""
    page.evaluate("() => { window.answers_ms = []; }")
    use()
    took_ms: list[float] = page.evaluate(ANSWERS, TRIES)
    return statistics.quantiles(took_ms, n=20, method="inclusive")[-1]


@pytest.mark.deep
def test_the_first_paint(book: Book, open_page: Callable[..., Opened]) -> None:
    """In a new profile the page is painted within 300 ms."""

    def paint_ms() -> float:
        page, _ = open_page(book.address)
        start_ms: float = page.evaluate(FIRST_PAINT)
        page.context.close()
        return start_ms

    assert best_ms(paint_ms, FIRST_PAINT_MS_MAX) <= FIRST_PAINT_MS_MAX


def test_the_size_of_the_scripts() -> None:
    """All JavaScript together stays below 60 kB, each file compressed by itself."""
    scripts = PAGE_FOLDER.rglob("*.js")
    sizes = {path.name: len(gzip.compress(path.read_bytes(), mtime=0)) for path in scripts}
    assert sizes
    assert sum(sizes.values()) <= SCRIPT_BYTES_MAX, sizes


@pytest.mark.deep
def test_typing_while_tweets_rush_in(rush: str, open_page: Callable[..., Opened]) -> None:
    """With a thousand tweets a second a key shows within 100 ms, 95 times in a hundred."""
    page, _ = open_page(rush)
    expect(page.get_by_test_id("message").nth(20)).to_be_visible()
    page.evaluate(TIMING)
    box = page.get_by_test_id("search-box")

    def write() -> None:
        box.clear()
        box.press_sequentially("coffee monday football twitter", delay=50)

    assert best_ms(lambda: slowest_ms(page, write), ANSWER_MS_MAX) <= ANSWER_MS_MAX


@pytest.mark.deep
def test_walking_about_while_tweets_rush_in(rush: str, open_page: Callable[..., Opened]) -> None:
    """Tabs and buttons answer within 100 ms meanwhile, 95 times in a hundred."""
    page, _ = open_page(f"{rush}/?q=coffee")
    expect(page.get_by_test_id("message").nth(20)).to_be_visible()
    page.evaluate(TIMING)

    def walk() -> None:
        for _ in range(TRIES // 3):
            page.get_by_test_id("tab-model").click()
            expect(page.get_by_test_id("view-model")).to_be_visible()
            page.get_by_test_id("tab-search").click()
            expect(page.get_by_test_id("message").nth(20)).to_be_visible()
            page.get_by_test_id("follow").click()

    assert best_ms(lambda: slowest_ms(page, walk), ANSWER_MS_MAX) <= ANSWER_MS_MAX
    assert page.get_by_test_id("message").count() <= ROWS_MAX


@pytest.mark.deep
def test_searching_while_tweets_rush_in(rush: str, open_page: Callable[..., Opened]) -> None:
    """Of a new search all that fits on the screen is drawn within 100 ms, the rest within 250."""
    page, _ = open_page(rush)
    expect(page.get_by_test_id("message").nth(20)).to_be_visible()
    words = itertools.cycle(["coffee", "monday", "obama", "school", "rain", "work", "cat"])

    def searched() -> list[float]:
        word = next(words)
        page.get_by_test_id("search-box").fill(word)
        times: list[float] = page.evaluate(SEARCH, [word, ROWS_MAX])
        assert times.pop() >= 1  # a screenful
        return times

    headings_ms, _, all_ms = zip(*(searched() for _ in range(9)), strict=True)
    assert statistics.median(headings_ms) <= ANSWER_MS_MAX, headings_ms
    assert statistics.median(all_ms) <= SEARCHED_MS_MAX, all_ms

    def drawn_ms() -> float:
        return statistics.median(searched()[1] for _ in range(3))

    assert best_ms(drawn_ms, ANSWER_MS_MAX) <= ANSWER_MS_MAX
