"""Decay is the plain formula, weight · 2^(−age/half-life), at no pass over the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Categorical,
    Categories,
    Complement,
    Dirichlet,
    HalfLife,
    Hybrid,
    Multinomial,
    NaiveBayes,
    Words,
)
from streamnb.errors import InputError
from streamnb.features.protocol import Group
from streamnb.likelihoods.base import WordLikelihood
from tests.library.features.count_models import (
    CLASSES,
    PROBES,
    WORDS,
    Example,
    batch,
    close,
    examples,
    facts,
    features,
    learn,
    model_of,
    rounding_bounds,
    unlearn,
)

TIMES = st.floats(0.0, 40.0)
HALF_LIVES = st.sampled_from([0.01, 1.0, 7.3, 1e6])
timed = examples(times=TIMES, max_size=15)
plain_features = features(normalise=False)


def plain_counts(
    stream: Sequence[Example], ages: Sequence[float], half_life: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return N_jc of the bags and N_c, every example weighted by how old it is."""
    by_word, examples_ = np.zeros((len(WORDS), len(CLASSES))), np.zeros(len(CLASSES))
    for each, age in zip(stream, ages, strict=True):
        weight = each.weight * 2.0 ** (-age / half_life)
        c = CLASSES.index(each.label)
        examples_[c] += weight
        for word, count in (each.bag or {}).items():
            by_word[WORDS.index(word), c] += weight * count
    return by_word, examples_


def plain_joint(
    by_word: NDArray[np.float64],
    class_counts: NDArray[np.float64],
    alpha: float,
    bag: dict[str, float],
) -> list[float]:
    """Return multinomial joint log-likelihoods over the dictionary `WORDS`, spelled out."""
    n, k = class_counts.sum(), len(class_counts)
    return [
        math.log((class_counts[c] + 1.0) / (n + k))
        + math.fsum(
            count
            * (
                math.log(by_word[WORDS.index(word), c] + alpha)
                - math.log(by_word[:, c].sum() + alpha * len(WORDS))
            )
            for word, count in bag.items()
        )
        for c in range(k)
    ]


def bags(alpha: float = 0.5) -> dict[str, Group]:
    """Return a multinomial bag over the dictionary."""
    return {"bag": Bag(Multinomial(Dirichlet(alpha)), field="bag", dictionary=WORDS)}


@given(timed, HALF_LIVES, st.dictionaries(st.sampled_from(WORDS), st.integers(1, 9), max_size=4))
def test_by_seconds_is_the_plain_formula(
    stream: list[Example], half_life: float, asked: dict[str, float]
) -> None:
    """At any times, in any order, counts and answers are those of examples weighted by age."""
    model = learn(model_of(bags(), decay=HalfLife(seconds=half_life)), stream)
    now = max((each.time_s or 0.0 for each in stream), default=0.0)
    by_word, class_counts = plain_counts(
        stream, [now - (e.time_s or 0.0) for e in stream], half_life
    )
    assert model.class_counts == pytest.approx(class_counts, rel=1e-10, abs=1e-12)
    assert model.word_counts(WORDS) == pytest.approx(by_word, rel=1e-10, abs=1e-12)
    found = list(model.joint_log_likelihood_one({"bag": asked}).values())
    assert found == pytest.approx(
        plain_joint(by_word, class_counts, 0.5, asked), rel=1e-11, abs=1e-10
    )


@given(examples(max_size=40), st.sampled_from([0.05, 1.0, 30.0, 1e6]))
def test_by_examples_is_the_plain_formula(stream: list[Example], half_life: float) -> None:
    """By examples, the k-th before the last counts 2^(−k/half-life)."""
    model = learn(model_of(bags(), decay=HalfLife(examples=half_life)), stream)
    ages = [float(len(stream) - 1 - i) for i in range(len(stream))]
    by_word, class_counts = plain_counts(stream, ages, half_life)
    assert model.class_counts == pytest.approx(class_counts, rel=1e-10, abs=1e-12)
    asked = {"a": 2.0, "j": 1.0}
    found = list(model.joint_log_likelihood_one({"bag": asked}).values())
    assert found == pytest.approx(
        plain_joint(by_word, class_counts, 0.5, asked), rel=1e-11, abs=1e-10
    )


@given(plain_features, timed, st.sampled_from([1.0, 7.3, 1e6]))
@hypothesis.example(
    {"bag": Bag(Bernoulli(Beta(0.0, 0.0)), field="bag")},
    [Example(None, {}, "ham", 1.0, 0.0), Example(None, {"a": 1.0}, "ham", 1.0, 29.5)],
    1.0,
)
def test_every_family_answers_from_weighted_examples(
    groups: dict[str, Group], stream: list[Example], half_life: float
) -> None:
    """A decayed model answers as one that learned each example with its weight of now."""
    model = learn(model_of(groups, decay=HalfLife(seconds=half_life)), stream)
    aged = aged_to(max((each.time_s or 0.0 for each in stream), default=0.0), stream, half_life)
    expected = learn(model_of(groups), aged).joint_log_likelihood_many(PROBES)
    bounds = rounding_bounds(groups, aged, aged)
    close(model.joint_log_likelihood_many(PROBES), expected, bounds=bounds)


def aged_to(now: float, stream: Sequence[Example], half_life: float) -> list[Example]:
    """Return examples without times, each with its weight of now."""
    return [
        Example(e.text, e.bag, e.label, e.weight * 2.0 ** (((e.time_s or 0.0) - now) / half_life))
        for e in stream
    ]


@given(plain_features, timed, HALF_LIVES, st.booleans())
def test_a_batch_is_what_single_examples_are(
    groups: dict[str, Group], stream: list[Example], half_life: float, by_examples: bool
) -> None:
    """A batch leaves and says, bit for bit, what single examples do, also where landmarks move."""
    decay = HalfLife(examples=half_life) if by_examples else HalfLife(seconds=half_life)
    model, single = model_of(groups, (), decay), model_of(groups, (), decay)
    said = model.prequential_many(**batch(stream))
    for example, row in zip(stream, said, strict=True):
        expected = list(single.predict_log_proba_one(example.x).values())
        assert row[: len(expected)].tolist() == expected
        learn(single, [example])
    assert model.to_bytes() == single.to_bytes()
    assert facts(model) == facts(single)
    assert facts(NaiveBayes.from_bytes(model.to_bytes())) == facts(model)


leaps = st.sampled_from([0.0, 1.0, 40.0, 64.0, 70.0, 90.0, 300.0]).map(lambda t: t + 0.37)
silences = st.lists(
    st.tuples(st.sampled_from("xy"), st.sampled_from(["a b a", "b c", "d", "a"]), leaps),
    min_size=2,
    max_size=12,
)


@given(
    silences,
    st.sampled_from([Multinomial(Dirichlet(0.3)), Complement(Dirichlet(0.3)), Bernoulli()]),
    st.booleans(),
)
def test_a_batch_rounds_as_single_examples_do(
    rows: list[tuple[str, str, float]], likelihood: WordLikelihood, by_examples: bool
) -> None:
    """Where the clock has come far, the next row is judged at the new landmark in both."""
    decay = HalfLife(examples=0.023) if by_examples else HalfLife(seconds=1.0)
    batched, single = (
        NaiveBayes(features={"t": Words(likelihood)}, decay=decay, hash_key=1) for _ in range(2)
    )
    labels, texts, ages = zip(*rows, strict=True)
    times = np.cumsum(ages).tolist()
    said = batched.prequential_many({"t": list(texts)}, list(labels), times_s=times)
    for k, row in enumerate(said):
        found = single.prequential_one({"t": texts[k]}, labels[k], time_s=times[k])
        expected = list(found.values())
        assert row[: len(expected)].tolist() == expected
    assert batched.to_bytes() == single.to_bytes()


@given(plain_features, timed)
def test_an_endless_half_life_is_none(groups: dict[str, Group], stream: list[Example]) -> None:
    """With the largest half-life nothing is forgotten: the answers are those without decay."""
    model = learn(model_of(groups, decay=HalfLife(seconds=1e300)), stream)
    close(
        model.joint_log_likelihood_many(PROBES),
        learn(model_of(groups), stream).joint_log_likelihood_many(PROBES),
        1e-12,
    )


@given(plain_features, timed, st.randoms(), st.sampled_from([0.05, 1.0, 7.3]))
def test_the_order_in_which_examples_come_is_nothing(
    groups: dict[str, Group], stream: list[Example], random: Random, half_life: float
) -> None:
    """An example's weight depends on its own time alone: out of order they give the same.

    One that comes 665 half-lives late or more is not learned: its weight would be below 1e-200.
    """
    latest_s = max((each.time_s or 0.0 for each in stream), default=0.0)
    stream = [e for e in stream if latest_s - (e.time_s or 0.0) <= 664 * half_life]
    shuffled = list(stream)
    random.shuffle(shuffled)
    decay = HalfLife(seconds=half_life)
    one = learn(model_of(groups, decay=decay), stream)
    other = learn(model_of(groups, decay=decay), shuffled)
    assert one.class_counts == pytest.approx(other.class_counts, rel=1e-10, abs=1e-200)
    if not has_zeros(groups):
        close(one.joint_log_likelihood_many(PROBES), other.joint_log_likelihood_many(PROBES))


def has_zeros(groups: dict[str, Group]) -> bool:
    """Return whether maximum likelihood is among the priors: a count near nothing decides there."""
    text = repr(groups)
    return "=0.0" in text or "1e-09" in text


@given(plain_features, timed, st.sets(st.integers(0, 14)))
@hypothesis.example(
    {"text": Words(Bernoulli(Beta(0.0, 0.0)), max_words=1000)},
    [Example("", None, "ham", 3.0, 27.0)],
    {0},
)
@hypothesis.example(  # N_c ends one bit below N_jc: the word is certain all the same
    {"text": Words(Bernoulli(Beta(0.0, 0.0)), max_words=1000)},
    [
        Example(None, None, "ham", 1.0, 0.0),
        Example("", None, "ham", 1.0, 2.0),
        Example("", None, "ham", 1000.0, 0.0),
    ],
    {1, 2},
)
def test_unlearned_by_its_time_is_never_learned(
    groups: dict[str, Group], stream: list[Example], places: set[int]
) -> None:
    """What is taken back with the time it was learned at leaves the others as they were."""
    decay = HalfLife(seconds=7.3)
    # The latest stays: the clock does not go back.
    latest = Example("a", {"a": 1.0}, "ham", 1.0, 41.0)
    model = learn(model_of(groups, decay=decay), [*stream, latest])
    unlearn(model, [e for i, e in enumerate(stream) if i in places])
    others = [e for i, e in enumerate(stream) if i not in places]
    expected = learn(model_of(groups, decay=decay), [*others, latest])
    assert model.vocabulary_size == expected.vocabulary_size
    close(
        model.joint_log_likelihood_many(PROBES),
        expected.joint_log_likelihood_many(PROBES),
        1e-8,
        rounding_bounds(
            groups, aged_to(41.0, [*stream, latest], 7.3), aged_to(41.0, [*others, latest], 7.3)
        ),
    )


def test_unlearned_across_a_landmark() -> None:
    """An example is found again after the landmark has moved on, and one too old to matter too."""
    model = model_of(bags(), decay=HalfLife(seconds=1.0))
    stream = [
        Example(None, {"a": 1.0, "b": 2.0}, "ham", 1.0, 100.3),
        Example(None, {"b": 1.0}, "ham", 1.0, 600.9),
        Example(None, {"c": 1.0}, "spam", 1.0, 601.0),
    ]
    learn(model, stream)
    assert type(model.state.clock.landmark) is float  # which every encoder takes
    unlearn(model, stream[:1])
    expected = learn(model_of(bags(), decay=HalfLife(seconds=1.0)), stream[1:])
    assert model.class_counts.tolist() == expected.class_counts.tolist()
    assert model.word_counts(WORDS).tolist() == expected.word_counts(WORDS).tolist()
    learn(model, [Example(None, {"c": 1.0}, "spam", 1.0, 1e6)])
    unlearn(model, stream[1:2])
    assert model.class_counts.tolist() == [0.0, 1.0, 0.0]
    assert model.n_examples == 3  # nothing was left to be taken back


def test_what_was_too_old_to_teach_is_taken_back_as_nothing() -> None:
    """Its weight is a number yet, but too small a one to have been learned."""
    model = model_of(bags(), decay=HalfLife(seconds=1.0))
    learn(model, [Example(None, {"a": 1.0}, "ham", 1.0, 700.0)])
    old, before = [Example(None, {"b": 1.0}, "ham", 1.0, 0.0)], model.to_bytes()
    learn(model, old)
    unlearn(model, old)
    assert model.to_bytes() == before


@pytest.mark.parametrize("gap", [255.0, 256.0, 513.0, 900.0, 1100.0, 5000.0, 1e9])
def test_a_long_silence_is_judged_before_it_is_forgotten(gap: float) -> None:
    """After any silence, an example is still judged by what was known before it came."""
    decay = HalfLife(seconds=1.0)
    model, said_before = model_of(bags(), decay=decay), model_of(bags(), decay=decay)
    first = Example(None, {"a": 3.0}, "spam", 5.0, 3.7)
    late = Example(None, {"a": 1.0}, "ham", 1.0, 3.7 + gap)
    said = model.prequential_many(**batch([first, late]))[1]
    learn(said_before, [first])
    assert said.tolist() == list(said_before.predict_log_proba_one(late.x).values())
    learn(said_before, [late])
    assert model.to_bytes() == said_before.to_bytes()


def test_a_half_life_too_short_for_the_clock_is_said_in_its_own_unit() -> None:
    """By examples no time is spoken of, as none was given; by seconds it is."""
    model = model_of(bags(), decay=HalfLife(examples=1e-20))
    with pytest.raises(InputError, match=r"1e-20 examples is too short") as refused:
        learn(model, [Example(None, {"a": 1.0}, "ham", 1.0, None)])
    assert "time_s" not in str(refused.value)
    with pytest.raises(InputError, match="time_s must be within"):
        learn(
            model_of(bags(), decay=HalfLife(seconds=1e-20)),
            [Example(None, {"a": 1.0}, "ham", 1.0, 1.0)],
        )


def _full_groups(family: str) -> dict[str, Group]:
    if family == "categories":
        return {"x": Categories(Categorical(), fields=["x"], max_values=60)}
    if family == "bag":
        return {"x": Bag(Multinomial(), field="x", max_words=60)}
    hybrid = Hybrid() if family == "hybrid" else None
    likelihood: WordLikelihood = Multinomial()
    if family in {"bernoulli", "complement"}:
        likelihood = Bernoulli() if family == "bernoulli" else Complement()
    return {"x": Words(likelihood, field="x", max_words=60, hybrid=hybrid)}


@pytest.mark.parametrize(
    "family", ["multinomial", "bernoulli", "complement", "hybrid", "bag", "categories"]
)
@pytest.mark.parametrize("decays", [True, False], ids=["decay", "weights"])
def test_words_that_leave_round_alike_however_the_stream_is_cut(family: str, decays: bool) -> None:
    """Fractions are taken from the sums in one order, in batches, one by one and from a file."""
    rng, n = np.random.default_rng(8), 600
    drawn = rng.zipf(1.3, (n, 5)) % 400
    texts = [" ".join(f"w{j}" for j in row) for row in drawn]
    x: Sequence[object] = texts
    if family == "bag":
        x = [{f"w{j}": 1.0 for j in row} for row in drawn]
    elif family == "categories":
        x = [f"w{row[0]}" for row in drawn]
    labels = np.array(["a", "b"])[rng.integers(0, 2, n)].tolist()
    # The landmark moves at 64 half-lives: near to it counts are larger than fractions can be.
    times_s, weights = np.arange(n) * 1.0 + 5_000.0 * (np.arange(n) > 20), rng.random(n)
    decay = HalfLife(seconds=100.0) if decays else None

    def learned(size: int, *, reload: bool = False) -> tuple[bytes, str]:
        model = NaiveBayes(["a", "b"], features=_full_groups(family), decay=decay, hash_key=5)
        found = []
        for begin in range(0, n, size):
            rows = slice(begin, begin + size)
            how = {"times_s": times_s[rows]} if decays else {"weights": weights[rows]}
            found.append(model.prequential_many({"x": x[rows]}, labels[rows], **how))
            if reload:
                model = NaiveBayes.from_bytes(model.to_bytes())
        assert model.state.groups["x"].n_dropped > 0
        return np.concatenate(found).tobytes(), model.digest()

    wanted = learned(30)
    assert learned(1) == wanted
    assert learned(6, reload=True) == wanted
    assert learned(15, reload=True) == wanted
