"""`streamnb bridge` as a process: killed amid its work, without brokers, and before a daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Broker
from tests.consumers.cli.test_bridge import in_topic
from tests.consumers.sources.live_server import LiveServer, Peer, commit1, frame
from tests.endtoend.daemon_process import PATIENCE_S, Daemon, command, environment, write_config
from tests.endtoend.expected_counts import counts_at

N = 20_000
NewTopic = Callable[..., str]


class Bridge:
    """`streamnb bridge` with a cursor file."""

    def __init__(self, folder: Path, *arguments: str | Path) -> None:
        self._cursor = folder / "cursor"
        self._errors = (folder / "bridge.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "consumers", "bridge", *arguments, "--cursor", "cursor",
             "--json"],
            cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip

    def position(self) -> int:
        """Return where the cursor stands; 0 before there is one."""
        if not self._cursor.is_file():
            return 0
        return sum(json.loads(self._cursor.read_bytes())["positions"].values())

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None
            assert time.monotonic() < deadline_s
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)

    def end(self, number: signal.Signals) -> dict[str, Any]:
        """Send a signal; return what it printed at its end, if it had the time for it."""
        self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        self._errors.close()
        assert self.process.returncode == (-number if number == signal.SIGKILL else 0)
        said: dict[str, Any] = json.loads(output or b"{}")
        return said


def _places(address: str, topic: str, folder: Path) -> list[list[int]]:
    """Return where each record of a topic comes from, by partition."""
    return [
        [int((dict(headers)["streamnb-cursor"] or b"").partition(b":")[2]) for *_, headers in rows]
        for rows in in_topic(address, topic, folder).values()
    ]


@pytest.mark.integration
def test_what_was_refused_is_not_said_to_be_written(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Ten messages, of which three are too large: seven stand in the topic."""
    topic = new_topic(1, **{"max.message.bytes": "20000"})
    sizes = [30_000 if i in {2, 3, 9} else 10 for i in range(10)]
    lines = [b'{"id": "m%d", "text": "%s"}\n' % (i, b"x" * n) for i, n in enumerate(sizes)]
    (tmp_path / "in.jsonl").write_bytes(b"".join(lines))
    to = f"kafka://{broker.address}/{topic}"
    done = command("bridge", "file:in.jsonl", "--to", to, "--until-end", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"7 messages written to ")
    assert done.stdout.endswith(b"; 3 were left out as too large\n")
    assert sum(map(len, _places(broker.address, topic, tmp_path))) == 7


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.slow
def test_a_bridge_that_is_killed_leaves_no_gap(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """After a SIGKILL the topic has each message, in order, and twice only those behind the cursor.

    The second run ends with what is there, exit code 0.
    """
    topic, path = new_topic(2), tmp_path / "in.jsonl"
    lines = [b'{"id": "m%d", "text": "%s"}\n' % (i, b"word " * 20) for i in range(N)]
    path.write_bytes(b"".join(lines))
    arguments = (f"file:{path}", "--to", f"kafka://{broker.address}/{topic}")
    write_config(tmp_path / "config.yaml", file={"batch_bytes": 50_000})
    first = Bridge(tmp_path, *arguments)
    first.until(lambda: first.position() > 0)
    first.end(signal.SIGKILL)
    cursor = first.position()
    ended = command("bridge", *arguments, "--cursor", "cursor", "--until-end", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert b"messages written to " in ended.stdout
    found = _places(broker.address, topic, tmp_path)
    offsets = [0, *accumulate(map(len, lines))][:-1]
    assert sorted({place for places in found for place in places}) == offsets
    for places in found:
        once = list(dict.fromkeys(places))
        assert once == sorted(once)
        n_times = Counter(places)
        assert all(place >= cursor for place, n in n_times.items() if n > 1)


@pytest.mark.integration
@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_brokers_that_are_away_are_waited_for(own_broker: Broker, tmp_path: Path) -> None:
    """Away at the start and killed amid the stream: told once each, and each record stands once.

    A bridge that is told to stop meanwhile ends in order, and its next run sends the rest.
    """
    # Without a time, so records are of now: of older ones than a day a broker that starts again
    # forgets who wrote them, and so what it had taken.
    lines = [b'{"id": "m%d", "text": "word"}\n' % i for i in range(150_000)]
    (tmp_path / "in.jsonl").write_bytes(b"".join(lines))
    offsets = [0, *accumulate(map(len, lines))]
    write_config(tmp_path / "config.yaml", file={"batch_bytes": 1 << 16})
    own_broker.reserve()
    arguments = ("file:in.jsonl", "--to", f"kafka://{own_broker.address}/stream")
    bridge = Bridge(tmp_path, *arguments)
    log = tmp_path / "bridge.log"
    bridge.until(lambda: log.read_bytes().count(b'"source_trouble"') == 1)
    own_broker.start()
    own_broker.create_topic("stream", 1)
    bridge.until(lambda: bridge.position() > 2_000)
    own_broker.kill()
    bridge.until(lambda: log.read_bytes().count(b'"source_trouble"') == 2)
    own_broker.start()
    position = bridge.position()
    bridge.until(lambda: bridge.position() > position + 2_000)
    done = bridge.end(signal.SIGTERM)
    assert not done["unsafe"]
    (places,) = _places(own_broker.address, "stream", tmp_path)
    assert places == offsets[: done["messages"]]

    own_broker.kill()
    bridge = Bridge(tmp_path, *arguments)
    bridge.until(lambda: log.read_bytes().count(b'"source_trouble"') == 3)
    assert bridge.end(signal.SIGINT)["unsafe"]
    assert bridge.position() == offsets[done["messages"]]


def _post(i: int) -> bytes:
    """Return frame `i`: one account of three posts or deletes, with an emoticon or none."""
    record: dict[str, Any] = {"text": f"word{i % 9} {(':)', ':(', '')[i % 3]}", "langs": ["en"]}
    commit = {"rev": f"r{i}", "collection": "app.bsky.feed.post", "record": record}
    if i % 10 == 9:
        commit |= {"operation": "delete", "rkey": f"k{i - 6}"}
        del commit["record"]
    else:
        commit |= {"operation": "create", "rkey": f"k{i}"}
    return commit1(i, did=f"did:plc:{i % 3}", commit=commit)


@pytest.mark.integration
@pytest.mark.deep
def test_a_live_stream_reaches_the_model_by_way_of_a_topic(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Jetstream, bridge, topic, daemon: across a cut the counts are those of the plain frames."""
    n, topic = 600, new_topic(3)
    frames = [_post(i) for i in range(n)]

    def playing(begin: int, end: int, *, wait: bool) -> Callable[[Peer], None]:
        def script(peer: Peer) -> None:
            peer.accept()
            peer.send(b"".join(map(frame, frames[begin:end])))
            if wait:
                peer.until_closed()

        return script

    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "in.jsonl").write_bytes(b"\n".join(frames) + b"\n")
    shared: dict[str, Any] = {"message": "jetstream", "labels": {"kind": "emoticons"}}
    shared |= {"checkpoint": {"folder": "state"}, "recent": {"enabled": False}}
    write_config(plain / "config.yaml", source="file:in.jsonl", **shared)
    ended = command("run", "--until-end", "--json", folder=plain)
    assert ended.returncode == 0, ended.stderr
    wanted = json.loads(ended.stdout)

    address = f"kafka://{broker.address}/{topic}"
    write_config(tmp_path / "config.yaml", live={"retry_pause_s": 0.05})
    scripts = playing(0, 400, wait=False), playing(300, n, wait=True)
    with LiveServer(*scripts) as server:
        bridge = Bridge(tmp_path, f"jetstream+ws://{server.host}", "--to", address)
        bridge.until(lambda: bridge.position() == n)
        assert bridge.end(signal.SIGTERM)["messages"] == n
    config = write_config(tmp_path / "daemon.yaml", source=address, **shared)
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0, daemon.lines[-3:]
        assert daemon.summary["learned"] == wanted["learned"]
    assert counts_at(tmp_path / "state") == counts_at(plain / "state")
    assert sum(counts_at(tmp_path / "state")[0]) == 320
