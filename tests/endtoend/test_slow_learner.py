"""A daemon that learns ten times as slowly as it could, on a live stream that does not wait."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.sources.live_server import LiveServer, Peer, commit1, commit2, frame
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import counts_at

# Posts, and those before the flood. The heap takes its size once, by some 7,000 posts, with a fast
# learner: from 12,000 to 60,000 it grew by 4 MB, where it grew by 7 between 6,000 and 12,000.
N, FIRST = 36_000, 200
N_WORDS = 300
BACK = 1_000  # how many frames behind its post a delete or an update comes
LABELS = ("positive", "negative")
POLL_BYTES = 17 << 16  # at most, see test_live.py
NOISE_BYTES = 8 << 20  # of the allocator, from one part of a run to the next
# With deletes there are checkpoints and files of a memory too: 10 MB from the first 30,000 posts to
# the next, and 18 once. The texts of half the posts are 50.
N_OF_DELETES, NOISE_BYTES_OF_DELETES = 40_000, 24 << 20
QUEUE_BATCHES = 4


def _text(i: int) -> str:
    """Return some 2.5 kB: each word once, so that what a post teaches is told in a line."""
    return " ".join(f"word{(i * 7 + k) % 1_000}" for k in range(N_WORDS))


def _said(i: int, *, deletes: bool) -> tuple[str, int]:
    """Return what frame `i` does, and to which post: with deletes, every 50th takes one back and
    every 50th rewrites one.
    """
    if not deletes or i < BACK or i % 25:
        return "create", i
    return ("delete", i - BACK) if i % 50 else ("update", i - BACK + 1)


def _frame(i: int, version: int, *, deletes: bool) -> bytes:
    operation, named = _said(i, deletes=deletes)
    own: dict[str, Any] = {"rev": f"r{i}", "operation": operation, "rkey": f"k{named}"}
    if operation != "delete":
        own["record"] = {"text": _text(i), "langs": ["en"], "grade": LABELS[i % 2]}
    if version == 2:
        return commit2(i, **own)
    return commit1(i, commit=own | {"collection": "app.bsky.feed.post"})


def _living(n: int, *, deletes: bool) -> list[int]:
    """Return of `n` frames those that still teach: the newest of each post that is left."""
    newest: dict[int, int] = {}
    for i in range(n):
        operation, named = _said(i, deletes=deletes)
        newest[named] = i
        if operation == "delete":
            del newest[named]
    return list(newest.values())


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize(("version", "deletes"), [(1, False), (2, False), (1, True), (2, True)])
def test_a_learner_slowed_tenfold_drops_nothing_and_holds_little(
    tmp_path: Path, version: int, *, deletes: bool
) -> None:
    """The server waits, what is read ahead and the memory stay bounded, and each post is learned,
    or taken back where the stream says so.

    A flood of 90 MB could come at once. What the daemon and the system's buffers hold of it is no
    more than they can, and the last third takes no more memory than the first two.
    """
    n = N_OF_DELETES if deletes else N
    frames = [frame(_frame(i, version, deletes=deletes)) for i in range(n)]
    n_sent, flood = [0], threading.Event()

    def script(peer: Peer) -> None:
        peer.accept()
        for i, each in enumerate(frames):
            if i == FIRST:
                flood.wait()
            peer.send(each)
            n_sent[0] += 1
        peer.until_closed()

    record = "commit.record" if version == 1 else "payload.record"
    sections: dict[str, Any] = {
        "jetstream": {"version": version},
        "labels": {"field": f"{record}.grade"},
        "model": {"features": {"text": {"ngrams": [1, 1], "negation": False}}},
        # What was learned since the last checkpoint is not in its files yet.
        "checkpoint": {"folder": "state", "interval_s": 0.5 if deletes else 10},
        "recent": {"enabled": False},
        # Its files grow with what was learned, slowly or not, up to this bound.
        "learned": {"messages_max": 2 * BACK if deletes else 0},
    }
    under = (sys.executable, "-m", "tests.endtoend.slowed")
    with LiveServer(script) as server:
        source = f"jetstream+ws://{server.host}"
        config = write_config(tmp_path / "config.yaml", source=source, **sections)
        with Daemon(config, under=under) as daemon:
            try:
                daemon.until_metric("streamnb_messages_total", FIRST)
            finally:
                flood.set()
            n_learned, behind, ahead, peaks = 0, [], [], []
            for part in (n // 3, 2 * n // 3, n):
                while n_learned < part:
                    sent = n_sent[0]
                    ahead.append(int(daemon.metric("streamnb_read_ahead_messages")))
                    n_learned = int(daemon.metric("streamnb_messages_total"))
                    behind.append(sent - n_learned)
                    assert daemon.listen(0.05)
                peaks.append(daemon.peak_bytes())
            assert daemon.metric("streamnb_stream_gaps_total") == 0
            assert daemon.metric("streamnb_rejects_total") == 0
            assert daemon.stop() == 0
            said = Counter(_said(i, deletes=deletes)[0] for i in range(n))
            assert daemon.summary["learned"] == n - said["delete"]
    size = min(len(frames[i]) for i in range(n) if _said(i, deletes=deletes)[0] != "delete")
    size = size * (n - said["delete"]) // n  # on average, if deletes weigh nothing
    assert 0 < max(ahead) <= (QUEUE_BATCHES + 1) * (POLL_BYTES // size)
    assert max(ahead) < max(behind) < 3 * n // 4  # so the server had to wait
    assert peaks[2] <= peaks[1] + (NOISE_BYTES_OF_DELETES if deletes else NOISE_BYTES)
    living = _living(n, deletes=deletes)
    wanted = Counter((word, i % 2) for i in living for word in _text(i).split())
    of_class = Counter(i % 2 for i in living)
    classes, words = counts_at(tmp_path / "state")
    assert sorted(classes) == sorted((of_class[0], of_class[1]))
    assert {name: sorted(each) for name, each in words.items()} == {
        f"word{k}": sorted((float(wanted[f"word{k}", 0]), float(wanted[f"word{k}", 1])))
        for k in range(1_000)
    }
