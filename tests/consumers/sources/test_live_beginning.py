"""`--from` of live streams: where they are asked to begin, and what is told if they cannot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from consumers.config.addresses import Bound, LiveSettings, StreamRange
from consumers.config.settings import Settings
from consumers.errors import ConfigError, SourceError
from consumers.factories import build_source
from consumers.messages import Partition
from consumers.sources import live
from consumers.sources.base import Cursor, Known, LogFacts, unpacked
from consumers.sources.live import LiveSource, StreamFeed
from tests.consumers.sources.live_server import (
    LiveServer,
    Peer,
    Script,
    commit1,
    commit2,
    frame,
    time_us,
)
from tests.consumers.sources.test_live import Clock, Run, begun, commits, playing, streamed

LONG_AGO_MS = 1_600_000_000_000  # of a clock that every machine has passed


def dated(version: int, n: int) -> bytes:
    """Return commit number `n` as a frame, `n` seconds after that."""
    if version == 1:
        return frame(commit1(n, time_us=LONG_AGO_MS * 1000 + n * 1_000_000))
    return frame(commit2(n, time=f"2020-09-13T12:{26 + (40 + n) // 60}:{(40 + n) % 60:02}.000000Z"))


def from_time(source: str, begin_ms: int, **more: Any) -> Run:
    """Return a run of a source with `--from`."""
    settings = Settings.model_validate({"source": source, **more})
    part = StreamRange(Bound("time", begin_ms), None)
    built = build_source(settings, until_end=False, part=part)
    assert isinstance(built, LiveSource)
    return Run(built, Clock())


@pytest.mark.parametrize("version", [1, 2])
def test_a_live_stream_begins_at_a_time(version: int) -> None:
    """`--from` asks by time, leaves out what is earlier, and what lies between it and a later
    beginning is a gap.
    """
    jetstream = {"version": version, "start_at": 1}
    for first, gaps in ((4, 0), (80, 1)):
        frames = b"".join(dated(version, n) for n in (1, first, first + 1))
        with LiveServer(playing(frames)) as server:
            source = f"jetstream+ws://{server.host}"
            run = from_time(source, LONG_AGO_MS + 2000, jetstream=jetstream)
            run.until_n(2)
            run.source.close()
            assert [peer.asked["cursor"] for peer in server.peers] == ["1600000002000000"]
        assert [f'"k{first + i}"'.encode() in run.values[i] for i in range(2)] == [True, True]
        assert run.source.gaps == gaps


def test_a_time_before_all_is_no_number() -> None:
    """Small cursors are numbers, and so the times of the last century are asked for as one later
    on.
    """
    with LiveServer(playing(dated(2, 1))) as server:
        run = from_time(f"jetstream+ws://{server.host}", 5, jetstream={"version": 2})
        run.until_n(1)
        run.source.close()
        assert server.peers[0].asked["cursor"] == str(10**15)


TOO_OLD = json.dumps({"error": "CursorTooOld", "message": "gone"})


def refusing(then: Script) -> Script:
    """Return a script that refuses every cursor, and plays another one to who asks by none."""

    def script(peer: Peer) -> None:
        if "cursor" in peer.asked:
            peer.answer("400 Bad Request", TOO_OLD)
        else:
            then(peer)

    return script


def unreachable(_: Peer) -> None:
    """Close without a word."""


@pytest.mark.parametrize("other", [refusing(playing(commits(commit2, 9))), unreachable])
@pytest.mark.parametrize("has_begun", [False, True])
def test_a_time_that_one_host_refuses_is_asked_of_the_others(
    other: Script, *, has_begun: bool
) -> None:
    """What a host with a short memory no longer has is no gap if the next but one has it; a cut
    connection does not begin it all once more.
    """
    short: list[Script] = [refusing(playing(commits(commit2, 9)))]
    if has_begun:
        short.insert(0, playing(commits(commit2, 1), wait=False))
    whole = commits(commit2, 1, 2, 3)
    with LiveServer(*short) as a, LiveServer(other) as b, LiveServer(playing(whole)) as c:
        run = begun([a, b, c], start_at=time_us(1))
        run.until_n(3)
        run.source.close()
        cursors = [peer.asked.get("cursor") for peer in c.peers]
    assert run.values == [commit2(n) for n in (1, 2, 3)]
    assert run.source.gaps == 0
    assert len(cursors) == 1
    assert int(cursors[0] or 0) >= time_us(1)


@pytest.mark.parametrize("version", [1, 2])
def test_a_first_message_of_an_absurd_time_is_read_like_any_other(version: int) -> None:
    """It may be in a year that no date can hold; nothing is known by it of what is missing."""
    if version == 1:
        first = commit1(1, time_us=1 << 61)
        whole = frame(first) + commits(commit1, 2)
    else:
        first = commit2(1, time="9999-12-31T23:59:59-12:00")
        whole = frame(first) + commits(commit2, 2)
    with LiveServer(playing(whole)) as server:
        run = begun([server], version=version, start_at=time_us(1))
        run.until_n(2)
        run.source.close()
    assert run.values[0] == first
    assert run.source.gaps == 0


@pytest.mark.parametrize("other", [refusing(playing(commits(commit2, 9))), unreachable])
def test_a_time_that_no_host_has_is_left_behind(other: Script) -> None:
    """Each is asked once, one that cannot be reached too; then it goes on with what comes."""
    first: Script = playing(commits(commit2, 1), wait=False)
    with LiveServer(first, refusing(playing(commits(commit2, 9)))) as a, LiveServer(other) as b:
        run = begun([a, b], start_at=time_us(1))
        run.until_n(2)
        run.source.close()
        asked = [peer.asked.get("cursor") for peer in a.peers + b.peers]
    assert run.values == [commit2(1), commit2(9)]
    assert run.source.gaps == 1
    assert 0 < asked.count(None) <= 2


@pytest.mark.parametrize(
    "second",
    [refusing(unreachable), playing(wait=False)],
    ids=["its numbers are gone", "it is quiet, and cut"],
)
def test_a_host_that_may_have_all_is_asked_again(second: Script) -> None:
    """By time where its numbers are refused; and once more where it took the cursor."""
    first: Script = playing(commits(commit2, 1), wait=False)
    short: Script = refusing(playing(commits(commit2, 9)))
    whole = playing(commits(commit2, 1, 2, 3))
    with LiveServer(first, second, whole) as a, LiveServer(short) as b:
        run = begun([a, b], start_at=time_us(1))
        run.until_n(3)
        run.source.close()
    assert run.values == [commit2(n) for n in (1, 2, 3)]
    assert run.source.gaps == 0


def test_a_host_that_takes_the_cursor_and_sends_nothing_is_left_behind_in_the_end() -> None:
    """It is cut each time, and the other one refuses the cursor: nothing would ever be read."""

    def mute(peer: Peer) -> None:
        then = playing(wait=False) if "cursor" in peer.asked else playing(commits(commit2, 9))
        then(peer)

    first: Script = playing(commits(commit2, 1), wait=False)
    short: Script = refusing(playing(commits(commit2, 9)))
    with LiveServer(first, mute) as a, LiveServer(short) as b:
        run = begun([a, b], start_at=time_us(1))
        run.until_n(2)
        run.source.close()
    assert run.values == [commit2(1), commit2(9)]
    assert run.source.gaps == 1


ENDING = frame(json.dumps({"$type": "error", "error": "CursorTooOld", "message": "gone"}).encode())


@pytest.mark.parametrize(
    "refusal", [refusing(unreachable), playing(ENDING, wait=False)], ids=["an answer", "a frame"]
)
def test_a_first_start_at_a_number_that_is_too_old_is_a_gap(refusal: Script) -> None:
    """It goes on with what comes, and what lies between is counted once."""
    cut = playing(wait=False)
    with LiveServer(refusal, cut, playing(commits(commit2, 9))) as server:
        run = begun([server], start_at=500)
        run.until_n(1)
        run.source.close()
        cursors = [peer.asked.get("cursor") for peer in server.peers]
    assert cursors == ["500", None, None]
    assert run.source.gaps == 1


def edit(at_ms: int) -> bytes:
    """Return an event of Wikimedia's."""
    places = [{"topic": "codfw.change", "partition": 0, "offset": -1}]
    places.append({"topic": "eqiad.change", "partition": 0, "timestamp": at_ms})
    return f"event: message\nid: {json.dumps(places)}\ndata: {{}}\n\n".encode()


def test_wikimedia_begins_at_a_time_once() -> None:
    """`--from` is `since` on the first connection; later ones go on by the id of the last event, a
    millisecond back at least. A beginning that is later than asked for is a gap.
    """

    def script(peer: Peer) -> None:
        peer.begin()
        peer.chunk(edit(LONG_AGO_MS + 90_000))
        peer.send(b"0\r\n\r\n")

    with LiveServer(script) as server:
        source = f"sse+http://{server.host}/v2/stream/a,b?x=1&since=now"
        run = from_time(source, LONG_AGO_MS, message="wikimedia")
        run.until(lambda: len(server.peers) == 2)
        run.source.close()
        first, second = server.peers[:2]
        assert first.head.startswith("GET /v2/stream/a,b?x=1&since=2020-09-13T12:26:40.000Z ")
        assert first.header("Last-Event-ID") is None
        assert second.head.startswith("GET /v2/stream/a,b?x=1&since=now ")
        assert str(LONG_AGO_MS + 89_999) in (second.header("Last-Event-ID") or "")
        assert '"codfw.change","partition":0,"offset":-1' in (second.header("Last-Event-ID") or "")
    assert run.source.gaps == 1


class Kafka:
    """Wikimedia's servers over a log of partition, seconds and data of each event.

    They begin with the first event of a partition that is not earlier than asked for, and an id has
    what was sent last of each partition, a millisecond later.
    """

    def __init__(self, log: list[tuple[str, float, bytes]]) -> None:
        self._log = log
        self.n_may_come = 0

    def __call__(self, peer: Peer) -> None:
        """Serve a connection: so many events of the log's may come, then it is cut."""
        peer.begin()
        asked = json.loads(peer.header("Last-Event-ID") or "[]")
        at_ms = {each["topic"]: each["timestamp"] for each in asked}
        places, begun = dict(at_ms), set[str]()
        for topic, second, data in self._log[: self.n_may_come]:
            time_ms = LONG_AGO_MS + round(second * 1000)
            if topic in begun or time_ms >= at_ms.get(topic, 0):
                begun.add(topic)
                places[topic] = time_ms + 1
                named = [
                    {"topic": name, "partition": 0, "timestamp": at} for name, at in places.items()
                ]
                peer.chunk(b"id: %s\ndata: %s\n\n" % (json.dumps(named).encode(), data))
        peer.send(b"0\r\n\r\n")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("n_keys", [4, 8192])
def test_what_has_the_time_of_wikimedias_last_event_comes_too(
    n_keys: int, monkeypatch: pytest.MonkeyPatch, *, restarts: bool
) -> None:
    """Wherever the connection was cut, or the daemon killed: each event is read once, also one with
    the last one's millisecond, one whose time is lower, and one of another partition.
    """
    monkeypatch.setattr(live, "_KEYS", n_keys)
    times = [0, 1, 1, 1, 2, 2, 1.5, 2, 3, 3, 3, 4, 4, 4, 5]
    topics = ["eqiad", "eqiad", "codfw", "eqiad", "eqiad", "codfw", "eqiad", "eqiad"] * 2
    data = [b'{"id":%d}' % i for i in range(len(times))]
    kafka = Kafka(list(zip(topics, times, data, strict=False)))
    with LiveServer(kafka) as server:
        found: list[bytes] = []
        facts: Mapping[Partition, LogFacts] = {}
        run = streamed(server, "events")
        for kafka.n_may_come in range(1, len(data) + 1):
            run.until_n(kafka.n_may_come - len(found))
            facts = run.source.logs({run.source.partition: kafka.n_may_come})
            if restarts:
                run.source.close()
                found += run.values
                feed = StreamFeed(f"http://{server.host}/", "events")
                run = Run(LiveSource(feed, LiveSettings()), Clock(), len(found), facts)
        n = len(server.peers)
        run.until(lambda: len(server.peers) > n + 1)
        run.source.close()
    assert found + run.values == data
    assert run.source.gaps == 0


def test_a_beginning_behind_the_checkpoint_is_refused() -> None:
    """A checkpoint's cursor wins over `--from`, and one that would leave messages out is an
    error.
    """
    with LiveServer(playing(dated(1, 1), dated(1, 2))) as server:
        source = f"jetstream+ws://{server.host}"
        run = from_time(source, LONG_AGO_MS)
        run.until_n(2)
        facts = run.source.logs({run.source.partition: 2})
        run.source.close()
        again = from_time(source, LONG_AGO_MS).source
        again.resume(facts)
        again.open(lambda _: 2)
        again.close()
        late = from_time(source, LONG_AGO_MS + 2001).source
        late.resume(facts)
        with pytest.raises(SourceError, match=r"lies behind offset 2.*Leave --from out"):
            late.open(lambda _: 2)


@pytest.mark.parametrize(
    ("source", "begin", "end", "wanted"),
    [
        ("jetstream", "offset:1", None, "has no offsets; give a time"),
        ("jetstream", "2999-01-01", None, "lies ahead of now"),
        ("jetstream", None, "2020-01-01", "is live and has no end"),
        ("sse+https://example.org/", "2020-01-01", None, "cannot be asked for its past"),
        ("wss://example.org/", "2020-01-01", None, "cannot be asked for its past"),
        ("generator", "2020-01-01", None, "no past to begin in"),
    ],
)
def test_what_has_no_past_says_so(
    source: str, begin: str | None, end: str | None, wanted: str
) -> None:
    """`--from` and `--to` of a live stream that cannot be had are told in one line."""
    bounds = (None if each is None else Bound.parse(each) for each in (begin, end))
    settings = Settings.model_validate({"source": source})
    with pytest.raises(ConfigError, match=wanted) as caught:
        build_source(settings, until_end=False, part=StreamRange(*bounds))
    assert "\n" not in str(caught.value)


def test_a_checkpoint_amid_the_beginning_knows_all_that_was_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is taken while the cursor is read has the whole of it; what it lacked came twice."""
    with LiveServer(playing(commits(commit2, *range(1, 9)))) as server:
        run = begun([server])
        run.until_n(8)
        facts = run.source.logs({run.source.partition: 8})
        run.source.close()
    sources: list[LiveSource] = []
    noted: list[Mapping[Partition, LogFacts]] = []
    opens = LiveSource.open

    def open_noted(source: LiveSource, position_of: Callable[[Partition], int | None]) -> None:
        sources.append(source)
        opens(source, position_of)

    def unpacked_noted(cursor: Cursor, position: int) -> Iterator[Known]:
        for known in unpacked(cursor, position):
            noted.append(sources[0].logs({sources[0].partition: position}))
            yield known

    monkeypatch.setattr(LiveSource, "open", open_noted)
    monkeypatch.setattr(live, "unpacked", unpacked_noted)
    with LiveServer(playing(commits(commit2, *range(2, 10)))) as server:
        again = begun([server], 2, 8, facts)
        again.until_n(1)
        again.source.close()
    assert noted == [facts] * 8
    assert again.values == [commit2(9)]
