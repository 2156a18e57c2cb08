"""What only an unlearned example said stands in no byte of a file that is saved afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamnb import Bernoulli, Categories, Complement, Multinomial, NaiveBayes, Words, save
from streamnb.features.protocol import Group

SECRET = "xylophonist"


@pytest.mark.parametrize(
    ("group", "said", "others"),
    [
        (Words(Multinomial()), f"good {SECRET} {SECRET} day", "good day"),
        (Words(Multinomial(), ngrams=(1, 2)), f"good {SECRET} day", "good day"),
        (Words(Bernoulli()), f"good {SECRET} day", "good day"),
        (Words(Complement()), f"good {SECRET} day", "good day"),
        (Categories(), SECRET, "another"),
    ],
)
def test_words_of_an_unlearned_example_leave_the_file(
    tmp_path: Path, group: Group, said: str, others: str
) -> None:
    """Frozen or not, a model's file holds the texts of words that are counted, and no others."""
    model = NaiveBayes(["a", "b"], features={"x": group})
    path = tmp_path / "model.nb"

    def holds(saved: Any) -> bool:
        save(saved, path)
        return SECRET.encode() in path.read_bytes()

    for k in range(20):
        model.learn_one({"x": others}, "ab"[k % 2], part=f"t/{k % 2}")
    model.learn_one({"x": said}, "a", part="t/0")
    assert holds(model)
    model.unlearn_one({"x": said}, "a", part="t/0")
    assert not holds(model.state.frozen_copy())
    assert not holds(model)
    model.learn_one({"x": others}, "b", part="t/1")
    assert not holds(model)
