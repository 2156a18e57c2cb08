"""The consumer's settings, and the three places where kafka-python 3.0 has to be helped.

Each helper says which fault it makes up for, and has a test with a real broker. Two of them reach
into the client: `require_privates` looks at the start whether what they need is there. Without them
reading could stand still for ever, so there is nothing to fall back to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import kafka
import structlog
from kafka import KafkaConsumer
from kafka.structs import MemberState

from consumers.config.settings import KafkaSettings
from consumers.kafka.client import Connecting, client_settings, does_not_fit, no_answer
from consumers.kafka.group import Note, RebalanceNotes
from consumers.kafka.patch import is_known, receive_in_large_pieces, replace_decoder
from consumers.messages import Partition

# The longest a learner may be busy with one batch before the group gives its partitions away.
MAX_POLL_INTERVAL_S: Final = 600.0


def consumer_settings(servers: Sequence[str], settings: KafkaSettings) -> dict[str, Any]:
    """Return what the client's consumer is made with."""
    return client_settings(servers, settings) | {
        "group_id": settings.group_id,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",  # we decide where to go on
        "isolation_level": "read_committed",  # what a transaction took back is never learned
        # After a kill the group waits that long for the dead member before the new one may read.
        "session_timeout_ms": round(settings.session_timeout_s * 1000),
        "heartbeat_interval_ms": round(settings.session_timeout_s * 1000 / 4),
        "max_poll_interval_ms": round(MAX_POLL_INTERVAL_S * 1000),
        # The broker holds a fetch that long when there is nothing new, and a question on the same
        # connection waits behind it: the client's own half a second is as long as we wait for the
        # answer, and a broker with a quiet topic then passes for one that is away.
        "fetch_max_wait_ms": 100,
        "fetch_max_bytes": max(settings.fetch_max_bytes, settings.message_max_bytes),
        "max_partition_fetch_bytes": settings.message_max_bytes,
    }


def require_privates(consumer: Any) -> None:
    """See to it that a consumer has what `finish_join` and `drop_broken_batch` reach for.

    Raises
    ------
    ConfigError
        When something is missing.
    """
    coordinator, fetcher = (getattr(consumer, name, None) for name in ("_coordinator", "_fetcher"))
    if not callable(getattr(coordinator, "request_rejoin", None)):
        raise does_not_fit("the consumer has no _coordinator.request_rejoin")
    if not hasattr(fetcher, "_next_partition_records"):
        raise does_not_fit("the consumer has no _fetcher._next_partition_records")
    if not callable(getattr(getattr(fetcher, "PartitionRecords", None), "drain", None)):
        raise does_not_fit("the consumer has no _fetcher.PartitionRecords.drain")


def make_no_topics(net: Any) -> None:
    """Keep the broker from making a topic because we asked for it.

    The client drops its own setting `allow_auto_create_topics` on the way, so a mistyped name
    would become an empty topic wherever the broker makes topics by itself.

    Parameters
    ----------
    net : kafka.net.compat.KafkaNetClient
        The consumer's network client.

    Raises
    ------
    ConfigError
        When the cluster has no such setting.
    """
    config = getattr(getattr(net, "cluster", None), "config", {})
    if "allow_auto_create_topics" not in config:
        raise does_not_fit("its cluster has no setting allow_auto_create_topics")
    config["allow_auto_create_topics"] = False


def is_member(consumer: Any) -> bool:
    """Tell whether the consumer has joined its group and no change of the group is under way."""
    return bool(consumer.group_metadata().state == MemberState.STABLE)


def finish_join(consumer: Any) -> None:
    """Let a join of the group that outlived its poll come to its end.

    When new partitions make the group's leader join anew, and the poll's time is up before the
    broker has answered, the client never looks at the answer: it neither reads nor sends heartbeats
    from then on. A request to rejoin mends that; where all is well, none is made.
    """
    if not is_member(consumer):
        consumer._coordinator.request_rejoin()  # noqa: SLF001


def drop_broken_batch(consumer: Any) -> Partition | None:
    """Make the client forget the batch it failed on; return whose it was, if it was a batch.

    The client keeps the failed batch's iterator, which then yields nothing for ever, and the next
    poll would not return, whatever its timeout. A seek to another offset frees it; one to the same
    offset, which is the right one, does not.
    """
    broken = consumer._fetcher._next_partition_records  # noqa: SLF001
    if not broken:
        return None
    broken.drain()
    return Partition(*broken.topic_partition)


log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

# Connecting takes some milliseconds; only from here on is it worth a sentence.
GRACE_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 1.0


class Connection:
    """The consumer, once there is one.

    Parameters
    ----------
    servers : sequence of str
        `host:port` of the brokers to ask first.
    topic : str
        What it subscribes to.
    settings : KafkaSettings
        How it is made.
    clock : callable
        Seconds that only grow.

    Attributes
    ----------
    consumer : kafka.KafkaConsumer or None
        None until a broker has answered, and after closing.
    decoder : 'columns', 'records' or None
        What the consumer hands over; None while there was none.
    """

    def __init__(
        self,
        servers: Sequence[str],
        topic: str,
        settings: KafkaSettings,
        clock: Callable[[], float],
    ) -> None:
        self.consumer: Any = None
        self.decoder: Literal["columns", "records"] | None = None
        self._wanted = settings.decode
        self._no_answer = no_answer(servers, settings)
        self._topic = topic
        self._clock = clock
        self._connecting: Connecting[Any] = Connecting(
            KafkaConsumer, consumer_settings(servers, settings), self._prepare
        )
        self._listener = RebalanceNotes()
        self._since_s: float | None = None
        self._told_small_pieces = False

    @property
    def notes(self) -> deque[Note]:
        """Return what the group decided and nobody has heeded yet, oldest first."""
        return self._listener.notes

    def wait(self, left_s: float) -> bool:
        """Tell whether there is a consumer, waiting up to `left_s` for it."""
        if self._since_s is None:
            self._since_s = self._clock()
        consumer = self._connecting.wait(left_s)
        if consumer is None:
            return False
        require_privates(consumer)
        self._listener.consumer = consumer
        consumer.subscribe([self._topic], listener=self._listener)
        self.decoder = self._choose_decoder(consumer)
        self.consumer = consumer
        return True

    def _prepare(self, net: Any) -> None:
        """Set up the consumer's network client; on the thread that connects."""
        make_no_topics(net)
        if self._wanted == "records":
            return
        why = receive_in_large_pieces(net) if is_known() else "it is of another version"
        if why is not None and not self._told_small_pieces:
            self._told_small_pieces = True
            log.warning(
                "kafka_received_slowly",
                why=f"kafka-python {kafka.__version__}: {why}",
                detail="answers are read in pieces of 4,096 bytes: the same ones, but slower",
            )

    def _choose_decoder(self, consumer: Any) -> Literal["columns", "records"]:
        """Let the consumer hand over columns where that is wanted and safe."""
        if self._wanted == "records":
            return "records"
        why = replace_decoder(consumer)
        if why is None:
            return "columns"
        log.warning(
            "kafka_decoded_slowly",
            why=why,
            detail="messages are read record by record: the same ones, at a fifth of the speed",
        )
        return "records"

    def trouble(self) -> str | None:
        """Return why there is no consumer, once that takes longer than it should."""
        error = self._connecting.error
        if error is not None:
            return f"{self._no_answer} (the client says: {error!r})"
        late = self._since_s is not None and self._clock() - self._since_s >= GRACE_S
        return self._no_answer if late else None

    def close(self, log: structlog.stdlib.BoundLogger) -> None:
        """Leave the group and let go, within a second or two."""
        self._connecting.give_up()
        consumer, self.consumer = self.consumer, None
        if consumer is None:
            return
        try:
            consumer.close(autocommit=False, timeout_ms=round(CLOSE_TIMEOUT_S * 1000))
        except Exception as error:  # noqa: BLE001 - it is over, whatever state the client is in
            log.info("kafka_close_failed", error=repr(error))
