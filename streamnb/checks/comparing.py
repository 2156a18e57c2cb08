"""Holding two models together: what they know and answer is the same, or the same to rounding.

Whole counts must be equal; moments, and all that decay or fractional weights have touched, may
differ by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from streamnb.checks.case import Broken, Fields, columns_of
from streamnb.checks.knowledge import Key, Knowledge, Table, known
from streamnb.reading import Readable

_ROUNDING = 1e-12
_DUST = 1e-29  # of n·x²: what rounding leaves of M2, which is kept in 106 bits, at values alike


def must_know_alike(
    found: Readable,
    expected: Readable,
    peak: Readable | None = None,
    *,
    within: float = 0.0,
    sizes: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Hold two models' statistics together.

    Parameters
    ----------
    found, expected : model or snapshot
    peak : model or snapshot, optional
        The one that has held most: moments agree to 1e-12 of its. By default `expected`.
    within : float
        How far counts may be apart, of the largest; 0: not at all. Moments likewise, where that is
        more.
    sizes : mapping of str to float
        The largest number that each field ever had, where that has been forgotten since.

    Raises
    ------
    Broken
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


def must_be_same(found: Readable, expected: Readable, probes: Sequence[Fields]) -> None:
    """Hold two models together bit for bit: classes in order, statistics, answers.

    Raises
    ------
    Broken
    """
    if found.classes != expected.classes:
        raise Broken(f"the classes are {found.classes!r}, not {expected.classes!r}")
    if found.n_examples != expected.n_examples:
        raise Broken(f"{found.n_examples} examples are learned, not {expected.n_examples}")
    ours, wanted = known(found), known(expected)
    for name, mine, theirs in zip(Knowledge._fields, ours, wanted, strict=True):
        _compare(name, mine, theirs, {}, 0.0)
    must_answer_alike(found, expected, probes)


def must_answer_alike(
    found: Readable, expected: Readable, probes: Sequence[Fields], *, within: float = 0.0
) -> None:
    """Hold two models' joint log-likelihoods together, class by class.

    Parameters
    ----------
    found, expected : model or snapshot
    probes : sequence of mapping
    within : float
        How far they may be apart, of their size; 0: not a bit.

    Raises
    ------
    Broken
    """
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
