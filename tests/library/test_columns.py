"""Columns in: every kind that holds text gives the same model, and what is wrong is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import Bernoulli, Multinomial, NaiveBayes, TextColumn, Words
from streamnb.columns import chunks, text_column
from streamnb.errors import InputError
from streamnb.kernels.layout import Texts
from tests.encoding import text_column as buffer_of

TEXTS = ["a good day", None, "", "ärger 😀 日本", "not good :(", "a\0b"]
LABELS = ["x", "y", "x", "y", "x", "y"]


def with_nan(texts: list[str | None]) -> list[Any]:
    """Return texts with nan for the missing ones."""
    return [float("nan") if text is None else text for text in texts]


def to_buffer(texts: list[str | None]) -> Any:
    """Return texts as one buffer."""
    return buffer_of([text if text is None else text.encode() for text in texts])


KINDS: dict[str, Callable[[list[str | None]], Any]] = {
    "dict of list": lambda t: {"text": t},
    "dict of tuple": lambda t: {"text": tuple(t)},
    "dict of ndarray of objects": lambda t: {"text": np.array(t, dtype=object)},
    "dict with nan": lambda t: {"text": with_nan(t)},
    "dict of TextColumn": lambda t: {"text": to_buffer(t)},
    "dict of Series": lambda t: {"text": pd.Series(t, dtype=object)},
    "pandas": lambda t: pd.DataFrame({"other": range(len(t)), "text": t}),
    "pandas, string dtype": lambda t: pd.DataFrame({"text": pd.array(t, dtype="string")}),
    "pandas, other index": lambda t: pd.DataFrame({"text": t}, index=range(9, 9 - len(t), -1)),
    "polars": lambda t: pl.DataFrame({"text": t, "other": range(len(t))}),
}


def answers(columns: Any, likelihood: Bernoulli | Multinomial) -> list[list[float]]:
    """Return what a model says of the columns before and after it learned them."""
    model = NaiveBayes(classes=["x", "y"], features={"text": Words(likelihood)})
    before: list[list[float]] = model.prequential_many(columns, LABELS).tolist()
    after: list[list[float]] = model.joint_log_likelihood_many(columns).tolist()
    return before + after


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("likelihood", [Bernoulli(), Multinomial()])
def test_every_kind_of_column_gives_the_same(
    kind: str, likelihood: Bernoulli | Multinomial
) -> None:
    """Lists, arrays, data frames and buffers of the same texts teach and answer the same."""
    expected = answers({"text": TEXTS}, likelihood)
    assert answers(KINDS[kind](TEXTS), likelihood) == expected


def test_an_array_of_strings_is_text() -> None:
    """Strings of numpy's are read as Python's."""
    texts = ["a b", "é", ""]
    found = text_column("text", np.array(texts)).piece(0, 3)
    assert found.data.tobytes() == "a bé".encode()
    assert found.ends.tolist() == [3, 5, 5]


class LyingText(str):
    """A text that says of itself it is much longer."""

    __slots__ = ()

    def __len__(self) -> int:
        return 10**9


class ShortList(list[str]):
    """A list that yields one value, however many it says it has."""

    def __iter__(self) -> Iterator[str]:
        return iter(self[:1])


def test_what_a_text_says_of_itself_is_not_believed() -> None:
    """A subclass of str is read by the characters it has, so kernels stay within the buffer."""
    found = text_column("text", [LyingText("a bé"), None, "c"]).piece(0, 3)
    assert found.data.tobytes() == "a béc".encode()
    assert (found.starts.tolist(), found.ends.tolist()) == ([0, 5, 5], [5, -1, 6])


def test_a_sequence_must_yield_what_it_counts() -> None:
    """Were it taken at its word, kernels would read rows that are not there."""
    model = NaiveBayes(classes=["x"], features={"text": Words(Bernoulli())})
    with pytest.raises(InputError, match=r"'text': its length is 3, and it yielded 1 values"):
        model.learn_many({"text": ShortList("abc")}, ["x"] * 3)
    assert model.n_examples == 0


@given(st.lists(st.none() | st.text(max_size=6), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_pieces_hold_their_rows(texts: list[str | None], one: int, other: int) -> None:
    """Any piece of a column holds its texts in UTF-8, lone surrogates as question marks."""
    begin, end = sorted((min(one, len(texts)), min(other, len(texts))))
    piece = text_column("text", texts).piece(begin, end)
    found = [
        None if stop < 0 else piece.data[start:stop].tobytes()
        for start, stop in zip(piece.starts, piece.ends, strict=True)
    ]
    assert found == [None if t is None else t.encode("utf-8", "replace") for t in texts[begin:end]]


@given(st.integers(0, 50), st.integers(1, 9))
def test_chunks_cover_all_rows_once(n: int, size: int) -> None:
    """Pieces follow one another without gap, none longer than asked."""
    bounds = chunks(n, size)
    assert [i for begin, end in bounds for i in range(begin, end)] == list(range(n))
    assert all(end - begin <= size for begin, end in bounds)


WRONG: list[tuple[Any, str]] = [
    ({"text": ["a", 5]}, r"field 'text', row 1: text must be a str.*Got 5 \(int\) instead"),
    ({"text": [b"a", "b"]}, r"field 'text', row 0: .*Got b'a' \(bytes\)"),
    ({"text": "a text"}, r"field 'text': a sequence of values is wanted. Got str.*in a list"),
    ({"text": iter(["a", "b"])}, r"field 'text': a sequence.* Got list_iterator"),
    ({"text": 5}, r"field 'text': a sequence of values is wanted. Got int"),
    ({"text": [["a"], "b"]}, r"field 'text', row 0: .*Got \['a'\] \(list\)"),
    ({"text": [np.array([1, 2]), "b"]}, r"field 'text', row 0: .*\(ndarray\)"),
    ({"other": ["a", "b"]}, r"none of the model's fields \(text\) is among the columns: other"),
    ({}, r"none of the model's fields \(text\) is among the columns: none"),
    (["a", "b"], r"columns must be a mapping.*Got list instead"),
    (7, r"columns must be a mapping.*Got int instead"),
]


@pytest.mark.parametrize(("columns", "message"), WRONG)
def test_wrong_columns_are_named(columns: Any, message: str) -> None:
    """An error names the field, the row and the value, and the model is as before."""
    model = NaiveBayes(classes=["x", "y"], features={"text": Words(Bernoulli())})
    model.learn_one({"text": "a"}, "x")
    for ask in (model.predict_log_proba_many, lambda c: model.learn_many(c, ["x", "y"])):
        with pytest.raises(InputError, match=message):
            ask(columns)
    assert (model.n_examples, model.words()) == (1, ["a"])


@pytest.mark.parametrize(
    ("starts", "ends"), [([0], [4]), ([-1], [2]), ([0, 1], [1]), ([0, 1], [2, 9])]
)
def test_a_buffer_must_hold_its_texts(starts: list[int], ends: list[int]) -> None:
    """Positions outside the buffer are refused before any kernel could read there."""
    data = np.frombuffer(bytearray(b"abc"), dtype=np.uint8)
    places = np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)
    with pytest.raises(InputError, match=r"within its 3 bytes. Got \d starts") as caught:
        TextColumn(Texts(data, *places))
    if len(starts) == len(ends):
        assert f"The first beyond is row {len(starts) - 1}." in str(caught.value)


def test_a_buffer_must_be_as_kernels_want_it() -> None:
    """A read-only buffer, or positions of another type, are refused before anything is learned."""
    places = np.zeros(1, dtype=np.int64)
    with pytest.raises(InputError, match=r"TextColumn.data must be .* writable: False, instead"):
        TextColumn(Texts(np.frombuffer(b"abc", dtype=np.uint8), places, places))
    data = np.zeros(4, dtype=np.uint8)
    with pytest.raises(InputError, match=r"TextColumn.ends must be .* int64. Got int32"):
        TextColumn(Texts(data, places, np.zeros(1, dtype=np.int32)))
    with pytest.raises(InputError, match=r"TextColumn.data must be .* contiguous"):
        TextColumn(Texts(data[::2], places, places))


def test_columns_of_different_length_are_refused() -> None:
    """Fields of one batch have as many rows as each other."""
    groups = {"text": Words(Bernoulli()), "user": Words(Multinomial())}
    model = NaiveBayes(classes=["x"], features=groups)
    with pytest.raises(InputError, match=r"columns differ in length: \{'text': 2, 'user': 1\}"):
        model.learn_many({"text": ["a", "b"], "user": ["c"]}, ["x", "x"])
    assert model.n_examples == 0


def test_a_field_that_is_not_there_says_nothing() -> None:
    """With one of two fields absent or None, the other speaks alone."""
    groups = {"text": Words(Bernoulli()), "user": Words(Multinomial())}
    model = NaiveBayes(classes=["x", "y"], features=groups)
    model.learn_many({"text": ["a", "b"], "user": ["u", "v"]}, ["x", "y"])
    alone = model.joint_log_likelihood_many({"text": ["a"]})
    assert np.array_equal(alone, model.joint_log_likelihood_many({"text": ["a"], "user": [None]}))
    assert np.array_equal(alone, model.joint_log_likelihood_many({"text": ["a"], "user": None}))
    assert model.joint_log_likelihood_one({"text": "a"}) == dict(zip("xy", alone[0], strict=True))
