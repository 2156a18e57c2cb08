"""Drift in the daemon: alarms, the words that moved, and a state that a restart does not change."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console
from structlog.testing import capture_logs

import streamnb as nb
from benchmarks.drift import CLASSES, PlantedStream
from consumers import daemon
from consumers.config.sections import DriftSettings
from consumers.config.settings import Settings
from consumers.messages import CheckpointEntry
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.prequential import LOOK_EXAMPLES, WARM_EXAMPLES, DriftWatch
from consumers.monitoring.stats import RunStatistics
from consumers.reporter import build_status
from consumers.terminal import make_view
from streamnb import storage

STABLE, ALL, BATCH = 6_000, 10_000, 500
SETTINGS = DriftSettings(enabled=True, words_after=2_000)
WORDS = nb.Words(nb.Multinomial())


def planted() -> tuple[list[str], list[str], list[str]]:
    """Return texts and labels that change sides, and the words that do so most."""
    stream = PlantedStream(1)
    turned = np.repeat([0.0, 1.0], [STABLE, ALL - STABLE])
    return *stream.draw(turned.tolist()), stream.strongest


def restored(watch: DriftWatch) -> DriftWatch:
    """Return a watch that goes on from the entry of another, as a file has it."""
    entry, again = watch.pack(), DriftWatch(SETTINGS)
    values = json.loads(json.dumps(entry.values))
    again.unpack(CheckpointEntry(values, {name: a.copy() for name, a in entry.arrays.items()}))
    return again


def test_it_alarms_and_names_words_however_often_it_is_restarted() -> None:
    """Restarted after every batch, it logs and reports what it does when it runs through."""
    texts, labels, strongest = planted()
    found = []
    for is_restarted in (False, True):
        model = nb.NaiveBayes(CLASSES, features={"text": WORDS})
        watch = DriftWatch(SETTINGS)
        with capture_logs() as lines:
            for begin, end in itertools.pairwise(range(0, ALL + 1, BATCH)):
                own = labels[begin:end]
                posteriors = model.prequential_many({"text": texts[begin:end]}, own)
                watch.update(log_losses(posteriors, own))
                watch.name_words(model)
                if is_restarted:
                    watch = restored(watch)
        found.append((watch.report(), lines))
    assert found[0] == found[1]
    report, lines = found[0]
    assert report.n_alarms == 1
    assert report.alarm_at is not None
    assert STABLE < report.alarm_at < STABLE + 500
    assert [line["event"] for line in lines] == ["drift", "drift_words"]
    assert lines[0]["message"] == report.alarm_at
    assert len({each.word for each in report.words} & set(strongest)) >= 7


def test_a_model_without_words_alarms_all_the_same() -> None:
    """No words can be named then; nor are the first losses compared with anything."""
    model = nb.NaiveBayes(features={"size": nb.Numbers()})
    watch = DriftWatch(SETTINGS)
    watch.update(np.linspace(0.0, 5.0, WARM_EXAMPLES))
    assert watch.report().capital == 1.0
    watch.update(np.linspace(0.0, 5.0, 500))
    watch.name_words(model)
    assert watch.report().n_alarms >= 1
    assert watch.report().words == ()


def test_where_no_word_moved_nothing_is_said_of_words() -> None:
    """An alarm whose words are as they were is told by itself."""
    model = nb.NaiveBayes(CLASSES, features={"text": WORDS})
    watch = DriftWatch(SETTINGS)
    with capture_logs() as lines:
        watch.update(np.repeat([0.1, 5.0], [2 * WARM_EXAMPLES, 40]))
        watch.name_words(model)
        watch.update(np.full(SETTINGS.words_after, 0.1))
        watch.name_words(model)
    assert {line["event"] for line in lines} == {"drift"}


def test_metrics_and_status_say_what_it_found() -> None:
    """Alarms and capital are exported; without a watch there is neither."""
    statistics = RunStatistics(CLASSES, ["text"], 10)
    registry = CollectorRegistry()
    metrics = Metrics(registry, CLASSES)
    metrics.watch(lambda: build_status("s", statistics))
    capital = registry.get_sample_value("streamnb_drift_capital_nats")
    assert capital is not None
    assert np.isnan(capital)
    statistics.drift = DriftWatch(SETTINGS)
    statistics.drift.update(np.repeat([0.1, 5.0], [2 * WARM_EXAMPLES, 40]))
    assert registry.get_sample_value("streamnb_drift_alarms_total") == 1.0
    assert build_status("s", statistics).drift == statistics.drift.report()


@pytest.fixture(scope="module")
def tweets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of a stream that changes."""
    texts, labels, _ = planted()
    path = tmp_path_factory.mktemp("tweets") / "tweets.jsonl"
    pairs = zip(texts, labels, strict=True)
    lines = [json.dumps({"text": text, "label": label}) for text, label in pairs]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run(tweets: Path, folder: Path, *ends: int | None) -> tuple[Any, list[Any]]:
    """Run the daemon up to each end; return its last entry, and what it logged of drift."""
    given = {
        "source": f"file:{tweets}",
        "labels": {"kind": "field", "mapping": {each: each for each in CLASSES}},
        "checkpoint": {"folder": folder},
        "learning": {"publish": "examples"},
        "drift": SETTINGS.model_dump(),
        "model": {"features": {"text": {"hybrid": False, "ngrams": [1, 1]}}},
        "http": {"enabled": False},
    }
    with capture_logs() as lines:
        for end in ends:
            view = make_view("log", Console(file=io.StringIO()), lambda: 0.0)
            daemon.run(Settings.model_validate(given), view, until_end=True, max_messages=end)
    notes = storage.notes_of(next(folder.glob("model.nb")))
    about = [line for line in lines if line["event"] in ("drift", "drift_words")]
    return notes["entries"]["drift"], about


def test_the_daemon_goes_on_where_it_was(tweets: Path, tmp_path: Path) -> None:
    """Stopped between an alarm and its words, it says the same as if it had run through."""
    through = run(tweets, tmp_path / "through", None)
    stopped = run(tweets, tmp_path / "stopped", STABLE + 500, 1_000, None)
    assert stopped == through
    assert [line["event"] for line in through[1]] == ["drift", "drift_words"]
