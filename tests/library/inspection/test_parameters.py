"""How many parameters a model has, by both countings."""

from __future__ import annotations

import math

from streamnb import Bernoulli, Dirichlet, Fixed, Multinomial, NaiveBayes, Words
from streamnb.features.categorical import Categories
from streamnb.features.flags import Flags
from streamnb.features.numeric import Numbers
from streamnb.inspection.group_view import ParameterCount
from tests.library.inspection.mixed_models import mixed_model


def flags(n: int) -> NaiveBayes:
    """Return a model of two classes over n flags."""
    names = [f"f{i}" for i in range(n)]
    return NaiveBayes(["no", "yes"], features={"flags": Flags(fields=names)})


def test_a_thousand_flags_have_2001_parameters() -> None:
    """2n + 1 with the naive assumption, 2^(n+1) − 1 without it."""
    counted = flags(1_000).parameters()
    assert counted.independent == 2_001
    assert counted.table == 2_002
    assert counted.without_naive_assumption == 2**1_001 - 1
    assert counted.log2_without_naive_assumption == 1_001.0


def test_a_number_too_long_to_read_is_told_by_its_logarithm() -> None:
    """Beyond 4,096 bits only log2 is given."""
    words = [f"w{i}" for i in range(5_000)]
    model = NaiveBayes([1, 2], features={"text": Words(Bernoulli(), dictionary=tuple(words))})
    counted = model.parameters()
    assert counted.without_naive_assumption is None
    assert counted.log2_without_naive_assumption == 5_001.0


def test_the_loan_has_11_independent_parameters() -> None:
    """Score, missed payments, job: one a class each; income: two; and one class prior."""
    values = [("score", ["low", "high"]), ("income", ["low", "mid", "high"]),
              ("missed", ["t", "f"]), ("job", ["t", "f"])]  # fmt: skip
    model = NaiveBayes(
        ["approve", "reject"],
        features={"all": Categories(fields=[name for name, _ in values], values=dict(values))},
    )
    counted = model.parameters()
    assert counted.independent == 11
    assert counted.groups["all"] == ParameterCount(table=18, independent=10)
    assert counted.without_naive_assumption == 2 * 2 * 3 * 2 * 2 - 1


def test_words_under_a_multinomial_add_up_to_one() -> None:
    """k·V entries and k·(V − 1) free ones; texts of any length cannot be counted out."""
    model = NaiveBayes([1, 2, 3], features={"text": Words(Multinomial())})
    assert model.parameters().groups["text"] == ParameterCount(0, 0)
    model.learn_one({"text": "a b c"}, 1)
    counted = model.parameters()
    assert counted.groups["text"] == ParameterCount(9, 6)
    assert counted.table == 12
    assert counted.independent == 8
    assert counted.without_naive_assumption is None


def test_fixed_class_priors_are_no_parameters() -> None:
    """They are entries of a table, and none is free."""
    fixed = NaiveBayes(
        [0, 1], Fixed({0: 0.5, 1: 0.5}), {"text": Words(Bernoulli(), dictionary=("a",))}
    )
    assert fixed.parameters().class_prior == ParameterCount(2, 0)
    assert fixed.parameters().without_naive_assumption == 2
    free = NaiveBayes([0, 1], Dirichlet(), {"text": Words(Bernoulli(), dictionary=("a",))})
    assert free.parameters().without_naive_assumption == 3


def test_a_model_s_parameters_are_its_groups_and_its_priors() -> None:
    """Every group is counted, and a snapshot counts as its model does."""
    counted = mixed_model().parameters()
    assert counted.groups["numbers"] == ParameterCount(6, 6)
    assert counted.groups["flags"] == ParameterCount(6, 6)
    assert counted.groups["kinds"] == ParameterCount(15, 9)
    assert counted.table == 3 + sum(each.table for each in counted.groups.values())
    assert counted.without_naive_assumption is None


def test_numbers_make_the_joint_distribution_uncountable() -> None:
    """Of a continuous feature no table can be made."""
    model = NaiveBayes([1, 2], features={"numbers": Numbers(fields=["age"])})
    assert model.parameters().log2_without_naive_assumption is None
    assert math.isfinite(model.parameters().table)
