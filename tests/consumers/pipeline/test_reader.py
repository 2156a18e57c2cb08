"""The reader: it alone touches the source, and what it reads comes out in order or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.message import FieldLabels, MessageSettings
from consumers.config.model import ModelSettings
from consumers.decode.decoder import Decoder
from consumers.decode.labels import FieldLabeller
from consumers.decode.rows import RecordFormat
from consumers.decode.schemas import payloads_of
from consumers.errors import SourceError
from consumers.features import build_model
from consumers.messages import Messages, Partition, RawColumns, part_name
from consumers.monitoring.status import Health
from consumers.pipeline.group_parts import GroupParts
from consumers.pipeline.part_files import PartFiles
from consumers.pipeline.reader import PIECE_S, BatchQueue, Limits, Reader, SourceStatus
from tests.consumers.decoded_messages import decoder, raw
from tests.consumers.scripted_source import PositionOf, ScriptedSource, Step
from tests.schema_registry import RegistryServer, framed

FIRST, SECOND = Partition("t", 0), Partition("t", 1)
LONG_S = 60.0  # longer than anything here takes; a test that waits so long has failed
LINE = b'{"text":"good day","label":4}'


class Clock:
    """Time that stands still."""

    def __call__(self) -> float:
        """Return the time."""
        return 0.0


class Run:
    """A reader over a scripted source."""

    def __init__(self, *steps: Step, queue: BatchQueue | None = None, **message: Any) -> None:
        self.source = ScriptedSource(*steps)
        self.stop = threading.Event()
        self.health = Health(Clock(), 30.0)
        self.decoder = decoder_of(MessageSettings(**message)) if message else decoder()
        self.reader = Reader(self.source, self.decoder, self.health, self.stop, queue)

    def batches(self) -> Iterator[Messages]:
        """Yield what comes until the reader ends."""
        while self.reader.end_reason is None:
            batch = self.reader.take(LONG_S)
            if isinstance(batch, Messages):
                yield batch


def decoder_of(message: MessageSettings) -> Decoder:
    """Return a decoder of messages of a format."""
    labeller = FieldLabeller(FieldLabels(), ("negative", "positive"))
    return Decoder(message, labeller, payloads=payloads_of(message, RecordFormat()))


def lines(n: int, first: int = 0, partition: Partition = FIRST) -> RawColumns:
    """Return `n` messages of a partition, from an offset on."""
    return raw(partition, [LINE] * n, first)


def places(batches: Iterator[Messages]) -> list[tuple[int, int, int]]:
    """Return partition, number of messages and next offset of each batch."""
    return [(each.partition.partition, len(each.raw), each.next_offset) for each in batches]


class AsTopic(ScriptedSource):
    """A topic of which nothing is known until a step has said so."""

    n_partitions: int | None = None
    made: str | None = None

    @property
    def topic_id(self) -> str | None:
        """The topic's id, once it is known."""
        return self.made


@pytest.mark.parametrize("is_seen", [True, False])
def test_parts_are_looked_for_once_their_topic_is_known(tmp_path: Path, is_seen: bool) -> None:
    """Those of a topic that was deleted and made anew would be learned, and saved without an id."""
    theirs, ours = (build_model(ModelSettings()) for _ in range(2))
    theirs.learn_one({"text": "sun"}, "positive", part=part_name(FIRST))
    before = PartFiles(tmp_path, {}, theirs, 3)
    before.topic_id = "old"
    before.write(theirs.state, FIRST, 1)
    group = GroupParts(PartFiles(tmp_path, {}, ours, 3), FIRST.topic, 3600.0)

    def see(_: PositionOf) -> list[RawColumns]:
        source.n_partitions, source.made = 1, "new"
        return []

    source = AsTopic(see if is_seen else [])
    reader = Reader(source, decoder(), Health(Clock(), 30.0), threading.Event(), group=group)
    reader.start({}, Limits(until_end=True))
    group.start()
    while reader.end_reason is None:
        reader.take(LONG_S)
    group.close()
    reader.close()
    assert group.take_news(set(), {}) == {}
    assert ("the id old" in (group.status().trouble or "")) == is_seen


def test_the_group_is_told_of_a_topic_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the source is polled; and once more if the topic was made anew."""
    told: list[str | None] = []
    group = GroupParts(PartFiles(tmp_path, {}, build_model(ModelSettings()), 3), "t", 3600.0)
    monkeypatch.setattr(GroupParts, "know_topic", lambda _, topic_id: told.append(topic_id))

    def see(_: PositionOf) -> list[RawColumns]:
        source.n_partitions, source.made = 1, "new" if told == ["old"] else "old"
        return []

    source = AsTopic(*[see] * 5)
    reader = Reader(source, decoder(), Health(Clock(), 30.0), threading.Event(), group=group)
    reader.start({}, Limits(until_end=True))
    while reader.end_reason is None:
        reader.take(LONG_S)
    reader.close()
    assert told == ["old", "new", "old"]


def test_what_is_read_comes_in_order_up_to_the_end() -> None:
    """Every batch comes decoded and in order, and then the reason why no more will come."""
    run = Run([lines(3), lines(2, partition=SECOND)], [], [lines(1, 3)])
    run.reader.start({}, Limits(until_end=True))
    found = list(run.batches())
    assert places(iter(found)) == [(0, 3, 3), (1, 2, 2), (0, 1, 4)]
    assert [len(each) for each in found] == [3, 2, 1]
    assert run.reader.end_reason == "end of source"
    run.reader.close()


def test_one_thread_owns_the_source() -> None:
    """Every method of the source is called by one thread, and that is the reader's own."""
    run = Run([lines(3)], [lines(1, 3)])
    run.reader.start({}, Limits(until_end=True))
    for batch in run.batches():
        run.reader.report_positions({FIRST: batch.next_offset})
    run.reader.close()
    assert len(run.source.threads) == 1
    assert threading.get_ident() not in run.source.threads
    assert run.source.calls[0] == "open"
    assert run.source.calls[-2:] == ["report_positions", "close"]
    assert run.source.reported[-1] == {FIRST: 4}


def test_only_the_newest_positions_are_committed_at_the_end() -> None:
    """What is left to commit when the reader has ended is carried out once, before it closes."""
    run = Run()
    run.reader.start({}, Limits(until_end=True))
    assert list(run.batches()) == []
    for position in (5, 6, 7):
        run.reader.report_positions({FIRST: position})
    run.reader.close()
    assert run.source.reported == [{FIRST: 7}]
    assert run.source.calls == ["open", "report_positions", "close"]


def test_reading_goes_on_behind_what_was_handed_over() -> None:
    """A partition assigned again is read on behind what was handed over, learned or not yet."""
    asked: list[tuple[int | None, int | None]] = []

    def assign(position_of: PositionOf) -> Sequence[RawColumns]:
        asked.append((position_of(FIRST), position_of(SECOND)))
        return []

    run = Run(assign, [lines(3, 10)], assign, [lines(2, 13)], assign)
    run.reader.start({FIRST: 10, SECOND: 4}, Limits())
    assert run.source.idle.wait(LONG_S)  # nothing was taken yet
    assert asked == [(10, 4), (13, 4), (15, 4)]
    taken = [run.reader.take(LONG_S) for _ in range(2)]
    assert [each.next_offset for each in taken if isinstance(each, Messages)] == [13, 15]
    run.reader.close()


def test_an_error_of_the_source_comes_behind_what_was_read() -> None:
    """What ends the source ends the run, once all that was read before has been taken."""
    run = Run([lines(3)], [lines(2, 3)], SourceError("the disk is gone"))
    run.reader.start({}, Limits())
    taken = [run.reader.take(LONG_S) for _ in range(2)]
    assert [len(each.raw) for each in taken if isinstance(each, Messages)] == [3, 2]
    with pytest.raises(SourceError, match="the disk is gone"):
        run.reader.take(LONG_S)
    run.reader.close()
    assert run.source.calls[-1] == "close"


def test_a_fault_in_decoding_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading thread that dies of a fault hands it to the thread that ends the run."""
    run = Run([lines(3)])

    def fail(_raw: RawColumns) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(run.decoder, "decode", fail)
    run.reader.start({}, Limits())
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run.reader.take(LONG_S)
    run.reader.close()


def test_a_fault_in_closing_comes_out_of_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the source raises when it is let go is not swallowed."""
    run = Run()

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(run.source, "close", fail)
    run.reader.start({}, Limits(until_end=True))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run.reader.close()


@pytest.mark.parametrize(("n", "found"), [(1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])])
def test_a_number_of_messages_is_exact(n: int, found: list[int]) -> None:
    """What was read beyond the number is not handed over, and the position stands before it."""
    run = Run([lines(3), lines(3, partition=SECOND)], [lines(3, 3)])
    run.reader.start({}, Limits(messages_max=n))
    batches = places(run.batches())
    assert [each[1] for each in batches] == found
    assert batches[-1][2] == found[-1] + 3 * (len(found) == 3)
    assert run.reader.end_reason == "max messages"
    run.reader.close()


def test_a_stop_is_heeded_while_there_is_no_room() -> None:
    """A reader that waits for the learner ends when told to, however many batches it holds."""
    batches = [lines(1, partition=Partition("t", i)) for i in range(500)]
    run = Run(batches, queue=BatchQueue(batches_max=1))
    run.reader.start({}, Limits())
    assert run.reader.take(LONG_S) is not None
    until(lambda: run.reader.n_ahead == 1)  # the second is there, and the third waits
    run.stop.set()
    run.reader.close()
    assert run.source.calls == ["open", "poll", "close"]
    assert run.reader.take(LONG_S) is not None
    assert run.reader.end_reason == "told to stop"


def test_a_reader_that_waits_for_room_is_not_stuck() -> None:
    """While the learner is busy the reader goes on saying that it lives."""
    run = Run([lines(1, i) for i in range(5)], queue=BatchQueue(batches_max=1))
    beats = threading.Semaphore(0)
    run.health.beat_reader = beats.release  # type: ignore[method-assign]
    run.reader.start({}, Limits())
    for _ in range(5):
        assert beats.acquire(timeout=LONG_S)
    run.reader.close()


def test_what_the_source_says_is_seen() -> None:
    """Trouble and lost messages are as the source said last; read but not taken is unread still."""
    run = Run([lines(3)])
    run.source.lags, run.source.lost_messages = {FIRST: 10, SECOND: 5}, 2
    run.source.sentence = "nobody answers"
    assert run.reader.source_status() == SourceStatus()
    run.reader.start({}, Limits())
    assert run.source.idle.wait(LONG_S)
    seen = run.reader.source_status()
    assert (seen.trouble, seen.lost_messages) == ("nobody answers", 2)
    assert seen.lag == {FIRST: 13, SECOND: 5}
    assert run.health.report().reason == "nobody answers"
    run.reader.take(LONG_S)
    assert run.reader.source_status().lag == {FIRST: 10, SECOND: 5}
    run.reader.close()


def test_one_that_never_started_closes_its_source() -> None:
    """Where the run ended before it began, the source is let go all the same."""
    run = Run()
    run.reader.close()
    assert run.source.calls == ["close"]


def test_large_batches_are_cut_by_the_pace() -> None:
    """A backlog comes in pieces that the learner's pace allows for; a slow one gets less a time."""
    run = Run([lines(2_000)])
    run.reader.start({}, Limits(until_end=True))
    assert [each[1] for each in places(run.batches())] == [500, 500, 500, 500]
    run.reader.close()
    run = Run([lines(2_000)])
    for _ in range(10):
        run.reader.learned(1_000, PIECE_S)  # a thousand in the time that a piece may take
    run.reader.start({}, Limits(until_end=True))
    sizes = [each[1] for each in places(run.batches())]
    assert sum(sizes) == 2_000
    assert max(sizes) <= 1_000
    assert len(sizes) == 2  # the pace comes near a thousand, from below: no third for the rest
    run.reader.learned(0, 0.0)
    run.reader.close()


@given(st.integers(0, 40), st.integers(1, 50), st.integers(0, 5))
def test_pieces_make_up_the_whole(n: int, n_wanted: int, first: int) -> None:
    """Cut anywhere, the pieces hold every message once, in order, and each ends where one begins.

    Their sizes differ by one at most, and none is half as large again as wanted.
    """
    whole = lines(n, first)
    cut = list(whole.pieces(n_wanted))
    sizes = [len(piece) for piece in cut]
    assert sum(sizes) == n
    assert max(sizes) <= 1.5 * n_wanted + 1
    assert max(sizes) - min(sizes) <= 1
    for name in ("value_starts", "value_ends", "key_starts", "key_ends", "offsets", "times_ms"):
        joined = np.concatenate([getattr(piece, name) for piece in cut])
        assert np.array_equal(joined, getattr(whole, name))
    assert [piece.next_offset for piece in cut] == [first + int(i) for i in np.cumsum(sizes)]
    assert [piece.value(i) for piece in cut for i in range(len(piece))] == [LINE] * n


def test_a_registry_that_is_down_loses_nothing() -> None:
    """What needs a schema waits for the registry, in order, and the trouble is told meanwhile."""
    value = framed(1, b"\x10good day\x02\x10positive")
    schema = '{"type":"record","name":"R","fields":[{"name":"text","type":"string"},'
    schema += '{"name":"label","type":["null","string"]}]}'
    batches = [[raw(FIRST, [value] * 2, 0)], [raw(FIRST, [value], 2)]]
    with RegistryServer() as server:
        registry = {"url": server.url, "retry_pause_max_s": 0.05}
        run = Run(*batches, format="avro", registry=registry)
        server.status = 503
        run.reader.start({}, Limits(until_end=True))
        until(lambda: len(server.asked) > 2)
        assert "schema registry" in (run.health.trouble or "")
        assert run.reader.n_ahead == 0
        server.register(1, schema)
        server.status = None
        assert [len(each) for each in run.batches()] == [2, 1]
    assert run.health.trouble is None
    run.reader.close()


def test_a_stop_is_heeded_while_the_registry_is_down() -> None:
    """A run that is told to stop does not wait for a schema; what needs one was not read."""
    with RegistryServer() as server:
        server.status = 503
        registry = {"url": server.url, "retry_pause_max_s": 60.0}
        run = Run([raw(FIRST, [framed(1, b"\0")], 0)], format="avro", registry=registry)
        run.reader.start({}, Limits())
        until(lambda: bool(server.asked))
        run.stop.set()
        assert list(run.batches()) == []
    run.reader.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline_s = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.005)
