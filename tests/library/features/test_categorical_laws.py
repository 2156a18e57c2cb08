"""A group of categories: its laws."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from streamnb.features.categorical import Categories, CategoriesState
from streamnb.features.scratch import ExampleScratch
from streamnb.likelihoods.categorical import Categorical
from streamnb.priors import Dirichlet
from tests.kernels.likelihood_runs import RELATIVE, deviation
from tests.library.features.group_states import (
    KEY,
    Example,
    equal,
    packed,
    predict,
    reloaded,
    teach,
    unlearn,
)
from tests.naive_categorical import NaiveCategories

N_CLASSES = 3
VALUES = [None, "", "a", "b", "c", "é", "a much longer value " * 20]
DECLARED = {"q": ("a", "b", "zz")}


def started(spec: Categories, n_classes: int = N_CLASSES) -> CategoriesState:
    """Return a group that knows nothing."""
    return spec.start("things", n_classes, KEY)


def specs() -> st.SearchStrategy[Categories]:
    """Draw groups: any prior, open or not, with declared values or not."""
    prior = st.sampled_from([0.0, 1e-9, 0.5, 1.0, [[0.5, 1.0, 2.0]]])
    return st.builds(
        lambda alpha, fields, values: Categories(Categorical(Dirichlet(alpha)), fields, values),
        prior,
        st.sampled_from([None, ["q", "p", "r"]]),
        st.sampled_from([None, DECLARED]),
    )


def xs() -> st.SearchStrategy[dict[str, str | None]]:
    """Draw an example."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys("pqr", st.sampled_from(VALUES)))


def streams(max_size: int = 25) -> st.SearchStrategy[list[Example]]:
    """Draw labelled examples."""
    return st.lists(st.tuples(xs(), st.integers(0, N_CLASSES - 1)), max_size=max_size)


@given(specs(), streams(), xs())
def test_answers_are_the_twins(
    spec: Categories, stream: list[Example], x: dict[str, str | None]
) -> None:
    """Before each example is learned, and after all, answers are those of the plain formula."""
    assume(isinstance(spec.likelihood.prior.concentration, float))  # the twin knows no others
    twin = NaiveCategories(N_CLASSES, spec.likelihood.prior.concentration, dict(spec.values))
    state = started(spec)
    found = teach(state, stream)
    expected = []
    for example, y in stream:
        expected.append(twin.joint(example))
        twin.learn(example, y)
    assert deviation(found, expected) < RELATIVE
    assert deviation(predict(state, [x]), [twin.joint(x)]) < RELATIVE


@given(specs(), streams(), st.lists(st.integers(0, 25), max_size=4).map(sorted), xs())
def test_a_batch_is_its_examples_one_by_one(
    spec: Categories, stream: list[Example], cuts: list[int], x: dict[str, str | None]
) -> None:
    """However a stream is cut, predictions and state are the same, bit for bit."""
    whole, cut = started(spec), started(spec)
    found = teach(whole, stream)
    bounds = [0, *(min(c, len(stream)) for c in cuts), len(stream)]
    pieces = [teach(cut, stream[a:b]) for a, b in itertools.pairwise(bounds)]
    assert np.array_equal(found, np.concatenate(pieces))
    assert equal(whole, cut, [x])


@given(specs(), streams(), streams(), streams(), xs())
def test_merging_is_learning_all_in_any_order(
    spec: Categories,
    first: list[Example],
    second: list[Example],
    third: list[Example],
    x: dict[str, str | None],
) -> None:
    """Merged groups are the group that learned all, whatever the order, bit for bit."""
    whole = started(spec)
    teach(whole, [*first, *second, *third])
    everyone = np.arange(N_CLASSES)
    for order in ((first, second, third), (third, first, second), (second, third, first)):
        merged = started(spec)
        for stream in order:
            other = started(spec)
            teach(other, stream)
            merged.merge(other, everyone, 1.0, 1)
        assert equal(merged, whole, [x])


@given(specs(), streams(), streams(), xs())
def test_subtracting_is_never_having_merged(
    spec: Categories, first: list[Example], second: list[Example], x: dict[str, str | None]
) -> None:
    """What was merged can be subtracted, and nothing of it is left."""
    state, alone, other = started(spec), started(spec), started(spec)
    teach(state, [*first, *second])
    teach(alone, first)
    teach(other, second)
    state.merge(other, np.arange(N_CLASSES), 1.0, -1)
    assert equal(state, alone, [x])


@given(specs(), streams(), streams(), xs(), st.sampled_from([1.0, 3.0, 0.1]))
def test_unlearned_is_never_learned(
    spec: Categories,
    stream: list[Example],
    more: list[Example],
    x: dict[str, str | None],
    weight: float,
) -> None:
    """Whole-number weights come back bit for bit, others as far as rounding lets them."""
    state, alone = started(spec), started(spec)
    teach(alone, stream)
    teach(state, stream)
    teach(state, more, weight)
    for example, y in reversed(more):
        assert unlearn(state, example, y, weight) == 0
    if weight == int(weight):
        assert equal(state, alone, [x])
    else:
        assert deviation(predict(state, [x]), predict(alone, [x]).tolist()) < 1e-9
        assert state.counts.state[0] == alone.counts.state[0]


@given(specs(), streams(), xs())
def test_a_file_holds_all(
    spec: Categories, stream: list[Example], x: dict[str, str | None]
) -> None:
    """What was packed and unpacked is the same, and learns on alike."""
    state = started(spec)
    teach(state, stream)
    twin = reloaded(state, N_CLASSES)
    assert equal(state, twin, [x])
    assert np.array_equal(teach(state, stream), teach(twin, stream))
    assert equal(state, twin, [x])


@given(specs(), streams(), xs())
def test_the_order_of_fields_is_nothing(
    spec: Categories, stream: list[Example], x: dict[str, str | None]
) -> None:
    """Fields that stand in another order, or come in another, give the same bits."""
    state, twin = started(spec), started(spec)
    teach(state, stream)
    teach(twin, [(dict(reversed(list(each.items()))), y) for each, y in reversed(stream)])
    assert equal(state, twin, [x])


@given(specs(), streams(), xs(), st.sampled_from([1.0, 0.25, 7.5]))
def test_scaled_counts_answer_as_scaled_priors(
    spec: Categories, stream: list[Example], x: dict[str, str | None], scale: float
) -> None:
    """Counts scaled up by decay, with priors scaled alike, answer as the counts themselves do."""
    state, twin = started(spec), started(spec)
    teach(state, stream)
    teach(twin, stream, scale, scale=scale)
    assert deviation(predict(twin, [x], scale), predict(state, [x]).tolist()) < RELATIVE


@given(specs(), streams(), xs())
def test_rescaling_by_a_power_of_two_is_exact(
    spec: Categories, stream: list[Example], x: dict[str, str | None]
) -> None:
    """Moving the landmark of decay moves no answer by a bit."""
    state, twin = started(spec), started(spec)
    teach(state, stream)
    teach(twin, stream)
    twin.rescale(2.0**-40)
    assert np.array_equal(predict(twin, [x], 2.0**-40), predict(state, [x]))


@given(specs(), streams(), streams(), xs())
def test_the_sum_of_parts_is_the_whole(
    spec: Categories, first: list[Example], second: list[Example], x: dict[str, str | None]
) -> None:
    """A group in parts answers as one kept whole, and is rebuilt from its parts alone."""
    whole, state = started(spec), started(spec)
    teach(whole, [*first, *second])
    state.set_bounded(bounded=False)
    parts = [state.new_part(), state.new_part()]
    teach(state, first, part=parts[0])
    teach(state, second, part=parts[1])
    assert equal(whole, state, [x])
    state.sum_parts(parts[::-1])
    assert equal(whole, state, [x])


@given(streams(40), st.integers(1, 6), st.lists(st.integers(0, 40), max_size=4).map(sorted))
def test_values_stay_bounded(stream: list[Example], bound: int, cuts: list[int]) -> None:
    """Values never pass their bound but by one row's own; which leave does not hang on the cut."""
    spec = Categories(max_values=bound)
    whole, cut = started(spec), started(spec)
    teach(whole, stream)
    bounds = [0, *(min(c, len(stream)) for c in cuts), len(stream)]
    for a, b in itertools.pairwise(bounds):
        teach(cut, stream[a:b])
        assert cut.counts.state[0] <= max(bound, 3)
    assert packed(whole) == packed(cut)
    assert whole.n_dropped == cut.n_dropped
    by_field = whole.counts.by_value.sum(axis=0)
    assert np.array_equal(whole.counts.seen.sum(axis=0), by_field)


def test_declared_values_never_leave() -> None:
    """At the bound the values of open fields leave, and declared ones keep their counts."""
    state = started(Categories(values={"q": ["a", "b"]}, max_values=2))
    teach(state, [({"q": "a", "p": str(i)}, 0) for i in range(20)])
    assert state.counts.by_value[:2].sum() == 20
    assert state.n_dropped > 0


def test_a_crowded_table_is_made_anew() -> None:
    """After many values have left, a smaller table answers the same."""
    state = started(Categories(max_values=300))
    teach(state, [({"p": str(i % 2000), "q": str(i % 7)}, i % 3) for i in range(6000)])
    x = {"p": "1999", "q": "3"}
    before, was = predict(state, [x]), packed(state)
    columns = state.compact()
    assert columns is not None
    assert state.table.vocabulary.n_words == len(columns) <= 300
    assert packed(state) == was
    assert np.array_equal(predict(state, [x]), before)


def test_a_frozen_state_stays() -> None:
    """Later learning, of new fields and values too, does not reach a frozen copy."""
    state = started(Categories())
    teach(state, [({"p": "a"}, 0), ({"p": "b"}, 1)])
    frozen = state.frozen_copy()
    before, was = predict(frozen, [{"p": "a", "z": "q"}]), packed(frozen)
    teach(state, [({"z": "q", "p": str(i)}, 2) for i in range(3000)])
    assert np.array_equal(predict(frozen, [{"p": "a", "z": "q"}]), before)
    assert packed(frozen) == was


@given(specs(), streams(), xs())
def test_one_example_has_a_short_way(
    spec: Categories, stream: list[Example], x: dict[str, str | None]
) -> None:
    """An example looked up at the desk is what a batch of one is."""
    state = started(spec)
    teach(state, stream)
    if not state.can_encode_one(x):
        assert any(len(value or "") > 64 for value in x.values())
        return
    one = state.encode_one(x, ExampleScratch(), learn=False)
    labels = np.full(1, -1, dtype=np.int32)
    many = state.encode(state.read({k: [v] for k, v in x.items()}, 1), 0, 1, labels, learn=False)
    assert np.array_equal(one.columns, many.columns)


@given(specs())
def test_a_specification_is_saved_whole(spec: Categories) -> None:
    """What the header says of a group makes an equal group."""
    assert Categories.from_dict(spec.to_dict()) == spec
