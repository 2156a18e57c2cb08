"""The laws that groups with one value a field share: flags and categories."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamnb.features.categorical import Categories, CategoriesState
from streamnb.features.flags import Flags, FlagsState
from streamnb.features.protocol import ExampleScratch
from streamnb.likelihoods.bernoulli import Bernoulli
from streamnb.likelihoods.multinomial import Categorical
from streamnb.priors import Beta, Dirichlet
from tests.kernels.likelihood_runs import RELATIVE, deviation
from tests.library.features.group_states import (
    KEY,
    Example,
    equal,
    predict,
    reloaded,
    teach,
    unlearn,
)
from tests.naive_categorical import NaiveCategories, NaiveFlags

N_CLASSES = 3
EVERYONE = np.arange(N_CLASSES)
VALUES = [None, "", "a", "b", "c", "é", "a much longer value " * 20]
DECLARED = {"q": ("a", "b", "zz")}
PSEUDO = st.sampled_from([0.0, 1e-9, 0.5, 1.0])

Spec = Flags | Categories
State = FlagsState | CategoriesState
X = dict[str, bool | str | None]


class Twin(Protocol):
    """The plain formula, spelled out."""

    def learn(self, x: Any, y: int) -> None:
        """Learn one example."""

    def joint(self, x: Any) -> list[float]:
        """Return log-likelihoods by class."""


@dataclass(frozen=True)
class Kind:
    """What is drawn for one kind of group: any prior, open or declared fields, any values."""

    specs: st.SearchStrategy[Spec]
    values: st.SearchStrategy[Any]

    def xs(self) -> st.SearchStrategy[X]:
        """Draw an example."""
        return st.fixed_dictionaries({}, optional=dict.fromkeys("pqr", self.values))

    def streams(self) -> st.SearchStrategy[list[Example]]:
        """Draw labelled examples."""
        return st.lists(st.tuples(self.xs(), st.integers(0, N_CLASSES - 1)), max_size=25)

    def draw(self, data: st.DataObject) -> tuple[Spec, list[Example], X]:
        """Return a specification, a stream and an example to ask for."""
        return data.draw(self.specs), data.draw(self.streams()), data.draw(self.xs())


KINDS = {
    "flags": Kind(
        st.builds(
            lambda present, absent, fields, false: Flags(
                Bernoulli(Beta(present, absent)), fields, false
            ),
            PSEUDO,
            PSEUDO,
            st.sampled_from([None, ["q", "p", "r"]]),
            st.booleans(),
        ),
        st.sampled_from([True, False, True, False, None]),
    ),
    "categories": Kind(
        st.builds(
            lambda alpha, fields, values: Categories(Categorical(Dirichlet(alpha)), fields, values),
            PSEUDO | st.just([[0.5, 1.0, 2.0]]),
            st.sampled_from([None, ["q", "p", "r"]]),
            st.sampled_from([None, DECLARED]),
        ),
        st.sampled_from(VALUES),
    ),
}

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def started(spec: Spec) -> State:
    """Return a group that knows nothing."""
    return spec.start("group", N_CLASSES, KEY)


def taught(spec: Spec, *streams: list[Example]) -> State:
    """Return a group that learned streams, one batch each."""
    state = started(spec)
    for stream in streams:
        teach(state, stream)
    return state


def twin_of(spec: Spec) -> Twin:
    """Return the plain formula of a group."""
    if isinstance(spec, Flags):
        prior = spec.likelihood.prior
        return NaiveFlags(N_CLASSES, prior.present, prior.absent, spec.absent_is_false, spec.fields)
    alpha = spec.likelihood.prior.concentration
    assume(isinstance(alpha, float))  # the twin knows no others
    return NaiveCategories(N_CLASSES, alpha, dict(spec.values))


@each_kind
@given(st.data())
def test_answers_are_the_twins(kind: Kind, data: st.DataObject) -> None:
    """Before each example is learned, and after all, answers are those of the plain formula."""
    spec, stream, x = kind.draw(data)
    twin, state = twin_of(spec), started(spec)
    found = teach(state, stream)
    expected = []
    for example, y in stream:
        expected.append(twin.joint(example))
        twin.learn(example, y)
    assert deviation(found, expected) < RELATIVE
    assert deviation(predict(state, [x]), [twin.joint(x)]) < RELATIVE


@each_kind
@given(st.data(), st.lists(st.integers(0, 25), max_size=4).map(sorted))
def test_a_batch_is_its_examples_one_by_one(
    kind: Kind, data: st.DataObject, cuts: list[int]
) -> None:
    """However a stream is cut, predictions and state are the same, bit for bit."""
    spec, stream, x = kind.draw(data)
    whole, cut = started(spec), started(spec)
    found = teach(whole, stream)
    bounds = [0, *(min(c, len(stream)) for c in cuts), len(stream)]
    pieces = [teach(cut, stream[a:b]) for a, b in itertools.pairwise(bounds)]
    assert np.array_equal(found, np.concatenate(pieces))
    assert equal(whole, cut, [x])


@each_kind
@given(st.data())
def test_merging_is_learning_all_in_any_order(kind: Kind, data: st.DataObject) -> None:
    """Merged groups are the group that learned all, and subtracting undoes it, bit for bit."""
    spec, first, x = kind.draw(data)
    second, third = data.draw(kind.streams()), data.draw(kind.streams())
    whole = taught(spec, [*first, *second, *third])
    for order in ((first, second, third), (third, first, second), (second, third, first)):
        merged = started(spec)
        for stream in order:
            merged.merge(taught(spec, stream), EVERYONE, 1.0, 1)
        assert equal(merged, whole, [x])
    whole.merge(taught(spec, third), EVERYONE, 1.0, -1)
    assert equal(whole, taught(spec, [*first, *second]), [x])


@each_kind
@given(st.data(), st.sampled_from([1.0, 3.0, 0.1]))
def test_unlearned_is_never_learned(kind: Kind, data: st.DataObject, weight: float) -> None:
    """Whole-number weights come back bit for bit, others as far as rounding lets them."""
    spec, stream, x = kind.draw(data)
    more = data.draw(kind.streams())
    state, alone = taught(spec, stream), taught(spec, stream)
    teach(state, more, weight)
    for example, y in reversed(more):
        assert unlearn(state, example, y, weight) == 0
    if weight == int(weight):
        assert equal(state, alone, [x])
        return
    found, expected = predict(state, [x]), predict(alone, [x]).tolist()
    if isinstance(state, CategoriesState):
        assert isinstance(alone, CategoriesState)
        assert deviation(found, expected) < 1e-9
        assert state.counts.state[0] == alone.counts.state[0]
    elif state.spec.likelihood.prior.present > 0 and state.spec.likelihood.prior.absent > 0:
        assert deviation(found, expected) < 1e-6


@each_kind
@given(st.data())
def test_a_file_holds_all(kind: Kind, data: st.DataObject) -> None:
    """What was packed and unpacked is the same, and learns on alike."""
    spec, stream, x = kind.draw(data)
    state = taught(spec, stream)
    twin = reloaded(state, N_CLASSES)
    assert equal(state, twin, [x])
    assert np.array_equal(teach(state, stream), teach(twin, stream))
    assert equal(state, twin, [x])


@each_kind
@given(st.data())
def test_the_order_of_fields_is_nothing(kind: Kind, data: st.DataObject) -> None:
    """Fields that stand in another order, or come in another, give the same bits."""
    spec, stream, x = kind.draw(data)
    turned: list[Example] = [
        (dict(reversed(list(each.items()))), y) for each, y in reversed(stream)
    ]
    assert equal(taught(spec, stream), taught(spec, turned), [x])


@each_kind
@given(st.data(), st.sampled_from([1.0, 0.25, 7.5]))
def test_scaled_counts_answer_as_scaled_priors(
    kind: Kind, data: st.DataObject, scale: float
) -> None:
    """Counts scaled up by decay, with priors scaled alike, answer as the counts themselves do.

    Moving the landmark of decay by a power of two moves no answer by a bit.
    """
    spec, stream, x = kind.draw(data)
    state, twin = taught(spec, stream), started(spec)
    teach(twin, stream, scale, scale=scale)
    assert deviation(predict(twin, [x], scale), predict(state, [x]).tolist()) < RELATIVE
    twin = taught(spec, stream)
    twin.rescale(2.0**-40)
    assert np.array_equal(predict(twin, [x], 2.0**-40), predict(state, [x]))


@each_kind
@given(st.data())
def test_the_sum_of_parts_is_the_whole(kind: Kind, data: st.DataObject) -> None:
    """A group in parts answers as one kept whole, and is rebuilt from its parts alone."""
    spec, first, x = kind.draw(data)
    second = data.draw(kind.streams())
    whole, state = taught(spec, [*first, *second]), started(spec)
    if isinstance(state, CategoriesState):
        state.set_bounded(bounded=False)
    parts: list[Any] = [state.new_part(), state.new_part()]
    teach(state, first, part=parts[0])
    teach(state, second, part=parts[1])
    assert equal(whole, state, [x])
    state.sum_parts(parts[::-1])
    assert equal(whole, state, [x])


@each_kind
@given(st.data())
def test_one_example_has_a_short_way(kind: Kind, data: st.DataObject) -> None:
    """An example that is read at once is what a batch of one is; else the reason is known."""
    spec, stream, x = kind.draw(data)
    state = taught(spec, stream)
    if not state.can_encode_one(x):
        assert not_at_once(state, x)
        return
    labels = np.full(1, -1, dtype=np.int32)
    one: Any = state.encode_one(x, ExampleScratch(), learn=False)
    fields: Any = state.read({k: [v] for k, v in x.items()}, 1)
    many: Any = state.encode(fields, 0, 1, labels, learn=False)
    if isinstance(state, FlagsState):  # a batch has columns of unknown flags too
        known = many.places >= 0
        assert np.array_equal(one.x, many.x[:, known])
        assert np.array_equal(one.places, many.places[known])
    else:
        assert np.array_equal(one.columns, many.columns)


def not_at_once(state: State, x: Mapping[str, Any]) -> bool:
    """Return whether flags are missing or unknown, or a text too long to be looked up at once."""
    if isinstance(state, FlagsState):
        return not state.fields or any(x.get(name) is None for name in state.fields)
    return any(len(value or "") > 64 for value in x.values())


@each_kind
@given(st.data())
def test_a_specification_is_saved_whole(kind: Kind, data: st.DataObject) -> None:
    """What the header says of a group makes an equal group."""
    spec = data.draw(kind.specs)
    assert type(spec).from_dict(spec.to_dict()) == spec
