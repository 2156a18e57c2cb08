"""The Kafka source on librdkafka: a group's member whose positions come from our own checkpoint.

It keeps the promises of `sources.kafka`, and in the same order:

1. The group decides who reads which partition; the broker's committed offsets decide nothing. What
   is assigned is not read before `position_of` was asked and compared with what the log holds.
2. What the client cannot read it says in the place of a message. Then the partition goes back to
   where we stand, by asking its log or after a rest, so no fault loses a message or brings it
   twice, and the other partitions go on. What passes is told by `trouble` and retried.
3. The client connects by itself, on threads of its own, so a broker that is away blocks nobody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message

from consumers.config.settings import KafkaSettings
from consumers.kafka.client import bad_batch, no_answer, no_topic, unreadable
from consumers.kafka.librdkafka_columns import (
    BROKEN,
    OUT_OF_RANGE,
    Run,
    by_partition,
    columns_of,
    sort_out,
)
from consumers.kafka.librdkafka_consumer import Member, reason
from consumers.kafka.offsets import Places
from consumers.messages import Partition, RawColumns
from consumers.monitoring.health import Troubles

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

# How long one call into the client may wait: short, so that a new assignment is settled at once.
SLICE_S: Final = 0.1
# A silent topic and a silent broker look alike; after this long without a message we ask.
ASK_INTERVAL_S: Final = 1.0
ASK_TIMEOUT_S: Final = 0.5
N_MAX: Final = 1_000_000  # messages that the client hands over at a time

BROKER: Final = "broker"  # the key of the trouble that concerns everything
GROUP: Final = "group"  # the key of the trouble that keeps us out of the group


class LibrdkafkaSource:
    """Reads a topic as a member of a consumer group.

    Parameters
    ----------
    servers : sequence of str
        `host:port` of the brokers to ask first.
    topic : str
        The topic; it may come into being later.
    settings : KafkaSettings
        Group, sizes, security.
    clock : callable, optional
        Seconds that only grow.

    Attributes
    ----------
    lost_messages : int
        How many offsets retention had removed before they were read.
    """

    name = "kafka"
    decoder: Final = "librdkafka"  # what the metric shows

    def __init__(
        self,
        servers: Sequence[str],
        topic: str,
        settings: KafkaSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lost_messages = 0
        self._servers = tuple(servers)
        self._topic = topic
        self._settings = settings
        self._clock = clock
        self._n_max = min(settings.max_poll_messages, N_MAX)
        self._position_of: Callable[[Partition], int | None] = lambda _: None
        self._member: Member | None = None
        self._closed = threading.Event()
        self._troubles = Troubles(log, clock, settings.retry_pause_max_s)
        self._places = Places(settings.start_from)
        # Assigned partitions that must be settled before they are read: None asks `position_of`,
        # a number is where we stand.
        self._unsettled: dict[Partition, int | None] = {}
        self._resting: dict[Partition, float] = {}  # partitions with a bad batch, until when
        self._joined = False
        self._topic_seen = False
        self._heard_at_s = clock()

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin; see `Source.open`. Nothing blocks here.

        Raises
        ------
        ConfigError
            When the client refuses its settings. A broker that is away raises nothing.
        """
        self._position_of = position_of
        self._heard_at_s = self._clock()
        self._member = Member(
            self._servers, self._topic, self._settings, self._assigned, self._revoked, log
        )

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next messages; see `Source.poll`.

        Raises
        ------
        SourceError
            When a position lies behind its log's end.
        """
        deadline_s = self._clock() + timeout_s
        while self._member is not None:
            batches = self._poll_once(self._member, max(0.0, deadline_s - self._clock()))
            if batches or self._clock() >= deadline_s:
                return batches
        return []

    def _poll_once(self, member: Member, left_s: float) -> list[RawColumns]:
        """Take one step: settle what was assigned, read, and ask where nothing comes."""
        try:
            if self._unsettled and not self._troubles.pause_s(BROKER):
                self._settle(member)
            self._wake_rested(member)
            messages = member.read(self._n_max, min(left_s, SLICE_S))
        except KafkaException as error:
            self._troubles.say(BROKER, unreadable(reason(error)))
            self._closed.wait(min(self._troubles.pause_s(BROKER), left_s))
            # Whatever the client was at, it goes back to where we stand.
            self._unsettled |= {each: self._places.position(each) for each in self._places}
            return []
        batches = self._hand_over(member, messages)
        if not batches:
            self._ask(member)
        return batches

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread messages of each assigned partition, removed ones not counted."""
        return self._places.lag()

    def at_end(self) -> bool:
        """Tell whether each assigned partition is read up to its end as it was when first seen.

        A member without any partition is at its end once the topic is known to exist.
        """
        if self._unsettled or not self._joined:
            return False
        return self._places.at_end() if len(self._places) else self._topic_seen

    def trouble(self) -> str | None:
        """Return what keeps the source, or one of its partitions, from reading now."""
        return self._troubles.first()

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit positions to the broker for lag tools; nothing waits for it or fails by it."""
        if self._member is not None:
            ours = {each: offset for each, offset in positions.items() if each in self._places}
            self._member.commit(ours)

    def close(self) -> None:
        """Leave the group and let go of everything, within about two seconds."""
        self._closed.set()
        member, self._member = self._member, None
        if member is not None:
            member.close()

    # -- assignment ----------------------------------------------------------------------------

    def _assigned(self, partitions: list[Partition]) -> None:
        """Note partitions that are ours from now on."""
        self._joined = True
        self._troubles.clear(GROUP)
        self._unsettled = dict.fromkeys(partitions)

    def _revoked(self) -> None:
        """Note that the group takes, or took, all partitions away; it gives some of them anew."""
        for each in self._places:
            self._troubles.clear(str(each))
        self._places.clear()
        self._resting.clear()
        self._unsettled.clear()

    def _settle(self, member: Member) -> None:
        """Find out where to go on in the unsettled partitions, and have all ours read."""
        try:
            starts = member.log_starts(self._unsettled, ASK_TIMEOUT_S)
            ends = member.log_ends(self._unsettled, ASK_TIMEOUT_S)
        except KafkaException as error:
            self._say_silent(member, reason(error))
            return
        for partition, log_start in starts.items():
            wanted = self._unsettled.pop(partition)
            if wanted is None:
                wanted = self._position_of(partition)
            lost = self._places.settle(partition, wanted, log_start, ends[partition])
            if lost:
                self._tell_lost(partition, lost, log_start)
        self._go_on(member)
        self._hear(member)

    def _go_on(self, member: Member) -> None:
        """Read all settled partitions from where we stand, resting ones as well.

        What the client had read ahead is thrown away and fetched again; nothing less brings back a
        partition on which it stumbled, whatever state it was left in.
        """
        self._resting.clear()
        member.assign({each: self._places.position(each) for each in self._places})

    def _tell_lost(self, partition: Partition, lost: int, log_start: int) -> None:
        self.lost_messages += lost
        log.error(
            "messages_lost",
            partition=str(partition),
            lost=lost,
            went_on_at=log_start,
            why="retention removed them before they were read; give the topic a longer retention",
        )

    # -- reading -------------------------------------------------------------------------------

    def _hand_over(self, member: Member, messages: Sequence[Message]) -> list[RawColumns]:
        """Turn messages into columns, and note where each partition stands now."""
        batches = []
        for number, some in by_partition(messages).items():
            if number < 0:
                self._heed_group(some)
                continue
            partition = Partition(self._topic, number)
            # Messages of a partition that was taken away, or whose place is in doubt, are left:
            # whoever goes on with it reads them again.
            in_doubt = partition in self._unsettled or partition in self._resting
            if partition in self._places and not in_doubt:
                batches += self._take(member, partition, sort_out(some))
        if batches:
            self._hear(member)
        return batches

    def _take(self, member: Member, partition: Partition, run: Run) -> list[RawColumns]:
        """Return one partition's messages as a batch, if there are any; heed what is none."""
        messages, end, fault = run
        batches = []
        if messages:
            end = max(end, (messages[-1].offset() or 0) + 1)
            batches.append(columns_of(partition, messages, end))
        if end:
            self._troubles.clear(str(partition))
            self._places.advance(partition, end, member.log_end(partition))
        if fault is not None:
            self._heed_fault(partition, fault)
        return batches

    def _ask(self, member: Member) -> None:
        """When nothing has come for a while: ask if someone is there."""
        silent_s = self._clock() - self._heard_at_s
        # What is to be settled is asked for anyhow.
        if silent_s < ASK_INTERVAL_S or self._unsettled or self._troubles.pause_s(BROKER):
            return
        try:
            if not len(self._places):
                self._ask_for_topic(member)
                return
            ends = member.log_ends(self._places, ASK_TIMEOUT_S)
        except KafkaException as error:
            self._say_silent(member, reason(error))
            return
        for partition, log_end in ends.items():
            self._places.advance(partition, self._places.position(partition), log_end)
        self._hear(member)

    def _ask_for_topic(self, member: Member) -> None:
        """With no partition to ask for, ask for the topic; the group may well have none for us."""
        error = member.topic_error(ASK_TIMEOUT_S)
        if error is not None:
            self._troubles.say(BROKER, no_topic(self._topic, error.str()))
            return
        self._topic_seen = True
        self._hear(member)

    def _hear(self, member: Member) -> None:
        """Note that the broker answered."""
        member.said = None
        self._heard_at_s = self._clock()
        self._troubles.clear(BROKER)

    # -- faults --------------------------------------------------------------------------------

    def _say_silent(self, member: Member, why: str) -> None:
        said = no_answer(self._servers, self._settings)
        if member.said is not None:  # it knows more than the question that got no answer
            why = member.said.str()
        self._troubles.say(BROKER, f"{said} (the client says: {why})")

    def _heed_group(self, faults: Iterable[Message]) -> None:
        """Tell what concerns no partition: the topic, the group, the right to read."""
        for message in faults:
            error = message.error()
            if error is None:
                continue
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._troubles.say(BROKER, no_topic(self._topic, error.str()))
            else:
                self._troubles.say(GROUP, unreadable(error.str()))

    def _heed_fault(self, partition: Partition, error: KafkaError) -> None:
        """Tell why a partition's next batch could not be read, and leave it alone for a while.

        After a damaged batch the client is known to ask for any offset at all. So whatever comes of
        that partition counts for nothing until `_go_on` has sent it back to where we stand.
        """
        position = self._places.position(partition)
        if error.code() in OUT_OF_RANGE:
            self._unsettled[partition] = position
            return
        if error.code() in BROKEN:
            pause_max_s = self._settings.retry_pause_max_s
            said = bad_batch(partition, position, pause_max_s, KafkaException(error))
        else:
            said = f"{partition}: {unreadable(error.str())}"
        self._troubles.say(str(partition), said)
        self._resting[partition] = self._clock() + self._troubles.pause_s(str(partition))

    def _wake_rested(self, member: Member) -> None:
        if self._resting and min(self._resting.values()) <= self._clock():
            self._go_on(member)
