"""What can be asked of a model or a snapshot: posteriors, and the statistics by the field's names.

Reading never changes anything. Formulas: class prior π_c = (N_c + α)/(n + k·α); likelihoods as in
`likelihoods/`; ties go to the class declared first; words not known are ignored; an untrained model
answers its class prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb import statistics
from streamnb.columns import chunks, count_rows, to_mapping
from streamnb.desk import desk_of_this_thread
from streamnb.errors import InputError
from streamnb.kernels import posterior
from streamnb.labels import JUDGE_ONLY, Label, nobody
from streamnb.likelihoods.base import Batch
from streamnb.priors import Dirichlet
from streamnb.words import WordsState

Floats = NDArray[np.float64]
PIECE = 16384  # rows worked off at a time; beyond that a call's own cost is nothing


class Readable:
    """The reading side that models and snapshots share."""

    _classes: list[Label]
    _class_prior: Dirichlet
    _class_counts: Floats
    _groups: dict[str, WordsState]
    _hash_key: int

    # ---- posteriors ----------------------------------------------------------------------------

    def predict_one(self, x: Mapping[str, Any]) -> Label | None:
        """Return the most probable class, the one declared first on a tie; None without classes."""
        posteriors = self._predict_log_proba_one(x)
        return self._classes[int(np.argmax(posteriors))] if len(posteriors) else None

    def predict_proba_one(self, x: Mapping[str, Any]) -> dict[Label, float]:
        """Return p(c | x) by class."""
        return self._by_class(np.exp(self._predict_log_proba_one(x)))

    def predict_log_proba_one(self, x: Mapping[str, Any]) -> dict[Label, float]:
        """Return log p(c | x) by class, in nats."""
        return self._by_class(self._predict_log_proba_one(x))

    def joint_log_likelihood_one(self, x: Mapping[str, Any]) -> dict[Label, float]:
        """Return log p(x, c) by class, in nats.

        The multinomial coefficient, the same for all classes, is left out.
        """
        return self._by_class(self.joint_log_likelihood_many(self._as_columns(x))[0])

    def predict_log_proba_many(self, columns: Any) -> Floats:
        """Return log p(c | x).

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            Fields by name, each of length n; any data frame that narwhals understands.

        Returns
        -------
        ndarray of shape (n, n_classes), in nats
            Never `nan`: where every class has likelihood zero, the class prior answers.
        """
        joint, prior = self._judge(columns)
        posterior.normalise(joint, prior)
        return joint

    def joint_log_likelihood_many(self, columns: Any) -> Floats:
        """Return log p(x, c), ndarray of shape (n, n_classes), in nats."""
        return self._judge(columns)[0]

    # ---- statistics ----------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[Label, ...]:
        """Classes, in the order of all arrays."""
        return tuple(self._classes)

    @property
    def class_counts(self) -> Floats:
        """N_c, ndarray of shape (n_classes,)."""
        return self._class_counts.copy()

    @property
    def n_examples(self) -> int:
        """Number of examples learned."""
        return int(self._class_counts.sum())

    @property
    def vocabulary_size(self) -> int:
        """V: words with a count above zero, over all groups."""
        return sum(int(group.counts.state[0]) for group in self._groups.values())

    @property
    def words_dropped(self) -> int:
        """How many words have left because a vocabulary was full."""
        return sum(group.n_dropped for group in self._groups.values())

    def class_priors(self) -> Floats:
        """Return π̂_c = (N_c + α)/(n + k·α), ndarray of shape (n_classes,)."""
        out = np.empty((1, len(self._classes)))
        prior = self._class_prior.concentration
        posterior.class_prior(self._class_counts, prior, nobody(1), False, out[0].copy(), out)
        priors: Floats = np.exp(out[0])
        return priors

    def words(self, group: str | None = None) -> list[str]:
        """Return all words with a count above zero: n-grams with spaces, `¬` if negated."""
        state = self._group(group)
        return state.vocabulary.words(
            statistics.live_columns(state.counts, state.vocabulary.n_words)
        )

    def word_counts(self, words: Sequence[str], group: str | None = None) -> Floats:
        """Return N_jc, ndarray of shape (n_words, n_classes); words not known have zeros."""
        state = self._group(group)
        columns = state.find(words)
        counts = np.zeros((len(columns), len(self._classes)))
        counts[columns >= 0] = state.counts.by_word[columns[columns >= 0]]
        return counts

    def word_likelihoods(self, words: Sequence[str], group: str | None = None) -> Floats:
        """Return θ̂_jc, ndarray of shape (n_words, n_classes); words not known have zeros."""
        state = self._group(group)
        columns = state.find(words)
        known = columns[columns >= 0]
        theta = np.zeros((len(columns), len(self._classes)))
        theta[columns >= 0] = np.exp(state.spec.likelihood.log_theta(state.counts, known))
        return theta

    def top_words(self, n: int, group: str | None = None) -> list[str]:
        """Return the `n` words with the largest count over all classes."""
        state = self._group(group)
        totals = statistics.word_totals(state.counts, state.vocabulary.n_words)
        return state.vocabulary.words(_largest(totals, n)[0])

    def telling_words(
        self, n: int, group: str | None = None
    ) -> dict[Label, list[tuple[str, float]]]:
        """Return the `n` most telling words of each class, with their scores.

        The score is θ_jc·(log θ_jc − log θ_jo), o the other classes' mean: what the word adds on
        average, in nats, to the log-odds of a text of that class. Frequent and one-sided words
        lead; words seen once do not.
        """
        state = self._group(group)
        live = statistics.live_columns(state.counts, state.vocabulary.n_words)
        told: dict[Label, list[tuple[str, float]]] = {}
        theta = np.exp(state.spec.likelihood.log_theta(state.counts, live))
        for c, label in enumerate(self._classes):
            others = np.delete(theta, c, axis=1)
            rest = others.mean(axis=1) if others.shape[1] else theta[:, c]
            with np.errstate(divide="ignore", invalid="ignore"):
                score = np.where(theta[:, c] > 0, theta[:, c] * np.log(theta[:, c] / rest), 0.0)
            best, values = _largest(score, n)
            told[label] = list(zip(state.vocabulary.words(live[best]), values, strict=True))
        return told

    # ---- inside --------------------------------------------------------------------------------

    def _group(self, name: str | None) -> WordsState:
        if name is None and len(self._groups) == 1:
            return next(iter(self._groups.values()))
        if name in self._groups:
            return self._groups[name]
        raise InputError(f"group must be one of {', '.join(self._groups)}. Got {name!r} instead.")

    def _as_columns(self, x: Mapping[str, Any]) -> dict[str, list[Any]]:
        if not isinstance(x, Mapping):
            raise InputError(
                f"x must be a mapping of field names to values. Got {type(x).__name__} instead."
            )
        return {group.field: [x.get(group.field)] for group in self._groups.values()}

    def _by_class(self, values: Floats) -> dict[Label, float]:
        return dict(zip(self._classes, values.tolist(), strict=True))

    def _predict_log_proba_one(self, x: Mapping[str, Any]) -> Floats:
        if not self._is_short(x):
            found: Floats = self.predict_log_proba_many(self._as_columns(x))[0]
            return found
        return self._one(x, JUDGE_ONLY)

    def _is_short(self, x: Any) -> bool:
        """Tell whether an example can go the short way: plain short text for every group.

        A subclass of `dict` goes the long way, which asks it once for each value and no more.
        """
        if type(x) is not dict:
            return False
        for group in self._groups.values():  # noqa: SIM110 -- a generator costs more than the rest
            if not group.has_short(x):
                return False
        return True

    def _one(self, x: Mapping[str, Any], label: int) -> Floats:
        """Return the log-posteriors of a short example, and learn it where it has a label.

        The steps and kernels are those of a batch; what is left out is all that a batch needs done
        before and after them.
        """
        learn = label >= 0
        desk = desk_of_this_thread()
        labels = desk.labels
        labels[0] = label
        room = np.empty((2, len(self._classes)))
        joint, prior = room[:1], room[1:]
        posterior.class_prior(
            self._class_counts, self._class_prior.concentration, labels, learn, room[1], joint
        )
        room[1] = room[0]
        for group in self._groups.values():
            group.run(group.encode_one(x, desk, learn=learn), labels, joint, learn=learn)
        posterior.normalise(joint, prior)
        first: Floats = room[0]
        return first

    def _read(self, columns: Any) -> tuple[dict[str, Any], int]:
        """Return each group's fields, checked, and the number of rows."""
        by_name = to_mapping(columns)
        n = count_rows(by_name, [group.field for group in self._groups.values()])
        return {name: group.read(by_name, n) for name, group in self._groups.items()}, n

    def _judge(self, columns: Any) -> tuple[Floats, Floats]:
        fields, n = self._read(columns)
        joint = np.empty((n, len(self._classes)))
        prior = np.empty_like(joint)
        for begin, end in chunks(n, PIECE):
            piece = joint[begin:end], prior[begin:end]
            labels = nobody(end - begin)
            batches = self._encode(fields, begin, end, labels, learn=False)
            self._run(batches, labels, *piece, learn=False)
        return joint, prior

    def _encode(
        self,
        fields: dict[str, Any],
        begin: int,
        end: int,
        labels: NDArray[np.int32],
        *,
        learn: bool,
    ) -> dict[str, Batch]:
        """Return some rows as each group's columns; to learn, new words get columns."""
        return {
            name: group.encode(fields[name], begin, end, labels, learn=learn)
            for name, group in self._groups.items()
        }

    def _run(
        self,
        batches: dict[str, Batch],
        labels: NDArray[np.int32],
        joint: Floats,
        prior: Floats,
        *,
        learn: bool,
    ) -> None:
        """Write joint log-likelihoods and log class priors of rows, learning where `learn`."""
        self._begin(labels, joint, prior, learn=learn)
        for name, group in self._groups.items():
            group.run(batches[name], labels, joint, learn=learn)

    def _begin(
        self, labels: NDArray[np.int32], joint: Floats, prior: Floats, *, learn: bool
    ) -> None:
        """Write rows' log class priors to both arrays, counting the classes where `learn`."""
        concentration = self._class_prior.concentration
        now = np.empty(len(self._classes))
        posterior.class_prior(self._class_counts, concentration, labels, learn, now, joint)
        prior[:] = joint


def _largest(values: Floats, n: int) -> tuple[NDArray[np.int64], list[float]]:
    """Return the places and values of the `n` largest above zero, largest first."""
    n = min(n, len(values))
    best = np.argpartition(-values, n - 1)[:n] if n else np.empty(0, dtype=np.int64)
    best = best[np.lexsort((best, -values[best]))]
    best = best[values[best] > 0]
    return best, values[best].tolist()
