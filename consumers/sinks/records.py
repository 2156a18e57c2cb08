"""What leaves the daemon: sinks, and the records that they take, as JSON.

Records are predictions and rejected messages. Their keys identify repeats: the message's id for a
prediction, its offset for a reject.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from consumers.errors import SinkError, TransactionError
from consumers.messages import NO_TIME, Envelope, Messages, Partition, Reason, Reject
from streamnb import Answer, AnswerRule

_TEXT_BYTES_MAX = 4096
SHORT_FROM_BYTES = 1 << 16  # no topic refuses smaller records, unless it is told to
_SHORT_KEY_CHARS = 256
_SHORT_VALUE_BYTES = 1 << 14


class Record(msgspec.Struct, frozen=True):
    """One record on its way out; `short` stands in if the outside refuses it as too large."""

    key: bytes  # identifies repeats
    value: bytes  # JSON
    short: Record | None = None
    place: tuple[Partition, int] | None = None  # the message's partition and offset

    @property
    def n_bytes(self) -> int:
        """The size of key and value."""
        return len(self.key) + len(self.value)


class Flushable(Protocol):
    """Anything that must be flushed before a checkpoint is written."""

    def flush(self, timeout_s: float) -> None:
        """Make everything added safe, or raise `SinkError`."""


class Sink(Protocol):
    """Takes records, and makes them safe when flushed; used by one thread.

    If `flush` raises `SinkError`, the checkpoint that needed it is not written.
    """

    def add(self, records: Sequence[Record]) -> None:
        """Take records in order; may block for a bounded time.

        All are taken even if it raises `SinkError`, which says that too much is unflushed and a
        `flush` must succeed before the next `add`. So nobody adds the same records twice.
        """

    def flush(self, timeout_s: float) -> None:
        """Make everything added safe, or raise `SinkError`."""

    def close(self) -> None:
        """Flush what can be flushed, and close."""

    @property
    def n_pending_bytes(self) -> int:
        """Size of the records that are not safe yet; any thread may ask."""

    @property
    def n_refused(self) -> int:
        """How many records were left out, as the outside refuses them; any thread may ask."""


class NoSink:
    """Drops all records: stands in for a sink that is off."""

    n_refused = 0

    def add(self, records: Sequence[Record]) -> None:
        """Drop the records."""

    def flush(self, timeout_s: float) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    @property
    def n_pending_bytes(self) -> int:
        """Nothing ever waits."""
        return 0


_TRY_TIMEOUT_S = 1.0
_PAUSE_S = 0.5
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class PatientSink:
    """Waits for a sink that refuses records until it accepts them, or until `stop` is set."""

    def __init__(self, sink: Sink, stop: threading.Event) -> None:
        self._sink = sink
        self._stop = stop
        self._gave_up = False

    def add(self, records: Sequence[Record]) -> None:
        """Add records to the sink.

        `SinkError`: the daemon was told to stop while they waited; so is every call after that.
        """
        if self._gave_up:
            raise SinkError("records before these were not taken")
        try:
            self._sink.add(records)
        except TransactionError:  # waiting would not help
            self._gave_up = True
            raise
        except SinkError as error:
            log.warning("sink_waits", detail=str(error))
            self._wait()

    def flush(self, timeout_s: float) -> None:
        """Flush the sink, or raise `SinkError`."""
        self._sink.flush(timeout_s)

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()

    @property
    def n_pending_bytes(self) -> int:
        """What waits in the sink."""
        return self._sink.n_pending_bytes

    @property
    def n_refused(self) -> int:
        """What the sink was refused."""
        return self._sink.n_refused

    def _wait(self) -> None:
        """Flush the sink until it succeeds or the daemon stops."""
        while not self._stop.is_set():
            try:
                self._sink.flush(_TRY_TIMEOUT_S)
            except TransactionError:
                break
            except SinkError:
                self._stop.wait(_PAUSE_S)
            else:
                log.info("sink_goes_on")
                return
        self._gave_up = True
        raise SinkError("told to stop while records wait for a sink that does not take them")


# ---- records ------------------------------------------------------------------------------------


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction as it is written."""

    id: str
    time_ms: int | None  # when the message was written, in Unix milliseconds; null if not known
    text: str | msgspec.UnsetType  # if it is asked for and the model reads one
    # The other fields that are kept or read, as they came, if any.
    fields: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    label: str  # the most probable class
    probabilities: dict[str, float]
    log_posteriors: dict[str, float]  # null for an impossible class: JSON has no infinity
    prediction_set: list[str] | msgspec.UnsetType = msgspec.UNSET  # with model.coverage
    decision: str | msgspec.UnsetType = msgspec.UNSET  # the cheapest class, with model.costs
    model: str | msgspec.UnsetType | None = msgspec.UNSET  # with per.field: whose own; null: shared
    snapshot_version: int
    truth: str | msgspec.UnsetType = msgspec.UNSET  # the label, of a message that has one
    # Where the message stands in the stream: by it a deletion spares what came later under its id.
    topic: str | msgspec.UnsetType = msgspec.UNSET
    partition: int | msgspec.UnsetType = msgspec.UNSET
    offset: int | msgspec.UnsetType = msgspec.UNSET


class RejectedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected message as it is written: the reason, its place, and all its bytes.

    `id` is there if it could be read: by it the bytes are erased. `value` repeats the bytes as text
    if they are UTF-8 of at most 4 KiB.
    """

    reason: Reason
    detail: str
    topic: str
    partition: int
    offset: int
    time_ms: int | None
    id: str | msgspec.UnsetType = msgspec.UNSET
    key_base64: str | None
    value_base64: str | None
    value: str | msgspec.UnsetType = msgspec.UNSET


# Of each deleted message, by its id as JSON: the offset up to which it is deleted, by log. An
# account stands there by what its ids begin with as JSON, up to the first `/`.
Deleted: TypeAlias = Mapping[bytes, Mapping[Partition, int]]
_encode = msgspec.json.Encoder().encode


def prediction_record(
    envelope: Envelope,
    classes: Sequence[str],
    log_posteriors: Sequence[float],
    snapshot_version: int,
    decided: Mapping[str, Any] = MappingProxyType({}),
    *,
    with_text: bool = True,
    place: tuple[Partition, int] | None = None,
    short_from_bytes: int = SHORT_FROM_BYTES,
) -> Record:
    """Return the record of one prediction, keyed by the message's id.

    The log-posteriors are normalised, one a class; `-inf` is allowed. `decided` is of `decided_by`.
    One of `short_from_bytes` or more has a short form, without text and fields.
    """
    includes_text = with_text and (envelope.has_text or not envelope.fields)
    logs = dict(zip(classes, map(float, log_posteriors), strict=True))
    prediction = Prediction(
        id=envelope.id,
        time_ms=_known(envelope.time_ms),
        text=envelope.text if includes_text else msgspec.UNSET,
        fields=envelope.fields or msgspec.UNSET,
        label=max(logs, key=logs.__getitem__),
        probabilities={name: math.exp(log) for name, log in logs.items()},
        log_posteriors=logs,
        snapshot_version=snapshot_version,
        truth=msgspec.UNSET if envelope.label is None else envelope.label,
        **decided,
        **_stands_at(place),
    )
    value = _encode(prediction)
    if len(value) < short_from_bytes:
        return Record(envelope.id.encode(), value, None, place)
    short_id = envelope.id[: _short_chars(short_from_bytes)]
    small = msgspec.structs.replace(
        prediction, id=short_id, text=msgspec.UNSET, fields=msgspec.UNSET
    )
    return Record(envelope.id.encode(), value, Record(short_id.encode(), _encode(small)), place)


def _short_chars(short_from_bytes: int) -> int:
    """Return how many characters of a key or an id a short form has."""
    return min(_SHORT_KEY_CHARS, short_from_bytes // 8)


def prediction_records(
    messages: Messages,
    rows: NDArray[np.int64],
    answer: Answer,
    short_from_bytes: int = SHORT_FROM_BYTES,
) -> list[Record]:
    """Return the records of an answer to some messages; see `prediction_record`."""
    classes = [str(label) for label in answer.classes]
    decided = decided_by(answer.rule, classes, answer.log_posteriors)
    for each, by in zip(decided, answer.answered_by or (), strict=False):
        each["model"] = by.model
    return [
        prediction_record(
            envelope,
            classes,
            row,
            answer.version,
            own,
            place=(messages.partition, offset),
            short_from_bytes=short_from_bytes,
        )
        for envelope, row, offset, own in zip(
            messages.envelopes(rows),
            answer.log_posteriors.tolist(),
            messages.offsets[rows].tolist(),
            decided,
            strict=True,
        )
    ]


def _known(time_ms: int) -> int | None:
    return None if time_ms == NO_TIME else time_ms


def _stands_at(place: tuple[Partition, int] | None) -> dict[str, Any]:
    if place is None:
        return {}
    (topic, partition), offset = place
    return {"topic": topic, "partition": partition, "offset": offset}


def decided_by(
    rule: AnswerRule, classes: Sequence[str], log_posteriors: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Return what a rule says of each row of calibrated log-posteriors, by the record's names."""
    found: list[dict[str, Any]] = [{} for _ in range(len(log_posteriors))]
    sets = rule.sets(log_posteriors)
    if sets is not None:
        for each, row in zip(found, sets.tolist(), strict=True):
            each["prediction_set"] = list(itertools.compress(classes, row))
    if rule.costs is not None:
        for each, place in zip(found, rule.labels(log_posteriors).tolist(), strict=True):
            each["decision"] = classes[place]
    return found


def reject_record(reject: Reject, short_from_bytes: int = SHORT_FROM_BYTES) -> Record:
    """Return the record of one rejected message, keyed by `topic-partition-offset`.

    One of `short_from_bytes` or more has a short form, with the first bytes of the message: 16 KiB,
    or a quarter of that size.
    """
    topic, partition = reject.partition
    message = RejectedMessage(
        reason=reject.reason,
        detail=reject.detail,
        topic=topic,
        partition=partition,
        offset=reject.offset,
        time_ms=_known(reject.time_ms),
        id=msgspec.UNSET if reject.id is None else reject.id,
        key_base64=_base64(reject.key),
        value_base64=_base64(reject.value),
        value=_readable(reject.value),
    )
    key = f"{topic}-{partition}-{reject.offset}".encode()
    value, place = _encode(message), (reject.partition, reject.offset)
    if len(value) < short_from_bytes:
        return Record(key, value, None, place)
    begin = (reject.value or b"")[: min(_SHORT_VALUE_BYTES, short_from_bytes // 4)]
    n_chars = _short_chars(short_from_bytes)
    small = msgspec.structs.replace(
        message,
        detail=f"{reject.detail}; of {len(reject.value or b'')} bytes these are the first "
        f"{len(begin)}, for more was not taken here",
        id=msgspec.UNSET if reject.id is None else reject.id[:n_chars],
        key_base64=_base64(reject.key and reject.key[:n_chars]),
        value_base64=_base64(reject.value and begin),
        value=msgspec.UNSET,
    )
    return Record(key, value, Record(key, _encode(small)), place)


_CUT = "; cut, for more was not taken here"
_CUT_DETAIL = re.compile(
    "; (of [0-9]+ bytes these are the first [0-9]+|cut), for more was not taken here$"
)


def shortened(record: Record) -> Record | None:
    """Return a record of ours in the next shorter form; None: it has none, or is none of ours.

    For topics that refuse even what is smaller than `SHORT_FROM_BYTES`.
    """
    if not _is_record(record.value):
        return None
    said = msgspec.json.decode(record.value, type=dict[str, Any])
    for form in _shorter_reject(said) if "reason" in said else _shorter_predictions(said):
        value = _encode(form)
        if len(value) < len(record.value):
            return Record(record.key[:_SHORT_KEY_CHARS], value, None, record.place)
    return None


def _shorter_predictions(said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a prediction without its text, then with one class alone, then with a short id."""
    said = {key: each for key, each in said.items() if key not in {"text", "fields"}}
    yield said | {"id": said["id"][:_SHORT_KEY_CHARS]}
    for name in said.keys() & {"probabilities", "log_posteriors", *_RENAMED}:
        said[name] = {said["label"]: said[name][said["label"]]}
    said.pop("prediction_set", None)
    yield said | {"id": said["id"][:_SHORT_KEY_CHARS]}
    yield said | {"id": said["id"][: _SHORT_KEY_CHARS // 8]}


def _shorter_reject(said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a reject without its text, with half of its bytes, then without any."""
    said = {key: each for key, each in said.items() if key != "value"}
    yield said
    value = said["value_base64"] or ""
    detail = _CUT_DETAIL.sub("", said["detail"])[:_SHORT_KEY_CHARS]
    said["detail"] = f"{detail}{_CUT}" if value or _CUT in said["detail"] else detail
    for name in said.keys() & {"id", "key_base64"}:
        said[name] = said[name] and said[name][:_SHORT_KEY_CHARS]
    n_chars = len(value) // 8 * 4  # whole groups of base64
    kept = value[:n_chars] if n_chars > _SHORT_KEY_CHARS else None
    yield said | {"value_base64": kept if value else said["value_base64"]}


class _Written(msgspec.Struct, frozen=True):
    """What names a line that was written: a prediction by its id, a reject by its place."""

    reason: str | None = None
    id: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


_decode_written = msgspec.json.Decoder(_Written).decode


def key_of(line: bytes) -> bytes | None:
    """Return the key of the record whose value a line is; None if it is none of ours."""
    try:
        found = _decode_written(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if found.reason is None:
        return None if found.id is None else found.id.encode()
    return f"{found.topic}-{found.partition}-{found.offset}".encode()


_TEXTS = {"text", "fields"}
_RENAMED = {"log_posterior": "log_posteriors"}  # what lines of older versions have, and today's
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s,"{}\[\]:]+)')
_QUOTED_CELL = re.compile(r'"((?:[^"]|"")*+)"')
_WITHOUT_TEXT = tuple(each for each in Prediction.__struct_fields__ if each not in _TEXTS)
_PLACE = {"topic", "partition", "offset"}
_IN_EVERY_PREDICTION = (
    set(_WITHOUT_TEXT) - {"prediction_set", "decision", "model", "truth"} - _PLACE
)
_WITHOUT_BYTES = tuple(each for each in RejectedMessage.__struct_fields__ if each != "value")
_IN_EVERY_REJECT = set(_WITHOUT_BYTES) - {"id"}
_ID = re.compile(rb'\{"id":("[^"\\]*(?:\\.[^"\\]*)*")')
# How a line begins that does not end where a file was torn, or was read to.
_BEGINNING = re.compile(
    rb'\{"reason":"[a-z0-9_]+","detail":"'
    rb'|\{"id":"[^"\\]*(?:\\.[^"\\]*)*","time_ms":(?:-?[0-9]+|null),"(?:text|fields|label)":'
)
REJECT_BEGINS = b'{"reason":"'


def _is_newer(line: Mapping[str, Any], deleted: Mapping[Partition, int]) -> bool:
    """Return whether a line is of a message that came behind the deletion of its id in its log.

    A line of an older version says no place, and is taken for one of before.
    """
    if not line.keys() >= _PLACE:
        return False
    at = deleted.get(Partition(line["topic"], line["partition"]))
    return at is not None and bool(line["offset"] > at)


def _deleted_at(name: bytes, deleted: Deleted) -> Mapping[Partition, int] | None:
    """Return up to which offsets the messages of an id, given as JSON, are deleted."""
    own, account = deleted.get(name), deleted.get(name[: name.find(b"/") + 1])
    if own is None or account is None:
        return account if own is None else own
    return {each: max(own.get(each, -1), account.get(each, -1)) for each in {*own, *account}}


def prediction_without_text(line: bytes, deleted: Deleted) -> bytes | None:
    """Return a prediction's line without text and fields if it belongs to a deleted message.

    One that came later in its log, under the same id, is another message. The line may be torn
    behind its id if an overwrite was interrupted. The new one is not longer; None if there is
    nothing to remove.
    """
    found = _ID.match(line)
    places = None if found is None else _deleted_at(found[1], deleted)
    if found is None or places is None:
        return None
    try:
        prediction = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        new = found[0] + b"}"
        return None if line.rstrip(b" ") == new else new
    if _is_newer(prediction, places):
        return None
    kept = {key: prediction[key] for key in prediction if _RENAMED.get(key, key) in _WITHOUT_TEXT}
    return None if line.rstrip(b" ") == (new := _encode(kept)) else new


def without_message(line: bytes, deleted: Deleted) -> bytes | None:
    """Return a line of an output without its message's text; see the two functions for its kinds.

    Both kinds may stand in one file, if the settings gave it to the one after the other.
    """
    remove = reject_without_bytes if line.startswith(REJECT_BEGINS) else prediction_without_text
    return remove(line, deleted)


def is_output(data: bytes) -> bool:
    """Return whether a file that begins with `data` holds lines that a sink wrote."""
    *_, last = lines = data.split(b"\n")
    if any(map(_is_record, lines)):
        return True
    return _BEGINNING.match(last) is not None and not is_json(last)


def _is_record(line: bytes) -> bool:
    try:
        found = msgspec.json.decode(line, type=dict[str, Any]).keys()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if found >= _IN_EVERY_REJECT:
        return found <= set(RejectedMessage.__struct_fields__)
    names = {_RENAMED.get(name, name) for name in found}
    return _IN_EVERY_PREDICTION <= names <= set(Prediction.__struct_fields__)


def is_json(line: bytes) -> bool:
    """Return whether a line is JSON, whatever it says; False if it nests too deeply to be read."""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def reject_without_bytes(line: bytes, deleted: Deleted) -> bytes | None:
    """Return a reject's line without the message's bytes if it is one of the deleted messages.

    As with a prediction, one that came later in its log is another message if its id is known.

    A line without an id is of a message that was not decoded, or of an older version: every word
    and string of the bytes is compared. A line torn by an interrupted overwrite is emptied; see
    `prediction_without_text`.
    """
    if not line.startswith(REJECT_BEGINS):
        return None
    try:
        reject = msgspec.json.decode(line, type=dict[str, Any])
        key, value = (
            base64.b64decode(reject[name] or "", validate=True)
            for name in ("key_base64", "value_base64")
        )
    except (ValueError, KeyError, TypeError, RecursionError):  # MsgspecError is a ValueError
        return b"{}"
    if not reject.keys() >= _IN_EVERY_REJECT:
        return b"{}"
    if not (key or value):
        return None
    if "id" in reject:
        places = _deleted_at(_encode(reject["id"]), deleted)
        is_meant = places is not None and not _is_newer(reject, places)
    else:
        is_meant = bool(deleted.keys() & _tokens(key, value))
    if not is_meant:
        return None
    return _encode(
        {name: reject[name] for name in _WITHOUT_BYTES if name in reject}
        | {"detail": "", "key_base64": None, "value_base64": None}
    )


def _tokens(key: bytes, value: bytes) -> set[bytes]:
    """Return as JSON strings a key, and every word, string and cell of a value.

    The bytes are read as UTF-8 and as Latin-1, and values as JSON and as CSV. Each is there also
    with the mark that `messages.marked_ids` may have put before an id, and as an account.
    """
    found: set[str] = set()
    for encoding in ("utf-8", "latin-1"):
        with contextlib.suppress(UnicodeDecodeError):
            found.add(key.decode(encoding))
        with contextlib.suppress(UnicodeDecodeError):
            text = value.decode(encoding)
            found |= {quoted or bare for quoted, bare in _TOKEN.findall(text)}
            found.update(text.split(","))
            found |= {cell.replace('""', '"') for cell in _QUOTED_CELL.findall(text)}
    for token in [each for each in found if "\\" in each]:
        with contextlib.suppress(msgspec.DecodeError, UnicodeError):
            found.add(msgspec.json.decode(f'"{token}"'))
    names = {mark + token for token in found for mark in ("", "~")}
    accounts = {token.replace("~", "~0").replace("/", "~1") for token in found}
    accounts |= {token.partition("/")[0] for token in found if "/" in token}
    return {_encode(name) for name in names} | {_encode(f"{name}/")[:-1] for name in accounts}


def _base64(data: bytes | None) -> str | None:
    """Return bytes as base64."""
    return None if data is None else base64.b64encode(data).decode()


def _readable(data: bytes | None) -> str | msgspec.UnsetType:
    """Return bytes as text if they are short UTF-8."""
    if data is None or len(data) > _TEXT_BYTES_MAX:
        return msgspec.UNSET
    try:
        return data.decode()
    except UnicodeDecodeError:
        return msgspec.UNSET
