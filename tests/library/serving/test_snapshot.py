"""A snapshot answers as the model did at its moment, whatever the model learns afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from streamnb import (
    AnswerRule,
    Bag,
    Bernoulli,
    Calibrator,
    Categories,
    Flags,
    Gaussian,
    HalfLife,
    Multinomial,
    NaiveBayes,
    NormalInverseGamma,
    Numbers,
    Snapshot,
    Words,
)
from streamnb.inspection.words import word_group
from streamnb.predict import encode, read
from streamnb.reader import ModelReader
from tests.strategies import Example, groups, streams

PROBES = {"text": ["a b c", "not d :)", "", None, "w1 w2 w3 w700", "a a a e f g h"]}


def everything(model: ModelReader) -> tuple[object, ...]:
    """Return all that a model or a snapshot can be asked for."""
    words = sorted(model.words())
    return (
        model.classes,
        model.class_counts.tolist(),
        model.class_priors().tolist(),
        model.n_examples,
        model.vocabulary_size,
        model.words_dropped,
        words,
        model.word_counts([*words, "new"]).tolist(),
        model.word_likelihoods([*words, "new"]).tolist(),
        model.top_words(5),
        model.telling_words(5),
        model.predict_log_proba_many(PROBES).tolist(),
        model.joint_log_likelihood_many(PROBES).tolist(),
        model.predict_one({"text": "a b"}),
    )


def teach(model: NaiveBayes, stream: list[Example]) -> None:
    """Teach a stream as one batch."""
    model.learn_many({"text": [e.text for e in stream]}, [e.label for e in stream])


@pytest.mark.parametrize("since_s", [0.05, 0.7, 1.5, 3.0])
def test_reading_a_snapshot_of_a_decayed_model_changes_nothing_of_it(since_s: float) -> None:
    """Loading leaves the sums over absent words as of another moment; no reader moves them."""
    model = NaiveBayes(features={"text": Words(Bernoulli())}, decay=HalfLife(seconds=1.0))
    for i in range(6):
        for text, label in (("a b c", "x"), ("b d", "y")):
            model.learn_one({"text": text}, label, time_s=0.3 * i)
    model.learn_one({"text": "e"}, "x", time_s=1.8 + since_s)
    snapshot = Snapshot(NaiveBayes.from_bytes(model.to_bytes()), 1)
    before = {key: data for key, (_, data) in memory_of(vars(snapshot), {}).items()}
    snapshot.predict_many({"text": ["a", "b d"]})
    assert {key: data for key, (_, data) in memory_of(vars(snapshot), {}).items()} == before


@given(groups(), streams(), streams())
def test_a_snapshot_never_changes(
    group: Words, before: list[Example], after: list[Example]
) -> None:
    """What the model learns later, new classes and leaving words too, is nothing to a snapshot."""
    model = NaiveBayes(classes=["ham"], features={"text": group}, new_classes=True)
    teach(model, before)
    expected = everything(model)
    snapshot = Snapshot(model, 1)
    assert everything(snapshot) == expected
    teach(model, after)
    assert everything(snapshot) == expected


KINDS: dict[str, tuple[Any, list[Any]]] = {
    "words": (Words(Bernoulli()), ["a b", "c d"]),
    "bag": (Bag(Multinomial(), field="f"), [{"a": 1}, {"c": 2}]),
    "categories": (Categories(), ["red", "blue"]),
    "flags": (Flags(), [True, False]),
    "numbers": (Numbers(), [1.5, 2.5]),
    "numbers, with a prior": (Numbers(Gaussian(NormalInverseGamma())), [1.5, 2.5]),
}


def memory_of(value: Any, found: dict[int, tuple[Any, bytes]]) -> dict[int, tuple[Any, bytes]]:
    """Return all arrays that a value holds, with what is in them."""
    if isinstance(value, np.ndarray):
        found[id(value)] = value, value.tobytes()
    elif isinstance(value, tuple | list):
        for each in value:
            memory_of(each, found)
    elif isinstance(value, dict):
        memory_of(list(value.values()), found)
    elif type(value).__module__.startswith("streamnb"):
        names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
        memory_of([getattr(value, name) for name in names if hasattr(value, name)], found)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("new", ["f", "g"])
def test_reading_a_snapshot_changes_nothing_of_it(kind: str, new: str) -> None:
    """Its arrays are the same ones with the same content, though reading was ahead of learning."""
    group, values = KINDS[kind]
    model = NaiveBayes(["x", "y"], features={"group": group})
    model.learn_many({"f": [values[0]] * 2, "group": ["a b"] * 2}, ["x", "y"])
    # New words and fields have places, and nothing is learned of them yet.
    fields, _ = read(model.state, {"group": ["e f"], "f": [values[0]], new: [values[1]]})
    encode(model.state, fields, 0, 1, np.zeros(1, dtype=np.int32), learn=True)
    snapshot = Snapshot(model, 1)
    before = memory_of(vars(snapshot), {})
    assert before
    for name in ("f", "g"):
        x = {"f": None, "group": "e f", name: values[1]}
        snapshot.predict_log_proba_one(x)
        snapshot.predict_many({key: [value] * 3 for key, value in x.items()})
        snapshot.explain_one(x)
    snapshot.most_informative(3)
    snapshot.parameters()
    after = memory_of(vars(snapshot), {})
    assert after.keys() == before.keys()
    assert [data for _, data in after.values()] == [data for _, data in before.values()]


@pytest.mark.parametrize("likelihood", [Bernoulli(), Multinomial()])
def test_growth_and_compaction_leave_snapshots_alone(likelihood: Bernoulli | Multinomial) -> None:
    """Snapshots of every stage answer as before, after the table grew, dropped and moved."""
    group = Words(likelihood, max_words=800)
    model = NaiveBayes(classes=["ham", "spam"], features={"text": group})
    generator = np.random.default_rng(6)
    taken: list[tuple[Snapshot, tuple[object, ...]]] = []
    tables = set()
    for version in range(12):
        texts = [" ".join(f"w{r}" for r in generator.zipf(1.2, 9) % 20_000) for _ in range(300)]
        model.learn_many({"text": texts}, generator.choice(["ham", "spam"], 300).tolist())
        snapshot = Snapshot(model, version)
        taken.append((snapshot, everything(model)))
        tables.add(id(word_group(model.state, "text").vocabulary.table.slots))
    assert model.words_dropped > 0
    assert len(tables) > 2
    for snapshot, expected in taken:
        assert everything(snapshot) == expected


def test_snapshots_are_read_while_the_model_learns() -> None:
    """Threads that read a snapshot while its model learns get, each time, the same answer."""
    group = Words(Bernoulli(), max_words=2000)
    model = NaiveBayes(classes=["ham", "spam"], features={"text": group})
    generator = np.random.default_rng(7)

    def learn() -> None:
        texts = [" ".join(f"w{r}" for r in generator.integers(0, 30_000, 9)) for _ in range(500)]
        model.learn_many({"text": texts}, generator.choice(["ham", "spam"], 500).tolist())

    learn()
    snapshot = Snapshot(model, 1)
    asked = {"text": PROBES["text"] * 50}
    expected = snapshot.joint_log_likelihood_many(asked)

    def read(_: int) -> bool:
        return np.array_equal(snapshot.joint_log_likelihood_many(asked), expected)

    with ThreadPoolExecutor(2) as readers:
        answers = readers.map(read, range(60))
        for _ in range(10):
            learn()
        assert all(answers)


@pytest.mark.parametrize("name", ["version", "_classes", "anything"])
def test_a_snapshot_is_sealed(name: str) -> None:
    """Nothing of a snapshot can be set, and it has no way to learn."""
    snapshot: Any = Snapshot(NaiveBayes(features={"text": Words(Bernoulli())}), 4)
    with pytest.raises(AttributeError, match=f"a snapshot is sealed; {name} cannot be set"):
        setattr(snapshot, name, 1)
    assert snapshot.version == 4
    assert not hasattr(snapshot, "learn_one")


def test_a_snapshot_of_a_snapshot_answers_as_it_does() -> None:
    """Calibrated, with its sets; what is made of its state alone is calibrated too."""
    model = NaiveBayes(["ham", "spam"], features={"text": Words(Multinomial())})
    model.learn_many({"text": ["a prize", "lunch", "a lunch"]}, ["spam", "ham", "ham"])
    told = Snapshot(model, 3, AnswerRule(Calibrator().curve * 0.5, threshold=0.9))
    asked = {"text": ["a prize", "lunch"]}
    again = Snapshot(told, 4)
    assert again.rule is told.rule
    bare = told.without_prior()
    for one, other in ((told, again), (bare, Snapshot(bare, 0))):
        found = other.predict_log_proba_many(asked)
        assert found.tobytes() == one.predict_log_proba_many(asked).tobytes()
        assert other.stated(asked).tobytes() != found.tobytes()
    assert Snapshot(told, 4, AnswerRule()).rule.curve is None
