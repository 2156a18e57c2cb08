"""The simulation itself: seeds hold, planted bugs are found, and a seed repeats its run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import checker, command
from tests.simulation.bugs import BUGS
from tests.simulation.command import decoded, encoded, shrunk
from tests.simulation.plan import Event, Plan, draw
from tests.simulation.run import Outcome

ROOT = Path(__file__).resolve().parents[2]
N_FAST, N_SEEDS = 10, 300  # in every run of the tests, and in CI
# Which seed of the first 500 found each bug last.
FOUND_BY = {
    "correction_position_lost": 3,
    "correction_twice": 3,
    "correction_unlearns_twice": 1,
    "counted_twice": 32,
    "counts_ahead": 0,
    "default_too_early": 33,
    "delete_forgotten": 2,
    "deletion_not_shown": 2,
    "journal_not_synced": 47,
    "late_label_twice": 0,
    "loss_not_told": 21,
    "memory_not_synced": 47,
    "missing_folder_fsync": 16,
    "missing_fsync": 11,
    "old_version_shown": 2,
    "output_not_flushed": 1,
    "own_place_kept": 285,
    "part_not_taken": 11,
    "part_position_ahead": 41,
    "position_ahead": 2,
    "position_from_commit": 0,
    "stale_fetch": 64,
    "stored_twice": 32,
    "taken_back_twice": 2,
    "zombie_accepted": 10,
}


def simulate(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as it replaces threads and clocks."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def check_seeds(first: int, n: int) -> dict[str, Any]:
    """Return the summary of seeds that must hold."""
    done = simulate("--first", first, "--seeds", n)
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


@pytest.mark.deep
def test_some_seeds_and_the_book_hold() -> None:
    """The first seeds, and all that ever failed, end with the checker's counts."""
    summary = check_seeds(0, N_FAST)
    assert summary["comparisons"] >= N_FAST


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_seeds_hold() -> None:
    """Hundreds of seeds end with the checker's counts, and met every kind of fault.

    Nothing of a run is kept: 10,000 of them once took more memory than there was.
    """
    summary = check_seeds(N_FAST, N_SEEDS - N_FAST)
    assert summary["resident_mb"] < 1_000
    met = summary["met"]
    assert met.keys() >= {"kills", "power cuts", "pauses", "stops", "broker away", "rebalances"}
    assert met.keys() >= {"members expelled", "failed fsync", "failed write", "failed replace"}
    assert met.keys() >= {"late labels", "messages lost"}
    assert met.keys() >= {"blackouts", "topics grown", "late starts", "corrections taken"}
    assert met.keys() >= {"rows compared", "pages whole", "messages sampled out"}
    assert met.keys() >= {"counts by class compared", "rows that another member revised"}


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", sorted(BUGS))
def test_every_planted_bug_is_found(bug: str) -> None:
    """Each bug is found within 500 seeds: by the one that found it last, or by a search."""
    done = simulate("--bug", bug, "--first", FOUND_BY.get(bug, 0), "--seeds", 1)
    if done.returncode != 0:  # a new bug, or other plans are drawn: note the seed that finds it
        done = simulate("--bug", bug, "--seeds", 500)
    assert done.returncode == 0, done.stderr
    # By a comparison: what breaks the code that it is planted in would be found by any error.
    found = rf"^{bug}: found by seed (\d+), number \d+: WrongError: (?!.* cannot go on)"
    by = re.search(found, done.stderr, re.MULTILINE)
    assert by, done.stderr
    assert int(by[1]) < 500


@pytest.mark.deep
@pytest.mark.slow
def test_a_seed_repeats_its_run() -> None:
    """The same seed takes the same steps in every process, to the last."""
    first, again = simulate("--replay", 3), simulate("--replay", 3)
    assert first.returncode == 0, first.stdout
    assert first.stdout.splitlines()[-1] == again.stdout.splitlines()[-1]


def test_the_checker_knows_the_rules() -> None:
    """What a log teaches, by hand."""
    log: list[dict[str, Any]] = [
        {"id": "a", "text": "sun sun tea", "label": "positive"},
        {"id": "b", "operation": "delete"},  # too early
        {"id": "b", "text": "rain", "label": "negative"},
        {"id": "c", "text": "tea", "label": "negative"},
        {"id": "c", "operation": "update", "text": "love", "label": "positive"},
        {"id": "d", "text": "hate", "label": "negative"},
        {"id": "d", "operation": "delete"},
        {"id": "e", "text": "tea"},
        {"id": "f", "operation": "update", "text": "tea", "label": "negative"},  # too early
        {"id": "f", "operation": "delete"},
        {"id": "f", "text": "tea", "label": "negative"},
    ]
    living = checker.taught([log], [("a", "negative"), ("e", "positive"), ("c", None)])
    assert living == {"a": ("sun sun tea", "negative"), "e": ("tea", "positive")}
    assert checker.counts(living) == (
        {"negative": 1, "positive": 1},
        {"sun": {"negative": 1}, "tea": {"negative": 1, "positive": 1}},
    )


def test_the_checker_knows_the_rules_of_late_labels() -> None:
    """What two logs teach together, by hand."""
    log: list[dict[str, Any]] = [
        {"id": "a", "text": "sun", "created_at": 0},
        {"id": "b", "text": "rain", "created_at": 10},
        {"id": "c", "text": "tea", "created_at": 20},
        {"id": "d", "text": "love", "created_at": 30, "label": "positive"},
        {"id": "e", "text": "hate", "created_at": 500},  # alone, it moves no time
        {"id": "f", "text": "good", "created_at": 200},
        {"id": "g", "text": "bad", "created_at": 99},  # more than a window late
        {"id": "c", "operation": "delete", "created_at": 200},
    ]
    labels = [
        {"id": "a", "label": "positive", "created_at": 101},  # outside of the window
        {"id": "b", "label": "negative", "created_at": 40},
        {"id": "b", "label": "positive", "created_at": 40},
        {"id": "c", "label": "positive", "created_at": 40},
        {"id": "g", "label": "positive", "created_at": 99},
    ]
    late = {"window_s": 100, "horizon_s": 150, "default": "negative"}
    living = {"b": ("rain", "negative"), "d": ("love", "positive")}
    assert checker.taught([log[:-2]], [], [labels], late) == {
        "a": ("sun", "negative"), "c": ("tea", "positive"), **living,
    }  # fmt: skip
    assert checker.taught([log], [], [labels], late) == {"a": ("sun", "negative"), **living}


def test_the_checker_knows_what_is_shown() -> None:
    """Which messages of a log are left, by hand; and if a part of it was not read at last."""
    log: dict[int, dict[str, Any]] = dict(
        enumerate(
            [
                {"id": "a", "text": "sun"},
                {"id": "b", "operation": "delete"},  # too early
                {"id": "b", "text": "rain"},
                {"id": "c", "text": "tea"},
                {"id": "c", "operation": "update", "text": "love"},
                {"id": "d", "text": "hate"},
                {"id": "d", "operation": "delete"},
            ]
        )
    )
    found = checker.judged(log, log)
    assert set(found.messages) == {0, 3, 4, 5}
    assert set(found.left()) == {0, 4}
    assert (found.taken_back("c", 3), found.taken_back("c", 4)) == ([4], [])
    found = checker.judged(log, {at: log[at] for at in (0, 2, 3, 5)})
    assert set(found.left()) == {0, 2, 3, 5}
    assert (set(found.messages), found.unread) == ({0, 2, 3, 4, 5}, {4})


def test_a_failing_plan_is_shrunk() -> None:
    """Of a plan that fails by two of its events, these two are left, in their order."""
    plan = draw(1)
    wanted = plan.events[3], plan.events[-2]

    def fails(smaller: Plan) -> bool:
        return set(map(id, wanted)) <= set(map(id, smaller.events))

    assert shrunk(plan, fails).events == wanted


def outcome(failure: str | None) -> Outcome:
    """Return the outcome of a run that failed so, or not."""
    return Outcome(failure, Counter(), 0, [], 0, 0)


def failing(monkeypatch: pytest.MonkeyPatch, wanted: Event, failure: str) -> None:
    """Let every plan with an event fail, and no other one."""

    def attempt(plan: Plan, _bug: str | None = None) -> Outcome:
        return outcome(failure if wanted in plan.events else None)

    monkeypatch.setattr(command, "attempt", attempt)


@pytest.mark.parametrize("keep", [False, True])
def test_what_fails_is_said_and_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, keep: bool
) -> None:
    """It is said how to run it again, and the least of it; `--keep` adds that to the book."""
    book, plan = tmp_path / "seeds.txt", draw(1)
    book.write_text("# a book\n", encoding="utf-8")
    monkeypatch.setattr(command, "BOOK", book)
    failing(monkeypatch, plan.events[3], "WrongError: daemon 0 at {'tweets/0': 3}:\n found 1")
    failed = command.attempt(plan)
    assert command.fail(plan, failed, "--replay 1", book if keep else None) == 1
    said = capsys.readouterr().err
    assert "seed 1 failed: WrongError: daemon 0 at {'tweets/0': 3}" in said
    assert "replay: python -m tests.simulation --replay 1\n" in said
    assert f"1 of its {len(plan.events)} events are enough:\n  {plan.events[3]}\n" in said
    assert list(command.book()) == ([replace(plan, events=(plan.events[3],))] if keep else [])


def test_a_long_search_keeps_what_fails() -> None:
    """`make simulate` leaves a failure in the book, not on the screen alone."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command_line = re.search(r"^\t.*-m tests\.simulation (.*)$", makefile, re.MULTILINE)
    assert command_line is not None
    assert command_line[1] == "$(or $(ARGS),--seeds 10000 --keep)"


def test_a_failure_of_another_kind_is_not_shrunk_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both are a `WrongError`, and say something else: without its figures each is its own."""
    plan = draw(1)
    ways = "WrongError: daemon 2 at {'tweets/0': 9}:", "WrongError: never predicted: ['m1']"

    def attempt(smaller: Plan, _bug: str | None = None) -> Outcome:
        return outcome(ways[0] if plan.events[0] in smaller.events else ways[1])

    monkeypatch.setattr(command, "attempt", attempt)
    book = tmp_path / "seeds.txt"
    command.fail(plan, outcome("WrongError: daemon 0 at {'tweets/0': 3}:"), "", book)
    assert decoded(book.read_text(encoding="utf-8")).events == plan.events[:1]


def test_a_plan_of_the_book_is_run_again_as_it_stands_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its seed draws another plan by now: so it is named by its place in the book."""
    monkeypatch.setattr(command, "warm_up", lambda: None)
    monkeypatch.setattr(command, "BOOK", tmp_path / "seeds.txt")
    plans = [replace(draw(seed), seed=0, events=draw(seed).events[:4]) for seed in (5, 6)]
    command.BOOK.write_text("".join(f"{encoded(each)}\n" for each in plans), encoding="utf-8")
    failing(monkeypatch, plans[1].events[2], "WrongError: no")
    assert command.main(["--seeds", "0"]) == 1
    (again,) = re.findall(r"replay: python -m tests.simulation (.*)\n", capsys.readouterr().err)
    assert again == "--replay-book 2"
    assert command.main(again.split()) == 1
    said = capsys.readouterr().out
    assert all(f"{event}\n" in said for event in plans[1].events)
    assert "WrongError: no" in said


def test_the_report_names_the_tree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row of the documentation can say which commit was run, and whether it was changed."""
    monkeypatch.setattr(command, "warm_up", lambda: None)
    monkeypatch.setattr(command, "book", list)
    assert command.main(["--seeds", "0"]) == 0
    told = json.loads(capsys.readouterr().out)["tree"]
    assert re.fullmatch(r"([0-9a-f]{7,40}|no commit)( with changes)?", told)


def test_a_plan_is_kept_whole() -> None:
    """What stands in the book is the plan itself, whatever seeds will draw later."""
    plan = replace(draw(2), seed=77)
    assert decoded(encoded(plan)) == plan
