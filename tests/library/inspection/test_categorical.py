"""What groups of categories and flags tell of themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb.errors import InputError
from streamnb.features.categorical import Categories
from streamnb.features.flags import Flags
from streamnb.features.protocol import GroupState
from streamnb.inspection.categorical import CategoriesView, FlagsView
from streamnb.inspection.group_view import GroupView
from streamnb.inspection.parameters import log_betas
from streamnb.likelihoods.bernoulli import Bernoulli
from streamnb.likelihoods.multinomial import Categorical
from streamnb.priors import Beta, Dirichlet
from tests.kernels.likelihood_runs import RELATIVE, deviation
from tests.library.features.group_states import KEY, Example, columns_of, predict, teach

N_CLASSES = 3


def categories() -> st.SearchStrategy[Any]:
    """Draw a group of categories that has learned, its view, and one more example."""
    value = st.sampled_from([None, *"abc"])
    x = st.fixed_dictionaries({}, optional=dict.fromkeys("pq", value))
    spec = st.builds(
        lambda alpha, values: Categories(Categorical(Dirichlet(alpha)), None, values),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.sampled_from([None, {"q": ["a", "z"]}]),
    )
    return _taught(spec, x, CategoriesView)


def flags() -> st.SearchStrategy[Any]:
    """Draw a group of flags that has learned, its view, and one more example."""
    value = st.sampled_from([None, True, False])
    x = st.fixed_dictionaries({}, optional=dict.fromkeys("pq", value))
    spec = st.builds(
        lambda present, absent, fields, false: Flags(
            Bernoulli(Beta(present, absent)), fields, false
        ),
        st.sampled_from([0.0, 0.5]),
        st.sampled_from([0.0, 1.0]),
        st.sampled_from([None, ["q", "p"]]),
        st.booleans(),
    )
    return _taught(spec, x, FlagsView)


def _taught(spec: Any, x: Any, view: type[GroupView]) -> st.SearchStrategy[Any]:
    stream = st.lists(st.tuples(x, st.integers(0, N_CLASSES - 1)), max_size=20)

    def build(given_: tuple[Any, list[Example], Any]) -> Any:
        state = given_[0].start("group", N_CLASSES, KEY)
        teach(state, given_[1])
        return state, view, given_[1], given_[2]

    return st.tuples(spec, stream, x).map(build)


taught = st.one_of(categories(), flags())


@given(taught)
def test_contributions_add_up_to_the_answer(taught: Any) -> None:
    """What each feature adds is, together, the group's log-likelihood."""
    state, view, _, x = taught
    parts = view(state, 1.0).contributions(state.read(columns_of([x]), 1), 0)
    total = sum((each.by_class for each in parts), np.zeros(N_CLASSES))
    assert deviation(total[None, :], predict(state, [x]).tolist()) < RELATIVE


@given(taught)
def test_the_training_log_likelihood_needs_the_counts_alone(taught: Any) -> None:
    """It is the sum over all that was learned, under the estimates as they stand."""
    state, view, stream, _ = taught
    if isinstance(state.spec, Categories) and state.spec.values:
        stream = [
            ({k: v for k, v in x.items() if k != "q" or v in "az"}, y)
            for x, y in stream
            if x.get("q") is not None
        ]
        state = state.spec.start("group", N_CLASSES, KEY)
        teach(state, stream)
    found = view(state, 1.0).log_likelihood()
    expected = sum(predict(state, [x])[0, y] for x, y in stream)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)
    scaled = state.spec.start("group", N_CLASSES, KEY)
    teach(scaled, stream, 4.0, scale=4.0)
    assert view(scaled, 4.0).log_likelihood() == pytest.approx(found, rel=1e-12, abs=1e-12)


def loan() -> tuple[GroupState, GroupState]:
    """Return categories and flags of which the parameters are easily counted."""
    things = Categories(values={"income": ["low", "mid", "high"]}).start("c", 2, KEY)
    teach(things, [({"score": "low"}, 0), ({"score": "high", "income": "mid"}, 1)])
    signs = Flags(fields=["missed", "stable"]).start("f", 2, KEY)
    teach(signs, [({"missed": True, "stable": False}, 0), ({"missed": False, "stable": True}, 1)])
    return things, signs


def test_parameters_are_counted_twice() -> None:
    """The loan has 2·5 + 2·2 table entries in these groups, and 2·3 + 2·2 free ones."""
    things, signs = loan()
    assert CategoriesView(things, 1.0).parameters() == (10, 6)
    assert FlagsView(signs, 1.0).parameters() == (4, 4)


def test_the_linear_form_answers_alike() -> None:
    """Weights times indicators, and the constant, are the log-likelihood of a whole example."""
    things, signs = loan()
    form = CategoriesView(things, 1.0).linear()
    assert form.names == ["income=high", "income=low", "income=mid", "score=high", "score=low"]
    x = np.array([name in {"income=low", "score=high"} for name in form.names], dtype=float)
    answer = predict(things, [{"income": "low", "score": "high"}])
    assert deviation((x @ form.weights + form.constants)[None, :], answer.tolist()) < RELATIVE
    form = FlagsView(signs, 1.0).linear()
    for missed, stable in ((0, 0), (1, 0), (0, 1), (1, 1)):
        answer = predict(signs, [{"missed": missed, "stable": stable}])
        found = np.array([missed, stable]) @ form.weights + form.constants
        assert deviation(found[None, :], answer.tolist()) < RELATIVE


def test_a_certain_flag_has_no_linear_form() -> None:
    """Under maximum likelihood a flag may be certain, and the error says which."""
    state = Flags(Bernoulli(Beta(0, 0))).start("f", 2, KEY)
    teach(state, [({"p": True}, 0), ({"p": False}, 1)])
    with pytest.raises(InputError, match="flag 'p' is certain"):
        FlagsView(state, 1.0).linear()


def test_samples_follow_the_estimates() -> None:
    """Many draws have the frequencies that the group would give them."""
    things, signs = loan()
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(2, dtype=np.int32), 20_000)
    for state, view in ((things, CategoriesView), (signs, FlagsView)):
        drawn = view(state, 1.0).sample(labels, rng)
        for name, values in drawn.items():
            for value in set(values):
                answer = np.exp(predict(state, [{name: value}])[0])
                for c in range(2):
                    share = np.mean([v == value for v in values[c * 20_000 : (c + 1) * 20_000]])
                    assert share == pytest.approx(answer[c], abs=0.02)


def test_what_a_class_knows_nothing_of_is_not_drawn() -> None:
    """Under maximum likelihood a class that never saw a field gives None for it."""
    state = Categories(Categorical(Dirichlet(0.0))).start("c", 2, KEY)
    teach(state, [({"p": "a"}, 0)])
    rng = np.random.default_rng(3)
    drawn = CategoriesView(state, 1.0).sample(np.array([0, 1], dtype=np.int32), rng)
    assert drawn == {"p": ["a", None]}
    flag = Flags(Bernoulli(Beta(0, 0))).start("f", 2, KEY)
    teach(flag, [({"p": True}, 0)])
    assert FlagsView(flag, 1.0).sample(np.array([0, 1], dtype=np.int32), rng) == {"p": [True, None]}


def test_draws_scatter_around_the_estimate() -> None:
    """Draws of θ have the posterior's mean, which is the estimate, and shrink with the counts."""
    rng = np.random.default_rng(3)
    for view, spec, x in (
        (CategoriesView, Categories(), {"p": "a"}),
        (FlagsView, Flags(), {"p": True}),
    ):
        other = {"p": "b" if x["p"] == "a" else False}
        spreads = []
        for n in (2, 200):
            state = spec.start("group", 2, KEY)
            teach(state, [(x, 0)] * n + [(other, 0)] * n + [(other, 1)] * n)
            drawn = view(state, 1.0).draws(state.read(columns_of([x]), 1), 0, 20_000, rng)
            assert np.exp(drawn).mean(axis=0) == pytest.approx(
                np.exp(predict(state, [x])[0]), rel=0.05
            )
            spreads.append(np.exp(drawn).std(axis=0)[0])
        assert spreads[1] < spreads[0] / 5


def test_draws_of_tiny_counts_have_logarithms() -> None:
    """With pseudo-counts of 1e-6 most θ are below the smallest number; their logarithms are not."""
    tiny, nothing = np.array([1e-6, 0.0, 0.0, 3.0]), np.array([1e-6, 0.0, 2.0, 0.0])
    one, other = log_betas(tiny, nothing, 1000, np.random.default_rng(3))
    assert not np.isnan(one).any()
    assert np.isfinite(one[:, 0]).all()
    assert one[:, 0].min() < -1e4
    assert np.isneginf(one[:, 1:3]).all()
    assert (one[:, 3] == 0.0).all()
    assert (other[:, 2] == 0.0).all()
