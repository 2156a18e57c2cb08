"""Questions to the current snapshot: any that it can answer, by whoever waits for it."""

from __future__ import annotations

import pytest

from streamnb import Bernoulli, NaiveBayes, Predictor, Snapshot, SnapshotBoard, Words
from streamnb.errors import InputError, PredictorError

LONG_S = 60.0  # longer than anything here takes


def test_a_question_is_asked_of_the_current_snapshot() -> None:
    """Whatever a snapshot can tell can be asked for, and what goes wrong comes to who asked."""
    board = SnapshotBoard()
    board.publish(Snapshot(NaiveBayes(["a", "b"], features={"text": Words(Bernoulli())}), 7))
    predictor = Predictor(board)
    predictor.start()
    assert predictor.ask(lambda snapshot: snapshot.version).result(LONG_S) == 7
    asked = predictor.ask(lambda snapshot: snapshot.word_counts([], "no such group"))
    with pytest.raises(InputError, match="no such group"):
        asked.result(LONG_S)
    assert predictor.failure is None
    predictor.stop(LONG_S)


def test_a_question_before_the_first_snapshot_is_refused() -> None:
    """Who asks too early is told so, and the predictor lives on."""
    predictor = Predictor(SnapshotBoard())
    predictor.start()
    with pytest.raises(PredictorError, match="no snapshot yet"):
        predictor.ask(lambda snapshot: snapshot.version).result(LONG_S)
    predictor.stop(LONG_S)
