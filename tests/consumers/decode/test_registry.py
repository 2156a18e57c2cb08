"""A schema registry that is late, in trouble or hostile costs no message and shows no secret."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from consumers.config.message import RegistrySettings
from consumers.errors import RegistryError
from consumers.messages import Reason
from tests.broker.secure import Certificates
from tests.consumers.decode.test_schemas import POST, Time, decoder_of, post, rejected
from tests.consumers.raw_batches import raw, strings
from tests.consumers.sources.live_server import LiveServer, Peer
from tests.schema_registry import RegistryServer

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    """Return a registry that runs."""
    with RegistryServer() as server:
        yield server


@pytest.fixture
def clock() -> Time:
    """Return a clock that stands."""
    return Time()


def test_an_unknown_id_is_rejected_after_its_time(registry: RegistryServer, clock: Time) -> None:
    """An id that the registry does not know is waited for, once; then its messages are rejected."""
    decoder, batch = decoder_of("avro", registry, clock), raw([post(1, "a", schema=7)])
    for now_s in (0.0, 2.0, 4.9):
        clock.now_s = now_s
        with pytest.raises(RegistryError, match="has no schema 7 yet") as error:
            decoder.decode(batch)
        assert 0 < error.value.pause_s <= 0.5
    clock.now_s = 5.0
    assert rejected(decoder.decode(batch)) == [(Reason.NO_SCHEMA, batch.value(0))]
    n_asked = len(registry.asked)
    assert rejected(decoder.decode(batch)) == [(Reason.NO_SCHEMA, batch.value(0))]
    assert len(registry.asked) == n_asked  # it is known to be unknown
    clock.now_s = 66.0
    assert len(decoder.decode(batch).rejects) == 1  # asked again, not waited for again
    assert len(registry.asked) == n_asked + 1
    registry.register(7, json.dumps(POST))
    clock.now_s = 130.0
    assert strings(decoder.decode(batch).texts) == ["a"]


def test_an_id_that_comes_late(registry: RegistryServer, clock: Time) -> None:
    """A registry that hears of a schema after the topic loses no message."""
    decoder, batch = decoder_of("avro", registry, clock), raw([post(1, "a")])
    with pytest.raises(RegistryError):
        decoder.decode(batch)
    registry.register(1, json.dumps(POST))
    assert strings(decoder.decode(batch).texts) == ["a"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b""), (503, b"busy"), (429, b""), (401, b"{}"), (403, b'{"error_code":40301}'),
        (404, b"<h1>Not Found</h1>"), (200, b"<h1>Hello</h1>"), (200, b'{"schema":1}'), (302, b""),
        (200, b"\xff"), (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}'),
        (400, b'{"error_code":0}'), (200, b'{"schema":"x","y":%s}' % DEEP), (404, DEEP),
    ],
)  # fmt: skip
def test_a_registry_in_trouble_loses_nothing(
    registry: RegistryServer, clock: Time, status: int, body: bytes
) -> None:
    """Whatever a registry answers but that it has no such schema: the batch is tried again.

    The pauses grow up to their bound, and the login goes to no other place.
    """
    registry.register(1, json.dumps(POST))
    registry.status, registry.body = status, body
    more = {"user": "u", "password": "marked and secret", "retry_pause_max_s": 1.0}
    decoder, batch = decoder_of("avro", registry, clock, registry=more), raw([post(1, "a")])
    pauses = []
    for _ in range(6):
        with pytest.raises(RegistryError) as error:
            decoder.decode(batch)
        assert "marked" not in str(error.value)
        assert registry.url in str(error.value)
        pauses.append(error.value.pause_s)
        clock.now_s += 100.0
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert set(registry.asked) == {"/schemas/ids/1"}
    registry.status = None
    assert strings(decoder.decode(batch).texts) == ["a"]


def test_a_redirect_to_nowhere(registry: RegistryServer, clock: Time) -> None:
    """An address that is none, in a redirect, ends nothing."""
    registry.status, registry.location = 302, "http://[::1"
    with pytest.raises(RegistryError):
        decoder_of("avro", registry, clock).decode(raw([post(1, "a")]))


def test_a_server_that_repeats_the_login(clock: Time) -> None:
    """What a server says of itself, be it no HTTP, stands in no error: it may hold the secret."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                asked = connection.recv(1 << 16)
                connection.sendall(b"you sent " + asked.partition(b"Bearer ")[2])

        thread = threading.Thread(target=answer)
        thread.start()
        more = {"url": f"http://127.0.0.1:{server.getsockname()[1]}", "token": "sekret"}
        with pytest.raises(RegistryError) as error:
            decoder_of("avro", None, clock, registry=more).decode(raw([post(1, "a")]))
        thread.join()
    assert "sekret" not in str(error.value)
    assert "BadStatusLine" in str(error.value)


@pytest.mark.parametrize(
    "more", [{"token": "sek\nret"}, {"token": "sekrét"}, {"url": "http://h/ä"}]
)
def test_what_no_header_can_hold_is_refused(more: dict[str, str]) -> None:
    """A token or an address that HTTP cannot send is a mistake of the configuration."""
    with pytest.raises(ValueError, match=r"ASCII|must be an address"):
        RegistrySettings.model_validate({"url": "http://h", **more})


def test_an_outage_is_no_time_of_being_unknown(registry: RegistryServer, clock: Time) -> None:
    """An id that was unknown before an outage gets its whole time after it."""
    decoder, batch = decoder_of("avro", registry, clock), raw([post(1, "a")])
    for status in (None, 500, None):
        registry.status = status
        with pytest.raises(RegistryError):
            decoder.decode(batch)
        clock.now_s += 100.0
    registry.register(1, json.dumps(POST))
    assert strings(decoder.decode(batch).texts) == ["a"]


def test_a_registry_that_is_down(clock: Time) -> None:
    """Nobody listens: the batch is tried again, and found once somebody does."""
    with RegistryServer() as server:
        decoder = decoder_of("avro", server, clock)
    with pytest.raises(RegistryError, match="Connection refused"):
        decoder.decode(raw([post(1, "a")]))


@pytest.mark.parametrize(
    ("login", "sent"),
    [
        ({}, None),
        ({"user": "ann", "password": "p\u00e4ss:w"}, "Basic YW5uOnDDpHNzOnc="),
        ({"token": "abc"}, "Bearer abc"),
    ],
)
def test_logins(
    registry: RegistryServer, clock: Time, login: Mapping[str, str], sent: str | None
) -> None:
    """The login of the settings is sent along."""
    registry.register(1, json.dumps(POST))
    decoder_of("avro", registry, clock, registry=login).decode(raw([post(1, "a")]))
    assert registry.logins == [sent]


def test_certificates_are_checked(clock: Time, tmp_path: Path) -> None:
    """A registry whose certificate is a stranger's or another host's gets no login; with the right
    authority named it is asked.
    """
    files = Certificates(tmp_path / "certificates")
    for name, trusted, why in (
        ("broker", files.stranger, "issuer|self.signed"),
        ("elsewhere", files.authority, "mismatch"),
        ("broker", files.authority, None),
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.chain(name))
        with RegistryServer(context) as server:
            server.register(1, json.dumps(POST))
            more = {"ssl_cafile": str(trusted), "token": "abc"}
            decoder, batch = decoder_of("avro", server, clock, registry=more), raw([post(1, "a")])
            if why is None:
                assert strings(decoder.decode(batch).texts) == ["a"]
                assert server.logins == ["Bearer abc"]
            else:
                with pytest.raises(RegistryError, match=f"certificate is refused: .*({why})"):
                    decoder.decode(batch)
                assert server.asked == []


def test_kept_schemas_are_bounded(registry: RegistryServer, clock: Time) -> None:
    """At most `schemas_max` are kept; the one that was not used for longest leaves."""
    for name in range(1, 5):
        registry.register(name, json.dumps(POST))
    decoder = decoder_of("avro", registry, clock, registry={"schemas_max": 2})
    for name in (1, 2, 1, 3, 1, 2):
        decoder.decode(raw([post(name, "a", schema=name)]))
    assert registry.asked == [f"/schemas/ids/{name}" for name in (1, 2, 3, 2)]
    # A batch of more of them than are kept is read all the same.
    batch = raw([post(name, f"t{name}", schema=name) for name in range(1, 5)])
    assert strings(decoder.decode(batch).texts) == ["t1", "t2", "t3", "t4"]


def test_more_unknown_ids_than_are_kept(registry: RegistryServer, clock: Time) -> None:
    """A batch full of unknown ids is waited for once, however few are kept."""
    decoder = decoder_of("avro", registry, clock, registry={"schemas_max": 1})
    batch = raw([post(1, "a", schema=name) for name in range(1, 6)])
    with pytest.raises(RegistryError):
        decoder.decode(batch)
    clock.now_s = 5.0
    assert [each.reason for each in decoder.decode(batch).rejects] == [Reason.NO_SCHEMA] * 5


def test_a_large_value_is_not_read(registry: RegistryServer, clock: Time) -> None:
    """`max_bytes` counts the bytes as they came; such a value asks no registry."""
    decoder = decoder_of("avro", registry, clock, max_bytes=64)
    messages = decoder.decode(raw([post(1, "a" * 100)]))
    assert [each.reason for each in messages.rejects] == [Reason.TOO_LARGE]
    assert registry.asked == []


def test_a_registry_that_drips_is_given_up(clock: Time) -> None:
    """A request has one bound of time, however often the registry sends a byte of its head."""

    def drip(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nX: ")
        is_over = threading.Event()
        for _ in range(1_000):
            peer.send(b"a")
            is_over.wait(0.02)

    with LiveServer(drip) as server:
        more = {"url": f"http://{server.host}", "timeout_s": 0.2}
        decoder = decoder_of("avro", None, clock, registry=more)
        with pytest.raises(RegistryError, match=r"not whole in time.*registry.timeout_s: 0.2"):
            decoder.decode(raw([post(1, "a")]))


def test_settings_keep_secrets() -> None:
    """What the settings say of themselves has no secret."""
    settings = RegistrySettings.model_validate({"url": "http://h", "user": "u", "password": "hid"})
    assert "hid" not in repr(settings) + settings.model_dump_json()
