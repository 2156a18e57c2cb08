"""How long a single prediction takes while the model learns as fast as it can.

One thread learns tweets without pause, in batches as the daemon's are, and publishes ten snapshots
a second. Meanwhile single predictions are asked for, 200 a second, at times that were drawn before
(a Poisson stream): who asks does not wait for the machine to be ready. A latency counts from when
its question was due, so a pause is felt by all whom it keeps waiting, and none can hide it.

Percentiles are taken a round at a time, and of all rounds the median is reported, as a round that
the machine's other work disturbed should not decide. The longest is over all rounds.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets
from consumers.config.settings import Settings
from consumers.features import build_model, plain_model
from consumers.process import SWITCH_INTERVAL_S
from streamnb import EveryInterval, Learner, Predictor, SnapshotBoard

ROUNDS = 5
SECONDS = 4.0  # a round: 800 questions, of which 8 are above the 99th percentile
PER_S = 200.0
WARM_UP = 20  # first answers: the threads' own first steps
BATCH = 5_000  # texts learned at once; the daemon's come in columns, these as a list of `str`
_SLICES = 20  # of the progress bar


def latency(tweets: Tweets, show: Show) -> Result:
    """Ask while the model learns, and before that, to compare."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as the daemon does, and says why
    try:
        return _measured(tweets, show)
    finally:
        sys.setswitchinterval(before_s)


def _measured(tweets: Tweets, show: Show) -> Result:
    learning = _Learning(tweets)
    alone_s = _ask(learning.predictor, tweets, show)
    learning.start()
    n_before, began = learning.n_learned, time.perf_counter()
    rounds_s = [_ask(learning.predictor, tweets, show) for _ in range(ROUNDS)]
    rate = (learning.n_learned - n_before) / (time.perf_counter() - began)
    learning.stop()
    result = Result("latency", tweets.origin)
    result.add("learned meanwhile", rate, "tweets/s")
    result.add("p50", _percentile_ms(rounds_s, 50), "ms", at_most=2.0)
    result.add("p99", _percentile_ms(rounds_s, 99), "ms", at_most=10.0)
    result.add("longest", max(found.max() for found in rounds_s) * 1e3, "ms")
    result.add("p50 without learning", _percentile_ms([alone_s], 50), "ms")
    result.add("p99 without learning", _percentile_ms([alone_s], 99), "ms")
    return result


def _percentile_ms(rounds_s: list[NDArray[np.float64]], percent: float) -> float:
    """Return the median over the rounds of a percentile, in milliseconds."""
    return statistics.median(float(np.percentile(found, percent)) for found in rounds_s) * 1e3


class _Learning:
    """The thread that learns: the daemon's model without the hybrid, batches and snapshots."""

    def __init__(self, tweets: Tweets) -> None:
        self.n_learned = 0
        self._tweets = tweets
        board = SnapshotBoard()
        settings = Settings()
        policy = EveryInterval(
            settings.learning.publish_interval_s,
            settings.learning.publish_share_max,
            time.monotonic,
        )
        model = build_model(plain_model(settings.model))
        self._learner = Learner(model, board, policy, time.monotonic)
        self.predictor = Predictor(board)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._learn, name="learn", daemon=True)
        self._learn_batch(0)
        self._learner.publish()
        self.predictor.start()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self.predictor.stop()

    def _learn(self) -> None:
        first = 0
        while not self._stop.is_set():
            first = self._learn_batch(first)
            self._learner.publish_if_due()

    def _learn_batch(self, first: int) -> int:
        texts = self._tweets.texts[first : first + BATCH]
        labels = self._tweets.labels[first : first + BATCH]
        self._learner.learn("tweets/0", {"text": texts}, labels)
        self.n_learned += len(texts)
        return (first + len(texts)) % len(self._tweets)


def _ask(predictor: Predictor, tweets: Tweets, show: Show) -> NDArray[np.float64]:
    """Ask at each due time; return the seconds from then to the answer, one entry a question."""
    rng = np.random.default_rng(7)
    n = WARM_UP + round(SECONDS * PER_S)
    due_s = np.cumsum(rng.exponential(1 / PER_S, n)).tolist()
    found = np.zeros(n)
    began = time.perf_counter()
    asked = 0
    for part in show.track(range(1, _SLICES + 1)):
        for i in range(asked, n * part // _SLICES):
            time.sleep(max(0.0, began + due_s[i] - time.perf_counter()))
            predictor.predict_one({"text": tweets.texts[-1 - i % len(tweets)]})
            found[i] = time.perf_counter() - began - due_s[i]
        asked = n * part // _SLICES
    return found[WARM_UP:]
