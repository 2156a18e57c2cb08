"""Live streams: what goes wrong on their wires costs no message, or is counted as a gap."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from consumers.config.settings import Settings, to_yaml
from consumers.messages import Partition
from consumers.sources.base import LogFacts
from consumers.sources.jetstream import JetstreamFeed
from consumers.sources.live import RETRY_AFTER_MAX_S, LiveSource, StreamFeed
from consumers.sources.recording import stream_identity
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

POST, LIKE = "app.bsky.feed.post", "app.bsky.feed.like"
SECRETS = (
    "api_key", "apiKey", "API-Key", "key", "Token", "auth_token", "client_secret", "Bearer", "sig",
    "Signature", "jwt", "access%5Ftoken", "x-api-key", "api_secret", "consumer_secret",
    "refreshtoken", "session_token", "refresh_token", "id_token", "oauth_token", "private_token",
    "bearer_token", "app_key", "subscription-key", "pass", "userPass", "b=2;token", "token[]",
    "user[key][0]", "APIKey", "privatekey", "authkey", "tokenV2", "api_key_2", "credentials",
)  # fmt: skip
NO_SECRETS = (
    "keyword", "monkey", "bypass", "compass", "tokenizer", "keys", "author", "passage",
    "routing_key", "sort_key", "partitionKey", "public_key", "next_token", "pageToken",
)  # fmt: skip


class Clock:
    """A clock that moves when it is told to, and when somebody waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waited: list[float] = []

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.waited.append(seconds)
        self.now += seconds


class Run:
    """An opened source and what it has returned."""

    def __init__(
        self,
        source: LiveSource,
        clock: Clock,
        position: int | None = None,
        facts: Mapping[Partition, LogFacts] | None = None,
    ) -> None:
        self.source = source
        self.clock = clock
        self.offsets: list[int] = []
        self.values: list[bytes] = []
        source.resume(facts or {})
        source.open(lambda _: position)

    def poll(self) -> int:
        """Poll once; return how many messages came."""
        batches = self.source.poll(0.05)
        for raw in batches:
            self.offsets += raw.offsets.tolist()
            self.values += [raw.value(i) or b"" for i in range(len(raw))]
            assert raw.next_offset == self.offsets[-1] + 1
        return sum(map(len, batches))

    def until(self, condition: Callable[[], bool]) -> None:
        """Poll until a condition holds."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            if condition():
                return
            self.poll()
        raise AssertionError(f"not within patience: {self.source.trouble()}, {self.values[-3:]}")

    def until_n(self, n: int) -> None:
        """Poll until so many messages have come."""
        self.until(lambda: len(self.values) >= n)


def begun(
    servers: Sequence[LiveServer],
    version: int = 2,
    position: int | None = None,
    facts: Mapping[Partition, LogFacts] | None = None,
    **jetstream: Any,
) -> Run:
    """Return a run of Jetstream from these servers."""
    clock = Clock()
    settings = Settings.model_validate({"jetstream": {"version": version, **jetstream}})
    feed = JetstreamFeed([f"ws://{each.host}" for each in servers], settings.jetstream)
    source = LiveSource(
        feed, settings.live, clock=clock, wait=clock.wait, wall_time=lambda: time_us(600) / 1e6
    )
    return Run(source, clock, position, facts)


def streamed(server: LiveServer, framing: Any, path: str = "/", **live: Any) -> Run:
    """Return a run of any other stream from a server."""
    clock = Clock()
    settings = Settings.model_validate({"live": live})
    scheme = "ws" if framing == "websocket" else "http"
    feed = StreamFeed(f"{scheme}://{server.host}{path}", framing)
    return Run(LiveSource(feed, settings.live, clock=clock, wait=clock.wait), clock)


def playing(*frames: bytes, cut: int = 0, wait: bool = True) -> Script:
    """Return a script that sends frames, the last one without its last `cut` bytes."""

    def script(peer: Peer) -> None:
        peer.accept()
        data = b"".join(frames)
        peer.send(data[: len(data) - cut])
        if wait:
            peer.until_closed()

    return script


def commits(wire: Callable[[int], bytes], *numbers: int) -> bytes:
    """Return commits as frames."""
    return b"".join(frame(wire(n)) for n in numbers)


@pytest.mark.parametrize(("version", "wire"), [(1, commit1), (2, commit2)])
def test_frames_are_messages(version: int, wire: Callable[[int], bytes]) -> None:
    """Frames come as they are, numbered from 0, in fragments too; pings are answered, and no data
    frame is ever sent.
    """
    sent: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.accept()
        whole = wire(3)
        peer.send(commits(wire, 1, 2) + frame(b"hello", 9))
        peer.send(frame(whole[:7], final=False) + frame(b"", 9) + frame(whole[7:], 0))
        peer.send(frame(b"no JSON"))
        sent.append(peer.until_closed())

    with LiveServer(script) as server:
        run = begun([server], version, collections=[POST, LIKE], dids=["did:plc:a"])
        run.until_n(4)
        run.source.close()
        asked = server.peers[0]
    assert run.values == [wire(1), wire(2), wire(3), b"no JSON"]
    assert run.offsets == [0, 1, 2, 3]
    assert run.source.gaps == 0
    assert [each & 0x0F for each in sent[0][:1]] == [10]  # a pong
    assert len(sent[0]) == (6 + 5) + 6  # two pongs, masked, and nothing else
    assert asked.asked.get("cursor") is None
    if version == 1:
        assert asked.path == "/subscribe"
        assert asked.asked == {"wantedCollections": LIKE, "wantedDids": "did:plc:a"}  # the last
    else:
        assert asked.path == "/xrpc/network.bsky.jetstream.subscribeEvents"
        assert asked.header("Sec-WebSocket-Protocol") == "xrpc.v1.json"


@pytest.mark.parametrize(("version", "wire"), [(1, commit1), (2, commit2)])
@pytest.mark.parametrize("cut", [0, 1, 60])
def test_a_cut_costs_nothing(version: int, wire: Callable[[int], bytes], cut: int) -> None:
    """After a disconnect, in the middle of a frame too, it goes on: what comes twice is left out,
    and nothing is missing.
    """
    with LiveServer(
        playing(commits(wire, 1, 2, 3, 4), cut=cut, wait=False), playing(commits(wire, 2, 3, 4, 5))
    ) as server:
        run = begun([server], version)
        run.until_n(5)
        assert run.source.trouble() is None
        run.source.close()
        cursor = server.peers[1].asked["cursor"]
    assert run.values == [wire(n) for n in (1, 2, 3, 4, 5)]
    assert run.offsets == list(range(5))
    assert run.source.gaps == 0
    assert cursor == (str(time_us(2)) if version == 1 else "102")


@pytest.mark.parametrize("at", [1, 3])
def test_a_time_far_ahead_hides_nothing_that_follows(at: int) -> None:
    """One message of a wrong time, the oldest or the newest before a cut, makes none look old."""
    first = [commit1(n, time_us=time_us(10**9)) if n == at else commit1(n) for n in (1, 2, 3)]
    with LiveServer(
        playing(*map(frame, first), wait=False), playing(commits(commit1, *range(2, 79)))
    ) as server:
        run = begun([server], 1)
        run.until_n(78)
        run.source.close()
    assert run.values == [*first, *map(commit1, range(4, 79))]
    assert run.source.gaps == 0


@pytest.mark.parametrize(("version", "wire"), [(1, commit1), (2, commit2)])
def test_a_checkpoint_goes_on_behind_its_position(
    version: int, wire: Callable[[int], bytes]
) -> None:
    """The cursor of a checkpoint is that of its position, in the middle of a batch too: what was
    read and not learned comes again, with its number; what was learned does not.
    """
    with LiveServer(playing(commits(wire, *range(1, 9)))) as server:
        run = begun([server], version)
        run.until_n(8)
        facts = run.source.logs({run.source.partition: 5})
        run.source.close()
    assert all(facts.values())
    with LiveServer(playing(commits(wire, *range(2, 10)))) as server:
        again = begun([server], version, 5, facts)
        again.until_n(4)
        later = again.source.logs({again.source.partition: 7})
        again.source.close()
    assert again.values == [wire(n) for n in (6, 7, 8, 9)]
    assert again.offsets == [5, 6, 7, 8]
    assert again.source.gaps == 0
    with LiveServer(playing(commits(wire, *range(2, 11)))) as server:
        last = begun([server], version, 7, later)
        last.until_n(3)
        last.source.close()
    assert last.values == [wire(n) for n in (8, 9, 10)]


def test_a_server_that_begins_too_early_repeats_nothing() -> None:
    """Messages older than the time that was asked for were read before, and are left out."""
    with LiveServer(
        playing(commits(commit1, 1, 2, 3, 4), wait=False), playing(commits(commit1, 0, 1, 2, 5))
    ) as server:
        run = begun([server], 1)
        run.until_n(5)
        run.source.close()
    assert run.values == [commit1(n) for n in (1, 2, 3, 4, 5)]


def test_a_cursor_that_is_too_old_is_told() -> None:
    """HTTP 400 CursorTooOld for a number has the host asked by time. If that is refused too, here
    by an error frame, it goes on with what comes; what stood before the frame is kept. Gaps are
    counted.
    """
    error = {"$type": "error", "error": "CursorTooOld", "message": "gone"}
    too_old = json.dumps({"error": "CursorTooOld", "message": "gone"})
    with LiveServer(
        playing(commits(commit2, 1, 2), wait=False),
        lambda peer: peer.answer("400 Bad Request", too_old),
        playing(commits(commit2, 50), frame(json.dumps(error).encode())),
        playing(commits(commit2, 90)),
    ) as server:
        run = begun([server])
        run.until_n(4)
        run.source.close()
        cursors = [peer.asked.get("cursor") for peer in server.peers]
    assert run.values == [commit2(n) for n in (1, 2, 50, 90)]
    assert run.source.gaps == 2
    assert cursors == [None, "102", str(time_us(2)), None]


def test_a_number_that_one_host_refuses_is_no_word_on_the_time() -> None:
    """The other hosts have what lies between, and so may it: nothing is lost, and there is no
    gap.
    """
    too_old = json.dumps({"error": "CursorTooOld", "message": "gone"})
    with (
        LiveServer(
            playing(commits(commit2, 1, 2, 3)),
            lambda peer: peer.answer("400 Bad Request", too_old),
            playing(commits(commit2, 5, 6)),
        ) as first,
        LiveServer(playing(commits(commit2, 3, 4, 5), wait=False)) as second,
    ):
        run = begun([first, second])
        run.until_n(3)
        facts = run.source.logs({run.source.partition: 3})
        run.source.close()
        again = begun([first, second], 2, 3, facts)
        again.until_n(3)
        again.source.close()
        cursors = [peer.asked.get("cursor") for peer in (*first.peers[1:], *second.peers)]
    assert again.values == [commit2(n) for n in (4, 5, 6)]
    assert cursors == ["102", str(time_us(3) + 500_000), str(time_us(2) + 500_000)]
    assert again.source.gaps == 0


@pytest.mark.parametrize("versions", [(1, 2), (2, 1), (2, 1, 2)])
def test_a_checkpoint_goes_on_by_the_other_wire(versions: Sequence[int]) -> None:
    """What one wire sent is known on the other, which is asked by a cursor of its own."""
    made: Mapping[int, Callable[[int], bytes]] = {1: commit1, 2: commit2}
    scripts = [
        playing(*(frame(made[version](n)) for n in range(5 * place + 5)))
        for place, version in enumerate(versions)
    ]
    position, facts = None, dict[Partition, LogFacts]()
    with LiveServer(*scripts) as server:
        for place, version in enumerate(versions):
            run = begun([server], version, position, facts)
            run.until_n(5)
            position = 5 * place + 5
            facts = dict(run.source.logs({run.source.partition: position}))
            run.source.close()
            new = [json.loads(made[version](n)) for n in range(5 * place, position)]
            assert ([json.loads(each) for each in run.values], run.source.gaps) == (new, 0)


def test_a_cursor_that_was_moved_in_silence_is_a_gap() -> None:
    """If nothing that was read comes again, but many that are newer, or some and a cut, messages
    may be missing; a few newer ones before it are no gap.
    """
    with LiveServer(
        playing(commits(commit1, 1, 2, 3), wait=False),
        playing(commits(commit1, 4, 5, 3, 6), wait=False),
        playing(commits(commit1, 7, 8), wait=False),
        playing(commits(commit1, 8, *range(90, 100)), wait=False),
        playing(commits(commit1, *range(100, 160))),
    ) as server:
        run = begun([server], 1)
        run.until_n(6)
        assert run.source.gaps == 0
        run.until_n(18)
        assert run.source.gaps == 1
        run.until_n(78)
        run.source.close()
    assert run.source.gaps == 2
    assert run.values == [commit1(n) for n in (*range(1, 9), *range(90, 160))]


def test_a_host_whose_clock_is_slow_loses_nothing_in_silence() -> None:
    """A host that is asked by another's clock may skip messages, whose next one then looks older
    than what was read before: that is a gap, also if the connection breaks right behind it.
    """
    slow = commit1(122, time_us=time_us(102))
    with (
        LiveServer(
            playing(commits(commit1, 100, 101, 102), wait=False),
            playing(commits(commit1, 122, 123)),
        ) as first,
        LiveServer(playing(frame(slow), wait=False)) as second,
    ):
        run = begun([first, second], 1)
        run.until_n(5)
        run.source.close()
    assert run.values == [*(commit1(n) for n in (100, 101, 102)), slow, commit1(123)]
    assert run.source.gaps == 1


def test_an_error_frame_ends_the_connection_and_info_does_not() -> None:
    """An error frame is no message and leads to a new connection; `#info` is logged."""
    info = {"$type": "message", "payload": {"$type": "x#info", "name": "OutdatedCursor"}}
    error = {"$type": "error", "error": "ConsumerTooSlow"}
    with LiveServer(
        playing(
            frame(json.dumps(info).encode()), commits(commit2, 1, 2),
            frame(json.dumps(error).encode()), commits(commit2, 3),
        ),
        playing(commits(commit2, 2, 3)),
    ) as server:  # fmt: skip
        run = begun([server])
        run.until_n(2)
        assert "ConsumerTooSlow" in (run.source.trouble() or "")
        run.until_n(3)
        run.source.close()
    assert run.values == [commit2(n) for n in (1, 2, 3)]
    assert run.source.gaps == 0


def test_a_refusal_is_told_and_waits_as_long_as_it_says() -> None:
    """429 with Retry-After is waited for; a wrong token is told by its status; both are tried
    again, with pauses that grow.
    """
    with LiveServer(
        lambda peer: peer.answer("429 Too Many Requests", "slow down", "Retry-After: 90"),
        lambda peer: peer.answer("401 Unauthorized", "who are you"),
        lambda peer: peer.answer("503 Unavailable"),
        playing(commits(commit2, 1)),
    ) as server:
        run = begun([server])
        run.until(lambda: run.source.trouble() is not None)
        assert run.source.trouble() == "jetstream: refused with HTTP 429: slow down"
        before = run.clock.now
        run.until(lambda: "401" in (run.source.trouble() or ""))
        assert 90 <= run.clock.now - before < 91
        before = run.clock.now
        run.until_n(1)
        assert 1.0 <= run.clock.now - before < 3
        run.source.close()


@pytest.mark.parametrize("asked", ["86400", "999999", "Fri, 31 Dec 2199 23:59:59 GMT"])
def test_no_server_keeps_us_away_for_long(asked: str) -> None:
    """A `Retry-After` of days, or one far ahead, is waited for a quarter of an hour at most."""
    with LiveServer(
        lambda peer: peer.answer("429 Too Many Requests", "", f"Retry-After: {asked}"),
        playing(commits(commit2, 1)),
    ) as server:
        run = begun([server])
        run.until(lambda: run.source.trouble() is not None)
        before = run.clock.now
        run.until_n(1)
        assert RETRY_AFTER_MAX_S <= run.clock.now - before < RETRY_AFTER_MAX_S + 1
        run.source.close()


def test_what_a_server_repeats_of_secrets_is_shown_nowhere(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not in a refusal, cut off or whole, not in an error frame, and not in a note."""
    token = "very-secret-token"
    error = {"$type": "error", "error": "CursorTooOld", "message": f"{token} is too old"}
    info = {"$type": "network.bsky.jetstream.subscribeEvents#info", "message": token}
    note = {"$type": "message", "payload": info}
    with LiveServer(
        lambda peer: peer.answer("401 Unauthorized", f"{'x' * 1990}{token}"),
        lambda peer: peer.answer("403 Forbidden", f"Bearer {token}"),
        playing(frame(json.dumps(note).encode()), frame(json.dumps(error).encode()), wait=False),
        playing(commits(commit2, 1)),
    ) as server:
        clock = Clock()
        settings = Settings.model_validate({"live": {"token": token}, "jetstream": {"version": 2}})
        feed = JetstreamFeed([f"ws://{server.host}"], settings.jetstream)
        source = LiveSource(feed, settings.live, clock=clock, wait=clock.wait)
        run = Run(source, clock)
        troubles = set[str]()

        def came() -> bool:
            troubles.add(source.trouble() or "")
            return len(run.values) == 1

        run.until(came)
        source.close()
        assert server.peers[0].header("Authorization") == f"Bearer {token}"
    assert any("HTTP 401: xxx" in each and each.endswith("***") for each in troubles)
    assert "jetstream: refused with HTTP 403: Bearer ***" in troubles
    printed = capsys.readouterr()
    shown = "\n".join([*troubles, caplog.text, printed.out, printed.err])
    for event in ("jetstream_info", "cursor_left_behind"):
        assert event in shown
    assert token[:10] not in shown


def test_a_flood_is_taken_piece_by_piece() -> None:
    """What is not asked for stays on the wire: the server waits, each poll brings a bounded piece,
    and every message comes.
    """
    n, size = 2_000, 20_000
    done = threading.Event()

    def script(peer: Peer) -> None:
        peer.accept()
        for i in range(n):
            peer.send(frame(b"%06d" % i + b"x" * size))
        done.set()
        peer.until_closed()

    with LiveServer(script) as server:
        run = streamed(server, "websocket")
        run.until_n(1)
        assert not done.is_set()  # 40 MB fit into no buffer of the system
        pieces = []
        while len(run.values) < n:
            pieces.append(run.poll())
        run.source.close()
    assert [int(value[:6]) for value in run.values] == list(range(n))
    assert max(pieces) <= (17 << 16) // size


def test_server_sent_events_are_resumed_by_their_id() -> None:
    """Comments, retries, line ends of all kinds and names are read as the standard has them; the
    stream goes on behind the id of the last event, across a restart too.
    """

    def first(peer: Peer) -> None:
        peer.begin()
        for data in (b"\xef\xbb\xbf: welcome\n\nretry: 7000\nid: 1\nda", b'ta: {"a":\r',
                     b"\ndata:1}\r", b"\r\nevent: update\rdata: [2]\rid:2\r\rdata\n\n",
                     b"event: delete\ndata: 345\nid: 3\n\nid: 4\ndata: cut off\n"):  # fmt: skip
            peer.chunk(data)
        peer.send(b"0\r\n\r\n")

    def second(peer: Peer) -> None:
        peer.begin()
        peer.chunk(b"id: 3\nevent: delete\ndata: 345\n\nid: 4\ndata: four\n\n")
        peer.until_closed()

    with LiveServer(first, second) as server:
        run = streamed(server, "events", "/stream?x=1")
        run.until_n(4)
        before = run.clock.now
        run.until_n(5)
        assert 7 <= run.clock.now - before < 8
        facts = run.source.logs({run.source.partition: 5})
        run.source.close()
        assert server.peers[0].head.startswith("GET /stream?x=1 HTTP/1.1\r\n")
        assert server.peers[0].header("Accept") == "text/event-stream"
        assert [peer.header("Last-Event-ID") for peer in server.peers] == [None, "3"]
    wanted = [b'{"a":\n1}', b'{"event":"update","payload":[2]}', b""]
    assert run.values[:3] == wanted
    assert run.values[3:] == [b'{"event":"delete","payload":"345"}', b"four"]
    assert run.source.gaps == 0
    with LiveServer(second) as server:
        feed = StreamFeed(f"http://{server.host}/stream", "events")
        again = LiveSource(feed, Settings().live)
        again.resume({again.partition: next(iter(facts.values()))})
        again.open(lambda _: 5)
        again.poll(PATIENCE_S)
        again.poll(PATIENCE_S)
        again.close()
        assert server.peers[0].header("Last-Event-ID") == "4"


@pytest.mark.parametrize("status", ["400 Bad Request", "410 Gone", "416 Range Not Satisfiable"])
def test_an_id_that_is_refused_is_left_over_a_gap(status: str) -> None:
    """It would be refused for ever. What refuses us without it is no word on an id, and another
    refusal keeps it.
    """

    def event(n: int) -> Script:
        def script(peer: Peer) -> None:
            peer.begin()
            peer.chunk(b"id: %d\ndata: %d\n\n" % (n, n))
            peer.send(b"0\r\n\r\n")

        return script

    with LiveServer(
        event(1),
        lambda peer: peer.answer("503 Service Unavailable"),
        lambda peer: peer.answer(status, "no such id"),
        lambda peer: peer.answer(status, "not now"),
        event(9),
        playing(),
    ) as server:
        run = streamed(server, "events")
        run.until_n(2)
        run.until(lambda: len(server.peers) == 6)
        run.source.close()
        asked = [peer.header("Last-Event-ID") for peer in server.peers]
    assert asked == [None, "1", "1", None, None, "9"]
    assert run.values == [b"1", b"9"]
    assert run.source.gaps == 1


def test_lines_come_without_the_empty_ones() -> None:
    """Keep-alives are signs of life and no messages; a stream that cannot be resumed has a gap
    wherever it was cut, and a line that was cut is none.
    """

    def script(peer: Peer) -> None:
        peer.begin()
        peer.chunk(b'\r\n{"data":1}\r\n\r\n{"da')
        peer.chunk(b'ta":2}\r\n{"data"')

    with LiveServer(script) as server:
        run = streamed(server, "lines", token="s" * 20, headers={"X-Who": "me"})
        run.until_n(4)
        run.source.close()
        assert server.peers[0].header("Authorization") == "Bearer " + "s" * 20
        assert server.peers[0].header("X-Who") == "me"
    assert run.values == [b'{"data":1}', b'{"data":2}'] * 2
    assert run.source.gaps == 1


def test_secrets_and_addresses() -> None:
    """A token is shown nowhere, and one that stands in an address is refused."""
    live = {"token": "very-secret-token", "headers": {"X-Key": "very-secret-key"}}
    settings = Settings.model_validate({"source": "wss://example.org/a?b=1", "live": live})
    assert "very-secret" not in to_yaml(settings)
    assert stream_identity(settings) == {"source": "websocket", "address": "wss://example.org/a"}
    for wrong in (
        "wss://me:password@example.org/", "sse+https://example.org/?access_token=abc",
        "sse+https://", "lines+https:///path", "jetstream://a b", "jetstream2", "wss://example.org:x",
        *(f"wss://example.org/?a=1&{name}=abc" for name in SECRETS),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="source"):
            Settings.model_validate({"source": wrong})
    for name in NO_SECRETS:
        Settings.model_validate({"source": f"wss://example.org/?{name}=abc"})
