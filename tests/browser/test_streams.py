"""A live stream on the page, by the commands of the README: read at once, and by way of a topic."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book
from tests.consumers.sources.live_server import LiveServer, Peer, commit1, frame
from tests.endtoend.daemon_process import ROOT, Daemon
from tests.endtoend.test_bridge import Bridge

N = 12
EXAMPLE = ROOT / "docs" / "examples" / "jetstream.yaml"


def post(i: int, **more: Any) -> bytes:
    """Return post `i`, of now; every third has no emoticon."""
    commit = {"rev": f"r{i}", "operation": "create", "rkey": f"k{i}"}
    commit |= {"collection": "app.bsky.feed.post"}
    text = f"a numbat walks {i} {(':)', ':(', '')[i % 3]}"
    record = {} if more else {"record": {"text": text, "langs": ["en"]}}
    return frame(commit1(i, time_us=int(time.time() * 1e6), commit=commit | record | more))


@pytest.mark.parametrize(
    "by_topic", [False, pytest.param(True, marks=[pytest.mark.integration, pytest.mark.deep])]
)
def test_posts_come_to_the_page_and_leave_it(
    request: pytest.FixtureRequest,
    open_page: Callable[..., Opened],
    tmp_path: Path,
    *,
    by_topic: bool,
) -> None:
    """Posts are searched, judged and learned; what the stream deletes leaves the page."""
    delete = threading.Event()

    def script(peer: Peer) -> None:
        peer.accept()
        peer.send(b"".join(map(post, range(N))))
        delete.wait()
        peer.send(post(N, operation="delete", rkey="k0"))
        peer.until_closed()

    with LiveServer(script) as server, ExitStack() as stack:
        stack.callback(delete.set)
        source = f"jetstream+ws://{server.host}"
        config = Path(shutil.copy(EXAMPLE, tmp_path))
        if by_topic:
            broker, new_topic = map(request.getfixturevalue, ("broker", "new_topic"))
            topic = f"kafka://{broker.address}/{new_topic(1)}"
            bridge = Bridge(tmp_path, source, "--to", topic)
            stack.callback(bridge.end, signal.SIGTERM)
            source = topic
        arguments = ("--source", source, "--port", "0", "--view", "log")
        daemon = stack.enter_context(Daemon(config, *arguments))
        Book(daemon, config).until_found("numbat", N)
        page, _ = open_page(f"{daemon.address}/?q=numbat")
        rows = page.get_by_test_id("message")
        expect(rows).to_have_count(N)
        assert daemon.metric("streamnb_examples_learned_total") == 2 * N // 3
        delete.set()
        expect(rows).to_have_count(N - 1)
        expect(page.get_by_text("a numbat walks 0")).to_have_count(0)
        page.close()  # before its daemon
