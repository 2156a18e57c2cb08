"""A refused call leaves no trace: not in the bytes, in an answer, or in a later snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import (
    Bag,
    Bernoulli,
    Categories,
    Complement,
    Dirichlet,
    Flags,
    HalfLife,
    Multinomial,
    NaiveBayes,
    Numbers,
    Snapshot,
    Words,
)
from streamnb.errors import InputError
from streamnb.features.categorical import CategoriesState
from streamnb.features.counted_words import CountedState
from streamnb.predict import encode, read
from streamnb.testing import Example
from tests.library.testing.random_models import CLASSES, Wanted, cases

FAMILIES = [Multinomial(), Bernoulli(), Complement(), Complement(normalise=True)]
# What no model of these tests has learned, by field; the last of each are fields of open groups.
UNKNOWN: dict[str, list[Any]] = {
    "text": ["never seen", "good never", "  "],
    "bag": [{"never": 2, "good": 1}, {"never": 1}],
    "apple": [0, 7],
    "plum": [1, 3],
    "x": [4.25, float("nan")],
    "w": [3.5],
    "job": ["never", "yes"],
    "town": ["never"],
    "reply": [True, False],
    "fresh": [True, False],
}


def sizes(model: NaiveBayes) -> list[object]:
    """Return how much room a model's groups have given to words, values and fields."""
    found: list[object] = []
    for group in model.state.groups.values():
        if isinstance(group, CountedState):
            found.append(group.vocabulary.n_words)
        elif isinstance(group, CategoriesState):
            found.append((group.table.vocabulary.n_words, group.table.fields.names))
        else:
            found.append(tuple(group.fields))
    return found


def answers(model: NaiveBayes | Snapshot, xs: Sequence[Mapping[str, Any]]) -> list[object]:
    """Return what a model says of examples, comparable bit for bit."""
    if not model.classes:
        return []
    return [_answer(model, x) for x in xs]


def _answer(model: NaiveBayes | Snapshot, x: Mapping[str, Any]) -> object:
    try:
        posteriors = model.predict_log_proba_one(x)
    except InputError:  # it holds no field that the model reads
        return "refused"
    return sorted((str(c), v.hex()) for c, v in posteriors.items())


def must_leave_no_trace(
    model: NaiveBayes, xs: Sequence[Mapping[str, Any]], attempt: Callable[[], object]
) -> bool:
    """Try a call; return whether it was refused, and then nothing has changed."""
    before, said, room = model.to_bytes(), answers(model, xs), sizes(model)
    try:
        attempt()
    except InputError:
        assert model.to_bytes() == before
        assert sizes(model) == room
        assert answers(model, xs) == said
        assert answers(Snapshot(model, 1), xs) == said
        assert answers(NaiveBayes.from_bytes(before), xs) == said
        return True
    return False


@pytest.mark.parametrize("likelihood", FAMILIES, ids=repr)
@pytest.mark.parametrize("n_unknown", [40, 40_000])
def test_unknown_words_are_not_entered(likelihood: Any, n_unknown: int) -> None:
    """A text of unknown words cannot be taken back, and is judged afterwards as it was before."""
    model = NaiveBayes(["a", "b"], features={"text": Words(likelihood)}, hash_key=1)
    known = " ".join(f"w{i}" for i in range(16_380))  # as good as all that a first table holds
    model.learn_one({"text": known}, "a")
    model.learn_one({"text": known}, "b")
    unknown = " ".join(f"u{i}" for i in range(n_unknown))
    xs = [{"text": unknown}, {"text": known}]
    assert must_leave_no_trace(model, xs, lambda: model.unlearn_one({"text": unknown}, "a"))


@pytest.mark.parametrize("likelihood", FAMILIES, ids=repr)
def test_unknown_words_of_a_bag_are_not_entered(likelihood: Any) -> None:
    """Unknown words of a bag cannot be taken back, by the short way or the long one."""
    model = NaiveBayes(["a", "b"], features={"bag": Bag(likelihood, field="bag")}, hash_key=1)
    known = {f"w{i}": 1 for i in range(16_380)}
    for label in "ab":
        model.learn_one({"bag": known}, label)
    unknown = {f"u{i}": 1 for i in range(40)}
    xs: Sequence[Mapping[str, Any]] = [{"bag": unknown}, {"bag": known}]
    assert must_leave_no_trace(model, xs, lambda: model.unlearn_one({"bag": unknown}, "a"))


def test_skipped_words_are_not_entered() -> None:
    """Words that had left, or were never there, are skipped; the table does not grow by them."""
    model = NaiveBayes(features={"text": Words(Multinomial(), max_words=4)}, hash_key=1)
    for text in ("a b c", "d e f", "g h"):
        model.learn_one({"text": text}, "x")
    assert model.words_dropped
    room = sizes(model)
    model.unlearn_one({"text": "never seen before"}, "x")
    assert model.n_skipped == 3
    assert sizes(model) == room


def test_a_word_without_counts_is_unseen() -> None:
    """Words that a broken-off call entered, and nobody counted, are no words to any answer."""
    model = NaiveBayes(["a", "b"], features={"text": Words(Bernoulli())}, hash_key=1)
    for label in "ab":
        model.learn_one({"text": " ".join(f"w{i}" for i in range(16_380))}, label)
    xs = [{"text": " ".join(f"u{i}" for i in range(40))}]
    said = answers(model, xs)
    # As where memory runs out between reading and learning.
    fields, _ = read(model.state, {"text": [xs[0]["text"]]})
    encode(model.state, fields, 0, 1, np.zeros(1, dtype=np.int32), learn=True)
    assert answers(model, xs) == said
    assert answers(Snapshot(model, 1), xs) == said
    assert not model.word_counts(["u1"]).any()
    assert not model.word_likelihoods(["u1"]).any()


@st.composite
def strange(draw: st.DrawFn, x: dict[str, Any]) -> dict[str, Any]:
    """Draw an example with a field or more that hold what was never learned."""
    names = draw(st.sets(st.sampled_from(sorted(UNKNOWN)), min_size=1, max_size=3))
    return x | {name: draw(st.sampled_from(UNKNOWN[name])) for name in sorted(names)}


@given(st.data())
def test_a_refused_unlearning_leaves_no_trace(data: st.DataObject) -> None:
    """Of any model, whatever is refused to be taken back has changed nothing, parts included."""
    case = data.draw(cases(Wanted()))
    model = case.learned()
    part = None
    if case.half_life is None and data.draw(st.booleans()):
        model, part = case.fresh(), "t/0"
        for each in case.examples:
            model.learn_one(each.x, each.y, weight=each.weight, part=part)
    xs = [dict(each.x) for each in case.examples]
    times = [each.time_s for each in case.examples] or [None]
    x = data.draw(strange(data.draw(st.sampled_from([*xs, {}]))))
    y = data.draw(st.sampled_from([*CLASSES, "never"]))
    weight = data.draw(st.sampled_from([1.0, 2.5, 1e6]))
    must_leave_no_trace(
        model, [*xs, x], lambda: model.unlearn_one(x, y, weight=weight, time_s=times[-1], part=part)
    )


@given(st.data())
def test_a_refused_class_leaves_no_trace(data: st.DataObject) -> None:
    """A class that a prior has no number for is refused, though it comes in the last row."""
    case = data.draw(cases(Wanted(is_declared=True)))
    model = case.learned()
    rows = [Example(x={name: None for x in case.probes for name in x}, y="ham"), *case.examples]
    columns = case.columns([replace(each, weight=1.0) for each in rows])
    labels = [*(each.y for each in rows[:-1]), "never"]
    times = [each.time_s for each in case.examples if each.time_s is not None]
    times_s = [*times[:1], *times] or None
    must_leave_no_trace(
        model, case.probes, lambda: model.learn_many(columns, labels, times_s=times_s)
    )
    must_leave_no_trace(model, case.probes, lambda: model.add_class("never"))


@given(st.data())
def test_a_refused_merge_or_subtraction_leaves_no_trace(data: st.DataObject) -> None:
    """Models that cannot be merged, or subtracted, both stay what they were."""
    case = data.draw(cases(Wanted()))
    first, second = (case.learned(stream) for stream in case.shared_out(2))
    before = second.to_bytes()
    must_leave_no_trace(first, case.probes, lambda: first - second)
    must_leave_no_trace(first, case.probes, lambda: first + second)
    assert second.to_bytes() == before


GROUPS: dict[str, Any] = {
    "text": Words(Bernoulli()),
    "bag": Bag(Multinomial(), field="bag"),
    "kinds": Categories(),
    "flags": Flags(),
    "numbers": Numbers(),
}


@pytest.mark.parametrize("decay", [None, HalfLife(seconds=10.0)])
def test_every_group_is_spared_when_the_last_one_refuses(decay: HalfLife | None) -> None:
    """New words, values and fields beside something that is refused are not taken up."""
    model = NaiveBayes(["a", "b"], Dirichlet(1.0), GROUPS, hash_key=1, decay=decay)
    x = {"text": "one two", "bag": {"three": 1}, "job": "four", "reply": True, "x": 1.5}
    for label in "ab":
        model.learn_one(x, label, time_s=None if decay is None else 1.0)
    new = {"text": "u", "bag": {"v": 1}, "town": "w", "fresh": False, "y": 2.5}
    for name, value in new.items():
        taken = {**x, name: value}
        unlearn = partial(model.unlearn_one, taken, "a", time_s=None if decay is None else 1.0)
        assert must_leave_no_trace(model, [x, new, taken], unlearn)
