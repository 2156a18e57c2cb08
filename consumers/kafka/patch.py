"""The private parts of kafka-python that we use, each behind a check, and nowhere else.

Five faults of its version 3.0 could make reading stand still for ever. `require_privates` checks
at the start that what mends two of them is there, since nothing else would, as `require_sender`
does for sending; `keep_refreshing` mends one. Two, in what all clients of a process share, are
mended when this module is imported. Any other is told by `tell_failures`. The rest is about speed:
without it the library reads the same messages, but slower. Each part has a test, most with a real
broker.

The library makes a `PartitionRecords` of each response. `replace_decoder` puts our class, which
returns columns, in its place if two things hold: the library is of a known version, and a few
batches, written by the library itself, come out of both classes alike.
"""

from __future__ import annotations

import functools
import inspect
import ssl
import struct
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import kafka
from crc32c import crc32c
from kafka import KafkaProducer, TopicPartition
from kafka.cluster import ClusterMetadata
from kafka.consumer.fetcher import Fetcher
from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, RequestTimedOutError
from kafka.net.selector import Task
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.producer.sender import Sender
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import IsolationLevel
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.schemas import StructField
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from consumers.kafka.client import does_not_fit, from_kafka_python
from consumers.kafka.fetch_columns import ColumnRecords
from consumers.messages import Partition

# The versions whose private parts were read.
_FROM: Final = (3, 0, 12)
_BELOW: Final = (3, 1)

# What the library fails of while a broker is away, or a certificate's file; no fault of its own.
OUTAGES: Final = (KafkaError, OSError)

PIECE_BYTES: Final = 1 << 18
_Received = TypeVar("_Received", bytes, int)


def is_known() -> bool:
    """Return whether the library is of a version whose private parts were read."""
    parts = tuple(int(part) for part in kafka.__version__.split(".")[:3] if part.isdigit())
    return _FROM <= parts < _BELOW


# -- what reading could stand still without ---------------------------------------------------


class Privates(NamedTuple):
    """A consumer's private parts, after the check that they have what we use."""

    coordinator: Any
    fetcher: Any


def require_privates(consumer: Any) -> Privates:
    """Return a consumer's private parts; a missing one is a `ConfigError`."""
    coordinator, fetcher = (getattr(consumer, name, None) for name in ("_coordinator", "_fetcher"))
    if not callable(getattr(coordinator, "request_rejoin", None)):
        raise does_not_fit("the consumer has no _coordinator.request_rejoin")
    if not hasattr(fetcher, "_next_partition_records"):
        raise does_not_fit("the consumer has no _fetcher._next_partition_records")
    if not callable(getattr(fetcher, "_handle_fetch_response", None)):
        raise does_not_fit("the consumer has no _fetcher._handle_fetch_response")
    if not callable(getattr(getattr(fetcher, "PartitionRecords", None), "drain", None)):
        raise does_not_fit("the consumer has no _fetcher.PartitionRecords.drain")
    return Privates(coordinator, fetcher)


def drop_broken_batch(fetcher: Any) -> Partition | None:
    """Make the library forget the batch it failed on; return its partition if there is one.

    The library keeps the failed batch's iterator, which then yields nothing for ever, and the next
    poll would not return, whatever its timeout. A seek to another offset frees it; one to the same
    offset, which is the right one, does not.
    """
    broken = fetcher._next_partition_records  # noqa: SLF001
    if not broken:
        return None
    broken.drain()
    return Partition(*broken.topic_partition)


def _compile_in_turn() -> None:
    """Let one thread at a time make what reads a kind of response: its class, and how it decodes.

    The library does both when the first response of a kind and version comes, for all threads.

    While it compiles, it changes what it keeps of the kind. Where a second client's thread did the
    same in between, it kept code that fails for ever: neither client could read any response of the
    kind again. Its encoders change nothing.

    It keeps the class of a version, and finds it by a weak reference to the one made last. Of two
    that are made at once it may keep the other: once the last one was collected, no client of the
    process could read the kind, and a new client failed as the old one had.

    A version without these parts goes on as it is.
    """
    turn = threading.RLock()
    for owner, name in ((StructField, "compiled_decode_from"), (type(ApiMessage), "__getitem__")):
        if hasattr(owner, name):
            setattr(owner, name, _in_turn(turn, getattr(owner, name)))


def _in_turn(turn: threading.RLock, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def ours(*args: Any, **kwargs: Any) -> Any:
        with turn:
            return method(*args, **kwargs)

    return ours


_compile_in_turn()


def make_no_topics(net: Any) -> None:
    """Keep the broker from creating a topic because we asked for it.

    The library drops its own setting `allow_auto_create_topics` on the way, so a mistyped name
    would become an empty topic on brokers that create topics by themselves. A network client
    without that setting is a `ConfigError`.
    """
    config = getattr(getattr(net, "cluster", None), "config", {})
    if "allow_auto_create_topics" not in config:
        raise does_not_fit("its cluster has no setting allow_auto_create_topics")
    config["allow_auto_create_topics"] = False


def keep_refreshing(net: Any) -> None:
    """Have a client refresh what it knows of the cluster for as long as it lives.

    The library's loop ends for ever if a refresh fails that it only waits for, or of what is no
    `KafkaError`, as a certificate's file that is away: then partitions that are led elsewhere
    afterwards would never be read again. A client without these parts goes on as it is.
    """
    cluster: Any = getattr(net, "cluster", None)
    manager: Any = getattr(net, "_manager", None)
    name = "_refresh_loop"
    refresh = getattr(cluster, name, None)
    if refresh is None or not hasattr(manager, "bootstrapped") or not hasattr(cluster, "closed"):
        return

    async def refresh_on() -> None:
        while True:
            try:
                await refresh()
            except OUTAGES:
                if cluster.closed or not manager.bootstrapped:
                    raise
            else:
                return

    setattr(cluster, name, refresh_on)


def tell_connection_errors(net: Any, tell: Callable[[BaseException], None]) -> None:
    """Call a function with what each connection of a network client fails of, time apart.

    The library itself says after `bootstrap_timeout_ms` that it could not connect, and not why. A
    client without these parts goes on as it is.
    """
    manager = getattr(net, "_manager", None)
    get_connection = getattr(manager, "get_connection", None)
    if get_connection is None:
        return

    def tell_fault(error: BaseException) -> None:
        if not isinstance(error, KafkaTimeoutError | RequestTimedOutError):
            tell(error)

    def get_ours(*args: Any, **kwargs: Any) -> Any:
        connection = get_connection(*args, **kwargs)
        made = getattr(connection, "init_future", None)
        if made is not None:
            made.add_errback(tell_fault)
        return connection

    manager.get_connection = get_ours  # type: ignore[union-attr]


def tell_failures(net: Any, tell: Callable[[Exception], None]) -> None:
    """Call a function with each error that ends a task of a network client, on the task's thread.

    The library only logs it, and goes on without the task, even if that read from a connection. A
    task whose result is awaited may raise one of `OUTAGES`, or a `KeyError` of a partition that was
    taken away while its position was checked: those are not told. A network client without these
    parts is a `ConfigError`.
    """
    selector = getattr(net, "_net", None)
    task_done = getattr(selector, "_task_done", None)
    call_soon = getattr(selector, "call_soon_with_future", None)
    if not callable(task_done) or not isinstance(getattr(Task, "exception", None), property):
        raise does_not_fit("its network client has no _net._task_done with the task's exception")
    if not callable(call_soon):
        raise does_not_fit("its network client has no _net.call_soon_with_future")

    def tell_ours(error: BaseException | None) -> None:
        is_closed = getattr(getattr(net, "_manager", None), "closed", False)
        if isinstance(error, Exception) and not is_closed:
            tell(error)

    def task_done_ours(task: Any) -> None:
        task_done(task)
        tell_ours(task.exception)

    def tell_awaited(error: BaseException) -> None:
        missed = error.args if isinstance(error, KeyError) else ()
        is_gone = any(isinstance(each, TopicPartition) for each in missed)
        if not is_gone and not isinstance(error, OUTAGES):
            tell_ours(error)

    def call_soon_ours(*args: Any) -> Any:
        return call_soon(*args).add_errback(tell_awaited)

    for name, ours in (("_task_done", task_done_ours), ("call_soon_with_future", call_soon_ours)):
        setattr(selector, name, ours)


def tell_raised(owner: Any, name: str, tell: Callable[[Exception], None]) -> None:
    """Call a function with each error that a method of a client's part raises.

    The library only logs it. A fetcher fetches the same again, for ever; a sender may lose track of
    its records.
    """
    method = getattr(owner, name)

    def ours(*args: Any) -> Any:
        try:
            return method(*args)
        except Exception as error:
            tell(error)
            raise

    setattr(owner, name, ours)


def require_sender() -> None:
    """Check that producers have what we watch and end them by; what is missing is a `ConfigError`.

    Without it an internal error would end all sending, and nothing would say so.
    """
    if "_sender" not in KafkaProducer.__init__.__code__.co_names:
        raise does_not_fit("the producer has no _sender")
    for owner, names in (
        (Sender, ("run_once", "_handle_produce_response", "force_close")),
        (ClusterMetadata, ("update_metadata", "topic_id")),
    ):
        for name in names:
            if not callable(getattr(owner, name, None)):
                raise does_not_fit(f"{owner.__name__} has no method {name}")


def sender_of(producer: Any) -> Any:
    """Return the part of a producer that sends; see `require_sender`."""
    return vars(producer)["_sender"]


def end_sending(producer: Any) -> None:
    """Have a producer that could not be closed fail what it has not sent, and close."""
    sender_of(producer).force_close()


def close_abandoned_sockets(net: Any) -> None:
    """Make a network client close, at its end, the sockets of connections that are still under way.

    The library forgets them: they stay open until they are collected. A client without these parts
    goes on as it is.
    """
    selector = getattr(net, "_net", None)
    unregister = getattr(selector, "unregister_event", None)
    if unregister is None:
        return

    def unregister_ours(socket: Any, event: int) -> None:
        unregister(socket, event)
        if getattr(selector, "_closed", False):  # nobody will wait for it again
            socket.close()

    selector.unregister_event = unregister_ours  # type: ignore[union-attr]


def require_topic_ids(net: Any) -> Any:
    """Return what a network client knows of the cluster; without topic ids, a `ConfigError`."""
    cluster = getattr(net, "cluster", None)
    if not callable(getattr(cluster, "topic_id", None)):
        raise does_not_fit("its cluster has no method topic_id")
    return cluster


def topic_id_of(cluster: Any, topic: str) -> str | None:
    """Return a topic's id by the newest metadata, as Kafka's own tools write it.

    None: the brokers know no ids, or the topic is away.
    """
    found = cluster.topic_id(topic)
    return urlsafe_b64encode(found.bytes).rstrip(b"=").decode() if found and found.int else None


# -- large responses ---------------------------------------------------------------------------


def receive_in_large_pieces(net: Any) -> str | None:
    """Make the connections of a network client that has none yet read large pieces.

    Those of TLS also hand over what came before the end: with the library's own method a broker's
    answer to a wrong password is lost, as the broker closes the connection right behind it. Returns
    why it goes on in small pieces; None if it reads large ones.
    """
    manager = getattr(net, "_manager", None)
    build = getattr(manager, "_build_transport", None)
    receivers = [vars(each).get("_sock_recv") for each in (KafkaTCPTransport, KafkaSSLTransport)]
    if not inspect.iscoroutinefunction(build):
        return "its connection manager has no coroutine _build_transport"
    for each in receivers:
        if each is None or list(inspect.signature(each).parameters) != ["self"]:
            return "its transport has no method _sock_recv without parameters"
    if not {"_receiving", "_rbuffer"} <= vars(KafkaProtocol()).keys():
        return "its parser has no _receiving and _rbuffer"
    ours = {KafkaTCPTransport: LargePieces, KafkaSSLTransport: LargeTlsPieces}

    async def build_ours(*args: Any, **kwargs: Any) -> Any:
        transport = await build(*args, **kwargs)
        transport.__class__ = ours.get(type(transport), type(transport))
        return transport

    manager._build_transport = build_ours  # type: ignore[union-attr]  # noqa: SLF001
    return None


class LargePieces(KafkaTCPTransport):  # type: ignore[misc]  # the library has no types
    """A connection that copies a large response once instead of seven times.

    The library receives 4,096 bytes at a time, joins them, and copies what it has thrice into the
    response and thrice out of it. Here they are received where they stay.
    """

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        """Return what there is to read; if there is nothing, what ended the connection, if it did.

        Of a response that has begun all but the last byte is put into its place, not returned.
        """
        parser = self._protocol.parser
        if type(parser) is KafkaProtocol:
            parser.__class__ = ResponseParser
        # TLS hands over one record at a time; what it keeps behind that shows in no `select`.
        is_plain = not isinstance(self, KafkaSSLTransport)
        pieces: list[bytes] = []
        error: Exception | None = None
        try:
            parser.fill_from(self._sock)
            while not pieces or not is_plain or len(pieces[-1]) == PIECE_BYTES:
                pieces.append(_not_at_end(self._sock.recv(PIECE_BYTES)))
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as ended:
            error = KafkaConnectionError(ended)
        return b"".join(pieces), None if pieces else error


class LargeTlsPieces(LargePieces, KafkaSSLTransport):  # type: ignore[misc]  # it has no types
    """The same over TLS."""


class ResponseParser(KafkaProtocol):  # type: ignore[misc]  # the library has no types
    """Cuts what is received into responses; what is large need not come by `receive_bytes`."""

    def fill_from(self, sock: Any) -> None:
        """Receive the response that has begun, if any, but for the byte that completes it."""
        if not self._receiving:
            return
        self._rbuffer.__class__ = Response
        with memoryview(self._rbuffer) as memory:
            while (begin := self._rbuffer.tell()) < len(memory) - 1:
                self._rbuffer.seek(begin + _not_at_end(sock.recv_into(memory[begin:-1])))


class Response(KafkaBytes):  # type: ignore[misc]  # the library has no types
    """The bytes of a response, decoded where they lie."""

    def read(self, nbytes: int | None = None) -> Any:
        """Return the next bytes, or a view of all that are left."""
        return memoryview(self)[self.tell() :] if nbytes is None else super().read(nbytes)


def _not_at_end(received: _Received) -> _Received:
    """Return what a socket gave, bytes or their number; raise if it was at its end."""
    if not received:
        raise ConnectionResetError("the broker closed the connection")
    return received


# -- columns instead of records ---------------------------------------------------------------

_Pairs = Sequence[tuple[bytes | None, bytes | None]]

_SAMPLE_PARTITION: Final = TopicPartition("self-check", 0)
_SAMPLE_TIME_MS: Final = 1_700_000_000_000
_ABORTED, _COMMITTED = 7, 8  # producers
_ABORT: Final = ((b"\0\0\0\0", b"\0" * 6),)  # a marker's key: version 0, type 0
_COMMIT: Final = ((b"\0\0\0\1", b"\0" * 6),)
_PAIRS: Final = ((b"key", b"value"), (None, b"no key"), (b"", b""), (b"gone", None))
_HEADERS: Final = (("name", b"value"), ("null", None))


def replace_decoder(fetcher: Any) -> str | None:
    """Make the fetcher of a consumer that has not polled yet return columns, if that is safe.

    Returns why it goes on returning records; None if it returns columns.
    """
    if not is_known():
        return f"kafka-python is {kafka.__version__}; columns were made for 3.0, from 3.0.12 on"
    why = difference(ColumnRecords)
    if why is None:
        fetcher.PartitionRecords = ColumnRecords
    return why


def difference(records_class: Any) -> str | None:
    """Return where a class decodes the sample otherwise than the library's own; None if nowhere.

    The sample holds what a log can hold without further packages: nulls and empty parts, headers,
    the log's own times, a compressed batch, an aborted transaction with its marker, and damage at
    the end.
    """
    try:
        sample = _sample()
        for fetch_offset in (0, 2, 15, 40):
            ours = _decoded(records_class, sample, fetch_offset)
            if ours != _decoded(Fetcher.PartitionRecords, sample, fetch_offset):
                return f"a sample read from offset {fetch_offset} does not come out the same"
    except Exception as error:  # noqa: BLE001 - a private class may have become anything
        return f"a sample could not be read: {error!r}"
    return None


class _AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


def _decoded(records_class: Any, sample: bytes, fetch_offset: int) -> list[Any]:
    """Return all that a class makes of the sample, and how it ends, as values to compare."""
    records = records_class(
        fetch_offset,
        _SAMPLE_PARTITION,
        MemoryRecords(sample),
        key_deserializer=None,
        value_deserializer=None,
        check_crcs=True,
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=[_AbortedTransaction(_ABORTED, 30)],
        metric_aggregator=None,
        on_drain=lambda _: None,
    )
    found: list[Any] = []
    while records:
        try:
            taken = records.take(3)
        except KafkaError as error:
            found.append(type(error))
            break
        if len(taken) == 0:
            break
        columns = from_kafka_python(Partition(*_SAMPLE_PARTITION), list(taken))
        found += zip(columns.offsets.tolist(), columns.times_ms.tolist(), strict=True)
        found += [(columns.key(i), columns.value(i)) for i in range(len(columns))]
    return [*found, records.next_fetch_offset, records.leader_epoch, bool(records)]


def _sample() -> bytes:
    """Return the batches; the last one is damaged."""
    flags = DefaultRecordBatch
    damaged = bytearray(_batch(60, _PAIRS))
    damaged[-1] ^= 1
    return b"".join(
        (
            _batch(0, _PAIRS, headers=_HEADERS),
            _batch(4, [(None, b"x" * 200)], flags=flags.TIMESTAMP_TYPE_MASK),
            _batch(10, _PAIRS * 5, flags=flags.CODEC_GZIP),
            _batch(30, _PAIRS, producer=_ABORTED),
            _batch(34, _PAIRS, producer=_COMMITTED),
            _batch(38, _ABORT, producer=_ABORTED, flags=flags.CONTROL_MASK),
            _batch(39, _COMMIT, producer=_COMMITTED, flags=flags.CONTROL_MASK),
            _batch(40, _PAIRS, producer=_ABORTED),
            damaged,
        )
    )


def _batch(
    first_offset: int,
    pairs: _Pairs,
    *,
    flags: int = 0,
    producer: int = -1,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """Return one batch as a broker would send it, transactional if it has a producer."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=flags & DefaultRecordBatch.CODEC_MASK,
        is_transactional=producer >= 0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for delta, (key, value) in enumerate(pairs):
        builder.append(delta, _SAMPLE_TIME_MS + delta, key, value, headers)
    batch = builder.build()
    struct.pack_into(">q", batch, 0, first_offset)
    at = DefaultRecordBatch.ATTRIBUTES_OFFSET
    batch[at + 1] |= flags
    struct.pack_into(">I", batch, DefaultRecordBatch.CRC_OFFSET, crc32c(memoryview(batch)[at:]))
    return bytes(batch)
