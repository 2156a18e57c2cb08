"""The checkpoint: model and positions as one, refused where they belong to something else."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from consumers.config.model import ModelSettings
from consumers.config.sections import CheckpointSettings
from consumers.errors import CheckpointError, MismatchError, MovedError
from consumers.features import build_model
from consumers.messages import CheckpointEntry, Partition, part_name, partition_of
from consumers.pipeline.checkpoint import (
    FILE_NAME,
    Checkpoint,
    SavedCheckpoint,
    differences,
    mismatch,
)
from streamnb import (
    Bernoulli,
    Beta,
    Dirichlet,
    Hybrid,
    Multinomial,
    NaiveBayes,
    Words,
    serialization,
)
from streamnb.storage import older_files
from streamnb.testing import ManualClock
from tests.system_calls import Call, hooked

FIRST, SECOND = Partition("tweets", 0), Partition("tweets", 11)
STREAM = {"source": "kafka", "topic": "tweets"}


def fresh(max_words: int = 1_000, **changed: Any) -> NaiveBayes:
    """Return an untrained model, as the configuration describes it."""
    words: dict[str, Any] = {"likelihood": Bernoulli(Beta(1, 1)), "ngrams": (1, 2)}
    classes = changed.pop("classes", ("negative", "positive"))
    class_prior = Dirichlet(changed.pop("class_prior", 1.0))
    half_life = changed.pop("prior_half_life", None)
    features = {"text": Words(**words | {"max_words": max_words} | changed)}
    return NaiveBayes(classes, class_prior, features, prior_half_life=half_life)


def checkpoint(
    folder: Path | None, stream: Mapping[str, Any] = STREAM, clock: ManualClock | None = None
) -> Checkpoint:
    """Return the checkpoint of a folder."""
    settings = CheckpointSettings(folder=folder, interval_s=10.0, keep=3)
    return Checkpoint(settings, stream, clock or ManualClock(100.0))


def teach(model: NaiveBayes, n: int, partition: Partition = FIRST) -> None:
    """Teach some examples of a partition's log."""
    texts, labels = ["good day", "bad day"] * n, ["positive", "negative"] * n
    model.learn_many({"text": texts[:n]}, labels[:n], part=part_name(partition))


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    """Counts and positions of each partition are restored together."""
    model = fresh()
    teach(model, 3)
    teach(model, 2, SECOND)
    first = checkpoint(tmp_path / "state")
    assert first.restore(fresh())[1] == {}
    written = first.write(model, {FIRST: 3, SECOND: 40})
    assert written.n_bytes == (tmp_path / "state" / FILE_NAME).stat().st_size
    restored, positions = checkpoint(tmp_path / "state").restore(fresh())
    assert positions == {FIRST: 3, SECOND: 40}
    assert {name: part.n_examples for name, part in restored.parts.items()} == {
        "tweets/0": 3,
        "tweets/11": 2,
    }
    assert restored.class_counts.tobytes() == model.class_counts.tobytes()
    probe = {"text": ["good", "bad day", "new"]}
    assert (
        restored.predict_log_proba_many(probe).tobytes()
        == model.predict_log_proba_many(probe).tobytes()
    )


def test_a_part_is_named_after_its_partition() -> None:
    """Any partition is found again by its part's name, a slash in the topic's name included."""
    for partition in (FIRST, SECOND, Partition("a/b/3", 7), Partition("/x.jsonl", 0)):
        assert partition_of(part_name(partition)) == partition


def test_a_partition_of_rejects_alone_keeps_its_position(tmp_path: Path) -> None:
    """A partition that gave nothing to learn is read on from where it was all the same."""
    model = fresh()
    teach(model, 0, SECOND)
    checkpoint(tmp_path).write(model, {SECOND: 17})
    restored, positions = checkpoint(tmp_path).restore(fresh())
    assert positions == {SECOND: 17}
    assert restored.n_examples == 0


def test_nothing_saved_yet_means_a_new_beginning(tmp_path: Path) -> None:
    """Without a file the fresh model is taken; the folder is made for the first checkpoint."""
    model = fresh()
    restored, positions = checkpoint(tmp_path / "a" / "b").restore(model)
    assert (restored, positions) == (model, {})
    assert (tmp_path / "a" / "b").is_dir()


def test_without_a_folder_nothing_is_kept() -> None:
    """Where the configuration names no folder, nothing is written, restored or ever due."""
    clock = ManualClock(100.0)
    nowhere = checkpoint(None, clock=clock)
    model = fresh()
    clock.now_s += 1_000.0
    assert nowhere.path is None
    assert not nowhere.is_due()
    with nowhere.locked():
        assert nowhere.restore(model) == (model, {})
        assert nowhere.write(model, {}) == SavedCheckpoint({})


def test_it_is_due_each_interval(tmp_path: Path) -> None:
    """A checkpoint is due when the interval is over, and its age counts from its writing."""
    clock = ManualClock(100.0)
    state = checkpoint(tmp_path, clock=clock)
    assert not state.is_due()
    assert state.age_s() is None
    clock.now_s += 10.0
    assert state.is_due()
    state.write(fresh(), {})
    state.postpone()
    clock.now_s += 9.0
    assert not state.is_due()
    assert state.age_s() == 9.0
    clock.now_s += 1.0
    assert state.is_due()


# What the configuration changes; the path of that, and how old and new are shown.
MISMATCHES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "classes": (
        {"classes": ("negative", "positive", "neutral")},
        "model.classes",
        '["negative", "positive"]',
        '["negative", "positive", "neutral"]',
    ),
    "class prior": ({"class_prior": 0.5}, "model.class_prior", "1.0", "0.5"),
    "its half-life": ({"prior_half_life": 700.0}, "model.prior_half_life", "null", "700.0"),
    "word prior": (
        {"likelihood": Bernoulli(Beta(1, 2))},
        "model.features.text.beta",
        "[1.0, 1.0]",
        "[1.0, 2.0]",
    ),
    "family": (
        {"likelihood": Multinomial()},
        "model.features.text.likelihood",
        '"bernoulli"',
        '"multinomial"',
    ),
    "n-grams": ({"ngrams": (1, 1)}, "model.features.text.ngrams", "[1, 2]", "[1, 1]"),
    "links": ({"fold_links": False}, "model.features.text.fold_links", "true", "false"),
    "negation": ({"negation": True}, "model.features.text.negation", "false", "true"),
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_another_model_is_refused(tmp_path: Path, what: str) -> None:
    """A checkpoint of another model names the one thing that differs, both values, and ways out."""
    changed, where, old, new = MISMATCHES[what]
    checkpoint(tmp_path).write(fresh(), {})
    with pytest.raises(MismatchError) as caught:
        checkpoint(tmp_path).restore(fresh(**changed))
    said = str(caught.value).splitlines()
    assert said[0] == f"{tmp_path / FILE_NAME} was made by another configuration:"
    assert f"  {where}: the checkpoint has {old}, the configuration {new}" in said[1:-1]
    if what != "family":
        assert len(said) == 3
    assert said[-1] == (
        "Put the configuration back, or name another checkpoint.folder to start from nothing."
    )


WORDS = {"kind": "words", "fields": ["note"]}
NUMBERS = {"kind": "numbers", "fields": ["age"]}
INFORMED = {**NUMBERS, "prior": "normal-inverse-gamma", "prior_beta": 3.0}


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ({}, {"half_life_s": 86_400}, ["half_life_s: null, 86400.0"]),
        ({"half_life_s": 60}, {"half_life_s": 90}, ["half_life_s: 60.0, 90.0"]),
        (INFORMED, {**INFORMED, "prior_kappa": 2}, ["prior_kappa: 1.0, 2.0"]),
        (NUMBERS, {**NUMBERS, "variance_floor": 0.1}, ["variance_floor: 1e-09, 0.1"]),
        (NUMBERS, {**NUMBERS, "variance": "shared"}, ['variance: "own", "shared"']),
        (NUMBERS, {**NUMBERS, "fields": ["size"]}, ['fields: ["age"], ["size"]']),
        (WORDS, {**WORDS, "alpha": 2}, ["alpha: 1.0, 2.0"]),
        (WORDS, {**WORDS, "fields": ["title"]}, ['fields: ["note"], ["title"]']),
        (NUMBERS, INFORMED, ["prior: ", "variance_floor: ", *["prior_"] * 3]),
    ],
)
def test_a_refusal_names_settings(
    old: dict[str, Any], new: dict[str, Any], named: list[str]
) -> None:
    """Each difference has the name and the value that the configuration has of it."""
    where = "model." if "half_life_s" in new else "model.features.group."

    def model_of(said: dict[str, Any]) -> NaiveBayes:
        sections = said if where == "model." else {"features": {"group": said}}
        return build_model(ModelSettings.model_validate(sections))

    lines = mismatch(model_of(new), {}, model_of(old), {}).splitlines()
    found = [re.sub("the checkpoint has |the configuration ", "", line.strip()) for line in lines]
    for one, name in zip(sorted(found), sorted(named), strict=True):
        assert one.startswith(where + name), found


def test_another_stream_is_refused(tmp_path: Path) -> None:
    """Positions mean nothing in another topic, or under another seed: each difference is named."""
    generated = {"source": "generator", "seed": 7, "turn_after": 5}
    checkpoint(tmp_path, generated).write(fresh(), {})
    with pytest.raises(MismatchError) as caught:
        checkpoint(tmp_path, generated | {"seed": 8}).restore(fresh())
    assert "\n  generator.seed: the checkpoint has 7, the configuration 8\n" in str(caught.value)
    with pytest.raises(MismatchError) as caught:
        checkpoint(tmp_path, STREAM).restore(fresh(class_prior=2.0))
    said = str(caught.value)
    for line in (
        "model.class_prior: the checkpoint has 1.0, the configuration 2.0",
        'source: the checkpoint has "generator", the configuration "kafka://…/tweets"',
    ):
        assert f"\n  {line}\n" in said
    assert "seed" not in said  # the configuration has one, which a topic does not need


def test_a_refused_checkpoint_is_left_as_it_was(tmp_path: Path) -> None:
    """What does not belong to us is not touched."""
    checkpoint(tmp_path).write(fresh(), {})
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(MismatchError):
        checkpoint(tmp_path, {}).restore(fresh())
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("max_words", [2, 50_000])
def test_the_bound_on_words_may_move(tmp_path: Path, max_words: int) -> None:
    """`max_words` is taken from the configuration, not from the checkpoint, and is kept to."""
    model = fresh()
    teach(model, 4)
    checkpoint(tmp_path).write(model, {FIRST: 4})
    restored, _ = checkpoint(tmp_path).restore(fresh(max_words))
    assert restored.describe()["groups"]["text"]["max_words"] == max_words
    restored.learn_one({"text": "one"}, "positive", part=part_name(FIRST))
    assert restored.vocabulary_size == min(max_words, model.vocabulary_size + 1)


@pytest.mark.parametrize("new", [None, Hybrid()])
def test_a_hybrid_may_begin_and_end(tmp_path: Path, new: Hybrid | None) -> None:
    """The counts go on, weights begin from nothing or are dropped, and the log says it once."""
    words: dict[str, Any] = {"likelihood": Multinomial()}
    model = fresh(**words, hybrid=None if new else Hybrid())
    teach(model, 3)
    teach(model, 2, SECOND)
    checkpoint(tmp_path).write(model, {FIRST: 3, SECOND: 2})
    with capture_logs() as said:
        restored, positions = checkpoint(tmp_path).restore(fresh(**words, hybrid=new))
    (line,) = [line for line in said if line["event"] == "hybrid_changed"]
    assert "model.features.text.hybrid" in line["detail"]
    assert ("dropped" in line["detail"]) is (new is None)
    assert positions == {FIRST: 3, SECOND: 2}
    assert restored.digest() == model.digest()
    assert restored.state.groups["text"].hybrid == new
    teach(restored, 2)
    checkpoint(tmp_path).write(restored, {FIRST: 5, SECOND: 2})
    with capture_logs() as said:
        again, _ = checkpoint(tmp_path).restore(fresh(**words, hybrid=new))
    assert "hybrid_changed" not in {line["event"] for line in said}
    assert again.to_bytes() == restored.to_bytes()


def test_a_newest_of_another_version_ends_the_start(tmp_path: Path) -> None:
    """After a step back to an older streamnb an older file would be learned on, and pushed out."""
    model = fresh()
    state = checkpoint(tmp_path)
    for n in (2, 1):
        teach(model, n)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(serialization, "VERSION", 2 if n == 2 else 99)
            state.write(model, {FIRST: model.n_examples})
    with pytest.raises(CheckpointError, match="Load it with the streamnb that saved it") as told:
        checkpoint(tmp_path).restore(fresh())
    assert "start from nothing" not in str(told.value)


def test_a_damaged_newest_falls_back_loudly(tmp_path: Path) -> None:
    """The newest whole file is taken with its own positions, and an error in the log says why."""
    model = fresh()
    state = checkpoint(tmp_path)
    for n in (2, 1):
        teach(model, n)
        state.write(model, {FIRST: model.n_examples})
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with capture_logs() as said:
        restored, positions = checkpoint(tmp_path).restore(fresh())
    assert (restored.n_examples, positions) == (2, {FIRST: 2})
    loud = [line for line in said if line["log_level"] == "error"]
    assert [line["event"] for line in loud] == ["checkpoint_damaged"]
    assert f"{path}: damaged" in loud[0]["detail"]
    assert f"Going on with {path}.1" in loud[0]["detail"]
    assert [line["path"] for line in said if line["event"] == "restored"] == [f"{path}.1"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN])
def test_a_newest_that_is_out_of_reach_is_not_passed_over(tmp_path: Path, number: int) -> None:
    """A mount that does not answer for a while says nothing of the file; the way out is told."""
    model = fresh()
    state = checkpoint(tmp_path)
    for n in (2, 1):
        teach(model, n)
        state.write(model, {FIRST: model.n_examples})
    path, opened = tmp_path / FILE_NAME, os.open

    def refuse(name: Any, *more: Any, **named: Any) -> int:
        if name == path:
            raise OSError(number, os.strerror(number))
        return opened(name, *more, **named)

    said = rf"model\.nb: cannot be read \({os.strerror(number)}\).*Start again.*move the file away"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(CheckpointError, match=said) as told:
            checkpoint(tmp_path).restore(fresh())
    assert "start from nothing" not in str(told.value)
    assert checkpoint(tmp_path).restore(fresh())[1] == {FIRST: 3}


def test_when_nothing_is_whole_the_start_is_refused(tmp_path: Path) -> None:
    """With every kept file damaged the daemon does not learn anew in silence."""
    state = checkpoint(tmp_path)
    for _ in range(3):
        state.write(fresh(), {})
    path = tmp_path / FILE_NAME
    for one in (path, *older_files(path)):
        one.write_bytes(b"")
    with pytest.raises(CheckpointError) as caught:
        checkpoint(tmp_path).restore(fresh())
    assert str(path) in str(caught.value)
    assert f"move {tmp_path} away to start from nothing" in str(caught.value)
    path.unlink()  # a start again would find no more
    with pytest.raises(CheckpointError, match=f"move {tmp_path} away to start from nothing"):
        checkpoint(tmp_path).restore(fresh())
    assert not isinstance(caught.value, MismatchError)


def test_as_many_are_kept_as_configured(tmp_path: Path) -> None:
    """The folder holds `checkpoint.keep` files, whatever was written."""
    state = checkpoint(tmp_path)
    for _ in range(5):
        state.write(fresh(), {})
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        FILE_NAME,
        f"{FILE_NAME}.1",
        f"{FILE_NAME}.2",
    ]


def test_what_cannot_be_written_says_so(tmp_path: Path) -> None:
    """A folder that went away, or cannot be made, is named together with its setting."""
    state = checkpoint(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"checkpoint\.folder.*gone/model\.nb: cannot be"):
        state.write(fresh(), {})
    assert state.age_s() is None
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"checkpoint\.folder .*file: cannot be made"):
        checkpoint(tmp_path / "file").restore(fresh())


def test_two_daemons_do_not_share_a_folder(tmp_path: Path) -> None:
    """While one holds the folder another is refused; afterwards it may have it."""
    with (
        checkpoint(tmp_path).locked(),
        pytest.raises(CheckpointError, match="another streamnb uses it") as caught,
        checkpoint(tmp_path).locked(),
    ):
        pass
    assert str(tmp_path) in str(caught.value)
    with checkpoint(tmp_path).locked():
        assert tmp_path.is_dir()


def test_a_folder_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """One that may not be read, or of a broken disk, is told with its path and a way out."""

    def fail(call: Call, act: Callable[..., Any]) -> Any:
        if call.name == "open" and call.path == tmp_path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return act()

    with (
        hooked(tmp_path, fail),
        pytest.raises(CheckpointError, match=r"cannot be opened .Permission denied") as caught,
        checkpoint(tmp_path).locked(),
    ):
        pass
    assert str(tmp_path) in str(caught.value)


def test_differences_are_found_leaf_by_leaf() -> None:
    """Each leaf that differs is named once by its path, and what is absent counts as None."""
    old = {"a": 1, "b": {"c": [1, 2], "d": {"e": 3}}, "gone": {"x": 1}}
    new = {"a": 1, "b": {"c": [1, 3], "d": {"e": 4}}, "came": 5}
    assert list(differences(old, new)) == [
        ("b.c", [1, 2], [1, 3]),
        ("b.d.e", 3, 4),
        ("gone", {"x": 1}, None),
        ("came", None, 5),
    ]
    assert list(differences(old, old)) == []


class Counter:
    """A component with a state of its own."""

    def __init__(self, name: str, n: int = 0) -> None:
        self.name = name
        self.n = n

    def pack(self) -> CheckpointEntry:
        """Return its count twice."""
        return CheckpointEntry({"n": self.n}, {"deep/n": np.array([self.n])})

    def unpack(self, entry: CheckpointEntry) -> None:
        """Take the count back."""
        assert entry.arrays["deep/n"].tolist() == [entry.values["n"]]
        self.n = entry.values["n"]


def test_components_go_on_from_their_entries(tmp_path: Path) -> None:
    """Each gets its own entry back; one that nobody claims is named, and not kept."""
    entries = {name: Counter(name, n).pack() for name, n in (("a", 3), ("b", 5))}
    checkpoint(tmp_path).write(fresh(), {}, entries)
    state = checkpoint(tmp_path)
    state.restore(fresh())
    a, new = Counter("a"), Counter("new")
    with capture_logs() as logs:
        state.restore_entries([a, new])
    assert (a.n, new.n) == (3, 0)
    [told] = [each for each in logs if each["event"] == "checkpoint_entries_left_out"]
    assert told["names"] == ["b"]


def test_an_entry_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """Going on without it would be wrong in silence."""
    checkpoint(tmp_path).write(fresh(), {}, {"a": CheckpointEntry({"m": 1})})
    state = checkpoint(tmp_path)
    state.restore(fresh())
    with pytest.raises(CheckpointError, match=r"model\.nb: its entry 'a' cannot be used"):
        state.restore_entries([Counter("a")])


def test_a_folder_that_was_replaced_is_said_to_be_lost(tmp_path: Path) -> None:
    """Deleted, and another one made under its name: there is nothing to be moved back."""
    state = tmp_path / "state"
    store = checkpoint(state)
    with store.locked():
        shutil.rmtree(state)
        store.check_place()  # it is nowhere: learning goes on
        state.mkdir()
        with pytest.raises(MovedError, match=r"was deleted while .* is lost with it"):
            store.check_place()
        assert not list(state.iterdir())
