"""Cases of the library alone, run in whichever tree `PYTHONPATH` names; see `against_tree`.

`python -P tree_cases.py TEXTS` says which library it found. Then it answers each case's name, that
comes as a line, by a line: the processor seconds that the case took, its preparations apart. Only
public names of `streamnb` are used, so the same file runs in an old tree and in a new one.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import streamnb as nb

CLASSES = ("negative", "positive")
MANY = 20_000  # texts of a call
FEW = 2_000  # examples one by one
BATCH = 32
WORDS = 100_000  # known words of `vocabulary`
TURNS_OF_BYTES = 5

Timed = Callable[[], None]


@cache
def texts() -> tuple[list[str], list[str]]:
    """Return texts and their labels."""
    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return found["texts"], found["labels"]


def model(likelihood: Any = None, *, hash_key: int | None = 1, **words: Any) -> nb.NaiveBayes:
    """Return a model of texts that knows nothing."""
    group = nb.Words(likelihood or nb.Multinomial(nb.Dirichlet(1.0)), **words)
    return nb.NaiveBayes(CLASSES, nb.Dirichlet(1.0), {"text": group}, hash_key=hash_key)


def pairs(hash_key: int | None = 1) -> nb.NaiveBayes:
    """Return the daemon's default model without the hybrid."""
    return model(counts="presence", ngrams=(1, 2), negation=True, hash_key=hash_key)


def _taught(new: nb.NaiveBayes) -> nb.NaiveBayes:
    all_texts, labels = texts()
    new.learn_many({"text": all_texts[:MANY]}, labels[:MANY])
    return new


def _in_one_call(new: nb.NaiveBayes) -> Timed:
    all_texts, labels = texts()
    return lambda: void(new.prequential_many({"text": all_texts[:MANY]}, labels[:MANY]))


def void(_: object) -> None:
    """Forget a value."""


def multinomial() -> Timed:
    """Judge and learn in one call."""
    return _in_one_call(model())


def bernoulli() -> Timed:
    """Judge and learn in one call."""
    return _in_one_call(model(nb.Bernoulli()))


def complement() -> Timed:
    """Judge and learn in one call."""
    return _in_one_call(model(nb.Complement()))


def of_pairs() -> Timed:
    """Judge and learn in one call, as the daemon does without the hybrid."""
    return _in_one_call(pairs())


def hybrid() -> Timed:
    """Judge and learn in one call, as the daemon does."""
    weighed = model(counts="presence", ngrams=(1, 2), negation=True, hybrid=nb.Hybrid())
    return _in_one_call(weighed)


def of_a_part() -> Timed:
    """Judge and learn batches of a thousand into two parts, and publish after each."""
    all_texts, labels = texts()
    learner = nb.Learner(pairs(), nb.SnapshotBoard(), nb.EveryExamples(2_000), time.monotonic)

    def run() -> None:
        for i, first in enumerate(range(0, min(MANY, len(all_texts)), 1_000)):
            some = slice(first, first + 1_000)
            learner.learn(f"part/{i % 2}", {"text": all_texts[some]}, labels[some])
            learner.publish_if_due()

    return run


def small_batches() -> Timed:
    """Judge and learn a few texts a call."""
    new = _taught(pairs())
    all_texts, labels = texts()

    def run() -> None:
        for first in range(0, min(FEW, len(all_texts)), BATCH):
            some = slice(first, first + BATCH)
            new.prequential_many({"text": all_texts[some]}, labels[some])

    return run


def one_at_a_time() -> Timed:
    """Judge, then learn, each text by a call."""
    new = model()
    all_texts, labels = texts()

    def run() -> None:
        for text, label in zip(all_texts[:FEW], labels[:FEW], strict=True):
            new.predict_proba_one({"text": text})
            new.learn_one({"text": text}, label)

    return run


def predict() -> Timed:
    """Judge many texts in a call."""
    new = _taught(pairs())
    columns = {"text": texts()[0][:MANY]}
    return lambda: void(new.predict_log_proba_many(columns))


def predict_one() -> Timed:
    """Judge each text by a call."""
    new = _taught(pairs())
    some = texts()[0][:FEW]

    def run() -> None:
        for text in some:
            new.predict_one({"text": text})

    return run


def vocabulary() -> Timed:
    """Judge and learn made-up texts by Zipf's law, with many words known."""
    new = model()
    order = np.random.default_rng(1).permutation(WORDS).reshape(-1, 10).tolist()
    known = [" ".join([f"word{number}" for number in row]) for row in order]
    new.learn_many({"text": known}, [CLASSES[i % 2] for i in range(len(known))])
    share = 1.0 / np.arange(1, WORDS + 1)
    drawn = np.random.default_rng(7).choice(WORDS, size=(MANY, 12), p=share / share.sum())
    asked = [" ".join([f"word{number}" for number in row]) for row in drawn.tolist()]
    labels = [CLASSES[i % 2] for i in range(MANY)]
    return lambda: void(new.prequential_many({"text": asked}, labels))


def _numbers(n: int) -> tuple[dict[str, Any], list[str]]:
    rng = np.random.default_rng(3)
    columns = {f"x{i}": rng.normal(i, 1 + i, n) for i in range(8)}
    return columns, [CLASSES[i % 2] for i in range(n)]


def _numeric_model(likelihood: Any = None) -> nb.NaiveBayes:
    fields = [f"x{i}" for i in range(8)]
    likelihood = likelihood or nb.Gaussian(nb.NormalInverseGamma(kappa=0.01))
    group = nb.Numbers(likelihood, fields=fields)
    return nb.NaiveBayes(CLASSES, features={"numbers": group})


def numeric() -> Timed:
    """Judge and learn eight numbers an example in one call."""
    columns, labels = _numbers(MANY)
    new = _numeric_model()
    return lambda: void(new.prequential_many(columns, labels))


def numeric_one() -> Timed:
    """Judge, then learn, each example of numbers by a call."""
    return _one_by_one(_numeric_model())


def numeric_one_floor() -> Timed:
    """Do the same by maximum likelihood with a variance floor, the default."""
    return _one_by_one(_numeric_model(nb.Gaussian()))


def _one_by_one(new: nb.NaiveBayes) -> Timed:
    columns, labels = _numbers(FEW)
    # Plain floats: NumPy's do not go the short way.
    plain = [column.tolist() for column in columns.values()]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*plain, strict=True)]

    def run() -> None:
        for x, y in zip(rows, labels, strict=True):
            new.predict_proba_one(x)
            new.learn_one(x, y)

    return run


def mixed() -> Timed:
    """Judge and learn texts, categories, flags and numbers together."""
    all_texts, labels = texts()
    n = min(MANY, len(all_texts))
    columns, _ = _numbers(n)
    records: dict[str, Any] = {
        "text": all_texts[:n],
        "kind": [f"kind{i * i % 17}" for i in range(n)],
        "flag": [i % 3 == 0 for i in range(n)],
        "x0": columns["x0"],
    }
    new = nb.NaiveBayes(
        CLASSES,
        features={
            "text": nb.Words(nb.Multinomial()),
            "kinds": nb.Categories(fields=["kind"]),
            "flags": nb.Flags(fields=["flag"]),
            "numbers": nb.Numbers(fields=["x0"]),
        },
    )
    return lambda: void(new.prequential_many(records, labels[:n]))


def to_and_from_bytes() -> Timed:
    """Pack a model, and make it again; its words are put in an order that follows from the key."""
    return _packed(pairs())


def to_and_from_bytes_unordered() -> Timed:
    """Do the same where nobody gave a key, so that words stand in the order in which they came."""
    return _packed(pairs(None))


def _packed(empty: nb.NaiveBayes) -> Timed:
    new = _taught(empty)

    def run() -> None:
        for _ in range(TURNS_OF_BYTES):
            nb.NaiveBayes.from_bytes(new.to_bytes())

    return run


def explain() -> Timed:
    """Explain texts, and rank the words of each class."""
    new = _taught(pairs())
    some = texts()[0][: FEW // 10]

    def run() -> None:
        for text in some:
            new.explain_one({"text": text})
        new.most_informative(20)

    return run


CASES: dict[str, Callable[[], Timed]] = {
    "multinomial": multinomial,
    "bernoulli": bernoulli,
    "complement": complement,
    "pairs": of_pairs,
    "hybrid": hybrid,
    "parts": of_a_part,
    "small_batches": small_batches,
    "one_at_a_time": one_at_a_time,
    "predict": predict,
    "predict_one": predict_one,
    "vocabulary": vocabulary,
    "numeric": numeric,
    "numeric_one": numeric_one,
    "numeric_one_floor": numeric_one_floor,
    "mixed": mixed,
    "bytes": to_and_from_bytes,
    "bytes_unordered": to_and_from_bytes_unordered,
    "explain": explain,
}


def main() -> None:
    """Answer case by case, until there is no line more."""
    print(nb.__file__, flush=True)
    for line in sys.stdin:
        run = CASES[line.strip()]()
        gc.collect()
        began = time.process_time()
        run()
        print(time.process_time() - began, flush=True)


if __name__ == "__main__":
    main()
