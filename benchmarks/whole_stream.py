"""The whole stream through the library, by the daemon's default model and without its hybrid.

It is fed as the daemon feeds it: in pieces, as one part. Each tweet is judged before it is learned;
accuracy and log-loss are over all of them. The recorded stream drifts: its last sixth is negative
throughout. Of all recorded tweets the default model must keep to `DEMANDED`; prediction sets, which
are not timed, are judged in all, behind the last positive tweet and in blocks.
"""

from __future__ import annotations

import math
import time

import numpy as np

from benchmarks.accuracy import judge, judge_sets
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets
from consumers.config.model import ModelSettings
from consumers.config.settings import Settings
from consumers.features import build_model, plain_model
from consumers.monitoring.prequential import Prequential

PIECE = 5_000  # messages learned at a time
DEMANDED: dict[str, tuple[float | None, float | None]] = {  # at least, at most
    "accuracy to the last positive tweet": (83.2, None),
    "log-loss to the last positive tweet": (None, 0.380),
    "calibration error to the last positive tweet": (None, 0.4),
    "sets for 90 %: covered": (89.5, 90.5),
    "sets for 90 %: covered behind the last positive tweet": (89.5, 90.5),
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
    seconds, said = 0.0, []
    for first in show.track(range(0, len(tweets), PIECE)):
        texts = tweets.texts[first : first + PIECE]
        labels = tweets.labels[first : first + PIECE]
        began = time.perf_counter()
        posteriors = model.prequential_many({"text": texts}, labels, part="tweets/0")
        seconds += time.perf_counter() - began
        prequential.update(posteriors, truth[first : first + PIECE])
        said.append(posteriors)
    stated = np.concatenate(said)
    accuracy, log_loss, error = judge(stated[:turn], truth[:turn])
    sets = judge_sets(stated, truth, turn)
    result.add(f"{prefix}streamnb", len(tweets) / seconds, "tweets/s")
    result.add(f"{prefix}accuracy", 100 * (prequential.accuracy or 0.0), "%")
    result.add(f"{prefix}log-loss", prequential.log_loss or 0.0, "nats")
    is_demanded = bool(prefix) and tweets.origin == f"{len(tweets):,} recorded tweets"
    for name, value, unit in (
        ("accuracy to the last positive tweet", 100 * accuracy, "%"),
        ("log-loss to the last positive tweet", log_loss, "nats"),
        ("calibration error to the last positive tweet", 100 * error, "%"),
        ("sets for 90 %: covered", sets.covered, "%"),
        ("sets for 90 %: covered behind the last positive tweet", sets.tail, "%"),
        ("sets for 90 %: least covered block", sets.least, "%"),
        ("sets for 90 %: most covered block", sets.most, "%"),
        ("sets for 90 %: mean size", sets.size, "classes"),
    ):
        at_least, at_most = DEMANDED.get(name, (None, None)) if is_demanded else (None, None)
        if not math.isnan(value):  # of the tail of texts that have none
            result.add(f"{prefix}{name}", value, unit, at_least=at_least, at_most=at_most)
    result.add(f"{prefix}words known", model.vocabulary_size, "words")
    result.add(f"{prefix}words dropped", model.words_dropped, "words")
