"""Jetstream packed by zstd: what is unpacked is what was sent, and no frame takes much memory."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import zstandard
from pydantic import ValidationError

from consumers import web_request
from consumers.config.addresses import JetstreamSettings, LiveSettings, SourceAddress
from consumers.config.settings import Settings
from consumers.sources.base import Past
from consumers.sources.jetstream import JetstreamFeed
from consumers.sources.live import LiveSource
from tests.consumers.sources.live_server import LiveServer, Peer, commit2, frame, time_us
from tests.consumers.sources.test_live import Clock, Run, begun, playing

MIB = 1 << 20


def dictionary() -> zstandard.ZstdCompressionDict:
    """Return a dictionary for such frames."""
    rng = random.Random(3)
    samples: list[Any] = [
        commit2(rng.randrange(3000), collection=f"a.b.c{n % 7}") for n in range(400)
    ]
    return zstandard.train_dictionary(4096, samples, dict_id=77)


DICTIONARY = dictionary()
PACKER = zstandard.ZstdCompressor(dict_data=DICTIONARY)


def serving(stream: Callable[[Peer], None], *dictionaries: bytes) -> Callable[[Peer], None]:
    """Return a script that answers with the next dictionary, the last one for ever, or streams."""
    left = list(dictionaries)

    def script(peer: Peer) -> None:
        if peer.path == "/xrpc/network.bsky.jetstream.getZstdDictionary":
            body = left.pop(0) if len(left) > 1 else left[0]
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        else:
            stream(peer)

    return script


def packed(*messages: bytes) -> bytes:
    """Return messages as frames of a compressed connection."""
    return b"".join(frame(PACKER.compress(each), 2) for each in messages)


def test_packed_frames_are_what_was_sent() -> None:
    """The dictionary of the host is asked for once, and named; what comes is what was packed, also
    after a cut, and a frame that is not packed comes as it is.
    """
    sent = [commit2(n) for n in range(1, 6)]
    cuts = iter([True, False])

    def stream(peer: Peer) -> None:
        peer.accept()
        if next(cuts):
            peer.send(packed(*sent[:2]) + frame(sent[2]))
            return
        peer.send(packed(*sent[1:]))
        peer.until_closed()

    with LiveServer(serving(stream, DICTIONARY.as_bytes())) as server:
        run = begun([server], 2, compress=True)
        run.until_n(5)
        run.source.close()
        asked = [(peer.path.rpartition(".")[2], peer.asked) for peer in server.peers]
    assert run.values == sent
    assert run.source.gaps == 0
    assert [name for name, _ in asked] == ["getZstdDictionary"] + ["subscribeEvents"] * 2
    assert [query.get("zstdDictionary") for _, query in asked] == [None, "77", "77"]


def test_a_dictionary_that_was_replaced_is_asked_for_again() -> None:
    """A host that has another one by now refuses the old one's number; the next try has the new."""
    refusals = iter([True, False])
    unknown = json.dumps({"error": "UnknownZstdDictionary", "message": "fetch it"})
    old = DICTIONARY.as_bytes()[:4] + b"\x05\0\0\0" + DICTIONARY.as_bytes()[8:]

    def stream(peer: Peer) -> None:
        if next(refusals):
            peer.answer("400 Bad Request", unknown)
            return
        peer.accept()
        peer.send(packed(commit2(1)))
        peer.until_closed()

    with LiveServer(serving(stream, old, DICTIONARY.as_bytes())) as server:
        run = begun([server], 2, compress=True)
        run.until_n(1)
        run.source.close()
        named = [peer.asked["zstdDictionary"] for peer in server.peers if peer.asked.get("kinds")]
    assert named == ["5", "77"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"no dictionary", "getZstdDictionary: no dictionary: "),
        (b"x" * (4 * MIB + 1), "getZstdDictionary: the answer is longer than 4194304 bytes"),
    ],
)
def test_a_dictionary_that_is_none_is_told(body: bytes, why: str) -> None:
    """What is no dictionary, or too large for one, is the trouble that is shown."""
    with LiveServer(serving(lambda _: None, body)) as server:
        run = begun([server], 2, compress=True)
        run.until(lambda: run.source.trouble() is not None)
        run.source.close()
    assert why in (run.source.trouble() or "")


def test_a_dictionary_that_was_cut_off_is_asked_for_again() -> None:
    """Half of it has the number of the whole, and unpacks nothing: it is told, and never kept."""
    whole, cuts = DICTIONARY.as_bytes(), iter([True, False])

    def script(peer: Peer) -> None:
        if peer.path.endswith("getZstdDictionary"):
            body = whole[: len(whole) // 2] if next(cuts) else whole
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(whole), body))
            return
        peer.accept()
        peer.send(packed(commit2(1)))
        peer.until_closed()

    with LiveServer(script) as server:
        run = begun([server], 2, compress=True)
        run.until(lambda: run.source.trouble() is not None)
        why = run.source.trouble() or ""
        run.until_n(1)
        run.source.close()
    assert "getZstdDictionary: the answer was cut off" in why
    assert run.values == [commit2(1)]


@pytest.mark.parametrize(("scheme", "port"), [("jetstream", 443), ("jetstream+ws", 80)])
def test_an_ipv6_address_without_a_port_is_asked_at_the_usual_one(
    monkeypatch: pytest.MonkeyPatch, scheme: str, port: int
) -> None:
    """Its last group is no port."""
    asked = list[tuple[str, int]]()

    def connect(address: tuple[str, int], *_: object) -> NoReturn:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    urls = SourceAddress.parse(f"{scheme}://[2001:db8::7]").urls
    feed = JetstreamFeed(urls, JetstreamSettings(version=2, compress=True))
    with pytest.raises(ConnectionRefusedError):
        feed.connection(feed.endpoint(urls[0], Past()), Past(), LiveSettings())
    assert asked == [("2001:db8::7", port)]


def test_a_host_that_drips_its_dictionary_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for before there is a connection must be whole within the time to connect."""
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(web_request, "time", clock)

    def script(peer: Peer) -> None:
        nonlocal now
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\nx")
        now += 61.0
        peer.send(b"x")
        peer.until_closed()

    with LiveServer(script) as server:
        settings = Settings.model_validate({"live": {"connect_timeout_s": 60.0}})
        feed = JetstreamFeed([f"ws://{server.host}"], JetstreamSettings(version=2, compress=True))
        run = Run(LiveSource(feed, settings.live), Clock())
        run.until(lambda: run.source.trouble() is not None)
        run.source.close()
    limit = "(live.connect_timeout_s: 60)"
    assert f"getZstdDictionary: the answer did not come in time {limit}" in (
        run.source.trouble() or ""
    )


def test_a_bomb_is_rejected_as_it_came() -> None:
    """A frame that unpacks to more than 4 MiB, whether it says so or not, broken ones and one that
    goes on behind its end come as they are, for the decoder to reject; what follows is read.
    """
    silent = zstandard.ZstdCompressor(dict_data=DICTIONARY, write_content_size=False)
    bombs = [
        PACKER.compress(b"[" + b" " * 5 * MIB),
        silent.compress(b"[" + b" " * 5 * MIB),
        PACKER.compress(commit2(7))[:-3],
        PACKER.compress(commit2(8)) * 2,
        zstandard.FRAME_HEADER,
    ]

    def stream(peer: Peer) -> None:
        peer.accept()
        peer.send(b"".join(frame(each, 2) for each in bombs) + packed(commit2(1)))
        peer.until_closed()

    with LiveServer(serving(stream, DICTIONARY.as_bytes())) as server:
        run = begun([server], 2, compress=True)
        run.until_n(6)
        run.source.close()
    assert run.values == [*bombs, commit2(1)]


def test_many_large_frames_come_in_several_polls() -> None:
    """A poll returns about 16 MiB, however much of it comes packed in one read of the socket."""
    large = [commit2(n, pad=" " * (4 * MIB - 2000)) for n in range(12)]

    def stream(peer: Peer) -> None:
        peer.accept()
        peer.send(packed(*large))
        peer.until_closed()

    with LiveServer(serving(stream, DICTIONARY.as_bytes())) as server:
        run = begun([server], 2, compress=True)
        counts: list[int] = []
        while len(run.values) < 12:
            counts.append(run.poll())
        run.source.close()
    assert run.values == large
    assert max(counts) == 5


def test_the_first_wire_has_no_dictionary() -> None:
    """Servers give out the dictionary of version 2 alone, so version 1 is refused, in one line."""
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"jetstream": {"compress": True}})
    assert "no server gives out the dictionary of version 1" in str(refused.value)


@pytest.mark.parametrize("kind", ["account", "identity", "sync"])
@pytest.mark.parametrize("version", [1, 2])
def test_events_without_words_of_their_own_are_known_by_their_time(version: int, kind: str) -> None:
    """Two of one account, whose inner objects name neither number nor time, are two; one that
    comes again after a cut is one.
    """

    def event(n: int) -> bytes:
        own = {"did": "did:plc:a", kind: {"did": "did:plc:a"}}
        if version == 1:
            return json.dumps(own | {"time_us": time_us(n), "kind": kind}).encode()
        payload = json.loads(commit2(n))["payload"]
        payload = {name: payload[name] for name in ("seq", "time")} | own
        payload["$type"] = f"network.bsky.jetstream.subscribeEvents#{kind}"
        return json.dumps({"$type": "message", "payload": payload}).encode()

    sent = [event(n) for n in range(3)]
    with LiveServer(
        playing(*map(frame, sent[:2]), wait=False), playing(*map(frame, sent))
    ) as server:
        run = begun([server], version)
        run.until(lambda: sent[2] in run.values)
        run.source.close()
    assert run.values == sent
