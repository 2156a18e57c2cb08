"""librdkafka's settings, as ours say them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from consumers.config import KafkaSettings

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
