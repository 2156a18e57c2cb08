"""A conformal test martingale: capital that grows if losses are larger than those before them.

Losses are counted in bins, four an octave, so that memory stays bounded. The bins are losses too,
only coarser, so every statement holds for them exactly.
"""

from __future__ import annotations

import math

import numpy as np

from streamnb.kernels.hashing import mix
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import F64, I64, U64, Int

PER_OCTAVE = 4
FIRST_OCTAVE = -24  # a loss below 2⁻²⁵ is as good as none
BINS = PER_OCTAVE * 31  # up to 64 nats
SINCE_RESTART, EVER, ALARMS = range(3)  # places in `numbers`
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@inner
def bin_of(loss: float) -> Int:
    """Return the bin of a loss, in nats."""
    if loss > 1e9:
        return np.int64(BINS - 1)
    mantissa, octave = math.frexp(loss)
    if mantissa == 0.0 or octave < FIRST_OCTAVE:
        return np.int64(0)
    quarter = np.int64((mantissa - 0.5) * (2 * PER_OCTAVE))
    place = np.int64(octave - FIRST_OCTAVE) * PER_OCTAVE + quarter
    return min(place, np.int64(BINS - 1))


@inner
def reserve(n: Int) -> float:
    """Return the share of the capital that is not at stake after `n` losses: (n + 1)^(−1/4)."""
    return float(1.0 / np.sqrt(np.sqrt(n + 1.0)))


@kernel
def bet(
    losses: F64,
    seed: U64,
    stakes: F64,
    limits: F64,
    counts: I64,
    capital: F64,
    numbers: I64,
    alarms: I64,
) -> int:
    """Bet on losses in order; write the positions at which the capital reached its limit.

    `limits` are the capital that raises an alarm, and the tolerance τ. The p-value of a loss is its
    place among those since the restart, the largest first; ties are broken by a hash of its number.
    A stake ε pays 1 + ε·(1 − 2p), divided by 1 + 2ετ. Returns the number of alarms.
    """
    n_alarms = 0
    reserved = reserve(numbers[SINCE_RESTART])
    for i in range(len(losses)):
        place = bin_of(losses[i])
        above = np.int64(0)
        for b in range(place + 1, BINS):
            above += counts[b]
        counts[place] += 1
        numbers[SINCE_RESTART] += 1
        numbers[EVER] += 1
        n = numbers[SINCE_RESTART]
        bits = mix(seed[0] + np.uint64(numbers[EVER]) * _GOLDEN) >> np.uint64(11)
        p = (above + float(bits) * 2.0**-53 * counts[place]) / n
        left = reserve(n)
        fresh = (reserved - left) / len(stakes)
        reserved = left
        total = left
        for k in range(len(stakes)):
            paid = (1.0 + stakes[k] * (1.0 - 2.0 * p)) / (1.0 + 2.0 * stakes[k] * limits[1])
            capital[k] = (capital[k] + fresh) * paid
            total += capital[k]
        if total >= limits[0]:
            alarms[n_alarms] = i
            n_alarms += 1
            numbers[ALARMS] += 1
            numbers[SINCE_RESTART] = 0
            reserved = 1.0
            for b in range(BINS):
                counts[b] = 0
            for k in range(len(stakes)):
                capital[k] = 0.0
    return n_alarms
