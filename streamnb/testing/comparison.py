"""Comparison of two models: their statistics by name, and their answers.

Counts are keyed by the names of features and by class labels, so that neither the order in which
words came nor that of classes matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from streamnb.features.categorical import CategoriesState
from streamnb.features.counted_words import CountedState
from streamnb.features.flags import FlagsState
from streamnb.features.numeric import NumbersState
from streamnb.features.protocol import Floats, GroupState
from streamnb.labels import Label
from streamnb.reader import ModelReader
from streamnb.testing.cases import Broken, Fields, columns_of

Key = tuple[str, ...]
Table = dict[Key, dict[Label, float]]


class Knowledge(NamedTuple):
    """A model's statistics: by group and feature, then by class. Zeros are left out."""

    counts: Table  # N of classes, words, values and flags; how many numbers a field had
    means: Table  # of numbers
    squares: Table  # M2 = Σ(x − mean)²


def known(model: ModelReader) -> Knowledge:
    """Return what a model or snapshot knows, decayed up to now."""
    scale = model.state.clock.scale
    found = Knowledge({}, {}, {})
    _put(found.counts, ("classes",), model, model.class_counts)
    for name, state in model.state.groups.items():
        counts, means, squares = _of(state)
        for kind, table, by in zip(
            found, (counts, means, squares), (scale, 1.0, scale), strict=True
        ):
            for key, row in table.items():
                _put(kind, (name, *key), model, row / by)
    return found


def _put(table: Table, key: Key, model: ModelReader, row: Floats) -> None:
    by_label = {c: float(v) for c, v in zip(model.classes, row, strict=True) if v}
    if by_label:
        table[key] = by_label


Rows = dict[Key, Floats]


def _of(state: GroupState) -> tuple[Rows, Rows, Rows]:
    """Return a group's counts, means and M2, by feature."""
    if isinstance(state, CountedState):
        return _of_words(state), {}, {}
    if isinstance(state, FlagsState):
        return _of_flags(state), {}, {}
    if isinstance(state, CategoriesState):
        return _of_categories(state), {}, {}
    if isinstance(state, NumbersState):
        held = state.moments()
        n, means, squares = (_named("", state.fields, held[part]) for part in ("n", "mean", "M2"))
        return n, means, squares
    return {}, {}, {}  # a kind that is not ours: its answers are compared, and they have to do


def _named(what: str, names: Sequence[str], rows: Floats) -> Rows:
    """Return rows by name; rows there are not yet, of fields that came just now, are left out."""
    return {(what, name): row for name, row in zip(names, rows, strict=False)}


def _of_words(state: CountedState) -> Rows:
    columns = state.live_columns()
    rows = _named("word", state.vocabulary.words(columns), state.counts.by_word[columns])
    return rows | {("examples",): state.counts.examples, ("tokens",): state.counts.tokens}


def _of_flags(state: FlagsState) -> Rows:
    names, counts = state.table.names, state.counts
    rows = _named("true", names, counts.true) | _named("false", names, counts.false)
    return rows | {("examples",): counts.examples}


def _of_categories(state: CategoriesState) -> Rows:
    columns = np.flatnonzero(state.counts.by_value.any(axis=1))
    rows: Rows = {
        (field, value): row
        for (field, value), row in zip(
            state.table.values(columns), state.counts.by_value[columns], strict=True
        )
    }
    return rows | _named("seen", state.table.fields.names, state.counts.seen)


_ROUNDING = 1e-12
_DUST = 1e-29  # of n·x²: what rounding leaves of M2, which is kept in 106 bits, at values alike


def must_know_alike(
    found: ModelReader,
    expected: ModelReader,
    peak: ModelReader | None = None,
    *,
    within: float = 0.0,
    sizes: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Compare the statistics of two models.

    Counts may differ by the share `within` of the largest. Moments may differ by that share or by
    1e-12, whichever is more, of those of `peak`, the model that has held most (by default
    `expected`). `sizes` are the largest numbers that fields ever had, as a model may forget them.
    """
    ours, wanted = known(found), known(expected)
    most = wanted if peak is None else known(peak)
    dust = within * max((n for row in most.counts.values() for n in row.values()), default=0.0)
    _compare("count", ours.counts, wanted.counts, dict.fromkeys(most.counts, dust), dust)
    rounding = max(within, _ROUNDING)
    for key in [key for key in ours.means | wanted.means if key in most.means]:
        rows = [ours.counts.get(key, {}), wanted.counts.get(key, {})]
        labels = [c for c in rows[0] | rows[1] if min(row.get(c, 0.0) for row in rows) > dust]
        size, m2 = _extent(most, key, sizes.get(key[-1], 0.0))
        for name, mine, theirs, largest in (
            ("mean", ours.means, wanted.means, size),
            ("M2", ours.squares, wanted.squares, m2),
        ):
            chosen = [{c: t.get(key, {}).get(c, 0.0) for c in labels} for t in (mine, theirs)]
            _compare(name, {key: chosen[0]}, {key: chosen[1]}, {key: rounding * largest}, 0.0)


def _extent(most: Knowledge, key: Key, largest: float) -> tuple[float, float]:
    """Return how far from zero a field's numbers are, and M2 of all classes together."""
    counts, means = most.counts[key], most.means[key]
    n = sum(counts.values())
    mean = sum(counts[c] * means.get(c, 0.0) for c in counts) / n
    m2 = sum(most.squares.get(key, {}).values())
    m2 += sum(counts[c] * (means.get(c, 0.0) - mean) ** 2 for c in counts)
    size = max([largest, *map(abs, means.values())]) + float(np.sqrt(m2 / n))
    return size, m2 + n * size**2 * _DUST / _ROUNDING


def _compare(
    what: str, ours: Table, wanted: Table, allowed: dict[Key, float], least: float
) -> None:
    for key in ours | wanted:
        mine, theirs = ours.get(key, {}), wanted.get(key, {})
        for label in mine | theirs:
            a, b = mine.get(label, 0.0), theirs.get(label, 0.0)
            if not abs(a - b) <= allowed.get(key, least):
                raise Broken(
                    f"the {what} of {' '.join(key)!r} in class {label!r} is {a!r}, not {b!r}"
                )


def must_be_same(found: ModelReader, expected: ModelReader, probes: Sequence[Fields]) -> None:
    """Compare two models bit for bit: classes in order, statistics, answers."""
    if found.classes != expected.classes:
        raise Broken(f"the classes are {found.classes!r}, not {expected.classes!r}")
    if found.n_examples != expected.n_examples:
        raise Broken(f"{found.n_examples} examples are learned, not {expected.n_examples}")
    ours, wanted = known(found), known(expected)
    for name, mine, theirs in zip(Knowledge._fields, ours, wanted, strict=True):
        _compare(name, mine, theirs, {}, 0.0)
    must_answer_alike(found, expected, probes)
    # With a `Hybrid` posteriors do not follow from the joint log-likelihoods.
    said, due = (
        model.predict_log_proba_many(columns_of(model, probes)) for model in (found, expected)
    )
    if not np.array_equal(said, due):
        raise Broken(f"the log-posteriors are {said.tolist()}, not {due.tolist()}")


def must_answer_alike(
    found: ModelReader, expected: ModelReader, probes: Sequence[Fields], *, within: float = 0.0
) -> None:
    """Compare the joint log-likelihoods of two models; `within` is relative to their size."""
    if set(found.classes) != set(expected.classes):
        raise Broken(f"the classes are {found.classes!r}, not {expected.classes!r}")
    ours = found.joint_log_likelihood_many(columns_of(found, probes))
    wanted = expected.joint_log_likelihood_many(columns_of(expected, probes))
    places = [found.classes.index(label) for label in expected.classes]
    for x, mine, theirs in zip(probes, ours[:, places], wanted, strict=True):
        finite = [abs(v) for v in (*mine, *theirs) if np.isfinite(v)]
        allowed = within * max([1.0, *finite])
        for label, a, b in zip(expected.classes, mine.tolist(), theirs.tolist(), strict=True):
            if a != b and not abs(a - b) <= allowed:
                raise Broken(
                    f"of {dict(x)!r} in class {label!r} the joint log-likelihood is {a!r},"
                    f" not {b!r}"
                )


def of_all_examples(model: ModelReader) -> ModelReader:
    """Return what answers by all examples alike: without a class prior of recent ones.

    Which examples are recent depends on the way in which they were learned.
    """
    return model if model.state.prior_half_life is None else model.without_prior()


def must_be_untouched(given: object, kept: object) -> None:
    """Break if what was handed in has become something else."""
    # As text: nan differs from itself, and an array's repr holds all of so short a one.
    if repr(given) != repr(kept):
        raise Broken(f"{kept!r} was handed in, and has become {given!r}")
