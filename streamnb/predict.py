"""What can be asked of a model or a snapshot: posteriors.

Judging never changes anything. Formulas: class prior π_c = (N_c + α_c)/(n + Σα); likelihoods as in
`likelihoods/`; ties go to the class declared first; words not known are ignored; an untrained model
answers its class prior, and so does one that finds every class impossible: then it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import chunks, count_rows, first_present, to_mapping
from streamnb.decay import Clock
from streamnb.errors import InputError
from streamnb.features.protocol import Floats, GroupState
from streamnb.features.scratch import scratch_of_this_thread
from streamnb.kernels import posterior
from streamnb.labels import UNLABELLED, Label, RowUpdates, unlabelled_rows
from streamnb.priors import ClassPrior

_NO_CLASS = "this model has no class yet: declare classes, or teach it first."
PIECE = 16384  # rows worked off at a time; beyond that a call's own cost is nothing


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a model says of one example.

    Attributes
    ----------
    label : str, int or bool
        The most probable class, the one declared first on a tie.
    log_posteriors : dict of class to float
        log p(c | x), in nats.
    by_prior : bool
        True where every class has likelihood zero, so that the class prior alone answered.
    """

    label: Label
    log_posteriors: dict[Label, float]
    by_prior: bool


class Judging:
    """The judging side that models and snapshots share."""

    _classes: list[Label]
    _class_prior: ClassPrior
    _pseudo: Floats
    _is_fixed: bool
    _class_counts: Floats
    _groups: dict[str, GroupState]
    _clock: Clock
    _hash_key: int
    _n_examples: int

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

    def judge_one(self, x: Mapping[str, Any]) -> Judgement:
        """Return the posterior of one example, and whether the class prior alone answered.

        Raises
        ------
        InputError
            For a value that cannot be used, or a model without classes.
        """
        if not self._classes:
            raise InputError(_NO_CLASS)
        log_posteriors, by_prior = self._judge_many(self._as_columns(x))
        label = self._classes[int(np.argmax(log_posteriors[0]))]
        return Judgement(label, self._by_class(log_posteriors[0]), bool(by_prior[0]))

    def joint_log_likelihood_one(self, x: Mapping[str, Any]) -> dict[Label, float]:
        """Return log p(x, c) by class, in nats.

        The multinomial coefficient, the same for all classes, is left out.
        """
        return self._by_class(self.joint_log_likelihood_many(self._as_columns(x))[0])

    def predict_many(self, columns: Any) -> list[Label]:
        """Return the most probable class of each example; see `predict_log_proba_many`.

        Raises
        ------
        InputError
            For a value that cannot be used, or a model without classes.
        """
        log_posteriors = self.predict_log_proba_many(columns)
        if not self._classes:
            raise InputError(_NO_CLASS)
        best = log_posteriors.argmax(axis=1)
        return [self._classes[c] for c in best.tolist()]

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

    def answered_by_prior(self, columns: Any) -> NDArray[np.bool_]:
        """Tell for each example whether every class is impossible, so that the prior answers.

        Returns
        -------
        ndarray of shape (n,), bool
        """
        return self._judge_many(columns)[1]

    def joint_log_likelihood_many(self, columns: Any) -> Floats:
        """Return log p(x, c), ndarray of shape (n, n_classes), in nats."""
        return self._judge(columns)[0]

    def class_priors(self) -> Floats:
        """Return π̂_c = (N_c + α_c)/(n + Σα), ndarray of shape (n_classes,)."""
        out, _ = self._room(1)
        self._begin(unlabelled_rows(1, self._clock.scale), out, out.copy(), learn=False)
        priors: Floats = np.exp(out[0])
        return priors

    # ---- inside --------------------------------------------------------------------------------

    @property
    def _known(self) -> list[str]:
        """All fields that groups name, in their order."""
        return [field for group in self._groups.values() for field in group.fields]

    def _as_columns(self, x: Any) -> dict[str, list[Any]]:
        if not isinstance(x, Mapping):
            raise InputError(
                f"x must be a mapping of field names to values. Got {type(x).__name__} instead."
            )
        columns = {field: [x.get(field)] for field in self._known}
        # A mapping may answer to names that it does not list, so it is asked for values.
        if all(values[0] is None for values in columns.values()):
            self._check_reads(x, "those of the example", lambda field: [x[field]])
        if any(group.is_open for group in self._groups.values()):
            columns |= {field: [x[field]] for field in x if field not in columns}
        # An example that says nothing is an example all the same.
        return columns or {next(iter(self._groups)): [None]}

    def _names_any(self, fields: Mapping[str, Any]) -> bool:
        """Tell whether a group names one of these fields."""
        # Twice as fast as the same in one expression, which matters to single examples.
        for group in self._groups.values():
            for field in group.fields:
                if field in fields:
                    return True
        return False

    def _check_reads(
        self, fields: Mapping[str, Any], whose: str, values_of: Callable[[str], Any]
    ) -> None:
        """Refuse fields of which no group reads a single one: a misspelt name, nearly always.

        Such an example would teach or answer the class prior alone, and nobody would notice. Fields
        beside those that are read stay welcome, as streams and data frames bring along what a model
        has no use for; so does an example without any field, or with all that are known missing.
        An open group reads whatever it takes up, and a field that is missing throughout may be one
        of those. Where fields are words (`Bag.fields`), or absent flags are false, an example
        without any of them is of the usual kind, and nothing can be told from it.

        Parameters
        ----------
        fields : mapping of str to value
            Of an example or a batch.
        whose : str
            What to call them in the error.
        values_of : callable
            A field's values, as a sequence.

        Raises
        ------
        InputError
        """
        if not fields or self._names_any(fields):
            return
        groups = self._groups.values()
        open_groups = [group for group in groups if group.is_open]
        if any(group.may_lack_fields for group in groups):
            return
        for field in fields if open_groups else ():
            values = values_of(field)
            if first_present(values) is None or any(group.accepts(values) for group in open_groups):
                return
        known = ", ".join(map(str, self._known)) or "none yet"
        taking = ", ".join(group.name for group in open_groups)
        raise InputError(
            f"none of the model's fields ({known}) is among {whose}: {', '.join(map(str, fields))}."
            + (f" Its open groups ({taking}) take up no such values." if taking else "")
            + " Correct the names; a known field that is missing may be None."
        )

    def _by_class(self, values: Floats) -> dict[Label, float]:
        return dict(zip(self._classes, values.tolist(), strict=True))

    def _predict_log_proba_one(self, x: Mapping[str, Any]) -> Floats:
        if not self._is_short(x):
            found: Floats = self.predict_log_proba_many(self._as_columns(x))[0]
            return found
        return self._one(x, UNLABELLED)

    def _is_short(self, x: Any) -> bool:
        """Tell whether an example can go the short way: plain, short values for every group.

        A subclass of `dict` goes the long way, which asks it once for each value and no more.
        """
        if type(x) is not dict:
            return False
        is_open = False
        may_lack = True
        for group in self._groups.values():
            if not group.can_encode_one(x):
                return False
            is_open |= group.is_open
            may_lack &= group.one_may_lack_fields
        # A field that nobody knows yet is for an open group to take up, by the long way. Counting
        # would not do: a known one may be missing in its place, or be read by two groups.
        if is_open:
            known: set[str] = set()
            for group in self._groups.values():
                known.update(group.fields)
            if not x.keys() <= known:
                return False
        elif may_lack and x and not self._names_any(x):
            return False  # the long way says what is wrong with it
        return self._clock.half_life is None

    def _one(self, x: Mapping[str, Any], label: int) -> Floats:
        """Return the log-posteriors of a short example, and learn it where it has a label.

        The steps and kernels are those of a batch; what is left out is all that a batch needs done
        before and after them. Every group reads before one learns, so that a value which cannot be
        used leaves the model as it was.
        """
        learn = label >= 0
        groups = self._groups.values()
        scratch = scratch_of_this_thread(len(groups))
        updates = scratch[0].updates
        labels, weights, scales = updates
        labels[0] = label
        batches: list[Any] = []
        for group in groups:
            batches.append(group.encode_one(x, scratch[len(batches)], learn=learn))
        room = np.empty((2, len(self._classes)))
        joint, prior = room[:1], room[1:]  # of one row, the kernel leaves the prior in the second
        posterior.class_prior(
            self._class_counts, self._pseudo, self._is_fixed, labels, weights, scales, learn,
            room[1], joint,
        )  # fmt: skip
        for group, batch in zip(groups, batches):  # noqa: B905 -- strictness costs as much as it
            group.run(batch, updates, joint, learn=learn)
        posterior.normalise(joint, prior)
        first: Floats = room[0]
        return first

    def _read(self, columns: Any) -> tuple[dict[str, Any], int]:
        """Return each group's fields, checked, and the number of rows."""
        by_name = to_mapping(columns)
        is_open = any(group.is_open for group in self._groups.values())
        names = self._known
        if is_open or all(by_name.get(field) is None for field in names):
            names = list(by_name) or names  # where no field is there, other columns have the length
        self._check_reads(by_name, "the columns", by_name.__getitem__)
        n = count_rows(by_name, names)
        shares = self._share_out(by_name) if is_open else dict.fromkeys(self._groups, by_name)
        return {name: group.read(shares[name], n) for name, group in self._groups.items()}, n

    def _share_out(self, columns: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Return each group's columns; one that nobody names goes to the first that takes it."""
        named = set(self._known)
        shares: dict[str, dict[str, Any]] = {
            name: {field: columns[field] for field in group.fields if field in columns}
            for name, group in self._groups.items()
        }
        open_groups = [(name, group) for name, group in self._groups.items() if group.is_open]
        for field, values in columns.items():
            if field in named:
                continue
            for name, group in open_groups:
                if group.accepts(values):
                    shares[name][field] = values
                    break
        return dict(shares)

    def _room(self, n: int) -> tuple[Floats, Floats]:
        """Return room for joint log-likelihoods and class priors of `n` rows."""
        joint = np.empty((n, len(self._classes)))
        return joint, np.empty_like(joint)

    def _judge_many(self, columns: Any) -> tuple[Floats, NDArray[np.bool_]]:
        joint, prior = self._judge(columns)
        by_prior: NDArray[np.bool_] = np.isneginf(joint).all(axis=1)  # type: ignore[assignment]  # of a grid it is an array
        posterior.normalise(joint, prior)
        return joint, by_prior

    def _judge(self, columns: Any) -> tuple[Floats, Floats]:
        fields, n = self._read(columns)
        joint, prior = self._room(n)
        for begin, end in chunks(n, PIECE):
            updates = unlabelled_rows(end - begin, self._clock.scale)
            batches = self._encode(fields, begin, end, updates.labels, learn=False)
            self._run(batches, updates, joint[begin:end], prior[begin:end], learn=False)
        return joint, prior

    def _encode(
        self,
        fields: dict[str, Any],
        begin: int,
        end: int,
        labels: NDArray[np.int32],
        *,
        learn: bool,
    ) -> dict[str, Any]:
        """Return some rows as each group's batch; to learn, new features get their places."""
        return {
            name: group.encode(fields[name], begin, end, labels, learn=learn)
            for name, group in self._groups.items()
        }

    def _run(
        self,
        batches: dict[str, Any],
        updates: RowUpdates,
        joint: Floats,
        prior: Floats,
        *,
        learn: bool,
    ) -> None:
        """Write joint log-likelihoods and log class priors of rows, learning where `learn`."""
        self._begin(updates, joint, prior, learn=learn)
        for name, group in self._groups.items():
            group.run(batches[name], updates, joint, learn=learn)

    def _begin(self, updates: RowUpdates, joint: Floats, prior: Floats, *, learn: bool) -> None:
        """Write rows' log class priors to both arrays, counting the classes where `learn`."""
        posterior.class_prior(
            self._class_counts,
            self._pseudo,
            self._is_fixed,
            *updates,
            learn,
            np.empty(len(self._classes)),
            joint,
        )
        prior[:] = joint
