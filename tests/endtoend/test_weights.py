"""Messages that count as several, or as a part of one: learned, taken back and verified."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consumers.cli.evaluation import Method, judge
from consumers.config.settings import Settings, load
from consumers.features import build_model
from streamnb import NaiveBayes
from streamnb.storage import read
from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, command, write_config
from tests.endtoend.expected_counts import Counts, counts, examples, state_at
from tests.endtoend.test_reproducible import KEY, replay

MESSAGE = {"weight": "about.weight"}
N = 2_000
SAME = {"negative": "negative", "positive": "positive"}
OTHER = {"negative": "positive", "positive": "negative"}


def weight_of(number: int) -> float | None:
    """Return the weight of a message as it is written; None: it has none."""
    return (None, 2, 0.1, 1.5, 700, 1 / 1024)[number % 6]


def exact(weight: float | None) -> float:
    """Return a weight as it counts."""
    return 1.0 if weight is None else round(1024 * weight) / 1024


def line(number: int, text: str, label: str | None, **more: Any) -> str:
    """Return a message as a line; those without a weight of their own have none."""
    weight = more.pop("weight", weight_of(number))
    found = {"id": f"m{number}", "text": text} | more
    found |= {} if label is None else {"label": label}
    found |= {} if weight is None else {"about": {"weight": weight}}
    return json.dumps(found) + "\n"


def log() -> Iterator[tuple[str, tuple[str, str, float] | None, int]]:
    """Yield lines, with the example that each leaves and the number of its message."""
    chance = random.Random(3)
    for number, (text, label) in enumerate(examples(N)):
        what = chance.random()
        earlier = chance.randrange(number + 1)
        if what < 0.1:
            yield json.dumps({"id": f"m{earlier}", "operation": "delete"}) + "\n", None, earlier
        elif what < 0.2 and earlier < number:
            new = (f"{text} again", label, exact(3.3))
            yield line(earlier, *new[:2], operation="update", weight=3.3), new, earlier
        elif what < 0.25:
            yield line(number, text, label, weight=-1), None, -1  # it is rejected
        else:
            yield line(number, text, label), (text, label, exact(weight_of(number))), number


def left() -> Counts:
    """Return the counts of what the log leaves, learned by the library alone."""
    living: dict[int, tuple[str, str, float]] = {}
    early: set[int] = set()
    seen: set[int] = set()
    for text, example, number in log():
        if number < 0:
            continue
        operation = json.loads(text).get("operation")
        if operation is None and number in early:
            early.remove(number)
            seen.add(number)
            continue
        if operation is not None and number not in seen:
            early.add(number)
        seen.add(number)
        living.pop(number, None)
        if example is not None:
            living[number] = example
    model = build_model(Settings().model)
    learn(model, list(living.values()))
    return counts(model)


def has_learned(file: Path, n: int) -> bool:
    """Return whether a checkpoint knows so many examples."""
    return file.exists() and read(file).model.n_examples == n


def learn(model: NaiveBayes, found: list[tuple[str, str, float]]) -> None:
    """Learn examples by their weights."""
    texts, labels, weights = zip(*found, strict=True)
    model.learn_many({"text": list(texts)}, list(labels), weights=list(weights))


@pytest.mark.deep
def test_a_log_of_weights_leaves_the_same_state_however_it_is_cut(tmp_path: Path) -> None:
    """Deletes and updates take back what was learned, and a bad weight is rejected."""
    source = tmp_path / "in.jsonl"
    source.write_text("".join(text for text, _, _ in log()))
    sections = {"message": MESSAGE, "model": {"hash_key": KEY, "calibration": True}}
    found, rejects = [], list[int]()
    for name, batch_bytes, stops in (("whole", 1 << 22, ()), ("small", 1_024, (1, 333, 1_200))):
        for n in (*stops, None):
            file = {"batch_bytes": batch_bytes}
            done = replay(tmp_path / name, source, n=n, file=file, **sections)
        rejects.append(done.rejected["wrong_type"])
        found.append((state_at(tmp_path / name), (tmp_path / name / "out.jsonl").read_bytes()))
    assert found[0] == found[1]
    assert counts(read(tmp_path / "whole" / "model.nb").model) == left()
    assert rejects[0] == sum(number < 0 for _, _, number in log())


@pytest.mark.deep
def test_what_people_correct_keeps_its_weight_through_a_kill(tmp_path: Path) -> None:
    """Labels and deletes of people, with and without the memory; the log is the receipt."""
    source = tmp_path / "in.jsonl"
    found = list(enumerate(examples(24)))
    lines = [line(i, text, label if i % 4 else None) for i, (text, label) in found]
    for name, learned_max in (("known", 1_000), ("forgotten", 0)):
        source.write_text("".join(lines[:12]))
        config = write_config(
            tmp_path / f"{name}.yaml",
            source=f"file:{source}",
            message=MESSAGE,
            learned={"messages_max": learned_max},
            checkpoint={"folder": name, "interval_s": 0.05},
        )
        file = tmp_path / name / "model.nb"
        with Daemon(config) as daemon:
            daemon.until_metric("streamnb_messages_total", 12)
            daemon.until(partial(has_learned, file, 9), "a checkpoint")
            daemon.kill()
        source.write_text("".join(lines))
        with Daemon(config) as daemon:
            daemon.until_it_takes_corrections()
            for number in range(12, 24):
                daemon.until_page(f"/v1/messages/m{number}", 200)
            for number in (13, 16, 21):  # 16 had no label of its own
                body = {"id": f"m{number}", "label": "negative"}
                assert ask(daemon.address, "POST", "/v1/labels", body)[0] == 202
            assert ask(daemon.address, "DELETE", "/v1/messages/m22")[0] == 202
            daemon.until_metric("streamnb_corrections_total", 4)
            daemon.kill()
        with Daemon(config) as daemon:
            daemon.until_it_takes_corrections()
            daemon.until_page("/v1/messages/m13", 200, '"corrected":"negative"')
            assert daemon.stop() == 0
        with Daemon(config, "--until-end") as daemon:  # what it has not applied stands in the log
            assert daemon.wait() == 0
        told = command("verify", "-c", str(config), "--json", folder=tmp_path)
        assert told.returncode == 0, told.stdout + told.stderr
        model = build_model(Settings().model)
        learn(
            model,
            [
                (text, "negative" if i in {13, 16, 21} else label, exact(weight_of(i)))
                for i, (text, label) in found
                if (i % 4 or i == 16) and i != 22
            ],
        )
        assert counts(read(file).model) == counts(model)


def test_a_label_that_comes_later_teaches_by_the_weight_of_its_message(tmp_path: Path) -> None:
    """And so does the default that it takes the place of."""
    source, labels = tmp_path / "in.jsonl", tmp_path / "labels.jsonl"
    found = list(enumerate(examples(60)))
    at = [1_700_000_000 + 60 * i for i, _ in found]
    source.write_text("".join(line(i, text, None, created_at=at[i]) for i, (text, _) in found))
    labels.write_text(
        "".join(
            json.dumps({"id": f"m{i}", "label": label, "created_at": at[i]}) + "\n"
            for i, (_, label) in found
            if i % 3
        )
    )
    late = {"source": f"file:{labels}", "id": "id", "default": "negative", "horizon_s": 600}
    replay(tmp_path / "state", source, message=MESSAGE, late_labels=late)
    model = build_model(Settings().model)
    learn(
        model,
        [
            (text, label if i % 3 else "negative", exact(weight_of(i)))
            for i, (text, label) in found
            if i % 3 or at[-2] - at[i] > 600
        ],
    )
    assert counts(read(tmp_path / "state" / "model.nb").model) == counts(model)


def test_the_commands_learn_by_weights_too(tmp_path: Path) -> None:
    """`evaluate` judges as the library does with weights, one after the other and in folds."""
    source = tmp_path / "in.jsonl"
    found = [(text, label, exact(weight_of(i))) for i, (text, label) in enumerate(examples(300))]
    source.write_text("".join(line(i, text, label) for i, (text, label, _) in enumerate(found)))
    config = write_config(
        tmp_path / "c.yaml", source=f"file:{source}", message=MESSAGE, model={"hash_key": KEY}
    )
    settings = load(config, {})
    model = build_model(settings.model)
    texts, labels, weights = (list(each) for each in zip(*found, strict=True))
    plain = model.prequential_many({"text": texts}, labels, weights=weights)
    judged = judge(settings, Method())
    assert np.array_equal(judged.log_posteriors, plain.astype(np.float32))
    without = load(write_config(tmp_path / "d.yaml", source=f"file:{source}"), {})
    folds = judge(settings, Method(folds=3)), judge(without, Method(folds=3))
    assert not np.array_equal(folds[0].log_posteriors, folds[1].log_posteriors)


def late_stream(folder: Path, other: dict[str, str]) -> dict[str, Any]:
    """Write messages, some 70 half-lives late with `other` labels; return sections for them."""
    lines = []
    for i, (text, label) in enumerate(examples(600)):
        is_late = i > 100 and i % 4 == 0
        known = other[label] if is_late else label
        at = 1_700_000_000 + i - 70_000 * is_late
        lines.append(line(i, text, known, created_at=at, weight=None))
    folder.mkdir(exist_ok=True)
    (folder / "in.jsonl").write_text("".join(lines))
    return {
        "learned": {"messages_max": 0},
        "corrections": {"to": "none"},
        "model": {"hash_key": KEY, "half_life_s": 1_000, "calibration": True, "coverage": 0.9},
    }


@pytest.mark.parametrize("method", [Method(), Method(delay=9), Method(hold_out=0.4)])
def test_no_answer_is_calibrated_by_what_teaches_nothing(tmp_path: Path, method: Method) -> None:
    """Whatever labels the messages have that come too late, all answers and sets stay the same."""
    found = []
    for name, classes in (("same", SAME), ("other", OTHER)):
        sections = late_stream(tmp_path / name, classes)
        config = write_config(tmp_path / f"{name}.yaml", **sections)
        settings = load(config, {}, {"source": f"file:{tmp_path / name / 'in.jsonl'}"})
        found.append(judge(settings, method))
    same, other = found
    assert not np.array_equal(same.labels, other.labels)
    assert np.array_equal(same.log_posteriors, other.log_posteriors)
    assert same.set_sizes is not None
    assert other.set_sizes is not None
    assert np.array_equal(same.set_sizes, other.set_sizes)


def test_evaluate_calibrates_by_what_the_daemon_calibrates_by(tmp_path: Path) -> None:
    """Messages that come too late are judged and count in no answer."""
    folder = tmp_path / "state"
    sections = late_stream(folder, OTHER)
    config = write_config(tmp_path / "c.yaml", **sections)
    settings = load(config, {}, {"source": f"file:{folder / 'in.jsonl'}"})
    done = replay(folder, folder / "in.jsonl", **sections)
    losses, is_possible = judge(settings, Method()).losses()
    assert is_possible.all()
    assert done.log_loss == pytest.approx(losses.mean(), rel=1e-5)


def test_no_field_of_the_model_has_the_weights_name() -> None:
    """It is refused by its place."""
    sections = {
        "message": {"weight": "w"},
        "model": {"features": {"n": {"kind": "numbers", "fields": ["message.weight"]}}},
    }
    with pytest.raises(ValueError, match="rename the field"):
        Settings.model_validate(sections)
