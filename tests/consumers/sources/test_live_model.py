"""A live stream against a plain model: whatever happens when, each message is returned once.

Two single cases of real size stand behind the law.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.settings import Settings
from consumers.messages import Partition
from consumers.sources import live
from consumers.sources.base import LogFacts
from consumers.sources.connections import Endpoint, Received
from consumers.sources.jetstream import JetstreamFeed
from consumers.sources.live import _KEYS, LiveSource
from tests.consumers.sources.live_server import (
    PATIENCE_S,
    LiveServer,
    Peer,
    Script,
    commit1,
    commit2,
    frame,
    time_us,
)
from tests.consumers.sources.test_live import begun, commits, playing

SECOND_US = 1_000_000
KEYS = 6  # remembered here, instead of thousands


@dataclass
class Network:
    """What was posted: the time of each message, in the order of posting; hosts have them all."""

    version: int
    times: list[int] = field(default_factory=list)
    lead: int = 0  # messages that a host sends before what it is asked for

    def frame(self, host: int, i: int) -> bytes:
        """Return message `i` as a host sends it, under its own number."""
        if self.version == 1:
            return commit1(i, time_us=self.times[i])
        at = self.times[i] - time_us(0)
        micros = f"2026-11-23T06:{at // (60 * SECOND_US):02}:{at // SECOND_US % 60:02}.000000Z"
        return commit2(i, seq=1 + i + 1000 * host, time=micros)

    def first(self, host: int, cursor: int | None) -> int:
        """Return the first message that a host sends for a cursor."""
        if cursor is None:
            return len(self.times)
        if cursor < 10**15:
            return max(0, cursor - 1 - 1000 * host - self.lead)
        later = (i for i, at in enumerate(self.times) if at >= cursor)
        return max(0, next(later, len(self.times)) - self.lead)


class Line:
    """A connection to a host of the network; it brings what it is told to, until it is cut."""

    retry_s = 0.0
    is_history = False
    n_read = 0

    def __init__(self, network: Network, host: int, endpoint: Endpoint) -> None:
        cursor = parse_qs(urlsplit(endpoint.url).query).get("cursor")
        self._network = network
        self._host = host
        self._first = network.first(host, None if cursor is None else int(cursor[0]))
        self._next = self._first
        self.n_bytes = 0
        self.n = 0  # messages that may come
        self.is_cut = False

    def repeat(self, n: int) -> None:
        """Go back by so many of the messages that came on this connection."""
        self._next = max(self._first, self._next - n)

    def receive(self, timeout_s: float) -> list[Received]:  # noqa: ARG002 -- nothing is waited for
        """Return the messages that may come."""
        end = min(self._next + self.n, len(self._network.times))
        found = [Received(self._network.frame(self._host, i)) for i in range(self._next, end)]
        self._next, self.n = end, 0
        self.n_bytes += len(found)
        if not found and self.is_cut:
            raise ConnectionError("it was cut")
        return found

    def ping(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Process:
    """The daemon's side: a source that is polled, and a checkpoint that survives it."""

    def __init__(self, network: Network, n_hosts: int) -> None:
        self._network = network
        self.n_hosts = n_hosts
        self._now = itertools.count()
        self.returned: list[int] = []  # up to the newest checkpoint, and behind it
        self.position: int | None = None
        self.facts: Mapping[Partition, LogFacts] = {}
        self.gaps = 0
        self.start()

    def start(self) -> None:
        """Begin with the checkpoint; what was returned behind it was not learned."""
        settings = Settings.model_validate({"jetstream": {"version": self._network.version}})
        hosts = [f"ws://host{i}" for i in range(self.n_hosts)]
        del self.returned[self.position or 0 :]
        self.line: Line | None = None
        self.source = LiveSource(
            JetstreamFeed(hosts, settings.jetstream),
            settings.live,
            connect=self._connect,
            clock=lambda: float(next(self._now)) * 1e-3,
            wait=self._wait,
            wall_time=lambda: time_us(0) / 1e6 + 3600,
        )
        self.source.resume(self.facts)
        self.source.open(lambda _: self.position)

    def _wait(self, seconds: float) -> None:
        self._now = itertools.count(next(self._now) + int(seconds * 1000) + 1)

    def _connect(self, endpoint: Endpoint) -> Line:
        host = int((urlsplit(endpoint.url).hostname or "").removeprefix("host"))
        self.line = Line(self._network, host, endpoint)
        return self.line

    def connected(self) -> Line:
        """Return the connection, once there is one."""
        while self.line is None or self.source.trouble():
            self.source.poll(1.0)
            if self.line is not None:
                self.take()
                return self.line
        return self.line

    def take(self) -> None:
        """Poll once."""
        for raw in self.source.poll(1.0):
            for i in range(len(raw)):
                event = json.loads(raw.value(i) or b"")
                rkey = event.get("commit", event.get("payload"))["rkey"]
                self.returned.append(int(rkey[1:]))

    def read(self, n: int, again: int = 0) -> None:
        """Let `n` messages come, after some once more."""
        line = self.connected()
        line.repeat(again)
        line.n = n + again
        self.take()

    def cut(self) -> None:
        """Break the connection."""
        if self.line is not None:
            line, self.line = self.line, None
            line.is_cut, line.n = True, 0
            self.take()

    def checkpoint(self, behind: int) -> None:
        """Write a checkpoint at a position that may be behind what was returned."""
        at = max(self.position or 0, len(self.returned) - behind)
        self.facts = dict(self.source.logs({self.source.partition: at}))
        self.position = at if self.returned else None

    def happen(self, what: str) -> None:
        """Cut, kill, or do nothing."""
        if what == "cut":
            self.cut()
        elif what == "kill":
            self.kill()

    def kill(self) -> None:
        """Start again from the checkpoint."""
        self.gaps += self.source.gaps
        self.start()


class Round(NamedTuple):
    """Posts, the seconds between them; how many are read; then what happens, in this order."""

    posts: list[int]
    n: int
    again: int  # messages that the host repeats
    first: Literal["", "cut", "kill"]
    behind: int | None  # a checkpoint so far behind what was returned, on the next connection
    then: Literal["", "cut", "kill"]


HAPPENS = st.sampled_from(["", "cut", "kill"])
ROUNDS = st.lists(
    st.builds(
        Round,
        posts=st.lists(st.integers(-2, 3), max_size=16),
        n=st.integers(0, 20),
        again=st.integers(0, 3),
        first=HAPPENS,
        behind=st.one_of(st.none(), st.integers(0, 3)),
        then=HAPPENS,
    ),
    min_size=2,
    max_size=8,
)


def play(process: Process, network: Network, each: Round) -> None:
    """Play a round."""
    for seconds in each.posts:
        # Where times are in disorder, only a single host's numbers are sound.
        after = seconds if network.version == 2 and process.n_hosts == 1 else abs(seconds)
        network.times.append(network.times[-1] + after * SECOND_US)
    process.read(each.n, each.again)
    process.happen(each.first)
    if each.behind is not None:
        process.connected()
        process.checkpoint(each.behind)
    process.happen(each.then)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("n_hosts", [1, 2])
@given(rounds=ROUNDS, lead=st.integers(0, 3))
def test_each_message_is_returned_once(
    version: int, n_hosts: int, rounds: list[Round], lead: int
) -> None:
    """Cuts, kills, checkpoints behind what was read, changes of the host, and hosts that begin too
    early: from the first message on each is returned once and in order, and there is no gap.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "_KEYS", KEYS)
        network = Network(version, [time_us(60)], lead)
        process = Process(network, n_hosts)
        process.connected()
        network.times.append(time_us(61))
        process.read(1)
        process.checkpoint(0)  # a stream without one begins with what comes
        for each in rounds:
            play(process, network, each)
        process.read(10_000)
    assert process.returned == list(range(1, len(network.times)))
    assert process.gaps + process.source.gaps == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_checkpoint_forgets_does_not_come_twice(*, restarts: bool) -> None:
    """A checkpoint forgets old messages: those that a connection made before it sends again, and
    those whose time is later than the oldest one that is kept.
    """
    n = _KEYS + 500
    late = range(300, n + 300)  # their times; the last ones kept begin with two older ones
    times = [*late[:502], 200, 201, *late[502:]]
    sent = [frame(commit1(i, time_us=time_us(0) + at)) for i, at in enumerate(times)]
    new = commit1(len(times), time_us=time_us(1))
    connected, checkpointed = threading.Event(), threading.Event()

    def from_the_cursor(peer: Peer) -> None:
        peer.accept()
        connected.set()
        assert checkpointed.wait(PATIENCE_S)
        cursor = int(peer.asked["cursor"]) - time_us(0)
        again = [i for i in sorted(range(len(times)), key=times.__getitem__) if times[i] >= cursor]
        peer.send(b"".join(sent[i] for i in again) + frame(new))
        peer.until_closed()

    with LiveServer(playing(*sent, wait=False), from_the_cursor) as server:
        run = begun([server], 1)
        run.until_n(len(times))
        if restarts:
            facts = run.source.logs({run.source.partition: len(times)})
            run.source.close()
            run = begun([server], 1, len(times), facts)
            checkpointed.set()
            run.until_n(1)
        else:
            run.until(connected.is_set)
            run.source.logs({run.source.partition: len(times)})
            checkpointed.set()
            run.until_n(len(times) + 1)
        run.source.close()
    assert len(run.values) == 1 + (0 if restarts else len(times))
    assert run.values[-1] == new
    assert run.source.gaps == 0


def test_a_time_before_the_cursor_hides_nothing_amid_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a host sends before it comes to the time that it was asked for is left out, forgotten
    messages behind a known one too; behind that time an event may have any.
    """
    monkeypatch.setattr(live, "_KEYS", 3)
    seconds = [3, 4, 1, 5, 6]  # the first two are forgotten
    sent = {at: frame(commit1(at, time_us=time_us(at))) for at in seconds}
    late = commit1(9, time_us=time_us(2))
    early = [*(sent[at] for at in sorted(seconds)), frame(commit1(7)), frame(late)]
    with LiveServer(playing(*sent.values()), playing(*early, frame(commit1(8)))) as server:
        run = begun([server], 1)
        run.until_n(5)
        facts = run.source.logs({run.source.partition: 5})
        run.source.close()
        run = begun([server], 1, 5, facts)
        run.until(lambda: commit1(8) in run.values)
        run.source.close()
        assert server.peers[1].asked["cursor"] == str(time_us(5))
    assert run.values == [commit1(7), late, commit1(8)]
    assert run.source.gaps == 0


@pytest.mark.parametrize("cut", [0, 25])
@pytest.mark.parametrize("version", [1, 2])
def test_what_a_server_lost_and_has_again_is_returned_once(
    version: int, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash a server may archive anew what it had sent, later, in another order and by
    other numbers: a message that is forgotten by then is not new, wherever the second pass was cut.
    """
    n, n_known, lost_s = 60, 40, 30
    monkeypatch.setattr(live, "_KEYS", n_known)

    def sent(i: int, second: int) -> bytes:
        if version == 1:
            return frame(commit1(i, time_us=time_us(second)))
        at = f"2026-11-23T06:{second // 60:02}:{second % 60:02}.000000Z"
        return frame(commit2(i, seq=200 + second, time=at))

    order = [i ^ 1 for i in range(n)]
    again = [sent(i, n + lost_s + place) for place, i in enumerate([*order, n, n + 1])]

    def from_the_cursor(peer: Peer) -> None:
        peer.accept()
        asked = int(peer.asked["cursor"])
        first = (asked - time_us(0)) // 1_000_000 if version == 1 else asked - 200
        peer.send(b"".join(again[max(0, first - n - lost_s) :]))
        peer.until_closed()

    end = cut or n
    scripts = [
        playing(*(sent(i, i) for i in range(n)), wait=False),
        playing(*again[:end], wait=False),
        from_the_cursor,
    ]
    with LiveServer(*scripts) as server:
        run = begun([server], version)
        run.until_n(n)
        run.until(lambda: len(server.peers) == 3)
        facts = run.source.logs({run.source.partition: n})
        run.source.close()
        run = begun([server], version, n, facts)
        run.until_n(2)
        run.source.close()
    texts = [json.loads(each) for each in run.values]
    assert [(each.get("payload") or each["commit"])["rkey"] for each in texts] == ["k60", "k61"]
    assert run.source.gaps == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_cursor_that_is_left_does_not_begin_once_more(*, restarts: bool) -> None:
    """`start_at` is for the first start: where the cursor was left behind, and where a checkpoint
    knows nothing, it goes on with what comes.
    """
    too_old = json.dumps({"error": "CursorTooOld", "message": "gone"})
    refusing: list[Script] = [lambda peer: peer.answer("400 Bad Request", too_old)]
    first = frame(b"no JSON") if restarts else commits(commit2, 1)
    with LiveServer(
        playing(first, wait=False), *(2 * refusing * (not restarts)), playing(commits(commit2, 9))
    ) as server:
        run = begun([server], start_at=time_us(0))
        run.until_n(1)
        if restarts:
            run.source.close()
            run = begun([server], 2, 1, start_at=time_us(0))
            run.until_n(1)
        else:
            run.until_n(2)
        run.source.close()
        cursors = [peer.asked.get("cursor") for peer in server.peers]
    refused = ["101", str(time_us(1))]
    assert cursors == [str(time_us(0)), *(refused * (not restarts)), None]
    assert run.source.gaps == 1
