"""`streamnb.testing`: the laws hold for what people configure, and each law finds its own fault."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pytest

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Categorical,
    Categories,
    Complement,
    Dirichlet,
    Fixed,
    Flags,
    Gaussian,
    HalfLife,
    Multinomial,
    NaiveBayes,
    NormalInverseGamma,
    Numbers,
    VarianceFloor,
    Words,
)
from streamnb import testing as checks
from streamnb.errors import InputError
from streamnb.features.protocol import Group
from streamnb.testing import Case, Example, LawBroken
from tests.library.testing.faulty_models import FAULTS, FailsToAnswer, faulty

TWO = ["ham", "spam"]
OPEN: dict[str, Any] = {"numbers": Numbers(), "flags": Flags(), "kinds": Categories()}
BAYES = Gaussian(NormalInverseGamma())
CONFIGURATIONS: dict[str, Callable[[], NaiveBayes]] = {
    "words": lambda: NaiveBayes(TWO, features={"text": Words(Multinomial())}),
    "words without smoothing": lambda: NaiveBayes(
        TWO, Dirichlet(0.0), {"text": Words(Bernoulli(Beta(0, 0)))}
    ),
    "pairs in a small vocabulary": lambda: NaiveBayes(
        features={"text": Words(Multinomial(Dirichlet(0.3)), ngrams=(1, 2), max_words=9)}
    ),
    "complement": lambda: NaiveBayes(
        ["a", "b", "c"], features={"text": Words(Complement(normalise=True))}
    ),
    "a dictionary": lambda: NaiveBayes(
        TWO,
        features={"text": Words(Bernoulli(Beta([[1, 2]], 1)), dictionary=("good", "bad", "rain"))},
    ),
    "bags": lambda: NaiveBayes(
        features={
            "one": Bag(Multinomial(), field="counts"),
            "other": Bag(Bernoulli(), fields=("apple", "pear")),
        }
    ),
    "any counts": lambda: NaiveBayes(TWO, features={"counts": Bag(Multinomial())}),
    "numbers": lambda: NaiveBayes(
        [False, True], features={"x": Numbers(Gaussian(variance="shared"), ["a", "b", "c"])}
    ),
    "numbers with a prior": lambda: NaiveBayes(features={"x": Numbers(BAYES)}),
    "point masses": lambda: NaiveBayes(features={"x": Numbers(Gaussian(VarianceFloor(0)), ["a"])}),
    "categories": lambda: NaiveBayes(
        TWO,
        Fixed({"ham": 0.3, "spam": 0.7}),
        {
            "kinds": Categories(
                Categorical(Dirichlet(0.5)), ["size", "job"], {"size": ["s", "m", "l"]}
            )
        },
    ),
    "flags": lambda: NaiveBayes([1, 2], features={"f": Flags(fields=["a", "b"])}),
    "absent flags": lambda: NaiveBayes(
        TWO, features={"f": Flags(fields=["a", "b"], absent_is_false=True)}
    ),
    "any field": lambda: NaiveBayes(features={"text": Words(Multinomial()), **OPEN}),
    "any field, forgetting by time": lambda: NaiveBayes(
        features={"text": Words(Bernoulli()), **OPEN}, decay=HalfLife(seconds=60)
    ),
    "any field, forgetting by examples": lambda: NaiveBayes(
        TWO, features={"text": Words(Complement()), **OPEN}, decay=HalfLife(examples=7)
    ),
    "two threads": lambda: NaiveBayes(
        TWO, features={"text": Words(Multinomial()), "x": Numbers(BAYES, ["a"])}, n_threads=2
    ),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_all_laws_hold(name: str) -> None:
    """Made-up examples break no law of a model that is configured as people do."""
    report = checks.check_model(CONFIGURATIONS[name], n=20)
    assert report.passed
    assert [finding.law for finding in report.findings] == [law.__name__ for law in checks.LAWS]


def test_every_law_applies_somewhere() -> None:
    """No law is one that speaks of nothing: each holds in the mixed, forgetting, named model."""
    report = checks.check_model(
        lambda: NaiveBayes(
            TWO,
            features={"text": Words(Multinomial()), "x": Numbers(BAYES, ["a"])},
            decay=HalfLife(seconds=60),
        ),
        n=12,
    )
    assert [finding.passed for finding in report.findings] == [True] * len(checks.LAWS)


def test_every_law_has_a_fault_to_find() -> None:
    """The faults below are one for each law."""
    assert list(FAULTS) == [law.__name__ for law in checks.LAWS]


@pytest.mark.deep
@pytest.mark.parametrize("law", FAULTS)
def test_a_law_finds_its_fault(law: str) -> None:
    """A model with one small fault breaks the law that forbids it, and the error names the law."""
    with pytest.raises(LawBroken, match=law) as caught:
        checks.check_model(lambda: faulty(law), n=16, seed=3)
    assert law in [finding.law for finding in caught.value.report.broken]


def test_the_shortest_stream_is_shown() -> None:
    """Of a long stream that breaks a law, what is told is as little as breaks it still."""
    law = "batches_are_single_examples"  # the model forgets the last of a batch of three or more
    report = checks.check_model(lambda: faulty(law), seed=3, raise_on_failure=False)
    finding = next(each for each in report.broken if each.law == law)
    assert len(finding.examples) == 3
    assert all(example.x == {} for example in finding.examples)
    assert finding.seed == 3
    assert f"BROKEN {law}: the classes are ('ham', 'spam'), not ('ham', 'spam'," in str(report)
    assert "However a stream is cut" in str(report)


@pytest.mark.deep
def test_a_check_can_be_repeated() -> None:
    """The same seed finds the same, another one draws other examples."""
    law = "weights_repeat"
    one, same, other = (
        checks.check_model(lambda: faulty(law), seed=seed, raise_on_failure=False)
        for seed in (3, 3, 4)
    )
    assert str(one) == str(same)
    assert str(one) != str(other)


def test_any_error_is_a_finding() -> None:
    """A model that fails where it should answer breaks the law, and the error is told."""
    report = checks.check_model(
        lambda: FailsToAnswer(TWO, features={"text": Words(Multinomial())}), raise_on_failure=False
    )
    assert [finding.law for finding in report.broken] == ["asking_changes_nothing"]
    assert report.broken[0].why.startswith("it raises ZeroDivisionError: of ")


def test_own_examples() -> None:
    """Examples may be pairs, or come with weight and time; where times are wanted they are made."""
    pairs = [({"x": float(i % 5), "text": "good"}, TWO[i % 2]) for i in range(9)]
    groups: dict[str, Group] = {"x": Numbers(fields=["x"]), "text": Words(Multinomial())}
    for decay in (None, HalfLife(seconds=10)):
        make = functools.partial(NaiveBayes, TWO, None, groups, decay=decay)
        report = checks.check_model(make, pairs)
        assert report.passed
    timed = [Example(x, y, weight=0.5, time_s=float(i)) for i, (x, y) in enumerate(pairs)]
    assert checks.check_model(
        lambda: NaiveBayes(TWO, None, groups, decay=HalfLife(seconds=10)), timed
    ).passed
    with pytest.raises(InputError, match="some examples have a time_s"):
        checks.check_model(
            lambda: NaiveBayes(TWO, None, groups, decay=HalfLife(seconds=10)),
            [timed[0], Example({}, "ham")],
        )


def test_a_trained_model_is_refused() -> None:
    """What has learned already is no model to check."""

    def trained() -> NaiveBayes:
        model = NaiveBayes(TWO, features={"text": Words(Multinomial())})
        model.learn_one({"text": "good"}, "ham")
        return model

    with pytest.raises(InputError, match="has learned 1 examples"):
        checks.check_model(trained)


def test_laws_can_be_run_one_by_one() -> None:
    """A law is a function of a case: it returns where it holds and raises where it does not."""
    model = NaiveBayes(TWO, features={"text": Words(Multinomial())})
    stream = [Example({"text": "good"}, "ham"), Example({"text": "bad"}, "spam")]
    for law in checks.LAWS:
        assert law.__doc__
        with contextlib.suppress(checks.DoesNotApply):
            law(Case(model, stream))
    assert model.n_examples == 0
