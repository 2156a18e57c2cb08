"""Drift in the daemon: alarms, the words that moved, and a state that a restart does not change."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

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
from consumers.monitoring.prequential import LOOK_EXAMPLES, PENDING_MAX, WARM_EXAMPLES, DriftWatch
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
                watch.model = lambda: model  # noqa: B023 -- that of its own loop
                watch.learned(posteriors, np.array([CLASSES.index(each) for each in own]))
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
    assert len({each.word for each in report.words} & set(strongest)) >= 8


@pytest.mark.parametrize("seed", range(10))
def test_the_strongest_words_are_named_by_the_defaults(seed: int) -> None:
    """One alarm soon behind the change, and then eight of its ten strongest words or more."""
    settings = DriftSettings(enabled=True)
    stream, after = PlantedStream(seed), settings.words_after + 2 * BATCH
    model, watch = nb.NaiveBayes(CLASSES, features={"text": WORDS}), DriftWatch(settings)
    watch.model = lambda: model
    texts, labels = stream.draw(np.repeat([0.0, 1.0], [STABLE, after]).tolist())
    for begin in range(0, STABLE + after, BATCH):
        columns, own = {"text": texts[begin : begin + BATCH]}, labels[begin : begin + BATCH]
        posteriors = model.prequential_many(columns, own)
        watch.learned(posteriors, np.array([CLASSES.index(each) for each in own]))
    report = watch.report()
    assert report.n_alarms == 1
    assert report.alarm_at is not None
    assert STABLE < report.alarm_at < STABLE + 100
    assert len({each.word for each in report.words} & set(stream.strongest)) >= 8


def older(entry: CheckpointEntry) -> CheckpointEntry:
    """Return an entry as files had it that knew one pending alarm, no weights and no groups."""
    values = {key: each for key, each in entry.values.items() if key not in ("taught", "pending")}
    values["words"] = [
        {key: word[key] for key in ("word", "label", "z", "before", "after")}
        for word in values["words"]
    ]
    values["name_at"] = 0
    for counts in entry.values["pending"]:
        held = {key: counts[key] for key in ("group", "words", "scale", "landmark")}
        values |= {"name_at": counts["name_at"], "earlier": held}
    return CheckpointEntry(values, entry.arrays)


def test_the_entry_of_an_older_file_is_read() -> None:
    """An alarm that waits there gets the words that it gets without a restart."""
    texts, labels, _ = planted()
    found = []
    for is_older in (False, True):
        model = nb.NaiveBayes(CLASSES, features={"text": WORDS})
        watch = DriftWatch(SETTINGS)
        with capture_logs() as lines:
            for begin, end in itertools.pairwise(range(0, ALL + 1, BATCH)):
                posteriors = model.prequential_many({"text": texts[begin:end]}, labels[begin:end])
                watch.model = lambda: model  # noqa: B023 -- that of its own loop
                truth = [CLASSES.index(each) for each in labels[begin:end]]
                watch.learned(posteriors, np.array(truth))
                if is_older:
                    entry = older(watch.pack())
                    watch = DriftWatch(SETTINGS)
                    watch.unpack(entry)
        found.append((watch.report(), lines))
    assert found[0][1] == found[1][1]
    # Such a file knows neither.
    words = [[replace(w, group=None, strength=0.0) for w in report.words] for report, _ in found]
    assert words[0] == words[1] != []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_alarm_that_comes_while_words_are_pending_gets_its_own(is_restarted: bool) -> None:
    """Each alarm has its words where `words_after` says, counted where it came."""
    random = np.random.default_rng(12)
    model = nb.NaiveBayes(CLASSES, features={"text": WORDS})
    watch = DriftWatch(SETTINGS)
    with capture_logs() as lines:
        for begin in range(0, 12_000, BATCH):
            truth, texts = random.integers(0, 2, BATCH), []
            for i, label in enumerate(truth.tolist(), begin):
                said = [f"w{each}" for each in random.integers(0, 300, 3)]
                said += [("left", "right")[label ^ (i >= 6_000)]] * (random.random() < 0.5)
                said += [("up", "down")[label ^ (i >= 7_600)]] * (random.random() < 0.8)
                texts.append(" ".join(said))
            posteriors = model.prequential_many({"text": texts}, [CLASSES[each] for each in truth])
            watch.model = lambda: model
            watch.learned(posteriors, truth)
            watch = restored(watch) if is_restarted else watch
    events = [line["event"] for line in lines]
    assert events == ["drift", "drift", "drift_words", "drift_words"]
    first, second = (line for line in lines if line["event"] == "drift_words")
    alarms = [line["message"] for line in lines if line["event"] == "drift"]
    for alarm, named in zip(alarms, (first, second), strict=True):
        assert named["message"] == -(-alarm // LOOK_EXAMPLES) * LOOK_EXAMPLES + 2_000
    assert {each.split()[0] for each in first["words"]} >= {"left", "right"}
    assert {each.split()[0] for each in second["words"]} >= {"up", "down"}
    assert {each.word for each in watch.report().words} >= {"up", "down"}


def test_more_alarms_than_are_kept_wait_together() -> None:
    """However many come, the checkpoint stays small, and the last of them is named too."""
    settings = DriftSettings(enabled=True, words_after=20_000)
    model = nb.NaiveBayes(CLASSES, features={"text": WORDS})
    model.learn_many({"text": ["plain", "other"]}, CLASSES[:2])
    watch = DriftWatch(settings)
    watch.model = lambda: model
    watch.update(np.full(2 * WARM_EXAMPLES, 0.1))
    for _ in range(PENDING_MAX + 3):
        surprises = np.repeat([0.1, 5.0], [LOOK_EXAMPLES - 60, 60])
        watch.learned(-surprises[:, None], np.zeros(LOOK_EXAMPLES, np.int64))
    assert watch.report().n_alarms > PENDING_MAX
    pending = watch.pack().values["pending"]
    assert len(pending) == PENDING_MAX
    n = 2 * WARM_EXAMPLES + (PENDING_MAX + 3) * LOOK_EXAMPLES
    assert pending[-1]["name_at"] == n + settings.words_after


def test_a_further_alarm_does_not_relearn_on_words_that_had_it_relearn() -> None:
    """It counts the words of its own time, where those that wait have done their work."""
    settings = DriftSettings(enabled=True, words_after=20_000, reaction="relearn")
    model = nb.NaiveBayes(CLASSES, features={"text": WORDS})
    model.learn_many({"text": ["plain", "other"] * 500}, CLASSES[:2] * 500)
    watch, relearn = DriftWatch(settings), Mock(return_value=True)
    watch.model, watch.relearn = lambda: model, relearn
    watch.update(np.full(2 * WARM_EXAMPLES, 0.1))
    surprises = np.repeat([0.1, 5.0], [LOOK_EXAMPLES - 60, 60])

    def alarm() -> None:
        watch.learned(-surprises[:, None], np.zeros(LOOK_EXAMPLES, np.int64))

    for _ in range(PENDING_MAX):
        alarm()
    model.learn_many({"text": ["other", "plain"] * 500}, CLASSES[:2] * 500)  # they change sides
    for _ in range(3):
        alarm()
        assert relearn.call_count == 1
        assert len(watch.pack().values["pending"]) == PENDING_MAX
    model.learn_many({"text": ["other", "plain"] * 2_000}, CLASSES[:2] * 2_000)  # and go on
    alarm()
    assert relearn.call_count == 2


def test_words_of_a_newer_alarm_do_not_wait_for_an_older_one() -> None:
    """A restart may have brought a shorter `words_after`, which holds for what alarms from then."""
    model = nb.NaiveBayes(CLASSES, features={"text": WORDS})
    model.learn_many({"text": ["plain", "other"]}, CLASSES[:2])
    surprises = np.repeat([0.1, 5.0], [LOOK_EXAMPLES - 60, 60])
    watches = [DriftWatch(DriftSettings(enabled=True, words_after=n)) for n in (50_000, 500)]
    watches[0].update(np.full(2 * WARM_EXAMPLES, 0.1))
    for i, watch in enumerate(watches):
        watch.model = lambda: model
        if i:
            watch.unpack(watches[0].pack())
        watch.learned(-surprises[:, None], np.zeros(LOOK_EXAMPLES, np.int64))
        assert len(watch.pack().values["pending"]) == 1 + i
    watches[1].learned(np.full((LOOK_EXAMPLES, 1), -0.1), np.zeros(LOOK_EXAMPLES, np.int64))
    assert [each["name_at"] > 50_000 for each in watches[1].pack().values["pending"]] == [True]


def test_a_model_without_words_alarms_all_the_same() -> None:
    """No words can be named then; nor are the first losses compared with anything."""
    model = nb.NaiveBayes(features={"size": nb.Numbers()})
    watch = DriftWatch(SETTINGS)
    watch.update(np.linspace(0.0, 5.0, WARM_EXAMPLES))
    assert watch.report().capital == 1.0
    watch.model = lambda: model
    rising = np.linspace(0.0, 5.0, 500)
    with capture_logs() as lines:
        for _ in range(10):
            watch.learned(-rising[:, None], np.zeros(500, np.int64))
    assert {line["event"] for line in lines} == {"drift"}
    assert "word" not in lines[0]["detail"]  # nor are any promised
    assert watch.report().n_alarms >= 1
    assert watch.report().words == ()


def test_where_no_word_moved_it_says_so() -> None:
    """An alarm promises words; that there are none is told as well."""
    model = nb.NaiveBayes(CLASSES, features={"text": WORDS})
    watch = DriftWatch(SETTINGS)
    with capture_logs() as lines:
        watch.model = lambda: model
        for losses in (np.repeat([0.1, 5.0], [2 * WARM_EXAMPLES, 40]), np.full(4_000, 0.1)):
            for begin in range(0, len(losses), 20):
                own = losses[begin : begin + 20]
                watch.learned(-own[:, None], np.zeros(len(own), np.int64))
    assert {line["event"] for line in lines} == {"drift", "drift_words"}
    assert "words that moved" in lines[0]["detail"]
    assert lines[-1]["words"] == []
    assert lines[-1]["detail"] == "no word moved beyond chance"


@pytest.mark.parametrize("names", [("title", "body"), ("body", "title"), ("a", "body", "title")])
def test_words_of_every_group_are_looked_at(names: tuple[str, ...]) -> None:
    """Those that moved are named with their group, whichever comes first, after restarts too."""
    random = np.random.default_rng(3)
    features = {name: nb.Words(nb.Multinomial()) for name in names}
    model = nb.NaiveBayes(CLASSES, features=features)
    watch = DriftWatch(SETTINGS)
    with capture_logs() as lines:
        for begin in range(0, 9_000, BATCH):
            truth = random.integers(0, 2, BATCH)
            columns: dict[str, list[str]] = {name: [] for name in names}
            for i, label in enumerate(truth.tolist(), begin):
                for name in names:
                    said = [f"w{each}" for each in random.integers(0, 200, 3)]
                    if name == "body":
                        said += [("left", "right")[label ^ (i >= 5_000)]] * (random.random() < 0.9)
                    elif name == "title":
                        said += [("bad", "good")[label]] * (random.random() < 0.6)
                    columns[name].append(" ".join(said))
            posteriors = model.prequential_many(columns, [CLASSES[each] for each in truth])
            watch.model = lambda: model
            watch.learned(posteriors, truth)
            watch = restored(watch)
    watch.model = lambda: model
    events = [line for line in lines if line["event"] == "drift_words"]
    named = {each.split(" →")[0] for each in events[0]["words"]}
    assert {"body: left", "body: right"} <= named
    assert not {"title: good", "title: bad"} & named
    assert {"left", "right"} <= {each.word for each in restored(watch).report().words}
    assert {each.group for each in watch.report().words if each.word == "left"} == {"body"}


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


def run(tweets: Path, folder: Path, *ends: int | None, **sections: Any) -> tuple[Any, list[Any]]:
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
            made = Settings.model_validate(given | sections)
            daemon.run(made, view, until_end=True, max_messages=end)
    notes = storage.notes_of(next(folder.glob("model.nb")))
    about = [line for line in lines if line["event"].startswith("drift")]
    return notes["entries"]["drift"], about


def test_the_daemon_goes_on_where_it_was(tweets: Path, tmp_path: Path) -> None:
    """Stopped between an alarm and its words, it says the same as if it had run through."""
    through = run(tweets, tmp_path / "through", None)
    stopped = run(tweets, tmp_path / "stopped", STABLE + 500, 1_000, None)
    assert stopped == through
    assert [line["event"] for line in through[1]] == ["drift", "drift_words"]


def test_it_names_the_same_words_however_the_log_is_cut(tweets: Path, tmp_path: Path) -> None:
    """Batches, and snapshots by time, move neither the places of its looks nor what they find."""
    lines = tweets.read_text(encoding="utf-8").splitlines()
    log = [json.dumps(json.loads(each) | {"id": str(i)}) for i, each in enumerate(lines)]
    for i in range(STABLE, ALL, 3):  # what is deleted has its effect in its place
        log[i] += "\n" + json.dumps({"id": str(i - 40), "operation": "delete"})
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(log) + "\n", encoding="utf-8")
    by_time = {"publish_interval_s": 1e-9, "publish_share_max": 1.0}
    found = [
        run(path, tmp_path / name, *ends, file={"batch_bytes": size}, learning=by_time)
        for name, size, ends in (
            ("whole", 1 << 22, (None,)),
            ("small", 30_000, (None,)),
            ("stopped", 70_000, (STABLE + 777, 333, None)),
        )
    ]
    assert found[0] == found[1] == found[2]
    assert [line["event"] for line in found[0][1]] == ["drift", "drift_words"]
    assert found[0][1][1]["message"] % LOOK_EXAMPLES == 0


HYBRID = {"hash_key": "00" * 16, "features": {"text": {"ngrams": [1, 1]}}}


@pytest.mark.parametrize("examples", [250, 1_000])
def test_weights_begin_afresh_behind_a_change(tweets: Path, tmp_path: Path, examples: int) -> None:
    """In the same place however the log is cut: the file has the same bits, and the same counts."""
    learning = {"publish": "examples", "publish_examples": examples}
    files, logs = [], []
    for name, size, ends, reaction in (
        ("whole", 1 << 22, (None,), "relearn"),
        ("small", 30_000, (None,), "relearn"),
        ("stopped", 70_000, (STABLE + 500, 500, 777, None), "relearn"),
        ("none", 1 << 22, (None,), "none"),
    ):
        drift = SETTINGS.model_dump() | {"reaction": reaction}
        sections: dict[str, Any] = {"model": HYBRID, "learning": learning, "drift": drift}
        found = run(tweets, tmp_path / name, *ends, file={"batch_bytes": size}, **sections)
        logs.append([line["event"] for line in found[1]])
        files.append(tmp_path / name / "model.nb")
    assert logs[:3] == [["drift", "drift_relearned", "drift_words"]] * 3
    assert logs[3] == ["drift", "drift_words"]
    assert len({path.read_bytes() for path in files[:3]}) == 1
    models = [nb.load(path) for path in files]
    assert models[0].digest() == models[3].digest()
    asked = [each.predict_log_proba_many({"text": ["w0 w1 w2"]}) for each in models]
    assert not np.array_equal(asked[0], asked[3])


@pytest.mark.parametrize("seed", range(20, 25))
def test_a_model_that_relearns_follows_a_change_sooner(seed: int) -> None:
    """Right behind a change it errs less, and what nothing changed in teaches it nothing else."""
    n, right = 20_000, []
    texts, labels = PlantedStream(seed).draw(np.repeat([0.0, 1.0], [n, n]).tolist())
    truth = np.array([CLASSES.index(each) for each in labels])
    for reaction in ("none", "relearn"):
        words = nb.Words(nb.Multinomial(), hybrid=nb.Hybrid())
        model = nb.NaiveBayes(CLASSES, features={"text": words})
        watch = DriftWatch(DriftSettings(enabled=True, reaction=reaction))
        watch.model, watch.relearn, said = lambda: model, model.forget_weights, []  # noqa: B023
        for begin in range(0, 2 * n, BATCH):
            own = labels[begin : begin + BATCH]
            said.append(model.prequential_many({"text": texts[begin : begin + BATCH]}, own))
            watch.learned(said[-1], truth[begin : begin + BATCH])
        right.append(np.concatenate(said).argmax(axis=1) == truth)
    assert np.array_equal(right[0][: n + BATCH], right[1][: n + BATCH])
    soon, late = slice(n, n + 5_000), slice(n + 10_000, 2 * n)
    assert right[1][soon].mean() > right[0][soon].mean() + 0.03
    assert right[1][late].mean() > right[0][late].mean()


def test_an_alarm_by_a_run_of_one_class_leaves_the_weights() -> None:
    """Losses grow where only a rare class comes, yet no word speaks for another one."""
    random, n = np.random.default_rng(4), 10_000
    words = nb.Words(nb.Multinomial(), hybrid=nb.Hybrid())
    model = nb.NaiveBayes(CLASSES, features={"text": words})
    watch, relearn = DriftWatch(SETTINGS), Mock(return_value=True)
    watch.model, watch.relearn = lambda: model, relearn
    truth = np.append(random.random(n) < 0.1, np.ones(n // 2, dtype=bool)).astype(int)
    leans = np.where(random.random((len(truth), 3)) < 0.7, truth[:, None], 1 - truth[:, None])
    drawn = (random.integers(0, 100, leans.shape) * 2 + leans).tolist()
    texts = [" ".join(f"w{each}" for each in row) for row in drawn]
    for begin in range(0, len(truth), BATCH):
        own = truth[begin : begin + BATCH]
        columns = {"text": texts[begin : begin + BATCH]}
        watch.learned(model.prequential_many(columns, [CLASSES[c] for c in own]), own)
    report = watch.report()
    assert report.n_alarms > 0
    assert report.words == ()
    assert not relearn.called


def test_a_model_without_weights_has_nothing_to_relearn() -> None:
    """A challenger that was promoted may have none: nothing is published, and nobody is told."""
    model = nb.NaiveBayes(CLASSES, features={"text": nb.Words(nb.Multinomial())})
    board = nb.SnapshotBoard()
    learner = nb.Learner(model, board, nb.EveryExamples(1), lambda: 0.0)
    learner.learn("p", {"text": ["a", "b"]}, list(CLASSES))
    version = learner.snapshot.version
    assert not learner.forget_weights()
    assert learner.snapshot.version == version
    watch = DriftWatch(SETTINGS)
    watch.model = lambda: model
    watch.relearn = learner.forget_weights
    with capture_logs() as logged:
        changing = np.repeat([0, 1], 6_000)
        for begin in range(0, len(changing), BATCH):
            own = np.arange(begin, begin + BATCH) % 2
            texts = [f"w{(c + changing[begin]) % 2}" for c in own]
            names = [CLASSES[c] for c in own]
            watch.learned(model.prequential_many({"text": texts}, names, part="p"), own)
    assert [each["event"] for each in logged if each["event"].startswith("drift")][:1] == ["drift"]
    assert "drift_relearned" not in {each["event"] for each in logged}


@pytest.mark.parametrize("half_life_s", [None, 4_000.0])
def test_the_words_do_not_depend_on_the_unit_of_weights(
    tweets: Path, tmp_path: Path, half_life_s: float | None
) -> None:
    """A stream whose messages all weigh the same names what it names without weights."""
    lines = tweets.read_text(encoding="utf-8").splitlines()
    path = tmp_path / "log.jsonl"
    log = [
        json.dumps(json.loads(each) | {"w": 64, "v": 1 / 64, "created_at": 1_700_000_000 + i})
        for i, each in enumerate(lines)
    ]
    features = {"text": {"hybrid": False, "ngrams": [1, 1]}}
    sections: dict[str, Any] = {"model": {"features": features, "half_life_s": half_life_s}}
    sections |= {"learned": {"messages_max": 0}, "corrections": {"to": "none"}}
    path.write_text("\n".join(log) + "\n", encoding="utf-8")
    found = [
        run(path, tmp_path / str(weight), None, message={"weight": weight}, **sections)[1]
        for weight in (None, "w", "v")
    ]
    words = [lines[1]["words"] for lines in found]
    assert words[0]
    assert words[0] == words[1] == words[2]


def test_words_that_nothing_holds_any_more_leave_the_checkpoint() -> None:
    """What was deleted from all counts is in no file, be it of the words before or of the named."""
    model = nb.NaiveBayes(CLASSES, features={"text": WORDS})
    watch = DriftWatch(SETTINGS)
    watch.model = lambda: model
    texts, labels = ["secret"] * 2_000 + ["plain", "other"] * 1_000, ["negative", "positive"]
    model.learn_many({"text": texts}, labels * 2_000)
    surprises = np.repeat([0.1, 5.0], [2 * WARM_EXAMPLES, 500])
    watch.learned(-surprises[:, None], np.zeros(len(surprises), np.int64))
    (before,) = watch.pack().values["pending"]
    assert before["words"] == ["secret", "other", "plain"]
    model.unlearn_many({"text": texts[:2_000]}, labels * 1_000)
    entry = watch.pack()
    (before,) = entry.values["pending"]
    assert before["words"] == ["other", "plain"]
    assert entry.arrays["counts"].tolist() == [[0.0, 1000.0], [1000.0, 0.0]]
    later = {"text": ["other", "plain"] * 2_000}  # each of the other class now
    model.learn_many(later, labels * 2_000)
    watch.learned(np.zeros((4_000, 1)), np.zeros(4_000, np.int64))
    assert {each.word for each in watch.report().words} == {"other", "plain"}
    for gone, kept in (("plain", {"other"}), ("other", set())):
        counts = model.word_counts([gone])[0]
        for label, n in zip(model.classes, counts.astype(int).tolist(), strict=True):
            model.unlearn_many({"text": [gone] * n}, [label] * n)
        assert {each["word"] for each in watch.pack().values["words"]} == kept
