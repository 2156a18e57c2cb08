"""Live streams that are silent: what is dead is given up, and what is only quiet is kept."""

from __future__ import annotations

import threading
from typing import Any

from tests.consumers.sources.live_server import (
    PATIENCE_S,
    LiveServer,
    Peer,
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
