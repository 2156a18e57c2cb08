"""Adding models up, and taking one away from another.

Counts add exactly and in any order, as long as no word was dropped; means and variances by Chan's
formula, to rounding. Vocabularies and fields that differ are brought together by name, classes by
label (in the order of the first model, then of the second). Classes that either model declares
join; if the first is closed (`new_classes`), one that the other merely learned is refused, as it
would be if an example brought it. What depends on order has this meaning:

* **Dropping**: the sum holds what both held; if that passes a vocabulary's bound, words leave by
  the usual rule.
* **A class prior with a half-life**: the recent examples of both add up, exactly and in any order,
  as if both streams had ended at the same moment. Subtracting leaves of each class's as large a
  share as of its counts, as unlearning does.
* **Decay**: with a half-life in seconds the sum is what one model would have learned from both
  streams, for an example's weight depends on its own time alone. With one in examples each model
  enters as it stands, as if both streams had ended at the same moment.

Models of different hash keys meet by the texts of their words and values: the other is brought to
the first one's key. Subtracting takes away what was added. A model that was kept in parts enters
whole.

Models that learn the same examples side by side may share the vocabularies of words that they read
alike (`share_words`): counts stay apart.

A part of a model can be taken out as a model of its own, put into another model, or dropped: so a
log's counts move with the log from process to process, and a slice of a stream can be taken away.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from streamnb.decay import Clock
from streamnb.errors import InputError, check_kind
from streamnb.features import statistics
from streamnb.features.words import WordsState
from streamnb.kernels.posterior import QUANTUM
from streamnb.labels import shown_classes
from streamnb.learn import add_class, check_new_part, known_part
from streamnb.serialization import pack, unpack
from streamnb.state import FrozenParts, ModelState, PartState


def clone(state: ModelState, *, whole: bool = False) -> ModelState:
    """Return an independent copy; with `whole`, without its parts."""
    header, arrays = pack(state, {})
    copies = {name: array.copy() for name, array in arrays.items()}
    copy, _ = unpack(header, copies)
    copy.new_classes, copy.n_threads = state.new_classes, state.n_threads
    if whole:
        copy.forget_parts()
    return copy


def merge(first: ModelState, *others: ModelState, in_place: bool = False) -> ModelState:
    """Return what all of them have learned; see `NaiveBayes`' `merge`.

    With `in_place` it is the first one, which is not kept in parts, and is not copied.

    Raises
    ------
    InputError
        If they are not of one kind: it says what differs.
    """
    total = first if in_place else clone(first, whole=True)
    for other in others:
        _add(total, other, 1)
    return total


def subtract(first: ModelState, other: ModelState) -> ModelState:
    """Return what the first has learned and the other has not.

    Raises
    ------
    InputError
        If they are not of one kind, or the other holds what the first does not.
    """
    half_life = first.clock.half_life
    if half_life is not None and half_life.examples is not None:
        raise InputError(
            "models whose half-life is in examples cannot be subtracted: how much of the other is"
            " left in the first is not known. Take a half-life in seconds."
        )
    rest = clone(first, whole=True)
    _add(rest, other, -1)
    return rest


def part_of(state: ModelState, name: str) -> ModelState:
    """Return a model of what one part has learned, kept in that part; see `NaiveBayes.part`."""
    check_kind("name", name, str)
    part = known_part(state, name)
    assert part is not None
    alone = FrozenParts(state.frozen_tables(), {name: part}).state()
    for group in alone.groups.values():
        group.n_skipped = 0
    return clone(alone)


def set_part(state: ModelState, name: str, other: ModelState) -> None:
    """Put what another model has learned in the place of a part; see `NaiveBayes.set_part`."""
    check_new_part(state, name)
    check_alike(state, other)
    if other is state:
        other = clone(state)
    if other.hash_key != state.hash_key:
        other = _with_key(other, state.hash_key)
    _join_classes(state, other, 1)
    places = np.array([state.class_index[label] for label in other.classes], dtype=np.int64)
    factor = _meet(state, other)
    class_counts = np.zeros(len(state.classes))
    class_counts[places] = factor * other.class_counts
    recent = np.zeros(len(state.classes))
    recent[places] = other.recent
    groups = {}
    for group_name, group in state.groups.items():
        theirs = other.groups[group_name]
        group.set_bounded(bounded=False)
        group.sum_parts([])
        group.merge(theirs, places, factor, 1)
        groups[group_name] = replace(group.as_part(), n_dropped=theirs.n_dropped)
    part = PartState(class_counts, recent, groups, other.n_examples, other.clock.now)
    state.set_parts(state.parts | {name: part})
    state.compact()


def drop_part(state: ModelState, name: str) -> None:
    """Take a part away; see `NaiveBayes.drop_part`."""
    known_part(state, name)
    state.set_parts({each: part for each, part in state.parts.items() if each != name})
    state.compact()
    state.drop_empty_classes()


def share_words(state: ModelState, other: ModelState) -> bool:
    """Have a model's groups of words go on in the vocabularies of another that reads them alike.

    Counts and answers stay as they are. Return whether they share one now; not if they read
    otherwise, or if the hash keys differ and a text is not kept whole.
    """
    alike = [
        (name, group, theirs)
        for name, group in state.groups.items()
        if isinstance(group, WordsState)
        and isinstance(theirs := other.groups.get(name), WordsState)
        and (group.vocabulary is theirs.vocabulary or group.reads_as(theirs))
    ]
    if not alike or not _take_key(state, other.hash_key):
        return False
    for name, group, theirs in alike:
        if group.vocabulary is not theirs.vocabulary:
            state.take_columns(name, group.join(theirs))
    return True


def _take_key(state: ModelState, hash_key: int) -> bool:
    """Bring a model of words to another hash key in place; return whether it has it."""
    if state.hash_key == hash_key:
        return True
    groups = list(state.groups.values())
    if not all(isinstance(group, WordsState) for group in groups):
        return False
    try:
        for group in groups:
            group.frozen_table().rekey(hash_key)  # all of them can, or none is
    except InputError:
        return False
    for group in groups:
        group.rekey(hash_key)
    state.hold_only_part()
    state.hash_key = hash_key
    return True


def check_alike(first: ModelState, other: ModelState) -> None:
    """Refuse models that do not count the same things; name what differs, with both values."""
    ours, theirs = first.describe(), other.describe()
    differing = [
        f"{name} ({ours.get(name)!r}, {theirs.get(name)!r})"
        for name in ("class_prior", "prior_half_life", "decay")
        if ours.get(name) != theirs.get(name)
    ]
    groups, other_groups = ours["groups"], theirs["groups"]
    for name in dict.fromkeys((*groups, *other_groups)):
        mine, their = groups.get(name, {}), other_groups.get(name, {})
        differing += [
            f"features.{name}.{key} ({mine.get(key)!r}, {their.get(key)!r})"
            for key in dict.fromkeys((*mine, *their))
            if mine.get(key) != their.get(key)
        ]
    if not differing:
        return
    told = f"they differ in {'; '.join(differing)}."
    pairs = [each.removeprefix("features.").partition(".hybrid (") for each in differing]
    hybrids = [name for name, is_hybrid, _ in pairs if is_hybrid]
    if len(hybrids) == len(differing):
        raise InputError(
            f"these models count the same, and learn other weights beside it: {told} Give both the"
            f" same: set_hybrid({hybrids[0]!r}, None) drops a model's weights, and"
            f" set_hybrid({hybrids[0]!r}, Hybrid()) begins them from nothing; counts stay."
        )
    raise InputError(
        f"these models do not count the same things: {told} Make both from the same settings."
    )


def _with_key(state: ModelState, hash_key: int) -> ModelState:
    """Return a copy of a model under another hash key, with the same counts.

    It is refused if a text is not kept whole, as of categories of more than 200 bytes. The error
    shows no key: who knows one can make words that collide.
    """
    copy = clone(state, whole=True)
    for group in copy.groups.values():
        group.rekey(hash_key)
    copy.hash_key = hash_key
    return copy


def _add(total: ModelState, other: ModelState, sign: int) -> None:
    """Add a model to another, in place, or take it away."""
    check_alike(total, other)
    if other.hash_key != total.hash_key:
        other = _with_key(other, total.hash_key)
    _join_classes(total, other, sign)
    places = np.array([total.class_index[label] for label in other.classes], dtype=np.int64)
    factor = _meet(total, other)
    counts, change = total.class_counts, factor * other.class_counts
    before = counts.copy()
    counts[places] = (
        counts[places] + change
        if sign > 0
        else statistics.left_of(counts[places], change, decays=total.clock.half_life is not None)
    )
    least = float(counts.min(initial=0.0))
    if least < 0.0:
        raise InputError(
            f"class {total.classes[int(counts.argmin())]!r} would hold {least:g} examples."
            " Subtract only what was merged before."
        )
    if sign > 0:
        total.recent[places] += other.recent
    else:  # as if its examples were unlearned: see `kernels.posterior.change_recent`
        shares = np.divide(counts, before, out=np.zeros_like(counts), where=before > 0.0)
        total.recent = np.rint(total.recent * shares / QUANTUM) * QUANTUM
    for name, group in total.groups.items():
        group.merge(other.groups[name], places, factor, sign)
    total.n_examples += sign * other.n_examples
    if sign < 0:
        total.drop_empty_classes()


def _join_classes(total: ModelState, other: ModelState, sign: int) -> None:
    """Let the other model's classes join, or refuse them; in a refusal nothing changes."""
    new = [label for label in other.classes if label not in total.class_index]
    if new and sign < 0:
        raise InputError(f"class {new[0]!r} cannot be taken away: it was never there.")
    declared = other.classes[: other.n_declared_classes]
    for label in new:
        if total.is_closed and label not in declared:
            raise InputError(
                f"class {label!r} of the other model is declared by neither; this one's are"
                f" {shown_classes(total.classes)}. Declare it in classes, or set"
                " new_classes=True on the first model."
            )
    total.check_classes([*total.classes, *new])
    # What either of two closed models declares, both have declared. In an open one classes join as
    # if they were learned, so that they leave when what was added is taken away.
    join = partial(add_class, total) if total.is_closed else total.add_class
    for label in new:
        join(label)


def _meet(total: ModelState, other: ModelState) -> float:
    """Bring the total to a landmark that both can have; return what the other's counts take."""
    mine, theirs = total.clock, other.clock
    if mine.half_life is None or theirs.now is None:
        return 1.0
    if mine.half_life.seconds is None:
        if mine.now is None:
            total.clock = theirs
        return mine.scale / theirs.scale if mine.now is not None else 1.0
    if mine.now is None:
        total.clock = theirs
        return 1.0
    landmark = max(mine.landmark, theirs.landmark)
    total.rescale(mine.moved_to(landmark)[1])
    total.clock = Clock(mine.half_life, max(mine.now, theirs.now), landmark)
    return theirs.moved_to(landmark)[1]
