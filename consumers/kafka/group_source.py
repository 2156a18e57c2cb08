"""The Kafka source: a member of a consumer group, whichever client library speaks to the broker.

Its rules:

1. The group decides who reads which partition. Our own checkpoint decides from where; the offsets
   committed to the broker decide nothing. No assigned partition is read before `seek`.
2. After any fault a partition is sought back to the last position handed over, so no message is
   lost or repeated. A partition with a broken batch is tried again after a pause while the others
   go on. Faults that pass are reported by `trouble` and retried.
3. A broker that is away blocks nobody: connecting and every question have a time limit.

`configured_source` and `whole_topic_source` make one on the client library of the settings.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

import msgspec
import structlog

from consumers.config.addresses import Bound, KafkaSettings
from consumers.config.settings import Settings
from consumers.errors import ReplacedError
from consumers.kafka.client import (
    ClientError,
    ClientFailedError,
    Fetched,
    FetchFault,
    GroupClient,
    GroupFault,
    TopicDescription,
    require_librdkafka,
    unreadable,
)
from consumers.messages import Partition, RawColumns
from consumers.sources.base import Backoff, LogFacts, Source, behind_position, offsets_of
from consumers.sources.records import no_messages

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

# How long one call into the client may wait: short, so that a new assignment is handled at once.
POLL_SLICE_S: Final = 0.1
# A silent topic and a silent broker look alike; after this long without a message we ask.
ASK_INTERVAL_S: Final = 1.0
ASK_TIMEOUT_S: Final = 0.5
# For how many session timeouts a dead member may hold partitions: one until the broker notices, a
# quarter until our next heartbeat brings them to us, and some for delays.
SETTLED_SESSIONS: Final = 1.5

BROKER: Final = "broker"  # the key of the trouble that concerns everything
GROUP: Final = "group"  # the key of the trouble that keeps us out of the group


class PartitionOffsets(msgspec.Struct):
    """The offsets of one assigned partition."""

    position: int  # the next offset to read
    log_start: int  # as last heard of, like the end
    log_end: int  # behind the last offset


_WAY_OUT: Final = (
    "To learn the new one from its start, give the daemon another checkpoint.folder, or move the "
    "old one away; to keep what was learned, give it another topic"
)


class Positions:
    """Where reading stands in each assigned partition of a topic, relative to what its log holds.

    Bookkeeping without a client or a clock: the source brings what the broker says, and this
    decides where to read on, what is lost, what lies ahead and whether the end is reached.

    `logs` has where reading began. With `latest` that is decided for all partitions at once, when
    the topic is first seen: whatever a partition gets later is newer, and is read.
    """

    def __init__(self, start_from: Literal["earliest", "latest"], topic: str = "") -> None:
        self._start_from = start_from
        self._topic = topic
        self._offsets: dict[Partition, PartitionOffsets] = {}
        # Both are kept when a partition leaves. The end of the stream "as it was at the start" does
        # not move because the group rebalanced; nor is what arrives meanwhile to be skipped.
        self._first_ends: dict[Partition, int] = {}
        self.logs: Mapping[Partition, LogFacts] = MappingProxyType({})
        self.topic_id: str | None = None
        self.topic_seen = False

    def resume(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Take what the checkpoint knows of the topic's partitions; none if it knows no topic."""
        self.logs, self.topic_seen = logs, bool(logs)
        ids = {facts.topic_id for facts in logs.values()} - {None}
        self.topic_id = ids.pop() if ids else None

    def see_topic(self, topic_id: str | None, ends: Mapping[Partition, int]) -> None:
        """Note the topic when it is first seen, and where its partitions end."""
        self.check_topic(topic_id)
        self.topic_id, self.topic_seen = topic_id, True
        if self._start_from == "latest":
            self._begin(ends)

    def check_topic(self, topic_id: str | None) -> None:
        """Raise `ReplacedError` if this is the id of another topic than the one that was read."""
        if None not in (topic_id, self.topic_id) and topic_id != self.topic_id:
            raise ReplacedError(
                f"topic {self._topic!r} was deleted and created again: it has the id {topic_id} "
                f"now, and what was learned is of the one with the id {self.topic_id}. {_WAY_OUT}"
            )

    def _begin(self, begins: Mapping[Partition, int]) -> None:
        """Note where reading begins in partitions that nothing is known of."""
        new = {each: LogFacts(at, self.topic_id) for each, at in begins.items()}
        self.logs = MappingProxyType({**new, **self.logs})

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._offsets))

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def position(self, partition: Partition) -> int:
        """Return the next offset to read."""
        return self._offsets[partition].position

    def start(
        self, partition: Partition, position: int | None, log_start: int, log_end: int
    ) -> int:
        """Decide where to read on in a partition; return how many messages retention has removed.

        If the `position` is None, nothing of it was ever read: reading begins where it began with
        this partition before. A partition that the topic got since it was first seen begins at its
        start. A position behind the log's end is from another log of that name: `ReplacedError`.
        """
        if partition not in self.logs:
            # What stands before a position without facts, of version 0.1.0, is not known.
            self._begin({partition: log_start if position is None else 0})
        if position is None:
            position = self.logs[partition].begin
        if position > log_end:
            raise ReplacedError(
                f"{partition}: the next message to read is {position}, but the log ends at "
                f"{log_end}; was the topic deleted and created again? {_WAY_OUT}"
            )
        kept = max(position, log_start)
        self._offsets[partition] = PartitionOffsets(kept, log_start, log_end)
        self._first_ends.setdefault(partition, log_end)
        return kept - position

    def begin_at(
        self, partition: Partition, position: int | None, bound: Bound, begin: int, log_start: int
    ) -> None:
        """Begin at a bound, the offset `begin`; one behind what was read is a `SourceError`."""
        if position is None and partition in self.logs:
            position = self.logs[partition].begin
        if position is None:
            self._begin({partition: begin})
        elif begin > max(position, log_start):
            raise behind_position(partition, bound, position)

    def advance(self, partition: Partition, position: int, log_end: int | None = None) -> None:
        """Note that reading has got to `position`, and where the log ends if that is known."""
        offsets = self._offsets[partition]
        offsets.position = max(offsets.position, position)
        offsets.log_end = max(offsets.log_end if log_end is None else log_end, offsets.position)

    def forget(self, partition: Partition) -> None:
        """Drop a partition that was taken away."""
        self._offsets.pop(partition, None)

    def lag(self) -> dict[Partition, int]:
        """Return how many offsets lie between position, or the log's start, and the log's end."""
        return {
            partition: max(0, offsets.log_end - max(offsets.position, offsets.log_start))
            for partition, offsets in self._offsets.items()
        }

    def at_end(self) -> bool:
        """Return whether every assigned partition is read up to its end as it was first seen."""
        return all(
            offsets.position >= self._first_ends[partition]
            for partition, offsets in self._offsets.items()
        )


class GroupSource(Source):
    """Reads a topic as a member of a consumer group; the client is not opened yet.

    Lost messages are those that retention had removed before they were read. If `is_shared`,
    others read it too, and those of a partition count from its first `rewind` on.
    """

    name = "kafka"
    n_partitions = None

    def __init__(
        self,
        client: GroupClient,
        settings: KafkaSettings,
        clock: Callable[[], float] = time.monotonic,
        begin_at: Bound | None = None,
        *,
        is_shared: bool = False,
    ) -> None:
        self.client = client
        self._is_shared, self._rewound = is_shared, set[Partition]()
        self._begin_at = begin_at
        self.lost_messages = 0
        self._settings = settings
        self._clock = clock
        self._position_of: Callable[[Partition], int | None] = lambda _: None
        self._connected = self._joined = self._topic_seen = self._poll_failed = False
        self._n_assigned_of = 0  # partitions there were when the group assigned them; 0: not known
        self._closed = threading.Event()
        self._troubles = Backoff(log, clock, settings.retry_pause_max_s)
        start_from = settings.start_from if begin_at is None else "earliest"
        self._positions = Positions(start_from, client.topic_name)
        # Assigned partitions that must be sought before they are read. None: ask `position_of`.
        self._to_seek: dict[Partition, int | None] = {}
        self._retry_at_s: dict[Partition, float] = {}  # partitions whose next batch cannot be read
        # Where reading went on behind lost messages. A partition may stay quiet, so a batch without
        # messages carries the position there: the next start would tell of the same loss again.
        self._went_on: dict[Partition, int] = {}
        self._heard_at_s = clock()
        self._ended_at_s: float | None = None  # since when our partitions are read to the end

    @property
    def decoder(self) -> str | None:
        """Return how responses are decoded; None before the first broker has answered."""
        return self.client.decoder

    @property
    def beginnings(self) -> Mapping[Partition, LogFacts]:  # type: ignore[override]  # read only
        """Where reading began in each partition, and the topic's id."""
        return self._positions.logs

    @property
    def n_elsewhere(self) -> int:  # type: ignore[override]  # read only
        """How many partitions others read; those that the topic has just got are nobody's yet."""
        is_settled = self._joined and not self._to_seek
        return max(0, self._n_assigned_of - len(self._positions)) if is_settled else 0

    @property
    def topic_id(self) -> str | None:
        """The topic's id, once it is known."""
        return self._positions.topic_id

    def resume(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Take what the checkpoint knows of this topic's partitions."""
        name = self.client.topic_name
        self._positions.resume({each: logs[each] for each in logs if each.topic == name})

    def confirm(self) -> None:
        """Raise `ReplacedError` if the topic was created again; a broker that is away is none."""
        self._positions.check_topic(self.client.ask_topic_id(ASK_TIMEOUT_S))

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin; a broker that is away blocks nothing and raises nothing.

        A client that refuses its settings is a `ConfigError`.
        """
        self._position_of = position_of
        self._heard_at_s = self._clock()
        self.client.open()

    def rewind(self, partition: Partition) -> None:
        """Read a partition again; see `Source.rewind`."""
        self._rewound.add(partition)
        self._went_on.pop(partition, None)
        if partition in self._positions:
            self._to_seek[partition] = None
            self.client.pause(partition)

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next messages; see `Source.poll`.

        A topic that was created again is a `ReplacedError`. Batches whose compression needs a
        package that is not installed are a `SourceError`.
        """
        deadline_s = self._clock() + timeout_s
        while not self._closed.is_set():
            batches = self._poll_once(max(0.0, deadline_s - self._clock()))
            if batches or self._clock() >= deadline_s:
                return batches
        return []

    def _poll_once(self, left_s: float) -> list[RawColumns]:
        """Take one step: connect, or seek what was assigned and read."""
        pause_s = self._troubles.pause_s(BROKER)
        if pause_s > 0:
            self._closed.wait(min(pause_s, left_s))
            return []
        if not self._connected:
            self._connect(left_s)
            return []
        self._handle_events()
        self._seek_assigned()
        self._retry_broken()
        try:
            fetched = self.client.poll(self._settings.max_poll_messages, min(left_s, POLL_SLICE_S))
        except ClientError as error:
            self._poll_failed = True
            self._say(error)
            for each in self._positions:  # but for one that is to be read from elsewhere
                self._to_seek.setdefault(each, self._positions.position(each))
            return []
        self._positions.check_topic(self.client.topic_id())
        if self.n_partitions is not None:
            self.n_partitions = self.client.n_partitions() or self.n_partitions
        self._handle_events()  # the group may have changed within that poll
        batches = self._accept(fetched)
        if any(map(len, batches)):
            self._heard(reads=True)
        else:
            self._ask()
        return batches

    def assignment(self) -> Collection[Partition]:
        """Return the partitions whose positions are known."""
        self._handle_events()
        return tuple(self._positions)

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread messages of each assigned partition, removed ones not counted."""
        self._handle_events()
        return self._positions.lag()

    def at_end(self) -> bool:
        """Return whether each assigned partition is read up to its end as it was first seen.

        A member without any partition is at its end once the topic is known to exist. Partitions
        of others may come to us yet: of a member that was killed, when its session times out. So a
        member that has not all of them waits that long at its end; who lives goes on with its own.
        """
        self._handle_events()
        is_read = self._positions.at_end() if len(self._positions) else self._topic_seen
        if self._to_seek or not (self._joined and is_read):
            self._ended_at_s = None
            return False
        if self._ended_at_s is None:
            self._ended_at_s = self._clock()
        if self.n_partitions is not None and len(self._positions) >= self.n_partitions:
            return True
        settled_s = SETTLED_SESSIONS * self._settings.session_timeout_s
        return self._clock() - self._ended_at_s >= settled_s

    def trouble(self) -> str | None:
        """Return what keeps the source, or one of its partitions, from reading now."""
        return self._troubles.first()

    def report_positions(self, positions: Mapping[Partition, int]) -> None:
        """Commit positions to the broker for lag tools; nothing waits for it or fails by it."""
        ours = {each: offset for each, offset in positions.items() if each in self._positions}
        if ours:
            self.client.commit(ours)

    def close(self) -> None:
        """Leave the group and release everything, within about two seconds."""
        self._closed.set()
        self.client.close(finish_commit=self._troubles.first() is None)

    def _connect(self, left_s: float) -> None:
        try:
            self._connected = self.client.connect(left_s)
        except ClientError as error:
            self._say(error)
        else:
            if self._connected:
                self._heard()

    def _say(self, error: ClientError) -> None:
        """Note why there is no connection; a client that failed must be connected again."""
        if isinstance(error, ClientFailedError):
            self._connected = self._joined = False
            self._poll_failed = True
        self._tell(BROKER, str(error))

    def _tell(self, key: str, sentence: str) -> None:
        """Note a failure; one for want of a right is told with what the user needs."""
        if "uthorization" in sentence:  # both libraries' errors have the word
            topic, group = self.client.topic_name, self._settings.group_id
            sentence = (
                f"{sentence.rstrip('.')}. This user needs the right to read topic {topic!r} and "
                f"group {group!r} (kafka-acls --add --operation Read); once it has, reading goes on"
            )
        self._troubles.say(key, sentence)

    # -- assignment ----------------------------------------------------------------------------

    def _handle_events(self) -> None:
        """Apply what the group decided since the last call."""
        while self.client.events:
            event = self.client.events.popleft()
            if isinstance(event, GroupFault):
                self._tell(event.key, event.sentence)
                continue
            for partition in event.partitions:
                self._positions.forget(partition)
                self._retry_at_s.pop(partition, None)
                self._to_seek.pop(partition, None)
                self._went_on.pop(partition, None)
                self._troubles.clear(str(partition))
                if event.assigned:
                    self._to_seek[partition] = None
            self._joined = event.assigned  # what is revoked comes back by the next assignment
            self._ended_at_s, self._n_assigned_of = None, 0  # to be asked for
            if event.assigned:
                self._troubles.clear(GROUP)

    def _seek_assigned(self) -> None:
        """Decide where to read on in the partitions that must be sought, and seek there."""
        if not self._to_seek and (self._n_assigned_of or not self._joined):
            return
        try:
            topic = self.client.topic(ASK_TIMEOUT_S)
            self._positions.check_topic(topic.id)
            if not self._positions.topic_seen:
                self._see_topic(topic)
            self.n_partitions = self._n_assigned_of = len(topic.partitions)
            starts = self.client.log_starts(list(self._to_seek), ASK_TIMEOUT_S)
            ends = self.client.log_ends(list(self._to_seek), ASK_TIMEOUT_S)
            at = partial(self.client.offsets_at, list(starts), timeout_s=ASK_TIMEOUT_S)
            begins = offsets_of(self._begin_at, starts, ends, at)
        except ClientError as error:
            self._tell(BROKER, str(error))
            return
        known = self._positions.logs
        for partition, log_start in starts.items():
            position = self._to_seek.pop(partition)
            if position is None:
                position = self._position_of(partition)
                if self._begin_at is not None:
                    self._positions.begin_at(
                        partition, position, self._begin_at, begins[partition], log_start
                    )
            lost = self._positions.start(partition, position, log_start, ends[partition])
            if lost and (partition in self._rewound or not self._is_shared):
                self._report_lost(partition, lost, log_start)
        new = self._positions.logs.keys() - known.keys()
        if new:  # of a topic read for the first time, or partitions that it got since
            began = {str(each): self._positions.position(each) for each in new & starts.keys()}
            log.info("reading_begins", positions=began)
        self._seek()
        self._heard()

    def _see_topic(self, topic: TopicDescription) -> None:
        """Note the topic, which no checkpoint knows, and where reading begins in it."""
        ends = {}
        if self._settings.start_from == "latest" and self._begin_at is None:
            # What the checkpoint of an earlier version was reading goes on there.
            ends = self.client.log_ends(topic.partitions | self._to_seek.keys(), ASK_TIMEOUT_S)
            begins = self.begins_of(topic.id, ends).items()
            ends = {each: at for each, at in begins if self._position_of(each) is None}
        self._positions.see_topic(topic.id, ends)
        log.info("topic_seen", topic=self.client.topic_name, topic_id=topic.id)

    def _seek(self) -> None:
        """Read every partition whose position is known and whose next batch is not broken."""
        self.client.seek(
            {
                each: self._positions.position(each)
                for each in self._positions
                if each not in self._to_seek and each not in self._retry_at_s
            }
        )

    def _report_lost(self, partition: Partition, lost: int, log_start: int) -> None:
        self.lost_messages += lost
        self._went_on[partition] = log_start
        log.error(
            "messages_lost",
            partition=str(partition),
            lost=lost,
            went_on_at=log_start,
            why="retention removed them before they were read; give the topic a longer retention",
        )

    # -- reading -------------------------------------------------------------------------------

    def _accept(self, fetched: list[Fetched]) -> list[RawColumns]:
        """Return the batches to hand over, and note where each partition stands now."""
        batches = []
        for partition, columns, position, log_end, fault in fetched:
            # Messages of a partition that was taken away, or must be sought, are read again.
            must_seek = partition in self._to_seek or partition in self._retry_at_s
            if must_seek or partition not in self._positions:
                continue
            self._positions.advance(partition, position, log_end)
            if columns is not None:
                batches.append(columns)
                self._went_on.pop(partition, None)
            if fault is not None:
                self._handle_fault(partition, fault)
            elif columns is not None or position == log_end:
                self._troubles.clear(str(partition))
        batches += [no_messages(partition, at) for partition, at in self._went_on.items()]
        self._went_on.clear()
        return batches

    def _handle_fault(self, partition: Partition, fault: FetchFault) -> None:
        """Have a partition sought again: at once, or after a pause if its batch is broken."""
        position = self._positions.position(partition)
        if fault.kind == "position":
            self._to_seek[partition] = position
            return
        sentence = f"{partition}: {unreadable(fault.why)}"
        if fault.kind == "batch":
            sentence = (
                f"{partition}: the batch at offset {position} cannot be read ({fault.why}); it is "
                f"tried again at least every {self._settings.retry_pause_max_s:g} s while other "
                "partitions go on. If it stays so, remove the topic's records up to its end "
                "(kafka-delete-records): reading goes on behind it, and they count as lost"
            )
        self._tell(str(partition), sentence)
        self._retry_at_s[partition] = self._clock() + self._troubles.pause_s(str(partition))

    def _retry_broken(self) -> None:
        """Read again from partitions whose pause after a broken batch is over."""
        now_s = self._clock()
        due = [each for each, retry_at_s in self._retry_at_s.items() if retry_at_s <= now_s]
        for partition in due:
            del self._retry_at_s[partition]
        if due:
            self._seek()

    def _ask(self) -> None:
        """If nothing has come for a while, ask whether the broker is there."""
        # What must be sought is asked for anyhow.
        if self._to_seek or self._clock() - self._heard_at_s < ASK_INTERVAL_S:
            return
        known = list(self._positions)
        try:
            if known:
                ends = self.client.log_ends(known, ASK_TIMEOUT_S)
            else:
                self.client.find_topic(ASK_TIMEOUT_S)  # the group may well have no partition for us
                ends = {}
        except ClientError as error:
            self._tell(BROKER, str(error))
            return
        self._topic_seen = True
        for partition, log_end in ends.items():
            self._positions.advance(partition, self._positions.position(partition), log_end)
        self._heard(reads=True)

    def _heard(self, *, reads: bool = False) -> None:
        """Note that the broker answered; after a poll that failed, one must also succeed.

        Who has lost the right to read may still ask where the logs end.
        """
        self._heard_at_s = self._clock()
        if reads or not self._poll_failed:
            self._poll_failed = False
            self._troubles.clear(BROKER)
        if reads and len(self._positions):  # a member without any finds its client well too early
            self.client.n_replaced = 0


def configured_source(settings: Settings, begin_at: Bound | None) -> Source:
    """Return the source of the stream's topic on the client library that is configured.

    It is imported here: a client costs up to 0.3 s at the start, and one of them is an extra.
    """
    kafka, address = settings.kafka, settings.source_address
    servers, topic = address.servers, address.topic or ""
    if kafka.client == "kafka-python":
        from consumers.kafka.kafka_python import KafkaPythonClient  # noqa: PLC0415

        client = KafkaPythonClient(servers, topic, kafka)
        return GroupSource(client, kafka, begin_at=begin_at)
    require_librdkafka("kafka.client: 'librdkafka'", "set kafka.client to 'kafka-python'")
    from consumers.kafka.librdkafka import LibrdkafkaClient  # noqa: PLC0415

    return GroupSource(LibrdkafkaClient(servers, topic, kafka), kafka, begin_at=begin_at)


def whole_topic_source(
    settings: Settings, topic: str, servers: Sequence[str], what: str = "corrections"
) -> Source:
    """Return a source of all partitions of a topic, from their beginnings.

    Every daemon reads all and keeps its positions in its own checkpoint, so the group needs no
    lasting name; a new one never waits for the session of a dead member to time out.
    """
    from consumers.kafka.kafka_python import KafkaPythonClient  # noqa: PLC0415 -- as above

    group_id = f"{settings.kafka.group_id}-{what}-{uuid.uuid4().hex[:8]}"
    kafka = settings.kafka.model_copy(update={"group_id": group_id, "start_from": "earliest"})
    is_shared = settings.group.folder is not None
    return GroupSource(KafkaPythonClient(servers, topic, kafka), kafka, is_shared=is_shared)
