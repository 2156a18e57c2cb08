"""Our place in the consumer group: librdkafka's consumer, and what the group decides.

Nothing here blocks longer than it is told to, and `close` not much longer than a second. The client
calls back within `read` alone, on the thread that reads, so nothing needs a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from consumers.config import KafkaSettings
from consumers.errors import ConfigError
from consumers.messages import Partition
from consumers.sources.librdkafka.client import consumer_settings, quiet_log

CLOSE_TIMEOUT_S: Final = 1.5

# The client makes its messages in one stretch that lets no other thread in; a thousand of them
# take under a millisecond.
_PIECE: Final = 1_000


class Member:
    """A member of the consumer group, subscribed to one topic.

    Parameters
    ----------
    servers : sequence of str
        `host:port` of the brokers to ask first; they may be away.
    topic : str
        What it subscribes to.
    settings : KafkaSettings
        How the client is made.
    on_assigned, on_revoked : callable
        Called within `read`: with the partitions that are ours from now on, and when none of them
        is any more. What was assigned is not read before `assign` says from where.
    log : structlog.stdlib.BoundLogger
        Where commits that failed are told.

    Attributes
    ----------
    said : confluent_kafka.KafkaError or None
        What the client last said about its connections; set to None once they work again.

    Raises
    ------
    ConfigError
        When the client refuses its settings, such as certificates that it cannot read.
    """

    def __init__(
        self,
        servers: Sequence[str],
        topic: str,
        settings: KafkaSettings,
        on_assigned: Callable[[list[Partition]], None],
        on_revoked: Callable[[], None],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self.said: KafkaError | None = None
        self._topic = topic
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._log = log
        self._commit_fails = False
        callbacks = {"error_cb": self._hear_error, "on_commit": self._committed}
        try:
            self._consumer = Consumer(
                consumer_settings(servers, settings) | callbacks, logger=quiet_log()
            )
        except KafkaException as error:
            raise ConfigError(
                f"Kafka's client refuses its settings: {reason(error)}; check those that begin "
                "with kafka. in the configuration"
            ) from error
        # Partitions that were lost while we were away are told as revoked.
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def read(self, n_max: int, timeout_s: float) -> list[Message]:
        """Return up to `n_max` messages, errors among them, waiting for the first one only.

        The client itself would wait for all of them or until the time is up.
        """
        messages = self._consumer.consume(1, timeout_s)
        while messages and len(messages) < n_max:
            more = self._consumer.consume(min(_PIECE, n_max - len(messages)), 0)
            if not more:
                break
            messages += more
        return messages

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Read these partitions from there, and no others; what was read ahead is thrown away."""
        self._consumer.assign(_with_offsets(positions))

    def log_starts(self, partitions: Iterable[Partition], timeout_s: float) -> dict[Partition, int]:
        """Ask for the first offset that each partition's log holds.

        Raises
        ------
        confluent_kafka.KafkaException
            When nobody answers in time, or one of them cannot be told.
        """
        return self._ask_offsets(partitions, OFFSET_BEGINNING, timeout_s)

    def log_ends(self, partitions: Iterable[Partition], timeout_s: float) -> dict[Partition, int]:
        """Ask for the offset after the last one of each partition's log; raises as `log_starts`.

        Messages of a transaction that is not over do not count: they cannot be read yet.
        """
        return self._ask_offsets(partitions, OFFSET_END, timeout_s)

    def log_end(self, partition: Partition) -> int | None:
        """Return where a partition's log ended when last heard of; None where nothing was heard."""
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        except KafkaException:  # nothing is known of it yet
            return None
        return end if end >= 0 else None

    def topic_error(self, timeout_s: float) -> KafkaError | None:
        """Ask a broker for our topic, and return what is wrong with it.

        Raises
        ------
        confluent_kafka.KafkaException
            When nobody answers in time.
        """
        topics = self._consumer.list_topics(self._topic, timeout=timeout_s).topics
        error: KafkaError | None = topics[self._topic].error
        return error

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Send positions on their way; `close` waits for their arrival."""
        if not positions:
            return
        try:
            self._consumer.commit(offsets=_with_offsets(positions), asynchronous=True)
        except KafkaException as error:
            self._tell_commit(error.args[0])

    def close(self) -> None:
        """Leave the group and let go, in the background where that takes more than a second."""
        closing = threading.Thread(target=self._consumer.close, name="kafka-closing", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)
        if closing.is_alive():
            self._log.info("kafka_close_failed", error=f"not done after {CLOSE_TIMEOUT_S:g} s")

    def _ask_offsets(
        self, partitions: Iterable[Partition], which: int, timeout_s: float
    ) -> dict[Partition, int]:
        # A question for offsets by time, whose protocol has a number each for start and end: one
        # request a broker, where the client's own question for both takes one a partition.
        asked = _with_offsets(dict.fromkeys(partitions, which))
        answers = self._consumer.offsets_for_times(asked, timeout=timeout_s)
        for each in answers:
            if each.error is not None:
                raise KafkaException(each.error)
        return {Partition(each.topic, each.partition): each.offset for each in answers}

    # -- what the client calls ------------------------------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        # The group waits for an answer, and without one the client would go on at the committed
        # offsets. Nothing is read until it is settled where.
        consumer.assign([])
        self._on_assigned([Partition(each.topic, each.partition) for each in partitions])

    def _revoked(self, consumer: Consumer, _: Iterable[TopicPartition]) -> None:
        consumer.unassign()
        self._on_revoked()

    def _hear_error(self, error: KafkaError) -> None:
        # That all brokers are down is said after each one's reason, and says less.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - the code's public name
            self.said = error

    def _committed(self, error: KafkaError | None, _: Any) -> None:
        if error is None:
            self._commit_fails = False
        else:
            self._tell_commit(error)

    def _tell_commit(self, error: KafkaError) -> None:
        """Say it once while it lasts; a broker that is away would fill the log."""
        if not self._commit_fails:
            self._commit_fails = True
            self._log.info("kafka_commit_failed", error=str(error))


def reason(error: KafkaException) -> str:
    """Return what the client says of an exception, in words."""
    inner = error.args[0]
    return inner.str() if isinstance(inner, KafkaError) else str(inner)


def _with_offsets(positions: Mapping[Partition, int]) -> list[TopicPartition]:
    return [TopicPartition(*partition, offset) for partition, offset in positions.items()]
