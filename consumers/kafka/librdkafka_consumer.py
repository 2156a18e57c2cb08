"""librdkafka's settings, as ours say them."""

from __future__ import annotations

import logging
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

from consumers.config.settings import KafkaSettings
from consumers.errors import ConfigError
from consumers.messages import Partition

# The longest a learner may be busy with one batch before the group gives its partitions away.
MAX_POLL_INTERVAL_S: Final = 600.0

# With the client's own values (1 s of backing off, 100,000 messages) the network stands still
# while a full queue empties; a drain then took three to six times as long.
_QUEUE_BACKOFF_MS: Final = 2
_QUEUED_MESSAGES: Final = 200_000

# How long a broker with nothing new holds back its answer. Our questions wait behind it, on the
# same connection; they must not take that for silence.
_FETCH_WAIT_MS: Final = 100

# How the client behaves while its broker is away; its own default grows to 10 s.
_FIRST_PAUSE_MS: Final = 50
_CONNECT_MIN_MS: Final = 1_000  # the client's own bound

# The bounds of the client's own settings.
_MESSAGE_BYTES_MIN: Final = 1_000
_MESSAGE_BYTES_MAX: Final = 1_000_000_000
_ANSWER_BYTES_MIN: Final = 100_000_000  # its default: a batch may be larger than what we ask for
_ANSWER_BYTES_MAX: Final = 2_147_483_647
_ANSWER_HEAD_BYTES: Final = 512


def consumer_settings(servers: Sequence[str], settings: KafkaSettings) -> dict[str, Any]:
    """Return what the client's consumer is made with."""
    return (
        {
            "bootstrap.servers": ",".join(servers),
            "client.id": "streamnb",
            "socket.connection.setup.timeout.ms": max(
                _CONNECT_MIN_MS, round(settings.bootstrap_timeout_s * 1000)
            ),
            "reconnect.backoff.ms": _FIRST_PAUSE_MS,
            "reconnect.backoff.max.ms": max(
                _FIRST_PAUSE_MS, round(settings.retry_pause_max_s * 1000)
            ),
        }
        | _group(settings)
        | _reading(settings)
        | _security(settings)
    )


def quiet_log() -> logging.Logger:
    """Return the logger that the client writes to, silenced unless someone has set its level.

    While a broker is away it writes several lines a second; `trouble` says it once.
    """
    logger = logging.getLogger("confluent_kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)
    return logger


def _group(settings: KafkaSettings) -> dict[str, Any]:
    return {
        "group.id": settings.group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # we decide where to go on
        # After a kill the group waits that long for the dead member before the new one may read.
        "session.timeout.ms": round(settings.session_timeout_s * 1000),
        "heartbeat.interval.ms": round(settings.session_timeout_s * 1000 / 4),
        "max.poll.interval.ms": round(MAX_POLL_INTERVAL_S * 1000),
        # Assignors under which a change of the group takes all partitions away and gives them
        # anew. The other client knows the first of them too, so both can serve in one group.
        "partition.assignment.strategy": "range,roundrobin",
        # A topic that is not there yet, or new partitions, are noticed after that long.
        "topic.metadata.refresh.interval.ms": 10_000,
        "allow.auto.create.topics": False,
    }


def _reading(settings: KafkaSettings) -> dict[str, Any]:
    message = min(max(settings.message_max_bytes, _MESSAGE_BYTES_MIN), _MESSAGE_BYTES_MAX)
    answer_max = _ANSWER_BYTES_MAX - _ANSWER_HEAD_BYTES
    fetch = min(max(settings.fetch_max_bytes, message), answer_max)
    answer = max(_ANSWER_BYTES_MIN, min(fetch + message, answer_max))
    return {
        "isolation.level": "read_committed",  # what a transaction took back is never learned
        "check.crcs": True,
        "enable.partition.eof": True,  # tells the end, with the markers before it passed
        "message.max.bytes": message,
        "fetch.message.max.bytes": message,
        "fetch.max.bytes": fetch,
        "receive.message.max.bytes": answer + _ANSWER_HEAD_BYTES,
        "queued.min.messages": _QUEUED_MESSAGES,
        "queued.max.messages.kbytes": max(1, min(fetch >> 10, 2_097_151)),
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
        "fetch.queue.backoff.ms": _QUEUE_BACKOFF_MS,
    }


def _security(settings: KafkaSettings) -> dict[str, Any]:
    password = settings.sasl_password
    given = {
        "security.protocol": settings.security_protocol,
        "sasl.mechanism": settings.sasl_mechanism,
        "sasl.username": settings.sasl_username,
        "sasl.password": None if password is None else password.get_secret_value(),
        "ssl.ca.location": None if settings.ssl_cafile is None else str(settings.ssl_cafile),
    }
    return {key: value for key, value in given.items() if value is not None}


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
