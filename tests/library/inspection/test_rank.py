"""The features that tell a class from the others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError
from tests.library.inspection.mixed_models import CLASSES, Stream, learned, mixed_model, streams


def test_words_of_one_class_alone_stay_and_lead() -> None:
    """Under maximum likelihood their score is infinite; the more frequent one comes first."""
    model = NaiveBayes([0, 1], features={"text": Words(Multinomial(Dirichlet(0.0)))})
    model.learn_many({"text": ["both rare often often", "both both", "often"]}, [0, 1, 0])
    told = model.most_informative(5)
    assert [(each.feature, each.score) for each in told[0]] == [
        ("often", math.inf),
        ("rare", math.inf),
    ]
    assert [each.feature for each in told[1]] == ["both"]
    assert told[1][0].score == pytest.approx(math.log(1 / (1 / 5)))


def test_words_of_equal_score_and_count_stand_in_the_alphabet_s_order() -> None:
    """So that the answer is the same on every machine."""
    model = NaiveBayes([0, 1], features={"text": Words(Bernoulli())})
    model.learn_many({"text": ["zebra ant bee", "other"]}, [0, 1])
    assert [each.feature for each in model.most_informative(3)[0]] == ["ant", "bee", "zebra"]


@given(streams(), st.integers(0, 6), st.sampled_from([0.0, 0.5, 1.0]))
def test_the_first_are_those_of_the_whole_list(stream: Stream, n: int, c: float) -> None:
    """Asking for n gives the first n of all, and scores are what the formula says."""
    model = learned(stream, {"text": Words(Bernoulli(Beta(c, c)))})
    everything = model.most_informative(1_000)
    assert model.most_informative(n) == {y: told[:n] for y, told in everything.items()}
    for at, label in enumerate(CLASSES):
        for each in everything[label]:
            theta = model.word_likelihoods([each.feature])[0]
            others = np.delete(theta, at).mean()
            wanted = math.inf if others == 0 else math.log(theta[at] / others)
            assert each.score == pytest.approx(wanted, abs=1e-9)
            assert each.score > 0


def test_all_kinds_of_groups_are_told_together_or_one_alone() -> None:
    """Values of categories and numbers stand beside words; a group may be named."""
    model = mixed_model()
    together = {each.group for told in model.most_informative(50).values() for each in told}
    assert together == set(model.state.groups)
    assert len(together) >= 5
    alone = model.most_informative(3, "kinds")
    assert all(each.group == "kinds" for told in alone.values() for each in told)
    assert any("=" in each.feature for told in alone.values() for each in told)


def test_an_unknown_group_is_refused() -> None:
    """It names the groups there are."""
    with pytest.raises(InputError, match="text, bag, flags"):
        mixed_model(10).most_informative(3, "txt")
    with pytest.raises(InputError, match="at least 0"):
        mixed_model(10).most_informative(-1)


def test_one_class_has_nothing_to_be_told_from() -> None:
    """Then no feature is told."""
    model = NaiveBayes(["only"], features={"text": Words(Multinomial())})
    model.learn_one({"text": "good"}, "only")
    assert model.most_informative(3) == {"only": []}


def test_ties_do_not_depend_on_the_order_in_which_words_came() -> None:
    """Words of equal score or count stand in the alphabet's order, before and after a file."""
    model = NaiveBayes([0, 1], features={"text": Words(Multinomial())})
    model.learn_many({"text": ["zebra ant moth bee", "other cat"]}, [0, 1])
    again = NaiveBayes.from_bytes(model.to_bytes())
    turned = NaiveBayes([0, 1], features={"text": Words(Multinomial())})
    turned.learn_many({"text": ["bee moth ant zebra", "cat other"]}, [0, 1])
    for other in (model, again, turned):
        assert other.top_words(3) == ["ant", "bee", "cat"]
        assert other.top_words(100) == ["ant", "bee", "cat", "moth", "other", "zebra"]
        assert [word for word, _ in other.telling_words(2)[0]] == ["ant", "bee"]
        assert [word for word, _ in other.telling_words(9)[1]] == ["cat", "other"]
