"""Statistics can be read at any time, of a model that knows nothing as well."""

from __future__ import annotations

import numpy as np

from streamnb import Bernoulli, Multinomial, NaiveBayes, Snapshot, Words


def test_a_snapshot_of_nothing_can_be_asked() -> None:
    """The first snapshot of a run has no word at all, and says so without fail."""
    for likelihood in (Bernoulli(), Multinomial()):
        snapshot = Snapshot(NaiveBayes(["a", "b"], features={"text": Words(likelihood)}), 1)
        assert np.array_equal(snapshot.word_counts(["x", "y"]), np.zeros((2, 2)))
        assert np.array_equal(snapshot.word_likelihoods(["x"]), np.zeros((1, 2)))
        assert snapshot.top_words(3) == snapshot.words() == []
        assert snapshot.telling_words(3) == {"a": [], "b": []}
        assert snapshot.predict_proba_one({"text": "x"}) == {"a": 0.5, "b": 0.5}


def test_known_and_unknown_words_stand_in_the_order_asked() -> None:
    """N_jc comes row by row as asked; a word that is not known has zeros."""
    model = NaiveBayes(["a", "b"], features={"text": Words(Multinomial())})
    model.learn_many({"text": ["x y", "y"]}, ["a", "b"])
    assert model.word_counts(["y", "nowhere", "x"]).tolist() == [[1, 1], [0, 0], [1, 0]]
