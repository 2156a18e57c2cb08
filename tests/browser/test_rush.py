"""The page while a thousand tweets a second rush in: it does what it is asked for all the same.

How quickly it does is measured by `python -m benchmarks page_answers`.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Opened
from tests.endtoend.daemon_process import Daemon, write_config

PAGE_FOLDER = Path(__file__).parents[2] / "consumers" / "http" / "static"
SCRIPT_BYTES_MAX = 60_000
RUSH_PER_S = 1_000.0
ROWS_MAX = 50  # that the page lists at a time


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


def test_the_size_of_the_scripts() -> None:
    """All JavaScript together stays below 60 kB, each file compressed by itself."""
    scripts = PAGE_FOLDER.rglob("*.js")
    sizes = {path.name: len(gzip.compress(path.read_bytes(), mtime=0)) for path in scripts}
    assert sizes
    assert sum(sizes.values()) <= SCRIPT_BYTES_MAX, sizes


@pytest.mark.deep
def test_what_is_typed_stands_there(rush: str, open_page: Callable[..., Opened]) -> None:
    """No key is lost, and none comes twice."""
    page, _ = open_page(rush)
    expect(page.get_by_test_id("message").nth(20)).to_be_visible()
    box = page.get_by_test_id("search-box")
    box.clear()
    box.press_sequentially("coffee monday football twitter")
    expect(box).to_have_value("coffee monday football twitter")


@pytest.mark.deep
def test_walking_about(rush: str, open_page: Callable[..., Opened]) -> None:
    """Tabs and buttons do what they say each time, and the list does not grow."""
    page, _ = open_page(f"{rush}/?q=coffee")
    messages, follow = page.get_by_test_id("message"), page.get_by_test_id("follow")
    expect(messages.nth(20)).to_be_visible()
    for i in range(10):
        page.get_by_test_id("tab-model").click()
        expect(page.get_by_test_id("view-model")).to_be_visible()
        page.get_by_test_id("tab-search").click()
        expect(messages.nth(20)).to_be_visible()
        follow.click()
        expect(follow).to_have_attribute("aria-pressed", "false" if i % 2 else "true")
    assert messages.count() <= ROWS_MAX


@pytest.mark.deep
def test_searching(rush: str, open_page: Callable[..., Opened]) -> None:
    """A new search shows its own figures and tweets alone, as many as the page lists."""
    page, _ = open_page(rush)
    expect(page.get_by_test_id("message").nth(20)).to_be_visible()
    for word in ("coffee", "monday", "obama", "school"):
        page.get_by_test_id("search-box").fill(word)
        page.get_by_test_id("search-button").click()
        expect(page.get_by_test_id("search-heading")).to_contain_text(word)
        expect(page.get_by_test_id("search-figures")).to_have_attribute("aria-busy", "false")
        own = [re.compile(word, re.IGNORECASE)] * ROWS_MAX  # as many as the page lists
        expect(page.get_by_test_id("message-text")).to_have_text(own)
