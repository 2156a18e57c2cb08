"""Each queue and cache at its bound: which tests fill it, and the fills that no other file has."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import random
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from consumers.config.sections import AlertSettings, HttpSettings
from consumers.corrections import model
from consumers.decode import fields
from consumers.http import requests, threads
from consumers.monitoring.logs import HELD_LINES_MAX, HeldLines
from consumers.monitoring.metrics import Metrics, watch_process
from consumers.monitoring.status import Status
from consumers.pipeline import learned_memory
from consumers.process import cache_fills
from consumers.search import chunks, database, writer
from consumers.search import rows as chunk_rows
from consumers.search.live_updater import ALERTS_KEPT, UNDELIVERED_MAX, ShareAlert, ShareAlerts
from consumers.search.store import RecentStore
from consumers.web_request import RequestError
from streamnb.testing import ManualClock
from tests.broker.broker import Broker
from tests.consumers.corrections.stepped_daemon import STREAM, Life, Store
from tests.consumers.decode.test_schemas import POST, Time, decoder_of, post
from tests.consumers.http.loopback_server import (
    app_state,
    connected,
    said,
    served,
    settings,
    status_of,
)
from tests.consumers.kafka.topics import Reader, fill
from tests.consumers.pipeline.revised_log import Run, Said
from tests.consumers.raw_batches import raw
from tests.consumers.search.stores import (
    CLASSES,
    SETTINGS,
    Clock,
    running,
    stream_shares,
    tell,
    tweets,
)
from tests.consumers.search.test_chunks import add
from tests.consumers.search.test_comparison import BEGIN_S
from tests.consumers.test_replica_versions import of_many_words, teach
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import examples
from tests.endtoend.test_queues_and_caches import key_of, rows
from tests.schema_registry import RegistryServer
from tests.system_calls import Call, hooked

DEEP = pytest.mark.deep
TESTS = Path(__file__).parents[1]
# The tests that fill what a row is about and see what it does then, by how the row begins.
SHOWN_BY: dict[str, tuple[str, ...]] = {
    "decoded batches": (
        "consumers/pipeline/test_batch_queue.py::test_it_is_bounded_by_number",
        "consumers/pipeline/test_batch_queue.py::test_it_is_bounded_by_bytes_but_for_one_batch",
        "consumers/pipeline/test_reader.py::test_a_reader_that_waits_for_room_is_not_stuck",
        "endtoend/test_queues_at_their_bounds.py::test_a_full_queue_holds_the_source",
    ),
    "what a client library": (
        "endtoend/test_queues_at_their_bounds.py::test_a_client_that_is_not_polled_asks_for_no_more",
    ),
    "batches and requests": (
        "library/serving/test_predictor.py::test_the_queue_is_bounded",
        "consumers/http/test_overload.py::test_a_full_queue_is_told_at_once",
        "endtoend/test_queues_at_their_bounds.py::test_a_full_queue_holds_the_source",
    ),
    "records for a topic": (
        "consumers/kafka/test_sink.py::test_what_is_owed_is_bounded",
        "consumers/kafka/test_sink.py::test_keys_and_headers_count_among_what_waits",
        "consumers/kafka/test_transactions.py::test_a_dead_broker_costs_nothing_but_time",
        "endtoend/test_broker_outage.py::test_predictions_wait_for_a_broker_that_is_away",
    ),
    "lines for a file": (
        "endtoend/test_outputs.py::test_an_output_without_room_holds_the_stream",
    ),
    "checkpoints": (
        "consumers/pipeline/test_loop.py::test_learning_goes_on_while_a_checkpoint_is_made",
    ),
    "sealed segments": (
        "endtoend/test_queues_at_their_bounds.py::test_a_slow_disk_holds_who_learns",
        "consumers/pipeline/test_revision.py::test_what_the_disk_refuses_is_held_and_told",
        "consumers/pipeline/test_revision.py::test_few_files_are_held_open",
    ),
    "what messages taught": (
        "consumers/pipeline/test_revision.py::test_what_is_older_than_the_memory_is_not_taken_back",
    ),
    "corrections read back": (
        "endtoend/test_queues_at_their_bounds.py::test_corrections_beyond_the_bound_stay_in_their_log",
    ),
    "messages to be labelled": (
        "consumers/corrections/test_teacher.py::test_the_budget_bounds_what_is_asked",
    ),
    "what a teacher": ("consumers/corrections/test_teacher.py::test_a_text_is_asked_once",),
    "corrections taken": (
        "consumers/corrections/test_service.py::test_corrections_that_are_not_read_back_are_bounded",
    ),
    "messages before the store": (
        "consumers/search/test_sampler.py::test_a_full_queue_takes_no_more",
    ),
    "messages to be counted": (
        "consumers/search/test_history.py::test_messages_beyond_those_that_may_wait_are_told_of",
        "endtoend/test_queues_at_their_bounds.py::test_a_full_cache_shows_its_bound",
    ),
    "labels that came late": (
        "consumers/search/test_faults.py::test_late_labels_do_not_gather_on_a_full_disk",
    ),
    "changes of recent messages": (
        "consumers/search/test_faults.py::test_deletions_do_not_gather_on_a_full_disk",
        "consumers/search/test_faults.py::test_a_file_goes_for_deletions_that_could_not_wait_for_it",
        "consumers/search/test_faults.py::test_deletions_of_accounts_are_bounded_too",
    ),
    "deletions to be erased": (
        "consumers/pipeline/test_erasure.py::test_a_disk_that_fails_at_any_call_leaves_it_to_the_next_pass",
        "consumers/pipeline/test_erasure.py::test_an_output_that_fails_keeps_no_other_file_from_erasure",
    ),
    "values of fields as": (
        "endtoend/test_queues_at_their_bounds.py::test_old_chunks_let_go_of_what_was_noted",
    ),
    "values of fields that": (
        "endtoend/test_queues_at_their_bounds.py::test_values_of_few_fields_stay",
    ),
    "what sampled rows weigh": (
        "consumers/search/test_store.py::test_it_holds_no_more_than_it_may",
    ),
    "rows and changes": (
        "consumers/search/test_live_queries.py::test_too_much_for_a_tick_is_asked_of_the_store",
    ),
    "alerts that are shown": (
        "endtoend/test_queues_at_their_bounds.py::test_alerts_that_nobody_takes_are_bounded",
    ),
    "mail of one page": (
        "consumers/search/test_live_queries.py::test_a_slow_page_finds_the_newest_state_alone",
    ),
    "pages and their queries": (
        "consumers/search/test_live_queries.py::test_pages_are_bounded",
        "consumers/search/test_live_queries.py::test_queries_are_bounded",
        "consumers/search/test_live_queries.py::test_a_client_has_not_all_queries",
        "consumers/search/test_live_queries.py::test_who_had_no_room_is_watched_once_there_is",
        "consumers/http/test_sse.py::test_pages_of_one_client_are_held_to_the_bound",
    ),
    "HTTP connections": (
        "consumers/http/test_hostile_clients.py::test_there_are_so_many_connections",
        "endtoend/test_queues_at_their_bounds.py::test_bodies_have_a_size_together",
        "consumers/http/test_overload.py::test_texts_that_wait_have_a_size_together",
        "consumers/http/test_slow_clients.py::test_all_clients_together_have_a_bound",
        "consumers/http/test_overload.py::test_tasks_that_wait_have_a_number",
        "consumers/http/test_hostile_clients.py::test_requests_that_wait_have_a_number",
    ),
    "versions of the model": (
        "consumers/test_replica_versions.py::test_large_versions_leave_but_for_four",
        "endtoend/test_queues_at_their_bounds.py::test_a_full_cache_shows_its_bound",
    ),
    "log lines": (
        "consumers/monitoring/test_logs.py::test_held_lines_are_bounded_and_say_so",
        "endtoend/test_queues_at_their_bounds.py::test_a_full_cache_shows_its_bound",
    ),
    "words, categories": (
        "library/features/test_words.py::test_words_that_come_again_start_from_zero",
        "library/features/test_category_bounds.py::test_values_stay_bounded",
        "consumers/test_reporter.py::test_dropped_words_are_counted_once",
        "consumers/test_reporter.py::test_dropped_values_are_counted_once",
    ),
    "figures of the newest": (
        "consumers/monitoring/test_prequential.py::test_it_is_the_plain_mean_however_the_stream_is_cut",
        "consumers/monitoring/test_trends.py::test_it_looks_back_an_hour_at_most",
        "consumers/test_reporter.py::test_history_is_bounded_and_even",
    ),
    "schemas of a registry": (
        "consumers/decode/test_registry.py::test_kept_schemas_are_bounded",
        "endtoend/test_queues_at_their_bounds.py::test_a_full_cache_shows_its_bound",
    ),
    "times and days": (
        "endtoend/test_queues_at_their_bounds.py::test_a_full_cache_shows_its_bound",
    ),
}  # fmt: skip


def test_each_row_has_a_test_that_fills_it() -> None:
    """No row of the table is without one, and each test that is named is there."""
    assert sorted(map(key_of, rows())) == sorted(SHOWN_BY)
    for named in SHOWN_BY.values():
        assert named
        for each in named:
            path, _, test = each.partition("::")
            code = (TESTS / path).read_text(encoding="utf-8")
            assert re.search(rf"^def {test}\(", code, re.MULTILINE), each


# ---- queues whose producer waits ---------------------------------------------------------------


def test_a_full_queue_holds_the_source(tmp_path: Path) -> None:
    """Behind an output without room the predictor's queue fills, and then what is read ahead.

    The daemon is healthy, what waits is within the bounds, and who asks it is answered.
    """
    n, size, limit = 400, 40, 2
    lines = [json.dumps({"id": f"m{i}", "text": f"sun {'word ' * 60}"}) for i in range(n * size)]
    (tmp_path / "in.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    config = write_config(
        tmp_path / "config.yaml",
        source="file:in.jsonl",
        file={"batch_bytes": 1 << 14},
        predictor={"queue_size_max": limit},
        predictions={"to": "file:/dev/full"},
        recent={"enabled": False},
    )
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_predictor_queue_batches", limit)
        daemon.until_metric("streamnb_read_ahead_messages", 3 * size)
        page = daemon.get("/metrics")[1]
        found = dict(re.findall(r"^streamnb_(\w+) (\S+)$", page, re.MULTILINE))
        assert float(found["predictor_queue_batches"]) == limit
        assert float(found["predictor_queue_limit_batches"]) == limit
        assert float(found["read_ahead_messages"]) < n * size / 10
        assert daemon.get("/healthz")[0] == 200
        assert daemon.get("/v1/model")[0] == 200
        assert daemon.stop() == 74


def received(port: int) -> int:
    """Return how many bytes this process has received on open connections to a port."""
    n_bytes = 0
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as each:
            if each.family == socket.AF_INET and each.getpeername()[1] == port:
                info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                n_bytes += int.from_bytes(info[128:136], sys.byteorder)  # tcpi_bytes_received
    return n_bytes


@pytest.mark.integration
@pytest.mark.parametrize(
    ("client", "n_answers"), [("kafka-python", 1), pytest.param("librdkafka", 2, marks=DEEP)]
)
def test_a_client_that_is_not_polled_asks_for_no_more(
    broker: Broker, new_topic: Callable[..., str], client: str, n_answers: int
) -> None:
    """While the reader waits it has fetched little of the log, and the lag says what is left."""
    topic, value, n, fetch = new_topic(), b"x" * 10_000, 3_000, 1 << 20
    port = int(broker.address.rpartition(":")[2])
    fill(broker.address, topic, [value] * n)
    before = received(port)
    sizes: dict[str, Any] = {
        "fetch_max_bytes": fetch,
        "message_max_bytes": fetch,
        "max_poll_messages": 10,
    }
    with Reader(broker.address, topic, client=client, **sizes) as reader:
        reader.until(lambda: reader.n_values > 0)
        for _ in range(20):  # so much time to fetch the rest passes
            fill(broker.address, topic, [b"later"])
        n_read = reader.n_values
        assert fetch // 2 < received(port) - before < n_answers * fetch + 100_000
        assert sum(reader.source.lag().values()) >= n - n_read
        reader.until(lambda: reader.n_values == n + 20)


def test_a_slow_disk_holds_who_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who learns waits for the first segment once four more wait, and nothing is lost."""
    monkeypatch.setattr(learned_memory, "SEGMENT_RECORDS", 4)
    go_on, waiting, result = threading.Event(), list[int](), Future.result
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(40)]
    run = Run(tmp_path)

    def once_told(call: Call, act: Callable[..., Any]) -> Any:
        if call.name in {"open", "write", "fsync"}:
            go_on.wait()
        return act()

    def waited_for(self: Future[Any], timeout: float | None = None) -> Any:
        if not go_on.is_set():
            waiting.append(1 + len(run.memory._waiting))
            go_on.set()
        return result(self, timeout)

    with hooked(tmp_path, once_told), monkeypatch.context() as patched:
        patched.setattr(Future, "result", waited_for)
        try:
            while run.position < len(log):
                run.read(log, run.position + 4)
        finally:
            go_on.set()
    assert waiting == [learned_memory.WAITING_MAX + 1]
    assert run.memory.trouble is None
    run.save()
    registry = CollectorRegistry()
    Metrics(registry).watch(lambda: Status(source="", remembered=run.memory.sizes()))
    assert registry.get_sample_value("streamnb_learned_messages") == 40
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*.records"))
    assert registry.get_sample_value("streamnb_learned_bytes") == stored > 0
    run.memory.close()


def test_corrections_beyond_the_bound_stay_in_their_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading waits while as many as may wait do, and goes on as they are applied."""
    monkeypatch.setattr(model, "WAITING_MAX", 2)
    life = Life(tmp_path, Store(), examples(20))
    life.take(STREAM[0], 10)
    for k in range(0, 10, 2):
        life.corrections.correction_service.delete(f"m{k}")
    told, tell, reading = [0], life.reading._tell, life.reading

    def tell_entry(entry: Any) -> None:
        told[0] += 1
        tell(entry)

    reading._tell = tell_entry
    life.applier.start({})
    try:
        while told[0] < 5 and not reading._changed._waiters:  # type: ignore[attr-defined]
            os.sched_yield()
        assert told[0] == 3  # the third has no place yet
        assert life.registry.get_sample_value("streamnb_corrections_waiting") == 2
        while life.value("delete") != 5:
            assert not life.applier.apply(life.learner, life.positions, life.assigned)
    finally:
        life.applier.close()
    assert life.registry.get_sample_value("streamnb_corrections_waiting") == 0
    assert life.learner.model.n_examples == 5
    life.end()


# ---- caches ------------------------------------------------------------------------------------


def _conditions() -> object:
    condition = fields.Condition("kind", "kind", lambda value: value != "b", absent=True)
    for i in range(5_000):
        condition.accepts_json(b"%d" % i)
    return condition


def _hosts() -> object:
    hosts = requests.AllowedHosts(HttpSettings())
    for i in range(300):
        hosts._known(b"host%d" % i)
    return hosts


def _early_messages() -> object:
    counter = writer.MessageCounter({60: 10})
    for first in range(0, 12, 2):
        told = tweets([{"text": "a"}] * 2, first)
        counter.add(told, np.arange(2), np.log(np.full((2, 2), 0.5)), 0)
    return counter


def _model_versions() -> object:
    source, chance, clock = of_many_words(), random.Random(9), ManualClock()
    encoder = threads.SnapshotEncoder(clock)
    for _ in range(threads.VERSIONS_MAX + 3):
        teach(source, chance)
        clock.advance(60.0)
        encoder.newest(source.learner.snapshot)
    return encoder


def _log_lines() -> object:
    held = HeldLines(io.StringIO())
    for i in range(HELD_LINES_MAX + 5):
        held.write(f"{i}\n")
    return held


def _schemas() -> object:
    with RegistryServer() as registry:
        for name in range(1, 5):
            registry.register(name, json.dumps(POST))
        decoder = decoder_of("avro", registry, Time(), registry={"schemas_max": 2})
        for name in range(1, 5):
            decoder.decode(raw([post(name, "a", schema=name)]))
    return decoder


def _called(function: Callable[..., object], given: Iterable[tuple[Any, ...]]) -> object:
    for each in given:
        function(*each)
    return function


def _times() -> object:
    texts = ((f"2026-01-01T{i // 3600:02d}:{i // 60 % 60:02d}:{i % 60:02d}Z",) for i in range(5000))
    return _called(fields._from_text, texts)


FILLS: dict[str, tuple[int, Callable[[], object]]] = {
    "times": (4_096, _times),
    "days": (256, lambda: _called(
        fields._midnight, (("Apr", "6", "+0000", str(2000 + i)) for i in range(300)))),
    "conditions": (4_096, _conditions),
    "hosts": (256, _hosts),
    "statements": (32, lambda: _called(
        database._insertion, ((1, n, (False,) * 3) for n in range(1, 40)))),
    "example_decoders": (64, lambda: _called(
        chunks._example_decoder, (((f"field{i}",),) for i in range(80)))),
    "answer_types": (4, lambda: _called(
        threads._by_class, ((("a", f"class {i}"),) for i in range(9)))),
    "early_messages": (8, _early_messages),
    "model_versions": (threads.VERSIONS_MAX, _model_versions),
    "log_lines": (HELD_LINES_MAX, _log_lines),
    "schemas": (2, _schemas),
}  # fmt: skip


# Those that each owner has, and are added up.
OWNED = {"conditions", "hosts", "early_messages", "model_versions", "log_lines", "schemas"}


@pytest.mark.parametrize("name", FILLS)
def test_a_full_cache_shows_its_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more than it may hold it holds just that, and so its metrics say."""
    monkeypatch.setattr(writer, "_EARLY_MAX", 8)
    bound, fill = FILLS[name]
    registry = CollectorRegistry()
    watch_process(registry)
    gc.collect()  # owners that other tests left
    before = cache_fills().get(name, (0, 0)) if name in OWNED else (0, 0)
    owner = fill()
    for kind, n_before in zip(("entries", "limit_entries"), before, strict=True):
        found = registry.get_sample_value(f"streamnb_cache_{kind}", {"cache": name})
        assert found == bound + n_before
    del owner


def test_values_of_few_fields_stay() -> None:
    """Those of the fields that were asked for longest ago leave, and are read again."""
    chunk = chunks.Chunk(1, 100, 10)
    add(chunk, [1, 2, 3])
    first = {name: chunk.field_values(name) for name in "abcd"}
    assert chunk.field_values("a") is first["a"]
    chunk.field_values("e")
    assert chunk._fill() == (4, 4)
    assert [chunk.field_values(name) is first[name] for name in "acd"] == [True] * 3
    assert chunk.field_values("b") is not first["b"]
    assert cache_fills()["searched_fields"][0] >= 4


def test_old_chunks_let_go_of_what_was_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sixteen fields values are noted as rows come, until enough newer rows are there."""
    monkeypatch.setattr(chunk_rows, "SCANNED_MAX", 4)
    names = [f"f{i}" for i in range(20)]
    clock = Clock(100.0)
    store = RecentStore(SETTINGS, None, CLASSES, ("text", *names), 0.6, clock, clock)
    store.start()
    tell(store, ["good day"])
    assert store._writer.file is not None
    (newest,) = store._writer.file._chunks
    assert list(newest.noted) == names[:16]
    store.stop()
    made = [chunks.Chunk(number, 100 * number, 10) for number in range(4)]
    noted: dict[str, list[str | None]] = {f"{chunks.OF_FIELD}f0": ["x"] * 3}
    for chunk in made:
        add(chunk, [1, 2, 3], **noted)
    chunk_rows.forget_old_fields(made)
    assert ["f0" in chunk.noted for chunk in made] == [False, False, True, True]
    made[0].field_values("f0")
    assert made[0]._fill() == (1, 4)


def test_alerts_that_nobody_takes_are_bounded() -> None:
    """The oldest go: ten are shown, a hundred wait for the webhook, and its trouble is told."""
    own = AlertSettings(queries=("",), window_s=200, before_s=200, webhook="http://127.0.0.1:9/")
    n = UNDELIVERED_MAX + 5
    with running(None) as store:
        clock = Clock(BEGIN_S)
        alerts = ShareAlerts(store, own, stream_shares, wall_clock=clock)
        found = list[ShareAlert]()
        share = 0.1
        for turn in range(2 * n):
            if len(found) == n:
                break
            share = 1.0 - share
            rows = [
                {"text": f"w{i}", "label": 4 * (i % 10 < 10 * share), "id": f"{turn}/{i}",
                 "created_at": BEGIN_S + 200 * turn + 5 * i}
                for i in range(40)
            ]  # fmt: skip
            tell(store, rows, first=40 * turn)
            clock.now_s = BEGIN_S + 200 * (turn + 1)
            found += alerts.look()
        assert len(found) == n
        assert alerts.newest() == tuple(found[-ALERTS_KEPT:])
        assert list(alerts._undelivered) == found[-UNDELIVERED_MAX:]
        assert cache_fills()["undelivered_alerts"] == (UNDELIVERED_MAX, UNDELIVERED_MAX)
        with pytest.raises(RequestError):
            alerts.deliver()
        assert list(alerts._undelivered) == found[-UNDELIVERED_MAX:]


# ---- HTTP --------------------------------------------------------------------------------------


def test_bodies_have_a_size_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends more than there is room for gets 503, which is counted; then there is room."""
    monkeypatch.setattr(requests, "HELD_BYTES_MAX", 1_000)
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = json.dumps({"text": "a good day " * 60}).encode()
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert 500 < len(body) < 1_000
    with app_state(settings()) as made, served(made) as port:
        with connected(port) as slow:
            slow.sendall(request[:-1])
            answers = (said(port, request) for _ in range(1_000))  # until what it sent is held
            refused = next(each for each in answers if status_of(each) == 503)
            assert b"too many bodies are being sent at once" in refused
            slow.sendall(request[-1:])
            assert status_of(slow.recv(1 << 16)) == 200
        assert status_of(said(port, request)) == 200
        labels = {"route": "/v1/predict", "method": "POST", "status": "503"}
        assert made.registry.get_sample_value("streamnb_http_requests_total", labels) == 1
