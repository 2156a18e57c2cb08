"""Messages that count as several examples, or as a part of one, and what takes them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from consumers.config.settings import Settings
from consumers.messages import CheckpointEntry
from consumers.pipeline.learned_memory import FOLDER_NAME, LearnedMemory
from tests.consumers.pipeline.revised_log import (
    LOG,
    SETTINGS,
    SIZES,
    WEIGHTED,
    WEIGHTED_LOGS,
    Run,
    Said,
    expected,
    leaves_the_rest,
)

pytestmark = pytest.mark.usefixtures("short_segments")


@given(WEIGHTED_LOGS, SIZES, st.data())
def test_each_weight_is_taken_back_as_it_was_learned(
    log: list[Said], sizes: list[int], data: st.DataObject
) -> None:
    """The same of messages that count as many, or as a part of one: to the last bit."""
    leaves_the_rest(log, sizes, data, WEIGHTED)


@pytest.mark.parametrize("before", [SETTINGS, WEIGHTED])
def test_where_weights_begin_or_end_the_memory_begins_anew(
    tmp_path: Path, before: Settings
) -> None:
    """What stands in the files of the other setting is said to be lost; the model goes on."""
    after = WEIGHTED if before is not WEIGHTED else SETTINGS
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(6)]
    run = Run(tmp_path, settings=before)
    run.read(log, 6)
    run.save()
    run.memory.close()
    log += [Said("create", "m6", "word6", "positive"), Said("delete", "m6"), Said("delete", "m0")]
    with capture_logs() as said:
        run = Run(tmp_path, settings=after)
    lost = [each["detail"] for each in said if each["event"] == "learned_damaged"]
    assert len(lost) == 2
    assert all("message.weight" in detail for detail in lost)
    run.read(log, len(log))
    assert dict(run.reviser.counts) == {"delete_matched": 1, "delete_unmatched": 1, "unlearned": 1}
    assert run.learner.model.n_examples == 6
    run.memory.close()


def by_field(field: str | None) -> Settings:
    """Return settings with a model for each value of a field."""
    return Settings.model_validate(SETTINGS.model_dump() | {"per": {"field": field}})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (by_field("lang"), by_field("user")), (by_field("lang"), by_field(None)),
        (by_field(None), by_field("lang")), (SETTINGS, WEIGHTED), (WEIGHTED, SETTINGS),
    ],
)  # fmt: skip
def test_what_a_change_of_settings_gives_up_is_no_trouble(
    tmp_path: Path, before: Settings, after: Settings
) -> None:
    """It is told once, and no way out is where none is; a file that is damaged is trouble still."""
    log = [Said("create", f"m{i}", f"word{i}", "positive", lang="en") for i in range(12)]
    run = Run(tmp_path, settings=before)
    run.read(log, 6)
    run.save()
    run.memory.close()
    n_told = []
    for until in (9, 12):
        with capture_logs() as said:
            run = Run(tmp_path, settings=after)
        told = [each["detail"] for each in said if each["event"] == "learned_damaged"]
        assert not any("from a copy" in detail for detail in told)
        n_told.append(len(told))
        assert run.memory.trouble is None
        run.reviser.give_up_lost(LOG)
        assert run.memory.trouble is None
        run.read(log, until)
        run.save()
        run.memory.close()
    assert n_told == [2, 0]
    (tmp_path / FOLDER_NAME / "t%2F0" / "2.records").unlink()
    with capture_logs() as said:
        run = Run(tmp_path, settings=after)
    assert ["from a copy" in each["detail"] for each in said if "detail" in each] == [True]
    assert "1 files" in (run.memory.trouble or "")
    run.memory.close()


def started(folder: Path, settings: Settings) -> tuple[Run, list[tuple[str, str]]]:
    """Return a run over a folder, and the files whose loss it told, with what it said of them."""
    with capture_logs() as said:
        run = Run(folder, settings=settings)
    told = [each for each in said if each["event"] == "learned_damaged"]
    return run, [(each["file"], each["detail"]) for each in told]


def learned_in_turn(folder: Path, *steps: tuple[Settings, int]) -> list[Said]:
    """Learn a log under one setting after the other, up to an offset each; return the log."""
    log = [Said("create", f"m{i}", f"word{i}", "positive", lang="en") for i in range(steps[-1][1])]
    for settings, until in steps:
        run = Run(folder, settings=settings)
        run.read(log, until)
        run.save()
        run.memory.close()
    return log


TURNS = [(by_field("lang"), by_field("user")), (SETTINGS, WEIGHTED), (WEIGHTED, SETTINGS)]


@pytest.mark.parametrize(("before", "amid"), TURNS)
@pytest.mark.parametrize("n_amid", [0, 3])
def test_a_setting_that_is_changed_back_takes_its_files_up_again(
    tmp_path: Path, before: Settings, amid: Settings, n_amid: int
) -> None:
    """Also the one that was open then, whose records others followed; only the others' is lost."""
    log = learned_in_turn(tmp_path, (before, 6), (amid, 6 + n_amid))
    for k, n_names in enumerate((1 if n_amid else 0, 0, 0)):
        run, told = started(tmp_path, before)
        assert [name for name, _ in told] == ["t/0/2"] * n_names
        assert not any("from a copy" in detail for _, detail in told)
        assert run.memory.trouble is None
        assert run.memory.sizes()[0] == 6 + 2 * k  # its own, and two of each start before
        log += [Said("create", f"n{k}", f"new{k}", "positive"), Said("delete", f"m{2 * k + 1}")]
        run.read(log, len(log))
        assert dict(run.reviser.counts) == {"delete_matched": 1, "unlearned": 1}
        assert f"word{2 * k + 1}" not in run.learner.model.words()
        run.save()
        run.memory.close()


@pytest.mark.parametrize(("before", "amid"), TURNS)
def test_a_file_of_other_settings_that_went_amid_is_told_once(
    tmp_path: Path, before: Settings, amid: Settings
) -> None:
    """A deletion erases it as a whole, for example: nobody has to put it back."""
    learned_in_turn(tmp_path, (before, 6), (amid, 9))
    (tmp_path / FOLDER_NAME / "t%2F0" / "0.records").unlink()
    for names in (["t/0/0", "t/0/2"], [], []):
        run, told = started(tmp_path, before)
        assert sorted(name for name, _ in told) == names
        assert not any("from a copy" in detail for _, detail in told)
        assert run.memory.trouble is None
        assert list(run.memory.log(LOG).segments) == [1]
        run.save()
        run.memory.close()


@pytest.mark.parametrize(("before", "amid"), TURNS)
def test_a_file_that_was_damaged_before_a_change_is_so_behind_it(
    tmp_path: Path, before: Settings, amid: Settings
) -> None:
    """It is trouble again where the setting is changed back, and serves once it is whole."""
    learned_in_turn(tmp_path, (before, 6))
    path = tmp_path / FOLDER_NAME / "t%2F0" / "0.records"
    whole = path.read_bytes()
    path.write_bytes(b"damaged")
    troubles = []
    for settings in (before, amid, before, before):
        run, told = started(tmp_path, settings)
        troubles.append((run.memory.trouble is not None, [name for name, _ in told]))
        if len(troubles) == 3:
            path.write_bytes(whole)
        run.save()
        run.memory.close()
    damaged = (True, ["t/0/0"])
    assert troubles == [damaged, (False, ["t/0/1"]), damaged, (False, [])]
    assert run.memory.sizes()[0] == 6


def test_notes_of_lost_files_are_read_by_versions_with_and_without_their_cause(
    tmp_path: Path,
) -> None:
    """What an older one reads keeps its form; what it did not say is taken for damage."""
    before, amid = TURNS[0]
    learned_in_turn(tmp_path, (before, 8), (amid, 9))
    run = Run(tmp_path, settings=amid)
    ((name, values),) = run.memory.pack().values.items()
    run.memory.sync()
    run.memory.close()
    assert values["lost"] == [[n, ["lang", "text"], "lang"] for n in (0, 1)]
    older = {key: value for key, value in values.items() if key not in {"of_others", "short"}}
    (tmp_path / FOLDER_NAME / "t%2F0" / "0.records").unlink()
    run = Run(None, settings=before)
    run.memory.close()
    memory = LearnedMemory(tmp_path, run.memory.fields, 1_000, 1, per="lang")
    with capture_logs() as said:
        memory.unpack(CheckpointEntry({name: older}))
    assert sorted(each["file"] for each in said) == ["t/0/0", "t/0/2"]
    assert "1 files" in (memory.trouble or "")
    assert list(memory.log(LOG).segments) == [1]
    memory.close()


@given(WEIGHTED_LOGS, SIZES)
def test_taken_back_among_the_learned_or_apart_is_the_same(
    log: list[Said], sizes: list[int]
) -> None:
    """A model that cannot take back among what it learns ends with the same counts and outcomes."""
    together, apart = Run(None, settings=WEIGHTED), Run(None, settings=WEIGHTED)
    apart.is_apart = True
    for run in (together, apart):
        for size in sizes:
            run.read(log, min(len(log), run.position + size), lambda _offset: None)
        run.memory.close()
    assert together.counts == apart.counts
    assert together.reviser.counts == apart.reviser.counts
    assert together.learner.model.n_examples == apart.learner.model.n_examples


def test_what_is_taken_back_costs_no_call_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches with deletes are learned in one call each, as batches without."""
    run, calls = Run(None), list[int]()
    learn = run.learner.learn

    def counted(part: str, columns: Any, labels: Any, **more: Any) -> Any:
        calls.append(len(labels))
        return learn(part, columns, labels, **more)

    monkeypatch.setattr(run.learner, "learn", counted)
    monkeypatch.setattr(run.learner, "unlearn_many", None)  # it would raise
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(9)]
    update = Said("update", "a", "snow", "negative")
    log += [Said("delete", "m3"), update, Said("create", "b", "rain", "negative")]
    log.append(Said("delete", "a"))
    run.read(log, 6)
    run.read(log, len(log))
    assert calls == [6, 3 + 1 + 1 + 1 + 1]
    assert run.counts == expected(log)[0]
    run.memory.close()
