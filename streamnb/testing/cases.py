"""What laws are tested by: an untrained model, a stream of examples, and whether two models agree.

Models agree in their statistics and in their answers. Counts are keyed by the names of features and
by class labels, so that neither the order in which words came nor that of classes matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from streamnb.decay import HalfLife
from streamnb.errors import InputError
from streamnb.features.bag import Bag
from streamnb.features.categorical import CategoriesState
from streamnb.features.counted_words import CountedState
from streamnb.features.flags import Flags, FlagsState
from streamnb.features.numeric import Numbers, NumbersState
from streamnb.features.protocol import Floats, GroupState
from streamnb.labels import Label
from streamnb.likelihoods.gaussian import VarianceFloor
from streamnb.model import NaiveBayes
from streamnb.reader import ModelReader

_SHARE_LEAST = 1e-12  # of a variance floor
_SPREAD_LEAST = 1e-9  # of a variance, beside the squares of what it is the variance of
LIVES_TOLD = 200.0  # half-lives; what is older is next to nothing, or nothing
_ROUNDING = 1e-9  # relative to the largest term, if many are added up in another order
_ROUNDED_VARIANCES = 1e-6  # a variance may be small beside the one that its rounding came from
ExampleFields = Mapping[str, Any]


class Broken(AssertionError):  # noqa: N818 -- a verdict: what is broken is the law
    """A law does not hold; the message says what was found and what was expected."""


class DoesNotApply(Exception):  # noqa: N818 -- a verdict, not a failure
    """A law does not apply to such a model; the message says why."""


@dataclass(frozen=True, slots=True)
class Example:
    """One example of a stream.

    Attributes
    ----------
    x : mapping of str to value
        Fields by name.
    y : str, int or bool
        Its class.
    weight : float
    time_s : float, optional
        When it was, for a half-life in seconds.
    """

    x: ExampleFields
    y: Label
    weight: float = 1.0
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A model to check and a stream to check it with.

    Attributes
    ----------
    untrained : NaiveBayes
        It never learns: laws train new models like it.
    examples : sequence of Example
    seed : int
        Of all random choices of a law.
    """

    untrained: NaiveBayes
    examples: Sequence[Example]
    seed: int = 0
    _kinds: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.untrained.n_examples or self.untrained.parts:
            raise InputError(
                f"make_model must return a model that has learned nothing. Got one that has learned"
                f" {self.untrained.n_examples} examples."
            )
        specs = {name: state.spec for name, state in self.untrained.state.groups.items()}
        object.__setattr__(self, "_kinds", specs)

    # ---- models --------------------------------------------------------------------------------

    def fresh(self, *, forgets: bool = True) -> NaiveBayes:
        """Return a new model like the untrained one, with its hash key; without decay if asked."""
        first = self.untrained
        return type(first)(
            first.classes,
            first.state.class_prior,
            self._kinds,
            decay=self.half_life if forgets else None,
            hash_key=first.state.hash_key,
            n_threads=first.n_threads,
            new_classes=first.new_classes,
            prior_half_life=first.state.prior_half_life,
        )

    def learned(self, examples: Sequence[Example] | None = None) -> NaiveBayes:
        """Return a new model that has learned examples, all of them by default, one at a time."""
        return teach(self.fresh(), self.examples if examples is None else examples)

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """Return examples as columns; what one does not have is None."""
        return columns_of(self.untrained, [each.x for each in examples])

    def teach_at_once(self, model: NaiveBayes, examples: Sequence[Example]) -> Any:
        """Learn examples in one call; return the prediction before each of them."""
        return model.prequential_many(
            self.columns(examples),
            [each.y for each in examples],
            weights=[each.weight for each in examples],
            times_s=times_of(examples),
        )

    def unlearn_at_once(self, model: NaiveBayes, examples: Sequence[Example]) -> None:
        """Take examples back in one call."""
        model.unlearn_many(
            self.columns(examples),
            [each.y for each in examples],
            weights=[each.weight for each in examples],
            times_s=times_of(examples),
        )

    # ---- what kind of case it is ---------------------------------------------------------------

    @property
    def half_life(self) -> HalfLife | None:
        """How fast the model forgets."""
        return self.untrained.state.clock.half_life

    @property
    def lives(self) -> float:
        """How many half-lives lie between the first and the last example."""
        if self.half_life is None or not self.examples:
            return 0.0
        times = [each.time_s for each in self.examples if each.time_s is not None]
        span = max(times) - min(times) if times else float(len(self.examples))
        return span / self.half_life.length

    @property
    def is_exact(self) -> bool:
        """Whether all counts are whole numbers, whose sums do not depend on their order."""
        counted = [each.weight for each in self.examples]
        counted += [n for each in self.examples for n in self._bagged(each.x)]
        return self.half_life is None and all(float(n).is_integer() for n in counted)

    def _bagged(self, x: ExampleFields) -> list[float]:
        """Return the counts in an example that a bag may read."""
        numbers: list[float] = []
        of_bags = self.fields_of(Bag)
        for name, value in x.items():
            if name in of_bags:
                values = value.values() if isinstance(value, Mapping) else [value]
                numbers += [v for v in values if isinstance(v, int | float) and v == v]  # noqa: PLR0124 -- nan
        return numbers

    def fields_of(self, kind: type) -> set[str]:
        """Return the fields that groups of a kind read, or may read if they are open."""
        states = self.untrained.state.groups.values()
        named = {name for state in states for name in state.fields}
        found: set[str] = set()
        for state in states:
            if isinstance(state.spec, kind):
                found |= set(state.fields)
                if state.is_open:
                    found |= {name for each in self.examples for name in each.x} - named
        return found

    def has(self, kind: type) -> bool:
        """Return whether the model has a group of a kind."""
        return any(isinstance(spec, kind) for spec in self._kinds.values())

    def of(self, kind: type) -> list[Any]:
        """Return the specifications of a kind."""
        return [spec for spec in self._kinds.values() if isinstance(spec, kind)]

    @property
    def has_absent_flags(self) -> bool:
        """Whether some flags count as false if they are missing."""
        return any(spec.absent_is_false for spec in self.of(Flags))

    def has_spread(self, model: NaiveBayes) -> bool:
        """Return whether a model's variances are well above rounding, so answers are smooth."""
        for state in model.state.groups.values():
            if not isinstance(state, NumbersState):
                continue
            prior = getattr(state.spec.likelihood, "prior", None)
            if isinstance(prior, VarianceFloor) and prior.share < _SHARE_LEAST:
                return False
            held = state.moments()
            spread = (held["M2"].sum(axis=1) / np.maximum(held["n"].sum(axis=1), 1.0)).tolist()
            sizes = [self.sizes.get(name, 0.0) for name in state.fields]
            if min(spread, default=1.0) <= _SPREAD_LEAST * max(sizes, default=0.0) ** 2:
                return False
        return True

    # ---- examples ------------------------------------------------------------------------------

    @property
    def probes(self) -> list[ExampleFields]:
        """Examples to predict: the first 25, and an empty one."""
        return [*(each.x for each in self.examples[:25]), {}]

    @property
    def wordy_probes(self) -> list[ExampleFields]:
        """The probes without numbers: their answers depend on counts alone."""
        numbers = self.fields_of(Numbers)
        return [{n: v for n, v in x.items() if n not in numbers} for x in self.probes]

    @property
    def sizes(self) -> dict[str, float]:
        """The largest absolute value of each field."""
        found: dict[str, float] = {}
        for each in self.examples:
            for name, value in each.x.items():
                if isinstance(value, int | float) and value == value:  # noqa: PLR0124 -- nan
                    found[name] = max(found.get(name, 0.0), abs(float(value)))
        return found

    def rng(self) -> np.random.Generator:
        """Return a generator of random numbers; each starts from the same seed."""
        return np.random.default_rng(self.seed)

    def shared_out(self, n: int) -> list[list[Example]]:
        """Return the examples split at random into `n` streams, in their order."""
        places = self.rng().integers(0, n, len(self.examples)).tolist()
        return [
            [each for each, place in zip(self.examples, places, strict=True) if place == k]
            for k in range(n)
        ]


def columns_of(model: ModelReader, xs: Sequence[ExampleFields]) -> dict[str, list[Any]]:
    """Return examples as columns that a model can read, with None for missing values."""
    names = dict.fromkeys(model.state.fields)
    names |= dict.fromkeys(name for x in xs for name in x)
    names = names or dict.fromkeys(list(model.state.groups)[:1])
    return {name: [x.get(name) for x in xs] for name in names}


def teach(model: NaiveBayes, examples: Sequence[Example]) -> NaiveBayes:
    """Teach a model examples one at a time, and return it."""
    for each in examples:
        model.learn_one(each.x, each.y, weight=each.weight, time_s=each.time_s)
    return model


def latest_time(stream: Sequence[Example]) -> float:
    """Return the time of a stream's last example; -inf if it has none of weight above 0."""
    return max((each.time_s or 0.0 for each in stream if each.weight), default=-math.inf)


def times_of(examples: Sequence[Example]) -> list[float] | None:
    """Return the times of examples; None if one has none."""
    times = [each.time_s for each in examples if each.time_s is not None]
    return times if len(times) == len(examples) else None


def timed(model: NaiveBayes, stream: list[Example]) -> list[Example]:
    """Return examples with times if the model needs them: four to a half-life."""
    half_life = model.state.clock.half_life
    if half_life is None or half_life.seconds is None:
        return stream
    if any(each.time_s is not None for each in stream):
        if any(each.time_s is None for each in stream):
            raise InputError(
                "some examples have a time_s and some have none: give all of them one."
            )
        return stream
    step_s = half_life.seconds / 4
    return [replace(each, time_s=i * step_s) for i, each in enumerate(stream)]


def with_weights(examples: Sequence[Example], weights: Sequence[float]) -> list[Example]:
    """Return examples with other weights."""
    return [replace(each, weight=w) for each, w in zip(examples, weights, strict=True)]


# ---- comparison ----------------------------------------------------------------------------------

Key = tuple[str, ...]
NumbersByKey = dict[Key, dict[Label, float]]


class Knowledge(NamedTuple):
    """A model's statistics: by group and feature, then by class. Zeros are left out."""

    counts: NumbersByKey  # N of classes, words, values and flags; how many numbers a field had
    means: NumbersByKey  # of numbers
    squares: NumbersByKey  # M2 = Σ(x − mean)²


def known(model: ModelReader) -> Knowledge:
    """Return what a model or snapshot knows, decayed up to now."""
    scale = model.state.clock.scale
    found = Knowledge({}, {}, {})
    _put(found.counts, ("classes",), model, model.class_counts)
    for name, state in model.state.groups.items():
        counts, means, squares = _of(state)
        for kind, table, by in zip(
            found, (counts, means, squares), (scale, 1.0, scale), strict=True
        ):
            for key, row in table.items():
                _put(kind, (name, *key), model, row / by)
    return found


def _put(table: NumbersByKey, key: Key, model: ModelReader, row: Floats) -> None:
    by_label = {c: float(v) for c, v in zip(model.classes, row, strict=True) if v}
    if by_label:
        table[key] = by_label


RowsByKey = dict[Key, Floats]


def _of(state: GroupState) -> tuple[RowsByKey, RowsByKey, RowsByKey]:
    """Return a group's counts, means and M2, by feature."""
    if isinstance(state, CountedState):
        return _of_words(state), {}, {}
    if isinstance(state, FlagsState):
        return _of_flags(state), {}, {}
    if isinstance(state, CategoriesState):
        return _of_categories(state), {}, {}
    if isinstance(state, NumbersState):
        held = state.moments()
        n, means, squares = (_named("", state.fields, held[part]) for part in ("n", "mean", "M2"))
        return n, means, squares
    return {}, {}, {}  # a kind that is not ours: its answers are compared, and they have to do


def _named(what: str, names: Sequence[str], rows: Floats) -> RowsByKey:
    """Return rows by name; rows there are not yet, of fields that came just now, are left out."""
    return {(what, name): row for name, row in zip(names, rows, strict=False)}


def _of_words(state: CountedState) -> RowsByKey:
    columns = state.live_columns()
    rows = _named("word", state.vocabulary.words(columns), state.counts.by_word[columns])
    return rows | {("examples",): state.counts.examples, ("tokens",): state.counts.tokens}


def _of_flags(state: FlagsState) -> RowsByKey:
    names, counts = state.table.names, state.counts
    rows = _named("true", names, counts.true) | _named("false", names, counts.false)
    return rows | {("examples",): counts.examples}


def _of_categories(state: CategoriesState) -> RowsByKey:
    columns = np.flatnonzero(state.counts.by_value.any(axis=1))
    rows: RowsByKey = {
        (field, value): row
        for (field, value), row in zip(
            state.table.values(columns), state.counts.by_value[columns], strict=True
        )
    }
    return rows | _named("seen", state.table.fields.names, state.counts.seen)


_ROUNDING_LEAST = 1e-12
_DUST = 1e-29  # of n·x²: what rounding leaves of M2, which is kept in 106 bits, at values alike


def must_know_alike(
    found: ModelReader,
    expected: ModelReader,
    peak: ModelReader | None = None,
    *,
    within: float = 0.0,
    sizes: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Compare the statistics of two models.

    Counts may differ by the share `within` of the largest. Moments may differ by that share or by
    1e-12, whichever is more, of those of `peak`, the model that has held most (by default
    `expected`). `sizes` are the largest numbers that fields ever had, as a model may forget them.
    """
    ours, wanted = known(found), known(expected)
    most = wanted if peak is None else known(peak)
    dust = within * max((n for row in most.counts.values() for n in row.values()), default=0.0)
    _compare("count", ours.counts, wanted.counts, dict.fromkeys(most.counts, dust), dust)
    rounding = max(within, _ROUNDING_LEAST)
    for key in [key for key in ours.means | wanted.means if key in most.means]:
        rows = [ours.counts.get(key, {}), wanted.counts.get(key, {})]
        labels = [c for c in rows[0] | rows[1] if min(row.get(c, 0.0) for row in rows) > dust]
        size, m2 = _extent(most, key, sizes.get(key[-1], 0.0))
        for name, mine, theirs, largest in (
            ("mean", ours.means, wanted.means, size),
            ("M2", ours.squares, wanted.squares, m2),
        ):
            chosen = [{c: t.get(key, {}).get(c, 0.0) for c in labels} for t in (mine, theirs)]
            _compare(name, {key: chosen[0]}, {key: chosen[1]}, {key: rounding * largest}, 0.0)


def _extent(most: Knowledge, key: Key, largest: float) -> tuple[float, float]:
    """Return how far from zero a field's numbers are, and M2 of all classes together."""
    counts, means = most.counts[key], most.means[key]
    n = sum(counts.values())
    mean = sum(counts[c] * means.get(c, 0.0) for c in counts) / n
    m2 = sum(most.squares.get(key, {}).values())
    m2 += sum(counts[c] * (means.get(c, 0.0) - mean) ** 2 for c in counts)
    size = max([largest, *map(abs, means.values())]) + float(np.sqrt(m2 / n))
    return size, m2 + n * size**2 * _DUST / _ROUNDING_LEAST


def _compare(
    what: str, ours: NumbersByKey, wanted: NumbersByKey, allowed: dict[Key, float], least: float
) -> None:
    for key in ours | wanted:
        mine, theirs = ours.get(key, {}), wanted.get(key, {})
        for label in mine | theirs:
            a, b = mine.get(label, 0.0), theirs.get(label, 0.0)
            if not abs(a - b) <= allowed.get(key, least):
                raise Broken(
                    f"the {what} of {' '.join(key)!r} in class {label!r} is {a!r}, not {b!r}"
                )


def must_be_same(
    found: ModelReader, expected: ModelReader, probes: Sequence[ExampleFields]
) -> None:
    """Compare two models bit for bit: classes in order, statistics, answers."""
    if found.classes != expected.classes:
        raise Broken(f"the classes are {found.classes!r}, not {expected.classes!r}")
    if found.n_examples != expected.n_examples:
        raise Broken(f"{found.n_examples} examples are learned, not {expected.n_examples}")
    ours, wanted = known(found), known(expected)
    for name, mine, theirs in zip(Knowledge._fields, ours, wanted, strict=True):
        _compare(name, mine, theirs, {}, 0.0)
    must_answer_alike(found, expected, probes)
    # With a `Hybrid` posteriors do not follow from the joint log-likelihoods.
    said, due = (
        model.predict_log_proba_many(columns_of(model, probes)) for model in (found, expected)
    )
    if not np.array_equal(said, due):
        raise Broken(f"the log-posteriors are {said.tolist()}, not {due.tolist()}")


def must_answer_alike(
    found: ModelReader,
    expected: ModelReader,
    probes: Sequence[ExampleFields],
    *,
    within: float = 0.0,
) -> None:
    """Compare the joint log-likelihoods of two models; `within` is relative to their size."""
    if set(found.classes) != set(expected.classes):
        raise Broken(f"the classes are {found.classes!r}, not {expected.classes!r}")
    ours = found.joint_log_likelihood_many(columns_of(found, probes))
    wanted = expected.joint_log_likelihood_many(columns_of(expected, probes))
    places = [found.classes.index(label) for label in expected.classes]
    for x, mine, theirs in zip(probes, ours[:, places], wanted, strict=True):
        finite = [abs(v) for v in (*mine, *theirs) if np.isfinite(v)]
        allowed = within * max([1.0, *finite])
        for label, a, b in zip(expected.classes, mine.tolist(), theirs.tolist(), strict=True):
            if a != b and not abs(a - b) <= allowed:
                raise Broken(
                    f"of {dict(x)!r} in class {label!r} the joint log-likelihood is {a!r},"
                    f" not {b!r}"
                )


def of_all_examples(model: ModelReader) -> ModelReader:
    """Return what answers by all examples alike: without a class prior of recent ones.

    Which examples are recent depends on the way in which they were learned.
    """
    return model if model.state.prior_half_life is None else model.without_prior()


def dropped(model: NaiveBayes) -> bool:
    """Return whether features were dropped because a group was full."""
    return any(state.n_dropped for state in model.state.groups.values())


def must_agree(
    case: Case, found: NaiveBayes, expected: NaiveBayes, peak: NaiveBayes | None = None
) -> None:
    """Compare two models that learned the same examples in different ways.

    Whole counts and what follows from them must be equal bit for bit, all else up to rounding.
    `peak` is the model before something was taken away, if something was.
    """
    within = 0.0 if case.is_exact else _ROUNDING
    must_know_alike(found, expected, peak, within=within, sizes=case.sizes)
    # Rounding of the largest weights may hide the smallest, and very old examples are nothing in
    # one way of counting and almost nothing in another.
    if case.lives > LIVES_TOLD or (peak is not None and not case.is_exact):
        return
    said, due = of_all_examples(found), of_all_examples(expected)
    must_answer_alike(said, due, case.wordy_probes, within=within)
    if case.has_spread(expected):
        must_answer_alike(said, due, case.probes, within=_ROUNDED_VARIANCES)


def must_add_up(
    model: NaiveBayes, x: ExampleFields, nothing: Floats, parts: Sequence[Floats]
) -> None:
    """Compare an example's joint log-likelihood with the sum over its fields one by one."""
    said = np.array([*model.joint_log_likelihood_one(x).values()])
    for c, base in enumerate(nothing):
        if not np.isfinite(base):
            continue  # an impossible class: how much more impossible cannot be told
        terms = [part[c] - base for part in parts]
        total = base + sum(terms)
        size = max([1.0, abs(base), *(abs(term) for term in terms if np.isfinite(term))])
        if said[c] != total and not abs(said[c] - total) <= _ROUNDING * size:
            raise Broken(
                f"{dict(x)!r} in class {model.classes[c]!r} is {said[c]!r}, and its fields one by"
                f" one add up to {total!r}"
            )


def must_be_untouched(given: object, kept: object) -> None:
    """Break if what was handed in has become something else."""
    # As text: nan differs from itself, and an array's repr holds all of so short a one.
    if repr(given) != repr(kept):
        raise Broken(f"{kept!r} was handed in, and has become {given!r}")
