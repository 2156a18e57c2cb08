"""The whole stream through the library, by the daemon's default model and without its hybrid.

It is fed as the daemon feeds it: in pieces, as one part. Each tweet is judged before it is learned;
accuracy and log-loss are over all of them. The recorded stream drifts: its last sixth is negative
throughout.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets
from consumers.config.model import ModelSettings
from consumers.config.settings import Settings
from consumers.features import build_model, plain_model
from consumers.monitoring.prequential import Prequential

PIECE = 5_000  # messages learned at a time


def whole_stream(tweets: Tweets, show: Show) -> Result:
    """Judge and learn every tweet, in order, by the plain model and by the default one."""
    result = Result("whole_stream", tweets.origin)
    settings = Settings().model
    _judge(result, "", plain_model(settings), tweets, show)
    _judge(result, "default model: ", settings, tweets, show)
    return result


def _judge(
    result: Result, prefix: str, settings: ModelSettings, tweets: Tweets, show: Show
) -> None:
    model = build_model(settings)
    prequential = Prequential(Settings().learning.window)
    truth = np.array([CLASSES.index(label) for label in tweets.labels], dtype=np.int64)
    seconds = log_loss = 0.0
    turn = int(np.flatnonzero(truth == CLASSES.index("positive"))[-1]) + 1
    n_right = 0
    for first in show.track(range(0, len(tweets), PIECE)):
        texts = tweets.texts[first : first + PIECE]
        labels = tweets.labels[first : first + PIECE]
        began = time.perf_counter()
        posteriors = model.prequential_many({"text": texts}, labels, part="tweets/0")
        seconds += time.perf_counter() - began
        prequential.update(posteriors, truth[first : first + PIECE])
        n = max(0, min(turn - first, len(labels)))  # of these, up to the turn
        own = posteriors[np.arange(n), truth[first : first + n]]
        n_right += int((posteriors[:n].argmax(axis=1) == truth[first : first + n]).sum())
        log_loss -= float(own.sum())
    result.add(f"{prefix}streamnb", len(tweets) / seconds, "tweets/s")
    result.add(f"{prefix}accuracy", 100 * (prequential.accuracy or 0.0), "%")
    result.add(f"{prefix}log-loss", prequential.log_loss or 0.0, "nats")
    result.add(f"{prefix}accuracy to the last positive tweet", 100 * n_right / turn, "%")
    result.add(f"{prefix}log-loss to the last positive tweet", log_loss / turn, "nats")
    result.add(f"{prefix}words known", model.vocabulary_size, "words")
    result.add(f"{prefix}words dropped", model.words_dropped, "words")
