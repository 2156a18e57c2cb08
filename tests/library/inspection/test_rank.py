"""The features that tell a class from the others."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError
from streamnb.features.protocol import Floats
from streamnb.inspection import explain
from streamnb.inspection.group_view import FeatureLogs
from streamnb.inspection.summary import top_features
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


@st.composite
def log_matrices(draw: st.DrawFn) -> Floats:
    """Log-likelihoods, a row for each class: impossible, tiny and overwhelming ones among them."""
    shape = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    values = st.one_of(st.floats(-40.0, 0.0), st.sampled_from([-math.inf, -700.0, -1e-9, 0.0]))
    return draw(arrays(np.float64, shape, elements=values))


def slow_scores(logs: Floats, c: int) -> tuple[Floats, Floats]:
    """Return both scores of a class by their definition: a sum over the other classes alone."""
    own, others = logs[c], np.delete(logs, c, axis=0)
    with np.errstate(all="ignore"):
        rest = np.logaddexp.reduce(others, axis=0) - np.log(len(others))
        log_odds = np.where(own == -np.inf, -np.inf, own - rest)
        theta, mean = np.exp(own), np.exp(others).mean(axis=0)
        return log_odds, np.where(theta > 0, theta * np.log(theta / mean), 0.0)


@given(log_matrices())
def test_scores_are_those_of_the_definition(logs: Floats) -> None:
    """To rounding, however much one class outweighs the others; for two classes to the bit."""
    scores = explain.against_others(logs), explain.mean_contributions(logs)
    if len(logs) == 1:
        assert not np.any(scores)
        return
    for c in range(len(logs)):
        for found, wanted in zip(scores, slow_scores(logs, c), strict=True):
            if len(logs) == 2:
                np.testing.assert_array_equal(found[c], wanted)
            # Each of up to 12 classes may round a log-likelihood of -700 by its last bit.
            np.testing.assert_allclose(found[c], wanted, rtol=1e-12, atol=12 * np.spacing(700.0))


@given(streams(), st.integers(0, 4), st.integers(1, 30))
def test_slices_rank_as_the_whole_does(stream: Stream, n: int, slice_values: int) -> None:
    """Ties over the edge of a slice among them."""
    model = learned(stream, {"text": Words(Bernoulli())})
    whole = model.most_informative(n), top_features(model.state, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain, "SLICE_VALUES", slice_values)
        assert (model.most_informative(n), top_features(model.state, n)) == whole


def test_a_ranking_takes_time_by_classes_times_words() -> None:
    """Each value is taken exp of once, not once for each class again."""
    rng = np.random.default_rng(1)
    taken = []
    for k in (60, 240):
        logs = FeatureLogs(lambda rows: [str(j) for j in rows], -rng.random((4_000, k)))
        view: Any = SimpleNamespace(log_odds_of_values=lambda logs=logs: logs)
        times = []
        for _ in range(3):
            start = time.thread_time()
            explain.rank({"text": view}, range(k), 5, "contribution")
            times.append(time.thread_time() - start)
        taken.append(min(times))
    assert taken[1] < 9 * taken[0]  # 4 times the classes; their square is 16
