"""The JSON lines sink and the records in it: no line is torn, none is lost."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from consumers.errors import SinkError
from consumers.messages import CheckpointEntry, Envelope, Operation, Partition, Reason, Reject
from consumers.private_files import overwrite_lines, write_at
from consumers.sinks import jsonl
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sinks.records import NoSink, Record, Sink, prediction_record, reject_record

LONG_S = 60.0
ENVELOPE = Envelope(
    id="7", time_ms=5, user=None, lang="en", text="héllo", label=None,
    operation=Operation.CREATE, fields={},
)  # fmt: skip


def records(*values: bytes) -> list[Record]:
    """Return records with the given values."""
    return [Record(key=b"k", value=value) for value in values]


def test_a_prediction_without_text_has_its_fields() -> None:
    """Kept fields go out as they came; a text that no model reads does not."""
    fields = {"income": "high", "age": 41, "stable_job": True}
    envelope = msgspec.structs.replace(ENVELOPE, text="", has_text=False, fields=fields)
    record = prediction_record(envelope, ("a", "b"), [-0.5, -1.0], 1)
    found = json.loads(record.value)
    assert found["fields"] == fields
    assert "text" not in found
    plain = prediction_record(ENVELOPE, ("a", "b"), [-0.5, -1.0], 1)
    assert "fields" not in json.loads(plain.value)


def test_records_are_safe_after_a_flush(tmp_path: Path) -> None:
    """What was flushed is in the file, one value a line, and a second run adds to it."""
    path = tmp_path / "new" / "out.jsonl"
    for run in (b"1", b"2"):
        sink: Sink = JsonLinesSink(path)
        sink.add(records(b'{"a":%s}' % run, b"{}"))
        sink.flush(1.0)
        assert path.read_bytes().endswith(b'{"a":%s}\n{}\n' % run)
        sink.close()
    assert path.read_bytes() == b'{"a":1}\n{}\n{"a":2}\n{}\n'


def test_closing_flushes(tmp_path: Path) -> None:
    """What was added and not flushed is written when the sink closes."""
    sink = JsonLinesSink(tmp_path / "out")
    sink.add(records(b"{}"))
    sink.close()
    assert (tmp_path / "out").read_bytes() == b"{}\n"


def test_much_is_written_before_the_flush(tmp_path: Path) -> None:
    """Memory is bounded: a megabyte is written when it has gathered."""
    sink = JsonLinesSink(tmp_path / "out")
    sink.add(records(*[b"x" * 99] * 11_000))
    assert (tmp_path / "out").stat().st_size == 1_100_000
    sink.close()


def lines_of(ids: Sequence[str]) -> list[Record]:
    """Return predictions of messages."""
    return [
        prediction_record(msgspec.structs.replace(ENVELOPE, id=name), "ab", [-0.5, -1.0], 1)
        for name in ids
    ]


def placed(places: Sequence[tuple[int, int]], name: bytes = b"i") -> list[Record]:
    """Return predictions of messages at some partitions and offsets, which all have one id."""
    return [
        Record(
            name, b'{"id":"%s","topic":"t","partition":%d,"offset":%d}' % (name, number, at), None,
            (Partition("t", number), at),
        )
        for number, at in places
    ]  # fmt: skip


OURS = lines_of("a")[0].value + b"\n"
REJECTED = reject_record(Reject(Reason.NOT_JSON, "odd", Partition("t", 3), 7, 5, None, b"{")).value


@pytest.mark.parametrize(
    ("found", "mended"),
    [
        (b"", b""),
        (b'{"a":1}\n', b'{"a":1}\n'),
        (OURS + b"{", OURS),
        (OURS + b'{"id":"\\', OURS),
        (OURS + OURS[:25], OURS),
        (OURS + OURS[:-2], OURS),
        (OURS + REJECTED[:-1], OURS),
        (b'{"id', b""),
        (OURS + OURS[:10] + b"\0\0", OURS),
        (OURS + b"\0\0" + OURS[2:-1], OURS),
        (b"\0" * 9, b""),
        (b'{"a":1}\n{"b":2}', b'{"a":1}\n{"b":2}\n'),
    ],
)
def test_a_torn_line_is_mended(tmp_path: Path, found: bytes, mended: bytes) -> None:
    """A torn last line goes before anything is added; a whole one gets its line end."""
    path = tmp_path / "out"
    path.write_bytes(found)
    sink = JsonLinesSink(path)
    sink.add(records(b"{}"))
    sink.close()
    assert path.read_bytes() == mended + b"{}\n"


@pytest.mark.parametrize(
    "found",
    [
        b"first line\nmy only copy of the second line",
        b'{"id":"0","text":"a"}\n{"id":"1","text":"b',
        b'{"id":"0","text":"a"}\n{"id":"1',
        b'{"id":"1","text":"b',
        b"var a=0;var b=1;",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"\0\0\x10",
        OURS + b"\xff\xfe",
        OURS + b"and what somebody noted",
    ],
)
def test_what_somebody_else_wrote_is_kept(tmp_path: Path, found: bytes) -> None:
    """Only a torn line of ours is cut off; behind any other, records begin on a line of their own.

    A path that was mistyped must not cost anybody their last line.
    """
    path = tmp_path / "out"
    path.write_bytes(found)
    path.chmod(0o600)
    with capture_logs() as logs, closing(JsonLinesSink(path)) as sink:
        sink.add(records(b"{}"))
    assert path.read_bytes() == found + b"\n{}\n"
    assert [(each["event"], each["path"]) for each in logs] == [("output_is_of_others", str(path))]


@given(st.integers(0, 400_000), st.integers(1, 400_000))
def test_long_lines_are_mended_too(
    tmp_path_factory: pytest.TempPathFactory, whole: int, torn: int
) -> None:
    """However long the torn line and the one before it, only the torn one goes."""
    path = tmp_path_factory.mktemp("sink") / "out"
    ours = lines_of(["1" * whole])[0].value + b"\n"
    path.write_bytes(ours + b'{"id":"' + b"1" * torn)
    JsonLinesSink(path).close()
    assert path.read_bytes() == ours


def test_a_full_disk_is_an_error_and_loses_nothing() -> None:
    """A disk without room refuses the flush with the file's name and what to do about it."""
    sink = JsonLinesSink(Path("/dev/full"))
    sink.add(records(b"{}"))
    for _ in range(2):
        with pytest.raises(SinkError, match=r"/dev/full: .*No space.* 3 bytes wait.*make room"):
            sink.flush(1.0)
    sink.close()


def test_a_disk_that_gets_room_again_gets_the_rest(tmp_path: Path) -> None:
    """A line of which a part was written is completed by the next flush."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    sink = JsonLinesSink(tmp_path / "out")
    os.dup2(write, sink._fd)  # a pipe takes 64 KiB and refuses the rest, as a full disk does
    sink.add(records(b"a" * 100_000))
    with pytest.raises(SinkError):
        sink.flush(1.0)
    got = os.read(read, 1 << 20)
    assert 0 < len(got) < 100_000
    sink.flush(1.0)
    assert got + os.read(read, 1 << 20) == b"a" * 100_000 + b"\n"
    sink.close()
    os.close(read)
    os.close(write)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A folder in the file's place is refused at once, by name."""
    with pytest.raises(SinkError, match=r"cannot be opened.*predictions\.to"):
        JsonLinesSink(tmp_path)


def test_no_sink_takes_everything() -> None:
    """The sink that keeps nothing never complains."""
    sink: Sink = NoSink()
    sink.add(records(b"{}"))
    sink.flush(0.0)
    sink.close()


def test_a_prediction_says_all_there_is() -> None:
    """A prediction has id, time, text, label, probabilities, log-posteriors and its snapshot."""
    logs = np.log(np.array([0.25, 0.75]))
    record = prediction_record(ENVELOPE, ("negative", "positive"), logs.tolist(), 12)
    value = json.loads(record.value)
    assert record.key == b"7"
    assert value.pop("probabilities") == pytest.approx({"negative": 0.25, "positive": 0.75})
    assert value == {
        "id": "7", "time_ms": 5, "text": "héllo", "label": "positive", "snapshot_version": 12,
        "log_posteriors": {"negative": logs[0], "positive": logs[1]},
    }  # fmt: skip


def test_an_impossible_class_has_probability_zero() -> None:
    """A log-posterior of minus infinity is probability 0 and null, so the line stays JSON."""
    record = prediction_record(ENVELOPE, ("a", "b"), [0.0, -math.inf], 1, with_text=False)
    value = json.loads(record.value)
    assert value["probabilities"] == {"a": 1.0, "b": 0.0}
    assert value["log_posteriors"] == {"a": 0.0, "b": None}
    assert "text" not in value


def failing_sync(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what lets the next sync fail, as once on a disk that is ill."""
    real, left = os.fsync, list[int]()

    def sync(fd: int) -> None:
        if left:
            raise OSError(left.pop(), "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", sync)
    return lambda: left.append(errno.EIO)


def erase(sink: JsonLinesSink, name: str) -> None:
    """Overwrite the lines of a name with blanks and another line, as the erasing thread does."""
    fd = os.open(sink.path, os.O_RDWR)
    overwrite_lines(
        fd, os.fstat(fd).st_size, lambda line, _: b"{}" if name.encode() in line else None,
        overwrites=sink.overwrites,
    )  # fmt: skip
    os.close(fd)


def test_a_text_erased_behind_a_failed_sync_is_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands there is other than what was written, and is what is to stand there."""
    fails = failing_sync(monkeypatch)
    with closing(JsonLinesSink(tmp_path / "out")) as sink:
        sink.add(lines_of(["kept", "secret"]))
        fails()
        with pytest.raises(SinkError, match="could not be made safe"):
            sink.flush(LONG_S)
        erase(sink, "secret")
        sink.flush(LONG_S)
        lines = sink.path.read_bytes().splitlines()
        assert [line.strip() for line in lines] == [lines_of(["kept"])[0].value, b"{}"]
        sink.add(lines_of(["late"]))  # what the disk loses from here on is known again
        fails()
        with pytest.raises(SinkError, match="could not be made safe"):
            sink.flush(LONG_S)
        os.truncate(sink.path, sink.path.stat().st_size - 2)
        with pytest.raises(SinkError, match="the disk lost records"):
            sink.flush(LONG_S)


@pytest.mark.parametrize("is_safe", [True, False])
def test_what_the_disk_lost_beside_an_erased_text_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_safe: bool
) -> None:
    """An erasure in what is safe already says nothing of the rest; a lost page is one of zeros."""
    fails = failing_sync(monkeypatch)
    with closing(JsonLinesSink(tmp_path / "out")) as sink:
        sink.add(lines_of(["kept", "secret"] if is_safe else ["kept"]))
        sink.flush(LONG_S)
        sink.add(lines_of(["late"] if is_safe else ["secret", "late"]))
        fails()
        with pytest.raises(SinkError, match="could not be made safe"):
            sink.flush(LONG_S)
        erase(sink, "secret")
        lost = b"??" if is_safe else b"\0\0"
        with sink.path.open("r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(lost)
        with pytest.raises(SinkError, match="the disk lost records"):
            sink.flush(LONG_S)


class Contended:
    """A lock that says whether somebody had to wait for it."""

    def __init__(self, waits: threading.Event) -> None:
        self._lock, self._waits = threading.Lock(), waits

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waits.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_what_is_written_again_brings_no_text_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Erased between reading and writing, a text stood there again, and counted as erased."""
    fails, erased = failing_sync(monkeypatch), threading.Event()
    with closing(JsonLinesSink(tmp_path / "out")) as sink, ThreadPoolExecutor(1) as thread:
        sink.overwrites.lock = Contended(erased)  # it is set, too, where nobody has to wait
        sink.add(lines_of(["kept", "secret"]))
        fails()
        with pytest.raises(SinkError, match="could not be made safe"):
            sink.flush(LONG_S)
        passes = list[Future[None]]()

        def meanwhile(fd: int, data: bytes, at: int) -> None:
            if not passes:
                passes.append(thread.submit(erase, sink, "secret"))
                passes[0].add_done_callback(lambda _: erased.set())
                assert erased.wait(LONG_S)
            write_at(fd, data, at)

        monkeypatch.setattr(jsonl, "write_at", meanwhile)
        sink.flush(LONG_S)
        passes[0].result(LONG_S)
        assert b"secret" not in sink.path.read_bytes()


def after_a_kill(path: Path, safe: str, lost: bytes) -> JsonLinesSink:
    """Return the sink of a run whose checkpoint knows `safe`, and not what stands behind it."""
    with closing(JsonLinesSink(path)) as before:
        before.add(lines_of(safe))
        before.flush(LONG_S)
        entry = before.pack()
    with path.open("ab") as file:
        file.write(lost)
    sink = JsonLinesSink(path)
    sink.unpack(entry)
    return sink


def test_pages_that_the_disk_dropped_are_cut_off(tmp_path: Path) -> None:
    """They read as zeros, amid whole lines too; what stood there comes again, and no line twice."""
    path = tmp_path / "out"
    first, last = (record.value + b"\n" for record in lines_of("ce"))
    with capture_logs() as logs:
        sink = after_a_kill(path, "ab", first + b'{"id":"d",' + b"\0" * 12 + b"\n" + last)
    with closing(sink):
        sink.add(lines_of("cde"))
        sink.flush(LONG_S)
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == [*"abcde"]
    assert [each["event"] for each in logs] == ["records_lost_by_disk"]


@given(
    kept=st.text("abc", max_size=3),
    lost=st.text("def", max_size=5),
    cuts=st.lists(st.integers(0, 8), max_size=3),
    torn=st.integers(0, len(OURS) - 1),
)
def test_what_comes_again_is_written_once(
    tmp_path_factory: pytest.TempPathFactory, kept: str, lost: str, cuts: list[int], torn: int
) -> None:
    """Whatever stands behind the checkpoint, torn or whole: each record has one line, in order."""
    path = tmp_path_factory.mktemp("sink") / "out"
    written = b"".join(each.value + b"\n" for each in lines_of(lost))
    again = [*lost, *"xyz"]
    with closing(after_a_kill(path, kept, written + lines_of("x")[0].value[:torn])) as sink:
        edges = [0, *sorted(cuts), len(again)]
        for begin, end in itertools.pairwise(edges):
            sink.add(lines_of(again[begin:end]))
            sink.flush(LONG_S)
            assert sink.pack().values["length"] == len(OURS) * (len(kept) + min(end, len(again)))
    found = [json.loads(line)["id"] for line in path.read_bytes().splitlines()]
    assert found == [*kept, *again]


def test_lines_of_others_stay(tmp_path: Path) -> None:
    """From the first line on that does not come again, all is kept, and records are appended."""
    path = tmp_path / "out"
    ours, later = (each.value + b"\n" for each in lines_of("de"))
    odd = b'{"id":"d","topic":"t","partition":0,"offset":9223372036854775808}\n'  # no such place
    foreign = ours + b'{"note":"mine"}\n' + odd + later
    with capture_logs() as logs, closing(after_a_kill(path, "ab", foreign)) as sink:
        sink.add(lines_of("d"))
        sink.add(lines_of("ef"))
    rest = b"".join(each.value + b"\n" for each in lines_of("ef"))
    assert path.read_bytes().endswith(foreign + rest)
    [told] = [each for each in logs if each["event"] == "records_may_come_twice"]
    assert f"from byte {3 * len(OURS)} on" in told["detail"]


@given(st.data())
def test_in_another_order_and_beside_new_ones_none_is_written_twice(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Partitions come in any order; some are judged now that were not, and others no more."""
    places = st.integers(0, 6).map(lambda offset: (0, offset)) | st.integers(0, 6).map(
        lambda offset: (1, offset)
    )
    lost = data.draw(st.lists(places, unique=True, max_size=8))
    again = [*data.draw(st.permutations(range(14)))]
    order = [(number // 7, 0) for number in again]
    seen = Counter[int]()
    for k, (number, _) in enumerate(order):  # each partition in its own order
        order[k] = number, seen[number]
        seen[number] += 1
    order = [place for place in order if data.draw(st.booleans())]
    path = tmp_path_factory.mktemp("sink") / "out"
    lost.sort(key=lambda place: place[1])
    written = b"".join(each.value + b"\n" for each in placed(lost))
    cut = data.draw(st.integers(0, len(order)))
    with capture_logs() as logs, closing(after_a_kill(path, "ab", written)) as sink:
        sink.add(placed(order[:cut]))
        sink.flush(LONG_S)
        entry = sink.pack()
        sink.add(placed(order[cut:]))
    new = [place for place in order if place not in lost]
    expected = written + b"".join(each.value + b"\n" for each in placed(new))
    assert path.read_bytes()[2 * len(OURS) :] == expected
    assert logs == []
    with closing(JsonLinesSink(path)) as sink:  # killed once more, nothing is written twice either
        sink.unpack(entry)
        sink.add(placed(order[cut:]))
    assert path.read_bytes()[2 * len(OURS) :] == expected


def begun(path: Path, before: Sequence[Record], entry: CheckpointEntry) -> JsonLinesSink:
    """Return the sink of a run after one that was killed behind some records."""
    with closing(JsonLinesSink(path)) as sink:
        sink.unpack(entry)
        sink.add(before)
    sink = JsonLinesSink(path)
    sink.unpack(entry)
    return sink


START = CheckpointEntry({"length": 0})


def said(path: Path, name: str = "offset") -> list[Any]:
    """Return what the lines of a file say of one thing."""
    return [json.loads(line)[name] for line in path.read_text().splitlines()]


def test_other_messages_at_the_same_places_are_written(tmp_path: Path) -> None:
    """A log that lost its end and was written anew was taken for what stood there, in silence."""
    path = tmp_path / "out"
    new = [placed([(0, at)], name)[0] for at, name in ((10, b"b"), (20, b"a"), (30, b"b"))]
    with (
        capture_logs() as logs,
        closing(begun(path, placed([(0, at) for at in (10, 20, 30)], b"a"), START)) as sink,
    ):
        sink.add(new[:1])
        sink.add(new[1:])
    assert list(zip(said(path, "id"), said(path), strict=True)) == [
        ("a", 10), ("a", 20), ("a", 30), ("b", 10), ("b", 30),
    ]  # fmt: skip
    assert [each["event"] for each in logs] == ["records_may_come_twice"]
    lines = path.read_bytes()
    with closing(JsonLinesSink(path)) as sink:  # killed once more, all of them are known
        sink.unpack(START)
        sink.add(new)
    assert path.read_bytes() == lines


@given(st.permutations([10, 20, 30, 40]), st.integers(1, 3), st.integers(0, 4))
def test_rejects_come_in_any_order_and_once(
    tmp_path_factory: pytest.TempPathFactory, again: list[int], n: int, cut: int
) -> None:
    """A correction may wait for its message, and is refused behind later ones, or a kill later."""
    log = Partition("journal:corrections.jsonl", 0)
    first, rest = (
        [reject_record(Reject(Reason.CORRECTION, "", log, at, 5, None, b"{")) for at in offsets]
        for offsets in ([10, 20, 30, 40][:n], again)
    )
    path = tmp_path_factory.mktemp("sink") / "out"
    with capture_logs() as logs, closing(begun(path, first, START)) as sink:
        sink.add(rest[:cut])
        sink.flush(LONG_S)
        entry = sink.pack()
        sink.add(rest[cut:])
    with closing(JsonLinesSink(path)) as sink:
        sink.unpack(entry)
        sink.add(rest[cut:])
    assert sorted(said(path)) == [10, 20, 30, 40]
    assert logs == []


def test_what_never_comes_again_holds_up_no_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later start read the whole file behind one line of a partition that went elsewhere."""
    path = tmp_path / "out"
    lost = placed([(1, 5), (1, 6), (0, 1)])
    entry = START
    for life in range(3):
        with closing(begun(path, [] if life else lost, entry)) as sink:
            sink.add(placed([(0, 1 + life), (0, 2 + life)]))
            sink.flush(LONG_S)
            entry = sink.pack()
        assert entry.values == {"length": path.stat().st_size, "left": [["t", 1, 2]]}
    with closing(JsonLinesSink(path)) as sink:
        sink.unpack(entry)
        sink.add(placed([(1, 6), (1, 7)]))  # it comes back, from further on
        sink.flush(LONG_S)
        assert sink.pack().values == {"length": path.stat().st_size}
    monkeypatch.setattr(jsonl, "_CARRIED_MAX", 1)
    with capture_logs() as logs, closing(JsonLinesSink(path)) as sink:
        sink.unpack(entry)  # what is left is bounded, and what is given up is told
        sink.add(placed([(1, 6)]))
    assert [each["event"] for each in logs] == ["records_may_come_twice"]


def test_what_was_known_by_its_place_is_synced_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run before may have ended because it could not be: records behind it count too."""
    written = b"".join(each.value + b"\n" for each in placed([(0, 3), (0, 4)]))
    fails = failing_sync(monkeypatch)
    with closing(after_a_kill(tmp_path / "out", "ab", written)) as sink:
        sink.add(placed([(0, 2)]))
        sink._write()
        sink.add(placed([(0, 3)]))
        assert (sink._is_doubtful, sink._safe_bytes) == (True, 2 * len(OURS))
        sink.flush(LONG_S)
        assert not sink._is_doubtful
        sink.add(placed([(0, 4), (0, 5)]))
        fails()
        with pytest.raises(SinkError, match="could not be made safe"):
            sink.flush(LONG_S)
    found = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [each.get("offset") for each in found] == [None, None, 3, 4, 2, 5]


def test_a_file_that_was_put_aside_is_begun_anew(tmp_path: Path) -> None:
    """Of a file that is shorter than the checkpoint knows nothing is expected."""
    path = tmp_path / "out"
    sink = after_a_kill(path, "abc", b"")
    sink.close()
    entry = CheckpointEntry({"length": 3 * len(OURS)})
    path.rename(tmp_path / "aside")
    with closing(JsonLinesSink(path)) as sink:
        sink.unpack(entry)
        sink.add(lines_of("de"))
    assert path.read_bytes() == b"".join(each.value + b"\n" for each in lines_of("de"))
    with closing(JsonLinesSink(Path("/dev/null"))) as sink:
        assert not sink.is_file
