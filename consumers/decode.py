"""Raw bytes to messages: the columns of a batch in, the columns of its messages out.

Nothing a message holds can end the program, and no message vanishes: each becomes one row of
`Messages` or one `Reject`, and offsets keep their order. The work goes column by column, because a
Python loop over one column of plain values is several times as fast as one that builds objects.

What counts and what does not: `text`, `operation`, `id` and the label must be right, or the message
is rejected. `user` and `lang` describe a message, and its time has a substitute, the source's; so a
value of another kind in these is taken as absent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from consumers.config import MessageSettings
from consumers.decode_csv import CsvReader
from consumers.decode_json import JsonReader
from consumers.decode_time import to_unix_ms
from consumers.fault import Fault
from consumers.labels import Labeller
from consumers.messages import Messages, Operation, RawColumns, Reason, Reject
from consumers.record_format import RecordFormat

Getter = Callable[[Any], Any]

_OPERATIONS = {None: Operation.CREATE} | {str(operation): operation for operation in Operation}
_FLAWED = (Operation.CREATE, "")  # stands in for a message that is on its way to the rejects


class Decoder:
    """Makes `Messages` of a source's `RawColumns`.

    Parameters
    ----------
    message : MessageSettings
        Where in a message its parts are.
    labeller : Labeller
        Where its label is.
    record_format : RecordFormat, optional
        How the source writes its records; JSON when left out.

    Raises
    ------
    ConfigError
        When a configured path cannot be a JSON name.
    """

    def __init__(
        self,
        message: MessageSettings,
        labeller: Labeller,
        record_format: RecordFormat | None = None,
    ) -> None:
        self._settings = message
        self._labeller = labeller
        form = record_format or RecordFormat()
        self._reader: JsonReader | CsvReader
        if form.kind == "csv":
            self._reader = CsvReader(form)
            self._text: Getter = self._reader.text_getter(message.text)
        else:
            paths = [
                message.id, message.time, message.user, message.lang, message.text,
                message.operation, *message.fields, *filter(None, [labeller.path]),
            ]  # fmt: skip
            self._reader = JsonReader(paths, form.encoding)
            self._text = self._reader.getter(message.text)
        getter = self._reader.getter
        self._id = getter(message.id)
        self._time = getter(message.time)
        self._user = getter(message.user)
        self._lang = getter(message.lang)
        self._operation = getter(message.operation)
        self._fields = {path: getter(path) for path in message.fields}
        self._label = getter(labeller.path) if labeller.path else None

    def decode(self, raw: RawColumns) -> Messages:
        """Decode a batch.

        Parameters
        ----------
        raw : RawColumns
            The messages of one partition as they came.

        Returns
        -------
        Messages
            One row for each message that can be used, and a reject for each that cannot: together
            as many as `raw` holds.
        """
        faults: dict[int, Fault] = {}
        at, rows = self._rows(raw, faults)
        done = self._columns(raw, at, rows, faults)
        partition = raw.partition
        done.rejects = [
            Reject(
                reason, detail, partition, int(raw.offsets[i]), int(raw.times_ms[i]),
                raw.key(i), raw.value(i),
            )
            for i, (reason, detail) in sorted(faults.items())
        ]  # fmt: skip
        return done

    def _rows(self, raw: RawColumns, faults: dict[int, Fault]) -> tuple[list[int], list[Any]]:
        """Return the positions of the messages that parse, and their rows."""
        sizes = raw.value_ends - raw.value_starts
        null = raw.value_ends < 0
        large = ~null & (sizes > self._settings.max_bytes)
        for i in np.flatnonzero(null).tolist():
            faults[i] = Fault(Reason.TOMBSTONE, "the value is null")
        for i in np.flatnonzero(large).tolist():
            faults[i] = Fault(
                Reason.TOO_LARGE,
                f"{sizes[i]} bytes, message.max_bytes is {self._settings.max_bytes}",
            )
        at: list[int] = np.flatnonzero(~(null | large)).tolist()
        buffer = raw.buffer
        starts, ends = raw.value_starts[at].tolist(), raw.value_ends[at].tolist()
        values = [buffer[start:end] for start, end in zip(starts, ends, strict=True)]
        rows, bad = self._reader.rows(values)
        if bad:
            for k, fault in bad.items():
                faults[at[k]] = fault
            good = [k not in bad for k in range(len(at))]
            at, rows = list(itertools.compress(at, good)), list(itertools.compress(rows, good))
        return at, rows

    def _columns(
        self, raw: RawColumns, at: list[int], rows: list[Any], faults: dict[int, Fault]
    ) -> Messages:
        """Read every part of the rows, and leave out the rows whose parts are wrong."""
        wrong: dict[int, Fault] = {}  # by position in `rows`
        offsets: list[int] = raw.offsets[at].tolist()
        operations, texts = self._operations_and_texts(rows, wrong)
        ids = self._ids(raw, offsets, rows, wrong)
        for k in wrong:
            texts[k] = ""  # so that no message counts twice: as rejected, and as ambiguous
        labelled = self._labeller.label(self._label_values(rows, operations), texts)
        for k, fault in labelled.faults.items():
            wrong.setdefault(k, fault)
        keep = [k not in wrong for k in range(len(rows))]
        for k, fault in wrong.items():
            faults[at[k]] = fault

        def kept(column: list[Any]) -> list[Any]:
            return list(itertools.compress(column, keep)) if wrong else column

        return Messages(
            partition=raw.partition,
            next_offset=raw.next_offset,
            offsets=kept(offsets),
            ids=kept(ids),
            times_ms=kept(self._times_ms(raw.times_ms[at].tolist(), rows)),
            users=kept(_words(map(self._user, rows))),
            langs=kept(_words(map(self._lang, rows))),
            texts=kept(labelled.texts),
            labels=kept(labelled.labels),
            operations=kept(operations),
            fields=kept(self._field_values(rows)),
            n_ambiguous=labelled.n_ambiguous,
        )

    def _operations_and_texts(
        self, rows: list[Any], wrong: dict[int, Fault]
    ) -> tuple[list[Operation], list[str]]:
        """Return what each row asks for, and its text; a deletion needs none."""
        operations: list[Operation] = []
        texts: list[str] = []
        for k, row in enumerate(rows):
            text, asked = self._text(row), self._operation(row)
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
                f"the operation at '{self._settings.operation}' is {_shown(asked)}; it is one of "
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
            f"the text at '{path}' is {_shown(text)}; a string is needed (setting message.text)",
        )

    def _ids(
        self, raw: RawColumns, offsets: list[int], rows: list[Any], wrong: dict[int, Fault]
    ) -> list[str]:
        """Return the ids; a message without one is named by its place in the stream."""
        place = f"{raw.partition.topic}-{raw.partition.partition}-"
        ids: list[str] = []
        for k, value in enumerate(map(self._id, rows)):
            if value.__class__ is str or value.__class__ is int:
                ids.append(str(value))
                continue
            ids.append(f"{place}{offsets[k]}")
            if value is not None:
                path = self._settings.id
                detail = f"the id at '{path}' is {_shown(value)}; a string or integer is needed"
                wrong.setdefault(k, Fault(Reason.WRONG_TYPE, f"{detail} (setting message.id)"))
        return ids

    def _times_ms(self, source_times_ms: list[int], rows: list[Any]) -> list[int]:
        """Return the times the messages give, and the source's where they give none."""
        given = [to_unix_ms(value) for value in map(self._time, rows)]
        return [
            source if own is None else own
            for own, source in zip(given, source_times_ms, strict=True)
        ]

    def _label_values(self, rows: list[Any], operations: list[Operation]) -> Sequence[Any]:
        """Return what the labeller asks for; a deletion teaches nothing, so it gives None."""
        if self._label is None:
            return [None] * len(rows)
        return [
            None if operation is Operation.DELETE else value
            for value, operation in zip(map(self._label, rows), operations, strict=True)
        ]

    def _field_values(self, rows: list[Any]) -> list[dict[str, Any]]:
        """Return the other configured fields of each row, by path; absent and null are left out."""
        if not self._fields:
            return [{} for _ in rows]
        getters = self._fields.items()
        return [
            {path: value for path, get in getters if (value := get(row)) is not None}
            for row in rows
        ]


def _words(values: Iterable[Any]) -> list[str | None]:
    """Return users or languages as texts, None where there is none."""
    return [
        value if value is None or value.__class__ is str else _other_word(value) for value in values
    ]


def _other_word(value: Any) -> str | None:
    """Return a number as text, and of a list, such as Bluesky's `langs`, the first entry."""
    if value.__class__ is list and value:
        value = value[0]
    return str(value) if value.__class__ is str or value.__class__ is int else None


def _shown(value: Any) -> str:
    """Return a value as it goes into a message to people: short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
