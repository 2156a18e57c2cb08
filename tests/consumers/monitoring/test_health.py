"""Health: starting, reading, idle, waiting and stuck, told apart by a clock that tests turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.monitoring.status import READING_WITHIN_S, START_LIMIT_S, Health, State
from streamnb.testing import ManualClock
from tests.consumers.pipeline.test_data_flow import NoView

STUCK_AFTER_S = 30.0


def started() -> tuple[ManualClock, Health]:
    """Return a daemon's health just after its start, and its clock."""
    clock = ManualClock(500.0)
    return clock, Health(clock, STUCK_AFTER_S)


def test_before_the_first_turn_it_is_starting() -> None:
    """Before the loop turns the daemon lives, is not ready, and has no message or snapshot."""
    clock, health = started()
    clock.now_s += STUCK_AFTER_S + 1  # compiling takes longer than a loop may be silent
    report = health.report()
    assert (report.state, report.alive, report.ready) == (State.STARTING, True, False)
    assert report.reason is not None
    assert report.last_message_age_s is None
    assert report.snapshot_version is None


def test_a_start_has_an_end() -> None:
    """A start may take `START_LIMIT_S`, and is stuck after it; one turn later it lives again."""
    clock, health = started()
    clock.now_s += START_LIMIT_S
    assert health.report().alive
    clock.now_s += 0.5
    assert health.report().state is State.STUCK
    health.beat()
    assert health.report().alive


def test_a_start_says_what_it_restores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large state each step may take long; the next one shows that the start goes on."""
    messages, labels = tmp_path / "in.jsonl", tmp_path / "labels.jsonl"
    message = {"id": "a", "text": "good day", "created_at": 1_000_000_000}
    messages.write_text(json.dumps(message) + "\n")
    labels.write_text(json.dumps({"id": "b", "label": 4, "created_at": 1_000_000_001}) + "\n")
    settings = Settings.model_validate(
        {
            "source": f"file:{messages}",
            "http": {"enabled": False},
            "checkpoint": {"folder": tmp_path / "state"},
            "late_labels": {"source": f"file:{labels}", "id": "id", "window_s": 600},
        }
    )
    run(settings, NoView(), until_end=True)
    said: list[str] = []
    monkeypatch.setattr(Health, "set_starting", lambda _health, text: said.append(text))
    run(settings, NoView(), until_end=True)
    assert [each for each in said if "compil" not in each] == [
        "reading the checkpoint",
        "reading what messages taught, 1 of 1",
        "finding messages that wait for labels, 1 of 2",  # the labels' file may have some too
        "finding messages that wait for labels, 2 of 2",
        "publishing the first snapshot",
    ]


def test_a_longer_limit_for_turns_holds_for_the_start_too() -> None:
    """Where turns may take longer than `START_LIMIT_S`, so may the start."""
    clock = ManualClock(500.0)
    health = Health(clock, 2 * START_LIMIT_S)
    clock.now_s += 2 * START_LIMIT_S
    assert health.report().state is State.STARTING


def test_messages_make_it_reading_and_their_absence_idle() -> None:
    """A message within `READING_WITHIN_S` is reading; turns without messages are idle."""
    clock, health = started()
    health.set_ready(7)
    health.beat(3)
    clock.now_s += READING_WITHIN_S
    assert health.report().state is State.READING
    for _ in range(100):
        clock.now_s += STUCK_AFTER_S
        health.beat()
    report = health.report()
    assert (report.state, report.alive, report.ready) == (State.IDLE, True, True)
    assert report.reason is None
    assert report.last_message_age_s == pytest.approx(READING_WITHIN_S + 100 * STUCK_AFTER_S)
    assert report.snapshot_version == 7


def test_silence_of_the_loop_is_stuck_and_not_idle() -> None:
    """A loop that has not turned for longer than its limit is stuck, and says for how long."""
    clock, health = started()
    health.set_ready(7)
    health.beat(3)
    clock.now_s += STUCK_AFTER_S
    assert health.report().state is State.IDLE
    clock.now_s += 12.5
    report = health.report()
    assert (report.state, report.alive, report.ready) == (State.STUCK, False, False)
    assert report.reason is not None
    assert "42.5 s" in report.reason
    assert "http.stuck_after_s" in report.reason
    health.beat()
    assert health.report().ready


def test_silence_of_the_reader_is_stuck_too() -> None:
    """A reading loop that no longer turns is told, however often the consuming one does."""
    clock, health = started()
    health.set_ready(7)
    health.beat()
    health.beat_reader()
    clock.now_s += STUCK_AFTER_S + 1
    health.beat()
    report = health.report()
    assert (report.state, report.alive) == (State.STUCK, False)
    assert report.reason is not None
    assert "the reading loop has not turned for 31.0 s" in report.reason
    health.beat_reader()
    assert health.report().state is State.IDLE
    clock.now_s += STUCK_AFTER_S + 1
    health.beat_reader()
    assert "the consuming loop" in (health.report().reason or "")


def test_without_a_snapshot_it_is_alive_but_not_ready() -> None:
    """A loop that turns is alive; it is ready once there is a snapshot to answer from."""
    _, health = started()
    health.beat(1)
    report = health.report()
    assert (report.alive, report.ready) == (True, False)
    assert report.reason is not None
    assert "snapshot" in report.reason
    health.set_ready()
    assert health.report().ready
    assert health.report().snapshot_version == 0


def test_trouble_is_waiting_and_passes() -> None:
    """While the source is away it is waiting, alive and not ready, for the reason it was given."""
    _, health = started()
    health.set_ready(1)
    health.beat(1)
    health.set_trouble("no broker answers")
    report = health.report()
    assert (report.state, report.alive, report.ready) == (State.WAITING, True, False)
    assert report.reason == "no broker answers"
    health.set_trouble(None)
    assert (health.report().state, health.report().ready) == (State.READING, True)


def test_trouble_does_not_hide_a_stuck_loop() -> None:
    """A loop that no longer turns is stuck, whatever trouble its source had before."""
    clock, health = started()
    health.beat()
    health.set_trouble("no broker answers")
    clock.now_s += STUCK_AFTER_S + 1
    assert health.report().state is State.STUCK


def test_trouble_at_the_start_is_told() -> None:
    """A source that is away before the first turn is named, rather than the start."""
    _, health = started()
    health.set_trouble("no broker answers")
    assert health.report().reason == "no broker answers"


def test_progress_amid_a_start_ends_no_start() -> None:
    """What takes long may say that it goes on; the limit of a start holds until the loop turns."""
    clock, health = started()
    clock.now_s += START_LIMIT_S
    health.progress()
    clock.now_s += START_LIMIT_S
    report = health.report()
    assert (report.state, report.alive) == (State.STARTING, True)
    assert report.starting is not None
    health.beat()
    clock.now_s += STUCK_AFTER_S
    health.progress()
    clock.now_s += STUCK_AFTER_S
    assert health.report().alive
    clock.now_s += 1.0
    assert health.report().state is State.STUCK
