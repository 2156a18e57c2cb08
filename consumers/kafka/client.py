"""What readers and writers of Kafka share: settings, connecting, faults, and what a reader asks.

kafka-python's constructors block until a broker answers. `Connecting` therefore calls them on a
thread of its own, so that a daemon whose broker is away can report that and can be stopped. No
client library is imported here: its classes come in as arguments.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import threading
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import structlog

from consumers.config.addresses import KafkaSettings
from consumers.errors import ConfigError
from consumers.messages import Partition, RawColumns
from consumers.sources.records import from_parts, joined

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Client = TypeVar("Client")

# How the client behaves while its broker is away: its own default grows to 30 s between two
# attempts, and a broker that is back was then noticed 12 to 40 s late.
FIRST_PAUSE_MS: Final = 50
_JOIN_TIMEOUT_S: Final = 1.0

# The longest a learner may be busy with one batch before the group gives its partitions away.
MAX_POLL_INTERVAL_S: Final = 600.0
# How long a broker with nothing new holds back its answer. A question on the same connection waits
# behind it: with the libraries' own half a second a broker with a quiet topic passes for one that
# is away.
FETCH_WAIT_MS: Final = 100

_KAFKA_PYTHON_NAMES: Final = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
    "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
}
KAFKA_PYTHON = "kafka-python[crc32c]>=3.0.12,<3.1"  # as in pyproject.toml; a test compares them


def require_checksums() -> None:
    """Raise `ConfigError` if the compiled CRC-32C is not installed.

    Without it kafka-python checks batches in plain Python, at a tenth of the speed or less: too
    slow to be a silent difference.
    """
    if importlib.util.find_spec("crc32c") is None:
        raise ConfigError(
            "Kafka needs the compiled checksum package 'crc32c', and it is not installed; without "
            "it reading is ten times slower. Install it: pip install 'kafka-python[crc32c]'"
        )


def connection_settings(servers: Sequence[str], settings: KafkaSettings) -> dict[str, Any]:
    """Return how any client connects, by librdkafka's names; what is not set is left out."""
    key = settings.ssl_keyfile or settings.ssl_certfile
    given = {
        "bootstrap.servers": ",".join(servers),
        "client.id": "streamnb",
        "reconnect.backoff.ms": FIRST_PAUSE_MS,
        "reconnect.backoff.max.ms": max(FIRST_PAUSE_MS, round(settings.retry_pause_max_s * 1000)),
        "security.protocol": settings.security_protocol,
        "sasl.mechanism": settings.sasl_mechanism,
        "sasl.username": settings.sasl_username,
        "sasl.password": settings.password,
        "ssl.ca.location": settings.ssl_cafile and str(settings.ssl_cafile),
        "ssl.certificate.location": settings.ssl_certfile and str(settings.ssl_certfile),
        # A certificate's file may hold its key too; librdkafka wants to be told so.
        "ssl.key.location": key and str(key),
        "ssl.key.password": settings.key_password,
    }
    return {name: value for name, value in given.items() if value is not None}


def group_settings(settings: KafkaSettings) -> dict[str, Any]:
    """Return how any client is a member of its group and reads, by librdkafka's names."""
    return {
        "group.id": settings.group_id,
        "enable.auto.commit": False,
        # After a kill the group waits that long for the dead member before the new one may read.
        "session.timeout.ms": round(settings.session_timeout_s * 1000),
        "heartbeat.interval.ms": round(settings.session_timeout_s * 1000 / 4),
        "max.poll.interval.ms": round(MAX_POLL_INTERVAL_S * 1000),
        "fetch.wait.max.ms": FETCH_WAIT_MS,
        # How soon new partitions are noticed, and a topic that was created later or again.
        "topic.metadata.refresh.interval.ms": round(settings.metadata_interval_s * 1000),
        "isolation.level": "read_committed",  # what a transaction took back is never learned
    }


def kafka_python_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by kafka-python's names."""
    return {
        _KAFKA_PYTHON_NAMES.get(name) or name.replace(".", "_"): value
        for name, value in settings.items()
    }


def client_settings(servers: Sequence[str], settings: KafkaSettings) -> dict[str, Any]:
    """Return the settings that kafka-python's consumer and producer have in common."""
    return kafka_python_names(connection_settings(servers, settings)) | {
        "bootstrap_servers": list(servers),
        "bootstrap_timeout_ms": round(settings.bootstrap_timeout_s * 1000),
        "metrics_enabled": False,  # we count ourselves
    }


def no_answer(servers: Sequence[str], settings: KafkaSettings) -> str:
    """Return the sentence for brokers that do not answer, with what else may be wrong.

    A broker that is away, a refused password and a certificate that is not trusted look the same
    from outside: the connection ends. So the sentence names all that this configuration makes
    possible.
    """
    reasons = ["that it runs and listens there"]
    if settings.security_protocol.startswith("SASL"):
        reasons.append("kafka.sasl_mechanism, kafka.sasl_username and the password")
    if settings.security_protocol.endswith("SSL"):
        reasons.append("that kafka.ssl_cafile has the authority of the broker's certificate")
        reasons.append("that the certificate names the host in the broker's address")
        own = "that the broker trusts" if settings.ssl_certfile else "whether the broker asks for"
        reasons.append(f"{own} the certificate in kafka.ssl_certfile")
    reasons.append(f"that it speaks {settings.security_protocol} (kafka.security_protocol)")
    return (
        f"no answer from Kafka at {','.join(servers)}; check {', '.join(reasons)}: "
        "from outside these faults look alike"
    )


def quiet_log(name: str) -> logging.Logger:
    """Return a client library's logger, silenced unless someone has set its level.

    While a broker is away it writes several lines a second; `trouble` says it once.
    """
    logger = logging.getLogger(name)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)
    return logger


def does_not_fit(what: str) -> ConfigError:
    """Return the error for a kafka-python without something that we need."""
    return ConfigError(
        f"kafka-python {version('kafka-python')} does not fit: {what}. Install {KAFKA_PYTHON}"
    )


def _net_class_of(client_class: Any) -> Callable[..., Any]:
    """Return the network client class that a client's setting `kafka_client` would replace."""
    found: Callable[..., Any] | None = getattr(client_class, "DEFAULT_CONFIG", {}).get(
        "kafka_client"
    )
    if found is None:
        raise does_not_fit(f"{client_class.__name__} has no setting kafka_client")
    return found


class Connecting(Generic[Client]):
    """Builds a client of kafka-python on a thread of its own, until a broker answers.

    The constructor of `client_class`, a `KafkaConsumer` or `KafkaProducer`, may block or raise.
    `prepare` is called with each network client before it connects to anything; what it changes
    concerns this client alone. What connections fail of may be told by `note`. A class without a
    setting for its network client is a `ConfigError`.
    """

    def __init__(
        self,
        client_class: Any,
        settings: Mapping[str, Any],
        prepare: Callable[[Any], None] | None = None,
    ) -> None:
        self._client_class = client_class
        self._settings = dict(settings)
        self._prepare = prepare
        self._pause_s = self._settings["reconnect_backoff_max_ms"] / 1000
        self._net_class = _net_class_of(client_class)
        self._net: Any = None
        self._thread: threading.Thread | None = None
        self._client: Client | None = None
        self._returned = False
        self._given_up = threading.Event()
        self._noted: BaseException | None = None
        self.error: BaseException | None = None
        """Why there is no connection, as far as is known; None while the first try goes on."""

    def note(self, error: BaseException) -> None:
        """Take what a connection failed of for the reason; the constructor's error says less."""
        self.error = self._noted = error

    def wait(self, timeout_s: float) -> Client | None:
        """Return the client once it is connected, or None after `timeout_s`.

        If `prepare` found that the library does not fit, its `ConfigError` is raised: trying again
        would not help.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._try, name="kafka-connecting", daemon=True)
            self._thread.start()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return None
        if isinstance(self.error, ConfigError):
            raise self.error
        self._returned = True
        return self._client

    def give_up(self) -> None:
        """Stop trying, and cut off the attempt under way; a returned client stays open."""
        self._given_up.set()
        if self._returned or self._thread is None:
            return
        for _ in range(2):  # once for the attempt under way, once for one that got through
            if self._net is not None:
                # If the attempt's own thread is amid a poll, the network client raises, but only
                # after it has marked itself closed, and that ends the attempt.
                with contextlib.suppress(RuntimeError):
                    self._net.close()
            self._thread.join(_JOIN_TIMEOUT_S)

    def _try(self) -> None:
        """Build the client, with a pause after each failure, until it succeeds or is given up."""
        while not self._given_up.is_set():
            try:
                client = self._client_class(**self._settings, kafka_client=self._make_net)
            except Exception as error:  # noqa: BLE001 - any error is reported and tried again
                if isinstance(error, ConfigError):
                    self.error = error
                    return
                self.error = self._noted or error
                # The constructor leaves its thread and its sockets behind when it fails.
                if self._net is not None:
                    # An error here would end the thread, and with it all further attempts.
                    with contextlib.suppress(Exception):
                        self._net.close()
                self._given_up.wait(self._pause_s)
                continue
            self._client, self.error = client, None
            return

    def _make_net(self, **settings: Any) -> Any:
        self._net = self._net_class(**settings)
        if self._prepare is not None:
            self._prepare(self._net)
        if self._given_up.is_set():
            self._net.close()
        return self._net


def unreadable(why: str) -> str:
    """Return the sentence for any other failure of the client library."""
    return f"Kafka's client could not read on: {why}"


# After so many clients in a row that had an internal error before anything was read, what is broken
# is in what they share, the process: with a broker that is there, within some seconds.
REPLACED_MAX: Final = 10
SAY_AGAIN_S: Final = 60.0  # how soon an internal error of the library is logged again


def internal_error(error: BaseException) -> str:
    """Return the sentence for an internal error of the client library, with its place."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return (
        f"Kafka's client has an internal error, {error!r:.200}{place}, and is replaced. "
        "If this repeats, report it"
    )


class ClientError(Exception):
    """The broker or the group cannot be used now; the text says why and what to check."""


class ClientFailedError(ClientError):
    """The client has an internal error and was closed; `connect` makes another one."""


class TopicDescription(NamedTuple):
    """A topic as the broker describes it; one before version 2.8 gives it no id."""

    id: str | None
    partitions: frozenset[Partition]


class AssignmentChange(NamedTuple):
    """Partitions that were assigned to us, or taken away."""

    assigned: bool
    partitions: tuple[Partition, ...]


class GroupFault(NamedTuple):
    """What keeps us from the topic (`BROKER`) or out of the group (`GROUP`), as a sentence."""

    key: Literal["broker", "group"]
    sentence: str


class FetchFault(NamedTuple):
    """Why a partition cannot be read on, in the client's words.

    The position must be sought again, the next batch is broken, or it is something else.
    """

    kind: Literal["position", "batch", "other"]
    why: str


class Fetched(NamedTuple):
    """What one poll brought of a partition."""

    partition: Partition
    columns: RawColumns | None = None
    position: int = 0  # where reading goes on, behind gaps and markers; 0 if not known
    log_end: int | None = None  # as last heard of
    fault: FetchFault | None = None  # why what follows cannot be read


class GroupClient(ABC):
    """What the source asks of a client library, and what both libraries' clients share.

    One thread calls all methods. Those that raise `ClientError` may be called again. `events` holds
    what happened to the group and was not handled yet, oldest first; any thread may append.
    """

    decoder: str | None = None  # how responses are decoded; None if that is not known yet
    n_replaced = 0  # clients in a row that had an internal error before anything was read

    def __init__(self, servers: Sequence[str], topic: str, settings: KafkaSettings) -> None:
        self.events: deque[AssignmentChange | GroupFault] = deque()
        self.topic_name = topic
        self._no_answer = no_answer(servers, settings)
        self._commit_fails = False

    @abstractmethod
    def open(self) -> None:
        """Check the settings without waiting for a broker; raise `ConfigError` if they are bad."""

    @abstractmethod
    def connect(self, timeout_s: float) -> bool:
        """Return whether it is connected and subscribed; `ClientError` if that takes too long."""

    @abstractmethod
    def poll(self, max_messages: int, timeout_s: float) -> list[Fetched]:
        """Return what came, at most once a partition; wait for the first message only.

        After a `ClientError` every partition must be sought again. After a `ClientFailedError` the
        client must be connected again; its partitions are taken away by an event. Where
        `REPLACED_MAX` in a row were replaced and the next one fails too, a `BrokenClientError`.
        """

    @abstractmethod
    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Read these partitions from there, and no others.

        A partition that is being read from there already may be left alone.
        """

    def pause(self, partition: Partition) -> None:  # noqa: B027 -- for clients that read on
        """Stop reading a partition until it is sought."""

    @abstractmethod
    def log_starts(
        self, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, int]:
        """Return the first offset of each log; may raise `ClientError`."""

    @abstractmethod
    def log_ends(self, partitions: Collection[Partition], timeout_s: float) -> dict[Partition, int]:
        """Return the offset after the last one of each log; may raise `ClientError`."""

    @abstractmethod
    def offsets_at(
        self, partitions: Collection[Partition], time_ms: int, timeout_s: float
    ) -> dict[Partition, int | None]:
        """Return each first offset of that time or later; may raise `ClientError`."""

    @abstractmethod
    def find_topic(self, timeout_s: float) -> None:
        """Raise `ClientError` if the topic is missing or nobody answers."""

    @abstractmethod
    def topic(self, timeout_s: float) -> TopicDescription:
        """Return the topic as it is now; may raise `ClientError`."""

    @abstractmethod
    def topic_id(self) -> str | None:
        """Return the topic's id as last heard of, None if that is unknown; never wait."""

    def n_partitions(self) -> int | None:
        """Return how many partitions the topic has as last heard of; None if unknown, by default.

        It never waits. The others of a group are told nothing where the one that leads it hears of
        new partitions, and they get none of them.
        """
        return None

    def ask_topic_id(self, timeout_s: float) -> str | None:  # noqa: ARG002 -- see `topic_id`
        """Return the topic's id as it is now, None if nobody answers; any thread may call it.

        A client that hears of another topic before it reads from it need not ask: by default None.
        """
        return None

    @abstractmethod
    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit positions without waiting; log a failure."""

    @abstractmethod
    def close(self, *, finish_commit: bool) -> None:
        """Leave the group, after the last commit has arrived if `finish_commit` says so."""

    def unanswered(self, why: str) -> ClientError:
        """Return the error of a question that the broker did not answer, with the reason."""
        return ClientError(f"{self._no_answer} (the client says: {why})")

    def _committed(self, error: str | None = None) -> None:
        """Log a failed commit once while it lasts; a broker that is away would fill the log."""
        if error is not None and not self._commit_fails:
            log.info("kafka_commit_failed", error=error)
        self._commit_fails = error is not None


def require_librdkafka(what: str, way_out: str) -> None:
    """Raise a `ConfigError` if librdkafka's client, an extra, is not installed."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigError(
            f"{what} needs the package 'confluent-kafka', and it is not installed. Install the "
            f"extra: pip install 'streamnb[librdkafka]'; or {way_out}"
        )


def from_kafka_python(
    partition: Partition, fetched: Sequence[Any], next_offset: int | None = None
) -> RawColumns:
    """Return what one poll of kafka-python brought of a partition; at least one message.

    `fetched` holds `RawColumns` if responses are decoded into columns, else the library's records,
    without deserializers. Without `next_offset`, reading goes on behind the last one.
    """
    if isinstance(fetched[0], RawColumns):
        return joined(fetched)
    _, _, _, offsets, times_ms, _, keys, values, headers, *_ = zip(*fetched, strict=True)
    if None in times_ms:  # messages of format 0 have no time
        times_ms = tuple(-1 if time_ms is None else time_ms for time_ms in times_ms)
    behind = offsets[-1] + 1 if next_offset is None else next_offset
    return from_parts(partition, keys, values, offsets, times_ms, behind, headers)
