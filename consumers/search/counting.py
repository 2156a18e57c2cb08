"""Counts by class over rows that were found, and their series in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consumers.search.chunks import Chunk
from consumers.search.rows import Counted

POINTS_MAX = 60
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_STEPS_S = (
    1, 2, 5, 10, 15, 30,
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 30, 90, 365)),
)  # fmt: skip
_LOOKED_AT = 10_000  # times, to see where most of them lie
_FAR = 4  # times the span of the middle 98 %

Series = tuple[int, tuple[int, ...], tuple[tuple[int, ...], ...]]


@dataclass(frozen=True, slots=True)
class Picked:
    """What is counted of some rows of a chunk, as arrays of one length."""

    labels: NDArray[np.int16]
    truths: NDArray[np.int16]
    probabilities: NDArray[np.float32]
    times_ms: NDArray[np.int64]


def picked(chunk: Chunk, at: NDArray[np.int64] | slice) -> Picked:
    """Return what is counted of rows, given by their positions in a chunk.

    A row's time is the message's own or its source's; if neither is known, when it came.
    """
    columns: dict[str, Any] = chunk.columns
    times_ms = columns["time_ms"][at]
    unknown = times_ms < 0
    if unknown.any():
        times_ms = np.where(unknown, columns["arrived_ms"][at], times_ms)
    return Picked(columns["label"][at], columns["truth"][at], columns["probability"][at], times_ms)


def counted(
    parts: Sequence[Picked],
    n_classes: int,
    unsure_below: float,
    *,
    n_max: int,
    newest_only: bool,
) -> Counted:
    """Return the counts of some rows; one whose probability is below a bound counts as unsure.

    Rows of a class that is still to join again, after a kill, are left out.
    """
    parts = [_of_classes(part, n_classes) for part in parts]
    parts = [part for part in parts if len(part.labels)]
    counts = np.zeros(n_classes, np.int64)
    for part in parts:
        counts += np.bincount(part.labels, minlength=n_classes)
    step_s, times_ms, series = _series(parts, n_classes)
    return Counted(
        n=int(counts.sum()),
        n_max=n_max,
        newest_only=newest_only,
        counts=tuple(counts.tolist()),
        confusion=_confusion(parts, n_classes),
        n_unsure=sum(int(np.count_nonzero(p.probabilities < unsure_below)) for p in parts),
        step_s=step_s,
        times_ms=times_ms,
        series=series,
    )


def _of_classes(part: Picked, n_classes: int) -> Picked:
    """Return the rows whose classes are all among the first `n_classes`."""
    if max(part.labels.max(initial=0), part.truths.max(initial=0)) < n_classes:
        return part
    known = (part.labels < n_classes) & (part.truths < n_classes)
    return Picked(
        part.labels[known], part.truths[known], part.probabilities[known], part.times_ms[known]
    )


def _confusion(parts: Sequence[Picked], n_classes: int) -> tuple[tuple[int, ...], ...]:
    """Return how rows with a label were judged: row the label, column the prediction."""
    table = np.zeros(n_classes * n_classes, np.int64)
    for part in parts:
        known = part.truths >= 0
        at = part.truths[known].astype(np.int64) * n_classes + part.labels[known]
        table += np.bincount(at, minlength=len(table))
    return tuple(map(tuple, table.reshape(n_classes, n_classes).tolist()))


def _series(parts: Sequence[Picked], n_classes: int) -> Series:
    """Return the length of a step, when each begins, and counts by class of each."""
    if not parts:
        return _STEPS_S[0], (), ()
    first, last = _span([part.times_ms for part in parts])
    step_ms = _step_s((last - first) / 1000) * 1000
    begin = first // step_ms
    n_steps = last // step_ms - begin + 1
    table = np.zeros(n_steps * n_classes, np.int64)
    for part in parts:
        steps, labels = part.times_ms // step_ms - begin, part.labels
        if steps.min() < 0 or steps.max() >= n_steps:
            near = (steps >= 0) & (steps < n_steps)
            steps, labels = steps[near], labels[near]
        table += np.bincount(steps * n_classes + labels, minlength=len(table))
    by_step = table.reshape(n_steps, n_classes)
    there = np.flatnonzero(by_step.any(axis=1))
    return (
        step_ms // 1000,
        tuple(((begin + there) * step_ms).tolist()),
        tuple(map(tuple, by_step[there].tolist())),
    )


def _span(times_ms: Sequence[NDArray[np.int64]]) -> tuple[int, int]:
    """Return the first and last time to show: a single wrong clock must not make a line a dot."""
    every = 1 + sum(map(len, times_ms)) // _LOOKED_AT
    looked_at = np.concatenate([times[::every] for times in times_ms])
    low, high = map(int, np.quantile(looked_at, [0.01, 0.99], method="nearest"))
    room = _FAR * (high - low) + 1000 * POINTS_MAX
    first = min(int(times.min()) for times in times_ms)
    last = max(int(times.max()) for times in times_ms)
    if first < low - room:
        first = min(int(times[times >= low - room].min(initial=low)) for times in times_ms)
    if last > high + room:
        last = max(int(times[times <= high + room].max(initial=high)) for times in times_ms)
    return first, last


def _step_s(span_s: float) -> int:
    """Return the smallest round number of seconds that makes few enough steps of a span."""
    for step_s in _STEPS_S:
        if span_s / step_s < POINTS_MAX - 1:
            return step_s
    years = int(span_s / (_STEPS_S[-1] * (POINTS_MAX - 1))) + 1
    return _STEPS_S[-1] * years
