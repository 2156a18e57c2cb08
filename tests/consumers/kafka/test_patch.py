"""Our decoder in the client's place: only where it is safe, and the log says where it is not."""

from __future__ import annotations

import gc
import itertools
import select
import socket
import struct
import threading
import tomllib
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kafka
import numpy as np
import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.cluster import ClusterMetadata
from kafka.consumer.fetcher import Fetcher
from kafka.errors import KafkaError, NodeNotReadyError
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector, Task
from kafka.net.transport import KafkaTCPTransport
from kafka.producer.sender import Sender
from kafka.protocol.api_data import JsonSchemaData
from kafka.protocol.api_header import RequestHeader, ResponseClassRegistry
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.schemas import StructField
from structlog.testing import capture_logs

from consumers.config.addresses import KafkaSettings
from consumers.errors import ConfigError
from consumers.kafka import patch
from consumers.kafka.client import KAFKA_PYTHON, Connecting, client_settings
from consumers.kafka.fetch_columns import ColumnRecords
from consumers.kafka.kafka_python import KafkaPythonClient
from consumers.kafka.patch import (
    LargePieces,
    close_abandoned_sockets,
    keep_refreshing,
    make_no_topics,
    receive_in_large_pieces,
    require_privates,
    tell_failures,
)
from consumers.kafka.producers import KafkaSink
from consumers.kernels import record_batch as rb
from streamnb.kernels import warm_up

STOCK = Fetcher.PartitionRecords
STOCK_RECEIVE = KafkaTCPTransport._sock_recv
STOCK_BUILD = KafkaConnectionManager._build_transport
PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Compile the kernels, as a connection does."""
    warm_up()


def test_two_clients_may_read_a_kind_of_response_first_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second begins while the first compiles, and goes on once the first is done."""
    kind = ApiVersionsResponse
    response = bytes(kind(version=0, error_code=0, api_keys=[]).encode())
    emit = StructField.emit_decode_from
    first_compiles, second_compiles, first_is_done = (threading.Event() for _ in range(3))
    read: dict[str, Any] = {}

    def emit_ours(*args: Any, **kwargs: Any) -> None:
        if threading.current_thread().name == "first":
            first_compiles.set()
            second_compiles.wait(0.2)  # which it must not
        else:
            second_compiles.set()
            assert first_is_done.wait(60.0)
        emit(*args, **kwargs)

    def decode() -> None:
        name = threading.current_thread().name
        read[name] = kind.decode(response, version=0)
        if name == "first":
            first_is_done.set()

    monkeypatch.setattr(StructField, "emit_decode_from", emit_ours)
    monkeypatch.setattr(kind._struct, "_compiled_encoders", {})
    monkeypatch.setattr(kind._struct, "_data_class", weakref.proxy(kind))
    first, second = (threading.Thread(target=decode, name=name) for name in ("first", "second"))
    first.start()
    assert first_compiles.wait(60.0)
    second.start()
    for each in (first, second):
        each.join(60.0)
    assert read["first"] == read["second"] == kind.decode(response, version=0)


def test_two_clients_may_need_a_version_of_a_response_first_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The class that the library remembers, by a weak reference, is the one that is kept."""
    kind, make = ApiVersionsResponse, JsonSchemaData.__new__
    header = RequestHeader(request_api_key=kind.API_KEY, request_api_version=1)
    first_makes, second_is_done = threading.Event(), threading.Event()

    def make_ours(*args: Any, **kwargs: Any) -> type:
        made: type = make(*args, **kwargs)  # and remembered
        if threading.current_thread().name == "first":
            first_makes.set()
            second_is_done.wait(0.2)  # which it must not be
        return made

    def find() -> None:
        header.get_response_class()
        if threading.current_thread().name == "second":
            second_is_done.set()

    monkeypatch.setattr(kind, "_VERSIONS", {})
    # What it remembers of these versions is gone with them.
    monkeypatch.setitem(
        ResponseClassRegistry._response_class_registry, kind.API_KEY, weakref.proxy(kind)
    )
    monkeypatch.setattr(JsonSchemaData, "__new__", make_ours)
    first, second = (threading.Thread(target=find, name=name) for name in ("first", "second"))
    first.start()
    assert first_makes.wait(60.0)
    second.start()
    for each in (first, second):
        each.join(60.0)
    gc.collect()
    assert header.get_response_class() is kind[1]


class StubFetcher:
    """What the patch touches of a consumer's fetcher."""

    PartitionRecords = STOCK

    @property
    def decoder(self) -> Any:
        """Return the class that would read its responses."""
        return self.PartitionRecords


def test_the_installed_client_fits() -> None:
    """The version of the client that is installed is given our class."""
    fetcher = StubFetcher()
    assert patch.replace_decoder(fetcher) is None
    assert fetcher.decoder is ColumnRecords


@pytest.mark.parametrize("version", ["3.0.11", "3.1.0", "3.1.0.dev0", "4.0", "unknown"])
def test_another_version_is_left_alone(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that columns were not made for keeps its own class, and the reason says so."""
    monkeypatch.setattr(kafka, "__version__", version)
    fetcher = StubFetcher()
    assert f"kafka-python is {version}" in (patch.replace_decoder(fetcher) or "")
    assert fetcher.decoder is STOCK


def test_a_client_that_reads_otherwise_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the samples do not come out the same, or not at all, the client keeps its class."""
    fetcher = StubFetcher()
    with monkeypatch.context() as patched:
        patched.setattr(rb, "LAST_OFFSET", rb.FIRST_OFFSET)
        assert "does not come out the same" in (patch.replace_decoder(fetcher) or "")
    monkeypatch.setattr(Fetcher.PartitionRecords, "take", None)
    assert "could not be read" in (patch.difference(ColumnRecords) or "")
    assert fetcher.decoder is STOCK


def test_falling_back_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of the log says that messages are read one by one, and why."""
    monkeypatch.setattr(kafka, "__version__", "3.1.0")
    client = KafkaPythonClient(["127.0.0.1:1"], "topic", KafkaSettings(), lambda: 0.0)
    with capture_logs() as said:
        assert client._choose_decoder(StubFetcher()) == "records"
    (line,) = said
    assert (line["event"], line["log_level"]) == ("kafka_decoded_slowly", "warning")
    assert "kafka-python is 3.1.0" in line["why"]


def test_records_can_be_asked_for() -> None:
    """With `kafka.decode: records` the client keeps its class, and nothing is said."""
    settings = KafkaSettings(decode="records")
    client = KafkaPythonClient(["127.0.0.1:1"], "topic", settings, lambda: 0.0)
    fetcher = StubFetcher()
    with capture_logs() as said:
        assert client._choose_decoder(fetcher) == "records"
    assert (said, fetcher.decoder) == ([], STOCK)


@contextmanager
def connected(net: Any) -> Iterator[tuple[Any, socket.socket]]:
    """Yield the transport of a connection that a network client makes, and its other end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        node = SimpleNamespace(host="127.0.0.1", port=listening.getsockname()[1])
        net._net.start()
        transport = net._net.run(net._manager._build_transport, node)
        other, _ = listening.accept()
        with other:
            try:
                yield transport, other
            finally:
                transport.close()
                net.close()


def net_client() -> Any:
    """Return a network client that has not connected."""
    return KafkaNetClient(bootstrap_servers=["127.0.0.1:1"])


def parsed(transport: Any, other: socket.socket, sent: bytes, cuts: list[int]) -> list[bytes]:
    """Send bytes in pieces to a connection of our own; return the responses that it finds."""
    parser = KafkaProtocol()
    found: list[bytes] = []
    parser._process_response = lambda response: found.append(bytes(response.read()))
    transport.set_protocol(SimpleNamespace(parser=parser, connection_lost=lambda _error: None))
    for begin, end in itertools.pairwise([0, *cuts, len(sent)]):
        sending = threading.Thread(target=other.sendall, args=(sent[begin:end],))
        sending.start()
        n = 0
        while n < end - begin:  # what is sent may come in several pieces, though not in more bytes
            select.select([transport._sock], [], [])
            before = parser._rbuffer.tell() if parser._receiving else 0
            received, error = transport._sock_recv()
            assert error is None
            n += len(received) + (parser._rbuffer.tell() - before if parser._receiving else 0)
            parser.receive_bytes(received)
        sending.join()
    return found


def test_responses_are_the_same_wherever_they_are_cut() -> None:
    """Several responses in one piece, and one in many, come out as they were sent."""
    rng = np.random.default_rng(4)
    responses = [rng.bytes(n) for n in (0, 1, 2, 5, 100_000, 3, 700_000, 300_000, 1)]
    sent = b"".join(struct.pack(">i", len(each)) + each for each in responses)
    net = net_client()
    assert receive_in_large_pieces(net) is None
    with connected(net) as (transport, other):
        assert parsed(transport, other, sent, []) == responses
        assert parsed(transport, other, sent, list(range(1, 40))) == responses
        for _ in range(20):
            cuts = sorted(rng.integers(0, len(sent), 6).tolist())
            assert parsed(transport, other, sent, cuts) == responses


def test_a_large_response_is_received_in_its_place() -> None:
    """Only its last byte, and what is behind it, is handed to the library to be copied."""
    net = net_client()
    assert receive_in_large_pieces(net) is None
    with connected(net) as (transport, other):
        parser = KafkaProtocol()
        transport.set_protocol(SimpleNamespace(parser=parser, connection_lost=lambda _error: None))
        other.sendall(struct.pack(">i", 50_000) + b"x")
        select.select([transport._sock], [], [])
        parser.receive_bytes(transport._sock_recv()[0])
        other.sendall(b"y" * 49_998 + b"z")
        other.shutdown(socket.SHUT_WR)
        received, error = b"", None
        while error is None:
            piece, error = transport._sock_recv()
            received += piece
        assert received == b"z"
        assert bytes(parser._rbuffer[:-1]) == b"x" + b"y" * 49_998
        assert "the broker closed the connection" in str(error)


def test_large_pieces_are_one_consumers_alone() -> None:
    """What a consumer in the same process changes, a producer's connections never see."""
    ours, theirs = net_client(), net_client()
    client = KafkaPythonClient(["127.0.0.1:1"], "topic", KafkaSettings(), lambda: 0.0)
    client._prepare(ours)
    with connected(ours) as (transport, _):
        assert type(transport) is LargePieces
    with connected(theirs) as (transport, _):
        assert type(transport) is KafkaTCPTransport
    assert KafkaTCPTransport._sock_recv is STOCK_RECEIVE
    assert KafkaConnectionManager._build_transport is STOCK_BUILD


@pytest.mark.parametrize("n_steps", range(6))
def test_no_socket_outlives_a_client_that_was_connecting(n_steps: int) -> None:
    """However far a connection has come when its client is closed, its socket is closed too."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        net = KafkaNetClient(bootstrap_servers=[f"127.0.0.1:{listening.getsockname()[1]}"])
        close_abandoned_sockets(net)
        (broker,) = net._manager.cluster.bootstrap_brokers()
        net.maybe_connect(broker.node_id)
        seen: set[socket.socket] = set()
        for _ in range(n_steps):
            net._net._poll_once(0)
            seen |= {key.fileobj for key in net._net._selector.get_map().values()}
        net.close()
        assert len(seen) == (2 if n_steps else 0)  # with the one that wakes the client up
        assert {each.fileno() for each in seen} <= {-1}


@pytest.mark.parametrize(
    ("owner", "name"),
    [(KafkaConnectionManager, "_build_transport"), (KafkaTCPTransport, "_sock_recv")],
)
def test_where_pieces_cannot_be_large_they_are_small(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private that has gone or changed is left alone; one line of the log says so."""
    client = KafkaPythonClient(["127.0.0.1:1"], "topic", KafkaSettings(), lambda: 0.0)
    monkeypatch.setattr(owner, name, lambda _one, _two: None)
    net = net_client()
    assert name in (receive_in_large_pieces(net) or "")
    with capture_logs() as said:
        client._prepare(net)
        client._prepare(net)
    (line,) = said
    assert (line["event"], line["log_level"]) == ("kafka_received_slowly", "warning")
    assert name in line["why"]
    assert "_build_transport" not in vars(net._manager)
    monkeypatch.delattr(owner, name)
    assert name in (receive_in_large_pieces(net) or "")
    net.close()


def test_a_parser_that_has_changed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what a response is received into, the connections stay the library's own."""
    monkeypatch.setattr(patch, "KafkaProtocol", SimpleNamespace)
    net = net_client()
    assert "_rbuffer" in (receive_in_large_pieces(net) or "")
    with connected(net) as (transport, _):
        assert type(transport) is KafkaTCPTransport


def whole() -> Any:
    """Return what is reached for in a consumer."""
    fetcher = SimpleNamespace(
        _next_partition_records=None, PartitionRecords=STOCK, _handle_fetch_response=print
    )
    coordinator = SimpleNamespace(request_rejoin=lambda: None)
    return SimpleNamespace(_fetcher=fetcher, _coordinator=coordinator)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("_coordinator", "_coordinator.request_rejoin"),
        ("_coordinator.request_rejoin", "_coordinator.request_rejoin"),
        ("_fetcher", "_fetcher._next_partition_records"),
        ("_fetcher._next_partition_records", "_fetcher._next_partition_records"),
        ("_fetcher._handle_fetch_response", "_fetcher._handle_fetch_response"),
        ("_fetcher.PartitionRecords", "_fetcher.PartitionRecords.drain"),
    ],
)
def test_a_private_without_which_reading_could_stand_still_is_told(name: str, said: str) -> None:
    """The error at the start names what has gone, the version and the way out."""
    require_privates(whole())
    consumer = whole()
    owner, _, last = name.rpartition(".")
    delattr(getattr(consumer, owner) if owner else consumer, last)
    with pytest.raises(ConfigError, match=rf"kafka-python [0-9.]+ .*{said}\. Install kafka-python"):
        require_privates(consumer)


@pytest.mark.parametrize("name", ["_task_done", "call_soon_with_future", "exception"])
def test_a_client_whose_tasks_cannot_be_watched_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error at the start names what has gone, and leaves the client as it is."""
    monkeypatch.delattr(Task if name == "exception" else NetworkSelector, name)
    net = SimpleNamespace(_net=NetworkSelector())
    with pytest.raises(ConfigError, match=f"_net.*{name}.*Install kafka-python"):
        tell_failures(net, list[Exception]().append)
    net._net.close()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (KafkaProducer, "__init__"),
        (Sender, "run_once"),
        (Sender, "_handle_produce_response"),
        (Sender, "force_close"),
        (ClusterMetadata, "update_metadata"),
    ],
)
def test_a_producer_that_cannot_be_watched_is_told(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error at the start names what has gone, before any broker is asked."""
    KafkaSink(["127.0.0.1:1"], "topic", KafkaSettings()).close()
    if name == "__init__":
        monkeypatch.setattr(owner, name, lambda _self: None)
        name = "_sender"
    else:
        monkeypatch.delattr(owner, name)
    with pytest.raises(ConfigError, match=rf"kafka-python .* has no .*{name}\. Install kafka-py"):
        KafkaSink(["127.0.0.1:1"], "topic", KafkaSettings())


def test_an_error_that_ends_a_task_is_told() -> None:
    """An awaited task may raise an error of Kafka or the network, or miss a partition.

    At the end none is told.
    """

    def fail(error: BaseException) -> None:
        raise error

    net, told = net_client(), list[Exception]()
    tell_failures(net, told.append)
    unseen, awaited = KafkaError("ends the reader"), KeyError("ends the heartbeat")
    gone = KeyError(TopicPartition("topic", 0))
    for error in (ConnectionResetError(), KafkaError("no broker"), GeneratorExit(), gone, awaited):
        net._net.call_soon_with_future(fail, error)
    net._net.call_soon(lambda: fail(unseen))
    net.poll(timeout_ms=0)
    assert told == [awaited, unseen]
    net._net.call_soon(lambda: fail(RuntimeError("closed")))
    net.close()
    assert told == [awaited, unseen]


def test_a_refresh_that_fails_ends_no_other() -> None:
    """The loop that refreshes metadata goes on after one that another part began, until the end."""
    net = net_client()
    keep_refreshing(net)
    cluster, manager = net.cluster, net._manager
    manager._bootstrap_future = Future().success(True)

    def poll() -> None:
        for _ in range(3):  # the loop is woken, waits, and goes on
            net.poll(timeout_ms=0)

    for error in (NodeNotReadyError("metadata"), FileNotFoundError("authority.pem")):
        cluster._refresh_future = Future()  # another part's
        cluster.request_update()
        poll()
        cluster._refresh_future.failure(error)
        poll()
        assert not cluster._refresh_loop_future.is_done
    cluster._refresh_future = Future()
    cluster.close()
    poll()
    cluster._refresh_future.failure(NodeNotReadyError("metadata"))
    poll()
    assert cluster._refresh_loop_future.is_done
    net.close()


def test_a_client_that_cannot_be_set_up_is_told_at_once() -> None:
    """Without its setting for topics a client is not tried again, and the error comes out."""

    class Client:
        DEFAULT_CONFIG = {"kafka_client": lambda **_: SimpleNamespace(cluster=None)}  # noqa: RUF012

        def __init__(self, **settings: Any) -> None:
            settings["kafka_client"]()

    settings = client_settings(["127.0.0.1:1"], KafkaSettings())
    connecting: Connecting[Client] = Connecting(Client, settings, make_no_topics)
    with pytest.raises(ConfigError, match="allow_auto_create_topics"):
        connecting.wait(30.0)
    Client.DEFAULT_CONFIG = {}
    with pytest.raises(ConfigError, match="Client has no setting kafka_client"):
        Connecting(Client, settings)


def test_an_attempt_that_cannot_be_closed_is_not_the_last() -> None:
    """Whatever letting go of a failed attempt raises, the next one is made."""
    attempts: list[int] = []

    class Net:
        def close(self) -> None:
            raise RuntimeError("amid a poll")

    class Client:
        DEFAULT_CONFIG = {"kafka_client": lambda **_: Net()}  # noqa: RUF012

        def __init__(self, **settings: Any) -> None:
            settings["kafka_client"]()
            attempts.append(1)
            if len(attempts) < 3:
                raise OSError("nobody there")

    settings = client_settings(["127.0.0.1:1"], KafkaSettings(retry_pause_max_s=0.001))
    assert Connecting(Client, settings).wait(30.0) is not None
    assert len(attempts) == 3


def test_the_version_is_that_of_the_project() -> None:
    """The way out that an error names is what the project asks for."""
    asked = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    assert KAFKA_PYTHON in asked["optional-dependencies"]["daemon"]
