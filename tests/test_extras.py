"""Where an extra is not installed, whatever needs it says in one line what to install."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from consumers.process import DAEMON
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import ROOT, write_config
from tests.hidden_packages import run_without

_COMMAND = "from consumers.__main__ import main; main()"
_MODEL = """
import streamnb as nb
model = nb.NaiveBayes(classes=["a", "b"], features={"text": nb.Words(nb.Bernoulli())})
"""
_RECORDED = """
from consumers.testing import recorded_stream
recorded_stream.__wrapped__()("r.gz").messages()
"""
_FILE = ("run", "--source", "file:t.jsonl")
_EVALUATE = ("evaluate", "file:t.jsonl")


@dataclass(frozen=True, slots=True)
class Use:
    """What a user does with an extra: Python code, or a command of `streamnb`."""

    extra: str
    modules: tuple[str, ...]  # those that are hidden from it
    code: str = _COMMAND
    command: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # of config.yaml
    variables: dict[str, str] = field(default_factory=dict)  # of the environment
    goes_on: bool = False  # without the extra


_KAFKA = {"source": "kafka://127.0.0.1:9/t"}
_TRANSACTIONS = {
    **_KAFKA, "kafka": {"transactions": True}, "predictions": {"to": "kafka:p"}
}  # fmt: skip


def _framed(name: str) -> dict[str, Any]:
    return {**_KAFKA, "message": {"format": name, "registry": {"url": "http://127.0.0.1:9"}}}


# What needs each extra of pyproject.toml; a new extra gets its rows here.
USES = [
    Use("daemon", tuple(DAEMON), command=("run",)),
    Use("daemon", ("msgspec",), command=("model", "list")),
    Use("daemon", ("pydantic",), code=_RECORDED),
    Use("river", ("river",), code="import streamnb.river"),
    Use(
        "river", ("river",),
        command=("compare", "file:t.jsonl", "config.yaml", "--peer", "river"),
    ),
    Use("arrow", ("pyarrow",), code=_MODEL + "nb.export_arrow(model, 'arrow')"),
    Use("arrow", ("pyarrow",), code=_MODEL + "nb.to_arrow(model)"),
    Use("sklearn", ("sklearn",), code="import streamnb.sklearn"),
    Use("spark", ("pyspark", "pyarrow", "pandas"), code="import streamnb.spark"),
    Use("spark", ("pyarrow",), code="import streamnb.spark"),
    Use("mlflow", ("mlflow", "pandas"), code=_MODEL + "nb.export_mlflow(model, 'mlflow')"),
    Use("mlflow", ("pandas",), code=_MODEL + "nb.log_mlflow(model, 'mlflow')"),
    Use("codecs", ("lz4", "snappy"), command=("run", "--until-end")),
    Use(
        "librdkafka", ("confluent_kafka",), command=("run",),
        settings={**_KAFKA, "kafka": {"client": "librdkafka"}},
    ),
    Use("librdkafka", ("confluent_kafka",), command=("run",), settings=_TRANSACTIONS),
    Use("avro", ("fastavro",), command=("run",), settings=_framed("avro")),
    Use("protobuf", ("google.protobuf",), command=("run",), settings=_framed("protobuf")),
    Use("protobuf", ("grpc_tools",), command=("run",), settings=_framed("protobuf")),
    Use("live", ("websockets", "h11"), command=("run", "--source", "jetstream")),
    Use("live", ("websockets",), command=("bridge", "jetstream", "--to", "kafka://127.0.0.1:9/t")),
    Use("live", ("h11",), command=("record", "wss://127.0.0.1:9/", "r.gz")),
    Use("evaluation", ("sklearn",), command=_EVALUATE),
    Use(
        "evaluation", ("sklearn",),
        command=("compare", "file:t.jsonl", "config.yaml", "--peer", "sklearn"),
    ),
    Use("plots", ("matplotlib",), command=(*_EVALUATE, "--report", "r.html")),
    Use(
        "tracing", ("opentelemetry",), command=(*_FILE, "--until-end"),
        variables={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, goes_on=True,
    ),
]  # fmt: skip


def extras() -> set[str]:
    """Return the extras of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


def test_every_extra_has_a_row() -> None:
    """A new extra comes with what is said where it is absent."""
    assert {use.extra for use in USES} == extras()


def _check(use: Use, folder: Path, settings: dict[str, Any]) -> None:
    write_config(folder / "config.yaml", **settings)
    (folder / "t.jsonl").write_text('{"id": 1, "text": "x", "label": "positive"}\n', "utf-8")
    code = f"import os; os.chdir({str(folder)!r})\n{use.code}"
    done = run_without(use.modules, code, *use.command, **use.variables)
    lines = done.stderr.splitlines()
    told = [line for line in lines if "pip install" in line]
    if use.code != _COMMAND:  # an exception, below the lines of where it was raised
        told = lines[-1:]
    assert len(told) == 1, done.stderr
    assert f"pip install 'streamnb[{use.extra}]'" in told[0]
    assert (done.returncode == 0) == use.goes_on
    if use.code == _COMMAND and not use.goes_on:
        assert told == lines[-1:]
        assert "Traceback" not in done.stderr


@pytest.mark.deep
@pytest.mark.parametrize(
    "use",
    [
        pytest.param(use, id=f"{use.extra}-{i}")
        for i, use in enumerate(USES)
        if use.extra != "codecs"
    ],
)
def test_without_an_extra_a_line_says_what_to_install(use: Use, tmp_path: Path) -> None:
    """It names the extra; a command says nothing after it, and nothing of where it was."""
    _check(use, tmp_path, use.settings)


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_without_its_codec_a_topic_says_what_to_install(
    codec: str, broker: Broker, tmp_path: Path
) -> None:
    """Only what a topic holds says that its codec is needed."""
    (use,) = (each for each in USES if each.extra == "codecs")
    topic = f"packed-by-{codec}"
    broker.create_topic(topic)
    message = b'{"id": 1, "text": "x", "label": "positive"}'
    fill(broker.address, topic, [message] * 1_000, compression=codec)
    _check(use, tmp_path, {"source": f"kafka://{broker.address}/{topic}"})
