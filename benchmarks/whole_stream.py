"""The whole stream through the library, by the daemon's default model and without its hybrid.

It is fed as the daemon feeds it: in pieces, as one part. Each tweet is judged before it is learned;
accuracy and log-loss are over all of them. The recorded stream drifts: its last sixth is negative
throughout. Of all recorded tweets the default model must keep to `DEMANDED`; prediction sets, which
are not timed, are judged in blocks of a piece.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.accuracy import judge
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets
from consumers.config.model import ModelSettings
from consumers.config.settings import Settings
from consumers.features import build_model, plain_model
from consumers.monitoring.prequential import Prequential
from streamnb import ConformalSets

PIECE = 5_000  # messages learned at a time
COVERAGE = 0.9
DEMANDED: dict[str, tuple[float | None, float | None]] = {  # at least, at most
    "accuracy to the last positive tweet": (83.2, None),
    "log-loss to the last positive tweet": (None, 0.380),
    "calibration error to the last positive tweet": (None, 0.4),
    "sets for 90 %: least covered block": (88.0, None),
    "sets for 90 %: most covered block": (None, 92.0),
}


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
    turn = int(np.flatnonzero(truth == CLASSES.index("positive"))[-1]) + 1
    seconds, sets, said, covered = 0.0, ConformalSets(COVERAGE), [], []
    for first in show.track(range(0, len(tweets), PIECE)):
        texts = tweets.texts[first : first + PIECE]
        labels = tweets.labels[first : first + PIECE]
        began = time.perf_counter()
        posteriors = model.prequential_many({"text": texts}, labels, part="tweets/0")
        seconds += time.perf_counter() - began
        own = truth[first : first + PIECE]
        prequential.update(posteriors, own)
        said.append(posteriors)
        found = sets.prequential_many(posteriors, own)
        covered.append(100 * float(found[np.arange(len(own)), own].mean()))
    accuracy, log_loss, error = judge(np.concatenate(said)[:turn], truth[:turn])
    result.add(f"{prefix}streamnb", len(tweets) / seconds, "tweets/s")
    result.add(f"{prefix}accuracy", 100 * (prequential.accuracy or 0.0), "%")
    result.add(f"{prefix}log-loss", prequential.log_loss or 0.0, "nats")
    is_demanded = bool(prefix) and tweets.origin == f"{len(tweets):,} recorded tweets"
    for name, value, unit in (
        ("accuracy to the last positive tweet", 100 * accuracy, "%"),
        ("log-loss to the last positive tweet", log_loss, "nats"),
        ("calibration error to the last positive tweet", 100 * error, "%"),
        ("sets for 90 %: least covered block", min(covered), "%"),
        ("sets for 90 %: most covered block", max(covered), "%"),
    ):
        at_least, at_most = DEMANDED[name] if is_demanded else (None, None)
        result.add(f"{prefix}{name}", value, unit, at_least=at_least, at_most=at_most)
    result.add(f"{prefix}words known", model.vocabulary_size, "words")
    result.add(f"{prefix}words dropped", model.words_dropped, "words")
