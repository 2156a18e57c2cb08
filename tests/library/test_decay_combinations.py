"""Decay beside the rest: merging, parts, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Complement,
    HalfLife,
    Multinomial,
    NaiveBayes,
    merge,
    subtract,
)
from streamnb.errors import InputError
from streamnb.features.protocol import Group
from tests.library.features.count_models import (
    PROBES,
    WORDS,
    Example,
    close,
    examples,
    facts,
    learn,
    model_of,
)
from tests.library.test_decay import HALF_LIVES, bags, has_zeros, plain_features, timed


@given(plain_features, timed, timed, HALF_LIVES)
def test_merged_by_seconds_is_one_stream(
    groups: dict[str, Group], mine: list[Example], theirs: list[Example], half_life: float
) -> None:
    """With a half-life in seconds the sum is what one model learns from both streams."""
    decay = HalfLife(seconds=half_life)
    merged = learn(model_of(groups, decay=decay), mine) + learn(
        model_of(groups, decay=decay), theirs
    )
    whole = learn(model_of(groups, decay=decay), [*mine, *theirs])
    assert merged.class_counts == pytest.approx(whole.class_counts, rel=1e-10, abs=1e-200)
    if not has_zeros(groups):
        close(merged.joint_log_likelihood_many(PROBES), whole.joint_log_likelihood_many(PROBES))
    assert facts(NaiveBayes.from_bytes(merged.to_bytes())) == facts(merged)
    rest = merged - learn(model_of(groups, decay=decay), theirs)
    mine_then = learn(model_of(groups, decay=decay), mine)
    age = 2.0 ** ((max_time(mine) - max_time([*mine, *theirs])) / half_life) if mine else 0.0
    assert rest.class_counts == pytest.approx(mine_then.class_counts * age, rel=1e-6, abs=1e-6)


def max_time(stream: Sequence[Example]) -> float:
    """Return the latest time."""
    return max(each.time_s or 0.0 for each in stream)


@given(examples(max_size=20), examples(max_size=20), st.sampled_from([0.05, 3.0]))
def test_merged_by_examples_enters_as_it_stands(
    mine: list[Example], theirs: list[Example], half_life: float
) -> None:
    """With a half-life in examples, both count in the sum as they do by themselves."""
    decay = HalfLife(examples=half_life)
    a = learn(model_of(bags(), decay=decay), mine)
    b = learn(model_of(bags(), decay=decay), theirs)
    merged = merge(a, b)
    assert merged.class_counts == pytest.approx(a.class_counts + b.class_counts, rel=1e-12)
    summed = a.word_counts(WORDS) + b.word_counts(WORDS)
    assert merged.word_counts(WORDS) == pytest.approx(summed, rel=1e-12)
    with pytest.raises(InputError, match="cannot be subtracted"):
        subtract(merged, a)


@given(timed, st.sampled_from([0.05, 7.3]))
def test_parts_are_of_one_clock(stream: list[Example], half_life: float) -> None:
    """In parts by seconds the model is the parts' sum, and each part is saved bit for bit."""
    model = model_of(bags(), decay=HalfLife(seconds=half_life))
    for i, each in enumerate(stream):
        model.learn_one(
            each.x, each.label, weight=each.weight, time_s=each.time_s, part=f"p/{i % 3}"
        )
    whole = learn(model_of(bags(), decay=HalfLife(seconds=half_life)), stream)
    assert model.class_counts == pytest.approx(whole.class_counts, rel=1e-12, abs=1e-200)
    restored = NaiveBayes.from_bytes(model.to_bytes())
    assert restored.to_bytes() == model.to_bytes()
    # The parts are restored bit for bit; their sum, of fractions now, to rounding.
    close(
        restored.joint_log_likelihood_many(PROBES), model.joint_log_likelihood_many(PROBES), 1e-12
    )


def test_real_times_do() -> None:
    """Seconds since 1970 do: what float64 holds of them is what a weight is exact to."""
    model = model_of(bags(), decay=HalfLife(seconds=3600.0))
    learn(
        model,
        [
            Example(None, {"a": 1.0}, "ham", 1.0, 1_763_720_000.0),
            Example(None, {"a": 1.0}, "spam", 1.0, 1_763_720_000.0 + 7200.0),
        ],
    )
    assert model.class_counts == pytest.approx([0.25, 1.0, 0.0], rel=1e-9)


HALVES: list[dict[str, Any]] = [
    {},
    {"examples": 1, "seconds": 1},
    {"examples": 0},
    {"seconds": -1},
    {"seconds": float("nan")},
    {"seconds": float("inf")},
    {"examples": "3"},
]


@pytest.mark.parametrize("given", HALVES, ids=str)
def test_half_lives_are_checked(given: dict[str, Any]) -> None:
    """One of the two, finite and above zero."""
    with pytest.raises(InputError, match="HalfLife"):
        HalfLife(**given)


def test_normalised_complement_does_not_decay() -> None:
    """Its weights run over the whole vocabulary: together with decay it is refused, by name."""
    groups: dict[str, Group] = {"bag": Bag(Complement(normalise=True), field="bag")}
    with pytest.raises(InputError, match=r"group 'bag': Complement\(.*normalise"):
        model_of(groups, decay=HalfLife(examples=3))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "time_s"),
    ({"time_s": float("nan")}, "times_s.0. must be finite"),
    ({"time_s": float("inf")}, "times_s.0. must be finite"),
    ({"time_s": "3"}, "times_s"),
    ({"time_s": 1e300}, "half-li"),
    ({"time_s": 0.0, "weight": 1e300}, "weight"),
]


@pytest.mark.parametrize(("how", "message"), REFUSED, ids=[str(how) for how, _ in REFUSED])
def test_times_are_checked(how: dict[str, Any], message: str) -> None:
    """A time that is missing or no number is refused, and not a byte changes."""
    model = model_of(bags(), decay=HalfLife(seconds=1e-3))
    learn(model, [Example(None, {"a": 1.0}, "ham", 1.0, 0.0)])
    before = model.to_bytes()
    with pytest.raises(InputError, match=message):
        model.learn_one({"bag": {"a": 1}}, "spam", **how)
    with pytest.raises(InputError):
        model.unlearn_one({"bag": {"a": 1}}, "ham", **how)
    assert model.to_bytes() == before


def test_examples_half_life_takes_no_parts_and_no_unlearning() -> None:
    """By examples, a part would not be a function of its own log, nor an example's age known."""
    model = model_of(bags(), decay=HalfLife(examples=5))
    before = model.to_bytes()
    with pytest.raises(InputError, match="part 'p'"):
        model.learn_one({"bag": {"a": 1}}, "ham", part="p")
    assert model.to_bytes() == before
    model.learn_one({"bag": {"a": 1}}, "ham")
    learned = model.to_bytes()
    with pytest.raises(InputError, match="cannot unlearn"):
        model.unlearn_one({"bag": {"a": 1}}, "ham")
    assert model.to_bytes() == learned


@pytest.mark.parametrize("likelihood", [Bernoulli(Beta(1, 1)), Multinomial(), Complement()])
def test_all_forgotten_answers_the_prior(likelihood: Any) -> None:
    """What is older than float64 can tell is gone: words leave, and the new ones alone speak."""
    model = model_of({"bag": Bag(likelihood, field="bag")}, decay=HalfLife(seconds=1.0))
    learn(model, [Example(None, {"a": 1.0}, "ham", 1.0, 0.0)])
    learn(model, [Example(None, {"b": 1.0}, "spam", 1.0, 1e5)])
    assert model.words() == ["b"]
    assert model.vocabulary_size == 1
    fresh = model_of({"bag": Bag(likelihood, field="bag")}, decay=HalfLife(seconds=1.0))
    learn(fresh, [Example(None, {"b": 1.0}, "spam", 1.0, 1e5)])
    assert model.joint_log_likelihood_many(PROBES) == pytest.approx(
        fresh.joint_log_likelihood_many(PROBES), rel=1e-12
    )
    learn(model, [Example(None, {"z": 1.0}, "eggs", 1.0, 0.0)])  # far too late to matter
    assert model.words() == ["b"]
