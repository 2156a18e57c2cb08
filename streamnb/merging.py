"""Adding models up, and taking one away from another.

Counts add exactly and in any order, as long as no word was dropped; means and variances by Chan's
formula, to rounding. Vocabularies and fields that differ are brought together by name, classes by
label (in the order of the first model, then of the second). Classes that either model declares
join; where the first is closed (`new_classes`), one that the other merely learned is refused, as it
would be if an example brought it. What depends on order has this meaning:

* **Dropping**: the sum holds what both held; where that passes a vocabulary's bound, words leave by
  the usual rule.
* **Decay**: with a half-life in seconds the sum is what one model would have learned from both
  streams, for an example's weight depends on its own time alone. With one in examples each model
  enters as it stands, as if both streams had ended at the same moment.

Models of different hash keys meet by the texts of their words and values: the other is brought to
the first one's key. Subtracting takes away what was added. A model that was kept in parts enters
whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamnb.decay import Clock
from streamnb.errors import InputError, check_kind
from streamnb.features import statistics
from streamnb.labels import shown_classes
from streamnb.learn import Learning
from streamnb.serialization import Model, pack, unpack


def clone(model: Model, *, whole: bool = False) -> Model:
    """Return an independent copy; with `whole`, without its parts.

    Examples
    --------
    >>> from streamnb import Multinomial, NaiveBayes, Words
    >>> model = NaiveBayes(features={"text": Words(Multinomial())})
    >>> clone(model) is model
    False
    """
    header, arrays = pack(model, {})
    copies = {name: array.copy() for name, array in arrays.items()}
    copy, _ = unpack(header, copies, type(model))
    copy.n_threads = model.n_threads
    if whole:
        copy.forget_parts()
    return copy


def merge(first: Model, *others: Learning) -> Model:
    """Return a new model that has learned what all of them have.

    Raises
    ------
    InputError
        Where they are not of one kind: it says what differs.

    Examples
    --------
    >>> from streamnb import Multinomial, NaiveBayes, Words
    >>> def made(text, label):
    ...     model = NaiveBayes(features={"text": Words(Multinomial())})
    ...     model.learn_one({"text": text}, label)
    ...     return model
    >>> merged = merge(made("win a prize", "spam"), made("lunch", "ham"))
    >>> merged.classes, merged.class_counts.tolist(), merged.vocabulary_size
    (('spam', 'ham'), [1.0, 1.0], 4)
    """
    check_kind("first", first, Learning)
    total = clone(first, whole=True)
    for other in others:
        _add(total, other, 1)
    return total


def subtract(first: Model, other: Learning) -> Model:
    """Return a new model that has learned what the first has and the other has not.

    Raises
    ------
    InputError
        Where they are not of one kind, or the other holds what the first does not.
    """
    check_kind("first", first, Learning)
    half_life = first._clock.half_life  # noqa: SLF001 -- this is the model's other half
    if half_life is not None and half_life.examples is not None:
        raise InputError(
            "models whose half-life is in examples cannot be subtracted: how much of the other is"
            " left in the first is not known. Take a half-life in seconds."
        )
    rest = clone(first, whole=True)
    _add(rest, other, -1)
    return rest


def check_alike(first: Learning, other: Any) -> None:
    """Refuse models that do not count the same things.

    Raises
    ------
    InputError
        It names what differs, with both values.
    """
    if not isinstance(other, Learning):
        raise InputError(f"a NaiveBayes is wanted. Got {type(other).__name__} instead.")
    ours, theirs = first.describe(), other.describe()
    differing = [
        f"{name} ({ours[name]!r}, {theirs[name]!r})"
        for name in ("class_prior", "decay")
        if ours[name] != theirs[name]
    ]
    groups, other_groups = ours["groups"], theirs["groups"]
    for name in dict.fromkeys((*groups, *other_groups)):
        mine, their = groups.get(name, {}), other_groups.get(name, {})
        differing += [
            f"features.{name}.{key} ({mine.get(key)!r}, {their.get(key)!r})"
            for key in dict.fromkeys((*mine, *their))
            if mine.get(key) != their.get(key)
        ]
    if differing:
        raise InputError(
            f"these models do not count the same things: they differ in {'; '.join(differing)}."
            " Make both from the same settings."
        )


def _with_key(model: Model, hash_key: int) -> Model:
    """Return a copy of a model under another hash key, with the same counts.

    Raises
    ------
    InputError
        Where a text is not kept whole, as of categories of more than 200 bytes. It holds no key:
        who knows one can make words that collide.
    """
    copy = clone(model, whole=True)
    for group in copy._groups.values():  # noqa: SLF001
        group.rekey(hash_key)
    copy._hash_key = hash_key  # noqa: SLF001
    return copy


def _add(total: Learning, other: Learning, sign: int) -> None:
    """Add a model to another, in place, or take it away."""
    check_alike(total, other)
    if other._hash_key != total._hash_key:  # noqa: SLF001
        other = _with_key(other, total._hash_key)  # noqa: SLF001
    declared = other.classes[: other._n_declared_classes]  # noqa: SLF001
    for label in other.classes:
        if label not in total.classes:
            if sign < 0:
                raise InputError(f"class {label!r} cannot be taken away: it was never there.")
            if total._is_closed and label not in declared:  # noqa: SLF001
                raise InputError(
                    f"class {label!r} of the other model is declared by neither; this one's are"
                    f" {shown_classes(total.classes)}. Declare it in classes, or set"
                    " new_classes=True on the first model."
                )
            total.add_class(label)
    places = np.array([total.classes.index(label) for label in other.classes], dtype=np.int64)
    factor = _meet(total, other)
    counts, change = total._class_counts, factor * other._class_counts  # noqa: SLF001
    counts[places] = (
        counts[places] + change if sign > 0 else statistics.left_of(counts[places], change)
    )
    least = float(counts.min(initial=0.0))
    if least < 0.0:
        raise InputError(
            f"class {total.classes[int(counts.argmin())]!r} would hold {least:g} examples."
            " Subtract only what was merged before."
        )
    for name, group in total._groups.items():  # noqa: SLF001
        group.merge(other._groups[name], places, factor, sign)  # noqa: SLF001
    total._n_examples += sign * other.n_examples  # noqa: SLF001
    if sign < 0:
        total._drop_empty_class()  # noqa: SLF001


def _meet(total: Learning, other: Learning) -> float:
    """Bring the total to a landmark that both can have; return what the other's counts take."""
    mine, theirs = total._clock, other._clock  # noqa: SLF001
    if mine.half_life is None or theirs.now is None:
        return 1.0
    if mine.half_life.seconds is None:
        if mine.now is None:
            total._clock = theirs  # noqa: SLF001
        return mine.scale / theirs.scale if mine.now is not None else 1.0
    if mine.now is None:
        total._clock = theirs  # noqa: SLF001
        return 1.0
    landmark = max(mine.landmark, theirs.landmark)
    total._rescale(mine.moved_to(landmark)[1])  # noqa: SLF001
    total._clock = Clock(mine.half_life, max(mine.now, theirs.now), landmark)  # noqa: SLF001
    return theirs.moved_to(landmark)[1]
