"""The models whose files and answers are kept: every family and mix, taught by made-up examples.

Only public names of `streamnb` stand here, so the same code runs in an older tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

from scipy import sparse

import streamnb as nb

Row = dict[str, Any]

KEY = 0x5EED
_ARGUMENTS = signature(nb.NaiveBayes).parameters
OPENINGS = ("what a day", "not good", "I don't like it", "sooooo happy :)", "@anna look", "Again")
TOPICS = (
    "coffee",
    "the bus",
    "Größe",
    "naïve café",
    "école",
    "rain rain rain",
    "http://a.example/x",
)
ENDINGS = ("<3", "never again", "at noon", "!!!", "日本語 texts", "😀", "win a prize", "")
LABELS = ("ham", "spam", "eggs")


@dataclass(frozen=True)
class Golden:
    """A model and what it is asked.

    Attributes
    ----------
    model : NaiveBayes
    rows : list of dict
        Examples to judge.
    labels : list of label
        One class for each row, for likelihoods of labelled data.
    has_training_likelihood : bool
        False where its definition is about to change.
    """

    model: nb.NaiveBayes
    rows: list[Row]
    labels: list[Any]
    has_training_likelihood: bool = True


def text(i: int) -> str:
    """Return made-up text number `i`."""
    return f"{OPENINGS[i % 6]} {TOPICS[i * i % 7]} word{i % 11} {ENDINGS[i * 3 % 8]}"


def label(i: int) -> str:
    """Return the class of example number `i`."""
    return LABELS[(i * 7 % 5) % 3]


def record(i: int) -> Row:
    """Return made-up record number `i`, some of its fields missing."""
    return {
        "note": text(i) if i % 7 else None,
        "bag": {f"w{i % 5}": 1 + i % 3, f"w{i * i % 7 + 5}": 2} if i % 6 else None,
        "income": ("low", "middle", "high")[i * i % 3] if i % 5 else None,
        "house": i % 4 if i % 9 else None,
        "stable": bool(i % 3) if i % 8 else None,
        "late": i * i % 5 == 1,
        "amount": (i * 37 % 101) / 7 + 1e3 * (i % 3) if i % 10 else None,
        "age": 20 + i * 13 % 47,
    }


def columns_of(rows: list[Row]) -> dict[str, list[Any]]:
    """Return rows as columns; what a row has not is None."""
    return {
        name: [row.get(name) for row in rows] for name in dict.fromkeys(k for r in rows for k in r)
    }


TEXTS = [text(i) for i in range(40)]
TEXT_LABELS = [label(i) for i in range(40)]
TEXT_ROWS: list[Row] = [
    {"text": TEXTS[3]},
    {"text": "never a good prize, not word3 but coffee :) coffee"},
    {"text": ""},
]
RECORDS = [record(i) for i in range(36)]
RECORD_LABELS = [label(i) for i in range(36)]
RECORD_ROWS = [record(50), record(9), {"income": "unheard of", "amount": 12.5}]

MIXED = {
    "note": nb.Words(nb.Multinomial(nb.Dirichlet(0.5)), ngrams=(1, 2)),
    "bag": nb.Bag(nb.Bernoulli(), field="bag"),
    "kinds": nb.Categories(fields=["income", "house"]),
    "flags": nb.Flags(fields=["stable", "late"]),
    "numbers": nb.Numbers(nb.Gaussian(nb.VarianceFloor(1e-3)), fields=["amount", "age"]),
}


def _made(features: dict[str, Any], **settings: Any) -> nb.NaiveBayes:
    # In 0.1.0 any class could join, and there was no such argument.
    open_to_all: dict[str, Any] = {"new_classes": True} if "new_classes" in _ARGUMENTS else {}
    model = nb.NaiveBayes(features=features, hash_key=KEY, **settings, **open_to_all)
    if hasattr(model, "state"):  # 0.1.0 has none, and wrote words as they came, with a key too
        for group in model.state.groups.values():
            group.in_order = False
    return model


def _words(likelihood: Any, settings: dict[str, Any] | None = None, **words: Any) -> Golden:
    model = _made({"text": nb.Words(likelihood, **words)}, **(settings or {}))
    model.learn_many({"text": TEXTS}, TEXT_LABELS)
    return Golden(model, TEXT_ROWS, ["ham", "spam", "eggs"])


def _records(features: dict[str, Any], *, training: bool = True, **settings: Any) -> Golden:
    model = _made(features, **settings)
    model.learn_many(columns_of(RECORDS), RECORD_LABELS)
    return Golden(model, RECORD_ROWS, ["ham", "spam", "eggs"], training)


def _numbers(prior: Any, variance: Any = "own") -> Golden:
    numbers = nb.Numbers(nb.Gaussian(prior, variance=variance), fields=["amount", "age"])
    return _records({"numbers": numbers}, training=isinstance(prior, nb.VarianceFloor))


def _bag_of_fields() -> Golden:
    model = _made({"bag": nb.Bag(nb.Multinomial())})
    rows = [{f"w{k}": (i * k) % 4 for k in range(1, 6)} for i in range(20)]
    model.learn_many(columns_of(rows), [label(i) for i in range(20)])
    return Golden(model, [*rows[2:4], {"w1": 3, "new": 2}], ["ham", "spam", "eggs"])


def _bag_of_a_matrix() -> Golden:
    words = ("sun", "rain", "wind", "snow")
    model = _made({"bag": nb.Bag(nb.Complement(), field="bag", dictionary=words)})
    counts = sparse.csr_matrix([[i % 3, i % 2, (i * i) % 5, 0] for i in range(18)], dtype=float)
    model.learn_many({"bag": counts}, [label(i) for i in range(18)])
    rows: list[Row] = [{"bag": {"sun": 2, "snow": 1}}, {"bag": {"wind": 3, "hail": 1}}, {"bag": {}}]
    return Golden(model, rows, ["ham", "spam", "eggs"])


def _bag_of_lists() -> Golden:
    model = _made({"bag": nb.Bag(nb.Multinomial(), field="bag", max_words=12)})
    model.learn_many({"bag": [one.split() for one in TEXTS]}, TEXT_LABELS)
    rows = [{"bag": one["text"].split()} for one in TEXT_ROWS]
    return Golden(model, rows, ["ham", "spam", "eggs"])


def _one_by_one() -> Golden:
    """Teach single examples with weights, whole and broken."""
    model = _made(MIXED, classes=LABELS)
    for i, (x, y) in enumerate(zip(RECORDS, RECORD_LABELS, strict=True)):
        model.learn_one(x, y, weight=(1.0, 2.0, 0.25)[i % 3])
    return Golden(model, RECORD_ROWS, ["ham", "spam", "eggs"])


def _unlearned() -> Golden:
    """Take back every third of what was learned."""
    model = _made({name: MIXED[name] for name in ("note", "bag", "kinds", "flags")}, classes=LABELS)
    model.learn_many(columns_of(RECORDS), RECORD_LABELS)
    for x, y in zip(RECORDS[::3], RECORD_LABELS[::3], strict=True):
        model.unlearn_one(x, y)
    return Golden(model, RECORD_ROWS, ["ham", "spam", "eggs"])


def _unlearned_numbers() -> Golden:
    """Take back numbers."""
    model = _made({"numbers": MIXED["numbers"]}, classes=LABELS)
    model.learn_many(columns_of(RECORDS), RECORD_LABELS)
    for x, y in zip(RECORDS[:9], RECORD_LABELS[:9], strict=True):
        model.unlearn_one(x, y)
    return Golden(model, RECORD_ROWS, ["ham", "spam", "eggs"])


def _thirds(**settings: Any) -> list[nb.NaiveBayes]:
    models = [_made(MIXED, classes=LABELS, **settings) for _ in range(3)]
    for i, model in enumerate(models):
        model.learn_many(columns_of(RECORDS[i::3]), RECORD_LABELS[i::3])
    return models


def _merged() -> Golden:
    return Golden(nb.merge(*_thirds()), RECORD_ROWS, ["ham", "spam", "eggs"])


def _subtracted() -> Golden:
    first, second, _ = _thirds()
    return Golden(
        nb.subtract(nb.merge(first, second), second), RECORD_ROWS, ["ham", "spam", "eggs"]
    )


def _decay(half_life: nb.HalfLife) -> Golden:
    model = _made(MIXED, classes=LABELS, decay=half_life)
    # Event times come out of order; three years pass once, so that scales must move.
    times = [i * 40.0 - (i % 4) * 90.0 + (1e8 if i > 30 else 0.0) for i in range(len(RECORDS))]
    if half_life.seconds is None:
        model.learn_many(columns_of(RECORDS), RECORD_LABELS)
    else:
        model.learn_many(columns_of(RECORDS), RECORD_LABELS, times_s=times)
    return Golden(model, RECORD_ROWS, ["ham", "spam", "eggs"])


def _parts(*, forgotten: bool = False, **settings: Any) -> Golden:
    model = _made(MIXED, classes=LABELS, **settings)
    times = {"times_s": [60.0 * i for i in range(12)]} if settings else {}
    for i in range(3):
        rows, labels = RECORDS[i::3], RECORD_LABELS[i::3]
        model.learn_many(columns_of(rows), labels, part=f"topic-{i}", **times)
    if forgotten:
        model.forget_parts()
    return Golden(model, RECORD_ROWS, ["ham", "spam", "eggs"])


def _prequential() -> Golden:
    """Judge and learn in calls of a few rows."""
    model = _made({"text": nb.Words(nb.Bernoulli(), ngrams=(1, 2), negation=True)})
    for first in range(0, 40, 7):
        some = slice(first, first + 7)
        model.prequential_many({"text": TEXTS[some]}, TEXT_LABELS[some])
    return Golden(model, TEXT_ROWS, ["ham", "spam", "eggs"])


def _labels(kinds: tuple[Any, ...]) -> Golden:
    model = _made({"text": nb.Words(nb.Multinomial())})
    model.learn_many({"text": TEXTS}, [kinds[i % len(kinds)] for i in range(40)])
    return Golden(model, TEXT_ROWS, [kinds[0], kinds[1], kinds[0]])


def _one(name: str, group: Any) -> Callable[[], Golden]:
    return lambda: _records({name: group})


_FIXED = nb.Fixed({"ham": 0.5, "spam": 0.3, "eggs": 0.2})
_DICTIONARY = ("coffee", "not good", "¬good", "good", "never", "prize")

CASES: dict[str, Callable[[], Golden]] = {
    "words-multinomial": lambda: _words(nb.Multinomial()),
    "words-multinomial-mle": lambda: _words(nb.Multinomial(nb.MAXIMUM_LIKELIHOOD)),
    "words-multinomial-ngrams": lambda: _words(
        nb.Multinomial(), ngrams=(1, 2), negation=True, counts="presence"
    ),
    "words-multinomial-by-class": lambda: _words(
        nb.Multinomial(nb.Dirichlet([[0.5, 1.0, 2.0]])), {"classes": LABELS}
    ),
    "words-multinomial-dictionary": lambda: _words(
        nb.Multinomial(), ngrams=(1, 2), negation=True, dictionary=_DICTIONARY
    ),
    "words-multinomial-full": lambda: _words(nb.Multinomial(), max_words=20),
    "words-multinomial-plain": lambda: _words(
        nb.Multinomial(),
        case_fold=False,
        fold_mentions=False,
        fold_links=False,
        squeeze=False,
        emoticons=False,
    ),
    "words-bernoulli": lambda: _words(nb.Bernoulli()),
    "words-bernoulli-prior": lambda: _words(nb.Bernoulli(nb.Beta(0.5, 2.0)), ngrams=(1, 3)),
    "words-bernoulli-dictionary": lambda: _words(
        nb.Bernoulli(), ngrams=(1, 2), negation=True, dictionary=_DICTIONARY
    ),
    "words-bernoulli-full": lambda: _words(nb.Bernoulli(), max_words=20),
    "words-complement": lambda: _words(nb.Complement()),
    "words-complement-normalised": lambda: _words(
        nb.Complement(nb.Dirichlet(0.5), normalise=True), ngrams=(1, 2)
    ),
    "words-prequential": _prequential,
    "bag-mapping-bernoulli": _one("bag", nb.Bag(nb.Bernoulli(), field="bag")),
    "bag-fields": _bag_of_fields,
    "bag-matrix-complement": _bag_of_a_matrix,
    "bag-lists-full": _bag_of_lists,
    "categories": _one("kinds", nb.Categories(fields=["income", "house"])),
    "categories-mle": _one(
        "kinds", nb.Categories(nb.Categorical(nb.Dirichlet(0.0)), fields=["income", "house"])
    ),
    "categories-declared": _one(
        "kinds", nb.Categories(fields=["income"], values={"income": ["low", "middle", "high"]})
    ),
    "categories-full": _one("kinds", nb.Categories(fields=["note", "house"], max_values=10)),
    "flags": _one("flags", nb.Flags(fields=["stable", "late"])),
    "flags-absent-is-false": _one(
        "flags",
        nb.Flags(nb.Bernoulli(nb.Beta(2, 0.5)), fields=["stable", "late"], absent_is_false=True),
    ),
    "numbers-floor": lambda: _numbers(nb.VarianceFloor(1e-9)),
    "numbers-floor-shared": lambda: _numbers(nb.VarianceFloor(1e-3), "shared"),
    "numbers-floor-none": lambda: _numbers(nb.VarianceFloor(0.0)),
    "numbers-nig": lambda: _numbers(nb.NormalInverseGamma()),
    "numbers-nig-shared": lambda: _numbers(nb.NormalInverseGamma(), "shared"),
    "numbers-nig-declared": lambda: _numbers(nb.NormalInverseGamma(10.0, 0.5, 2.0, 300.0)),
    "numbers-nig-declared-shared": lambda: _numbers(
        nb.NormalInverseGamma(10.0, 0.5, 2.0, 300.0), "shared"
    ),
    "open-fields": lambda: _records(
        {"numbers": nb.Numbers(), "flags": nb.Flags(), "kinds": nb.Categories()}
    ),
    "mixed": lambda: _records(MIXED),
    "mixed-class-prior-by-class": lambda: _records(
        MIXED, classes=LABELS, class_prior=nb.Dirichlet([1.0, 2.0, 0.5])
    ),
    "mixed-class-prior-mle": lambda: _records(MIXED, class_prior=nb.MAXIMUM_LIKELIHOOD),
    "mixed-fixed": lambda: _records(MIXED, classes=LABELS, class_prior=_FIXED),
    "mixed-weights": _one_by_one,
    "mixed-unlearned": _unlearned,
    "numbers-unlearned": _unlearned_numbers,
    "mixed-merged": _merged,
    "mixed-subtracted": _subtracted,
    "mixed-parts": _parts,
    "mixed-parts-forgotten": lambda: _parts(forgotten=True),
    "decay-examples": lambda: _decay(nb.HalfLife(examples=8.0)),
    "decay-seconds": lambda: _decay(nb.HalfLife(seconds=300.0)),
    "decay-parts": lambda: _parts(decay=nb.HalfLife(seconds=300.0)),
    "labels-whole-numbers": lambda: _labels((3, 0, 7)),
    "labels-truth-values": lambda: _labels((False, True)),
    "untaught": lambda: Golden(_made(MIXED, classes=LABELS), RECORD_ROWS, ["ham", "spam", "eggs"]),
}
