"""How the records of a file are written, as JSON lines or CSV; and rows from those of CSV.

A source finds the format out from a file's first bytes and hands it to the decoder at building, so
that records can travel as raw bytes. Two layouts of CSV are known: any with a header line, and the
one in which Sentiment140 was published, which has none and is written in Latin-1.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from consumers.config.settings import FileSettings
from consumers.decode.fields import DecodeError
from consumers.messages import Reason

BOM = b"\xef\xbb\xbf"
SENTIMENT140_COLUMNS = ("polarity", "id", "date", "query", "user", "text")
_POLARITIES = {"0", "2", "4"}

# A record may be longer than the csv module's 128 KiB for one field; sources bound records at this.
RECORD_BYTES_MAX = 16 << 20
csv.field_size_limit(RECORD_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The format of every record of a source: JSON objects, one a line, or CSV."""

    kind: Literal["jsonl", "csv"] = "jsonl"
    columns: tuple[str, ...] = ()  # the names of the CSV columns, in order
    encoding: Literal["utf-8", "latin-1"] = "utf-8"


def parse_csv_record(text: str) -> list[str]:
    r"""Return the cells of one CSV record, strictly: a quote left open is a `csv.Error`.

    >>> parse_csv_record('4,"he said ""hi""\nand left"')
    ['4', 'he said "hi"\nand left']
    """
    return next(csv.reader((text,), strict=True))


def recognise(head: bytes, settings: FileSettings) -> tuple[RecordFormat, int]:
    """Return how a file is written, and how many bytes stand before its first record.

    Those are a byte order mark and a header line. The `head` holds at least the first record,
    decompressed. A `format` or `encoding` of the settings other than "auto" is used as it is.
    """
    mark = len(BOM) if head.startswith(BOM) else 0
    body = head[mark:]
    kind = settings.format
    if kind == "auto":
        kind = "jsonl" if _looks_like_json(body) else "csv"
    if kind == "jsonl":
        encoding = "utf-8" if settings.encoding == "auto" else settings.encoding
        return RecordFormat("jsonl", (), encoding), mark
    line = body.split(b"\n", 1)[0]
    try:
        cells = parse_csv_record(line.rstrip(b"\r").decode("latin-1"))
    except csv.Error:
        # The first record's text goes over several lines, so it is no header of column names.
        cells = [body.split(b",", 1)[0].decode("latin-1").strip('"')] + [""] * 5
    headerless = len(cells) == len(SENTIMENT140_COLUMNS) and cells[0] in _POLARITIES
    if settings.encoding != "auto":
        encoding = settings.encoding
    elif headerless or not _is_utf8(head):
        encoding = "latin-1"
    else:
        encoding = "utf-8"
    if headerless:
        return RecordFormat("csv", SENTIMENT140_COLUMNS, encoding), mark
    names = line.rstrip(b"\r").decode(encoding, "replace")
    columns = tuple(cell.strip() for cell in next(csv.reader((names,))))
    return RecordFormat("csv", columns, encoding), mark + min(len(line) + 1, len(body))


def _looks_like_json(body: bytes) -> bool:
    """Return whether most lines begin as JSON objects do, or the first one is not CSV either.

    The majority decides, so one broken line at the top of a recording changes nothing.
    """
    lines = [line.lstrip() for line in body.split(b"\n") if line.strip()]
    objects = sum(line.startswith((b"{", b"[")) for line in lines)
    return objects * 2 >= len(lines) or b"," not in lines[0]


def _is_utf8(head: bytes) -> bool:
    """Return whether the bytes are UTF-8, apart from a character cut at their end."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.end == len(head)
    return True


# Without a `created_at`, Sentiment140's `date` is the time, and without a `label` its `polarity` is
# the label. So that data set needs no setting.
_ALSO_CALLED = {"created_at": "date", "label": "polarity"}


class CsvReader:
    """Reads rows, lists of cells, from CSV records."""

    def __init__(self, record_format: RecordFormat) -> None:
        self._columns = record_format.columns
        self._encoding = record_format.encoding

    def getter(self, path: str) -> Callable[[Any], Any]:
        """Return the function that takes a column out of a row.

        It returns None for an empty cell, as CSV has no other way to leave a value out, and for a
        column that the file lacks.
        """
        name = path if path in self._columns else _ALSO_CALLED.get(path, path)
        if name not in self._columns:
            return lambda _row: None
        at = self._columns.index(name)
        return lambda row: row[at] or None

    def text_getter(self, path: str) -> Callable[[Any], Any]:
        """Return the getter of the text: an empty cell is an empty text."""
        if path not in self._columns:
            return self.getter(path)
        at = self._columns.index(path)
        return lambda row: row[at]

    def rows(self, values: Sequence[bytes]) -> tuple[list[Any], dict[int, DecodeError]]:
        """Return a row or None for each value, and the error of each None by position."""
        errors: dict[int, DecodeError] = {}
        texts: list[str] = []
        for i, value in enumerate(values):
            if b"\0" in value:
                texts.append("")
                errors[i] = DecodeError(
                    Reason.NULL_BYTES, f"a NUL at byte {value.index(0)} of {len(value)}"
                )
                continue
            try:
                texts.append(value.decode(self._encoding))
            except UnicodeDecodeError as error:
                texts.append("")
                errors[i] = DecodeError(
                    Reason.NOT_UTF8,
                    f"byte 0x{value[error.start]:02x} at {error.start} of {len(value)}: "
                    f"{error.reason}; is file.encoding latin-1?",
                )
        rows = self._parse(texts, errors)
        width = len(self._columns)
        for i, row in enumerate(rows):
            if i not in errors and (row is None or len(row) != width):
                errors[i] = DecodeError(
                    Reason.NOT_CSV,
                    f"found {len(row or ())} cells, the file's columns are {width}: "
                    f"{', '.join(self._columns)}",
                )
                rows[i] = None
        return rows, errors

    def _parse(self, texts: list[str], errors: dict[int, DecodeError]) -> list[Any]:
        """Parse all records at once, or one by one if some record is broken.

        A record never becomes two rows, so as many rows as records means one row each.
        """
        try:
            rows: list[Any] = list(csv.reader(texts, strict=True))
        except csv.Error:
            rows = []
        if len(rows) == len(texts):
            return rows
        rows = []
        for i, text in enumerate(texts):
            try:
                rows.append(parse_csv_record(text))
            except csv.Error as error:
                rows.append(None)
                errors.setdefault(
                    i, DecodeError(Reason.NOT_CSV, f"{error}, {len(text)} characters")
                )
        return rows
