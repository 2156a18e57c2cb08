"""Running moments: two floats each, against exact fractions; learned, unlearned, merged."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamnb.features import statistics
from streamnb.features.numeric import rescale
from streamnb.kernels.gaussian import (
    Moments,
    add,
    add_moments,
    learn,
    quick_sum,
    two_product,
    two_sum,
)
from streamnb.kernels.posterior import DUST
from tests import naive_gaussian
from tests.kernels.inner import from_python
from tests.kernels.rows import teaching_of
from tests.naive_gaussian import Exact, Seen

# Of the largest M2 and mean: two floats keep 106 bits.
RELATIVE = 1e-26
PLACE = np.zeros(1, dtype=np.int64)
modest = st.floats(-1e60, 1e60).filter(lambda x: x == 0 or abs(x) > 1e-60)
values = st.one_of(modest, st.integers(-9, 9).map(float), st.floats(1e8, 1e8 + 1))
ADD, QUICK_SUM = from_python(add), from_python(quick_sum)
TWO_PRODUCT, TWO_SUM = from_python(two_product), from_python(two_sum)


def streams(*weights: float) -> st.SearchStrategy[list[Seen]]:
    """Draw values of two classes with some of these weights."""
    return st.lists(
        st.builds(Seen, values, st.sampled_from(weights), st.integers(0, 1)), max_size=12
    )


def taught(held: Moments, seen: Sequence[Seen], sign: float = 1.0) -> int:
    """Learn or unlearn values of one field; return what the kernel does."""
    return learn(
        held,
        np.array([[each.value] for each in seen]).reshape(-1, 1),
        PLACE,
        teaching_of([each.label for each in seen], [sign * each.weight for each in seen]),
    )


def merged(held: Moments, other: Moments, factor: float = 1.0) -> int:
    """Add other moments of the same field and classes."""
    return add_moments(held, other, np.arange(len(held.n)), PLACE, factor, False)


def exact(held: Moments, r: int) -> Exact:
    """Return what one entry says, as fractions."""
    n, mean, mean_low, m2, m2_low = (Fraction(float(array[r, 0])) for array in held)
    return Exact(n, mean + mean_low, m2 + m2_low)


def deviation(held: Moments, seen: Sequence[Seen]) -> float:
    """Return how far mean and M2 are from the exact ones, in terms of the largest value's."""
    largest = max((abs(Fraction(each.value)) for each in seen), default=Fraction(0)) or Fraction(1)
    worst = Fraction(0)
    for r in range(3):
        wanted = naive_gaussian.moments(seen if r == 0 else [e for e in seen if e.label == r - 1])
        found = exact(held, r)
        assert abs(found.n - wanted.n) <= Fraction(1e-15) * wanted.n
        n = wanted.n or Fraction(1)
        worst = max(worst, abs(found.mean - wanted.mean) / largest)
        worst = max(worst, abs(found.m2 - wanted.m2) / (n * largest * largest))
    return float(worst)


@given(modest, modest)
def test_sums_and_products_come_with_their_exact_errors(a: float, b: float) -> None:
    """What a float rounds off stands in the second one, to the last bit."""
    assert sum(map(Fraction, TWO_SUM(a, b))) == Fraction(a) + Fraction(b)
    large, small = (a, b) if abs(a) >= abs(b) else (b, a)
    assert sum(map(Fraction, QUICK_SUM(large, small))) == Fraction(a) + Fraction(b)
    assert sum(map(Fraction, TWO_PRODUCT(a, b))) == Fraction(a) * Fraction(b)


@given(modest, modest)
def test_numbers_of_two_floats_add_up(a: float, b: float) -> None:
    """Their sum has 100 bits of the larger one."""
    low_a, low_b = a * 2.0**-54, -b * 2.0**-55
    found = sum(map(Fraction, ADD(a, low_a, b, low_b)), Fraction(0))
    wanted = sum(map(Fraction, (a, low_a, b, low_b)), Fraction(0))
    assert abs(found - wanted) <= Fraction(2) ** -100 * (abs(Fraction(a)) + abs(Fraction(b)))


@given(streams(1.0, 2.0, 5.0, 2.0**40))
def test_learning_is_the_textbooks_sums(seen: list[Seen]) -> None:
    """After any values with whole weights, n, mean and M2 are those of exact arithmetic."""
    held = statistics.empty(Moments, classes=2, fields=1)
    assert taught(held, seen) == -1
    assert deviation(held, seen) < RELATIVE


@given(streams(1.0, 0.5, 0.1, 3.7, 1e-9, 2.0**500))
def test_weights_round_as_any_sum_does(seen: list[Seen]) -> None:
    """With weights that do not add up exactly, sixteen digits stay; nothing leaves the range."""
    held = statistics.empty(Moments, classes=2, fields=1)
    assert taught(held, seen) == -1
    assert deviation(held, seen) < 1e-14


@given(streams(1.0, 2.0, 3.0), streams(1.0, 2.0), st.randoms(use_true_random=False))
def test_unlearned_is_never_learned(kept: list[Seen], more: list[Seen], random: Random) -> None:
    """What is unlearned, in any order, leaves no trace, and of nothing not one bit."""
    held, never = (
        statistics.empty(Moments, classes=2, fields=1),
        statistics.empty(Moments, classes=2, fields=1),
    )
    taught(held, [*kept, *more])
    m2_max = max(float(held.m2.max()), 1e-300)
    largest = max((abs(e.value) for e in [*kept, *more]), default=0.0)
    random.shuffle(more)
    for each in more:
        assert taught(held, [each], -1.0) == -1
        m2_max = max(m2_max, float(held.m2.max()))
    taught(never, kept)
    assert np.array_equal(held.n, never.n)
    assert np.abs(held.mean - never.mean).max() <= 1e-12 * largest
    assert np.abs(held.m2 - never.m2).max() <= 1e-12 * m2_max
    assert (held.m2 >= 0.0).all()
    assert taught(held, kept, -1.0) == -1
    assert not any(array.any() for array in held)


thirds = st.integers(-9, 9).map(lambda k: k / 3)  # of one size: what is far larger leaves more


@given(
    thirds,
    st.lists(thirds, min_size=1, max_size=8),
    st.integers(1, 4),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_what_is_left_of_equal_values_is_their_value(
    value: float, gone: list[float], n: int, subtracted: bool, random: Random
) -> None:
    """Once only equal values are left, they are a point at that value, bit for bit.

    By maximum likelihood any other mean would make the value impossible.
    """
    held, never, others = (statistics.empty(Moments, classes=2, fields=1) for _ in range(3))
    kept = [Seen(value, 1.0, 0)] * n
    more = [Seen(each, 1.0, 0) for each in gone]
    taught(never, kept)
    taught(held, random.sample(kept + more, n + len(more)))
    if subtracted:
        taught(others, more)
        assert merged(held, others, -1.0) == -1
    else:
        assert taught(held, random.sample(more, len(more)), -1.0) == -1
    for found, wanted in zip(held, never, strict=True):
        assert found.tolist() == wanted.tolist()


mixed = streams(1.0, 2.0, 0.5, 0.1, 3.7)


@given(mixed, mixed, st.sampled_from([1.0, 2.0**-60, 2.0**80]))
def test_merging_is_learning_both(one: list[Seen], other: list[Seen], factor: float) -> None:
    """Chan's sum of two streams is the stream of both; taking one away again leaves the other."""
    held, second = (
        statistics.empty(Moments, classes=2, fields=1),
        statistics.empty(Moments, classes=2, fields=1),
    )
    taught(held, one)
    before = statistics.copy(held)
    taught(second, other)
    weighed = [e._replace(weight=e.weight * factor) for e in other]
    assert merged(held, second, factor) == -1
    assert deviation(held, [*one, *weighed]) < 1e-14
    if factor == 1.0:
        m2_max = float(held.m2.max())
        assert merged(held, second, -factor) == -1
        assert np.allclose(held.n, before.n, rtol=1e-12, atol=0.0)
        assert np.abs(held.m2 - before.m2).max() <= 1e-12 * m2_max


@given(mixed)
def test_a_sum_of_one_is_that_one(seen: list[Seen]) -> None:
    """Moments added to nothing are taken bit for bit."""
    held, nothing = (
        statistics.empty(Moments, classes=2, fields=1),
        statistics.empty(Moments, classes=2, fields=1),
    )
    taught(held, seen)
    assert merged(nothing, held) == -1
    assert all(np.array_equal(a, b) for a, b in zip(held, nothing, strict=True))


def test_taking_more_than_there_is_is_told() -> None:
    """Too much weight and an empty class are noticed; so little that it is rounding is not."""
    for value, weight, label in ((5.0, 4.0, 0), (5.0, 1.0, 1)):
        held = statistics.empty(Moments, classes=2, fields=1)
        taught(held, [Seen(5.0, 1.0, 0)] * 3)
        assert taught(held, [Seen(value, weight, label)], -1.0) == 0
        assert not any(np.isnan(array).any() for array in held)
    held = statistics.empty(Moments, classes=2, fields=1)
    taught(held, [Seen(5.0, 1.0, 0)] * 3)
    assert taught(held, [Seen(5.0, 3.0 * (1 + DUST / 9), 0)], -1.0) == -1
    assert not held.n.any()


def test_what_decay_has_forgotten_is_nothing() -> None:
    """Weights that underflow take mean and M2 with them; others are scaled exactly."""
    held = statistics.empty(Moments, classes=1, fields=1)
    taught(held, [Seen(1.0, 1.0, 0), Seen(4.0, 1.0, 0)])
    before = statistics.copy(held)
    rescale(held, 2.0**-512)
    assert held.n[0, 0] == 2.0**-511
    assert held.mean[0, 0] == before.mean[0, 0]
    assert held.m2[0, 0] == before.m2[0, 0] * 2.0**-512
    rescale(held, 2.0**-512)
    assert not any(array.any() for array in held)


@given(st.integers(-60, 60), st.integers(-200, 0), modest, modest)
def test_a_light_set_keeps_its_share_beside_a_heavy_one(
    exponent: int, lightness: int, light: float, heavy: float
) -> None:
    """However little the first value weighs beside the second, M2 tells of it to all digits."""
    weight = 2.0**exponent
    held = statistics.empty(Moments, classes=2, fields=1)
    taught(held, [Seen(light, weight * 2.0**lightness, 0), Seen(heavy, weight, 0)])
    n_light, n_heavy = Fraction(weight) * Fraction(2) ** lightness, Fraction(weight)
    total, apart = n_light + n_heavy, Fraction(heavy) - Fraction(light)
    found = exact(held, 1)
    wanted = n_light * n_heavy / total * apart**2
    assert abs(found.m2 - wanted) <= wanted * Fraction(1e-15) + Fraction(1e-300)
    assert found.m2 >= 0
