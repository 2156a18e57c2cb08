"""Counted words come in many shapes, mean the same in all of them, and are checked in each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import MultinomialNB

from streamnb import Bag, Bernoulli, Complement, Dirichlet, Fixed, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError
from tests.library.features.count_models import WORDS

CLASSES = ["ham", "spam"]
FAMILIES = [Multinomial(), Bernoulli(), Complement(), Complement(normalise=True)]
tables = st.lists(
    st.lists(st.integers(0, 11), min_size=len(WORDS), max_size=len(WORDS)), min_size=1, max_size=8
)


def named(likelihood: Any, **options: Any) -> NaiveBayes:
    """Return a model of one bag."""
    return NaiveBayes(CLASSES, features={"b": Bag(likelihood, **options)}, hash_key=3)


def said(model: NaiveBayes, columns: Any, n: int) -> tuple[Any, ...]:
    """Teach a batch; return what was said before each example, what is now, and the counts."""
    labels = [CLASSES[i % 2] for i in range(n)]
    before = model.prequential_many(columns, labels)
    after = model.joint_log_likelihood_many(columns)
    return before.tolist(), after.tolist(), model.word_counts(WORDS).tolist()


@pytest.mark.parametrize("likelihood", FAMILIES)
@given(tables)
def test_every_shape_says_the_same(likelihood: Any, table: list[list[int]]) -> None:
    """Columns, data frames, mappings, words in lists and sparse matrices: bit for bit the same."""
    n, X = len(table), np.array(table, dtype=float)
    columns = {word: X[:, j] for j, word in enumerate(WORDS)}
    expected = said(named(likelihood, fields=WORDS), columns, n)
    by_field: list[Any] = [
        {word: X[:, j].tolist() for j, word in enumerate(WORDS)},
        {word: X[:, j].astype(np.int32) for j, word in enumerate(WORDS)},
        {word: X[:, j].astype(np.float32) for j, word in enumerate(WORDS)},
        pd.DataFrame(columns),
        pd.DataFrame(columns).astype("Int64"),
        pl.DataFrame(columns),
        pl.DataFrame(columns).cast(pl.Int16),
    ]
    for frame in by_field:
        assert said(named(likelihood, fields=WORDS), frame, n) == expected
        assert said(named(likelihood), frame, n) == expected  # open to all that are numbers
    mappings = [{w: c for w, c in zip(WORDS, row, strict=True) if c} for row in table]
    lists = [[w for w, c in mapping.items() for _ in range(c)] for mapping in mappings]
    tuples = [tuple(words) for words in lists]
    for values in (mappings, lists, tuples):
        assert said(named(likelihood, field="b"), {"b": values}, n) == expected


@pytest.mark.parametrize("likelihood", FAMILIES)
@pytest.mark.parametrize(
    "kind", ["csr_matrix", "csc_matrix", "coo_matrix", "csr_array", "lil_array"]
)
def test_sparse_matrices_are_their_mappings(likelihood: Any, kind: str) -> None:
    """A sparse matrix over the declared dictionary says what mappings do, of any format."""
    X = np.random.default_rng(1).poisson(0.7, (30, len(WORDS))).astype(float)
    X[4] = 0.0
    mappings = [{w: c for w, c in zip(WORDS, row, strict=True) if c} for row in X.tolist()]
    expected = said(named(likelihood, field="b", dictionary=WORDS), {"b": mappings}, 30)
    matrix = getattr(scipy.sparse, kind)(X)
    model = named(likelihood, field="b", dictionary=WORDS)
    assert said(model, {"b": matrix}, 30) == expected


def test_a_sparse_matrix_may_say_things_twice() -> None:
    """Entries for one place add up, zeros are none, and the caller's matrix stays as it is."""
    twice = scipy.sparse.coo_matrix(([1.0, 2.0, 0.0], ([0, 0, 0], [1, 1, 2])), (1, len(WORDS)))
    unsummed = scipy.sparse.csr_matrix(
        (np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), (1, len(WORDS))
    )
    for matrix in (twice, unsummed):
        model = named(Multinomial(), field="b", dictionary=WORDS)
        model.learn_many({"b": matrix}, ["ham"])
        assert model.word_counts(["b", "c"])[:, 0].tolist() == [3.0, 0.0]
    assert unsummed.nnz == 2


@given(tables, st.integers(0, 8))
def test_a_batch_is_its_rows(table: list[list[int]], at: int) -> None:
    """Cut into two batches, or row by row by `learn_one`, the model is the same."""
    rows = [dict(zip(WORDS, row, strict=True)) for row in table]
    labels = [CLASSES[i % 2] for i in range(len(rows))]
    whole, cut, single = (named(Multinomial()) for _ in range(3))
    columns = {word: np.array([row[word] for row in rows]) for word in WORDS}
    whole.learn_many(columns, labels)
    cut.learn_many({word: values[:at] for word, values in columns.items()}, labels[:at])
    cut.learn_many({word: values[at:] for word, values in columns.items()}, labels[at:])
    for row, label in zip(rows, labels, strict=True):
        single.learn_one(row, label)
    assert whole.to_bytes() == cut.to_bytes() == single.to_bytes()


def test_fractional_counts_are_counts() -> None:
    """Counts need not be whole (TF-IDF, minutes, grams): scikit-learn says the same of them."""
    X = np.random.default_rng(2).gamma(0.5, 1.0, (80, len(WORDS)))
    y = np.random.default_rng(3).choice(CLASSES, 80)
    prior = Fixed({"ham": 0.5, "spam": 0.5})
    model = NaiveBayes(CLASSES, prior, {"b": Bag(Multinomial(Dirichlet(0.3)))})
    columns = {word: X[:, j] for j, word in enumerate(WORDS)}
    model.learn_many(columns, y.tolist())
    theirs = MultinomialNB(alpha=0.3, class_prior=[0.5, 0.5]).fit(X, y)
    expected = theirs._joint_log_likelihood(X)
    found = model.joint_log_likelihood_many(columns)
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("likelihood", FAMILIES)
def test_what_is_missing_says_nothing(likelihood: Any) -> None:
    """None, nan, pandas' NA, an absent key and an absent column are no count, and no example."""
    rows: list[dict[str, Any]] = [
        {"a": 1, "b": 2},
        {"a": None, "b": 2},
        {"a": float("nan"), "b": 2},
        {"a": pd.NA, "b": 2},
        {"b": 2},
    ]
    models = []
    for row in rows[1:]:
        model = named(likelihood, fields=["a", "b"])
        model.learn_one(row, "ham")
        models.append(model.to_bytes())
    assert len(set(models)) == 1
    nobody = named(likelihood, fields=["a", "b"])
    nobody.learn_one({"a": None}, "ham")
    assert nobody.state.groups["b"].counts.examples.tolist() == [0.0, 0.0]
    assert nobody.class_counts.tolist() == [1.0, 0.0]
    empty = named(likelihood, fields=["a", "b"])
    empty.learn_one({"a": 0}, "ham")
    assert empty.state.groups["b"].counts.examples.tolist() == [1.0, 0.0]


BAD = [-1, -0.5, float("inf"), -float("inf"), "3", b"3", 1j, [1], {"a": 1}, 1e300, 10**400]


@pytest.mark.parametrize("count", BAD, ids=repr)
def test_bad_counts_are_refused(count: Any) -> None:
    """A count that is no number from 0 on is named by field, row and value; no byte changes."""
    by_fields, by_field = named(Multinomial(), fields=["a", "b"]), named(Multinomial(), field="b")
    sparse = named(Multinomial(), field="b", dictionary=WORDS)
    before = by_fields.to_bytes(), by_field.to_bytes(), sparse.to_bytes()
    with pytest.raises(InputError, match="field 'a', row 1: a count must be"):
        by_fields.learn_many({"a": [1, count], "b": [1, 2]}, ["ham", "new"])
    with pytest.raises(InputError, match="field 'a', row 0: a count must be"):
        by_fields.predict_one({"a": count})
    with pytest.raises(InputError, match="field 'b', row 1: a count for 'z' must be"):
        by_field.learn_many({"b": [{"a": 1}, {"a": 1, "z": count}]}, ["ham", "new"])
    if isinstance(count, int | float) and count != 10**400:
        matrix = scipy.sparse.csr_matrix(np.array([[0.0] * 10, [0, count, *[0] * 8]]))
        with pytest.raises(InputError, match="field 'b', row 1: a count for 'b' must be"):
            sparse.learn_many({"b": matrix}, ["ham", "new"])
        with pytest.raises(InputError, match="field 'a', row 1: a count must be"):
            by_fields.learn_many({"a": np.array([1.0, count])}, ["ham", "new"])
    assert (by_fields.to_bytes(), by_field.to_bytes(), sparse.to_bytes()) == before


@pytest.mark.parametrize(
    "value",
    ["a b", b"a", 3, [1, 2], ["a", None], object()],
    ids=["text", "bytes", "number", "numbers", "text and None", "object"],
)
def test_what_is_no_bag_is_refused(value: Any) -> None:
    """A bag is a mapping, or words in a list, a tuple or a set."""
    model = named(Multinomial(), field="b")
    before = model.to_bytes()
    with pytest.raises(InputError, match="field 'b', row 1: a mapping of word to count"):
        model.learn_many({"b": [{}, value]}, ["ham", "spam"])
    assert model.to_bytes() == before


def test_words_of_a_bag_are_texts() -> None:
    """A mapping's words are texts: a number or None among them is named."""
    model = named(Multinomial(), field="b")
    for word in (1, None, ("a",), b"a"):
        with pytest.raises(InputError, match=r"field 'b', row 0: .*word"):
            model.learn_one({"b": {word: 1}}, "ham")


def test_a_sparse_matrix_must_fit_the_dictionary() -> None:
    """Its columns are the dictionary's words: without one, or with another size, it is refused."""
    matrix = scipy.sparse.csr_matrix(np.ones((2, 3)))
    with pytest.raises(InputError, match="none is declared"):
        named(Multinomial(), field="b").learn_many({"b": matrix}, ["ham", "spam"])
    with pytest.raises(InputError, match=r"dictionary \(10\)"):
        named(Multinomial(), field="b", dictionary=WORDS).learn_many({"b": matrix}, ["ham", "spam"])


def test_an_open_bag_takes_numbers_that_nobody_names() -> None:
    """Beside other groups it reads every number that has no owner, also fields that come anew."""
    model = NaiveBayes(
        CLASSES, features={"text": Words(Multinomial()), "b": Bag(Multinomial())}, hash_key=3
    )
    model.learn_one({"text": "hello", "a": 2}, "ham")
    model.learn_one({"text": "there", "z": 3.5, "note": "not a number"}, "spam")
    assert model.words("b") == ["a", "z"]
    assert model.words("text") == ["hello", "there"]


def test_columns_must_be_of_one_length() -> None:
    """A column that is too long, or changes while it is read, is an error."""
    model = named(Multinomial(), fields=["a", "b"])
    with pytest.raises(InputError, match="differ in length"):
        model.learn_many({"a": [1, 2], "b": [1]}, ["ham", "spam"])
    with pytest.raises(InputError, match="field 'a'"):
        model.learn_many({"a": np.ones((2, 2)), "b": [1, 2]}, ["ham", "spam"])


WRONG: list[dict[str, Any]] = [
    {"field": "b", "fields": ["a"]},
    {"max_words": 0},
    {"dictionary": "abc"},
    {"dictionary": []},
    {"dictionary": ["a", "a"]},
    {"dictionary": ["a", 1]},
    {"fields": "abc"},
    {"fields": ["a", "a"]},
    {"fields": []},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_what_a_bag_is_made_of_is_checked(options: dict[str, Any]) -> None:
    """Fields and words are texts that differ, and a bag names one field or several."""
    with pytest.raises(InputError):
        Bag(Multinomial(), **options)
