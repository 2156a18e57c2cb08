"""What readers who set out to break the library found, each as the smallest example of it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

import streamnb as nb
from streamnb.columns import TextColumn
from streamnb.errors import InputError
from streamnb.kernels.layout import Texts

_SURROGATE = "\ud800"


def _bag(**settings: Any) -> nb.NaiveBayes:
    return nb.NaiveBayes(features={"bag": nb.Bag(nb.Multinomial(), **settings)}, hash_key=1)


def _numbers() -> nb.NaiveBayes:
    return nb.NaiveBayes(features={"n": nb.Numbers()}, hash_key=1)


# ---- words of a bag that are one word ----------------------------------------------------------


def test_words_that_are_read_alike_are_one_word_of_a_bag() -> None:
    """A lone surrogate is read as "?": beside a real "?" both are one word with one count."""
    model = _bag(field="bag", max_words=2)
    model.learn_one({"bag": {"?": 1, _SURROGATE: 2}}, "x")
    assert model.words() == ["?"]
    assert model.word_counts(["?"]).tolist() == [[3.0]]
    model.learn_one({"bag": {"c": 1, "d": 1}}, "x")  # this once went on for ever
    assert model.vocabulary_size == 2


def test_a_bag_reads_one_word_twice_alike_alone_and_in_a_batch() -> None:
    """Examples with words that are read alike teach the same, one at a time and together."""
    bags: list[dict[str, float]] = [{_SURROGATE: 1, "a": 2}, {"?": 1, _SURROGATE: 0.5}, {"a": 1}]
    one, many = _bag(field="bag"), _bag(field="bag")
    for bag in bags:
        one.learn_one({"bag": bag}, "x")
    many.learn_many({"bag": bags}, ["x"] * 3)
    assert one.to_bytes() == many.to_bytes()
    for bag in bags:
        one.unlearn_one({"bag": bag}, "x")
    assert one.vocabulary_size == 0


def test_columns_of_one_name_are_one_word() -> None:
    """The columns 1 and "1" are counts of the same word."""
    model = _bag()
    model.learn_many({1: [1, 1], "1": [1, 2], "z": [0, 1]}, ["x", "y"])
    assert model.word_counts(["1", "z"]).tolist() == [[2.0, 3.0], [0.0, 1.0]]
    assert model.vocabulary_size == 2


def test_a_dictionary_has_no_two_words_that_are_read_alike() -> None:
    """A dictionary with "?" and a lone surrogate is refused."""
    with pytest.raises(InputError, match="only once"):
        nb.Bag(nb.Multinomial(), field="bag", dictionary=("?", _SURROGATE))


# ---- sparse and masked counts ------------------------------------------------------------------


@pytest.mark.parametrize("place", [10**6, -5])
def test_a_damaged_sparse_matrix_is_refused(place: int) -> None:
    """A place outside the matrix is an error, where it once ended the process."""
    matrix = sparse.csr_array(np.array([[2.0, 0.0], [3.0, 1.0]]))
    matrix.indices[0] = place
    model = _bag(field="n", dictionary=("u", "v"))
    with pytest.raises(InputError, match="'n': the sparse matrix is damaged"):
        model.learn_many({"n": matrix}, ["x", "y"])
    assert model.n_examples == 0


def test_complex_counts_are_refused() -> None:
    """A sparse matrix of complex numbers holds no counts."""
    with pytest.raises(InputError, match="complex128"):
        _bag(field="n", dictionary=("u",)).learn_many({"n": sparse.csr_array([[2j]])}, ["x"])


def test_a_masked_count_is_missing() -> None:
    """What a mask hides is not counted."""
    model = _bag()
    model.learn_many({"u": np.ma.array([1, 5], mask=[False, True])}, ["x", "y"])
    assert model.word_counts(["u"]).tolist() == [[1.0, 0.0]]


# ---- columns and labels of other makes ---------------------------------------------------------


@pytest.mark.parametrize("group", [nb.Numbers(), nb.Flags(), nb.Bag(nb.Multinomial())])
def test_a_text_column_passes_open_groups_of_other_kinds(group: Any) -> None:
    """A column of text goes to the categories, whatever open groups stand before them."""
    data = np.frombuffer(bytearray(b"abc"), dtype=np.uint8)
    column = TextColumn(Texts(data, np.array([0, 2]), np.array([2, 3])))
    model = nb.NaiveBayes(features={"first": group, "rest": nb.Categories()})
    model.learn_many({"z": column}, ["x", "y"])
    assert model.predict_one({"z": "c"}) == "y"


def test_a_bag_takes_a_frame_whose_columns_are_numbered() -> None:
    """Names of columns are known by their text, pandas' numbers too."""
    model = _bag()
    model.learn_many(pd.DataFrame([[1, 0], [0, 2]]), ["x", "y"])
    assert model.word_counts(["0", "1"]).tolist() == [[1.0, 0.0], [0.0, 2.0]]


def test_the_error_names_the_column_that_has_a_number_for_a_name() -> None:
    """Where a group of numbers would take a column named 0, the error says so."""
    with pytest.raises(InputError, match="field 0: a field's name must be a str"):
        _numbers().learn_many(pd.DataFrame([[1.0], [2.0]]), ["x", "y"])


def test_labels_and_weights_may_be_series() -> None:
    """Labels may come from Arrow, and weights from a data frame."""
    model = _numbers()
    labels: Any = pa.chunked_array([["x", "y"]])
    weights: Any = pd.Series([1.0, 2.0])
    model.learn_many({"a": [1.0, 2.0]}, labels, weights=weights)
    assert model.class_counts.tolist() == [1.0, 2.0]


# ---- what cannot be used -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"weight": True},
        {"weight": np.bool_(True)},
        {"weight": np.array([1.0])},
        {"weight": Fraction(1)},
        {"time_s": "noon"},
        {"time_s": float("nan")},
        {"time_s": True},
        {"part": b"log"},
        {"part": 5},
        {"part": ["log"]},
    ],
)
@pytest.mark.parametrize("label", ["x", "new"])
def test_the_short_way_checks_what_the_long_one_does(given: dict[str, Any], label: str) -> None:
    """A weight, time or part that cannot be used is refused, for known and for new classes."""
    model = _numbers()
    if "part" not in given:
        model.learn_one({"n": 1.0}, "x")
    before = model.to_bytes()
    with pytest.raises(InputError):
        model.learn_one({"n": 2.0}, label, **given)
    assert model.to_bytes() == before


def test_weights_are_numbers_in_a_batch_too() -> None:
    """A weight that is no int or float is refused in a batch as it is alone."""
    weights: Any = [Fraction(1), 1.0]
    with pytest.raises(InputError, match="weights must be numbers"):
        _numbers().learn_many({"n": [1.0, 2.0]}, ["x", "y"], weights=weights)


def test_a_label_that_no_file_could_hold_is_refused() -> None:
    """A number of thousands of digits would be learned, and never be saved."""
    model = _numbers()
    with pytest.raises(InputError, match="1,000 digits"):
        model.learn_one({"n": 1.0}, 10**5000)
    assert model.classes == ()


def test_unlearning_with_no_weight_does_nothing() -> None:
    """With weight 0 nothing was learned, not even the class; so nothing is taken back."""
    model = _numbers()
    before = model.to_bytes()
    model.learn_one({"n": 1.0}, "x", weight=0.0)
    model.unlearn_one({"n": 1.0}, "x", weight=0.0)
    assert model.to_bytes() == before


_ANY: Any = nb  # what a type checker would refuse is refused without one as well


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: _ANY.NaiveBayes(features={"x": "abc"}), id="group-text"),
        pytest.param(lambda: _ANY.NaiveBayes(features={"x": nb.Numbers}), id="group-class"),
        pytest.param(lambda: _ANY.NaiveBayes(features={1: nb.Numbers()}), id="name-number"),
        pytest.param(lambda: _ANY.NaiveBayes(features=[nb.Numbers()]), id="list-of-groups"),
        pytest.param(
            lambda: _ANY.NaiveBayes(features={"x": nb.Numbers()}, decay=5.0), id="decay-number"
        ),
        pytest.param(
            lambda: _ANY.NaiveBayes(classes=5, features={"x": nb.Numbers()}), id="classes-number"
        ),
        pytest.param(lambda: _ANY.Words("multinomial"), id="words-text"),
        pytest.param(lambda: _ANY.Words(nb.Multinomial), id="words-class"),
        pytest.param(lambda: _ANY.Words(nb.Multinomial(), field=5), id="words-field"),
        pytest.param(lambda: _ANY.Bag(nb.Gaussian()), id="bag-gaussian"),
        pytest.param(lambda: _ANY.Bag(nb.Multinomial(), field=5), id="bag-field"),
        pytest.param(lambda: _ANY.Flags(nb.Multinomial()), id="flags-multinomial"),
        pytest.param(lambda: _ANY.Categories(nb.Multinomial()), id="categories-multinomial"),
        pytest.param(lambda: _ANY.Multinomial(1.0), id="multinomial-number"),
        pytest.param(lambda: _ANY.Bernoulli(None), id="bernoulli-none"),
        pytest.param(lambda: _ANY.Categorical(nb.Beta(1, 1)), id="categorical-beta"),
        pytest.param(lambda: _ANY.Fixed([([], 0.5), ("b", 0.5)]), id="fixed-list"),
    ],
)
def test_a_model_that_cannot_be_is_refused_where_it_is_described(make: Callable[[], Any]) -> None:
    """Parts of the wrong type are named at once, not when the first example comes."""
    with pytest.raises(InputError, match="must"):
        make()


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_a_model_is_read_from_whatever_holds_bytes(kind: Any) -> None:
    """`from_bytes` takes a bytearray or a memoryview too."""
    model = _numbers()
    model.learn_one({"n": 1.0}, "x")
    assert nb.NaiveBayes.from_bytes(kind(model.to_bytes())).to_bytes() == model.to_bytes()


# ---- taking back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [nb.VarianceFloor(0), nb.NormalInverseGamma()])
def test_equal_numbers_have_no_variance_once_the_others_are_unlearned(prior: Any) -> None:
    """What rounding leaves of M2 would be a tiny variance, and by it one class would be certain."""
    model = nb.NaiveBayes(features={"n": nb.Numbers(nb.Gaussian(prior))})
    for label, weight in (("b", 1.0), ("a", 1.0), ("b", 2.0)):
        model.learn_one({"n": 4.477681990633742}, label, weight=weight)
    before = model.predict_proba_one({"n": 4.6})
    for value in (3.5684907082016206, 6.153030854631104):
        model.learn_one({"n": value}, "b")
    for value in (6.153030854631104, 3.5684907082016206):
        model.unlearn_one({"n": value}, "b")
    assert model.predict_proba_one({"n": 4.6}) == before


def test_numbers_that_stay_keep_their_variance() -> None:
    """A value far off that is taken back leaves the variance of the others as it was."""
    model = _numbers()
    values = [1.0, 2.0, 4.0]
    for value in [*values, 1e12]:
        model.learn_one({"n": value}, "x")
    model.unlearn_one({"n": 1e12}, "x")
    table = nb.export_dict(model)["groups"][0]["table"]
    assert table["m2"][0][0] == pytest.approx(14.0 / 3.0, rel=1e-6)


@pytest.mark.parametrize(
    ("group", "value"), [(nb.Numbers(), 3.0), (nb.Flags(), True), (nb.Categories(), "v")]
)
def test_a_field_that_was_unlearned_is_not_shown(group: Any, value: Any) -> None:
    """After it is unlearned, an open group's field is in no count and no description."""
    model = nb.NaiveBayes(["a"], features={"g": group}, hash_key=1)
    model.learn_one({"kept": value}, "a")
    before = repr(model), model.parameters()
    model.learn_one({"kept": value, "gone": value}, "a")
    model.unlearn_one({"kept": value, "gone": value}, "a")
    model.learn_one({"kept": value}, "a")
    model.unlearn_one({"kept": value}, "a")
    assert (repr(model), model.parameters()) == before


# ---- values that look like numbers -------------------------------------------------------------

_GROUPS: dict[str, Any] = {
    "numbers": nb.Numbers(fields=["n"]),
    "categories": nb.Categories(fields=["n"]),
    "bins": nb.Categories(fields=["n"], bins=0.5),
    "flags": nb.Flags(fields=["n"]),
    "counts": nb.Bag(nb.Multinomial(), dictionary=("n",)),
}


@pytest.mark.parametrize("unit", ["ns", "us", "D"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
@pytest.mark.parametrize("group", _GROUPS)
def test_dates_and_times_are_no_numbers(group: str, kind: str, unit: str) -> None:
    """In nanoseconds NumPy makes them plain numbers: they are refused as in any other unit."""
    times: Any = np.array([1, "NaT"], dtype=f"{kind}[{unit}]")
    model = nb.NaiveBayes(["x", "y"], features={"n": _GROUPS[group]}, hash_key=1)
    model.learn_one({"n": 1}, "x")
    before = model.to_bytes()
    masked = np.ma.masked_array(times, [False, True])
    for column in (times, times[:1].tolist() if unit != "ns" else list(times), masked):
        with pytest.raises(InputError, match=r"row 0|no such values"):
            model.learn_many({"n": column}, ["x", "y"][: len(column)])
    if unit == "ns":
        with pytest.raises(InputError, match=r"row 0|no such values"):
            model.learn_many({"n": pd.Series(times)}, ["x", "y"])
    with pytest.raises(InputError, match=r"row 0|no such values"):
        model.learn_one({"n": times[0]}, "x")
    assert model.to_bytes() == before


@pytest.mark.parametrize("unit", ["ns", "us"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_dates_and_times_are_no_labels(kind: str, unit: str) -> None:
    """They are no class, in whatever unit: of nanoseconds NumPy makes whole numbers."""
    times: Any = np.array([1, "NaT"], dtype=f"{kind}[{unit}]")
    for labels in (times, list(times), pd.Series(times)):
        model = nb.NaiveBayes(features={"n": nb.Numbers()})
        with pytest.raises(InputError, match=r"labels\[0\]: a label must be a str, int or bool"):
            model.learn_many({"n": [1.0, 2.0]}, labels)
        with pytest.raises(InputError, match="a label must be a str, int or bool"):
            model.learn_one({"n": 1.0}, labels[0])
        assert model.classes == ()


def test_a_new_field_of_dates_is_in_no_group_of_numbers() -> None:
    """In nanoseconds as in any other unit: an open group takes numbers alone."""
    groups: Any = {"n": nb.Numbers(), "c": nb.Categories(fields=["c"])}
    model, without = (nb.NaiveBayes(features=groups, hash_key=1) for _ in range(2))
    for unit in ("ns", "us"):
        times = np.array([1, 2], dtype=f"datetime64[{unit}]")
        model.learn_many({"c": ["a", "b"], "when": times}, ["x", "y"])
        without.learn_many({"c": ["a", "b"]}, ["x", "y"])
    assert model.to_bytes() == without.to_bytes()


@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=["above", "below"])
@pytest.mark.parametrize("group", [*list(_GROUPS), "words", "bag"])
def test_a_number_too_long_to_be_shown_is_refused_by_name(group: str, value: int) -> None:
    """Python prints no number of more than 4,300 digits: the error names its field and row."""
    groups = _GROUPS | {
        "words": nb.Words(nb.Multinomial(), field="n"),
        "bag": nb.Bag(nb.Multinomial(), field="n"),
    }
    model = nb.NaiveBayes(["x", "y"], features={"n": groups[group]}, hash_key=1)
    given: Any = {"a": value} if group == "bag" else value
    with pytest.raises(InputError, match=r"field 'n', row 0.* digits"):
        model.learn_one({"n": given}, "x")
    with pytest.raises(InputError, match=r"field 'n', row 1.* digits"):
        model.learn_many({"n": [None, given]}, ["x", "y"])
