"""Numbers against River's GaussianNB, on the numeric streams that River brings along.

Prequential: each example is judged by what was known before it, and then learned. An example that
comes before any class is known counts as wrong, for both. Speed is taken on the first examples of
each stream, in turns; accuracy on all of it, as often as it takes: it does not move.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from river import base, datasets, naive_bayes

from benchmarks.alternate import alternate
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets
from streamnb import Gaussian, NaiveBayes, NormalInverseGamma, Numbers
from streamnb.features.protocol import Group

TURNS = 5
TIMED = 2_000
LONGEST: int | None = None  # of a stream; None for all of it


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of River's, whole.

    Attributes
    ----------
    name : str
    examples : list of (dict, label)
    columns : dict of name to ndarray
        The same, by columns.
    labels : list of label
    """

    name: str
    examples: list[tuple[dict[Any, Any], Any]]
    columns: dict[Any, Any]
    labels: list[Any]

    def first(self, n: int) -> Stream:
        """Return its first `n` examples."""
        columns = {name: values[:n] for name, values in self.columns.items()}
        return Stream(self.name, self.examples[:n], columns, self.labels[:n])


def read(kind: type[base.typing.Dataset]) -> Stream:
    """Return a stream by columns and by rows."""
    examples = [(dict(x), y) for x, y in kind()][:LONGEST]
    columns = {name: np.array([x[name] for x, _ in examples]) for name in examples[0][0]}
    return Stream(kind.__name__, examples, columns, [y for _, y in examples])


KINDS: tuple[Any, ...] = (
    datasets.Phishing,
    datasets.Bananas,
    datasets.ImageSegments,
    datasets.Shuttle,
)
# Shuttle's sensors have outliers a thousand standard deviations away, in both classes. With a
# variance for each class they decide alone, with one for both they do not.
SHARED = {"Shuttle"}
# A prior mean that is worth next to nothing draws no class towards the others; it is `StreamNB`'s.
PRIOR = NormalInverseGamma(kappa=0.01)


def groups_for(stream: Stream) -> dict[str, Group]:
    """Return the group that reads a stream."""
    likelihood = Gaussian(PRIOR, variance="shared" if stream.name in SHARED else "own")
    return {"numbers": Numbers(likelihood, fields=list(stream.columns))}


def numeric(_: Tweets, show: Show) -> Result:
    """Judge and learn streams in one call each, against River one by one; and who is right."""
    result = Result("numeric", f"River's streams, the first {TIMED:,} examples timed")
    for kind in KINDS:
        whole = read(kind)
        stream = whole.first(TIMED)
        timed = {"streamnb": in_one_call(stream), "River": one_by_one(river, stream)}
        turns = alternate(timed, TURNS, show, warm_up="streamnb")
        name, n = stream.name, len(stream.labels)
        result.add(f"{name}: streamnb", n / turns.median_s("streamnb"), "examples/s")
        result.add(f"{name}: River", n / turns.median_s("River"), "examples/s")
        ratio = turns.ratio("River", "streamnb")
        result.add(f"{name}: faster than River", ratio, "times", at_least=30.0)
        theirs = accuracy_of_river(whole)
        result.add(f"{name}: River is right", theirs, "%")
        result.add(f"{name}: streamnb is right", accuracy(whole), "%", at_least=theirs)
    return result


def numeric_one(_: Tweets, show: Show) -> Result:
    """Judge and learn example by example, a call each, against River's GaussianNB."""
    result = Result("numeric_one", f"the first {TIMED:,} examples of River's streams")
    for kind in KINDS:
        stream = read(kind).first(TIMED)
        timed = {"streamnb": one_by_one(ours, stream), "River": one_by_one(river, stream)}
        turns = alternate(timed, TURNS, show, warm_up="streamnb")
        name, n = stream.name, len(stream.labels)
        for who in timed:
            result.add(f"{name}: {who}", n / turns.median_s(who), "examples/s")
        ratio = turns.ratio("River", "streamnb")
        result.add(f"{name}: faster than River", ratio, "times", at_least=5.0)
    return result


def ours(stream: Stream) -> Any:
    """Return our model for a stream."""
    return NaiveBayes(features=groups_for(stream))


def river(_: Stream) -> Any:
    """Return River's model, the same for all."""
    new: Callable[[], Any] = naive_bayes.GaussianNB
    return new()


def in_one_call(stream: Stream) -> Callable[[], float]:
    """Return what times our prequential call over a stream."""

    def timed() -> float:
        model = ours(stream)
        began = time.perf_counter()
        model.prequential_many(stream.columns, stream.labels)
        return time.perf_counter() - began

    return timed


def one_by_one(new: Callable[[Stream], Any], stream: Stream) -> Callable[[], float]:
    """Return what times two calls for each example of a stream."""

    def timed() -> float:
        model = new(stream)
        began = time.perf_counter()
        for x, y in stream.examples:
            model.predict_proba_one(x)
            model.learn_one(x, y)
        return time.perf_counter() - began

    return timed


def accuracy(stream: Stream) -> float:
    """Return how often our model is right, in per cent."""
    model = ours(stream)
    told = model.prequential_many(stream.columns, stream.labels)
    best = np.where(np.isneginf(told).all(axis=1), -1, told.argmax(axis=1))
    places = [model.classes.index(label) for label in stream.labels]
    return 100.0 * float((best == places).mean())


def accuracy_of_river(stream: Stream) -> float:
    """Return how often River's model is right, in per cent."""
    model = river(stream)
    n_right = 0
    for x, y in stream.examples:
        n_right += model.predict_one(x) == y
        model.learn_one(x, y)
    return 100.0 * n_right / len(stream.labels)
