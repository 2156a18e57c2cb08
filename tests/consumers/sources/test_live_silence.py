"""Live streams that are silent: what is dead is given up, and what is only quiet is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from consumers.config.settings import Settings
from consumers.sources.connections import Framing
from consumers.sources.jetstream import JetstreamFeed
from tests.consumers.sources.live_server import (
    PATIENCE_S,
    LiveServer,
    Peer,
    Script,
    commit1,
    commit2,
    frame,
    time_us,
)
from tests.consumers.sources.test_live import LIKE, POST, begun, commits, playing, streamed


def test_silence_leads_to_the_next_host() -> None:
    """A connection without a message for too long is given up, for the next host in turn, which
    is asked by time; time in which nobody polled is no silence.
    """
    with (
        LiveServer(playing(commits(commit2, 1, 2, 3))) as first,
        LiveServer(playing(commits(commit2, 2, 3, 4), frame(b"", 9))) as second,
    ):
        run = begun([first, second])
        run.until_n(3)
        run.clock.now += 100.0  # the pipeline was busy
        run.poll()
        assert run.source.trouble() is None
        run.clock.now += 0.0
        connection = run.source._connection
        assert connection is not None
        receive = connection.receive

        def slow(timeout_s: float) -> Any:
            run.clock.now += 61.0
            return receive(timeout_s)

        connection.receive = slow  # type: ignore[method-assign]
        run.poll()
        assert run.source.trouble() == "jetstream: silent for 60 s"
        run.until_n(4)
        run.source.close()
        assert second.peers[0].asked["cursor"] == str((time_us(2) + time_us(3)) // 2)
    assert run.values == [commit2(n) for n in (1, 2, 3, 4)]


def test_silence_of_one_collection_leads_to_the_next_host() -> None:
    """While others go on, a collection that fell silent is noticed; if it is so everywhere, each
    next time takes twice as long.
    """
    with (
        LiveServer(playing(frame(commit1(1, LIKE)), commits(commit1, 2))) as first,
        LiveServer(playing(commits(commit1, 2, 3))) as second,
    ):
        run = begun([first, second], 1, collections=[POST, LIKE], collection_idle_timeout_s=40.0)
        run.until_n(2)
        run.source._seen_at[LIKE] -= 40.0
        run.poll()
        assert run.source.trouble() == f"jetstream: nothing of {LIKE} for 40 s"
        run.until_n(3)
        run.source._seen_at[LIKE] -= 79.0
        run.poll()
        assert run.source.trouble() is None
        run.source._seen_at[LIKE] -= 2.0
        run.poll()
        assert run.source.trouble() == f"jetstream: nothing of {LIKE} for 80 s"
        run.source.close()


@pytest.mark.parametrize(("version", "wire"), [(1, commit1), (2, commit2)])
def test_a_group_of_collections_speaks_by_each_of_them(
    version: int, wire: Callable[..., bytes]
) -> None:
    """A message has the name of its own collection: it is a sign of life of all groups that it is
    of, and of no other; a group that has fallen silent is noticed.
    """
    follow, near = "app.bsky.graph.follow", "app.bsky.graphics.follow"
    narrow, wide = "app.bsky.graph.*", "app.bsky.*"
    next_one, last_one = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.accept()
        peer.send(frame(wire(1, follow)))
        assert next_one.wait(PATIENCE_S)
        peer.send(frame(wire(2, follow)))
        assert last_one.wait(PATIENCE_S)
        peer.send(frame(wire(3, near)))
        peer.until_closed()

    with LiveServer(script) as server:
        asked = [narrow, wide, follow]
        run = begun([server], version, collections=asked, collection_idle_timeout_s=40.0)
        run.until_n(1)
        for n, is_sent in ((2, next_one), (3, last_one)):
            for name in asked:
                run.source._seen_at[name] -= 39.0
            run.poll()
            assert run.source.trouble() is None
            is_sent.set()
            run.until_n(n)
        run.source._seen_at[wide] -= 2.0  # which the last message was of, and it alone
        run.poll()
        assert run.source.trouble() is None
        run.source._seen_at[narrow] -= 2.0
        run.poll()
        assert run.source.trouble() == f"jetstream: nothing of {narrow} for 40 s"
        run.source.close()


@pytest.mark.parametrize(
    ("version", "kinds", "is_watched"),
    [(1, ["account"], True), (2, [], True), (2, ["account", "commit"], True),
     (2, ["account"], False)],
)  # fmt: skip
def test_no_collection_is_missed_where_no_commits_are_asked_for(
    version: int, kinds: list[str], *, is_watched: bool
) -> None:
    """The second wire sends none then; the first one sends them whatever is asked for."""
    settings = Settings.model_validate({"jetstream": {"version": version, "kinds": kinds}})
    feed = JetstreamFeed(["ws://host"], settings.jetstream)
    assert feed.collections == (settings.jetstream.collections if is_watched else ())


def test_what_comes_as_a_collection_falls_silent_is_kept() -> None:
    """Messages that are read in the moment in which another collection's silence is noticed are
    returned: they are known by then, and would be left out if they came again.
    """
    with LiveServer(playing(commits(commit1, 1, 2)), playing(commits(commit1, 1, 2, 3))) as server:
        run = begun([server], 1, collections=[POST, LIKE], collection_idle_timeout_s=40.0)
        run.until(lambda: run.source._connection is not None)
        connection = run.source._connection
        assert connection is not None
        receive = connection.receive

        def late(timeout_s: float) -> Any:
            found = receive(timeout_s)
            run.source._seen_at[LIKE] -= 40.0 if found else 0.0
            return found

        connection.receive = late  # type: ignore[method-assign]
        run.until_n(3)
        run.source.close()
    assert run.values == [commit1(n) for n in (1, 2, 3)]
    assert run.source.gaps == 0


def test_a_quiet_websocket_is_asked_for_a_sign_of_life() -> None:
    """After half the time it is pinged: one that answers is kept; one that is half open, so that
    nothing comes of it any more, is given up and counted as a gap.
    """
    pinged, is_dead = threading.Semaphore(0), threading.Event()

    def quiet(peer: Peer) -> None:
        peer.accept()
        peer.send(frame(b"one"))
        while head := peer.receive(2):
            length = head[1] & 0x7F
            body = peer.receive(4 + length)  # a client's frames are masked
            if head[0] == 0x89 and not is_dead.is_set():
                mask, data = body[:4], body[4:]
                answer = bytes(each ^ mask[i % 4] for i, each in enumerate(data))
                peer.send(frame(answer, 10) + frame(b"two"))
            pinged.release()

    with LiveServer(quiet, playing(frame(b"three"))) as server:
        run = streamed(server, "websocket", idle_timeout_s=60.0)
        run.until_n(1)
        run.poll()
        connection = run.source._connection
        assert connection is not None
        receive, silent_s = connection.receive, [31.0]

        def slow(timeout_s: float) -> Any:
            run.clock.now += silent_s.pop() if silent_s else 0.0
            return receive(timeout_s)

        connection.receive = slow  # type: ignore[method-assign]
        run.until_n(2)  # behind the answer to the ping
        assert pinged.acquire(timeout=PATIENCE_S)
        run.poll()
        is_dead.set()
        silent_s.append(31.0)
        run.until(lambda: pinged.acquire(blocking=False))
        assert run.source.trouble() is None
        silent_s.append(30.0)
        run.until(lambda: run.source.trouble() is not None)
        assert "silent for 60 s" in str(run.source.trouble())
        run.until_n(3)
        run.source.close()
    assert run.values == [b"one", b"two", b"three"]
    assert run.source.gaps == 1


def test_accounts_that_say_nothing_are_no_dead_connection() -> None:
    """A subscription to some accounts stands as long as it answers pings, and a post after a long
    silence is read by it; one that answers nothing is given up.
    """

    def quiet(peer: Peer) -> None:
        peer.accept()
        for n in range(1, 21):
            head = peer.receive(2)
            assert head[0] == 0x89
            body = peer.receive(4 + (head[1] & 0x7F))  # a client's frames are masked
            answer = bytes(each ^ body[i % 4] for i, each in enumerate(body[4:]))
            peer.send(frame(answer, 10) + (commits(commit2, n) if n == 20 else b""))
        peer.until_closed()

    with LiveServer(quiet) as server:
        run = begun([server], dids=["did:plc:a"], collections=[POST])
        run.until(lambda: run.source._connection is not None)
        connection = run.source._connection
        assert connection is not None
        for _ in range(20):
            n_bytes = connection.n_bytes
            run.clock.now += 31.0
            run.source._left_at = run.clock.now  # it passes while the source is asked
            run.until(lambda n=n_bytes: connection.n_bytes > n)  # type: ignore[misc]
            assert run.source.trouble() is None
        run.until_n(1)
        for _ in range(2):
            run.clock.now += 31.0
            run.source._left_at = run.clock.now
            run.poll()
        assert run.source.trouble() == "jetstream: silent for 60 s"
        run.source.close()
        assert len(server.peers) == 1
    assert run.values == [commit2(20)]
    assert run.source.gaps == 0


@pytest.mark.parametrize("sign", [b": heartbeat\n\n", b"id: 1\ndata: a\n\n"])
def test_a_connection_without_news_is_no_trouble(sign: bytes) -> None:
    """After a cut, a heartbeat or a message that is known shows that the connection stands. If it
    is cut again and again, pauses grow all the same, until something new has come.
    """
    may_end = threading.Semaphore(0)

    def sending(data: bytes) -> Script:
        def script(peer: Peer) -> None:
            peer.begin()
            peer.chunk(data)
            while not may_end.acquire(timeout=0.02):
                peer.chunk(sign)
            peer.send(b"0\r\n\r\n")

        return script

    first, second = (sending(b"id: %d\ndata: a\n\n" % n) for n in (1, 2))
    with LiveServer(first, *[sending(sign)] * 5, second, sending(sign)) as server:
        run = streamed(server, "events", retry_pause_s=0.05)
        pauses_s = []
        for n in (1, 2):
            run.until_n(n)
            for _ in range(5 if n == 1 else 1):
                may_end.release()
                run.until(lambda: run.source.trouble() is not None)
                before = run.clock.now
                run.until(lambda: run.source.trouble() is None)
                pauses_s.append(run.clock.now - before)
            may_end.release()
        run.source.close()
    assert pauses_s == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 0.05])
    assert run.values == [b"a", b"a"]


def test_a_quiet_jetstream_is_no_trouble_after_a_cut() -> None:
    """What is known and comes again shows that the connection stands."""
    with LiveServer(
        playing(commits(commit2, 1, 2), wait=False), playing(commits(commit2, 2))
    ) as server:
        run = begun([server], dids=["did:plc:a"])
        run.until_n(2)
        run.until(lambda: run.source.trouble() is not None)
        run.until(lambda: run.source.trouble() is None)
        run.source.close()
    assert run.values == [commit2(1), commit2(2)]


@pytest.mark.parametrize("framing", ["events", "websocket"])
def test_a_server_that_says_nothing_stays_a_trouble(framing: Framing) -> None:
    """A connection on which nothing came before its end is none, and pauses grow."""
    may_end = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        if framing == "events":
            peer.begin()
        else:
            peer.accept()
        assert may_end.acquire(timeout=PATIENCE_S)
        peer.send(b"0\r\n\r\n" if framing == "events" else frame(b"\x03\xf4", 8))

    with LiveServer(script) as server:
        run = streamed(server, framing, retry_pause_s=0.05)
        begun_s = run.clock.now
        for n in range(5):
            run.until(lambda: run.source._connection is not None)
            run.poll()
            assert (run.source.trouble() is None) == (n == 0)
            may_end.release()
            run.until(lambda: run.source._connection is None)
        assert run.source.trouble() is not None
        run.source.close()
    assert run.clock.now - begun_s == pytest.approx(0.05 + 0.1 + 0.2 + 0.4)


@pytest.mark.parametrize("framing", ["events", "lines", "websocket"])
def test_a_connection_without_an_answer_is_none(framing: Framing) -> None:
    """A server behind a proxy that accepts and closes does not answer, and one that answers and
    closes sends nothing: until a message comes, it is one gap.
    """

    def message(peer: Peer) -> None:
        if framing == "websocket":
            peer.accept()
            peer.send(frame(b"one"))
        else:
            peer.begin()
            peer.chunk(b"data: one\n\n" if framing == "events" else b"one\n")
            peer.send(b"0\r\n\r\n")

    def nothing(peer: Peer) -> None:
        peer.send(b"")

    def empty(peer: Peer) -> None:
        if framing == "websocket":
            peer.accept()
        else:
            peer.begin()

    refusals, answers = [nothing] * 3, [empty] * 3
    with LiveServer(message, *refusals, *answers, nothing) as server:
        run = streamed(server, framing)
        run.until_n(1)
        run.until(lambda: len(server.peers) == 4)
        assert run.source.gaps == 0
        if framing != "websocket":
            assert (run.source.trouble() or "").endswith("closed the connection without an answer")
        run.until(lambda: len(server.peers) == 9)
        run.source.close()
    assert run.source.gaps == 1


def test_an_id_that_was_refused_is_not_sent_again_before_a_message_comes() -> None:
    """A connection that stands and brings nothing changes nothing of it."""

    def event(peer: Peer) -> None:
        peer.begin()
        peer.chunk(b"id: 1\ndata: 1\n\n")
        peer.send(b"0\r\n\r\n")

    with LiveServer(
        event, lambda peer: peer.answer("410 Gone"), lambda peer: peer.begin(), playing()
    ) as server:
        run = streamed(server, "events")
        run.until(lambda: len(server.peers) == 5)
        run.source.close()
        asked = [peer.header("Last-Event-ID") for peer in server.peers[:5]]
    assert asked == [None, "1", None, None, None]
    assert run.source.gaps == 1
