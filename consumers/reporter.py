"""Tells metrics, health and the screen how the run stands, a few times a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from consumers.checkpoint import Checkpoint
from consumers.health import Health
from consumers.messages import Partition
from consumers.metrics import Metrics
from consumers.sources.base import Source
from consumers.status import Status, Summary
from consumers.tally import Tally
from consumers.view import View
from streamnb import Snapshot, SnapshotBoard

UPDATE_INTERVAL_S = 0.25
WORDS_INTERVAL_S = 2.0  # a pass over the vocabulary: 20 ms at 10⁶ words
WORDS_SHOWN = 12


class Reporter:
    """Gathers what the rooms know into a `Status`.

    Parameters
    ----------
    source : Source
    board : SnapshotBoard
    tally : Tally
    metrics : Metrics
    health : Health
    view : View
    checkpoint : Checkpoint
    http_address : str or None
    clock : callable
        Monotonic seconds.
    """

    def __init__(  # noqa: PLR0913 -- it gathers from every room
        self,
        source: Source,
        board: SnapshotBoard,
        tally: Tally,
        metrics: Metrics,
        health: Health,
        view: View,
        checkpoint: Checkpoint,
        *,
        http_address: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._board = board
        self._tally = tally
        self._metrics = metrics
        self._health = health
        self._view = view
        self._checkpoint = checkpoint
        self._http_address = http_address
        self._clock = clock
        self._due_at_s = clock()
        self._words_due_at_s = clock()
        self._words: dict[str, tuple[str, ...]] = {}
        self._shown_version = 0
        self._shown_at_s = clock()
        self._n_lost = 0
        self._was_up = False
        self._was_lost = False

    def update(self, *, force: bool = False) -> None:
        """Report, where it is due."""
        now_s = self._clock()
        if now_s < self._due_at_s and not force:
            return
        self._due_at_s = now_s + UPDATE_INTERVAL_S
        snapshot = self._board.current()
        trouble = self._source.trouble()
        lag = self._source.lag()
        self._metrics.set_lag(lag)
        self._note_source(up=trouble is None)
        lost = getattr(self._source, "lost_messages", 0)
        self._metrics.count_lost(lost - self._n_lost)
        self._n_lost = lost
        if snapshot is not None:
            self._take_in(snapshot, now_s)
        self._view.update(self._status(snapshot, trouble, lag, now_s))

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
                snapshot.version, snapshot.vocabulary_size, snapshot.words_dropped
            )
            self._health.set_ready(snapshot.version)
        if now_s >= self._words_due_at_s:
            self._words_due_at_s = now_s + WORDS_INTERVAL_S
            told = snapshot.telling_words(WORDS_SHOWN, next(iter(self._tally.fields)))
            self._words = {
                str(label): tuple(word for word, _ in words) for label, words in told.items()
            }

    def _status(
        self,
        snapshot: Snapshot | None,
        trouble: str | None,
        lag: Mapping[Partition, int],
        now_s: float,
    ) -> Status:
        tally = self._tally
        prequential = tally.prequential
        return Status(
            source=self._source.name,
            classes=tally.classes,
            trouble=trouble,
            n_messages=tally.n_messages,
            n_learned=tally.n_learned,
            n_judged=tally.n_judged,
            n_rejected=tally.rejected.total(),
            rate_per_s=tally.rate_per_s(),
            lag_total=sum(lag.values()) if lag else None,
            shares=tally.shares(),
            accuracy=prequential.accuracy,
            log_loss=prequential.log_loss,
            window_accuracy=prequential.window_accuracy,
            window_log_loss=prequential.window_log_loss,
            vocabulary_size=snapshot.vocabulary_size if snapshot else 0,
            words_dropped=snapshot.words_dropped if snapshot else 0,
            snapshot_version=snapshot.version if snapshot else 0,
            snapshot_age_s=now_s - self._shown_at_s if snapshot else None,
            checkpoint_age_s=self._checkpoint.age_s(),
            http_address=self._http_address,
            newest=tuple(tally.newest),
            telling_words=self._words,
            elapsed_s=tally.elapsed_s,
        )

    def summary(self, reason: str, positions: Mapping[Partition, int]) -> Summary:
        """Return what the run did."""
        tally = self._tally
        snapshot = self._board.current()
        seconds = tally.elapsed_s
        return Summary(
            source=self._source.name,
            messages=tally.n_messages,
            learned=tally.n_learned,
            judged=tally.n_judged,
            rejected=dict(tally.rejected),
            ambiguous=tally.n_ambiguous,
            accuracy=tally.prequential.accuracy,
            log_loss=tally.prequential.log_loss,
            vocabulary_size=snapshot.vocabulary_size if snapshot else 0,
            words_dropped=snapshot.words_dropped if snapshot else 0,
            classes=tally.classes,
            class_counts=tuple(snapshot.class_counts.tolist()) if snapshot else (),
            positions={str(partition): at for partition, at in positions.items()},
            seconds=seconds,
            messages_per_s=tally.n_messages / seconds if seconds > 0 else 0.0,
            snapshot_version=snapshot.version if snapshot else 0,
            exit_reason=reason,
        )
