"""Columns of any make: the same examples give the same model, whatever library holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import streamnb as nb
from streamnb.columns import is_frame, to_mapping
from streamnb.errors import InputError
from streamnb.features.bag import CountTable

Columns = dict[str, list[Any]]
MIXED: Columns = {
    "text": ["a good day", None, "not good", "a", "", "day after day"],
    "size": [1.5, 2.0, None, -3.25, 0.0, 7.0],
    "n": [3, None, 1, 0, 2, 5],
    "known": [True, False, None, True, True, False],
    "colour": ["red", "blue", "red", None, "blue", "red"],
    "code": [9007199254740993, None, 9007199254740992, 1, 1, 2],  # floats cannot tell them apart
}
LABELS = ["x", "y", "x", "y", "x", "y"]


def new_model() -> nb.NaiveBayes:
    """Return a model with a group of every kind."""
    return nb.NaiveBayes(
        ["x", "y"],
        features={
            "words": nb.Words(nb.Multinomial(), field="text"),
            "numbers": nb.Numbers(nb.Gaussian(nb.NormalInverseGamma()), fields=["size", "n"]),
            "flags": nb.Flags(fields=["known"]),
            "categories": nb.Categories(fields=["colour", "code"]),
        },
        hash_key=11,
    )


def as_arrays(columns: Columns) -> dict[str, Any]:
    """Return columns as arrays: of numbers where all are there, of objects elsewhere."""
    arrays = {name: np.array(values, dtype=object) for name, values in columns.items()}
    return arrays | {"size": np.array(columns["size"], dtype=np.float64)}


def as_structured(columns: Columns) -> Any:
    """Return columns as the fields of one structured array."""
    kinds = [(name, np.float64 if name == "size" else object) for name in columns]
    return np.array(list(zip(*columns.values(), strict=True)), dtype=kinds)


def as_pandas(columns: Columns) -> pd.DataFrame:
    """Return a frame of plain pandas, whole numbers as objects where one is missing."""
    return pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in columns.items()})


def as_nullable(columns: Columns) -> pd.DataFrame:
    """Return a frame of pandas whose types know what is missing."""
    types = {"size": "Float64", "n": "Int64", "known": "boolean", "code": "Int64"}
    return as_pandas(columns).astype(types).astype({"text": "str", "colour": "category"})


def as_arrow(columns: Columns) -> Any:
    """Return an Arrow table."""
    return pytest.importorskip("pyarrow").table(columns)


KINDS: dict[str, Callable[[Columns], Any]] = {
    "tuples": lambda columns: {name: tuple(values) for name, values in columns.items()},
    "arrays": as_arrays,
    "structured array": as_structured,
    "series in a dict": lambda columns: {n: pd.Series(v, dtype=object) for n, v in columns.items()},
    "pandas": as_pandas,
    "pandas, nullable": as_nullable,
    "polars": pl.DataFrame,
    "arrow": as_arrow,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_make_gives_the_same_model(kind: str) -> None:
    """Lists, arrays and frames teach the same, to the byte of the file, and ask the same."""
    wanted, found = new_model(), new_model()
    expected = wanted.prequential_many(MIXED, LABELS)
    columns = KINDS[kind](MIXED)
    assert np.array_equal(found.prequential_many(columns, LABELS), expected)
    assert found.to_bytes() == wanted.to_bytes()
    assert np.array_equal(
        found.predict_log_proba_many(columns), wanted.predict_log_proba_many(MIXED)
    )


NUMBERS: Columns = {"a": [1, 2, 3], "b": [0.5, None, 1.5], "c": [True, False, True]}


@pytest.mark.parametrize("kind", ["pandas", "pandas, nullable", "polars", "arrow"])
def test_numeric_columns_stay_arrays(kind: str) -> None:
    """A frame's numbers come as arrays, without an object for each, and nan for what is missing."""
    if kind == "pandas":
        frame: Any = pd.DataFrame(NUMBERS)
    elif kind == "pandas, nullable":
        types = {"a": "Int64", "b": "Float64", "c": "boolean"}
        frame = pd.DataFrame(NUMBERS).astype(types)
    else:
        frame = KINDS[kind](NUMBERS)
    columns = to_mapping(frame)
    assert {name: type(values) for name, values in columns.items()} == dict.fromkeys(
        NUMBERS, np.ndarray
    )
    assert columns["a"].tolist() == [1, 2, 3]
    assert np.array_equal(columns["b"], [0.5, np.nan, 1.5], equal_nan=True)
    assert columns["c"].dtype == np.bool_


def test_names_that_are_numbers_name_columns() -> None:
    """Names such as 0 and 1, pandas' own, are columns and not rows."""
    columns: Any = to_mapping(pd.DataFrame([[1, 2], [3, 4]]))
    assert {name: values.tolist() for name, values in columns.items()} == {0: [1, 3], 1: [2, 4]}


def test_what_is_no_frame_is_refused() -> None:
    """Two columns of one name, or something without columns, are told apart from frames."""
    with pytest.raises(InputError, match="columns must differ in name"):
        to_mapping(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(InputError, match="mapping of names to sequences, or a data frame"):
        to_mapping([[1, 2]])
    assert is_frame(pl.DataFrame(NUMBERS))
    assert not is_frame(np.zeros((2, 2)))


# ---- counts ----------------------------------------------------------------------------------

WORDS = ("a", "b", "c")
COUNTS: list[list[float]] = [[2, 0, 1], [0, 0.5, 0], [0, 0, 0], [1, 1, 1]]
CLASSES = ["x", "y", "x", "y"]


def bag(likelihood: Any, **options: Any) -> nb.NaiveBayes:
    """Return a model of counted words."""
    group = nb.Bag(likelihood, **options)
    return nb.NaiveBayes(["x", "y"], features={"bag": group}, hash_key=3)


def as_mappings() -> list[dict[str, float]]:
    """Return the counts as mappings of word to count."""
    return [{w: n for w, n in zip(WORDS, row, strict=True) if n} for row in COUNTS]


SPARSE: dict[str, Callable[[], Any]] = {
    "mappings": as_mappings,
    "csr": lambda: sparse.csr_matrix(COUNTS),
    "csc": lambda: sparse.csc_array(COUNTS),
    "coo": lambda: sparse.coo_array(COUNTS),
    "table": lambda: CountTable(WORDS, sparse.csr_array(COUNTS)),
    "table in another order": lambda: CountTable(
        WORDS[::-1], sparse.csr_array(np.array(COUNTS)[:, ::-1])
    ),
}


@pytest.mark.parametrize("likelihood", [nb.Multinomial(), nb.Bernoulli(), nb.Complement()])
@pytest.mark.parametrize("kind", SPARSE)
def test_counts_of_every_make_give_the_same_model(kind: str, likelihood: Any) -> None:
    """Over a dictionary, mappings and sparse matrices of any kind teach and ask the same."""
    wanted = bag(likelihood, field="n", dictionary=WORDS)
    wanted.learn_many({"n": SPARSE["mappings"]()}, CLASSES)
    found = bag(likelihood, field="n", dictionary=WORDS)
    found.learn_many({"n": SPARSE[kind]()}, CLASSES)
    assert found.to_bytes() == wanted.to_bytes()
    asked = found.predict_log_proba_many({"n": SPARSE[kind]()})
    expected = wanted.predict_log_proba_many({"n": SPARSE["mappings"]()})
    assert np.abs(asked - expected).max() < 1e-14


def test_a_table_of_counts_brings_its_words() -> None:
    """Without a dictionary a `CountTable`'s words join as they come with a count."""
    model = bag(nb.Multinomial(), field="n")
    model.learn_many({"n": CountTable(["a", "never"], sparse.csr_array([[1, 0]]))}, ["x"])
    model.learn_many({"n": CountTable(["b", "a"], sparse.csr_array([[3, 2]]))}, ["y"])
    assert model.word_counts(["a", "b", "never"]).tolist() == [[1, 2], [0, 3], [0, 0]]
    assert model.vocabulary_size == 2
    assert model.predict_many({"n": CountTable([], sparse.csr_array((2, 0)))}) == ["x", "x"]


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        (sparse.csr_array([[1, 2]]), "needs a column for each word"),
        (sparse.csr_array([[1, -2, 0]]), "a count for 'b' must be 0, or a number from"),
        (sparse.csr_array([[1, np.nan, 0]]), "a count for 'b' must be 0, or a number from"),
    ],
)
def test_counts_that_cannot_be(matrix: Any, said: str) -> None:
    """A matrix of another width, or with a count that is none, is refused; nothing is learned."""
    model = bag(nb.Multinomial(), field="n", dictionary=WORDS)
    before = model.to_bytes()
    with pytest.raises(InputError, match=said):
        model.learn_many({"n": matrix}, ["x"])
    assert model.to_bytes() == before


# ---- columns of other libraries in a mapping ---------------------------------------------------

WHOLE: list[int | None] = [2**53 + 1, None, 2**53]  # floats cannot tell them apart


@pytest.mark.parametrize(
    "make",
    [
        pa.array,
        lambda values: pa.chunked_array([values[:1], values[1:]]),
        pl.Series,
        lambda values: pd.Series(values, dtype="Int64"),
        lambda values: pd.Series(values, dtype="int64[pyarrow]"),
        lambda values: pd.array(values, dtype="Int64"),
    ],
    ids=["arrow", "arrow chunks", "polars", "pandas", "pandas over arrow", "pandas array"],
)
def test_whole_numbers_beside_a_missing_one_keep_their_digits(make: Any) -> None:
    """A column in a mapping is read as it is in a frame: no category through a float."""
    wanted, found = (
        nb.NaiveBayes(features={"c": nb.Categories(fields=["c"])}, hash_key=3) for _ in range(2)
    )
    labels = ["x", "y", "y"]
    wanted.learn_many({"c": WHOLE}, labels)
    found.learn_many({"c": make(WHOLE)}, labels)
    assert found.to_bytes() == wanted.to_bytes()


@pytest.mark.parametrize("chunked", [False, True])
def test_text_may_be_an_arrow_array_in_a_mapping(chunked: bool) -> None:
    """A table's column is text as its values are, and so are lists of words."""
    texts, bags = ["win a prize", None, "lunch"], [["a", "b"], None, ["a"]]
    features: Any = {
        "text": nb.Words(nb.Multinomial()),
        "bag": nb.Bag(nb.Multinomial(), field="bag"),
    }
    wanted, found = (nb.NaiveBayes(features=features, hash_key=3) for _ in range(2))
    wanted.learn_many({"text": texts, "bag": bags}, ["x", "y", "y"])
    table = pa.table({"text": texts, "bag": bags})
    columns = {
        name: table[name] if chunked else table[name].combine_chunks() for name in ("text", "bag")
    }
    found.learn_many(columns, ["x", "y", "y"])
    assert found.to_bytes() == wanted.to_bytes()
