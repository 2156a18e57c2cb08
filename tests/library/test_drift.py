"""Drift: the martingale against its plain twin, its false alarms, and planted changes of words."""

from __future__ import annotations

import doctest
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import streamnb as nb
from benchmarks.drift import PlantedStream, detect
from streamnb.errors import InputError
from streamnb.inspection.words import change_of_log_odds
from streamnb.river import AdwinAlarm

STAKES = (0.05, 0.15, 0.4, 0.95)
MASK = (1 << 64) - 1


def mixed(value: int) -> int:
    """Return MurmurHash3's finaliser."""
    value = ((value ^ (value >> 33)) * 0xFF51AFD7ED558CCD) & MASK
    value = ((value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53) & MASK
    return value ^ (value >> 33)


class PlainMartingale:
    """The martingale as it is written down: every loss kept, each compared with each."""

    def __init__(self, alpha: float, tolerance: float, seed: int) -> None:
        self.alpha, self.tolerance, self.seed = alpha, tolerance, seed
        self.ever = 0
        self.restart()

    def restart(self) -> None:
        """Forget all losses; begin with a capital of 1, none of it at stake."""
        self.bins: list[tuple[int, int]] = []
        self.capital = [0.0] * len(STAKES)

    def takes(self, loss: float) -> bool:
        """Return whether the alarm is raised by a loss."""
        mantissa, octave = math.frexp(min(loss, 63.9))
        quarter = int(mantissa * 8) - 4
        own = (octave, quarter) if octave >= -24 and loss else (-24, 0)
        self.bins.append(own)
        self.ever += 1
        n = len(self.bins)
        number = mixed((self.seed + self.ever * 0x9E3779B97F4A7C15) & MASK) >> 11
        equal = sum(each == own for each in self.bins)
        p = (sum(each > own for each in self.bins) + number / 2**53 * equal) / n
        at_stake = (n**-0.25 - (n + 1) ** -0.25) / len(STAKES)
        self.capital = [
            (held + at_stake) * (1 + stake * (1 - 2 * p)) / (1 + 2 * stake * self.tolerance)
            for held, stake in zip(self.capital, STAKES, strict=True)
        ]
        if (n + 1) ** -0.25 + sum(self.capital) >= 1 / self.alpha:
            self.restart()
            return True
        return False


losses_of_a_stream = st.lists(
    st.one_of(st.floats(0.0, 35.0), st.sampled_from([0.0, 0.5, 1e-9, math.inf])), max_size=60
)


@given(losses_of_a_stream, st.sampled_from([0.0, 0.1]), st.integers(0, MASK), st.integers(0, 60))
def test_it_is_its_plain_twin(losses: list[float], tolerance: float, seed: int, cut: int) -> None:
    """Alarms and capital are the twin's, however the losses are cut, saved and loaded."""
    plain = PlainMartingale(0.3, tolerance, seed)
    wanted = [i for i, loss in enumerate(losses) if plain.takes(loss)]
    martingale = nb.DriftMartingale(0.3, tolerance, seed)
    found = martingale.update(losses[:cut])
    again = nb.DriftMartingale.from_dict(json.loads(json.dumps(martingale.to_dict())))
    found += [cut + at for at in again.update(losses[cut:])]
    assert found == wanted
    assert again.n == len(plain.bins)
    assert again.n_alarms == len(wanted)
    np.testing.assert_allclose(
        again.capital, (again.n + 1) ** -0.25 + sum(plain.capital), rtol=1e-12
    )
    whole = nb.DriftMartingale(0.3, tolerance, seed)
    assert whole.update(losses) == wanted
    assert whole.to_dict() == again.to_dict()  # bit for bit


def alarm_rate(alpha: float, tolerance: float, growth: float) -> float:
    """Return the share of 400 streams of 5,000 losses that raise an alarm."""
    alarms = 0
    for seed in range(400):
        losses = np.random.default_rng(seed).exponential(0.4, 5_000)
        losses *= np.linspace(1.0, growth, len(losses))
        alarms += bool(nb.DriftMartingale(alpha, tolerance, seed).update(losses))
    return alarms / 400


def test_false_alarms_stay_below_the_bound() -> None:
    """By Ville's inequality α of the stable streams ever raise one."""
    assert alarm_rate(0.2, 0.0, 1.0) <= 0.2
    assert alarm_rate(0.2, 0.0, 0.7) <= 0.2
    assert alarm_rate(0.2, 0.0, 1.3) > 0.9  # it can fail: here they grow


def test_a_tolerated_change_raises_no_alarm() -> None:
    """With a tolerance, losses that grow by less do not count, and those that grow more do."""
    assert alarm_rate(0.05, 0.05, 1.2) <= 0.05
    assert alarm_rate(0.05, 0.05, 4.0) > 0.9


def test_adding_ties_changes_no_bound() -> None:
    """Errors of 0 or 1 have p-values as uniform as any: their ties are broken evenly."""
    alarms = 0
    for seed in range(400):
        wrong = np.random.default_rng(seed).random(5_000) < 0.2
        alarms += bool(nb.DriftMartingale(0.2, seed=seed).update(wrong))
    assert alarms / 400 <= 0.2


@pytest.mark.parametrize(
    "settings",
    [{"alpha": 0.0}, {"alpha": 1.0}, {"tolerance": 0.5}, {"seed": -1}, {"seed": 1 << 64}],
    ids=str,
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    """They are errors of the caller."""
    with pytest.raises(InputError):
        nb.DriftMartingale(**settings)


@pytest.mark.parametrize(
    "losses", [[0.1, -0.1], [0.1, math.nan], [[0.1]], ["x"], [None], [[0.1], []]], ids=str
)
def test_losses_that_are_none_are_refused(losses: list[Any]) -> None:
    """Nothing of them is taken in."""
    martingale, adwin = nb.DriftMartingale(), AdwinAlarm()
    for alarm in (martingale, adwin):
        with pytest.raises(InputError, match="losses must be"):
            alarm.update(losses)
    assert martingale.n == adwin.adwin.width == 0


def planted(before: float, after: float) -> NDArray[np.float64]:
    """Return losses whose mean changes after a thousand."""
    random = np.random.default_rng(8)
    return np.repeat([before, after], 1000) * random.exponential(size=2000)


def test_adwin_tells_of_growth_once_and_of_a_fall_never() -> None:
    """Of losses three times as large it tells within two hundred."""
    (at,) = AdwinAlarm().update(planted(0.3, 0.9))
    assert 1000 <= at < 1200
    fallen = AdwinAlarm()
    assert fallen.update(planted(0.9, 0.3)) == []
    assert fallen.n_alarms == 0
    assert fallen.adwin.width < 1500  # it saw the fall, and dropped what was before


@pytest.mark.parametrize("largest", [1.0, 5.0, 36.0])
def test_adwin_raises_no_false_alarm_whatever_the_largest_loss(largest: float) -> None:
    """Its bound is of values from 0 to 1: rare large losses are no change."""
    for seed in range(6):
        rare = np.random.default_rng(seed).random(20_000) < 0.003
        losses = np.where(rare, largest, 0.001)
        assert AdwinAlarm(largest=largest).update(losses) == []


def test_adwin_sees_losses_by_their_share_of_the_largest() -> None:
    """Losses in another unit raise the same alarms; one beyond the largest counts as it."""
    losses = planted(0.3, 0.9)
    found = AdwinAlarm(largest=4.0).update(losses)
    assert len(found) == 1
    assert AdwinAlarm(largest=32.0).update(8.0 * losses) == found
    endless = AdwinAlarm()
    endless.update([math.inf] * 5)
    assert endless.adwin.estimation == 1.0


@given(st.lists(st.integers(0, 2000), max_size=4))
def test_adwin_tells_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    """One call or many: the alarms stand at the same losses."""
    losses = planted(0.3, 0.9)
    alarm, found = AdwinAlarm(), []
    for begin, end in itertools.pairwise([0, *sorted(cuts), 2000]):
        found += [begin + at for at in alarm.update(losses[begin:end])]
    assert found == AdwinAlarm().update(losses)
    assert alarm.n_alarms == len(found) == 1


def test_values_that_no_martingale_gave_are_refused() -> None:
    """Else a changed file would bet without a bound, or no more."""
    values = nb.DriftMartingale().to_dict()
    ones = [1] * len(values["counts"])
    for changed in (
        {"counts": 0}, {"counts": "x"}, {"counts": ones}, {"counts": [-1, *ones[1:]]},
        {"numbers": [-1, 0, 0]}, {"numbers": [1, 1, 0]}, {"capital": [math.nan] * 4},
        {"capital": [-1.0] * 4}, {"capital": 0.1}, {"seed": -1}, {"alpha": None},
    ):  # fmt: skip
        with pytest.raises(InputError):
            nb.DriftMartingale.from_dict(values | changed)
    with pytest.raises(InputError, match="no martingale"):
        nb.DriftMartingale.from_dict({})


# ---- words ---------------------------------------------------------------------------------------


def test_z_is_the_change_of_the_log_odds_by_its_standard_error() -> None:
    """Two words, two classes, by hand; a change of the classes' own shares is none of a word."""
    before, after = np.array([[30.0, 10.0]]), np.array([[10.0, 30.0]])
    total = np.array([1e9, 1e9])
    one, other = 30.0 + 10.5 / 41.0, 10.0 + 30.5 / 41.0  # an occurrence, as the other window has it
    change = math.log(other / one) - math.log(one / other)
    error = math.sqrt(2 / one + 2 / other)
    found = change_of_log_odds(before, after, total, total).z
    np.testing.assert_allclose(found, [[change / error, -change / error]])
    moved = change_of_log_odds(before, before * [1.0, 8.0], total, total * [1.0, 8.0]).z
    assert abs(moved).max() < 0.2


@pytest.mark.parametrize("decay", [None, nb.HalfLife(examples=300.0), nb.HalfLife(seconds=300.0)])
def test_windows_are_subtracted_whatever_is_forgotten(decay: nb.HalfLife | None) -> None:
    """Decayed counts are brought to one time first, across landmarks that have moved."""
    model = nb.NaiveBayes(["a", "b"], features={"t": nb.Words(nb.Multinomial())}, decay=decay)
    texts, labels = ["cold day", "warm day"], ["a", "b"]
    n = 4_000
    times = np.arange(2.0 * n)
    model.learn_many({"t": texts * (n // 2)}, labels * (n // 2), times_s=times[:n])
    earlier = nb.count_words(model)
    model.learn_many({"t": texts * 200}, labels[::-1] * 200, times_s=times[n : n + 400])
    found = nb.moved_words(earlier, model)
    assert {each.word: each.label for each in found} == {"cold": "b", "warm": "a"}
    assert all(each.before == pytest.approx(0.0, abs=1e-6) for each in found)
    assert all(each.after == pytest.approx(1.0, abs=1e-6) for each in found)


@pytest.mark.parametrize("much", [2_000.0, 1e5, 1e7])
def test_a_word_that_is_rare_in_one_window_stays_where_it_was(much: float) -> None:
    """Always of one class, it speaks for it still, however often it comes; turned, it moved."""
    often, total = np.array([[much, 0.0]]), np.array([1e9, 1e9])
    for few in ([0.0, 0.0], [1.0, 0.0], [20.0, 0.0]):
        assert abs(change_of_log_odds(often, np.array([few]), total, total).z).max() < 1.0
        assert abs(change_of_log_odds(np.array([few]), often, total, total).z).max() < 1.0
    assert change_of_log_odds(often, np.array([[0.0, 20.0]]), total, total).z[0, 1] > 5.0


def test_a_run_of_one_class_moves_no_word() -> None:
    """What lacks a class that nothing has any more says nothing new, however often it comes."""
    before, after = np.array([[30.0, 100.0]]), np.array([[5.0, 0.0]])
    totals = np.array([2e5, 2e5]), np.array([4e4, 0.0])
    assert abs(change_of_log_odds(before, after, *totals).z).max() < 0.5
    model = nb.NaiveBayes(["a", "b"], features={"t": nb.Words(nb.Multinomial())})
    texts, labels, _ = leaning(1, 20_000, turned=False, weights=np.ones(1))
    model.learn_many({"t": texts}, labels)
    earlier = nb.count_words(model)
    texts, labels, _ = leaning(2, 4_000, turned=False, weights=np.ones(1))
    of_one = [text for text, label in zip(texts, labels, strict=True) if label == "a"]
    model.learn_many({"t": of_one}, ["a"] * len(of_one))
    assert nb.moved_words(earlier, model) == []


def test_words_are_ranked_with_less_of_chance_than_z_has() -> None:
    """Of words that came as often before, none is strong as it happened to come often lately."""
    before = np.array([[7_500.0, 2_500.0]] * 3 + [[75.0, 25.0]])
    after = np.array([[25.0, 75.0], [30.0, 90.0], [1.0, 3.0], [25.0, 75.0]])
    total = np.array([1e6, 1e6]), np.array([1e4, 1e4])
    z, strength = change_of_log_odds(before, after, *total)
    assert z[1, 1] > z[0, 1] > z[2, 1] > 0.0
    assert strength[1, 1] == pytest.approx(strength[0, 1], rel=0.02)
    assert strength[3, 1] < strength[0, 1]  # only lately as frequent
    assert strength[2, 1] < 0.4 * strength[0, 1]  # it has become rare


def test_a_word_that_came_no_more_has_not_moved() -> None:
    """Without an occurrence nothing is known of it, and its share would be none."""
    spec = nb.Words(nb.Multinomial(), dictionary=("gone", "cold", "late", "day"))
    model = nb.NaiveBayes(["a", "b"], features={"t": spec})
    model.learn_many({"t": ["gone day", "cold day"] * 5_000}, ["a", "b"] * 5_000)
    earlier = nb.count_words(model)
    model.learn_many({"t": ["late day", "cold day"] * 5_000}, ["a", "b"] * 5_000)
    found = nb.moved_words(earlier, model, least_z=0.0)
    assert {each.word for each in found} == {"cold", "day"}
    assert nb.moved_words(earlier, model) == []


def test_a_word_that_left_or_a_class_that_came_does_no_harm() -> None:
    """Words without counts are passed over, as new ones are; a new class has none before."""
    model = nb.NaiveBayes(features={"t": nb.Words(nb.Multinomial())})
    model.learn_many({"t": ["cold", "warm"] * 30}, ["a", "b"] * 30)
    model.learn_one({"t": "gone"}, "a")
    earlier = nb.count_words(model)
    model.unlearn_one({"t": "gone"}, "a")
    model.learn_many({"t": ["cold", "warm", "new"] * 30}, ["c", "b", "c"] * 30)
    found = nb.moved_words(earlier, model, least_z=0.0)
    assert {each.word for each in found} == {"cold", "warm"}
    (cold,) = (each for each in found if each.word == "cold")
    assert (cold.label, cold.before, cold.after) == ("c", 0.0, 1.0)
    assert nb.moved_words(earlier, model, 0) == []
    assert nb.moved_words(nb.count_words(model), model) == []
    fewer = nb.NaiveBayes(["a"], features={"t": nb.Words(nb.Multinomial())})
    with pytest.raises(InputError, match="same model"):
        nb.moved_words(earlier, fewer)


def leaning(
    seed: int, n: int, *, turned: bool, weights: NDArray[np.float64]
) -> tuple[list[str], list[str], list[float]]:
    """Return texts of 300 words with leans of their own, labels and weights; one word may turn."""
    random = np.random.default_rng(seed)
    labels, texts = random.integers(0, 2, n), []
    for label in labels.tolist():
        words = random.integers(0, 300, 3)
        leans = np.array([0.35, 0.5, 0.65])[words % 3]
        kept = random.random(3) < (leans if label else 1.0 - leans)
        said = [f"w{each}" for each in np.where(kept, words, random.integers(0, 300, 3))]
        if random.random() < 0.35:
            said.append("left" if bool(label) != turned else "right")
        texts.append(" ".join(said))
    return texts, [("a", "b")[each] for each in labels], random.choice(weights, n).tolist()


@pytest.mark.parametrize(
    "weights", [(1.0,), (50.0,), (1 / 64,), (0.5, 1.5), (1e-60,), (1e40,)], ids=str
)
def test_words_that_moved_do_not_depend_on_the_unit_of_weights(weights: tuple[float, ...]) -> None:
    """Those that turned are named, with z as without weights; those that stayed are not."""
    found = []
    for choice in (np.ones(1), np.array(weights)):
        model = nb.NaiveBayes(["a", "b"], features={"t": nb.Words(nb.Multinomial())})
        texts, labels, own = leaning(1, 12_000, turned=False, weights=choice)
        model.learn_many({"t": texts}, labels, weights=own)
        earlier = nb.count_words(model)
        texts, labels, own = leaning(2, 4_500, turned=True, weights=choice)
        model.learn_many({"t": texts}, labels, weights=own)
        found.append({each.word: (each.label, each.z) for each in nb.moved_words(earlier, model)})
    plain, weighed = found
    assert plain.keys() == weighed.keys() == {"left", "right"}
    for word, (label, z) in plain.items():
        assert weighed[word][0] == label
        assert weighed[word][1] == pytest.approx(z, rel=0.15 if len(weights) > 1 else 1e-9)


@pytest.mark.parametrize("weight", [1.0, 50.0, 1 / 64])
def test_a_model_that_forgets_is_told_what_weighed(weight: float) -> None:
    """It cannot tell weights from its own; whoever knows says how many examples there were."""
    found = []
    for each in (1.0, weight):
        decay = nb.HalfLife(seconds=4_000.0)
        model = nb.NaiveBayes(["a", "b"], features={"t": nb.Words(nb.Multinomial())}, decay=decay)
        texts, labels, own = leaning(1, 12_000, turned=False, weights=np.full(1, each))
        model.learn_many({"t": texts}, labels, weights=own, times_s=np.arange(12_000.0))
        earlier = nb.count_words(model, learned=(12_000.0, 12_000.0 * each))
        texts, labels, own = leaning(2, 4_500, turned=True, weights=np.full(1, each))
        model.learn_many({"t": texts}, labels, weights=own, times_s=12_000.0 + np.arange(4_500.0))
        now = (16_500.0, 16_500.0 * each)
        found.append(nb.moved_words(earlier, model, learned=now))
        if each == 1.0:
            assert found[0] == nb.moved_words(earlier, model)
        with pytest.raises(InputError, match="learned"):
            nb.count_words(model, learned=(-1.0, 1.0))
    plain, weighed = found
    assert {each.word for each in plain} == {"left", "right"}
    assert [each.word for each in weighed] == [each.word for each in plain]
    assert [each.z for each in weighed] == pytest.approx([each.z for each in plain], rel=1e-9)


def test_each_window_has_weights_of_its_own() -> None:
    """A unit that changes between the windows is none of the words; nor is an older count."""
    model = nb.NaiveBayes(["a", "b"], features={"t": nb.Words(nb.Multinomial())})
    for seed, weight in ((1, 1.0), (2, 100.0)):
        texts, labels, own = leaning(seed, 6_000, turned=False, weights=np.full(1, weight))
        earlier = nb.count_words(model) if model.n_examples else None
        model.learn_many({"t": texts}, labels, weights=own)
    assert earlier is not None
    assert (earlier.examples, earlier.weight) == (6_000.0, 6_000.0)
    assert nb.moved_words(earlier, model) == []
    with pytest.raises(InputError, match="examples must be"):
        replace(earlier, examples=-1.0)
    with pytest.raises(InputError, match="weight must be"):
        replace(earlier, weight=math.inf)


def test_figures_without_weights_are_those_of_before() -> None:
    """Bit for bit, by an older count too, which knew neither examples nor weight."""
    model = nb.NaiveBayes(["a", "b"], features={"t": nb.Words(nb.Multinomial())})
    texts, labels, _ = leaning(1, 6_000, turned=False, weights=np.ones(1))
    model.learn_many({"t": texts}, labels)
    earlier = nb.count_words(model)
    texts, labels, _ = leaning(2, 2_000, turned=True, weights=np.ones(1))
    model.learn_many({"t": texts}, labels)
    found = nb.moved_words(earlier, model)
    assert found == nb.moved_words(replace(earlier, examples=0.0, weight=0.0), model)
    now = nb.count_words(model)
    places = [now.words.index(each.word) for each in found]
    before = np.array([earlier.counts[earlier.words.index(each.word)] for each in found])
    plain = change_of_log_odds(
        before, now.counts[places] - before, earlier.tokens, now.tokens - earlier.tokens
    ).z
    assert [each.z for each in found] == plain.max(axis=1).tolist()


# ---- planted drift -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_an_abrupt_change_is_noticed_and_named(seed: int) -> None:
    """Half the vocabulary changes sides: an alarm within 5,000 tweets, 8 of 10 words named."""
    found = detect(PlantedStream(seed), 20_000, 20_000, seed=seed)
    assert found.false_alarms == 0
    assert found.delay is not None
    assert found.delay <= 2_000
    assert found.named >= 8
    assert found.named_at <= 5_000


def test_a_gradual_and_a_returning_change_are_noticed() -> None:
    """A change that takes 20,000 tweets, and one that goes back, each raise their alarms."""
    gradual = detect(PlantedStream(3), 20_000, 30_000, gradual=20_000, seed=3)
    assert gradual.false_alarms == 0
    assert gradual.delay is not None
    assert gradual.delay <= 20_000
    recurring = detect(PlantedStream(4), 20_000, 60_000, period=20_000, half_life=5_000.0, seed=4)
    assert recurring.n_alarms >= 3
    assert recurring.false_alarms == 0


def test_a_stable_stream_raises_no_alarm() -> None:
    """A small version of `python -m benchmarks.drift stable`."""
    assert detect(PlantedStream(5), 60_000, 0, seed=5).false_alarms == 0


def test_the_guide_shows_what_happens() -> None:
    """Every example of `docs/drift.md` prints what the page says."""
    guide = Path(__file__).resolve().parents[2] / "docs" / "drift.md"
    failed, n_run = doctest.testfile(
        str(guide), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert n_run > 8
    assert failed == 0


def test_counts_of_words_stay_what_they_were() -> None:
    """They are of one time, whatever becomes of the arrays that they were made of."""
    counts, tokens = np.array([[1.0, 2.0]]), np.array([3.0, 4.0])
    found = nb.WordCounts("text", ("a",), counts, tokens)
    counts[:], tokens[:] = 0.0, -1.0
    assert found.counts.tolist() == [[1.0, 2.0]]
    assert found.tokens.tolist() == [3.0, 4.0]
    for each in (found.counts, found.tokens):
        with pytest.raises(ValueError, match="read-only"):
            each[:] = 0.0
