"""Builds the daemon's `Status`, a few times a second and whenever metrics are scraped.

`Reporter` does so on a thread of its own: the features that speak for a class, of a million words,
take longer to find than the consuming thread can spare. Everything that it reads is one reference
or one figure with a single writer; two figures in one status may be a batch apart.

It keeps the `History` of the figures too, over all runs of a state folder, in a file beside the
checkpoint. That is of times and not of the log, so it is none of the checkpoint's: a kill loses up
to a minute of it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import msgspec
import structlog
from msgspec.structs import replace

from consumers.messages import Partition
from consumers.monitoring.metrics import LATE_LABELS
from consumers.monitoring.quality import Point, Quality, QualityReport
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import ClassRow, Health, Status, Summary
from consumers.pipeline.challengers import Challengers
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.group_parts import GroupParts, GroupStatus
from consumers.pipeline.own_models import OwnModels
from consumers.pipeline.reader import SourceStatus
from consumers.private_files import read_regular, replace_private
from consumers.terminal import View
from streamnb import NaiveBayes, Snapshot, SnapshotBoard
from streamnb.inspection.summary import n_features, top_features, values_dropped

HISTORY_NAME = "model_history.json"
STEP_S = 10.0
POINTS_MAX = 360  # an hour of steps; then ever longer steps
HISTORY_BYTES_MAX = 1 << 22  # what is larger was not written here
SAVE_INTERVAL_S = 60.0
CLOCK_SETTLES_S = 3_600.0  # after the start of a machine whose clock forgets the time
EVENTS_MAX = 8  # of a point, the newest ones
UPDATE_INTERVAL_S = 0.25
WORDS_INTERVAL_S = 2.0
# Of the time: a pass over 10⁶ words takes 100 ms, and learning needs the core.
WORDS_SHARE_MAX = 0.01
FEATURES_RANKED = 60  # of a class; function words among them are not shown
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def build_status(
    source: str,
    statistics: RunStatistics,
    quality: Quality | None = None,
    snapshot: Snapshot | None = None,
    source_status: SourceStatus | None = None,
) -> Status:
    """Return the status of a run's source, figures and model, without ages and health."""
    seen = source_status or SourceStatus()
    prequential = statistics.prequential
    sets_covered, set_size = statistics.prediction_sets()
    return Status(
        source=source,
        classes=tuple(statistics.classes),
        trouble=seen.trouble,
        n_messages=statistics.n_messages,
        n_learned=statistics.n_learned,
        n_learned_late=statistics.n_learned_late,
        n_judged=statistics.n_judged,
        n_rejected=statistics.rejected.total(),
        n_ignored=statistics.ignored.total(),
        lag_total=sum(seen.lag.values()) if seen.lag else None,
        shares=statistics.shares(),
        accuracy=prequential.accuracy,
        log_loss=prequential.log_loss,
        window_accuracy=prequential.window_accuracy,
        window_log_loss=prequential.window_log_loss,
        stated_error=statistics.stated_error(),
        stated=statistics.stated_reliability(),
        sets_covered=sets_covered,
        set_size=set_size,
        coverage=statistics.coverage(),
        vocabulary_size=snapshot.vocabulary_size if snapshot else 0,
        words_dropped=snapshot.words_dropped if snapshot else 0,
        n_features=n_features(snapshot.state) if snapshot else 0,
        snapshot_version=snapshot.version if snapshot else 0,
        n_examples=snapshot.n_examples if snapshot else None,
        class_rows=_class_rows(snapshot) if snapshot else (),
        newest=tuple(statistics.newest),
        elapsed_s=statistics.elapsed_s,
        outcomes=dict(statistics.outcomes),
        rejected=dict(statistics.rejected),
        ignored=dict(statistics.ignored),
        revisions=statistics.revisions,
        remembered=statistics.remembered,
        n_untaught=statistics.n_untaught,
        labels=statistics.labels,
        learned_by_class=dict(statistics.learned_by_class),
        predicted_by_class=dict(statistics.predicted_by_class),
        n_predicted=prequential.n,
        n_correct=prequential.n_correct,
        log_loss_sum=prequential.log_loss_sum,
        quality=QualityReport() if quality is None else quality.report(),
        stream_shares=None if quality is None else quality.stream_shares(),
        lag=seen.lag,
        n_lost=seen.lost_messages,
        n_gaps=seen.gaps,
        decoder=seen.decoder,
        drift=None if statistics.drift is None else statistics.drift.report(),
    )


def _class_rows(snapshot: Snapshot) -> tuple[ClassRow, ...]:
    counts, priors = snapshot.class_counts.tolist(), snapshot.class_priors().tolist()
    return tuple(map(ClassRow, map(str, snapshot.classes), counts, priors))


class Increase(msgspec.Struct):
    """How much a running total grew since the run began; where it falls, nothing is added."""

    total: int = 0
    since_start: int = 0

    def update(self, total: int) -> None:
        """Take the total as it is now."""
        self.since_start += max(0, total - self.total)
        self.total = total


class SavedHistory(msgspec.Struct, frozen=True):
    """What the file of the history holds."""

    step_s: float
    points: tuple[Point, ...]
    events: tuple[str, ...] = ()  # since the last point


class History:
    """Points at about equal steps from the first run until now, and what happened between them.

    The step doubles each time the points become too many, unless runs that were shorter than it
    left them: a point begins each run. `points_max` is even: of an even number every second one can
    go and the steps stay even.
    """

    def __init__(self, step_s: float = STEP_S, points_max: int = POINTS_MAX) -> None:
        self.step_s = step_s  # seconds between two points now
        self._points_max = points_max
        self._due_at_s: float | None = None
        self._points: list[Point] = []
        self._newest: Point | None = None  # between two steps
        self._begun_s: float | None = None  # when the first point of the run came
        self._events: tuple[str, ...] = ()  # since the last point

    def happened(self, event: str) -> None:
        """Take in an event; the next point tells it."""
        self._events = _joined(self._events, (event,))

    def is_due(self, now_s: float) -> bool:
        """Return whether a step has passed since the last point."""
        return self._due_at_s is None or now_s >= self._due_at_s

    def note(self, now_s: float, point: Point) -> None:
        """Add a point; `now_s` is monotonic."""
        while self._points and self._points[-1].time_ms >= point.time_ms:
            # The clock was put back, and a curve has no way back.
            self._events = _joined(self._points.pop().events, self._events)
        passed_ms = point.time_ms - self._points[0].time_ms if self._points else 0
        while self.step_s > STEP_S and passed_ms < 125 * self.step_s * self._points_max:
            self.step_s /= 2.0  # so few steps are left only by a clock that was put back
        if len(self._points) == self._points_max:
            self._thin()
        self._points.append(replace(point, events=self._events))
        self._due_at_s, self._newest, self._events = now_s + self.step_s, None, ()

    def _thin(self) -> None:
        """Leave out the points that short runs left; are there none, every second one."""
        kept: list[Point] = []
        for point in self._points:
            if kept and point.time_ms - kept[-1].time_ms < 500 * self.step_s:  # half a step
                kept[-1] = _one_of(kept[-1], point)
            else:
                kept.append(point)
        if len(kept) == len(self._points):
            kept = list(map(_one_of, kept[::2], kept[1::2]))
            self.step_s *= 2.0
        self._points = kept

    def update(self, now_s: float, point: Point) -> None:
        """Add a point if it is time; else keep it as the newest, until the next one comes.

        One before all others, soon after the start, is of a clock that is not set yet: it waits.
        """
        self._begun_s = now_s if self._begun_s is None else self._begun_s
        is_before_all = bool(self._points) and point.time_ms < self._points[0].time_ms
        if self.is_due(now_s) and not (is_before_all and now_s < self._begun_s + CLOCK_SETTLES_S):
            self.note(now_s, point)
        else:
            self._newest = replace(point, events=self._events)

    def points(self) -> tuple[Point, ...]:
        """Return the points, the oldest first; the last one is of now."""
        newest = self._newest
        if newest is None:
            return tuple(self._points)
        # Behind a clock that was put back, those of later times wait until the next step.
        before = [point for point in self._points if point.time_ms < newest.time_ms]
        return (*before, newest)

    def pack(self) -> bytes:
        """Return what `unpack` goes on with."""
        return msgspec.json.encode(SavedHistory(self.step_s, tuple(self._points), self._events))

    def unpack(self, data: bytes) -> None:
        """Go on behind what another run packed; `ValueError`: it is none."""
        try:
            saved = msgspec.json.decode(data, type=SavedHistory)
        except RecursionError as error:
            raise ValueError(str(error)) from error
        if not (len(saved.points) <= self._points_max and STEP_S <= saved.step_s < math.inf):
            raise ValueError("it has more points than are kept, or a step that none has")
        if any(a.time_ms >= b.time_ms for a, b in pairwise(saved.points)):
            raise ValueError("its points are not in the order of their times")
        self._points, self.step_s, self._events = list(saved.points), saved.step_s, saved.events


def _joined(events: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(events + more))[-EVENTS_MAX:]


def _one_of(earlier: Point, later: Point) -> Point:
    """Return the earlier of two points, or the one that began a run, with the events of both."""
    begins_run = "restart" in later.events and "restart" not in earlier.events
    kept = later if begins_run else earlier
    return replace(kept, events=_joined(earlier.events, later.events))


class Reporter:
    """Reports the run's `Status` to health, quality and the view.

    `source_status` returns the status of the source after its last poll, `clock` monotonic seconds,
    `time_ms` Unix milliseconds for the history. `http_address` is the page's, `note` says what the
    start is doing.
    """

    def __init__(  # noqa: PLR0913 -- it reads every component
        self,
        source: str,
        source_status: Callable[[], SourceStatus],
        board: SnapshotBoard,
        statistics: RunStatistics,
        health: Health,
        quality: Quality,
        view: View,
        checkpoint: Checkpoint,
        *,
        group: GroupParts | None = None,
        clock: Callable[[], float] = time.monotonic,
        time_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        stop_timeout_s: float = 5.0,
    ) -> None:
        self.http_address: str | None = None
        self.note: str | None = None
        self.challengers: Challengers | None = None
        self.own_models: OwnModels | None = None
        self._source = source
        self._source_status = source_status
        self._board = board
        self._statistics = statistics
        self._health = health
        self._quality = quality
        self._view = view
        self._checkpoint = checkpoint
        self._group = group
        self._clock = clock
        self._due_at_s = clock()
        self._words_due_at_s = clock()
        self._telling: dict[str, tuple[str, ...]] = {}
        self._shown = 0, 0
        self._shown_at_s = clock()
        self._words_dropped = Increase()
        self._values_dropped = Increase()
        # A snapshot, and what had been dropped by the model that answers behind it.
        self._takes_over = self._took_over = (0, 0, 0)
        self._n_restarts = 0
        self._was_up = False
        self._was_lost = False
        self._rate_per_s = 0.0
        self._time_ms = time_ms
        self._n_alarms: int | None = None  # as the history knows them, like the promotions
        self._n_promotions: int | None = None
        self._save_at_s = clock() + SAVE_INTERVAL_S
        self._is_unsaved = False  # as the last write failed
        self._history = self._restored_history()
        self._ended = threading.Event()
        self._reporting = threading.Lock()
        self._ranking = threading.Lock()
        self._stop_timeout_s = stop_timeout_s
        self._is_left = False  # the thread ranks features still, and the run ends without it
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    def start(self) -> None:
        """Start the reporting thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and save the history; `update` still reports.

        A thread that ranks features is waited for as long as the run's end may take, and no longer.
        """
        self._ended.set()
        if self._thread.ident is not None and not self._is_left:
            self._thread.join(self._stop_timeout_s)
            self._is_left = self._thread.is_alive()
        self._save_history()

    def watch(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._ended.wait(UPDATE_INTERVAL_S):
                self.update(force=True)
            self._rank_features()  # a short run has not had the time
        except BaseException as error:  # noqa: BLE001 -- it comes out of `watch`, on the thread that ends the run
            self._failure = error

    def resume_from(self, words_dropped: int, values_dropped: int) -> None:
        """Count words and values dropped from a restored model's totals on."""
        self._words_dropped = Increase(words_dropped)
        self._values_dropped = Increase(values_dropped)

    def follow(self, model: NaiveBayes) -> None:
        """Count on from what a model has dropped by now, which serves from the next snapshot on."""
        shown = self._board.current()
        version = 0 if shown is None else shown.version
        self._takes_over = version, model.words_dropped, values_dropped(model.state)

    def update(self, *, force: bool = False) -> None:
        """Report, if it is due."""
        if self._clock() < self._due_at_s and not force:
            return
        self._rank_features()
        if self._is_left and threading.current_thread() is self._thread:
            return
        # At the start the run's own thread reports beside this one; it would draw an older status
        # over a newer, and count what was dropped twice.
        with self._reporting:
            self._report(self._clock())

    def _rank_features(self) -> None:
        """Look up the features that speak for each class, if it is time and no thread does.

        Of many classes that takes seconds, and no report of another thread waits for it. The run's
        end does none on its own thread, which could not leave it.
        """
        is_over = self._ended.is_set() and self._thread.ident is not None
        if is_over and threading.current_thread() is not self._thread:
            return
        if not self._ranking.acquire(blocking=False):
            return
        try:
            snapshot, now_s = self._board.current(), self._clock()
            if snapshot is None or now_s < self._words_due_at_s:
                return
            self._quality.set_top_features(top_features(snapshot.state, FEATURES_RANKED))
            took_s = self._clock() - now_s
            self._words_due_at_s = now_s + max(WORDS_INTERVAL_S, took_s / WORDS_SHARE_MAX)
            self._telling = {
                label: tuple(each.feature for each in features)
                for label, features in self._quality.report().telling.items()
            }
        finally:
            self._ranking.release()

    def _report(self, now_s: float) -> None:
        self._due_at_s = now_s + UPDATE_INTERVAL_S
        snapshot = self._board.current()
        self._count_restart(up=self._source_status().trouble is None)
        self._rate_per_s = self._statistics.rate_per_s()
        if snapshot is not None:
            self._take_in(snapshot, now_s)
        status = self._status_of_run()
        self._quality.update(snapshot, now_s, self._statistics.predicted_counts())
        self._note_history(status, now_s)
        self._view.update(status)

    def _note_history(self, status: Status, now_s: float) -> None:
        """Have the history know how things stand, and what happened since it was told last."""
        window = self._quality.report().prequential.window
        n_alarms = None if status.drift is None else status.drift.n_alarms
        others = self.challengers
        if status.n_examples is not None:  # before, what the checkpoint knows is not there yet
            n_promotions = 0 if others is None else others.n_promotions
            if self._n_alarms is not None and (n_alarms or 0) > self._n_alarms:
                self._history.happened("drift")
            if others and self._n_promotions is not None and n_promotions > self._n_promotions:
                self._history.happened(f"promotion of {others.serving}")
            self._n_alarms, self._n_promotions = n_alarms or 0, n_promotions
        point = Point(
            self._time_ms(), window.accuracy, window.log_loss, window.calibration_error,
            status.rate_per_s, status.lag_total, window.n, n_alarms,
            *self._statistics.covered.figures(), (), *self._statistics.covered.interval(),
        )  # fmt: skip
        self._history.update(now_s, point)
        self._quality.set_history(self._history.points())
        if now_s >= self._save_at_s:
            self._save_at_s = now_s + SAVE_INTERVAL_S
            self._save_history()

    def _restored_history(self) -> History:
        """Return the history of the runs before, or an empty one."""
        history, folder, path = History(), self._checkpoint.own_folder, self._checkpoint.path
        if folder is None or path is None:
            return history
        try:
            history.unpack(read_regular(folder / HISTORY_NAME, HISTORY_BYTES_MAX))
        except FileNotFoundError:
            return history
        except (OSError, ValueError) as error:
            log.warning(
                "model_history_unreadable",
                path=str(path.with_name(HISTORY_NAME)),
                detail=f"{error}; the charts of the model begin with this run",
            )
            return history
        history.happened("restart")
        return history

    def _save_history(self) -> None:
        """Write the history, unless the folder has moved; a failure is said once."""
        folder, path = self._checkpoint.own_folder, self._checkpoint.path
        if folder is None or path is None or self._checkpoint.is_moved():
            return
        try:
            replace_private(folder / HISTORY_NAME, self._history.pack())
        except OSError as error:
            if not self._is_unsaved:
                log.warning(
                    "model_history_unsaved",
                    path=str(path.with_name(HISTORY_NAME)),
                    detail=f"{error}; it is tried again each minute, and nothing else waits for it",
                )
            self._is_unsaved = True
        else:
            self._is_unsaved = False

    def _count_restart(self, *, up: bool) -> None:
        """Count a source that can be read again after it was lost."""
        self._n_restarts += up and self._was_lost
        self._was_lost = self._was_up and not up
        self._was_up = self._was_up or up

    def _take_in(self, snapshot: Snapshot, now_s: float) -> None:
        # In a group one of the same version may know more.
        if (shown := (snapshot.version, snapshot.n_examples)) != self._shown:
            self._shown, self._shown_at_s = shown, now_s
            next_one = self._takes_over  # another thread's
            if next_one is not self._took_over and snapshot.version > next_one[0]:
                self._words_dropped.total, self._values_dropped.total = next_one[1:]
                self._took_over = next_one
            self._words_dropped.update(snapshot.words_dropped)
            self._values_dropped.update(values_dropped(snapshot.state))
            self._health.set_ready(snapshot.version)

    def status(self) -> Status:
        """Return the daemon's status as it is now; any thread may ask."""
        return replace(
            self._status_of_run(),
            challengers=None if self.challengers is None else self.challengers.report(),
            per=None if self.own_models is None else self.own_models.report(),
        )

    def _status_of_run(self) -> Status:
        """Return the status without figures of several models, which no view shows.

        They are taken over windows: those of five models cost as much as all else of a report.
        """
        snapshot = self._board.current()
        group = GroupStatus() if self._group is None else self._group.status()
        return replace(
            build_status(
                self._source, self._statistics, self._quality, snapshot, self._source_status()
            ),
            rate_per_s=self._rate_per_s,
            snapshot_age_s=self._clock() - self._shown_at_s if snapshot else None,
            checkpoint_age_s=self._checkpoint.age_s(),
            http_address=self.http_address,
            telling=self._telling,
            note=self.note,
            n_restarts=self._n_restarts,
            new_words_dropped=self._words_dropped.since_start,
            new_values_dropped=self._values_dropped.since_start,
            health=self._health.report(),
            parts={} if self._group is None else {"own": group.n_own, "other": group.n_others},
            oldest_part_s=group.oldest_s,
            n_damaged_parts=group.n_damaged,
            n_missing_parts=0 if self._group else self._source_status().n_elsewhere,
        )

    def summary(self, reason: str, positions: Mapping[Partition, int]) -> Summary:
        """Return what the run did."""
        statistics = self._statistics
        snapshot, seen = self._board.current(), self._source_status()
        return Summary(
            source=self._source,
            messages=statistics.n_messages,
            learned=statistics.n_learned,
            learned_late=statistics.n_learned_late,
            judged=statistics.n_judged,
            deletions=statistics.outcomes["delete"],
            superseded=statistics.outcomes["superseded"],
            rejected=dict(statistics.rejected),
            ignored=dict(statistics.ignored),
            ambiguous=statistics.outcomes["ambiguous"],
            lost=seen.lost_messages,
            gaps=seen.gaps,
            accuracy=statistics.prequential.accuracy,
            log_loss=statistics.prequential.log_loss,
            vocabulary_size=snapshot.vocabulary_size if snapshot else 0,
            words_dropped=snapshot.words_dropped if snapshot else 0,
            n_features=n_features(snapshot.state) if snapshot else 0,
            classes=tuple(statistics.classes),
            class_counts=tuple(snapshot.class_counts.tolist()) if snapshot else (),
            positions={str(partition): at for partition, at in positions.items()},
            seconds=statistics.elapsed_s,
            messages_per_s=statistics.mean_rate_per_s(),
            snapshot_version=snapshot.version if snapshot else 0,
            exit_reason=reason,
            checkpoint=None if self._checkpoint.path is None else str(self._checkpoint.path),
            late_labels={name: n for name in LATE_LABELS if (n := statistics.labels.get(name, 0))},
        )
