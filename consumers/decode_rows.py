"""Messages one by one: the checks that each must pass, and the sentences for those that do not.

This is the authority on what a message says and on what is wrong with it. The scan of a batch
(`decode_scan`) only spares most messages the way through here.

What counts and what does not: `text`, `operation`, `id` and the label must be right, or the message
is rejected. `user` and `lang` describe a message, and its time has a substitute, the source's; so a
value of another kind in these is taken as absent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumers.config import MessageSettings
from consumers.decode_csv import CsvReader
from consumers.decode_json import JsonReader
from consumers.decode_time import to_unix_ms
from consumers.fault import Fault
from consumers.labels import Labeller
from consumers.messages import About, Operation, RawColumns, Reason
from consumers.record_format import RecordFormat

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
        Other texts by message; None where what stands there is no text.
    faults : dict of int to Fault
        By value.
    n_ambiguous : int
        Messages whose emoticons speak for more than one class.
    """

    at: list[int]
    operations: list[Operation]
    texts: list[str]
    labels: list[str | None]
    fields: dict[str, list[str | None]] = field(default_factory=dict)
    faults: dict[int, Fault] = field(default_factory=dict)
    n_ambiguous: int = 0


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
    reads : sequence of str
        The fields that the model reads beside the text.

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
        reads: Sequence[str],
    ) -> None:
        self._settings = message
        self._labeller = labeller
        self.reader: JsonReader | CsvReader
        if record_format.kind == "csv":
            self.reader = CsvReader(record_format)
            self._text: Getter = self.reader.text_getter(message.text)
        else:
            paths = [
                message.id, message.time, message.user, message.lang, message.text,
                message.operation, *message.fields, *filter(None, [labeller.path]),
            ]  # fmt: skip
            self.reader = JsonReader(paths, record_format.encoding)
            self._text = self.reader.getter(message.text)
        getter = self.reader.getter
        self._id = getter(message.id)
        self._time = getter(message.time)
        self._user = getter(message.user)
        self._lang = getter(message.lang)
        self._operation = getter(message.operation)
        self._fields = {path: getter(path) for path in message.fields}
        self._label = getter(labeller.path) if labeller.path else None
        words: dict[str, Getter] = {
            "user": lambda row: _word(self._user(row)),
            "lang": lambda row: _word(self._lang(row)),
        }
        self._reads = {name: words.get(name) or self._only_text(name) for name in reads}

    def _only_text(self, path: str) -> Getter:
        get = self._fields[path]

        def text(row: Any) -> str | None:
            value = get(row)
            return value if isinstance(value, str) else None

        return text

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
        at = list(range(len(rows)))
        if faults:
            at = [k for k in at if k not in faults]
            rows = [rows[k] for k in at]
        wrong: dict[int, Fault] = {}  # by position in `rows`
        operations, texts = self._operations_and_texts(rows, wrong)
        self._check_ids(rows, wrong)
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
            fields={name: kept(list(map(get, rows))) for name, get in self._reads.items()},
            faults=faults | {at[k]: fault for k, fault in wrong.items()},
            n_ambiguous=labelled.n_ambiguous,
        )

    def about(self, raw: RawColumns, i: int) -> About:
        """Return what message `i` of a batch, which has no fault, says of itself.

        A message without an id is named by its place in the stream, and one without a time of its
        own has the source's.
        """
        (row,), _ = self.reader.rows([raw.value(i) or b""])
        given, time_ms = self._id(row), to_unix_ms(self._time(row))
        topic, partition = raw.partition
        own = {path: value for path, get in self._fields.items() if (value := get(row)) is not None}
        return About(
            id=f"{topic}-{partition}-{raw.offsets[i]}" if given is None else str(given),
            time_ms=int(raw.times_ms[i]) if time_ms is None else time_ms,
            user=_word(self._user(row)),
            lang=_word(self._lang(row)),
            fields=own,
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

    def _check_ids(self, rows: list[Any], wrong: dict[int, Fault]) -> None:
        """Find the ids that are none; a message may be without one."""
        for k, value in enumerate(map(self._id, rows)):
            if value is None or value.__class__ is str or value.__class__ is int:
                continue
            path = self._settings.id
            detail = f"the id at '{path}' is {_shown(value)}; a string or integer is needed"
            wrong.setdefault(k, Fault(Reason.WRONG_TYPE, f"{detail} (setting message.id)"))

    def _label_values(self, rows: list[Any], operations: list[Operation]) -> Sequence[Any]:
        """Return what the labeller asks for; a deletion teaches nothing, so it gives None."""
        if self._label is None:
            return [None] * len(rows)
        return [
            None if operation is Operation.DELETE else value
            for value, operation in zip(map(self._label, rows), operations, strict=True)
        ]


def _word(value: Any) -> str | None:
    """Return a user or language as text.

    A number is its digits, and of a list, such as Bluesky's `langs`, the first entry counts.
    """
    if value.__class__ is list and value:
        value = value[0]
    return str(value) if value.__class__ is str or value.__class__ is int else None


def _shown(value: Any) -> str:
    """Return a value as it goes into a message to people: short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
