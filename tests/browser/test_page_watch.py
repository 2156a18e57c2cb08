"""The watch over the browser tests themselves: what it must notice, it notices."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.axe import violations
from tests.browser.conftest import Opened
from tests.browser.page_watch import TASKS, growth, heap_bytes, task_times_ms

PAGE = b"""<!doctype html><html lang="en"><head><title>A page</title>
<link rel="icon" href="data:,"></head><body>
<main><h1>A page</h1><p style="color: #bbb; background: #fff">Hardly to be read</p></main>
</body></html>
"""


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers `/` with a small page, and all else with 404."""

    def do_GET(self) -> None:
        body = PAGE if self.path == "/" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of a small page that has a fault."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("elsewhere", ["http://example.com/", "http://192.0.2.1/", "http://[::1]/"])
def test_nothing_leaves_the_machine(
    open_page: Callable[..., Opened], address: str, elsewhere: str
) -> None:
    """A request to another host gets no answer, and is told."""
    page, watch = open_page(address)
    with page.expect_event("requestfailed"):
        page.evaluate("url => fetch(url, {mode: 'no-cors'}).catch(() => null)", elsewhere)
    assert f"leaves the machine: {elsewhere}" in watch.unexpected()
    assert any("PROXY_CONNECTION_FAILED" in complaint for complaint in watch.unexpected())
    watch.complaints.clear()


def test_what_a_page_complains_of_is_told(open_page: Callable[..., Opened], address: str) -> None:
    """Errors on the console, errors of scripts and answers that are none are told."""
    page, watch = open_page(address)
    with page.expect_event("pageerror"):
        page.evaluate("() => { console.error('one'); setTimeout(() => { throw Error('two') }) }")
    with page.expect_response("**/three"):
        page.evaluate("() => fetch('/three')")
    told = "\n".join(watch.unexpected())
    assert "one" in told
    assert "two" in told
    assert "answered 404" in told
    watch.complaints.clear()


def test_axe_finds_what_is_hard_to_read(open_page: Callable[..., Opened], address: str) -> None:
    """A grey on white that is too light is told, with its place."""
    page, _ = open_page(address)
    found = violations(page)
    assert len(found) == 1
    assert found[0].startswith("color-contrast (serious): p")


def test_a_task_that_holds_the_page_up_is_seen(
    browser: Browser, open_page: Callable[..., Opened], address: str
) -> None:
    """Each of three busy tasks is among those of the trace; none is before they run."""
    page, _ = open_page(address)
    busy = """ms => new Promise(resolve => setTimeout(() => {
        const until = performance.now() + ms;
        while (performance.now() < until) ;
        resolve();
    }))"""
    longest_ms = []
    for each_ms in (0, 300):
        browser.start_tracing(page=page, categories=[*TASKS])
        for _ in range(3):
            page.evaluate(busy, each_ms)
        page.evaluate("() => 0")  # a task after the last one: that has ended, and is in the trace
        longest_ms.append(sorted(task_times_ms(browser.stop_tracing()))[-3:])
    quiet, held_up = longest_ms
    assert max(quiet) < min(held_up)


def test_a_heap_that_grows_is_seen(open_page: Callable[..., Opened], address: str) -> None:
    """What a page keeps is counted, what it lets go of is not; growth goes by all sizes."""
    page, _ = open_page(address)
    sizes = []
    for _ in range(4):
        page.evaluate("() => { (window.kept ??= []).push(Array.from({length: 100_000}, String)) }")
        page.evaluate("() => { Array.from({length: 100_000}, String) }")
        sizes.append(heap_bytes(page))
    assert growth(sizes) > 1.0
    assert sizes == sorted(sizes)
    assert growth([100.0, 101.0, 102.0, 103.0, 104.0]) == pytest.approx(0.04)
    assert growth([100.0, 130.0, 100.0, 70.0, 100.0]) < 0
