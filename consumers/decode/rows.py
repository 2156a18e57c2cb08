"""Messages one by one: the checks that each must pass, and the error of each that does not.

This is the authority on what a message says and on what is wrong with it. The scan of a batch
(`JsonScanner`) only spares most messages this path.

The text if it is read, `operation`, `id`, the label and the declared fields must be valid, or the
message is rejected. `user` and `lang` only describe a message, and its time falls back to the
source's; so an invalid value in these counts as absent.

How the records of a file are written stands here too. A source finds the format out from a file's
first bytes and hands it to the decoder at building, so that records can travel as raw bytes. Two
layouts of CSV are known: any with a header line, and the one in which Sentiment140 was published,
which has none and is written in Latin-1.
"""

from __future__ import annotations

import csv
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import field
from numpy.typing import NDArray

from consumers.config.addresses import FileSettings
from consumers.config.message import FirstOf, MessageSettings
from consumers.decode.fields import (
    DecodeError,
    FieldSpec,
    Selection,
    account_id,
    converter,
    id_of,
    metadata_text,
    missing_entry,
    quoted,
    text_form,
    to_unix_ms,
)
from consumers.decode.json import JsonReader, read_paths
from consumers.decode.labels import Labeller
from consumers.messages import Metadata, Operation, RawColumns, Reason, marked_ids, place_name

BOM = b"\xef\xbb\xbf"
SENTIMENT140_COLUMNS = ("polarity", "id", "date", "query", "user", "text")
_POLARITIES = {"0", "2", "4"}

# A record may be longer than the csv module's 128 KiB for one field; sources bound records at this.
RECORD_BYTES_MAX = 16 << 20
csv.field_size_limit(RECORD_BYTES_MAX)


class RecordFormat(msgspec.Struct, frozen=True):
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
    mark += len(body) - len(body := body.lstrip(b"\r\n"))
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
        if isinstance(path, FirstOf):
            gets = [self.getter(each) for each in path.paths]
            return lambda row: next((value for get in gets if (value := get(row))), None)
        name = self.column(path)
        if name is None:
            return lambda _row: None
        at = self._columns.index(name)
        return lambda row: row[at] or None

    def column(self, path: str) -> str | None:
        """Return the name of the column that a path reads, None if the file lacks it."""
        name = path if path in self._columns else _ALSO_CALLED.get(path, path)
        return name if name in self._columns else None

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


Getter = Callable[[Any], Any]

_FLAWED = (Operation.CREATE, "")  # stands in for a message that will be rejected


class DecodedRows(msgspec.Struct):
    """Usable messages, as lists side by side, and what is wrong with the others.

    The labeller has removed from the texts what gave their labels away. `errors` go by position
    among the values, and so do the codes of the reasons of those `ignored`; `n_ambiguous`
    counts messages with emoticons of more than one class.
    """

    at: list[int] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    fields: dict[str, list[Any]] = field(default_factory=dict)
    errors: dict[int, DecodeError] = field(default_factory=dict)
    ignored: dict[int, int] = field(default_factory=dict)
    n_ambiguous: int = 0

    def add(self, rows: DecodedRows, first: int) -> None:
        """Append the rows of further values, beginning with value `first`."""
        self.at += [first + k for k in rows.at]
        self.operations += rows.operations
        self.texts += rows.texts
        self.labels += rows.labels
        self.ids += rows.ids
        for name, column in rows.fields.items():
            self.fields.setdefault(name, []).extend(column)
        self.errors |= {first + k: error for k, error in rows.errors.items()}
        self.ignored |= {first + k: code for k, code in rows.ignored.items()}
        self.n_ambiguous += rows.n_ambiguous


class RowDecoder:
    """Decodes messages one by one from rows: JSON objects, or the cells of CSV records.

    `reads` are the fields that the model reads beside the text. If it does not need the text, that
    is ignored; otherwise it must be valid. A path that cannot be a JSON name is a `ConfigError`.
    """

    def __init__(
        self,
        message: MessageSettings,
        labeller: Labeller,
        record_format: RecordFormat,
        reads: Mapping[str, FieldSpec],
        *,
        needs_text: bool = True,
    ) -> None:
        self._settings = message
        self._labeller = labeller
        self._needs_text = needs_text
        self.selection = Selection(message)
        names = "" if message.text in record_format.columns else ", ".join(record_format.columns)
        self._columns = names and f"; the columns are {names}"
        self.reader: JsonReader | CsvReader
        is_csv = record_format.kind == "csv"
        if is_csv:
            self.reader = CsvReader(record_format)
        else:
            specs = reads.values()
            paths = read_paths(message, specs, labeller.path, needs_text=needs_text)
            self.reader = JsonReader(paths, record_format.encoding, message.unwrap)
        getter = self.reader.getter
        text = getter(message.text) if needs_text else _nothing
        form = text_form(message)
        self._text = text if form is None else functools.partial(_formed, text, form)
        self._id_parts = [(path, getter(path)) for path in message.id_paths]
        self._time = getter(message.time)
        self._user = getter(message.user)
        self._lang = getter(message.lang)
        self._deleted = getter(message.deleted) if message.deleted else _nothing
        self._operations: dict[Any, Operation] = {None: Operation.CREATE} | {
            name: Operation(each.removesuffix("_account"))
            for name, each in message.operations.items()
        }
        named = message.operations.items()
        self._of_accounts = {name for name, each in named if each == "delete_account"}
        self._conditions = [(each, getter(each.path)) for each in self.selection.conditions]
        reads_retweet = message.retweets != "keep" and message.retweet
        self._retweet = getter(message.retweet) if reads_retweet and message.retweet else _nothing
        asked = getter(message.operation)
        is_plain = message.deleted is None and message.retweets != "fold"
        self._operation = asked if is_plain else functools.partial(self._asked, asked)
        self._fields = [(path, getter(path)) for path in message.fields]
        self._label = getter(labeller.path) if labeller.path else None
        self._reads = [
            (name, spec, getter(spec.path), converter(spec, is_csv=is_csv))
            for name, spec in reads.items()
        ]

    def decode(self, values: Sequence[bytes]) -> DecodedRows:
        """Decode messages; each value becomes a row or an error, or is ignored."""
        if isinstance(self.reader, JsonReader):
            values = self.reader.unwrapped(values)
        rows, errors = self.reader.rows(values)
        if isinstance(self.reader, JsonReader):
            self.reader.reject_deep(values, rows, errors)
        ignored, withdrawn = self._left_out(rows, values, errors)
        at = list(range(len(rows)))
        if errors or ignored:
            at = [k for k in at if k not in errors and k not in ignored]
            rows = [rows[k] for k in at]
        errors_by_row: dict[int, DecodeError] = {}  # by position in `rows`
        operations, texts = self._operations_and_texts(rows, errors_by_row)
        for k, place in enumerate(at if withdrawn else ()):
            if place in withdrawn:
                errors_by_row.pop(k, None)
                operations[k], texts[k] = Operation.DELETE, ""
        self._check_ids(rows, errors_by_row)
        fields = self._read_fields(rows, operations, errors_by_row)
        for k in errors_by_row:
            texts[k] = ""  # or it could count twice: as rejected and as ambiguous
        labelled = self._labeller.label(self._label_values(rows, operations, errors_by_row), texts)
        for k, error in labelled.errors.items():
            errors_by_row.setdefault(k, error)
        keep = [k not in errors_by_row for k in range(len(rows))]

        def kept(column: Sequence[Any]) -> list[Any]:
            return list(itertools.compress(column, keep))

        return DecodedRows(
            at=kept(at),
            operations=kept(operations),
            texts=kept(labelled.texts),
            labels=kept(labelled.labels),
            ids=[None if name is None else str(name) for name in self._ids(kept(rows))],
            fields={name: kept(column) for name, column in fields.items()},
            errors=errors
            | {at[k]: self._with_id(found, rows[k]) for k, found in errors_by_row.items()},
            ignored=ignored,
            n_ambiguous=labelled.n_ambiguous,
        )

    def _asked(self, asked: Getter, row: Any) -> Any:
        """Return the operation that a message asks for, also by a deleted id or as a retweet."""
        if self._deleted(row) is not None:
            return Operation.DELETE
        name = asked(row)
        is_create = name is None or (
            name.__class__ is str and self._operations.get(name) is Operation.CREATE
        )
        folds = self._settings.retweets == "fold" and is_create
        # A retweet takes the place of its original, so each text counts once.
        return Operation.UPDATE if folds and self._retweet(row).__class__ is dict else name

    def _left_out(
        self, rows: list[Any], values: Sequence[bytes], errors: Collection[int]
    ) -> tuple[dict[int, int], set[int]]:
        """Return the messages to ignore with their reasons' codes, and updates that take back."""
        ignored: dict[int, int] = {}
        withdrawn: set[int] = set()
        if self.selection.is_whole:
            return ignored, withdrawn
        for k, row in enumerate(rows):
            if k in errors:
                continue
            asked = self._operation(row)
            operation = asked if asked.__class__ is Operation else None
            if asked.__class__ is str:
                operation = self._operations.get(asked)
            code = self._why_ignored(row, values[k], operation is Operation.DELETE)
            if code is None:
                continue
            # A retweet that would take the place of its original is none itself.
            is_update = operation is Operation.UPDATE and asked is not Operation.UPDATE
            if is_update and self.selection.can_change(code) and self._is_known(row, values[k]):
                withdrawn.add(k)
            else:
                ignored[k] = code
        return ignored, withdrawn

    def _is_known(self, row: Any, value: bytes) -> bool:
        """Return whether a message that is left out may have counted in an earlier version."""
        is_such = (each.can_change or each.met(get(row)) for each, get in self._conditions)
        return all(is_such) and self._why_ignored(row, value, is_delete=True) is None

    def _why_ignored(self, row: Any, value: bytes, is_delete: bool) -> int | None:
        """Return the code of the reason to ignore a message; None if it counts."""
        for code, (condition, get) in enumerate(self._conditions):
            if not condition.met(get(row), is_delete=is_delete):
                return code
        selection = self.selection
        text = self._text(row) if self._needs_text else None
        if not is_delete and selection.drops_retweet(self._retweet(row), text):
            return selection.retweet_code
        if selection.sample < 1 and not self._is_of_account(row):
            parts = [get(row) for _, get in self._id_parts]
            is_id = all(part is None or part.__class__ in {str, int} for part in parts)
            if is_id and selection.drops_id(id_of(parts), value):
                return selection.sample_code
        return None

    def _read_fields(
        self, rows: list[Any], operations: list[Operation], errors_by_row: dict[int, DecodeError]
    ) -> dict[str, list[Any]]:
        """Return the declared fields of each row; those of a deletion are missing."""
        fields: dict[str, list[Any]] = {}
        for name, spec, get, convert in self._reads:
            column = list(map(convert, map(get, rows)))
            for k, value in enumerate(column):
                if operations[k] is Operation.DELETE:
                    column[k] = missing_entry(spec)
                elif value.__class__ is DecodeError:
                    errors_by_row.setdefault(k, value)
            fields[name] = column
        return fields

    def metadata(self, raw: RawColumns, places: NDArray[np.int64]) -> Metadata:
        """Return the metadata of some valid messages of a batch.

        A message without an id, or without a part of it, is named by its partition and offset; one
        without a time has the source's.
        """
        values = raw.values(places)
        # A tombstone says no more than which message is gone.
        known: Sequence[bytes] = [b"{}" if value is None else value for value in values]
        if isinstance(self.reader, JsonReader):
            known = self.reader.unwrapped(known)
        rows, _ = self.reader.rows(known)
        offsets = raw.offsets[places].tolist()
        names = [None if name is None else str(name) for name in self._ids(rows)]
        for k, (value, place) in enumerate(zip(values, places.tolist(), strict=True)):
            if value is None:
                names[k] = key_id(raw, place)
        names = marked_ids(raw.partition, names)
        own = zip(
            map(to_unix_ms, map(self._time, rows)), raw.times_ms[places].tolist(), strict=True
        )
        return Metadata(
            ids=[
                place_name(raw.partition, offset) if name is None else name
                for name, offset in zip(names, offsets, strict=True)
            ],
            times_ms=[source_ms if own_ms is None else own_ms for own_ms, source_ms in own],
            users=list(map(metadata_text, map(self._user, rows))),
            langs=list(map(metadata_text, map(self._lang, rows))),
            fields=self._metadata_fields(rows),
        )

    def times_ms(self, values: Sequence[bytes]) -> list[int]:
        """Return the own time of each message, -1 without one; rejected or not, if it is read."""
        if isinstance(self.reader, JsonReader):
            values = self.reader.unwrapped(values)
        rows, _ = self.reader.rows(values)
        times = (None if row is None else to_unix_ms(self._time(row)) for row in rows)
        return [-1 if ms is None else ms for ms in times]

    def _ids(self, rows: Sequence[Any]) -> Iterable[str | int | None]:
        """Return the id of each row; an id of one part needs no Python call a row."""
        columns = [map(get, rows) for _, get in self._id_parts]
        names = columns[0] if len(columns) == 1 else map(id_of, zip(*columns, strict=True))
        if not self._of_accounts:
            return names
        get = self._id_parts[0][1]
        return [
            account_id(get(row)) if self._is_of_account(row) else name
            for name, row in zip(names, rows, strict=True)
        ]

    def _is_of_account(self, row: Any) -> bool:
        """Return whether a row asks to delete an account."""
        asked = self._operation(row) if self._of_accounts else None
        return asked.__class__ is str and asked in self._of_accounts

    def _with_id(self, error: DecodeError, row: Any) -> DecodeError:
        """Return an error with the id of its row, unless that is of a wrong type."""
        parts = [get(row) for _, get in self._id_parts]
        if any(part is not None and part.__class__ not in {str, int} for part in parts):
            return error
        name = id_of(parts)
        return error._replace(id=name, has_no_id=name is None)

    def metadata_without_decoding(self, raw: RawColumns, places: NDArray[np.int64]) -> Metadata:
        """Return the metadata that is known without decoding: names by offset, and times."""
        n = len(places)
        return Metadata(
            ids=[place_name(raw.partition, offset) for offset in raw.offsets[places].tolist()],
            times_ms=raw.times_ms[places].tolist(),
            users=[None] * n,
            langs=[None] * n,
            fields=[{} for _ in range(n)],
        )

    def _metadata_fields(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {name: value for name, get in self._fields if (value := get(row)) is not None}
            for row in rows
        ]

    def _operations_and_texts(
        self, rows: list[Any], errors_by_row: dict[int, DecodeError]
    ) -> tuple[list[Operation], list[str]]:
        """Return the operation and the text of each row; a deletion needs no text."""
        operations: list[Operation] = []
        texts: list[str] = []
        for k, row in enumerate(rows):
            text, asked = self._text(row) if self._needs_text else "", self._operation(row)
            if asked is None and text.__class__ is str and "\0" not in text:
                operations.append(Operation.CREATE)  # the common case
                texts.append(text)
                continue
            found = self._checked(text, asked)
            if isinstance(found, DecodeError):
                errors_by_row[k] = found
                found = _FLAWED
            operations.append(found[0])
            texts.append(found[1])
        return operations, texts

    def _checked(self, text: Any, asked: Any) -> tuple[Operation, str] | DecodeError:
        """Return operation and text of one message, or the error in one of them."""
        path = self._settings.text
        operation = asked if asked.__class__ is Operation else None
        if asked is None or asked.__class__ is str:
            operation = self._operations.get(asked)
        if operation is None:
            return DecodeError(
                Reason.WRONG_TYPE,
                f"the operation at '{self._settings.operation}' is {quoted(asked)}; it is one of "
                f"{', '.join(self._settings.operations)} (setting message.operation)",
            )
        if operation is Operation.DELETE:
            # It teaches nothing, so its text is not even checked.
            return operation, ""
        if text.__class__ is str:
            if "\0" in text:
                return DecodeError(Reason.NULL_BYTES, f"the text at '{path}' holds a NUL character")
            return operation, text
        if text is None:
            why = f"no text at '{path}' (setting message.text{self._columns})"
            return DecodeError(Reason.MISSING_TEXT, why)
        return DecodeError(
            Reason.WRONG_TYPE,
            f"the text at '{path}' is {quoted(text)}; a string is needed (setting message.text)",
        )

    def _check_ids(self, rows: list[Any], errors_by_row: dict[int, DecodeError]) -> None:
        """Note the ids of a wrong type; an id may be missing."""
        for path, get in self._id_parts:
            for k, value in enumerate(map(get, rows)):
                if value is None or value.__class__ is str or value.__class__ is int:
                    continue
                detail = f"the id at '{path}' is {quoted(value)}; a string or integer is needed"
                errors_by_row.setdefault(
                    k, DecodeError(Reason.WRONG_TYPE, f"{detail} (setting message.id)")
                )

    def _label_values(
        self, rows: list[Any], operations: list[Operation], errors_by_row: Collection[int]
    ) -> Sequence[Any]:
        """Return the values that the labeller reads; None for deletions and wrong messages.

        These teach nothing, so their labels must not take the place of other classes.
        """
        if self._label is None:
            return [None] * len(rows)
        values = [
            None if operation is Operation.DELETE else value
            for value, operation in zip(map(self._label, rows), operations, strict=True)
        ]
        for k in errors_by_row:
            values[k] = None
        return values


def key_id(raw: RawColumns, i: int) -> str | None:
    """Return the id that a message's key spells: the message that a tombstone deletes."""
    try:
        return (raw.key(i) or b"").decode() or None
    except UnicodeDecodeError:
        return None


def _nothing(_row: Any) -> None:
    """Return None: the getter of what is not read."""


def _formed(get: Getter, form: Callable[[str], str], row: Any) -> Any:
    """Return the text of a row in its final form; what is none stays as it is."""
    text = get(row)
    return form(text) if text.__class__ is str else text
