"""A group of flags: what it makes of every kind of value (laws: `test_field_group_laws`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from streamnb.errors import InputError
from streamnb.features.flags import Flags, FlagsState
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

N_CLASSES = 3
EVERYONE = np.arange(N_CLASSES)


def started(spec: Flags, n_classes: int = N_CLASSES) -> FlagsState:
    """Return a group that knows nothing."""
    return spec.start("flags", n_classes, KEY)


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
        expected = [lasting + np.log(c / (3 + 2 * c)), lasting + np.log((3 + c) / (3 + 2 * c))]
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


@pytest.mark.parametrize("fields", [None, ["new", *(f"flag{i}" for i in range(50))]])
def test_absent_flags_take_no_room_in_what_is_read(fields: list[str] | None) -> None:
    """Only columns that came are read; the answers are those of columns of False."""
    known = [f"flag{i}" for i in range(50)]
    state = started(Flags(fields=fields, absent_is_false=True))
    teach(state, [(dict.fromkeys(known, True), 0), (dict.fromkeys(known[::2], True), 1)])
    given = {"flag7": [True, False], "new": [None, True]}
    rows = state.read(given, 2)
    assert rows.matrix.shape == (2, 2)
    falses = {name: [False, False] for name in known}
    whole = state.read({**falses, **given}, 2)
    for learn in (False, True):
        labels = np.array([0, 1], dtype=np.int32)
        few, all_ = (state.encode(each, 0, 2, labels, learn=learn) for each in (rows, whole))
        assert few.names == all_.names
        assert few.places.tolist() == all_.places.tolist()
        assert (few.x == 1.0).tolist() == (all_.x == 1.0).tolist()


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
        assert state.read({"p": array}, 2).matrix.ravel().tolist() == [1.0, 0.0]


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


def test_how_absence_is_read_is_said_by_a_truth_value() -> None:
    """Nothing else is taken for one."""
    with pytest.raises(InputError):
        Flags(absent_is_false=1)  # type: ignore[arg-type]
