"""The Kafka source: a consumer group's member whose positions come from our own checkpoint.

How it keeps its promises:

1. The group decides who reads which partition; the broker's committed offsets decide nothing. The
   rebalance listener, on the client's thread, pauses what is assigned and notes it. The consuming
   thread then asks `position_of`, looks at what the log holds, seeks, and lets the partition go on.
2. Whatever the client raises, every partition is sought back to where we stand before the next
   poll: no fault loses a message or brings it twice. What passes is told by `trouble` and retried.
3. Connecting runs on a thread of its own, so a broker that is away blocks nobody.
4. Responses are decoded into columns, or one by one where `seam` finds that unsafe: same messages.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import structlog
from kafka import TopicPartition
from kafka.errors import (
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnsupportedCodecError,
)

from consumers.config.settings import KafkaSettings
from consumers.errors import SourceError
from consumers.kafka.client import (
    bad_batch,
    missing_codec,
    no_answer,
    quiet_client_log,
    require_checksums,
    silent,
)
from consumers.kafka.columns import batch_of
from consumers.kafka.connection import (
    CLOSE_TIMEOUT_S,
    Connection,
    drop_broken_batch,
    finish_join,
    is_member,
)
from consumers.kafka.group import Committer
from consumers.kafka.offsets import Places
from consumers.messages import Partition, RawColumns
from consumers.monitoring.health import Troubles

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

# How long one call into the client may wait: short, so that a new assignment is settled at once.
SLICE_S: Final = 0.1
# A silent topic and a silent broker look alike; after this long without a message we ask.
ASK_INTERVAL_S: Final = 1.0
ASK_TIMEOUT_S: Final = 0.5

BROKER: Final = "broker"  # the key of the trouble that concerns everything


class KafkaSource:
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

    Raises
    ------
    ConfigError
        When the compiled checksum package is missing. A broker that is away raises nothing.
    """

    name = "kafka"

    def __init__(
        self,
        servers: Sequence[str],
        topic: str,
        settings: KafkaSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        require_checksums()
        quiet_client_log()
        self.lost_messages = 0
        self._servers = tuple(servers)
        self._topic = topic
        self._settings = settings
        self._clock = clock
        self._position_of: Callable[[Partition], int | None] = lambda _: None
        self._connection = Connection(servers, topic, settings, clock)
        self._committer = Committer(log)
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

    @property
    def decoder(self) -> Literal["columns", "records"] | None:
        """Return how responses are decoded; None before the first broker has answered."""
        return self._connection.decoder

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin; see `Source.open`. Nothing blocks here."""
        self._position_of = position_of

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next messages; see `Source.poll`.

        Raises
        ------
        SourceError
            When a position lies behind its log's end, or batches are compressed in a way that
            needs a package which is not installed.
        """
        deadline_s = self._clock() + timeout_s
        while True:
            batches = self._poll_once(max(0.0, deadline_s - self._clock()))
            if batches or self._clock() >= deadline_s or self._closed.is_set():
                return batches

    def _poll_once(self, left_s: float) -> list[RawColumns]:
        """Take one step: connect, or settle what was assigned, or read."""
        pause_s = self._troubles.pause_s(BROKER)
        if pause_s > 0:
            self._closed.wait(min(pause_s, left_s))
            return []
        consumer = self._connection.consumer
        if consumer is None:
            self._connect(left_s)
            return []
        self._heed_notes()
        if self._unsettled and not self._settle(consumer, left_s):
            return []
        self._wake_rested(consumer)
        # A join that is cut off by the end of a poll must begin anew: it gets a little longer.
        slice_s = min(left_s, SLICE_S) if is_member(consumer) else ASK_TIMEOUT_S
        try:
            fetched = consumer.poll(
                timeout_ms=round(slice_s * 1000),
                max_records=self._settings.max_poll_messages,
            )
        except UnsupportedCodecError as error:
            raise SourceError(missing_codec(self._topic, error)) from error
        except Exception as error:  # noqa: BLE001 - the client lets errors of any class through
            self._recover(consumer, error)
            return []
        self._heed_notes()  # the group may have changed within that poll
        batches = self._hand_over(consumer, fetched)
        if not batches:
            self._ask(consumer)
        return batches

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread messages of each assigned partition, removed ones not counted."""
        self._heed_notes()
        return self._places.lag()

    def at_end(self) -> bool:
        """Tell whether each assigned partition is read up to its end as it was when first seen.

        A member without any partition is at its end once the topic is known to exist.
        """
        self._heed_notes()
        if self._unsettled or not self._joined:
            return False
        return self._places.at_end() if len(self._places) else self._topic_seen

    def trouble(self) -> str | None:
        """Return what keeps the source, or one of its partitions, from reading now."""
        return self._troubles.first()

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit positions to the broker for lag tools; nothing waits for it or fails by it."""
        if self._connection.consumer is not None:
            ours = {each: offset for each, offset in positions.items() if each in self._places}
            self._committer.commit(self._connection.consumer, ours)

    def close(self) -> None:
        """Leave the group and let go of everything, within about two seconds."""
        self._closed.set()
        if self._connection.consumer is not None and self._troubles.first() is None:
            self._committer.finish(self._connection.consumer, CLOSE_TIMEOUT_S)
        self._connection.close(log)

    def _connect(self, left_s: float) -> None:
        """Wait for a broker, and say so once that takes long."""
        if self._connection.wait(left_s):
            self._hear()
        else:
            said = self._connection.trouble()
            if said is not None:
                self._troubles.say(BROKER, said)

    # -- assignment ----------------------------------------------------------------------------

    def _heed_notes(self) -> None:
        """Take in what the rebalance listener noted."""
        while self._connection.notes:
            note = self._connection.notes.popleft()
            for each in note.partitions:
                self._places.forget(each)
                self._resting.pop(each, None)
                self._troubles.clear(str(each))
                if note.assigned:
                    self._unsettled[each] = None
                else:
                    self._unsettled.pop(each, None)
            self._joined = note.assigned or self._joined

    def _settle(self, consumer: Any, left_s: float) -> bool:
        """Find out where to go on in the unsettled partitions, seek there and let them go on."""
        partitions = [TopicPartition(*each) for each in self._unsettled]
        timeout_ms = round(max(left_s, ASK_TIMEOUT_S) * 500)  # half of it for each question
        try:
            starts = consumer.beginning_offsets(partitions, timeout_ms=timeout_ms)
            ends = consumer.end_offsets(partitions, timeout_ms=timeout_ms)
        except (KafkaError, KeyError) as error:  # KeyError: the broker left a partition out
            self._say_silent(error)
            return False
        for each in partitions:
            partition = Partition(*each)
            wanted = self._unsettled.pop(partition)
            if wanted is None:
                wanted = self._position_of(partition)
            lost = self._places.settle(partition, wanted, starts[each], ends[each])
            if lost:
                self._tell_lost(partition, lost, starts[each])
            self._go_on(consumer, partition)
        self._hear()
        return True

    def _go_on(self, consumer: Any, partition: Partition) -> None:
        """Seek to where we stand and let a paused partition be read."""
        try:
            consumer.seek(TopicPartition(*partition), self._places.position(partition))
            consumer.resume(TopicPartition(*partition))
        except (ValueError, KeyError):
            # It was taken away a moment ago; the listener's note of that is on its way.
            self._places.forget(partition)

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

    def _hand_over(self, consumer: Any, fetched: Mapping[Any, Sequence[Any]]) -> list[RawColumns]:
        """Turn what the client gave into batches, and note where each partition stands now."""
        batches = []
        for each, records in fetched.items():
            partition = Partition(*each)
            # Where a partition was taken away, or is in doubt, whoever settles it reads again.
            if partition in self._unsettled or partition not in self._places:
                continue
            batch = batch_of(partition, records)
            self._follow(consumer, partition, batch.next_offset)
            self._troubles.clear(str(partition))
            batches.append(replace(batch, next_offset=self._places.position(partition)))
        if batches:
            self._hear()
        return batches

    def _follow(self, consumer: Any, partition: Partition, at_least: int) -> None:
        """Note a partition's position, which passes gaps and markers too, and its log's end."""
        each = TopicPartition(*partition)
        try:
            position = consumer.position(each, timeout_ms=0)
            log_end = consumer.highwater(each)
        except KafkaError:  # taken away meanwhile, or in doubt: the next poll finds out
            position, log_end = None, None
        self._places.advance(partition, max(at_least, position or 0), log_end)

    def _ask(self, consumer: Any) -> None:
        """When nothing came: pass what is no message, and after a while ask if someone is there."""
        finish_join(consumer)
        for partition in self._places:
            self._follow(consumer, partition, self._places.position(partition))
        if self._clock() - self._heard_at_s < ASK_INTERVAL_S:
            return
        known = list(self._places)
        asked = [TopicPartition(*each) for each in known] or [TopicPartition(self._topic, 0)]
        try:
            ends = consumer.end_offsets(asked, timeout_ms=round(ASK_TIMEOUT_S * 1000))
        except (KafkaError, KeyError) as error:
            self._say_silent(error)
            return
        self._topic_seen = True
        for partition in known:
            position = self._places.position(partition)
            self._places.advance(partition, position, ends[TopicPartition(*partition)])
        self._hear()

    def _hear(self) -> None:
        """Note that the broker answered."""
        self._heard_at_s = self._clock()
        self._troubles.clear(BROKER)

    def _say_silent(self, error: Exception) -> None:
        said = no_answer(self._servers, self._settings)
        joined_nothing = not self._places and not self._unsettled
        self._troubles.say(BROKER, silent(self._topic, said, joined_nothing, error))

    # -- faults --------------------------------------------------------------------------------

    def _recover(self, consumer: Any, error: Exception) -> None:
        """Go back to where we stand after the client's poll has raised."""
        broken = drop_broken_batch(consumer)
        self._heed_notes()
        if isinstance(error, OffsetOutOfRangeError | LogTruncationError):
            consumer.pause(*consumer.assignment())
            self._unsettled |= {each: self._places.position(each) for each in self._places}
            return
        for partition in self._places:
            self._go_on(consumer, partition)
        if broken is None or broken not in self._places:
            self._troubles.say(BROKER, f"Kafka's client could not read on: {error!r}")
        else:
            self._rest(consumer, broken, error)

    def _rest(self, consumer: Any, partition: Partition, error: Exception) -> None:
        """Leave a partition with a bad batch alone for a while; the others go on."""
        position = self._places.position(partition)
        said = bad_batch(partition, position, self._settings.retry_pause_max_s, error)
        self._troubles.say(str(partition), said)
        consumer.pause(TopicPartition(*partition))
        self._resting[partition] = self._clock() + self._troubles.pause_s(str(partition))

    def _wake_rested(self, consumer: Any) -> None:
        now_s = self._clock()
        for partition in [each for each, until_s in self._resting.items() if until_s <= now_s]:
            del self._resting[partition]
            self._go_on(consumer, partition)
