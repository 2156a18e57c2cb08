"""Cuts a stream of bytes into records: lines, or CSV records whose quotes may hold line breaks.

The end of a record depends only on the bytes from its beginning, never on how they arrived, so a
source that starts again at any record returns the same ones. Two limits apply. Of a record longer
than `bytes_max`, the first `bytes_max` bytes are a record, and reading continues behind them. A CSV
quote that stays open for more than `QUOTE_BYTES_MAX`, or breaks CSV's grammar, is no quote: its
first line is a record (which the decoder rejects), and reading continues at the next line.

A block of Jetstream's archive is cut into rows, and a row is written as the frame of the wire.
A recording's messages are written as lines, and read back.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import itertools
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.config.addresses import FileSettings
from consumers.decode.rows import BOM, RECORD_BYTES_MAX, RecordFormat, parse_csv_record
from consumers.kernels.json_scan import find_byte
from consumers.messages import Headers, Partition, RawColumns, partition_of
from consumers.sources.base import LogFacts

QUOTE_BYTES_MAX = 1 << 20
HEAD_BYTES = 1 << 18  # by so much of its beginning a file's format is recognised

_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
_LINE_BYTES_MIN = 32  # if most lines are shorter, they are looked for twice

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEPTH_MAX = 128
_SEPARATORS = {";": "semicolons", "\t": "tabs"}
_COMMITS = {1: "create", 2: "update", 3: "delete", 7: "create"}
_KINDS = {4: "identity", 5: "account", 6: "sync"}
_COLUMNS = ("<u8", "<i8", "<i8", "u1", "u1", "<u2", "u1", "u1", "<u4")

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_JSON_LINE = re.compile(rb"^[ \t]*[{[]", re.MULTILINE)
_COLUMN_NAME = re.compile(rb'"?[\w\x80-\xff][\w\x80-\xff .,:/()#-]{0,63}"?')
# The bytes that `bytes.isspace` takes for blanks, as a table.
_IS_BLANK = np.isin(np.arange(256), list(b" \t\n\r\v\f"))

Longs = NDArray[np.int64]


class Records(NamedTuple):
    """Where the n whole records of a buffer lie, without line ends; empty lines are left out.

    So are lines of JSON that hold only blanks; in CSV these are a cell.
    """

    starts: Longs
    ends: Longs
    consumed: int  # bytes that are used up; what follows begins the next record


def split_lines(buffer: bytes, *, last: bool, bytes_max: int = RECORD_BYTES_MAX) -> Records:
    r"""Cut a buffer, which begins with a record, at its line breaks; leave out blank lines.

    If it is the `last`, what stands after its last line break is a record too. Of a line longer
    than `bytes_max` that many bytes are a record, and the buffer is consumed up to there.

    >>> found = split_lines(b'{"a":1}\r\n\n{"b":2}\n \t\n{"c', last=False)
    >>> found.starts.tolist(), found.ends.tolist(), found.consumed
    ([0, 10], [7, 17], 21)
    """
    return _not_blank(buffer, _between(buffer, _places(buffer, _NEWLINE), last, bytes_max))


def _not_blank(buffer: bytes, records: Records) -> Records:
    """Leave out records that hold only blanks."""
    data, (starts, ends, _) = np.frombuffer(buffer, np.uint8), records
    # Few records begin and end with a blank, so few bytes are looked at one after the other.
    outer = np.flatnonzero(_IS_BLANK[data[starts]] & _IS_BLANK[data[ends - 1]])
    blank = [k for k in outer.tolist() if buffer[starts[k] : ends[k]].isspace()]
    if not blank:
        return records
    return records._replace(starts=np.delete(starts, blank), ends=np.delete(ends, blank))


def _places(buffer: bytes, byte: int) -> Longs:
    """Return where a byte stands, ascending."""
    data, n = np.frombuffer(buffer, np.uint8), len(buffer) // _LINE_BYTES_MIN
    while True:
        places = np.empty(n, np.int64)
        n = find_byte(data, byte, places)
        if n <= len(places):
            return places[:n]


def split_csv(buffer: bytes, *, last: bool, bytes_max: int = RECORD_BYTES_MAX) -> Records:
    """Cut a buffer at the line breaks that stand outside quotes; see `split_lines`."""
    newlines = _places(buffer, _NEWLINE)
    # A quote opens or closes, and a doubled one does both: a line break ends a record where the
    # number of quotes since the record's beginning is even.
    quotes = np.searchsorted(_places(buffer, _QUOTE), newlines)
    quote_max = min(QUOTE_BYTES_MAX, bytes_max)
    cuts = newlines[list(_closed(buffer, newlines, quotes, quote_max, last=last))]
    return _between(buffer, cuts, last, bytes_max)


def _closed(
    buffer: bytes, newlines: Longs, quotes: Longs, quote_max: int, *, last: bool
) -> Iterator[int]:
    """Yield the positions in `newlines` of those that end a record."""
    done = 0  # newlines behind us
    while done < len(newlines):
        base = quotes[done - 1] if done else 0
        for k in (np.flatnonzero((quotes[done:] - base) % 2 == 0) + done).tolist():
            if k > done and not _is_record(buffer[_after(newlines, done) : newlines[k]], quote_max):
                break
            yield k
            done = k + 1
        else:
            rest = buffer[_after(newlines, done) :]
            if done == len(newlines) or (not last and _may_become_one(rest, quote_max)):
                return
        # The quote on this line never closes as CSV's quotes do: the line stands alone.
        yield done
        done += 1


def other_separator(head: bytes) -> str | None:
    r"""Return the sign that separates the columns of a file, if that is no comma.

    The file, of which these are the first bytes, is taken for CSV; its first line must look like
    names of columns, and the next one must have as many cells.

    >>> other_separator(b"id;text;label\n1;good, really good;positive\n")
    ';'
    """
    first, *others = [line for line in head.split(b"\n") if line.strip()][:2] or [b""]
    for sign in (b";", b"\t"):
        n = first.count(sign)
        is_header = all(_COLUMN_NAME.fullmatch(cell.strip()) for cell in first.split(sign))
        if n > first.count(b",") and is_header and all(line.count(sign) >= n for line in others):
            return sign.decode()
    return None


def has_line(head: bytes) -> bool:
    """Return whether a first line that is not blank is whole, or longer than any header."""
    return b"\n" in head.removeprefix(BOM).lstrip(b" \t\r\n") or len(head) >= HEAD_BYTES


def why_not_read(head: bytes, found: RecordFormat, settings: FileSettings) -> str | None:
    """Return why a file that begins so is not read, and what to do about it; None if it is.

    It is written as UTF-16, or looks like CSV without commas between its cells.
    """
    if settings.encoding == "auto" and head.startswith(_UTF16_MARKS):
        return (
            "begins as UTF-16 does, which is not read; write it as UTF-8, with "
            "`iconv -f UTF-16 -t UTF-8`"
        )
    head = head.removeprefix(BOM)
    if found.kind == "jsonl" and (settings.format == "jsonl" or _JSON_LINE.search(head)):
        return None
    # What has no comma in its first line, and no object, is taken for broken JSON by itself.
    sign = other_separator(head)
    return sign and (
        f"its header looks as if {_SEPARATORS[sign]} separate its columns, and CSV is read with "
        'commas; write it with commas, with `python3 -c "import csv, sys; '
        f'csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter={sign!r}))" < OLD > NEW`'
    )


def _after(newlines: Longs, done: int) -> int:
    """Return where the record begins that stands behind the first `done` line breaks."""
    return int(newlines[done - 1]) + 1 if done else 0


def _is_record(candidate: bytes, quote_max: int) -> bool:
    """Return whether bytes with line breaks in them are one CSV record."""
    if len(candidate) > quote_max:
        return False
    try:
        parse_csv_record(candidate.rstrip(b"\r").decode("latin-1"))
    except csv.Error:
        return False
    return True


def _may_become_one(rest: bytes, quote_max: int) -> bool:
    """Return whether bytes with line breaks in them can begin one CSV record."""
    return _is_record(rest + b'"', quote_max) or _is_record(rest, quote_max)


def _between(buffer: bytes, cuts: Longs, last: bool, bytes_max: int) -> Records:
    """Return the records between cuts, and apply the limits to the bytes after them."""
    starts = np.concatenate(([0], cuts + 1)).astype(np.int64)
    ends = np.append(cuts, len(buffer)).astype(np.int64)
    long = np.flatnonzero(ends - starts > bytes_max)
    if long.size:
        first = int(long[0])
        starts, ends = starts[: first + 1], ends[: first + 1]
        ends[first] = consumed = int(starts[first]) + bytes_max
    elif last:
        consumed = len(buffer)
    else:
        consumed = int(starts[-1])
        starts, ends = starts[:-1], ends[:-1]
    starts, ends = _not_empty(starts, ends)
    ends = ends - (np.frombuffer(buffer, np.uint8)[ends - 1] == _RETURN)
    return Records(*_not_empty(starts, ends), consumed)


def _not_empty(starts: Longs, ends: Longs) -> tuple[Longs, Longs]:
    """Leave out empty records."""
    full = ends > starts
    return (starts, ends) if full.all() else (starts[full], ends[full])


def raw_columns(
    partition: Partition,
    buffer: bytes,
    records: Records,
    offsets: Longs,
    next_offset: int,
    times_ms: Longs | None = None,
) -> RawColumns:
    """Return records as a batch without keys; times may be absent too."""
    n = len(offsets)
    nothing = np.full(n, -1, np.int64)
    return RawColumns(
        partition=partition,
        buffer=buffer,
        value_starts=records.starts,
        value_ends=records.ends,
        key_starts=np.zeros(n, np.int64),
        key_ends=nothing,
        offsets=offsets,
        times_ms=nothing if times_ms is None else times_ms,
        next_offset=next_offset,
    )


def no_messages(partition: Partition, next_offset: int) -> RawColumns:
    """Return a batch without messages: all it says is where reading goes on."""
    none = np.empty(0, np.int64)
    return raw_columns(partition, b"", Records(none, none, 0), none, next_offset)


def from_parts(
    partition: Partition,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    offsets: Iterable[int],
    times_ms: Iterable[int],
    next_offset: int,
    headers: Sequence[Headers] | None = None,
) -> RawColumns:
    """Return the columns of one partition's messages, given part by part; there is at least one.

    They are copied into one buffer, all keys before all values; what runs once a message is `map`,
    `zip` and `join`, in C.
    """
    key_starts, key_ends, n_key_bytes = _spans(keys, 0)
    value_starts, value_ends, _ = _spans(values, n_key_bytes)
    return RawColumns(
        partition=partition,
        # What is null or empty is left out: neither adds a byte.
        buffer=b"".join(filter(None, (*keys, *values))),
        value_starts=value_starts,
        value_ends=value_ends,
        key_starts=key_starts,
        key_ends=key_ends,
        offsets=np.fromiter(offsets, np.int64, len(keys)),
        times_ms=np.fromiter(times_ms, np.int64, len(keys)),
        next_offset=next_offset,
        headers=headers,
    )


def _spans(
    parts: Sequence[bytes | None], begin: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return starts and ends of parts laid side by side from `begin`, and where the last one ends.

    A null takes no bytes, and its end is -1.
    """
    lengths = np.array([-1 if part is None else len(part) for part in parts], dtype=np.int64)
    is_null = lengths < 0
    lengths[is_null] = 0
    ends = np.cumsum(lengths) + begin
    starts = ends - lengths
    total = int(ends[-1])
    ends[is_null] = -1
    return starts, ends, total


def joined(parts: Sequence[RawColumns]) -> RawColumns:
    """Return consecutive batches of one partition, none of them empty, as one.

    If their buffers differ, the bytes that they use are copied side by side.
    """
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return first
    if all(part.buffer is first.buffer for part in parts):
        buffer, shifts = first.buffer, [0] * len(parts)
    else:
        buffer, shifts = _side_by_side(parts)
    pairs = list(zip(parts, shifts, strict=True))
    return RawColumns(
        partition=first.partition,
        buffer=buffer,
        value_starts=np.concatenate([part.value_starts + by for part, by in pairs]),
        value_ends=np.concatenate([_shifted_ends(part.value_ends, by) for part, by in pairs]),
        key_starts=np.concatenate([part.key_starts + by for part, by in pairs]),
        key_ends=np.concatenate([_shifted_ends(part.key_ends, by) for part, by in pairs]),
        offsets=np.concatenate([part.offsets for part in parts]),
        times_ms=np.concatenate([part.times_ms for part in parts]),
        next_offset=last.next_offset,
    )


def _side_by_side(parts: Sequence[RawColumns]) -> tuple[bytes, list[int]]:
    """Return the bytes that the parts use, and how far the positions of each one move."""
    used, shifts, total = [], [], 0
    for part in parts:
        begin = int(min(part.key_starts.min(), part.value_starts.min()))
        end = int(max(part.key_ends.max(), part.value_ends.max(), begin))
        used.append(part.buffer[begin:end])
        shifts.append(total - begin)
        total += end - begin
    return b"".join(used), shifts


def _shifted_ends(ends: NDArray[np.int64], by: int) -> NDArray[np.int64]:
    return np.where(ends < 0, -1, ends + by)


# ---- blocks of Jetstream's archive ---------------------------------------------------------------


class BlockRow(NamedTuple):
    """An event as a block has it."""

    seq: int
    witnessed_us: int
    indexed_us: int  # 0: it has no other time
    kind: int
    collection: str
    did: str
    rkey: str
    rev: str
    payload: bytes  # DAG-CBOR

    @property
    def event(self) -> str:
        """What it is: a commit, or one of the network's own kinds."""
        return _KINDS.get(self.kind, "commit")


def block_rows(block: bytes) -> Iterator[BlockRow]:
    """Yield the events of a block: its number of rows, nine columns, then five of text."""
    n, at = int.from_bytes(block[:4], "little"), 4
    columns = []
    for kind in _COLUMNS if n else ():
        columns.append(np.frombuffer(block, kind, n, at).tolist())
        at += n * np.dtype(kind).itemsize
    texts = []
    for lengths in columns[4:]:
        ends = list(itertools.accumulate(lengths, initial=at))
        texts.append([block[start:end] for start, end in itertools.pairwise(ends)])
        at = ends[-1]
    if at != len(block):
        raise ValueError(f"a block of the archive has {len(block)} bytes instead of {at}")
    for row in zip(*columns[:4], *texts, strict=True):
        yield BlockRow(*row[:4], *(each.decode() for each in row[4:8]), row[8])  # type: ignore[call-arg]


def frame_of(row: BlockRow) -> bytes:
    """Return the frame of an event.

    One whose record or time cannot be read is the record itself, behind a zero byte: no frame
    begins so.
    """
    kind = row.event
    payload: dict[str, object] = {
        "$type": f"network.bsky.jetstream.subscribeEvents#{kind}",
        "seq": row.seq,
        "did": row.did,
    }
    try:
        time = EPOCH + timedelta(microseconds=row.indexed_us or row.witnessed_us)
        payload |= {"time": time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        if kind != "commit":
            payload[kind] = _Cbor(row.payload).value()
        else:
            operation = _COMMITS[row.kind]
            payload |= {"rev": row.rev, "operation": operation}
            payload |= {"collection": row.collection, "rkey": row.rkey}
            if operation != "delete":
                digest = hashlib.sha256(row.payload).digest()
                payload |= {"cid": _cid(b"\1\x71\x12\x20" + digest)}
                payload |= {"record": _Cbor(row.payload).value()}
    except (ValueError, LookupError, OverflowError, struct.error):
        return b"\0" + row.payload
    return msgspec.json.encode({"$type": "message", "payload": payload}, order="sorted")


def _cid(data: bytes) -> str:
    return "b" + base64.b32encode(data).decode().lower().rstrip("=")


class _Cbor:
    """Reads DAG-CBOR as the values of its JSON: links are `$link`, bytes are `$bytes`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, depth: int = 0) -> object:
        """Return the next value."""
        if depth > _DEPTH_MAX:
            raise ValueError("it is nested too deeply")
        head = self._take(1)[0]
        major, info = head >> 5, head & 31
        if major == 7:
            if info == 27:
                return float(struct.unpack(">d", self._take(8))[0])
            return {20: False, 21: True, 22: None}[info]
        n = info if info < 24 else int.from_bytes(self._take({24: 1, 25: 2, 26: 4, 27: 8}[info]))
        if major < 2:
            return n if major == 0 else -1 - n
        if major == 2:
            return {"$bytes": base64.b64encode(self._take(n)).decode().rstrip("=")}
        if major == 3:
            return self._take(n).decode()
        return self._nested(major, n, depth + 1)

    def _nested(self, major: int, n: int, depth: int) -> object:
        """Return what holds values: an array, a map, or a tag."""
        if major == 4:
            return [self.value(depth) for _ in range(n)]
        if major == 5:
            return {str(self.value(depth)): self.value(depth) for _ in range(n)}
        return self._link(n)

    def _link(self, tag: int) -> object:
        """Return the content identifier behind a tag; it is bytes, with a zero before them."""
        head = self._take(1)[0]
        n = self._take(1)[0] if head == 0x58 else head & 31
        data = self._take(n)
        if tag != 42 or head >> 5 != 2 or data[:1] != b"\0":
            raise ValueError("no link")
        return {"$link": _cid(data[1:])}

    def _take(self, n: int) -> bytes:
        found = self._data[self._at : self._at + n]
        if len(found) != n:
            raise ValueError("it is cut off")
        self._at += n
        return found


# ---- lines of a recording ------------------------------------------------------------------------

_OFFSET_MAX = (1 << 63) - 2
_Offset = Annotated[int, msgspec.Meta(ge=-1, le=_OFFSET_MAX)]


class RecordedHeader(msgspec.Struct, omit_defaults=True):
    """A header of a recorded message."""

    name: str
    value: str | msgspec.UnsetType | None = msgspec.UNSET
    value_base64: bytes | msgspec.UnsetType = msgspec.UNSET


class RecordingLine(msgspec.Struct, omit_defaults=True):
    """A line behind the head: a message, or the positions at the end of a frame."""

    topic: str = ""
    partition: Annotated[int, msgspec.Meta(ge=-1, le=(1 << 31) - 1)] = -1
    offset: _Offset = -1
    time_ms: _Offset = -1
    key: str | msgspec.UnsetType | None = msgspec.UNSET
    key_base64: bytes | msgspec.UnsetType = msgspec.UNSET
    value: str | msgspec.UnsetType | None = msgspec.UNSET
    value_base64: bytes | msgspec.UnsetType = msgspec.UNSET
    headers: list[RecordedHeader] = []
    positions: dict[str, _Offset] | None = None
    logs: dict[str, LogFacts] = {}  # beside positions


RECORDING_LINES = msgspec.json.Decoder(RecordingLine)


def lines_of(raw: RawColumns) -> Iterator[RecordingLine]:
    """Yield the messages of a batch as lines."""
    topic, partition = raw.partition
    headers = raw.headers or [()] * len(raw)
    offsets, times_ms = raw.offsets.tolist(), raw.times_ms.tolist()
    for i, (offset, time_ms, own) in enumerate(zip(offsets, times_ms, headers, strict=True)):
        line = RecordingLine(topic, partition, offset, time_ms)
        line.key, line.key_base64 = _written(raw.key(i))
        line.value, line.value_base64 = _written(raw.value(i))
        line.headers = [RecordedHeader(name, *_written(value)) for name, value in own]
        yield line


def as_short(line: RecordingLine) -> RecordingLine:
    """Return a message's line with base64 in place of each text that JSON's escapes make longer."""
    line.key, line.key_base64 = _as_short(line.key, line.key_base64)
    line.value, line.value_base64 = _as_short(line.value, line.value_base64)
    for each in line.headers:
        each.value, each.value_base64 = _as_short(each.value, each.value_base64)
    return line


def positions_in(line: bytes) -> tuple[dict[Partition, int], dict[Partition, LogFacts]]:
    """Return the positions that end a frame, and the logs' facts; else raise `ValueError`."""
    found = RECORDING_LINES.decode(line)
    if found.positions is None:
        raise ValueError("it ends without positions")
    positions = {partition_of(name): at for name, at in found.positions.items()}
    return positions, {partition_of(name): facts for name, facts in found.logs.items()}


def _written(
    data: bytes | None,
) -> tuple[str | msgspec.UnsetType | None, bytes | msgspec.UnsetType]:
    """Return bytes as text if they are UTF-8, else as what is written in base64."""
    if data is None:
        return None, msgspec.UNSET
    try:
        return data.decode(), msgspec.UNSET
    except UnicodeDecodeError:
        return msgspec.UNSET, data


def _as_short(
    text: str | msgspec.UnsetType | None, data: bytes | msgspec.UnsetType
) -> tuple[str | msgspec.UnsetType | None, bytes | msgspec.UnsetType]:
    """Return what `_written` returned, as base64 if that takes fewer bytes."""
    if isinstance(text, str):
        own, more = text.encode(), len("_base64")
        if len(msgspec.json.encode(text)) > len(msgspec.json.encode(own)) + more:
            return msgspec.UNSET, own
    return text, data


# Key, value, offset, time and headers of a message.
RecordedRow: TypeAlias = tuple[bytes | None, bytes | None, int, int, Headers]


def recorded_row(line: RecordingLine) -> RecordedRow:
    """Return the message of a line; a line that is none is a `ValueError`."""
    if line.offset < 0 or line.partition < 0 or not line.topic or line.positions is not None:
        raise ValueError("neither a message nor positions")
    key = _read_back(line.key, line.key_base64)
    value = _read_back(line.value, line.value_base64)
    headers = [(each.name, _read_back(each.value, each.value_base64)) for each in line.headers]
    return key, value, line.offset, line.time_ms, headers


def _read_back(
    text: str | msgspec.UnsetType | None, data: bytes | msgspec.UnsetType
) -> bytes | None:
    """Return what `_written` was given; two values, or none, are a `ValueError`."""
    if isinstance(text, msgspec.UnsetType) == isinstance(data, msgspec.UnsetType):
        raise ValueError("a key, a value and a header each stand once, as text or in base64")
    if isinstance(data, bytes):
        return data
    return text.encode() if isinstance(text, str) else None
