"""librdkafka (confluent-kafka) as a `GroupClient`.

The library connects by itself on threads of its own, so a broker that is away blocks nobody. What
it cannot read, it reports in the place of a message.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Literal

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from consumers.config.addresses import KafkaSettings
from consumers.errors import ConfigError
from consumers.kafka.client import (
    AssignmentChange,
    ClientError,
    Fetched,
    FetchFault,
    GroupClient,
    GroupFault,
    TopicDescription,
    connection_settings,
    group_settings,
    quiet_log,
    unreadable,
)
from consumers.kafka.group_source import BROKER, GROUP
from consumers.messages import Partition, RawColumns
from consumers.sources.records import from_parts

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CLOSE_TIMEOUT_S: Final = 1.5

# With the library's own values (1 s of backing off, 100,000 messages) the network stands still
# while a full queue empties; a drain then took three to six times as long.
_QUEUE_BACKOFF_MS: Final = 2
_QUEUED_MESSAGES: Final = 200_000
# The library makes its messages in one stretch that lets no other thread in; a thousand of them
# take under a millisecond.
_PIECE: Final = 1_000

# The bounds of the library's own settings.
_MESSAGES_MAX: Final = 1_000_000
_CONNECT_MIN_MS: Final = 1_000
_MESSAGE_BYTES_MIN: Final = 1_000
_MESSAGE_BYTES_MAX: Final = 1_000_000_000
_ANSWER_BYTES_MIN: Final = 100_000_000  # its default: a batch may be larger than what we ask for
_ANSWER_BYTES_MAX: Final = 2_147_483_647
_ANSWER_HEAD_BYTES: Final = 512
_QUEUED_KBYTES_MAX: Final = 2_097_151

_FAULT_KINDS: Final[dict[int, Literal["position", "batch"]]] = {
    # The log does not hold what we asked for.
    KafkaError._AUTO_OFFSET_RESET: "position",
    KafkaError._LOG_TRUNCATION: "position",
    KafkaError.OFFSET_OUT_OF_RANGE: "position",
    # What came is damaged, or packed in a way that this build of the library cannot unpack.
    KafkaError._BAD_MSG: "batch",
    KafkaError._BAD_COMPRESSION: "batch",
    KafkaError._UNDERFLOW: "batch",
    KafkaError._NOT_IMPLEMENTED: "batch",
}

_NO_ANSWER: Final = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}  # the connection may be dead
_NO_ID: Final = "A" * 22  # a broker that knows no ids says 0, in base64

_time_ms = itemgetter(1)  # of a pair: the kind of time, and the time


def consumer_settings(servers: Sequence[str], settings: KafkaSettings) -> dict[str, Any]:
    """Return what the library's consumer is made with."""
    setup_ms = max(_CONNECT_MIN_MS, round(settings.bootstrap_timeout_s * 1000))
    message = min(max(settings.message_max_bytes, _MESSAGE_BYTES_MIN), _MESSAGE_BYTES_MAX)
    answer_max = _ANSWER_BYTES_MAX - _ANSWER_HEAD_BYTES
    fetch = min(max(settings.fetch_max_bytes, message), answer_max)
    answer = max(_ANSWER_BYTES_MIN, min(fetch + message, answer_max))
    own = {
        "socket.connection.setup.timeout.ms": setup_ms,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # we decide where to go on
        # Assignors under which a change of the group takes all partitions away and assigns them
        # again. kafka-python knows the first of them too, so both can serve in one group.
        "partition.assignment.strategy": "range,roundrobin",
        "allow.auto.create.topics": False,
        "check.crcs": True,
        "enable.partition.eof": True,  # reports the end, with the markers before it passed
        "message.max.bytes": message,
        "fetch.message.max.bytes": message,
        "fetch.max.bytes": fetch,
        "receive.message.max.bytes": answer + _ANSWER_HEAD_BYTES,
        "queued.min.messages": _QUEUED_MESSAGES,
        "queued.max.messages.kbytes": max(1, min(fetch >> 10, _QUEUED_KBYTES_MAX)),
        "fetch.queue.backoff.ms": _QUEUE_BACKOFF_MS,
    }
    return connection_settings(servers, settings) | group_settings(settings) | own


class LibrdkafkaClient(GroupClient):
    """A consumer of librdkafka; see `GroupClient` for its methods. The topic may be made later."""

    decoder = "librdkafka"  # what the metric shows

    def __init__(self, servers: Sequence[str], topic: str, settings: KafkaSettings) -> None:
        super().__init__(servers, topic, settings)
        self._made_with = consumer_settings(servers, settings)
        self._admin_made_with = connection_settings(servers, settings)
        self._consumer: Any = None
        self._connection_error: KafkaError | None = None  # None once the broker answers again
        # The consumer does not tell a topic's id; the administrator's connection does.
        self._admin: Any = None
        self._asked: Future[Any] | None = None
        self._ask_at_s = 0.0
        self._ask_interval_s = settings.metadata_interval_s
        self._topic_id: str | None = None
        self._n_partitions: int | None = None

    # -- connecting and closing ----------------------------------------------------------------

    def open(self) -> None:
        """Make the consumer, which connects by itself, and subscribe."""
        callbacks = {"error_cb": self._on_error, "on_commit": self._on_commit}
        made_with = self._made_with | callbacks
        try:
            self._consumer = Consumer(made_with, logger=quiet_log("confluent_kafka"))
            self._admin = self._new_admin()
        except KafkaException as error:
            raise ConfigError(
                f"Kafka's client refuses its settings: {_reason(error)}; check those that begin "
                "with kafka. in the configuration"
            ) from error
        # Partitions that were lost while we were busy are reported as revoked.
        self._consumer.subscribe(
            [self.topic_name], on_assign=self._on_assign, on_revoke=self._on_revoke
        )

    def connect(self, timeout_s: float) -> bool:  # noqa: ARG002 - the library connects by itself
        """Return True: what keeps the library from connecting comes out of its answers."""
        return True

    def close(self, *, finish_commit: bool) -> None:  # noqa: ARG002 - the library does it anyhow
        """Leave the group; what takes more than a second goes on in the background."""
        consumer, self._consumer = self._consumer, None
        self._admin = self._asked = None
        if consumer is None:
            return
        closing = threading.Thread(target=consumer.close, name="kafka-closing", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)
        if closing.is_alive():
            log.info("kafka_close_failed", error=f"not done after {CLOSE_TIMEOUT_S:g} s")

    # -- reading -------------------------------------------------------------------------------

    def poll(self, max_messages: int, timeout_s: float) -> list[Fetched]:
        """Return what came; the library itself would wait for all of it or until the time is up."""
        n_max = min(max_messages, _MESSAGES_MAX)
        try:
            messages = self._consumer.consume(1, timeout_s)
            while messages and len(messages) < n_max:
                more = self._consumer.consume(min(_PIECE, n_max - len(messages)), 0)
                if not more:
                    break
                messages += more
        except KafkaException as error:
            raise ClientError(unreadable(_reason(error))) from error
        by_partition: dict[int | None, list[Message]] = {}
        for number, run in groupby(messages, Message.partition):
            by_partition.setdefault(number, []).extend(run)
        fetched = []
        for number, some in by_partition.items():
            if number is None or number < 0:
                self._note_faults(some)
            else:
                fetched.append(self._fetched(Partition(self.topic_name, number), some))
        if any(each.columns is not None for each in fetched):
            self._connection_error = None
        return fetched

    def _fetched(self, partition: Partition, messages: list[Message]) -> Fetched:
        """Separate the messages of a partition from what the library reports among them."""
        fault = None
        position = 0
        if any(map(Message.error, messages)):
            reports, messages = messages, []
            for message in reports:
                error = message.error()
                if error is None:
                    messages.append(message)
                elif message.topic() is None:  # the group's, and as if of partition 0
                    self._note_faults([message])
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = message.offset() or 0
                else:
                    fault = _fault(error)
                    break
        columns = None
        if messages:
            position = max(position, (messages[-1].offset() or 0) + 1)
            columns = from_messages(partition, messages, position)
        return Fetched(partition, columns, position, self._cached_log_end(partition), fault)

    def _note_faults(self, messages: Iterable[Message]) -> None:
        """Note what concerns no partition: the topic, the group, the right to read."""
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self.events.append(GroupFault(BROKER, self._no_topic(error)))
            else:
                self.events.append(GroupFault(GROUP, unreadable(error.str())))

    def _cached_log_end(self, partition: Partition) -> int | None:
        """Return where a partition's log ended as last heard of."""
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        except KafkaException:  # nothing is known of it yet
            return None
        return end if end >= 0 else None

    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Read these partitions from there, and no others.

        What the library had read ahead is discarded and fetched again; nothing less brings back a
        partition with a broken batch, after which the library may ask for any offset at all.
        """
        self._consumer.assign(_with_offsets(positions))

    # -- questions to the broker ---------------------------------------------------------------

    def log_starts(
        self, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, int]:
        """Return the first offset of each log."""
        return self._ask_offsets(partitions, OFFSET_BEGINNING, timeout_s)

    def log_ends(self, partitions: Collection[Partition], timeout_s: float) -> dict[Partition, int]:
        """Return the offset after the last one of each log, open transactions not counted."""
        return self._ask_offsets(partitions, OFFSET_END, timeout_s)

    def offsets_at(
        self, partitions: Collection[Partition], time_ms: int, timeout_s: float
    ) -> dict[Partition, int | None]:
        """Return the offset of the first message of that time or a later one."""
        found = self._ask_offsets(partitions, time_ms, timeout_s)
        return {each: offset if offset >= 0 else None for each, offset in found.items()}

    def _ask_offsets(
        self, partitions: Collection[Partition], which: int, timeout_s: float
    ) -> dict[Partition, int]:
        if not partitions:  # of none the library says that they are invalid
            return {}
        # A question for offsets by time, whose protocol has a number each for start and end: one
        # request a broker, where the library's own question for both takes one a partition.
        asked = _with_offsets(dict.fromkeys(partitions, which))
        try:
            answers = self._consumer.offsets_for_times(asked, timeout=timeout_s)
        except KafkaException as error:
            raise self.unanswered(_reason(error)) from error
        for each in answers:
            if each.error is not None:
                raise self.unanswered(each.error.str())
        self._connection_error = None
        return {Partition(each.topic, each.partition): each.offset for each in answers}

    def find_topic(self, timeout_s: float) -> None:
        """Ask for the topic itself: the group may have no partition of it for us."""
        try:
            topics = self._consumer.list_topics(self.topic_name, timeout=timeout_s).topics
        except KafkaException as error:
            raise self.unanswered(_reason(error)) from error
        missing = topics[self.topic_name].error
        if missing is not None:
            raise ClientError(self._no_topic(missing))
        self._connection_error = None

    def topic(self, timeout_s: float) -> TopicDescription:
        """Return the topic as it is now."""
        try:
            found = self._describe(timeout_s).result(timeout_s)
        except TimeoutError:
            self._renew_admin()
            raise self.unanswered("it does not say what the topic is like") from None
        except KafkaException as error:
            if error.args[0].code() in _NO_ANSWER:
                self._renew_admin()
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise ClientError(self._no_topic(error.args[0])) from error
            raise self.unanswered(_reason(error)) from error
        self._topic_id, self._n_partitions = _id(found), len(found.partitions)
        self._ask_at_s = time.monotonic() + self._ask_interval_s
        partitions = (Partition(self.topic_name, each.id) for each in found.partitions)
        return TopicDescription(self._topic_id, frozenset(partitions))

    def topic_id(self) -> str | None:
        """Return the topic's id as last heard of; it is asked for now and then, without waiting."""
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            error = asked.exception()
            if error is None:
                found = asked.result()
                self._topic_id, self._n_partitions = _id(found), len(found.partitions)
            elif isinstance(error, KafkaException) and error.args[0].code() in _NO_ANSWER:
                self._renew_admin()
        if self._asked is None and time.monotonic() >= self._ask_at_s:
            self._asked = self._describe(self._ask_interval_s)
            self._ask_at_s = time.monotonic() + self._ask_interval_s
        return self._topic_id

    def n_partitions(self) -> int | None:
        """Return how many partitions the topic has, as `topic_id` last heard."""
        return self._n_partitions

    def ask_topic_id(self, timeout_s: float) -> str | None:
        """Return the topic's id as it is now: the consumer reads on in a new topic unnoticed."""
        if self._admin is None:
            return None
        try:
            return _id(self._describe(timeout_s).result(timeout_s))
        except (KafkaException, TimeoutError):
            return None

    def _renew_admin(self) -> None:
        """Make the administrator anew: after a broker stood still it may hear no answer."""
        self._asked = None
        with contextlib.suppress(KafkaException):  # a certificate is being replaced, say
            self._admin = self._new_admin()

    def _new_admin(self) -> Any:
        return AdminClient(self._admin_made_with, logger=quiet_log("confluent_kafka"))

    def _describe(self, timeout_s: float) -> Future[Any]:
        asked = TopicCollection([self.topic_name])
        found: Mapping[str, Future[Any]] = self._admin.describe_topics(
            asked, request_timeout=timeout_s
        )
        return found[self.topic_name]

    def _no_topic(self, error: KafkaError) -> str:
        return (
            f"there is no topic {self.topic_name!r} yet; it is read as soon as it is made. Check "
            f"the name in `source`, and the right to see it (the client says: {error.str()})"
        )

    def unanswered(self, why: str) -> ClientError:
        """Return it with the connection's own error, if there is one."""
        if self._connection_error is not None:  # it says more than the unanswered question
            why = self._connection_error.str()
        return super().unanswered(why)

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit positions without waiting; `close` waits for their arrival."""
        if self._consumer is None:
            return
        try:
            self._consumer.commit(offsets=_with_offsets(positions), asynchronous=True)
        except KafkaException as error:
            self._committed(str(error.args[0]))

    # -- what the library calls, within `poll` --------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        # The group waits for an answer, and without one the library would go on at the committed
        # offsets. Nothing is read before `seek`.
        consumer.assign([])
        self._note_change(True, partitions)

    def _on_revoke(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        consumer.unassign()
        self._note_change(False, partitions)

    def _note_change(self, assigned: bool, partitions: Iterable[TopicPartition]) -> None:
        changed = tuple(Partition(each.topic, each.partition) for each in partitions)
        self.events.append(AssignmentChange(assigned, changed))

    def _on_error(self, error: KafkaError) -> None:
        # That all brokers are down is said after each one's reason, and says less.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._connection_error = error

    def _on_commit(self, error: KafkaError | None, _: Any) -> None:
        self._committed(None if error is None else str(error))


def from_messages(
    partition: Partition, messages: Sequence[Message], next_offset: int
) -> RawColumns:
    """Return the columns of one partition's messages: at least one, in order, none an error.

    What runs once a message is `map` over the methods of the C class.
    """
    return from_parts(
        partition,
        list(map(Message.key, messages)),
        list(map(Message.value, messages)),
        map(Message.offset, messages),  # type: ignore[arg-type]  # None only beside an error
        map(_time_ms, map(Message.timestamp, messages)),
        next_offset,
    )


def _fault(error: KafkaError) -> FetchFault:
    kind = _FAULT_KINDS.get(error.code())
    if kind == "batch":
        return FetchFault(kind, repr(KafkaException(error)))
    return FetchFault(kind or "other", error.str())


def _id(found: Any) -> str | None:
    """Return a described topic's id, as Kafka's own tools write it."""
    name = str(found.topic_id)
    return None if name == _NO_ID else name.replace("+", "-").replace("/", "_")


def _reason(error: KafkaException) -> str:
    """Return what the library says of an exception, in words."""
    inner = error.args[0]
    return inner.str() if isinstance(inner, KafkaError) else str(inner)


def _with_offsets(positions: Mapping[Partition, int]) -> list[TopicPartition]:
    return [TopicPartition(*partition, offset) for partition, offset in positions.items()]
