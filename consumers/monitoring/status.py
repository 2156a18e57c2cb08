"""How the daemon is: alive and ready, as the probes ask, and its whole state as one value.

The consuming thread beats once a turn of its loop, with or without messages, and so does the
reading thread: silence from the source is healthy, a loop that no longer turns is stuck. Ready
means more than alive: there is a snapshot to answer from, and the source can be read. Each field of
`Health` is one reference, set whole. If a component fails that learning and answering do not need,
such as the store of recent messages, the daemon stays ready and is shown as degraded: a restart
would cost more than it repairs.

`consumers.reporter` builds `Status` while the daemon runs, and `Summary` when it is done. The
screen, the log view, the API, the probes and the metrics read a `Status`; the command's last lines
and `--json` read the `Summary`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import field

from consumers.messages import Partition
from consumers.monitoring.prequential import DriftReport
from consumers.monitoring.quality import QualityReport, ShareReport
from streamnb import ReliabilityBin

# How long one step of a start may take, compiling or reading a checkpoint: each says that it began.
START_LIMIT_S = 120.0
# A message within the last two seconds counts as reading; then the source has nothing new.
READING_WITHIN_S = 2.0


class State(StrEnum):
    """What the daemon is doing."""

    STARTING = "starting"
    READING = "reading"
    IDLE = "idle"
    WAITING = "waiting for source"
    STUCK = "stuck"


class HealthReport(msgspec.Struct, frozen=True):
    """The daemon's health at one moment."""

    state: State
    alive: bool  # False if a restart would help: a loop is stuck
    ready: bool  # True if requests can be answered from what is being learned now
    reason: str | None  # why it is not alive or not ready, in a sentence
    last_message_age_s: float | None = None  # None before the first
    snapshot_version: int | None = None  # None before the first
    degraded: str | None = None  # what fails that learning and predicting can do without
    starting: str | None = None  # what the start is doing; None once the consuming loop turns


_FIRST_STEP = "the consuming loop has not begun"
NOT_BEGUN = HealthReport(
    State.STARTING, alive=True, ready=False, reason=_FIRST_STEP, starting=_FIRST_STEP
)


class Health:
    """Watches the beats of the consuming and of the reading thread.

    A loop without a beat for `stuck_after_s` (`http.stuck_after_s`) counts as stuck; `clock`
    returns seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float], stuck_after_s: float) -> None:
        self._clock = clock
        self._stuck_after_s = stuck_after_s
        self._lock = threading.Lock()
        self._started_s = clock()
        self._starting = _FIRST_STEP
        self._beat_s: float | None = None
        self._waits_until_s = self._started_s
        self._reader_beat_s: float | None = None
        self._message_s: float | None = None
        self._trouble: str | None = None
        self._snapshot_version: int | None = None
        self._parts: tuple[Callable[[], str | None], ...] = ()

    def watch_part(self, trouble: Callable[[], str | None]) -> None:
        """Show the daemon as degraded as long as a component reports trouble.

        `trouble` returns what is wrong, in a sentence, or None; any thread calls it.
        """
        with self._lock:
            self._parts = (*self._parts, trouble)

    def set_starting(self, text: str) -> None:
        """Set what the start is doing; a start that makes progress is never stuck."""
        now_s = self._clock()
        with self._lock:
            if text != self._starting:
                self._starting, self._started_s = text, now_s

    def beat(self, n_messages: int = 0) -> None:
        """Record a turn of the consuming loop and the number of messages it took."""
        now_s = self._clock()
        with self._lock:
            self._beat_s = self._waits_until_s = now_s
            if n_messages:
                self._message_s = now_s

    def progress(self) -> None:
        """Record that the consuming loop goes on amid what takes long; a start stays one."""
        now_s = self._clock()
        with self._lock:
            if self._beat_s is None:
                self._started_s = now_s
            else:
                self._beat_s = self._waits_until_s = now_s

    def wait(self, seconds: float) -> None:
        """Record that the consuming loop waits for something outside, for so long at most.

        What it may be silent for counts from then on, or from its next beat.
        """
        now_s = self._clock()
        with self._lock:
            self._waits_until_s = now_s + seconds

    def beat_reader(self) -> None:
        """Record a turn of the reading loop."""
        now_s = self._clock()
        with self._lock:
            self._reader_beat_s = now_s

    def set_trouble(self, text: str | None) -> None:
        """Set what keeps the source from being read; None once it can be read again."""
        with self._lock:
            self._trouble = text

    @property
    def trouble(self) -> str | None:
        """What keeps the source from being read; None if nothing does."""
        with self._lock:
            return self._trouble

    def set_ready(self, snapshot_version: int = 0) -> None:
        """Set the version of the published snapshot."""
        with self._lock:
            self._snapshot_version = snapshot_version

    def report(self) -> HealthReport:
        """Return the health as it is now."""
        now_s = self._clock()
        with self._lock:
            beat_s, message_s, reader_s = self._beat_s, self._message_s, self._reader_beat_s
            trouble, version = self._trouble, self._snapshot_version
            parts = self._parts
            started_s, doing = self._started_s, self._starting
            waited_s = min(now_s, self._waits_until_s)
        starting = beat_s is None
        since_s = max(started_s if beat_s is None else beat_s, waited_s)
        loop, silent_s = "consuming", now_s - since_s
        if reader_s is not None and now_s - reader_s > silent_s:
            loop, silent_s = "reading", now_s - reader_s
        limit_s = max(START_LIMIT_S, self._stuck_after_s) if starting else self._stuck_after_s
        message_age_s = None if message_s is None else now_s - message_s
        if silent_s > limit_s:
            state = State.STUCK
            reason: str | None = (
                f"the {loop} loop has not turned for {silent_s:.1f} s, and may be silent for "
                f"{limit_s:g} s (http.stuck_after_s); after a restart the daemon goes on from its "
                "last checkpoint"
            )
        elif trouble is not None:
            state, reason = State.WAITING, trouble
        elif starting:
            state, reason = State.STARTING, doing
        else:
            reading = message_age_s is not None and message_age_s <= READING_WITHIN_S
            state = State.READING if reading else State.IDLE
            reason = None if version is not None else "no snapshot is published yet"
        return HealthReport(
            state=state,
            alive=state is not State.STUCK,
            ready=reason is None,
            reason=reason,
            last_message_age_s=message_age_s,
            snapshot_version=version,
            degraded=next((said for part in parts if (said := part()) is not None), None),
            starting=doing if starting else None,
        )


# ---- the whole state -----------------------------------------------------------------------------


class Judged(NamedTuple):
    """One message and its prediction."""

    time_ms: int  # its time by the source's clock, in Unix milliseconds; -1 if unknown
    user: str | None
    text: str  # as it came, or its fields if it has no text
    label: str  # the predicted class
    probability: float  # posterior of that class, from 0 to 1
    truth: str | None  # the class it was labelled with


class ClassRow(msgspec.Struct, frozen=True):
    """A class with the examples it has seen and its prior."""

    label: str
    count: float
    prior: float


class ModelFigures(msgspec.Struct, frozen=True):
    """How well one of several models does, on messages that all of them judged.

    Attributes
    ----------
    name : str
        `model` for the one of the settings, else the challenger's.
    serves : bool
        Whether it is the one that answers.
    n_examples : int
        How many examples it has learned.
    n_judged : int
        How many of them it had judged before, beside the others.
    accuracy, log_loss : float or None
        Over all of these, in nats; None before the first.
    window_accuracy, window_log_loss, calibration_error : float or None
        Over the newest `learning.window` of them.
    """

    name: str
    serves: bool
    n_examples: int
    n_judged: int
    accuracy: float | None
    log_loss: float | None
    window_accuracy: float | None
    window_log_loss: float | None
    calibration_error: float | None


class JudgedBlock(msgspec.Struct, frozen=True):
    """A point of the models' curves: `promotion.examples` messages up to the number `example`.

    Attributes
    ----------
    example : int
        How many messages all of them had judged by then.
    log_loss, accuracy : mapping of str to float
        Over the block, by model.
    """

    example: int
    log_loss: Mapping[str, float]
    accuracy: Mapping[str, float]


class ChallengersReport(msgspec.Struct, frozen=True):
    """The models that learn side by side.

    Attributes
    ----------
    serving : str
        The one that answers.
    previous : str or None
        Whose place it took.
    n_promotions : int
        Since the checkpoint's beginning.
    models : tuple of ModelFigures
    blocks : tuple of JudgedBlock
        The newest ones, oldest first.
    """

    serving: str
    previous: str | None
    n_promotions: int
    models: tuple[ModelFigures, ...]
    blocks: tuple[JudgedBlock, ...]


class OwnModelFigures(msgspec.Struct, frozen=True):
    """The model of one value, and how well it and the shared one did on the value's messages.

    Attributes
    ----------
    value : str
    n_examples : int
        How many examples it has learned.
    answers : bool
        Whether it answers for its value, as it has learned enough.
    window_accuracy, window_log_loss : float or None
        Of what it stated before it learned, over the newest `learning.window` of its messages.
    shared_window_accuracy, shared_window_log_loss : float or None
        Of what the shared model stated of the same ones.
    """

    value: str
    n_examples: int
    answers: bool
    window_accuracy: float | None
    window_log_loss: float | None
    shared_window_accuracy: float | None
    shared_window_log_loss: float | None


class OwnModelsReport(msgspec.Struct, frozen=True):
    """The models of single values of a field, in the order in which they began; see `per`."""

    field: str
    examples_min: int
    prior_examples: float
    models: tuple[OwnModelFigures, ...]


class Status(msgspec.Struct, frozen=True):
    """The daemon at one moment.

    Counts are of this run, or of all the log with `learning.publish: examples`. A value that does
    not exist yet is None: an accuracy before the first example, an age before the first snapshot.
    """

    source: str
    classes: tuple[str, ...] = ()
    trouble: str | None = None  # what keeps the source from being read, in a sentence
    n_messages: int = 0  # read; of these learned, judged without a label, rejected:
    n_learned: int = 0
    n_learned_late: int = 0  # those learned whose label came later: they are judged ones as well
    n_judged: int = 0
    n_rejected: int = 0
    n_ignored: int = 0  # left out by conditions of `message`
    rate_per_s: float = 0.0  # messages a second, lately
    lag_total: int | None = None  # unread messages in all partitions
    shares: tuple[float, ...] = ()  # of each class in the newest predictions; sum to 1, or empty
    accuracy: float | None = None  # prequential, since the beginning
    log_loss: float | None = None  # in nats
    window_accuracy: float | None = None  # over the last `learning.window` examples
    window_log_loss: float | None = None
    stated_error: float | None = None  # mean distance of probability and share, before calibration
    stated: tuple[ReliabilityBin, ...] | None = None  # what became of them, the lowest first
    sets_covered: float | None = None  # share of the prediction sets that held the true class
    set_size: float | None = None  # mean number of classes in them
    coverage: float | None = None  # the share that is promised to hold it
    vocabulary_size: int = 0
    words_dropped: int = 0  # words that left because the vocabulary was full, all runs together
    n_features: int = 0  # words, values of categories, flags and numbers
    snapshot_version: int = 0  # of the published snapshot; 0 before the first
    snapshot_age_s: float | None = None
    n_examples: int | None = None  # that the published snapshot has learned, all runs together
    class_rows: tuple[ClassRow, ...] = ()  # of the published snapshot
    checkpoint_age_s: float | None = None
    http_address: str | None = None  # where page, metrics and health are served
    newest: tuple[Judged, ...] = ()  # oldest first
    telling: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # by class, strongest first
    elapsed_s: float = 0.0
    note: str | None = None  # what the daemon is doing, if that explains a pause
    outcomes: Mapping[str, int] = field(default_factory=dict)  # messages by what became of them
    rejected: Mapping[str, int] = field(default_factory=dict)  # by reason
    ignored: Mapping[str, int] = field(default_factory=dict)  # by condition of `message`
    revisions: Mapping[str, int] = field(default_factory=dict)  # what deletes and updates took back
    remembered: tuple[int, int] = (0, 0)  # records of what was learned, and their bytes
    n_untaught: int = 0  # labelled messages that decay left no weight
    labels: Mapping[str, int] = field(default_factory=dict)  # that came later than their message
    learned_by_class: Mapping[str, int] = field(default_factory=dict)
    predicted_by_class: Mapping[str, int] = field(default_factory=dict)  # without a label
    n_predicted: int = 0  # examples predicted before they were learned
    n_correct: int = 0
    log_loss_sum: float = 0.0  # of these examples, in nats
    quality: QualityReport = field(default_factory=QualityReport)
    stream_shares: ShareReport | None = None  # of the newest predictions, about a second ago
    lag: Mapping[Partition, int] = field(default_factory=dict)  # of each partition read now
    n_lost: int = 0  # messages that the source had removed before they were read
    n_gaps: int = 0  # places at which a live stream may have lost some
    n_restarts: int = 0  # times that the source was lost and found again
    parts: Mapping[str, int] = field(default_factory=dict)  # of a group's model, by who reads them
    oldest_part_s: float | None = None  # age of the oldest part that another member reads
    n_damaged_parts: int = 0
    n_missing_parts: int = 0  # of partitions that others read, as they share no folder
    decoder: str | None = None  # how Kafka's responses are decoded; None for other sources
    new_words_dropped: int = 0  # in this run
    new_values_dropped: int = 0  # values of categories, likewise
    drift: DriftReport | None = None  # with `drift.enabled`
    challengers: ChallengersReport | None = None  # with `challengers`
    per: OwnModelsReport | None = None  # with `per.field`
    health: HealthReport = NOT_BEGUN  # what `/healthz` and `/readyz` answer


Samples: TypeAlias = Mapping[tuple[str, ...], float | None]  # of a metric, by its labels' values


def figures_by_model(status: Status, figure: str) -> Samples:
    """Return a figure of each model by its name; none if there is one model alone."""
    models = () if status.challengers is None else status.challengers.models
    return {(each.name,): getattr(each, figure) for each in models}


def figures_by_value(status: Status, **models: str) -> Samples:
    """Return figures of each value by its name and the name of the model, if that is not empty."""
    return {
        (each.value, model) if model else (each.value,): getattr(each, figure)
        for each in (() if status.per is None else status.per.models)
        for figure, model in models.items()
    }


def adjusted_share(status: Status, label: str) -> float | None:
    """Return a class's share of the newest predictions, corrected; None if there is none."""
    corrected = None if status.stream_shares is None else status.stream_shares.corrected
    share = corrected.get(label) if corrected else None  # a class may have joined since
    return None if share is None else share.share


class Summary(msgspec.Struct, frozen=True):
    """What a run did; printed at its end, and as one JSON object with `--json`.

    With `learning.publish: examples` it is what all runs on one checkpoint did.
    """

    source: str
    # Those learned (less those learned late), judged, rejected, superseded, ignored, and deletions:
    messages: int
    learned: int
    learned_late: int  # judged when they came and learned when their label came: counted in both
    judged: int  # those without a label, or whose label came later
    deletions: int  # messages that ask to delete, which teach nothing
    superseded: int  # deleted or updated before they came, and left out
    rejected: Mapping[str, int]  # by reason
    ignored: Mapping[str, int]  # left out by the configuration, by condition
    ambiguous: int  # of those judged, the ones with contradicting emoticons
    lost: int  # that the source had removed before they were read: none of `messages`
    gaps: int  # places at which a live stream may have lost some
    accuracy: float | None  # prequential, over everything that was learned in this run
    log_loss: float | None
    vocabulary_size: int
    words_dropped: int  # words that left because the vocabulary was full
    n_features: int
    classes: tuple[str, ...]
    class_counts: tuple[float, ...]  # examples learned of each class, all runs together
    positions: Mapping[str, int]  # for each partition (``topic[0]``), where reading goes on
    seconds: float  # start and end included
    messages_per_s: float  # from when the first message came until the last was dealt with
    snapshot_version: int
    exit_reason: str  # ``"end of source"``, ``"max messages"`` or ``"told to stop"``
    checkpoint: str | None = None  # where the model is kept
    late_labels: Mapping[str, int] = {}  # labels of `late_labels.source`, by what became of them
