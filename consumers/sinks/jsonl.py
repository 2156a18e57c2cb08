"""A file of JSON lines as a sink: the value of each record is appended as a line.

A process killed in the middle of a line leaves a torn one. It was never flushed, so it is written
again after the checkpoint; the next run cuts it off before its own first line. What cannot be the
beginning of a record is somebody else's: it stays, and records follow behind a line break.

A checkpoint knows how long the file was. What stands behind that after a kill comes again, in the
same order if the log has one: it is recognised line by line and not written twice. From the first
that is not the expected one on, records are recognised by their message's place in its log and by
their key: another partition may come first now, or a message be judged that was not; and a log that
was rewritten has other messages at the same places. Lines that have not come by then are listed in
the checkpoint. Nothing is ever cut off for that, so a reader that follows the file sees each line
once, and a line that somebody else wrote is safe.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from consumers.errors import SinkError
from consumers.messages import CheckpointEntry, Partition
from consumers.private_files import (
    Overwrites,
    make_private_folder,
    open_private,
    sync_names,
    tighten,
    write_at,
)
from consumers.sinks.records import REJECT_BEGINS, Record, is_json, is_output, key_of

_WRITE_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
_STRING = re.compile(rb"(?:[^\"\\]|\\.)*+", re.DOTALL)
# What stands in front of the first string of a prediction or a reject, and what behind it.
_BESIDE = ((b'{"id":"', b'","time_ms":'), (REJECT_BEGINS, b'","detail":"'))
# How many lines that never came again are taken over from a checkpoint: 64 MiB.
_CARRIED_MAX = 1 << 22

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class JsonLinesSink:
    """Appends to a file; creates it and its folder for their owner alone.

    An existing file that its owner's group may read, but nobody else, keeps its mode: so another
    program can be given access.

    What could not be written stays in the sink, to the byte: once the disk has space again, the
    next flush continues in the middle of the line. If syncing fails, the system may drop what was
    written and call the file safe at the next attempt: so it is written again before that.

    `name` is that of its entry in the checkpoint. Whoever overwrites lines of the file meanwhile
    notes it in `overwrites`. `SinkError`: the file cannot be opened or repaired.
    """

    n_refused = 0  # a file takes records of any size

    def __init__(self, path: Path, name: str = "output") -> None:
        self.name = name
        self.path = Path(path)
        self.overwrites = Overwrites()  # what others erase in the file meanwhile
        self._repeats: _Repeats | None = None
        self._pending = bytearray()
        self._is_doubtful = False  # the last sync failed
        self._safe_bytes = self._checksum = 0  # the file's length at the last sync; of what follows
        try:
            make_private_folder(self.path.parent)
            # O_NONBLOCK: a named pipe whose reader has stopped refuses like a full disk, and does
            # not block for ever. It means nothing to a file.
            self._fd = _opened(self.path, os.O_RDWR | os.O_APPEND | os.O_NONBLOCK)
        except OSError as error:
            raise self._error("cannot be opened", error) from error
        try:
            self._mend()
            self._safe_bytes = os.fstat(self._fd).st_size
        except OSError as error:
            os.close(self._fd)
            raise self._error("cannot be made ready", error) from error

    @property
    def is_file(self) -> bool:
        """Whether it has a length to go on from; a pipe or a device has none."""
        return stat.S_ISREG(os.fstat(self._fd).st_mode)

    @property
    def n_pending_bytes(self) -> int:
        """Size of what is not written yet."""
        return len(self._pending)

    def add(self, records: Sequence[Record]) -> None:
        """Take records, also if writing raises `SinkError`; write once a megabyte is buffered."""
        if self._repeats is not None:
            records = self._without_repeats(self._repeats, records)
        for record in records:
            self._pending += record.value
            self._pending += b"\n"
        if len(self._pending) >= _WRITE_BYTES:
            self._write()

    def flush(self, timeout_s: float) -> None:  # noqa: ARG002 - a disk knows no time-out
        """Write everything and sync the file, or raise `SinkError`."""
        self._write()
        try:
            status = os.fstat(self._fd)
            if stat.S_ISREG(status.st_mode):  # a pipe or a terminal has no disk
                if self._is_doubtful:
                    self._write_again(status.st_size)
                self._is_doubtful = True
                os.fsync(self._fd)
                self._is_doubtful, self._safe_bytes, self._checksum = False, status.st_size, 0
        except OSError as error:
            raise self._error("could not be made safe", error) from error

    def close(self) -> None:
        """Flush what can be flushed and close the file."""
        try:
            self.flush(0.0)
        except SinkError as error:
            log.warning("closed without being flushed", reason=str(error))
        os.close(self._fd)

    def pack(self) -> CheckpointEntry:
        """Return how long the file is and what of it is still to come again; after a flush."""
        size = os.fstat(self._fd).st_size
        return self._repeats.pack(size) if self._repeats else CheckpointEntry({"length": size})

    def unpack(self, entry: CheckpointEntry) -> None:
        """Expect what had not come, and the lines behind a checkpoint's length, to come again."""
        length = entry.values["length"]
        try:
            size = self._without_zeros(length, os.fstat(self._fd).st_size)
        except OSError as error:
            raise self._error("cannot be made ready", error) from error
        # A file that is shorter was put aside, and with it what had not come.
        left = _unpacked(entry) if size >= length else {}
        if size > length or left:
            self._repeats = _Repeats(self._fd, length, size, left)

    def _without_zeros(self, begin: int, size: int) -> int:
        """Cut the file off before a line behind a place that has a zero byte; return its size.

        JSON has none: a page that the disk dropped, as after a sync that failed, reads so. The
        records from there on come again.
        """
        line = at = begin
        while at < size and (data := os.pread(self._fd, min(_WRITE_BYTES, size - at), at)):
            zero = data.find(b"\0")
            line_end = data.rfind(b"\n", 0, zero if zero >= 0 else len(data))
            line = at + line_end + 1 if line_end >= 0 else line
            if zero >= 0:
                os.ftruncate(self._fd, line)
                self._safe_bytes = min(self._safe_bytes, line)
                detail = f"from byte {line} on the disk lost records, which come again"
                log.warning("records_lost_by_disk", path=str(self.path), detail=detail)
                return line
            at += len(data)
        return size

    def _without_repeats(self, repeats: _Repeats, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records that do not stand in the file already."""
        new = [each for each in records if not repeats.take(each)]
        if records and not repeats.is_begun:
            # The run before may have ended because its lines could not be synced.
            repeats.is_begun = True
            size = os.fstat(self._fd).st_size
            self._safe_bytes, self._checksum = repeats.begin, repeats.checksum(size)
            self._is_doubtful = True
        if (new or repeats.is_over) and not repeats.is_warned and repeats.n_unknown:
            repeats.is_warned = True
            log.warning(
                "records_may_come_twice",
                path=str(self.path),
                detail=f"from byte {repeats.at} on stand other lines than those that come again",
            )
        if repeats.is_over:
            self._repeats = None
        return new

    def _write(self) -> None:
        """Write everything pending."""
        try:
            while self._pending:
                n = os.write(self._fd, self._pending)
                self._checksum = zlib.crc32(memoryview(self._pending)[:n], self._checksum)
                del self._pending[:n]
        except OSError as error:
            raise self._error("could not be written to", error) from error

    def _write_again(self, end: int) -> None:
        """Write what follows the last successful sync once more, in its place."""
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags & ~os.O_APPEND)
        try:
            at, checksum, is_lost = self._safe_bytes, 0, False
            while at < end:
                with self.overwrites.lock:
                    data = os.pread(self._fd, min(_WRITE_BYTES, end - at), at)
                    write_at(self._fd, data, at)
                if not data:
                    break
                at, checksum = at + len(data), zlib.crc32(data, checksum)
                is_lost |= b"\0" in data  # JSON has none: a page that was dropped reads so
        finally:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags)
        # Once a text was erased in there, the sum says nothing of the rest.
        is_erased = self.overwrites.end > self._safe_bytes
        if is_lost or (checksum != self._checksum and not is_erased):
            raise OSError(
                errno.EIO, "the disk lost records; they are written again after a restart"
            )

    def _mend(self) -> None:
        """Repair the end of the file: cut off a torn line of ours, complete any other."""
        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            sync_names(self.path.resolve().parent)  # else a power cut may leave it without a name
        size = os.fstat(self._fd).st_size
        length, tail = _TAIL_BYTES, b""
        while len(tail) < size and tail.count(b"\n") < 2:
            begin = max(0, size - length)
            tail = os.pread(self._fd, size - begin, begin)
            length *= 4
        before, newline, torn = tail.rpartition(b"\n")
        if not torn:
            return
        is_whole = is_json(torn)  # without a line end, as some editors leave it
        line_before = before.rpartition(b"\n")[2] if newline else None
        if not is_whole and _is_torn_record(torn, line_before):
            os.ftruncate(self._fd, size - len(torn))
            log.info("output_mended", path=str(self.path), cut_bytes=len(torn))
            return
        os.write(self._fd, b"\n")
        if not is_whole:
            detail = "its last line is no record; it is kept, and records follow behind it"
            log.warning("output_is_of_others", path=str(self.path), detail=detail)

    def _error(self, what: str, error: OSError) -> SinkError:
        """Return the error: the file, the reason, the way out."""
        return SinkError(
            f"{self.path}: {what} ({error.strerror}), {len(self._pending)} bytes wait; "
            "make room, set the permissions, or name another place in predictions.to or rejects.to"
        )


class _Lines:
    """Lines of one partition that are expected to come again: 17 bytes each are held."""

    def __init__(self, offsets: NDArray[np.int64], keys: NDArray[np.int64]) -> None:
        order = np.lexsort((keys, offsets))
        offsets, keys = offsets[order], keys[order]
        is_new = np.ones(len(order), np.bool_)  # a line that stands there twice comes once
        is_new[1:] = (np.diff(offsets) != 0) | (np.diff(keys) != 0)
        self.offsets, self.keys = (_as_array(each[is_new]) for each in (offsets, keys))
        self._came = bytearray(len(self.offsets))
        self.n_left = len(self.offsets)

    def find(self, offset: int, key: int) -> tuple[bool, bool]:
        """Return whether a line with that offset and key is left, and whether another stands there.

        The line counts as come from then on.
        """
        k = bisect_left(self.offsets, offset)
        begin = k
        while k < len(self.offsets) and self.offsets[k] == offset:
            if self.keys[k] == key:
                is_left = not self._came[k]
                self._came[k] = True
                self.n_left -= is_left
                return is_left, False
            k += 1
        return False, k > begin

    def left(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return offsets and keys of those that have not come."""
        is_left = np.frombuffer(self._came, np.uint8) == 0
        offsets, keys = (np.frombuffer(each, np.int64) for each in (self.offsets, self.keys))
        return offsets[is_left], keys[is_left]


class _Repeats:
    """The lines of a file from a place on, which are expected to come again: in order, or by place.

    By place, a line is held until it has come; those of a partition's predictions also no longer
    than until one comes behind the last of them, since they come in the order of the log. Rejects
    do not: a correction or a late label may be refused long after those behind it. The checkpoint
    has what is left, and the file's whole length: nothing before that is read again. So at most
    `_CARRIED_MAX` lines of earlier runs are held, and those between a checkpoint and a kill.

    `n_unknown`: so many of those that are looked for by place say none, as other people's do, or
    have another key than what comes from there.
    """

    def __init__(self, fd: int, begin: int, end: int, left: Mapping[Partition, _Lines]) -> None:
        self.begin = self.at = begin  # where the next of them stands, as long as they are in order
        self.end = end
        self.n_unknown = 0
        self.is_begun = self.is_warned = False
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._read = begin
        self._rest = b""
        # By partition the rest, once one came out of order.
        self._left = self._by_place(left) if left else None

    @property
    def is_over(self) -> bool:
        """Whether none of them can come any more."""
        return not self._left and self._left is not None

    def take(self, record: Record) -> bool:
        """Return whether a record stands there, and pass over its line."""
        if self._left is None:
            if self._has_more() and _is_of(self._lines[0], record):
                self.at += len(self._lines.popleft()) + 1
                return True
            self._left = self._by_place({})
        place = record.place or _place_of(record.value)
        if place is None or (lines := self._left.get(place[0])) is None:
            return False
        stands_there, is_other = lines.find(place[1], _key_hash(record.key))
        self.n_unknown += is_other
        is_passed = not record.value.startswith(REJECT_BEGINS) and place[1] >= lines.offsets[-1]
        if is_passed or not lines.n_left:
            del self._left[place[0]]
        return stands_there

    def pack(self, size: int) -> CheckpointEntry:
        """Return from where on the file is to be read again, and what of it before that is left."""
        if not self._left:
            return CheckpointEntry({"length": size if self.is_over else self.at})
        left = {each: lines.left() for each, lines in self._left.items()}
        return CheckpointEntry(
            {"length": size, "left": [[*each, len(own[0])] for each, own in left.items()]},
            {
                name: np.concatenate([own[k] for own in left.values()])
                for k, name in enumerate(("offsets", "keys"))
            },
        )

    def checksum(self, end: int) -> int:
        """Return the checksum of all of them, and of what stands behind up to `end`."""
        at, checksum = self.begin, 0
        while data := os.pread(self._fd, min(_WRITE_BYTES, end - at), at):
            at, checksum = at + len(data), zlib.crc32(data, checksum)
        return checksum

    def _has_more(self) -> bool:
        """Return whether a line follows, and read it."""
        while not self._lines and self._read < self.end:
            data = os.pread(self._fd, min(_WRITE_BYTES, self.end - self._read), self._read)
            if not data:  # the file is shorter by now
                break
            self._read += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines.extend(lines)
        return bool(self._lines)

    def _by_place(self, carried: Mapping[Partition, _Lines]) -> dict[Partition, _Lines]:
        """Return by partition what a checkpoint carried on, and the rest of the file."""
        n_carried = sum(lines.n_left for lines in carried.values())
        if n_carried > _CARRIED_MAX:
            self.n_unknown += n_carried
            carried = {}
        found: defaultdict[Partition, tuple[array[int], array[int]]] = defaultdict(
            lambda: (array("q"), array("q"))
        )
        for partition, lines in carried.items():
            found[partition] = lines.offsets[:], lines.keys[:]
        while self._has_more():
            line = self._lines.popleft()
            place, key = _place_of(line), key_of(line)
            if place is None or key is None:
                self.n_unknown += 1
            else:
                offsets, keys = found[place[0]]
                offsets.append(place[1])
                keys.append(_key_hash(key))
        return {
            each: _Lines(np.array(offsets), np.array(keys))
            for each, (offsets, keys) in found.items()
        }


def _unpacked(entry: CheckpointEntry) -> dict[Partition, _Lines]:
    """Return what a checkpoint says that has not come again; older ones say nothing."""
    found, begin = {}, 0
    for topic, partition, n in entry.values.get("left", ()):
        own = (entry.arrays[name][begin : begin + n] for name in ("offsets", "keys"))
        found[Partition(topic, partition)] = _Lines(*own)
        begin += n
    return found


def _as_array(values: NDArray[np.int64]) -> array[int]:
    return array("q", values.tobytes())


def _key_hash(key: bytes) -> int:
    """Return 64 bits of a key; checkpoints have them."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little", signed=True)


class _Placed(msgspec.Struct, frozen=True):
    """What a line says of the place of its message."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    offset: Annotated[int, msgspec.Meta(ge=0, lt=(1 << 63) - 1)]  # others' lines say anything


_decode_placed = msgspec.json.Decoder(_Placed).decode


def _place_of(line: bytes) -> tuple[Partition, int] | None:
    """Return the place of the message that a line is of; None if it says none."""
    try:
        found = _decode_placed(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Partition(found.topic, found.partition), found.offset


def _is_of(line: bytes, record: Record) -> bool:
    """Return whether a line is a record's; an id may have several messages, each in its place."""
    if key_of(line) != record.key:
        return False
    return record.place is None or _place_of(line) in {None, record.place}


def _is_torn_record(torn: bytes, before: bytes | None) -> bool:
    """Return whether a line without an end is one of ours that was torn.

    `before` is the line before it, None if it is the first. Zeros are a page that the disk dropped.
    """
    text = torn.partition(b"\0")[0]
    if before is not None and not is_output(before):
        return False
    if before is None and not text and torn.strip(b"\0"):
        return False
    return _begins_record(text)


def _begins_record(text: bytes) -> bool:
    """Return whether a record may begin so."""
    for begin, behind in _BESIDE:
        if begin.startswith(text):
            return True
        if text.startswith(begin) and (string := _STRING.match(text, len(begin))):
            rest = text[string.end() :]
            return behind.startswith(rest[: len(behind)]) or rest == b"\\"
    return False


def _opened(path: Path, flags: int) -> int:
    """Open the file: a new one for its owner alone, an old one without access for others."""
    try:
        return open_private(path, flags | os.O_EXCL)
    except FileExistsError:
        fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    is_device = path.absolute().parts[1:2] in {("dev",), ("proc",)}  # such as the shell's own file
    if not is_device and os.fstat(fd).st_mode & 0o007:
        tighten([path.resolve()])
    return fd
