"""The reporter: what metrics, health, screen and summary are told, and how often."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from consumers.config.sections import CheckpointSettings, DriftSettings
from consumers.messages import Partition, part_name
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.prequential import WARM_EXAMPLES, DriftWatch
from consumers.monitoring.quality import Point, Quality
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import ChallengersReport, Health, Status
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.reader import SourceStatus
from consumers.private_files import FILE_MODE
from consumers.reporter import (
    CLOCK_SETTLES_S,
    EVENTS_MAX,
    HISTORY_BYTES_MAX,
    HISTORY_NAME,
    POINTS_MAX,
    SAVE_INTERVAL_S,
    UPDATE_INTERVAL_S,
    WORDS_INTERVAL_S,
    History,
    Reporter,
    SavedHistory,
)
from streamnb import (
    Categories,
    EveryExamples,
    Learner,
    Multinomial,
    NaiveBayes,
    SnapshotBoard,
    Words,
)
from streamnb.inspection.summary import values_dropped
from streamnb.testing import ManualClock
from tests.consumers.decoded_messages import messages
from tests.consumers.scripted_source import ScriptedSource

CLASSES = ("negative", "positive")
FIRST, SECOND = Partition("t", 0), Partition("t", 1)
LONG_S = 60.0  # longer than anything here takes; a test that waits so long has failed


class KeptView:
    """A view that keeps what it was shown, or fails as a closed output does."""

    def __init__(self) -> None:
        self.shown: list[Status] = []
        self.came = threading.Event()
        self.fault: Exception | None = None

    def start(self) -> None:
        """Begin."""

    def update(self, status: Status) -> None:
        """Keep a status."""
        self.shown.append(status)
        self.came.set()
        if self.fault is not None:
            raise self.fault

    def stop(self) -> None:
        """End."""


class Run:
    """A reporter among real rooms, with a source, a view and a clock that the test holds."""

    def __init__(self, folder: Path, stop_timeout_s: float = 5.0) -> None:
        self.clock = ManualClock(10.0)
        self.registry = CollectorRegistry()
        self.source, self.view, self.board = ScriptedSource(), KeptView(), SnapshotBoard()
        self.health = Health(self.clock, 30.0)
        metrics = Metrics(self.registry, CLASSES, self.clock)
        self.statistics = RunStatistics(CLASSES, ("text",), 100, self.clock)
        self.checkpoint = Checkpoint(CheckpointSettings(folder=folder), {}, self.clock)
        self.model = NaiveBayes(CLASSES, features={"text": Words(Multinomial(), max_words=8)})
        quality = Quality(CLASSES, self.statistics.prequential, 30, clock=self.clock)
        self.reporter = Reporter(
            self.source.name, lambda: SourceStatus.of(self.source), self.board, self.statistics,
            self.health, quality, self.view, self.checkpoint, clock=self.clock,
            time_ms=lambda: round(1_000 * self.clock.now_s), stop_timeout_s=stop_timeout_s,
        )  # fmt: skip
        metrics.watch(self.reporter.status)
        self.reporter.http_address = "http://127.0.0.1:1"

    def learner(self) -> Learner:
        """Return a learner that has published the model as it is."""
        return Learner(self.model, self.board, EveryExamples(1_000), self.clock)

    def update(self) -> Status:
        """Let the reporter report once more; return what was shown."""
        self.clock.now_s += UPDATE_INTERVAL_S
        n = len(self.view.shown)
        self.reporter.update()
        assert len(self.view.shown) == n + 1
        return self.view.shown[-1]

    def value(self, name: str, **labels: str) -> float | None:
        """Return a metric's value, None where there is no such series."""
        return self.registry.get_sample_value(f"streamnb_{name}", labels)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a reporter among real rooms."""
    return Run(tmp_path)


def test_history_knows_of_alarms_that_were_raised(run: Run) -> None:
    """A chart can mark where drift was noticed: each point has the number of alarms so far."""
    run.statistics.drift = drift = DriftWatch(DriftSettings(enabled=True))
    for losses in ([0.1] * 2 * WARM_EXAMPLES, [5.0] * 40):
        drift.update(np.array(losses))
        run.clock.now_s += 10.0
        run.update()
    assert [each.n_alarms for each in run.view.shown[-1].quality.history] == [0]
    assert [each.n_alarms for each in run.reporter.status().quality.history] == [0, 1]


def point(time_ms: int, *events: str) -> Point:
    """Return a point of a time."""
    return Point(time_ms, 0.5, 0.7, 0.1, 10.0, None, 40, None, events=events)


@given(n=st.integers(0, 400), halves=st.integers(1, 6), data=st.data())
def test_history_is_bounded_and_even(n: int, halves: int, data: st.DataObject) -> None:
    """However long it lasts, points are as far apart as the step, from the first to the newest.

    What happened stays, at most a step before or behind its time, over any number of runs.
    """
    points_max = 2 * halves
    history = History(10.0, points_max)
    happened = data.draw(st.sets(st.integers(0, max(n - 1, 0)), max_size=EVENTS_MAX))
    for i in range(n):
        if i in happened:
            history.happened(f"event {i}")
        history.update(10.0 * i, point(10_000 * i))
        if i % 50 == 49:
            saved, history = history.pack(), History(10.0, points_max)
            history.unpack(saved)
            history.note(10.0 * i, point(10_000 * i))  # begins a step with the run
    noted = [each.time_ms for each in history._points]
    assert len(noted) <= points_max
    if not n:
        return
    assert noted[0] == 0
    if n < 50:
        steps = {b - a for a, b in pairwise(noted)}
        assert steps <= {1_000 * history.step_s}
        assert len(noted) >= min(n, halves)
    assert 10_000 * (n - 1) - noted[-1] < 1_000 * history.step_s
    points = history.points()
    assert points[-1].time_ms == 10_000 * (n - 1)
    told = {event: each.time_ms for each in points for event in each.events}
    assert set(told) == {f"event {i}" for i in happened}
    for i in happened:
        assert abs(told[f"event {i}"] - 10_000 * i) <= 1_000 * history.step_s


def test_history_has_a_point_each_ten_seconds(run: Run) -> None:
    """With the window's figures, the rate and the lag of the status; the last point is of now."""
    run.source.lags = {FIRST: 7}
    log = np.log([[0.8, 0.2], [0.2, 0.8]])
    run.statistics.prequential.update(log[[0] * 4 + [1]], np.array([0] * 5))
    for _ in range(25):
        run.clock.now_s += 1.0 - UPDATE_INTERVAL_S
        run.update()
    status = run.reporter.status()
    history = status.quality.history
    assert [each.time_ms for each in history] == [11_000, 21_000, 31_000, 35_000]
    assert {(each.accuracy, each.n) for each in history} == {(0.8, 5)}
    known = {(each.rate_per_s, each.lag, each.n_alarms) for each in history}
    assert known == {(status.rate_per_s, 7, None)}


def test_history_goes_on_behind_a_restart(run: Run, tmp_path: Path) -> None:
    """The next run draws on, marked; of what a killed one did not save, a minute is missing."""
    for _ in range(9):
        run.clock.now_s += 10.0 - UPDATE_INTERVAL_S
        run.update()
    killed = Run(tmp_path)
    killed.clock.now_s = 200.0
    killed.update()
    times = [(each.time_ms, each.events) for each in killed.reporter.status().quality.history]
    kept = [(20_000 + 10_000 * i, ()) for i in range(6)]
    assert times == [*kept, (200_250, ("restart",))]
    killed.reporter.stop()
    path = tmp_path / HISTORY_NAME
    assert stat.S_IMODE(path.stat().st_mode) == FILE_MODE
    stopped = Run(tmp_path)
    stopped.clock.now_s = 60.0  # it was put back
    stopped.update()
    times = [(each.time_ms, each.events) for each in stopped.reporter.status().quality.history]
    assert times == [*kept[:5], (60_250, ("restart",))]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no JSON", b'{"step_s": -1, "points": []}', b'{"step_s": 1e999, "points": []}',
        b'{"step_s": 10, "points": [], "more": ' + b"[" * 100_000,
        b'{"step_s": 10, "points": []}'.ljust(HISTORY_BYTES_MAX + 1),
        msgspec.json.encode(SavedHistory(10.0, tuple(point(i) for i in range(POINTS_MAX + 1)))),
        msgspec.json.encode(SavedHistory(10.0, (point(2), point(1)))),
        msgspec.json.encode(SavedHistory(10.0, (point(1), point(1)))),
    ],
)  # fmt: skip
def test_a_history_that_cannot_be_read_begins_again(tmp_path: Path, content: bytes) -> None:
    """The log says so; the file is replaced."""
    path = tmp_path / HISTORY_NAME
    path.write_bytes(content)
    with capture_logs() as logs:
        run = Run(tmp_path)
    assert [(line["event"], line["path"]) for line in logs] == [
        ("model_history_unreadable", str(path))
    ]
    run.update()
    assert [each.events for each in run.reporter.status().quality.history] == [()]
    run.reporter.stop()
    assert len(msgspec.json.decode(path.read_bytes(), type=SavedHistory).points) == 1


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_stands_in_the_place_of_the_history_is_named(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """The run begins without it, and waits for nobody who would write into a pipe."""
    make(tmp_path / HISTORY_NAME)
    with capture_logs() as logs:
        Run(tmp_path)
    assert [line["event"] for line in logs] == ["model_history_unreadable"]


@pytest.mark.parametrize("run_s", [1, 9])
def test_short_runs_do_not_thin_the_history_out(run_s: int) -> None:
    """Each begins with a point; the steps grow with the time that passes, and not with the runs."""
    saved = History().pack()
    for i in range(1_000):
        history = History()
        history.unpack(saved)
        history.happened("restart")
        history.update(0.0, point(1_000 * run_s * i))
        history.update(run_s - 0.5, point(1_000 * run_s * i + 500))
        saved = history.pack()
    noted = [each.time_ms for each in history._points]
    assert noted[0] == 0
    assert len(noted) <= POINTS_MAX
    least_s = noted[-1] / 1_000 / POINTS_MAX
    assert history.step_s <= max(10.0, 5 * least_s)
    assert max(b - a for a, b in pairwise(noted)) <= 2_000 * history.step_s


@pytest.mark.parametrize("n_before", [4, 5])
def test_the_point_that_begins_a_run_stays(n_before: int) -> None:
    """Between it and the one before the daemon was down, and there the curves are broken."""
    history = History(10.0, 8)
    times_s = [10.0 * i for i in (*range(n_before), *range(100, 108))]
    for i, now_s in enumerate(times_s):
        if i == n_before:
            history.happened("restart")
        history.update(now_s, point(int(1_000 * now_s)))
    assert len(history._points) < len(times_s)
    begun = [each.time_ms for each in history.points() if "restart" in each.events]
    assert begun == [1_000_000]


def test_a_clock_that_is_set_late_costs_no_history() -> None:
    """A machine that starts in 1970 waits for an hour; if it is right then, history begins anew."""
    for is_set in (True, False):
        history = History()
        for i in range(20):
            history.update(10.0 * i, point(10**12 + 10_000 * i))
        saved, history = history.pack(), History()
        history.unpack(saved)
        history.happened("restart")
        for i in range(0, 100, 10):
            history.update(float(i), point(1_000 * i))
            assert [each.time_ms for each in history.points()] == [1_000 * i]
        now_s = 100.0 if is_set else CLOCK_SETTLES_S
        history.update(now_s, point(10**12 + 300_000 if is_set else 10**6))
        points = history.points()
        assert len(points) == (21 if is_set else 1)
        assert points[-1].events == ("restart",)


def test_the_last_point_is_of_now_behind_a_clock_that_was_put_back() -> None:
    """What is later is not shown; it is back if the clock is."""
    history = History()
    for now_s in (0, 10, 20):
        history.update(float(now_s), point(1_000 * now_s))
    history.update(21.0, point(12_000))
    assert [each.time_ms for each in history.points()] == [0, 10_000, 12_000]
    history.update(22.0, point(22_000))
    assert [each.time_ms for each in history.points()] == [0, 10_000, 20_000, 22_000]


@pytest.mark.parametrize("kept_s", [0, 3_600])
def test_a_clock_that_was_put_back_makes_the_steps_short_again(kept_s: int) -> None:
    """Else what is drawn from then on would be as coarse as what went."""
    history = History()
    for now_s in range(0, 200_000, 10):
        history.update(float(now_s), point(1_000 * now_s))
    assert history.step_s >= 640.0
    for passed_s in range(0, 3_600, 10):
        history.update(200_000.0 + passed_s, point(1_000 * (kept_s + passed_s)))
    noted = [each.time_ms for each in history._points]
    assert noted == sorted(noted)
    assert history.step_s <= max(10.0, 8 * (noted[-1] - noted[0]) / 1_000 / POINTS_MAX)
    assert 1_000 * (kept_s + 3_590) - noted[-1] <= 1_000 * history.step_s


def test_a_history_that_cannot_be_saved_is_said_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried each minute, and said again after one time that it could be."""
    with capture_logs() as logs, monkeypatch.context() as full:
        full.setattr("consumers.reporter.replace_private", disk_full)
        for _ in range(3):
            run.clock.now_s += SAVE_INTERVAL_S
            run.update()
        full.undo()
        run.clock.now_s += SAVE_INTERVAL_S
        run.update()
        full.setattr("consumers.reporter.replace_private", disk_full)
        run.reporter.stop()
    assert [line["event"] for line in logs] == ["model_history_unsaved"] * 2
    saved = msgspec.json.decode((tmp_path / HISTORY_NAME).read_bytes(), type=SavedHistory)
    assert len(saved.points) == 4


def disk_full(*_: object) -> None:
    """Fail as a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_history_marks_what_happened(run: Run) -> None:
    """Drift and promotions, each once; what a checkpoint knows of them is not new."""
    run.reporter.challengers = others = Mock(n_promotions=3, serving="model")
    others.report.return_value = ChallengersReport("model", None, 3, (), ())
    run.statistics.drift = drift = DriftWatch(DriftSettings(enabled=True))
    calm, loud = [0.1] * 2 * WARM_EXAMPLES, [5.0] * 40
    drift.update(np.array(calm + loud))
    run.learner().publish()
    for happens in ("", "drift", "", "promotion", ""):
        if happens == "drift":
            drift.update(np.array(calm + loud))
        if happens == "promotion":
            others.n_promotions, others.serving = 4, "wider"
        run.clock.now_s += 10.0
        run.update()
    others.report.assert_not_called()  # no view shows each model's figures: whoever asks gets them
    events = [each.events for each in run.reporter.status().quality.history]
    assert events == [(), ("drift",), (), ("promotion of wider",), ()]


def test_it_reports_a_few_times_a_second(run: Run) -> None:
    """However often it is called, it reports each interval, and at once where it must."""
    for _ in range(1_000):
        run.reporter.update()
        run.clock.now_s += UPDATE_INTERVAL_S / 100
    assert 10 <= len(run.view.shown) <= 11
    run.reporter.update(force=True)
    run.reporter.update(force=True)
    assert 12 <= len(run.view.shown) <= 13


def test_it_reports_on_a_thread_of_its_own(run: Run) -> None:
    """Once started it reports by itself, and whoever stops it may report again."""
    run.reporter.start()
    assert run.view.came.wait(LONG_S)
    run.reporter.stop()
    n = len(run.view.shown)
    assert n >= 1
    run.reporter.update(force=True)
    assert len(run.view.shown) == n + 1
    run.reporter.watch()


def test_one_thread_reports_at_a_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start the run's own thread reports beside the reporter's: none does amid another."""
    held: list[bool] = []
    lock = run.reporter._reporting
    monkeypatch.setattr(run.view, "update", lambda _status: held.append(lock.locked()))
    threads = [
        threading.Thread(target=run.reporter.update, kwargs={"force": True}) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert held == [True, True]
    assert not lock.locked()


def test_what_ends_its_thread_comes_out_of_the_watch(run: Run) -> None:
    """A screen that fails ends the run on the thread that can end it, with the screen's error."""
    run.view.fault = BrokenPipeError("nobody looks")
    run.reporter.start()
    run.reporter._thread.join(LONG_S)
    with pytest.raises(BrokenPipeError, match="nobody looks"):
        run.reporter.watch()
    run.reporter.stop()


def test_one_that_never_ran_can_be_stopped(run: Run) -> None:
    """Stopping what was not started does nothing."""
    run.reporter.stop()
    run.reporter.watch()


def test_before_the_first_snapshot_there_is_nothing_to_tell(run: Run) -> None:
    """Without a snapshot its age is unknown, and the daemon is not ready."""
    status = run.update()
    assert (status.snapshot_version, status.snapshot_age_s, status.vocabulary_size) == (0, None, 0)
    assert (status.accuracy, status.checkpoint_age_s, status.lag_total) == (None, None, None)
    assert [each.accuracy for each in run.reporter.status().quality.history] == [None]
    assert status.telling == {}
    assert status.http_address == "http://127.0.0.1:1"
    run.health.beat()
    assert not run.health.report().ready


def test_a_snapshot_is_told_once_it_is_there(run: Run) -> None:
    """Version, words and age of the newest snapshot are shown; the age grows until the next one."""
    learner = run.learner()
    learner.learn("t/0", {"text": ["good day", "bad day"]}, ["positive", "negative"])
    learner.publish()
    status = run.update()
    assert (status.snapshot_version, status.vocabulary_size, status.snapshot_age_s) == (2, 3, 0.0)
    assert run.value("snapshot_version") == 2.0
    assert run.value("vocabulary_words") == 3.0
    run.health.beat()
    assert run.health.report().ready
    assert run.health.report().snapshot_version == 2
    assert run.update().snapshot_age_s == UPDATE_INTERVAL_S
    assert run.update().snapshot_age_s == 2 * UPDATE_INTERVAL_S
    learner.publish()
    assert run.update().snapshot_age_s == 0.0


def test_dropped_words_are_counted_once(run: Run) -> None:
    """Words that left since the last report are added to the metric, however often it reports."""
    learner = run.learner()
    for i in range(4):
        texts = [f"a{i} b{i} c{i}", f"d{i} e{i}"]
        learner.learn("t/0", {"text": texts}, ["positive", "negative"])
        learner.publish()
        for _ in range(2):
            assert run.update().words_dropped == run.model.words_dropped
            assert run.value("words_dropped_total") == run.model.words_dropped
    assert run.model.words_dropped > 0


def test_what_another_model_dropped_before_it_served_is_not_counted(run: Run) -> None:
    """A snapshot that is still of the model before it changes nothing."""
    other = NaiveBayes(CLASSES, features={"text": Words(Multinomial(), max_words=8)})
    for k in range(30):
        other.learn_many({"text": [f"{k}"]}, ["positive"], part="t/0")
    learner, n_before = run.learner(), other.words_dropped
    run.reporter.follow(other)
    assert run.update().new_words_dropped == 0 < n_before
    learner.model = other
    learner.learn("t/0", {"text": ["a b c d e f g h"]}, ["negative"])
    learner.publish()
    assert run.update().new_words_dropped == other.words_dropped - n_before


def test_dropped_values_are_counted_once(run: Run) -> None:
    """Values of categories that left are counted too: a field of too many is seen from outside."""
    run.model = NaiveBayes(CLASSES, features={"c": Categories(fields=["c"], max_values=4)})
    learner = run.learner()
    for i in range(4):
        values = [f"{i}-{k}" for k in range(3)]
        learner.learn("t/0", {"c": values}, ["positive", "negative", "positive"])
        learner.publish()
        for _ in range(2):
            run.update()
            assert run.value("values_dropped_total") == values_dropped(run.model.state)
    assert values_dropped(run.model.state) > 0


def test_telling_words_are_looked_up_now_and_then(run: Run) -> None:
    """The words that speak for a class are shown, and looked up anew only each few seconds."""
    learner = run.learner()
    learner.learn("t/0", {"text": ["good day", "bad day"]}, ["positive", "negative"])
    learner.publish()
    assert run.update().telling == {"negative": ("bad",), "positive": ("good",)}
    learner.learn("t/0", {"text": ["fine fine fine"]}, ["positive"])
    learner.publish()
    assert run.update().telling["positive"] == ("good",)
    run.clock.now_s += WORDS_INTERVAL_S
    assert run.update().telling["positive"][0] == "fine"


def test_lag_is_the_sum_over_partitions(run: Run) -> None:
    """Each partition's lag is a series of its own; those that went away are not shown any more."""
    run.source.lags = {FIRST: 3, SECOND: 4}
    assert run.update().lag_total == 7
    assert run.value("consumer_lag_messages", topic="t", partition="1") == 4.0
    run.source.lags = {FIRST: 0}
    assert run.update().lag_total == 0
    assert run.value("consumer_lag_messages", topic="t", partition="1") is None
    run.source.lags = {}
    assert run.update().lag_total is None


def test_a_source_that_was_lost_and_found_is_counted(run: Run) -> None:
    """Trouble is shown while it lasts and its end counts once; what never was is not lost."""
    run.source.sentence = "nobody answers"
    assert run.update().trouble == "nobody answers"
    assert run.value("source_up") == 0.0
    run.source.sentence = None
    assert run.update().trouble is None
    assert run.value("source_restarts_total") == 0.0
    for sentence in ("gone", "still gone", None, None):
        run.source.sentence = sentence
        run.update()
    assert run.value("source_up") == 1.0
    assert run.value("source_restarts_total") == 1.0


def test_lost_messages_are_counted_once(run: Run) -> None:
    """A source that tells how many messages it lost in all adds to the metric what is new."""
    for lost in (0, 5, 5, 12):
        run.source.lost_messages = lost
        run.update()
        assert run.value("messages_lost_total") == lost


def test_the_checkpoint_grows_old(run: Run) -> None:
    """The age of the last checkpoint counts from when it was written."""
    run.checkpoint.write(run.model, {})
    assert run.update().checkpoint_age_s == UPDATE_INTERVAL_S
    assert run.update().checkpoint_age_s == 2 * UPDATE_INTERVAL_S


def test_the_summary_says_what_the_run_did(run: Run) -> None:
    """Figures, class counts, positions, pace and reason of a run stand in its summary."""
    learner = run.learner()
    columns, labels = {"text": ["good day", "bad day"]}, ["positive", "negative"]
    posteriors = learner.learn(part_name(FIRST), columns, labels)
    learner.publish()
    lines = b'{"text":"good day","label":4}', b"{", b'{"text":"bad day","label":0}'
    batch = messages(FIRST, lines)
    run.clock.now_s += 5.0  # nothing comes yet
    run.statistics.begin()
    run.statistics.learned(batch, batch.to_learn, posteriors, np.array([1, 0]))
    run.clock.now_s += 2.0
    run.statistics.count(3, batch)
    run.clock.now_s += 1.0  # nothing comes any more
    run.source.gaps, run.source.lost_messages = 1, 7
    summary = run.reporter.summary("end of source", {FIRST: 3, SECOND: 0})
    assert (summary.source, summary.exit_reason) == ("scripted", "end of source")
    assert (summary.messages, summary.learned, summary.judged, summary.ambiguous) == (3, 2, 0, 0)
    assert summary.rejected == {"not_json": 1}
    assert (summary.classes, summary.class_counts) == (CLASSES, (1.0, 1.0))
    assert summary.positions == {"t[0]": 3, "t[1]": 0}
    assert (summary.seconds, summary.messages_per_s, summary.gaps, summary.lost) == (8.0, 1.5, 1, 7)
    assert (summary.vocabulary_size, summary.snapshot_version) == (3, 2)
    # Where nothing is known the first class wins the tie; the second is told by what that taught.
    assert summary.accuracy == 0.0
    status = run.update()
    assert status.accuracy == summary.accuracy
    assert status.log_loss == summary.log_loss
    assert status.window_accuracy == 0.0
    assert (status.n_messages, status.n_learned, status.n_rejected) == (3, 2, 1)
    assert [judged.text for judged in status.newest] == ["good day", "bad day"]


def test_a_run_of_nothing_has_a_summary(run: Run) -> None:
    """Without a snapshot, a message or a second the summary is empty, not an error."""
    summary = run.reporter.summary("told to stop", {})
    assert (summary.messages, summary.messages_per_s, summary.class_counts) == (0, 0.0, ())
    assert (summary.accuracy, summary.log_loss) == (None, None)
