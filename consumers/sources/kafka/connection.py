"""From nothing to a member of the group, and back: connecting, subscribing, closing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import kafka
import structlog
from kafka import KafkaConsumer

from consumers.config import KafkaSettings
from consumers.kafka_client import Connecting, no_answer
from consumers.sources.kafka.client import consumer_settings, make_no_topics, require_privates
from consumers.sources.kafka.listener import Note, RebalanceNotes
from consumers.sources.kafka.receiving import receive_in_large_pieces
from consumers.sources.kafka.seam import is_known, replace_decoder
from streamnb.kernels import warm_up

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
        if self._wanted == "columns":
            warm_up()  # before the first message, not amid the stream
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
