"""One-hot labels teach what the labels themselves teach, wherever labels are taken in bulk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from streamnb import Folds, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError

TEXTS = {"text": ["win a prize", "lunch", "a dinner", "prize"]}
LABELS = ["spam", "ham", "news", "spam"]
ROWS = [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]  # the model's order: ham, news, spam
NAMED = {"spam": [1, 0, 0, 1], "news": [0, 0, 1, 0], "ham": [0, 1, 0, 0]}  # another order

FORMS: dict[str, Any] = {
    "lists": ROWS,
    "tuples": [tuple(row) for row in ROWS],
    "rows": list(np.array(ROWS)),
    "whole": np.array(ROWS),
    "float": np.array(ROWS, dtype=np.float32),
    "bool": np.array(ROWS, dtype=bool),
    "sparse": sparse.csr_matrix(ROWS),
    "mapping": NAMED,
    "pandas": pd.DataFrame(NAMED),
    "dummies": pd.get_dummies(pd.Series(LABELS)),
    "polars": pl.DataFrame(NAMED),
    "arrow": pa.table(NAMED),
}


def model_of(classes: tuple[str, ...] = ("ham", "news", "spam")) -> NaiveBayes:
    """Return an untrained model."""
    return NaiveBayes(classes, features={"text": Words(Multinomial())}, hash_key=1)


@pytest.mark.parametrize("form", FORMS)
def test_one_hot_rows_are_their_labels(form: str) -> None:
    """Learning, folds, likelihoods and unlearning: each takes them, to the last bit."""
    given, plain = FORMS[form], model_of()
    plain.learn_many(TEXTS, LABELS)
    model = model_of()
    model.learn_many(TEXTS, given)
    assert model.to_bytes() == plain.to_bytes()
    assert model.log_loss(TEXTS, given) == plain.log_loss(TEXTS, LABELS)
    folds = Folds(model_of(), 2)
    folds.learn_many(TEXTS, given, 0)
    assert folds.total().digest() == plain.digest()
    model.unlearn_many(TEXTS, given)
    assert (model.n_examples, model.words()) == (0, [])


def test_columns_with_names_need_no_declared_classes() -> None:
    """They say which class they are; a column that no row has a 1 in brings none."""
    model = model_of(())
    model.learn_many(TEXTS, NAMED | {"never": [0, 0, 0, 0]})  # type: ignore[arg-type]
    assert model.classes == ("spam", "ham", "news")


REFUSED: dict[str, tuple[Any, str]] = {
    "two ones": ([[0, 0, 1], [1, 0, 1], [0, 1, 0], [0, 0, 1]], r"labels\[1\]: a .*\[1, 0, 1\]"),
    "no one": ([[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 1]], r"labels\[2\]: a .*\[0, 0, 0\]"),
    "shares": (np.full((4, 3), 0.5), r"labels\[0\]: a .*\[0.5, 0.5, 0.5\]"),
    "records": (np.zeros((4, 3), "i4,f8"), r"labels\[0\]: a .*\(0, 0.0\)"),
    "a two": ([[0, 0, 2]] * 4, r"labels\[0\]: a .*\[0, 0, 2\]"),
    "nan": (np.full((4, 3), np.nan), r"labels\[0\]: a .*\[nan, nan, nan\]"),
    "texts": ([["a", "b", "c"]] * 4, r"labels\[0\]: a .*\['a', 'b', 'c'\]"),
    "too few columns": (np.eye(4, 2), r"It has 3 \('ham', 'news', 'spam'\). Got shape \(4, 2\)"),
    "too few rows": (ROWS[:3], "4 examples and 3 labels"),
    "ragged": ([[0, 1], [1], [1], [1]], "Got rows that differ in length"),
    "a label among them": ([*ROWS[:3], "ham"], "Got rows that differ in length"),
    "ragged columns": ({"ham": [1], "spam": [0, 1]}, "Got rows that differ in length"),
    "a class that is not declared": (
        {"spam": [1, 0, 0, 0], "new": [0, 1, 1, 1]},
        r"label 'new' \(row 1\) is none",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_one_hot_is_refused(case: str) -> None:
    """The row or the shape is named, and nothing is learned."""
    given, message = REFUSED[case]
    model = model_of()
    with pytest.raises(InputError, match=message):
        model.learn_many(TEXTS, given)
    assert (model.n_examples, model.words()) == (0, [])


def test_rows_need_classes_to_stand_for() -> None:
    """A model without classes cannot say what a column means, and says what to do."""
    with pytest.raises(InputError, match=r"It has 0 \(declare some\)\. Got shape \(4, 3\)"):
        model_of(()).learn_many(TEXTS, ROWS)  # type: ignore[arg-type]
