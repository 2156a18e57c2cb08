"""A Kafka topic as a sink: records are owed until the broker has acknowledged them.

Each record is kept until then. One whose delivery failed is sent again by the next `flush`, so a
broker that was away costs nothing but time: every record arrives at least once, and the keys make
repeats recognisable. How much may be owed is bounded, in records and in bytes, but for the batch
that goes over the bound.

A record that is larger than the client or the topic allows would be refused for ever, and all
behind it would wait. Where it has a short form that is sent in its place, and the log says so.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog
from kafka import KafkaProducer
from kafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from consumers.config.settings import KafkaSettings
from consumers.errors import SinkError
from consumers.kafka.client import (
    Connecting,
    client_settings,
    no_answer,
    quiet_log,
    require_checksums,
)
from consumers.sinks.base import Record

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

OWED_RECORDS_MAX: Final = 100_000
OWED_BYTES_MAX: Final = 64 << 20
ADD_TIMEOUT_S: Final = 5.0  # how long `add` may wait for room
CLOSE_TIMEOUT_S: Final = 1.0

_BLOCK_MS: Final = 250  # how long one send may wait for the topic to be known
_SEND_PAUSE_S: Final = 1.0  # after such a wait in vain, until `add` tries again
_TOO_LARGE: Final = (MessageSizeTooLargeError, RecordListTooLargeError)
_DELIVERY_TIMEOUT_MS: Final = 15_000
_REQUEST_TIMEOUT_MS: Final = 10_000
_LINGER_MS: Final = 5
assert _LINGER_MS + _REQUEST_TIMEOUT_MS <= _DELIVERY_TIMEOUT_MS  # the client asks for it


class _Owed:
    """A record on its way, and the client's promise for it once it was sent."""

    __slots__ = ("future", "partition", "record")

    def __init__(self, record: Record, partition: int | None) -> None:
        self.record = record
        self.partition = partition
        self.future: Any = None


class KafkaSink:
    """Writes records to a topic, acknowledged by all replicas in sync.

    Parameters
    ----------
    servers : sequence of str
        `host:port` of the brokers to ask first. They may be away; nothing blocks here.
    topic : str
        The topic.
    settings : KafkaSettings
        Sizes and security.
    clock : callable, optional
        Seconds that only grow.

    Raises
    ------
    ConfigError
        When the compiled checksum package is missing.
    """

    def __init__(
        self,
        servers: Sequence[str],
        topic: str,
        settings: KafkaSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        require_checksums()
        quiet_log("kafka")
        self._servers = tuple(servers)
        self._topic = topic
        self._settings = settings
        self._clock = clock
        self._producer: Any = None
        self._connecting: Connecting[Any] = Connecting(
            KafkaProducer, producer_settings(servers, settings)
        )
        self._owed: deque[_Owed] = deque()
        self._owed_bytes = 0
        self._unsent: deque[_Owed] = deque()  # those of the owed ones that wait to be sent
        self._fault: Exception | None = None
        self._send_again_s = 0.0

    def add(self, records: Sequence[Record]) -> None:
        """Take records and send them in order, waiting up to 5 s while too much is owed.

        Raises
        ------
        SinkError
            When too much is still owed then. The records are taken nevertheless.
        """
        for record in records:
            self._take(record, None)
        self._bound()

    def write(self, record: Record, partition: int | None = None) -> None:
        """Take one record; its partition follows from its key unless it is given.

        Raises
        ------
        SinkError
            As `add`.
        """
        self._take(record, partition)
        self._bound()

    def partitions(self, timeout_s: float) -> int:
        """Return how many partitions the topic has.

        Raises
        ------
        SinkError
            When no broker says so within `timeout_s`.
        """
        deadline_s = self._clock() + timeout_s
        while self._connected(max(0.0, deadline_s - self._clock())):
            try:
                return len(self._producer.partitions_for(self._topic))
            except KafkaError as error:
                if self._clock() >= deadline_s:
                    raise SinkError(self._sentence("the topic cannot be found", error)) from error
        raise SinkError(self._sentence("the topic cannot be found", self._connecting.error))

    def flush(self, timeout_s: float) -> None:
        """Return once every record is acknowledged.

        Raises
        ------
        SinkError
            When some are not within `timeout_s`; they are kept, and the next flush tries again.
        """
        deadline_s = self._clock() + timeout_s
        while self._owed:
            left_s = deadline_s - self._clock()
            if left_s <= 0 or not self._connected(left_s):
                break
            self._send_again_s = 0.0
            self._send()
            try:
                self._producer.flush(max(0.0, deadline_s - self._clock()))
            except KafkaTimeoutError as error:
                self._fault = error
            self._collect()
        if self._owed:
            fault = self._fault or self._connecting.error
            raise SinkError(self._sentence(f"{len(self._owed)} records are not safe", fault))

    def close(self) -> None:
        """Give what is owed a last second, tell what is left, and let go."""
        try:
            self.flush(CLOSE_TIMEOUT_S)
        except SinkError as error:
            log.warning("records_not_written", topic=self._topic, why=str(error))
        self._connecting.give_up()
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(timeout=0 if self._owed else CLOSE_TIMEOUT_S)
            except KafkaTimeoutError as error:
                log.info("kafka_close_failed", error=repr(error))

    def _take(self, record: Record, partition: int | None) -> None:
        owed = _Owed(record, partition)
        self._owed.append(owed)
        self._unsent.append(owed)
        self._owed_bytes += len(record.value)
        if self._clock() >= self._send_again_s and self._connected(0.0):
            self._send()

    def _bound(self) -> None:
        if len(self._owed) > OWED_RECORDS_MAX or self._owed_bytes > OWED_BYTES_MAX:
            self.flush(ADD_TIMEOUT_S)

    def _connected(self, left_s: float) -> bool:
        if self._producer is None:
            self._producer = self._connecting.wait(left_s)
        return self._producer is not None

    def _send(self) -> None:
        """Hand to the client what waits to be sent, until it takes no more."""
        while self._unsent:
            owed = self._unsent[0]
            record = owed.record
            try:
                owed.future = self._producer.send(
                    self._topic,
                    key=record.key or None,
                    value=record.value,
                    partition=owed.partition,
                )
            except KafkaTimeoutError as error:  # the topic or its leader is not known
                self._fault = error
                # Or each of a batch's thousands of records would wait for it.
                self._send_again_s = self._clock() + _SEND_PAUSE_S
                return
            except KafkaError as error:
                if self._shorten(owed, error):
                    continue
                raise SinkError(
                    self._sentence(f"the record {record.key!r} cannot be sent", error)
                ) from error
            self._unsent.popleft()

    def _collect(self) -> None:
        """Forget the acknowledged records; put the failed ones back in line, in their order."""
        kept: deque[_Owed] = deque()
        self._unsent.clear()
        for owed in self._owed:
            if owed.future is not None and owed.future.succeeded():
                self._owed_bytes -= len(owed.record.value)
                continue
            kept.append(owed)
            if owed.future is not None and owed.future.failed():
                self._fault = owed.future.exception
                self._shorten(owed, owed.future.exception)
                owed.future = None
            if owed.future is None:
                self._unsent.append(owed)
        self._owed = kept

    def _shorten(self, owed: _Owed, error: Exception) -> bool:
        """Put a record's short form in its place where the whole is refused as too large."""
        whole, short = owed.record, owed.record.short
        if short is None or not isinstance(error, _TOO_LARGE):
            return False
        log.warning(
            "record_shortened",
            topic=self._topic,
            key=short.key.decode(errors="replace"),
            n_bytes=len(whole.value),
            way_out="raise max.message.bytes of the topic and kafka.message_max_bytes",
        )
        self._owed_bytes += len(short.value) - len(whole.value)
        owed.record = short
        return True

    def _sentence(self, what: str, error: Exception | None) -> str:
        said = "" if error is None else f"; the client says: {error!r}"
        return (
            f"topic {self._topic!r}: {what}: {no_answer(self._servers, self._settings)}, "
            f"or that the topic exists and takes records of that size{said}"
        )


def producer_settings(servers: Sequence[str], settings: KafkaSettings) -> dict[str, Any]:
    """Return what the client's producer is made with."""
    return client_settings(servers, settings) | {
        "acks": "all",
        # An idempotent producer is of no more use after the first record that is refused for good,
        # such as one too large. Repeats are allowed here; one request at a time keeps the order.
        "enable_idempotence": False,
        "max_in_flight_requests_per_connection": 1,
        "linger_ms": _LINGER_MS,
        "batch_size": 128 << 10,
        "max_block_ms": _BLOCK_MS,
        "request_timeout_ms": _REQUEST_TIMEOUT_MS,
        "delivery_timeout_ms": _DELIVERY_TIMEOUT_MS,
        "max_request_size": settings.message_max_bytes,
    }
