"""Recording a live stream: from a real topic with all that its messages carry, and to any limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace
from rich.console import Console

from consumers.cli.record import Recorded, RecordLimits, duration_s, record, source_to_record
from consumers.cli.replay import replay
from consumers.config.addresses import Bound, FileSettings, StreamRange
from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.decode.rows import RecordFormat
from consumers.errors import ConfigError, ReplacedError, SinkError
from consumers.messages import Partition
from consumers.sources.recording import RecordingHead, RecordingSource, RecordingWriter
from consumers.sources.records import from_parts
from consumers.terminal import make_view
from streamnb.testing import ManualClock
from tests.broker.broker import Broker
from tests.consumers.full_disk import disk_full_at
from tests.consumers.kafka.topics import Reader, Refused
from tests.consumers.sources.live_server import LiveServer, Peer, commit1, commit2, frame

NewTopic = Callable[..., str]
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def recorded(path: Path) -> dict[Partition, list[Row]]:
    """Return what a recording holds: offset, time, key, value and headers, by partition."""
    source = RecordingSource(path, FileSettings(), with_headers=True, wait=lambda _: None)
    source.open(lambda _: None)
    found: dict[Partition, list[Row]] = {}
    while not source.at_end():
        for raw in source.poll(0.0):
            assert raw.headers is not None
            found.setdefault(raw.partition, []).extend(
                (int(raw.offsets[i]), int(raw.times_ms[i]), raw.key(i), raw.value(i), list(own))
                for i, own in enumerate(raw.headers)
            )
    source.close()
    return found


def recording(path: Path, source: str, limits: RecordLimits, **settings: Any) -> Recorded:
    """Record a source to its limits."""
    values = {"source": source, "generator": {"rate_per_s": 0}, **settings}
    given = Settings.model_validate(values)
    return record(given, path, limits, threading.Event(), show=False)


def produce(address: str, topic: str, rows: dict[int, list[Row]]) -> None:
    """Write messages with all that a message of Kafka can carry."""
    refused = Refused()
    producer = Producer({"bootstrap.servers": address})
    for number, some in rows.items():
        for _, time_ms, key, value, headers in some:
            producer.produce(
                topic,
                value,
                key=key,
                partition=number,
                timestamp=time_ms,
                headers=cast("Any", headers),
                on_delivery=refused,
            )
    assert (producer.flush(60), refused) == (0, [])


@pytest.mark.integration
def test_a_topic_is_recorded_with_all_that_its_messages_carry(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Keys, nulls, bytes, headers, times, offsets and partitions; twice, without a repeat."""
    topic, path = new_topic(3), tmp_path / "r.gz"
    first: dict[int, list[Row]] = {
        0: [
            (0, 1_700_000_000_000, b"k", b'{"text":"a"}', [("trace", b"1"), ("trace", b"\xff")]),
            (1, 1_700_000_000_001, None, None, []),
            (2, 1_600_000_000_000, b"", b"", [("none", None)]),
        ],
        2: [(0, 1_700_000_000_002, b"\x00\xff", b"\xfe\n", [])],
    }
    produce(broker.address, topic, first)
    address, limits = f"kafka://{broker.address}/{topic}", RecordLimits(until_end=True)
    done = recording(path, address, limits)
    assert (done.messages, done.reason, done.value_bytes) == (4, "end of source", 14)
    assert recorded(path) == {Partition(topic, number): some for number, some in first.items()}
    second: dict[int, list[Row]] = {
        0: [(3, 1_700_000_000_003, None, b"more", [])],
        1: [(0, 1_700_000_000_004, b"k", b"x", [])],
    }
    produce(broker.address, topic, second)
    again = recording(path, address, limits)
    assert again.messages == 2
    assert recorded(path) == {
        Partition(topic, number): first.get(number, []) + second.get(number, [])
        for number in range(3)
    }


@pytest.mark.integration
def test_a_recorder_reads_all_partitions_beside_a_member_of_its_group(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """It joins a group of its own, so who reads by the configured name keeps all partitions."""
    topic, path = new_topic(3), tmp_path / "r.gz"
    rows: dict[int, list[Row]] = {
        number: [(0, 1_700_000_000_000 + number, None, b"a", [])] for number in range(3)
    }
    produce(broker.address, topic, rows)
    with Reader(broker.address, topic, "shared") as member:
        member.until(lambda: len(member.source.assignment()) == 3)
        with ThreadPoolExecutor(1) as pool:
            address, limits = f"kafka://{broker.address}/{topic}", RecordLimits(until_end=True)
            running = pool.submit(recording, path, address, limits, kafka={"group_id": "shared"})
            member.until(running.done)  # it polls meanwhile, so a rebalance would be done at once
        done = running.result()
        assert (done.messages, done.reason) == (3, "end of source")
        assert recorded(path) == {Partition(topic, number): some for number, some in rows.items()}
        member.until(lambda: member.n_values == 3)
        assert len(member.source.assignment()) == 3
        assert member.source.n_elsewhere == 0


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.parametrize("partitions", [2, 3])
def test_a_recording_replayed_into_a_topic_is_the_stream_again(
    broker: Broker, new_topic: NewTopic, tmp_path: Path, partitions: int
) -> None:
    """Keys, values, headers and partitions; with fewer partitions the order within each stays."""
    first, second = new_topic(3), new_topic(partitions)
    rows: dict[int, list[Row]] = {
        number: [
            (i, 1_700_000_000_000 + i, b"k%d" % i, b"%d of %d" % (i, number), [("h", b"\xff")])
            for i in range(200)
        ]
        for number in range(3)
    }
    rows[0][0] = (0, 1_700_000_000_000, None, None, [("none", None)])
    rows[0][1] = (1, 1_700_000_000_001, b"k1", None, [])
    rows[0][2] = (2, 1_700_000_000_002, None, b"", [])
    produce(broker.address, first, rows)
    limits = RecordLimits(until_end=True)
    recording(tmp_path / "1.zst", f"kafka://{broker.address}/{first}", limits)
    done = replay(tmp_path / "1.zst", (broker.address,), second, "max", show=False)
    assert (done.sent, done.altered, done.unreadable) == (600, 1, 0)
    recording(tmp_path / "2.zst", f"kafka://{broker.address}/{second}", limits)
    rows[0][0] = (0, 0, None, b"", [("none", b"")])  # the client cannot write such a one
    found = recorded(tmp_path / "2.zst")
    assert set(found) == {Partition(second, number) for number in range(partitions)}
    for number, some in rows.items():
        there = [row[2:] for row in found[Partition(second, number % partitions)]]
        ours = [row for row in there if row in [row[2:] for row in some]]
        assert ours == [row[2:] for row in some]


def test_a_file_is_recorded_as_it_is_read(tmp_path: Path) -> None:
    """Each line with its place; the file's format stands in the head, so CSV stays CSV."""
    (tmp_path / "some.csv").write_text("text,label\nso good,4\nso bad,0\n", encoding="utf-8")
    path = tmp_path / "r.zst"
    done = recording(path, f"file:{tmp_path / 'some.csv'}", RecordLimits(until_end=True))
    assert done == Recorded(2, 17, path.stat().st_size, {"file:some.csv[0]": 30}, "end of source")
    assert recorded(path) == {
        Partition("file:some.csv", 0): [
            (11, -1, None, b"so good,4", []),
            (21, -1, None, b"so bad,0", []),
        ]
    }
    source = RecordingSource(path, FileSettings())
    assert source.record_format.columns == ("text", "label")


@pytest.mark.parametrize("n_lines", [4, 9])
def test_another_file_of_that_name_is_not_recorded_behind_the_first(
    tmp_path: Path, n_lines: int
) -> None:
    """Its bytes tell, as for a daemon; a file that has grown is recorded on."""
    path, limits, source = tmp_path / "r.gz", RecordLimits(until_end=True), tmp_path / "in.jsonl"
    lines = [b'{"id":"a%d","text":"aaaa"}\n' % i for i in range(5)]
    source.write_bytes(b"".join(lines[:3]))
    assert recording(path, f"file:{source}", limits).messages == 3
    source.write_bytes(b"".join(lines))
    assert recording(path, f"file:{source}", limits).messages == 2
    before = path.read_bytes()
    source.write_bytes(b'{"id":"b","text":"another file altogether"}\n' * n_lines)
    with pytest.raises(ReplacedError, match="`record`: with another FILE"):
        recording(path, f"file:{source}", limits)
    assert path.read_bytes() == before
    [rows] = recorded(path).values()
    assert [value for _, _, _, value, _ in rows] == [line.rstrip() for line in lines]


@pytest.mark.parametrize(
    ("part", "offsets"), [(None, [0, 1, 2]), (StreamRange(begin=Bound("offset", 1)), [1, 2])]
)
def test_a_recording_is_recorded_with_its_headers(
    tmp_path: Path, part: StreamRange | None, offsets: list[int]
) -> None:
    """A copy of a recording, or of a part of it, has all that the recording has."""
    partition = Partition("posts", 0)
    rows: list[Row] = [
        (0, 1_700_000_000_000, b"k", b'{"text":"a"}', [("trace", b"abc"), ("trace", b"\xff")]),
        (1, 1_700_000_000_001, None, b'{"text":"b"}', [("none", None)]),
        (2, 1_700_000_000_002, None, b'{"text":"c"}', []),
    ]
    first, second = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    stream = {"source": "kafka", "servers": "127.0.0.1:9092", "topic": "posts"}
    writer = RecordingWriter(first, RecordingHead(stream=stream, format=RecordFormat()))
    at, times_ms, keys, values, headers = zip(*rows, strict=True)
    writer.add(from_parts(partition, keys, values, at, times_ms, 3, headers))
    writer.flush()
    writer.close()
    recording(second, f"recording:{first}", RecordLimits(until_end=True, part=part))
    assert recorded(second) == {partition: [rows[offset] for offset in offsets]}


def test_limits_end_a_recording_to_the_message(tmp_path: Path) -> None:
    """So many messages in each run; the next run goes on with the next message."""
    path = tmp_path / "r.zst"
    for _ in range(2):
        done = recording(path, "generator", RecordLimits(messages_max=700))
        assert (done.messages, done.reason) == (700, "max messages")
    ((partition, rows),) = recorded(path).items()
    assert partition == Partition("generator", 0)
    assert [offset for offset, *_ in rows] == list(range(1_400))


def test_a_duration_ends_a_recording(tmp_path: Path) -> None:
    """The run ends once its time is up, by its own clock, with all that came until then."""
    clock = iter(range(1_000))
    given = Settings.model_validate({"source": "generator", "generator": {"rate_per_s": 0}})
    limits = RecordLimits(seconds_max=30)
    done = record(
        given, tmp_path / "r.gz", limits, threading.Event(), show=False, clock=lambda: next(clock)
    )
    assert done.reason == "time is up"
    assert done.messages == len(recorded(tmp_path / "r.gz")[Partition("generator", 0)]) > 0


def test_a_full_disk_ends_a_recording_that_can_be_continued(tmp_path: Path) -> None:
    """What was written stays whole; with room again the next run goes on behind it."""
    path = tmp_path / "r.gz"
    with disk_full_at(100_000), pytest.raises(SinkError, match="cannot be written on"):
        recording(path, "generator", RecordLimits(messages_max=100_000))
    recording(path, "generator", RecordLimits(messages_max=500))
    (rows,) = recorded(path).values()
    assert [offset for offset, *_ in rows] == list(range(len(rows)))
    assert len(rows) >= 500


@pytest.mark.parametrize("source", ["generator", "jetstream", "wss://127.0.0.1:1/stream"])
def test_a_stream_without_an_end_is_not_read_to_it(source: str) -> None:
    """It would go on for ever: `run`, `record` and `bridge` say so unless another limit ends it."""
    settings = Settings.model_validate({"source": source, "checkpoint": {"folder": None}})
    endless = "--until-end: .* has no end; give --max-messages, or leave it out"
    with pytest.raises(ConfigError, match=endless):
        run(settings, make_view("log", Console(), ManualClock()), until_end=True)
    limits = RecordLimits(until_end=True, part=StreamRange())
    with pytest.raises(ConfigError, match=endless):
        source_to_record(settings, limits)
    source_to_record(settings, replace(limits, messages_max=3)).close()
    source_to_record(settings, replace(limits, seconds_max=3.0)).close()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5m", 90), ("2h", 7_200), ("1d", 86_400), ("5ms", 0.005)]
)
def test_durations_have_a_unit(text: str, seconds: float) -> None:
    """A number with ms, s, m, h or d."""
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "0s", "-1s", "1 h", "1w", "s", "1e3s"])
def test_other_durations_are_refused(text: str) -> None:
    """The error says what is allowed."""
    with pytest.raises(ValueError, match="ms, s, m, h or d"):
        duration_s(text)


@pytest.mark.parametrize(
    ("source", "version"),
    [
        ("jetstream+ws://{}", 2),
        ("jetstream+ws://{}", 1),
        ("ws://{}/stream", 1),
        ("sse+http://{}/stream", 1),
        ("lines+http://{}/stream", 1),
    ],
)
def test_a_live_stream_is_recorded_and_goes_on_in_the_file(
    source: str, version: int, tmp_path: Path
) -> None:
    """Messages stand there byte for byte with their positions, and a second run numbers on."""
    value = commit1 if version == 1 else commit2

    def event(n: int) -> bytes:
        if "ws:" in source:
            return frame(value(n))
        if "sse" in source:
            return b"id: %d\ndata: %s\n\n" % (n, value(n))
        return value(n) + b"\r\n"

    def playing(*numbers: int) -> Callable[[Peer], None]:
        def script(peer: Peer) -> None:
            data = b"".join(map(event, numbers))
            if "ws:" in source:
                peer.accept()
                peer.send(data)
            else:
                peer.begin()
                peer.chunk(data)
            peer.until_closed()

        return script

    path = tmp_path / "posts.jsonl.zst"
    with LiveServer(playing(1, 2, 3), playing(4, 5)) as server:
        at = source.format(server.host)
        for n in (3, 2):
            done = recording(path, at, RecordLimits(messages_max=n), jetstream={"version": version})
            assert (done.messages, done.reason) == (n, "max messages")
    (rows,) = recorded(path).values()
    assert [(row[0], row[3]) for row in rows] == [(n - 1, value(n)) for n in range(1, 6)]


def test_what_a_server_says_is_shown_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets stay in the line of progress, and a terminal finds nothing in it to obey."""
    monkeypatch.setenv("COLUMNS", "400")
    stop = threading.Event()

    def refuse(peer: Peer) -> None:
        peer.answer("503 Busy", "busy [/status] \x1b]0;owned\x07")

    def refuse_at_last(peer: Peer) -> None:
        refuse(peer)
        stop.set()

    with LiveServer(refuse, refuse_at_last) as server:
        settings = Settings.model_validate({"source": f"lines+http://{server.host}/"})
        path = tmp_path / "a [old].jsonl.gz"
        record(settings, path, RecordLimits(), stop, show=True)
    shown = capsys.readouterr().err
    assert "busy [/status]" in shown
    assert "a [old].jsonl.gz" in shown
    assert "\x1b]" not in shown
