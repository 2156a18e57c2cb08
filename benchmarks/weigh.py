"""The process that `memory.py` weighs: learns what comes, then says what it holds.

Its argument names a model of `MODELS`. In: lines of JSON, `[texts, labels]`. Out: after each line
the number of words known; at the end of the input one JSON object of bytes, each above what the
process held before learning.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path

import psutil

from benchmarks.daemon_run import DEFAULT, PLAIN
from consumers.config.model import ModelSettings
from consumers.features import build_model
from streamnb import EveryExamples, Learner, Predictor, SnapshotBoard

# How the daemon's group of words reads and learns.
MODELS = {"plain": PLAIN, "hybrid": PLAIN | {"hybrid": True}, "default": DEFAULT}
_NEVER = 1 << 62


def main() -> None:
    """Learn, and weigh before and after."""
    board = SnapshotBoard()
    words = MODELS[sys.argv[1]]
    model = build_model(ModelSettings.model_validate({"features": {"text": words}}))
    learner = Learner(model, board, EveryExamples(_NEVER), time.monotonic)
    predictor = Predictor(board)
    predictor.start()
    predictor.predict_many({"text": ["a text to begin with"]})
    before_rss, before_uss = weigh()
    for line in sys.stdin:
        texts, labels = json.loads(line)
        learner.learn("tweets/0", {"text": texts}, labels)
        print(model.vocabulary_size, flush=True)
    held = learner.publish()  # as a request in progress would hold it
    newest = learner.publish()
    predictor.predict_many({"text": ["a text to end with"]})
    peak_rss = peak()
    rss, uss = weigh()
    predictor.stop()
    assert held.n_examples == newest.n_examples
    found = {
        "words": newest.vocabulary_size,
        "before_rss": before_rss,
        "rss": rss - before_rss,
        "uss": uss - before_uss,
        "peak_rss": peak_rss - before_rss,
    }
    print(json.dumps(found))


def weigh() -> tuple[int, int]:
    """Return the bytes that this process holds: resident (RSS), and its own alone (USS)."""
    gc.collect()
    info = psutil.Process().memory_full_info()
    return info.rss, info.uss


def peak() -> int:
    """Return the most bytes that this process ever held.

    `getrusage` would do, if it did not count what the parent held when it made this process.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
