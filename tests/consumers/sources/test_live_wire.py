"""Hostile and broken servers of live streams: none ends the program, and nothing vanishes."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from consumers.config.addresses import LiveSettings
from consumers.config.settings import Settings
from consumers.errors import SourceError
from consumers.factories import build_source
from consumers.messages import Partition
from consumers.sources.base import Cursor, LogFacts
from consumers.sources.connections import (
    MESSAGE_BYTES_MAX,
    Connection,
    Endpoint,
    Framing,
    Received,
    RefusedError,
    _Http,
    key_of,
    without_secrets,
)
from consumers.sources.live import RETRY_AFTER_MAX_S, LiveSource, StreamFeed
from tests.broker.secure import Certificates
from tests.consumers.sources.live_server import LiveServer, Peer, commit1, commit2, frame, time_us
from tests.consumers.sources.test_live import Clock, Run, begun, playing, streamed

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def answered(framing: Framing = "events", head: bytes = HEAD) -> _Http:
    """Return a request that was answered so far."""
    request = _Http(Endpoint("http://h/", framing))
    request.to_send()
    if head:
        request.feed(head)
    return request


def test_odd_frames_of_jetstream_are_messages() -> None:
    """Frames of wrong types, numbers out of range, wrong UTF-8, no zone, too deep, or without a
    repository come as they are, each of them, and the stream goes on with a checkpoint behind it.
    """
    deep = b"[" * 100_000 + b"]" * 100_000
    odd = {
        1: [b'{"did":"\xff"}', b'{"x":%s}' % deep, b'{"did":"a","time_us":%d}' % 10**30,
            b'{"did":"a","time_us":%d}' % (2**63 - 1), b'{"x":1}', b'{"x":2}', b"\0", b""],
        2: [b'{"$type":"message","payload":%s}' % each for each in (
            b'{"did":"\xff"}', deep, b'{"did":"a","seq":%d}' % 10**30, b'{"x":1}', b'{"x":2}',
            b'{"did":"a","time":"2026-01-01T00:00:00"}')],
    }  # fmt: skip
    for version, frames in odd.items():
        with LiveServer(playing(*map(frame, frames))) as server:
            run = begun([server], version)
            run.until_n(len(frames))
            assert run.values == frames
            run.source.logs({run.source.partition: len(frames)})
            run.source.close()


def test_every_id_of_an_event_can_be_sent_back() -> None:
    """An id of any letters, or with blanks around, is sent back as it came; one that no header can
    hold is ignored like one with NUL, and an event without its own has the last one's, over a cut
    too.
    """

    def first(peer: Peer) -> None:
        peer.send(HEAD + "id: é日 \ndata: a\n\nid: b\vad\ndata: b\n\n".encode())

    def second(peer: Peer) -> None:
        peer.send(HEAD + b"data: b\n\ndata: c\n\n")
        peer.until_closed()

    heads: list[bytes] = []
    with LiveServer(first, second) as server:
        run = streamed(server, "events")
        run.until_n(3)
        run.source.close()
        heads += [peer.head.encode() for peer in server.peers]
    assert run.values == [b"a", b"b", b"c"]
    assert "\r\nlast-event-id: é日\r\n".encode() in heads[1].lower()


A, OK, PING = b"id: 1\ndata: a\n\n", b"data: ok\n\n", b"event: ping\ndata\n\n"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("sent", "again", "wanted"),
    [
        (A + OK * 2, OK * 3, [b"a", b"ok", b"ok", b"ok"]),
        (A + OK * 2, A + OK * 3, [b"a", b"ok", b"ok", b"ok"]),
        (A + PING + OK * 2, OK * 3, [b"a", b'{"event":"ping","payload":""}', *[b"ok"] * 3]),
        (A + b"data: a\n\n", b"data: a\n\n" * 2, [b"a", b"a", b"a"]),
        (b"id: 1\n\n" + OK, OK * 2, [b"ok", b"ok"]),
    ],
)
def test_events_alike_that_have_the_id_of_one_before_them_all_come(
    sent: bytes, again: bytes, wanted: list[bytes], *, restarts: bool
) -> None:
    """What the server sends again behind that id is known, and one more that is alike is not, over
    a cut, or in another process that begins with the checkpoint.
    """
    n = len(wanted) - 1

    def second(peer: Peer) -> None:
        peer.send(HEAD + again + b"id: 2\ndata: end\n\n")
        peer.until_closed()

    with LiveServer(lambda peer: peer.send(HEAD + sent), second) as server:
        run = streamed(server, "events")
        run.until_n(n)
        before = run.values if restarts else []
        if restarts:
            facts = run.source.logs({run.source.partition: n})
            run.source.close()
            feed = StreamFeed(f"http://{server.host}/", "events")
            run = Run(LiveSource(feed, LiveSettings()), Clock(), n, facts)
        run.until(lambda: b"end" in run.values)
        run.source.close()
        assert server.peers[1].header("Last-Event-ID") == "1"
    assert before + run.values == [*wanted, b"end"]


def test_an_event_with_its_own_id_has_the_key_of_older_checkpoints() -> None:
    """Its key is made of id, name and data alone."""
    message = StreamFeed("http://h/", "events").read(Received(b"a", "message", "1"))
    assert message is not None
    assert message.key == key_of("1", "message", "b'a'") == 14069523648103514257


def test_a_cut_at_every_byte_changes_no_event() -> None:
    """Lines end in CR, LF or CRLF wherever the pieces are cut, and an event comes with its end."""
    body = (
        b"\xef\xbb\xbfdata: a\rdata: b\r\n\r\ndata: c\n\nretry: 1e9\nretry: -1\ndata\r\rdata: d\r\r"
    )
    wanted = [b"a\nb", b"c", b"", b"d"]
    for cut in range(len(body)):
        request = answered()
        found = request.feed(body[:cut]) if cut else []
        assert [each.data for each in found + request.feed(body[cut:])] == wanted
        assert request.retry_s == 0
    request = answered()
    pieces = [request.feed(body[i : i + 1]) for i in range(len(body))]
    assert [each.data for piece in pieces for each in piece] == wanted


@pytest.mark.parametrize(
    ("framing", "piece"),
    [
        ("events", b"data: " + b"x" * 65_000 + b"\n"),
        ("events", b"x" * 65_536),
        ("lines", b"x" * 65_536),
    ],
)
def test_an_endless_message_is_given_up(framing: Framing, piece: bytes) -> None:
    """A line, or an event of lines, without an end is given up, and read in linear time."""
    request = answered(framing)
    n_fed = 0
    while request.ended is None:
        assert n_fed < MESSAGE_BYTES_MAX + (8 << 20)
        assert request.feed(piece) == []
        n_fed += len(piece)
    assert request.ended == f"a message is longer than {MESSAGE_BYTES_MAX} bytes"


@pytest.mark.parametrize("framing", ["lines", "websocket"])
def test_a_head_that_never_ends_is_given_up(framing: Framing) -> None:
    """However often a byte of it comes, the next host is tried within the time to connect."""

    def drip(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nA: ")
        while True:
            peer.send(b"b")
            gone.wait(0.02)

    gone = threading.Event()
    with LiveServer(drip) as server:
        run = streamed(server, framing, connect_timeout_s=1.0)
        run.until(lambda: len(server.peers) > 1)
        run.source.close()
        gone.set()


@pytest.mark.parametrize(
    ("head", "end", "is_whole"),
    [
        (b"Content-Length: 4", b"", True),
        (b"Content-Length: 9", b"", False),
        (b"Transfer-Encoding: chunked", b"0\r\n\r\n", True),
        (b"Transfer-Encoding: chunked", b"", False),
        (b"Connection: close", b"", True),
    ],
)
def test_a_last_line_needs_no_line_break(head: bytes, end: bytes, *, is_whole: bool) -> None:
    """It comes where the answer ends as it should; of one that is cut off, nobody knows the rest.
    An event needs its empty line.
    """
    body = b"4\r\na\nbc\r\n" if b"chunked" in head else b"a\nbc"
    request = answered("lines", b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % head)
    found = [*request.feed(body + end)]
    if request.ended is None:
        found += request.feed(b"")
    assert [each.data for each in found] == [b"a", b"bc"][: 1 + is_whole]
    assert request.ended is not None
    events = answered("events")
    assert [*events.feed(b"data: x\n"), *events.feed(b"")] == []


def test_hints_before_the_answer_are_passed_over() -> None:
    """What came along with early hints is read at once."""
    request = answered(head=b"")
    found = request.feed(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + HEAD + b"data: x\n\n")
    assert [each.data for each in found] == [b"x"]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("Content-Type: text/html; charset=utf-8", "no text/event-stream, but text/html"),
        ("Content-Encoding: gzip", "packs its answer"),
    ],
)
def test_another_answer_than_events_is_told(header: str, said: str) -> None:
    """A page, or a packed answer, is told as such, and tried again."""

    def wrong(peer: Peer) -> None:
        assert peer.header("Accept-Encoding") == "identity"
        peer.send(f"HTTP/1.1 200 OK\r\n{header}\r\n\r\n<html>".encode())
        peer.until_closed()

    with LiveServer(wrong) as server:
        run = streamed(server, "events")
        run.until(lambda: said in (run.source.trouble() or ""))
        run.source.close()


@pytest.mark.parametrize("framing", ["lines", "websocket"])
def test_a_refusal_without_an_end_is_told(framing: Framing) -> None:
    """The status is told although the body never ends; a token that it repeats is not, nor a
    header of ours.
    """

    def refuse(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 401 Unauthorized\r\n\r\nwrong token very-secret, k=ey2")
        peer.until_closed()

    live: dict[str, Any] = {"token": "very-secret", "headers": {"X-K": "ey2"}}
    with LiveServer(refuse) as server:
        run = streamed(server, framing, connect_timeout_s=0.1, **live)
        # A server whose thread comes late is out of time, and asked again.
        run.until(lambda: "HTTP 401" in (run.source.trouble() or ""))
        said = run.source.trouble() or ""
        run.source.close()
    assert "very-secret" not in said
    assert "ey2" not in said


def test_a_short_header_leaves_what_a_server_says_readable() -> None:
    """It is no secret inside a word or a number; one that stands by itself is not told."""
    said = "refused with HTTP 401: 10 points left, the key 1 ended"
    assert without_secrets(said, ["1", "en", ""]) == said.replace("key 1", "key ***")
    assert without_secrets("k=ey2", ["ey2"]) == "k=***"
    assert without_secrets("xhunter22x hun hunt", ["hunter22"]) == "x***x hun ***"


def test_certificates_that_are_gone_are_named(tmp_path: Path) -> None:
    """They were there at the start: what is tried again says which file, and whose setting."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = Endpoint(f"https://127.0.0.1:{server.getsockname()[1]}/", "lines")
        gone = tmp_path / "authority.pem"
        with pytest.raises(ConnectionError, match=r"live\.ssl_cafile: .*authority\.pem cannot be"):
            Connection(endpoint, 10.0, gone)


def test_a_wrong_certificate_is_refused_in_one_line(tmp_path: Path) -> None:
    """Of an authority that is not trusted, or another host's: nothing is sent, and the line says
    what to do; with the authority named it reads.
    """
    files = Certificates(tmp_path / "certificates")

    def serving(name: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.chain(name))
        return context

    def hello(peer: Peer) -> None:
        peer.accept()
        peer.send(frame(b"hello"))
        peer.until_closed()

    way_out = "; live.ssl_cafile names whom to trust"
    for name, trusted, why in (
        ("broker", files.stranger, r"unable to get local issuer certificate|self.signed.*"),
        ("elsewhere", files.authority, r"(Hostname|IP address) mismatch, certificate is .*"),
        ("broker", files.authority, None),
    ):
        with LiveServer(hello, context=serving(name)) as server:
            feed = StreamFeed(f"wss://{server.host}/x", "websocket")
            settings = LiveSettings(ssl_cafile=trusted, token=SecretStr("very-secret"))
            clock = Clock()
            run = Run(LiveSource(feed, settings, clock=clock, wait=clock.wait), clock)
            if why is None:
                run.until_n(1)
            else:
                run.until(lambda: run.source.trouble() is not None)  # noqa: B023
                said = run.source.trouble() or ""
                begin = f"wss://{server.host}/x: the certificate of 127.0.0.1 is refused: "
                assert re.fullmatch(f"{re.escape(begin)}({why}){re.escape(way_out)}", said), said
                assert not server.peers
            run.source.close()


def test_retry_after_may_be_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """A date is waited for, one that is over or none at all is not; without a zone it is of UTC.
    Numbers may be long or have a fraction.
    """
    for said, seconds in (("1000000000", 1e9), (" 30", 30.0), ("0.5", 0.5), ("7.", 7.0)):
        assert RefusedError(429, "", said).retry_after_s == seconds
    asked = "Fri Dec 31 23:59:59 2100"
    monkeypatch.setattr(time, "time", lambda: 4_133_980_799.0 - 40.0)
    with monkeypatch.context() as context:
        context.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        assert RefusedError(503, "", asked).retry_after_s == 40.0
    time.tzset()
    monkeypatch.undo()
    assert RefusedError(503, "", "Fri, 31 Dec 9999 23:59:59 GMT").retry_after_s > 1e9
    assert RefusedError(503, "", formatdate(0, usegmt=True)).retry_after_s == 0
    for nonsense in (None, "", "soon", "-1", "1e9", "Fri, 99 Dec 2026 23:59:59 GMT"):
        assert RefusedError(503, "", nonsense).retry_after_s == 0


@pytest.mark.parametrize(
    ("status", "headers", "pause_s"),
    [
        (429, ["x-rate-limit-reset: 1000000600"], 600.0),
        (429, ["x-rate-limit-reset: 1000000600", "Retry-After: 30"], 30.0),
        (429, ["x-rate-limit-reset: 2000000000"], RETRY_AFTER_MAX_S),
        (429, ["x-rate-limit-reset: 999999999"], 0.5),
        (429, ["x-rate-limit-reset: soon"], 0.5),
        (503, ["x-rate-limit-reset: 1000000600"], 0.5),
    ],
)
def test_too_many_requests_may_name_when_they_count_again(
    status: int, headers: list[str], pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X's 429 has a time in the place of a `Retry-After`, which wins where there is one; it is
    waited for, within the bound, and one that is over or no time is not.
    """
    monkeypatch.setattr(time, "time", lambda: 1e9)

    def refuse(peer: Peer) -> None:
        peer.answer(f"{status} No", "", *headers)

    def lines(peer: Peer) -> None:
        peer.begin()
        peer.chunk(b"one\r\n")
        peer.until_closed()

    with LiveServer(refuse, lines) as server:
        run = streamed(server, "lines", retry_pause_s=0.5)
        run.until(lambda: run.source.trouble() is not None)
        before = run.clock.now
        run.until_n(1)
        run.source.close()
    assert run.clock.now - before == pytest.approx(pause_s)


@pytest.mark.parametrize(
    "cursor",
    [
        "no JSON", "{}x", '{"keys":"MTIz"}', '{"keys":"MTIzNDU2Nzg="}', '{"times":7}',
        msgspec.json.encode(Cursor(last_id="1\r\nX-More: 1")).decode(),
        msgspec.json.encode(Cursor(b"k" * 80, b"t" * 80, b"n" * 80)).decode(),
    ],
)  # fmt: skip
def test_a_forged_cursor_is_an_error_in_a_sentence(cursor: str) -> None:
    """A checkpoint that was tampered with is refused, and says what can be done."""
    source = LiveSource(StreamFeed("http://127.0.0.1:1/", "events"), LiveSettings())
    with pytest.raises(SourceError, match=r"cursor cannot be read.*restore the state"):
        Run(source, Clock(), 7, {Partition(source.name, 0): LogFacts(cursor=cursor)})


def test_a_host_that_cannot_be_one_is_told() -> None:
    """A port out of range is refused at the start; a name that none can have is a trouble."""
    for wrong in ("wss://h:99999/", "sse+https://h:0/", "jetstream://h:65536"):
        with pytest.raises(ValueError, match="source"):
            Settings.model_validate({"source": wrong})
    clock = Clock()
    feed = StreamFeed(f"http://{'a' * 64}.example/", "lines")
    run = Run(LiveSource(feed, LiveSettings(), clock=clock, wait=clock.wait), clock)
    run.until(lambda: run.source.trouble() is not None)


def test_a_frame_in_pieces_of_a_byte() -> None:
    """Frames that are cut at every byte come whole, with pings and empty pieces in between."""
    data = frame(b"", 2, final=False) + frame(b"p", 9) + frame(commit1(1), 0) + frame(b"x" * 300)

    def script(peer: Peer) -> None:
        peer.accept()
        for i in range(len(data)):
            peer.send(data[i : i + 1])
        peer.until_closed()

    with LiveServer(script) as server:
        run = streamed(server, "websocket")
        run.until_n(2)
        run.source.close()
    assert json.loads(run.values[0])["time_us"] == time_us(1)
    assert run.values[1] == b"x" * 300


def test_headers_of_any_case_and_length() -> None:
    """A header replaces ours in any case, a value may be one character; one that announces a body
    is refused at the start.
    """
    with LiveServer(lambda peer: peer.send(HEAD + b"data: x\n\n")) as server:
        run = streamed(server, "events", headers={"host": "h", "ACCEPT": "*/*"})
        run.until_n(1)
        run.source.close()
        assert [server.peers[0].header(name) for name in ("Host", "Accept")] == ["h", "*/*"]
    for name in ("Content-Length", "transfer-encoding"):
        with pytest.raises(ValueError, match="have none"):
            LiveSettings.model_validate({"headers": {name: "5"}})


@pytest.mark.parametrize(
    ("live", "first", "second"),
    [
        ({"headers": {"X-Key": "a", "X-Who": "b", "x-key": "c"}}, "X-Key", "x-key"),
        ({"headers": {"authorization": "a"}, "token": "s" * 20}, "authorization", "Authorization"),
    ],
)
def test_a_header_in_two_cases_is_refused(live: dict[str, Any], first: str, second: str) -> None:
    """By a WebSocket both would be sent; ours gives way to one of any case."""
    with pytest.raises(ValueError, match=f"'{first}' and '{second}' are one HTTP header"):
        LiveSettings.model_validate(live)
    own = LiveSettings.model_validate({"headers": {"user-agent": "me"}})
    assert own.all_headers == {"user-agent": "me"}


@pytest.mark.parametrize(
    ("source", "hosts"),
    [
        ("sse+http://example.org:80/a", ["example.org:80"]),
        ("jetstream+ws://127.0.0.1:1,10.0.0.1:2", ["10.0.0.1:2"]),
        ("ws://[::1]:1/", []),
        ("lines+http://localhost/", []),
        ("wss://example.org/", []),
    ],
)
def test_a_token_that_goes_unencrypted_is_told(source: str, hosts: list[str]) -> None:
    """One line at the start names the setting and the way out; this machine is no network."""
    ways: list[dict[str, Any]] = [{"token": "s" * 20}, {"headers": {"X-API-Key": "s", "A": "b"}}]
    with capture_logs() as logs:
        for live in (*ways, {"headers": {"Accept": "a/b"}}, {}):
            build_source(Settings.model_validate({"source": source, "live": live}), until_end=False)
    told = [each for each in logs if each["event"] == "token_unencrypted"]
    assert [each["hosts"] for each in told] == [hosts] * (2 * bool(hosts))
    names = [each["detail"].split(":")[0] for each in told]
    assert names == ["live.token", "live.headers.X-API-Key"] * bool(hosts)
    assert all("https:// or wss://" in each["detail"] for each in told)


def test_odd_refusals_end_nothing() -> None:
    """Two headers where one belongs, and an answer that is nested too deeply, are troubles."""
    deep = '{"segments":[],"x":' + "[" * 100_000 + "]" * 100_000 + "}"
    archive: dict[str, Any] = {"history": True, "start_at": time_us(1)}
    for script, more in (
        (lambda peer: peer.answer("429 Slow", "x", "Retry-After: 1", "Retry-After: 2"), {}),
        (lambda peer: peer.answer("200 OK", deep), archive),
    ):
        with LiveServer(script) as server:
            run = begun([server], 2, **more)
            run.until(lambda: run.source.trouble() is not None)  # noqa: B023
            run.source.close()


@pytest.mark.parametrize(
    ("by_number", "by_time", "gaps"),
    [
        # It was made anew, and has nothing of what was read.
        ([(73, 4), (74, 5)], [(n, n - 69) for n in range(70, 134)], 1),
        # It lost its end at a crash, and reads that again before it goes on.
        ([(62, 98, 67), (68, 99)], [(60, 97), (61, 96, 66), (62, 98, 67), (66, 98), (68, 99)], 0),
        # The same, and what it reads again came before the connection stood.
        ([(68, 99)], [(61, 97, 66), (62, 98, 67), (66, 98), (68, 99)], 0),
        # Its numbers have passed by the time: the cursor lands in what was read long ago.
        ([(1, 300), (2, 301)], [(61, 360), (62, 361), (63, 362)], 0),
    ],
)
def test_a_host_that_numbers_anew_is_asked_by_time(
    by_number: list[tuple[int, ...]], by_time: list[tuple[int, ...]], gaps: int
) -> None:
    """A number that it has not reached has it go on with what comes, without a word, and what it
    numbers anew is none that was asked for. It is noticed by the first such message, and nothing is
    lost or learned twice that the host has by time.
    """

    def sent(n: int, seq: int, second: int = 0) -> bytes:
        at = second or n
        return commit2(n, seq=seq, time=f"2026-11-23T06:{at // 60:02}:{at % 60:02}.000000Z")

    known = [(60, 160), (61, 161), (62, 162)]
    with LiveServer(
        playing(*(frame(sent(*each)) for each in known), wait=False),
        playing(*(frame(sent(*each)) for each in by_number)),
        playing(*(frame(sent(*each)) for each in by_time)),
    ) as server:
        run = begun([server])
        new = [each for each in by_time if each[0] > 62]
        run.until_n(3 + len(new))
        run.source.close()
        cursors = [peer.asked.get("cursor") for peer in server.peers]
    assert run.values == [sent(*each) for each in known + new]
    assert cursors[:2] == [None, "161"]
    assert time_us(60) <= int(cursors[2] or 0) <= time_us(62)
    assert run.source.gaps == gaps


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (frame(b"\x03\xf4bye", 8), "1012"),
        (b"\x81\x83mask" + bytes(a ^ b for a, b in zip(b"bad", b"mas", strict=True)), "masking"),
        (frame(b"bad", 0x40 | 1), "reserved bits"),
    ],
)
def test_a_websocket_that_ends_without_hanging_up_is_left(ending: bytes, why: str) -> None:
    """A close frame, and one that no server may send, end the connection at once, though the server
    keeps it open: what came before is kept, what comes behind is not, and another one is made.
    """

    def first(peer: Peer) -> None:
        peer.accept()
        peer.send(frame(b"one") + ending + frame(b"two"))
        peer.until_closed()

    with LiveServer(first, playing(frame(b"three"))) as server:
        run = streamed(server, "websocket", idle_timeout_s=60.0)
        begun_s = run.clock.now
        run.until(lambda: run.source.trouble() is not None)
        assert why in (run.source.trouble() or "")
        run.until_n(2)
        run.source.close()
    assert run.values == [b"one", b"three"]
    assert run.source.gaps == 1
    assert run.clock.now - begun_s < 60.0


def sync(n: int, rev: str) -> bytes:
    """Return number `n`, by which Jetstream's second wire begins a resync.

    One that the server makes itself has neither a number nor a time of the network's.
    """
    own = {"blocks": {"$bytes": ""}, "did": "did:plc:a", "rev": rev, "seq": 0, "time": ""}
    payload = json.loads(commit2(n))["payload"]
    kept = {name: payload[name] for name in ("seq", "did", "time")}
    kind = "network.bsky.jetstream.subscribeEvents#sync"
    return json.dumps(
        {"$type": "message", "payload": {"$type": kind, **kept, "sync": own}}
    ).encode()


def test_a_resync_is_asked_for_and_known_by_its_revision() -> None:
    """It comes unless `kinds` leave it out. One of the same revision, as another host or a server
    behind a crash has it, is known as the records behind it are.
    """
    resync = [sync(2, "r9"), commit2(3, rev="r9"), commit2(4, rev="r9")]
    again = [sync(5, "r9"), commit2(6, rev="r9", rkey="k3"), commit2(7, rev="r9", rkey="k4")]
    later = [sync(8, "r10"), commit2(9, rev="r10", rkey="k3")]
    with LiveServer(playing(*map(frame, [commit2(1), *resync, *again, *later]))) as server:
        run = begun([server])
        run.until_n(6)
        run.source.close()
        assert re.findall(r"kinds=(\w+)", server.peers[0].head) == ["commit", "account", "sync"]
    assert run.values == [commit2(1), *resync, *later]
