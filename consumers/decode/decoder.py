"""Raw bytes to messages: the columns of a batch in, the columns of its messages out.

Nothing a message holds can end the program, and no message vanishes: each becomes one row of
`Messages` or one `Reject`, and offsets keep their order.

Most messages are plain JSON: compiled loops find their text, label, operation and declared fields,
without a Python object for any of them. A message of which these are not sure goes the way of all
messages before, one by one (`decode_rows`), and so do records of other forms. Both ways say the
same of a message.

A mistake of ours in here must not cost the stream: a message at which the code fails is rejected as
`decoder_failed`, with the exception's name, and the first failure of each kind is an error in the
log. A test that decodes sees such a reject where it wants none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import structlog
from numpy.typing import NDArray

from consumers.config.model import Kind
from consumers.config.settings import MessageSettings
from consumers.decode.fields import (
    Column,
    Fault,
    How,
    Read,
    chosen,
    chosen_texts,
    missing,
    reads_of,
    replaced,
    with_texts,
)
from consumers.decode.json import JsonReader
from consumers.decode.json_scanner import JsonScanner, Scan, names_of
from consumers.decode.kernels.json_scan import (
    ABSENT,
    ARRAY,
    ESCAPED,
    FALSE,
    INTEGER,
    NULL,
    PLAIN,
    TRUE,
)
from consumers.decode.kernels.spans import OTHER
from consumers.decode.labels import Labeller
from consumers.decode.record_format import RecordFormat
from consumers.decode.rows import RowReader, Rows
from consumers.messages import (
    NO_LABEL,
    OPERATIONS,
    About,
    Messages,
    Operation,
    RawColumns,
    Reason,
    Reject,
)
from streamnb.columns import missing_text
from streamnb.kernels.layout import Texts

log = structlog.get_logger(__name__)
_DETAIL_MAX = 200
_CODES = {operation: code for code, operation in enumerate(OPERATIONS)}


@dataclass(slots=True)
class _Columns:
    """What is known of each message of a batch so far, as arrays of one length."""

    again: NDArray[np.bool_]
    operations: NDArray[np.int8]
    labels: NDArray[np.int32]
    texts: Texts
    fields: dict[str, Column]
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
    reads : mapping of str to Kind, optional
        The fields that the model reads (``text``, ``user``, ``lang``, or a path) and what its
        groups make of them; words of the text when left out.

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
        reads: Mapping[str, Kind] | None = None,
    ) -> None:
        self._settings = message
        self._labeller = labeller
        reads = {"text": "words"} if reads is None else reads
        self._needs_text = "text" in reads or labeller.reads_text
        self._reads = reads_of(reads, message)
        form = record_format or RecordFormat()
        self._rows = RowReader(message, labeller, form, self._reads, needs_text=self._needs_text)
        self._code_of = {None: NO_LABEL} | {name: c for c, name in enumerate(labeller.classes)}
        self._operation_names = names_of([str(operation) for operation in OPERATIONS])
        self._label_names = names_of(list(labeller.known))
        codes = [self._code_of[name] for name in labeller.known.values()]
        # What `match` answers → code; its last two are OTHER and NOTHING.
        self._label_codes = np.array([*codes, NO_LABEL, NO_LABEL], np.int32)
        self._failures: set[tuple[str, str, int]] = set()
        self._scanner: JsonScanner | None = None
        reader = self._rows.reader
        if isinstance(reader, JsonReader) and form.encoding == "utf-8":
            paths = {*message.id_paths, message.operation}
            paths |= {read.path for read in self._reads.values()}
            if self._needs_text:
                paths.add(message.text)
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
        try:
            columns = self._scanned(raw, faults)
        except Exception as error:  # noqa: BLE001 -- the authority finds out of which message it is
            self._note(error)
            columns = self._nothing(len(raw))
        columns.again[list(faults)] = False
        at = np.flatnonzero(columns.again)
        if len(at):
            rows = self._read([raw.value(i) or b"" for i in at.tolist()])
            faults |= {int(at[k]): fault for k, fault in rows.faults.items()}
            self._put(columns, at[rows.at], rows)
        keep = np.ones(len(raw), np.bool_)
        keep[list(faults)] = False
        return self._messages(raw, np.flatnonzero(keep), columns, faults)

    def _read(self, values: list[bytes]) -> Rows:
        """Read messages one by one; one at which the code fails has a fault."""
        try:
            return self._rows.read(values)
        except Exception as error:  # noqa: BLE001 -- named in the reject, and logged
            detail = self._note(error)
        if len(values) == 1:
            return Rows(
                fields={name: [] for name in self._reads},
                faults={0: Fault(Reason.DECODER_FAILED, detail)},
            )
        rows = Rows()
        for k, value in enumerate(values):
            rows.add(self._read([value]), k)
        return rows

    def _about(self, raw: RawColumns, places: NDArray[np.int64]) -> About:
        """Return what messages say of themselves; nothing of one at which the code fails.

        It may have been learned already, so that a reject would count it twice.
        """
        try:
            return self._rows.about(raw, places)
        except Exception as error:  # noqa: BLE001 -- logged
            self._note(error)
        if len(places) == 1:
            return self._rows.nothing_about(raw, places)
        each = [self._about(raw, places[k : k + 1]) for k in range(len(places))]
        return About(*([entry for (entry,) in column] for column in zip(*each, strict=True)))

    def _note(self, error: Exception) -> str:
        """Log an exception that nobody expected, once a kind and place; return its sentence.

        Where memory is short it is no message's fault, and the error goes on.
        """
        if isinstance(error, MemoryError):
            raise error
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = ("", 0) if trace is None else (trace.tb_frame.f_code.co_name, trace.tb_lineno)
        detail = f"{type(error).__name__}: {error}"[:_DETAIL_MAX]
        if (type(error).__name__, *place) not in self._failures:
            self._failures.add((type(error).__name__, *place))
            log.error("decoder_failed", detail=detail, exc_info=error)
        return f"the decoder failed: {detail}; this is a mistake in streamnb, please report it"

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
            texts=chosen_texts(columns.texts, at),
            fields={name: chosen(column, at) for name, column in columns.fields.items()},
            about=self._about,
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
        again |= operations == OTHER
        for path in settings.id_paths:
            again |= ~scan.is_any(path, (ABSENT, NULL, PLAIN, ESCAPED, INTEGER))
        texts = missing_text(len(raw)).texts
        if self._needs_text:
            again |= ~deleted & ~scan.is_any(settings.text, (PLAIN, ESCAPED))
            texts = scan.texts(settings.text)
            texts.ends[deleted] = -1
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
            texts=texts,
            fields={name: _field(scan, read, deleted, again) for name, read in self._reads.items()},
        )
        if self._labeller.reads_text:
            self._label_by_text(columns)
        return columns

    def _nothing(self, n: int) -> _Columns:
        """Return columns of `n` messages that all are to be looked at."""
        return _Columns(
            again=np.ones(n, np.bool_),
            operations=np.zeros(n, np.int8),
            labels=np.full(n, NO_LABEL, np.int32),
            texts=missing_text(n).texts,
            fields={name: missing(read, n) for name, read in self._reads.items()},
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
        columns.texts = with_texts(columns.texts, at[changed], [done.texts[k] for k in changed])

    def _put(self, columns: _Columns, at: NDArray[np.int64], rows: Rows) -> None:
        """Enter messages that were read one by one."""
        columns.operations[at] = [_CODES[operation] for operation in rows.operations]
        columns.labels[at] = [self._code_of[label] for label in rows.labels]
        if self._needs_text:
            columns.texts = with_texts(columns.texts, at, rows.texts)
        for name, column in columns.fields.items():
            columns.fields[name] = replaced(column, at, rows.fields[name])
        columns.n_ambiguous += rows.n_ambiguous


def _field(scan: Scan, read: Read, deleted: NDArray[np.bool_], again: NDArray[np.bool_]) -> Column:
    """Return a declared field as a column; where it is not sure, note so in `again`."""
    if read.how in {How.NUMBER, How.FLAG}:
        values, unsure = (scan.numbers if read.how is How.NUMBER else scan.flags)(read.path)
        again |= unsure & ~deleted
        values[deleted] = np.nan
        return values
    also: tuple[int, ...] = ()
    if read.how is How.ABOUT:
        also = (INTEGER,)
        # Of a list the first entry counts, which the scan knows nothing of.
        again |= ~deleted & (scan.kinds(read.path) == ARRAY)
    elif read.how is How.CATEGORY:
        also = (INTEGER, TRUE, FALSE)
        again |= ~deleted & ~scan.is_any(read.path, (ABSENT, NULL, PLAIN, ESCAPED, *also))
    texts = scan.texts(read.path, also)
    texts.ends[deleted] = -1
    return texts
