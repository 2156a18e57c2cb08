"""The daemon's state as one value: `Status` while it runs, `Summary` when it is done.

`consumers.reporter` builds both. The screen, the log view, the API and the metrics read a `Status`;
the command's last lines and `--json` read the `Summary`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from consumers.messages import Partition
from consumers.monitoring.health import HealthReport
from consumers.monitoring.shares import ShareReport


class Judged(NamedTuple):
    """One message and its prediction.

    Attributes
    ----------
    time_ms : int
        Its time by the source's clock, in Unix milliseconds; -1 where unknown.
    user : str or None
        Who wrote it.
    text : str
        Its text as it came, or its fields if it has none.
    label : str
        The class predicted for it.
    probability : float
        Posterior of that class, from 0 to 1.
    truth : str or None
        The class it was labelled with; None where it had no label.
    """

    time_ms: int
    user: str | None
    text: str
    label: str
    probability: float
    truth: str | None


@dataclass(frozen=True, slots=True)
class Status:
    """The daemon at one moment.

    Counts are of this run. A value that does not exist yet is None: an accuracy before the first
    example, an age before the first snapshot.

    Attributes
    ----------
    source : str
        Name of the source.
    trouble : str or None
        What keeps the source from being read, in a sentence.
    n_messages, n_learned, n_judged, n_rejected : int
        Messages read; of these learned, judged without a label, rejected.
    rate_per_s : float
        Messages a second, lately.
    lag_total : int or None
        Unread messages in all partitions; None if unknown.
    classes : tuple of str
        The model's classes.
    shares : tuple of float
        For each class, its share of the newest predictions; sums to 1, or empty.
    accuracy, log_loss : float or None
        Prequential, since the beginning; the log-loss in nats.
    window_accuracy, window_log_loss : float or None
        The same over the last `learning.window` examples.
    vocabulary_size, words_dropped : int
        Words known; words that left because the vocabulary was full.
    n_features : int
        All features known: words, values of categories, flags and numbers.
    snapshot_version : int
        Of the published snapshot; 0 before the first.
    snapshot_age_s, checkpoint_age_s : float or None
        Seconds since the last snapshot and the last checkpoint.
    http_address : str or None
        Where metrics and health are served.
    newest : tuple of Judged
        The newest messages, oldest first.
    telling : mapping of str to tuple of str
        For each class, the features that speak for it most, the strongest first.
    elapsed_s : float
        Seconds since the start.
    note : str or None
        What the daemon is doing, if that explains a pause.
    outcomes, rejected : mapping of str to int
        Messages by what became of them, and rejected ones by reason.
    learned_by_class, predicted_by_class : mapping of str to int
        Examples learned by label; messages without a label by predicted class.
    n_predicted, n_correct : int
        Examples predicted before they were learned, and those predicted right.
    log_loss_sum : float
        Sum of the log-losses of those examples, in nats.
    calibration_error : float or None
        Expected calibration error over the last `learning.window` examples, from 0 to 1.
    stream_shares : ShareReport or None
        Shares of the newest predictions, raw and corrected, as of about a second ago.
    lag : mapping of Partition to int
        Messages still unread in each partition that is read now.
    n_lost, n_restarts : int
        Messages that the source had removed before they were read; times that the source was lost
        and found again.
    decoder : str or None
        How Kafka's responses are decoded; None for other sources.
    new_words_dropped, new_values_dropped : int
        Words and values of categories dropped in this run because their table was full.
    health : HealthReport or None
        What `/healthz` and `/readyz` answer.
    """

    source: str
    classes: tuple[str, ...] = ()
    trouble: str | None = None
    n_messages: int = 0
    n_learned: int = 0
    n_judged: int = 0
    n_rejected: int = 0
    rate_per_s: float = 0.0
    lag_total: int | None = None
    shares: tuple[float, ...] = ()
    accuracy: float | None = None
    log_loss: float | None = None
    window_accuracy: float | None = None
    window_log_loss: float | None = None
    vocabulary_size: int = 0
    words_dropped: int = 0
    n_features: int = 0
    snapshot_version: int = 0
    snapshot_age_s: float | None = None
    checkpoint_age_s: float | None = None
    http_address: str | None = None
    newest: tuple[Judged, ...] = ()
    telling: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    elapsed_s: float = 0.0
    note: str | None = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    learned_by_class: Mapping[str, int] = field(default_factory=dict)
    predicted_by_class: Mapping[str, int] = field(default_factory=dict)
    n_predicted: int = 0
    n_correct: int = 0
    log_loss_sum: float = 0.0
    calibration_error: float | None = None
    stream_shares: ShareReport | None = None
    lag: Mapping[Partition, int] = field(default_factory=dict)
    n_lost: int = 0
    n_restarts: int = 0
    decoder: str | None = None
    new_words_dropped: int = 0
    new_values_dropped: int = 0
    health: HealthReport | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did; printed at its end, and as one JSON object with `--json`.

    Attributes
    ----------
    source : str
        Name of the source.
    messages : int
        Messages read: the sum of those learned, judged, rejected and of deletions.
    learned, judged : int
        Messages learned, and messages judged that had no label.
    deletions : int
        Messages that ask to delete, which teach nothing.
    rejected : mapping of str to int
        Messages rejected, by reason.
    ambiguous : int
        Of those judged, the ones with contradicting emoticons.
    accuracy, log_loss : float or None
        Prequential, over everything that the model has learned in this run; None before any.
    vocabulary_size, words_dropped : int
        Words known; words that found the vocabulary full.
    n_features : int
        All features known: words, values of categories, flags and numbers.
    classes : tuple of str
        The model's classes.
    class_counts : tuple of float
        Examples learned of each class, all runs together.
    positions : mapping of str to int
        For each partition (``topic[0]``), where reading goes on.
    seconds : float
        How long it took, start and end included.
    messages_per_s : float
        From when the first message came until the last was dealt with.
    snapshot_version : int
        Of the last snapshot.
    exit_reason : str
        Why it ended: ``"end of source"``, ``"max messages"`` or ``"told to stop"``.
    checkpoint : str or None
        Where the model is kept; None where it is not.
    """

    source: str
    messages: int
    learned: int
    judged: int
    deletions: int
    rejected: Mapping[str, int]
    ambiguous: int
    accuracy: float | None
    log_loss: float | None
    vocabulary_size: int
    words_dropped: int
    n_features: int
    classes: tuple[str, ...]
    class_counts: tuple[float, ...]
    positions: Mapping[str, int]
    seconds: float
    messages_per_s: float
    snapshot_version: int
    exit_reason: str
    checkpoint: str | None = None
