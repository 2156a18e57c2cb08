"""Standard input: whole lines from a real pipe, and never a poll that hangs."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from consumers.config.addresses import FileSettings
from consumers.decode.rows import BOM
from consumers.errors import ConfigError, SourceError
from consumers.messages import Partition
from consumers.sources.file import StdinSource

PARTITION = Partition("stdin", 0)


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Return the reading and the writing end of a pipe."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "wb", buffering=0) as writer:
        yield reader, writer


def begun(stream: BinaryIO, position: int | None = None) -> StdinSource:
    """Return an opened source."""
    source = StdinSource(FileSettings(batch_bytes=1024), stream, wait=lambda _: None)
    source.open({PARTITION: position}.get)
    return source


def polled(source: StdinSource, timeout_s: float = 0.0) -> list[tuple[int, bytes]]:
    """Poll once; return offsets and records."""
    found: list[tuple[int, bytes]] = []
    for raw in source.poll(timeout_s):
        assert raw.partition == PARTITION
        found += [(int(raw.offsets[i]), raw.value(i) or b"") for i in range(len(raw))]
        assert raw.next_offset == found[-1][0] + 1
    return found


def test_lines_come_as_they_are_written(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    """Whole lines are handed over with their numbers; half a line waits for its other half."""
    reader, writer = pipe
    source = begun(reader)
    assert polled(source) == []
    writer.write(b'{"a":1}\n\n \t\n{"b":2}\r\n{"c"')
    assert polled(source) == [(0, b'{"a":1}'), (1, b'{"b":2}')]
    assert polled(source) == []
    assert not source.at_end()
    writer.write(b":3}\n")
    assert polled(source) == [(2, b'{"c":3}')]
    source.close()


def test_the_end_of_the_input_is_the_end(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    """When the writer closes, a last line without a line end is taken, and the source ends."""
    reader, writer = pipe
    source = begun(reader)
    writer.write(b"{}\n[1]")
    writer.close()
    found = []
    while not source.at_end():
        found += polled(source, 10.0)
    assert found == [(0, b"{}"), (1, b"[1]")]
    assert polled(source, 0.1) == []
    source.close()


def test_a_silent_pipe_gives_the_time_back(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    """With nothing to read, or with half a line, a poll comes back empty when its time is up."""
    reader, writer = pipe
    ticks = iter(range(100))
    source = StdinSource(FileSettings(), reader, clock=lambda: next(ticks) / 10)
    source.open(lambda _: None)
    assert source.poll(0.05) == []
    writer.write(b'{"half')
    assert source.poll(0.1) == []
    assert (source.lag(), source.trouble(), source.at_end()) == ({}, None, False)
    source.report_positions({PARTITION: 1})
    source.close()


@pytest.mark.parametrize("n", range(1, 5))
@pytest.mark.parametrize("position", [None, 41])
def test_a_byte_order_mark_is_no_part_of_the_first_message(
    pipe: tuple[BinaryIO, BinaryIO], n: int, position: int | None
) -> None:
    """However the first bytes come; behind the first line it is a character like any other."""
    reader, writer = pipe
    source = begun(reader, position)
    data = BOM + b'{"a":1}\n' + BOM + b"{}\n"
    writer.write(data[:n])
    found = polled(source)
    writer.write(data[n:])
    found += polled(source)
    first = position or 0
    assert found == [(first, b'{"a":1}'), (first + 1, BOM + b"{}")]
    source.close()


@pytest.mark.parametrize(
    ("data", "records"),
    [(BOM, []), (BOM[:2], [BOM[:2]]), (b"1", [b"1"]), (b"", []), (BOM + b"1", [b"1"])],
)
def test_an_input_may_end_within_a_byte_order_mark(
    pipe: tuple[BinaryIO, BinaryIO], data: bytes, records: list[bytes]
) -> None:
    """A mark alone is no message, and the first bytes of one are the message that they are."""
    reader, writer = pipe
    source = begun(reader)
    writer.write(data)
    assert polled(source) == []
    writer.close()
    found = []
    while not source.at_end():
        found += polled(source, 10.0)
    assert [record for _, record in found] == records
    source.close()


def test_counting_goes_on_at_the_checkpoint(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    """After a restart, records are numbered from the checkpoint's position on."""
    reader, writer = pipe
    source = begun(reader, position=41)
    writer.write(b"{}\n")
    assert polled(source) == [(41, b"{}")]
    source.close()


def test_a_file_can_be_redirected(tmp_path: Path) -> None:
    """Standard input may be a file: all of it is read, then the source ends."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"".join(b'{"n":%d}\n' % n for n in range(1000)))
    found = []
    with path.open("rb") as stream:
        source = begun(stream)
        while not source.at_end():
            found += polled(source)
        source.close()
    assert found == [(n, b'{"n":%d}' % n) for n in range(1000)]


def test_what_cannot_be_read_is_named(
    pipe: tuple[BinaryIO, BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CSV, no input at all, and an input that cannot be read are errors with a way out."""
    with pytest.raises(ConfigError, match="source: file:PATH"):
        StdinSource(FileSettings(format="csv"), pipe[0])
    with pytest.raises(SourceError, match="no standard input"):
        StdinSource(FileSettings(), io.BytesIO(b"{}"))
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SourceError, match="no standard input"):
        StdinSource(FileSettings())


def test_an_input_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """A descriptor that is open for writing alone is a source error, not a crash."""
    with (tmp_path / "x").open("wb") as stream:
        source = begun(stream)
        with pytest.raises(SourceError, match="stdin: reading failed after record 0"):
            source.poll(0.0)
        source.close()


def test_a_nonblocking_pipe_is_read(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    """A pipe that its opener made non-blocking works like any other."""
    reader, writer = pipe
    os.set_blocking(reader.fileno(), False)
    source = begun(reader)
    assert polled(source) == []
    writer.write(b"{}\n")
    assert polled(source) == [(0, b"{}")]
    source.close()
