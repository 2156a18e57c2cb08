"""What leaves a replay is a function of the log, if snapshots are published by examples."""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.errors import MismatchError
from consumers.monitoring.status import Summary
from tests.endtoend.busy_core import busy_core
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import examples, message
from tests.endtoend.test_restart_laws import NoView

N = 3_000
# How the names of the metrics begin that are figures of the log.
OF_THE_LOG = (
    "drift", "examples_learned", "ignored", "messages_total", "model_features", "model_window",
    "prediction_set", "predictions", "prequential", "promotions", "rejects", "share",
    "snapshot_version", "stated_calibration", "values_dropped", "vocabulary_words", "words_dropped",
)  # fmt: skip
# Those of what watches, if it is on.
WATCHING = (
    "streamnb_drift_capital_nats", "streamnb_ignored_total", "streamnb_prediction_set_classes",
    "streamnb_prediction_sets_covered_ratio", "streamnb_stated_calibration_error_ratio",
)  # fmt: skip
OF_THE_CLOCK = ("seconds", "messages_per_s")
KEY = "00c0ffee"


def stream(folder: Path) -> Path:
    """Write a file of messages, a third of them without a label."""
    found = enumerate(examples(N))
    lines = [
        b"{broken" if i % 97 == 0 else message(example, i, labelled=i % 3 != 0)
        for i, example in found
    ]
    path = folder / "in.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def replay(folder: Path, source: Path, *, n: int | None = None, **sections: Any) -> Summary:
    """Run the daemon on a file, for `n` messages or to its end."""
    given: dict[str, Any] = {
        "source": f"file:{source}",
        "http": {"enabled": False},
        "model": {"hash_key": KEY},
        "learning": {"publish": "examples", "publish_examples": 70},
        "predictions": {"to": f"file:{folder / 'out.jsonl'}"},
        "checkpoint": {"folder": folder, "interval_s": 0.01},
    }
    made = Settings.model_validate(given | sections)
    return run(made, NoView(), until_end=n is None, max_messages=n)


def same_however_cut(folder: Path, source: Path, **sections: Any) -> bytes:
    """Replay a file in large and small batches and with stops; return the predictions of each."""
    found = []
    for name, batch_bytes, stops in (
        ("whole", 1 << 22, ()),
        ("small", 1_024, ()),
        ("stopped", 5_000, (1, 333, 70, 1_200)),
    ):
        state = folder / name
        for n in (*stops, None):
            replay(state, source, n=n, file={"batch_bytes": batch_bytes}, **sections)
        found.append(((state / "model.nb").read_bytes(), (state / "out.jsonl").read_bytes()))
    assert found[0][1] == found[1][1] == found[2][1]
    assert found[0][0] == found[1][0] == found[2][0]
    return found[0][1]


def test_batches_and_stops_change_no_byte(tmp_path: Path) -> None:
    """Model and predictions are the same however a file is cut, by batches or by ends of runs."""
    predictions = same_however_cut(tmp_path, stream(tmp_path))
    records = [json.loads(line) for line in predictions.splitlines()]
    whole = [i for i in range(N) if i % 97]
    n_before = {f"m{i}": sum(k % 3 != 0 for k in whole if k < i) for i in whole if i % 3 == 0}
    assert [each["id"] for each in records] == [*n_before]
    assert [each["snapshot_version"] - 1 for each in records] == [
        n // 70 for n in n_before.values()
    ]


@pytest.mark.parametrize("text", [{}, {"max_words": 60}], ids=["deleted", "dropped too"])
def test_words_that_left_and_came_again_change_no_byte(
    tmp_path: Path, text: dict[str, Any]
) -> None:
    """Where a word stands in the model's file is not a matter of a stop while it was gone."""
    source = tmp_path / "in.jsonl"
    with source.open("w") as file:
        for i in range(1_500):
            label = None if i % 5 == 0 else ("negative", "positive")[i % 2]
            found = {"id": f"m{i}", "text": f"w{i * 7 % 40} w{i * i % 61}", "label": label}
            file.write(json.dumps(found) + "\n")
            if i % 3:
                file.write(json.dumps({"id": f"m{i - i % 2}", "operation": "delete"}) + "\n")
    model = {"hash_key": KEY, "features": {"text": text}}
    assert same_however_cut(tmp_path, source, model=model)


NUMBERS: dict[str, Any] = {
    "text": {},
    "size": {"kind": "numbers", "fields": ["height", "width"]},
    "lang": {"kind": "categories", "fields": ["lang"]},
}


def numbers_taken_back(path: Path) -> None:
    """Write a log with numbers: several messages an id, deleted and updated soon and late."""
    chance = random.Random(7)
    with path.open("w") as file:
        for i in range(N):
            recent, old = chance.randrange(max(0, i - 9), i + 1), chance.randrange(i + 1)
            found: dict[str, Any] = {"id": f"m{chance.choice((i, i, i, recent, old)) // 2}"}
            operation = chance.choice(("create", "create", "update", "delete", "delete"))
            found["operation"] = operation
            if operation != "delete":
                label = chance.choice(("negative", "positive", None))
                size = chance.choice((1.0, 1e-9, 1e15))
                found |= {"text": f"w{i % 40}", "label": label, "lang": chance.choice("abc")}
                found |= {"height": chance.gauss(size, 2.0), "weight": chance.choice((1, 1, 0.3))}
                found |= {"width": size} if i % 3 else {}
            file.write(json.dumps(found) + "\n")


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"challengers": {"other": {"class_prior": 5.0}}},
        {"per": {"field": "lang", "examples_min": 20}},
    ],
    ids=["plain", "challengers", "per"],
)
def test_numbers_taken_back_leave_the_same_last_digits(
    tmp_path: Path, sections: dict[str, Any]
) -> None:
    """A sum of fractions rounds by its order: deletes side by side in a batch keep theirs."""
    numbers_taken_back(tmp_path / "in.jsonl")
    model = {"hash_key": KEY, "features": NUMBERS}
    sections = {"model": model, "message": {"weight": "weight"}} | sections
    assert same_however_cut(tmp_path, tmp_path / "in.jsonl", **sections)


def test_predictions_of_labelled_messages_stand_where_their_log_has_them(tmp_path: Path) -> None:
    """All in the order of the log, and the same bytes however it is cut into batches."""
    source, found = stream(tmp_path), []
    for name, batch_bytes in (("whole", 1 << 22), ("small", 1_024)):
        path = tmp_path / name / "out.jsonl"
        predictions = {"to": f"file:{path}", "labelled": True}
        replay(tmp_path / name, source, file={"batch_bytes": batch_bytes}, predictions=predictions)
        found.append(path.read_bytes())
    assert found[0] == found[1]
    written = [json.loads(line)["id"] for line in found[0].splitlines()]
    assert written == [f"m{i}" for i in range(N) if i % 97]


def test_decay_goes_by_the_times_of_messages(tmp_path: Path) -> None:
    """Counts are those of the plain formula, and cuts and stops change no byte of what decays."""
    after_s = [None if i % 50 == 7 else 600.0 * i - i * i % 7 * 900.0 for i in range(N)]
    found = [
        {"id": f"m{i}", "text": "a", "label": ("negative", "positive")[i % 3 == 0]}
        | ({} if after is None else {"created_at": int(1.7e12 + 1000 * after)})
        for i, after in enumerate(after_s)
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in found))
    sections: dict[str, Any] = {
        "model": {"hash_key": KEY, "half_life_s": 86_400},
        "learned": {"messages_max": 0},
        "corrections": {"to": "none"},
    }
    summary = replay(tmp_path / "whole", source, **sections)
    for n in (1, 400, 35):
        replay(tmp_path / "stopped", source, n=n, file={"batch_bytes": 3_000}, **sections)
    replay(tmp_path / "stopped", source, **sections)
    models = [(tmp_path / each / "model.nb").read_bytes() for each in ("whole", "stopped")]
    assert models[0] == models[1]
    now = last = newest = -math.inf
    plain = defaultdict[str, float](float)
    for each, after in zip(found, after_s, strict=True):
        own = -math.inf if after is None else after
        now, last = max(now, min(own, last)), own
        at = now if after is None else min(after, now)
        newest = max(newest, at)
        plain[str(each["label"])] += 2.0 ** (at / 86_400) if now > -math.inf else 0.0
    assert dict(zip(summary.classes, summary.class_counts, strict=True)) == pytest.approx(
        {label: each / 2.0 ** (newest / 86_400) for label, each in plain.items()}
    )


def test_no_message_is_judged_by_labels_behind_it(tmp_path: Path) -> None:
    """By time too, a snapshot that knows a batch's labels judges no message of the batch."""
    lines = [message(example, i, labelled=i > 77) for i, example in enumerate(examples(400))]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    by_time: dict[str, Any] = {"publish_interval_s": 1e-9, "publish_share_max": 1.0}
    replay(tmp_path, tmp_path / "in.jsonl", learning=by_time)
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert len(records) == 78
    assert {each["probabilities"]["positive"] for each in records} == {0.5}


def test_a_checkpoint_with_another_hash_key_is_refused(tmp_path: Path) -> None:
    """The key cannot change under a model; no error shows it."""
    source = stream(tmp_path)
    replay(tmp_path / "state", source, n=10)
    with pytest.raises(MismatchError, match=r"another key than model\.hash_key") as caught:
        replay(tmp_path / "state", source, model={"hash_key": "ab"})
    assert "ab" not in str(caught.value).replace("checkpoint", "").split()
    assert KEY not in str(caught.value)
    assert replay(tmp_path / "state", source, model={"hash_key": None}).messages == N


def figures(daemon: Daemon) -> list[str]:
    """Return the metrics of a daemon that are figures of the log."""
    wanted = tuple(f"streamnb_{name}" for name in OF_THE_LOG)
    return [line for line in daemon.get("/metrics")[1].splitlines() if line.startswith(wanted)]


def start(folder: Path, lines: list[bytes], *, watched: bool = False, **learning: Any) -> Daemon:
    """Start a daemon that follows a file in a folder of its own; `watched` by all that watches."""
    folder.mkdir(exist_ok=True)
    (folder / "in.jsonl").write_bytes(b"".join(lines))
    by_examples = {"publish": "examples", "publish_examples": 70}
    model: dict[str, Any] = {"hash_key": KEY}
    watching: dict[str, Any] = {}
    if watched:
        model |= {"calibration": True, "coverage": 0.8}
        watching = {"drift": {"enabled": True}, "message": {"sample": 0.9}}
    return Daemon(
        write_config(
            folder / "config.yaml",
            source="file:in.jsonl",
            file={"batch_bytes": 2_048},
            model=model,
            learning={"window": 500} | (learning or by_examples),
            predictions={"to": "file:out.jsonl"},
            rejects={"to": "file:rejects.jsonl"},
            checkpoint={"folder": "state", "interval_s": 0.01},
            **watching,
        )
    )


def ended(daemon: Daemon) -> dict[str, Any]:
    """Stop a daemon; return its summary without what the clock says."""
    assert daemon.stop() == 0
    return {key: value for key, value in daemon.summary.items() if key not in OF_THE_CLOCK}


@pytest.mark.deep
def test_kills_beside_a_busy_core_change_no_byte(tmp_path: Path) -> None:
    """Model, outputs, metrics and summary are those of a replay that had the machine to itself."""
    lines = stream(tmp_path).read_bytes().splitlines(keepends=True)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with start(whole, lines, watched=True) as one:
        one.until_metric("streamnb_messages_total", N)
        with busy_core(2) as core:
            for n in (700, 1_900):
                with start(killed, lines[:2_000], watched=True) as daemon:
                    daemon.confine(core)
                    daemon.until_metric("streamnb_messages_total", n)
                    daemon.kill()
            with start(killed, lines, watched=True) as other:
                other.confine(core)
                other.until_metric("streamnb_messages_total", N)
                other.until(lambda: figures(one) == figures(other), "the metrics are the same")
                assert len(figures(one)) > 30
                said = [line for line in figures(one) if line.startswith(WATCHING)]
                assert len({line.split("{")[0].split()[0] for line in said}) == len(WATCHING)
                assert not [line for line in said if line.endswith("NaN")]
                summaries = ended(one), ended(other)
    assert summaries[0] == summaries[1]
    assert summaries[0]["messages"] == N
    for name in ("out.jsonl", "rejects.jsonl", "state/model.nb"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name


@pytest.mark.deep
def test_a_busy_core_shows_what_goes_by_the_clock(tmp_path: Path) -> None:
    """With snapshots by time the same two replays differ: a busy core is another machine."""
    lines = stream(tmp_path).read_bytes().splitlines(keepends=True)
    by_time: dict[str, Any] = {"publish_interval_s": 1e-3, "publish_share_max": 1.0}
    written = []
    for name in ("idle", "busy"):
        busy = busy_core(2) if name == "busy" else contextlib.nullcontext()
        with busy as core, start(tmp_path / name, lines, **by_time) as daemon:
            if core is not None:
                daemon.confine(core)
            daemon.until_metric("streamnb_messages_total", N)
            ended(daemon)
        written.append((tmp_path / name / "out.jsonl").read_bytes())
    assert written[0].count(b"\n") == written[1].count(b"\n") > N / 4
    assert written[0] != written[1]
