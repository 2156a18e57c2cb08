"""A group of categories: worked examples, and what it makes of every kind of value."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from streamnb.errors import InputError
from streamnb.features.categorical import Categories, CategoriesState
from streamnb.likelihoods.multinomial import Categorical
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

N_CLASSES = 3


def started(spec: Categories, n_classes: int = N_CLASSES) -> CategoriesState:
    """Return a group that knows nothing."""
    return spec.start("things", n_classes, KEY)


def test_the_loan() -> None:
    """Worked example: low score and income, missed payments, stable job: approved by 15/911."""
    table: dict[str, tuple[list[str], tuple[int, ...], tuple[int, ...]]] = {
        "score": (["low", "high"], (12, 48), (126, 14)),
        "income": (["low", "mid", "high"], (12, 18, 30), (56, 56, 28)),
        "missed": (["true", "false"], (15, 45), (112, 28)),
        "stable": (["true", "false"], (54, 6), (112, 28)),
    }
    state = started(Categories(Categorical(Dirichlet(0.0))), 2)
    for y, n in ((0, 60), (1, 140)):
        columns: dict[str, list[str]] = {}
        for name, (values, *by_class) in table.items():
            pairs = zip(values, by_class[y], strict=True)
            columns[name] = [value for value, times in pairs for _ in range(times)]
        teach(state, [({name: columns[name][i] for name in table}, y) for i in range(n)])
    (found,) = predict(state, [{"score": "low", "income": "low", "missed": True, "stable": True}])
    joint = np.exp(found) * [0.3, 0.7]
    assert joint.tolist() == pytest.approx([0.0027, 0.16128], rel=1e-14)
    assert joint[0] / joint.sum() == pytest.approx(float(Fraction(15, 911)), rel=1e-14)


def test_cold_and_brown() -> None:
    """Worked example: two values never seen together still speak: 484/1569 against 1085/1569."""
    table = {
        ("hot", "orange"): (7, 6), ("hot", "green"): (9, 5), ("hot", "brown"): (4, 7),
        ("cold", "orange"): (9, 3), ("cold", "green"): (2, 12),
    }  # fmt: skip
    stream: list[Example] = [
        ({"warmth": warmth, "colour": colour}, y)
        for (warmth, colour), n in table.items()
        for y in (0, 1)
        for _ in range(n[y])
    ]
    state = started(Categories(Categorical(Dirichlet(0.0))), 2)
    teach(state, stream)
    joint = np.exp(predict(state, [{"warmth": "cold", "colour": "brown"}])[0]) * [31 / 64, 33 / 64]
    assert joint[0] / joint.sum() == pytest.approx(float(Fraction(484, 1569)), rel=1e-14)


@pytest.mark.parametrize(
    ("alpha", "expected"), [(0.0, [70 / 155, 63 / 155, 22 / 155]), (1.0, [0.4339, 0.3857, 0.1804])]
)
def test_29_dots(alpha: float, expected: list[float]) -> None:
    """Worked example: (b, β) among 29 dots of three colours, with and without smoothing."""
    first, second = ((4, 5, 2), (5, 3, 3), (3, 2, 2)), ((6, 2, 3), (7, 3, 1), (3, 1, 3))
    state = started(Categories(Categorical(Dirichlet(alpha))), 3)
    for y in range(3):
        pairs = zip(np.repeat([*"abc"], first[y]), np.repeat([*"αβγ"], second[y]), strict=True)
        teach(state, [({"first": a, "second": b}, y) for a, b in pairs])
    joint = np.exp(predict(state, [{"first": "b", "second": "β"}])[0]) * [11 / 29, 11 / 29, 7 / 29]
    assert (joint / joint.sum()).tolist() == pytest.approx(
        expected, rel=1e-14 if not alpha else 2e-4
    )


def test_zeros_and_values_never_seen() -> None:
    """An unseen value has α/(N_c + α·e); under maximum likelihood it is impossible, and no nan."""
    stream: list[Example] = [({"p": "a"}, 0), ({"p": "a"}, 0), ({"p": "b"}, 1)]
    smooth, plain = started(Categories()), started(Categories(Categorical(Dirichlet(0.0))))
    teach(smooth, stream)
    teach(plain, stream)
    assert np.exp(predict(smooth, [{"p": "new"}])[0]).tolist() == pytest.approx(
        [1 / 4, 1 / 3, 1 / 2]
    )
    assert predict(plain, [{"p": "new"}]).tolist() == [[-np.inf] * 3]
    assert predict(plain, [{"p": "a"}]).tolist() == [[0.0, -np.inf, -np.inf]]
    assert predict(plain, [{"q": "a"}, {}]).tolist() == [[0.0] * 3] * 2


def test_declared_values_are_all_there_are() -> None:
    """With declared values e is their number from the start, and others are skipped."""
    state = started(Categories(fields=["p"], values={"p": ["a", "b", "c", "d"]}), 2)
    assert np.exp(predict(state, [{"p": "a"}])[0]).tolist() == pytest.approx([0.25, 0.25])
    teach(state, [({"p": "a"}, 0), ({"p": "elsewhere"}, 1)])
    assert np.exp(predict(state, [{"p": "a"}])[0]).tolist() == pytest.approx([2 / 5, 1 / 4])
    assert predict(state, [{"p": "elsewhere"}]).tolist() == [[0.0, 0.0]]


def test_a_prior_may_differ_by_value_and_class() -> None:
    """A matrix prior has a row a declared value and a column a class, before and after a file."""
    alpha = np.array([[1.0, 4.0], [2.0, 5.0], [0.5, 6.0]])
    spec = Categories(Categorical(Dirichlet(alpha)), ["p"], {"p": ["x", "y", "z"]})
    state = started(spec, 2)
    teach(state, [({"p": "y"}, 0), ({"p": "y"}, 0), ({"p": "z"}, 1)])
    counts = np.array([[0, 0], [2, 0], [0, 1]])
    expected = np.log((counts + alpha) / (counts + alpha).sum(axis=0))
    asked = [{"p": "x"}, {"p": "y"}, {"p": "z"}]
    assert deviation(predict(state, asked), expected.tolist()) < RELATIVE
    assert equal(reloaded(state, 2), state, asked)
    with pytest.raises(InputError, match="2 classes"):
        started(spec, 3)
    with pytest.raises(InputError, match="come as they please"):
        started(Categories(spec.likelihood), 2)
    with pytest.raises(InputError, match="named"):
        started(Categories(spec.likelihood, None, {"p": ["x", "y", "z"]}), 2)


def test_a_value_is_its_text() -> None:
    """1, 1.0 and "1" are one value in every way to give them, and True is "true"."""
    state = started(Categories(fields=["p"]))
    given_: list[Any] = [1, 1.0, "1", np.int8(1), np.float32(1), np.str_("1")]
    teach(state, [({"p": value}, 0) for value in given_])
    teach(state, [({"p": value}, 1) for value in (True, np.bool_(True), "true", 2.5, "2.5")])
    values = sorted(state.table.values(state.live_values().columns))
    assert values == [("p", "1"), ("p", "2.5"), ("p", "true")]
    assert state.counts.seen[0].tolist() == [6.0, 5.0, 0.0]


@pytest.mark.parametrize(
    "array",
    [
        np.array([3, 1, 3, 2]),
        np.array([1.5, np.nan, 2.0, 1.5]),
        np.array([True, False, True, True]),
        np.array(["x", "y", "x", ""]),
        np.array(["x", None, 3, True], dtype=object),
    ],
)
def test_arrays_are_read_as_lists(array: np.ndarray) -> None:
    """An array of numbers, truth values or texts gives what its values give one by one."""
    by_array, by_list = started(Categories(fields=["p"])), started(Categories(fields=["p"]))
    labels = np.zeros(len(array), dtype=np.int32)
    for state, values in ((by_array, array), (by_list, array.tolist())):
        state.encode(state.read({"p": values}, len(array)), 0, len(array), labels, learn=True)
        teach(state, [({"p": value}, 0) for value in values])
    assert packed(by_array) == packed(by_list)


def test_long_values_differ_by_all_of_their_text() -> None:
    """Values that begin alike are two, and of each a bounded text is kept."""
    state = started(Categories())
    long = "x" * 100_000
    teach(state, [({"p": long + "a"}, 0), ({"p": long + "b"}, 1), ({"p": "é" * 150}, 2)])
    kept = [value for _, value in state.table.values(state.live_values().columns)]
    assert len(set(kept)) == 3
    assert max(map(len, kept)) < 250
    assert np.argmax(predict(state, [{"p": long + "b"}])[0]) == 1


@pytest.mark.parametrize("value", [b"bytes", ["a"], {"a": 1}, object(), 1j])
def test_what_is_no_category_is_refused(value: Any) -> None:
    """Bad input names field, row and value, and leaves the state as it was."""
    state = started(Categories(fields=["p"]))
    teach(state, [({"p": "a"}, 0)])
    before = packed(state)
    with pytest.raises(InputError, match="field 'p', row 1"):
        teach(state, [({"p": "b"}, 0), ({"p": value}, 0)])
    assert packed(state) == before


def test_more_cannot_be_unlearned_than_was_learned() -> None:
    """Taking back what was never learned is refused by field and value, and changes nothing."""
    state = started(Categories())
    teach(state, [({"p": "a", "q": "b"}, 0)])
    before = packed(state)
    wrong: list[tuple[Mapping[str, Any], int, float]] = [
        ({"p": "a"}, 1, 1.0), ({"p": "z"}, 0, 1.0), ({"p": "a"}, 0, 2.0), ({"new": "a"}, 0, 1.0),
    ]  # fmt: skip
    for x, y, weight in wrong:
        with pytest.raises(InputError, match="cannot be unlearned"):
            unlearn(state, x, y, weight)
    other = copy.deepcopy(state)
    teach(other, [({"p": "a"}, 0)])
    with pytest.raises(InputError, match="Subtract only"):
        state.frozen_copy().merge(other, np.arange(N_CLASSES), 1.0, -1)
    assert packed(state) == before


def test_what_has_left_is_skipped() -> None:
    """A value that left a full table is skipped when it is unlearned, and counted."""
    state = started(Categories(max_values=2))
    teach(state, [({"p": str(i)}, 0) for i in range(6)])
    assert state.n_dropped > 0
    assert unlearn(state, {"p": "0"}, 0) + unlearn(state, {"p": "5"}, 0) >= 1
    assert (state.counts.by_value >= 0).all()


def test_which_new_fields_an_open_group_takes() -> None:
    """Texts and truth values are taken up, numbers are not, by the first value that is there."""
    state = started(Categories())
    taken: list[Any] = [["a"], [None, "a", 3], [True], np.array(["a"]), np.array([True])]
    for values in taken:
        assert state.accepts(values)
    left: list[Any] = [[3], [None], [], [2.5, "a"], np.array([3]), "text", {"a": 1}]
    for values in left:
        assert not state.accepts(values)
    assert not started(Categories(fields=["p"])).accepts(["a"])


@pytest.mark.parametrize(
    "settings",
    [
        {"fields": "p"}, {"fields": []}, {"fields": ["p", "p"]}, {"fields": [3]},
        {"fields": ["p"], "values": {"q": ["a"]}}, {"values": {"p": []}}, {"values": {"p": "ab"}},
        {"values": {"p": ["1", 1]}}, {"values": {"p": [None]}}, {"values": ["p"]},
        {"max_values": 0}, {"max_values": True}, {"max_values": 1.5},
    ],
)  # fmt: skip
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    """A specification that makes no sense is refused when it is made."""
    with pytest.raises(InputError):
        Categories(**settings)


def test_a_field_that_comes_while_there_is_made_room_has_room_too() -> None:
    """What reads ahead enters fields on another thread, between two looks at them."""
    state = started(Categories())
    grow = state.grow

    def grow_and_enter(counts: Any) -> Any:
        grown = grow(counts)
        state.table.add_fields(["late"])
        return grown

    state.table.add_fields(["early"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "grow", grow_and_enter)
        state._fit(state.table.fields)
    state._fit(state.table.fields)
    assert len(state.counts.seen) == len(state.alphas.declared) == 2
