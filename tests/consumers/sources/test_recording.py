"""Recordings: any message comes back as it was, and what is torn, foreign or hostile is named."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import re
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from consumers.config.addresses import FileSettings
from consumers.decode.rows import RecordFormat
from consumers.errors import ReplacedError, SinkError, SourceError
from consumers.messages import Headers, Partition, RawColumns
from consumers.sources import file as file_module
from consumers.sources import recording
from consumers.sources.base import LogFacts
from consumers.sources.file import FileBytes, FileSource
from consumers.sources.recording import (
    RecordingHead,
    RecordingSource,
    RecordingWriter,
    is_recording,
)
from consumers.sources.records import from_parts

HEAD = RecordingHead(stream={"source": "kafka", "topic": "t"}, format=RecordFormat())
# Each frame is synced, for which a busy disk may take a second.
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SMALL = FileSettings(batch_bytes=1 << 12)
Message = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

data = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
messages = st.tuples(
    st.integers(1, 1 << 40),  # how far its offset is from the one before
    st.integers(-1, (1 << 62)),
    data,
    data,
    st.lists(st.tuples(st.text(max_size=5), data), max_size=3).map(tuple),
)
batches = st.lists(
    st.tuples(st.integers(0, 2), st.lists(messages, min_size=1, max_size=5)), max_size=8
)


def columns(number: int, found: Sequence[Message], after: int) -> RawColumns:
    """Return messages as a batch of a partition, behind an offset."""
    offsets = []
    for step, *_ in found:
        after += step
        offsets.append(after)
    return from_parts(
        Partition("t", number),
        [key for _, _, key, _, _ in found],
        [value for _, _, _, value, _ in found],
        offsets,
        [time_ms for _, time_ms, _, _, _ in found],
        after + 1,
        [headers for *_, headers in found],
    )


def rows(raw: RawColumns) -> list[tuple[int, int, bytes | None, bytes | None, Headers]]:
    """Return a batch as rows."""
    headers = raw.headers or [()] * len(raw)
    return [
        (int(raw.offsets[i]), int(raw.times_ms[i]), raw.key(i), raw.value(i), tuple(headers[i]))
        for i in range(len(raw))
    ]


def read(
    path: Path, positions: Mapping[Partition, int] | None = None
) -> dict[Partition, list[object]]:
    """Return all that a recording holds behind some positions."""
    source = RecordingSource(path, SMALL, with_headers=True, wait=lambda _: None)
    found: dict[Partition, list[object]] = defaultdict(list)
    source.open((positions or {}).get)
    try:
        while not source.at_end():
            for raw in source.poll(0.0):
                found[raw.partition] += rows(raw)
                assert raw.next_offset == raw.offsets[-1] + 1
    finally:
        source.close()
    return dict(found)


def written(path: Path, raws: Sequence[RawColumns], *, frame_each: bool = False) -> None:
    """Write batches to a recording, or go on with it; each as a frame if `frame_each`."""
    writer = RecordingWriter(path, HEAD)
    for raw in raws:
        writer.add(raw)
        if frame_each:
            writer.flush()
    writer.flush()
    writer.close()


def made(found: Sequence[tuple[int, Sequence[Message]]]) -> list[RawColumns]:
    """Return batches whose offsets rise in each partition."""
    after: dict[int, int] = {}
    raws = []
    for number, some in found:
        raws.append(columns(number, some, after.get(number, -1)))
        after[number] = int(raws[-1].offsets[-1])
    return raws


def by_partition(raws: Sequence[RawColumns]) -> dict[Partition, list[object]]:
    """Return the rows of batches, by partition."""
    found: dict[Partition, list[object]] = defaultdict(list)
    for raw in raws:
        found[raw.partition] += rows(raw)
    return dict(found)


def plain(n: int, first: int = 0) -> RawColumns:
    """Return messages of a known size."""
    found: list[Message] = [(1, 5, b"k", b"value %d" % i, ()) for i in range(first, first + n)]
    return columns(0, found, first - 1)


@given(found=batches, suffix=st.sampled_from(recording.SUFFIXES), frame_each=st.booleans())
def test_any_message_comes_back_as_it_was(
    found: list[tuple[int, list[Message]]], suffix: str, frame_each: bool
) -> None:
    """Keys, values, nulls, headers, times, offsets and partitions: all of it, byte for byte."""
    raws = made(found)
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        path = Path(folder) / f"r{suffix}"
        written(path, raws, frame_each=frame_each)
        assert read(path) == by_partition(raws)
        assert is_recording(path)


@given(found=batches, suffix=st.sampled_from(recording.SUFFIXES), data=st.data())
def test_a_file_cut_anywhere_is_continued_without_gap_or_repeat(
    found: list[tuple[int, list[Message]]], suffix: str, data: st.DataObject
) -> None:
    """Whatever a kill leaves, the next run says where each partition goes on, and goes on there."""
    raws = made(found)
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        path = Path(folder) / f"r{suffix}"
        written(path, [])
        head_bytes = path.stat().st_size
        written(path, raws, frame_each=True)
        size = data.draw(st.integers(head_bytes, path.stat().st_size))
        with path.open("r+b") as file:
            file.truncate(size)
        writer = RecordingWriter(path, HEAD)
        positions = dict(writer.positions)
        writer.close()
        rest = []
        for raw in raws:  # what a source would return that is asked to begin there
            behind = int((raw.offsets < positions.get(raw.partition, 0)).sum())
            if behind < len(raw):
                rest.append(raw.tail(behind))
        written(path, rest)
        assert read(path) == by_partition(raws)


@pytest.mark.parametrize("suffix", recording.SUFFIXES)
def test_a_frame_may_end_anywhere_in_what_is_read_at_once(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is whole goes on behind its last message, wherever reads of it are cut."""
    path = tmp_path / f"r{suffix}"
    written(path, [plain(3)])
    for step_bytes in range(1, path.stat().st_size + 1):
        monkeypatch.setattr(file_module, "STEP_BYTES", step_bytes)
        writer = RecordingWriter(path, HEAD)
        assert (writer.n_bytes, list(writer.positions.values())) == (path.stat().st_size, [3])
        writer.close()


@given(found=batches, data=st.data())
def test_reading_begins_at_any_position(
    found: list[tuple[int, list[Message]]], data: st.DataObject
) -> None:
    """A daemon that starts again gets each message behind its position, and no other."""
    raws = made(found)
    whole = by_partition(raws)
    positions = {}
    for partition, some in whole.items():
        offsets = [row[0] for row in some]  # type: ignore[index]  # rows are tuples
        positions[partition] = data.draw(st.sampled_from([*offsets, offsets[-1] + 1]))
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        path = Path(folder) / "r.gz"
        written(path, raws)
        found_rows = read(path, positions)
    for partition, some in whole.items():
        left = [row for row in some if row[0] >= positions[partition]]  # type: ignore[index]
        assert found_rows.get(partition, []) == left


def test_partitions_come_in_the_order_of_the_file_from_any_position(tmp_path: Path) -> None:
    """What is left of a piece is handed over in the order in which the whole piece was."""
    path = tmp_path / "r.gz"
    some: list[Message] = [(1, 5, b"k", b"v", ())] * 4
    written(path, [columns(0, some[:2], -1), columns(1, some, -1), columns(0, some[2:], 1)])
    source = RecordingSource(path, SMALL, wait=lambda _: None)
    source.open({Partition("t", 0): 2, Partition("t", 1): 1}.get)
    with contextlib.closing(source):
        found = [(raw.partition.partition, raw.offsets.tolist()) for raw in source.poll(0.0)]
    assert found == [(0, [2, 3]), (1, [1, 2, 3])]


LINES = [b'{"id":%d,"text":"message %d"}' % (n, n * n) for n in range(300)]


def of_file(path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Record a file in small frames; return the recording."""
    monkeypatch.setattr(recording, "FRAME_BYTES", 500)
    path.write_bytes(content)
    source = FileSource(path, SMALL, wait=lambda _: None)
    source.open(lambda _: None)
    head = RecordingHead(stream={"source": "file", "name": path.name}, format=RecordFormat())
    writer = RecordingWriter(path.with_suffix(".gz"), head)
    with contextlib.closing(source), contextlib.closing(writer):
        while not source.at_end():
            for raw in source.poll(0.0):
                writer.add(raw)
        writer.flush()
    return path.with_suffix(".gz")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n \n\n"])
@pytest.mark.parametrize("batch_bytes", [1024, 1 << 20])
def test_a_file_goes_on_where_its_recording_was_read_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes, batch_bytes: int
) -> None:
    """Each position of a recorded file is one of the file: the beginning of a record, or its end.

    In bytes no message is one offset behind the other, so the last one waits for the next line.
    """
    content = b"".join(line + end for line in LINES)
    path = of_file(tmp_path / "in.jsonl", content, monkeypatch)
    source = RecordingSource(path, FileSettings(batch_bytes=batch_bytes), wait=lambda _: None)
    source.open(lambda _: None)
    found: list[bytes | None] = []
    with contextlib.closing(source):
        while not source.at_end():
            for raw in source.poll(0.0):
                found += raw.values(np.arange(len(raw)))
                rest = content[raw.next_offset :].split(end)
                assert [line for line in rest if line] == LINES[len(found) :]
    assert found == LINES
    assert raw.next_offset == len(content)


def test_a_recorder_of_a_file_that_is_killed_goes_on_at_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each frame ends with a position at which a record of the file begins."""
    content = b"".join(line + b"\r\n" for line in LINES)
    path = of_file(tmp_path / "in.jsonl", content, monkeypatch)
    begins = {len(content), *(found.start() for found in re.finditer(rb"\{", content))}
    ends = [
        at
        for line in gzip.decompress(path.read_bytes()).splitlines()
        for at in (msgspec.json.decode(line).get("positions") or {}).values()
    ]
    assert len(ends) > 10
    assert begins.issuperset(ends)


def test_what_was_held_back_comes_before_damage_and_a_torn_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last whole message of a file's recording is handed over, whatever follows it."""
    path = of_file(tmp_path / "in.jsonl", b"\n".join(LINES), monkeypatch)
    whole = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    lines = whole[: max(i for i, line in enumerate(whole) if b"message 10000" in line) + 1]
    for rest, error in ((b"", None), (b"{\n", "is not as it was written"), (b'{"top', None)):
        path.write_bytes(gzip.compress(b"".join(lines) + rest))
        source = RecordingSource(path, SMALL, wait=lambda _: None)
        source.open(lambda _: None)
        found: list[bytes | None] = []
        with contextlib.closing(source):
            expected = nullcontext() if error is None else pytest.raises(SourceError, match=error)
            with expected:
                while not source.at_end():
                    for raw in source.poll(0.0):
                        found += raw.values(np.arange(len(raw)))
        assert found == LINES[:101]


def test_anybody_can_read_it(tmp_path: Path) -> None:
    """It is JSON lines: text stands as text, other bytes in base64, a null as null."""
    found: list[Message] = [
        (1, 7, None, "grüße\n".encode(), (("trace", b"a"), ("bin", b"\xff"))),
        (1, -1, b"\xff\x00", None, ()),
    ]
    written(tmp_path / "r.gz", [columns(3, found, -1)])
    lines = gzip.decompress((tmp_path / "r.gz").read_bytes()).splitlines()
    assert [msgspec.json.decode(line) for line in lines] == [
        {
            "streamnb_recording": 1,
            "stream": {"source": "kafka", "topic": "t"},
            "format": {"kind": "jsonl", "columns": [], "encoding": "utf-8"},
        },
        {"positions": {}},
        {
            "topic": "t",
            "partition": 3,
            "offset": 0,
            "time_ms": 7,
            "key": None,
            "value": "grüße\n",
            "headers": [{"name": "trace", "value": "a"}, {"name": "bin", "value_base64": "/w=="}],
        },
        {"topic": "t", "partition": 3, "offset": 1, "key_base64": "/wA=", "value": None},
        {"positions": {"t/3": 2}},
    ]
    assert (tmp_path / "r.gz").stat().st_mode & 0o777 == 0o600


def test_where_a_quiet_partition_begins_is_kept(tmp_path: Path) -> None:
    """A partition of which nothing came yet goes on from where it began."""
    path = tmp_path / "r.zst"
    writer = RecordingWriter(path, HEAD)
    logs = {Partition("t", 0): LogFacts(40, "id"), Partition("t", 1): LogFacts(7, "id")}
    writer.begin(logs)
    writer.add(plain(2, 40))
    writer.begin(logs)
    writer.flush()
    writer.close()
    writer = RecordingWriter(path, HEAD)
    assert writer.positions == {Partition("t", 0): 42, Partition("t", 1): 7}
    assert writer.logs == logs
    writer.close()
    source = RecordingSource(path, SMALL, wait=lambda _: None)
    source.open(lambda _: None)
    assert sum(map(len, source.poll(0.0))) == 2
    assert source.beginnings == logs
    source.resume({Partition("t", 0): LogFacts(0, "of another topic")})
    source.open(lambda _: None)
    with pytest.raises(ReplacedError, match="is of another topic 't' than was read before"):
        source.poll(0.0)
    source.close()


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    """The second one is refused, and the first one goes on."""
    writer = RecordingWriter(tmp_path / "r.gz", HEAD)
    with pytest.raises(SinkError, match="another `streamnb record` writes it"):
        RecordingWriter(tmp_path / "r.gz", HEAD)
    writer.close()
    written(tmp_path / "r.gz", [plain(3)])


def _other_stream(path: Path) -> None:
    head = RecordingHead(stream={"source": "kafka", "topic": "u"}, format=RecordFormat())
    RecordingWriter(path, head).close()


def _damaged(path: Path) -> None:
    written(path, [plain(500), plain(500, 500)], frame_each=True)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (b"my only copy", "not compressed as its name says"),
        (gzip.compress(b'{"a": 1}\n', mtime=0), "is no recording"),
        (gzip.compress(b'{"a":%s%s}\n' % (b"[" * 9_000, b"]" * 9_000), mtime=0), "is no recording"),
        (gzip.compress(b"", mtime=0), "first line is not whole"),
        (gzip.compress(b'{"streamnb_recording":2}\n', mtime=0), "in version 2, and this"),
        (_other_stream, "holds another stream"),
        (_damaged, "cannot be continued behind byte"),
    ],
)
def test_another_file_is_left_as_it_is(
    tmp_path: Path, make: bytes | Callable[[Path], object], said: str
) -> None:
    """What is no recording of this stream is never written to, and the error says what to do."""
    path = tmp_path / "r.gz"
    if isinstance(make, bytes):
        path.write_bytes(make)
    else:
        make(path)
    before = path.read_bytes()
    with pytest.raises((SinkError, SourceError), match=said):
        RecordingWriter(path, HEAD)
    assert path.read_bytes() == before


def _frames(path: Path) -> list[int]:
    """Return where the whole frames of a file end."""
    file, ends = FileBytes(path), [0]
    while file.read(1):
        if file.whole[0] > ends[-1]:
            ends.append(file.whole[0])
    file.close()
    return ends


@pytest.mark.parametrize("suffix", recording.SUFFIXES)
def test_a_first_frame_of_which_a_part_is_there_is_begun_again(tmp_path: Path, suffix: str) -> None:
    """A kill leaves its beginning, a power cut any sectors of it; no other file is touched."""
    whole, path = tmp_path / f"whole{suffix}", tmp_path / f"r{suffix}"
    RecordingWriter(whole, HEAD).close()
    first = whole.read_bytes()
    n = len(first) // 2
    for torn in (first[:1], first[:-1], bytes(n), bytes(n) + first[n:], first[:n] + bytes(n)):
        path.write_bytes(torn)
        RecordingWriter(path, HEAD).close()
        assert path.read_bytes() == first
    for other in (first[:n] + b"x", bytes(n) + b"x", first[:-1] + b"xx", bytes(2 * len(first))):
        path.write_bytes(other)
        with pytest.raises((SinkError, SourceError)):
            RecordingWriter(path, HEAD)
        assert path.read_bytes() == other


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    """Neither a pipe nor a device can be read from its beginning, or cut."""
    os.mkfifo(tmp_path / "pipe.gz")
    (tmp_path / "device.gz").symlink_to("/dev/null")
    for name in ("pipe.gz", "device.gz"):
        with pytest.raises(SinkError, match=f"{name}: cannot be read or begun"):
            RecordingWriter(tmp_path / name, HEAD)


@pytest.mark.deep
@pytest.mark.parametrize("suffix", recording.SUFFIXES)
def test_only_the_last_frame_is_cut_off_where_it_is_damaged(tmp_path: Path, suffix: str) -> None:
    """A power cut damages what was not synced; behind damage of the disk stand whole frames.

    Those are not cut off, whether the damage is noticed there or seems to be a torn end.
    """
    path = tmp_path / f"r{suffix}"
    written(path, [plain(500), plain(500, 500)], frame_each=True)
    whole, (*_, before, begin, end) = path.read_bytes(), _frames(path)
    chance = random.Random(7)
    for at in (begin, *(chance.randrange(begin + 12, end) for _ in range(20))):
        for n in (1, 40):
            damaged = bytes(byte ^ 0xFF for byte in whole[at : at + n])
            path.write_bytes(whole[:at] + damaged + whole[at + n :])
            with contextlib.closing(RecordingWriter(path, HEAD)) as writer:
                assert writer.positions == {Partition("t", 0): 500}
            assert path.read_bytes() == whole[:begin]
    refused: list[str] = []
    for at in range(before, begin):
        damaged = whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :]
        path.write_bytes(damaged)
        try:
            with contextlib.closing(RecordingWriter(path, HEAD)) as writer:
                assert writer.positions == {Partition("t", 0): 1_000}
        except SinkError as error:
            refused.append(str(error))
        assert path.read_bytes() == damaged
    assert all("cannot be continued behind byte" in error for error in refused)
    assert len(refused) > (begin - before) * 0.9


def test_damage_is_an_error_once_all_before_it_was_handed_over(tmp_path: Path) -> None:
    """The frames before the damaged one are read; then the run ends with the way out."""
    path = tmp_path / "r.gz"
    written(path, [plain(500), plain(500, 500)], frame_each=True)
    content = bytearray(path.read_bytes())
    content[-8] ^= 0xFF  # the checksum of the last frame
    path.write_bytes(content)
    source = RecordingSource(path, SMALL, wait=lambda _: None)
    source.open(lambda _: None)
    lengths: list[int] = []
    with pytest.raises(SourceError, match=r"damaged there.*Get an undamaged copy"):
        lengths.extend(len(raw) for _ in range(100) for raw in source.poll(0.0))
    assert sum(lengths) >= 500
    source.close()


def test_a_torn_frame_is_the_end_and_said(tmp_path: Path) -> None:
    """A recorder that was killed leaves a file that can be read as far as it goes."""
    path = tmp_path / "r.gz"
    written(path, [plain(500), plain(500, 500)], frame_each=True)
    path.write_bytes(path.read_bytes()[:-20])
    with capture_logs() as logs:
        (found,) = read(path).values()
    assert 500 <= len(found) <= 1_000
    assert [line["event"] for line in logs] == ["recording_torn"]


@pytest.mark.deep
@pytest.mark.parametrize("source", ["stdin", "jetstream", "sse", "lines", "websocket"])
@pytest.mark.parametrize("suffix", [".zst", pytest.param(".gz", marks=pytest.mark.deep)])
def test_a_torn_frame_that_is_recorded_again_hides_no_message(
    tmp_path: Path, source: str, suffix: str
) -> None:
    """Where a recorder that goes on gives other messages the torn ones' numbers, all are read.

    A pipe and a live stream do not bring the same again; no state may stand behind a whole frame.
    """
    path = tmp_path / f"r{suffix}"
    head = RecordingHead(stream={"source": source}, format=RecordFormat())
    others: list[Message] = [(1, 5, None, b"other %d" % i, ()) for i in range(30_000)]
    after = columns(0, others, 499)

    def record(*raws: RawColumns) -> None:
        with contextlib.closing(RecordingWriter(path, head)) as writer:
            assert writer.positions.get(Partition("t", 0), 0) == raws[0].offsets[0]
            for raw in raws:
                writer.add(raw)
                writer.flush()

    record(plain(500), plain(5_000, 500))
    path.write_bytes(path.read_bytes()[:-20])
    with capture_logs() as logs:
        (found,) = read(path).values()
    assert [line["event"] for line in logs] == ["recording_torn"]
    assert len(found) == 500
    record(after)
    assert read(path, {Partition("t", 0): 500}) == by_partition([after])
    assert read(path) == by_partition([plain(500), after])


def test_positions_outside_the_recording_are_noticed(tmp_path: Path) -> None:
    """Messages that it does not hold count as lost; a position behind its end is refused."""
    path = tmp_path / "r.gz"
    written(path, [plain(10, 100)])
    source = RecordingSource(path, SMALL, wait=lambda _: None)
    source.open(lambda _: 60)
    with capture_logs() as logs:
        assert sum(map(len, source.poll(0.0))) == 10
    assert source.lost_messages == 40
    assert [line["event"] for line in logs] == ["messages_lost"]
    source.close()
    with pytest.raises(SourceError, match="read up to offset 111 before, and the recording ends"):
        read(path, {Partition("t", 0): 111})


LINE = b'{"topic":"t","partition":0,"offset":%d,"key":null,"value":null}\n'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"no JSON\n", "is not as it was written"),
        (b'{"topic": "\xff"}\n', "is not as it was written"),
        (b'{"a": ' + b"[" * 100_000 + b"\n", "is not as it was written"),
        (b"{}\n", "neither a message nor positions"),
        (b'{"topic":"t","partition":0,"offset":3}\n', "each stand once"),
        (b'{"topic":"t","partition":0,"offset":3,"key":"a","key_base64":"YQ=="}\n', "stand once"),
        (b'{"topic":"t","partition":0,"offset":9223372036854775807,"value":""}\n', "not as it was"),
        (b'{"topic":"t","partition":-2,"offset":3,"value":""}\n', "not as it was"),
        (b'{"positions":{"t":3}}\n', "not as it was"),
        (LINE % 2 + LINE % 1, "offset 1 of .* behind a later one"),
    ],
)
def test_a_hostile_line_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    """Each is an error with path and line, and none ends in a traceback of another kind."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(msgspec.json.encode(HEAD) + b"\n" + LINE % 0 + line)
    source = RecordingSource(path, SMALL, wait=lambda _: None)
    source.open(lambda _: None)
    (before,) = source.poll(0.0)
    assert before.offsets.tolist()[:1] == [0]
    with pytest.raises(SourceError, match=said):
        source.poll(0.0)
    source.close()


@pytest.mark.parametrize(("suffix", "n"), [(".zst", 150_000_000), (".gz", 40_000_000)])
def test_a_bomb_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, n: int
) -> None:
    """A line without end, 150 MB in a few kilobytes, is refused by reader and writer."""
    monkeypatch.setattr(recording, "LINE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(recording, "_FRAME_BYTES_MAX", 1 << 20)
    path = tmp_path / f"r{suffix}"
    bomb = msgspec.json.encode(HEAD) + b"\n" + b" " * n
    pack = zstandard.ZstdCompressor().compress if suffix == ".zst" else gzip.compress
    path.write_bytes(pack(bomb))
    del bomb
    tracemalloc.start()
    with pytest.raises(SourceError, match="has a line of more than"):
        read(path)
    with pytest.raises(SinkError, match="a frame is larger than any"):
        RecordingWriter(path, HEAD)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (64 if suffix == ".zst" else 16) << 20
