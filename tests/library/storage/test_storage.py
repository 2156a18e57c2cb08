"""The store: what comes back from a file is the model, bit for bit, and goes on as it would."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Categories,
    Dirichlet,
    Multinomial,
    NaiveBayes,
    Snapshot,
    Words,
)
from streamnb.errors import InputError, StoreError
from streamnb.inspection.words import word_group
from streamnb.storage import load, positions_of, read, save
from tests.library.streams import Example, examples, facts, learn, models

FAMILIES: list[Bernoulli | Multinomial] = [Bernoulli(Beta(0.5, 2)), Multinomial(Dirichlet(0.25))]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file name that the examples of a law may share."""
    return tmp_path_factory.mktemp("store") / "model.nb"


def small_model(likelihood: Bernoulli | Multinomial = FAMILIES[0]) -> NaiveBayes:
    """Return a model that has learned a little."""
    model = NaiveBayes(["neg", "pos"], features={"text": Words(likelihood)}, hash_key=7)
    model.learn_many({"text": ["good day", "bad news", "so so"]}, ["pos", "neg", "pos"])
    return model


@given(model=models(), data=st.data(), in_parts=st.booleans())
def test_a_loaded_model_is_the_saved_one_and_goes_on_like_it(
    path: Path, model: NaiveBayes, data: st.DataObject, *, in_parts: bool
) -> None:
    """Wherever a stream is cut by saving and loading, all answers and counts stay, bit for bit."""
    stream = data.draw(examples(in_parts=in_parts))
    cut = data.draw(st.integers(0, len(stream)))
    learn(model, stream[:cut])
    before = facts(model)
    save(model, path)
    loaded = load(path)
    assert facts(loaded) == before == facts(model)
    assert facts(Snapshot(loaded, 1)) == facts(Snapshot(model, 1))
    assert learn(loaded, stream[cut:]) == learn(model, stream[cut:])
    assert facts(loaded) == facts(model)


@given(model=models(), data=st.data())
def test_saving_what_was_loaded_gives_the_same_file(
    path: Path, model: NaiveBayes, data: st.DataObject
) -> None:
    """A file is a function of the model: loading and saving it again changes no byte."""
    learn(model, data.draw(examples(in_parts=data.draw(st.booleans()))))
    save(model, path)
    first = path.read_bytes()
    save(load(path), path)
    assert path.read_bytes() == first


@given(model=models(), stream=examples(in_parts=True))
def test_a_model_in_parts_is_the_sum_of_its_sections(
    path: Path, model: NaiveBayes, stream: list[Example]
) -> None:
    """Each section of the file counts its own log, and the model that comes back is their sum."""
    learn(model, stream)
    save(model, path)
    loaded = load(path)
    header, arrays = _by_other_means(path)
    names = [section["part"] for section in header["sections"]]
    assert names == (list(dict.fromkeys(e.part for e in stream)) or [None])
    counts = [arrays[f"sections/{i}/class_counts"] for i in range(len(names))]
    assert np.array_equal(sum(counts), loaded.class_counts)
    for group in header["groups"]:
        ends = arrays[f"groups/{group}/word_ends"]
        total = np.zeros((len(ends), len(loaded.classes)))
        for i in range(len(names)):
            where = arrays[f"sections/{i}/{group}/columns"]
            total[where] += arrays[f"sections/{i}/{group}/by_word"]
        text = arrays[f"groups/{group}/words"].tobytes()
        begins = [0, *ends.tolist()][:-1]
        words = [text[a:b].decode() for a, b in zip(begins, ends.tolist(), strict=True)]
        assert words == loaded.words(group)
        assert np.array_equal(total, loaded.word_counts(words, group))


def _by_other_means(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file by the safetensors library alone."""
    with safetensors.safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["header"]), arrays


def test_the_header_says_what_the_model_is(path: Path) -> None:
    """Classes, priors, tokeniser, hash key, positions and notes need no library of ours."""
    words = Words(Bernoulli(Beta(0.5, 2)), ngrams=(1, 2), negation=True, max_words=9, field="body")
    model = NaiveBayes(["no", 3, True], Dirichlet(2.5), {"text": words}, hash_key=255)
    model.learn_one({"body": "not good"}, 3, part="t/0")
    model.learn_one({"body": "not good"}, 3, part="t/1")
    size = save(model, path, positions={"t/0": 41}, notes={"topic": "t", "seed": None})
    header, arrays = _by_other_means(path)
    assert header == {
        "classes": ["no", 3, True],
        "class_prior": 2.5,
        "decay": None,
        "clock": None,
        "n_declared_classes": 3,
        "new_classes": False,
        "states": {"text": {"n_skipped": 0, "in_order": True}},
        "groups": {
            "text": {
                "kind": "words",
                "likelihood": {"name": "bernoulli", "beta": [0.5, 2.0]},
                "ngrams": [1, 2],
                "negation": True,
                "counts": None,
                "max_words": 9,
                "field": "body",
                "case_fold": True,
                "fold_mentions": True,
                "fold_links": True,
                "squeeze": True,
                "emoticons": True,
                "dictionary": None,
            }
        },
        "hash_key": f"{255:032x}",
        "notes": {"topic": "t", "seed": None},
        "sections": [
            {"part": "t/0", "position": 41, "n_examples": 1, "n_dropped": {"text": 0}},
            {"part": "t/1", "position": None, "n_examples": 1, "n_dropped": {"text": 0}},
        ],
    }
    assert arrays["sections/0/class_counts"].tolist() == [0, 1, 0]
    stored = read(path)
    assert (stored.positions, stored.path, stored.header) == ({"t/0": 41}, path, header)
    assert size == path.stat().st_size


def test_nothing_is_pickled(path: Path) -> None:
    """A file is JSON and plain numbers: no reader of pickles finds anything in it."""
    save(small_model(), path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    kinds = {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}
    assert kinds <= {"F64", "I64", "I32", "U64", "U8"}
    for at in (0, 8, 8 + size):
        with pytest.raises((pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError)):
            pickle.loads(data[at:])


@pytest.mark.parametrize("likelihood", FAMILIES)
@pytest.mark.parametrize("classes", [[], ["a"], ["a", "b"]])
def test_a_model_that_knows_nothing_can_be_saved(
    path: Path, likelihood: Bernoulli | Multinomial, classes: list[str]
) -> None:
    """An untrained model, without words and even without classes, comes back and can learn."""
    model = NaiveBayes(classes, features={"text": Words(likelihood)}, new_classes=True)
    save(model, path)
    loaded = load(path)
    assert facts(loaded) == facts(model)
    stream = [Example("good day", None, "b", None), Example("bad day", None, "a", None)]
    assert learn(loaded, stream) == learn(model, stream)


def test_a_part_that_learned_nothing_keeps_its_position(path: Path) -> None:
    """A log without one label has its section, and its position comes back."""
    model = small_model_in_parts()
    model.learn_many({"text": []}, [], part="t/9")
    save(model, path, positions={"t/0": 3, "t/9": 17})
    stored = read(path)
    assert stored.positions == {"t/0": 3, "t/9": 17}
    assert stored.model.parts["t/9"].n_examples == 0


def small_model_in_parts() -> NaiveBayes:
    """Return a model of one log that has learned a little."""
    model = NaiveBayes(["neg", "pos"], features={"text": Words(FAMILIES[1])})
    model.learn_many({"text": ["good day", "bad news"]}, ["pos", "neg"], part="t/0")
    return model


def test_a_position_needs_its_part(path: Path) -> None:
    """A position of a part that the model does not have is refused, and nothing is written."""
    save(small_model(), path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="positions of parts that the model does not have: t/5"):
        save(small_model_in_parts(), path, positions={"t/5": 1})
    assert path.read_bytes() == before


def test_positions_may_be_any_integers(path: Path) -> None:
    """A position that comes from an array is saved as the number it is."""
    save(small_model_in_parts(), path, positions={"t/0": np.int64(1 << 40)})  # type: ignore[dict-item]
    assert read(path).positions == {"t/0": 1 << 40}


@pytest.mark.parametrize(
    "group",
    [
        Words(FAMILIES[0], max_words=np.int64(9)),  # type: ignore[arg-type]
        Bag(FAMILIES[0], max_words=np.uint16(9)),  # type: ignore[arg-type]
        Categories(max_values=np.int32(9)),  # type: ignore[arg-type]
    ],
)
def test_bounds_may_be_any_integers(path: Path, group: Any) -> None:
    """A model whose bound was counted by NumPy is saved as any other."""
    save(NaiveBayes(["a", "b"], features={"x": group}), path)
    assert load(path).state.groups["x"].spec == group


def test_a_bound_that_is_set_later_may_be_any_integer(path: Path) -> None:
    """What a model has learned under such a bound is not lost at the save."""
    model = small_model()
    model.set_max_words("text", np.int64(5))  # type: ignore[arg-type]
    save(model, path)
    assert load(path).to_bytes() == model.to_bytes()


def test_labels_and_parts_may_be_any_text(path: Path) -> None:
    """Whatever characters a label, a part or a group is named by, it comes back."""
    names = ["", "a/b", 'ä\n\t"', "日本", "\x00", "__metadata__", "\ud800"]
    groups = {name: Words(FAMILIES[0], field="text") for name in names[:-1]}
    model = NaiveBayes(names, features=groups)
    for name in names:
        model.learn_one({"text": "good day"}, name, part=name)
    save(model, path, positions=dict.fromkeys(names, 5))
    stored = read(path)
    assert stored.model.classes == tuple(names)
    assert list(stored.positions) == list(stored.model.parts) == names
    assert stored.model.describe() == model.describe()


def test_a_group_that_no_file_can_name_is_refused(path: Path) -> None:
    """A name without a UTF-8 form is refused when saving, for loading would come too late."""
    model = NaiveBayes(features={"\ud800": Words(FAMILIES[0])})
    with pytest.raises(InputError, match=r"group '\\ud800': its name has no UTF-8 form"):
        save(model, path)


@pytest.mark.parametrize("make", [small_model, small_model_in_parts])
def test_a_model_with_many_dead_columns_is_saved_without_them(
    path: Path, make: Callable[[], NaiveBayes]
) -> None:
    """Words that left the vocabulary take no room in the file, and the rest keep their counts."""
    model = make()
    part = next(iter(model.parts), None)
    model.set_max_words("text", 40)
    texts = [f"a{i} b{i} c{i}" for i in range(300)]
    model.learn_many({"text": texts}, ["neg", "pos"] * 150, part=part)
    group = word_group(model.state, "text")
    assert group.vocabulary.n_words > model.vocabulary_size
    save(model, path)
    _, arrays = _by_other_means(path)
    assert len(arrays["groups/text/fingerprints"]) == model.vocabulary_size
    assert facts(load(path)) == facts(model)


def test_a_model_of_many_words_comes_back(path: Path) -> None:
    """A table that has grown many times comes back, and finds every word."""
    model = NaiveBayes(["x", "y"], features={"text": Words(FAMILIES[0])})
    texts = [" ".join(f"w{20 * i + k}" for k in range(20)) for i in range(2_000)]
    model.learn_many({"text": texts}, ["x", "y"] * 1_000, part="t/0")
    save(model, path, positions={"t/0": 2_000})
    loaded = load(path)
    assert loaded.vocabulary_size == 40_000
    assert loaded.words() == model.words()
    assert facts(loaded) == facts(model)


def test_a_file_that_is_replaced_while_it_is_read_gives_one_model(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer file that comes between checking and reading is taken whole, never half of each."""
    older, newer = small_model_in_parts(), small_model_in_parts()
    newer.learn_one({"text": "one more"}, "pos", part="t/0")
    save(older, path, positions={"t/0": 2})
    check = safetensors.safe_open
    pending = [newer]

    def replaced_just_before(name: Path, framework: str) -> safetensors.safe_open:
        if pending:
            save(pending.pop(), path, positions={"t/0": 3})
        return check(name, framework=framework)

    monkeypatch.setattr(safetensors, "safe_open", replaced_just_before)
    stored = read(path)
    assert stored.positions == {"t/0": 3}
    assert facts(stored.model) == facts(newer)


def test_a_file_that_never_rests_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is replaced at each attempt to read it is an error, not a loop without end."""
    model = small_model_in_parts()
    check = safetensors.safe_open
    at = iter(range(1, 1_000))

    def replaced_just_before(name: Path, framework: str) -> safetensors.safe_open:
        save(model, path, positions={"t/0": next(at)})
        return check(name, framework=framework)

    save(model, path)
    monkeypatch.setattr(safetensors, "safe_open", replaced_just_before)
    with pytest.raises(StoreError, match="replaced again and again"):
        read(path)


def test_a_pipe_is_refused_at_once(path: Path) -> None:
    """What is no regular file is named, where reading would wait for somebody to write."""
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    asked: list[Callable[[Path], object]] = [load, read, positions_of]
    for ask in asked:
        for each in (pipe, path.parent):
            with pytest.raises(StoreError, match="it is no regular file"):
                ask(each)


def test_an_array_that_stands_there_already_is_written_once(path: Path) -> None:
    """Extras may be the model's own memory or each other's; what only looks alike is written."""
    model = small_model()
    long = np.arange(100_000, dtype=np.uint8)
    extras = {
        "first": long,
        "again": long[:],
        "shorter": long[:10],
        "alike": long.copy(),
        "other": long.view(np.bool_),
        "model": model.state.class_counts,
    }
    n_bytes = save(model, path, extras=extras)
    assert 3 * long.nbytes < n_bytes < 3.5 * long.nbytes
    stored = read(path)
    assert stored.header["repeated"] == {
        "extras/again": "extras/first",
        "extras/model": "sections/0/class_counts",
    }
    assert stored.extras.keys() == extras.keys()
    for name, array in extras.items():
        assert stored.extras[name].dtype == array.dtype
        assert stored.extras[name].tobytes() == array.tobytes()
    assert load(path).to_bytes() == model.to_bytes()


def test_arrays_of_others_are_kept_beside_the_model(path: Path) -> None:
    """Extras come back as they were, whatever their type and shape; the model does not see them."""
    extras = {
        "a/flags": np.array([[True, False]]),
        "b": np.array([np.nan, -np.inf]),
        "none": np.empty((0, 3), dtype=np.int64),
        "codes": np.arange(5, dtype=np.uint8),
    }
    model = small_model()
    save(model, path, extras=extras)
    stored = read(path)
    assert stored.extras.keys() == extras.keys()
    for name, array in extras.items():
        assert stored.extras[name].dtype == array.dtype
        assert stored.extras[name].shape == array.shape
        assert stored.extras[name].tobytes() == array.tobytes()
    assert load(path).to_bytes() == model.to_bytes()
    with pytest.raises(InputError, match=r"extras\['x'\] must be of bool, float64.* Got float32"):
        save(model, path, extras={"x": np.zeros(1, dtype=np.float32)})


@pytest.mark.parametrize("kind", [">f8", ">i4", ">u8"])
def test_an_array_of_another_byte_order_comes_back_with_its_numbers(path: Path, kind: str) -> None:
    """As other formats' readers give them; the file has one order."""
    given = np.array([[1, 2], [3, 4]], dtype=kind)
    save(small_model(), path, extras={"given": given})
    found = read(path).extras["given"]
    assert found.dtype.name == given.dtype.name
    assert found.tolist() == given.tolist()


@pytest.mark.parametrize("name", ["\ud800", 3])
def test_an_array_that_no_file_can_name_is_refused(path: Path, name: Any) -> None:
    """When saving, for loading would come too late; what stood there stands."""
    save(small_model(), path)
    with pytest.raises(InputError, match=r"extras: .*(no UTF-8 form|must be a str)"):
        save(small_model(), path, extras={name: np.zeros(1)})
    assert load(path).to_bytes() == small_model().to_bytes()
