"""Bytes with a right digest that describe no model: refused, and never read beyond."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamnb import (
    Bag,
    Categorical,
    Categories,
    Complement,
    Dirichlet,
    Flags,
    HalfLife,
    Multinomial,
    NaiveBayes,
    Numbers,
    Words,
)
from streamnb.errors import StoreError
from streamnb.serialization import from_bytes, to_blocks

Arrays = dict[str, np.ndarray[Any, Any]]


def model() -> NaiveBayes:
    """Return a small model with a group of each kind."""
    made = NaiveBayes(
        features={
            "text": Words(Multinomial()),
            "bag": Bag(Multinomial(), field="bag"),
            "flags": Flags(fields=["f"]),
            "kinds": Categories(fields=["k"]),
            "numbers": Numbers(fields=["n"]),
        }
    )
    made.learn_one({"text": "a b", "bag": {"c": 2}, "f": True, "k": "red", "n": 1.5}, "x")
    made.learn_one({"text": "b d", "bag": {"e": 1}, "f": False, "k": "blue", "n": -2.0}, "y")
    return made


def cut(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array without its last entry."""
    return array[:-1]


def far(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return whole numbers far beyond what they point into."""
    moved: np.ndarray[Any, Any] = array + array.dtype.type(1 << 28)
    return moved


def below(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return whole numbers far below zero, as they stand."""
    moved: np.ndarray[Any, Any] = array - array.dtype.type(1 << 28)
    return moved


NAMES = sorted(from_bytes(model().to_bytes())[1])
PLACES = ("columns", "ends", "field_of", "fields", "starts")


def forged(name: str, change: Callable[[Any], Any] | None) -> bytes:
    """Return a model's bytes with one array changed, or left out, under a right digest."""
    header, arrays = from_bytes(model().to_bytes())
    if change is None:
        del arrays[name]
    else:
        arrays[name] = np.ascontiguousarray(change(arrays[name]))
    return b"".join(to_blocks(header, arrays))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_is_told(name: str) -> None:
    """Without one of its arrays, bytes are no model."""
    with pytest.raises(StoreError, match="do not describe a model"):
        NaiveBayes.from_bytes(forged(name, None))


@pytest.mark.parametrize("change", [cut, far, below])
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(PLACES)])
def test_places_that_lead_nowhere_are_refused(name: str, change: Callable[[Any], Any]) -> None:
    """What points beyond its buffer, or to nothing, is refused before any kernel follows it."""
    with pytest.raises(StoreError):
        NaiveBayes.from_bytes(forged(name, change))


def parts_model() -> NaiveBayes:
    """Return the small model, kept in two parts: their arrays are used as they stand."""
    whole = model()
    made = NaiveBayes(features={name: group.spec for name, group in whole.state.groups.items()})
    x = {"text": "a b", "bag": {"c": 2}, "f": True, "k": "red", "n": 1.5}
    for part, label in (("p/0", "x"), ("p/1", "y")):
        made.learn_one(x, label, part=part)
    return made


def other_type(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of a type that is as wide, or half as wide."""
    return array.astype(
        {"<f8": "<i8", "<i4": "<i8", "<i8": "<i4", "<u8": "<i8"}.get(array.dtype.str, "<i4")
    )


def one_row(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what numpy would stretch over all rows."""
    return array[:1] if len(array) > 1 else np.concatenate((array, array))


def deeper(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of one dimension more."""
    return array[np.newaxis]


@pytest.mark.parametrize("change", [other_type, one_row, deeper])
@pytest.mark.parametrize("kept", [model, parts_model])
def test_arrays_of_another_form_are_refused(
    kept: Callable[[], NaiveBayes], change: Callable[[Any], Any]
) -> None:
    """Each array has its one type and shape: no kernel is handed another."""
    data = kept().to_bytes()
    for name in from_bytes(data)[1]:
        if change is one_row and name.endswith(("/words", "/values")):
            continue  # bytes behind the last text are nobody's
        header, arrays = from_bytes(data)
        arrays[name] = np.ascontiguousarray(change(arrays[name]))
        with pytest.raises(StoreError):
            NaiveBayes.from_bytes(b"".join(to_blocks(header, arrays)))


COUNTED = [name for name, array in from_bytes(model().to_bytes())[1].items() if array.dtype == "f8"]
MOMENTS = ("n", "mean", "mean_low", "m2", "m2_low")
SIGNED = ("mean", "mean_low", "m2_low")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -1.0])
@pytest.mark.parametrize("name", COUNTED)
def test_counts_that_nothing_can_have_left_are_refused(name: str, value: float) -> None:
    """A count is finite and at least 0; the error names the array, the value and the way out."""

    def spoil(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        spoilt = array.copy()
        spoilt.flat[-1] = value
        return spoilt

    if value == -1.0 and name.endswith(SIGNED):
        NaiveBayes.from_bytes(forged(name, spoil))
        return
    said = rf"{name}: finite numbers.*Got {value} instead.*Give what `to_bytes` returned"
    with pytest.raises(StoreError, match=said):
        NaiveBayes.from_bytes(forged(name, spoil))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sections/0/numbers/mean", -1e101),
        ("sections/0/numbers/mean", 1e300),
        ("sections/0/numbers/mean_low", 1e300),
        ("sections/0/numbers/m2", 1e301),
        ("sections/0/text/by_word", 1e301),
        ("groups/kinds/field_of", -1),
    ],
)
def test_numbers_that_would_overflow_are_refused(name: str, value: float) -> None:
    """Sums of squares of such would be infinite, or a place would count from the end."""
    with pytest.raises(StoreError, match=f"{name}: (finite numbers|a place below zero)"):
        NaiveBayes.from_bytes(forged(name, lambda array: np.full_like(array, value)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *itertools.product(("now", "landmark"), ([0], {}, "x", 1 << 62, -1e9, 2.0**32)),
        *itertools.product(("landmark",), (None, float("nan"), 5.0, -512.0)),
        *itertools.product(("now",), (float("inf"), float("nan"), -1.0)),
    ],
)
@pytest.mark.parametrize("half_life", [HalfLife(seconds=20.0), HalfLife(20.0)])
def test_a_clock_that_nothing_can_have_left_is_refused(
    key: str, value: Any, half_life: HalfLife
) -> None:
    """Else counts would be scaled by 0 or infinity, and every answer be nan."""
    made = NaiveBayes(features={"text": Words(Multinomial())}, decay=half_life)
    times_s = [1.0, 2.0] if half_life.seconds else None
    made.learn_many({"text": ["a", "b"]}, ["x", "y"], times_s=times_s)
    header, arrays = from_bytes(made.to_bytes())
    header["clock"][key] = value
    with pytest.raises(StoreError, match=r"clock|describe a model"):
        NaiveBayes.from_bytes(b"".join(to_blocks(header, arrays)))


def test_dust_of_old_files_is_read_as_nothing() -> None:
    """Version 0.1.0 kept what rounding had left below 0 of words that were dropped."""

    def dusty(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rows = array.copy()
        rows[0] = [-4e-16, 0.0]
        return rows

    made = NaiveBayes.from_bytes(forged("sections/0/text/by_word", dusty))
    assert made.vocabulary_size == model().vocabulary_size - 1
    assert made.to_bytes() == NaiveBayes.from_bytes(made.to_bytes()).to_bytes()


@pytest.mark.parametrize("decay", [None, HalfLife(seconds=0.7)])
def test_what_taking_back_leaves_can_be_loaded(decay: HalfLife | None) -> None:
    """Fractional weights, taken back in another order and long after, leave no count below 0."""
    specs = {name: group.spec for name, group in model().state.groups.items()}
    made = NaiveBayes(features=specs, decay=decay)
    examples: list[tuple[dict[str, Any], float, float]] = [
        ({"text": "a b", "bag": {"c": 0.1}, "f": True, "k": "red", "n": i / 3}, 0.1 * i, i * 0.3)
        for i in range(1, 40)
    ]
    for x, weight, time_s in examples:
        made.learn_one(x, "x", weight=weight, time_s=time_s)
    for x, weight, time_s in sorted(examples, key=lambda each: -each[1] % 0.7):
        made.unlearn_one(x, "x", weight=weight, time_s=time_s)
        assert NaiveBayes.from_bytes(made.to_bytes()).n_examples == made.n_examples
    assert not made.n_examples


@pytest.mark.parametrize("group", ["flags", "kinds", "numbers"])
@pytest.mark.parametrize("more", [["z"], ["first"], [1], [None]])
def test_fields_that_no_group_can_have_saved_are_refused(group: str, more: list[Any]) -> None:
    """Fields beyond those of the specification would be read beyond the prior's end."""
    header, arrays = from_bytes(model().to_bytes())
    names = header["states"][group]["fields"]
    names += names if more == ["first"] else more
    for name, axis in (("true", 0), ("false", 0), ("seen", 0), *((each, 1) for each in MOMENTS)):
        at = f"sections/0/{group}/{name}"
        if at in arrays:
            arrays[at] = np.ascontiguousarray(np.concatenate((arrays[at], arrays[at]), axis))
    with pytest.raises(StoreError, match=r"texts that differ|names its fields"):
        NaiveBayes.from_bytes(b"".join(to_blocks(header, arrays)))


def with_dictionaries() -> NaiveBayes:
    """Return a model of words and values that were declared, each with a number of its own."""
    own = Dirichlet((2.0, 1.0))
    made = NaiveBayes(
        features={
            "text": Words(Multinomial(), dictionary=("a", "b", "c")),
            "bag": Bag(Complement(normalise=True), field="bag", dictionary=("c", "d")),
            "kinds": Categories(Categorical(own), fields=["k"], values={"k": ["red", "blue"]}),
        }
    )
    made.learn_one({"text": "a b", "bag": {"c": 2}, "k": "red"}, "x")
    return made


@pytest.mark.parametrize(("group", "n_kept"), [("text", 0), ("text", 2), ("bag", 0), ("bag", 1)])
def test_fewer_words_than_the_dictionary_has_are_refused(group: str, n_kept: int) -> None:
    """The counts of a dictionary are asked for by its own places: fewer would be read beyond."""
    header, arrays = from_bytes(with_dictionaries().to_bytes())
    own = {name: values for name, values in arrays.items() if f"/{group}/" in name}
    n_words = len(own[f"groups/{group}/fingerprints"])
    arrays |= {
        name: values[:n_kept].copy() for name, values in own.items() if len(values) == n_words
    }
    n_bytes = int(own[f"groups/{group}/word_ends"][n_kept - 1]) if n_kept else 0
    arrays[f"groups/{group}/words"] = own[f"groups/{group}/words"][:n_bytes].copy()
    with pytest.raises(StoreError, match=f"words of groups/{group} are not those of its dict"):
        NaiveBayes.from_bytes(b"".join(to_blocks(header, arrays)))


def test_words_of_another_dictionary_are_refused() -> None:
    """As many words, but others: each would have its neighbour's counts."""
    header, arrays = from_bytes(with_dictionaries().to_bytes())
    name = "groups/text/fingerprints"
    arrays[name] = np.ascontiguousarray(arrays[name][::-1])
    with pytest.raises(StoreError, match="not those of its dictionary"):
        NaiveBayes.from_bytes(b"".join(to_blocks(header, arrays)))


def test_values_that_a_field_does_not_declare_are_refused() -> None:
    """A prior with a number for each value has none for a further one."""
    header, arrays = from_bytes(with_dictionaries().to_bytes())
    name = "groups/kinds/fingerprints"
    arrays[name] = arrays[name] + np.uint64(1)
    with pytest.raises(StoreError, match="values that their field does not declare"):
        NaiveBayes.from_bytes(b"".join(to_blocks(header, arrays)))


@pytest.mark.parametrize("n_bits", [40, 64])
def test_words_of_like_fingerprints_are_refused(n_bits: int) -> None:
    """No table would ever hold them; the file is refused before memory is at an end."""
    made = NaiveBayes(features={"text": Words(Multinomial())})
    made.learn_one({"text": " ".join(f"word{i}" for i in range(400))}, "x")
    header, arrays = from_bytes(made.to_bytes())
    name = "groups/text/fingerprints"
    places = np.arange(1, len(arrays[name]) + 1, dtype=np.uint64)
    arrays[name] = places << np.uint64(n_bits) if n_bits < 64 else np.ones_like(places)
    with pytest.raises(StoreError, match="like fingerprints"):
        NaiveBayes.from_bytes(b"".join(to_blocks(header, arrays)))
