"""Shares put right for a classifier's mistakes: closed forms, laws, and coverage by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from streamnb import AdjustedShares, Quantifier, adjusted_shares
from streamnb.errors import InputError
from streamnb.prevalence import EXAMPLES_MIN

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Z = 1.959963984540054  # of 95 %


def said(found: AdjustedShares) -> tuple[Floats, Floats, Floats]:
    """Return shares and both ends of what was not refused."""
    assert found.shares is not None, found.reason
    assert found.low is not None
    assert found.high is not None
    assert found.reason is None
    return found.shares, found.low, found.high


@given(
    n_true=st.integers(50, 2_000),
    n_false=st.integers(50, 2_000),
    hit=st.floats(0.6, 1.0),
    alarm=st.floats(0.0, 0.3),
    positive=st.integers(0, 1_000),
)
def test_two_classes_have_a_closed_form(
    n_true: int, n_false: int, hit: float, alarm: float, positive: int
) -> None:
    """The share is (observed − FPR)/(TPR − FPR), clipped, and its bar is around it."""
    hits, alarms = round(hit * n_true), round(alarm * n_false)
    found = adjusted_shares(
        [1_000 - positive, positive], [[n_false - alarms, alarms], [n_true - hits, hits]]
    )
    if found.shares is None:
        assert found.reason is not None
        return
    shares, low, high = said(found)
    tpr, fpr = hits / n_true, alarms / n_false
    wanted = float(np.clip((positive / 1_000 - fpr) / (tpr - fpr), 0.0, 1.0))
    np.testing.assert_allclose(shares, [1.0 - wanted, wanted], atol=1e-9)
    assert (low >= 0.0).all()
    assert (low <= shares).all()
    assert (shares <= high).all()
    assert (high <= 1.0).all()
    np.testing.assert_allclose(low + high[::-1], 1.0, atol=1e-9)  # one bar is the other's mirror


@pytest.mark.parametrize("positive", [0, 1, 30, 77, 100])
def test_without_mistakes_the_raw_share_and_wilsons_interval_are_left(positive: int) -> None:
    """Behind any number of examples without a mistake the bar is Wilson's score interval."""
    shares, low, high = said(
        adjusted_shares([100 - positive, positive], [[10**12, 0], [0, 10**12]])
    )
    p, n = positive / 100, 100
    middle = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * np.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    assert shares[1] == pytest.approx(p, abs=1e-12)
    assert (low[1], high[1]) == pytest.approx((middle - half, middle + half), abs=1e-5)


def test_with_very_many_messages_the_examples_alone_are_the_error() -> None:
    """The bar is then Fieller's interval of a ratio of differences of proportions."""
    shares, low, high = said(adjusted_shares([5 * 10**11, 5 * 10**11], [[800, 200], [200, 800]]))
    v = 0.2 * 0.8 / 1000  # of either rate; at share t the difference has v·(t² + (1 − t)²)
    half = high[1] - 0.5
    assert shares[1] == pytest.approx(0.5)
    assert half == pytest.approx(0.5 - low[1])
    assert (0.6 * half) ** 2 == pytest.approx(Z**2 * v * (0.5 + 2 * half**2), rel=0.01)


@st.composite
def confusions(draw: st.DrawFn) -> Ints:
    """Return confusion matrices of a classifier that is more often right than not."""
    k = draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rates = 0.6 * np.eye(k) + 0.4 * rng.dirichlet(np.ones(k), k)
    return np.array([rng.multinomial(rng.integers(200, 3_000), row) for row in rates])


@given(confusion=confusions(), data=st.data())
def test_classes_in_another_order_change_nothing(confusion: Ints, data: st.DataObject) -> None:
    """Shares and bars go with their classes, whatever their order; so does a refusal."""
    k = len(confusion)
    counts = np.array(data.draw(st.lists(st.integers(1, 500), min_size=k, max_size=k)))
    order = np.array(data.draw(st.permutations(range(k))))
    one = adjusted_shares(counts, confusion)
    other = adjusted_shares(counts[order], confusion[np.ix_(order, order)])
    assert (one.shares is None) == (other.shares is None)
    if one.shares is not None:
        for mine, theirs in zip(said(one), said(other), strict=True):
            np.testing.assert_allclose(mine[order], theirs, atol=1e-7)


@given(confusion=confusions())
def test_counts_of_the_examples_themselves_give_their_own_shares(confusion: Ints) -> None:
    """Where the messages counted are those behind the error rates, the answer is exact."""
    shares, low, high = said(adjusted_shares(confusion.sum(axis=0), confusion))
    truth = confusion.sum(axis=1) / confusion.sum()
    np.testing.assert_allclose(shares, truth, atol=1e-9)
    assert shares.sum() == pytest.approx(1.0)
    assert ((low <= truth) & (truth <= high)).all()


@given(confusion=confusions(), seed=st.integers(0, 1000))
def test_the_share_is_the_nearest_that_there_can_be(confusion: Ints, seed: int) -> None:
    """Where no mixture fits the counts exactly, it is the least-squares one of another solver."""
    k = len(confusion)
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(40, rng.dirichlet(np.full(k, 0.5)))
    found = adjusted_shares(counts, confusion)
    if found.shares is None:
        return
    rates = (confusion / confusion.sum(axis=1, keepdims=True)).T
    q = counts / counts.sum()

    def distance(p: Floats) -> float:
        return float(((rates @ p - q) ** 2).sum())

    other = minimize(
        distance, np.full(k, 1 / k), method="SLSQP", bounds=[(0.0, 1.0)] * k,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0}, options={"ftol": 1e-14},
    )  # fmt: skip
    assert distance(found.shares) <= distance(other.x) + 1e-9
    np.testing.assert_allclose(found.shares, other.x, atol=1e-3)


TWO = np.array([[0.85, 0.25], [0.15, 0.75]])
THREE = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.15], [0.1, 0.15, 0.8]])


@pytest.mark.parametrize("n", [60, 2_000])
@pytest.mark.parametrize("n_examples", [100, 2_000])
@pytest.mark.parametrize(
    ("rates", "shares"),
    [
        (TWO, [0.9, 0.1]),
        (TWO, [0.5, 0.5]),
        (TWO, [0.0, 1.0]),
        (THREE, [0.5, 0.3, 0.2]),
        (THREE, [0.9, 0.1, 0.0]),
    ],
)
@pytest.mark.parametrize("level", [pytest.param(0.8, marks=pytest.mark.deep), 0.95])
def test_intervals_hold_as_often_as_they_say(
    rates: Floats, shares: list[float], n_examples: int, n: int, level: float
) -> None:
    """Drawn again and again, examples and messages alike, the bar holds the truth at its level.

    It may hold more where a share is at 0 or 1: half the error cannot happen there.
    """
    rng = np.random.default_rng(11)
    truth, n_times = np.array(shares), 500
    held = np.zeros(len(truth))
    for _ in range(n_times):
        confusion = [rng.multinomial(n_examples, column) for column in rates.T]
        counts = rng.multinomial(n, rates @ truth)
        found = adjusted_shares(counts, confusion, level)
        if found.shares is not None:
            held += (found.low <= truth) & (truth <= found.high)
    slack = 3.5 * np.sqrt(level * (1 - level) / n_times)
    assert (held / n_times > level - slack).all()
    inner = (truth > 0.0) & (truth < 1.0)
    assert (held[inner] / n_times < level + slack + 0.02).all() or n < 100


def test_a_higher_level_is_a_wider_bar() -> None:
    """And more messages or examples make it narrower."""

    def width(n: int, n_examples: int, level: float) -> float:
        confusion = np.array([[8, 2], [3, 7]]) * n_examples // 10
        _, low, high = said(adjusted_shares([n // 2, n // 2], confusion, level))
        return float(high[0] - low[0])

    assert width(100, 500, 0.8) < width(100, 500, 0.95) < width(100, 500, 0.999)
    assert width(1_000, 500, 0.95) < width(100, 500, 0.95)
    assert width(100, 5_000, 0.95) < width(100, 500, 0.95)


@pytest.mark.parametrize(
    ("counts", "confusion", "reason"),
    [
        ([0, 0], [[90, 10], [10, 90]], "There are no messages to count."),
        (
            [5, 5],
            [[900, 100], [4, EXAMPLES_MIN - 5]],
            "Error rates need 50 labelled examples of each class; 'ham' has 49.",
        ),
        ([5, 5], [[0, 0], [0, 0]], "of each class; 'spam' has 0"),
        ([5, 5], [[500, 500], [480, 520]], "hardly tells the classes apart"),
        ([5, 5], [[50, 0], [50, 0]], "hardly tells the classes apart"),
        ([10, 990], [[900, 100], [300, 700]], "Of these messages 99% are predicted to be 'ham'"),
    ],
)
def test_what_cannot_be_said_has_a_reason(
    counts: list[int], confusion: list[list[int]], reason: str
) -> None:
    """Too little, too alike, or not what the error rates allow: a sentence instead of figures."""
    found = Quantifier(confusion, classes=["spam", "ham"]).adjust(counts)
    assert found.shares is found.low is found.high is None
    assert found.reason is not None
    assert reason in found.reason
    assert found.reason[0].isupper()
    assert found.reason.endswith(".")


@pytest.mark.parametrize(
    ("n", "has"), [(206, "206 of unequal weight, which say as much as 14."), (49, "49.")]
)
def test_examples_of_unequal_weight_are_counted(n: int, has: str) -> None:
    """A reason has their number too, if that alone would be enough."""
    confusion = [[90.0, 10.0], [4.2, 10.7]]
    quantifier = Quantifier(confusion, classes=["spam", "ham"], n_examples=[400, n])
    assert quantifier.reason == (
        f"Error rates need 50 labelled examples of each class; 'ham' has {has}"
    )
    with pytest.raises(InputError, match="one for each of 2 classes"):
        Quantifier(confusion, n_examples=[400])


def test_one_class_has_no_share_to_correct() -> None:
    """A model of a single class takes nothing for anything else."""
    assert adjusted_shares([5], [[100]]).reason is not None


def test_counts_that_chance_explains_are_not_refused() -> None:
    """A few messages beyond what the error rates allow are chance; the share ends at 0 or 1."""
    shares, low, high = said(adjusted_shares([0, 10], [[900, 100], [150, 850]]))
    assert shares.tolist() == [0.0, 1.0]
    assert low[1] < 0.8
    assert high[1] == 1.0


def test_a_quantifier_is_a_value() -> None:
    """What it was made from may change, and what it answers does not; nor does asking change it."""
    confusion = np.array([[90.0, 10.0], [30.0, 70.0]])
    quantifier = Quantifier(confusion)
    first = said(quantifier.adjust([60, 40]))
    confusion[:] = 1.0
    quantifier.adjust([1, 99])
    for one, other in zip(first, said(quantifier.adjust([60, 40])), strict=True):
        np.testing.assert_array_equal(one, other)
    assert quantifier.n_classes == 2


@pytest.mark.parametrize(
    ("counts", "confusion", "how", "wrong"),
    [
        ([1, 2], [[1, 2, 3], [4, 5, 6]], {}, "square"),
        ([1, 2], [1, 2], {}, "square"),
        ([1, 2], np.empty((0, 0)), {}, "square"),
        ([1, 2], [[1, -1], [0, 1]], {}, "counts"),
        ([1, 2], [[1, np.inf], [0, 1]], {}, "counts"),
        ([1, 2, 3], [[99, 1], [1, 99]], {}, "one for each of 2"),
        ([1, -2], [[99, 1], [1, 99]], {}, "0 or above"),
        ([1, np.nan], [[99, 1], [1, 99]], {}, "0 or above"),
        ([1, 2], [[99, 1], [1, 99]], {"level": 1.0}, "level"),
        ([1, 2], [[99, 1], [1, 99]], {"classes": ["a"]}, "2 rows"),
    ],
)
def test_what_is_not_counts_is_refused(
    counts: list[float], confusion: Any, how: dict[str, Any], wrong: str
) -> None:
    """The error names what was found in the place of counts."""
    with pytest.raises(InputError, match=wrong):
        Quantifier(confusion, **how).adjust(counts)
