"""Every metric of the daemon: name, unit, help, and the one place where it is counted.

The pipeline calls once a batch, never once a message. Ages are taken when Prometheus asks, so they
grow while nothing happens, which is when they matter. Labels take their values from the
configuration and from this program alone, never from a message: a stream cannot make series.
`docs/metrics.md` says of each what it means and when to act; a test holds the two together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from consumers.messages import Partition, Reason
from consumers.monitoring.http_metrics import HttpMetrics
from consumers.monitoring.prequential import Prequential
from consumers.monitoring.process_metrics import watch_process

# When each counter was made is a second series for every one, and of no use to anybody here.
disable_created_metrics()  # type: ignore[no-untyped-call]

OTHER = "other"  # stands for every label that the configuration does not name

# From a batch of one on a warm model (0.1 ms) to a second, which is an alarm.
PREDICT_BUCKETS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
)  # fmt: skip

DECODERS = ("columns", "records", "librdkafka")
OUTCOMES = ("learned", "unlabelled", "ambiguous", "rejected", "delete")


class Metrics:
    """The daemon's metrics, in a registry that is passed in.

    Parameters
    ----------
    registry : CollectorRegistry
        Where they are registered; a fresh one in each test.
    classes : sequence of str
        The configured classes, the only values that the label `label` takes beside ``other``.
    clock : callable
        Seconds that only grow; ages are told by it.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        classes: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._classes = tuple(classes)
        self._snapshot_s: float | None = None
        self._checkpoint_s: float | None = None
        self._words_dropped = self._values_dropped = 0
        self._prequential = (0, 0, 0.0)
        self._shown_prequential: Prequential | None = None
        self._lag_labels: set[tuple[str, str]] = set()
        self._make_stream_metrics()
        self._make_quality_metrics()
        self._make_model_metrics()
        self._make_checkpoint_metrics()
        watch_process(registry)
        self.corrections = CorrectionMetrics(registry)
        self.recent = RecentMetrics(registry)
        self.http = HttpMetrics(registry)
        self.live = LiveMetrics(registry)
        self._show_zeros()

    def _counter(self, name: str, text: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(name, text, labels, namespace="streamnb", registry=self._registry)

    def _gauge(self, name: str, text: str, labels: Iterable[str] = ()) -> Gauge:
        return Gauge(name, text, labels, namespace="streamnb", registry=self._registry)

    def _make_stream_metrics(self) -> None:
        self._messages = self._counter("messages", "Messages read, by outcome.", ["outcome"])
        self._rejects = self._counter("rejects", "Messages rejected, by reason.", ["reason"])
        self._lag = self._gauge(
            "consumer_lag_messages", "Messages of a partition still unread.", ["topic", "partition"]
        )
        self._source_up = self._gauge("source_up", "1 while the source can be read, else 0.")
        self._restarts = self._counter(
            "source_restarts", "Times that the source was lost and found again."
        )
        self._lost = self._counter(
            "messages_lost", "Messages that the source had removed before they were read."
        )
        self._alive = self._gauge("alive", "1 while /healthz answers 200, else 0.")
        self._ready = self._gauge("ready", "1 while /readyz answers 200, else 0.")
        self._decoder = self._gauge(
            "kafka_decoder_info", "1 for how Kafka's responses are decoded, else 0.", ["decoder"]
        )

    def _make_quality_metrics(self) -> None:
        self._learned = self._counter("examples_learned", "Examples learned, by label.", ["label"])
        self._predictions = self._counter(
            "predictions", "Predictions for messages without a label, by class.", ["label"]
        )
        self._window_accuracy = self._gauge(
            "prequential_window_accuracy_ratio",
            "Share predicted right before learning, over learning.window examples.",
        )
        self._window_log_loss = self._gauge(
            "prequential_window_log_loss_nats",
            "Mean log-loss before learning, over learning.window examples.",
        )
        self._window_calibration_error = self._gauge(
            "prequential_window_calibration_error_ratio",
            "Mean distance of probability and accuracy, over learning.window examples.",
        )
        self._window_calibration_error.set(math.nan)
        self._share = self._gauge(
            "share_ratio", "Share of the newest messages predicted to be of a class.", ["label"]
        )
        self._adjusted = self._gauge(
            "share_adjusted_ratio",
            "That share with the classifier's own error rates taken out.",
            ["label"],
        )
        self._examples = self._counter(
            "prequential_examples", "Examples predicted before they were learned."
        )
        self._correct = self._counter("prequential_correct", "Those of them predicted right.")
        self._loss = self._counter("prequential_log_loss_nats", "Sum of their log-losses.")

    def _make_model_metrics(self) -> None:
        self._predict = Histogram(
            "predict_seconds",
            "Time from handing a batch to the predictor to its predictions, the queue included.",
            namespace="streamnb",
            registry=self._registry,
            buckets=PREDICT_BUCKETS_S,
        )
        self._predict_batch = self._gauge(
            "predict_batch_messages", "Messages in the batch that was judged last."
        )
        self._queue = self._gauge(
            "predictor_queue_batches", "Batches that wait for the predictor thread."
        )
        self._queue_limit = self._gauge(
            "predictor_queue_limit_batches", "How many may wait (predictor.queue_size_max)."
        )
        self._version = self._gauge("snapshot_version", "Version of the published snapshot.")
        age = self._gauge("snapshot_age_seconds", "Time since the last snapshot was published.")
        age.set_function(lambda: self._age_s(self._snapshot_s))
        self._features = self._gauge(
            "model_features", "Words, values, flags and numbers that the model knows."
        )
        self._vocabulary = self._gauge("vocabulary_words", "Words that the model knows.")
        self._dropped = self._counter(
            "words_dropped", "Words not learned because the vocabulary was full."
        )
        self._left = self._counter(
            "values_dropped", "Values of categories that left because their table was full."
        )

    def _make_checkpoint_metrics(self) -> None:
        age = self._gauge("checkpoint_age_seconds", "Time since the last checkpoint was safe.")
        age.set_function(lambda: self._age_s(self._checkpoint_s))
        self._checkpoints = self._counter("checkpoints", "Checkpoints written.")
        self._failures = self._counter("checkpoint_failures", "Checkpoints that were not written.")
        self._write = self._gauge("checkpoint_write_seconds", "How long the last checkpoint took.")
        self._bytes = self._gauge("checkpoint_bytes", "Size of the last checkpoint.")

    def _show_zeros(self) -> None:
        """Make every series from the start: a rate over a series that appears late has a hole."""
        for outcome in OUTCOMES:
            self._messages.labels(outcome)
        for reason in Reason:
            self._rejects.labels(reason.value)
        for label in self._classes:
            self._learned.labels(label)
            self._predictions.labels(label)
        self.set_shares({}, {})

    def _age_s(self, since_s: float | None) -> float:
        return math.nan if since_s is None else self._clock() - since_s

    # The stream -----------------------------------------------------------------------------

    def count_messages(
        self, *, learned: int = 0, unlabelled: int = 0, ambiguous: int = 0, deleted: int = 0
    ) -> None:
        """Count the messages of a batch by outcome; `count_rejects` counts the rest."""
        counts = (learned, unlabelled, ambiguous, 0, deleted)
        for outcome, count in zip(OUTCOMES, counts, strict=True):
            if count:
                self._messages.labels(outcome).inc(count)

    def count_rejects(self, reasons: Mapping[Reason, int]) -> None:
        """Count rejected messages by reason, and as messages."""
        for reason, count in reasons.items():
            self._rejects.labels(reason.value).inc(count)
        self._messages.labels("rejected").inc(sum(reasons.values()))

    def set_lag(self, lag: Mapping[Partition, int]) -> None:
        """Show the lag of the partitions that are ours now, and of no others."""
        labels = {(place.topic, str(place.partition)) for place in lag}
        for gone in self._lag_labels - labels:
            self._lag.remove(*gone)
        for place, count in lag.items():
            self._lag.labels(place.topic, str(place.partition)).set(count)
        self._lag_labels = labels

    def set_source_up(self, up: bool) -> None:
        """Say whether the source can be read."""
        self._source_up.set(up)

    def count_restarts(self, count: int = 1) -> None:
        """Count a source that was lost and found again."""
        self._restarts.inc(count)

    def count_lost(self, count: int) -> None:
        """Count messages that were removed before they could be read."""
        self._lost.inc(count)

    def set_decoder(self, decoder: str | None) -> None:
        """Say how Kafka's responses are decoded; None where that is not settled or not asked."""
        for each in DECODERS if decoder is not None else ():
            self._decoder.labels(each).set(each == decoder)

    # Learning and judging -------------------------------------------------------------------

    def count_learned(self, counts: Mapping[str, int]) -> None:
        """Count examples learned, by label."""
        self._count_by_label(self._learned, counts)

    def count_predictions(self, counts: Mapping[str, int]) -> None:
        """Count predictions for messages without a label, by predicted class."""
        self._count_by_label(self._predictions, counts)

    def _count_by_label(self, counter: Counter, counts: Mapping[str, int]) -> None:
        for label, count in counts.items():
            counter.labels(label if label in self._classes else OTHER).inc(count)

    def observe_predict(self, seconds: float, n_messages: int) -> None:
        """Take in how long one batch took from being asked to being answered, and its size."""
        self._predict.observe(seconds)
        self._predict_batch.set(n_messages)

    def watch_queue(self, size: Callable[[], int], size_max: int) -> None:
        """Ask `size` for the length of the predictor's queue whenever it is scraped."""
        self._queue.set_function(size)
        self._queue_limit.set(size_max)

    def watch_health(self, alive: Callable[[], bool], ready: Callable[[], bool]) -> None:
        """Ask whether the daemon is alive, and ready, whenever it is scraped."""
        self._alive.set_function(alive)
        self._ready.set_function(ready)

    def resume_from(
        self, prequential: Prequential, words_dropped: int, values_dropped: int
    ) -> None:
        """Leave out of the counters what a restored checkpoint brings: it was counted before."""
        self._prequential = (prequential.n, prequential.n_correct, prequential.log_loss_sum)
        self._words_dropped, self._values_dropped = words_dropped, values_dropped

    def set_prequential(self, prequential: Prequential) -> None:
        """Show the prequential figures; what has come since the last call is counted."""
        before = self._prequential
        now = (prequential.n, prequential.n_correct, prequential.log_loss_sum)
        self._prequential = now
        for counter, old, new in zip(
            (self._examples, self._correct, self._loss), before, now, strict=True
        ):
            counter.inc(max(0.0, new - old))
        if prequential is not self._shown_prequential:
            # The window is summed up when it is scraped, not with each batch.
            self._shown_prequential = prequential
            self._window_accuracy.set_function(lambda: _or_nan(prequential.window_accuracy))
            self._window_log_loss.set_function(lambda: _or_nan(prequential.window_log_loss))

    def set_calibration_error(self, error: float | None) -> None:
        """Show the expected calibration error of the prequential window; None before any."""
        self._window_calibration_error.set(_or_nan(error))

    def set_shares(
        self, shares: Mapping[str, float | None], adjusted: Mapping[str, float | None]
    ) -> None:
        """Show each class's share of the newest messages; of a class that is missing, nan."""
        for label in self._classes:
            self._share.labels(label).set(_or_nan(shares.get(label)))
            self._adjusted.labels(label).set(_or_nan(adjusted.get(label)))

    def set_snapshot(
        self,
        version: int,
        vocabulary_size: int,
        words_dropped: int,
        n_features: int,
        values_dropped: int,
    ) -> None:
        """Say that a snapshot has just been published, and what it holds.

        Parameters
        ----------
        version : int
            Its version.
        vocabulary_size : int
            Words that the model knows.
        words_dropped : int
            Words that ever found the vocabulary full, as a running total.
        n_features : int
            Features that it knows: words, values of categories, flags and numbers.
        values_dropped : int
            Values of categories that ever found their table full, as a running total.
        """
        self._snapshot_s = self._clock()
        self._version.set(version)
        self._vocabulary.set(vocabulary_size)
        self._features.set(n_features)
        self._dropped.inc(max(0, words_dropped - self._words_dropped))
        self._left.inc(max(0, values_dropped - self._values_dropped))
        self._words_dropped, self._values_dropped = words_dropped, values_dropped

    # Checkpoints ----------------------------------------------------------------------------

    def checkpoint_written(self, seconds: float, n_bytes: int) -> None:
        """Say that a checkpoint is safe on disk, how long it took and how large it is."""
        self._checkpoint_s = self._clock()
        self._checkpoints.inc()
        self._write.set(seconds)
        self._bytes.set(n_bytes)

    def checkpoint_is_current(self) -> None:
        """Say that the last checkpoint still holds all there is: nothing was read since."""
        self._checkpoint_s = self._clock()

    def checkpoint_failed(self) -> None:
        """Count a checkpoint that was not written; the one before stays good."""
        self._failures.inc()


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


KINDS = ("label", "delete", "refused", "skipped")


class CorrectionMetrics:
    """Counts corrections.

    Parameters
    ----------
    registry : CollectorRegistry
        Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._corrections = Counter(
            "corrections",
            "Corrections read from their log, by what became of them.",
            ["kind"],
            namespace="streamnb",
            registry=registry,
        )
        self._waiting = Gauge(
            "corrections_waiting",
            "Corrections read and not applied yet.",
            namespace="streamnb",
            registry=registry,
        )
        for kind in KINDS:
            self._corrections.labels(kind)

    def count(self, kind: str) -> None:
        """Count a correction by what became of it, one of `KINDS`."""
        self._corrections.labels(kind).inc()

    def watch(self, n_waiting: Callable[[], int]) -> None:
        """Ask `n_waiting` how many wait whenever it is scraped."""
        self._waiting.set_function(n_waiting)


class LiveMetrics:
    """Shows what the hub of standing queries says; 0 as long as there is none.

    Parameters
    ----------
    registry : CollectorRegistry
        Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pages = Gauge(
            "pages_open",
            "Pages that are told what changes.",
            namespace="streamnb",
            registry=registry,
        )
        self._queries = Gauge(
            "standing_queries",
            "Different queries that open pages watch.",
            namespace="streamnb",
            registry=registry,
        )

    def watch(self, n_pages: Callable[[], int], n_queries: Callable[[], int]) -> None:
        """Ask these whenever it is scraped."""
        self._pages.set_function(n_pages)
        self._queries.set_function(n_queries)


# What a metric is called, the field of `consumers.search.rows.RecentState` that it shows, and what
# it means. The room lies above this one, so its state is known by its fields alone; a test holds
# the two together.
GAUGES = (
    ("messages", "n_messages", "Messages held to be searched."),
    ("limit_messages", "messages_max", "How many may be held (recent.messages_max)."),
    ("share_ratio", "share", "Share of the messages that came which is held."),
    ("bytes", "n_bytes", "Size of the file of recent messages."),
)
COUNTERS = (
    ("offered", "n_offered", "Messages that came."),
    ("stored", "n_stored", "Messages that were stored, so that they can be searched."),
    ("overflowed", "n_overflowed", "Messages left out because too many waited to be stored."),
    ("failed", "n_failed", "Messages that could not be written."),
    ("restarts", "n_restarts", "Times the store began again after an unforeseen error."),
)


class RecentMetrics(Collector):
    """Shows the store, once there is one to watch; until then nothing is held and nothing fails.

    Parameters
    ----------
    registry : CollectorRegistry
        Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._state: Callable[[], Any] | None = None
        registry.register(self)

    def watch(self, state: Callable[[], Any]) -> None:
        """Ask `state`, which returns a `RecentState`, whenever it is scraped."""
        self._state = state

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield what the store holds, and what became of the messages that it was offered."""
        state = None if self._state is None else self._state()
        for name, field, text in GAUGES:
            value = 0 if state is None else getattr(state, field)
            yield GaugeMetricFamily(f"streamnb_recent_{name}", text, value=value)
        yield GaugeMetricFamily(
            "streamnb_recent_up",
            "0 while the store cannot write; health says why.",
            value=state is None or state.trouble is None,
        )
        for name, field, text in COUNTERS:
            value = 0 if state is None else getattr(state, field)
            yield CounterMetricFamily(f"streamnb_recent_{name}", text, value=value)
