"""Kafka topics that we write: as a sink of records, and as the log of corrections.

They differ in what a repeat costs. A sink may write a record twice, since its key makes repeats
recognisable, so a failed record is simply sent again; one that others read in order, as a bridge's,
is idempotent. A correction applied twice would be unlearned twice, so its producer is idempotent
and never gives a line up by itself: a broker that is away leaves a line in doubt rather than lost,
for as long as the daemon runs; after a restart the topic itself says whether it was taken.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import kafka
import msgspec
import structlog
from kafka import KafkaProducer
from kafka.errors import (
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from consumers.config.addresses import KafkaSettings
from consumers.corrections.model import Appended, LogPosition, NotWritten, decoded
from consumers.errors import SinkError
from consumers.kafka.client import (
    SAY_AGAIN_S,
    Connecting,
    client_settings,
    internal_error,
    no_answer,
    quiet_log,
    require_checksums,
)
from consumers.kafka.patch import (
    OUTAGES,
    close_abandoned_sockets,
    end_sending,
    is_known,
    keep_refreshing,
    receive_in_large_pieces,
    require_sender,
    sender_of,
    tell_connection_errors,
    tell_raised,
    topic_id_of,
)
from consumers.messages import Headers, Partition
from consumers.sinks.records import Record, is_output, shortened

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CLOSE_TIMEOUT_S: Final = 1.0
_REQUEST_TIMEOUT_MS: Final = 10_000
_NEVER_MS: Final = 2**31 - 1
_TOO_LARGE: Final = (MessageSizeTooLargeError, RecordListTooLargeError)


class TopicIds(NamedTuple):
    """What tells a topic from others of its name; None where the brokers know no such id."""

    topic_id: str | None
    cluster_id: str | None


class TopicProducer:
    """The producer of one topic, connected in the background; any thread may call its methods.

    The brokers may be away; nothing blocks here. `made_with` are further settings of
    `kafka.KafkaProducer`. A missing checksum package, or a library that does not fit, is a
    `ConfigError`.
    """

    def __init__(
        self, servers: Sequence[str], topic: str, settings: KafkaSettings, **made_with: Any
    ) -> None:
        require_checksums()
        require_sender()
        quiet_log("kafka")
        self.topic = topic
        self._no_answer = no_answer(servers, settings)
        self._made_with = client_settings(servers, settings) | made_with
        self._made_with |= {
            "acks": "all",  # replicas in sync
            "request_timeout_ms": _REQUEST_TIMEOUT_MS,
            "max_request_size": settings.message_max_bytes,
        }
        self._lock = threading.Lock()
        self._cluster: Any = None  # what the newest producer knows of the brokers
        self._producer: Any = None
        self._connecting = self._connect()
        self._failed: Connecting[Any] | None = None  # what made a producer that cannot go on
        self._say_failure_s = -math.inf

    def _connect(self) -> Connecting[Any]:
        return Connecting(KafkaProducer, self._made_with, self._prepare)

    def _prepare(self, net: Any) -> None:
        self._cluster = net.cluster
        keep_refreshing(net)
        tell_raised(net.cluster, "update_metadata", partial(self._fail, self._connecting))
        close_abandoned_sockets(net)
        tell_connection_errors(net, self._connecting.note)
        if is_known():
            receive_in_large_pieces(net)  # or a refused login is told as a lost connection

    def ids(self) -> TopicIds:
        """Return the ids of the topic by the newest metadata that a producer has asked for."""
        return TopicIds(topic_id_of(self._cluster, self.topic), self._cluster.cluster_id)

    def get(self, timeout_s: float) -> Any:
        """Return the `kafka.KafkaProducer`, or None if it is not connected within `timeout_s`.

        One with an internal error, which may have lost track of its records, is replaced.
        """
        self._replace_failed()
        with self._lock:
            if self._producer is None:
                self._producer = self._connecting.wait(timeout_s)
                if self._producer is not None:
                    fail = partial(self._fail, self._connecting)
                    for name in ("run_once", "_handle_produce_response"):
                        tell_raised(sender_of(self._producer), name, fail)
            return self._producer

    def is_current(self, producer: Any) -> bool:
        """Return whether a producer that `get` returned was neither replaced nor failed."""
        self._replace_failed()
        return producer is self._producer

    def _fail(self, connecting: Connecting[Any], error: Exception) -> None:
        """Note an error after which a producer may never send again; any thread may call it."""
        is_over = connecting is not self._connecting or connecting is self._failed
        if is_over or isinstance(error, OUTAGES):
            return
        self._failed = connecting
        if time.monotonic() >= self._say_failure_s:
            self._say_failure_s = time.monotonic() + SAY_AGAIN_S
            why = internal_error(error)
            log.error("kafka_client_failed", topic=self.topic, why=why, version=kafka.__version__)

    def replace(self, **made_with: Any) -> None:
        """Close the producer and connect another one, with other settings if they are given."""
        with self._lock:
            self._made_with |= made_with
            producer = self._connect_anew()
        self._close(producer, CLOSE_TIMEOUT_S)

    def _replace_failed(self) -> None:
        """Replace a producer that has an internal error; leave any other."""
        with self._lock:
            if self._producer is None or self._failed is not self._connecting:
                return
            producer = self._connect_anew()
        self._close(producer, CLOSE_TIMEOUT_S)

    def _connect_anew(self) -> Any:
        """Begin to connect another producer, under the lock; return the one there was."""
        producer, self._producer = self._producer, None
        self._connecting = self._connect()
        return producer

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Give up what is not sent within `timeout_s`, and release everything."""
        with self._lock:
            self._failed = self._connecting  # what fails from now on is not told
            self._connecting.give_up()
            producer, self._producer = self._producer, None
        self._close(producer, timeout_s)

    def _close(self, producer: Any, timeout_s: float) -> None:
        if producer is not None:
            try:
                producer.close(timeout=timeout_s)
            except KafkaError as error:
                log.info("kafka_close_failed", error=repr(error))
                end_sending(producer)

    def sentence(self, what: str, error: BaseException | None) -> str:
        """Return the sentence for what did not work, with what to check."""
        error = error or self._connecting.error
        why = "" if error is None else f"; the client says: {error!r}"
        if isinstance(error, _TOO_LARGE):  # whoever says so is there
            return (
                f"topic {self.topic!r}{what}: it takes no records of that size, one is too large; "
                "raise max.message.bytes of the topic and kafka.message_max_bytes, or leave it out"
                f"{why}"
            )
        return (
            f"topic {self.topic!r}{what}: {self._no_answer}, or that the topic exists, lets "
            f"this user write, and takes records of that size{why}"
        )


# -- a sink of records ------------------------------------------------------------------------

PENDING_RECORDS_MAX: Final = 100_000
PENDING_BYTES_MAX: Final = 64 << 20
ADD_TIMEOUT_S: Final = 5.0  # how long `add` may wait while too much is pending

_SINK_BLOCK_MS: Final = 250  # how long one send may wait for the topic to be known
_SEND_PAUSE_S: Final = 1.0  # after such a wait in vain, until `add` tries again
_DELIVERY_TIMEOUT_MS: Final = 15_000
_LINGER_MS: Final = 5
_BATCH_BYTES: Final = 128 << 10
assert _LINGER_MS + _REQUEST_TIMEOUT_MS <= _DELIVERY_TIMEOUT_MS  # the library asks for it


class _Pending(msgspec.Struct, eq=False):
    """A record that is not acknowledged, and the library's future once it was sent."""

    key: bytes | None
    value: bytes | None
    short: Record | None = None
    partition: int | None = None
    headers: Headers = ()
    time_ms: int | None = None
    future: Any = None

    @property
    def n_bytes(self) -> int:
        """The size of key, value and headers."""
        parts = (self.key, self.value, *(part for pair in self.headers for part in pair))
        return sum(len(part or b"") for part in parts)


class KafkaSink:
    """Writes records to a topic, each at least once, acknowledged by all replicas in sync.

    A record is kept until it is acknowledged; one whose delivery failed is sent again by the next
    `flush`, so a broker that was away costs nothing but time. At most `PENDING_RECORDS_MAX` records
    and `PENDING_BYTES_MAX` bytes are kept, plus the batch that crosses the limit.

    A record that is too large for the client or the topic would be refused for ever, and all behind
    it would wait. If it has a short form, that is sent in its place, and the log says so. Once the
    topic has refused a batch of such as have none, each record is sent alone, as its bound is below
    that of a batch: one of ours that is refused then is shortened again and again, and left out and
    counted (`n_refused`) where it cannot be.

    An idempotent one (`is_idempotent`) never gives a record up while it waits for a broker, so
    nothing is repeated or out of order, but after an internal error of the library, or where a
    broker that starts again has forgotten the producer: it does once the newest record's own time
    is a day ago, unless the broker is told otherwise. A record that is too large is left out and
    counted (`n_refused`): what waits with it is sent again by another producer, one by one.

    One that `leaves_out` does so too, without being idempotent: nothing is sent again for it.
    """

    def __init__(
        self,
        servers: Sequence[str],
        topic: str,
        settings: KafkaSettings,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_idempotent: bool = False,
        leaves_out: bool = False,
    ) -> None:
        self.n_refused = 0
        self._clock = clock
        self._is_idempotent = is_idempotent
        self._leaves_out = is_idempotent or leaves_out
        self._is_one_by_one = False  # so that what is refused as too large is so itself
        self._is_each_alone = False  # the same, of one that is not idempotent
        self._producer = TopicProducer(
            servers,
            topic,
            settings,
            # An idempotent producer is useless after the first record that is refused for good,
            # such as one too large. Where repeats are allowed one request at a time keeps the
            # order.
            enable_idempotence=is_idempotent,
            max_in_flight_requests_per_connection=1,
            linger_ms=_LINGER_MS,
            batch_size=_BATCH_BYTES,
            max_block_ms=_SINK_BLOCK_MS,
            # The library splits a batch that is too large until its time is up, and then fails all
            # of it. What is left out must have been refused alone.
            delivery_timeout_ms=_NEVER_MS if self._leaves_out else _DELIVERY_TIMEOUT_MS,
        )
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._unsent: deque[_Pending] = deque()  # those of the pending ones that wait to be sent
        self._fault: Exception | None = None
        self._send_again_s = 0.0

    @property
    def n_pending_bytes(self) -> int:
        """Size of what is not acknowledged yet."""
        return self._pending_bytes

    def add(self, records: Sequence[Record]) -> None:
        """Take records and send them in order, waiting up to 5 s while too much is pending.

        If too much is still pending then it raises `SinkError`; the records are taken nevertheless.
        """
        for record in records:  # all of them: to send may raise
            self._take(_Pending(record.key or None, record.value, record.short))
        self._send_taken()

    def write(
        self,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        headers: Headers = (),
        time_ms: int | None = None,
    ) -> None:
        """Take one record as `add` does; its partition follows from its key unless it is given.

        A record has a key or a value, and each header a value: the library writes no others. Its
        time is that of the writing unless it is given.
        """
        self._take(_Pending(key, value, None, partition, headers, time_ms))
        self._send_taken()

    def topic_ids(self) -> TopicIds:
        """Return the ids of the topic, once `partitions` has found it."""
        return self._producer.ids()

    def partitions(self, timeout_s: float) -> int:
        """Return how many partitions the topic has; `SinkError` if no broker says so in time."""
        deadline_s = self._clock() + timeout_s
        fault: Exception | None = None
        while producer := self._producer.get(max(0.0, deadline_s - self._clock())):
            try:
                return len(producer.partitions_for(self._producer.topic))
            except KafkaError as error:
                fault = error
                if self._clock() >= deadline_s:
                    break
        raise SinkError(self._producer.sentence(": the topic cannot be found", fault)) from fault

    def flush(self, timeout_s: float) -> None:
        """Return once every record is acknowledged.

        Those that are not within `timeout_s` are a `SinkError`; they are kept, and tried again.
        """
        deadline_s = self._clock() + timeout_s
        while self._pending:
            left_s = deadline_s - self._clock()
            producer = self._producer.get(left_s) if left_s > 0 else None
            if producer is None:
                break
            self._send_again_s = 0.0
            self._send(producer)
            try:
                producer.flush(max(0.0, deadline_s - self._clock()))
            except KafkaError as error:  # time is up, or a batch was split, which it takes ill
                self._fault = error
            self._collect()
        if self._pending:
            what = f": {len(self._pending)} records are not safe"
            raise SinkError(self._producer.sentence(what, self._fault))

    def close(self) -> None:
        """Give what is pending a last second, log what is left, and release everything."""
        try:
            self.flush(CLOSE_TIMEOUT_S)
        except SinkError as error:
            log.warning("records_not_written", topic=self._producer.topic, why=str(error))
        self._producer.close(0 if self._pending else CLOSE_TIMEOUT_S)

    def _take(self, pending: _Pending) -> None:
        self._pending.append(pending)
        self._unsent.append(pending)
        self._pending_bytes += pending.n_bytes

    def _send_taken(self) -> None:
        """Send what was taken, unless there is a pause; wait while too much is pending."""
        if self._clock() >= self._send_again_s and (producer := self._producer.get(0.0)):
            self._send(producer)
        if len(self._pending) > PENDING_RECORDS_MAX or self._pending_bytes > PENDING_BYTES_MAX:
            self.flush(ADD_TIMEOUT_S)

    def _send(self, producer: Any) -> None:
        """Give the library what waits to be sent, until it takes no more."""
        while self._unsent:
            pending = self._unsent[0]
            if self._is_one_by_one and pending is not self._pending[0]:
                return
            try:
                pending.future = producer.send(
                    self._producer.topic, key=pending.key, value=pending.value,
                    headers=list(pending.headers), partition=pending.partition,
                    timestamp_ms=pending.time_ms,
                )  # fmt: skip
            except KafkaTimeoutError as error:  # the topic or its leader is not known
                self._fault = error
                # Or each of a batch's thousands of records would wait for it.
                self._send_again_s = self._clock() + _SEND_PAUSE_S
                return
            except KafkaError as error:
                if self._shorten(pending, error, is_alone=not self._leaves_out):
                    continue
                if self._leave_out(pending, error) or self._give_up(pending, error):
                    self._pending.remove(pending)
                    self._unsent.popleft()
                    continue
                what = f": the record {pending.key!r} cannot be sent"
                raise SinkError(self._producer.sentence(what, error)) from error
            self._unsent.popleft()

    def _collect(self) -> None:
        """Drop the acknowledged records; queue the failed ones again, in their order."""
        kept: deque[_Pending] = deque()
        self._unsent.clear()
        has_failed = is_too_large = is_of_batch = False
        for pending in self._pending:
            if pending.future is not None and pending.future.succeeded():
                self._pending_bytes -= pending.n_bytes
                continue
            if pending.future is not None and pending.future.failed():
                has_failed, self._fault = True, pending.future.exception
                is_too_large |= isinstance(self._fault, _TOO_LARGE)
                may_leave_out = self._is_one_by_one or not self._is_idempotent
                if may_leave_out and self._leave_out(pending, self._fault):
                    continue
                # One that fills a batch is alone in it. What others wrote is not ours to shorten.
                fills = self._is_each_alone or pending.n_bytes >= _BATCH_BYTES
                is_alone = fills and not self._leaves_out
                is_short = self._shorten(pending, self._fault, is_alone=is_alone)
                if is_alone and not is_short and self._give_up(pending, self._fault):
                    continue
                is_of_batch |= isinstance(self._fault, _TOO_LARGE) and not (is_short or is_alone)
                pending.future = None
            kept.append(pending)
            if pending.future is None:
                self._unsent.append(pending)
        self._pending = kept
        self._is_one_by_one &= bool(kept)
        if is_of_batch and not self._leaves_out:
            # The library takes a batch apart until its time is up, and then fails all of it: which
            # record is too large nobody knows. It is below the least that has a short form, so the
            # topic's bound is, and batches are for topics with larger ones.
            self._is_each_alone = True
            log.warning(
                "records_sent_alone",
                topic=self._producer.topic,
                way_out=f"raise max.message.bytes of the topic to {_BATCH_BYTES} or more",
            )
            self._send_all_again(batch_size=0)
        elif self._is_idempotent and has_failed:
            # This producer is of no use any more, and fails all that it has with the same error: so
            # the next one sends one by one until the record is found that is to blame.
            self._is_one_by_one = is_too_large and not self._is_one_by_one
            self._send_all_again()

    def _send_all_again(self, **made_with: Any) -> None:
        """Have another producer send all that is pending."""
        self._producer.replace(**made_with)
        for pending in self._pending:
            pending.future = None
        self._unsent = deque(self._pending)

    def _leave_out(self, pending: _Pending, error: Exception) -> bool:
        """Give up a record that can never be sent, as it is too large, if the sink may do so."""
        return self._leaves_out and isinstance(error, _TOO_LARGE) and self._refuse(pending)

    def _give_up(self, pending: _Pending, error: Exception) -> bool:
        """Give up a record of ours that is refused as too large in its shortest form."""
        is_ours = not self._leaves_out and is_output((pending.value or b"") + b"\n")
        return is_ours and isinstance(error, _TOO_LARGE) and self._refuse(pending)

    def _refuse(self, pending: _Pending) -> bool:
        self.n_refused += 1
        self._pending_bytes -= pending.n_bytes
        log.warning(
            "record_refused",
            topic=self._producer.topic,
            key=(pending.key or b"").decode(errors="replace"),
            n_bytes=pending.n_bytes,
            way_out="raise max.message.bytes of the topic and kafka.message_max_bytes",
        )
        return True

    def _shorten(self, pending: _Pending, error: Exception, *, is_alone: bool) -> bool:
        """Replace a record by a short form if the whole is refused as too large.

        One that has none gets one if it was refused itself, and not with others.
        """
        if not isinstance(error, _TOO_LARGE):
            return False
        short = pending.short
        if short is None and is_alone:
            short = shortened(Record(pending.key or b"", pending.value or b""))
        if short is None:
            return False
        log.warning(
            "record_shortened",
            topic=self._producer.topic,
            key=short.key.decode(errors="replace"),
            n_bytes=pending.n_bytes,
            way_out="raise max.message.bytes of the topic and kafka.message_max_bytes",
        )
        self._pending_bytes -= pending.n_bytes
        pending.key, pending.value, pending.short = short.key or None, short.value, short.short
        self._pending_bytes += pending.n_bytes
        return True


# -- the log of corrections -------------------------------------------------------------------

CONNECT_TIMEOUT_S: Final = 5.0
_LOG_BLOCK_MS: Final = 5_000  # how long one line may wait for the topic to be known
# Answers after which the broker has certainly kept nothing.
_REFUSALS: Final = (
    *_TOO_LARGE,
    InvalidTopicError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
)


class KafkaLog:
    """Appends lines to a topic; every method may be called from any thread.

    With `by_message` a correction of a message goes to the partition of the message's number.
    """

    def __init__(
        self,
        servers: Sequence[str],
        topic: str,
        settings: KafkaSettings,
        *,
        by_message: bool = False,
    ) -> None:
        self.name, self.is_own = topic, False
        self._by_message = by_message
        self._producer = TopicProducer(
            servers, topic, settings, enable_idempotence=True, linger_ms=0,
            max_block_ms=_LOG_BLOCK_MS, delivery_timeout_ms=_NEVER_MS,
        )  # fmt: skip

    def append(self, key: bytes, line: bytes) -> Appended:
        """Send a line on its way; see `Log.append`."""
        producer = self._producer.get(CONNECT_TIMEOUT_S)
        if producer is None:
            raise self._not_written(None)
        said = decoded(line) if self._by_message else None
        partition = None if said is None or said.place is None else said.place.partition
        try:
            sent = producer.send(self.name, key=key, value=line, partition=partition)
        except (KafkaError, ValueError) as error:  # it never reached the library's queue
            raise self._not_written(error) from error
        return _Sent(sent, self, partial(self._producer.is_current, producer))

    def close(self) -> None:
        """Give what is on its way a last second, and release everything."""
        self._producer.close()

    def refused(self, error: Exception) -> NotWritten:
        """Return what to raise for a line that the broker refused; the next begins afresh.

        An idempotent producer is useless once a line was refused for good.
        """
        self._producer.replace()
        return self._not_written(error)

    def _not_written(self, error: Exception | None) -> NotWritten:
        what = " did not take the correction; nothing was changed"
        return NotWritten(self._producer.sentence(what, error))


class _Sent:
    """A line that the library sends until it is acknowledged."""

    def __init__(self, future: Any, entries: KafkaLog, is_current: Callable[[], bool]) -> None:
        self._future, self._is_current = future, is_current
        self._log = entries

    def outcome(self, timeout_s: float) -> LogPosition | None:
        """Return where the line stands; see `Appended.outcome`."""
        future = self._future
        with contextlib.suppress(KafkaError):  # for time and for refusals alike: looked at below
            future.get(timeout_s)
        if future.succeeded():
            found = future.value
            return LogPosition(Partition(found.topic, found.partition), found.offset)
        if future.failed() and isinstance(future.exception, _REFUSALS):
            raise self._log.refused(future.exception) from future.exception
        # Still on its way; or the library lost track of it, and the log alone can tell.
        return None

    def is_given_up(self) -> bool:
        """Return whether nobody sends it any more; see `Appended.is_given_up`."""
        return bool(self._future.failed()) or not self._is_current()
