"""The reader: a thread that polls and decodes ahead of the learner.

It owns the source and the decoder: all their methods are called here. Decoded batches go through a
`BatchQueue` to the consuming thread, which learns them in that order or ends. So if a partition is
assigned again, reading continues behind the last batch that was queued, or at the checkpoint's.

Batch sizes adapt. The reader never waits to fill a batch: what a poll returns is queued at once, so
a quiet stream is answered message by message. Under a backlog polls return much, and the bounded
queue makes the next poll return more. Such a batch is cut into pieces that take the learner about
`PIECE_S` of processor time each, at the pace of the last ones. Learning is exact one at a time, so
no result depends on where a batch was cut.

The queue is bounded by its batches and by their bytes, so a reader that is faster than the learner
waits, and memory stays bounded. Its end, a reason or an error, comes out behind everything that was
put in before. So does word of a partition that was taken over or lost.

A `LabelReader` hands on the labels that come later. In a group every member reads all of the
late-label topic, and takes the labels of those partitions that it reads itself. How far they were
taken moves with a partition's part: a member that takes it over has its labels read again from
there, and leaves out what its reading thread had read before that.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Protocol

import msgspec
import structlog
from msgspec.structs import replace

from consumers.corrections.model import LabelPartitions
from consumers.errors import RegistryError
from consumers.messages import Messages, Partition, RawColumns, part_name
from consumers.monitoring.status import Health
from consumers.pipeline.group_parts import GroupParts
from consumers.pipeline.late_labels import LateLabels
from consumers.pipeline.part_files import LoadedPart
from consumers.sources.base import LogFacts, Source
from streamnb import Learner

POLL_TIMEOUT_S = 0.1
# Enough that neither thread waits for the other when one of them has a slow moment.
BATCHES_MAX = 4
BYTES_MAX = 32 << 20
# Processor time that learning one piece should take: less than half of the default interval between
# two snapshots, and forty times what a batch costs beside its messages. By the clock pieces would
# become small, and a message cost half as much again, if other processes want the core.
PIECE_S = 0.04
_PIECE_MIN, _PIECE_MAX = 500, 50_000  # messages
_CLOSE_TIMEOUT_S = 10.0
_TURN_BATCHES = 8  # of labels, between two batches of messages
log = structlog.get_logger(__name__)


class Limits(msgspec.Struct):
    """When a run ends by itself."""

    until_end: bool = False  # at the source's end as it was when it was opened
    messages_max: int | None = None  # after exactly this many messages


class SourceStatus(msgspec.Struct, frozen=True):
    """The state of a source after a poll.

    `lag` has the unread messages of each assigned partition, `lost_messages` counts those that were
    removed before they could be read, `gaps` the places at which some may be missing, `decoder`
    says how Kafka's responses are decoded, `n_elsewhere` how many partitions other members read.
    """

    trouble: str | None = None
    assigned: frozenset[Partition] = frozenset()
    lag: Mapping[Partition, int] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    lost_messages: int = 0
    gaps: int = 0
    decoder: str | None = None
    n_elsewhere: int = 0

    @classmethod
    def of(cls, source: Source) -> SourceStatus:
        """Return the status of a source; called on the thread that owns it."""
        return cls(
            source.trouble(),
            frozenset(source.assignment()),
            MappingProxyType(dict(source.lag())),
            source.lost_messages,
            source.gaps,
            source.decoder,
            source.n_elsewhere,
        )


class Decodes(Protocol):
    """Whoever turns a batch of raw messages into examples, or into labels."""

    def decode(self, raw: RawColumns, /) -> Messages:
        """Return a row or a reject for each message."""


class Reassignment(msgspec.Struct, frozen=True):
    """A partition that is read here from now on, or (`is_ours` is False) no more.

    If another member got further, `part` is what the model goes on from.
    """

    partition: Partition
    is_ours: bool
    part: LoadedPart | None = None


class BatchQueue:
    """A bounded queue of batches with an end; a batch of more than `bytes_max` passes alone."""

    def __init__(self, batches_max: int = BATCHES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._batches_max = batches_max
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._batches: deque[tuple[Messages | Reassignment, int]] = deque()
        self._n_bytes = 0
        self._n_waiting: Counter[Partition] = Counter()
        self._reason: str | None = None
        self._error: BaseException | None = None

    @property
    def end_reason(self) -> str | None:
        """Why no batch will follow; None while one waits or may come."""
        with self._changed:
            return None if self._batches else self._reason

    def waiting(self) -> Mapping[Partition, int]:
        """Return how many messages of each partition wait."""
        with self._changed:
            return dict(self._n_waiting)

    def put(self, messages: Messages, n_bytes: int, timeout_s: float) -> bool:
        """Add a batch that was read as `n_bytes`; return False if the queue stayed full."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_space(n_bytes), timeout_s):
                return False
            self._batches.append((messages, n_bytes))
            self._n_bytes += n_bytes
            self._n_waiting[messages.partition] += len(messages.raw)
            self._changed.notify_all()
            return True

    def put_reassignment(self, change: Reassignment) -> None:
        """Add word of a partition; there are few of them, so it never waits."""
        with self._changed:
            self._batches.append((change, 0))
            self._changed.notify_all()

    def end(self, reason: str) -> None:
        """Say that no batch will follow, and why."""
        with self._changed:
            self._reason = reason
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Let `take` raise an error once every batch has been taken."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def raise_if_failed(self) -> None:
        """Raise what `fail` was given, even if batches wait."""
        with self._changed:
            if self._error is not None:
                raise self._error

    def take(self, timeout_s: float) -> Messages | Reassignment | None:
        """Remove and return what came first; None if nothing came in time or nothing will come.

        What `fail` was given is raised once every batch before it has been taken.
        """
        with self._changed:
            self._changed.wait_for(self._can_take, timeout_s)
            if self._batches:
                item, n_bytes = self._batches.popleft()
                self._n_bytes -= n_bytes
                if isinstance(item, Messages):
                    self._n_waiting[item.partition] -= len(item.raw)
                self._changed.notify_all()
                return item
            if self._error is not None:
                raise self._error
            return None

    def _has_space(self, n_bytes: int) -> bool:
        if not self._batches:
            return True
        fits = self._n_bytes + n_bytes <= self._bytes_max
        return fits and len(self._batches) < self._batches_max

    def _can_take(self) -> bool:
        return bool(self._batches) or self._reason is not None or self._error is not None


class Reader:
    """Reads a source, not opened yet, on a thread of its own.

    `health` hears of each poll, and of what keeps the source from reading. Once `stop` is set,
    batches that were not learned by then are dropped. `beginnings` are the source's, and hold each
    partition before a batch of it can be taken. A member of a group takes partitions over from the
    others by `group`.
    """

    def __init__(
        self,
        source: Source,
        decoder: Decodes,
        health: Health,
        stop: threading.Event,
        queue: BatchQueue | None = None,
        group: GroupParts | None = None,
        thread_name: str = "read",
    ) -> None:
        self.name = source.name
        self._source = source
        self._decoder = decoder
        self._health = health
        self._stop = stop
        self._queue = queue or BatchQueue()
        self._group = group
        self._own: set[Partition] = set()  # of the group's, as far as the queue was told
        self._further: dict[Partition, LoadedPart] = {}  # than we had got, and not queued yet
        self._limits = Limits()
        self._positions: dict[Partition, int] = {}
        self._logs: Mapping[Partition, LogFacts] = {}
        self.beginnings = source.beginnings
        self._n_read, self._piece_messages = 0, _PIECE_MIN
        self._status = SourceStatus()
        self._to_report: deque[Mapping[Partition, int]] = deque(maxlen=1)
        self._again: deque[tuple[Partition, int | None]] = deque()
        self._known_topic: tuple[str | None, ...] = ()  # as the group was told last
        self.may_end = True  # at the end of the source, if the run has one
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)

    @property
    def n_ahead(self) -> int:
        """How many messages wait to be learned; any thread may ask."""
        return sum(self._queue.waiting().values())

    # ---- called by the consuming thread --------------------------------------------------------

    def start(
        self,
        positions: Mapping[Partition, int],
        limits: Limits,
        logs: Mapping[Partition, LogFacts] = MappingProxyType({}),
    ) -> None:
        """Open the source at the checkpoint's next offsets and begin to read."""
        self._positions = dict(positions)
        self._logs = logs
        self._limits = limits
        self._thread.start()

    def take(self, timeout_s: float) -> Messages | Reassignment | None:
        """Return the next batch, or word of a partition; None if nothing came in time.

        What ended the reading thread is raised once every batch before it has been taken.
        """
        return self._queue.take(timeout_s)

    def raise_if_failed(self) -> None:
        """Raise what ended the reading thread, for who cannot take what it read yet."""
        self._queue.raise_if_failed()

    @property
    def end_reason(self) -> str | None:
        """Why no batch will follow; None while one waits or may come."""
        return self._queue.end_reason

    @property
    def n_partitions(self) -> int | None:
        """How many partitions the stream has; None as long as that is not known."""
        return self._source.n_partitions

    def learned(self, n: int, seconds: float) -> None:
        """Adapt the size of pieces to the processor time that learning `n` messages took."""
        if n and seconds > 0:
            target = (self._piece_messages + n / seconds * PIECE_S) / 2
            self._piece_messages = int(min(max(target, _PIECE_MIN), _PIECE_MAX))

    def read_again(self, partition: Partition, position: int | None) -> None:
        """Have a partition read from elsewhere, None: from where its log begins.

        A `Reassignment` comes before the first batch from there.
        """
        self._again.append((partition, position))

    def report_positions(self, positions: Mapping[Partition, int]) -> None:
        """Have the source report positions after its next poll; newer ones replace older ones."""
        self._to_report.append(dict(positions))

    def close(self) -> None:
        """Report what is left to report and close the source, also if it was never started.

        What closing the source raised is raised here.
        """
        self._closing.set()
        if self._thread.ident is None:
            self._source.close()
            return
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            log.error("reader_does_not_end", source=self.name, waited_s=_CLOSE_TIMEOUT_S)
        if self._failure is not None:
            raise self._failure

    def source_status(self) -> SourceStatus:
        """Return the status after the last poll; messages read but not learned count as lag."""
        status, waiting = self._status, self._queue.waiting()
        lag = {each: n + waiting.get(each, 0) for each, n in status.lag.items()}
        return replace(status, lag=MappingProxyType(lag))

    def logs(self, positions: Mapping[Partition, int]) -> Mapping[Partition, LogFacts]:
        """Return what the source knows of its logs up to where they have been learned."""
        return self._source.logs(positions)

    def confirm(self) -> None:
        """Raise `SourceError` if what was read so far may be of another log."""
        self._source.confirm()

    # ---- the reading thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            try:
                self._health.beat_reader()
                self._source.resume(self._logs)
                self._know_topic()
                self._source.open(self._position_of)
                self._queue.end(self._read())
            except BaseException as error:  # noqa: BLE001 -- `take` raises it on the thread that ends the run
                self._queue.fail(error)
            while not self._closing.wait(POLL_TIMEOUT_S):
                self._health.beat_reader()  # the last checkpoint's positions are still to come
            self._report_pending()
        except BaseException as error:  # noqa: BLE001 -- `close` raises it
            self._failure = error
        finally:
            try:
                self._source.close()
            except BaseException as error:  # noqa: BLE001 -- `close` raises it
                self._failure = self._failure or error

    def _read(self) -> str:
        """Read until the run is over; return the reason."""
        while not self._is_over():
            self._rewind()
            batches = self._source.poll(POLL_TIMEOUT_S)
            self._health.beat_reader()
            self._know_topic()
            self._report_pending()
            self._status = SourceStatus.of(self._source)
            self.beginnings = self._source.beginnings  # before any batch of these partitions
            self._health.set_trouble(self._status.trouble)
            self._tell_taken_over(self._status.assigned | {raw.partition for raw in batches})
            for raw in batches:
                if self._is_over():
                    break  # each would wait for room once more: with many partitions, for seconds
                self._enqueue(raw)
            self._tell_lost()
            if self._n_read == self._limits.messages_max:
                return "max messages"
            may_end = self._limits.until_end and self.may_end and not self._again
            if may_end and not batches and self._source.at_end():
                return "end of source"
        return "told to stop"

    def _rewind(self) -> None:
        """Read from elsewhere what `read_again` was asked for."""
        while self._again:
            partition, position = self._again.popleft()
            self._positions.pop(partition, None)
            if position is not None:
                self._positions[partition] = position
            self._source.rewind(partition)
            self._queue.put_reassignment(Reassignment(partition, is_ours=True))

    def _know_topic(self) -> None:
        """Let the group look for parts once broker or checkpoint have said of which topic."""
        source, topic = self._source, (self._source.topic_id,)
        is_told = source.n_partitions is not None or source.beginnings
        if self._group is not None and is_told and topic != self._known_topic:
            self._known_topic = topic
            self._group.know_topic(*topic)

    def _position_of(self, partition: Partition) -> int | None:
        """Return where to go on in a partition: where the group has got to, if that is further."""
        position = self._positions.get(partition)
        if self._group is None:
            return position
        self._group.files.topic_id = self._source.topic_id
        loaded = self._group.take_over(partition, position)
        if loaded is None:
            self._further.pop(partition, None)
            return position
        self._further[partition] = loaded
        return loaded.position

    def _tell_taken_over(self, partitions: Iterable[Partition]) -> None:
        """Say which partitions of the group are ours now, before any batch of theirs."""
        if self._group is None:
            return
        for partition in partitions:
            further = self._further.get(partition)
            if further is not None:
                self._positions[partition] = further.position
            if further is not None or partition not in self._own:
                self._own.add(partition)
                self._queue.put_reassignment(Reassignment(partition, is_ours=True, part=further))
        self._further.clear()  # the others were asked about, and are not ours

    def _tell_lost(self) -> None:
        """Say which partitions went to others; their last batches are in the queue."""
        for partition in self._own - self._status.assigned:
            self._own.discard(partition)
            self._queue.put_reassignment(Reassignment(partition, is_ours=False))
        if self._group is not None:
            self._group.keep_only(self._own)

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._closing.is_set()

    def _report_pending(self) -> None:
        if self._to_report:
            self._source.report_positions(self._to_report.pop())

    def _enqueue(self, raw: RawColumns) -> None:
        """Decode a polled batch piece by piece, and queue the pieces."""
        if self._limits.messages_max is not None:
            left = self._limits.messages_max - self._n_read
            if left == 0:
                return  # beyond the limit: not counted, not learned, its position not advanced
            raw = raw.head(left)
        self._n_read += len(raw)
        for piece in raw.pieces(self._piece_messages):
            # The buffer belongs to the whole poll: each piece counts for its share.
            n_bytes = len(raw.buffer) * len(piece) // max(len(raw), 1)
            messages = self._decode(piece)
            if messages is None:
                return
            while not self._queue.put(messages, n_bytes, POLL_TIMEOUT_S):
                if self._is_over():
                    return
                self._health.beat_reader()  # waiting for the learner is not a stuck reader
            self._positions[raw.partition] = piece.next_offset

    def _decode(self, piece: RawColumns) -> Messages | None:
        """Return what a piece holds; None if the run ends before its schemas can be had."""
        while True:
            try:
                messages = self._decoder.decode(piece)
            except RegistryError as error:
                self._health.set_trouble(str(error))
                left_s = error.pause_s
                while left_s > 0 and not self._is_over():
                    self._health.beat_reader()  # waiting for the registry is not a stuck reader
                    self._stop.wait(min(left_s, POLL_TIMEOUT_S))
                    left_s -= POLL_TIMEOUT_S
                if self._is_over():
                    return None
            else:
                self._health.set_trouble(self._status.trouble)
                return messages


class LabelReader:
    """Hands the labels that `reader` reads to `join`; `messages` reads what they are of.

    `fields` are those that the model reads; `shared` names the late-label topic in a group.
    """

    def __init__(
        self,
        reader: Reader,
        join: LateLabels,
        messages: Reader,
        fields: tuple[str, ...],
        shared: str | None = None,
    ) -> None:
        self.reader, self.join = reader, join
        self.is_behind = False  # labels may wait that the messages' time has reached
        self.is_mid_batch = False  # counts may be ahead of positions
        self._messages = messages
        self._nothing: dict[str, list[str]] = {field: [] for field in fields}
        self._shared = shared
        self._own: set[Partition] = set()  # of the late-label topic, in a group
        self._awaited: Counter[Partition] = Counter()  # how often each is still to be read again
        self._until_end = False
        self._partitions = LabelPartitions("late_labels.source")

    def start(
        self,
        positions: Mapping[Partition, int],
        limits: Limits,
        logs: Mapping[Partition, LogFacts],
        group: GroupParts | None = None,
    ) -> None:
        """Begin to read, at the checkpoint's positions."""
        has_labels = (lambda: False) if group is None else group.has_labels
        self._partitions.resume(self.join.log_name, positions, logs, has_labels)
        self._until_end = limits.until_end
        self.reader.may_end = self._shared is None
        self.reader.start(positions, Limits(until_end=limits.until_end), logs)

    # ---- the group -----------------------------------------------------------------------------

    def know(
        self,
        partition: Partition,
        part: LoadedPart,
        positions: MutableMapping[Partition, int],
        learner: Learner,
        *,
        is_ours: bool,
    ) -> None:
        """Go on where another member got to with a partition, behind the memory."""
        self.join.take_over(partition, part.times, is_ours=is_ours)
        own = self._labels_of(partition)
        positions.pop(own, None)
        if part.labels:
            learner.learn(part_name(own), self._nothing, [])  # a position is saved with a part
            positions[own] = part.labels

    def take_over(self, partition: Partition, positions: Mapping[Partition, int]) -> None:
        """Take the labels of a partition from here on."""
        own = self._labels_of(partition)
        self._own.add(own)
        self._awaited[own] += 1
        self.reader.read_again(own, positions.get(own))

    def give_up(self, partition: Partition) -> None:
        """Leave the labels of a partition to who reads it next."""
        self._own.discard(self._labels_of(partition))

    def _labels_of(self, partition: Partition) -> Partition:
        return Partition(self._shared or "", partition.partition)

    def _is_wanted(self, partition: Partition) -> bool:
        return self._shared is None or (partition in self._own and not self._awaited[partition])

    # ---- the consuming thread ------------------------------------------------------------------

    def take(
        self,
        learner: Learner,
        positions: MutableMapping[Partition, int],
        timeout_s: float,
        *,
        is_idle: bool,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Take what was read, and move its positions on; wait for the first up to `timeout_s`.

        Labels that wait for their message cost more than messages that wait for their label: so
        unless the stream `is_idle`, one batch may lie beyond the messages' time, and no more.
        `then` is called with each batch, before its position is moved on.
        """
        self.is_behind = False
        if not self._partitions_agree():
            self.reader.raise_if_failed()  # they may never agree then
            return
        for _ in range(_TURN_BATCHES):
            taken = self.reader.take(0.0 if self.is_behind else timeout_s)
            if taken is None:
                break
            if isinstance(taken, Reassignment):
                self._awaited[taken.partition] -= 1
            elif self._is_wanted(taken.partition):
                self.is_mid_batch = True
                learner.learn(part_name(taken.partition), self._nothing, [])  # as in `know`
                self.is_behind = self.join.take(taken, learner) or is_idle
                then()
                positions[taken.partition] = taken.next_offset
                self.is_mid_batch = False
                if not self.is_behind:
                    break
        if self._messages.end_reason is not None and not self._awaited.total():
            self.reader.may_end = True  # no partition will be taken over any more

    def has_backlog(self) -> bool:
        """Return whether labels of before the end are still to come, if the run has one."""
        return self._until_end and self.reader.end_reason is None

    def beginnings(self) -> Mapping[Partition, LogFacts]:
        """Return where reading has begun; what is returned is replaced, never changed."""
        return self._partitions.marked(self.reader.beginnings)

    def _partitions_agree(self) -> bool:
        """Return whether both topics are known to have the same partitions, or had them once."""
        if not self._partitions.have_agreed:  # they may from this question on
            self._partitions.agree(self.reader.n_partitions, self._messages.n_partitions)
        return self._partitions.have_agreed
