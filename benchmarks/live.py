"""A live stream read by the daemon as fast as a server sends it: both wires of Jetstream.

The server is on loopback, in this process, and sends frames that were made before. Beside the posts
that it creates some delete or update one before them, and each has a label, so that all is learned.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from benchmarks.alternate import alternate
from benchmarks.daemon_run import DEFAULT, run_daemon
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets
from tests.consumers.sources.live_server import LiveServer, Peer, frame

FRAMES = 300_000
TURNS = 5
DELETED, UPDATED = 0.02, 0.02  # shares of the frames
_FIRST_US = 1_795_413_600_000_000
_BETWEEN_US = 30
_POST = "app.bsky.feed.post"
_EVENT = "network.bsky.jetstream.subscribeEvents#commit"
_FRAMES_AT_ONCE = 200


def live(tweets: Tweets, show: Show) -> Result:
    """Learn a live stream whose posts are deleted and updated, by either wire of Jetstream."""
    timed = {
        f"Jetstream, version {version}": _read(version, *_frames(tweets, version))
        for version in (1, 2)
    }
    turns = alternate(timed, TURNS, show)
    what = f"{DELETED:.0%} deletes and {UPDATED:.0%} updates among {FRAMES:,} posts"
    result = Result("live", f"{what} of {tweets.origin}, from a server on this machine")
    for name in timed:
        result.add(name, FRAMES / turns.median_s(name), "frames/s", at_least=30_000.0)
    return result


def _read(version: int, frames: Sequence[bytes], n_learned: int) -> Callable[[], float]:
    """Return what tells the seconds that a daemon takes for all frames."""
    pieces = [
        b"".join(frames[at : at + _FRAMES_AT_ONCE]) for at in range(0, len(frames), _FRAMES_AT_ONCE)
    ]

    def serve(peer: Peer) -> None:
        peer.accept()
        for piece in pieces:
            peer.send(piece)
        peer.until_closed()

    def read() -> float:
        record = "commit.record" if version == 1 else "payload.record"
        settings = {
            "jetstream": {"version": version, "start_at": 0},
            "labels": {"field": f"{record}.grade"},
        }
        with LiveServer(serve) as server:
            run = run_daemon(
                f"jetstream+ws://{server.host}",
                n_learned,
                DEFAULT,
                settings=settings,
                until=("--max-messages", str(len(frames))),
            )
        return len(frames) / run.messages_per_s

    return read


def _frames(tweets: Tweets, version: int) -> tuple[list[bytes], int]:
    """Return what the server sends, and how many frames teach something."""
    chance, found, n_deletes = random.Random(1), list[bytes](), 0
    encode = msgspec.json.Encoder().encode
    for number in range(1, FRAMES + 1):
        text, label = tweets.texts[number % len(tweets)], tweets.labels[number % len(tweets)]
        record = {"$type": _POST, "text": text, "langs": ["en"], "grade": label}
        drawn = chance.random() if number > 1 else 1.0
        named = chance.randrange(1, number) if drawn < DELETED + UPDATED else number
        own: dict[str, object] = {"rev": f"r{number}", "collection": _POST, "rkey": f"m{named}"}
        if drawn < DELETED:
            own |= {"operation": "delete"}
            n_deletes += 1
        else:
            operation = "create" if named == number else "update"
            own |= {"operation": operation, "record": record}
        found.append(frame(encode((_sent1 if version == 1 else _sent2)(number, own))))
    return found, FRAMES - n_deletes


def _sent1(number: int, commit: Mapping[str, object]) -> dict[str, object]:
    time_us = _FIRST_US + _BETWEEN_US * number
    return {"did": "did:plc:a", "time_us": time_us, "kind": "commit", "commit": commit}


def _sent2(number: int, commit: Mapping[str, object]) -> dict[str, object]:
    seconds, micros = divmod(_FIRST_US + _BETWEEN_US * number, 1_000_000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    head = {"$type": _EVENT, "seq": number, "did": "did:plc:a", "time": f"{at}.{micros:06}Z"}
    return {"$type": "message", "payload": {**head, **commit}}
