"""Cut the power at every write of a state folder, of part files, of a sink and of a recording."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from structlog.testing import capture_logs

from consumers.config.addresses import FileSettings
from consumers.config.sections import CheckpointSettings
from consumers.corrections.journal import Journal
from consumers.corrections.model import NotWritten
from consumers.decode.rows import RecordFormat
from consumers.errors import CheckpointError, SinkError
from consumers.pipeline import learned_memory
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.part_files import PartFiles
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sinks.records import Record
from consumers.sources.recording import SUFFIXES, RecordingHead, RecordingSource, RecordingWriter
from consumers.sources.records import from_parts
from tests.campaigns.campaign import Run
from tests.consumers.pipeline.erasure_folder import LOG, Folder
from tests.consumers.pipeline.revised_log import Run as Learning
from tests.consumers.pipeline.revised_log import Said, expected
from tests.consumers.search.stores import running, tell
from tests.library.storage.saving_process import model_of
from tests.power_cut import PowerCut, put_back
from tests.sqlite_calls import SqliteCalls

T = TypeVar("T")
NAME = "corrections.jsonl"
STORE_SHARE, MEMORY_SHARE = 0.03, 0.2
Scenario = Callable[[random.Random, Path, tuple[str, ...]], int]


def power_loss(run: Run) -> None:
    """Whatever a power cut drops of what was not synced, all that was acknowledged is there."""
    for chance, folder in run.steps():
        for scenario in SCENARIOS:
            below = folder / scenario.__name__
            below.mkdir()
            run.figures[f"disks after a cut in a {scenario.__name__}"] += scenario(
                chance, below, ()
            )


def checkpoint(chance: random.Random, folder: Path, lies: tuple[str, ...]) -> int:
    """Save several times; after a cut the last acknowledged state loads, or the next."""
    keep = chance.randint(1, 3)
    cut = PowerCut(_made(folder / "before"), lies)
    with cut.watched(), _life(folder / "before" / "state", keep) as before:
        for n in range(1, chance.randint(3, 5)):
            before.write(model_of(n), {LOG: n})
            cut.acknowledge(n)
    n_states = 0
    for promised, left in cut.states(chance):
        n_states += 1
        after = put_back(folder / "after", left)
        last = max(promised, default=0)
        with capture_logs() as said, _life(after / "state", keep) as there:
            model, positions = there.restore(model_of(0))
            assert model.n_examples in {last, last + 1}, (promised, sorted(left))
            assert positions == ({LOG: model.n_examples} if model.n_examples else {})
            there.write(model_of(last + 2), {LOG: last + 2})
            assert there.restore(model_of(0))[0].n_examples == last + 2
        assert "checkpoint_damaged" not in {line["event"] for line in said}
    return n_states


def journal(chance: random.Random, folder: Path, lies: tuple[str, ...]) -> int:
    """Append lines; after a cut each acknowledged line stands where its receipt says."""
    cut = PowerCut(_made(folder / "before"), lies, failing=chance.choice((0, 2, 3, 4)))
    with capture_logs(), cut.watched():
        for _ in range(2):  # lives
            state = folder / "before" / "state"
            with (
                suppress(CheckpointError),  # its sync fails
                _life(state, 1),
                closing(Journal(state / NAME)) as before,
            ):
                for _ in range(chance.randint(1, 3)):
                    line = chance.choice(b"abc").to_bytes(1, "big") * chance.choice((5, 700, 3000))
                    with suppress(NotWritten):
                        cut.acknowledge((before.append(b"", line).offset, line))
    n_states = 0
    for promised, left in cut.states(chance):
        n_states += 1
        state = put_back(folder / "after", left) / "state"
        with capture_logs(), _life(state, 1), closing(Journal(state / NAME)) as there:
            for offset, line in promised:
                assert there.read(offset, len(line) + 1) == line + b"\n", (offset, line)
            at = there.append(b"", b"more").offset
            assert there.read(at, 100) == b"more\n"
    return n_states


def memory(chance: random.Random, folder: Path, lies: tuple[str, ...]) -> int:
    """Learn and take back; after a cut what an acknowledged checkpoint names can be taken back."""
    log = [_said(chance) for _ in range(24)]
    before, n_states = _made(folder / "before"), 0
    cut = PowerCut(before, lies, failing=chance.randint(0, 8))
    with patch.object(learned_memory, "SEGMENT_RECORDS", 4):
        with cut.watched(), closing_memory(before / "state") as run:
            while run.position < len(log) - 8:
                run.read(log, run.position + chance.randint(1, 4))
                for _ in range(chance.choice((0, 2))):
                    with suppress(CheckpointError):  # its sync fails, and is tried again
                        run.save()
                        cut.acknowledge(run.position)
        for promised, left in _some(chance, cut.states(chance), MEMORY_SHARE):
            n_states += 1
            state = put_back(folder / "after", left) / "state"
            with capture_logs() as said, closing_memory(state) as there:
                assert there.position >= max(promised, default=0)
                there.read(log, len(log))
                assert there.counts == expected(log)[0]
            assert {line["event"] for line in said} <= {"restored"}
    return n_states


def _said(chance: random.Random) -> Said:
    """Return an entry of a log; two thirds are examples, the others take one back."""
    operation = chance.choice(("create",) * 4 + ("update", "delete"))
    return Said(operation, chance.choice("abcdef"), chance.choice(("sun", "rain")), "positive")


@contextmanager
def closing_memory(folder: Path) -> Iterator[Learning]:
    """Learn from a log over a state folder."""
    run = Learning(folder)
    try:
        yield run
    finally:
        run.memory.close()


def part_file(chance: random.Random, folder: Path, lies: tuple[str, ...]) -> int:
    """Write part files; after a cut the furthest that was acknowledged is there, or one beyond."""
    keep = chance.randint(1, 3)
    before = _made(folder / "before")
    cut = PowerCut(before, lies)
    with cut.watched():
        for n in range(1, chance.randint(3, 5)):
            files = PartFiles(before / "parts", {}, model_of(0), keep)  # each another member's
            files.write(model_of(n).state, LOG, n)
            cut.acknowledge(n)
    n_states = 0
    for promised, left in cut.states(chance):
        n_states += 1
        after = PartFiles(put_back(folder / "after", left) / "parts", {}, model_of(0), keep)
        with capture_logs() as said:
            found = after.load(LOG)
        last = max(promised, default=0)
        assert said == []
        assert (0 if found is None else found.position) in {last, last + 1}
        assert found is None or found.model.n_examples == found.position
    return n_states


def erasure(chance: random.Random, folder: Path, lies: tuple[str, ...]) -> int:
    """Erase a message; after a cut a noted deletion is erased, and no other line has changed."""
    before = Folder(_made(folder / "before"))
    path = before.path / NAME
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    before.recent.done.set()
    cut = PowerCut(before.path, lies)
    with capture_logs(), cut.watched(), before.opened() as erasing:
        erasing.add([("m1", LOG, 1)], from_stream=True)
        erasing.flush(1.0)
        cut.acknowledge("noted")
        before.erase(erasing)
    n_states = 0
    for promised, left in cut.states(chance):
        n_states += 1
        there = Folder(_made(folder / "after"))
        put_back(there.path, left)
        there.recent.done.set()
        with capture_logs(), there.opened() as erasing:
            there.erase(erasing)
        assert not promised or not there.holders(), sorted(left)
        for name, lines in there.lines.items():
            found = (there.path / name).read_bytes().split(b"\n")
            assert list(map(len, found[:2])) == list(map(len, lines[:2]))
            assert found[0] == lines[0]
    return n_states


def sink(chance: random.Random, folder: Path, lies: tuple[str, ...]) -> int:
    """Write records; after a cut all that was flushed is there, and no line is torn."""
    cut = PowerCut(_made(folder / "before"), lies, failing=chance.randint(0, 3))
    written: list[bytes] = []
    with cut.watched(), closing(JsonLinesSink(folder / "before" / "out" / "told.jsonl")) as before:
        for _ in range(chance.randint(1, 4)):
            lines = [
                b'{"id":"%s","time_ms":1,"label":"a"}' % (b"x" * chance.choice((5, 600)))
                for _ in range(chance.randint(1, 3))
            ]
            before.add([Record(b"", line) for line in lines])
            written += lines
            with suppress(SinkError):
                before.flush(1.0)
                cut.acknowledge(len(written))
    n_states = 0
    for promised, left in cut.states(chance):
        n_states += 1
        path = put_back(folder / "after", left) / "out" / "told.jsonl"
        with capture_logs(), closing(JsonLinesSink(path)) as there:
            there.add([Record(b"", b'"more"')])
        found = path.read_bytes().splitlines()
        n_safe = max(promised, default=0)
        assert found[:n_safe] == written[:n_safe]
        assert found[-1] == b'"more"'
    return n_states


def recorder(chance: random.Random, folder: Path, lies: tuple[str, ...]) -> int:
    """Record; after a cut what was flushed is there, and the recorder goes on behind it."""
    name = f"told{chance.choice(SUFFIXES)}"
    head = RecordingHead(stream={"source": "kafka", "topic": "t"}, format=RecordFormat())

    def record(path: Path, lengths: Iterable[int]) -> Iterator[int]:
        with closing(RecordingWriter(path, head)) as writer:
            for n in lengths:
                begin = writer.positions.get(LOG, 0)
                offsets = range(begin, begin + n)
                values = [b'"%d"' % offset for offset in offsets]
                writer.add(from_parts(LOG, [None] * n, values, offsets, [-1] * n, begin + n))
                writer.flush()
                yield begin + n

    cut = PowerCut(_made(folder / "before"), lies, failing=chance.choice((0, 2, 3, 4)))
    with capture_logs(), cut.watched():
        for _ in range(2):  # lives
            with suppress(SinkError):  # its sync fails
                lengths = [chance.choice((3, 400)) for _ in range(chance.randint(1, 2))]
                for position in record(folder / "before" / "out" / name, lengths):
                    cut.acknowledge(position)
    n_states = 0
    for promised, left in cut.states(chance):
        n_states += 1
        path = put_back(folder / "after", left) / "out" / name
        with capture_logs():
            (behind,) = record(path, [5])
        assert behind - 5 >= max(promised, default=0)
        with closing(RecordingSource(path, FileSettings(), wait=lambda _: None)) as source:
            source.open(lambda _: None)
            found = []
            while not source.at_end():
                found += [raw.value(i) for raw in source.poll(0.0) for i in range(len(raw))]
        assert found == [b'"%d"' % i for i in range(behind)]
    return n_states


def recent_store(chance: random.Random, folder: Path, lies: tuple[str, ...]) -> int:
    """Store, correct and remove messages; after a cut all that was told as done is so."""
    before = _made(folder / "before")
    cut = PowerCut(before, lies)
    calls = SqliteCalls(before, cut)
    with capture_logs(), cut.watched(), calls.watched(), running(before / "recent.db") as store:
        for n in range(chance.randint(1, 2)):
            tell(store, ["good day", "bad day"], first=2 * n)
            cut.acknowledge(("stored", f"m{2 * n}"))
            cut.acknowledge(("stored", f"m{2 * n + 1}"))
        store.correct("m0", "positive", "t/0", (LOG, 0))
        cut.acknowledge(("corrected", "m0"))
        store.remove("m1", (LOG, 1))
        cut.acknowledge(("removed", "m1"))
    n_states = 0
    for promised, left in _some(chance, cut.states(chance), STORE_SHARE):
        n_states += 1
        path = put_back(folder / "after", left) / "recent.db"
        with capture_logs() as said, running(path) as there:
            for what, name in promised:
                row = there.get(name)
                if ("removed", name) in promised:
                    assert row is None
                elif what == "stored" and ("removed", "m1") not in promised and name == "m1":
                    continue  # it may be removed by now
                else:
                    assert row is not None, (what, name, sorted(left))
                    assert what != "corrected" or row.taught == "positive"
        assert "recent_store_moved_aside" not in {line["event"] for line in said}
    return n_states


def _some(chance: random.Random, states: Iterator[T], share: float) -> Iterator[T]:
    """Yield a share of many states, for what reads them is opened slowly."""
    return (state for state in states if chance.random() < share)


@contextmanager
def _life(folder: Path, keep: int) -> Iterator[Checkpoint]:
    """Use a state folder as the daemon does, which makes it."""
    there = Checkpoint(CheckpointSettings(folder=folder, keep=keep), {})
    with there.locked():
        yield there


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


SCENARIOS: tuple[Scenario, ...] = (
    checkpoint,
    memory,
    part_file,
    journal,
    erasure,
    sink,
    recorder,
    recent_store,
)
