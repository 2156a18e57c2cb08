"""A live stream on the page, by the commands of the README: read at once, and by way of a topic.

They are run as the README writes them; only the stream's host, the brokers' address and the page's
port are those of the test.
"""

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
from tests.test_readme import commands

N = 12
EXAMPLE = Path("docs", "examples", "jetstream.yaml")
TOPIC = "kafka://127.0.0.1:9092/posts"  # of the README


def post(i: int, **more: Any) -> bytes:
    """Return post `i`, of now; every third has no emoticon."""
    commit = {"rev": f"r{i}", "operation": "create", "rkey": f"k{i}"}
    commit |= {"collection": "app.bsky.feed.post"}
    text = f"a numbat walks {i} {(':)', ':(', '')[i % 3]}"
    record = {} if more else {"record": {"text": text, "langs": ["en"]}}
    return frame(commit1(i, time_us=int(time.time() * 1e6), commit=commit | record | more))


def live_commands(source: str, topic: str) -> tuple[list[str], list[str], list[str]]:
    """Return what the README has one type to see Bluesky, with a source and a topic of ours."""
    ours = {"jetstream": source, TOPIC: topic}
    shown = [words for words in commands("README.md", "streamnb") if {*words} & {*ours}]
    at_once, bridge, by_topic = ([ours.get(word, word) for word in words[1:]] for words in shown)
    assert (at_once[0], bridge[0], by_topic[0]) == ("run", "bridge", "run")
    return at_once, bridge, by_topic


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
    """Posts are searched, judged and learned; what the stream deletes leaves the page.

    `--open` hands the page's address to the browser that the environment names.
    """
    delete, topic = threading.Event(), TOPIC
    (tmp_path / EXAMPLE).parent.mkdir(parents=True)
    shutil.copy(ROOT / EXAMPLE, tmp_path / EXAMPLE)

    def script(peer: Peer) -> None:
        peer.accept()
        peer.send(b"".join(map(post, range(N))))
        delete.wait()
        peer.send(post(N, operation="delete", rkey="k0"))
        peer.until_closed()

    with LiveServer(script) as server, ExitStack() as stack:
        stack.callback(delete.set)
        if by_topic:
            broker, new_topic = map(request.getfixturevalue, ("broker", "new_topic"))
            topic = f"kafka://{broker.address}/{new_topic(1)}"
        live, bridge, behind = live_commands(f"jetstream+ws://{server.host}", topic)
        if by_topic:
            stack.callback(Bridge(tmp_path, *bridge[1:]).end, signal.SIGTERM)
        words = behind[1:] if by_topic else live[1:]
        opened = tmp_path / "opened"
        env = {"BROWSER": f"sh -c 'echo $0 >{opened}' %s"}
        daemon = stack.enter_context(Daemon(tmp_path, *words, "--port", "0", env=env))
        Book(daemon, tmp_path).until_found("numbat", N)
        assert "--open" in live
        if not by_topic:
            daemon.until(opened.is_file, "the page is opened")
            assert opened.read_text(encoding="utf-8").strip("/\n") == daemon.address
        page, _ = open_page(f"{daemon.address}/?q=numbat")
        rows = page.get_by_test_id("message")
        expect(rows).to_have_count(N)
        assert daemon.metric("streamnb_examples_learned_total") == 2 * N // 3
        delete.set()
        expect(rows).to_have_count(N - 1)
        expect(page.get_by_text("a numbat walks 0")).to_have_count(0)
        page.close()  # before its daemon
