"""Streams that change: alarms, the words that moved, and half-lives side by side.

**The alarm** is a conformal test martingale (Vovk, Gammerman and Shafer 2022, *Algorithmic learning
in a random world*, 2nd edition, part III) on the prequential losses. Each loss gets a p-value, its
place among all since the restart. If the losses are exchangeable, as those of a stable stream and a
model at rest are, p-values are independent and uniform, and no bet on them gains on average. The
capital begins at 1; by Ville's inequality it ever reaches 1/α with probability α at most, however
long the stream. A drift makes losses large and p-values small, on which all bets are placed: losses
that fall, as those of a model that learns do, lose them.

Nobody knows when a drift will come, nor how strong it will be. So the capital goes to work piece by
piece, n^(−5/4)/4 of it with loss n, at four stakes: a mixture over both, as the e-detectors of
Shin, Ramdas and Rinaldo (2023). A drift after a million losses has to earn what the pieces lack,
a factor of e^19, beside the 1/α.

**The words** are those whose log-odds of a class against the others changed between two windows by
enough standard errors, beyond what the classes' own shares changed (Monroe, Colaresi and Quinn
2008, "Fightin' words", *Political Analysis* 16). Each window gets one occurrence more, as the other
has them: a word that came once in one of them, and ten thousand times in the other, always with one
class, would else seem to speak for others than it did. They are ranked by the same figure with what
both windows know of a word's frequency and of its classes, which is less by chance.

**Half-lives side by side.** What to forget, nobody knows beforehand: after a sudden change the
shortest half-life is right, and in a stable stream the longest. So each word has its counts under
every half-life, in one row of memory, and a text is read and looked up once. As in `decay`, nothing
that was counted is touched: weights grow instead, and priors with them.

An answer is the mixture Σ_h w_h·p_h. The weights w_h follow each half-life's recent log-loss, with
a forgetting of their own (dynamic model averaging; Raftery, Kárný and Ettler 2010, "Online
prediction under model uncertainty via dynamic model averaging", *Technometrics* 52). As naive Bayes
is far too sure of itself, and the more so the more it has counted, log-losses of the bare
posteriors would prefer half-lives that have counted little. So each half-life's log-odds are
tempered first: p_h ∝ exp(β_h·s_hc/√(n + 1)), n the known words, where β_h follows the gradient of
its log-loss, each step divided by the curvature seen so far.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamnb import storage
from streamnb.columns import floats_in, read_counts, read_half_lives, read_losses, sealed
from streamnb.decay import Clock
from streamnb.errors import InputError, StoreError, check_kind, check_whole
from streamnb.features.counted_words import CountedState
from streamnb.features.protocol import Floats
from streamnb.features.words import Words
from streamnb.inspection.words import (
    Taught,
    change_of_log_odds,
    n_new_classes,
    weighed_examples,
    window_weights,
    word_view,
)
from streamnb.kernels import drift as kernel
from streamnb.kernels.layout import Counts, RowUpdates, RunOptions
from streamnb.labels import Codes, Label, check_classes, read_labels, to_indices, unlabelled_rows
from streamnb.likelihoods.base import Batch
from streamnb.likelihoods.multinomial import Multinomial
from streamnb.model import NaiveBayes
from streamnb.predict import BATCH_ROWS, read
from streamnb.priors import check
from streamnb.reader import ModelReader

_STAKES = np.array([0.05, 0.15, 0.4, 0.95])
_GROUP = "text"
_SAVED = ("ages", "log_weights", "tempers")


class DriftMartingale:
    """Raises an alarm when losses grow, in a stable stream with probability `alpha` at most.

    What is bounded is the probability of *ever* raising a false alarm, from the start or from the
    alarm before; each alarm restarts it with a capital of 1 and no losses to compare with.

    Parameters
    ----------
    alpha : float
        Between 0 and 1: the alarm is raised when the capital reaches 1/alpha.
    tolerance : float
        How much more often than half of the time a loss may exceed those before it, from 0 to 0.4:
        no drift of that size counts. The bound then holds for every stream whose p-values have a
        mean of 0.5 − tolerance or more, given those before.
    seed : int
        Of the hash that breaks ties between losses, from 0 to 2⁶⁴ − 1. The same losses raise the
        same alarms, however they are cut into batches.

    Examples
    --------
    >>> import numpy as np
    >>> losses = np.random.default_rng(1).exponential(0.4, 20_000)
    >>> losses[10_000:] *= 1.5
    >>> martingale = DriftMartingale()
    >>> alarms = martingale.update(losses)
    >>> len(alarms), 10_000 < alarms[0] < 11_000
    (1, True)
    """

    def __init__(self, alpha: float = 0.001, tolerance: float = 0.0, seed: int = 0) -> None:
        self.alpha = check("alpha", alpha, above=0.0)
        self.tolerance = check("tolerance", tolerance)
        check_whole("seed", seed, 0)
        if self.alpha >= 1.0 or self.tolerance > 0.4 or seed >= 1 << 64:
            raise InputError(
                "alpha must be below 1, tolerance at most 0.4 and seed below 2⁶⁴. Got"
                f" {alpha!r}, {tolerance!r} and {seed!r} instead."
            )
        self.seed = int(seed)
        self._counts = np.zeros(kernel.BINS, dtype=np.int64)
        self._capital = np.zeros(len(_STAKES))
        self._numbers = np.zeros(3, dtype=np.int64)

    @property
    def capital(self) -> float:
        """What the capital of 1 has become since the restart; below 1/alpha."""
        return float((self.n + 1) ** -0.25 + self._capital.sum())

    @property
    def n(self) -> int:
        """How many losses came since the restart."""
        return int(self._numbers[kernel.SINCE_RESTART])

    @property
    def n_alarms(self) -> int:
        """How many alarms there were."""
        return int(self._numbers[kernel.ALARMS])

    def update(self, losses: ArrayLike) -> list[int]:
        """Take in losses, in order; return the positions at which an alarm was raised.

        Parameters
        ----------
        losses : array_like of shape (n,)
            Minus the log-posterior of each true class, from before the example was learned; or any
            other measure of 0 and above of how wrong an answer was. Infinity is legal.

        Raises
        ------
        InputError
            If a loss is negative or not a number; nothing was taken in.
        """
        found = read_losses(losses)
        alarms = np.empty(len(found), dtype=np.int64)
        n = kernel.bet(
            found, np.array([self.seed], dtype=np.uint64), _STAKES,
            np.array([1.0 / self.alpha, self.tolerance]),
            self._counts, self._capital, self._numbers, alarms,
        )  # fmt: skip
        return [int(at) for at in alarms[:n]]

    def to_dict(self) -> dict[str, Any]:
        """Return settings and state as plain values, which JSON holds without loss."""
        return {
            "alpha": self.alpha,
            "tolerance": self.tolerance,
            "seed": self.seed,
            "counts": self._counts.tolist(),
            "capital": self._capital.tolist(),
            "numbers": self._numbers.tolist(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the martingale that `to_dict` described; it goes on bit for bit.

        Raises
        ------
        InputError
            If the values describe none.
        """
        try:
            found = cls(values["alpha"], values["tolerance"], values["seed"])
            for array, name in (
                (found._counts, "counts"),
                (found._capital, "capital"),
                (found._numbers, "numbers"),
            ):
                _fill(array, np.array(values[name], dtype=array.dtype), least=0.0)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"these values describe no martingale ({error!r}). Give what `to_dict` returned."
            ) from error
        if found._counts.sum() != found.n:
            raise InputError(f"counts must be those of {found.n} losses, as `numbers` say.")
        return found


def _fill(array: NDArray[Any], values: NDArray[Any], least: float = -math.inf) -> None:
    """Put a file's values into an array; refuse those that are not finite, or others."""
    if values.shape != array.shape or not (np.isfinite(values) & (values >= least)).all():
        raise ValueError(f"{values.shape} values that are none of its {array.shape}")
    array[:] = values


@dataclass(frozen=True, slots=True)
class WordCounts:
    """The counts of a model's most frequent words at one time, to be compared with later ones.

    Attributes
    ----------
    group : str
        The group of words.
    words : tuple of str
    counts : ndarray of shape (n_words, n_classes)
        N_jc, weighted.
    tokens : ndarray of shape (n_classes,)
        N_·c, of all words.
    scale, landmark : float
        How far decay had scaled the counts by then, and since when, in half-lives; 1 and 0 without.
    examples, weight : float
        How many examples they are of, and the weight of these together; 0 if that is not known.
    """

    group: str
    words: tuple[str, ...]
    counts: Floats
    tokens: Floats
    scale: float = 1.0
    landmark: float = 0.0
    examples: float = 0.0
    weight: float = 0.0

    def __post_init__(self) -> None:
        check_kind("group", self.group, str)
        check_kind("words", self.words, tuple)
        for word in self.words:
            check_kind("a word", word, str)
        scale = check("scale", self.scale, above=0.0)
        landmark = floats_in(self.landmark)
        check("examples", self.examples)
        check("weight", self.weight)
        counts = read_counts("counts", self.counts, scale)
        tokens = read_counts("tokens", self.tokens, scale)
        if tokens.ndim != 1 or counts.shape != (len(self.words), len(tokens)):
            raise InputError(
                f"counts must have a row for each of {len(self.words)} words, and a column for each"
                f" number of tokens. Got shapes {counts.shape} and {tokens.shape} instead."
            )
        if landmark.ndim or not np.isfinite(landmark):
            raise InputError(f"landmark must be a finite number. Got {self.landmark!r} instead.")
        object.__setattr__(self, "counts", sealed(counts))
        object.__setattr__(self, "tokens", sealed(tokens))


@dataclass(frozen=True, slots=True)
class MovedWord:
    """A word that speaks for another class than it did.

    Attributes
    ----------
    word : str
    label : str, int or bool
        The class that it speaks for more than before.
    z : float
        The change of its log-odds of that class, in standard errors.
    before, after : float
        The share of its occurrences that were of that class, in either window.
    group : str or None
        The group of words that it is of; None in what was saved before this was known.
    strength : float
        How much the change weighs, by which words are ranked: its size, times how often the word
        comes and how evenly, by both windows. 0 in what was saved before this was known.
    """

    word: str
    label: Label
    z: float
    before: float
    after: float
    group: str | None = None
    strength: float = 0.0


def count_words(
    model: ModelReader, n_words: int = 20_000, group: str | None = None, *, learned: Taught = None
) -> WordCounts:
    """Return the counts of a model's `n_words` most frequent words, to compare later ones with.

    `learned` is for a model with a half-life, as in `moved_words`.

    Raises
    ------
    InputError
        If the model has no such group of words.
    """
    check_kind("model", model, ModelReader)
    view = word_view(model.state, group)
    words = tuple(view.most_frequent(n_words))
    counts = view.state.counts
    return WordCounts(
        view.state.name,
        words,
        counts.by_word[view.state.find(words)],
        counts.tokens,
        model.state.clock.scale,
        model.state.clock.landmark,
        *weighed_examples(model.state, learned),
    )


def moved_words(
    earlier: WordCounts,
    model: ModelReader,
    n: int = 10,
    *,
    least_z: float = 4.0,
    learned: Taught = None,
) -> list[MovedWord]:
    """Return the words whose class changed most since, the strongest first.

    What was counted up to `earlier` is one window, what the model has learned since is the other:
    their counts are subtracted exactly. A word that only one of them has does not change.

    Parameters
    ----------
    earlier : WordCounts
        Of the same model, from `count_words`; one with fewer classes is an InputError.
    model : NaiveBayes or Snapshot
    n : int
        How many words at most.
    least_z : float
        Words that changed by fewer standard errors are left out. Of 20,000 words that do not
        change, chance takes one beyond 4. Each window's examples count 1 on average.
    learned : (float, float), optional
        How many examples a model with a half-life has learned, and their weight together: it does
        not know. Without, such a model's weights are taken as they are.

    Examples
    --------
    >>> import streamnb as nb
    >>> model = nb.NaiveBayes(["ham", "spam"], features={"text": nb.Words(nb.Multinomial())})
    >>> texts = ["cheap lunch", "cheap prize"] * 100
    >>> model.learn_many({"text": texts}, ["ham", "spam"] * 100)
    >>> before = nb.count_words(model)
    >>> model.learn_many({"text": texts}, ["spam", "ham"] * 100)
    >>> [(moved.word, moved.label) for moved in nb.moved_words(before, model)]
    [('lunch', 'spam'), ('prize', 'ham')]
    """
    check_kind("model", model, ModelReader)
    check_kind("earlier", earlier, WordCounts)
    check_whole("n", n, 0)
    check("least_z", least_z)
    state, group = model.state, word_view(model.state, earlier.group).state
    n_new = n_new_classes(len(earlier.tokens), len(state.classes))
    factor = Clock(state.clock.half_life, None, earlier.landmark).moved_to(state.clock.landmark)[1]
    columns = group.find(earlier.words)
    known = np.flatnonzero((columns >= 0) & (earlier.counts.sum(axis=1) > 0.0))
    before = np.pad(earlier.counts[known], ((0, 0), (0, n_new)))
    tokens = np.pad(earlier.tokens, (0, n_new))
    with np.errstate(over="ignore"):
        after = np.maximum(group.counts.by_word[columns[known]] - before * factor, 0.0)
        tokens_after = np.maximum(group.counts.tokens - tokens * factor, 0.0)
    came = after.sum(axis=1) > 0.0
    known, after = known[came], after[came]
    then = earlier.examples, earlier.weight
    one, other = window_weights(then, weighed_examples(state, learned))
    one, other = one * earlier.scale, other * state.clock.scale
    before = before[came] / one
    z, strength = change_of_log_odds(before, after / other, tokens / one, tokens_after / other)
    places = np.flatnonzero(z.max(axis=1, initial=-math.inf) >= least_z)
    best = z[places].argmax(axis=1)
    strongest = strength[places, best]
    shares = [each / each.sum(axis=1, keepdims=True) for each in (before, after)]
    found = []
    for k in np.argsort(-strongest, kind="stable")[:n].tolist():
        row, c = places[k], best[k]
        word, label, moved = earlier.words[known[row]], state.classes[c], float(z[row, c])
        was, now = (float(each[row, c]) for each in shares)
        found.append(MovedWord(word, label, moved, was, now, earlier.group, float(strongest[k])))
    return found


# ---- half-lives side by side ---------------------------------------------------------------------


class HalfLives:
    """Naive Bayes of words under several half-lives at once, mixed by their recent log-loss.

    Parameters
    ----------
    classes : iterable of str, int or bool
        All classes there are; a class prior counts each once more than it came.
    words : Words
        The group of words, under a `Multinomial` with one number for its prior.
    half_lives : sequence of float
        In examples, each at least 10; infinity never forgets. Each counts what a `NaiveBayes` with
        that decay alone counts, bit for bit under infinity.
    memory : float
        Half-life of the log-losses by which the half-lives are weighed, in examples.
    hash_key : int, optional
        As for `NaiveBayes`.

    Attributes
    ----------
    model : NaiveBayes
        The counts: its classes are one for each half-life and class, ``"0:ham"`` and so on. Those
        of each half-life stand at a scale of their own, as its examples gain weight with time.

    Examples
    --------
    >>> import streamnb as nb
    >>> model = HalfLives(["ham", "spam"], nb.Words(nb.Multinomial()), [50, float("inf")])
    >>> for truth in (["ham", "spam"], ["spam", "ham"]):
    ...     model.learn_many({"text": ["lunch", "prize"] * 400}, truth * 400)
    >>> model.predict_many({"text": ["lunch", "prize"]})
    ['spam', 'ham']
    >>> [round(share, 3) for share in model.shares()]
    [1.0, 0.0]
    """

    def __init__(
        self,
        classes: Iterable[Label],
        words: Words,
        half_lives: Sequence[float] = (1_000.0, 10_000.0, 100_000.0, 1_000_000.0, math.inf),
        *,
        memory: float = 1_000.0,
        hash_key: int | None = None,
    ) -> None:
        check_kind("words", words, Words)
        if not isinstance(words.likelihood, Multinomial) or words.hybrid is not None:
            raise InputError("words must be under a Multinomial(), without a hybrid.")
        self.alpha = check("the prior of words", words.likelihood.prior.concentration, above=0.0)
        self.classes = tuple(check_classes(classes))
        self.half_lives = read_half_lives(half_lives)
        if not self.classes:
            raise InputError("classes must not be empty.")
        self.memory = check("memory", memory, above=1.0)
        names = [f"{h}:{label}" for h in range(len(self.half_lives)) for label in self.classes]
        n_lives, n_classes = len(self.half_lives), len(self.classes)
        self._lives = kernel.Lives(
            1.0 / np.array(self.half_lives),
            np.zeros(n_lives),
            np.zeros(n_lives),
            np.tile([kernel.TEMPER_START, 1.0], (n_lives, 1)),
            np.empty(n_lives * n_classes),
            np.empty(n_lives * n_classes),
            np.empty(n_lives * n_classes),
            np.empty(n_lives),
            np.empty((n_lives, n_classes)),
            np.empty((n_lives, n_classes)),
            np.empty(n_lives),
        )
        self._count_in(NaiveBayes(names, features={_GROUP: words}, hash_key=hash_key))

    def _count_in(self, model: NaiveBayes) -> None:
        """Take a model's counts as those of the half-lives."""
        self.model = model
        self._group = cast(CountedState, model.state.groups[_GROUP])
        # Each half-life counts at a scale of its own: words leave by the counts of the longest.
        first = int(np.argmax(self.half_lives)) * len(self.classes)
        self._group.ranked_by = slice(first, first + len(self.classes))
        self._group.estimator = _SideBySide(self._lives, self.alpha, 0.5 ** (1.0 / self.memory))

    def __copy__(self) -> Self:
        """Return an independent copy, as that of a `NaiveBayes` is."""
        return copy.deepcopy(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what was pickled or copied: the counts are those of the copied model."""
        self.__dict__.update(state)
        self._count_in(self.model)

    def learn_many(self, columns: Any, labels: Sequence[Label] | Codes) -> None:
        """Learn examples in their order; see `prequential_many`."""
        self.prequential_many(columns, labels)

    def prequential_many(self, columns: Any, labels: Sequence[Label] | Codes) -> Floats:
        """Learn examples in order; return the log-posteriors that stood before each was learned.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            The field of text, of length n.
        labels : sequence of str, int or bool, or Codes, of length n

        Returns
        -------
        ndarray of shape (n, n_classes), in nats
            Of the mixture, however the stream is cut.

        Raises
        ------
        InputError
            For a value or label that cannot be used; nothing was learned.
        """
        fields, n = read(self.model.state, columns)
        codes = read_labels(labels, n, self.classes)
        places, ones = to_indices(codes, self.classes), np.ones(n)
        if (places < 0).any():
            other = codes.classes[codes.codes[places.argmin()]]
            raise InputError(f"labels must be among {self.classes!r}. Got {other!r} instead.")
        updates = RowUpdates(places, ones, ones, ones, ones)
        return self._run(fields[_GROUP], updates, True)

    def predict_log_proba_many(self, columns: Any) -> Floats:
        """Return log p(c | x) of the mixture, ndarray of shape (n, n_classes), in nats."""
        fields, n = read(self.model.state, columns)
        return self._run(fields[_GROUP], unlabelled_rows(n, 1.0), False)

    def predict_many(self, columns: Any) -> list[Label]:
        """Return the most probable class of each example; of classes that tie, the first."""
        found = self.predict_log_proba_many(columns)
        return [self.classes[c] for c in found.argmax(axis=1).tolist()]

    def shares(self) -> list[float]:
        """Return the weight of each half-life in the mixture; they add up to 1."""
        found = np.exp(self._lives.log_weights - self._lives.log_weights.max())
        return [float(each) for each in found / found.sum()]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to one file, safely; see `streamnb.save`."""
        arrays = {"half_lives": np.array(self.half_lives)}
        arrays |= {name: getattr(self._lives, name) for name in _SAVED}
        notes = {"classes": list(self.classes), "memory": self.memory}
        storage.save(self.model, path, notes=notes, extras=arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return what `save` wrote; it goes on bit for bit.

        Raises
        ------
        StoreError
            If the file is damaged, or holds no half-lives side by side.
        """
        stored = storage.read(path)
        try:
            notes, words = stored.header["notes"], stored.model.state.groups[_GROUP].spec
            half_lives = stored.extras["half_lives"].tolist()
            found = cls(notes["classes"], words, half_lives, memory=notes["memory"])
            for name in _SAVED:
                _fill(getattr(found._lives, name), stored.extras[name])
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{path}: no half-lives side by side, but another model.") from error
        if (
            stored.model.classes != found.model.classes
            or not found._lives.tempers[:, 1].min() > 0.0
        ):
            raise StoreError(f"{path}: the half-lives are none of the file's counts.")
        found._count_in(stored.model)
        return found

    def _run(self, text: Any, updates: RowUpdates, learn: bool) -> Floats:
        out, state = np.empty((len(updates.labels), len(self.classes))), self.model.state
        for begin in range(0, len(out), BATCH_ROWS):
            end = min(begin + BATCH_ROWS, len(out))
            own = updates.rows(begin, end)
            batch = self._group.encode(text, begin, end, own.labels, learn=learn)
            self._group.run(batch, own, out[begin:end], learn=learn)
            if learn:
                state.n_examples += end - begin
                state.class_counts[:] = self._group.counts.examples
                state.compact()
        return out


class _SideBySide:
    """The estimator of a group whose classes are those of several half-lives."""

    def __init__(self, lives: kernel.Lives, alpha: float, kept: float) -> None:
        self._lives, self._alpha, self._kept = lives, alpha, kept

    def run(
        self,
        counts: Counts,
        batch: Batch,
        updates: RowUpdates,
        options: RunOptions,
        n_words: int,  # noqa: ARG002 -- part of the protocol
        out: Floats,
    ) -> tuple[int, int, int]:
        """Predict, then learn, as every estimator does."""
        return kernel.half_lives(
            counts, self._lives, self._alpha, self._kept, batch.rows, updates, options, out
        )

    def rebuild(self, counts: Counts, n_words: int) -> None:
        """Do nothing: there is no cache."""

    def copy(self) -> Self:
        """Return this object: it has no cache."""
        return self
