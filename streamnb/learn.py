"""How a model's state learns, in order, in batches, in parts, under decay; and unlearns.

A call's rows are read and checked by every group first; only then is anything learned, row by row,
each judged before it is learned.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import is_masked_array
from streamnb.decay import DecaySchedule, read_times, read_weights
from streamnb.errors import InputError
from streamnb.features.protocol import Floats
from streamnb.features.statistics import check_examples, has_short
from streamnb.features.words import WordsState
from streamnb.kernels import posterior
from streamnb.kernels.layout import TAKEN_BACK, RowUpdates
from streamnb.labels import (
    UNLABELLED,
    Codes,
    Label,
    check_label,
    new_labels,
    read_labels,
    shown_classes,
    to_indices,
)
from streamnb.likelihoods.base import Batch
from streamnb.predict import (
    BATCH_ROWS,
    Joint,
    encode,
    judge_row,
    mark_point_masses,
    read,
    run,
    run_one,
    to_columns,
)
from streamnb.priors import check
from streamnb.state import ModelState, PartState, count_learned
from streamnb.vocabulary import Vocabulary

_LABEL_TYPES = frozenset((str, int, bool))
_NUMBER_TYPES = frozenset((float, int))


def prequential_one(
    state: ModelState,
    x: Mapping[str, Any],
    y: Label,
    *,
    weight: float = 1.0,
    time_s: float | None = None,
    part: str | None = None,
) -> Floats:
    """Learn one example; return its log-posteriors from before, ndarray of shape (n_classes,)."""
    label = state.class_index.get(y) if type(y) in _LABEL_TYPES else None
    target = state.parts.get(part) if type(part) is str else None
    is_plain = type(weight) in _NUMBER_TYPES and weight == 1.0 and time_s is None
    if label is not None and is_plain and (part is None) == (target is None) == (not state.parts):
        found = run_one(state, x, label, target if len(state.parts) > 1 else None)
        if found is not None:
            state.n_examples += 1
            for group in state.groups.values():
                if group.needs_compaction():
                    state.compact()
                    break
            if target is not None:
                state.sum_parts()
            return found
    weights = None if type(weight) is float and weight == 1.0 else [check("weight", weight)]
    times_s = None if time_s is None else [time_s]
    columns = to_columns(state, x)
    every = prequential(state, columns, [y], weights=weights, times_s=times_s, part=part)
    first: Floats = impossible(every)[0]
    return first


def impossible(log_posteriors: Floats) -> Floats:
    """Return what `prequential` does, with -inf for a class that had not joined."""
    return np.where(np.isnan(log_posteriors), -np.inf, log_posteriors)


def prequential(  # noqa: PLR0913 -- a function between would be one more for each call
    state: ModelState,
    columns: Any,
    labels: Sequence[Label] | Codes,
    *,
    weights: Sequence[float] | Floats | None = None,
    times_s: Sequence[float] | Floats | None = None,
    part: str | None = None,
    encoded: EncodedRows | None = None,
    taken: NDArray[np.int8] | None = None,
    joint: list[Joint] | None = None,
) -> Floats:
    """Learn examples in order; see `NaiveBayes.prequential_many`.

    Rows that `taken` says are taken back in their place, if `takes_in_place`; classes stay. If some
    cannot be, the last rows are left: only those before have their log-posteriors in the result.
    A class that joins has nan in the rows before and in the one that brings it: see `impossible`.
    `joint` gets what the counts say of the rows before; not with a hybrid, nor with `taken`.
    """
    if encoded is None:  # no call more: of one example it would cost as much as the rest
        fields, n = read(state, columns)
        codes = read_labels(labels, n, state.classes)
        given = None if weights is None else read_weights(weights, n)
        times = None if times_s is None else read_times(times_s, n)
    else:
        fields, codes, given, times = encoded.read(state, columns, labels, weights, times_s)
        n = len(codes)
    taken = None if taken is None else _checked_taken(taken, n, encoded)
    counted = None if given is None else given > 0.0
    new = classes_to_join(state, codes, counted if taken is None else _may_join(counted, taken))
    classes = [*state.classes, *(label for _, label in new)] if new else state.classes
    indices = to_indices(codes, classes)
    if given is not None and not given.all():
        indices = np.where(given > 0, indices, np.int32(UNLABELLED))
    own_now = None if part is None or state.clock.half_life is None else _own_time(state, part)
    schedule = state.clock.schedule(indices, given, times, own_now)
    target = None if part is None and not state.parts else part_to_learn(state, part)
    encode_rows = None if encoded is None else partial(encoded.encode, given=indices)
    updates = schedule.updates
    updates = updates if taken is None else _signed(updates, taken)
    out = np.full((n, len(classes)), np.nan)
    kept = None if joint is None else Joint.unknown(n, len(classes))
    way = _Way(target, encode_rows, taken, kept)
    coming = dict(new)
    # Between two of these rows no class joins and no landmark moves.
    starts = {0}
    for row in coming:
        starts |= {row, row + 1}
    for move in schedule.moves:
        starts.add(move.row)
    for begin, end in itertools.pairwise(sorted(starts | {n}) if n else ()):
        before = _prepare_row(state, fields, begin, schedule, coming)
        reached = _learn_rows(state, fields, begin, end, updates, out, way)
        if before is not None:
            way.overwrite(begin, out, before)
        if reached < end:
            out, updates = out[:reached], updates.rows(0, reached)
            break
    _set_clocks(state, schedule, target)
    state.n_examples += count_learned(updates)
    if state.parts:
        state.sum_parts()
    if joint is not None and kept is not None:
        joint.append(kept)
    return out


def _set_clocks(state: ModelState, schedule: DecaySchedule, part: PartState | None) -> None:
    """Bring the counts to the last landmark, and the clocks to the newest times."""
    for move in schedule.moves:
        state.rescale(move.factor)
    state.clock = schedule.clock
    if part is not None:
        part.now = schedule.own_now


def _own_time(state: ModelState, part: Any) -> float | None:
    """Return a part's newest time, nan if it has learned nothing; None where the model's does."""
    if [*state.parts] in ([], [part]) or not state.learns_in_order:
        return None
    now = state.parts[part].now if part in state.parts else None
    return math.nan if now is None else now


class _Way(NamedTuple):
    """How rows are learned: in which part too, encoded by what, and which are taken back instead.

    What encodes in the place of `predict.encode` is never asked to read ahead. `joint` keeps what
    the counts say of each row, if that is wanted.
    """

    part: PartState | None
    encode_rows: Callable[..., list[Any]] | None
    taken: NDArray[np.int8] | None
    joint: Joint | None

    def overwrite(self, row: int, out: Floats, before: tuple[Floats, Joint]) -> None:
        """Write what was said of a row before a class joined or a landmark moved there."""
        stated, joint = before
        out[row] = np.nan
        out[row, : stated.shape[1]] = stated
        if self.joint is not None:
            self.joint.put(row, joint)


def _checked_taken(taken: Any, n: int, encoded: EncodedRows | None) -> NDArray[np.int8]:
    """Return which of `n` rows are taken back, or say what is wrong with it."""
    if encoded is not None:
        # What is taken back goes without words that have left this model, not the others.
        raise InputError("encoded and taken do not go together: leave out encoded.")
    if not isinstance(taken, np.ndarray) or is_masked_array(taken) or taken.dtype.kind not in "iu":
        raise InputError(f"taken must be an array of whole numbers. Got {taken!r} instead.")
    if taken.shape != (n,):
        raise InputError(f"there are {n} examples, and taken has shape {taken.shape}.")
    if n and not LEARNED <= taken.min() <= taken.max() <= OWN:
        at = int(((taken < LEARNED) | (taken > OWN)).argmax())
        raise InputError(
            f"taken[{at}] must be {LEARNED} (it is learned), {EARLIER} or {OWN} (it is taken back)."
            f" Got {taken[at]!r} instead."
        )
    return taken.astype(np.int8, copy=False)


def _may_join(counted: NDArray[np.bool_] | None, taken: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return which rows may bring a class, of those that count if some do not."""
    learned: NDArray[np.bool_] = taken == LEARNED
    return learned if counted is None else learned & counted


def _signed(updates: RowUpdates, taken: NDArray[np.int8]) -> RowUpdates:
    """Return updates by whose weights the kernels tell what is taken back: negative ones."""
    return updates._replace(weights=np.where(taken == LEARNED, updates.weights, -updates.weights))


class _Inputs(NamedTuple):
    """What a call brings, checked: each group's fields, and labels, weights and times of rows."""

    fields: dict[str, Any]
    codes: Codes
    weights: Floats | None
    times_s: Floats | None


def _read_inputs(
    state: ModelState, columns: Any, labels: Any, weights: Any, times_s: Any
) -> _Inputs:
    fields, n = read(state, columns)
    codes = read_labels(labels, n, state.classes)
    return _Inputs(fields, codes, read_weights(weights, n), read_times(times_s, n))


def _prepare_row(
    state: ModelState,
    fields: Mapping[str, Any],
    row: int,
    schedule: DecaySchedule,
    coming: Mapping[int, Label],
) -> tuple[Floats, Joint] | None:
    """Move the landmark and add the class that a row brings, if it does either.

    Then return what was said of the row before: after a long silence little of what was known may
    outlive the move, and a new class is not among those that the row is predicted by. A move that
    the rows before made due changes none: a call of them alone ends so.
    """
    while schedule.moves and schedule.moves[0].row <= row and schedule.moves[0].was_due:
        state.rescale(schedule.moves.pop(0).factor)
    # At most one is left, as the row leaps to its own time at once.
    is_moving = bool(schedule.moves) and schedule.moves[0].row <= row
    if not is_moving and row not in coming:
        return None
    scale = schedule.moves[0].scale if is_moving else float(schedule.updates.scales[row])
    before = judge_row(state, fields, row, scale)
    if is_moving:
        state.rescale(schedule.moves.pop(0).factor)
    if row in coming:
        state.add_class(coming[row])
    return before


def _learn_rows(
    state: ModelState,
    fields: Mapping[str, Any],
    begin: int,
    end: int,
    updates: RowUpdates,
    out: Floats,
    way: _Way,
) -> int:
    """Learn rows between which nothing else happens; write their log-posteriors from before.

    Return the row it came to: one before `end` if what is behind it cannot be taken back.
    """
    part, encode_rows, taken, joint = way
    n_classes = len(state.classes)
    if state.n_threads > 1 and encode_rows is None and taken is None:
        size = BATCH_ROWS // state.n_threads**2  # small pieces keep both threads busy
        # Closed whatever happens: no thread may still be reading when the next call learns.
        with contextlib.closing(_read_ahead(state, fields, begin, end, size, updates)) as pieces:
            for first, last, batches in pieces:
                own = updates.rows(first, last)
                kept = None if joint is None else joint.rows(first, last)
                out[first:last, :n_classes] = learn_batches(state, batches, own, part, kept)
        return end
    for first in range(begin, end, BATCH_ROWS):
        last = min(first + BATCH_ROWS, end)
        own, own_taken = updates.rows(first, last), None if taken is None else taken[first:last]
        if encode_rows is not None:
            batches = encode_rows(state, fields, first, last, labels=own.labels)
        else:
            labels = own.labels
            if own_taken is not None:
                labels = np.where(own.weights < 0.0, np.int32(TAKEN_BACK), labels)
            batches = encode(state, fields, first, last, labels, learn=True)
        if own_taken is not None and not _holds(state, batches, own, own_taken, part):
            return first
        kept = None if joint is None else joint.rows(first, last)
        out[first:last, :n_classes] = learn_batches(state, batches, own, part, kept)
        if own_taken is not None:
            for group, batch in zip(state.groups.values(), batches, strict=True):
                group.n_skipped += _n_left_out(batch)
        state.compact()
    return end


# ---- taking back among what is learned -----------------------------------------------------------

# What `taken` says of a row: LEARNED, it is; EARLIER, it takes back an example from before a call;
# OWN, one that was learned in this call or since the last check, and so is surely still counted.
LEARNED, EARLIER, OWN = range(3)


def takes_in_place(state: ModelState) -> bool:
    """Return whether `prequential` can take rows back among those that it learns."""
    groups = state.groups.values()
    return state.clock.half_life is None and all(group.takes_in_place for group in groups)


def _holds(
    state: ModelState,
    batches: Sequence[Any],
    updates: RowUpdates,
    taken: NDArray[np.int8],
    part: PartState | None,
) -> bool:
    """Return whether encoded rows can be taken back now, and so whatever is learned before them."""
    labels = np.where(taken == EARLIER, updates.labels, np.int32(UNLABELLED))
    weights = np.abs(updates.weights)
    held = state.class_counts if part is None else part.class_counts
    if not takes_in_place(state) or has_short(held, labels, weights):
        return False
    return all(
        group.holds(batch, labels, weights, None if part is None else part.groups[name])
        for (name, group), batch in zip(state.groups.items(), batches, strict=True)
    )


def _n_left_out(batch: Batch) -> int:
    """Return how many words rows that were taken back went without, as they had left."""
    return int(np.count_nonzero(batch.rows.columns[: batch.rows.indptr[-1]] < 0))


class EncodedRows:
    """What one model encoded of a call's rows, for others that share its vocabularies.

    The models learn the same columns, labels, weights and times, one after the other. One that cuts
    the rows at other places, or has moved to another vocabulary meanwhile, encodes for itself.
    """

    def __init__(self) -> None:
        self._batches: dict[tuple[int, int, int], tuple[Vocabulary, Any]] = {}
        self._inputs: dict[tuple[Any, ...], _Inputs] = {}

    def read(
        self, state: ModelState, columns: Any, labels: Any, weights: Any, times_s: Any
    ) -> _Inputs:
        """Return the call's inputs; models that read the same fields of text share them.

        A model that forgets nothing may be given no times.
        """
        words = [(name, each) for name, each in state.groups.items() if type(each) is WordsState]
        if len(words) < len(state.groups) or not isinstance(labels, Codes):
            return _read_inputs(state, columns, labels, weights, times_s)
        key = times_s is None, *((name, each.field) for name, each in words)
        if key not in self._inputs:
            self._inputs[key] = _read_inputs(state, columns, labels, weights, times_s)
        return self._inputs[key]

    def encode(
        self, state: ModelState, fields: Mapping[str, Any], begin: int, end: int,
        given: NDArray[np.int32], labels: NDArray[np.int32],
    ) -> list[Any]:  # fmt: skip
        """Return rows `begin` to `end` as each group's batch, to be learned; see `predict.encode`.

        `given` are all of the call's labels, by which words enter: a row so old that one model
        learns nothing of it may teach another.
        """
        batches = []
        for name, group in state.groups.items():
            if not isinstance(group, WordsState):
                batches.append(group.encode(fields[name], begin, end, labels, learn=True))
                continue
            # The vocabulary is kept, so that no other gets its identity during the call.
            key = id(group.vocabulary), begin, end
            if key not in self._batches:
                batch = group.encode(fields[name], begin, end, given[begin:end], learn=True)
                self._batches[key] = group.vocabulary, batch
            else:
                group.read_kinds()  # the one that encoded may have no hybrid
            batches.append(self._batches[key][1])
        return batches


def _read_ahead(
    state: ModelState,
    fields: Mapping[str, Any],
    begin: int,
    end: int,
    size: int,
    updates: RowUpdates,
) -> Generator[tuple[int, int, list[Any]], None, None]:
    """Yield the batches of each piece; a second thread reads the next while one is learned.

    Reading gives columns to words, learning counts by columns: neither touches what the other
    writes. Only a new table would pull the columns away from under a piece that has been read, so
    nothing is read ahead if one is due. Nobody learns while the first piece is read, so it is
    small; the next ones double, up to `size`, as learning takes longer than reading.
    """

    def encode_from(first: int, n: int) -> tuple[int, int, list[Any]]:
        last = min(first + n, end)
        labels = updates.labels[first:last]
        return first, last, encode(state, fields, first, last, labels, learn=True)

    with ThreadPoolExecutor(1, "streamnb-read-ahead") as pool:  # its thread starts when used
        coming: Future[tuple[int, int, list[Any]]] | None = None
        first, n = begin, max(1, size // 8)
        while first < end:
            piece = encode_from(first, n) if coming is None else coming.result()
            coming, first, n = None, piece[1], min(2 * n, size)
            if first < end and not any(group.needs_compaction() for group in state.groups.values()):
                coming = pool.submit(encode_from, first, n)
            yield piece
            if coming is None:
                state.compact()


def learn_batches(
    state: ModelState,
    batches: Sequence[Any],
    updates: RowUpdates,
    part: PartState | None,
    kept: Joint | None = None,
) -> Floats:
    """Learn encoded rows, in their part too; return their log-posteriors from before.

    `kept` takes what the counts say of them.
    """
    joint = np.empty((len(updates.labels), len(state.classes)))
    if kept is not None:
        mark_point_masses(state, batches, updates, kept.is_point)
    prior = run(state, batches, updates, joint, learn=True, part=part)
    if kept is not None:
        kept.log_likelihoods[:, : joint.shape[1]] = joint
    posterior.normalise(joint, prior)
    return joint


# ---- taking back: all is read and checked first, as if one after the other were taken back -------


def unlearn_one(
    state: ModelState,
    x: Mapping[str, Any],
    y: Label,
    *,
    weight: float = 1.0,
    time_s: float | None = None,
    part: str | None = None,
) -> None:
    """Take one example back; see `NaiveBayes.unlearn_one`."""
    label = check_label("y", 0, y)
    weight = check("weight", weight)
    if weight:  # else it taught nothing, so that not even its class or part need be known
        times_s = None if time_s is None else [time_s]
        unlearn(state, to_columns(state, x), [label], weights=[weight], times_s=times_s, part=part)


def unlearn(
    state: ModelState,
    columns: Any,
    labels: Sequence[Label] | Codes,
    *,
    weights: Sequence[float] | Floats | None = None,
    times_s: Sequence[float] | Floats | None = None,
    part: str | None = None,
) -> None:
    """Take examples back, one after the other; see `NaiveBayes.unlearn_many`."""
    fields, n = read(state, columns)
    codes = read_labels(labels, n, state.classes)
    given, times = read_weights(weights, n), read_times(times_s, n)
    if not n or (given is not None and not given.any()):
        return
    for _, label in new_labels(codes, state.class_index, None if given is None else given > 0):
        raise InputError(f"class {label!r} was never learned: there is nothing to take back.")
    target = known_part(state, part)
    indices, amounts = to_indices(codes, state.classes), state.clock.weights_at(times, n)
    if given is not None:
        amounts = given * amounts
    # So long ago that nothing of it was learned, or is left.
    indices = np.where(state.clock.teaches(amounts), indices, np.int32(UNLABELLED))
    held = state.class_counts if target is None else target.class_counts
    decays = state.clock.half_life is not None
    check_examples("the class prior", indices, amounts, held, decays=decays)
    batches, n_skipped = [], []
    for name, group in state.groups.items():
        batch = group.encode_to_unlearn(fields[name], indices)
        own_part = None if target is None else target.groups[name]
        taken, skipped = group.to_unlearn(batch, indices, amounts, own_part)
        batches.append(taken)
        n_skipped.append(skipped)
    scales = np.full(n, state.clock.scale)
    updates = RowUpdates(indices, -amounts, scales, scales, scales, decays)
    learn_batches(state, batches, updates, target if len(state.parts) > 1 else None)
    for group, skipped in zip(state.groups.values(), n_skipped, strict=True):
        group.n_skipped += skipped
    state.n_examples -= int((indices >= 0).sum())
    state.sum_parts()
    state.compact()
    state.drop_empty_classes()


# ---- classes and parts ---------------------------------------------------------------------------


def classes_to_join(
    state: ModelState, codes: Codes, counted: NDArray[np.bool_] | None = None
) -> list[tuple[int, Label]]:
    """Return the labels that are no class yet, by the row that brings them, or refuse them."""
    new = new_labels(codes, state.class_index, counted)
    if new and state.is_closed:
        row, label = new[0]
        raise InputError(
            f"label {label!r} (row {row}) is none of the declared classes:"
            f" {shown_classes(state.classes)}. Correct the label, declare it in classes, or set"
            " new_classes=True to let classes join."
        )
    if new:
        state.check_classes([*state.classes, *(label for _, label in new)])
    return new


def add_class(state: ModelState, label: Any) -> None:
    """Let a class join, and declare it; see `NaiveBayes.add_class`."""
    label = check_label("classes", len(state.classes), label)
    if label not in state.class_index:
        state.check_classes([*state.classes, label])
        state.add_class(label)
    # Only the last classes ever leave: those before it stay with it. An open model stays open.
    state.new_classes |= not state.is_closed
    state.n_declared_classes = max(state.n_declared_classes, state.class_index[label] + 1)


def known_part(state: ModelState, name: Any) -> PartState | None:
    """Return the part of a name; None, without a name, for a model kept whole."""
    if name is None and state.parts:
        raise InputError(
            f"this model is kept in parts ({', '.join(state.parts)}):"
            " part must say which one is meant."
        )
    if name is not None and not (isinstance(name, str) and name in state.parts):
        raise InputError(
            f"part {name!r}: this model has no such part. It has"
            f" {', '.join(state.parts) or 'none'}."
        )
    return None if name is None else state.parts[name]


def part_to_learn(state: ModelState, name: Any) -> PartState | None:
    """Return the part to teach beside the sum, made if it is new; None if it is the sum itself."""
    if name is None or (isinstance(name, str) and name in state.parts):
        known_part(state, name)
    else:
        check_new_part(state, name)
        state.add_part(name)
    return state.parts[name] if len(state.parts) > 1 else None


def check_new_part(state: ModelState, name: Any) -> None:
    """Refuse a part that the model cannot have."""
    if not isinstance(name, str):
        raise InputError(f"part must be a str. Got {name!r} ({type(name).__name__}) instead.")
    # Fewer examples may have come than were taken back: then their weights alone are left.
    if not state.parts and (state.n_examples or state.class_counts.any()):
        raise InputError(
            f"part {name!r}: this model has learned as a whole,"
            " and cannot be cut into parts any more."
        )
    half_life = state.clock.half_life
    if half_life is not None and half_life.examples is not None:
        raise InputError(
            f"part {name!r}: a half-life in examples is one of all examples together, and a"
            " part is a function of its own. Take a half-life in seconds."
        )
