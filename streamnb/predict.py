"""Posteriors of a model's state.

Predicting never changes anything. Formulas: class prior π_c = (N_c + α_c)/(n + Σα), or with a
half-life of its own (R_c + α_c)/(ΣR + Σα), R_c the recent examples of the class; equal for all
classes where it is left out (`ModelState.leaves_prior_out`); likelihoods as in `likelihoods/`; ties
go to the class declared first; unknown words are ignored; an untrained model answers its class
prior, and so does one that finds every class impossible: then it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.calibration import calibrated
from streamnb.columns import count_rows, first_present, to_mapping
from streamnb.errors import InputError
from streamnb.features.protocol import Floats, scratch_of_this_thread
from streamnb.kernels import posterior
from streamnb.kernels.layout import RowUpdates
from streamnb.labels import UNLABELLED, Label, unlabelled_rows
from streamnb.state import ModelState, PartState

BATCH_ROWS = 16384  # rows worked off at a time; beyond that a call's own cost is nothing


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
        True if every class has likelihood zero, so that the class prior alone answered.
    """

    label: Label
    log_posteriors: dict[Label, float]
    by_prior: bool


class Joint(NamedTuple):
    """What the counts say of rows and classes: how likely they are together.

    Attributes
    ----------
    log_likelihoods : ndarray of shape (n, n_classes)
        log p(x, c), in nats.
    is_point : ndarray of shape (n, n_classes + 1)
        Whether x has a number of which the class has had one value only, and no prior is on it: a
        point mass, whose density is that of the variance's floor. It says nothing of the model, and
        one such row outweighs a million others. The last column is of a class not known yet.
    """

    log_likelihoods: Floats
    is_point: NDArray[np.bool_]

    @classmethod
    def unknown(cls, n: int, n_classes: int) -> Self:
        """Return one of `n` rows that are yet to be judged: nan, and no point mass."""
        return cls(np.full((n, n_classes), np.nan), np.zeros((n, n_classes + 1), np.bool_))

    def rows(self, begin: int, end: int) -> Self:
        """Return rows `begin` to `end`, as views."""
        return type(self)(self.log_likelihoods[begin:end], self.is_point[begin:end])

    def put(self, row: int, before: Joint) -> None:
        """Write what was said of a row before further classes joined."""
        for rows, own, of_others in (
            (self.log_likelihoods, before.log_likelihoods[0], np.nan),
            (self.is_point, before.is_point[0, :-1], before.is_point[0, -1]),
        ):
            rows[row] = of_others
            rows[row, : len(own)] = own


# ---- many examples -------------------------------------------------------------------------------


def log_posteriors(state: ModelState, columns: Any) -> Floats:
    """Return log p(c | x), ndarray of shape (n, n_classes), in nats; never nan."""
    joint, prior = joint_and_prior(state, columns)
    posterior.normalise(joint, prior)
    return joint if state.calibration is None else calibrated(state.calibration, joint)


def with_joint(state: ModelState, columns: Any) -> tuple[Floats, Joint]:
    """Return log p(c | x), and what the counts say, for which a hybrid is read twice."""
    marks: list[NDArray[np.bool_]] = []
    joint, prior = joint_and_prior(state, columns, marks)
    stated = joint.copy()
    posterior.normalise(stated, prior)
    if state.calibration is not None:
        stated = calibrated(state.calibration, stated)
    own = joint_and_prior(state.raw(), columns)[0] if state.is_hybrid else joint
    return stated, Joint(own, marks[0])


def judge(state: ModelState, columns: Any) -> tuple[Floats, NDArray[np.bool_]]:
    """Return log-posteriors, and for each row whether the class prior alone answered."""
    joint, prior = joint_and_prior(state, columns)
    by_prior: NDArray[np.bool_] = np.isneginf(joint).all(axis=1)  # type: ignore[assignment]  # of a grid it is an array
    posterior.normalise(joint, prior)
    if state.calibration is not None:
        joint = calibrated(state.calibration, joint)
    return joint, by_prior


def joint_and_prior(
    state: ModelState, columns: Any, marks: list[NDArray[np.bool_]] | None = None
) -> tuple[Floats, Floats]:
    """Return log p(x, c) and log π_c of each row, ndarrays of shape (n, n_classes), in nats.

    `marks` gets what `Joint.is_point` is.
    """
    fields, n = read(state, columns)
    joint = np.empty((n, len(state.classes)))
    prior = np.empty_like(joint)
    if marks is not None:
        marks.append(np.zeros((n, len(state.classes) + 1), np.bool_))
    for begin in range(0, n, BATCH_ROWS):
        end = min(begin + BATCH_ROWS, n)
        updates = unlabelled_rows(end - begin, state.clock.scale)
        batches = encode(state, fields, begin, end, updates.labels, learn=False)
        if marks is not None:
            mark_point_masses(state, batches, updates, marks[0][begin:end])
        prior[begin:end] = run(state, batches, updates, joint[begin:end], learn=False)
    return joint, prior


def judge_row(
    state: ModelState, fields: Mapping[str, Any], row: int, scale: float
) -> tuple[Floats, Joint]:
    """Return log p(c | x) of a row that was read, and what the counts say of it: arrays of one."""
    joint = Joint.unknown(1, len(state.classes))
    if not state.classes:
        return joint.log_likelihoods, joint
    updates = unlabelled_rows(1, scale)
    batches = encode(state, fields, row, row + 1, updates.labels, learn=False)
    mark_point_masses(state, batches, updates, joint.is_point)
    prior = run(state, batches, updates, joint.log_likelihoods, learn=False)
    stated = joint.log_likelihoods.copy()
    posterior.normalise(stated, prior)
    return stated, joint


def best_classes(state: ModelState, columns: Any) -> list[Label]:
    """Return the most probable class of each example."""
    found = log_posteriors(state, columns)
    check_has_classes(state.classes)
    return [state.classes[c] for c in found.argmax(axis=1).tolist()]


def check_has_classes(classes: Sequence[Label]) -> None:
    """Refuse a model that has no class yet."""
    if not classes:
        raise InputError("this model has no class yet: declare classes, or teach it first.")


def log_class_priors(state: ModelState) -> Floats:
    """Return log π_c, ndarray of shape (n_classes,), in nats."""
    joint = np.empty((1, len(state.classes)))
    first: Floats = run(state, None, unlabelled_rows(1, state.clock.scale), joint, learn=False)[0]
    return first


# ---- one example ---------------------------------------------------------------------------------


def log_posteriors_one(state: ModelState, x: Mapping[str, Any]) -> Floats:
    """Return log p(c | x) of one example, ndarray of shape (n_classes,), in nats."""
    found = run_one(state, x, UNLABELLED)
    if found is None:
        found = log_posteriors(state, to_columns(state, x))[0]
    elif state.calibration is not None:
        found = calibrated(state.calibration, found[np.newaxis])[0]
    return found


def judge_one(state: ModelState, x: Mapping[str, Any]) -> Judgement:
    """Return the posterior of one example, and whether the class prior alone answered."""
    check_has_classes(state.classes)
    found, by_prior = judge(state, to_columns(state, x))
    label = state.classes[int(np.argmax(found[0]))]
    return Judgement(label, by_class(state, found[0]), bool(by_prior[0]))


def by_class(state: ModelState, values: Floats) -> dict[Label, float]:
    """Return one number a class as a dict."""
    return dict(zip(state.classes, values.tolist(), strict=True))


def run_one(state: ModelState, x: Any, label: int, part: PartState | None = None) -> Floats | None:
    """Return the log-posteriors of a short example, and learn it if it has a label.

    The kernels are those of a batch; only what a batch needs before and after them is left out.
    Every group reads before one learns, so that a refused value leaves the model as it was. `label`
    is the place of its class, or `UNLABELLED`; a `part` learns it as well.

    Returns None if the example has to go the long way: it holds values that are long, of other
    types or new to an open group, or the model decays. A subclass of `dict` does too: the long way
    asks it once for each value and no more.
    """
    if type(x) is not dict or state.clock.half_life is not None:
        return None
    groups = state.groups.values()
    is_open, may_lack = False, True
    for group in groups:
        if not group.can_encode_one(x):
            return None
        is_open |= group.is_open
        may_lack &= group.one_may_lack_fields
    if is_open:  # a field that nobody knows yet is for an open group to take up
        if not x.keys() <= set(state.fields):
            return None
    elif may_lack and x and x.keys().isdisjoint(state.fields):
        return None  # the long way says what is wrong with it
    scratch = scratch_of_this_thread(len(groups))
    updates = scratch[0].updates
    updates.labels[0] = label
    learn = label >= 0
    batches: list[Any] = []
    for group in groups:
        batches.append(group.encode_one(x, scratch[len(batches)], learn=learn))
    joint = np.empty((1, len(state.classes)))
    posterior.normalise(joint, run(state, batches, updates, joint, learn=learn, part=part))
    found: Floats = joint[0]
    return found


def to_columns(state: ModelState, x: Any) -> dict[str, list[Any]]:
    """Return one example as columns of one row; refuse it if no group reads any of its fields."""
    if not isinstance(x, Mapping):
        raise InputError(
            f"x must be a mapping of field names to values. Got {type(x).__name__} instead."
        )
    names = state.fields
    columns = {field: [x.get(field)] for field in names}
    if x and all(value is None and field not in x for field, (value,) in columns.items()):
        _refuse_unknown(state, x, names, "those of the example", lambda field: [x[field]])
    if any(group.is_open for group in state.groups.values()):
        columns |= {field: [x[field]] for field in x if field not in columns}
    # An example that says nothing is an example all the same.
    return columns or {next(iter(state.groups)): [None]}


# ---- steps of every run --------------------------------------------------------------------------


def read(state: ModelState, columns: Any) -> tuple[dict[str, Any], int]:
    """Return each group's fields, checked, and the number of rows."""
    by_name = to_mapping(columns)
    groups = state.groups
    names: list[str] = []
    is_open = False
    for group in groups.values():
        names += group.fields
        is_open |= group.is_open
    lengths_of = names
    if is_open or _are_absent(by_name, names):
        lengths_of = list(by_name) or names  # with no known field, the others have the length
        if by_name and by_name.keys().isdisjoint(names):
            _refuse_unknown(state, by_name, names, "the columns", by_name.__getitem__)
    n = count_rows(by_name, lengths_of)
    shares = _share_out(state, by_name, names) if is_open else dict.fromkeys(groups, by_name)
    fields: dict[str, Any] = {}
    for name, group in groups.items():
        fields[name] = group.read(shares[name], n)
    return fields, n


def _are_absent(columns: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Return whether none of these columns is there."""
    for name in names:  # noqa: SIM110 -- a generator would cost as much as the rest
        if columns.get(name) is not None:
            return False
    return True


def _refuse_unknown(
    state: ModelState,
    fields: Mapping[str, Any],
    names: Sequence[str],
    whose: str,
    values_of: Callable[[str], Any],
) -> None:
    """Refuse fields of which no group reads a single one: a misspelt name, nearly always.

    Such an example would teach or answer the class prior alone, and nobody would notice. An open
    group reads whatever it takes up, and a field that is missing throughout may be one of those. If
    fields are words (`Bag.fields`), or absent flags are false, an example without any of them is of
    the usual kind, and nothing can be told from it.
    """
    groups = state.groups.values()
    if any(group.may_lack_fields for group in groups):
        return
    open_groups = [group for group in groups if group.is_open]
    for field in fields if open_groups else ():
        values = values_of(field)
        if first_present(values) is None or any(group.accepts(values) for group in open_groups):
            return
    known = ", ".join(map(str, names)) or "none yet"
    taking = ", ".join(group.name for group in open_groups)
    raise InputError(
        f"none of the model's fields ({known}) is among {whose}: {', '.join(map(str, fields))}."
        + (f" Its open groups ({taking}) take up no such values." if taking else "")
        + " Correct the names; a known field that is missing may be None."
    )


def _share_out(
    state: ModelState, columns: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Mapping[str, Any]]:
    """Return each group's columns; one that nobody names goes to the first that takes it."""
    named = set(names)
    shares: dict[str, dict[str, Any]] = {
        name: {field: columns[field] for field in group.fields if field in columns}
        for name, group in state.groups.items()
    }
    open_groups = [(name, group) for name, group in state.groups.items() if group.is_open]
    for field, values in columns.items():
        if field in named:
            continue
        for name, group in open_groups:
            if group.accepts(values):
                shares[name][field] = values
                break
    return dict(shares)


def encode(
    state: ModelState,
    fields: Mapping[str, Any],
    begin: int,
    end: int,
    labels: NDArray[np.int32],
    *,
    learn: bool,
) -> list[Any]:
    """Return rows `begin` to `end` as each group's batch; to learn, new features get columns."""
    batches: list[Any] = []  # filled by hand: a comprehension is a call, of each single example too
    for name, group in state.groups.items():
        batches.append(group.encode(fields[name], begin, end, labels, learn=learn))
    return batches


def mark_point_masses(
    state: ModelState, batches: Sequence[Any], updates: RowUpdates, is_point: NDArray[np.bool_]
) -> None:
    """Mark rows that are about to be learned; see `Joint.is_point`."""
    for group, batch in zip(state.groups.values(), batches, strict=True):
        group.mark_point_masses(batch, updates, is_point)


def run(
    state: ModelState,
    batches: Sequence[Any] | None,
    updates: RowUpdates,
    joint: Floats,
    *,
    learn: bool,
    part: PartState | None = None,
) -> Floats:
    """Write rows' log p(x, c) into `joint` (n, n_classes), learning labelled rows if `learn`.

    There is a batch for each group, or None for the class prior alone; a `part` learns the rows as
    well. Returns the log class prior as it stood before each row, shape (n, n_classes).
    """
    prior = np.empty((1, len(state.classes)))
    own = state if part is None else part
    # Asked here too: a model without one calls no function for it.
    decay = None if state.prior_half_life is None else state.prior_decay
    held = own.class_counts if decay is None else own.class_counts.copy()
    posterior.class_prior(
        state.class_counts, state.pseudo_counts, state.is_prior_fixed, updates, learn, prior[0],
        joint,
    )  # fmt: skip
    if decay is not None:
        posterior.recent_class_prior(
            held, own.recent, state.recent, part is not None, state.pseudo_counts, decay,
            np.inf if state.clock.half_life is None else 1.0, updates, learn, prior[0], joint,
        )  # fmt: skip
    if len(joint) != 1:  # of one row, the kernel has left the prior in its own array
        prior = joint.copy()
    if batches is None:
        return prior
    if part is not None:
        part.learn(state.groups, batches, updates, joint, state.weighing)
        return prior
    if state.weighing is not None:
        state.weighing.run(state.groups, batches, updates, joint, learn=learn)
        return prior
    for group, batch in zip(state.groups.values(), batches):  # noqa: B905 -- strictness costs as much as it
        group.run(batch, updates, joint, learn=learn)
    return prior
