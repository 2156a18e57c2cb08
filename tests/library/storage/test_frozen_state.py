"""A frozen model: what is saved of it is the model as it stood, whatever was learned since."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamnb import (
    Bernoulli,
    Categories,
    Flags,
    HalfLife,
    Hybrid,
    Multinomial,
    NaiveBayes,
    Numbers,
    Words,
    load,
    save,
)
from streamnb.features import statistics
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
    frozen, parts = model.state.frozen_copy(), model.state.frozen_parts()
    assert file_of(frozen, tmp_path / "frozen.nb") == at_once
    teach(model, after, in_parts=in_parts)
    assert file_of(frozen, tmp_path / "later.nb") == at_once
    assert file_of(parts.state(), tmp_path / "parts.nb") == at_once
    answers = load(tmp_path / "later.nb").predict_log_proba_many(PROBE)
    undisturbed = made(family, max_words)
    teach(undisturbed, before, in_parts=in_parts)
    assert answers.tobytes() == undisturbed.predict_log_proba_many(PROBE).tobytes()


def of_all_kinds() -> NaiveBayes:
    """Return an untrained model with a group of each kind, all of them open."""
    features: dict[str, Any] = {
        "text": Words(Multinomial(), field="text", hybrid=Hybrid(), max_words=40),
        "seen": Words(Bernoulli(), field="text"),
        "place": Categories(max_values=5),
        "flag": Flags(),
        "size": Numbers(),
    }
    return NaiveBayes(["x", "y"], features=features, hash_key=7, decay=HalfLife(seconds=100.0))


def teach_all_kinds(model: NaiveBayes, seed: int, parts: list[str | None]) -> None:
    """Teach a hundred examples that have all kinds of fields, of decaying weight."""
    chance = np.random.default_rng(seed)
    for i, at in enumerate(chance.integers(0, len(parts), 100).tolist()):
        words, value = chance.integers(0, 60, 4).tolist(), float(chance.normal())
        x = {
            "text": " ".join(f"w{word}" for word in words),
            f"place{words[0] % 3}": f"v{words[1]}",
            f"flag{words[2] % 3}": value > 0.0,
            f"size{words[3] % 3}": value,
        }
        model.learn_one(x, "xy"[words[0] % 2], part=parts[at], time_s=100.0 * seed + i)


@pytest.mark.parametrize("parts", [[None], ["0"], ["b", "a", "c"]], ids=["whole", "one", "three"])
def test_frozen_parts_of_every_kind_are_saved_as_the_model_is(
    tmp_path: Path, parts: list[str | None]
) -> None:
    """Sums are made from the frozen parts: by the byte the file that saving the model writes."""
    model = of_all_kinds()
    teach_all_kinds(model, 1, parts)
    at_once = file_of(model, tmp_path / "at-once.nb")
    frozen = model.state.frozen_parts()
    teach_all_kinds(model, 2, parts)
    assert file_of(model, tmp_path / "other.nb") != at_once
    assert file_of(frozen.state(), tmp_path / "frozen.nb") == at_once


def test_freezing_parts_copies_no_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is copied once and nothing else; a lone part's copy is the sum of what is saved."""
    model, copied = of_all_kinds(), list[Any]()
    teach_all_kinds(model, 1, ["0"])
    real = statistics.copy

    def copy(each: Any, *more: Any) -> Any:
        copied.append(each)
        return real(each, *more)

    monkeypatch.setattr(statistics, "copy", copy)
    frozen = model.state.frozen_parts()
    part = model.state.parts["0"]
    of_part = {id(each) for own in part.groups.values() for each in (own.counts, own.weights)}
    assert {id(each) for each in copied} <= of_part
    assert len(copied) == len(part.groups) + 1  # a hybrid's weights, too
    state = frozen.state()
    assert len(copied) == len(part.groups) + 1
    for name, group in state.groups.items():
        assert group.counts is frozen.parts["0"].groups[name].counts


def test_positions_are_of_the_parts_it_has(tmp_path: Path) -> None:
    """A frozen model is saved with the positions of its parts, in one file."""
    model = made()
    teach(model, [("a b", "x", "0"), ("c", "y", "1")], in_parts=True)
    state = model.state.frozen_parts().state()
    save(state, tmp_path / "m.nb", positions={"0": 5, "1": 9}, notes={"n": 1})
    stored = read(tmp_path / "m.nb")
    assert stored.positions == {"0": 5, "1": 9}
    assert stored.header["notes"] == {"n": 1}


def test_it_is_saved_while_the_model_learns(tmp_path: Path) -> None:
    """Saved again and again on another thread, beside a model that grows, it is always the same."""
    model = made("bernoulli", 500)
    words = [f"w{i}" for i in range(2_000)]
    model.learn_many({"text": words[:300]}, ["x"] * 300, part="0")
    expected = file_of(model, tmp_path / "expected.nb")
    parts, found = model.state.frozen_parts(), []
    began = threading.Event()

    def keep_saving() -> None:
        frozen = parts.state()
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
