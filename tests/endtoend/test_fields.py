"""Streams of numbers, and of fields of all kinds, through a real broker; the daemon is killed.

Every count, mean and M2 of every section is that of an undisturbed run, to the last bit.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from river.datasets import Shuttle

from consumers.config.addresses import GeneratorSettings
from consumers.errors import MismatchError
from consumers.sources.generator import LoanMaker, SensorMaker, TweetMaker
from streamnb import Categories, NaiveBayes
from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import ROOT, Daemon, command, write_config
from tests.endtoend.expected_counts import state_at
from tests.endtoend.test_reproducible import KEY, replay
from tests.endtoend.test_restart_laws import run_on

N = 20_000
PARTITIONS = 2
ACCURACY_MIN = {"shuttle": 0.95, "loan": 0.89, "tweets": 0.8, "sensors": 0.97}


def shuttle() -> Iterator[bytes]:
    """Yield the shuttle's sensors as messages; of every tenth the state is to be judged."""
    for i, (x, y) in enumerate(Shuttle().take(N)):
        yield json.dumps(x if i % 10 == 9 else {**x, "label": y}).encode()


def loan() -> Iterator[bytes]:
    """Yield made-up loan applications as messages."""
    yield from LoanMaker(GeneratorSettings(stream="loans")).make(0, N)


def tweets() -> Iterator[bytes]:
    """Yield made-up tweets as messages: words and the hybrid, as by default."""
    yield from TweetMaker(GeneratorSettings()).make(0, N)


def sensors() -> Iterator[bytes]:
    """Yield made-up readings of a pump's sensors as messages."""
    yield from SensorMaker(GeneratorSettings(stream="sensors")).make(0, N)


def saved(file: Path) -> int:
    """Return how many messages stand in a checkpoint."""
    return sum(read(file).positions.values())


STREAMS: dict[str, Callable[[], Iterator[bytes]]] = {
    "shuttle": shuttle,
    "loan": loan,
    "tweets": tweets,
    "sensors": sensors,
}


def example(name: str, **changed: Any) -> dict[str, Any]:
    """Return an example configuration of the guides with changed sections."""
    text = (ROOT / "docs" / "examples" / f"{name}.yaml").read_text(encoding="utf-8")
    sections: dict[str, Any] = yaml.safe_load(text)
    return sections | changed


def inspected(folder: Path) -> dict[str, Any]:
    """Return all that `inspect --json` says of a checkpoint, but for its place."""
    done = command("inspect", "model.nb", "--words", "1000", "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"path": None, "sections": sorted(found["sections"], key=str)}


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.parametrize("name", STREAMS)
def test_statistics_are_exact_when_the_daemon_is_killed_twice(
    name: str, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """20,000 messages, two partitions, two SIGKILLs: the state is an undisturbed run's."""
    topic = new_topic(PARTITIONS)
    values = list(STREAMS[name]())
    logs = [values[number::PARTITIONS] for number in range(PARTITIONS)]
    third = N // PARTITIONS // 3

    def write(begin: int, end: int | None) -> None:
        for number, log in enumerate(logs):
            fill(broker.address, topic, log[begin:end], number)

    def config(run: str) -> Path:
        kafka = {"group_id": f"{topic}-{run}", "max_poll_messages": 100, "session_timeout_s": 6}
        return write_config(
            tmp_path / f"{run}.yaml",
            **example(
                name,
                source=f"kafka://{broker.address}/{topic}",
                kafka=kafka,
                checkpoint={"folder": run, "interval_s": 0.02},
            ),
        )

    disturbed = config("disturbed")
    file = tmp_path / "disturbed" / "model.nb"
    positions_at_death = [0]
    for life in (0, 1):  # each finds something new, however far the one before came
        write(life * third, (life + 1) * third)
        with Daemon(disturbed) as daemon:
            daemon.until_metric("streamnb_messages_total", third / 2)
            # The first checkpoints only say where each partition begins.
            daemon.until(lambda: saved(file) > positions_at_death[-1], "a checkpoint of the new")
            daemon.kill()
        positions_at_death.append(saved(file))
    assert positions_at_death[1] < positions_at_death[2] < N
    write(2 * third, None)
    with Daemon(disturbed, "--until-end") as daemon:
        assert daemon.wait() == 0
        assert daemon.summary["messages"] == N - positions_at_death[2]
        assert daemon.summary["rejected"] == {}
    with Daemon(config("whole"), "--until-end") as daemon:
        assert daemon.wait() == 0
        assert daemon.summary["messages"] == N
        assert daemon.summary["accuracy"] > ACCURACY_MIN[name]
    assert state_at(tmp_path / "disturbed") == state_at(tmp_path / "whole")
    assert inspected(tmp_path / "disturbed") == inspected(tmp_path / "whole")
    models = [read(tmp_path / run / "model.nb").model for run in ("disturbed", "whole")]
    messages = [json.loads(value) for value in values[:50]]
    for model in models:
        model_answers = [model.predict_log_proba_one(message) for message in messages]
        assert model_answers == [models[0].predict_log_proba_one(message) for message in messages]
    assert np.isfinite(list(models[0].predict_log_proba_one(messages[0]).values())).all()


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 700), min_size=1, max_size=4))
def test_made_up_loans_can_be_cut_anywhere(tmp_path: Path, lengths: list[int]) -> None:
    """Runs that follow each other end with the state of one run, for fields of all kinds."""
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    sections = example("loan", generator={"stream": "loans", "rate_per_s": 0.0})
    del sections["checkpoint"]
    for n in lengths:
        run_on(tmp_path / "state" / "cut", n=n, **sections)
    run_on(tmp_path / "state" / "whole", n=sum(lengths), **sections)
    assert state_at(tmp_path / "state" / "cut") == state_at(tmp_path / "state" / "whole")


def test_numbers_are_learned_by_their_bins(tmp_path: Path) -> None:
    """Deletes take a number out of its bin again, and a question has it as a number too."""
    log = [{"id": f"m{i}", "age": 13.5 * (i % 7), "label": "ab"[i % 7 > 3]} for i in range(140)]
    more: list[dict[str, Any]] = [{"id": f"m{i}", "operation": "delete"} for i in range(30)]
    more += [{"id": "none", "age": None, "label": "a"}, {"id": "text", "age": "x", "label": "a"}]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in [*log, *more]))
    features = {"age": {"kind": "categories", "bins": [18, 65]}}
    model = {"classes": ["a", "b"], "hash_key": KEY, "features": features}
    labels = {"kind": "field", "mapping": {"a": "a", "b": "b"}}
    summary = replay(tmp_path / "state", source, model=model, labels=labels)
    assert summary.rejected == {"wrong_type": 1}
    plain = NaiveBayes(["a", "b"], features={"age": Categories(fields=["age"], bins=[18, 65])})
    kept = [*log[30:], more[-2]]
    ages, truth = ([each[key] for each in kept] for key in ("age", "label"))
    plain.learn_many({"age": ages}, truth)
    assert read(tmp_path / "state" / "model.nb").model.digest() == plain.digest()
    done = command(
        "predict", "--model", "model.nb", "--set", "age=17.5", "--json", folder=tmp_path / "state"
    )
    said = json.loads(done.stdout)
    said = said[0] if isinstance(said, list) else said
    assert said["probabilities"] == plain.without_prior().predict_proba_one({"age": 17.5})


def test_wrong_fields_are_rejected_and_teach_nothing(tmp_path: Path) -> None:
    """A value of another kind rejects its message; the state is that of the others alone."""
    good = list(LoanMaker(GeneratorSettings(stream="loans")).make(0, 300))
    wrong = [
        {"amount": "much"}, {"amount": 1e61}, {"age": True}, {"missed_payments": 2},
        {"stable_job": "yes"}, {"score": {}}, {"income": ["low"]}, {"income": "a\0"},
    ]  # fmt: skip
    bad = [json.dumps(json.loads(good[0]) | each).encode() for each in wrong]
    paths = {"clean": good, "mixed": [x for k, v in enumerate(good) for x in (v, *bad[k : k + 1])]}
    summaries = {}
    for name, values in paths.items():
        path = tmp_path / name / "in.jsonl"
        path.parent.mkdir()
        path.write_bytes(b"\n".join(values) + b"\n")
        sections = example("loan", source=f"file:{path}")
        del sections["checkpoint"]
        summaries[name] = run_on(tmp_path / name / "state", **sections)
    assert summaries["clean"].rejected == {}
    assert summaries["mixed"].rejected == {"wrong_type": 7, "null_bytes": 1}
    states = [state_at(tmp_path / name / "state") for name in paths]
    for state in states:
        for section in state["sections"].values():
            del section["header"]["position"]
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"fields": ["amount"]}, "model.features.figures.fields"),
        ({"prior": "floor"}, "model.features.figures.prior:"),
        ({"prior_kappa": 2.0}, "model.features.figures.prior_kappa:"),
        ({"variance": "shared"}, "model.features.figures.variance:"),
    ],
)
def test_a_checkpoint_of_other_fields_is_refused(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Other fields or another prior are another model, and the error says what differs."""
    sections = example("loan", generator={"stream": "loans", "rate_per_s": 0.0})
    del sections["checkpoint"]
    run_on(tmp_path / "state", n=10, **sections)
    sections["model"]["features"]["figures"] |= changed
    with pytest.raises(MismatchError, match=re.escape(said)):
        run_on(tmp_path / "state", n=10, **sections)


@pytest.mark.parametrize(
    "name",
    [
        "shuttle",
        *(pytest.param(each, marks=pytest.mark.deep) for each in STREAMS if each != "shuttle"),
    ],
)
def test_a_recorded_file_is_learned(name: str, tmp_path: Path) -> None:
    """An example configuration runs as it is, over a file; the answers are good."""
    (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(STREAMS[name]()) + b"\n")
    config = write_config(tmp_path / "config.yaml", **example(name, source=f"file:{name}.jsonl"))
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
        summary = daemon.summary
    assert summary["messages"] == N
    assert summary["rejected"] == {}
    assert summary["learned"] + summary["judged"] == N
    assert summary["accuracy"] > ACCURACY_MIN[name]
    assert summary["positions"] == {
        f"file:{name}.jsonl[0]": sum(len(v) + 1 for v in STREAMS[name]())
    }
