"""Parts: each is a function of its own log, and the model is their sum."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import (
    Bernoulli,
    Categories,
    Flags,
    Folds,
    HalfLife,
    Multinomial,
    NaiveBayes,
    Numbers,
    Words,
)
from streamnb.errors import InputError, StreamnbError
from streamnb.features.protocol import Group
from streamnb.inspection.words import word_group
from streamnb.kernels.layout import LIVE
from tests import naive
from tests.library.streams import part_counts
from tests.strategies import Example, cuts, groups, streams

CLASSES = ("ham", "spam", "eggs")


def model_of(group: Words) -> NaiveBayes:
    """Return a model that knows its classes and nothing else."""
    return NaiveBayes(classes=CLASSES, features={"text": group}, hash_key=3)


def held_by(model: NaiveBayes, name: str) -> dict[str, list[float]]:
    """Return a part's counts by word."""
    vocabulary = word_group(model.state, "text").vocabulary
    by_word = part_counts(model.parts[name], "text").by_word
    columns = np.flatnonzero(by_word.any(axis=1))
    words = vocabulary.words(columns)
    return dict(zip(words, by_word[columns].tolist(), strict=True))


def facts(model: NaiveBayes, name: str) -> tuple[object, ...]:
    """Return all that a part knows."""
    part = model.parts[name]
    counts = part_counts(part, "text")
    return (
        part.class_counts.tolist(),
        held_by(model, name),
        counts.examples.tolist(),
        counts.tokens.tolist(),
        int(counts.state[0]),
        part.n_dropped,
    )


def teach(model: NaiveBayes, stream: Iterable[Example]) -> NaiveBayes:
    """Teach each example to the part it names."""
    for example in stream:
        model.learn_one({"text": example.text}, example.label, part=example.part)
    return model


def judged(model: NaiveBayes, stream: list[Example], bounds: Iterable[int]) -> np.ndarray:
    """Teach a log in batches that begin at `bounds`; return all log-posteriors."""
    rows = [np.empty((0, len(CLASSES)))]
    for begin, end in pairwise([*bounds, len(stream)]):
        batch = stream[begin:end]
        columns = {"text": [e.text for e in batch]}
        rows.append(model.prequential_many(columns, [e.label for e in batch], part="x/0"))
    return np.concatenate(rows)


def assert_is_sum(model: NaiveBayes) -> None:
    """Check that every count of the model is the sum of its parts', and its cache that of them."""
    total: dict[str, np.ndarray] = {}
    for name in model.parts:
        for word, held in held_by(model, name).items():
            total[word] = total.get(word, np.zeros(len(CLASSES))) + held
    words = sorted(model.words())
    assert words == sorted(total)
    assert model.word_counts(words).tolist() == [total[word].tolist() for word in words]
    parts = list(model.parts.values())
    assert model.class_counts.tolist() == sum(p.class_counts for p in parts).tolist()  # type: ignore[union-attr]
    state = word_group(model.state, "text")
    tokens = [part_counts(p, "text").tokens for p in parts]
    assert state.counts.tokens.tolist() == sum(tokens).tolist()  # type: ignore[union-attr]
    assert int(state.counts.state[0]) == len(words)
    assert model.words_dropped == sum(p.n_dropped["text"] for p in parts)
    asked = {"text": ["a b", "c not d", "", None]}
    before = model.joint_log_likelihood_many(asked)
    state.rebuild()
    assert np.array_equal(before, model.joint_log_likelihood_many(asked))


@given(groups(), streams(parts=("x/0", "x/1"), max_size=60))
def test_a_part_is_a_function_of_its_own_log(group: Words, stream: list[Example]) -> None:
    """However two logs are interleaved, each part is the one that its log alone would make."""
    together = teach(model_of(group), stream)
    for name in together.parts:
        alone = teach(model_of(group), (e for e in stream if e.part == name))
        assert facts(together, name) == facts(alone, name)
    assert_is_sum(together)


@given(groups(), streams(parts=("x/0",)))
def test_a_part_alone_is_its_plain_twin(group: Words, stream: list[Example]) -> None:
    """A part's counts are those of the twin that knows one log, also where words left."""
    model = teach(model_of(group), stream)
    twin = naive.NaiveModel(group, classes=list(CLASSES))
    for example in stream:
        twin.learn(example.text, example.label)
    assert held_by(model, "x/0") == {
        word: [float(counts[c]) for c in CLASSES] for word, counts in twin.counts.items()
    }
    assert model.words_dropped == twin.n_dropped


@given(groups(), streams(parts=("x/0",)), cuts())
def test_cuts_are_nothing_to_a_part(group: Words, stream: list[Example], where: list[int]) -> None:
    """However a log is cut into batches, its part is the same, and so is each judgement."""
    cut, single = model_of(group), model_of(group)
    bounds = [0, *(min(at, len(stream)) for at in where), len(stream)]
    assert np.array_equal(judged(cut, stream, bounds), judged(single, stream, range(len(stream))))
    assert facts(cut, "x/0") == facts(single, "x/0")
    assert_is_sum(cut)


@given(groups(), streams(parts=("x/0",)), st.integers(0, 40))
def test_an_only_part_is_the_sum_itself(group: Words, stream: list[Example], at: int) -> None:
    """It is counted once, and is what it is beside an empty part, which may come at any time."""
    alone, beside = model_of(group), model_of(group)
    beside.learn_many({"text": []}, [], part="x/1")
    for i, example in enumerate(stream):
        if i == at:
            alone.learn_many({"text": []}, [], part="x/1")
        said = [judged(model, [example], [0]).tobytes() for model in (alone, beside)]
        assert said[0] == said[1]
        counts = part_counts(alone.parts["x/0"], "text")
        assert (counts is word_group(alone.state, "text").counts) == (i < at)
        if i % 3 == 2:
            for model in (alone, beside):
                model.unlearn_one({"text": example.text}, example.label, part="x/0")
    if stream:
        assert facts(alone, "x/0") == facts(beside, "x/0")
        assert_is_sum(alone)
        beside.drop_part("x/1")
        assert facts(alone, "x/0") == facts(beside, "x/0")
        held = part_counts(beside.parts["x/0"], "text")
        assert held is word_group(beside.state, "text").counts


@pytest.mark.parametrize("likelihood", [Bernoulli(), Multinomial()])
def test_parts_survive_growth_dropping_and_compaction(likelihood: Bernoulli | Multinomial) -> None:
    """Through thousands of words that come and leave, parts stay their logs' and add up."""
    group = Words(likelihood, max_words=300)
    generator = np.random.default_rng(5)
    ranks = generator.zipf(1.3, size=(2400, 8)) % 5000
    stream = [
        Example(" ".join(f"w{r}" for r in row), CLASSES[i % 3], f"x/{i % 7 % 2}")
        for i, row in enumerate(ranks)
    ]
    together = model_of(group)
    for begin in range(0, len(stream), 200):
        for name in ("x/0", "x/1"):
            batch = [e for e in stream[begin : begin + 200] if e.part == name]
            columns = {"text": [e.text for e in batch]}
            together.learn_many(columns, [e.label for e in batch], part=name)
    n_seen = len({word for e in stream for word in (e.text or "").split()})
    assert word_group(together.state, "text").vocabulary.n_words < n_seen  # it was compacted
    assert together.words_dropped > 300
    for name in ("x/0", "x/1"):
        alone = teach(model_of(group), (e for e in stream if e.part == name))
        assert facts(together, name) == facts(alone, name)
    assert_is_sum(together)


def test_a_model_in_parts_learns_by_part_only() -> None:
    """Learning without a part, or cutting a model that learned whole, is refused and harmless."""
    model = model_of(Words(Bernoulli()))
    model.learn_one({"text": "a"}, "ham", part="x/0")
    with pytest.raises(InputError, match=r"parts \(x/0\): part must say which"):
        model.learn_one({"text": "a"}, "ham")
    whole = model_of(Words(Bernoulli()))
    whole.learn_one({"text": "a"}, "ham")
    with pytest.raises(InputError, match="learned as a whole"):
        whole.learn_one({"text": "a"}, "ham", part="x/0")
    assert (model.n_examples, whole.n_examples, dict(whole.parts)) == (1, 1, {})


def test_new_classes_reach_every_part() -> None:
    """A class that one log brings has zeros in the others, and the sum has all."""
    model = NaiveBayes(features={"text": Words(Multinomial())})
    model.learn_one({"text": "a"}, "ham", part="x/0")
    model.learn_one({"text": "b"}, "spam", part="x/1")
    assert model.classes == ("ham", "spam")
    counts = {name: part.class_counts.tolist() for name, part in model.parts.items()}
    assert counts == {"x/0": [1, 0], "x/1": [0, 1]}
    assert model.word_counts(["a", "b"]).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("likelihood", [Bernoulli(), Multinomial()])
def test_dropped_words_leave_nothing_in_the_sum(likelihood: Bernoulli | Multinomial) -> None:
    """Where weights are no whole numbers, a sum rounds: no rest of it stays of words that left."""
    model = NaiveBayes(CLASSES, features={"text": Words(likelihood, max_words=4)}, hash_key=1)
    for part, weight in zip("pqp", (0.1, 0.7, 0.3), strict=True):
        model.learn_one({"text": "aa"}, "ham", weight=weight, part=part)
    for part in "pq":  # heavier words push the first out of both parts
        for word in ("bb", "cc", "dd", "ee", "ff", "gg"):
            model.learn_one({"text": word}, "spam", weight=2.0, part=part)
    state = word_group(model.state, "text")
    assert state.counts.by_word.min() == 0.0
    assert state.counts.tokens[0] == 0.0
    assert "aa" not in model.words()
    model.forget_parts()
    loaded = NaiveBayes.from_bytes(model.to_bytes())
    assert loaded.vocabulary_size == model.vocabulary_size


# ---- parts as models -----------------------------------------------------------------------------

LOGS = ("x/0", "x/1", "x/2")


@given(groups(), streams(parts=LOGS, max_size=40))
def test_a_part_taken_out_is_its_log_alone(group: Words, stream: list[Example]) -> None:
    """A part as a model is the model of its log, and the model without it that of the others."""
    whole = teach(model_of(group), stream)
    names = list(whole.parts)
    taken = {name: whole.part(name) for name in names}
    for name in names:
        alone = teach(model_of(group), (e for e in stream if e.part == name))
        assert facts(taken[name], name) == facts(alone, name)
        assert_is_sum(taken[name])
        assert NaiveBayes.from_bytes(taken[name].to_bytes()).parts.keys() == {name}
    for name in names[1:]:
        whole.drop_part(name)
        assert name not in whole.parts
        assert_is_sum(whole)
    for name in names[:1]:
        assert facts(whole, name) == facts(taken[name], name)


@given(groups(), streams(parts=LOGS, max_size=60), cuts(), st.data())
def test_logs_that_move_between_models_count_once(
    group: Words, stream: list[Example], where: list[int], data: st.DataObject
) -> None:
    """However logs move between two models, with their parts, the owned parts are one model's."""
    models = [model_of(group), NaiveBayes(classes=CLASSES, features={"text": group}, hash_key=9)]
    owner = dict.fromkeys(LOGS, 0)
    bounds = [0, *(min(at, len(stream)) for at in where), len(stream)]
    for begin, end in pairwise(bounds):
        for e in stream[begin:end]:
            models[owner[e.part]].learn_one({"text": e.text}, e.label, part=e.part)
        name = data.draw(st.sampled_from(LOGS))
        old = models[owner[name]]
        if name in old.parts:
            owner[name] = 1 - owner[name]
            models[owner[name]].set_part(name, old.part(name))
            if data.draw(st.booleans()):
                old.drop_part(name)
    alone = teach(model_of(group), stream)
    for name in alone.parts:
        assert facts(models[owner[name]], name) == facts(alone, name)
    for model in models:
        if model.parts:
            assert_is_sum(model)


def mixed(decay: HalfLife | None) -> NaiveBayes:
    """Return a model with a group of each kind, whose classes may be joined by others."""
    features: dict[str, Group] = {
        "text": Words(Multinomial(), ngrams=(1, 2)),
        "kind": Categories(),
        "marked": Flags(fields=("marked",)),
        "size": Numbers(fields=("size", "age")),
    }
    return NaiveBayes(classes=CLASSES, features=features, decay=decay, new_classes=True)


@pytest.mark.parametrize("decay", [None, HalfLife(seconds=900.0)])
def test_parts_of_every_kind_of_group_move(decay: HalfLife | None) -> None:
    """Words, categories, flags and numbers all move, with classes that join, bit for bit.

    Under decay, where counts are no whole numbers, to rounding: sums of rows have an order.
    """
    generator = np.random.default_rng(11)
    one, single = mixed(decay), mixed(decay)
    for i in range(600):
        x = {
            "text": " ".join(f"w{k}" for k in generator.integers(0, 40, 4)),
            "kind": f"k{generator.integers(0, 9)}",
            "marked": bool(generator.integers(0, 2)),
            "size": float(generator.normal()),
            "age": float(generator.normal(40, 9)),
        }
        label, log = (*CLASSES, "late")[i % (3 if i < 300 else 4)], LOGS[i % 3]
        single.learn_one(x, label, part=log, time_s=float(i))
        one.learn_one(x, label, part=log, time_s=float(i))
        if i % 97 == 0:  # its counts move into a model that knows the other logs of before
            other = mixed(decay)
            for name in one.parts:
                other.set_part(name, one.part(name))
            other.set_part(log, other)  # what is wrong is put right
            other.set_part(log, one.part(log))
            one = other
    asked = [{"text": f"w{k} w{k + 1}", "kind": f"k{k % 9}", "size": k / 9} for k in range(30)]
    assert one.classes == single.classes
    assert one.n_examples == single.n_examples
    columns = {name: [x[name] for x in asked] for name in asked[0]}
    expected = single.joint_log_likelihood_many(columns)
    found = one.joint_log_likelihood_many(columns)
    assert np.allclose(found, expected, rtol=1e-12, atol=0.0)
    assert decay is not None or np.array_equal(found, expected)


def test_dropping_every_part_leaves_an_empty_model() -> None:
    """It may then learn as a whole, or in parts, as a new one does."""
    model = model_of(Words(Bernoulli()))
    model.learn_one({"text": "a"}, "ham", part="x/0")
    model.drop_part("x/0")
    assert (model.n_examples, model.words(), model.parts) == (0, [], {})
    model.learn_one({"text": "b"}, "spam")
    assert model.words() == ["b"]


def test_parts_that_cannot_be_put_in_change_nothing() -> None:
    """Another kind of model, an unknown class, or a model that learned whole is refused."""
    model = model_of(Words(Bernoulli()))
    model.learn_one({"text": "a"}, "ham", part="x/0")
    before = model.to_bytes()
    wrong: list[tuple[Any, Any, str]] = [
        ("x/0", model_of(Words(Multinomial())), "do not count the same things"),
        ("x/1", model.state, "a NaiveBayes is wanted"),
        (3, model, "part must be a str"),
    ]
    for name, other, why in wrong:
        with pytest.raises(InputError, match=why):
            model.set_part(name, other)
        assert model.to_bytes() == before
    learned = NaiveBayes(features={"text": Words(Bernoulli())})
    learned.learn_one({"text": "a"}, "eel")
    with pytest.raises(InputError, match="declared by neither"):
        model.set_part("x/1", learned)
    assert model.to_bytes() == before
    with pytest.raises(InputError, match="learned as a whole"):
        learned.set_part("x/0", learned)
    with pytest.raises(InputError, match="no such part"):
        model.part("x/9")
    with pytest.raises(InputError, match="no such part"):
        model.drop_part("x/9")


def test_counts_left_by_other_weights_are_not_thrown_away() -> None:
    """A model of as many examples taken back as learned may still hold what one of them taught."""
    model = NaiveBayes(features={"text": Words(Multinomial())})
    model.learn_many({"text": ["x", "y"]}, ["a", "b"], weights=[2.0, 1.0])
    model.unlearn_many({"text": ["x", "x"]}, ["a", "a"])
    assert model.n_examples == 0
    part = NaiveBayes(features={"text": Words(Multinomial())}, hash_key=model.state.hash_key)
    part.learn_one({"text": "z"}, "c", part="p")
    before = model.to_bytes()
    with pytest.raises(InputError, match="learned as a whole"):
        model.set_part("p", part.part("p"))
    with pytest.raises(InputError, match="learned as a whole"):
        model.learn_one({"text": "z"}, "c", part="p")
    with pytest.raises(InputError, match="has learned nothing"):
        Folds(model, 2)
    assert model.to_bytes() == before


@pytest.mark.parametrize("parts", [("p",), ("p", "q")])
def test_counts_that_disagree_with_their_number_are_told(parts: tuple[str, ...]) -> None:
    """Where no word can leave, though there seems to be no room, learning ends with an error."""
    model = model_of(Words(Multinomial(), max_words=4))
    for part in parts:
        model.learn_one({"text": "a b"}, "ham", part=part)
    part_counts(model.parts["p"], "text").state[LIVE] = 100
    with pytest.raises(StreamnbError, match="no word or value is one too many"):
        model.learn_one({"text": "c"}, "ham", part="p")
