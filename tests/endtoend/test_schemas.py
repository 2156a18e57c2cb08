"""Messages of every format by way of a broker; a registry, where one is asked, is down at first."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.monitoring.status import Summary
from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import Daemon, command, write_config
from tests.endtoend.expected_counts import Example, counts_at, counts_of, examples
from tests.endtoend.test_restart_laws import NoView
from tests.schema_registry import RegistryServer, framed

NewTopic = Callable[..., str]
PASSWORD = "marked-password-of-the-registry"
FIRST = {"type": "record", "name": "Post", "fields": [
    {"name": "id", "type": "string"}, {"name": "text", "type": "string"},
    {"name": "label", "type": ["null", "string"]}]}  # fmt: skip
SECOND = {**FIRST, "fields": [{"name": "likes", "type": "long"}, *reversed(FIRST["fields"])]}
PROTO = 'syntax = "proto3"; import "by.proto"; message Post { string id = 1; string text = 2; %s }'
LABEL = "optional string label = 3; By by = 4;"


def of_avro(found: Sequence[Example]) -> list[bytes]:
    """Return examples as a producer writes them that gets a new schema on its way."""
    made = []
    for i, (text, label) in enumerate(found):
        schema: Any = FIRST if i < len(found) // 2 else SECOND
        file = io.BytesIO()
        value = {"id": f"m{i}", "text": text, "label": label, "likes": i}
        fastavro.schemaless_writer(file, schema, value)
        made.append(framed(1 if schema is FIRST else 2, file.getvalue()))
    return made


def of_protobuf(found: Sequence[Example], folder: Path) -> list[bytes]:
    """Return examples as Google's own library writes them."""
    (folder / "post.proto").write_text(PROTO % LABEL)
    (folder / "by.proto").write_text('syntax = "proto3"; message By { string name = 1; }')
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
    subprocess.run([*protoc, f"--descriptor_set_out={folder}/set", "post.proto"], check=True)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString((folder / "set").read_bytes()).file:
        pool.Add(file)
    post = message_factory.GetMessageClass(pool.FindMessageTypeByName("Post"))
    made = [
        post(id=f"m{i}", text=text, label=label, by={"name": "ann"})
        for i, (text, label) in enumerate(found)
    ]
    return [framed(1, each.SerializeToString(), b"\0") for each in made]


def registered(kind: str, registry: RegistryServer) -> None:
    """Register what the producers' messages are written by."""
    if kind == "avro":
        registry.register(1, json.dumps(FIRST))
        registry.register(2, json.dumps(SECOND))
        return
    by = 'syntax = "proto3"; message By { string name = 1; }'
    registry.register(7, by, "PROTOBUF", subject="by-value")
    registry.register(1, PROTO % LABEL, "PROTOBUF", [("by.proto", "by-value", 1)])


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_messages_of_a_schema(
    kind: str, broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """What producers wrote is learned exactly, whatever the registry does meanwhile.

    While it is down the daemon waits and says so; what cannot be read is kept with its bytes; a
    daemon that is killed goes on where it was; `predict` reads the same messages; and the
    registry's password is told nowhere.
    """
    topic, found = new_topic(), examples(300)
    good = of_avro(found) if kind == "avro" else of_protobuf(found, tmp_path)
    bad = {"no_schema": framed(99, b"\0"), "malformed": good[0][:-1]}
    sent = [*good[:100], bad["no_schema"], *good[100:150], bad["malformed"], *good[150:200]]
    fill(broker.address, topic, sent)
    rejects = tmp_path / "rejects.jsonl"
    with RegistryServer() as registry:
        registry.status = 503
        path = write_config(
            tmp_path / "config.yaml",
            source=f"kafka://{broker.address}/{topic}",
            kafka={"group_id": topic},
            message={
                "format": kind,
                "registry": {
                    "url": registry.url, "user": "reader", "password": "${REGISTRY_PASSWORD}",
                    "retry_pause_max_s": 0.2, "unknown_timeout_s": 0.5,
                },
            },
            checkpoint={"folder": "state", "interval_s": 0.2},
            rejects={"to": f"file:{rejects}"},
        )  # fmt: skip
        env = {"REGISTRY_PASSWORD": PASSWORD}

        def is_saved(n: int) -> bool:
            file = tmp_path / "state" / "model.nb"
            return file.exists() and read(file).positions == {f"{topic}/0": n}

        with Daemon(path, env=env) as daemon:
            told = json.dumps(daemon.until_page("/readyz", 503, "schema registry"))
            assert daemon.metric("streamnb_messages_total") == 0
            registered(kind, registry)
            registry.status = None
            daemon.until(lambda: is_saved(len(sent)), "a checkpoint behind them")
            daemon.until_page("/readyz", 200)
            told += json.dumps(daemon.lines) + daemon.get("/metrics")[1]
            daemon.kill()
        assert counts_at(tmp_path / "state") == counts_of(found[:200])
        fill(broker.address, topic, good[200:])
        with Daemon(path, env=env) as daemon:
            daemon.until(lambda: is_saved(len(sent) + 100), "a checkpoint behind the rest")
            told += json.dumps(daemon.lines)
        shown = command("check-config", "--config", path, folder=tmp_path, env=env)
        asked = ("predict", "--config", path, "--source", f"kafka://{broker.address}/{topic}")
        judged = command(*asked, folder=tmp_path, env=env)
        basic = base64.b64encode(f"reader:{PASSWORD}".encode()).decode()
        assert set(registry.logins) == {f"Basic {basic}"}
    assert counts_at(tmp_path / "state") == counts_of(found)
    lines = [json.loads(line) for line in rejects.read_text().splitlines()]
    kept = {(each["reason"], base64.b64decode(each["value_base64"])) for each in lines}
    assert kept == {("no_schema", bad["no_schema"]), ("malformed", bad["malformed"])}
    answers = [json.loads(line) for line in judged.stdout.splitlines()]
    assert [each["text"] for each in answers if "label" in each] == [text for text, _ in found]
    assert {each["reason"] for each in answers if "reason" in each} == bad.keys()
    for text in (told, str(shown), str(judged), rejects.read_text()):
        assert PASSWORD not in text
        assert basic not in text


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.parametrize("kind", ["text", "json-schema"])
def test_messages_that_need_no_registry(
    kind: str, broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Texts alone, with keys as ids, and JSON in a frame teach what JSON lines of them teach."""
    topic, signs = new_topic(), {"positive": ":)", "negative": ":("}
    texts = [f"{text} {signs[label]}" for text, label in examples(300)]
    lines = [json.dumps({"text": text, "key": f"{i}"}).encode() for i, text in enumerate(texts)]
    sent = [each.encode() for each in texts]
    if kind == "json-schema":
        sent = [*(framed(9, line) for line in lines), b'{"text": "no frame :)"}']
    fill(broker.address, topic, sent)
    (tmp_path / "lines.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def learned(name: str, source: str) -> Summary:
        settings = {
            "source": source,
            "kafka": {"group_id": topic},
            "message": {"format": name, "id": "key"},
            "labels": {"kind": "emoticons"},
            "http": {"enabled": False},
            "checkpoint": {"folder": tmp_path / name},
        }
        return run(Settings.model_validate(settings), NoView(), until_end=True)

    summary = learned(kind, f"kafka://{broker.address}/{topic}")
    assert summary.learned == learned("json", f"file:{tmp_path / 'lines.jsonl'}").learned == 300
    assert counts_at(tmp_path / kind) == counts_at(tmp_path / "json")
    assert dict(summary.rejected) == ({} if kind == "text" else {"malformed": 1})
