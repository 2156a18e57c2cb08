"""Corrections as values, as lines of a log, the thread that reads it, its partitions, and errors.

All errors are a `CorrectionError`: `UnknownMessage`, `UnknownLabel` and `UnusableExample` tell of
the request; `NotReady`, `NotWritten` and `InDoubt` of the service and its log.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol

import msgspec
import structlog
from msgspec import structs

from consumers.decode.json import is_too_deep
from consumers.errors import ConfigError, ConsumerError, GroupError
from consumers.messages import (
    KnownClasses,
    Partition,
    RawColumns,
    Reason,
    Reject,
    first_few,
    part_name,
)
from consumers.sources.base import LogFacts, Source

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class CorrectionError(ConsumerError):
    """Root of what the service answers where it does not take a correction."""


class UnknownMessage(CorrectionError):  # noqa: N818 -- what was found, not what went wrong
    """No message of that id is among those that are kept."""


class UnknownLabel(CorrectionError):  # noqa: N818 -- as above
    """The label is none of the model's classes."""


class UnusableExample(CorrectionError):  # noqa: N818 -- as above
    """The example has a field that the model does not read, or a value that it cannot use."""


class NotReady(CorrectionError):  # noqa: N818 -- a state, named for what it is
    """Corrections cannot be taken at the moment; asking again later helps."""


class NotWritten(CorrectionError):  # noqa: N818 -- as above
    """The log did not take the correction, and nothing of it was kept."""


class InDoubt(CorrectionError):  # noqa: N818 -- as above
    """The log has not said in time whether it took the correction."""


OFFSET_MAX = 2**62 - 1  # as sources number messages, and deletions are noted
_PARTITION_MAX = 2**31 - 1  # as Kafka numbers them


class Correction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person, or a teacher, said of one message.

    `withdraw` takes back a label, or what else the message taught; the message stays.
    An example that came by itself has an id of its own and no place. In `example` a field that is
    missing says nothing.
    """

    kind: Literal["label", "delete", "withdraw"]
    id: str
    time_ms: int  # when it was said, in Unix milliseconds
    example: dict[str, Any] = {}  # the model's fields as the message was learned
    label: str | None = None  # None but for a label
    was: str | None = None  # the class that it has taught so far; None where it taught nothing
    was_part: str | None = None  # the part that learned it: of the stream, or of the log itself
    # The message's own log.
    partition: tuple[str, Annotated[int, msgspec.Meta(ge=0, le=_PARTITION_MAX)]] | None = None
    offset: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX)] = -1
    by: str | None = None  # whose label it is, if no person's
    # Whether the example was taken out of the log, as its message was deleted.
    gone: bool = False

    @property
    def place(self) -> Partition | None:
        """The message's own log; None where it has none."""
        return None if self.partition is None else Partition(*self.partition)


class Entry(msgspec.Struct, frozen=True):
    """One line of a log of corrections, read back; `said` is a reject where it is no correction.

    Reading goes on at `next_offset` once the line at `offset` has been applied. If `said` is None
    there is no line, and the position moves alone, as where those before it are lost.
    """

    partition: Partition
    offset: int
    next_offset: int
    said: Correction | Reject | None

    @property
    def part(self) -> str:
        """The part of the model that learns what is said here."""
        return part_name(self.partition)


def encode(correction: Correction) -> bytes:
    """Return a correction as one line of JSON, without its line end.

    Examples
    --------
    >>> encode(Correction("delete", "m7", 5, {"text": "so it goes"}))
    b'{"kind":"delete","id":"m7","time_ms":5,"example":{"text":"so it goes"}}'
    """
    return msgspec.json.encode(correction)


def decoded(line: bytes) -> Correction | None:
    """Return the correction of a line; None if it is none."""
    try:
        return msgspec.json.decode(line, type=Correction)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def without_example(correction: Correction) -> bytes:
    """Return a correction's line without its example; never longer than the line with it."""
    gone = correction.gone or bool(correction.example)
    return encode(msgspec.structs.replace(correction, example={}, gone=gone))


def entries(raw: RawColumns, classes: Sequence[str]) -> Iterator[Entry]:
    """Yield what the lines of a batch say, in their order; one without lines moves the position.

    `classes` are the model's; those that may join may be taught too.
    """
    if not len(raw):
        yield Entry(raw.partition, raw.next_offset, raw.next_offset, None)
    offsets, known = [*raw.offsets.tolist(), raw.next_offset], KnownClasses.of(classes)
    for i in range(len(raw)):
        yield Entry(raw.partition, offsets[i], offsets[i + 1], _said(raw, i, known))


def _said(raw: RawColumns, i: int, classes: KnownClasses) -> Correction | Reject:
    try:
        said = msgspec.json.decode(raw.value(i) or b"", type=Correction)
    except msgspec.ValidationError as error:
        return _refused(raw, i, Reason.WRONG_TYPE, f"it is no correction: {error}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _refused(raw, i, Reason.NOT_JSON, f"it is no correction: {error}")
    if is_too_deep(raw.value(i) or b""):
        return _refused(raw, i, Reason.NOT_JSON, "it is no correction: it is nested too deeply")
    fault = _contradiction(said)
    if fault is not None:
        return _refused(raw, i, Reason.WRONG_TYPE, fault, said.id)
    for label in (said.label, said.was):
        if label is not None and not classes.takes(label):
            detail = f"label {label!r:.200} is none of {first_few(classes)}"
            return _refused(raw, i, Reason.UNKNOWN_LABEL, detail, said.id)
    return said


def _contradiction(said: Correction) -> str | None:
    """Return how a correction contradicts itself; None if it does not."""
    if (said.label is None) == (said.kind == "label"):
        return f"a {said.kind} has the label {said.label!r:.200}"
    if (said.was is None) != (said.was_part is None):
        return f"was {said.was!r:.200} and was_part {said.was_part!r:.200} belong together"
    return None


def _refused(
    raw: RawColumns, i: int, reason: Reason, detail: str, name: str | None = None
) -> Reject:
    """Return the reject that a line becomes."""
    return Reject(
        reason,
        detail,
        raw.partition,
        int(raw.offsets[i]),
        int(raw.times_ms[i]),
        raw.key(i),
        raw.value(i),
        name,
    )


# ---- the log -------------------------------------------------------------------------------------


class LogPosition(msgspec.Struct, frozen=True):
    """Where an appended line stands, safe: a byte of a journal, or a record of a topic."""

    partition: Partition
    offset: int

    def outcome(self, timeout_s: float) -> LogPosition | None:  # noqa: ARG002 -- as `Appended` has it
        """Return itself: it is known."""
        return self

    def is_given_up(self) -> bool:
        """Return False: it was never in doubt."""
        return False


class Appended(Protocol):
    """A line on its way into a log."""

    def outcome(self, timeout_s: float) -> LogPosition | None:
        """Return where the line stands, once it is safe; None where that is not known in time.

        `NotWritten` says for certain that the log did not take it.
        """

    def is_given_up(self) -> bool:
        """Return whether nobody sends it any more, and nobody will say what became of it."""


class Log(Protocol):
    """Takes lines from any thread."""

    @property
    def name(self) -> str:
        """What people know it by."""

    @property
    def is_own(self) -> bool:
        """Whether nobody but this daemon writes into it, and applies what it says."""

    def append(self, key: bytes, line: bytes) -> Appended:
        """Send a line on its way; lines of one key stay in their order.

        `NotWritten` says for certain that the log did not take it.
        """

    def close(self) -> None:
        """Close it."""


POLL_TIMEOUT_S = 0.1
WAITING_MAX = 10_000  # corrections read and not applied yet
_CLOSE_TIMEOUT_S = 10.0


class LogReader:
    """The thread that reads corrections, and the queue behind it.

    `source` is the log, not opened yet; of `classes` and those that may join, labels are taken. On
    the reading thread `tell` is called with each entry before it waits to be applied, and `idle`
    when nothing came, and `ended` when all has been told that the log holds in any of its
    partitions, with the time and since when there is no trouble, in seconds of `clock`. `caught_up`
    is set once all that was in the log at the start has been told.
    If the log is shared by a group, entries wait of those partitions alone that are owned.
    """

    def __init__(
        self,
        source: Source,
        classes: Sequence[str],
        tell: Callable[[Entry], None],
        idle: Callable[[], None] = lambda: None,
        *,
        is_shared: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.caught_up = threading.Event()
        self.ended: Callable[[float, float], None] = lambda _now_s, _well_since_s: None
        self._clock, self._well_since_s = clock, math.inf
        self._source = source
        self._classes = classes
        self._tell, self._idle = tell, idle
        self._positions: dict[Partition, int] = {}
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        self._owned: set[Partition] | None = set() if is_shared else None
        self._to_read: dict[Partition, int | None] = {}  # from where partitions are to be read now
        self._closing = False
        self._failure: BaseException | None = None
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="read-corrections", daemon=True)

    def start(
        self,
        positions: Mapping[Partition, int],
        logs: Mapping[Partition, LogFacts] = MappingProxyType({}),
    ) -> None:
        """Begin to read, at the checkpoint's positions in the logs that it knows."""
        self._positions = dict(positions)
        self._source.resume(logs)
        self._thread.start()

    @property
    def beginnings(self) -> Mapping[Partition, LogFacts]:
        """What is known of the log beside its position."""
        return self._source.beginnings

    @property
    def n_partitions(self) -> int | None:
        """How many partitions the log has; None as long as that is not known."""
        return self._source.n_partitions

    def own(self, partition: Partition, position: int | None) -> None:
        """Let entries of a partition wait, from a position on; None: from where the log begins."""
        with self._changed:
            self.disown(partition)
            assert self._owned is not None
            self._owned.add(partition)
            self._to_read[partition] = position

    def disown(self, partition: Partition) -> None:
        """Let no entry of a partition wait any more."""
        with self._changed:
            assert self._owned is not None
            self._owned.discard(partition)
            self._to_read.pop(partition, None)
            self._waiting = deque(each for each in self._waiting if each.partition != partition)
            self._changed.notify_all()

    def first(self) -> Entry | None:
        """Return the oldest entry that waits, and leave it there; None where there is none.

        What ended the reading thread is raised once all that it read before has been taken.
        """
        with self._changed:
            if self._waiting:
                return self._waiting[0]
            if self._failure is not None:
                raise self._failure
            return None

    def done(self) -> None:
        """Remove the oldest entry from the queue: it was applied, or refused."""
        with self._changed:
            self._waiting.popleft()
            self._changed.notify_all()

    @property
    def n_waiting(self) -> int:
        """How many entries wait to be applied."""
        return len(self._waiting)

    @property
    def trouble(self) -> str | None:
        """What keeps the log from being read, in a sentence."""
        why = self._trouble if self._failure is None else str(self._failure)
        return None if why is None else f"corrections cannot be read back: {why}"

    def why_not_ready(self, name: str) -> str | None:
        """Return why corrections of the log `name` cannot be taken yet; None if they can."""
        if (trouble := self.trouble) is not None:
            return trouble
        if not self.caught_up.is_set():
            return f"earlier corrections are still being read from {name}"
        return None

    def close(self) -> None:
        """End the thread and let the source go; what waits is read again at the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is None:
            self._source.close()
        else:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            try:
                self._read()
            finally:
                self._source.close()
        except BaseException as error:  # noqa: BLE001 -- it comes out of `first`, on the thread that ends the run
            self._failure = error

    def _read(self) -> None:
        """Read until told to close."""
        self._source.open(self._positions.get)
        while not self._closing:
            self._turn()

    def _turn(self) -> None:
        """Read once, and tell it."""
        self._rewind()
        batches = self._source.poll(POLL_TIMEOUT_S)
        self._trouble = self._source.trouble()
        for raw in batches:
            self._take(raw)
        if not batches:
            self._idle()
            if self._source.at_end():
                self.caught_up.set()
        if self._trouble is not None:
            self._well_since_s = math.inf
            return
        now_s, lag = self._clock(), self._source.lag()
        self._well_since_s = min(self._well_since_s, now_s)
        if len(lag) == self._source.n_partitions and not any(lag.values()):
            self.ended(now_s, self._well_since_s)

    def _rewind(self) -> None:
        """Read from elsewhere what was owned since."""
        with self._changed:
            to_read, self._to_read = self._to_read, {}
        for partition, position in to_read.items():
            self._positions.pop(partition, None)
            if position is not None:
                self._positions[partition] = position
            self._source.rewind(partition)

    def _is_wanted(self, partition: Partition) -> bool:
        if self._owned is None:
            return True
        return partition in self._owned and partition not in self._to_read

    def _take(self, raw: RawColumns) -> None:
        """Tell what a batch says, and let it wait to be applied."""
        for entry in entries(raw, self._classes):
            self._tell(entry)
            with self._changed:
                self._changed.wait_for(lambda: self._closing or len(self._waiting) < WAITING_MAX)
                if self._closing:
                    return
                if self._is_wanted(entry.partition):
                    self._waiting.append(entry)
                    self._changed.notify_all()
        self._positions[raw.partition] = raw.next_offset


# ---- the partitions of a topic of labels -------------------------------------------------------


def have_same_partitions(n_labels: int | None, n_messages: int | None, setting: str) -> bool:
    """Return whether a topic of labels is known to have as many partitions as its messages' one.

    Others are a `ConfigError` that names the `setting`: a label would never find its message.
    """
    if None not in (n_labels, n_messages) and n_labels != n_messages:
        raise ConfigError(
            f"{setting}: its topic has {n_labels} partitions, and that of source has {n_messages}. "
            "A label stands in the partition that has its message's number: make both topics with "
            "as many partitions, and write both with the same partitioner"
        )
    return None not in (n_labels, n_messages)


class LabelPartitions:
    """Whether a topic of labels, or of corrections, has as many partitions as its messages' one.

    At the very first start others are an error: see `have_same_partitions`. Once both had as many,
    both are getting more: each is heard of at a time of its own, whoever is started meanwhile.
    """

    def __init__(self, setting: str) -> None:
        self.have_agreed, self._setting = False, setting
        self.trouble: str | None = None
        self._has_labels: Callable[[], bool] = lambda: False
        self._begun: Mapping[Partition, LogFacts] = MappingProxyType({})
        self._marked = self._begun

    def resume(
        self,
        topic: str,
        positions: Mapping[Partition, int],
        logs: Mapping[Partition, LogFacts],
        has_labels: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take what a checkpoint knows; `has_labels` returns whether others have taken labels."""
        agreed = [each for each, facts in logs.items() if facts.agrees]
        self.have_agreed = topic in {each.topic for each in (*positions, *agreed)}
        self._has_labels = has_labels

    def agree(self, n_labels: int | None, n_messages: int | None) -> bool:
        """Return whether both numbers are known and the same; else `trouble` may say why not.

        Others are a `ConfigError` if the two never had as many.
        """
        trouble = None
        try:
            is_known = have_same_partitions(n_labels, n_messages, self._setting)
            self.have_agreed |= is_known
        except ConfigError as error:
            is_known, trouble = False, str(error)
            try:
                self.have_agreed = self.have_agreed or self._has_labels()
            except GroupError as unread:  # others may know: it passes, and is asked again
                trouble = f"{trouble}; {unread}"
            else:
                if not self.have_agreed:
                    raise
        if trouble is not None and self.trouble is None:
            log.warning("label_partitions_differ", detail=trouble)
        self.trouble = trouble
        return is_known

    def marked(self, begun: Mapping[Partition, LogFacts]) -> Mapping[Partition, LogFacts]:
        """Return where reading of the labels has begun, for the checkpoint to know of both.

        The same is returned for the same, which is replaced, never changed.
        """
        if not self.have_agreed:
            return begun
        if begun is not self._begun:
            agreed = {each: structs.replace(begun[each], agrees=True) for each in begun}
            self._begun, self._marked = begun, MappingProxyType(agreed)
        return self._marked
