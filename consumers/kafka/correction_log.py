"""A Kafka topic as the log of corrections: a line is safe once all replicas in sync have it.

A correction applied twice would be unlearned twice, so no line may come twice: the producer is
idempotent and never gives a line up by itself. A broker that is away therefore leaves a line in
doubt rather than lost, for as long as the daemon runs; after a restart the topic itself says
whether it was taken.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kafka import KafkaProducer
from kafka.errors import (
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from consumers.config.settings import KafkaSettings
from consumers.corrections.log_reader import Appended, Written
from consumers.corrections.model import NotWritten
from consumers.kafka.client import (
    Connecting,
    client_settings,
    no_answer,
    quiet_log,
    require_checksums,
)
from consumers.messages import Partition

CONNECT_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 1.0
_BLOCK_MS: Final = 5_000  # how long one line may wait for the topic to be known
_NEVER_MS: Final = 2**31 - 1
_REQUEST_TIMEOUT_MS: Final = 10_000

# Answers by which the broker has certainly kept nothing.
_REFUSALS: Final = (
    InvalidTopicError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)


class KafkaLog:
    """Appends lines to a topic; every method may be called from any thread.

    Parameters
    ----------
    servers : sequence of str
        `host:port` of the brokers to ask first. They may be away.
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
        self.name = topic
        self._servers = tuple(servers)
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._producer: Any = None
        self._connecting: Connecting[Any] = self._connect()

    def append(self, key: bytes, line: bytes) -> Appended:
        """Send a line on its way; see `Log.append`."""
        try:
            sent = self._connected().send(self.name, key=key, value=line)
        except KafkaError as error:  # it never reached the client's queue
            raise NotWritten(self._sentence(error)) from error
        return _Sent(sent, self)

    def close(self) -> None:
        """Give what is on its way a last second, and let go."""
        with self._lock:
            self._connecting.give_up()
            producer, self._producer = self._producer, None
        _close(producer)

    def refused(self, error: Exception) -> NotWritten:
        """Return what to raise for a line that the broker refused; the next begins afresh.

        An idempotent producer is of no more use once a line was refused for good.
        """
        with self._lock:
            producer, self._producer = self._producer, None
            self._connecting = self._connect()
        _close(producer)
        return NotWritten(self._sentence(error))

    def _connect(self) -> Connecting[Any]:
        return Connecting(KafkaProducer, producer_settings(self._servers, self._settings))

    def _connected(self) -> Any:
        with self._lock:
            if self._producer is None:
                self._producer = self._connecting.wait(CONNECT_TIMEOUT_S)
            if self._producer is None:
                raise NotWritten(self._sentence(self._connecting.error))
            return self._producer

    def _sentence(self, error: Exception | None) -> str:
        said = "" if error is None else f"; the client says: {error!r}"
        return (
            f"topic {self.name!r} did not take the correction; nothing was changed: "
            f"{no_answer(self._servers, self._settings)}, or that the topic exists and takes "
            f"records of that size{said}"
        )


class _Sent:
    """A line that the client sends until it is acknowledged."""

    def __init__(self, future: Any, log: KafkaLog) -> None:
        self._future = future
        self._log = log

    def outcome(self, timeout_s: float) -> Written | None:
        """Return where it stands; see `Appended.outcome`."""
        future = self._future
        with contextlib.suppress(KafkaError):  # for time and for refusals alike: looked at below
            future.get(timeout_s)
        if future.succeeded():
            found = future.value
            return Written(Partition(found.topic, found.partition), found.offset)
        if future.failed() and isinstance(future.exception, _REFUSALS):
            raise self._log.refused(future.exception) from future.exception
        # Still on its way; or the client lost track of it, and nobody knows before a restart.
        return None


def _close(producer: Any) -> None:
    """Give a producer a last second; what it still holds then is given up."""
    if producer is not None:
        with contextlib.suppress(KafkaError):  # it says that its second was not enough
            producer.close(timeout=CLOSE_TIMEOUT_S)


def producer_settings(servers: Sequence[str], settings: KafkaSettings) -> dict[str, Any]:
    """Return what the client's producer is made with."""
    return client_settings(servers, settings) | {
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": 0,
        "max_block_ms": _BLOCK_MS,
        "request_timeout_ms": _REQUEST_TIMEOUT_MS,
        "delivery_timeout_ms": _NEVER_MS,
        "max_request_size": settings.message_max_bytes,
    }
