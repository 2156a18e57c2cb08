"""A model at a look: raw statistics, telling features, reasons; decayed up to now."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import Bernoulli, Dirichlet, HalfLife, Multinomial, NaiveBayes, Words
from streamnb.features.categorical import Categories
from streamnb.features.flags import Flags
from streamnb.features.numeric import Numbers
from streamnb.inspection.summary import (
    field_kinds,
    flag_rows,
    n_features,
    number_rows,
    top_features,
    value_rows,
)

CLASSES = ("no", "yes")
examples = st.lists(
    st.tuples(
        st.fixed_dictionaries(
            {},
            optional={
                "colour": st.sampled_from(["red", "blue", None]),
                "seen": st.booleans() | st.none(),
                "size": st.floats(-100, 100) | st.none(),
                "text": st.sampled_from(["a b", "b c", "", None]),
            },
        ),
        st.sampled_from(CLASSES),
    ),
    min_size=1,
    max_size=12,
)


def model(likelihood: Bernoulli | Multinomial | None = None, **changed: Any) -> NaiveBayes:
    """Return an untrained model of all kinds."""
    features: dict[str, Any] = {
        "colours": Categories(fields=["colour"]),
        "flags": Flags(fields=["seen"]),
        "sizes": Numbers(fields=["size"]),
        "text": Words(likelihood or Multinomial()),
    }
    return NaiveBayes(CLASSES, Dirichlet(1.0), features, **changed)


@given(examples)
def test_rows_are_what_was_counted(found: list[tuple[dict[str, Any], str]]) -> None:
    """Values and flags have their counts, numbers their n, mean and M2, by class."""
    made = model()
    for x, y in found:
        made.learn_one(x, y)
    for row in value_rows(made.state):
        of = [y for x, y in found if x.get("colour") == row.value]
        assert row.counts.tolist() == [of.count(label) for label in CLASSES]
    (flag,) = flag_rows(made.state)
    for counts, value in ((flag.true, True), (flag.false, False)):
        of = [y for x, y in found if x.get("seen") is value]
        assert counts.tolist() == [of.count(label) for label in CLASSES]
    (number,) = number_rows(made.state)
    for c, label in enumerate(CLASSES):
        own = [x["size"] for x, y in found if y == label and x.get("size") is not None]
        assert number.n[c] == len(own)
        if own:
            assert number.mean[c] == pytest.approx(np.mean(own), abs=1e-9)
            assert number.m2[c] == pytest.approx(np.var(own) * len(own), abs=1e-9)
    words = {word for x, _ in found for word in (x.get("text") or "").split()}
    assert n_features(made.state) == len(value_rows(made.state)) + 2 + len(words)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Multinomial()])
@given(found=examples, x=examples)
def test_reasons_add_up_to_the_log_odds(
    likelihood: Bernoulli | Multinomial, found: list[tuple[dict[str, Any], str]], x: Any
) -> None:
    """With two classes the scores and the prior's log-odds are the posterior's log-odds."""
    made = model(likelihood)
    made.learn_many(
        {name: [x.get(name) for x, _ in found] for name in ("colour", "seen", "size", "text")},
        [y for _, y in found],
    )
    for asked, label in x:
        logs = made.joint_log_likelihood_one(asked)
        other = next(each for each in CLASSES if each != label)
        if math.inf in map(abs, logs.values()):
            continue
        prior = dict(zip(CLASSES, np.log(made.class_priors()), strict=True))
        odds = logs[label] - logs[other] - (prior[label] - prior[other])
        reasons = [c for c in made.explain_one(asked).contributions if c.group is not None]
        scores = [reason.against_others(label) for reason in reasons]
        assert sum(scores) == pytest.approx(odds, rel=1e-9, abs=1e-9)


def test_what_tells_is_told_by_class() -> None:
    """Each kind's features lead where they speak for a class; numbers are told with their mean."""
    made = model()
    for i in range(20):
        made.learn_one({"colour": "red", "seen": True, "size": 10.0 + i % 3, "text": "a"}, "yes")
        made.learn_one({"colour": "blue", "seen": False, "size": i % 3, "text": "b"}, "no")
    told = {
        label: [name for name, _ in features]
        for label, features in top_features(made.state, 4).items()
    }
    assert set(told["yes"]) == {"colour=red", "seen=true", "size≈10.95", "a"}
    assert set(told["no"]) == {"colour=blue", "seen=false", "size≈0.95", "b"}
    assert [len(features) for features in top_features(made.state, 1).values()] == [1, 1]


def test_figures_are_decayed_up_to_now() -> None:
    """Under decay an example counts half after its half-life, in rows of every kind."""
    made = model(decay=HalfLife(examples=2))
    x = {"colour": "red", "seen": True, "size": 3.0}
    made.learn_one(x, "yes")
    for _ in range(2):
        made.learn_one({}, "no")
    assert value_rows(made.state)[0].counts.tolist() == pytest.approx([0.0, 0.5])
    assert flag_rows(made.state)[0].true.tolist() == pytest.approx([0.0, 0.5])
    assert number_rows(made.state)[0].n.tolist() == pytest.approx([0.0, 0.5])
    assert number_rows(made.state)[0].mean[1] == 3.0


def test_fields_have_kinds() -> None:
    """Every field that is read stands there with its group's kind."""
    assert field_kinds(model().state) == {
        "colour": "categories", "seen": "flags", "size": "numbers", "text": "words",
    }  # fmt: skip
