"""Rows from CSV records whose columns are known.

Sentiment140's columns are found under their JSON names too: without a `created_at`, `date` is the
time, and without a `label`, `polarity` is the label. So that data set needs no setting.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any

from consumers.decode.fields import DecodeError
from consumers.decode.record_format import RecordFormat, parse_csv_record
from consumers.messages import Reason

_ALSO_CALLED = {"created_at": "date", "label": "polarity"}


class CsvReader:
    """Reads rows, lists of cells, from CSV records.

    Parameters
    ----------
    record_format : RecordFormat
        The columns and the encoding.
    """

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
