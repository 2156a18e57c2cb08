"""Every metric of the daemon: its name, help and value.

`Metrics` reads the daemon's `Status` when Prometheus scrapes. It holds only what no status keeps:
histograms, and figures of events such as a checkpoint or a request. Labels take their values
from the configuration and from this program, never from a message: a stream cannot add series.
`docs/metrics.md` says what each metric means and when to act; a test compares the two.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from consumers.messages import Reason
from consumers.monitoring.http_metrics import HttpMetrics
from consumers.monitoring.process_metrics import watch_process
from consumers.monitoring.status import Status

# The creation time of each counter would be a second series that nobody here reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

OTHER = "other"  # the label of every class that the configuration does not name

# From a batch of one on a warm model (0.1 ms) to a second, which is an alarm.
PREDICT_BUCKETS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
)  # fmt: skip

DECODERS = ("columns", "records", "librdkafka")
OUTCOMES = ("learned", "unlabelled", "ambiguous", "rejected", "delete")

Family: TypeAlias = type[GaugeMetricFamily | CounterMetricFamily]
Samples: TypeAlias = Mapping[tuple[str, ...], float | None]


class StatusMetric(NamedTuple):
    """A metric with one value, and the field of the status that it shows; None is nan."""

    family: Family
    name: str
    help: str
    value: Callable[[Status], float | None]


class LabelledMetric(NamedTuple):
    """A metric with labels, and its samples for a status and the configured classes."""

    family: Family
    name: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Status, Sequence[str]], Samples]


STATUS_METRICS = (
    StatusMetric(
        GaugeMetricFamily, "source_up", "1 while the source can be read, else 0.",
        lambda status: status.trouble is None,
    ),
    StatusMetric(
        CounterMetricFamily, "source_restarts", "Times that the source was lost and found again.",
        lambda status: status.n_restarts,
    ),
    StatusMetric(
        CounterMetricFamily, "messages_lost",
        "Messages that the source had removed before they were read.",
        lambda status: status.n_lost,
    ),
    StatusMetric(
        GaugeMetricFamily, "alive", "1 while /healthz answers 200, else 0.",
        lambda status: status.health is not None and status.health.alive,
    ),
    StatusMetric(
        GaugeMetricFamily, "ready", "1 while /readyz answers 200, else 0.",
        lambda status: status.health is not None and status.health.ready,
    ),
    StatusMetric(
        GaugeMetricFamily, "prequential_window_accuracy_ratio",
        "Share predicted right before learning, over learning.window examples.",
        lambda status: status.window_accuracy,
    ),
    StatusMetric(
        GaugeMetricFamily, "prequential_window_log_loss_nats",
        "Mean log-loss before learning, over learning.window examples.",
        lambda status: status.window_log_loss,
    ),
    StatusMetric(
        GaugeMetricFamily, "prequential_window_calibration_error_ratio",
        "Mean distance of probability and accuracy, over learning.window examples.",
        lambda status: status.calibration_error,
    ),
    StatusMetric(
        CounterMetricFamily, "prequential_examples",
        "Examples predicted before they were learned.",
        lambda status: status.n_predicted,
    ),
    StatusMetric(
        CounterMetricFamily, "prequential_correct", "Those of them predicted right.",
        lambda status: status.n_correct,
    ),
    StatusMetric(
        CounterMetricFamily, "prequential_log_loss_nats", "Sum of their log-losses.",
        lambda status: status.log_loss_sum,
    ),
    StatusMetric(
        GaugeMetricFamily, "snapshot_version", "Version of the published snapshot.",
        lambda status: status.snapshot_version,
    ),
    StatusMetric(
        GaugeMetricFamily, "snapshot_age_seconds", "Time since the last snapshot was published.",
        lambda status: status.snapshot_age_s,
    ),
    StatusMetric(
        GaugeMetricFamily, "model_features",
        "Words, values, flags and numbers that the model knows.",
        lambda status: status.n_features,
    ),
    StatusMetric(
        GaugeMetricFamily, "vocabulary_words", "Words that the model knows.",
        lambda status: status.vocabulary_size,
    ),
    StatusMetric(
        CounterMetricFamily, "words_dropped",
        "Words not learned because the vocabulary was full.",
        lambda status: status.new_words_dropped,
    ),
    StatusMetric(
        CounterMetricFamily, "values_dropped",
        "Values of categories that left because their table was full.",
        lambda status: status.new_values_dropped,
    ),
)  # fmt: skip

LABELLED_METRICS = (
    LabelledMetric(
        CounterMetricFamily, "messages", "Messages read, by outcome.", ("outcome",),
        lambda status, _: {(name,): status.outcomes.get(name, 0) for name in OUTCOMES},
    ),
    LabelledMetric(
        CounterMetricFamily, "rejects", "Messages rejected, by reason.", ("reason",),
        lambda status, _: {(str(r.value),): status.rejected.get(r.value, 0) for r in Reason},
    ),
    LabelledMetric(
        GaugeMetricFamily, "consumer_lag_messages", "Messages of a partition still unread.",
        ("topic", "partition"),
        lambda status, _: {
            (place.topic, str(place.partition)): count for place, count in status.lag.items()
        },
    ),
    LabelledMetric(
        GaugeMetricFamily, "kafka_decoder_info",
        "1 for how Kafka's responses are decoded, else 0.", ("decoder",),
        lambda status, _: {
            (each,): each == status.decoder for each in DECODERS if status.decoder is not None
        },
    ),
    LabelledMetric(
        CounterMetricFamily, "examples_learned", "Examples learned, by label.", ("label",),
        lambda status, classes: _counts_by_class(status.learned_by_class, classes),
    ),
    LabelledMetric(
        CounterMetricFamily, "predictions",
        "Predictions for messages without a label, by class.", ("label",),
        lambda status, classes: _counts_by_class(status.predicted_by_class, classes),
    ),
    LabelledMetric(
        GaugeMetricFamily, "share_ratio",
        "Share of the newest messages predicted to be of a class.", ("label",),
        lambda status, classes: {
            (label,): None if (said := status.stream_shares) is None else said.raw.get(label)
            for label in classes
        },
    ),
    LabelledMetric(
        GaugeMetricFamily, "share_adjusted_ratio",
        "That share with the classifier's own error rates taken out.", ("label",),
        lambda status, classes: {(label,): _adjusted_share(status, label) for label in classes},
    ),
)  # fmt: skip


def _counts_by_class(counts: Mapping[str, int], classes: Sequence[str]) -> Samples:
    """Return a count for each class, and one for all classes that are not configured."""
    samples: dict[tuple[str, ...], float | None] = {
        (label,): counts.get(label, 0) for label in classes
    }
    others = sum(count for label, count in counts.items() if label not in classes)
    if others:
        samples[OTHER,] = others
    return samples


def _adjusted_share(status: Status, label: str) -> float | None:
    corrected = None if status.stream_shares is None else status.stream_shares.corrected
    return corrected[label].share if corrected else None


# Name, field of `consumers.search.rows.RecentState`, and help of each metric of the store of recent
# messages. The store lies in a higher layer, so its state is known by its fields; a test compares
# the two.
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


class Metrics(Collector):
    """The daemon's metrics, in a registry that is passed in.

    Parameters
    ----------
    registry : CollectorRegistry
        Where they are registered; a fresh one in each test.
    classes : sequence of str
        The configured classes, the only values of the label `label` beside ``other``.
    clock : callable
        Monotonic seconds, for the checkpoint's age.
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
        self._checkpoint_s = math.nan
        self._status: Callable[[], Status] = lambda: Status(source="")
        self._recent: Callable[[], Any] = lambda: None
        registry.register(self)
        self._predict = Histogram(
            "predict_seconds",
            "Time from handing a batch to the predictor to its predictions, the queue included.",
            namespace="streamnb",
            registry=registry,
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
        age = self._gauge("checkpoint_age_seconds", "Time since the last checkpoint was safe.")
        age.set_function(lambda: self._clock() - self._checkpoint_s)
        self._checkpoints = self._counter("checkpoints", "Checkpoints written.")
        self._failures = self._counter("checkpoint_failures", "Checkpoints that were not written.")
        self._write = self._gauge("checkpoint_write_seconds", "How long the last checkpoint took.")
        self._bytes = self._gauge("checkpoint_bytes", "Size of the last checkpoint.")
        watch_process(registry)
        self.corrections = CorrectionMetrics(registry)
        self.http = HttpMetrics(registry)
        self._pages = self._gauge("pages_open", "Pages that are told what changes.")
        self._queries = self._gauge("standing_queries", "Different queries that open pages watch.")

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, namespace="streamnb", registry=self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, namespace="streamnb", registry=self._registry)

    def watch(self, status: Callable[[], Status]) -> None:
        """Ask `status` for the daemon's status at each scrape, on any thread."""
        self._status = status

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield each metric of the status as it is now."""
        status = self._status()
        for single in STATUS_METRICS:
            value = _or_nan(single.value(status))
            yield single.family(f"streamnb_{single.name}", single.help, value=value)
        for metric in LABELLED_METRICS:
            family = metric.family(f"streamnb_{metric.name}", metric.help, labels=metric.labels)
            for labels, sample in metric.samples(status, self._classes).items():
                family.add_metric(labels, _or_nan(sample))
            yield family
        yield from _recent_metrics(self._recent())

    def watch_queue(self, size: Callable[[], int], size_max: int) -> None:
        """Ask `size` for the length of the predictor's queue at each scrape."""
        self._queue.set_function(size)
        self._queue_limit.set(size_max)

    def watch_pages(self, n_pages: Callable[[], int], n_queries: Callable[[], int]) -> None:
        """Ask these for the number of open pages and of their live queries at each scrape."""
        self._pages.set_function(n_pages)
        self._queries.set_function(n_queries)

    def watch_recent(self, state: Callable[[], Any]) -> None:
        """Ask `state`, which returns a `RecentState`, at each scrape."""
        self._recent = state

    def observe_predict(self, seconds: float, n_messages: int) -> None:
        """Record the size of a batch, and how long its predictions took."""
        self._predict.observe(seconds)
        self._predict_batch.set(n_messages)

    def checkpoint_written(self, seconds: float, n_bytes: int) -> None:
        """Record a checkpoint that is safe on disk, how long it took and its size."""
        self._checkpoint_s = self._clock()
        self._checkpoints.inc()
        self._write.set(seconds)
        self._bytes.set(n_bytes)

    def checkpoint_is_current(self) -> None:
        """Record that the last checkpoint still holds everything: nothing was read since."""
        self._checkpoint_s = self._clock()

    def checkpoint_failed(self) -> None:
        """Count a checkpoint that was not written; the one before stays valid."""
        self._failures.inc()


def _recent_metrics(state: Any) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    """Yield the figures of the store of recent messages; without a store, 0 and up."""
    tables: tuple[tuple[Family, tuple[tuple[str, str, str], ...]], ...] = (
        (GaugeMetricFamily, GAUGES),
        (CounterMetricFamily, COUNTERS),
    )
    for family, rows in tables:
        for name, field, text in rows:
            value = 0 if state is None else getattr(state, field)
            yield family(f"streamnb_recent_{name}", text, value=value)
    yield GaugeMetricFamily(
        "streamnb_recent_up",
        "0 while the store cannot write; health says why.",
        value=state is None or state.trouble is None,
    )


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
