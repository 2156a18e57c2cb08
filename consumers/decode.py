"""Raw bytes to messages: the columns of a batch in, the columns of its messages out.

Nothing a message holds can end the program, and no message vanishes: each becomes one row of
`Messages` or one `Reject`, and offsets keep their order.

Most messages are plain JSON: compiled loops find their text, label and operation, without a Python
object for any of them. A message of which these are not sure goes the way of all messages before,
one by one (`decode_rows`), and so do records of other forms. Both ways say the same of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consumers.config import MessageSettings
from consumers.decode_json import JsonReader
from consumers.decode_rows import RowReader, Rows
from consumers.decode_scan import JsonScanner, names_of
from consumers.fault import Fault
from consumers.kernels.json_values import ABSENT, ARRAY, ESCAPED, INTEGER, NULL, PLAIN
from consumers.kernels.spans import OTHER
from consumers.labels import Labeller
from consumers.messages import (
    NO_LABEL,
    OPERATIONS,
    Messages,
    Operation,
    RawColumns,
    Reason,
    Reject,
)
from consumers.record_format import RecordFormat
from streamnb import TextColumn
from streamnb.columns import missing_text, text_column
from streamnb.kernels.layout import Texts

_CODES = {operation: code for code, operation in enumerate(OPERATIONS)}


@dataclass(slots=True)
class _Columns:
    """What is known of each message of a batch so far, as arrays of one length."""

    again: NDArray[np.bool_]
    operations: NDArray[np.int8]
    labels: NDArray[np.int32]
    texts: Texts
    fields: dict[str, Texts]
    n_ambiguous: int = 0


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
    reads : sequence of str
        The fields that the model reads: ``text``, ``user``, ``lang``, or among `message.fields`.

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
        reads: Sequence[str] = ("text",),
    ) -> None:
        self._settings = message
        self._labeller = labeller
        words = {"user": message.user, "lang": message.lang}
        self._reads = {name: words.get(name, name) for name in reads if name != "text"}
        self._words = words.keys() & set(reads)
        form = record_format or RecordFormat()
        self._rows = RowReader(message, labeller, form, tuple(self._reads))
        self._code_of = {None: NO_LABEL} | {name: c for c, name in enumerate(labeller.classes)}
        self._operation_names = names_of([str(operation) for operation in OPERATIONS])
        self._label_names = names_of(list(labeller.known))
        codes = [self._code_of[name] for name in labeller.known.values()]
        # What `match` answers → code; its last two are OTHER and NOTHING.
        self._label_codes = np.array([*codes, NO_LABEL, NO_LABEL], np.int32)
        self._scanner: JsonScanner | None = None
        reader = self._rows.reader
        if isinstance(reader, JsonReader) and form.encoding == "utf-8":
            paths = {message.id, message.text, message.operation, *self._reads.values()}
            self._scanner = JsonScanner(reader.root, paths | set(filter(None, [labeller.path])))

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
        faults = self._unfit(raw)
        columns = self._scanned(raw, faults)
        columns.again[list(faults)] = False
        at = np.flatnonzero(columns.again)
        if len(at):
            rows = self._rows.read([raw.value(i) or b"" for i in at.tolist()])
            faults |= {int(at[k]): fault for k, fault in rows.faults.items()}
            self._put(columns, at[rows.at], rows)
        keep = np.ones(len(raw), np.bool_)
        keep[list(faults)] = False
        return self._messages(raw, np.flatnonzero(keep), columns, faults)

    def _messages(
        self,
        raw: RawColumns,
        at: NDArray[np.int64],
        columns: _Columns,
        faults: dict[int, Fault],
    ) -> Messages:
        """Return the messages at some places of a batch, and the rejects that faults make."""
        return Messages(
            raw=raw,
            at=at,
            classes=self._labeller.classes,
            labels=columns.labels[at],
            operations=columns.operations[at],
            texts=_chosen(columns.texts, at),
            fields={name: _chosen(texts, at) for name, texts in columns.fields.items()},
            about=self._rows.about,
            rejects=[
                Reject(
                    reason, detail, raw.partition, int(raw.offsets[i]), int(raw.times_ms[i]),
                    raw.key(i), raw.value(i),
                )
                for i, (reason, detail) in sorted(faults.items())
            ],
            n_ambiguous=columns.n_ambiguous,
        )  # fmt: skip

    def _unfit(self, raw: RawColumns) -> dict[int, Fault]:
        """Return what is wrong with messages whose bytes need not be looked at."""
        sizes = raw.value_ends - raw.value_starts
        null = raw.value_ends < 0
        large = ~null & (sizes > self._settings.max_bytes)
        return {
            i: Fault(Reason.TOMBSTONE, "the value is null") for i in np.flatnonzero(null).tolist()
        } | {
            i: Fault(
                Reason.TOO_LARGE,
                f"{sizes[i]} bytes, message.max_bytes is {self._settings.max_bytes}",
            )
            for i in np.flatnonzero(large).tolist()
        }

    def _scanned(self, raw: RawColumns, faults: dict[int, Fault]) -> _Columns:
        """Return what the scan is sure of; all else is to be looked at again."""
        if self._scanner is None:
            return self._nothing(len(raw))
        ends = raw.value_ends.copy()
        ends[list(faults)] = -1
        scan = self._scanner.scan(raw.buffer, raw.value_starts, ends)
        again, settings = scan.again, self._settings
        operations = scan.match(settings.operation, self._operation_names)
        deleted = operations == _CODES[Operation.DELETE]
        again |= (operations == OTHER) | ~scan.is_any(
            settings.id, (ABSENT, NULL, PLAIN, ESCAPED, INTEGER)
        )
        again |= ~deleted & ~scan.is_any(settings.text, (PLAIN, ESCAPED))
        # Of a list the first entry counts, which the scan knows nothing of.
        for name in self._words:
            again |= scan.kinds(self._reads[name]) == ARRAY
        labels = np.full(len(raw), NO_LABEL, np.int32)
        if self._labeller.path:
            found = scan.match(self._labeller.path, self._label_names)
            again |= ~deleted & (found == OTHER)
            labels = np.where(deleted, np.int32(NO_LABEL), self._label_codes[found])
        # Absent is NOTHING, below zero: to create is what nearly all messages ask for, unsaid.
        columns = _Columns(
            again=again,
            operations=np.maximum(operations, _CODES[Operation.CREATE]).astype(np.int8),
            labels=labels,
            texts=scan.texts(settings.text),
            fields={
                name: scan.texts(path, with_integers=name in self._words)
                for name, path in self._reads.items()
            },
        )
        columns.texts.ends[deleted] = -1
        if self._labeller.path is None:
            self._label_by_text(columns)
        return columns

    def _nothing(self, n: int) -> _Columns:
        """Return columns of `n` messages that all are to be looked at."""
        return _Columns(
            again=np.ones(n, np.bool_),
            operations=np.zeros(n, np.int8),
            labels=np.full(n, NO_LABEL, np.int32),
            texts=missing_text(n).texts,
            fields={name: missing_text(n).texts for name in self._reads},
        )

    def _label_by_text(self, columns: _Columns) -> None:
        """Have the labeller read the texts, and change those that gave a label away."""
        data, starts, ends = columns.texts
        at = np.flatnonzero(~columns.again & (ends >= 0))
        plain = data.tobytes()
        bounds = zip(starts[at].tolist(), ends[at].tolist(), strict=True)
        texts = [plain[start:end].decode() for start, end in bounds]
        done = self._labeller.label([None] * len(texts), texts)
        columns.labels[at] = [self._code_of[label] for label in done.labels]
        columns.n_ambiguous = done.n_ambiguous
        changed = [k for k, text in enumerate(texts) if done.texts[k] is not text]
        columns.texts = _with(columns.texts, at[changed], [done.texts[k] for k in changed])

    def _put(self, columns: _Columns, at: NDArray[np.int64], rows: Rows) -> None:
        """Enter messages that were read one by one."""
        columns.operations[at] = [_CODES[operation] for operation in rows.operations]
        columns.labels[at] = [self._code_of[label] for label in rows.labels]
        columns.texts = _with(columns.texts, at, rows.texts)
        for name, texts in columns.fields.items():
            columns.fields[name] = _with(texts, at, rows.fields[name])
        columns.n_ambiguous += rows.n_ambiguous


def _with(texts: Texts, at: NDArray[np.int64], values: Sequence[str | None]) -> Texts:
    """Return texts of which those at some places are others."""
    new = text_column("text", values).piece(0, len(values))
    room = len(texts.data)
    starts, ends = texts.starts.copy(), texts.ends.copy()
    starts[at] = new.starts + room
    ends[at] = np.where(new.ends < 0, -1, new.ends + room)
    return Texts(np.concatenate((texts.data, new.data)), starts, ends)


def _chosen(texts: Texts, at: NDArray[np.int64]) -> TextColumn:
    """Return the texts at some places, ascending, over the same buffer."""
    if len(at) == len(texts.starts):
        return TextColumn(texts)
    return TextColumn(Texts(texts.data, texts.starts[at], texts.ends[at]))
