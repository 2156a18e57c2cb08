"""Messages one by one: the checks that each must pass, and the sentences for those that do not.

This is the authority on what a message says and on what is wrong with it. The scan of a batch
(`decode_scan`) only spares most messages the way through here.

What counts and what does not: the text where it is read, `operation`, `id`, the label and the
declared fields (`decode_fields`) must be right, or the message is rejected. `user` and `lang`
describe a message, and its time has a substitute, the source's; so a value of another kind in these
is taken as absent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consumers.config.settings import MessageSettings
from consumers.decode.csv import CsvReader
from consumers.decode.fields import Fault, Read, about_word, converter, id_of, nothing_of, shown
from consumers.decode.json import JsonReader
from consumers.decode.labels import Labeller
from consumers.decode.record_format import RecordFormat
from consumers.decode.times import to_unix_ms
from consumers.messages import About, Operation, RawColumns, Reason

Getter = Callable[[Any], Any]

_OPERATIONS = {None: Operation.CREATE} | {str(operation): operation for operation in Operation}
_FLAWED = (Operation.CREATE, "")  # stands in for a message that is on its way to the rejects


@dataclass(slots=True)
class Rows:
    """Messages that are right, as lists side by side, and what is wrong with the others.

    Attributes
    ----------
    at : list of int
        Which of the values the messages are, ascending.
    operations, texts, labels : list
        By message. A labeller has taken out of the texts what gave their labels away.
    fields : dict of str to list
        The other fields that are read, by message: texts or None, or floats.
    faults : dict of int to Fault
        By value.
    n_ambiguous : int
        Messages whose emoticons speak for more than one class.
    """

    at: list[int] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    fields: dict[str, list[Any]] = field(default_factory=dict)
    faults: dict[int, Fault] = field(default_factory=dict)
    n_ambiguous: int = 0

    def add(self, rows: Rows, first: int) -> None:
        """Add the rows of further values, of which the first is value `first`."""
        self.at += [first + k for k in rows.at]
        self.operations += rows.operations
        self.texts += rows.texts
        self.labels += rows.labels
        for name, column in rows.fields.items():
            self.fields.setdefault(name, []).extend(column)
        self.faults |= {first + k: fault for k, fault in rows.faults.items()}
        self.n_ambiguous += rows.n_ambiguous


class RowReader:
    """Reads messages of which each has a row: a JSON object, or the cells of a CSV record.

    Parameters
    ----------
    message : MessageSettings
        Where in a message its parts are.
    labeller : Labeller
        Where its label is.
    record_format : RecordFormat
        How the source writes its records.
    reads : mapping of str to Read
        The fields that the model reads beside the text.
    needs_text : bool
        Whether the text is read, so that it must be there and right; else it is not looked at.

    Attributes
    ----------
    reader : JsonReader or CsvReader
        Turns bytes into rows.

    Raises
    ------
    ConfigError
        When a configured path cannot be a JSON name.
    """

    def __init__(
        self,
        message: MessageSettings,
        labeller: Labeller,
        record_format: RecordFormat,
        reads: Mapping[str, Read],
        *,
        needs_text: bool = True,
    ) -> None:
        self._settings = message
        self._labeller = labeller
        self._needs_text = needs_text
        self.reader: JsonReader | CsvReader
        is_csv = record_format.kind == "csv"
        if is_csv:
            self.reader = CsvReader(record_format)
            self._text: Getter = self.reader.text_getter(message.text)
        else:
            paths = [
                *message.id_paths, message.time, message.user, message.lang, message.operation,
                *message.fields, *(read.path for read in reads.values()),
                *([message.text] if needs_text else []), *filter(None, [labeller.path]),
            ]  # fmt: skip
            self.reader = JsonReader(paths, record_format.encoding)
            self._text = self.reader.getter(message.text) if needs_text else _nothing
        getter = self.reader.getter
        self._id_parts = [(path, getter(path)) for path in message.id_paths]
        self._time = getter(message.time)
        self._user = getter(message.user)
        self._lang = getter(message.lang)
        self._operation = getter(message.operation)
        self._fields = [(path, getter(path)) for path in message.fields]
        self._label = getter(labeller.path) if labeller.path else None
        self._reads = [
            (name, read, getter(read.path), converter(read, is_csv=is_csv))
            for name, read in reads.items()
        ]

    def read(self, values: Sequence[bytes]) -> Rows:
        """Read messages.

        Parameters
        ----------
        values : sequence of bytes
            Each one a whole message.

        Returns
        -------
        Rows
            Each value is a message or has a fault.
        """
        rows, faults = self.reader.rows(values)
        if isinstance(self.reader, JsonReader):
            self.reader.refuse_deep(values, rows, faults)
        at = list(range(len(rows)))
        if faults:
            at = [k for k in at if k not in faults]
            rows = [rows[k] for k in at]
        wrong: dict[int, Fault] = {}  # by position in `rows`
        operations, texts = self._operations_and_texts(rows, wrong)
        self._check_ids(rows, wrong)
        fields = self._read_fields(rows, operations, wrong)
        for k in wrong:
            texts[k] = ""  # so that no message counts twice: as rejected, and as ambiguous
        labelled = self._labeller.label(self._label_values(rows, operations), texts)
        for k, fault in labelled.faults.items():
            wrong.setdefault(k, fault)
        keep = [k not in wrong for k in range(len(rows))]

        def kept(column: Sequence[Any]) -> list[Any]:
            return list(itertools.compress(column, keep))

        return Rows(
            at=kept(at),
            operations=kept(operations),
            texts=kept(labelled.texts),
            labels=kept(labelled.labels),
            fields={name: kept(column) for name, column in fields.items()},
            faults=faults | {at[k]: fault for k, fault in wrong.items()},
            n_ambiguous=labelled.n_ambiguous,
        )

    def _read_fields(
        self, rows: list[Any], operations: list[Operation], wrong: dict[int, Fault]
    ) -> dict[str, list[Any]]:
        """Return the declared fields of each row; of a deletion none is looked at."""
        fields: dict[str, list[Any]] = {}
        for name, read, get, convert in self._reads:
            column = list(map(convert, map(get, rows)))
            for k, value in enumerate(column):
                if operations[k] is Operation.DELETE:
                    column[k] = nothing_of(read)
                elif value.__class__ is Fault:
                    wrong.setdefault(k, value)
            fields[name] = column
        return fields

    def about(self, raw: RawColumns, places: NDArray[np.int64]) -> About:
        """Return what some messages of a batch, which have no fault, say of themselves.

        A message without an id, or without a part of it, is named by its place in the stream, and
        one without a time of its own has the source's.
        """
        rows, _ = self.reader.rows([value or b"" for value in raw.values(places)])
        given = zip(self._ids(rows), raw.offsets[places].tolist(), strict=True)
        own = zip(
            map(to_unix_ms, map(self._time, rows)), raw.times_ms[places].tolist(), strict=True
        )
        return About(
            ids=[_place_name(raw, offset) if name is None else str(name) for name, offset in given],
            times_ms=[source_ms if own_ms is None else own_ms for own_ms, source_ms in own],
            users=list(map(about_word, map(self._user, rows))),
            langs=list(map(about_word, map(self._lang, rows))),
            fields=self._about_fields(rows),
        )

    def _ids(self, rows: Sequence[Any]) -> Iterable[str | int | None]:
        """Return the id of each row; one of a single part needs no call of ours."""
        columns = [map(get, rows) for _, get in self._id_parts]
        return columns[0] if len(columns) == 1 else map(id_of, zip(*columns, strict=True))

    def nothing_about(self, raw: RawColumns, places: NDArray[np.int64]) -> About:
        """Return what is known of messages without a look into them: their places and times."""
        n = len(places)
        return About(
            ids=[_place_name(raw, offset) for offset in raw.offsets[places].tolist()],
            times_ms=raw.times_ms[places].tolist(),
            users=[None] * n,
            langs=[None] * n,
            fields=[{} for _ in range(n)],
        )

    def _about_fields(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = [{} for _ in rows]
        for name, get in self._fields:
            for own, row in zip(fields, rows, strict=True):
                value = get(row)
                if value is not None:
                    own[name] = value
        return fields

    def _operations_and_texts(
        self, rows: list[Any], wrong: dict[int, Fault]
    ) -> tuple[list[Operation], list[str]]:
        """Return what each row asks for, and its text; a deletion needs none."""
        operations: list[Operation] = []
        texts: list[str] = []
        for k, row in enumerate(rows):
            text, asked = self._text(row) if self._needs_text else "", self._operation(row)
            if asked is None and text.__class__ is str and "\0" not in text:
                operations.append(Operation.CREATE)  # as nearly all do
                texts.append(text)
                continue
            found = self._checked(text, asked)
            if isinstance(found, Fault):
                wrong[k] = found
                found = _FLAWED
            operations.append(found[0])
            texts.append(found[1])
        return operations, texts

    def _checked(self, text: Any, asked: Any) -> tuple[Operation, str] | Fault:
        """Return operation and text of one message when both are right."""
        path = self._settings.text
        operation = None
        if asked is None or asked.__class__ is str:
            operation = _OPERATIONS.get(asked)
        if operation is None:
            return Fault(
                Reason.WRONG_TYPE,
                f"the operation at '{self._settings.operation}' is {shown(asked)}; it is one of "
                f"{', '.join(Operation)} (setting message.operation)",
            )
        if operation is Operation.DELETE:
            # It teaches nothing: what its text says is not looked at, signs least of all.
            return operation, ""
        if text.__class__ is str:
            if "\0" in text:
                return Fault(Reason.NULL_BYTES, f"the text at '{path}' holds a NUL character")
            return operation, text
        if text is None:
            return Fault(Reason.MISSING_TEXT, f"no text at '{path}' (setting message.text)")
        return Fault(
            Reason.WRONG_TYPE,
            f"the text at '{path}' is {shown(text)}; a string is needed (setting message.text)",
        )

    def _check_ids(self, rows: list[Any], wrong: dict[int, Fault]) -> None:
        """Find the ids that are none; a message may be without one."""
        for path, get in self._id_parts:
            for k, value in enumerate(map(get, rows)):
                if value is None or value.__class__ is str or value.__class__ is int:
                    continue
                detail = f"the id at '{path}' is {shown(value)}; a string or integer is needed"
                wrong.setdefault(k, Fault(Reason.WRONG_TYPE, f"{detail} (setting message.id)"))

    def _label_values(self, rows: list[Any], operations: list[Operation]) -> Sequence[Any]:
        """Return what the labeller asks for; a deletion teaches nothing, so it gives None."""
        if self._label is None:
            return [None] * len(rows)
        return [
            None if operation is Operation.DELETE else value
            for value, operation in zip(map(self._label, rows), operations, strict=True)
        ]


def _place_name(raw: RawColumns, offset: int) -> str:
    """Return the name of a message without an id."""
    return f"{raw.partition.topic}-{raw.partition.partition}-{offset}"


def _nothing(_row: Any) -> None:
    """Stand in for the getter of a text that nobody reads."""
