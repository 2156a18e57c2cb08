"""Metrics: what is counted where, ages, and labels that no message can make."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from consumers.messages import KnownClasses, Partition, Reason
from consumers.monitoring.metrics import OUTCOMES, Metrics
from consumers.monitoring.quality import Shares
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import Health, Status
from consumers.reporter import Increase, build_status
from streamnb.testing import ManualClock


@pytest.fixture
def registry() -> CollectorRegistry:
    """Return a registry of this test alone."""
    return CollectorRegistry()


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock."""
    return ManualClock(1_000.0)


@pytest.fixture
def metrics(registry: CollectorRegistry, clock: ManualClock) -> Metrics:
    """Return metrics of two classes."""
    return Metrics(registry, ["negative", "positive"], clock)


def show(metrics: Metrics, **fields: Any) -> None:
    """Let a scrape find a status with such fields."""
    status = replace(Status("test"), **fields)
    metrics.watch(lambda: status)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """Return what a scrape would find; None where there is no such series."""
    return registry.get_sample_value(f"streamnb_{name}", labels)


def test_every_series_is_there_from_the_start(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    """A rate needs a first point: outcomes, reasons and classes begin at 0."""
    assert metrics is not None
    for outcome in OUTCOMES:
        assert value(registry, "messages_total", outcome=outcome) == 0
    for reason in Reason:
        assert value(registry, "rejects_total", reason=reason.value) == 0
    for label in ("negative", "positive"):
        assert value(registry, "examples_learned_total", label=label) == 0
        assert value(registry, "predictions_total", label=label) == 0


def test_a_scrape_between_a_class_joining_and_its_share_succeeds(
    registry: CollectorRegistry, clock: ManualClock
) -> None:
    """The shares may be older than the classes: the one that joined has none yet."""
    classes = KnownClasses(["negative", "positive"], open=True)
    metrics = Metrics(registry, classes, clock)
    shares = Shares(classes, [[900, 100], [300, 700]], messages_min=30).of_stream([60, 40])
    show(metrics, stream_shares=shares)
    classes.grow(["negative", "positive", "sport"])
    found = value(registry, "share_adjusted_ratio", label="positive")
    assert found is not None
    assert abs(found - 0.5) < 1e-9
    sport = value(registry, "share_adjusted_ratio", label="sport")
    assert sport is None or math.isnan(sport)


def test_every_metric_has_our_name_and_a_sentence(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    """Names have our prefix and their unit or kind at the end, and each a help sentence."""
    assert metrics is not None
    units = (
        "_seconds", "_bytes", "_ratio", "_nats", "_messages", "_batches", "_words",
        "_version", "_up", "_alive", "_ready", "_info", "_features", "_waiting", "_connections",
        "_open", "_queries", "_parts", "_classes", "_entries",
    )  # fmt: skip
    for family in registry.collect():
        if family.name.startswith("process_"):
            continue  # the client library's own, whose names every dashboard knows
        assert family.name.startswith("streamnb_")
        assert family.documentation.endswith(".")
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
        else:
            assert family.name.endswith(units)


def test_one_decoder_is_in_use(registry: CollectorRegistry, metrics: Metrics) -> None:
    """Nothing is said where Kafka is not read; then one of the two decoders is 1."""
    show(metrics, decoder=None)
    assert value(registry, "kafka_decoder_info", decoder="columns") is None
    show(metrics, decoder="records")
    assert value(registry, "kafka_decoder_info", decoder="records") == 1
    assert value(registry, "kafka_decoder_info", decoder="columns") == 0


def test_messages_are_counted_by_outcome(registry: CollectorRegistry, metrics: Metrics) -> None:
    """Each message has one outcome; rejects have a reason besides."""
    outcomes = {"learned": 3, "unlabelled": 2, "ambiguous": 1, "rejected": 6, "delete": 4}
    outcomes |= {"superseded": 5, "ignored": 7}
    rejected = {Reason.NOT_JSON.value: 5, Reason.TOO_LARGE.value: 1}
    show(metrics, outcomes=outcomes, rejected=rejected, ignored={"lang": 7})
    counted = [value(registry, "messages_total", outcome=outcome) for outcome in OUTCOMES]
    assert dict(zip(OUTCOMES, counted, strict=True)) == {
        "learned": 3, "unlabelled": 2, "ambiguous": 1, "rejected": 6, "delete": 4, "superseded": 5,
        "ignored": 7,
    }  # fmt: skip
    assert value(registry, "rejects_total", reason="not_json") == 5
    assert value(registry, "ignored_total", condition="lang") == 7


def test_a_label_that_is_not_configured_is_other(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    """No stream can make series: unknown labels share one."""
    learned, predicted = {"positive": 2, "🙂": 1, "x": 1}, {"negative": 3, "y": 1}
    show(metrics, learned_by_class=learned, predicted_by_class=predicted)
    assert value(registry, "examples_learned_total", label="positive") == 2
    assert value(registry, "examples_learned_total", label="other") == 2
    assert value(registry, "predictions_total", label="other") == 1
    assert value(registry, "predictions_total", label="y") is None


def test_ages_grow_while_nothing_happens(
    registry: CollectorRegistry, metrics: Metrics, clock: ManualClock
) -> None:
    """Ages are taken when asked for: unknown at first, then growing with the clock."""
    assert math.isnan(value(registry, "snapshot_age_seconds") or 0.0)
    assert math.isnan(value(registry, "checkpoint_age_seconds") or 0.0)
    began_s = clock.now_s
    status = Status("test", snapshot_version=3, vocabulary_size=100, n_features=110)
    metrics.watch(lambda: replace(status, snapshot_age_s=clock.now_s - began_s))
    metrics.checkpoint_written(seconds=0.25, n_bytes=4096)
    clock.now_s += 12.5
    assert value(registry, "snapshot_age_seconds") == 12.5
    assert value(registry, "checkpoint_age_seconds") == 12.5
    assert value(registry, "snapshot_version") == 3
    assert value(registry, "vocabulary_words") == 100
    assert value(registry, "model_features") == 110
    assert value(registry, "checkpoint_write_seconds") == 0.25
    assert value(registry, "checkpoint_bytes") == 4096
    assert value(registry, "checkpoints_total") == 1


def test_running_totals_become_counters(registry: CollectorRegistry, metrics: Metrics) -> None:
    """Of totals that the model keeps, the counters take what has come since; never less than 0."""
    words = Increase()
    for total in (7, 7, 9, 2):
        words.update(total)
        show(metrics, new_words_dropped=words.since_start)
    assert value(registry, "words_dropped_total") == 9


def test_what_a_checkpoint_brings_back_is_not_counted_again(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    """After a restart the counters begin at 0, whatever the restored totals are."""
    statistics = RunStatistics(["negative", "positive"], ["text"], 10)
    words, values = Increase(5), Increase(3)
    statistics.prequential.update(np.log([[0.5, 0.5]]), np.array([0]))
    words.update(6)
    values.update(5)
    status = build_status("test", statistics)
    dropped = words.since_start, values.since_start
    metrics.watch(
        lambda: replace(status, new_words_dropped=dropped[0], new_values_dropped=dropped[1])
    )
    assert value(registry, "prequential_examples_total") == 1
    assert value(registry, "prequential_correct_total") == 1
    assert value(registry, "prequential_log_loss_nats_total") == pytest.approx(math.log(2))
    assert value(registry, "prequential_window_accuracy_ratio") == 1.0
    assert value(registry, "words_dropped_total") == 1
    assert value(registry, "values_dropped_total") == 2


def test_a_partition_that_is_gone_has_no_lag(registry: CollectorRegistry, metrics: Metrics) -> None:
    """Lag is shown for the partitions that are ours now, and of no others."""
    show(metrics, lag={Partition("tweets", 0): 5, Partition("tweets", 1): 6})
    assert value(registry, "consumer_lag_messages", topic="tweets", partition="0") == 5
    show(metrics, lag={Partition("tweets", 1): 4})
    assert value(registry, "consumer_lag_messages", topic="tweets", partition="0") is None
    assert value(registry, "consumer_lag_messages", topic="tweets", partition="1") == 4


def test_the_rest_is_counted_where_it_says(registry: CollectorRegistry, metrics: Metrics) -> None:
    """Source, predictor and checkpoint failures each move their own metric."""
    waiting = [3]
    metrics.watch_queue(lambda: len(waiting), 64)
    metrics.watch_backlog(lambda: 5, lambda: 6)
    metrics.watch_output("predictions", lambda: 7, lambda: 9)
    metrics.observe_predict(0.0004, n_messages=20)
    health = Health(lambda: 0.0, 30.0).report()  # starting: alive, and not ready
    show(metrics, health=health, n_restarts=1, n_lost=8)
    metrics.checkpoint_failed()
    assert value(registry, "predictor_queue_batches") == 1
    assert value(registry, "predictor_queue_limit_batches") == 64
    assert value(registry, "read_ahead_messages") == 5
    assert value(registry, "erasures_waiting") == 6
    assert value(registry, "output_pending_bytes", output="predictions") == 7
    assert value(registry, "output_refused_total", output="predictions") == 9
    assert value(registry, "alive") == 1
    assert value(registry, "ready") == 0
    assert value(registry, "predict_seconds_bucket", le="0.0005") == 1
    assert value(registry, "predict_seconds_bucket", le="0.0002") == 0
    assert value(registry, "predict_batch_messages") == 20
    assert value(registry, "source_up") == 1
    assert value(registry, "source_restarts_total") == 1
    assert value(registry, "messages_lost_total") == 8
    assert value(registry, "checkpoint_failures_total") == 1
