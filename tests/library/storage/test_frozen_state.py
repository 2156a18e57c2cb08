"""A frozen model: what is saved of it is the model as it stood, whatever was learned since."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamnb import Bernoulli, Multinomial, NaiveBayes, Words, load, save
from streamnb.state import ModelState
from streamnb.storage import read

PROBE = {"text": ["good day", "a new word", "bad", "", None]}
LONG_S = 60.0

lines = st.lists(
    st.tuples(
        st.text("abc d", max_size=8), st.sampled_from(["x", "y", "z"]), st.sampled_from("01")
    ),
    max_size=12,
)


def made(family: str = "multinomial", max_words: int = 1_000) -> NaiveBayes:
    """Return an untrained model; its key is fixed, so that files can be compared."""
    likelihood = Bernoulli() if family == "bernoulli" else Multinomial()
    features = {"text": Words(likelihood, ngrams=(1, 2), max_words=max_words)}
    return NaiveBayes(["x", "y"], features=features, hash_key=7, new_classes=True)


def teach(model: NaiveBayes, examples: list[tuple[str, str, str]], *, in_parts: bool) -> None:
    """Teach examples one by one, each to its own part where there are parts."""
    for text, label, part in examples:
        model.learn_one({"text": text}, label, part=part if in_parts else None)


def file_of(model: NaiveBayes | ModelState, path: Path, **more: Any) -> bytes:
    """Return the file that saving a model writes."""
    save(model, path, **more)
    return path.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines, lines, st.sampled_from(["multinomial", "bernoulli"]), st.booleans(),
    st.sampled_from([3, 1_000]),
)  # fmt: skip
def test_what_is_saved_is_the_model_as_it_was_frozen(
    tmp_path: Path,
    before: list[tuple[str, str, str]],
    after: list[tuple[str, str, str]],
    family: str,
    in_parts: bool,
    max_words: int,
) -> None:
    """Words that come and leave, and classes and parts that come, do not reach a frozen model."""
    model = made(family, max_words)
    teach(model, before, in_parts=in_parts)
    at_once = file_of(model, tmp_path / "at-once.nb")
    frozen = model.state.frozen_copy()
    assert file_of(frozen, tmp_path / "frozen.nb") == at_once
    teach(model, after, in_parts=in_parts)
    assert file_of(frozen, tmp_path / "later.nb") == at_once
    answers = load(tmp_path / "later.nb").predict_log_proba_many(PROBE)
    undisturbed = made(family, max_words)
    teach(undisturbed, before, in_parts=in_parts)
    assert answers.tobytes() == undisturbed.predict_log_proba_many(PROBE).tobytes()


def test_positions_are_of_the_parts_it_has(tmp_path: Path) -> None:
    """A frozen model is saved with the positions of its parts, in one file."""
    model = made()
    teach(model, [("a b", "x", "0"), ("c", "y", "1")], in_parts=True)
    save(model.state.frozen_copy(), tmp_path / "m.nb", positions={"0": 5, "1": 9}, notes={"n": 1})
    stored = read(tmp_path / "m.nb")
    assert stored.positions == {"0": 5, "1": 9}
    assert stored.header["notes"] == {"n": 1}


def test_it_is_saved_while_the_model_learns(tmp_path: Path) -> None:
    """Saved again and again on another thread, beside a model that grows, it is always the same."""
    model = made("bernoulli", 500)
    words = [f"w{i}" for i in range(2_000)]
    model.learn_many({"text": words[:300]}, ["x"] * 300, part="0")
    expected = file_of(model, tmp_path / "expected.nb")
    frozen, found = model.state.frozen_copy(), []
    began = threading.Event()

    def keep_saving() -> None:
        for i in range(10):
            found.append(file_of(frozen, tmp_path / f"{i}.nb"))
            began.set()

    thread = threading.Thread(target=keep_saving)
    thread.start()
    assert began.wait(LONG_S)
    while thread.is_alive():
        model.learn_many({"text": words}, ["x", "y"] * 1_000, part="0")
        model.learn_many({"text": words[::-1]}, ["x"] * 2_000, part="1")
    thread.join(LONG_S)
    assert set(found) == {expected}
    assert np.array_equal(load(tmp_path / "9.nb").class_counts, [300.0, 0.0])
