"""Cut a live stream in the middle of its frames, kill who reads it; a page of Python counts."""

from __future__ import annotations

import json
import os
import random
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
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
FRAMES_PER_S = 30_000  # at least, on a quiet machine
MB_MAX = 500  # resident, in the life that ends in order
QUIET_STEPS = "steps on a quiet machine"
_QUIET = 0.05  # the share of the processors that others may take there
_LONG = 1_000_000  # frames; of fewer a start and a checkpoint would be a large part


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
    n_connections : int
        How many were made.
    """

    cursors: list[int] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    n_connections: int = 0

    def script(self, peer: Peer) -> None:
        """Send a client what stands at its cursor and behind it, up to the next cut."""
        at = bisect_left(self.cursors, int(peer.asked.get("cursor", 0)))
        peer.accept()
        self.n_connections += 1
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


@dataclass(slots=True)
class Pace:
    """How fast frames are learned while the daemon is alive: its starts are left out.

    Attributes
    ----------
    frames : int
        Those of which a checkpoint tells.
    seconds : float
        From a life's first connection to its kill, or its last frame; cuts are among them.
    others_s : float
        Processor time that neither the daemon nor this process took meanwhile.
    """

    frames: int = 0
    seconds: float = 0.0
    others_s: float = 0.0

    @contextmanager
    def measured(self, daemon: Daemon, state: Path, network: Network) -> Iterator[None]:
        """Measure a life from its first connection until the block ends."""
        before, first = network.n_connections, position_at(state)
        daemon.until(lambda: network.n_connections > before, "a connection")
        began_s, others_s = time.monotonic(), _others_s(daemon)
        yield
        self.frames += position_at(state) - first
        self.seconds += time.monotonic() - began_s
        self.others_s += _others_s(daemon) - others_s

    @property
    def per_s(self) -> int:
        """Frames a second."""
        return int(self.frames / self.seconds)

    @property
    def is_quiet(self) -> bool:
        """Whether the machine had little else to do."""
        return self.others_s < _QUIET * self.seconds * (os.cpu_count() or 1)


def _others_s(daemon: Daemon) -> float:
    """Return the processor time of all processes but the daemon and this one."""
    line = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    user, nice, system, _, _, irq, soft_irq, steal, *_ = map(int, line.split()[1:])
    busy_s = (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
    return busy_s - daemon.processor_s() - time.process_time()


def live_streams(run: Run) -> None:
    """A live stream that is cut again and again, and read amid kills, leaves its plain counts."""
    for chance, folder in run.steps():
        version, pace = 1 + run.step % 2, Pace()
        network, checker = _network(chance, version, run)
        with LiveServer(network.script) as server:
            config = _config(folder, server.host, version)
            for _ in range(KILLS):
                with Daemon(config) as daemon, pace.measured(daemon, folder / "state", network):
                    _wait_for(daemon, folder, chance.randrange(N))
                run.figures["kills"] += 1
            with Daemon(config) as daemon:
                with pace.measured(daemon, folder / "state", network):
                    _wait_for(daemon, folder, N)
                peak_mb = daemon.peak_bytes() >> 20
                assert daemon.metric("streamnb_stream_gaps_total") == 0
                assert daemon.metric("streamnb_rejects_total") == 0
                assert daemon.stop() == 0
        assert not network.cuts
        assert position_at(folder / "state") == N
        assert word_counts_at(folder / "state") == checker.counts()
        assert peak_mb <= MB_MAX
        run.figures["frames"] += N
        run.figures["disconnects"] += CUTS
        run.figures["MB resident at most"] = max(run.figures["MB resident at most"], peak_mb)
        where = "a quiet" if pace.is_quiet else "a busy"
        slowest = f"frames/s at least, on {where} machine"
        run.figures[slowest] = min(run.figures.get(slowest, 1 << 62), pace.per_s)
        run.figures[QUIET_STEPS] += pace.is_quiet
        if pace.is_quiet and N >= _LONG:
            assert pace.per_s >= FRAMES_PER_S


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
