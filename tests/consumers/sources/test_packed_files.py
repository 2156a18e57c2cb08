"""What packed files are told by, and how much of them is in memory at once."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from consumers.config.addresses import FileSettings
from consumers.sources.file import FileBytes, FileSource

LINES = [b'{"id":%d,"text":"message %d"}' % (n, n * n) for n in range(500)]


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress], ids=["bzip2", "xz"])
def test_a_read_is_of_as_much_as_was_asked_for(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """However much few bytes stand for, members behind them too; and nothing of it is lost."""
    n, size = 8 << 20, 1 << 16
    (tmp_path / "x").write_bytes(pack(bytes(n)) + pack(bytes(n)) + pack(b"end"))
    opened = FileBytes(tmp_path / "x")
    parts: list[bytes] = []
    while parts[-1:] != [b""]:
        parts.append(opened.read(size))
    opened.close()
    assert max(map(len, parts)) <= size
    assert b"".join(parts) == bytes(2 * n) + b"end"
    assert (opened.damage, opened.n_open()) == (None, 0)


@pytest.mark.parametrize("number", [0x0, 0x7, 0xF])
def test_a_skippable_frame_may_begin_a_file_of_zstandard(tmp_path: Path, number: int) -> None:
    """As pzstd writes them: they hold nothing, and messages come behind them."""
    frame = (0x184D2A50 + number).to_bytes(4, "little") + (600).to_bytes(4, "little") + bytes(600)
    first, second = (
        zstandard.compress(b"\n".join(each) + b"\n") for each in (LINES[:9], LINES[9:])
    )
    (tmp_path / "x").write_bytes(frame + first + frame + second)
    source = FileSource(tmp_path / "x", FileSettings(batch_bytes=1024), wait=lambda _: None)
    source.open(lambda _: None)
    found = []
    while not source.at_end():
        for raw in source.poll(0.0):
            found += [raw.value(i) for i in range(len(raw))]
    source.close()
    assert found == LINES
