"""Records of what was learned, as columns in pieces of bytes: chunks, and segments of them.

A chunk holds the records of one batch. Its structure (offsets, labels, ids, and where each value
ends) and its contents (kinds and the values of the model's fields) have a checksum each: to erase
a text, its bytes are overwritten in place, and the second checksum is given up.

Layout, little endian: the head; for each field whether it has numbers, and its bytes; `offsets`
int64; `labels` int32; `ends` of the ids and of each field of texts, int64, −1−end where there is
none; the ids' bytes; `kinds` uint8; the fields' bytes.
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.config.model import FieldKind, holds_floats
from consumers.kernels import learned_records as kernels
from consumers.kernels.json_scan import gather, lay_out
from consumers.kernels.learned_records import CORRECTED, LATE_UPDATE, WAITING, WAITING_UPDATE
from consumers.messages import Column
from consumers.private_files import (
    MappedFiles,
    make_private_folder,
    open_private,
    sync_folder,
    write_at,
)
from streamnb import TextColumn
from streamnb.kernels.layout import Texts

AWAITED = (WAITING, WAITING_UPDATE)  # these have more behind the model's fields
OF_STREAM = (*range(7), *AWAITED, LATE_UPDATE)  # each stands in the place of its message

MAGIC = b"SNL1"
HEAD = struct.Struct("<4sIIIIIQ")  # magic, records, fields, both checksums, structure, all bytes
STRUCTURE_CHECK_AT, _CONTENT_CHECK_AT = 12, 16
_CHECKS = struct.Struct("<II")
_FIELD, LABEL_HEAD = struct.Struct("<QQ"), struct.Struct("<dq")  # a waiting label's time, offset
RUN_RECORDS = 1 << 18  # the longest run of an index
RECORDS_AT_ONCE = 1 << 10  # of a kernel that keeps the lock: some 0.1 ms
UNCHECKED = 0  # the contents' checksum once something of them was erased
NumberColumns: TypeAlias = tuple[bool, ...]
Longs: TypeAlias = NDArray[np.int64]
Hashes: TypeAlias = NDArray[np.uint64]
Hashed: TypeAlias = Callable[[Texts], Hashes]
HashesMade: TypeAlias = Callable[[int, int], Iterable[tuple[int, Hashes]]]


class DamagedError(Exception):
    """A chunk is not what was written."""


class Lost(NamedTuple):
    """A segment that was not taken up, by the settings that wrote it; each start may try again."""

    names: list[str]
    per: str | None
    is_damaged: bool = True  # or gone; else other settings read then, which is no trouble

    @property
    def given_up(self) -> Lost:
        """It as one that is never tried again, by a field that no message has."""
        return self._replace(names=["", *filter(None, self.names)])

    def is_of(self, names: Iterable[str], per: str | None) -> bool:
        """Return whether such settings wrote it."""
        return (sorted(filter(None, self.names)), self.per) == (sorted(names), per)


class LearnedRecord(NamedTuple):
    """What one message did; `number` counts the records of its log.

    Without an id its message is known by its place alone. `row` is that of a message of the batch
    under way, which is not appended yet.
    """

    number: int
    kind: int
    offset: int
    label: int
    id: bytes | None
    row: int = -1
    more: bytes | None = None  # what stands behind the model's fields, if that was asked for


class RecordChunk(msgspec.Struct):
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

    def ids(self) -> Texts:
        """Return all ids; that of a record without one is empty."""
        ends = np.where(self.id_ends < 0, -1 - self.id_ends, self.id_ends)
        starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
        size = int(ends[-1]) if len(ends) else 0
        data = np.frombuffer(self.buffer, np.uint8, size, self.ids_at).copy()
        return Texts(data, starts, ends.copy())

    def kinds(self) -> NDArray[np.uint8]:
        """Return each record's kind."""
        return np.frombuffer(self.buffer, np.uint8, len(self), self.kinds_at)

    def contents(self, rows: Longs) -> Longs:
        """Return of each field and record where its value begins and ends."""
        spans = np.empty((len(self.fields), len(rows), 2), np.int64)
        for own, (begin, ends) in zip(spans, self.fields, strict=True):
            if ends is None:
                own[:] = begin + 8 * rows[:, np.newaxis] + np.array([0, 8])
            else:
                last, before = ends[rows], np.where(rows > 0, ends[rows - 1], 0)
                own[:, 0] = begin + np.where(before < 0, -1 - before, before)
                own[:, 1] = begin + np.where(last < 0, -1 - last, last)
        return spans

    @property
    def content_check_at(self) -> int:
        """Where the checksum of the contents stands."""
        return self.at + _CONTENT_CHECK_AT


def holding(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which kinds have contents: those that teach, and those of late labels."""
    found: NDArray[np.bool_] = kernels.TEACHING[kinds] | (kinds >= WAITING)
    return found


def pack(
    offsets: Longs, labels: NDArray[np.int32], kinds: NDArray[np.uint8], ids: Texts,
    fields: Sequence[Texts | NDArray[np.float64]],
) -> memoryview:  # fmt: skip
    """Return records as a chunk without checksums; not all kinds have contents."""
    n, holds = len(offsets), holding(kinds)
    ends, own_ends, sizes = np.empty(n, np.int64), list[Longs](), list[int]()
    id_bytes = lay_out(ids, np.ones(n, np.bool_), ends)
    for column in fields:
        if isinstance(column, Texts):
            own_ends.append(np.empty(n, np.int64))
            sizes.append(lay_out(column, holds, own_ends[-1]))
        else:
            sizes.append(8 * n)
    heads = b"".join(
        _FIELD.pack(not isinstance(column, Texts), n_bytes)
        for column, n_bytes in zip(fields, sizes, strict=True)
    )
    n_structure = len(heads) + 20 * n + 8 * n * len(own_ends) + id_bytes
    size = HEAD.size + n_structure + n + sum(sizes)
    head = HEAD.pack(MAGIC, n, len(fields), 0, UNCHECKED, n_structure, size)
    chunk = np.empty(size, np.uint8)
    place = _put(chunk, 0, np.frombuffer(head + heads, np.uint8), offsets, labels, ends, *own_ends)
    gather(ids, ends, chunk[place : place + id_bytes])
    place = _put(chunk, place + id_bytes, kinds)
    for column, n_bytes in zip(fields, sizes, strict=True):
        if isinstance(column, Texts):
            gather(column, own_ends.pop(0), chunk[place : place + n_bytes])
        else:
            _put(chunk, place, np.where(holds, column, np.nan))
        place += n_bytes
    return chunk.data


def _put(chunk: NDArray[np.uint8], place: int, *arrays: NDArray[Any]) -> int:
    """Write arrays from a place on, one behind the other; return where the last one ends."""
    for each in arrays:
        data = np.ascontiguousarray(each).view(np.uint8).ravel()
        chunk[place : place + len(data)] = data
        place += len(data)
    return place


def add_checksums(chunk: memoryview) -> None:
    """Complete a chunk that is to be written: one that only memory holds needs no checksums."""
    n_structure = HEAD.unpack_from(chunk)[5]
    body = HEAD.size + n_structure
    checks = zlib.crc32(chunk[HEAD.size : body]), zlib.crc32(chunk[body:]) or 1
    _CHECKS.pack_into(chunk, STRUCTURE_CHECK_AT, *checks)


def _head(buffer: memoryview, at: int, n_classes: int | None) -> tuple[int, int, int, int, int]:
    """Return a chunk's records and fields, where its structure begins and ends, and its own end."""
    magic, n, n_fields, crc, content_crc, n_structure, size = HEAD.unpack_from(buffer, at)
    begin, body, end = at + HEAD.size, at + HEAD.size + n_structure, at + size
    if magic != MAGIC or end > len(buffer) or body > end:
        raise DamagedError(f"no chunk begins at byte {at}")
    if n_classes is None:
        return n, n_fields, begin, body, end
    if zlib.crc32(buffer[begin:body]) != crc:
        raise DamagedError(f"the structure at byte {at} does not match its checksum")
    if content_crc not in {UNCHECKED, zlib.crc32(buffer[body:end]) or 1}:
        raise DamagedError(f"the contents at byte {at} do not match their checksum")
    if not kernels.is_sound(np.frombuffer(buffer[:end].toreadonly(), np.uint8), at, n_classes):
        labels = np.frombuffer(buffer, np.int32, n, kernels.array_places(at, n, n_fields)[1])
        wrong = [y for y in labels.tolist() if not -1 <= y < n_classes]
        what = f"label {wrong[0]} of {n_classes} classes" if wrong else "a column is not whole"
        raise DamagedError(f"{what}, in the chunk at byte {at}")
    return n, n_fields, begin, body, end


def checked(buffer: memoryview, at: int, n_classes: int, columns: NumberColumns) -> tuple[int, int]:
    """Return how many records a chunk has, and its end, if it is as it was written."""
    try:
        n, n_fields, begin, _, end = _head(buffer, at, n_classes)
        heads = struct.unpack_from(f"<{2 * n_fields}Q", buffer, begin)
    except (struct.error, ValueError) as error:
        raise DamagedError(f"no chunk begins at byte {at} ({error})") from error
    own = tuple(map(bool, heads[::2]))
    if own[: len(columns)] != columns or any(own[len(columns) :]):  # only texts stand behind
        raise DamagedError("it was written with message.weight, or is to be read with it")
    return n, end


def parse(
    buffer: memoryview, at: int, *, check: bool = False, n_classes: int = kernels.ANY_CLASS
) -> RecordChunk:
    """Return the chunk that begins at a byte; one that is not as it was written is damaged."""
    try:
        n, n_fields, begin, body, end = _head(buffer, at, n_classes if check else None)
        heads = [_FIELD.unpack_from(buffer, begin + _FIELD.size * k) for k in range(n_fields)]
        offsets_at, labels_at, id_ends_at, ends_at = kernels.array_places(at, n, n_fields)
        offsets = np.frombuffer(buffer, np.int64, n, offsets_at)
        labels = np.frombuffer(buffer, np.int32, n, labels_at)
        id_ends = np.frombuffer(buffer, np.int64, n, id_ends_at)
        place, content, fields = int(ends_at), body + n, list[tuple[int, Longs | None]]()
        for is_numbers, n_bytes in heads:
            ends = None if is_numbers else np.frombuffer(buffer, np.int64, n, place)
            place += 0 if is_numbers else 8 * n
            fields.append((content, ends))
            content += n_bytes
    except (struct.error, ValueError) as error:
        raise DamagedError(f"no chunk begins at byte {at} ({error})") from error
    return RecordChunk(buffer, at, end, offsets, labels, id_ends, place, body, fields)


class FoundRecords(msgspec.Struct, frozen=True):
    """Some records of a log, in its order: their numbers, and where their values lie in `data`.

    `spans` has a row for each, with the columns of `locate`.
    """

    numbers: Longs
    spans: Longs
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.numbers)

    def some(self, chosen: NDArray[np.bool_] | Longs) -> FoundRecords:
        """Return some of them: those that a mask names, or ascending places."""
        return FoundRecords(self.numbers[chosen], self.spans[chosen], self.data)

    def followed_by(
        self, numbers: Longs, head: Longs, columns: Sequence[Texts | NDArray[np.float64]]
    ) -> FoundRecords:
        """Return these and others: `head` has kind, offset, label; `columns` ids and fields."""
        n, pieces, place = len(numbers), [self.data], len(self.data)
        spans = no_spans(n, len(columns) - 1)
        spans[:, : kernels.ID] = head
        for k, column in enumerate(columns):
            at, ends = kernels.ID + 2 * k, np.arange(8, 8 * n + 1, 8)
            if isinstance(column, Texts):
                data = np.empty(lay_out(column, np.ones(n, np.bool_), ends), np.uint8)
                gather(column, ends, data)
            else:
                data = np.ascontiguousarray(column).view(np.uint8)
            reach = np.where(ends < 0, -1 - ends, ends)
            spans[1:, at], spans[0, at] = reach[:-1] + place, place
            spans[:, at + 1] = np.where(ends < 0, -1, reach + place)
            pieces.append(data)
            place += len(data)
        numbers, spans = np.append(self.numbers, numbers), np.concatenate((self.spans, spans))
        return FoundRecords(numbers, spans, np.concatenate(pieces))

    @property
    def labels(self) -> NDArray[np.int32]:
        """Each record's label."""
        return self.spans[:, kernels.LABEL].astype(np.int32)

    def texts(self, column: int) -> Texts:
        """Return the texts that begin at a column of the spans."""
        return Texts(self.data, self.spans[:, column].copy(), self.spans[:, column + 1].copy())

    def bytes_of(self, column: int, size: int, rows: Longs) -> NDArray[np.uint8]:
        """Return the first bytes of the values that begin at a column of the spans, as a grid."""
        found: NDArray[np.uint8] = self.data[self.spans[rows, column, np.newaxis] + np.arange(size)]
        return found

    def columns(self, fields: Mapping[str, FieldKind]) -> dict[str, Column]:
        """Return the values of the model's fields as the columns that it learned."""
        found: dict[str, Column] = {}
        for k, (name, kind) in enumerate(fields.items()):
            at = kernels.FIELDS + 2 * k
            if holds_floats(kind):
                values = self.bytes_of(at, 8, np.arange(len(self)))
                found[name] = values.view(np.float64).ravel()
            else:
                found[name] = TextColumn(self.texts(at))
        return found

    def parts(self, n_fields: int) -> list[str | None]:
        """Return the part that each correction has taught; None if the record's own log's did."""
        at = kernels.FIELDS + 2 * n_fields
        is_given = (self.spans[:, kernels.KIND] == CORRECTED) & (self.spans[:, at + 1] >= 0)
        if not is_given.any():
            return [None] * len(self)
        found = zip(listed(self.texts(at)), is_given.tolist(), strict=True)
        return [each.decode() if is_own and each else None for each, is_own in found]

    def records(self, n_fields: int | None = None) -> list[LearnedRecord]:
        """Return them one by one; with what stands behind the model's fields, if so many."""
        kinds, offsets, labels = self.spans[:, : kernels.ID].T.tolist()
        ids, n = listed(self.texts(kernels.ID)), len(self)
        at = None if n_fields is None else kernels.FIELDS + 2 * n_fields
        more: Sequence[bytes | None] = [None] * n if at is None else listed(self.texts(at))
        own = zip(self.numbers.tolist(), kinds, offsets, labels, ids, [-1] * n, more, strict=True)
        return [LearnedRecord(*each) for each in own]


def listed(texts: Texts) -> list[bytes | None]:
    """Return texts one by one; None for those that are missing."""
    data = texts.data.tobytes()
    bounds = zip(texts.starts.tolist(), texts.ends.tolist(), strict=True)
    return [None if end < 0 else data[start:end] for start, end in bounds]


def no_spans(n: int, n_fields: int) -> Longs:
    """Return room for the spans of records, with one field more than the model's."""
    return np.full((n, kernels.FIELDS + 2 * (n_fields + 1)), -1, np.int64)


class Values:
    """The values of records, copied to lie one behind the other in `data`; `spans` say where."""

    def __init__(self) -> None:
        self.data = np.empty(0, np.uint8)

    def add(self, piece: NDArray[np.uint8], spans: Longs) -> None:
        """Copy the values of some records out of the bytes that they lie in."""
        place, size = len(self.data), int(kernels.n_bytes(spans))
        self.data = np.concatenate((self.data, np.empty(size, np.uint8)))
        for first in range(0, len(spans), RECORDS_AT_ONCE):
            own = spans[first : first + RECORDS_AT_ONCE]
            place = int(kernels.collect(piece, own, self.data, place))


def runs_of(values: Longs) -> Iterator[tuple[int, int]]:
    """Yield where each run of equal values begins and ends."""
    cuts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return itertools.pairwise(cuts if len(values) else ())


class PendingIds:
    """Hashes of ids whose message is still to come, by the segment that says so."""

    def __init__(self) -> None:
        self._by_segment: dict[int, list[Hashes]] = {}
        self._sorted: Hashes = np.empty(0, np.uint64)
        self._new: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._new) or len(self._sorted) > 0

    def add(self, segment: int, hashes: Hashes) -> None:
        """Take in what a segment says."""
        if len(hashes):
            self._by_segment.setdefault(segment, []).append(hashes)
            self._new.update(hashes.tolist())

    def forget(self, first: int) -> None:
        """Drop what segments before one have said."""
        gone = [number for number in self._by_segment if number < first]
        for number in gone:
            del self._by_segment[number]
        if gone:
            left = [each for own in self._by_segment.values() for each in own]
            self._sorted = np.unique(np.concatenate([np.empty(0, np.uint64), *left]))
            self._new.clear()

    def among(self, hashes: Hashes) -> NDArray[np.bool_] | None:
        """Return which hashes are of such ids, or None if there are none."""
        if len(self._new) > len(self._sorted) // 8:
            new = np.fromiter(self._new, np.uint64, len(self._new))
            self._sorted = np.union1d(self._sorted, new)
            self._new.clear()
        if not len(self._sorted):
            return None
        at = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        found: NDArray[np.bool_] = self._sorted[at] == hashes
        if self._new:
            found |= np.isin(hashes, np.fromiter(self._new, np.uint64))
        return found


class IdRun:
    """Records behind a number, in chains of one remainder of their hashes each."""

    def __init__(self, begin: int) -> None:
        self.begin, self.n = begin, 0
        self.hashes: Hashes = np.empty(0, np.uint64)
        self.after = self.heads = np.empty(0, np.int32)  # the next record of a chain; the first

    def add(self, hashes: Hashes) -> None:
        """Enter the next records."""
        begin, self.n = self.n, self.n + len(hashes)
        if self.n > len(self.hashes):
            size = 1 << (self.n - 1).bit_length()
            held, self.hashes = self.hashes, np.empty(size, np.uint64)
            self.hashes[:begin] = held[:begin]
            self.after = np.empty(size, np.int32)
            self.heads = np.full(size, kernels.NOBODY, np.int32)
            self.hashes[begin : self.n] = hashes
            begin = 0
        else:
            self.hashes[begin : self.n] = hashes
        kernels.enter(self.hashes, begin, self.n, self.heads, self.after)

    def find(self, hashes: Hashes) -> Longs:
        """Return the numbers of the records with one of some hashes, in no order."""
        n, found = 2 * len(hashes), np.empty(0, np.int64)
        while n > len(found):
            found = np.empty(n, np.int64)
            n = int(kernels.find(hashes, self.hashes, self.heads, self.after, found))
        return found[:n] + self.begin

    def knows(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return which hashes are of an id that has records here."""
        known: NDArray[np.bool_] = np.zeros(len(hashes), np.bool_)
        kernels.note_known(hashes, self.hashes, self.heads, self.after, known)
        return known


class IdIndex:
    """Where each hash of an id stands among a log's records: runs of them, made when asked."""

    def __init__(self) -> None:
        self._runs: list[IdRun] = []
        self._begin = self._end = 0  # the records that are in no run yet

    def add(self, number: int, n: int, hashes: Hashes | None) -> None:
        """Take in `n` records from a number on, behind all others."""
        if self._begin == self._end:
            self._begin = number
            if hashes is not None:
                self._put(number, hashes)
                self._begin = number + n
        self._end = number + n

    def forget(self, floor: int) -> None:
        """Drop runs of records below a number alone."""
        self._runs = [each for each in self._runs if each.begin + each.n > floor]
        self._begin = min(max(self._begin, floor), self._end)

    def find(self, hashes: Hashes, made: HashesMade) -> Longs:
        """Return the numbers of the records with one of some hashes, ascending.

        `made` yields the hashes of the records from one number to another, in pieces that begin at
        a number each.
        """
        self._enter(made)
        none = np.empty(0, np.int64)
        return np.sort(np.concatenate([none, *(each.find(hashes) for each in self._runs)]))

    def knows(self, hashes: Hashes, made: HashesMade) -> NDArray[np.bool_]:
        """Return which hashes are of an id that has records."""
        self._enter(made)
        known: NDArray[np.bool_] = np.zeros(len(hashes), np.bool_)
        for each in self._runs:
            known |= each.knows(hashes)
        return known

    def _enter(self, made: HashesMade) -> None:
        """Enter what came since."""
        begin, self._begin = self._begin, self._end
        for number, hashes in made(begin, self._end) if begin < self._end else ():
            self._put(number, hashes)

    def _put(self, number: int, hashes: Hashes) -> None:
        run = self._runs[-1] if self._runs else None
        if run is None or run.n >= RUN_RECORDS or run.begin + run.n != number:
            run = IdRun(number)
            self._runs.append(run)
        run.add(hashes)


class Segment:
    """Some records of a log, in chunks.

    `firsts` and `places` hold the first record and the first byte of each chunk. The bytes are
    `held` in memory until the disk has them: after a sync that failed they are written again.
    `n_written` bytes are synced, `n_synced` can be found by the file's name too.
    """

    def __init__(self, number: int, path: Path | None, files: MappedFiles) -> None:
        self.number, self.path, self._files = number, path, files
        self.n = self.n_bytes = self.n_written = self.n_synced = 0
        self.firsts, self.places = array("q"), array("q")
        # Chunks lie one behind the other, so that one call of a kernel finds records of all.
        self.held: NDArray[np.uint8] | None = np.empty(0, np.uint8)
        self.is_sealed = False
        self._starts: tuple[Longs, Longs] | None = None  # of the chunks, as arrays

    def append(self, data: memoryview, n: int) -> None:
        """Add a chunk of so many records."""
        held, end = self.held, self.n_bytes + len(data)
        assert held is not None
        if end > len(held):  # the thread that writes may still read the one before
            held = np.concatenate((held[: self.n_bytes], np.empty(end + len(data), np.uint8)))
            self.held = held
        held[self.n_bytes : end] = data
        self.note(n, len(data))

    def note(self, n: int, n_bytes: int) -> None:
        """Take in that a chunk of so many records and bytes follows."""
        self.firsts.append(self.n)
        self.places.append(self.n_bytes)
        self._starts = None
        self.n += n
        self.n_bytes += n_bytes

    def locate(self, at: Longs, spans: Longs) -> NDArray[np.uint8]:
        """Note where the values of some records lie, ascending; return the bytes they lie in."""
        if self._starts is None:
            self._starts = np.array(self.firsts, np.int64), np.array(self.places, np.int64)
        firsts, places = self._starts
        data = self._bytes()
        for begin in range(0, len(at), RECORDS_AT_ONCE):
            own = at[begin : begin + RECORDS_AT_ONCE]
            n_sound = kernels.locate(data, firsts, places, own, spans[begin:])
            if n_sound < len(own):
                raise DamagedError(f"{self.path}: record {own[n_sound]} does not lie in it")
        return data

    def _bytes(self) -> NDArray[np.uint8]:
        """Return all chunks, from memory or from the file once all of that is written."""
        if self.held is not None:
            data = self.held[: self.n_bytes]
            data.flags.writeable = False  # the only kind that kernels take
            return data
        assert self.path is not None
        return self._files.data(self.path, self.n_bytes)

    def release(self) -> None:
        """Free the memory of what the disk has; an open segment's stays."""
        if self.is_sealed and self.n_written == self.n_bytes:
            self.held = None

    def store(self, n_bytes: int) -> None:
        """Write the file up to a length, and sync it; on the writing thread."""
        if self.path is None or self.held is None or self.n_written >= n_bytes:
            return
        held, places = self.held, self.places.tolist()
        make_private_folder(self.path.parent)
        # What stands behind the records of a file that a killed run left belongs to nothing.
        fd = open_private(self.path, os.O_WRONLY | (0 if self.n_written else os.O_TRUNC))
        try:
            for place, end in itertools.pairwise([*(p for p in places if p < n_bytes), n_bytes]):
                if place >= self.n_written:
                    add_checksums(held[place:end].data)
                    write_at(fd, held[place:end].data, place)
            os.fsync(fd)
        finally:
            os.close(fd)
        self.n_written = n_bytes


def store(targets: Sequence[tuple[Segment, int]], folder: Path | None) -> None:
    """Write segments up to a length each; with a folder, sync the names up to there too."""
    for segment, n_bytes in targets:
        segment.store(n_bytes)
    if folder is None:
        return
    folders = {segment.path.parent for segment, _ in targets if segment.path is not None}
    for each in (*folders, folder, folder.parent) if folders else ():
        sync_folder(each)
    for segment, n_bytes in targets:
        segment.n_synced = n_bytes
