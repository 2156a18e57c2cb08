"""Memory of a large model: 1,000,000 words, two classes, one part, and two snapshots alive.

The plain model of pairs is weighed, the same with the hybrid, and the daemon's default one. Each is
weighed in a process of its own (`weigh.py`), which gets texts on its standard input and keeps
none. The measure is what that process holds above itself before learning, when it has the same
imports, an untrained model and a running predictor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

WORDS = 1_000_000
MEGABYTES_MAX = 150.0
RATIO_MAX = 1.6  # of a model with the hybrid to the plain one
_PIECE = 2_000
_ROOT = Path(__file__).resolve().parents[1]
_MB = 1e6


def memory(tweets: Tweets, show: Show) -> Result:
    """Let fresh processes learn tweets until their models know a million words, and weigh them."""
    found, n_learned = _weighed("plain", tweets, show)
    result = Result("memory", f"the first {n_learned:,} of {tweets.origin}")
    # With fewer words than are asked for, small memory proves nothing.
    at_most = MEGABYTES_MAX if found["words"] >= WORDS else None
    result.add("words known", found["words"], "words")
    result.add("process before learning, RSS", found["before_rss"] / _MB, "MB")
    result.add("model and two snapshots, RSS", found["rss"] / _MB, "MB", at_most=at_most)
    result.add("model and two snapshots, USS", found["uss"] / _MB, "MB", at_most=at_most)
    result.add("peak while growing, RSS", found["peak_rss"] / _MB, "MB")
    default, n_learned = _weighed("default", tweets, show)
    result.add("default model: tweets learned", n_learned, "tweets")
    result.add("default model: words known", default["words"], "words")
    result.add("default model and two snapshots, RSS", default["rss"] / _MB, "MB")
    result.add("default model: peak while growing, RSS", default["peak_rss"] / _MB, "MB")
    ratio = default["rss"] / found["rss"]
    at_most = RATIO_MAX if default["words"] >= WORDS else None
    result.add("default model: memory of the plain", ratio, "times", at_most=at_most)
    hybrid, _ = _weighed("hybrid", tweets, show)
    at_most = RATIO_MAX if hybrid["words"] >= WORDS else None
    result.add("plain with the hybrid and two snapshots, RSS", hybrid["rss"] / _MB, "MB")
    ratio = hybrid["rss"] / found["rss"]
    result.add("plain with the hybrid: memory of the plain", ratio, "times", at_most=at_most)
    return result


def _weighed(model: str, tweets: Tweets, show: Show) -> tuple[dict[str, int], int]:
    """Return what a process says of its model, and how many tweets it has learned."""
    n_learned = 0
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.weigh", model],
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for first in show.track(range(0, len(tweets), _PIECE)):
            texts = tweets.texts[first : first + _PIECE]
            labels = tweets.labels[first : first + _PIECE]
            child.stdin.write(json.dumps([texts, labels]) + "\n")
            child.stdin.flush()
            n_learned += len(texts)
            if int(child.stdout.readline()) >= WORDS:
                break
        child.stdin.close()
        found: dict[str, int] = json.loads(child.stdout.read())
    return found, n_learned
