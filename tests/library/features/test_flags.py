"""A group of flags: its laws, and what it makes of every kind of value."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb.errors import InputError
from streamnb.features.flags import Flags, FlagsState
from streamnb.features.scratch import ExampleScratch
from streamnb.likelihoods.bernoulli import Bernoulli
from streamnb.priors import Beta
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
from tests.naive_categorical import NaiveFlags

N_CLASSES = 3
EVERYONE = np.arange(N_CLASSES)


def started(spec: Flags, n_classes: int = N_CLASSES) -> FlagsState:
    """Return a group that knows nothing."""
    return spec.start("flags", n_classes, KEY)


def specs() -> st.SearchStrategy[Flags]:
    """Draw groups: any prior, open or not, absence read either way."""
    pseudo = st.sampled_from([0.0, 1e-9, 0.5, 1.0])
    return st.builds(
        lambda present, absent, fields, false: Flags(
            Bernoulli(Beta(present, absent)), fields, false
        ),
        pseudo,
        pseudo,
        st.sampled_from([None, ["q", "p", "r"]]),
        st.booleans(),
    )


def xs() -> st.SearchStrategy[dict[str, bool | None]]:
    """Draw an example."""
    value = st.sampled_from([True, False, True, False, None])
    return st.fixed_dictionaries({}, optional=dict.fromkeys("pqr", value))


def streams(max_size: int = 25) -> st.SearchStrategy[list[Example]]:
    """Draw labelled examples."""
    return st.lists(st.tuples(xs(), st.integers(0, N_CLASSES - 1)), max_size=max_size)


@given(specs(), streams(), xs())
def test_answers_are_the_twins(
    spec: Flags, stream: list[Example], x: dict[str, bool | None]
) -> None:
    """Before each example is learned, and after all, answers are those of the plain formula."""
    prior = spec.likelihood.prior
    twin = NaiveFlags(N_CLASSES, prior.present, prior.absent, spec.absent_is_false, spec.fields)
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
    spec: Flags, stream: list[Example], cuts: list[int], x: dict[str, bool | None]
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
    spec: Flags,
    first: list[Example],
    second: list[Example],
    third: list[Example],
    x: dict[str, bool | None],
) -> None:
    """Merged groups are the group that learned all, and subtracting undoes it, bit for bit."""
    whole, alone = started(spec), started(spec)
    teach(whole, [*first, *second, *third])
    teach(alone, [*first, *second])
    for order in ((first, second, third), (third, first, second), (second, third, first)):
        merged = started(spec)
        for stream in order:
            other = started(spec)
            teach(other, stream)
            merged.merge(other, EVERYONE, 1.0, 1)
        assert equal(merged, whole, [x])
    last = started(spec)
    teach(last, third)
    whole.merge(last, EVERYONE, 1.0, -1)
    assert equal(whole, alone, [x])


@given(specs(), streams(), streams(), xs(), st.sampled_from([1.0, 3.0, 0.1]))
def test_unlearned_is_never_learned(
    spec: Flags,
    stream: list[Example],
    more: list[Example],
    x: dict[str, bool | None],
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
    elif spec.likelihood.prior.present > 0 and spec.likelihood.prior.absent > 0:
        assert deviation(predict(state, [x]), predict(alone, [x]).tolist()) < 1e-6


@given(specs(), streams(), xs())
def test_a_file_holds_all(spec: Flags, stream: list[Example], x: dict[str, bool | None]) -> None:
    """What was packed and unpacked is the same, and learns on alike."""
    state = started(spec)
    teach(state, stream)
    twin = reloaded(state, N_CLASSES)
    assert equal(state, twin, [x])
    assert np.array_equal(teach(state, stream), teach(twin, stream))
    assert equal(state, twin, [x])


@given(specs(), streams(), xs())
def test_the_order_of_fields_is_nothing(
    spec: Flags, stream: list[Example], x: dict[str, bool | None]
) -> None:
    """Fields that stand in another order, or come in another, give the same bits."""
    state, twin = started(spec), started(spec)
    teach(state, stream)
    teach(twin, [(dict(reversed(list(each.items()))), y) for each, y in reversed(stream)])
    assert equal(state, twin, [x])


@given(specs(), streams(), xs(), st.sampled_from([1.0, 0.25, 7.5]))
def test_scaled_counts_answer_as_scaled_priors(
    spec: Flags, stream: list[Example], x: dict[str, bool | None], scale: float
) -> None:
    """Counts scaled up by decay, with priors scaled alike, answer as the counts themselves do."""
    state, twin = started(spec), started(spec)
    teach(state, stream)
    teach(twin, stream, scale, scale=scale)
    assert deviation(predict(twin, [x], scale), predict(state, [x]).tolist()) < RELATIVE
    twin = started(spec)
    teach(twin, stream)
    twin.rescale(2.0**-40)
    assert np.array_equal(predict(twin, [x], 2.0**-40), predict(state, [x]))


@given(specs(), streams(), streams(), xs())
def test_the_sum_of_parts_is_the_whole(
    spec: Flags, first: list[Example], second: list[Example], x: dict[str, bool | None]
) -> None:
    """A group in parts answers as one kept whole, and is rebuilt from its parts alone."""
    whole, state = started(spec), started(spec)
    teach(whole, [*first, *second])
    parts = [state.new_part(), state.new_part()]
    teach(state, first, part=parts[0])
    teach(state, second, part=parts[1])
    assert equal(whole, state, [x])
    state.sum_parts(parts[::-1])
    assert equal(whole, state, [x])


@given(specs(), streams(), xs())
def test_one_example_has_a_short_way(
    spec: Flags, stream: list[Example], x: dict[str, bool | None]
) -> None:
    """An example whose known flags are all there is read at once, to the same row."""
    state = started(spec)
    teach(state, stream)
    if not state.can_encode_one(x):
        assert not state.fields or any(x.get(name) is None for name in state.fields)
        return
    labels = np.full(1, -1, dtype=np.int32)
    one = state.encode_one(x, ExampleScratch(), learn=False)
    many = state.encode(state.read({k: [v] for k, v in x.items()}, 1), 0, 1, labels, learn=False)
    assert np.array_equal(one.values, many.values)


def test_a_thousand_flags_and_one_never_seen() -> None:
    """Worked example: one zero makes a class impossible, and each prior mends it its own way."""
    names = [f"flag{i}" for i in range(1000)]
    yes = dict.fromkeys(names, True) | {"flag999": False}
    stream: list[Example] = [*[(yes, 0)] * 3, *[(dict.fromkeys(names, True), 1)] * 3]
    asked = dict.fromkeys(names, True)
    plain = started(Flags(Bernoulli(Beta(0, 0))), 2)
    teach(plain, stream)
    assert predict(plain, [asked]).tolist() == [[-np.inf, 0.0]]
    for c in (1.0, 0.5):
        state = started(Flags(Bernoulli(Beta(c, c))), 2)
        teach(state, stream)
        lasting = 999 * np.log((3 + c) / (3 + 2 * c))
        expected = [
            lasting + np.log(c / (3 + 2 * c)),
            lasting + np.log((3 + c) / (3 + 2 * c)),
        ]
        assert deviation(predict(state, [asked]), [expected]) < RELATIVE


def test_nothing_known_says_nothing_and_never_nan() -> None:
    """0/0 is left out where no class knows a flag, and impossible where another class does."""
    state = started(Flags(Bernoulli(Beta(0, 0)), ["p", "q"]))
    assert predict(state, [{"p": True, "q": False}]).tolist() == [[0.0] * 3]
    teach(state, [({"p": True}, 0), ({"p": False}, 1)])
    found = predict(state, [{"p": True, "q": True}, {"p": False}, {}])
    assert found.tolist() == [[0, -np.inf, -np.inf], [-np.inf, 0, -np.inf], [0, 0, 0]]


def test_absence_may_mean_false() -> None:
    """Read so, an open group's flag was false in all examples before it first came."""
    late, declared = (
        started(Flags(absent_is_false=True)),
        started(Flags(fields=["p"], absent_is_false=True)),
    )
    stream: list[Example] = [({}, 0), ({"q": True}, 0), ({}, 1), ({"p": True}, 0)]
    teach(late, stream)
    teach(declared, [({}, 0), ({}, 0), ({}, 1), ({"p": True}, 0)])
    p = np.log([(1 + 1) / (3 + 2), (0 + 1) / (1 + 2), 1 / 2])
    assert deviation(predict(declared, [{"p": True}]), [p.tolist()]) < RELATIVE
    q = np.log([1 - (1 + 1) / (3 + 2), 1 - (0 + 1) / (1 + 2), 1 / 2])
    assert deviation(predict(late, [{"p": True}]), [(p + q).tolist()]) < RELATIVE


def test_a_prior_may_differ_by_field_and_class() -> None:
    """A matrix prior has a row a field in the order they are named, whatever their names."""
    present, absent = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 1.0], [1.0, 2.0]])
    spec = Flags(Bernoulli(Beta(present, absent)), ["z", "a"])
    state = started(spec, 2)
    teach(state, [({"z": True, "a": False}, 0), ({"z": False}, 1)])
    theta = np.array([[2 / 7, 2 / 4], [3 / 5, 4 / 6]])
    expected = np.log(theta[0]) + np.log(1 - theta[1])
    asked = [{"z": True, "a": False}]
    assert deviation(predict(state, asked), [expected.tolist()]) < RELATIVE
    assert equal(reloaded(state, 2), state, asked)
    for fields, n_classes in ((None, 2), (["z"], 2), (["z", "a"], 3)):
        with pytest.raises(InputError, match="has numbers for"):
            started(Flags(spec.likelihood, fields), n_classes)


def test_every_way_to_say_true() -> None:
    """True, 1, 1.0 and numpy's own are one; None and nan are missing; arrays are read as lists."""
    state = started(Flags(fields=["p"]))
    given_ = [True, 1, 1.0, np.bool_(True), np.int8(1), np.float32(1), None, np.nan, 0, False]
    teach(state, [({"p": value}, 0) for value in given_])
    assert (state.counts.true[0, 0], state.counts.false[0, 0]) == (6.0, 2.0)
    for array in (np.array([True, False]), np.array([1, 0]), np.array([1.0, 0.0])):
        assert state.read({"p": array}, 2).values.ravel().tolist() == [1.0, 0.0]


@pytest.mark.parametrize("value", ["true", 2, -1, 0.5, np.inf, [True], b"1"])
def test_what_is_no_flag_is_refused(value: Any) -> None:
    """Bad input names field, row and what is allowed, and leaves the state as it was."""
    state = started(Flags(fields=["p"]))
    teach(state, [({"p": True}, 0)])
    before = packed(state)
    with pytest.raises(InputError, match=r"field 'p', row 1: .*True, False, 1 or 0"):
        teach(state, [({"p": True}, 0), ({"p": value}, 0)])
    assert packed(state) == before


@pytest.mark.parametrize("absent_is_false", [False, True])
def test_more_cannot_be_unlearned_than_was_learned(absent_is_false: bool) -> None:
    """Taking back what was never learned is refused, and changes nothing."""
    state = started(Flags(absent_is_false=absent_is_false))
    teach(state, [({"p": True, "q": True}, 0)])
    before = packed(state)
    wrong: list[tuple[Mapping[str, Any], int, float]] = [
        ({"p": True}, 1, 1.0), ({"p": True}, 0, 2.0), ({"new": True}, 0, 1.0),
    ]  # fmt: skip
    for x, y, weight in wrong:
        with pytest.raises(InputError, match="cannot be unlearned"):
            unlearn(state, x, y, weight)
    other = started(state.spec)
    teach(other, [({"p": True}, 0), ({"p": True}, 0)])
    with pytest.raises(InputError, match="Subtract only"):
        state.frozen_copy().merge(other, EVERYONE, 1.0, -1)
    assert packed(state) == before


def test_which_new_fields_an_open_group_takes() -> None:
    """Truth values are taken up; numbers and texts are not."""
    state = started(Flags())
    taken: list[Any] = [[True], [None, False], np.array([True]), [np.bool_(True)]]
    for values in taken:
        assert state.accepts(values)
    left: list[Any] = [[1], ["a"], [None], [], np.array([1.0]), "text"]
    for values in left:
        assert not state.accepts(values)
    assert not started(Flags(fields=["p"])).accepts([True])


def test_a_frozen_state_stays() -> None:
    """Later learning, of new fields too, does not reach a frozen copy."""
    state = started(Flags())
    teach(state, [({"p": True}, 0), ({"p": False}, 1)])
    frozen = state.frozen_copy()
    before = predict(frozen, [{"p": True, "z": True}])
    teach(state, [({"z": True, "p": True}, 2)])
    assert np.array_equal(predict(frozen, [{"p": True, "z": True}]), before)


@given(specs())
def test_a_specification_is_saved_whole(spec: Flags) -> None:
    """What the header says of a group makes an equal group."""
    assert Flags.from_dict(spec.to_dict()) == spec
    with pytest.raises(InputError):
        Flags(absent_is_false=1)  # type: ignore[arg-type]
