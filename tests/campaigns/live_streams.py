"""Cut a live stream in the middle of its frames, kill who reads it; a page of Python counts."""

from __future__ import annotations

import json
import random
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns.campaign import Run
from tests.campaigns.deleting import Checker, Example, drawn_message, word_counts_at
from tests.consumers.sources.live_server import LiveServer, Peer, frame
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.jetstream_server import position_at

N = 1_000_000  # frames a step
CUTS, KILLS = 20, 5
_FIRST_US = 1_795_413_600_000_000
_EVENT = "network.bsky.jetstream.subscribeEvents#commit"
_POST = "app.bsky.feed.post"
_PIECE = 200  # frames that are sent at once
_WAITED_FOR = 100_000  # frames, each time that the daemon is waited for


@dataclass(slots=True)
class Network:
    """What a server has to say, and where it breaks off.

    Attributes
    ----------
    cursors : list of int
        Of each frame, ascending: its time on the first wire, where several have the same, and its
        number on the second.
    frames : list of bytes
        As they are sent.
    cuts : list of int
        Each ends a connection in the middle of the frame of this place.
    connected_s : float
        When the connection under way was made.
    begun : int
        With which frame it began.
    """

    cursors: list[int] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    connected_s: float = 0.0
    begun: int = 0

    def script(self, peer: Peer) -> None:
        """Send a client what stands at its cursor and behind it, up to the next cut."""
        self.connected_s = time.monotonic()
        self.begun = at = bisect_left(self.cursors, int(peer.asked.get("cursor", 0)))
        peer.accept()
        while at < len(self.frames):
            end = min(at + _PIECE, len(self.frames))
            if self.cuts and self.cuts[0] < end:
                cut = max(at, self.cuts.pop(0))
                torn = self.frames[cut]
                peer.send(b"".join(self.frames[at:cut]) + torn[: len(torn) // 2])
                return
            peer.send(b"".join(self.frames[at:end]))
            at = end
        peer.until_closed()


def live_streams(run: Run) -> None:
    """A live stream that is cut again and again, and read amid kills, leaves its plain counts."""
    for chance, folder in run.steps():
        version = 1 + run.step % 2
        network, checker = _network(chance, version, run)
        with LiveServer(network.script) as server:
            config = _config(folder, server.host, version)
            for _ in range(KILLS):
                with Daemon(config) as daemon:
                    at = chance.randrange(N)
                    _wait_for(daemon, folder, at)
                    daemon.kill()
                run.figures["kills"] += 1
            with Daemon(config) as daemon:
                _wait_for(daemon, folder, N)
                took_s = time.monotonic() - network.connected_s
                peak_mb = daemon.peak_bytes() >> 20
                assert daemon.metric("streamnb_stream_gaps_total") == 0
                assert daemon.metric("streamnb_rejects_total") == 0
                assert daemon.stop() == 0
        assert not network.cuts
        assert position_at(folder / "state") == N
        assert word_counts_at(folder / "state") == checker.counts()
        run.figures["frames"] += N
        run.figures["disconnects"] += CUTS
        run.figures["MB resident at most"] = max(run.figures["MB resident at most"], peak_mb)
        slowest = run.figures.get("frames/s at least", 1 << 62)
        run.figures["frames/s at least"] = min(slowest, int((N - network.begun) / took_s))


def _wait_for(daemon: Daemon, folder: Path, n: int) -> None:
    """Wait until a checkpoint holds so many frames."""
    for some in (*range(0, n, _WAITED_FOR), n):
        daemon.until(lambda: position_at(folder / "state") >= some, f"{some:,} frames")  # noqa: B023


def _network(chance: random.Random, version: int, run: Run) -> tuple[Network, Checker]:
    """Return a stream in which messages are deleted and updated, and what it teaches."""
    found, checker, time_us = Network(), Checker(), _FIRST_US
    for number in range(1, N + 1):
        time_us += chance.choice((0, 30, 400))
        said = drawn_message(chance, number, run.figures)
        checker.read(*said)
        sent = (_frame1 if version == 1 else _frame2)(number, time_us, *said)
        found.frames.append(frame(json.dumps(sent).encode()))
        found.cursors.append(time_us if version == 1 else number)
    found.cuts = sorted(chance.sample(range(N // 20, N), CUTS))
    return found, checker


def _record(operation: str, example: Example | None) -> dict[str, Any]:
    """Return what a message brings, if it is no delete."""
    if operation == "delete":
        return {}
    words, label = example or (("nothing", "known"), None)
    record: dict[str, Any] = {"$type": _POST, "text": " ".join(words), "langs": ["en"]}
    return {"record": record | ({} if label is None else {"grade": label})}


def _frame1(
    number: int, time_us: int, operation: str, named: int, example: Example | None
) -> dict[str, Any]:
    own = {"rev": f"r{number}", "operation": operation, "collection": _POST, "rkey": f"m{named}"}
    commit = own | _record(operation, example)
    return {"did": "did:plc:a", "time_us": time_us, "kind": "commit", "commit": commit}


def _frame2(
    number: int, time_us: int, operation: str, named: int, example: Example | None
) -> dict[str, Any]:
    seconds, micros = divmod(time_us, 1_000_000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    payload = {
        "$type": _EVENT, "seq": number, "did": "did:plc:a", "time": f"{at}.{micros:06}Z",
        "rev": f"r{number}", "operation": operation, "collection": _POST, "rkey": f"m{named}",
    }  # fmt: skip
    return {"$type": "message", "payload": payload | _record(operation, example)}


def _config(folder: Path, host: str, version: int) -> Path:
    record = "commit.record" if version == 1 else "payload.record"
    return write_config(
        folder / "config.yaml",
        source=f"jetstream+ws://{host}",
        jetstream={"version": version, "start_at": 0},
        live={"retry_pause_s": 0.05, "retry_pause_max_s": 0.2},
        labels={"field": f"{record}.grade"},
        model={"features": {"text": {"ngrams": [1, 1], "negation": False}}},
        checkpoint={"folder": "state", "interval_s": 0.2},
    )
