"""`StreamNBClassifier` among scikit-learn's tools: pipelines, searches, frames, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

import streamnb as nb
from streamnb.sklearn import StreamNBClassifier

TEXTS = ["win a prize", "prize money now", "lunch at noon", "noon meeting", "win now", "at lunch"]
LABELS = ["spam", "spam", "ham", "ham", "spam", "ham"]


@pytest.mark.parametrize("family", ["multinomial", "complement", "bernoulli"])
@pytest.mark.parametrize(
    "reader", [CountVectorizer(), TfidfVectorizer(), HashingVectorizer(alternate_sign=False)]
)
def test_it_stands_behind_a_vectorizer(family: str, reader: Any) -> None:
    """A pipeline over text answers; fractional counts are counts."""
    if isinstance(reader, HashingVectorizer):
        reader = clone(reader).set_params(n_features=64)
    model = make_pipeline(reader, StreamNBClassifier(family)).fit(TEXTS, LABELS)
    assert model.score(TEXTS, LABELS) == 1.0


def test_words_speak_of_the_columns_by_name() -> None:
    """A frame's names are the model's words, so that it can tell what it learned."""
    X = pd.DataFrame({"win": [2, 0], "lunch": [0, 1]})
    model = StreamNBClassifier("multinomial").fit(X, ["spam", "ham"])
    assert model.model_.word_counts(["win", "lunch"]).tolist() == [[0.0, 2.0], [1.0, 0.0]]


def test_it_can_be_searched_over() -> None:
    """`GridSearchCV`, `cross_val_score` and calibration take it as they take their own."""
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), StreamNBClassifier()),
        {
            "streamnbclassifier__variance": ["own", "shared"],
            "streamnbclassifier__class_prior": [None, nb.Dirichlet(1.0)],
        },
        cv=3,
    ).fit(X, y)
    assert search.best_params_["streamnbclassifier__variance"] == "shared"
    assert cross_val_score(StreamNBClassifier(), X, y, cv=3).mean() > 0.9
    calibrated = CalibratedClassifierCV(StreamNBClassifier(), cv=3).fit(X, y)
    assert calibrated.score(X, y) > 0.9


FRAME = pd.DataFrame(
    {
        "text": TEXTS,
        "colour": ["red", "red", "blue", None, "red", "blue"],
        "size": [3.0, 4.0, 1.0, 1.5, np.nan, 1.0],
        "known": [False, False, True, True, False, True],
    }
)
MIXED: dict[str, Any] = {
    "words": nb.Words(nb.Multinomial(), field="text"),
    "categories": nb.Categories(fields=["colour"]),
    "numbers": nb.Numbers(fields=["size"]),
    "flags": nb.Flags(fields=["known"]),
}


def test_a_mixed_frame_is_one_model() -> None:
    """Groups of features read a frame's columns by name, each under its own likelihood."""
    model = StreamNBClassifier(features=MIXED).fit(FRAME, LABELS)
    alone = nb.NaiveBayes(["ham", "spam"], nb.Dirichlet(0.0), MIXED)
    alone.learn_many(FRAME, LABELS)
    assert np.array_equal(model.predict_log_proba(FRAME), alone.predict_log_proba_many(FRAME))
    assert model.score(FRAME, LABELS) == 1.0
    assert model.feature_names_in_.tolist() == list(FRAME.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(FRAME.rename(columns={"size": "length"}))


def test_columns_may_be_prepared_each_in_its_own_way() -> None:
    """Behind a `ColumnTransformer` it reads what comes out, by position."""
    ready = ColumnTransformer(
        [("codes", OrdinalEncoder(), ["colour"]), ("as they are", "passthrough", ["known"])]
    )
    model = make_pipeline(ready, StreamNBClassifier("categorical")).fit(FRAME, LABELS)
    assert model.score(FRAME, LABELS) == 1.0


@pytest.mark.parametrize("labels", [[0, 1], [1.5, 2.5], [True, False], ["a", "b"]])
def test_any_labels_come_back(labels: list[Any]) -> None:
    """Whatever scikit-learn takes for a class is what `predict` answers."""
    y = np.array(labels)
    if y.dtype == np.float64:
        y = y.round()  # floats that are not whole would be a regression's
    model = StreamNBClassifier().fit([[0.0], [9.0]], y)
    assert model.predict([[0.0], [9.0]]).tolist() == y.tolist()


@pytest.mark.parametrize("parameters", [{}, {"family": "multinomial"}, {"features": MIXED}])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_go_their_own_way(parameters: dict[str, Any], copied: Any) -> None:
    """A pickled or deep-copied estimator knows the same, to the byte, and then learns alone."""
    X, y = (FRAME, LABELS) if "features" in parameters else ([[1.0, 2.0], [3.0, 1.0]], ["a", "b"])
    model = StreamNBClassifier(**parameters).fit(X, y)
    twin = copied(model)
    before = model.model_.to_bytes()
    assert twin.model_.to_bytes() == before
    twin.partial_fit(X, y)
    assert model.model_.to_bytes() == before != twin.model_.to_bytes()
