"""What the browser tests share: one browser, a fresh profile for each page, and the daemons.

A page that complains of anything fails its test, when the test itself is through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.browser_path import require_browser
from tests.browser.chromium import chromium
from tests.browser.file_daemon import Book, open_book
from tests.browser.page_watch import Watch

PATIENCE_MS = 45_000
_HERE = Path(__file__).parent

expect.set_options(timeout=PATIENCE_MS)


class Opened(NamedTuple):
    """A page and what it complained of."""

    page: Page
    watch: Watch


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test of this folder: browser and daemon share the machine with no other test."""
    item.add_marker(pytest.mark.alone)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the browser tests last, in the order they came in.

    Playwright runs an event loop on the main thread for as long as a browser is open; no test that
    starts one of its own may come in between.
    """
    items.sort(key=lambda item: _HERE in item.path.parents)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Return the browser; skip where there is none, and in CI fail."""
    with chromium(require_browser()) as browser:
        yield browser


@pytest.fixture(scope="session")
def book(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    """Return the daemon that most tests share; each writes tweets with a word of its own."""
    assert browser.is_connected()  # asked for first: without a browser no daemon is started
    with open_book(tmp_path_factory.mktemp("book")) as book:
        yield book


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Opened]]:
    """Return a function that opens an address in a new profile, with any options of a context."""
    opened: list[Opened] = []

    def open_it(address: str, **options: Any) -> Opened:
        context = stack.enter_context(
            browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        )
        context.set_default_timeout(PATIENCE_MS)
        opened.append(Opened(context.new_page(), Watch(context)))
        opened[-1].page.goto(address)
        return opened[-1]

    with ExitStack() as stack:
        yield open_it
    assert [complaint for one in opened for complaint in one.watch.unexpected()] == []
