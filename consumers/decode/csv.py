"""Rows from CSV records whose columns are known.

Sentiment140's column names are understood under their JSON names too: where a file has no
`created_at`, its `date` is the time, and where it has no `label`, its `polarity` is the label. So
the recording can be replayed without a setting.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any

from consumers.decode.fields import Fault
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

        An empty cell is None, as CSV has no other way to leave a value out; so is a column that
        the file does not have.
        """
        name = path if path in self._columns else _ALSO_CALLED.get(path, path)
        if name not in self._columns:
            return lambda _row: None
        at = self._columns.index(name)
        return lambda row: row[at] or None

    def text_getter(self, path: str) -> Callable[[Any], Any]:
        """Return the getter of the text, whose empty cell is an empty text."""
        if path not in self._columns:
            return self.getter(path)
        at = self._columns.index(path)
        return lambda row: row[at]

    def rows(self, values: Sequence[bytes]) -> tuple[list[Any], dict[int, Fault]]:
        """Return a row for each value (None where it has none), and why by position."""
        faults: dict[int, Fault] = {}
        texts: list[str] = []
        for i, value in enumerate(values):
            if b"\0" in value:
                texts.append("")
                faults[i] = Fault(
                    Reason.NULL_BYTES, f"a NUL at byte {value.index(0)} of {len(value)}"
                )
                continue
            try:
                texts.append(value.decode(self._encoding))
            except UnicodeDecodeError as error:
                texts.append("")
                faults[i] = Fault(
                    Reason.NOT_UTF8,
                    f"byte 0x{value[error.start]:02x} at {error.start} of {len(value)}: "
                    f"{error.reason}; is file.encoding latin-1?",
                )
        rows = self._parse(texts, faults)
        width = len(self._columns)
        for i, row in enumerate(rows):
            if i not in faults and (row is None or len(row) != width):
                faults[i] = Fault(
                    Reason.NOT_CSV,
                    f"found {len(row or ())} cells, the file's columns are {width}: "
                    f"{', '.join(self._columns)}",
                )
                rows[i] = None
        return rows, faults

    def _parse(self, texts: list[str], faults: dict[int, Fault]) -> list[Any]:
        """Parse all records at once, or one by one where some record is not right.

        A record cannot become two rows, so as many rows as records means that each is one row.
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
                faults.setdefault(i, Fault(Reason.NOT_CSV, f"{error}, {len(text)} characters"))
        return rows
