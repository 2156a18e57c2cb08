"""Decompresses batches with the packages that kafka-python uses itself, but within bounds.

The size that a compressed stream declares is not trusted: memory grows with what really comes out,
up to `BATCH_BYTES_MAX`. A producer's batches are some megabytes at most, since its limits hold
before compression.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kafka import codec
from kafka.errors import CorruptRecordError, UnsupportedCodecError

BATCH_BYTES_MAX: Final = 256 << 20
_PIECE_BYTES: Final = 1 << 20
_GZIP_WINDOW: Final = 31  # zlib's way to ask for gzip's frame
# zlib copies what it leaves unused, so it gets small pieces: a stream of a great many tiny gzip
# members would otherwise take quadratic time.
_INPUT_BYTES: Final = 1 << 15
_ZEROS: Final = re.compile(rb"\0*")  # a writer may pad with them behind a member

# The framing that Java's snappy library puts around its blocks: this mark and two versions, then
# blocks with their sizes before them.
_SNAPPY_MARK: Final = b"\x82SNAPPY\x00"
_SNAPPY_MARK_BYTES: Final = 16
_SNAPPY_RATIO_MAX: Final = 64  # three bytes can stand for 64, never for more


def decompress(number: int, packed: bytes) -> bytes:
    """Return the records of a compressed batch.

    `number` is Kafka's number of the compression, 1 to 7; `packed` is the batch behind its header.
    A compression that is unknown or not installed is an `UnsupportedCodecError`; a damaged stream,
    or one of more than `BATCH_BYTES_MAX` bytes, is a `CorruptRecordError`.
    """
    if not packed:
        return b""  # compaction left nothing but the header
    if number not in _CODECS:
        raise UnsupportedCodecError(f"Unrecognized compression type: {number}")
    name, installed, pieces = _CODECS[number]
    if not installed():
        raise UnsupportedCodecError(f"Libraries for {name} compression codec not found")
    try:
        return _joined(pieces(packed))
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{name}: {error.args[0]}") from error
    except Exception as error:  # each package raises classes of its own
        raise CorruptRecordError(f"{name} cannot unpack it: {error!r}") from error


def _joined(pieces: Iterable[bytes]) -> bytes:
    parts, total = [], 0
    for part in pieces:
        total += len(part)
        _check_size(total)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_size(n_bytes: int) -> None:
    if n_bytes > BATCH_BYTES_MAX:
        raise CorruptRecordError(
            f"unpacked it has more than {BATCH_BYTES_MAX} bytes; if it is meant so, kafka.decode: "
            "records reads it, given the memory"
        )


def _gzip(packed: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(packed):
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            given = member.unconsumed_tail
            if not given:
                given = packed[at : at + _INPUT_BYTES]
                at += len(given)
            part = member.decompress(given, _PIECE_BYTES)
            if not part and not given and not member.eof:
                raise CorruptRecordError("the stream is cut off")
            yield part
        at -= len(member.unused_data)
        at = _ZEROS.match(packed, at).end()  # type: ignore[union-attr]  # it may match nothing


def _lz4(packed: bytes) -> Iterator[bytes]:
    frame = codec.lz4.LZ4FrameDecompressor()
    yield frame.decompress(packed, max_length=_PIECE_BYTES)
    while not frame.eof:
        part = frame.decompress(b"", max_length=_PIECE_BYTES)
        if not part and not frame.eof:
            raise CorruptRecordError("the stream is cut off")
        yield part
    if frame.unused_data:
        raise CorruptRecordError("bytes follow the frame's end")


def _zstd(packed: bytes) -> Iterator[bytes]:
    with codec.zstd.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
        while part := reader.read(_PIECE_BYTES):
            yield part


def _snappy(packed: bytes) -> Iterator[bytes]:
    total = 0
    for block in _snappy_blocks(packed):
        declared = _snappy_size(block)
        total += declared
        _check_size(total)
        if declared > _SNAPPY_RATIO_MAX * len(block):
            raise CorruptRecordError(f"a block of {len(block)} bytes cannot hold {declared}")
        yield codec.snappy.decompress(block)


def _snappy_blocks(packed: bytes) -> Iterator[bytes]:
    if not packed.startswith(_SNAPPY_MARK):
        yield packed
        return
    at = _SNAPPY_MARK_BYTES
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        if end > len(packed):
            raise CorruptRecordError("a block is cut off")
        yield packed[at + 4 : end]
        at = end


def _snappy_size(block: bytes) -> int:
    """Return the size that a block declares, a varint at its beginning."""
    size = 0
    for i, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return size
    raise CorruptRecordError("a block does not say how large it is")


_CODECS: Final[dict[int, tuple[str, Callable[[], bool], Callable[[bytes], Iterator[bytes]]]]] = {
    1: ("gzip", codec.has_gzip, _gzip),
    2: ("snappy", codec.has_snappy, _snappy),
    3: ("lz4", lambda: codec.lz4 is not None, _lz4),
    4: ("zstd", codec.has_zstd, _zstd),
}
