"""How examples of a labelled source are judged by a model that has not learned them.

`judge` reads the source once and keeps two arrays: each example's class and its log-posteriors.
`figures` makes all else of these.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.cli.conventions import ahead, decoded, polls, progress_bar, source_apart
from consumers.cli.figures import Floats, Ints, JudgedExamples, importing_scikit_learn
from consumers.cli.model_report import training_figures
from consumers.cli.output import folds_notes, late_sets_note
from consumers.config.message import MESSAGE_PARTS, EmoticonLabels
from consumers.config.settings import Settings
from consumers.decode.decoder import Decoder
from consumers.decode.example_input import kinds_in
from consumers.decode.labels import Labeller, NoLabels, SignRemover
from consumers.decode.schemas import payloads_of
from consumers.errors import ConfigError, QuestionError
from consumers.factories import build_decoder
from consumers.features import (
    Answers,
    AnswerSequence,
    DecayTimes,
    ExampleTimes,
    build_model,
    columns_of,
    kinds_of,
    own_costs,
    times_and_weights,
)
from consumers.messages import CLASSES_MAX, Column, KnownClasses, Messages, rows_of
from consumers.process import keep_freed_memory, short_pauses
from consumers.sinks.records import decided_by, prediction_record, reject_record
from consumers.sources.base import Source
from streamnb import (
    AnswerRule,
    Calibrator,
    Codes,
    ConformalSets,
    Folds,
    NaiveBayes,
    Snapshot,
    TextColumn,
    predict,
)
from streamnb.kernels.layout import Texts
from streamnb.labels import UNLABELLED, to_indices
from streamnb.learn import prequential
from streamnb.reader import ModelReader

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_JUDGES = 2  # threads that judge a fold: most of it is kernels, which hold no lock
_LEAST = float(np.finfo(np.float32).min)


class Method(msgspec.Struct, frozen=True):
    """How examples are judged: as they come, unless one of the others is set."""

    delay: int = 0  # examples after which a label is known
    hold_out: float | None = None  # the last share of the stream, judged and not learned
    folds: int | None = None
    model: ModelReader | None = None  # judged as it is; nothing is learned
    sets: ConformalSets | None = None  # of that model, as they stand
    messages_max: int | None = None
    seed: int = 0
    calibrated: bool = True  # where the settings or the saved model are
    joint: bool = False  # log p(x, y) of a hybrid's counts too, which are learned beside it


class Examples(NamedTuple):
    """Labelled messages as columns; `labels` are places among the evaluation's classes."""

    columns: dict[str, Column]
    labels: NDArray[np.int32]
    at: Ints  # the number of each in the stream
    times: ExampleTimes

    @property
    def taught(self) -> NDArray[np.int32]:
        """The labels; `UNLABELLED` where a weight of 0 teaches nothing, and calibrates nothing."""
        weights = self.times.weights
        if weights is None:
            return self.labels
        return np.where(weights == 0.0, np.int32(UNLABELLED), self.labels)

    def rows(self, rows: NDArray[np.int64]) -> Examples:
        """Return some rows, given ascending."""
        columns = {name: rows_of(column, rows) for name, column in self.columns.items()}
        return Examples(columns, self.labels[rows], self.at[rows], self.times.at(rows))


def judge(settings: Settings, method: Method, *, show: bool = False) -> JudgedExamples:
    """Read the labelled messages of the source, and have a model judge each by the method."""
    evaluation = Evaluation(settings, method, n_threads=2)
    known, limit = evaluation.known, method.messages_max
    # A calibrator imports from SciPy.
    is_calibrated = method.model is not None or settings.model.calibration
    with nullcontext() if is_calibrated else importing_scikit_learn():
        read_messages(
            settings, "evaluate", evaluation.take, limit,
            lambda source: build_decoder(settings, source, known), show=show,
        )  # fmt: skip
    return evaluation.result()


def predict_all(
    settings: Settings,
    model: NaiveBayes | Snapshot,
    reader: ModelReader,
    write: Callable[[bytes], object],
    *,
    show: bool = False,
) -> Counter[str]:
    """Write a line for each message of the source: its prediction, or why it cannot be used.

    `reader` is the model, or that without its class prior. Labels are not read; where they are
    emoticons, texts are judged without these, as a run does it. Returns how many messages were
    judged, deletions, rejected and ignored.
    """
    rule = model.rule if isinstance(model, Snapshot) else AnswerRule()
    kinds, classes = kinds_in(model), [str(label) for label in model.classes]
    own = (*settings.message.fields, *(name for name in kinds if name not in MESSAGE_PARTS))
    message = settings.message.model_copy(update={"fields": tuple(dict.fromkeys(own))})
    found: Counter[str] = Counter()
    labels = settings.labels
    labeller: Labeller = NoLabels(classes)
    if isinstance(labels, EmoticonLabels) and "text" in kinds:
        labeller = SignRemover(labels, classes)

    def take(messages: Messages) -> None:
        rows = messages.to_predict
        said = reader.predict_log_proba_many(columns_of(messages, rows, list(kinds)))
        decided = decided_by(rule, classes, said)
        records = [
            prediction_record(envelope, classes, row, 0, each)
            for envelope, row, each in zip(
                messages.envelopes(rows), said.tolist(), decided, strict=True
            )
        ]
        records += map(reject_record, messages.rejects)
        write(b"".join(record.value + b"\n" for record in records))
        found.update(
            judged=len(rows),
            deletions=len(messages.deleted),
            rejected=len(messages.rejects),
            ignored=sum(messages.ignored.values()),
        )

    def decoder_of(source: Source) -> Decoder:
        form = source.record_format
        payloads = payloads_of(message, form)
        return Decoder(message, labeller, form, reads=kinds, payloads=payloads)

    read_messages(settings, "predict", take, None, decoder_of, show=show)
    return found


def read_messages(
    settings: Settings,
    what: str,
    take: Callable[[Messages], object],
    messages_max: int | None,
    decoder_of: Callable[[Source], Decoder],
    *,
    show: bool,
) -> None:
    """Read a source once for a command, `what`, and hand on its messages as they are decoded.

    Reading and decoding go on while a batch is taken.
    """
    source = source_apart(settings, what)
    decoder = decoder_of(source)
    path = settings.source_address.path
    size = path.stat().st_size if path is not None and path.exists() else None
    over = threading.Event()

    def read(bar: Progress, task: TaskID) -> Generator[Messages]:
        n_read = 0
        for raw in polls(source, None, None, lambda text: bar.update(task, description=text), over):
            some = raw if messages_max is None else raw.head(messages_max - n_read)
            yield from decoded(some, decoder)
            n_read += len(some)
            if messages_max is None:
                total = n_read + sum(source.lag().values())
                plain = size is not None and raw.next_offset <= size
                done = raw.next_offset if plain else n_read
                bar.update(task, completed=done, total=size if plain else total or None)
            else:
                bar.update(task, completed=n_read)
            if n_read == messages_max:
                return

    keep_freed_memory()
    # Reading, learning and importing take turns at the interpreter's lock, some thousand times.
    with short_pauses(), progress_bar(show=show) as bar:
        task = bar.add_task(source.name, total=messages_max)
        with closing(ahead(read(bar, task), over)) as batches:
            for messages in batches:
                take(messages)


class _Part(NamedTuple):
    """What was judged of a batch: numbers in the stream, classes and log-posteriors.

    The others are as `JudgedExamples` has them, each None if it is not known.
    """

    at: Ints
    labels: NDArray[np.int32]
    posteriors: NDArray[np.float32]
    joint: Floats | None
    set_sizes: NDArray[np.int32] | None
    covered: NDArray[np.bool_] | None
    decided: NDArray[np.int32] | None


class JudgedLearner(Protocol):
    """Judges and learns, as `NaiveBayes` does; it may be of another library."""

    @property
    def classes(self) -> Sequence[Any]:
        """Its classes, in the order of the posteriors' columns."""

    def prequential_many(
        self,
        columns: Mapping[str, Any],
        labels: Codes,
        /,
        *,
        weights: NDArray[np.float64] | None = None,
        times_s: NDArray[np.float64] | None = None,
    ) -> Floats:
        """Return each example's log-posteriors from before it was learned."""


class Evaluation:
    """One model, judged by a method on the messages that it takes.

    It is a `learner` of another library, if one is given: then it can only be judged as it learns.
    With two threads, our model reads texts in one and learns them in the other.
    """

    def __init__(
        self,
        settings: Settings,
        method: Method,
        learner: JudgedLearner | None = None,
        *,
        n_threads: int = 1,
    ) -> None:
        self._settings = settings
        self._method = method
        self.is_ours = learner is None
        self.kinds = kinds_of(settings.model)
        if method.folds is not None and settings.model.half_life_s is not None:
            raise ConfigError(
                "--folds: a model with model.half_life_s cannot be learned in folds, as what it has"
                " forgotten depends on the order of all messages. Judge it as it learns, without"
                " --folds"
            )
        model = build_model(settings.model, n_threads=n_threads)
        self.model = method.model or model
        self.learner: JudgedLearner = model if learner is None else learner
        own = settings.model.classes if method.model is None else map(str, self.model.classes)
        is_open = settings.model.new_classes and method.model is None
        self.known = KnownClasses(own, open=is_open)
        self._classes = list(self.known)
        half_life_s = settings.model.half_life_s if self.is_ours else None  # peers do not forget
        self._decay = None if half_life_s is None else DecayTimes(half_life_s)
        self._random = np.random.default_rng(method.seed)
        self._judged = JudgedExamples()
        self._first_reject = ""
        self._parts: list[_Part] = []
        self._counts: NaiveBayes | None = None  # of a hybrid, by themselves
        if model.state.is_hybrid and method.joint:
            self._counts = NaiveBayes.of(build_model(settings.model).state.raw())
        self._waiting: deque[Examples] = deque()
        self._n_waiting = self._n_seen = self._n_learned = 0
        self._folds = None if method.folds is None else Folds(model, method.folds)
        self._by_fold: list[list[Examples]] = [[] for _ in range(method.folds or 0)]
        self._next_folds = np.empty(0, np.int64)
        self._answers = self._answer_sequence()
        self._takes: Callable[[Examples], None] = self._prequential
        if method.model is not None:
            self._takes = self._only_judge
        elif method.folds is not None:
            self._takes = self._count_folds
        elif method.hold_out is not None:
            self._takes = self._hold_out
        elif method.delay:
            self._takes = self._late

    def take(self, messages: Messages) -> int:
        """Judge and learn the labelled messages of a batch; return how many there were."""
        examples = self._examples(messages)
        n = len(examples.labels)
        if n:
            self._takes(examples)
            self._n_seen += n
        return n

    def last(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return labels and log-posteriors of the batch before; of methods that judge at once."""
        return self._parts[-1].labels, self._parts[-1].posteriors

    def result(self) -> JudgedExamples:
        """Judge what waits, and return all that was judged, in the stream's order."""
        method, found = self._method, self._judged
        for each in self._waiting if method.hold_out is not None else ():
            self._only_judge(each)
        with ThreadPoolExecutor(_JUDGES) as threads:
            for fold, held in enumerate(self._by_fold):
                assert self._folds is not None
                judge = partial(self._judge, model=self._folds.without(fold))
                for each, (stated, joint) in zip(held, threads.map(judge, held), strict=True):
                    self._keep(each, self._answers.answer(stated), joint)
        if not self._parts:
            shown = ", ".join(f"{n:,} {why}" for why, n in sorted(found.rejected.items())) or "none"
            raise QuestionError(
                f"{self._settings.source}: has no labelled message to judge, of {found.messages:,}"
                f" read, {found.unlabelled:,} without a label and {shown} rejected. See labels.*"
                f" and model.classes of the configuration{self._first_reject}"
            )
        n_classes = len(self._classes)
        order = np.argsort(np.concatenate([each.at for each in self._parts]), kind="stable")
        found.classes = tuple(self._classes)
        found.labels = np.concatenate([each.labels for each in self._parts])[order].astype(np.int64)
        padded = [_padded(each.posteriors, n_classes) for each in self._parts]
        found.log_posteriors = np.concatenate(padded)[order]
        for name in ("joint", "set_sizes", "covered", "decided"):
            values = [getattr(each, name) for each in self._parts]
            setattr(found, name, None if values[0] is None else np.concatenate(values)[order])
        if self.is_ours:
            whole = self.model if self._folds is None else self._folds.total()
            found.training = training_figures(whole)
        if self._folds is not None:
            found.notes += folds_notes(self._folds.overfull())
        return found

    def _answer_sequence(self) -> AnswerSequence:
        """Return what answers are made by, as the settings or the saved model have it."""
        method, asked, judged = self._method, self._settings.model, self._judged
        calibrator, sets, costs = None, method.sets, own_costs(asked, self.model)
        if self.is_ours and method.model is None and method.folds is None:
            calibrator = Calibrator() if asked.calibration and method.calibrated else None
            sets = None if asked.coverage is None else ConformalSets(asked.coverage)
        judged.calibrated = calibrator is not None or self.model.state.calibration is not None
        judged.coverage = None if sets is None else sets.coverage
        judged.costs = costs
        if method.folds is not None and self.model.state.is_hybrid:
            judged.notes.append(
                "the model is a hybrid: its counts without a fold are exact, its weights are those"
                f" of a training in {method.folds - 1} parts, and may be less accurate than those"
                f" of {method.folds} trainings"
            )
        if asked.coverage is not None and sets is None and self.is_ours:
            what = "the saved model has none" if method.folds is None else "folds have no order"
            judged.notes.append(f"no prediction sets are judged: {what}")
        if sets is not None and (method.model is not None or method.hold_out is not None):
            judged.notes.append(
                "prediction sets are by one threshold, that of the end of what was learned, and"
                " may cover some points more or less than one that follows the labels"
            )
        if sets is not None and method.delay:
            judged.notes.append(late_sets_note(method.delay))
        if asked.costs is not None and costs is None:
            judged.notes.append("no costs are judged: the model's classes are not model.classes")
        return AnswerSequence(calibrator, sets, costs, method.delay)

    def _examples(self, messages: Messages) -> Examples:
        """Return the labelled messages of a batch, and count the rest."""
        found, rows = self._judged, messages.to_learn
        found.messages += len(messages.raw)
        found.rejected.update(str(each.reason) for each in messages.rejects)
        if messages.rejects and not self._first_reject:
            first = messages.rejects[0]
            self._first_reject = (
                f"; the first reject: {first.partition}@{first.offset}: {first.detail}"
            )
        found.ignored.update(messages.ignored)
        found.unlabelled += len(messages.to_predict)
        found.deletions += len(messages.deleted)
        codes, classes = messages.labels[rows], messages.classes
        new = [classes[code] for code in dict.fromkeys(codes.tolist())]
        self._classes += [label for label in new if label not in self.known]
        if len(self._classes) > CLASSES_MAX:
            raise QuestionError(
                f"{self._settings.source}: its labels are more than {CLASSES_MAX} classes; declare"
                " those that count in model.classes, and set model.new_classes to false"
            )
        self.known.grow(tuple(self._classes))
        times = times_and_weights(messages, self._decay)
        truth = to_indices(Codes(codes, classes), self._classes)
        at = self._n_seen + np.arange(len(rows))
        return Examples(columns_of(messages, rows, list(self.kinds)), truth, at, times)

    # ---- methods ---------------------------------------------------------------------------------

    def _prequential(self, examples: Examples) -> None:
        """Judge each example, then learn it."""
        stated, joint = self._learn(examples)
        self._keep(examples, self._answers.learn(stated, examples.taught), joint)

    def _late(self, examples: Examples) -> None:
        """Judge each example; then learn the one that came `delay` examples before it.

        Both stand in one call, side by side: what is only judged has a weight of 0.
        """
        n, delay = len(examples.labels), self._method.delay
        self._wait(examples)
        late = list(self._due(max(0, self._n_waiting - delay)))
        n_late = sum(len(each.labels) for each in late)
        both = _joined([examples, *late])
        order = np.argsort(
            np.concatenate((2 * np.arange(n), 2 * np.arange(n - n_late, n) + 1)), kind="stable"
        )
        weights = np.concatenate((np.zeros(n), np.ones(n_late)))
        if both.times.weights is not None:
            weights *= both.times.weights
        both = both._replace(times=ExampleTimes(both.times.times_s, weights))
        found, joint = self._learn(_permuted(both, order))
        own = np.argsort(order)[:n]
        answers = self._answers.learn(found[own], examples.taught)
        self._keep(examples, answers, None if joint is None else joint[own])

    def _hold_out(self, examples: Examples) -> None:
        """Learn what cannot be among the last share any more; the rest waits."""
        self._wait(examples)
        n_seen = self._n_seen + len(examples.labels)
        # As floats, 1 − 0.9 of 10 is less than 1.
        n_due = int((1 - Fraction(str(self._method.hold_out))) * n_seen) - self._n_learned
        for each in self._due(n_due):
            stated, _ = self._learn(each)
            self._answers.learn(stated, each.taught)
            self._n_learned += len(each.labels)

    def _count_folds(self, examples: Examples) -> None:
        """Count each example in a fold; of as many neighbours as folds, each is in another one."""
        assert self._folds is not None
        n, k = len(examples.labels), self._folds.n_folds
        blocks = np.tile(np.arange(k), (n // k + 1, 1))
        more = self._random.permuted(blocks, axis=1).ravel()
        chosen = np.concatenate((self._next_folds, more))
        own, self._next_folds = chosen[:n], chosen[n:]
        for fold, held in enumerate(self._by_fold):
            some = examples.rows(np.flatnonzero(own == fold))
            if len(some.labels):
                codes = Codes(some.labels, tuple(self._classes))
                weights = some.times.weights
                self._folds.learn_many(some.columns, codes, fold, weights=weights)
                held.append(some)

    def _only_judge(self, examples: Examples) -> None:
        stated, joint = self._judge(examples, self.model)
        self._keep(examples, self._answers.answer(stated), joint)

    def _judge(self, examples: Examples, model: ModelReader) -> tuple[Floats, Floats | None]:
        """Return what a model states of examples, and log p(x, y) of each if it is to be known."""
        if model.state.is_hybrid and not self._method.joint:
            return self._placed(model.predict_log_proba_many(examples.columns), model), None
        found, joint = predict.with_joint(model.state, examples.columns)
        return self._placed(found, model), self._own(joint, examples, model)

    def _learn(self, examples: Examples) -> tuple[Floats, Floats | None]:
        """Learn examples; return what was stated of each before, and log p(x, y) if it is known.

        Classes yet to join are nan.
        """
        codes, columns = Codes(examples.labels, tuple(self._classes)), examples.columns
        weights, times_s = examples.times.weights, examples.times.times_s
        learner, counts = self.learner, self._counts
        joint: list[predict.Joint] = []
        if not isinstance(learner, NaiveBayes):
            found = learner.prequential_many(columns, codes, weights=weights, times_s=times_s)
            return self._placed(found, learner), None
        rows = partial(prequential, columns=columns, labels=codes, weights=weights, times_s=times_s)
        if learner.state.is_hybrid:
            found = rows(learner.state)
            if counts is not None:
                rows(counts.state, joint=joint)
        else:
            counts, found = learner, rows(learner.state, joint=joint)
        if counts is None:
            return self._placed(found, learner), None
        return self._placed(found, learner), self._own(joint[0], examples, counts)

    def _own(self, joint: predict.Joint, examples: Examples, model: ModelReader) -> Floats:
        """Return log p(x, y): -inf for a class that came later, nan for a point mass."""
        rows, n_classes = np.arange(len(examples.labels)), joint.log_likelihoods.shape[1]
        own = self._placed(joint.log_likelihoods, model)[rows, examples.labels]
        at = np.full(len(self._classes), n_classes)  # the last column is of an unknown class
        at[self._places(model, n_classes)] = np.arange(n_classes)
        is_point = joint.is_point[rows, at[examples.labels]]
        return np.where(is_point, np.nan, np.where(np.isnan(own), -np.inf, own))

    def _places(self, model: JudgedLearner | ModelReader, n_classes: int) -> list[int]:
        """Return the places of a model's first classes among the evaluation's."""
        return [self._classes.index(str(label)) for label in model.classes[:n_classes]]

    def _placed(self, found: Floats, model: JudgedLearner | ModelReader) -> Floats:
        """Return log-posteriors in the order of the evaluation's classes, nan for the others."""
        posteriors = np.full((len(found), len(self._classes)), np.nan)
        posteriors[:, self._places(model, found.shape[1])] = found
        return posteriors

    def _keep(self, examples: Examples, answers: Answers, joint: Floats | None) -> None:
        # What is finite stays so in 32 bits, or it would be impossible, and in no log-loss.
        found, sets, decided = answers
        finite = np.where(found > -np.inf, np.maximum(found, _LEAST), -np.inf).astype(np.float32)
        y = examples.labels
        sizes = None if sets is None else sets.sum(axis=1, dtype=np.int32)
        covered = None if sets is None else sets[np.arange(len(y)), y]
        places = None if decided is None else decided.astype(np.int32)
        self._parts.append(_Part(examples.at, y, finite, joint, sizes, covered, places))

    def _wait(self, examples: Examples) -> None:
        self._waiting.append(examples)
        self._n_waiting += len(examples.labels)

    def _due(self, n: int) -> Iterator[Examples]:
        """Yield the first `n` examples that wait."""
        while n > 0:
            first = self._waiting.popleft()
            size = len(first.labels)
            if size > n:
                self._waiting.appendleft(first.rows(np.arange(n, size)))
                first = first.rows(np.arange(n))
            n -= len(first.labels)
            self._n_waiting -= len(first.labels)
            yield first


def _padded(posteriors: NDArray[Any], n_classes: int) -> NDArray[Any]:
    """Return log-posteriors with the classes that came later, which had no probability."""
    n_more = n_classes - posteriors.shape[1]
    return np.pad(posteriors, ((0, 0), (0, n_more)), constant_values=-np.inf)


def _joined(pieces: Sequence[Examples]) -> Examples:
    """Return pieces as one."""
    first = pieces[0]
    columns = {
        name: _joined_column([each.columns[name] for each in pieces]) for name in first.columns
    }
    known = [
        [each for each in own if each is not None]
        for own in zip(*(each.times for each in pieces), strict=True)
    ]
    times = ExampleTimes(*(np.concatenate(own) if own else None for own in known))
    labels = np.concatenate([each.labels for each in pieces])
    return Examples(columns, labels, np.concatenate([each.at for each in pieces]), times)


def _joined_column(columns: Sequence[Column]) -> Column:
    texts = [column.texts for column in columns if isinstance(column, TextColumn)]
    if not texts:
        return np.concatenate([each for each in columns if isinstance(each, np.ndarray)])
    shifts = np.cumsum([0, *(len(each.data) for each in texts[:-1])])
    both = list(zip(texts, shifts, strict=True))
    return TextColumn(
        Texts(
            np.concatenate([each.data for each in texts]),
            np.concatenate([each.starts + shift for each, shift in both]),
            np.concatenate([np.where(each.ends < 0, -1, each.ends + by) for each, by in both]),
        )
    )


def _permuted(examples: Examples, order: Ints) -> Examples:
    """Return all rows in another order."""
    columns: dict[str, Column] = {}
    for name, column in examples.columns.items():
        if isinstance(column, TextColumn):
            data, starts, ends = column.texts
            columns[name] = TextColumn(Texts(data, starts[order], ends[order]))
        else:
            columns[name] = column[order]
    return Examples(columns, examples.labels[order], examples.at[order], examples.times.at(order))
