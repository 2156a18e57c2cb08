"""What a group's statistics say beyond a posterior: to people, and to other programs.

A view reads a group's state and changes nothing; `view_of` returns it. The views themselves stand
in `words.py`, `categorical.py` and `numeric.py`; what those of words share is `WordsView`, here.
All log-likelihoods are in nats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError, check_whole
from streamnb.features import statistics
from streamnb.features.bag import BagState
from streamnb.features.counted_words import CountedState
from streamnb.features.protocol import Floats, GroupState
from streamnb.features.words import WordsState
from streamnb.labels import unlabelled
from streamnb.likelihoods.multinomial import vocabulary_size
from streamnb.state import ModelState

ExportTable = dict[str, list[str] | Floats]  # columns by name; arrays have a row for each feature
# What a feature of an example is.
FeatureKind = Literal["word", "absent_words", "category", "flag", "number"]


class ParameterCount(NamedTuple):
    """How many parameters a group has, in both countings of the lecture notes.

    Attributes
    ----------
    table : int
        Entries of its tables; Bernoulli's are k·s, categorical k·Σe_j, multinomial k·V,
        Gaussian 2·k·m.
    independent : int
        Those that can be chosen freely: each distribution's probabilities add up to 1.
    """

    table: int
    independent: int


class Linear(NamedTuple):
    """A log-likelihood that is linear in the features: Σ_j w_jc·x_j + b_c.

    Attributes
    ----------
    names : list of str
        The features, in the order of the weights.
    weights : ndarray of shape (n_features, n_classes), in nats
    constants : ndarray of shape (n_classes,), in nats
    """

    names: list[str]
    weights: Floats
    constants: Floats


class FeatureLogs(NamedTuple):
    """Log-likelihoods of a group's features, (n_features, n_classes) in nats.

    `names` returns the names of rows: of a million features, only those that are asked for.
    `are_ratios` says that the values are already ratios of a class to the others.
    """

    names: Callable[[NDArray[np.int64]], list[str]]
    values: Floats
    are_ratios: bool = False


class Effect(NamedTuple):
    """What one feature of an example adds to the log-likelihood, by class, in nats.

    See `explain.Contribution`, which has the same attributes with the classes' names.
    """

    feature: str
    by_class: Floats
    value: str
    counts: Floats | None = None
    likelihoods: Floats | None = None
    kind: FeatureKind | None = None
    means: Floats | None = None  # nan of a class without a value
    deviations: Floats | None = None

    @property
    def unseen(self) -> bool:
        """Whether no class has learned it."""
        return self.counts is not None and not self.counts.any()


def quantity(n: int, what: str) -> str:
    """Return a number with its unit in the right form, such as "1 word" or "2 words"."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def names_from(names: list[str]) -> Callable[[NDArray[np.int64]], list[str]]:
    """Return a function that looks up the names of rows in a list."""
    return lambda rows: [names[j] for j in rows.tolist()]


def candidates(values: Floats, n: int) -> NDArray[np.int64]:
    """Return the places of the `n` largest values, and of those that tie with the last of them.

    The names that break the ties are then looked up for these alone.
    """
    if len(values) <= n:
        return np.arange(len(values))
    return np.flatnonzero(values >= -np.partition(-values, n - 1)[n - 1]) if n else np.arange(0)


class GroupView(ABC):
    """The questions that a group answers beyond prediction.

    `scale` says how far decay has scaled the counts by now, and so multiplies priors; it is 1
    without decay. A subclass names what it is the view of (`of=`): a group's state, or a
    likelihood.
    """

    length_drawn: int | None = None  # words of each text sampled; None draws the length too

    def __init_subclass__(cls, *, of: type | None = None) -> None:
        super().__init_subclass__()
        if of is not None:
            _VIEWS[of] = cls

    def __init__(self, state: Any, scale: float) -> None:
        self.state = state
        self.scale = scale

    @property
    def n_features(self) -> int:
        """Number of features: words, values, flags or numbers."""
        return len(self.state.fields)

    @property
    def size(self) -> str:
        """How large the group is, such as "3 fields"."""
        # Of an open group only the fields that something is known of: not those unlearned.
        return quantity(len(self.state.state_to_dict()["fields"]), "field")

    def outcomes(self) -> Counter[int] | None:
        """Return how many features have how many values; None if they cannot be counted."""
        return None

    @abstractmethod
    def export(self) -> tuple[dict[str, Any], ExportTable]:
        """Return what the export holds of the group as a whole, and of its features."""

    @abstractmethod
    def parameters(self) -> ParameterCount:
        """Count the parameters as they stand."""

    @abstractmethod
    def log_likelihood(self) -> float:
        """Return Σ log p(x | y) of all that was learned, under the estimates as they stand.

        From the statistics alone; 0·log 0 is 0. Multinomial coefficients are left out.
        """

    def log_coefficients(self, fields: Any, n: int) -> Floats:  # noqa: ARG002
        """Return what `log_likelihood` leaves out of each of `n` examples, shape (n,)."""
        return np.zeros(n)

    @abstractmethod
    def sample(self, labels: NDArray[np.int32], rng: np.random.Generator) -> dict[str, list[Any]]:
        """Draw one example a label from the generative model; return the fields' values."""

    @abstractmethod
    def linear(self) -> Linear:
        """Return the linear form, or raise an InputError that says why there is none."""

    @abstractmethod
    def contributions(self, fields: Any, row: int) -> list[Effect]:
        """Return what each feature of one example adds to the log-likelihood.

        `fields` is what the state's `read` returned. Together the effects are what `run` adds; a
        feature without effect is left out.
        """

    @abstractmethod
    def log_odds(self) -> FeatureLogs:
        """Return the log-likelihood of each feature that is present.

        For words and flags log θ_jc, for categories one row a value; for numbers a row a field: the
        mean log-likelihood ratio of class c's own examples against the other classes'.
        """

    def log_odds_of_values(self) -> FeatureLogs:
        """Return the same with a row for each value that a feature had, such as false flags."""
        return self.log_odds()

    @abstractmethod
    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:
        """Return one example's log-likelihoods under `n` parameters drawn from their posterior.

        Shape (n, n_classes). What no feature of the example depends on is not drawn.
        """

    def moments(self, fields: Any, row: int) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Return mean and variance of what `draws` draws, each of shape (n_classes,)."""
        raise InputError(
            f"group {self.state.name!r}: the delta method knows no variance here. Take"
            " method='sampled'."
        )


class KnownWords(NamedTuple):
    """The known words of one example: their columns (n,) int64, and how often each occurs (n,).

    `there` says whether the example has the group's field at all.
    """

    there: bool
    columns: NDArray[np.int64]
    times: Floats


class WordsView(GroupView):
    """A view of counted words."""

    state: CountedState

    @cached_property
    def live(self) -> NDArray[np.int64]:
        """Columns of the words, in the order of the vocabulary."""
        return self.state.live_columns()

    @cached_property
    def names(self) -> list[str]:
        """The words, in the order of `live`."""
        return self.state.vocabulary.words(self.live)

    @property
    def examples(self) -> Floats:
        """N_c, decayed up to now, shape (n_classes,)."""
        return self.state.counts.examples / self.scale

    @property
    def tokens(self) -> Floats:
        """N_·c, decayed up to now, shape (n_classes,)."""
        return self.state.counts.tokens / self.scale

    def counts_of(self, columns: NDArray[np.int64]) -> Floats:
        """Return N_jc of columns, decayed up to now, shape (n, n_classes)."""
        return self.state.counts.by_word[columns] / self.scale

    def log_theta(self, columns: NDArray[np.int64]) -> Floats:
        """Return log θ_jc of columns, shape (n, n_classes)."""
        return self.state.log_theta(columns, self.scale)

    def theta(self, columns: NDArray[np.int64]) -> Floats:
        """Return θ_jc of columns, shape (n, n_classes)."""
        return np.exp(self.log_theta(columns))

    def counted(self) -> NDArray[np.int64]:
        """Return the columns with a count: `live` without the unseen words of a dictionary."""
        return statistics.live_columns(self.state.counts, self.state.vocabulary.n_words)

    def most_frequent(self, n: int) -> list[str]:
        """Return the `n` words with the largest count over all classes; ties by the alphabet."""
        check_whole("n", n, 0)
        live = self.counted()
        totals = statistics.column_totals(self.state.counts, self.state.vocabulary.n_words)[live]
        first = candidates(totals, n)
        counted = zip(totals[first].tolist(), self.state.vocabulary.words(live[first]), strict=True)
        return [word for _, word in sorted(counted, key=lambda each: (-each[0], each[1]))[:n]]

    def by_text(self, words: Any, values_of: Callable[[NDArray[np.int64]], Floats]) -> Floats:
        """Return values of words by their texts, shape (n, n_classes); 0 if a word is not known.

        A single text is refused: it would be read letter by letter.
        """
        texts = words.tolist() if hasattr(words, "tolist") else words
        is_many = isinstance(texts, Sequence) and not isinstance(texts, str | bytes)
        if not is_many or not all(isinstance(word, str) for word in texts):
            raise InputError(f"words must be a sequence of str. Got {texts!r} instead.")
        columns = self.state.find(texts)
        found = np.zeros((len(columns), len(self.tokens)))
        found[columns >= 0] = values_of(columns[columns >= 0])
        return found

    def log_odds(self) -> FeatureLogs:
        """Return log θ_jc of each word; see `GroupView`."""
        return self._log_odds(self.live)

    def log_odds_of_values(self) -> FeatureLogs:
        """Return log θ_jc of each word with a count, without the unseen ones of a dictionary."""
        return self._log_odds(self.counted())

    def _log_odds(self, columns: NDArray[np.int64]) -> FeatureLogs:
        words = self.state.vocabulary.words
        return FeatureLogs(lambda rows: words(columns[rows]), self.log_theta(columns))

    def row(self, fields: Any, row: int) -> KnownWords:
        """Return the known words of one example."""
        batch = self.state.encode(fields, row, row + 1, unlabelled(1), learn=False)
        n = int(batch.rows.indptr[1])
        columns = batch.rows.columns[:n].astype(np.int64)
        by_word = self.state.counts.by_word
        known = (columns >= 0) & (columns < len(by_word))
        if not self.state.n_declared:
            known[known] = by_word[columns[known]].any(axis=1)
        # A copy: the arrays of the batch may be a thread's scratch, and used again.
        times = batch.rows.counts[:n][known].copy()
        return KnownWords(bool(batch.present[0]), columns[known], times)

    def parameters(self) -> ParameterCount:
        """Count k·V entries; those of each class, or of its complement, add up to 1."""
        k, v = len(self.tokens), len(self.live)
        return ParameterCount(k * v, k * max(v - 1, 0))

    def linear(self) -> Linear:
        """Return log θ_jc, or the score of the complement, as weights; there is no constant."""
        return Linear(self.names, self.log_theta(self.live), np.zeros(len(self.tokens)))

    def contributions(self, fields: Any, row: int) -> list[Effect]:
        """Return x_j·log θ_jc for each word of the example; see `GroupView`."""
        words = self.row(fields, row)
        log_theta = self.log_theta(words.columns)
        return self.effects(words, log_theta, words.times[:, None] * log_theta)

    def effects(self, row: KnownWords, log_theta: Floats, by_class: Floats) -> list[Effect]:
        """Return the effects of an example's words, named ``word 'good' ×2``."""
        words = self.state.vocabulary.words(row.columns)
        counts, theta = self.counts_of(row.columns), np.exp(log_theta)
        return [
            Effect(
                f"word {word!r}" if times == 1.0 else f"word {word!r} ×{times:g}",
                by_class[i],
                word,
                counts[i],
                theta[i],
                "word",
            )
            for i, (word, times) in enumerate(zip(words, row.times.tolist(), strict=True))
        ]

    # ---- size and export -----------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Number of words."""
        return int(vocabulary_size(self.state.counts))

    @property
    def size(self) -> str:
        """How many words there are, such as "3 words"."""
        return quantity(self.n_features, "word")

    def export(self) -> tuple[dict[str, Any], ExportTable]:
        """Return what the export holds: counts and log θ of each word."""
        header = {"examples": self.examples, "tokens": self.tokens}
        table: ExportTable = {"word": self.names, "count": self.counts_of(self.live)}
        return header, table | {"log_theta": self.log_theta(self.live)}

    # ---- sampling ------------------------------------------------------------------------------

    def sample(self, labels: NDArray[np.int32], rng: np.random.Generator) -> dict[str, list[Any]]:
        """Draw an example's words for each label; see `GroupView`.

        A text is its words joined by spaces, which are read as the same words if they are plain.
        Counts have the form of the group's fields.
        """
        spec = self.state.spec
        if isinstance(self.state, WordsState) and (
            spec.ngrams != (1, 1) or spec.negation or spec.gap or spec.characters
        ):
            raise InputError(
                f"group {self.state.name!r}: a text cannot be sampled n-gram by n-gram, nor with"
                " words that negate others, for no text is made of them one by one. Sample a model"
                " with ngrams=(1, 1), negation=False, gap=0 and characters=None."
            )
        drawn: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)] * len(labels)
        for c in np.unique(labels).tolist():
            rows = np.flatnonzero(labels == c)
            for i, places in zip(rows.tolist(), self.draw_words(c, len(rows), rng), strict=True):
                drawn[i] = places
        return self._as_fields(drawn)

    @abstractmethod
    def draw_words(self, c: int, n: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Return `n` examples of class `c`, each as places in `live`, one for each occurrence."""

    def _as_fields(self, drawn: list[NDArray[np.int64]]) -> dict[str, list[Any]]:
        """Return drawn words in the form of the group's fields."""
        state, names = self.state, self.names
        if isinstance(state, WordsState):
            return {state.field: [" ".join(names[j] for j in each.tolist()) for each in drawn]}
        assert isinstance(state, BagState)
        if state.spec.field is not None:
            bags = [Counter(names[j] for j in each.tolist()) for each in drawn]
            return {state.spec.field: [dict(bag) for bag in bags]}
        grid = np.zeros((len(drawn), len(names)))
        for i, each in enumerate(drawn):
            np.add.at(grid[i], each, 1.0)
        return {name: grid[:, j].tolist() for j, name in enumerate(names)}


_VIEWS: dict[type, type[GroupView]] = {}


def view_of(state: GroupState, scale: float) -> GroupView:
    """Return the view of a group."""
    view = _VIEWS.get(type(state)) or _VIEWS[type(state.spec.likelihood)]
    return view(state, scale)


def views_of(state: ModelState) -> dict[str, GroupView]:
    """Return the view of each group, decayed up to now."""
    scale = state.clock.scale
    return {name: view_of(group, scale) for name, group in state.groups.items()}


def check_raw(state: ModelState, why: str) -> None:
    """Refuse a model with a hybrid, for what only counts can answer."""
    if state.is_hybrid:
        raise InputError(f"{why}, and this model answers by a hybrid. Ask `model.raw()` instead.")
