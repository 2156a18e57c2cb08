"""Tells metrics, health and the screen how the run stands, a few times a second.

It does so on a thread of its own: what it gathers, such as the most telling of a million words,
takes longer than the consuming thread can spare. All that it reads are single references and
figures that one thread writes; two figures in one status may be a batch apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from consumers.messages import Partition
from consumers.monitoring.health import Health
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.quality import Quality
from consumers.monitoring.stats import Tally
from consumers.monitoring.status import Status, Summary
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.reader import SourceStatus
from consumers.terminal import View
from streamnb import Snapshot, SnapshotBoard
from streamnb.inspection.summary import n_features, top_features, values_dropped

UPDATE_INTERVAL_S = 0.25
WORDS_INTERVAL_S = 2.0
WORDS_SHARE_MAX = (
    0.01  # of the time: a pass over 10⁶ words takes 100 ms, and learning needs the core
)
FEATURES_SHOWN = 12


class Reporter:
    """Gathers what the rooms know into a `Status`.

    Parameters
    ----------
    source : str
        The source's name.
    source_status : callable
        Returns the status of the source after its last poll.
    board : SnapshotBoard
    tally : Tally
    metrics : Metrics
    health : Health
    quality : Quality
    view : View
    checkpoint : Checkpoint
    clock : callable
        Monotonic seconds.

    Attributes
    ----------
    latest : Status
        What was reported last; for whoever asks in between.
    http_address : str or None
        Where the page is served.
    note : str or None
        What the start is at.
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- it gathers from every room
        self,
        source: str,
        source_status: Callable[[], SourceStatus],
        board: SnapshotBoard,
        tally: Tally,
        metrics: Metrics,
        health: Health,
        quality: Quality,
        view: View,
        checkpoint: Checkpoint,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.latest = Status(source=source)
        self.http_address: str | None = None
        self.note: str | None = None
        self._source = source
        self._source_status = source_status
        self._board = board
        self._tally = tally
        self._metrics = metrics
        self._health = health
        self._quality = quality
        self._view = view
        self._checkpoint = checkpoint
        self._clock = clock
        self._due_at_s = clock()
        self._words_due_at_s = clock()
        self._telling: dict[str, tuple[str, ...]] = {}
        self._shown_version = 0
        self._shown_at_s = clock()
        self._n_lost = 0
        self._was_up = False
        self._was_lost = False
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    def start(self) -> None:
        """Report on a thread of its own from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End that thread; whoever stopped it may report again."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def watch(self) -> None:
        """Raise what ended the thread, where something did."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._ended.wait(UPDATE_INTERVAL_S):
                self.update(force=True)
        except BaseException as error:  # noqa: BLE001 -- it comes out of `watch`, on the thread that ends the run
            self._failure = error

    def update(self, *, force: bool = False) -> None:
        """Report, where it is due."""
        now_s = self._clock()
        if now_s < self._due_at_s and not force:
            return
        self._due_at_s = now_s + UPDATE_INTERVAL_S
        snapshot = self._board.current()
        seen = self._source_status()
        self._metrics.set_decoder(seen.decoder)
        self._metrics.set_lag(seen.lag)
        self._note_source(up=seen.trouble is None)
        self._metrics.count_lost(seen.lost_messages - self._n_lost)
        self._n_lost = seen.lost_messages
        if snapshot is not None:
            self._take_in(snapshot, now_s)
        self.latest = self._status(snapshot, seen, now_s)
        self._quality.update(self.latest, snapshot, now_s, self._tally.predicted_counts())
        self._view.update(self.latest)

    def _note_source(self, *, up: bool) -> None:
        """Show whether the source can be read, and count it when it is found again."""
        self._metrics.set_source_up(up)
        if up and self._was_lost:
            self._metrics.count_restarts()
        self._was_lost = self._was_up and not up
        self._was_up = self._was_up or up

    def _take_in(self, snapshot: Snapshot, now_s: float) -> None:
        if snapshot.version != self._shown_version:
            self._shown_version, self._shown_at_s = snapshot.version, now_s
            self._metrics.set_snapshot(
                snapshot.version,
                snapshot.vocabulary_size,
                snapshot.words_dropped,
                n_features(snapshot),
                values_dropped(snapshot),
            )
            self._health.set_ready(snapshot.version)
        if now_s >= self._words_due_at_s:
            told = top_features(snapshot, FEATURES_SHOWN)
            self._quality.tell(told)
            took_s = self._clock() - now_s
            self._words_due_at_s = now_s + max(WORDS_INTERVAL_S, took_s / WORDS_SHARE_MAX)
            self._telling = {
                str(label): tuple(name for name, _ in features) for label, features in told.items()
            }

    def _status(
        self,
        snapshot: Snapshot | None,
        seen: SourceStatus,
        now_s: float,
    ) -> Status:
        tally = self._tally
        prequential = tally.prequential
        return Status(
            source=self._source,
            classes=tally.classes,
            trouble=seen.trouble,
            n_messages=tally.n_messages,
            n_learned=tally.n_learned,
            n_judged=tally.n_judged,
            n_rejected=tally.rejected.total(),
            rate_per_s=tally.rate_per_s(),
            lag_total=sum(seen.lag.values()) if seen.lag else None,
            shares=tally.shares(),
            accuracy=prequential.accuracy,
            log_loss=prequential.log_loss,
            window_accuracy=prequential.window_accuracy,
            window_log_loss=prequential.window_log_loss,
            vocabulary_size=snapshot.vocabulary_size if snapshot else 0,
            words_dropped=snapshot.words_dropped if snapshot else 0,
            n_features=n_features(snapshot) if snapshot else 0,
            snapshot_version=snapshot.version if snapshot else 0,
            snapshot_age_s=now_s - self._shown_at_s if snapshot else None,
            checkpoint_age_s=self._checkpoint.age_s(),
            http_address=self.http_address,
            newest=tuple(tally.newest),
            telling=self._telling,
            elapsed_s=tally.elapsed_s,
            note=self.note,
        )

    def summary(self, reason: str, positions: Mapping[Partition, int]) -> Summary:
        """Return what the run did."""
        tally = self._tally
        snapshot = self._board.current()
        return Summary(
            source=self._source,
            messages=tally.n_messages,
            learned=tally.n_learned,
            judged=tally.n_judged,
            deletions=tally.n_deleted,
            rejected=dict(tally.rejected),
            ambiguous=tally.n_ambiguous,
            accuracy=tally.prequential.accuracy,
            log_loss=tally.prequential.log_loss,
            vocabulary_size=snapshot.vocabulary_size if snapshot else 0,
            words_dropped=snapshot.words_dropped if snapshot else 0,
            n_features=n_features(snapshot) if snapshot else 0,
            classes=tally.classes,
            class_counts=tuple(snapshot.class_counts.tolist()) if snapshot else (),
            positions={str(partition): at for partition, at in positions.items()},
            seconds=tally.elapsed_s,
            messages_per_s=tally.mean_rate_per_s(),
            snapshot_version=snapshot.version if snapshot else 0,
            exit_reason=reason,
            checkpoint=None if self._checkpoint.path is None else str(self._checkpoint.path),
        )
