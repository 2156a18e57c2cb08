"""The table of queues and caches, held to a daemon that runs and to the code's own limits."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import BaseModel

from consumers.config.message import RegistrySettings, TeacherSettings
from consumers.config.settings import Settings
from consumers.corrections import model, service, teacher
from consumers.decode.schemas import FramedPayloads
from consumers.http import connection, requests, threads
from consumers.kafka import producers, transactions
from consumers.kernels.learned_records import CREATED
from consumers.monitoring import logs
from consumers.pipeline import learned_memory, reader
from consumers.pipeline.learned_records import pack
from consumers.pipeline.waiting_messages import texts_of
from consumers.process import cache_fills
from consumers.search import chunks, live_query, live_updater, sampler, writer
from consumers.sinks import jsonl
from tests.endtoend.daemon_process import Daemon, write_config
from tests.tweets import some_tweets

GUIDE = Path(__file__).parents[2] / "docs" / "architecture.md"
# The limits that a row names, in their order, by how the row begins.
LIMITS: dict[str, tuple[int, ...]] = {
    "decoded batches": (reader.BATCHES_MAX, reader.BYTES_MAX),
    "what a client library": (),
    "batches and requests": (),
    "records for a topic": (producers.PENDING_RECORDS_MAX, producers.PENDING_BYTES_MAX),
    "lines for a file": (jsonl._WRITE_BYTES,),
    "checkpoints": (),
    "sealed segments": (learned_memory.WAITING_MAX, learned_memory.MAPPED_MAX),
    "what messages taught": (),
    "corrections read back": (model.WAITING_MAX,),
    "messages to be labelled": (teacher.WAITING_MAX,),
    "what a teacher": (),
    "corrections taken": (service.UNREAD_MAX,),
    "messages before the store": (sampler.BYTES_MAX,),
    "messages to be counted": (writer._EARLY_MAX, 17),
    "labels that came late": (),
    "changes of recent messages": (writer.DELETIONS_MAX, writer.DELETIONS_MAX),
    "deletions to be erased": (100,),
    "values of fields that": (chunks._FIELDS_MAX, 9, 36 << 20, 1_000_000),
    "values of fields as": (chunks.NOTED_MAX, 9, chunks.SCANNED_MAX),
    "what sampled rows weigh": (8, 8 << 20, 1_000_000),
    "rows and changes": (
        live_updater.ROWS_MAX, live_updater.ROW_BYTES_MAX, live_updater.BUFFERED_CHANGES_MAX,
    ),
    "alerts that are shown": (live_updater.ALERTS_KEPT, live_updater.UNDELIVERED_MAX),
    "mail of one page": (live_query.CHANGES_MAX,),
    "pages and their queries": (
        live_query.PAGES_MAX, live_query.PAGES_A_CLIENT_MAX, live_query.QUERIES_MAX,
        live_query.QUERIES_A_CLIENT_MAX,
    ),
    "HTTP connections": (
        requests.HELD_BYTES_MAX, requests.HELD_BYTES_MAX, connection.UNTAKEN_BYTES_MAX,
        threads.THREADS + threads.WAITING_MAX, connection.PIPELINED_MAX,
    ),
    "versions of the model": (
        threads.VERSIONS_MIN, threads.VERSIONS_MAX, threads.VERSIONS_BYTES_MAX,
    ),
    "log lines": (logs.HELD_LINES_MAX,),
    "words, categories": (),
    "figures of the newest": (),
    "schemas of a registry": (),
    "times and days": (4_096, 256, 4_096, 256, 32, 64, 4),
}  # fmt: skip


def rows() -> list[list[str]]:
    """Return the cells of each row of the table."""
    text = GUIDE.read_text(encoding="utf-8")
    table = text.partition("## Queues and caches")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [line.strip("| ").split(" | ") for line in lines]


def key_of(row: list[str]) -> str:
    """Return the entry of `LIMITS` that is about a row."""
    (found,) = [key for key in LIMITS if row[0].startswith(key)]
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a cell, in bytes where they are megabytes."""
    bare = re.sub(r"`[^`]*`", "", text).replace("four fields", "4 fields")
    found = re.findall(r"\b(\d[\d,]*)\b(?: (MB)\b)?", bare)
    return tuple(int(number.replace(",", "")) << (20 if unit else 0) for number, unit in found)


def kinds_in(annotation: Any) -> list[Any]:
    """Return the types that an annotation is made of, such as the models of a union."""
    parts = get_args(annotation)
    return [kind for each in parts for kind in kinds_in(each)] if parts else [annotation]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the metrics of a daemon with nearly all that has a queue or a cache."""
    folder = tmp_path_factory.mktemp("queues")
    lines = [json.dumps({"id": f"m{i}", "text": "sun", "label": 4, "kind": "a"}) for i in range(9)]
    (folder / "in.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    config = write_config(
        folder / "config.yaml",
        source="file:in.jsonl",
        message={"ignore": {"kind": ["b"]}},
        alerts={"queries": [""], "webhook": "${WEBHOOK}"},
        labels={"teacher": {"url": "http://127.0.0.1:9/", "budget_per_s": 1}},
        checkpoint={"folder": "state"},
    )
    with Daemon(config, env={"WEBHOOK": "http://127.0.0.1:9/"}) as daemon:
        daemon.until_metric("streamnb_messages_total", len(lines))
        # It comes with the store's file.
        last = 'cache="searched_fields"'
        daemon.until(lambda: last in daemon.get("/metrics")[1], "all caches are there")
        yield daemon.get("/metrics")[1]
        assert daemon.stop() == 0


def test_each_limit_is_that_of_the_code() -> None:
    """Each row names the limits that the code has, and no other; each has a row."""
    found = rows()
    assert sorted(map(key_of, found)) == sorted(LIMITS)
    for row in found:
        assert numbers(row[1]) == LIMITS[key_of(row)], row
    assert transactions.PENDING_RECORDS_MAX == producers.PENDING_RECORDS_MAX
    assert transactions.PENDING_BYTES_MAX == producers.PENDING_BYTES_MAX


@pytest.mark.data
def test_what_messages_taught_is_as_large_as_the_guides_say(data_folder: Path) -> None:
    """They give the bytes of a recorded tweet; as on Twitter then, its id has ten digits."""
    tweets = some_tweets(data_folder, 20_000)
    texts = texts_of([each.text.encode() for each in tweets]).texts
    ids = texts_of([b"%010d" % k for k in range(len(tweets))]).texts
    at, labels = np.arange(len(tweets), dtype=np.int64), np.zeros(len(tweets), np.int32)
    chunk = pack(at, labels, np.full(len(tweets), CREATED, np.uint8), ids, [texts])
    said = re.findall(
        r"(\d+) bytes of (?:disk each for|the folder a message)"
        r"|of a partition, about (\d+) bytes each",
        "".join(
            (GUIDE.parent / name).read_text(encoding="utf-8")
            for name in ("configuration.md", "scale.md")
        ),
    )
    assert len(said) == 3
    for one, other in said:
        assert abs(int(one or other) - len(chunk) / len(tweets)) < 3


def test_each_setting_named_is_one() -> None:
    """A limit that can be set is named as the configuration names it."""
    for row in rows():
        for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", row[1]):
            of: list[Any] = [Settings]
            for part in name.split("."):
                models = [each for each in of if isinstance(each, type(BaseModel))]
                found = [m.model_fields[part].annotation for m in models if part in m.model_fields]
                assert found, name
                of = [kind for each in found for kind in kinds_in(each)]


def test_each_metric_is_that_of_a_daemon(page: str) -> None:
    """What the table names is exported, and so is the limit where a queue has a metric of it."""
    exported = set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))
    for row in rows():
        assert set(re.findall(r"`((?:streamnb|process)_\w+)", row[3])) <= exported, row
    limit = re.search(r"^streamnb_predictor_queue_limit_batches (\S+)$", page, re.MULTILINE)
    assert limit is not None
    assert float(limit[1]) == Settings().predictor.queue_size_max


def test_each_cache_shows_the_limit_of_the_table(page: str) -> None:
    """Each cache of a daemon stands in the table, with the limit that its metric says."""
    limits = dict(
        re.findall(r'^streamnb_cache_limit_entries\{cache="(\w+)"\} (\S+)$', page, re.MULTILINE)
    )
    registry = RegistrySettings(url="http://127.0.0.1:9")
    framed = FramedPayloads("avro", registry, time.monotonic)  # these two are in no such daemon
    held = logs.HeldLines(io.StringIO())
    limits |= {name: cache_fills()[name][1] for name in ("schemas", "log_lines")}
    del framed, held
    named: dict[str, list[int]] = {}
    for row in rows():
        single = re.findall(r'cache="(\w+)"', row[3])
        several = re.findall(r"`(\w+)`", row[3].partition("`streamnb_cache_entries`:")[2])
        bounds = list(numbers(row[1]))
        named |= dict.fromkeys(single, bounds)
        named |= {name: [bound] for name, bound in zip(several, bounds, strict=False)}
    assert named.keys() == limits.keys()
    named["schemas"] = [registry.schemas_max]
    named["teacher_answers"] = [TeacherSettings.model_fields["cache_size"].default]
    conditions = float(limits.pop("conditions"))  # each has as many, and all are added up
    assert conditions % named.pop("conditions")[0] == 0 < conditions
    for name, bounds in named.items():
        assert float(limits[name]) in bounds, name
