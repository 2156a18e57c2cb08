"""Records of what was learned, as columns in pieces of bytes: chunks, and segments of them.

A chunk holds the records of one batch. Its structure (offsets, labels, ids, and where each value
ends) and its contents (kinds and the values of the model's fields) have a checksum each: to erase
a text, its bytes are overwritten in place, and the second checksum is given up.

Layout, little endian: the head; for each field whether it has numbers, and its bytes; `offsets`
int64; `labels` int32; `ends` of the ids and of each field of texts, int64, −1−end where there is
none; the ids' bytes; `kinds` uint8; the fields' bytes.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from consumers.decode.kernels.json_scan import gather, lay_out
from consumers.messages import Column
from consumers.private_files import make_private_folder, open_private, write_at
from streamnb import TextColumn
from streamnb.kernels.layout import Texts

CREATED, UPDATED, RELABELLED, DELETED, EARLY_UPDATE, EARLY_DELETE, CONSUMED = range(7)
CORRECTED, TAKEN_BACK, ERASED = range(7, 10)
TEACHING = (CREATED, UPDATED, RELABELLED, EARLY_UPDATE, CORRECTED)  # these have contents

_MAGIC = b"SNL1"
_HEAD = struct.Struct("<4sIIIIIQ")  # magic, records, fields, both checksums, structure, all bytes
_STRUCTURE_CHECK_AT, _CONTENT_CHECK_AT = 12, 16
_CHECKS = struct.Struct("<II")
_FIELD = struct.Struct("<QQ")
UNCHECKED = 0  # the contents' checksum once something of them was erased
TEACHES: NDArray[np.bool_] = np.isin(np.arange(256), TEACHING)  # by kind
Longs: TypeAlias = NDArray[np.int64]
Hashes: TypeAlias = NDArray[np.uint64]
Hashed: TypeAlias = Callable[[Texts], Hashes]


class DamagedError(Exception):
    """A chunk is not what was written."""


class LearnedRecord(NamedTuple):
    """What one message did; `number` counts the records of its log."""

    number: int
    kind: int
    offset: int
    label: int
    id: bytes
    chunk: RecordChunk | None  # None as long as it is not appended
    row: int

    @property
    def has_id(self) -> bool:
        """Whether its message has one: not by its place alone."""
        return self.chunk is None or bool(self.chunk.id_ends[self.row] >= 0)

    def taught_part(self, n_fields: int) -> str | None:
        """Return the part that a correction has taught; None if its own log's did."""
        if self.chunk is None or len(self.chunk.fields) == n_fields:
            return None
        value = self.chunk.value(self.row, n_fields)
        return value.decode() if isinstance(value, bytes) else None


@dataclass(slots=True)
class RecordChunk:
    """A chunk in a buffer, over which its arrays are views; it begins at byte `at`."""

    buffer: memoryview
    at: int
    end: int
    offsets: Longs
    labels: NDArray[np.int32]
    id_ends: Longs
    ids_at: int
    kinds_at: int
    fields: list[tuple[int, Longs | None]]  # where its bytes begin; where texts end, None: numbers

    def __len__(self) -> int:
        return len(self.offsets)

    def id(self, row: int) -> bytes | None:
        """Return a record's id; None if it has none."""
        return _text(self.buffer, self.ids_at, self.id_ends, row)

    def ids(self) -> Texts:
        """Return all ids; that of a record without one is empty."""
        ends = np.where(self.id_ends < 0, -1 - self.id_ends, self.id_ends)
        starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
        size = int(ends[-1]) if len(ends) else 0
        return Texts(
            np.frombuffer(self.buffer, np.uint8, size, self.ids_at).copy(), starts, ends.copy()
        )

    def kinds(self) -> NDArray[np.uint8]:
        """Return each record's kind."""
        return np.frombuffer(self.buffer, np.uint8, len(self), self.kinds_at)

    def value(self, row: int, field: int) -> bytes | float | None:
        """Return a record's value of a field; None for a text that is missing."""
        begin, ends = self.fields[field]
        if ends is None:
            number: float = struct.unpack_from("<d", self.buffer, begin + 8 * row)[0]
            return number
        return _text(self.buffer, begin, ends, row)

    def contents(self, row: int) -> Iterator[tuple[int, int]]:
        """Yield place and size of the bytes of all values of a record."""
        for begin, ends in self.fields:
            if ends is None:
                yield begin + 8 * row, 8
            else:
                first, last = _bounds(ends, row)
                yield begin + first, last - first

    @property
    def content_check_at(self) -> int:
        """Where the checksum of the contents stands."""
        return self.at + _CONTENT_CHECK_AT


def _bounds(ends: Longs, row: int) -> tuple[int, int]:
    last, first = int(ends[row]), int(ends[row - 1]) if row else 0
    return (-1 - first if first < 0 else first), (-1 - last if last < 0 else last)


def _text(buffer: memoryview, begin: int, ends: Longs, row: int) -> bytes | None:
    if ends[row] < 0:
        return None
    first, last = _bounds(ends, row)
    return bytes(buffer[begin + first : begin + last])


def pack(
    offsets: Longs,
    labels: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    ids: Texts,
    fields: Sequence[Texts | NDArray[np.float64]],
) -> memoryview:
    """Return records as a chunk without checksums; those that do not teach have no contents."""
    n, teaches = len(offsets), TEACHES[kinds]
    ends, own_ends = np.empty(n, np.int64), list[Longs]()
    id_bytes = lay_out(ids, np.ones(n, np.bool_), ends)
    sizes = []
    for column in fields:
        if isinstance(column, Texts):
            own_ends.append(np.empty(n, np.int64))
            sizes.append(lay_out(column, teaches, own_ends[-1]))
        else:
            sizes.append(8 * n)
    heads = b"".join(
        _FIELD.pack(not isinstance(column, Texts), n_bytes)
        for column, n_bytes in zip(fields, sizes, strict=True)
    )
    n_structure = len(heads) + 20 * n + 8 * n * len(own_ends) + id_bytes
    size = _HEAD.size + n_structure + n + sum(sizes)
    head = _HEAD.pack(_MAGIC, n, len(fields), 0, UNCHECKED, n_structure, size)
    chunk = np.empty(size, np.uint8)
    place = _put(chunk, 0, np.frombuffer(head + heads, np.uint8), offsets, labels, ends, *own_ends)
    gather(ids, ends, chunk[place : place + id_bytes])
    place = _put(chunk, place + id_bytes, kinds)
    for column, n_bytes in zip(fields, sizes, strict=True):
        if isinstance(column, Texts):
            gather(column, own_ends.pop(0), chunk[place : place + n_bytes])
        else:
            _put(chunk, place, np.where(teaches, column, np.nan))
        place += n_bytes
    return chunk.data


def _put(chunk: NDArray[np.uint8], place: int, *arrays: NDArray[Any]) -> int:
    """Write arrays from a place on, one behind the other; return where the last one ends."""
    for array in arrays:
        data = np.ascontiguousarray(array).view(np.uint8).ravel()
        chunk[place : place + len(data)] = data
        place += len(data)
    return place


def add_checksums(chunk: memoryview) -> None:
    """Complete a chunk that is to be written: one that only memory holds needs no checksums."""
    n_structure = _HEAD.unpack_from(chunk)[5]
    body = _HEAD.size + n_structure
    checks = zlib.crc32(chunk[_HEAD.size : body]), zlib.crc32(chunk[body:]) or 1
    _CHECKS.pack_into(chunk, _STRUCTURE_CHECK_AT, *checks)


def parse(buffer: memoryview, at: int, *, check: bool = False) -> RecordChunk:
    """Return the chunk that begins at a byte; one that is not as it was written is damaged."""
    try:
        magic, n, n_fields, crc, content_crc, n_structure, size = _HEAD.unpack_from(buffer, at)
        begin, end = at + _HEAD.size, at + size
        body = begin + n_structure
        if magic != _MAGIC or end > len(buffer) or body > end:
            raise DamagedError(f"no chunk begins at byte {at}")
        if check and zlib.crc32(buffer[begin:body]) != crc:
            raise DamagedError(f"the structure at byte {at} does not match its checksum")
        if (
            check
            and content_crc != UNCHECKED
            and (zlib.crc32(buffer[body:end]) or 1) != content_crc
        ):
            raise DamagedError(f"the contents at byte {at} do not match their checksum")
        heads = [_FIELD.unpack_from(buffer, begin + _FIELD.size * k) for k in range(n_fields)]
        place = begin + _FIELD.size * n_fields
        offsets = np.frombuffer(buffer, np.int64, n, place)
        labels = np.frombuffer(buffer, np.int32, n, place + 8 * n)
        place += 12 * n
        id_ends = np.frombuffer(buffer, np.int64, n, place)
        place += 8 * n
        content, fields = body + n, list[tuple[int, Longs | None]]()
        for is_numbers, n_bytes in heads:
            ends = None
            if not is_numbers:
                ends = np.frombuffer(buffer, np.int64, n, place)
                place += 8 * n
            fields.append((content, ends))
            content += n_bytes
    except (struct.error, ValueError) as error:
        raise DamagedError(f"no chunk begins at byte {at} ({error})") from error
    return RecordChunk(buffer, at, end, offsets, labels, id_ends, place, body, fields)


def relabelled(data: bytes, codes: NDArray[np.int32]) -> bytes:
    """Return chunks with `codes[label]` for each label: those of another order of the classes."""
    done, at = bytearray(data), 0
    while at < len(data):
        chunk = parse(memoryview(data), at, check=True)
        begin = at + _HEAD.size
        place = begin + _FIELD.size * len(chunk.fields) + 8 * len(chunk)
        labels = np.where(chunk.labels < 0, chunk.labels, codes[chunk.labels]).astype(np.int32)
        done[place : place + 4 * len(chunk)] = labels.tobytes()
        check = zlib.crc32(memoryview(done)[begin : chunk.kinds_at])
        struct.pack_into("<I", done, at + _STRUCTURE_CHECK_AT, check)
        at = chunk.end
    return bytes(done)


def erase_record(fd: int, chunk: RecordChunk, row: int) -> None:
    """Overwrite a record's contents; a power cut leaves it as it was, or without a checksum.

    That it was there stays known, and that the message of an update is still to come.
    """
    is_early = chunk.kinds()[row] == EARLY_UPDATE
    write_at(fd, UNCHECKED.to_bytes(4, "little"), chunk.content_check_at)
    os.fdatasync(fd)
    write_at(fd, bytes([EARLY_DELETE if is_early else ERASED]), chunk.kinds_at + row)
    for place, size in chunk.contents(row):
        write_at(fd, b"\0" * size, place)
    os.fdatasync(fd)


def columns(records: Sequence[LearnedRecord], names: Sequence[str]) -> dict[str, Column]:
    """Return the values of some records as the columns that the model learned."""
    found: dict[str, Column] = {}
    places = [(each.chunk, each.row) for each in records if each.chunk is not None]
    for k, name in enumerate(names):
        values = [chunk.value(row, k) for chunk, row in places]
        if places[0][0].fields[k][1] is None:
            found[name] = np.array(values, np.float64)
            continue
        sizes = [-1 if value is None else len(value) for value in values]  # type: ignore[arg-type]  # a text
        ends = np.cumsum(np.maximum(sizes, 0))
        missing = np.array(sizes) < 0
        data = b"".join([value for value in values if isinstance(value, bytes)])
        starts = ends - np.maximum(sizes, 0)
        found[name] = TextColumn(
            Texts(np.frombuffer(bytearray(data), np.uint8), starts, np.where(missing, -1, ends))
        )
    return found


class Segment:
    """Some records of a log: their chunks, and where each hash of an id stands among them.

    `firsts` and `places` hold the first record and the first byte of each chunk. The chunks stay
    in memory until the disk has them: after a sync that failed they are written again. `n_written`
    bytes are synced, `n_synced` can be found by the file's name too.
    """

    def __init__(self, number: int, path: Path | None) -> None:
        self.number, self.path = number, path
        self.n = self.n_bytes = self.n_written = self.n_synced = 0
        self.firsts: list[int] = []
        self.places: list[int] = []
        self.chunks: list[memoryview] = []
        self.is_sealed = False
        self._unsorted: list[Hashes | None] = []  # of the last chunks; None: not asked for yet
        self._runs: list[tuple[Hashes, NDArray[np.uint32]]] = []
        self._mapped: mmap.mmap | None = None

    def append(self, data: memoryview, n: int, hashes: Hashes | None) -> None:
        """Add a chunk of so many records."""
        self.chunks.append(data)
        self.note(n, len(data), hashes)

    def note(self, n: int, n_bytes: int, hashes: Hashes | None = None) -> None:
        """Take in that a chunk of so many records and bytes follows."""
        self.firsts.append(self.n)
        self.places.append(self.n_bytes)
        self._unsorted.append(hashes)
        self.n += n
        self.n_bytes += n_bytes

    def find(self, hashes: Hashes, hashed: Hashed) -> NDArray[np.int64]:
        """Return the records here with one of some hashes; `hashed` makes those of ids."""
        self._sort(hashed)
        found = []
        for held, at in self._runs:
            first = np.searchsorted(held, hashes, "left")
            hit = np.flatnonzero(held[np.minimum(first, len(held) - 1)] == hashes)
            last = np.searchsorted(held, hashes[hit], "right")
            found += [at[a:b] for a, b in zip(first[hit], last, strict=True)]
        return np.concatenate(found).astype(np.int64) if found else np.empty(0, np.int64)

    def _sort(self, hashed: Hashed) -> None:
        """Sort what came since; an open segment has few runs, each twice as long as the next."""
        if self._unsorted:
            first = len(self.places) - len(self._unsorted)
            new = np.concatenate(
                [
                    hashed(self.chunk(k).ids()) if each is None else each
                    for k, each in enumerate(self._unsorted, first)
                ]
            )
            begin = self.n - len(new)
            order = np.argsort(new, kind="stable")
            self._runs.append((new[order], (order + begin).astype(np.uint32)))
            self._unsorted.clear()
        while len(self._runs) > 1 and (
            self.is_sealed or len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0])
        ):
            (held, at), (other, other_at) = self._runs[-2:]
            held, at = np.concatenate((held, other)), np.concatenate((at, other_at))
            order = np.argsort(held, kind="stable")
            self._runs[-2:] = [(held[order], at[order])]

    def chunk(self, k: int) -> RecordChunk:
        """Return a chunk: from memory, or from the file once all of that is written."""
        if self.chunks:
            return parse(self.chunks[k], 0)
        if self._mapped is None:
            assert self.path is not None
            with self.path.open("rb") as file:
                self._mapped = mmap.mmap(file.fileno(), self.n_bytes, access=mmap.ACCESS_READ)
        return parse(memoryview(self._mapped), self.places[k])

    def release(self) -> None:
        """Free the memory of chunks that the disk has; an open segment's stay."""
        if self.is_sealed and self.n_written == self.n_bytes:
            self.chunks = []

    def store(self, n_bytes: int) -> None:
        """Write the file up to a length, and sync it; on the writing thread."""
        if self.path is None or self.n_written >= n_bytes:
            return
        make_private_folder(self.path.parent)
        # What stands behind the records of a file that a killed run left belongs to nothing.
        fd = open_private(self.path, os.O_WRONLY | (0 if self.n_written else os.O_TRUNC))
        try:
            for place, data in zip(self.places, self.chunks, strict=False):
                if self.n_written <= place < n_bytes:
                    if not data.readonly:  # what another member sends has its own
                        add_checksums(data)
                    write_at(fd, data, place)
            os.fsync(fd)
        finally:
            os.close(fd)
        self.n_written = n_bytes
