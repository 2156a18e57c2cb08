"""All that there is to know of a model, as one value.

`ModelState` holds the classes, their counts, the groups of features and how far decay has come.
`predict`, `learn`, `merging`, `serialization` and `inspection` are modules of functions
of it; `NaiveBayes` and `Snapshot` are its public faces.

A model may be the sum of parts, one for each log that it learns from. A part shares the groups'
vocabularies and holds its own statistics: a function of its log's examples only, so that it can be
saved with its log's position, read again after a crash, or moved elsewhere. A hybrid's weights are
one if classes are declared; else they depend on the classes that other logs had brought. An only
part is the sum itself, in the same arrays, and learned once.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.decay import Clock, HalfLife, check_forgets, check_prior_half_life
from streamnb.errors import InputError, check_bool, check_kind
from streamnb.features.protocol import Floats, Group, GroupPart, GroupState, check_features
from streamnb.kernels import posterior
from streamnb.kernels.hybrid import Said
from streamnb.kernels.layout import RowUpdates
from streamnb.labels import Label, check_classes
from streamnb.priors import ClassPrior, Dirichlet, Fixed, class_prior_to_dict, pseudo_counts

_HOST = -1  # in `Weighing.places`
_BESIDE = -2


@dataclass(frozen=True, slots=True)
class Weighing:
    """A group of words, the host, whose hybrid weights other groups, and these groups' names.

    `places`: of each group of the model its place among the others, or `_HOST`, or `_BESIDE` for
    words that are not weighted. The host judges and learns as the last, by what the others said.
    """

    host: str
    others: list[str]
    places: list[int]

    @classmethod
    def of(cls, groups: Mapping[str, GroupState]) -> Self | None:
        """Return what is weighted, if anything is: by the first hybrid in the order of names."""
        host = min((name for name, each in groups.items() if each.hybrid is not None), default=None)
        others = sorted(name for name, each in groups.items() if each.can_be_weighted)
        if host is None or not others:
            return None
        known = {name: o for o, name in enumerate(others)} | {host: _HOST}
        return cls(host, others, [known.get(name, _BESIDE) for name in groups])

    def run(
        self,
        groups: Mapping[str, GroupState],
        batches: Iterable[Any],
        updates: RowUpdates,
        out: Floats,
        *,
        learn: bool,
    ) -> None:
        """Have each group judge rows, and learn those with a label."""
        said, n = self._room(out), len(out)
        for name, batch, rows in self._turns(groups, batches, n):
            group: Any = groups[name]
            if name == self.host:
                group.run(batch, updates, out, learn=learn, said=Said(said, said))
            else:
                group.run(batch, updates, out if rows is None else said[rows], learn=learn)

    def learn_part(
        self,
        part: PartState,
        groups: Mapping[str, GroupState],
        batches: Iterable[Any],
        updates: RowUpdates,
        out: Floats,
    ) -> None:
        """Do the same with a part, which learns by what its own statistics say."""
        said, own, n = self._room(out), self._room(out), len(out)
        for name, batch, rows in self._turns(groups, batches, n):
            group: Any = groups[name]
            if name == self.host:
                group.learn_part(part.groups[name], batch, updates, out, Said(said, own))
            elif rows is None:
                group.learn_part(part.groups[name], batch, updates, out)
            else:
                group.learn_part(part.groups[name], batch, updates, said[rows], own[rows])

    def count(
        self,
        part: PartState,
        groups: Mapping[str, GroupState],
        batches: Iterable[Any],
        updates: RowUpdates,
    ) -> None:
        """Have a part learn rows alone."""
        n = len(updates.labels)
        own = self._room(np.empty((n, len(part.class_counts))))
        for name, batch, rows in self._turns(groups, batches, n):
            group: Any = groups[name]
            if name == self.host:
                group.count(part.groups[name], batch, updates, Said(own, own))
            elif rows is None:
                group.count(part.groups[name], batch, updates)
            else:
                group.count(part.groups[name], batch, updates, own[rows])

    def _turns(
        self, groups: Iterable[str], batches: Iterable[Any], n: int
    ) -> Iterator[tuple[str, Any, slice | None]]:
        """Yield each group's name, its batch of `n` rows, and its rows among what others say.

        Words that are not weighted have none, nor has the host, which comes last.
        """
        of_host: Any = None
        for place, name, batch in zip(self.places, groups, batches, strict=True):
            if place == _HOST:
                of_host = batch
            else:
                yield name, batch, None if place == _BESIDE else slice(place * n, (place + 1) * n)
        yield self.host, of_host, None

    def _room(self, out: Floats) -> Floats:
        """Return zeros for what the other groups say of rows, one group behind the other."""
        return np.zeros((len(self.others) * len(out), out.shape[1]))


@dataclass(slots=True)
class PartState:
    """Statistics of one log: N_c, R_c, and each group's, in the order of the model's groups."""

    class_counts: Floats
    recent: Floats  # R_c: recent examples by class, with the prior's half-life; 0 without one
    groups: dict[str, GroupPart]
    n_examples: int = 0
    now: float | None = None  # the newest time in its log; see `ModelState.learns_in_order`

    @classmethod
    def empty(cls, groups: Mapping[str, GroupState], n_classes: int) -> Self:
        """Return a part that knows nothing yet."""
        parts = {name: each.new_part() for name, each in groups.items()}
        return cls(np.zeros(n_classes), np.zeros(n_classes), parts)

    @property
    def n_dropped(self) -> dict[str, int]:
        """How many features have left, by group."""
        return {name: part.n_dropped for name, part in self.groups.items()}

    def learn(
        self,
        groups: Mapping[str, GroupState],
        batches: Iterable[Any],
        updates: RowUpdates,
        out: Floats,
        weighing: Weighing | None = None,
    ) -> None:
        """Add each group's log-likelihoods to `out`; learn the labelled rows, in the groups too."""
        posterior.count_classes(self.class_counts, updates)
        self.n_examples += count_learned(updates)
        if weighing is not None:
            weighing.learn_part(self, groups, batches, updates, out)
            return
        for part, group, batch in zip(self.groups.values(), groups.values(), batches, strict=True):
            group.learn_part(part, batch, updates, out)

    def count(
        self,
        groups: Mapping[str, GroupState],
        batches: Iterable[Any],
        updates: RowUpdates,
        prior_decay: float | None,
        weighing: Weighing | None = None,
    ) -> None:
        """Learn the labelled rows here alone; `ModelState.set_parts` is due afterwards."""
        if prior_decay is not None:
            held = self.class_counts.copy()
            posterior.count_recent_classes(held, self.recent, prior_decay, updates)
        posterior.count_classes(self.class_counts, updates)
        self.n_examples += count_learned(updates)
        if weighing is not None:
            weighing.count(self, groups, batches, updates)
            return
        for part, group, batch in zip(self.groups.values(), groups.values(), batches, strict=True):
            group.count(part, batch, updates)

    def frozen_copy(self, groups: Mapping[str, GroupState]) -> Self:
        """Return a copy over the same vocabularies that later learning does not touch."""
        copies = {name: groups[name].frozen_part(part) for name, part in self.groups.items()}
        counts, recent = self.class_counts.copy(), self.recent.copy()
        return type(self)(counts, recent, copies, self.n_examples, self.now)

    def set_classes(self, n_classes: int) -> None:
        """Resize to a number of classes: new ones are empty, and so are those that go."""
        self.class_counts = _resized(self.class_counts, n_classes)
        self.recent = _resized(self.recent, n_classes)
        for part in self.groups.values():
            part.set_classes(n_classes)

    def rescale(self, groups: Mapping[str, GroupState], factor: float) -> None:
        """Multiply all counts by a power of two."""
        self.class_counts *= factor
        for name, part in self.groups.items():
            groups[name].rescale_part(part, factor)


@dataclass(frozen=True, slots=True)
class FrozenParts:
    """A model frozen to be saved: its parts' statistics, over the tables as they were.

    Their sums follow from them, and what is cached to predict by follows from the sums: neither is
    copied while learning waits. `tables` holds no statistics of its own. Of a model that is kept
    whole, `parts` holds a single one, without a name.
    """

    tables: ModelState
    parts: Mapping[str | None, PartState]

    def state(self) -> ModelState:
        """Return the state that is to be saved, on the thread that saves it.

        Its arrays are those of `parts`; it cannot predict.
        """
        parts = [self.parts[name] for name in sorted(self.parts, key=str)]
        for name, group in self.tables.groups.items():
            group.hold([part.groups[name] for part in parts])
        return replace(
            self.tables,
            class_counts=sum((part.class_counts for part in parts), np.zeros(())),
            recent=sum((part.recent for part in parts), np.zeros(())),
            n_examples=sum(part.n_examples for part in parts),
            parts={name: part for name, part in self.parts.items() if name is not None},
        )


@dataclass(slots=True)
class ModelState:
    """All that there is to know of a model."""

    classes: list[Label]  # in the order of all arrays
    class_index: dict[Label, int]
    n_declared_classes: int  # so many lead the list and never leave it
    new_classes: bool  # whether other classes may join those that were declared
    class_prior: ClassPrior
    pseudo_counts: Floats  # α_c, or the probabilities of a prior that no data moves
    class_counts: Floats  # N_c, weighted, and scaled by decay
    recent: Floats  # R_c, weighted: recent examples, with the prior's half-life; 0 without one
    groups: dict[str, GroupState]
    clock: Clock  # how far decay has come
    hash_key: int  # 128 bits that key the words' fingerprints; a secret
    n_examples: int = 0  # learned, each counting one whatever its weight
    n_threads: int = 1
    prior_half_life: float | None = None  # of the class prior, in examples; None: N_c answers
    parts: dict[str, PartState] = field(default_factory=dict)  # empty if the model is kept whole
    calibration: Floats | None = None  # the curve that a snapshot's answers are calibrated by
    is_prior_fixed: bool = field(init=False)  # whether no data moves the class prior of answers
    weighing: Weighing | None = field(init=False)  # the groups that a hybrid weights, if it does

    def __post_init__(self) -> None:
        self.is_prior_fixed = isinstance(self.class_prior, Fixed) or self.leaves_prior_out
        self._leave_prior_out()
        self.find_weighing()

    def find_weighing(self) -> None:
        """Find out which groups a hybrid weights; of another number its weights begin again."""
        weighing = self.weighing = Weighing.of(self.groups)
        for name, group in self.groups.items():
            group.decays = self.clock.half_life is not None
            n_others = len(weighing.others) if weighing and weighing.host == name else 0
            group.set_n_others(n_others)
            for part in self.summands():
                part.groups[name].set_n_others(n_others)

    @property
    def leaves_prior_out(self) -> bool:
        """Whether the class prior is left out, as it would decide alone; one asked for stays."""
        if isinstance(self.class_prior, Fixed) or self.prior_half_life is not None:
            return False
        return all(group.leaves_prior_out for group in self.groups.values())

    def _leave_prior_out(self) -> None:
        if self.leaves_prior_out:
            k = len(self.classes)
            self.pseudo_counts = np.full(k, 1.0 / max(k, 1))

    @property
    def is_closed(self) -> bool:
        """Whether a label that is no class yet is refused: if classes were declared."""
        return not self.new_classes and self.n_declared_classes > 0

    @property
    def prior_decay(self) -> float | None:
        """What an example multiplies R_c by; None if the class prior has no half-life."""
        return None if self.prior_half_life is None else 0.5 ** (1.0 / self.prior_half_life)

    @property
    def prior_examples(self) -> Floats:
        """How many examples of each class the prior is estimated from, decayed up to now."""
        return self.class_counts / self.clock.scale if self.prior_half_life is None else self.recent

    @property
    def fields(self) -> list[str]:
        """All fields that groups name, in their order."""
        return [name for group in self.groups.values() for name in group.fields]

    def describe(self) -> dict[str, Any]:
        """Return what makes two models the same kind: classes, priors, groups; not the hash key.

        Nor whether classes may join: it says what a model takes, not what it has counted.
        """
        half_life, of_prior = self.clock.half_life, self.prior_half_life
        return {
            "classes": list(self.classes),
            "class_prior": class_prior_to_dict(self.class_prior),
            # Without the key a description is that of 0.1.0.
            **({} if of_prior is None else {"prior_half_life": of_prior}),
            "decay": None if half_life is None else asdict(half_life),
            "groups": {name: group.spec.to_dict() for name, group in self.groups.items()},
        }

    def frozen_copy(self, *, with_parts: bool = True) -> ModelState:
        """Return a copy that later learning does not touch; called by the thread that learns.

        Vocabularies are shared, not copied: words learned later lie beyond the copy's number of
        words, and a vocabulary that moves to new arrays leaves the old ones as they are.
        """
        groups = {name: group.frozen_copy() for name, group in self.groups.items()}
        parts = self.parts.items() if with_parts else ()
        return replace(
            self,
            classes=list(self.classes),
            class_index=dict(self.class_index),
            class_counts=self.class_counts.copy(),
            recent=self.recent.copy(),
            groups=groups,
            parts={name: part.frozen_copy(groups) for name, part in parts},
        )

    def frozen_parts(self) -> FrozenParts:
        """Return what is to be saved of the model; called by the thread that learns.

        Later learning does not touch it; see `frozen_copy`.
        """
        parts: dict[Any, PartState] = {**self.parts}
        if not parts:
            parts = {None: self.as_part()}
        tables = self.frozen_tables()
        return FrozenParts(tables, {k: each.frozen_copy(self.groups) for k, each in parts.items()})

    def frozen_tables(self) -> ModelState:
        """Return a state over the same tables as they are now, to be given other statistics."""
        return replace(
            self,
            classes=list(self.classes),
            class_index=dict(self.class_index),
            groups={name: group.frozen_table() for name, group in self.groups.items()},
            parts={},
        )

    @property
    def is_hybrid(self) -> bool:
        """Whether a group learns weights beside its counts."""
        return any(group.hybrid is not None for group in self.groups.values())

    @property
    def learns_in_order(self) -> bool:
        """Whether more is learned than sums: then each part goes by the newest time of its log.

        Sums are of one clock, so that without anything else files need not say a part's time.
        """
        return self.is_hybrid or self.prior_half_life is not None

    def raw(self) -> ModelState:
        """Return a state over the same counts that answers by them alone; this one if it does."""
        if not self.is_hybrid:
            return self if self.calibration is None else replace(self, calibration=None)
        groups = {name: group.without_hybrid() for name, group in self.groups.items()}
        return replace(self, groups=groups, parts={}, calibration=None)

    def without_prior(self) -> ModelState:
        """Return a state over the same counts whose class prior is uniform.

        A hybrid's is smaller for a class of which next to nothing is known: 60·(N_c + 5) / min(max
        N, 1,000) of the others', if that is below 1. Its words say little for it or against it, so
        it would have what the others leave undecided.
        """
        if not self.classes:
            return replace(self, prior_half_life=None, parts={})
        known = np.ones(len(self.classes))
        if self.is_hybrid:
            n = self.class_counts / self.clock.scale
            known = np.minimum(60.0 * (n + 5.0) / max(min(n.max(), 1_000.0), 1.0), 1.0)
        prior = Fixed(dict(zip(self.classes, (known / known.sum()).tolist(), strict=True)))
        return replace(
            self,
            class_prior=prior,
            pseudo_counts=pseudo_counts(prior, self.classes),
            prior_half_life=None,
            parts={},
        )

    def check_classes(self, classes: Sequence[Label]) -> None:
        """Refuse classes that a prior has no number for; nothing changes."""
        if len(classes) > len(self.classes):
            pseudo_counts(self.class_prior, classes)
            for group in self.groups.values():
                trial = group.frozen_table()
                trial.counts, trial.weights = trial.grow(trial.empty_counts()), None
                trial.set_classes(len(classes))

    def add_class(self, label: Label) -> None:
        """Append a class, of which nothing is learned yet; `check_classes` has passed it."""
        self.class_index[label] = len(self.classes)
        self.classes.append(label)
        self._set_classes()

    def drop_empty_classes(self) -> None:
        """Forget the newest classes if nothing is left of them, as if they had never come."""
        n = len(self.classes)
        while n > self.n_declared_classes and not self.class_counts[n - 1]:
            del self.class_index[self.classes.pop()]
            n -= 1
        if n < len(self.class_counts):
            self._set_classes()
            self.rescale(1.0)  # counts V anew: where words were dropped, some may be in them alone

    def _set_classes(self) -> None:
        n_classes = len(self.classes)
        self.class_counts = _resized(self.class_counts, n_classes)
        self.recent = _resized(self.recent, n_classes)
        self.pseudo_counts = pseudo_counts(self.class_prior, self.classes)
        self._leave_prior_out()
        for group in self.groups.values():
            group.set_classes(n_classes)
        for part in self.summands():
            part.set_classes(n_classes)
        self.hold_only_part()

    def rescale(self, factor: float) -> None:
        """Multiply all counts by a power of two."""
        self.class_counts *= factor
        for part in self.summands():
            part.rescale(self.groups, factor)
        for group in self.groups.values():
            group.rescale(factor)
        self.hold_only_part()

    def compact(self) -> None:
        """Move groups to smaller tables, if due."""
        for name, group in self.groups.items():
            columns = group.compact()
            if columns is not None:
                self.take_columns(name, columns)

    def take_columns(self, name: str, columns: NDArray[np.int64]) -> None:
        """Have the parts follow a group to a new table; see `GroupPart.take_columns`."""
        for part in self.summands():
            part.groups[name].take_columns(columns)
        self.hold_only_part()

    def summands(self) -> list[PartState]:
        """Return the parts whose arrays are their own: all, unless there is only one."""
        return [*self.parts.values()] if len(self.parts) > 1 else []

    def as_part(self) -> PartState:
        """Return all that is learned as one part: the same arrays."""
        groups = {name: group.as_part() for name, group in self.groups.items()}
        return PartState(self.class_counts, self.recent, groups, self.n_examples, self.clock.now)

    def hold_only_part(self) -> None:
        """Have an only part be the sum as it is now."""
        for name in self.parts if len(self.parts) == 1 else ():
            groups = {}
            for each, group in self.groups.items():  # as `as_part`, without a call for each
                groups[each] = GroupPart(group.counts, group.n_dropped, group.weights)
            self.parts[name] = PartState(
                self.class_counts, self.recent, groups, self.n_examples, self.clock.now
            )

    def sum_parts(self) -> None:
        """Have parts and their sum agree, after a part has learned.

        Of several parts, groups are summed up whose sums depend on order, always in that of names.
        """
        self.hold_only_part()
        if len(self.parts) > 1:
            for name, group in self.groups.items():
                if not group.sums_exactly:
                    group.sum_parts([self.parts[part].groups[name] for part in sorted(self.parts)])

    def add_part(self, name: str) -> None:
        """Begin a part that knows nothing; one that was the only one gets arrays of its own."""
        for only in self.parts if len(self.parts) == 1 else ():
            self.parts[only] = self.parts[only].frozen_copy(self.groups)
        self.parts[name] = PartState.empty(self.groups, len(self.classes))
        self._set_bounded()
        self.hold_only_part()

    def _set_bounded(self) -> None:
        for group in self.groups.values():
            group.set_bounded(bounded=len(self.parts) < 2)

    def set_parts(self, parts: Mapping[str, PartState]) -> None:
        """Make the model the sum of these parts, always in the order of their names.

        If it learns in order its clock says the newest time of theirs, as if others had never been.
        """
        self.parts = dict(parts)
        self.class_counts, self.recent = (np.zeros(len(self.classes)) for _ in range(2))
        for name in sorted(parts):
            self.class_counts += parts[name].class_counts
            self.recent += parts[name].recent
        self.n_examples = sum(part.n_examples for part in parts.values())
        for name, group in self.groups.items():
            group.sum_parts([parts[part].groups[name] for part in sorted(parts)])
        self._set_bounded()
        now = max((part.now for part in parts.values() if part.now is not None), default=None)
        if self.learns_in_order and now != self.clock.now:
            self.clock, factor = self.clock.turned_back(now)
            self.rescale(factor)
        self.hold_only_part()

    def forget_parts(self) -> None:
        """Keep the model whole from now on; words then leave by the sum's own bound."""
        self.parts = {}
        self._set_bounded()


def count_learned(updates: RowUpdates) -> int:
    """Return how many examples a batch adds; those that are taken back count below zero."""
    return int(np.sign(updates.weights[updates.labels >= 0]).sum())


def new_state(
    classes: Iterable[Label],
    class_prior: ClassPrior | None,
    features: Mapping[str, Group] | None,
    *,
    decay: HalfLife | None = None,
    hash_key: int | None = None,
    n_threads: int = 1,
    new_classes: bool = False,
    prior_half_life: float | None = None,
) -> ModelState:
    """Return the state of an untrained model; `NaiveBayes` describes the parameters."""
    if type(n_threads) is not int or n_threads not in (1, 2):
        raise InputError(f"n_threads must be 1 or 2. Got {n_threads!r} instead.")
    check_bool("new_classes", new_classes)
    declared = check_classes(classes)
    specs = check_features(features)
    if decay is not None:
        check_kind("decay", decay, HalfLife)
    prior = Dirichlet() if class_prior is None else class_prior
    of_prior = check_prior_half_life(prior_half_life)
    if of_prior is not None and isinstance(prior, Fixed):
        raise InputError(
            f"prior_half_life is {of_prior:g}, and class_prior is Fixed, which no example moves."
            " Take a Dirichlet, or no half-life."
        )
    pseudo = pseudo_counts(prior, declared)
    key = secrets.randbits(128) if hash_key is None else hash_key
    if type(key) is not int or not 0 <= key < 1 << 128:
        kind = type(hash_key).__name__  # no more than that: it may be a secret, mistyped
        raise InputError(f"hash_key must be an integer of 128 bits. Got another {kind} instead.")
    check_forgets(decay, specs)
    groups = {name: spec.start(name, len(declared), key) for name, spec in specs.items()}
    for group in groups.values():
        # Who gives a key wants the same bytes, whatever left and came again.
        group.in_order = hash_key is not None
    return ModelState(
        classes=declared,
        class_index={label: c for c, label in enumerate(declared)},
        n_declared_classes=len(declared),
        new_classes=new_classes,
        class_prior=prior,
        pseudo_counts=pseudo,
        class_counts=np.zeros(len(declared)),
        recent=np.zeros(len(declared)),
        groups=groups,
        clock=Clock(decay),
        hash_key=key,
        n_threads=n_threads,
        prior_half_life=of_prior,
    )


def _resized(counts: Floats, n: int) -> Floats:
    """Return counts of `n` classes: the first of those there were, and zeros."""
    return np.concatenate((counts[:n], np.zeros(max(0, n - len(counts)))))
