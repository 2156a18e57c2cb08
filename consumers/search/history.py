"""History: how many messages of each class came by minute, hour and day, all of them counted.

- What: every message that was judged, by its likeliest class, whether the store samples it or not.
- When: the minute in which it came, by this computer's clock; hours and days are those of UTC.
- Where: beside the newest messages in their file, one row a step, of one number a class.
- How much: the newest steps that have messages, so many of each length; no text, no id.
- Exactly once: the highest offset counted of each partition is written in the same transaction,
  and what comes again after a restart lies below it. Labelled messages and others are judged on
  different threads, and have an offset each. Only what came in the last moment before a checkpoint
  is lost, by a kill right after it. A recreated topic counts once its offsets pass the old ones.
- A deletion takes a message out of its counts if it is held, and once, however often it comes:
  the places of the newest of these are remembered. Messages not held stay counted, as a number.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import structlog
from msgspec import field
from numpy.typing import NDArray

from consumers.messages import NO_LABEL, Messages, Partition
from consumers.monitoring.prequential import predicted_classes
from consumers.process import watch_cache

log = structlog.get_logger(__name__)

STEPS_S = {"minute": 60, "hour": 3_600, "day": 86_400}
POINTS_MAX = 3_000  # of one answer
_FINE_POINTS_MAX = 1_500  # as many as a step that nobody chose may have
_TAKEN_OUT_MAX = 50_000  # removed messages that are remembered, as they may come again
_EARLY_MAX = 2_000_000  # messages that wait for the file to be opened for the first time
Stretch: TypeAlias = tuple[Partition, bool]  # a partition's messages with a label, or those without
Longs: TypeAlias = NDArray[np.int64]  # by class


class Uncounted(msgspec.Struct):
    """Counts that are not yet in the file, and how far each partition was counted for them."""

    by_minute: dict[int, Longs] = field(default_factory=dict)  # its beginning in Unix seconds
    highest: dict[Stretch, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_minute or self.highest)

    def add(self, minute_s: int, counts: Longs) -> None:
        """Count messages of a minute."""
        known = self.by_minute.get(minute_s)
        self.by_minute[minute_s] = counts if known is None else _sum(known, counts)


class _EarlyBatch(msgspec.Struct, frozen=True):
    partition: Partition
    offsets: NDArray[np.int64]  # increasing
    is_labelled: NDArray[np.bool_]
    judged: NDArray[np.int64]
    minute_s: int


class MessageCounter:
    """Counts messages as they are judged, on any thread, until the store's thread writes them.

    `steps_max` says how many steps the file keeps, by their length in seconds.
    Until `begin` says how far a file was counted they wait, for they may come again.
    """

    def __init__(self, steps_max: Mapping[int, int]) -> None:
        self.steps_max = steps_max
        self._lock = threading.Lock()
        self._new = Uncounted()
        self._highest: dict[Stretch, int] = {}
        self._early: list[_EarlyBatch] | None = []
        self._n_early = 0
        self._n_uncounted = 0
        watch_cache("early_messages", self._fill)

    def add(
        self,
        messages: Messages,
        rows: NDArray[np.int64],
        log_posteriors: NDArray[np.float64],
        arrived_ms: int,
    ) -> None:
        """Count messages, given as `RecentStore.offer` takes them."""
        offsets, labels = messages.offsets, messages.labels
        if len(rows) < len(messages):
            offsets, labels = offsets[rows], labels[rows]
        batch = _EarlyBatch(
            messages.partition,
            offsets,
            labels != NO_LABEL,
            predicted_classes(log_posteriors),
            arrived_ms // 60_000 * 60,
        )
        with self._lock:
            if self._early is None:
                self._count(batch)
            elif self._n_early < _EARLY_MAX:
                self._early.append(batch)
                self._n_early += len(rows)
            else:
                self._n_uncounted += len(rows)

    def _fill(self) -> tuple[int, int]:
        return self._n_early, _EARLY_MAX

    def begin(self, counted: Mapping[Stretch, int]) -> None:
        """Count behind what a file has counted; the file is told how far others went as well."""
        with self._lock:
            for stretch, offset in counted.items():
                self._highest[stretch] = max(offset, self._highest.get(stretch, -1))
            early, self._early, self._n_early = self._early or (), None, 0
            for batch in early:
                self._count(batch)
            if self._n_uncounted:
                log.warning(
                    "history_incomplete",
                    detail=f"{self._n_uncounted} messages came before recent.db was open, beyond "
                    f"the {_EARLY_MAX} that may wait; the page's history lacks them",
                )
                self._n_uncounted = 0
            self._new.highest = dict(self._highest)

    def take(self) -> Uncounted:
        """Return what is to be written."""
        with self._lock:
            taken, self._new = self._new, Uncounted()
        return taken

    def put_back(self, taken: Uncounted) -> None:
        """Keep what could not be written for the next time."""
        with self._lock:
            for minute_s, counts in taken.by_minute.items():
                self._new.add(minute_s, counts)
            self._new.highest = taken.highest | self._new.highest

    def _count(self, batch: _EarlyBatch) -> None:
        has_both = bool(batch.is_labelled.any()) and not batch.is_labelled.all()
        for is_labelled in (False, True) if has_both else (bool(batch.is_labelled.any()),):
            stretch = (batch.partition, is_labelled)
            highest = self._highest.get(stretch, -1)
            # Offsets increase: what is new is the rest of the batch, mostly all of it.
            begin = int(np.searchsorted(batch.offsets, highest, side="right"))
            offsets, judged = batch.offsets[begin:], batch.judged[begin:]
            if has_both:
                own = batch.is_labelled[begin:] == is_labelled
                offsets, judged = offsets[own], judged[own]
            if not len(offsets):
                continue
            self._new.add(batch.minute_s, np.bincount(judged).astype(np.int64, copy=False))
            self._highest[stretch] = self._new.highest[stretch] = int(offsets[-1])


class CountsOverTime(msgspec.Struct, frozen=True):
    """Counts over time: `counts[i, k]` messages of class k came in the step from `begins_s[i]`."""

    step_s: int
    kept_from_s: int | None  # before it steps of this length are no longer known; None: all are
    begins_s: Sequence[int]  # ascending, of the steps that have messages
    counts: Sequence[Sequence[int]]


# ---- in the file ---------------------------------------------------------------------------------


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables that are there once, unless they are."""
    db.execute(
        "CREATE TABLE IF NOT EXISTS history (step_s INTEGER, begins_s INTEGER, counts BLOB,"
        " PRIMARY KEY (step_s, begins_s)) WITHOUT ROWID"
    )
    db.execute(
        "CREATE TABLE IF NOT EXISTS counted (place INTEGER, labelled INTEGER, offset INTEGER,"
        " PRIMARY KEY (place, labelled)) WITHOUT ROWID"
    )
    db.execute("CREATE TABLE IF NOT EXISTS counted_since (key INTEGER)")
    db.execute(
        "CREATE TABLE IF NOT EXISTS taken_out (place INTEGER, offset INTEGER,"
        " UNIQUE (place, offset))"
    )


def counted_since(db: sqlite3.Connection, next_key: int, *, is_on: bool) -> int:
    """Return the key from which on rows of the file have been counted, without a gap."""
    if not is_on:
        db.execute("DELETE FROM counted_since")
        return next_key
    found = db.execute("SELECT key FROM counted_since").fetchone()
    if found is None:
        db.execute("INSERT INTO counted_since VALUES (?)", (next_key,))
    return next_key if found is None else int(found[0])


def counted(db: sqlite3.Connection, partitions: Sequence[Partition]) -> dict[Stretch, int]:
    """Return how far each of the file's partitions was counted."""
    rows = db.execute("SELECT place, labelled, offset FROM counted").fetchall()
    return {(partitions[place], bool(labelled)): offset for place, labelled, offset in rows}


def write(
    db: sqlite3.Connection,
    new: Uncounted,
    place_code: Callable[[Partition], int],
    steps_max: Mapping[int, int],
) -> None:
    """Count messages in the file; of each length of a step, by seconds, so many are kept."""
    for minute_s, counts in new.by_minute.items():
        for step_s, n_max in steps_max.items():
            if _change(db, step_s, minute_s // step_s * step_s, counts):
                db.execute(
                    "DELETE FROM history WHERE step_s = ? AND begins_s <= (SELECT begins_s FROM"
                    " history WHERE step_s = ? ORDER BY begins_s DESC LIMIT 1 OFFSET ?)",
                    (step_s, step_s, n_max),
                )
    db.executemany(
        "INSERT OR REPLACE INTO counted VALUES (?, ?, ?)",
        [(place_code(part), labelled, at) for (part, labelled), at in new.highest.items()],
    )


def take_out(db: sqlite3.Connection, removed: Iterable[tuple[tuple[int, int], int, int]]) -> None:
    """Take messages out of the counts: each its place in the stream, when it came, and class.

    A place is the number of the partition and the offset, the time in ms.
    """
    less: dict[tuple[int, int], Counter[int]] = {}
    for at, arrived_ms, label in removed:
        if not db.execute("INSERT OR IGNORE INTO taken_out VALUES (?, ?)", at).rowcount:
            continue
        for step_s in STEPS_S.values():
            begins_s = arrived_ms // (1000 * step_s) * step_s
            less.setdefault((step_s, begins_s), Counter())[label] += 1
    for (step_s, begins_s), labels in less.items():
        by = np.zeros(max(labels) + 1, np.int64)
        by[list(labels)] = [-n for n in labels.values()]
        _change(db, step_s, begins_s, by, only_known=True)
    db.execute(
        "DELETE FROM taken_out WHERE rowid <= (SELECT max(rowid) FROM taken_out) - ?",
        (_TAKEN_OUT_MAX,),
    )


def _change(
    db: sqlite3.Connection, step_s: int, begins_s: int, by: Longs, *, only_known: bool = False
) -> bool:
    """Add to the counts of a step; return whether it is a new one."""
    at = (step_s, begins_s)
    found = db.execute(
        "SELECT counts FROM history WHERE step_s = ? AND begins_s = ?", at
    ).fetchone()
    if found is None and only_known:
        return False
    # A clock that was put back may have a row in another minute than the one it was counted in.
    new = by if found is None else np.maximum(_sum(np.frombuffer(found[0], "<i8"), by), 0)
    db.execute(
        "INSERT OR REPLACE INTO history VALUES (?, ?, ?)", (*at, new.astype("<i8").tobytes())
    )
    return found is None


def read(
    db: sqlite3.Connection,
    span_s: tuple[int, int],
    step: str | None,
    n_classes: int,
    steps_max: Mapping[int, int],
) -> CountsOverTime:
    """Return the steps that begin in [span_s[0], span_s[1]), the first of them rounded down.

    Of None the step is the finest that is still known since then, and makes few enough of them.
    """
    begin_s, end_s = span_s
    for step_s in STEPS_S.values() if step is None else (STEPS_S[step],):
        n, oldest_s = db.execute(
            "SELECT count(*), min(begins_s) FROM history WHERE step_s = ?", (step_s,)
        ).fetchone()
        kept_from_s = oldest_s if n >= steps_max[step_s] else None
        is_known = kept_from_s is None or kept_from_s <= begin_s
        if is_known and (end_s - begin_s) / step_s <= _FINE_POINTS_MAX:
            break
    rows = db.execute(
        "SELECT begins_s, counts FROM history WHERE step_s = ? AND begins_s >= ? AND begins_s < ?"
        " ORDER BY begins_s DESC LIMIT ?",
        (step_s, begin_s // step_s * step_s, end_s, POINTS_MAX),
    ).fetchall()
    counts = np.zeros((len(rows), n_classes), np.int64)
    for k, (_, value) in enumerate(reversed(rows)):
        own = np.frombuffer(value, "<i8")[:n_classes]  # further classes are still to join again
        counts[k, : len(own)] = own
    begins_s = [int(begins_s) for begins_s, _ in reversed(rows)]
    return CountsOverTime(step_s, kept_from_s, begins_s, counts.tolist())


def _sum(one: Longs, other: Longs) -> Longs:
    """Return the sum of counts, one of which may be from before a class joined."""
    total = np.zeros(max(len(one), len(other)), np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total
