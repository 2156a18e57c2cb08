"""Every metric of the daemon: its name, help and value.

`Metrics` reads the daemon's `Status` when Prometheus scrapes. It holds only what no status keeps:
histograms, and figures of events such as a checkpoint or a request. Labels take their values
from the configuration, the source and this program. A stream can add series by two settings alone:
by `model.new_classes` each class that joins has its own, up to the bound of classes; by `per.field`
without `per.values`, each of the first `per.most` values that come with a label.
`docs/metrics.md` says what each metric means and when to act; a test compares the two.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from consumers.messages import Reason
from consumers.monitoring.status import (
    Samples,
    Status,
    adjusted_share,
    figures_by_model,
    figures_by_value,
)
from consumers.process import cache_fills, memory_limit_bytes, thread_seconds
from streamnb import __version__

# The creation time of each counter would be a second series that nobody here reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

OTHER = "other"  # the label of a class, path or method that is none of ours

# From a batch of one on a warm model (0.1 ms) to a second, which is an alarm.
PREDICT_BUCKETS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
)  # fmt: skip
# From a health check to a client that is hardly willing to wait.
REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

DECODERS = ("columns", "records", "librdkafka")
OUTCOMES = ("learned", "unlabelled", "ambiguous", "rejected", "delete", "superseded", "ignored")
REVISIONS = (
    ("delete", "matched"), ("delete", "unmatched"), ("delete", "repeated"), ("update", "matched"),
    ("update", "unmatched"), ("delete_account", "matched"), ("delete_account", "unmatched"),
)  # fmt: skip
LATE_LABELS = (
    "learned", "repeated", "no_message", "outside_window", "before_beginning", "forgotten",
    "message_gone", "unusable",
)  # fmt: skip
CORRECTIONS = ("label", "delete", "withdraw", "refused", "skipped")
TEACHER = (
    "asked", "cached", "labelled", "unsure", "unknown_class", "gone", "failed", "over_budget",
)  # fmt: skip
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

GAUGE, COUNTER = GaugeMetricFamily, CounterMetricFamily
MetricFamily: TypeAlias = type[GaugeMetricFamily | CounterMetricFamily]

# Each metric with one value: its kind, name, help, and value for a status; None is nan.
STATUS_METRICS: tuple[tuple[MetricFamily, str, str, Callable[[Status], float | None]], ...] = (
    (GAUGE, "source_up", "1 while the source can be read, else 0.", lambda s: s.trouble is None),
    (COUNTER, "source_restarts", "Times that the source was lost and found again.",
     lambda s: s.n_restarts),
    (COUNTER, "messages_lost", "Messages that the source had removed before they were read.",
     lambda s: s.n_lost),
    (COUNTER, "stream_gaps", "Places at which messages of a live stream may be missing.",
     lambda s: s.n_gaps),
    (COUNTER, "examples_unlearned", "Examples that deletes and updates of the stream took back.",
     lambda s: s.revisions.get("unlearned", 0)),
    (COUNTER, "examples_not_unlearned", "Examples that could not be taken back.",
     lambda s: s.revisions.get("refused", 0)),
    (GAUGE, "learned_messages", "Messages whose effect is remembered, to be taken back if asked.",
     lambda s: s.remembered[0]),
    (GAUGE, "learned_bytes", "Size of what is remembered of them.", lambda s: s.remembered[1]),
    (COUNTER, "examples_without_weight", "Labelled messages that decay left no weight.",
     lambda s: s.n_untaught),
    (GAUGE, "late_labels_waiting", "Labels whose message has not come yet.",
     lambda s: s.labels.get("waiting", 0)),
    (GAUGE, "late_labels_without_partition_waiting",
     "Those of them whose partition the stream does not have yet.",
     lambda s: s.labels.get("without_partition", 0)),
    (COUNTER, "late_messages", "Messages too late to wait for a label.",
     lambda s: s.labels.get("messages_too_late", 0)),
    (COUNTER, "late_defaults", "Messages learned as late_labels.default.",
     lambda s: s.labels.get("defaulted", 0)),
    (COUNTER, "late_defaults_replaced", "Those of them whose label came after all.",
     lambda s: s.labels.get("default_replaced", 0)),
    (GAUGE, "alive", "1 while /healthz answers 200, else 0.", lambda s: s.health.alive),
    (GAUGE, "ready", "1 while /readyz answers 200, else 0.", lambda s: s.health.ready),
    (GAUGE, "prequential_window_accuracy_ratio",
     "Share predicted right before learning, over learning.window examples.",
     lambda s: s.window_accuracy),
    (GAUGE, "prequential_window_log_loss_nats",
     "Mean log-loss before learning, over learning.window examples.",
     lambda s: s.window_log_loss),
    (GAUGE, "prequential_window_calibration_error_ratio",
     "Mean distance of probability and accuracy, over learning.window examples.",
     lambda s: s.quality.prequential.window.calibration_error),
    (GAUGE, "stated_calibration_error_ratio",
     "Mean distance of stated probability and share that came true, before calibration.",
     lambda s: s.stated_error),
    (GAUGE, "prediction_sets_covered_ratio", "Share of prediction sets that held the true class.",
     lambda s: s.sets_covered),
    (GAUGE, "prediction_set_classes", "Mean number of classes in a prediction set.",
     lambda s: s.set_size),
    (COUNTER, "prequential_examples", "Examples predicted before they were learned.",
     lambda s: s.n_predicted),
    (COUNTER, "prequential_correct", "Those of them predicted right.", lambda s: s.n_correct),
    (COUNTER, "prequential_log_loss_nats", "Sum of their log-losses.", lambda s: s.log_loss_sum),
    (COUNTER, "drift_alarms", "Times that log-losses grew beyond chance.",
     lambda s: 0 if s.drift is None else s.drift.n_alarms),
    (GAUGE, "drift_capital_nats",
     "Logarithm of the test martingale's capital; it alarms at log(1/drift.alpha).",
     lambda s: None if s.drift is None else math.log(s.drift.capital)),
    (GAUGE, "snapshot_version", "Version of the published snapshot.", lambda s: s.snapshot_version),
    (GAUGE, "snapshot_age_seconds", "Time since the last snapshot was published.",
     lambda s: s.snapshot_age_s),
    (GAUGE, "group_missing_parts",
     "Partitions that other members of the group read and share no part of, without a folder.",
     lambda s: s.n_missing_parts),
    (GAUGE, "group_oldest_part_seconds",
     "Age of the oldest part of the model that another member of the group reads.",
     lambda s: s.oldest_part_s),
    (COUNTER, "group_damaged_files", "Damaged part files of a group.", lambda s: s.n_damaged_parts),
    (GAUGE, "model_features", "Words, values, flags and numbers that the model knows.",
     lambda s: s.n_features),
    (GAUGE, "vocabulary_words", "Words that the model knows.", lambda s: s.vocabulary_size),
    (COUNTER, "promotions", "Times that a challenger began to answer.",
     lambda s: 0 if s.challengers is None else s.challengers.n_promotions),
    (COUNTER, "words_dropped", "Words that left because the vocabulary was full.",
     lambda s: s.new_words_dropped),
    (COUNTER, "values_dropped", "Values of categories that left because their table was full.",
     lambda s: s.new_values_dropped),
)  # fmt: skip

# Each metric with labels: its kind, name, help, labels, and samples for a status and the classes.
LABELLED_METRICS: tuple[
    tuple[MetricFamily, str, str, tuple[str, ...], Callable[[Status, Sequence[str]], Samples]], ...
] = (
    (COUNTER, "messages", "Messages read, by outcome.", ("outcome",),
     lambda s, _: {(name,): s.outcomes.get(name, 0) for name in OUTCOMES}),
    (COUNTER, "revisions", "Deletes and updates of the stream, by what they found.",
     ("operation", "outcome"),
     lambda s, _: {each: s.revisions.get("_".join(each), 0) for each in REVISIONS}),
    (COUNTER, "late_labels", "Labels that came by late_labels.source, by what became of them.",
     ("outcome",), lambda s, _: {(each,): s.labels.get(each, 0) for each in LATE_LABELS}),
    (COUNTER, "rejects", "Messages rejected, by reason.", ("reason",),
     lambda s, _: {(str(r.value),): s.rejected.get(r.value, 0) for r in Reason}),
    (COUNTER, "ignored", "Messages that settings leave out, by condition.", ("condition",),
     lambda s, _: {(name,): n for name, n in s.ignored.items()}),
    (GAUGE, "consumer_lag_messages", "Messages of a partition still unread.",
     ("topic", "partition"),
     lambda s, _: {(at.topic, str(at.partition)): count for at, count in s.lag.items()}),
    (GAUGE, "group_parts", "Parts of the group's model, by who reads their partitions.",
     ("reader",), lambda s, _: {(reader,): n for reader, n in s.parts.items()}),
    (GAUGE, "kafka_decoder_info", "1 for how Kafka's responses are decoded, else 0.", ("decoder",),
     lambda s, _: {(each,): each == s.decoder for each in DECODERS if s.decoder is not None}),
    (GAUGE, "model_serving_info", "1 for the model that answers, 0 for its challengers.",
     ("model",), lambda s, _: figures_by_model(s, "serves")),
    (GAUGE, "model_window_log_loss_nats", "Mean log-loss of each of several models.",
     ("model",), lambda s, _: figures_by_model(s, "window_log_loss")),
    (GAUGE, "model_window_accuracy_ratio", "Share that each of several models predicted right.",
     ("model",), lambda s, _: figures_by_model(s, "window_accuracy")),
    (GAUGE, "model_window_calibration_error_ratio", "Calibration error of each of several models.",
     ("model",), lambda s, _: figures_by_model(s, "calibration_error")),
    (GAUGE, "value_learned_messages", "Messages that the model of each value has learned.",
     ("value",), lambda s, _: figures_by_value(s, n_examples="")),
    (GAUGE, "value_window_log_loss_nats", "Mean log-loss of a value's own and the shared model.",
     ("value", "model"),
     lambda s, _: figures_by_value(s, window_log_loss="own", shared_window_log_loss="shared")),
    (GAUGE, "value_window_accuracy_ratio",
     "Share of a value's messages that its own and the shared model predicted right.",
     ("value", "model"),
     lambda s, _: figures_by_value(s, window_accuracy="own", shared_window_accuracy="shared")),
    (COUNTER, "examples_learned", "Examples learned, by label.", ("label",),
     lambda s, classes: _counts_by_class(s.learned_by_class, classes)),
    (COUNTER, "predictions", "Predictions for messages without a label, by class.", ("label",),
     lambda s, classes: _counts_by_class(s.predicted_by_class, classes)),
    (GAUGE, "share_ratio", "Share of the newest messages predicted to be of a class.", ("label",),
     lambda s, classes: {
         (label,): None if s.stream_shares is None else s.stream_shares.raw.get(label)
         for label in classes
     }),
    (GAUGE, "share_adjusted_ratio",
     "That share with the classifier's own error rates taken out.", ("label",),
     lambda s, classes: {(label,): adjusted_share(s, label) for label in classes}),
)  # fmt: skip


def _counts_by_class(counts: Mapping[str, int], classes: Sequence[str]) -> Samples:
    """Return a count for each class, and one for all classes that are not configured."""
    samples: dict[tuple[str, ...], float | None] = {
        (label,): counts.get(label, 0) for label in classes
    }
    if others := sum(count for label, count in counts.items() if label not in classes):
        samples[OTHER,] = others
    return samples


# Name, field of `consumers.search.rows.RecentState`, and help of each metric of the store of recent
# messages. The store lies in a higher layer, so its state is known by its fields; a test compares
# the two.
RECENT_GAUGES = (
    ("messages", "n_messages", "Messages held to be searched."),
    ("limit_messages", "messages_max", "How many may be held (recent.messages_max)."),
    ("share_ratio", "share", "Share of the messages that came which is held."),
    ("bytes", "n_bytes", "Size of the file of recent messages."),
)
# The same of each metric of the label queue, fields of `LabellingState` by how a message is picked.
LABELLING = (
    ("labels_wanted_messages", "Messages that wait for a label, by how they were picked.",
     {"random": "n_random", "uncertain": "n_uncertain"}),
    ("labels_answered_messages", "Held messages that a person has labelled.",
     {"all": "n_answered", "random": "n_random_answered"}),
    ("labels_right_messages", "Those of them picked at random that had been judged right.",
     {"random": "n_random_right"}),
)  # fmt: skip
RECENT_COUNTERS = (
    ("offered", "n_offered", "Messages that came."),
    ("stored", "n_stored", "Messages that were stored, so that they can be searched."),
    ("overflowed", "n_overflowed", "Messages left out because too many waited to be stored."),
    ("failed", "n_failed", "Messages that could not be written."),
    ("restarts", "n_restarts", "Times the store began again after an unforeseen error."),
)


def _counter(
    registry: CollectorRegistry, name: str, text: str, labels: Sequence[str] = ()
) -> Counter:
    return Counter(name, text, labels, namespace="streamnb", registry=registry)


def _gauge(registry: CollectorRegistry, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
    return Gauge(name, text, labels, namespace="streamnb", registry=registry)


class HttpMetrics:
    """Counts requests and connections; labels are our own routes, methods and statuses alone."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(_counter, registry)
        self._requests = counter(
            "http_requests", "Requests answered.", ["route", "method", "status"]
        )
        self._seconds = Histogram(
            "http_request_seconds", "Time from a request's head to the head of its answer.",
            ["route"], namespace="streamnb", registry=registry, buckets=REQUEST_BUCKETS_S,
        )  # fmt: skip
        self._connections = _gauge(registry, "http_connections", "Open connections.")
        text = "Connections turned away because there were http.connections_max."
        self._rejected = counter("http_connections_rejected", text)
        # Asking for a child by its labels takes longer than counting does.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count_request(self, route: str, method: str, status: int, seconds: float | None) -> None:
        """Count a request that was answered, or given up.

        `route` is a template of ours, such as ``/v1/messages/{id}``, or `OTHER`, never a path;
        `seconds` lasted until the answer began, None if nobody measured.
        """
        key = (route, method if method in METHODS else OTHER, status)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = (
                self._requests.labels(key[0], key[1], str(status)),
                self._seconds.labels(route),
            )
        found[0].inc()
        if seconds is not None:
            found[1].observe(seconds)

    def count_rejected(self) -> None:
        """Count a connection that was turned away."""
        self._rejected.inc()

    def watch_connections(self, size: Callable[[], int]) -> None:
        """Ask `size` for the number of open connections at each scrape."""
        self._connections.set_function(size)


class CorrectionMetrics:
    """Counts corrections."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._corrections = _counter(
            registry, "corrections", "Corrections read, by what became of them.", ["kind"]
        )
        self._waiting = _gauge(
            registry, "corrections_waiting", "Corrections read and not applied yet."
        )
        for kind in CORRECTIONS:
            self._corrections.labels(kind)

    def count(self, kind: str) -> None:
        """Count a correction by what became of it, one of `CORRECTIONS`."""
        self._corrections.labels(kind).inc()

    def watch(self, n_waiting: Callable[[], int]) -> None:
        """Ask `n_waiting` how many wait at each scrape."""
        self._waiting.set_function(n_waiting)


class Metrics(Collector):
    """The daemon's metrics, in a registry that is passed in.

    The model's `classes` are the only values of the label `label` beside ``other``; `clock`
    returns monotonic seconds, for the checkpoint's age.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        classes: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self.classes = classes
        self._checkpoint_s = math.nan
        self._status: Callable[[], Status] = lambda: Status(source="")
        self._recent: Callable[[], Any] = lambda: None
        self._labelling: Callable[[], Any] = lambda: None
        self._teacher: Callable[[], tuple[Mapping[str, int], int]] = lambda: ({}, 0)
        registry.register(self)
        self._predict = Histogram(
            "predict_seconds",
            "Time from handing a batch to the predictor to its predictions, the queue included.",
            namespace="streamnb", registry=registry, buckets=PREDICT_BUCKETS_S,
        )  # fmt: skip
        gauge, counter = partial(_gauge, registry), partial(_counter, registry)
        self._predict_batch = gauge(
            "predict_batch_messages", "Messages in the batch that was judged last."
        )
        self._queue = gauge(
            "predictor_queue_batches", "Batches that wait for the predictor thread."
        )
        self._queue_limit = gauge(
            "predictor_queue_limit_batches", "How many may wait (predictor.queue_size_max)."
        )
        self._outputs = gauge(
            "output_pending_bytes", "Size of the records that an output has not made safe yet.",
            ["output"],
        )  # fmt: skip
        self._refused: dict[str, Callable[[], int]] = {}
        self.n_read_ahead: Callable[[], int] = lambda: 0
        self._read_ahead = gauge(
            "read_ahead_messages", "Messages that are read and decoded, and not learned yet."
        )
        self._erasures = gauge(
            "erasures_waiting", "Deleted messages whose texts may still stand in files."
        )
        age = gauge("checkpoint_age_seconds", "Time since the last checkpoint was safe.")
        age.set_function(lambda: self._clock() - self._checkpoint_s)
        self._checkpoints = counter("checkpoints", "Checkpoints written.")
        self._failures = counter("checkpoint_failures", "Checkpoints that were not written.")
        self._transactions = counter(
            "transactions", "Kafka transactions of records and offsets, by outcome.", ["outcome"]
        )
        for outcome in ("committed", "aborted"):
            self._transactions.labels(outcome)
        self._write = gauge("checkpoint_write_seconds", "How long the last checkpoint took.")
        self._bytes = gauge("checkpoint_bytes", "Size of the last checkpoint.")
        watch_process(registry)
        self.corrections = CorrectionMetrics(registry)
        self.http = HttpMetrics(registry)
        self._pages = gauge("pages_open", "Pages that are told what changes.")
        self._queries = gauge("standing_queries", "Different queries that open pages watch.")

    def watch(self, status: Callable[[], Status]) -> None:
        """Ask `status` for the daemon's status at each scrape, on any thread."""
        self._status = status

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield each metric of the status as it is now."""
        status, classes = self._status(), tuple(self.classes)
        for family, name, text, value in STATUS_METRICS:
            yield family(f"streamnb_{name}", text, value=_or_nan(value(status)))
        for family, name, text, labels, samples in LABELLED_METRICS:
            made = family(f"streamnb_{name}", text, labels=labels)
            for values, sample in samples(status, classes).items():
                made.add_metric(values, _or_nan(sample))
            yield made
        yield from _recent_metrics(self._recent())
        yield from _labelling_metrics(self._labelling())
        yield from _teacher_metrics(*self._teacher())
        yield _refused_records(dict(self._refused))

    def watch_queue(self, size: Callable[[], int], size_max: int) -> None:
        """Ask `size` for the length of the predictor's queue at each scrape."""
        self._queue.set_function(size)
        self._queue_limit.set(size_max)

    def watch_output(
        self, name: str, n_bytes: Callable[[], int], n_refused: Callable[[], int]
    ) -> None:
        """Ask these for what waits in an output, and what was left out of it, at each scrape."""
        self._outputs.labels(name).set_function(n_bytes)
        self._refused[name] = n_refused

    def watch_backlog(self, read_ahead: Callable[[], int], erasures: Callable[[], int]) -> None:
        """Ask these for the messages read ahead, and for the deletions left, at each scrape."""
        self.n_read_ahead = read_ahead
        self._read_ahead.set_function(read_ahead)
        self._erasures.set_function(erasures)

    def watch_pages(self, n_pages: Callable[[], int], n_queries: Callable[[], int]) -> None:
        """Ask these for the number of open pages and of their live queries at each scrape."""
        self._pages.set_function(n_pages)
        self._queries.set_function(n_queries)

    def watch_recent(self, state: Callable[[], Any]) -> None:
        """Ask `state`, which returns a `RecentState`, at each scrape."""
        self._recent = state

    def watch_labelling(self, state: Callable[[], Any]) -> None:
        """Ask `state`, which returns a `LabellingState`, at each scrape."""
        self._labelling = state

    def watch_teacher(self, state: Callable[[], tuple[Mapping[str, int], int]]) -> None:
        """Ask `state`, which returns counts by outcome and how many wait, at each scrape."""
        self._teacher = state

    def observe_predict(self, seconds: float, n_messages: int) -> None:
        """Record the size of a batch, and how long its predictions took."""
        self._predict.observe(seconds)
        self._predict_batch.set(n_messages)

    def transaction_ended(self, outcome: str) -> None:
        """Count a Kafka transaction that was "committed" or "aborted"."""
        self._transactions.labels(outcome).inc()

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
    tables: tuple[tuple[MetricFamily, tuple[tuple[str, str, str], ...]], ...] = (
        (GAUGE, RECENT_GAUGES),
        (COUNTER, RECENT_COUNTERS),
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


def _labelling_metrics(state: Any) -> Iterator[GaugeMetricFamily]:
    """Yield how far labelling is; 0 while nobody is asked."""
    for name, text, fields in LABELLING:
        made = GaugeMetricFamily(f"streamnb_{name}", text, labels=["picked"])
        for picked, field in fields.items():
            made.add_metric([picked], 0 if state is None else getattr(state, field))
        yield made


def _teacher_metrics(
    counts: Mapping[str, int], n_waiting: int
) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    """Yield what became of messages that a teacher was to label; 0 without one."""
    text = "Messages without a label for labels.teacher, by what became of them."
    made = CounterMetricFamily("streamnb_teacher_messages", text, labels=["outcome"])
    for outcome in TEACHER:
        made.add_metric([outcome], counts.get(outcome, 0))
    yield made
    text = "Messages that labels.teacher may still be asked about."
    yield GaugeMetricFamily("streamnb_teacher_waiting", text, value=n_waiting)


def _refused_records(outputs: Mapping[str, Callable[[], int]]) -> CounterMetricFamily:
    """Return how many records each output was refused for good."""
    text = "Records left out of an output, as its topic refuses them in every form."
    made = CounterMetricFamily("streamnb_output_refused", text, labels=["output"])
    for name, n_refused in outputs.items():
        made.add_metric([name], n_refused())
    return made


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


# ---- the process itself -------------------------------------------------------------------------

# How it does: memory and its bound, processor time by thread, open files. These are taken when
# Prometheus asks, in well under a millisecond, and cost nothing in between.

# Threads that live as long as the daemon, and what docs/architecture.md calls them. Others, such as
# a client's while it connects, are left out: a counter that vanishes would look like a restart.
THREADS = {"MainThread": "consume"} | {
    name: name.removesuffix("_0")  # which stands behind the names of pools of one thread
    for name in (
        "read", "predict", "predict-urgent", "recent", "live", "read-corrections", "report",
        "serve", "transactions", "teacher", "group", "read-labels", "learned_0", "erase_0",
        "checkpoint_0",
    )
}  # fmt: skip


def watch_process(registry: CollectorRegistry) -> None:
    """Add the metrics of the process to a registry.

    They are prometheus_client's own (`process_…`), processor time by thread, the bound of the
    memory, and the version that runs.
    """
    ProcessCollector(registry=registry)
    registry.register(ThreadTimes())
    registry.register(CacheFills())
    gauge = partial(_gauge, registry)
    limit = gauge(
        "memory_limit_bytes",
        "Memory that the process may use: the least of what its container, its limits and the "
        "machine allow.",
    )
    limit.set_function(lambda: float(memory_limit_bytes()))
    info = gauge("build_info", "1, with the version that runs.", ["version"])
    info.labels(__version__).set(1)


class ThreadTimes(Collector):
    """Processor time of each lasting thread, as the kernel counts it."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the one metric, with a sample for each thread that runs now."""
        family = CounterMetricFamily(
            "streamnb_thread_cpu_seconds", "Processor time of each lasting thread.",
            labels=["thread"],
        )  # fmt: skip
        for thread in threading.enumerate():
            name = THREADS.get(thread.name)
            if name is not None and thread.native_id is not None:
                seconds = thread_seconds(thread.native_id)
                if seconds is not None:
                    family.add_metric([name], seconds)
        yield family


class CacheFills(Collector):
    """How full each small cache and list is; queues have metrics of their own."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield entries and bounds, with a sample for each cache that there is now."""
        entries = GaugeMetricFamily(
            "streamnb_cache_entries", "Entries of a cache or list.", labels=["cache"]
        )
        limits = GaugeMetricFamily(
            "streamnb_cache_limit_entries", "How many it may have.", labels=["cache"]
        )
        for name, (n, limit) in cache_fills().items():
            entries.add_metric([name], n)
            limits.add_metric([name], limit)
        yield from (entries, limits)
