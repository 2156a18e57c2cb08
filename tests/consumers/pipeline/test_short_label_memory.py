"""A memory too short for late labels: what leaves it is the default first, and the log says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from consumers.config.message import LateLabelsSettings
from tests.consumers.pipeline.late_logs import Label, LateRun, Said
from tests.consumers.pipeline.test_late_labels import DEFAULTS, SETTINGS

pytestmark = pytest.mark.usefixtures("short_segments")


@pytest.mark.parametrize(
    ("settings", "apart_s", "wanted"),
    [
        (SETTINGS, 0, "late_labels.window_s"),
        (DEFAULTS, 0, "late_labels.window_s or late_labels.horizon_s"),
        (DEFAULTS, 10_000, None),
    ],
)
def test_a_memory_too_short_for_the_window_is_said_once(
    tmp_path: Path, settings: LateLabelsSettings, apart_s: int, wanted: str | None
) -> None:
    """What is forgotten while its label may come is no silent loss; what is over is none."""
    run = LateRun(tmp_path, settings, 12)
    log = [Said("create", f"m{i}", 100 + i * apart_s, "sun") for i in range(24)]
    with capture_logs() as said:
        run.read(log, 24)
        run.read(log, 4)
    run.memory.close()
    found = [each for each in said if each["event"] == "memory_too_short_for_late_labels"]
    assert len(found) == (wanted is not None)
    for each in found:
        assert "Raise learned.messages_max from 12, " in each["detail"]
        assert each["detail"].endswith(f"or lower {wanted}")


def test_a_label_of_a_message_that_left_says_that_it_may_have() -> None:
    """Nobody knows any more that it came: the reject names both reasons."""
    run = LateRun(None, SETTINGS, 12)
    log = [Said("create", f"m{i}", 100, "sun") for i in range(24)]
    log += [Said("create", f"later{i}", 1000, "sun") for i in range(2)]
    run.read(log, 24)
    run.read_labels([Label("m0", 100, "positive")], 1)
    run.read(log, 2)
    (reject,) = run.late.take_rejects()
    assert run.late.counts_now()["no_message"] == 1
    assert "none came, or it has left the memory (learned.messages_max)" in reject.detail
    run.memory.close()


def test_what_leaves_the_memory_is_learned_as_the_default(tmp_path: Path) -> None:
    """It is, before its horizon is over; a label that comes later teaches nothing."""
    run = LateRun(tmp_path, DEFAULTS, 12)
    log = [Said("create", f"m{i}", 100, f"sun{i}") for i in range(12)]
    run.read(log, 8)
    assert "defaulted" not in run.late.counts_now()
    run.read(log, 4)
    assert run.late.counts_now()["defaulted"] == 4
    as_defaults = run.counts
    assert as_defaults[0] == [4.0, 0.0]
    run.read_labels([Label("m0", 100, "positive")], 1)
    assert run.counts == as_defaults
    run.memory.close()


@pytest.mark.parametrize("n_at_once", [1, 3, 40])
def test_labels_that_fill_the_memory_push_no_message_out_untaught(
    tmp_path: Path, n_at_once: int
) -> None:
    """Nothing else comes: what has to leave for labels of other messages is the default first."""
    run = LateRun(tmp_path, DEFAULTS, 12)
    for _ in range(2):
        run.read([Said("create", f"m{i}", 100, f"sun{i}") for i in range(8)], 4)
    labels = [Label(f"other{i}", 100, "positive") for i in range(40)]
    for _ in range(0, len(labels), n_at_once):
        run.read_labels(labels, n_at_once)
    assert run.late.counts_now()["defaulted"] == 8
    assert run.counts[0] == [8.0, 0.0]
    run.memory.close()


@pytest.mark.parametrize("n_at_once", [1, 3, 40])
def test_labels_that_teach_push_no_message_out_untaught(tmp_path: Path, n_at_once: int) -> None:
    """While the stream brings nothing, what leaves for what labels teach is the default first."""
    run = LateRun(tmp_path, DEFAULTS, 12)
    log = [Said("create", f"m{i}", 100, f"sun{i}") for i in range(12)]
    for _ in range(3):
        run.read(log, 4)
    labels = [Label(f"m{i}", 100, "positive") for i in range(8, 12)]
    for _ in range(0, len(labels), n_at_once):
        run.read_labels(labels, n_at_once)
    found = run.late.counts_now()
    assert found["learned"] > 0
    assert found["learned"] + found["defaulted"] == 12
    assert {f"sun{i}" for i in range(12)} <= run.counts[1].keys()
    run.memory.close()


def test_a_batch_beyond_the_memory_is_not_all_learned_as_the_default(tmp_path: Path) -> None:
    """What comes and leaves within one batch teaches nothing; what is left of it does."""
    run = LateRun(tmp_path, DEFAULTS, 12)
    log = [Said("create", f"m{i}", 100, f"sun{i}") for i in range(24)]
    run.read(log, 24)
    assert run.late.counts_now()["defaulted"] == 4
    assert {"sun12", "sun15"} <= run.counts[1].keys()
    assert "sun0" not in run.counts[1]
    run.memory.close()
