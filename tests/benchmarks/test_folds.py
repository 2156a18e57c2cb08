"""What `python -m benchmarks.folds` states, on a few texts."""

from __future__ import annotations

import pytest

from benchmarks import folds
from benchmarks.accuracy import model_of
from benchmarks.tweets import Tweets

N = 600
TWEETS = Tweets(
    [f"text {i % 97} of {i % 31}!" for i in range(N)], ["negative", "positive"] * (N // 2), "texts"
)


@pytest.mark.parametrize("name", folds.MODELS)
def test_every_fold_has_the_digest_of_its_training(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut into pieces or not, a model without a fold counts what a training without it counts."""
    monkeypatch.setattr(folds, "PIECE", 50)
    found = folds.compare(name, TWEETS, 3)
    assert found.n_equal == 3
    assert min(found.training_s, found.folds_s, found.trainings_s) > 0.0
    assert 0.0 < found.folds_accuracy < 1.0
    assert 0.0 < found.trainings_accuracy < 1.0
    if name == "plain":  # whose counts are all that it answers by
        assert found.folds_accuracy == found.trainings_accuracy


def test_a_training_that_leaves_out_another_fold_is_found() -> None:
    """The digests are of the folds' own tweets: those of two folds differ."""
    counted = folds.in_folds(model_of(**folds.MODELS["plain"]), TWEETS, 3)
    trained = folds.learned(model_of(**folds.MODELS["plain"]), TWEETS, 1, 3)
    assert counted.without(1).digest() == trained.digest()
    assert counted.without(0).digest() != trained.digest()
