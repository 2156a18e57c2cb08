"""Kafka messages, file records and generated messages to examples, a batch at a time.

`Decoder.decode` turns the raw columns of a batch into the columns of its messages. No message can
end the program and none vanishes: each becomes one row of `Messages` or one `Reject`, or is counted
as ignored where settings leave it out; offsets keep their order.

Most messages are plain JSON: compiled loops (`JsonScanner`) find their text, label, operation and
declared fields without a Python object for any of them. A message that these cannot decide is
decoded by itself (`rows`), and so are records of other formats. Both paths give the same result.

A bug in the decoder must not cost the stream: a message at which it raises is rejected as
`decoder_failed`, with the exception's name, and the first failure of each kind is logged.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import structlog
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.config.message import FieldLabels, LateLabelsSettings, MessageSettings, effective
from consumers.config.model import FieldKind
from consumers.decode.fields import (
    RETWEET_SIGN,
    DecodedColumn,
    DecodeError,
    field_specs,
    id_of,
    may_change,
    missing_column,
    take,
    text_form,
    with_entries,
    with_texts,
)
from consumers.decode.json import JsonReader, JsonScanner, ScanResult, name_table_of, scanned_field
from consumers.decode.labels import FieldLabeller, Labeller
from consumers.decode.rows import DecodedRows, RecordFormat, RowDecoder, key_id
from consumers.decode.schemas import Payloads
from consumers.kernels.json_scan import (
    ABSENT,
    ARRAY,
    ESCAPED,
    INTEGER,
    NOTHING,
    NULL,
    OBJECT,
    OTHER,
    PLAIN,
)
from consumers.messages import (
    NO_LABEL,
    OPERATIONS,
    Messages,
    Metadata,
    Operation,
    RawColumns,
    Reason,
    Reject,
    marked_ids,
    place_name,
    take_texts,
)
from streamnb import TextColumn
from streamnb.columns import missing_text
from streamnb.kernels.layout import Texts

log = structlog.get_logger(__name__)
_DETAIL_MAX = 200
_CODES = {operation: code for code, operation in enumerate(OPERATIONS)}


class _Columns(msgspec.Struct):
    """The columns of a batch while it is decoded, one entry a message."""

    undecided: NDArray[np.bool_]
    operations: NDArray[np.int8]
    labels: NDArray[np.int32]
    texts: Texts
    fields: dict[str, DecodedColumn]
    ids: Texts
    ignored: NDArray[np.int16]  # the code of the reason; -1: it is not
    n_ambiguous: int = 0


class Decoder:
    """Decodes `RawColumns` to `Messages`.

    `reads` are the fields that the model reads (``text``, ``user``, ``lang``, or a path) with the
    kind of their group; by default the words of the text. A path that cannot be a JSON name is a
    `ConfigError`. What is no JSON is turned into it by `payloads`, and a reject keeps the original.
    """

    def __init__(
        self,
        message: MessageSettings,
        labeller: Labeller,
        record_format: RecordFormat | None = None,
        reads: Mapping[str, FieldKind] | None = None,
        payloads: Payloads | None = None,
    ) -> None:
        message = effective(message)
        self._payloads = payloads
        self._settings = message
        self._labeller = labeller
        reads = {"text": "words"} if reads is None else reads
        self._needs_text = "text" in reads or labeller.reads_text
        self._reads = field_specs(reads, message)
        form = RecordFormat() if payloads is not None or record_format is None else record_format
        self._rows = RowDecoder(message, labeller, form, self._reads, needs_text=self._needs_text)
        # What deletes an account is rare, and decoded by itself.
        plain = {n: each for n, each in message.operations.items() if each != "delete_account"}
        self._operation_names = name_table_of(list(plain))
        # What `match` returns → code; its last two are OTHER and NOTHING. Nearly all messages
        # create, without saying so.
        named = [_CODES[Operation(each)] for each in plain.values()]
        self._operation_codes = np.array([*named, 0, _CODES[Operation.CREATE]], np.int8)
        self._text_form = text_form(message)
        self._selection = self._rows.selection
        self._number_labels()
        self._failures: set[tuple[str, str, int]] = set()
        self._scanner: JsonScanner | None = None
        reader = self._rows.reader
        if isinstance(reader, JsonReader) and form.encoding == "utf-8" and not message.unwrap:
            paths = {*message.id_paths, message.operation, *self._selection.paths}
            paths |= set(filter(None, [message.deleted]))
            paths |= {spec.path for spec in self._reads.values()}
            if self._needs_text:
                paths.add(message.text)
            self._scanner = JsonScanner(reader.root, paths | set(filter(None, [labeller.path])))

    def _number_labels(self) -> None:
        """Give each class its code, and each known label the code of its class."""
        labeller = self._labeller
        self._code_of = {None: NO_LABEL} | {name: c for c, name in enumerate(labeller.classes)}
        self._label_names = name_table_of(list(labeller.known))
        codes = [self._code_of[name] for name in labeller.known.values()]
        # What `match` returns → code; its last two are OTHER and NOTHING.
        self._label_codes = np.array([*codes, NO_LABEL, NO_LABEL], np.int32)

    def decode(self, raw: RawColumns) -> Messages:
        """Return a row for each valid message of a batch and a reject for each other one.

        A `RegistryError` says that a schema cannot be had now: the batch is to be tried again.
        """
        errors = self._unreadable(raw)
        plain = raw if self._payloads is None else self._payloads.as_json(raw, errors)
        try:
            columns = self._scanned(plain, errors)
        except Exception as error:  # noqa: BLE001 -- decoding one by one finds the message
            self._log_failure(error)
            columns = self._empty_columns(len(raw))
        columns.undecided[list(errors)] = False
        columns.ignored[list(errors)] = -1
        self._set_tombstones(columns, raw, errors)
        at = np.flatnonzero(columns.undecided)
        if len(at):
            rows = self._decode_rows([plain.value(i) or b"" for i in at.tolist()])
            errors |= {int(at[k]): error for k, error in rows.errors.items()}
            columns.ignored[at[list(rows.ignored)]] = list(rows.ignored.values())
            if len(self._labeller.classes) >= len(self._code_of):
                self._number_labels()  # classes joined
            self._set_rows(columns, at[rows.at], rows)
        keep = np.ones(len(raw), np.bool_)
        keep[list(errors)] = False
        keep[columns.ignored >= 0] = False
        messages = self._messages(raw, np.flatnonzero(keep), columns, errors)
        if plain is not raw:
            messages.metadata = lambda _, places: self._metadata(plain, places)
        return messages

    def times_ms(self, raw: RawColumns) -> NDArray[np.int64]:
        """Return the own time of each message, -1 without one; rejected ones have theirs too."""
        plain = raw if self._payloads is None else self._payloads.as_json(raw, {})
        values = [value or b"" for value in plain.values(np.arange(len(raw)))]
        return np.array(self._rows.times_ms(values), np.int64)

    def _decode_rows(self, values: list[bytes]) -> DecodedRows:
        """Decode messages one by one; one at which the code raises becomes an error."""
        try:
            return self._rows.decode(values)
        except Exception as error:  # noqa: BLE001 -- named in the reject, and logged
            detail = self._log_failure(error)
        if len(values) == 1:
            return DecodedRows(
                fields={name: [] for name in self._reads},
                errors={0: DecodeError(Reason.DECODER_FAILED, detail)},
            )
        rows = DecodedRows()
        for k, value in enumerate(values):
            rows.add(self._decode_rows([value]), k)
        return rows

    def _metadata(self, raw: RawColumns, places: NDArray[np.int64]) -> Metadata:
        """Return the metadata of messages; of one at which the code raises, only its place.

        It may have been learned already, so a reject would count it twice.
        """
        try:
            return self._rows.metadata(raw, places)
        except Exception as error:  # noqa: BLE001 -- logged
            self._log_failure(error)
        if len(places) == 1:
            return self._rows.metadata_without_decoding(raw, places)
        each = [self._metadata(raw, places[k : k + 1]) for k in range(len(places))]
        return Metadata(*([entry for (entry,) in column] for column in zip(*each, strict=True)))

    def _log_failure(self, error: Exception) -> str:
        """Log an unexpected exception, once a kind and place; return its description.

        A `MemoryError` is raised again: no message is to blame.
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
        errors: dict[int, DecodeError],
    ) -> Messages:
        """Return the messages at some places of a batch, with the errors as rejects."""
        wrong = sorted(errors.items())
        names = [
            place_name(raw.partition, int(raw.offsets[i])) if error.has_no_id else name
            for name, (i, error) in zip(
                marked_ids(raw.partition, [error.id for _, error in wrong]), wrong, strict=True
            )
        ]
        return Messages(
            raw=raw,
            at=at,
            classes=self._labeller.classes,
            labels=columns.labels[at],
            operations=columns.operations[at],
            texts=take_texts(columns.texts, at),
            ids=take_texts(columns.ids, at),
            fields={name: take(column, at) for name, column in columns.fields.items()},
            metadata=self._metadata,
            rejects=[
                Reject(
                    reason, detail, raw.partition, int(raw.offsets[i]), int(raw.times_ms[i]),
                    raw.key(i), raw.value(i), name,
                )
                for (i, (reason, detail, *_)), name in zip(wrong, names, strict=True)
            ],
            ignored=self._ignored_counts(columns.ignored),
            n_ambiguous=columns.n_ambiguous,
        )  # fmt: skip

    def _ignored_counts(self, codes: NDArray[np.int16]) -> dict[str, int]:
        """Return how many messages are ignored, by reason."""
        found = Counter(codes[codes >= 0].tolist())
        return {self._selection.reasons[code]: n for code, n in sorted(found.items())}

    def _unreadable(self, raw: RawColumns) -> dict[int, DecodeError]:
        """Return the errors of messages that are null or too large."""
        sizes = raw.value_ends - raw.value_starts
        null = raw.value_ends < 0
        large = ~null & (sizes > self._settings.max_bytes)
        errors = {
            i: DecodeError(Reason.TOMBSTONE, "the value is null, and its key spells no id")
            for i in np.flatnonzero(null).tolist()
            if key_id(raw, i) is None
        }
        for i in np.flatnonzero(large).tolist():
            detail = f"{sizes[i]} bytes, message.max_bytes is {self._settings.max_bytes}"
            errors[i] = DecodeError(Reason.TOO_LARGE, detail)
        return errors

    def _scanned(self, raw: RawColumns, errors: dict[int, DecodeError]) -> _Columns:
        """Return what the scan decides; all else is marked undecided."""
        if self._scanner is None:
            return self._empty_columns(len(raw))
        ends = raw.value_ends.copy()
        ends[list(errors)] = -1
        scan = self._scanner.scan(raw.buffer, raw.value_starts, ends)
        undecided, settings = scan.undecided, self._settings
        operations = self._scanned_operations(scan, undecided)
        deleted = operations == _CODES[Operation.DELETE]
        ignored = np.full(len(raw), -1, np.int16)
        self._apply_conditions(scan, operations, undecided, ignored)
        for path in settings.id_paths:
            undecided |= ~scan.is_any(path, (ABSENT, NULL, PLAIN, ESCAPED, INTEGER))
        if self._needs_text:
            undecided |= ~deleted & ~scan.is_any(settings.text, (PLAIN, ESCAPED))
            texts = scan.texts(settings.text)
            texts = self._formed(texts, deleted | (ignored >= 0))
        else:
            texts = missing_text(len(raw)).texts
        ids = self._scanned_ids(scan, np.flatnonzero(~undecided & (ignored < 0)))
        self._apply_retweets(scan, texts, operations, undecided, ignored)
        self._apply_sample(raw, ids, undecided, ignored)
        labels = np.full(len(raw), NO_LABEL, np.int32)
        if self._labeller.path:
            found = scan.match(self._labeller.path, self._label_names)
            undecided |= ~deleted & (found == OTHER)
            labels = np.where(deleted, np.int32(NO_LABEL), self._label_codes[found])
        fields = {
            name: scanned_field(scan, spec, deleted, undecided)
            for name, spec in self._reads.items()
        }
        undecided &= ignored < 0  # whatever else such a message says
        if self._needs_text:
            texts.ends[ignored >= 0] = -1
        columns = _Columns(undecided, operations, labels, texts, fields, ids, ignored)
        if self._labeller.reads_text:
            self._label_by_text(columns)
        return columns

    def _scanned_operations(
        self, scan: ScanResult, undecided: NDArray[np.bool_]
    ) -> NDArray[np.int8]:
        """Return the operations; those that are none of the known names are undecided."""
        found = scan.match(self._settings.operation, self._operation_names)
        operations = self._operation_codes[found]
        if self._settings.deleted is not None:
            is_deleted = scan.is_there(self._settings.deleted)
            operations[is_deleted], found[is_deleted] = _CODES[Operation.DELETE], NOTHING
        undecided |= found == OTHER
        return operations

    def _apply_conditions(
        self,
        scan: ScanResult,
        operations: NDArray[np.int8],
        undecided: NDArray[np.bool_],
        ignored: NDArray[np.int16],
    ) -> None:
        """Ignore messages by their values, each distinct value being asked once."""
        deleted = operations == _CODES[Operation.DELETE]
        for code, condition in enumerate(self._selection.conditions):
            at = np.flatnonzero(~undecided & (ignored < 0))
            there = scan.is_there(condition.path)[at]
            if condition.can_change:
                there &= ~deleted[at]
            met = condition.absent | deleted[at]
            if isinstance(condition.accepts, bool):
                met[there] = condition.accepts
            elif there.any():
                accepts = condition.accepts_json
                met[there] = [accepts(value) for value in scan.values(condition.path, at[there])]
            self._ignore(at[~met], code, operations, undecided, ignored)

    def _apply_retweets(
        self,
        scan: ScanResult,
        texts: Texts,
        operations: NDArray[np.int8],
        undecided: NDArray[np.bool_],
        ignored: NDArray[np.int16],
    ) -> None:
        """Ignore retweets, or let those that bring their original take its place."""
        selection, rest = self._selection, operations != _CODES[Operation.DELETE]
        if selection.retweets == "keep":
            return
        if selection.retweet is not None:
            kinds = scan.kinds(selection.retweet)
            undecided |= rest & (kinds == ARRAY)
            original = rest & (kinds == OBJECT)
            if selection.retweets == "fold":
                operations[original & (operations == _CODES[Operation.CREATE])] = _CODES[
                    Operation.UPDATE
                ]
            else:
                at = np.flatnonzero(original & ~undecided & (ignored < 0))
                self._ignore(at, selection.retweet_code, operations, undecided, ignored)
        at = np.flatnonzero(rest & ~undecided & (ignored < 0))
        sign = np.frombuffer(RETWEET_SIGN.encode(), np.uint8)
        at = at[texts.ends[at] - texts.starts[at] >= len(sign)]
        marked = texts.data[texts.starts[at, None] + np.arange(len(sign))] == sign
        at = at[marked.all(axis=1)]
        self._ignore(at, selection.retweet_code, operations, undecided, ignored)

    def _apply_sample(
        self, raw: RawColumns, ids: Texts, undecided: NDArray[np.bool_], ignored: NDArray[np.int16]
    ) -> None:
        """Ignore the messages that are not of the sample."""
        if self._selection.sample == 1:
            return
        names = _strings(ids)
        for i in np.flatnonzero(~undecided & (ignored < 0)).tolist():
            if self._selection.drops_id(names[i], raw.value(i) or b""):
                ignored[i] = self._selection.sample_code

    def _ignore(
        self,
        at: NDArray[np.intp],
        code: int,
        operations: NDArray[np.int8],
        undecided: NDArray[np.bool_],
        ignored: NDArray[np.int16],
    ) -> None:
        """Ignore some messages; an update that takes its message back is decided by itself."""
        if self._selection.can_change(code):
            updates = operations[at] == _CODES[Operation.UPDATE]
            undecided[at[updates]] = True
            at = at[~updates]
        ignored[at] = code

    def _formed(self, texts: Texts, left_out: NDArray[np.bool_]) -> Texts:
        """Return texts in their final form; those left out are missing."""
        form = self._text_form
        at = may_change(self._settings, texts) if form is not None else np.empty(0, np.intp)
        texts.ends[left_out] = -1
        if form is None:
            return texts
        at = at[~left_out[at]]
        bounds = zip(texts.starts[at].tolist(), texts.ends[at].tolist(), strict=True)
        made = [form(texts.data[start:end].tobytes().decode()) for start, end in bounds]
        return with_texts(texts, at, made) if made else texts

    def _set_tombstones(
        self, columns: _Columns, raw: RawColumns, errors: Mapping[int, DecodeError]
    ) -> None:
        """Let a null value delete the message whose id is its key."""
        at = np.flatnonzero(raw.value_ends < 0)
        at = np.setdiff1d(at, list(errors)) if len(at) else at
        if len(at):
            columns.undecided[at] = False
            columns.operations[at] = _CODES[Operation.DELETE]
            columns.ids = with_texts(columns.ids, at, [key_id(raw, i) for i in at.tolist()])

    def _scanned_ids(self, scan: ScanResult, at: NDArray[np.intp]) -> Texts:
        """Return the ids of messages; one of several parts is put together one by one."""
        paths = self._settings.id_paths
        parts = [scan.texts(path, (INTEGER,)) for path in paths]
        if len(parts) == 1:
            return parts[0]
        columns = [_strings(Texts(each.data, each.starts[at], each.ends[at])) for each in parts]
        names = [id_of(each) for each in zip(*columns, strict=True)]
        return with_texts(missing_text(len(parts[0].starts)).texts, at, names)

    def _empty_columns(self, n: int) -> _Columns:
        """Return the columns of `n` undecided messages."""
        return _Columns(
            undecided=np.ones(n, np.bool_),
            operations=np.zeros(n, np.int8),
            labels=np.full(n, NO_LABEL, np.int32),
            texts=missing_text(n).texts,
            fields={name: missing_column(spec, n) for name, spec in self._reads.items()},
            ids=missing_text(n).texts,
            ignored=np.full(n, -1, np.int16),
        )

    def _label_by_text(self, columns: _Columns) -> None:
        """Label by the texts, and replace those that gave their label away."""
        data, starts, ends = columns.texts
        at = np.flatnonzero(~columns.undecided & (ends >= 0))
        plain = data.tobytes()
        bounds = zip(starts[at].tolist(), ends[at].tolist(), strict=True)
        texts = [plain[start:end].decode() for start, end in bounds]
        done = self._labeller.label([None] * len(texts), texts)
        columns.labels[at] = [self._code_of[label] for label in done.labels]
        columns.n_ambiguous = done.n_ambiguous
        changed = [k for k, text in enumerate(texts) if done.texts[k] is not text]
        columns.texts = with_texts(columns.texts, at[changed], [done.texts[k] for k in changed])

    def _set_rows(self, columns: _Columns, at: NDArray[np.int64], rows: DecodedRows) -> None:
        """Set the entries of messages that were decoded one by one."""
        columns.operations[at] = [_CODES[operation] for operation in rows.operations]
        columns.labels[at] = [self._code_of[label] for label in rows.labels]
        columns.ids = with_texts(columns.ids, at, rows.ids)
        if self._needs_text:
            own = zip(rows.texts, rows.operations, strict=True)
            texts = [None if operation is Operation.DELETE else text for text, operation in own]
            columns.texts = with_texts(columns.texts, at, texts)
        for name, column in columns.fields.items():
            columns.fields[name] = with_entries(column, at, rows.fields[name])
        columns.n_ambiguous += rows.n_ambiguous


def _strings(texts: Texts) -> list[str | None]:
    """Return texts as Python has them, None if missing."""
    plain = texts.data.tobytes()
    bounds = zip(texts.starts.tolist(), texts.ends.tolist(), strict=True)
    return [plain[start:end].decode() if end >= 0 else None for start, end in bounds]


class LabelDecoder:
    """Decodes the records of a label log: each is a label, and the id of its message.

    What has no id or no label is rejected; `mapping` says what the values mean.
    """

    def __init__(
        self,
        settings: LateLabelsSettings,
        mapping: Mapping[str, str],
        classes: Sequence[str],
        record_format: RecordFormat | None = None,
    ) -> None:
        self._by_key, self._is_text = settings.id is None, settings.format == "text"
        self._path = "label" if self._is_text else settings.field
        labeller = FieldLabeller(FieldLabels(field=self._path, mapping=dict(mapping)), classes)
        # What a label has no field for is read where none is.
        message = MessageSettings(id=settings.id or "~", time=settings.time, operation="~")
        self._decoder = Decoder(message, labeller, record_format, reads={})

    def decode(self, raw: RawColumns) -> Messages:
        """Return a row for each label, and a reject for each other record."""
        messages = self._decoder.decode(_as_json(raw, self._path) if self._is_text else raw)
        if self._by_key:
            at = messages.at
            data = np.frombuffer(bytearray(raw.buffer), np.uint8)
            keys = Texts(data, raw.key_starts[at], raw.key_ends[at])
            messages = replace(messages, ids=TextColumn(keys))
        messages = messages.reject(
            messages.deleted, Reason.TOMBSTONE, lambda _: "a label is corrected, not deleted"
        )
        ends = messages.ids.texts.ends
        where = "key" if self._by_key else "field late_labels.id"
        messages = messages.reject(
            np.flatnonzero(ends < 0), Reason.UNMATCHED_LABEL, lambda _: f"its {where} names no id"
        )
        return messages.reject(
            messages.to_predict, Reason.WRONG_TYPE, lambda _: f"no label stands at '{self._path}'"
        )


def _as_json(raw: RawColumns, path: str) -> RawColumns:
    """Return records that hold a text alone as JSON; what is no text, as it is."""
    values = raw.values(np.arange(len(raw)))
    for i, value in enumerate(values):
        with contextlib.suppress(AttributeError, UnicodeDecodeError):
            values[i] = msgspec.json.encode({path: value.decode().strip()})  # type: ignore[union-attr]  # suppressed
    sizes = np.array([0 if value is None else len(value) for value in values], np.int64)
    ends = len(raw.buffer) + np.cumsum(sizes)
    return replace(
        raw,
        buffer=b"".join((raw.buffer, *(value or b"" for value in values))),
        value_starts=ends - sizes,
        value_ends=np.where(raw.value_ends < 0, -1, ends),
    )
