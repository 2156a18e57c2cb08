"""What learning and predicting cost by the number of classes, of fields, and of words known.

Every kind of group is put to it: texts, categories, flags and numbers. Two costs a kind: `learn` is
`learn_many`, which judges each example and then learns it; `predict` is `predict_log_proba_many`.
The models have learned the same examples before, so nothing new comes while the clock runs. It is
the processor's clock: a neighbour who takes the core away does not count.

Along each axis a power law is fitted to the times, time ~ size^exponent: with an exponent of 1 the
cost is linear, below that an example pays less for each class, field or word more. It is fitted to
the larger half of the sizes, where what an example costs anyhow hides the least.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.alternate import alternate
from benchmarks.ours import MULTINOMIAL
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets
from benchmarks.vocabulary import knowing, zipf_texts
from streamnb import Categories, Codes, Flags, NaiveBayes, Numbers, Words
from streamnb.features.protocol import Group

CLASSES = (2, 5, 10, 20, 50, 100)
FIELDS = (1, 4, 16, 64)
WORDS = (10_000, 100_000, 1_000_000)
ROWS = 2_000
TURNS = 9
_FIELDS_MEANWHILE = 4  # while classes grow
_CLASSES_MEANWHILE = 2  # while fields grow
_WORDS_A_TEXT = 10
_DISTINCT = 1_000  # words of the texts, and
_VALUES = 20  # values of a category
_EXPONENT_MAX = 1.1  # linear, and the noise of a shared machine

Columns = dict[str, Any]


@dataclass(frozen=True)
class _Point:
    """One model and what it is timed on."""

    model: NaiveBayes
    columns: Columns
    labels: Codes

    def learn(self) -> None:
        self.model.learn_many(self.columns, self.labels)

    def predict(self) -> None:
        self.model.predict_log_proba_many(self.columns)


def scaling(tweets: Tweets, show: Show) -> Result:  # noqa: ARG001 -- a case is called with texts
    """Learn and predict with more and more classes, fields and words, for each kind of group."""
    result = Result("scaling", f"{ROWS:,} made-up examples")
    for kind in KINDS:
        by_classes = {n: _point(kind, n, _FIELDS_MEANWHILE) for n in CLASSES}
        _measure(result, kind, "classes", by_classes, show)
        by_fields = {n: _point(kind, _CLASSES_MEANWHILE, n) for n in FIELDS}
        _measure(result, kind, "fields", by_fields, show)
    texts = {"text": zipf_texts(ROWS, min(WORDS))}
    by_words = {n: _Point(knowing(n, MULTINOMIAL), texts, _labels(2)) for n in WORDS}
    _measure(result, "words", "words", by_words, show)
    return result


def _measure(
    result: Result, kind: str, axis: str, points: Mapping[int, _Point], show: Show
) -> None:
    """Time learning and predicting at each size, and fit how they grow."""
    for what in ("learn", "predict"):
        timed = {f"{n}": _timed(getattr(point, what)) for n, point in points.items()}
        turns = alternate(timed, TURNS, show, warm_up=f"{max(points)}")
        ns = {n: turns.median_s(f"{n}") / ROWS * 1e9 for n in points}
        for n, value in ns.items():
            name = f"{kind}, {what}, {n:,} {axis}"
            result.add(name, value, "ns/example", at=n, curve=f"{kind}, {what}, by {axis}")
        result.add(
            f"{kind}, {what}, by {axis}: exponent",
            _exponent(ns),
            "power",
            at_most=_EXPONENT_MAX,
            curve=f"{kind}, {what}, by {axis}",
        )


def _exponent(ns: Mapping[int, float]) -> float:
    """Return the slope of time over size, both by their logarithms, for the larger sizes."""
    sizes = sorted(ns)[len(ns) // 2 - 1 :]
    times = [ns[size] for size in sizes]
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def _timed(run: Callable[[], None]) -> Callable[[], float]:
    def timed() -> float:
        began = time.process_time()
        run()
        return time.process_time() - began

    return timed


def _labels(n_classes: int) -> Codes:
    names = tuple(f"class {c}" for c in range(n_classes))
    if n_classes == _CLASSES_MEANWHILE:
        names = ("negative", "positive")  # the tweets' own, as `knowing` has them
    return Codes(np.arange(ROWS, dtype=np.int32) % n_classes, names)


def _point(kind: str, n_classes: int, n_fields: int) -> _Point:
    """Return a model of some classes and fields that has learned its examples once."""
    make_group, make_column = KINDS[kind]
    rng = np.random.default_rng(n_classes + n_fields)
    names = [f"field {j}" for j in range(n_fields)]
    labels = _labels(n_classes)
    columns = {name: make_column(rng) for name in names}
    model = NaiveBayes(labels.classes, features=make_group(names))
    point = _Point(model, columns, labels)
    point.learn()
    return point


def _texts(rng: np.random.Generator) -> list[str]:
    rows = rng.integers(0, _DISTINCT, (ROWS, _WORDS_A_TEXT)).tolist()
    return [" ".join(f"word{number}" for number in row) for row in rows]


def _categories(rng: np.random.Generator) -> list[str]:
    return [f"value {v}" for v in rng.integers(0, _VALUES, ROWS).tolist()]


def _word_groups(names: Sequence[str]) -> dict[str, Group]:
    return {name: Words(MULTINOMIAL) for name in names}


_Kind = tuple[Callable[[Sequence[str]], dict[str, Group]], Callable[[np.random.Generator], Any]]
KINDS: dict[str, _Kind] = {
    "texts": (_word_groups, _texts),
    "categories": (lambda names: {"all": Categories(fields=names)}, _categories),
    "flags": (lambda names: {"all": Flags(fields=names)}, lambda rng: rng.random(ROWS) < 0.3),
    "numbers": (lambda names: {"all": Numbers(fields=names)}, lambda rng: rng.normal(size=ROWS)),
}
