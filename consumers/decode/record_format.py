"""How the records of a file are written: as JSON lines or CSV, and in which encoding.

A source finds the format out from a file's first bytes and hands it to the decoder at building, so
that records can travel as raw bytes. Two layouts of CSV are known: any with a header line, and the
one in which Sentiment140 was published, which has none and is written in Latin-1.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Literal

from consumers.config.settings import FileSettings

BOM = b"\xef\xbb\xbf"
SENTIMENT140_COLUMNS = ("polarity", "id", "date", "query", "user", "text")
_POLARITIES = {"0", "2", "4"}

# A record may be longer than the csv module's 128 KiB for one field; sources bound records at this.
RECORD_BYTES_MAX = 16 << 20
csv.field_size_limit(RECORD_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The format of every record of a source.

    Attributes
    ----------
    kind : {"jsonl", "csv"}
        One JSON object a line, or comma-separated values.
    columns : tuple of str
        Names of the CSV columns, in order; empty for JSON.
    encoding : {"utf-8", "latin-1"}
        The encoding of a record.
    """

    kind: Literal["jsonl", "csv"] = "jsonl"
    columns: tuple[str, ...] = ()
    encoding: Literal["utf-8", "latin-1"] = "utf-8"


def parse_csv_record(text: str) -> list[str]:
    r"""Return the cells of one CSV record, strictly: a quote left open is an error.

    Raises
    ------
    csv.Error
        If `text` is not exactly one record.

    Examples
    --------
    >>> parse_csv_record('4,"he said ""hi""\nand left"')
    ['4', 'he said "hi"\nand left']
    """
    return next(csv.reader((text,), strict=True))


def recognise(head: bytes, settings: FileSettings) -> tuple[RecordFormat, int]:
    """Recognise how a file is written.

    Parameters
    ----------
    head : bytes
        The first bytes of the file, decompressed; at least its first record.
    settings : FileSettings
        A `format` or `encoding` other than "auto" is used as it is.

    Returns
    -------
    RecordFormat
        The format of the records.
    int
        How many bytes stand before the first record: a byte order mark, a header line.
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
