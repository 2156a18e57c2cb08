"""Parts of a stream: which messages of a recording, a file or a topic lie from here to there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from consumers.config.addresses import Bound, StreamRange
from consumers.config.settings import Settings
from consumers.decode.rows import RecordFormat
from consumers.errors import ConfigError, SourceError
from consumers.factories import build_source
from consumers.messages import Partition, RawColumns
from consumers.sources.base import LogFacts, RangedSource, Source
from consumers.sources.recording import RecordingHead, RecordingWriter
from consumers.sources.records import from_parts
from tests.broker.broker import Broker
from tests.consumers.cli.test_record import Row, produce
from tests.consumers.decoded_messages import raw
from tests.consumers.kafka.topics import CLIENTS, PATIENCE_S
from tests.consumers.scripted_source import ScriptedSource

HEAD = RecordingHead(stream={"source": "kafka", "topic": "t"}, format=RecordFormat())
SECOND = 1_700_000_000_000


def offsets(
    source: str,
    begin: str | None = None,
    end: str | None = None,
    positions: Mapping[Partition, int] | None = None,
    **settings: object,
) -> dict[int, list[int]]:
    """Return the offsets of a part of a source, by partition; the next offset lies behind each."""
    bounds = [None if text is None else Bound.parse(text) for text in (begin, end)]
    given = Settings.model_validate({"source": source, **settings})
    built = build_source(given, until_end=True, part=StreamRange(*bounds))
    built.open((positions or {}).get)
    found: dict[int, list[int]] = {}
    try:
        for _ in range(round(PATIENCE_S * 10)):
            batches = built.poll(0.1)
            if not batches and built.at_end():
                return found
            for raw in batches:
                found.setdefault(raw.partition.partition, []).extend(raw.offsets.tolist())
                assert raw.next_offset > raw.offsets[-1]
    finally:
        built.close()
    pytest.fail(f"no end of {found}")


@pytest.fixture
def recording(tmp_path: Path) -> str:
    """Return a recording of two partitions: a message a second, the second partition's later."""
    writer = RecordingWriter(tmp_path / "r.gz", HEAD)
    for number in range(2):
        times_ms = [SECOND + 1_000 * (i + 5 * number) for i in range(10)]
        values = [b'{"text":"a"}'] * 10
        writer.add(
            from_parts(Partition("t", number), [None] * 10, values, range(10), times_ms, 10, None)
        )
    writer.flush()
    writer.close()
    return f"recording:{tmp_path / 'r.gz'}"


def test_a_part_of_a_recording_by_time_and_by_offset(recording: str) -> None:
    """The first message at the beginning or behind it, up to the first at the end or behind it."""
    assert offsets(recording, "2023-11-14T22:13:23", "1700000007000") == {
        0: [3, 4, 5, 6],
        1: [0, 1],
    }
    assert offsets(recording, "2023-11-14T23:13:28.500+01:00") == {0: [9], 1: [4, 5, 6, 7, 8, 9]}
    assert offsets(recording, "offset:4", "offset:6") == {0: [4, 5], 1: [4, 5]}
    assert offsets(recording, None, "offset:1") == {0: [0], 1: [0]}
    assert offsets(recording, "2030-01-01") == {}


def times_of(batch: RawColumns) -> NDArray[np.int64]:
    """Return a batch's own times."""
    return batch.times_ms


def test_a_part_passes_on_all_that_a_source_has() -> None:
    """What the base class answered for it was lost: that the topic is another, how wide it is."""
    whole = ScriptedSource()
    whole.gaps, whole.n_partitions = 3, 4
    part = RangedSource(whole, StreamRange(Bound("offset", 1)), times_of, begins=False)
    public = {name for name in dir(Source) if not name.startswith("_")}
    assert public - vars(RangedSource).keys() == {"record_format"}  # `name` is an annotation alone
    assert {"name", "record_format"} <= vars(part).keys()
    assert (part.gaps, part.n_partitions) == (3, 4)
    part.begins_of = lambda _topic_id, _ends: {Partition("t", 0): 7}
    assert whole.begins_of("one", {}) == {Partition("t", 0): 7}


def test_a_part_of_another_topic_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of a part asks, too, whether what was read is of one topic."""
    whole = ScriptedSource()

    def confirm() -> None:
        raise SourceError("the topic was made anew")

    monkeypatch.setattr(whole, "confirm", confirm)
    part = RangedSource(whole, StreamRange(Bound("offset", 1)), times_of, begins=False)
    with pytest.raises(SourceError, match="made anew"):
        part.confirm()


def test_a_partition_is_read_again_from_where_its_range_begins() -> None:
    """What was done of it is not done any more, and what lies before the range is left out."""
    log = Partition("t", 0)
    batches = [raw(log, [b"{}"] * 6)]
    whole = ScriptedSource(batches, batches)
    bounds = StreamRange(Bound("offset", 2), Bound("offset", 4))
    part = RangedSource(whole, bounds, times_of, begins=False)
    part.open(lambda _: None)
    assert [each.offsets.tolist() for each in part.poll(0.0)] == [[2, 3]]
    part.rewind(log)
    assert [each.offsets.tolist() for each in part.poll(0.0)] == [[2, 3]]


def test_a_checkpoints_positions_win(recording: str) -> None:
    """Started again with the same range a run goes on where it was; a gap is an error."""
    behind = {Partition("t", 0): 5, Partition("t", 1): 1}
    assert offsets(recording, "1700000003000", "1700000007000", behind) == {0: [5, 6], 1: [1]}
    ended = {Partition("t", 0): 7, Partition("t", 1): 2}
    assert offsets(recording, "1700000003000", "1700000007000", ended) == {}
    for begin in ("1700000008000", "offset:6"):
        with pytest.raises(SourceError, match=r"lies behind offset 5.*Leave --from out"):
            offsets(recording, begin, None, behind)


@given(
    times=st.lists(st.integers(0, 20), min_size=1, max_size=20),
    begin=st.none() | st.integers(0, 21),
    length=st.none() | st.integers(1, 10),
)
def test_any_part_is_what_lies_between_its_first_messages(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[int],
    begin: int | None,
    length: int | None,
) -> None:
    """By time, whatever the order of the times, it is as Kafka's own search by time has it."""
    path = tmp_path_factory.mktemp("r") / "r.gz"
    writer = RecordingWriter(path, HEAD)
    n = len(times)
    writer.add(from_parts(Partition("t", 0), [None] * n, [b"{}"] * n, range(n), times, n, None))
    writer.flush()
    writer.close()
    end = None if length is None else (begin or 0) + length

    def first(at: int | None, default: int) -> int:
        return next((i for i, time in enumerate(times) if at is not None and time >= at), default)

    start = 0 if begin is None else first(begin, n)
    stop = next((i for i in range(start, n) if end is not None and times[i] >= end), n)
    texts = [None if each is None else str(each) for each in (begin, end)]
    expected = {0: list(range(start, stop))} if start < stop else {}
    assert offsets(f"recording:{path}", texts[0], texts[1]) == expected


@given(
    times=st.lists(st.integers(-1, 9), min_size=1, max_size=12),
    begin=st.integers(0, 9),
    n=st.integers(1, 12),
    earlier=st.integers(0, 3),
)
def test_a_part_goes_on_where_it_was_whatever_comes_next(
    times: list[int], begin: int, n: int, earlier: int
) -> None:
    """Two runs with the same beginning, or an earlier one, read what one reads, in any order."""
    log = Partition("t", 0)

    def part(since: int) -> RangedSource:
        whole = ScriptedSource([from_parts(log, [None] * end, [b"{}"] * end, range(end), times,
                                           end, None).tail(at)])  # fmt: skip
        return RangedSource(whole, StreamRange(Bound("time", since)), times_of, begins=False)

    def read(source: RangedSource) -> list[int]:
        return [at for batch in source.poll(0.0) for at in batch.offsets.tolist()]

    end, at = len(times), 0
    alone = part(begin)
    alone.open(lambda _: None)
    expected = read(alone)
    first = part(begin)
    first.open(lambda _: None)
    learned = read(first)[:n]
    if not learned:
        return
    at = learned[-1] + 1
    facts = first.logs({log: at})
    if at < end:
        second = part(max(begin - earlier, 0))
        second.resume(facts)
        second.open(lambda _: at)
        learned += read(second)
        assert second.logs({log: end}) == facts
    assert learned == expected


def test_a_log_whose_beginning_alone_is_known_is_no_gap() -> None:
    """`record` notes where a partition begins at once: nothing was read that could be left out."""
    log, begun = Partition("t", 0), 40
    old, new = (
        from_parts(log, [None] * 2, [b"{}"] * 2, range(at, at + 2), [time] * 2, at + 2, None)
        for at, time in ((begun, 1), (begun + 2, 9))
    )
    whole = ScriptedSource([old], [new])
    whole.beginnings = {log: LogFacts(begun)}
    part = RangedSource(whole, StreamRange(Bound("time", 5)), times_of, begins=False)
    part.open(lambda _: begun)
    assert part.poll(0.0) == []
    assert [each.offsets.tolist() for each in part.poll(0.0)] == [[42, 43]]


def test_a_part_keeps_what_was_known_of_a_log_that_it_has_not_come_to() -> None:
    """A recording's source knows a topic's id once it has read so far."""
    log = Partition("t", 0)
    known = LogFacts(40, "an id", since_ms=5)
    part = RangedSource(ScriptedSource(), StreamRange(Bound("time", 5)), times_of, begins=False)
    part.resume({log: known})
    assert part.logs({log: 50}) == {log: known}


def test_a_file_says_its_times_itself(tmp_path: Path) -> None:
    """The times of a file stand in its messages; one without is of the time before it."""
    path = tmp_path / "some.jsonl"
    lines = [
        b'{"id":1,"created_at":"2026-11-02T10:00:00Z","text":"a"}\n',
        b'{"id":2,"created_at":"2026-11-02T11:00:00Z","text":"b"}\n',
        b"not JSON\n",
        b'{"id":4,"created_at":"2026-11-02T12:00:00Z","text":"d"}\n',
    ]
    path.write_bytes(b"".join(lines))
    starts = [sum(map(len, lines[:i])) for i in range(4)]
    source = f"file:{path}"
    assert offsets(source, "2026-11-02T10:30", "2026-11-02T12:00") == {0: starts[1:3]}
    assert offsets(source, f"offset:{starts[2]}") == {0: starts[2:]}


@pytest.mark.parametrize(
    ("first", "settings"),
    [
        ({"text": "a", "label": "neither"}, {}),
        ({"label": "positive"}, {}),
        ({"text": "a", "lang": "de"}, {"message": {"keep": {"lang": ["en"]}}}),
    ],
    ids=["unknown label", "no text", "ignored"],
)
def test_what_is_no_example_has_its_time(
    tmp_path: Path, first: dict[str, str], settings: dict[str, Any]
) -> None:
    """A part begins and ends at a message that is rejected or ignored, which is counted then."""
    path = tmp_path / "some.jsonl"
    times = [f"2026-11-02T1{hour}:00:00Z" for hour in range(4)]
    of = [{"text": "a", "lang": "en"}, first, {"text": "b", "lang": "en"}, first]
    lines = [
        json.dumps(each | {"created_at": time}) + "\n" for each, time in zip(of, times, strict=True)
    ]
    path.write_text("".join(lines))
    starts = [sum(map(len, lines[:i])) for i in range(4)]
    found = offsets(f"file:{path}", times[1], times[3], **settings)
    assert found == {0: starts[1:3]}


@pytest.mark.parametrize("source", ["generator", "stdin"])
def test_what_has_no_past_has_no_parts(source: str) -> None:
    """A stream that cannot be read again has no range, and the error names what has."""
    with pytest.raises(ConfigError, match="for a topic, a file or a recording"):
        offsets(source, "offset:5")


@pytest.mark.parametrize(
    "text", ["", "yesterday", "offset:", "offset:-1", "-5", "1e3", "2026-13-01", "9" * 19, "0x10"]
)
def test_other_bounds_are_refused(text: str) -> None:
    """The error says which forms there are."""
    with pytest.raises(ValueError, match="must be Unix milliseconds, an ISO time"):
        Bound.parse(text)


def test_a_source_has_no_times_before_1970() -> None:
    """Kafka takes such a number for its newest or oldest record; what is held may be so old."""
    for text, at in (("1965-01-01", -157_766_400_000), ("-1", -1)):
        assert Bound.parse(text, -(10**12)) == Bound("time", at)
        with pytest.raises(ValueError, match="must be Unix milliseconds, an ISO time"):
            Bound.parse(text)
    with pytest.raises(ValueError, match="must be Unix milliseconds, an ISO time"):
        Bound.parse("offset:-1", -(10**12))


@pytest.mark.parametrize("text", ["1793836800", "20261102"])
def test_what_would_be_a_day_of_1970_by_a_slip_is_refused(text: str) -> None:
    """Seconds and dates without hyphens would begin at the stream's beginning, without a word."""
    with pytest.raises(ValueError, match=rf"'{text}' would be 1970-01-"):
        Bound.parse(text)


def test_an_empty_range_is_refused() -> None:
    """An end that does not lie behind the beginning is a mistake."""
    with pytest.raises(ValueError, match="must lie behind --from offset:5"):
        StreamRange(Bound("offset", 5), Bound("offset", 5))


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_a_part_of_a_topic(broker: Broker, new_topic: Callable[..., str], client: str) -> None:
    """Both clients seek the beginning, end with the range, and refuse a gap behind a position."""
    topic = new_topic(2)
    rows: dict[int, list[Row]] = {
        number: [(i, SECOND + 1_000 * (i + 5 * number), None, b"{}", []) for i in range(10)]
        for number in range(2)
    }
    produce(broker.address, topic, rows)
    source = f"kafka://{broker.address}/{topic}"

    def part(
        begin: str | None, end: str | None = None, positions: Mapping[Partition, int] | None = None
    ) -> dict[int, list[int]]:
        kafka = {"client": client, "group_id": f"{topic}-{client}", "session_timeout_s": 6}
        return offsets(source, begin, end, positions, kafka=kafka)

    assert part("1700000003000", "1700000007000") == {0: [3, 4, 5, 6], 1: [0, 1]}
    assert part("offset:8") == {0: [8, 9], 1: [8, 9]}
    behind = {Partition(topic, 0): 5, Partition(topic, 1): 1}
    assert part("1700000003000", "1700000007000", behind) == {0: [5, 6], 1: [1]}
    with pytest.raises(SourceError, match=r"lies behind offset [15].*Leave --from out"):
        part("1700000008000", None, behind)
