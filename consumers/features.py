"""The model of the settings, the columns of messages that its groups read, and their times.

Where what is learned decays, each message counts by its own time. A partition's time is the newest
that two labelled messages in a row have reached, and one of them moves it on by a half-life at
most: so a wrong clock harms little. A message counts as of its own time or, if that is beyond it,
as of its partition's; one that came before any time was known, or far too late, teaches nothing.
All of that is a function of the partition's log.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from consumers.config.message import MESSAGE_PARTS
from consumers.config.model import (
    READING,
    CategoriesSettings,
    FeatureSettings,
    FieldKind,
    FlagsSettings,
    ModelSettings,
    NumbersSettings,
    WordsSettings,
)
from consumers.config.sections import FIXED, ClassPriorSetting
from consumers.config.settings import Settings
from consumers.messages import (
    NO_TIME,
    WEIGHT,
    CheckpointEntry,
    Column,
    Messages,
    Partition,
    part_name,
    partition_of,
    rows_of,
)
from streamnb import (
    AnswerRule,
    Bernoulli,
    Beta,
    Calibrator,
    Categorical,
    Categories,
    Complement,
    Confidence,
    ConformalSets,
    Dirichlet,
    Fixed,
    Flags,
    Gaussian,
    HalfLife,
    Hybrid,
    Multinomial,
    NaiveBayes,
    NormalInverseGamma,
    Numbers,
    TextColumn,
    VarianceFloor,
    Words,
)
from streamnb.columns import missing_text
from streamnb.decisions import prediction_sets
from streamnb.kernels.layout import Texts
from streamnb.reader import ModelReader

Floats = NDArray[np.float64]
_AGE_MAX = 64.0  # half-lives behind its partition's time; a weight of 2⁻⁶⁴ would move no count
log = structlog.get_logger(__name__)


def build_model(settings: ModelSettings, *, n_threads: int = 1) -> NaiveBayes:
    """Return the untrained model of the settings; it learns a call's rows with so many threads."""
    half_life_s = settings.half_life_s
    return NaiveBayes(
        classes=settings.classes,
        class_prior=_class_prior(settings.class_prior, settings.classes),
        features={
            name: _group(name, group, settings.classes) for name, group in settings.features.items()
        },
        decay=None if half_life_s is None else HalfLife(seconds=half_life_s),
        new_classes=settings.new_classes,
        hash_key=hash_key_of(settings),
        n_threads=n_threads,
        prior_half_life=settings.prior_half_life,
    )


def without_hybrid(settings: ModelSettings) -> ModelSettings:
    """Return the settings of a model that counts the same, and learns no weights beside it."""
    return _with_words(settings, lambda _name, _words: {"hybrid": False})


def plain_model(settings: ModelSettings) -> ModelSettings:
    """Return the settings of a model that reads as version 0.1.0, and learns no weights."""
    return _with_words(settings, lambda _name, _words: dict.fromkeys(("hybrid", *READING), False))


def read_alike(settings: ModelSettings, stored: Mapping[str, Any]) -> ModelSettings:
    """Return the settings of a model that reads words as stored groups do, if they do not say."""

    def update(name: str, words: WordsSettings) -> dict[str, Any]:
        known = stored.get(name, {})
        if known.get("kind") != "words":
            return {}
        found = {name: known.get(name, False) for name in READING if getattr(words, name) is None}
        if words.ngrams[1] == 1 and "ends" in found:  # of a challenger that is new
            found["ends"] = False
        return found

    return _with_words(settings, update)


def _with_words(
    settings: ModelSettings, update: Callable[[str, WordsSettings], dict[str, Any]]
) -> ModelSettings:
    features = {
        name: group.model_copy(update=update(name, group))
        if isinstance(group, WordsSettings)
        else group
        for name, group in settings.features.items()
    }
    return settings.model_copy(update={"features": features})


def hash_key_of(settings: ModelSettings) -> int | None:
    """Return the model's hash key, None if it is to be drawn at random."""
    key = settings.hash_key
    return None if key is None else int(key.get_secret_value(), 16)


def _class_prior(prior: ClassPriorSetting, classes: Sequence[str]) -> Dirichlet | Fixed:
    if not isinstance(prior, dict):
        return Dirichlet(prior)
    fixed = prior.get(FIXED)
    if isinstance(fixed, dict):
        return Fixed({name: fixed[name] for name in classes})
    return Dirichlet([prior[name] for name in classes])


def _group(
    name: str, settings: FeatureSettings, classes: Sequence[str]
) -> Words | Categories | Flags | Numbers:
    """Return the specification of one group."""
    fields = settings.reads(name)
    if isinstance(settings, CategoriesSettings):
        known = next(iter(settings.values.values()), ())
        prior = _dirichlet(settings, classes, known)
        values = {field: list(own) for field, own in settings.values.items()} or None
        return Categories(
            Categorical(prior), fields=fields, values=values, max_values=settings.max_values,
            bins=settings.bins,
        )  # fmt: skip
    if isinstance(settings, FlagsSettings):
        beta = _beta(settings.beta, settings.beta_by_class, classes)
        if settings.beta_by_field is not None:
            own = [settings.beta_by_field.get(each, settings.beta) for each in fields]
            beta = Beta(*(list(each) for each in zip(*own, strict=True)))
        return Flags(Bernoulli(beta), fields=fields, absent_is_false=settings.absent_is_false)
    if isinstance(settings, NumbersSettings):
        return Numbers(_gaussian(settings), fields=fields)
    return _words(settings, classes)


def _dirichlet(
    settings: WordsSettings | CategoriesSettings, classes: Sequence[str], values: Sequence[str]
) -> Dirichlet:
    """Return α for all, by class, or by value."""
    if settings.alpha_by_class is not None:
        return Dirichlet([[settings.alpha_by_class[name] for name in classes]])
    if settings.alpha_by_value is not None:
        return Dirichlet([settings.alpha_by_value.get(each, settings.alpha) for each in values])
    return Dirichlet(settings.alpha)


def _beta(
    beta: tuple[float, float],
    by_class: Mapping[str, tuple[float, float]] | None,
    classes: Sequence[str],
) -> Beta:
    """Return (β₁, β₂) for all, or by class."""
    if by_class is None:
        return Beta(*beta)
    return Beta(*([[by_class[name][k] for name in classes]] for k in (0, 1)))


def _gaussian(settings: NumbersSettings) -> Gaussian:
    prior: VarianceFloor | NormalInverseGamma = VarianceFloor(settings.variance_floor)
    if settings.prior == "normal-inverse-gamma":
        prior = NormalInverseGamma(
            mean=settings.prior_mean,
            kappa=settings.prior_kappa,
            alpha=settings.prior_alpha,
            beta=settings.prior_beta,
        )
    return Gaussian(prior=prior, variance=settings.variance)


def _words(settings: WordsSettings, classes: Sequence[str]) -> Words:
    likelihood: Bernoulli | Complement | Multinomial
    prior = _dirichlet(settings, classes, settings.dictionary or ())
    if settings.likelihood == "bernoulli":
        likelihood = Bernoulli(_beta(settings.beta, settings.beta_by_class, classes))
    elif settings.likelihood == "complement":
        likelihood = Complement(prior, normalise=settings.normalise)
    else:
        likelihood = Multinomial(prior)
    options = {each.name for each in dataclasses.fields(Words)} - {"likelihood", "hybrid"}
    own = settings.model_dump(include=options)
    own |= settings.reading() | {"hybrid": Hybrid() if settings.hybrid else None}
    return Words(likelihood, field=settings.fields[0] if settings.fields else None, **own)


class SavedConfidence:
    """What was learned of the answers' worth, as an entry of the checkpoint.

    It counts every labelled message that was judged. What is deleted later stays counted: it says
    how right the answers were, and holds no word and no id.
    """

    name = "confidence"

    def __init__(self, settings: ModelSettings) -> None:
        self.learned = Confidence(
            Calibrator() if settings.calibration else None,
            None if settings.coverage is None else ConformalSets(settings.coverage),
            costs_of(settings),
        )

    def pack(self) -> CheckpointEntry:
        """Return all of the state."""
        learned = self.learned
        return CheckpointEntry(
            {
                "calibrator": None if learned.calibrator is None else learned.calibrator.to_dict(),
                "conformal": None if learned.conformal is None else learned.conformal.to_dict(),
            }
        )

    def unpack(self, entry: CheckpointEntry) -> None:
        """Go on, but with what the settings did not ask for before, or otherwise, begin again."""
        learned, known = self.learned, restored_confidence(entry.values)
        if learned.calibrator is not None and known.calibrator is not None:
            learned.calibrator = known.calibrator
        old, new = known.conformal, learned.conformal
        if new is not None and old is not None and old.coverage == new.coverage:
            learned.conformal = old


def build_confidence(settings: ModelSettings) -> SavedConfidence | None:
    """Return what learns how much the answers are worth; None if the settings ask for nothing."""
    if settings.calibration or settings.coverage is not None or settings.costs is not None:
        return SavedConfidence(settings)
    return None


def restored_confidence(values: Mapping[str, Any]) -> Confidence:
    """Return what a checkpoint's entry holds."""
    calibrator, conformal = values["calibrator"], values["conformal"]
    return Confidence(
        None if calibrator is None else Calibrator.from_dict(calibrator),
        None if conformal is None else ConformalSets.from_dict(conformal),
    )


def learned_confidence(notes: Mapping[str, Any]) -> Confidence | None:
    """Return what a model file's notes hold of a daemon or of `save`; None if they hold nothing."""
    known = notes.get("entries", {}).get("confidence")
    if known is None and isinstance(notes.get("calibrator"), dict):
        known = {"calibrator": notes["calibrator"], "conformal": None}
    return None if known is None else restored_confidence(known)


def learned_rule(notes: Mapping[str, Any], n_classes: int) -> AnswerRule | None:
    """Return the rule that a model file's notes hold for its classes; None if they hold none."""
    known = learned_confidence(notes)
    return None if known is None else known.rule(n_classes)


class Answers(NamedTuple):
    """What is answered to examples: log-posteriors, which classes the sets hold, and decisions."""

    log_posteriors: Floats
    sets: NDArray[np.bool_] | None = None
    decisions: NDArray[np.intp] | None = None  # places of the cheapest classes


class AnswerSequence:
    """Answers examples of a stream, each by what was learned of the answers before it.

    `delay` is how many more examples are answered before one is learned.
    """

    def __init__(
        self,
        calibrator: Calibrator | None = None,
        conformal: ConformalSets | None = None,
        costs: Floats | None = None,
        delay: int = 0,
    ) -> None:
        self.calibrator = calibrator
        self.conformal = conformal
        self._costs = costs
        self._delay = delay
        self._waiting = np.empty((0, 0)), np.empty(0, np.int32)  # stated, with labels

    def learn(self, stated: Floats, labels: NDArray[np.int32]) -> Answers:
        """Answer examples and learn them, in order; nan is a class that the model had not."""
        if self.calibrator is None and self.conformal is None:
            return self._decided(stated, None)
        before, known = self._waiting
        n_more = stated.shape[1] - before.shape[1]
        padded = np.pad(before, ((0, 0), (0, n_more)), constant_values=np.nan)
        every, truth = np.concatenate((padded, stated)), np.concatenate((known, labels))
        n_due = max(0, len(every) - self._delay)
        self._waiting = every[n_due:], truth[n_due:]
        n_none = len(stated) - n_due
        first = self.answer(stated[:n_none])
        due, own, asked = every[:n_due], truth[:n_due], stated[n_none:]
        learned, answers = due, asked
        if self.calibrator is not None:
            # What is learned late counts in the sets by what would be answered then.
            twin = (
                copy.deepcopy(self.calibrator)
                if self._delay and self.conformal is not None
                else None
            )
            answers = self.calibrator.prequential_many(due, own, asked)
            learned = answers if twin is None else twin.prequential_many(due, own)
        whole = np.concatenate((first.log_posteriors, answers))
        if self.conformal is None:
            return self._decided(whole, None)
        sets = self.conformal.prequential_many(learned, own, answers)
        return self._decided(
            whole, sets if first.sets is None else np.concatenate((first.sets, sets))
        )

    def answer(self, stated: Floats) -> Answers:
        """Answer examples by what was learned before, and learn nothing."""
        answers = stated if self.calibrator is None else self.calibrator.calibrate(stated)
        if self.conformal is None:
            return self._decided(answers, None)
        return self._decided(answers, prediction_sets(self.conformal.standing_threshold, answers))

    def _decided(self, answers: Floats, sets: NDArray[np.bool_] | None) -> Answers:
        if self._costs is None:
            return Answers(answers, sets)
        return Answers(answers, sets, AnswerRule(costs=self._costs).labels(answers))


def own_costs(settings: ModelSettings, model: ModelReader) -> Floats | None:
    """Return the configuration's costs, if its classes are the model's."""
    return costs_of(settings) if settings.classes == model.classes else None


def costs_of(settings: ModelSettings) -> Floats | None:
    """Return what each class costs (column) if another is true (row): 1 if nothing is said."""
    if settings.costs is None:
        return None
    classes = settings.classes
    return np.array(
        [
            [settings.costs.get(true, {}).get(said, float(said != true)) for said in classes]
            for true in classes
        ]
    )


def kinds_of(settings: ModelSettings) -> dict[str, FieldKind]:
    """Return the fields of a message that the model reads, with the kind of their group."""
    return {
        field: group.holds
        for name, group in settings.features.items()
        for field in group.reads(name)
    }


def judged_kinds(settings: Settings) -> dict[str, FieldKind]:
    """Return the fields of a message by which it is judged: the model's, and `per.field`."""
    kinds, field = kinds_of(settings.model), settings.per.field
    own: dict[str, FieldKind] = {} if field is None or field in kinds else {field: "categories"}
    return own | kinds


def learned_kinds(settings: Settings) -> dict[str, FieldKind]:
    """Return the fields of a message by which it is learned: those judged by, and its weight."""
    kinds = judged_kinds(settings)
    return kinds if settings.message.weight is None else kinds | {WEIGHT: "numbers"}


def extra_fields(settings: Settings) -> tuple[str, ...]:
    """Return the fields of a message that it is judged by beyond text, user and lang."""
    return tuple(name for name in judged_kinds(settings) if name not in MESSAGE_PARTS)


def columns_of(
    messages: Messages, rows: NDArray[np.int64], names: Sequence[str]
) -> dict[str, Column]:
    """Return the fields `names` of some rows, given ascending, each of their length."""
    return {name: rows_of(_column(messages, name), rows) for name in names}


def _column(messages: Messages, name: str) -> Column:
    if name == "text":
        return messages.texts
    return messages.fields[name] if name in messages.fields else missing_text(len(messages))


# ---- times -------------------------------------------------------------------------------------


def are_equal(one: Column, other: Column) -> bool:
    """Return whether two columns have the same values, missing ones too."""
    if isinstance(one, TextColumn) and isinstance(other, TextColumn):
        return _listed(one.texts) == _listed(other.texts)
    return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=True)


def _listed(texts: Texts) -> list[bytes | None]:
    bounds = zip(texts.starts.tolist(), texts.ends.tolist(), strict=True)
    return [None if end < 0 else texts.data[start:end].tobytes() for start, end in bounds]


def times_of(messages: Messages, rows: NDArray[np.int64] | None = None) -> Floats:
    """Return the time of each message, or of some, in Unix milliseconds; nan if unknown.

    No message is newer than its record, if the source says when that was written.
    """
    at = messages.at if rows is None else messages.at[rows]
    times_ms = np.array(messages.metadata(messages.raw, at).times_ms, np.float64)
    times_ms[times_ms == NO_TIME] = np.nan
    written_ms = messages.raw.times_ms[at]
    return np.minimum(times_ms, np.where(written_ms > 0, written_ms, np.inf))


class PartitionTime(msgspec.Struct):
    """The newest time that two messages in a row of a partition have reached, and the last's.

    Both are in Unix milliseconds. A single wrong time moves nothing.
    """

    newest_ms: float = -math.inf
    last_ms: float = -math.inf

    def advance(self, times_ms: Floats, step_ms: float = math.inf) -> Floats:
        """Move on by some messages; return the newest time before each of them, and at last.

        Once it is known, a message moves it on by `step_ms` at most.
        """
        reached = np.where(np.isnan(times_ms), -np.inf, times_ms)
        both = np.minimum(reached, np.r_[self.last_ms, reached[:-1]])
        newest = np.maximum.accumulate(np.r_[self.newest_ms, both])
        before, is_far = newest[:-1], False
        if math.isfinite(step_ms):
            is_far = bool((np.isfinite(before) & (newest[1:] > before + step_ms)).any())
        if is_far:
            now_ms = self.newest_ms
            for k, next_ms in enumerate(both.tolist(), 1):
                step = step_ms if math.isfinite(now_ms) else math.inf
                now_ms = newest[k] = min(max(now_ms, next_ms), now_ms + step)
        if len(times_ms):
            self.newest_ms, self.last_ms = float(newest[-1]), float(reached[-1])
        return newest

    def packed(self) -> list[float | None]:
        """Return both as JSON has them; None for none yet."""
        return [at if math.isfinite(at) else None for at in (self.newest_ms, self.last_ms)]

    def restore(self, values: Sequence[float | None]) -> None:
        """Go on from what was packed."""
        self.newest_ms, self.last_ms = (-math.inf if at is None else at for at in values)


class ExampleTimes(NamedTuple):
    """When labelled messages count, in Unix seconds, and their weights: 0 teaches nothing.

    Without decay there are no times, and without `message.weight` no weights either.
    """

    times_s: Floats | None = None
    weights: Floats | None = None

    def of(self, rows: NDArray[np.int64], messages: Messages) -> ExampleTimes:
        """Return those of some rows of the messages that they are of."""
        return self if self.weights is None else self.at(np.searchsorted(messages.to_learn, rows))

    def at(self, places: NDArray[np.int64]) -> ExampleTimes:
        """Return those at some places."""
        return ExampleTimes(*(None if each is None else each[places] for each in self))


def times_and_weights(messages: Messages, decay: DecayTimes | None) -> ExampleTimes:
    """Return when the labelled messages of a batch count, and as how many; time goes on."""
    times = ExampleTimes() if decay is None else decay.take(messages)
    own = messages.fields.get(WEIGHT)
    if not isinstance(own, np.ndarray):
        return times
    weights = np.where(np.isnan(own), 1.0, own)[messages.to_learn]
    return times._replace(weights=weights if times.weights is None else times.weights * weights)


class DecayTimes:
    """Says when the labelled messages of a stream count, for a half-life in seconds.

    It is an entry of the checkpoint; in a group its `packed` times of a partition go with the part.
    """

    name = "decay"

    def __init__(self, half_life_s: float) -> None:
        self._half_life_ms = 1000.0 * half_life_s
        self._logs: defaultdict[Partition, PartitionTime] = defaultdict(PartitionTime)
        self._packed: Mapping[str, Any] = {}
        self.n_untaught = 0  # labelled messages that teach nothing
        self._is_told = self._is_far_told = False

    def take(self, messages: Messages) -> ExampleTimes:
        """Return when the labelled messages of a batch count, and move their partition's time."""
        times_ms = times_of(messages, messages.to_learn)
        now_ms = self._logs[messages.partition].advance(times_ms, self._half_life_ms)[1:]
        own_ms = np.fmin(times_ms, now_ms)
        counts = np.isfinite(now_ms) & (own_ms >= now_ms - _AGE_MAX * self._half_life_ms)
        n_untaught = int(len(counts) - counts.sum())
        if n_untaught > 1 and not self._is_told:  # the first of a partition is none to tell of
            self._is_told = True
            log.warning(
                "messages_without_weight",
                partition=str(messages.partition),
                detail="labelled messages that came before any time was known, or"
                f" {_AGE_MAX:.0f} half-lives late, were judged, and taught nothing",
            )
        self.n_untaught += n_untaught
        return ExampleTimes(np.where(counts, own_ms, 0.0) / 1000.0, counts.astype(np.float64))

    def count_out_of_reach(self, partition: Partition, n: int) -> None:
        """Count messages that were too old for the model: another partition is far ahead."""
        self.n_untaught += n
        if n and not self._is_far_told:
            self._is_far_told = True
            log.warning(
                "messages_without_weight",
                partition=str(partition),
                detail="its labelled messages are hundreds of half-lives behind another partition,"
                " were judged, and taught nothing",
            )

    def of_part(self, partition: Partition) -> list[float | None] | None:
        """Return the times of a partition as they were packed last; on the checkpoint thread."""
        return self._packed.get(part_name(partition))

    def know(self, partition: Partition, times: Sequence[float | None] | None) -> None:
        """Go on with the times that another member of the group packed."""
        self._logs[partition].restore(times or (None, None))

    def pack(self) -> CheckpointEntry:
        """Return the time of each partition, and how many messages taught nothing."""
        self._packed = {part_name(each): own.packed() for each, own in self._logs.items()}
        return CheckpointEntry({"times": self._packed, "untaught": self.n_untaught})

    def unpack(self, entry: CheckpointEntry) -> None:
        """Go on from an entry."""
        self.n_untaught = entry.values["untaught"]
        for name, values in entry.values["times"].items():
            self._logs[partition_of(name)].restore(values)
