"""The whole stream through the library, with the daemon's words and pairs, without the hybrid.

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
from consumers.config.settings import Settings
from consumers.features import build_model, plain_model
from consumers.monitoring.prequential import Prequential

PIECE = 5_000  # messages learned at a time


def whole_stream(tweets: Tweets, show: Show) -> Result:
    """Judge and learn every tweet, in order."""
    settings = Settings()
    model = build_model(plain_model(settings.model))
    prequential = Prequential(settings.learning.window)
    seconds = 0.0
    for first in show.track(range(0, len(tweets), PIECE)):
        texts = tweets.texts[first : first + PIECE]
        labels = tweets.labels[first : first + PIECE]
        began = time.perf_counter()
        posteriors = model.prequential_many({"text": texts}, labels, part="tweets/0")
        seconds += time.perf_counter() - began
        truth = np.array([CLASSES.index(label) for label in labels], dtype=np.int64)
        prequential.update(posteriors, truth)
    result = Result("whole_stream", tweets.origin)
    result.add("streamnb", len(tweets) / seconds, "tweets/s")
    result.add("accuracy", 100 * (prequential.accuracy or 0.0), "%")
    result.add("log-loss", prequential.log_loss or 0.0, "nats")
    result.add("words known", model.vocabulary_size, "words")
    result.add("words dropped", model.words_dropped, "words")
    return result
