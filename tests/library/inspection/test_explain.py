"""Explanations: what each feature adds, adding up to the log-odds."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from streamnb import (
    Beta,
    Categories,
    Dirichlet,
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
from streamnb.errors import InputError
from streamnb.features.protocol import Group
from tests.library.inspection.mixed_models import (
    Stream,
    examples,
    groups,
    learned,
    mixed_model,
    scale_of,
    streams,
)
from tests.library.test_worked_examples import ten_documents


@given(streams(), examples(), groups(0.0, 0.3, 1.0))
def test_contributions_add_up_to_the_log_odds(
    stream: Stream, x: dict[str, Any], mixed: dict[str, Group]
) -> None:
    """For any model: to 1e-12 of the joint log-likelihoods, by class too, and never nan."""
    model = learned(stream, mixed)
    told = model.explain_one(x)
    joint = model.joint_log_likelihood_one(x)
    posteriors = model.predict_log_proba_one(x)
    assert told.label == model.predict_one(x)
    assert posteriors[told.runner_up] == sorted(posteriors.values())[-2]
    assert not any(math.isnan(each.weight) for each in told.contributions)
    bound = 1e-12 * scale_of(list(joint.values()))
    for label, wanted in joint.items():
        found = sum(each.by_class[label] for each in told.contributions)
        assert found == wanted or abs(found - wanted) <= bound
    assert told.by_prior == model.judge_one(x).by_prior
    if told.by_prior:
        return
    wanted = joint[told.label] - joint[told.runner_up]
    total = sum(each.weight for each in told.contributions)
    assert told.log_odds == wanted or abs(told.log_odds - wanted) <= 2 * bound
    assert total == wanted or abs(total - wanted) <= 2 * bound


def test_the_weightiest_come_first_with_their_text() -> None:
    """Words, categories, flags and numbers are named as a reader knows them."""
    model = mixed_model()
    told = model.explain_one(
        {"text": "good good rain", "bag": {"sun": 1}, "reply": True, "income": "high", "age": 31.0}
    )
    weights = [abs(each.weight) for each in told.contributions]
    assert weights == sorted(weights, reverse=True)
    features = {(each.group, each.feature) for each in told.contributions}
    assert features == {
        (None, "class prior"),
        ("text", "word 'good' ×2"),
        ("text", "word 'rain'"),
        ("bag", "word 'sun'"),
        ("bag", "(words that are missing)"),
        ("flags", "reply=true"),
        ("kinds", "income=high"),
        ("numbers", "age"),
    }


def test_what_was_learned_stands_beside_each_contribution() -> None:
    """Counts by class, decayed up to now; of numbers mean and deviation, of classes with any."""
    fields: dict[str, Group] = {
        "kinds": Categories(fields=["income"]),
        "flags": Flags(fields=["reply", "link"]),
        "numbers": Numbers(fields=["age"]),
    }
    rows = {
        "income": ["low", "low", "high"],
        "reply": [True, False, True],
        "age": [20.0, 30.0, None],
    }
    for decay in (None, HalfLife(3)):
        model = NaiveBayes(["a", "b", "c"], features=fields, decay=decay)
        model.learn_many(rows | {"link": [None] * 3}, ["a", "a", "b"])
        told = model.explain_one({"income": "low", "reply": False, "link": True, "age": 26.0})
        found = {each.value: each for each in told.contributions}
        step = 1.0 if decay is None else 0.5 ** (1 / 3)
        first, second = step**2, step
        low, no = found["income=low"], found["reply=false"]
        age, link = found["age=26"], found["link=true"]
        assert low.counts == pytest.approx({"a": first + second, "b": 0.0, "c": 0.0})
        assert no.counts == pytest.approx({"a": second, "b": 0.0, "c": 0.0})
        assert link.counts == {"a": 0.0, "b": 0.0, "c": 0.0}
        assert age.counts == pytest.approx({"a": first + second, "b": 0.0, "c": 0.0})
        mean = (20.0 * first + 30.0 * second) / (first + second)
        square = (first * (20.0 - mean) ** 2 + second * (30.0 - mean) ** 2) / (first + second)
        assert age.means == pytest.approx({"a": mean})
        assert age.deviations == pytest.approx({"a": math.sqrt(square)})
        kinds = [each.kind for each in (low, no, age, found["class prior"])]
        assert kinds == ["category", "flag", "number", None]
    bag = mixed_model().explain_one({"bag": {"sun": 1}}).contributions
    assert {each.value: (each.kind, each.counts is None) for each in bag if each.group} == {
        "sun": ("word", False), "(words that are missing)": ("absent_words", True)
    }  # fmt: skip


def test_what_no_class_has_learned_is_unseen() -> None:
    """It keeps what its smoothing adds, so that the sum holds, and says that it is unseen."""
    features: dict[str, Group] = {
        "text": Words(Multinomial(), dictionary=("good", "never")),
        "kinds": Categories(fields=["grade"]),
        "flags": Flags(fields=["reply"]),
        "numbers": Numbers(Gaussian(NormalInverseGamma(mean=0, beta=1)), fields=["age", "height"]),
    }
    model = NaiveBayes(["a", "b"], features=features)
    rows = {"text": ["good"] * 3, "grade": ["A", "B", "A"], "reply": [False] * 3}
    model.learn_many(rows | {"age": [1.0, 2.0, 3.0], "height": [None] * 3}, ["a", "a", "b"])
    x = {"text": "never", "grade": "E", "reply": True, "age": 2.0, "height": 1.0}
    told = model.explain_one(x)
    found = {each.value: each for each in told.contributions}
    assert {name for name, each in found.items() if each.unseen} == {
        "never", "grade=E", "reply=true", "height=1"
    }  # fmt: skip
    assert found["grade=E"].by_class == pytest.approx({"a": math.log(1 / 4), "b": math.log(1 / 3)})
    assert sum(each.weight for each in told.contributions) == pytest.approx(told.log_odds)
    lines = [line for line in str(told).splitlines() if line.endswith(" (unseen)")]
    assert len(lines) == 4
    plain = {each["feature"]: each["unseen"] for each in told.to_dict()["contributions"]}
    assert [plain[name] for name in ("grade=E", "age", "class prior")] == [True, False, False]
    model.learn_one({"grade": "E"}, "a")
    assert "grade=E (unseen)" not in str(model.explain_one(x))
    model.unlearn_one({"grade": "E"}, "a")
    assert str(model.explain_one(x)) == str(told)


def test_what_is_missing_says_nothing() -> None:
    """An example of which nothing is known is explained by the class prior alone."""
    told = mixed_model().explain_one({})
    assert [each.feature for each in told.contributions] == ["class prior"]


def test_an_impossible_runner_up_is_infinitely_far() -> None:
    """A word that the runner-up never had adds inf; one that neither had adds 0, not nan."""
    words = Words(Multinomial(Dirichlet(0.0)), dictionary=("a", "b", "never"))
    model = NaiveBayes([0, 1], features={"text": words})
    model.learn_many({"text": ["a a b", "b"]}, [0, 1])
    told = model.explain_one({"text": "a b"})
    assert (told.label, told.log_odds, told.by_prior) == (0, math.inf, False)
    assert told.contributions[0].weight == math.inf
    never = model.explain_one({"text": "never a"})
    assert {each.feature: each.weight for each in never.contributions}["word 'never'"] == 0.0


def test_where_the_prior_alone_answers_the_explanation_says_so() -> None:
    """Every class being impossible, the log-odds are those of the class prior."""
    model = ten_documents(0.0, Beta(0, 0))
    told = model.explain_one({"text": "abacus abandon"})
    assert told.by_prior
    assert told.log_odds == pytest.approx(math.log(5 / 3))
    assert "by the class prior alone" in str(told)


def test_the_text_has_a_line_for_each_contribution() -> None:
    """Weights stand in one column, ready to be read."""
    told = mixed_model().explain_one({"text": "good rain", "reply": False})
    lines = str(told).splitlines()
    assert lines[0].startswith(f"{told.label} rather than {told.runner_up}: log-odds +")
    assert len(lines) == 1 + len(told.contributions)
    assert [line.split()[0] for line in lines[1:]] == [
        f"{each.weight:+.4f}" for each in told.contributions
    ]


def test_as_plain_values_it_goes_through_json() -> None:
    """`to_dict` holds what the value holds."""
    told = mixed_model().explain_one({"text": "good rain"})
    again = json.loads(json.dumps(told.to_dict()))
    assert again["label"] == told.label
    assert again["contributions"][0]["feature"] == told.contributions[0].feature
    assert again["contributions"][0]["by_class"] == told.contributions[0].by_class


def test_a_snapshot_explains_as_the_model_did() -> None:
    """Later learning does not touch it."""
    model = mixed_model()
    snapshot = Snapshot(model, 1)
    x = {"text": "good rain", "age": 30.0}
    before = model.explain_one(x)
    model.learn_one({"text": "good"}, "eggs")
    assert snapshot.explain_one(x) == before
    assert model.explain_one(x) != before


def test_explaining_changes_nothing() -> None:
    """The model's bytes are the same before and after being asked all there is to ask."""
    model = learned([({"text": "good sun"}, "ham")], {"text": Words(Multinomial())})
    before = model.to_bytes()
    model.explain_one({"text": "new words"})
    model.credible_interval_one({"text": "other new words"}, seed=1)
    model.most_informative(3)
    model.sample(5, seed=1)
    assert model.to_bytes() == before


def test_one_class_alone_cannot_be_explained() -> None:
    """There is nothing to tell it from."""
    model = NaiveBayes(["only"], features={"text": Words(Multinomial())})
    with pytest.raises(InputError, match="two classes"):
        model.explain_one({"text": "good"})


def test_the_class_prior_is_a_contribution_like_any_other() -> None:
    """It adds log π⁺/π⁻."""
    model = mixed_model()
    told = model.explain_one({"text": "good"})
    (prior,) = [each for each in told.contributions if each.group is None]
    priors = dict(zip(model.classes, np.log(model.class_priors()), strict=True))
    assert prior.weight == pytest.approx(priors[told.label] - priors[told.runner_up])
