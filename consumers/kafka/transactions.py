"""Predictions, rejects and the group's offsets in one Kafka transaction: each record leaves once.

Records are kept until their transaction is due. It then holds all records of whole batches and the
offsets behind these batches. The rule that makes it exact is short: *records of messages before the
committed offset are not sent.* It serves a restart, whose checkpoint may stand before that offset,
and a transaction whose outcome is not known, which is simply tried again. Rejects of other logs,
those of corrections and of labels, have no offset there: they leave at least once.

What a transaction before may have left on its way must not end the next one: a delayed commit of
the one, sent again by the client library, has committed half of the other (found by Jepsen, in
2024). Brokers with KIP-890 refuse what comes late by its epoch, if each transaction has an epoch of
its own. librdkafka does not speak that part of the protocol yet, so here each transaction has a
producer of its own: its first request takes the next epoch, ends what was left open, and fences
whoever else uses the same transactional id.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaAdminClient
from kafka.errors import KafkaError as PythonKafkaError

from consumers.config.addresses import KafkaSettings
from consumers.errors import SinkError, TransactionError
from consumers.kafka.client import (
    Connecting,
    client_settings,
    connection_settings,
    no_answer,
    quiet_log,
)
from consumers.kafka.patch import close_abandoned_sockets
from consumers.messages import Partition
from consumers.sinks.records import Record, shortened

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

PENDING_RECORDS_MAX: Final = 100_000
PENDING_BYTES_MAX: Final = 64 << 20
FLUSH_TIMEOUT_S: Final = 5.0  # how long `add` may wait while too much is pending
CLOSE_TIMEOUT_S: Final = 1.0
CALL_TIMEOUT_S: Final = 10.0
# Longer than all calls of a transaction together, so the broker ends none that is still tried.
TRANSACTION_TIMEOUT_S: Final = 60.0
FEATURE: Final = "transaction.version"
FEATURE_LEVEL: Final = 2  # KIP-890

_FENCED: Final = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
_TOO_LARGE: Final = KafkaError.MSG_SIZE_TOO_LARGE

Outcome = Literal["committed", "aborted"]


class KafkaTransactions:
    """Sends records and offsets together, on a thread of its own; sinks of it are `sink`.

    One thread calls `add`, `done` and `flush`. At most `PENDING_RECORDS_MAX` records and
    `PENDING_BYTES_MAX` bytes are kept, plus the batch that crosses the limit. `count` is told how
    each transaction ended. What cannot pass by itself, brokers without KIP-890 or another daemon of
    the same group, is a `TransactionError`, which `watch` raises.
    """

    def __init__(
        self,
        servers: Sequence[str],
        topic: str,
        settings: KafkaSettings,
        count: Callable[[Outcome], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers, self._settings = servers, settings
        self._id = f"streamnb-{settings.group_id}-{topic}"
        self._topic = topic
        self._count, self._clock = count, clock
        self._no_answer = no_answer(servers, settings)
        self._topics: list[str] = []
        # The lock of all that follows; it is notified of work, and of work that is done.
        self._changed = threading.Condition()
        self._records: list[tuple[str, Record]] = []
        self._n_whole = 0  # of them, those of whole batches
        self._n_bytes: Counter[str] = Counter()  # of them and of those being sent, by topic
        self._n_sending = 0
        self._is_sending = False
        self._positions: dict[Partition, int] = {}
        self._asked = False  # somebody waits in `flush`
        self._error: str | None = None  # why the last attempt failed
        self._failure: Exception | None = None
        self._closed = threading.Event()
        self._connecting: Connecting[Any] | None = None
        self._is_defended = False  # the brokers have KIP-890
        self._run_id = uuid.uuid4().hex
        self._own: dict[Partition, int] = {}  # what this run has committed
        self._refused: str | None = None  # that something in this transaction was too large
        self._is_each_alone = self._is_shortened = False  # a batch is refused as a whole
        self._is_unsure = False  # whether the last transaction was committed is not known
        self._offsets: Any = None  # reads committed offsets; never joins the group
        self._producer: Any = None  # initialised, for the next transaction alone
        self._thread = threading.Thread(target=self._run, name="transactions", daemon=True)

    def start(self) -> None:
        """Begin to connect; brokers that are away block nothing."""
        self._thread.start()

    def sink(self, topic: str) -> TransactionalSink:
        """Return a sink whose records go to a topic, in these transactions."""
        self._topics.append(topic)
        return TransactionalSink(self, topic)

    @property
    def n_pending(self) -> int:
        """How many records wait, those on their way included; any thread may ask."""
        return len(self._records) + self._n_sending

    def trouble(self) -> str | None:
        """Return why records wait longer than they should; any thread may ask."""
        return self._error

    def watch(self) -> None:
        """Raise the error that ended the sending, if any."""
        if self._failure is not None:
            raise self._failure

    # -- the thread that judges ------------------------------------------------------------------

    def add(self, topic: str, records: Sequence[Record]) -> None:
        """Take records of the batch under way, or those of another log; see `Sink.add`."""
        with self._changed:
            is_between = self._n_whole == len(self._records)  # two batches, not amid one
            self._records += [(topic, record) for record in records]
            self._n_bytes[topic] += sum(record.n_bytes for record in records)
            if records and is_between and self._is_foreign(records[0]):
                self._n_whole = len(self._records)
            is_full = self._is_full()
        if is_full:
            self.flush(FLUSH_TIMEOUT_S)

    def done(self, partition: Partition, next_offset: int) -> None:
        """Note that all records of the messages before an offset were added."""
        with self._changed:
            self._positions[partition] = next_offset
            self._n_whole = len(self._records)

    def flush(self, timeout_s: float) -> None:
        """Return once all records of whole batches are committed, with their offsets."""
        deadline_s = self._clock() + timeout_s
        with self._changed:
            while self._has_more():
                self._asked = True
                self._changed.notify_all()
                self._changed.wait(max(0.0, min(0.1, deadline_s - self._clock())))
                self.watch()
                if self._clock() >= deadline_s and self._has_more():
                    raise SinkError(
                        f"kafka.transactions: {self.n_pending} records are not committed: "
                        f"{self._error or 'the transaction takes longer'}"
                    )

    def close(self) -> None:
        """End the thread; what is not committed will come again."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        if self._connecting is not None:
            self._connecting.give_up()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_TIMEOUT_S)

    def _has_more(self) -> bool:
        return bool(self._positions or self._n_whole or self._is_sending)

    def _is_foreign(self, record: Record) -> bool:
        """Return whether a record is of another log than the stream."""
        return record.place is not None and record.place[0].topic != self._topic

    def _is_full(self) -> bool:
        return self.n_pending > PENDING_RECORDS_MAX or self._n_bytes.total() > PENDING_BYTES_MAX

    def n_bytes(self, topic: str) -> int:
        """Return the size of what waits for a topic; any thread may ask."""
        return self._n_bytes[topic]

    # -- the thread that sends -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # whatever it is, `watch` raises it, and the run ends
            log.exception("transactions_broke")
            with self._changed:
                self._failure, self._error = error, repr(error)
                self._changed.notify_all()

    def _send_all(self) -> None:
        """Send what is due, and try again what failed, until it is closed or must not go on."""
        self._until_done(self._prepare)
        while not self._closed.is_set() and self._failure is None:
            records, positions = self._due()
            if records or positions:
                sent = partial(self._send, records, positions)
                if not self._until_done(sent):
                    return
                with self._changed:
                    self._n_sending, self._is_sending = 0, False
                    for topic, record in records:
                        self._n_bytes[topic] -= record.n_bytes
                    self._changed.notify_all()
                self._until_done(self._prepare, tries=1)

    def _due(self) -> tuple[list[tuple[str, Record]], dict[Partition, int]]:
        """Wait until a transaction is due; return its records, and the offsets behind them."""
        until_s = self._clock() + self._settings.transaction_interval_s
        with self._changed:
            while not (self._closed.is_set() or self._asked or (self._n_whole and self._is_full())):
                left_s = until_s - self._clock()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            self._asked = False
            records, self._records = self._records[: self._n_whole], self._records[self._n_whole :]
            positions, self._positions = self._positions, {}
            self._n_sending, self._n_whole = len(records), 0
            self._is_sending = bool(records or positions)
        return records, positions

    def _until_done(self, step: Callable[[], None], tries: int | None = None) -> bool:
        """Carry out a step, again after a pause while it fails; return whether it was done."""
        while not self._closed.is_set() and tries != 0:
            began_s = self._clock()
            try:
                step()
            except (KafkaException, PythonKafkaError, BufferError, SinkError) as error:
                # Whatever the producer left on its way is fenced by the next one.
                self._producer = self._offsets = None
                if isinstance(error, TransactionError) or self._is_fenced(error, began_s):
                    self._fail(error)
                    return False
                self._say(error)
                self._closed.wait(self._settings.retry_pause_max_s)
            else:
                if self._error is not None:
                    log.info("transactions_go_on", transactional_id=self._id)
                self._error = None
                return True
            tries = None if tries is None else tries - 1
        return False

    def _is_fenced(self, error: Exception, began_s: float) -> bool:
        """Return whether another one took over; a transaction that ran out of time looks alike."""
        if not isinstance(error, KafkaException) or error.args[0].name() not in _FENCED:
            return False
        return self._clock() - began_s < TRANSACTION_TIMEOUT_S

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, TransactionError):
            error = self._taken_over()
        with self._changed:
            self._failure = error
            self._error = str(error)
            self._changed.notify_all()

    def _taken_over(self) -> TransactionError:
        return TransactionError(
            f"kafka.transactions: another daemon has taken over the transactional id {self._id} (it"
            " is made of kafka.group_id and the topic). Nothing was sent twice, and what is not"
            " committed comes from that one. Give each daemon a kafka.group_id of its own."
        )

    def _say(self, error: Exception) -> None:
        """Keep the reason, and log the first of a row of failures."""
        is_first = self._error is None
        detail = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        self._error = f"{self._no_answer} (the client says: {detail})"
        if isinstance(error, SinkError):
            self._error = detail
        if is_first:
            log.warning("transaction_failed", transactional_id=self._id, detail=self._error)

    def _prepare(self) -> None:
        """Have a producer for the next transaction, with an epoch that nobody had before."""
        if not self._is_defended:
            self._require_defence()
            self._is_defended = True
        if self._offsets is None:
            made_with = connection_settings(self._servers, self._settings)
            own = {
                "group.id": self._settings.group_id,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",  # waits for offsets in open transactions
            }
            self._offsets = _made(Consumer, made_with | own)
        if self._producer is None:
            producer = _made(
                Producer,
                connection_settings(self._servers, self._settings)
                | {
                    "transactional.id": self._id,
                    "transaction.timeout.ms": round(TRANSACTION_TIMEOUT_S * 1000),
                    "message.max.bytes": max(self._settings.message_max_bytes, 1000),
                    "queue.buffering.max.messages": 10_000_000,  # we have a bound of our own
                    "queue.buffering.max.kbytes": 2_147_483_647,
                    "batch.size": 128 << 10,
                    "batch.num.messages": 1 if self._is_each_alone else 10_000,
                    "linger.ms": 5,
                    "partitioner": "murmur2_random",  # as in the sink without transactions
                },
            )
            producer.init_transactions(CALL_TIMEOUT_S)
            self._producer = producer

    def _require_defence(self) -> None:
        """Raise `TransactionError` if the brokers lack KIP-890, `SinkError` if none answers."""
        if self._connecting is None:
            made_with = client_settings(self._servers, self._settings)
            del made_with["metrics_enabled"]  # an administrator has none
            self._connecting = Connecting(KafkaAdminClient, made_with, close_abandoned_sockets)
        admin: Any = None
        while admin is None:
            admin = self._connecting.wait(self._settings.retry_pause_max_s)
            if self._closed.is_set() or (admin is None and self._connecting.error is not None):
                raise SinkError(f"{self._no_answer} (the client says: {self._connecting.error})")
        try:
            _, level = admin.describe_features().get(FEATURE, {}).get("finalized", (0, 0))
        finally:
            self._connecting = None
            admin.close()
        if level < FEATURE_LEVEL:
            raise TransactionError(
                f"kafka.transactions needs brokers with KIP-890 ({FEATURE} {FEATURE_LEVEL}, Kafka "
                f"4.0); these have {FEATURE} {level}. Without it a delayed message of one "
                "transaction may end the next one, and predictions be lost in silence. Raise it "
                f"(kafka-features.sh upgrade --feature {FEATURE}={FEATURE_LEVEL}), or set "
                "kafka.transactions: false: then each leaves at least once, keyed by its id."
            )

    def _send(self, records: list[tuple[str, Record]], positions: Mapping[Partition, int]) -> None:
        """Send and commit what no committed transaction holds yet."""
        self._prepare()
        committed = self._committed(positions or self._own)
        ahead = {each: at for each, at in positions.items() if at > committed[each]}
        left = [i for i, (_, each) in enumerate(records) if self._is_left(each, committed)]
        if not ahead and not left:
            return
        producer, self._producer = self._producer, None
        try:
            self._refused = None
            producer.begin_transaction()
            for i in left:
                self._produce(producer, records, i, records[i][0])
            self._await_delivery(producer)
            mark = f"{self._mark()}; run {self._run_id}"
            offsets = [TopicPartition(*each, at, mark) for each, at in ahead.items()]
            if offsets:
                group = self._offsets.consumer_group_metadata()
                producer.send_offsets_to_transaction(offsets, group, CALL_TIMEOUT_S)
            self._is_unsure = True
            producer.commit_transaction(CALL_TIMEOUT_S)
        except (KafkaException, BufferError, SinkError):
            self._count("aborted")
            producer.purge()
            raise
        self._own |= ahead
        self._is_unsure = False
        self._count("committed")

    def _is_left(self, record: Record, committed: Mapping[Partition, int]) -> bool:
        """Return whether no committed offset says that a record is in its topic."""
        if record.place is None or self._is_foreign(record):
            return True
        partition, offset = record.place
        return offset >= committed.get(partition, 0)

    def _await_delivery(self, producer: Any) -> None:
        """Wait for all acknowledgements; after a refusal no others come."""
        until_s = self._clock() + CALL_TIMEOUT_S
        while producer.flush(0.1):
            if self._clock() >= until_s:
                raise SinkError(f"{self._no_answer}, and that the topics of the outputs exist")
            if self._refused is not None:
                break
        if self._refused is not None:
            # Once what was too large is short, the others may share batches again.
            self._is_each_alone, self._is_shortened = not self._is_shortened, False
            raise SinkError(self._refused)

    def _produce(
        self, producer: Any, records: list[tuple[str, Record]], i: int, topic: str
    ) -> None:
        """Give the library a record; one refused as too large stands there by its short form."""
        record = records[i][1]
        refused = partial(self._note_refused, records, i)
        try:
            producer.produce(topic, record.value, record.key or None, on_delivery=refused)
        except KafkaException as error:
            if error.args[0].code() != _TOO_LARGE:
                raise
            short = record.short or shortened(record)
            if short is None:
                raise SinkError(_too_large(topic, record)) from error
            self._shorten(records, i, short)
            self._produce(producer, records, i, topic)

    def _note_refused(
        self, records: list[tuple[str, Record]], i: int, error: KafkaError | None, _: Any
    ) -> None:
        """Note a record that the topic refused as too large; shorten it if it came alone."""
        topic, record = records[i]
        if error is None or error.code() != _TOO_LARGE:
            return
        self._refused = _too_large(topic, record)
        if not self._is_each_alone:
            self._refused = f"topic {topic!r}: a batch of records is too large: each is sent alone"
        elif (short := record.short or shortened(record)) is not None:
            self._shorten(records, i, short)
            self._is_shortened = True
            for k, (where, each) in enumerate(records):  # the topic refuses all that are as large
                as_large = where == topic and len(each.value) >= len(record.value)
                if as_large and (short := each.short or shortened(each)) is not None:
                    self._shorten(records, k, short)

    def _shorten(self, records: list[tuple[str, Record]], i: int, short: Record) -> None:
        topic, record = records[i]
        log.warning(
            "record_shortened",
            topic=topic,
            key=short.key.decode(errors="replace"),
            n_bytes=len(record.value),
            way_out="raise max.message.bytes of the topic and kafka.message_max_bytes",
        )
        with self._changed:
            self._n_bytes[topic] -= record.n_bytes - short.n_bytes
        records[i] = topic, short

    def _mark(self) -> str:
        """Return what tells our committed offsets from others': where the records went."""
        return "streamnb predictions and rejects in " + ", ".join(sorted(self._topics))

    def _committed(self, partitions: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the offset of each partition before which all records are in these topics."""
        asked = [TopicPartition(*each) for each in partitions]
        if not asked:
            return {}
        try:
            found = self._offsets.committed(asked, CALL_TIMEOUT_S)
        except KafkaException:
            # A broker that was killed right after a commit may leave the group's offsets undecided
            # (seen with 4.3.1) until the same producer commits again. We know what it was.
            if self._is_unsure or not self._own.keys() >= partitions.keys():
                raise
            return {each: self._own[each] for each in partitions}
        committed = {}
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
            partition = Partition(each.topic, each.partition)
            mark, _, run = (each.metadata or "").partition("; run ")
            if partition in self._own and run != self._run_id:
                raise self._taken_over()  # between our last transaction and this producer
            committed[partition] = each.offset if mark == self._mark() else 0
        self._is_unsure = False
        return committed


def _made(client_class: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """Return a client of librdkafka; a setting that it refuses has nothing to do with brokers."""
    try:
        return client_class(settings, logger=quiet_log("confluent_kafka"))
    except KafkaException as error:
        raise SinkError(
            f"Kafka's client refuses its settings: {error.args[0].str()}; check those that begin "
            "with kafka. in the configuration"
        ) from error


def _too_large(topic: str, record: Record) -> str:
    return (
        f"topic {topic!r}: the record {record.key!r} of {len(record.value):,} bytes is too large; "
        "raise kafka.message_max_bytes and the topic's max.message.bytes"
    )


class TransactionalSink:
    """One topic of `KafkaTransactions`, as a `Sink`."""

    n_refused = 0  # nothing is left out: what no step makes fit is waited for

    def __init__(self, transactions: KafkaTransactions, topic: str) -> None:
        self._transactions, self._topic = transactions, topic

    def add(self, records: Sequence[Record]) -> None:
        """Take records of the batch under way, waiting up to 5 s while too much is pending."""
        self._transactions.add(self._topic, records)

    @property
    def n_pending_bytes(self) -> int:
        """Size of what is not committed yet."""
        return self._transactions.n_bytes(self._topic)

    def flush(self, timeout_s: float) -> None:
        """Return once all records of whole batches are committed."""
        self._transactions.flush(timeout_s)

    def close(self) -> None:
        """Give what is pending a last second."""
        try:
            self.flush(CLOSE_TIMEOUT_S)
        except SinkError as error:
            log.warning("records_not_written", topic=self._topic, why=str(error))
