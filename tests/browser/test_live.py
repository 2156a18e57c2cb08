"""The open page follows the stream: new tweets come in, nothing else moves."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book

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


def test_new_tweets_come_in_by_themselves(book: Book, open_page: Callable[..., Opened]) -> None:
    """What is written appears on top and is counted; rows that stay are the same elements."""
    before = book.write("an ocelot sleeps", "an ocelot wakes")
    book.until_found("ocelot", 2)
    page, _ = open_page(f"{book.address}/?q=ocelot")
    expect(page.get_by_test_id("message")).to_have_count(2)
    page.evaluate(MARK)
    book.write("the ocelot eats", "the ocelot hunts", "the ocelot rests")
    expect(page.get_by_test_id("message")).to_have_count(5)
    assert page.evaluate(MARKS) == [None, None, None, *before[::-1]]
    assert page.evaluate("window.gone") == 0
    expect(page.get_by_test_id("count-note")).to_have_text(re.compile(r"^5 in all"))
    assert sum(map(int, page.get_by_test_id("count").all_inner_texts())) == 5


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


def test_hovering_pauses(book: Book, open_page: Callable[..., Opened]) -> None:
    """While the pointer is over the list nothing in it moves; afterwards it catches up."""
    book.write("a tapir here", "a tapir there")
    book.until_found("tapir", 2)
    page, _ = open_page(f"{book.address}/?q=tapir")
    rows = page.get_by_test_id("message")
    expect(rows).to_have_count(2)
    rows.first.hover()
    page.evaluate(MARK)
    book.write("one more tapir", "and another tapir")
    expect(page.get_by_test_id("paused-note")).to_contain_text("2")
    assert None not in page.evaluate(MARKS)
    page.get_by_test_id("search-box").hover()
    expect(rows).to_have_count(4)
    assert page.evaluate("window.gone") == 0


def test_the_pause_button(book: Book, open_page: Callable[..., Opened]) -> None:
    """The list can be held still without a pointer, and what came meanwhile be asked for."""
    book.write("a wombat here")
    book.until_found("wombat", 1)
    page, _ = open_page(f"{book.address}/?q=wombat")
    rows = page.get_by_test_id("message")
    expect(rows).to_have_count(1)
    pause = page.get_by_test_id("pause")
    pause.focus()
    page.keyboard.press("Enter")
    expect(pause).to_have_attribute("aria-pressed", "true")
    book.write("a wombat there")
    expect(page.get_by_test_id("paused-note")).to_contain_text("1")
    expect(rows).to_have_count(1)
    page.get_by_test_id("show-new").click()
    expect(rows).to_have_count(2)


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
