"""The daemon's state as one value: `Status` while it runs, `Summary` when it is done.

`consumers.reporter` builds both. The screen, the log view, the API, the probes and the metrics read
a `Status`; the command's last lines and `--json` read the `Summary`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from consumers.messages import Partition
from consumers.monitoring.health import NOT_BEGUN, HealthReport
from consumers.monitoring.quality import QualityReport, ShareReport


class Judged(NamedTuple):
    """One message and its prediction."""

    time_ms: int  # its time by the source's clock, in Unix milliseconds; -1 if unknown
    user: str | None
    text: str  # as it came, or its fields if it has no text
    label: str  # the predicted class
    probability: float  # posterior of that class, from 0 to 1
    truth: str | None  # the class it was labelled with


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A class with the examples it has seen and its prior."""

    label: str
    count: float
    prior: float


@dataclass(frozen=True, slots=True)
class Status:
    """The daemon at one moment.

    Counts are of this run, or of all the log with `learning.publish: examples`. A value that does
    not exist yet is None: an accuracy before the first example, an age before the first snapshot.
    """

    source: str
    classes: tuple[str, ...] = ()
    trouble: str | None = None  # what keeps the source from being read, in a sentence
    n_messages: int = 0  # read; of these learned, judged without a label, rejected:
    n_learned: int = 0
    n_judged: int = 0
    n_rejected: int = 0
    rate_per_s: float = 0.0  # messages a second, lately
    lag_total: int | None = None  # unread messages in all partitions
    shares: tuple[float, ...] = ()  # of each class in the newest predictions; sum to 1, or empty
    accuracy: float | None = None  # prequential, since the beginning
    log_loss: float | None = None  # in nats
    window_accuracy: float | None = None  # over the last `learning.window` examples
    window_log_loss: float | None = None
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
    n_restarts: int = 0  # times that the source was lost and found again
    parts: Mapping[str, int] = field(default_factory=dict)  # of a group's model, by who reads them
    oldest_part_s: float | None = None  # age of the oldest part that another member reads
    decoder: str | None = None  # how Kafka's responses are decoded; None for other sources
    new_words_dropped: int = 0  # in this run
    new_values_dropped: int = 0  # values of categories, likewise
    health: HealthReport = NOT_BEGUN  # what `/healthz` and `/readyz` answer


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did; printed at its end, and as one JSON object with `--json`.

    With `learning.publish: examples` it is what all runs on one checkpoint did.
    """

    source: str
    messages: int  # the sum of those learned, judged, rejected, superseded and of deletions
    learned: int
    judged: int  # those without a label
    deletions: int  # messages that ask to delete, which teach nothing
    superseded: int  # deleted or updated before they came, and left out
    rejected: Mapping[str, int]  # by reason
    ambiguous: int  # of those judged, the ones with contradicting emoticons
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
