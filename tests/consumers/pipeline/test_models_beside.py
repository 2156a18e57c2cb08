"""Models beside the serving one take back what can be taken back, and say what cannot."""

from __future__ import annotations

import numpy as np
from structlog.testing import capture_logs

from consumers.kernels.learned_records import CREATED
from consumers.pipeline.challengers import unlearn_records
from consumers.pipeline.learned_records import FoundRecords, no_spans
from streamnb import Multinomial, NaiveBayes, Words
from streamnb.labels import Codes
from tests.consumers.pipeline.test_learned_records import texts_of

PART = "tweets/0"
CLASSES = ("no", "yes")


def test_one_record_that_cannot_be_taken_back_keeps_none() -> None:
    """The others of its call are unlearned all the same, and the log names the one."""
    texts, labels = ["so it goes", "never learned", "so it went"], np.array([0, 1, 1], np.int32)
    model = NaiveBayes(CLASSES, features={"text": Words(Multinomial())})
    model.learn_many({"text": [texts[0], texts[2]]}, Codes(labels[[0, 2]], CLASSES), part=PART)
    fresh = NaiveBayes(CLASSES, features={"text": Words(Multinomial())})
    head = np.array([[CREATED, number, label] for number, label in enumerate(labels)], np.int64)
    none = FoundRecords(np.empty(0, np.int64), no_spans(0, 1), np.empty(0, np.uint8))
    records = none.followed_by(
        np.arange(3), head, [texts_of(["m0", "m1", "m2"]), texts_of([*texts])]
    )
    with capture_logs() as said:
        unlearn_records("de", model, CLASSES, records, PART, {"text": "words"})
    assert [(line["event"], line["name"], line["record"]) for line in said] == [
        ("not_taken_back", "de", 1)
    ]
    assert model.n_examples == 0
    assert model.digest() == fresh.digest()
