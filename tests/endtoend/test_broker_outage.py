"""The daemon while its broker is away: it says so, waits, loses nothing and can be stopped."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.broker.broker import Broker
from tests.consumers.kafka.topics import Reader, fill
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, message, messages

pytestmark = [
    pytest.mark.integration,
    pytest.mark.deep,
    # The client leaves the sockets of failed attempts to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_a_source_that_is_away_comes_and_goes(own_broker: Broker, tmp_path: Path) -> None:
    """A broker away at the start, or killed in mid-stream, is told once and costs nothing."""
    own_broker.reserve()
    config = write_config(
        tmp_path / "config.yaml",
        source=f"kafka://{own_broker.address}/stream",
        kafka={"max_poll_messages": 50, "session_timeout_s": 6},
        checkpoint={"folder": "state", "interval_s": 0.1},
    )
    with Daemon(config) as daemon:
        page = daemon.until_page("/readyz", 503, "no answer from Kafka at")
        assert page["state"] == "waiting for source"
        assert daemon.get("/healthz")[0] == 200
        daemon.until(lambda: daemon.metric("streamnb_source_up") == 0, "source_up is 0")
        daemon.until_metric("streamnb_snapshot_age_seconds", 3)  # several tries later
        assert daemon.get("/healthz")[0] == 200
        assert daemon.count("source_trouble") == 1
        assert not [line for line in daemon.lines if "Kafka" in str(line.get("event"))]

        own_broker.start()
        own_broker.create_topic("stream", 2)
        daemon.until_page("/readyz", 200)
        for number in (0, 1):
            fill(own_broker.address, "stream", messages(examples(1_000, number * 5_000)), number)
        daemon.until_metric("streamnb_examples_learned_total", 500)
        own_broker.kill()
        daemon.until_page("/readyz", 503, "no answer from Kafka at")
        daemon.until(lambda: daemon.metric("streamnb_source_up") == 0, "source_up is 0")
        assert daemon.get("/healthz")[0] == 200

        own_broker.start()
        for number in (0, 1):
            fill(
                own_broker.address,
                "stream",
                messages(examples(500, number * 5_000 + 1_000)),
                number,
            )
        daemon.until_metric("streamnb_examples_learned_total", 3_000)
        daemon.until_page("/readyz", 200)
        daemon.until_metric("streamnb_source_up", 1)
        daemon.until_metric("streamnb_source_restarts_total", 1)
        assert daemon.count("source_trouble") == daemon.count("source_trouble_over") == 2
        assert daemon.count("kafka_commit_failed") <= 1  # not at every checkpoint
        assert daemon.stop() == 0
        assert daemon.summary["messages"] == 3_000
    assert counts_at(tmp_path / "state") == counts_of([*examples(1_500), *examples(1_500, 5_000)])


@pytest.mark.parametrize("client", ["kafka-python", "librdkafka"])
def test_a_broker_that_stands_still_costs_nothing(
    own_broker: Broker, tmp_path: Path, client: str
) -> None:
    """It keeps its connections and answers nothing for longer than the session; then all come."""
    own_broker.start()
    own_broker.create_topic("stream", 2)
    config = write_config(
        tmp_path / "config.yaml",
        source=f"kafka://{own_broker.address}/stream",
        kafka={
            "client": client, "max_poll_messages": 50, "session_timeout_s": 6,
            "fetch_max_bytes": 65_536, "message_max_bytes": 65_536,
        },
        checkpoint={"folder": "state", "interval_s": 0.1},
    )  # fmt: skip
    begun, first, later = 500, 10_000, 500
    for number in (0, 1):
        values = messages(examples(begun, number * 20_000))
        fill(own_broker.address, "stream", values, number)
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_examples_learned_total", 2 * begun)
        daemon.stand_still()  # else it may read all before the broker stands still
        for number in (0, 1):
            values = messages(examples(first - begun, number * 20_000 + begun))
            fill(own_broker.address, "stream", values, number)
        with own_broker.standing_still():
            daemon.send(signal.SIGCONT)
            daemon.until_metric("streamnb_snapshot_age_seconds", 20)
            assert daemon.get("/healthz")[0] == 200
            assert daemon.metric("streamnb_examples_learned_total") < 2 * first
        for number in (0, 1):
            values = messages(examples(later, number * 20_000 + first))
            fill(own_broker.address, "stream", values, number)
        n = 2 * (first + later)
        daemon.until_metric("streamnb_examples_learned_total", n)
        assert daemon.stop() == 0
        assert daemon.summary["messages"] == n
    found = [*examples(first + later), *examples(first + later, 20_000)]
    assert counts_at(tmp_path / "state") == counts_of(found)


def test_predictions_wait_for_a_broker_that_is_away(own_broker: Broker, tmp_path: Path) -> None:
    """While nobody takes the predictions no checkpoint passes over them; run again, all come."""
    own_broker.reserve()
    n = 200
    values = [message(example, i, labelled=i < n) for i, example in enumerate(examples(2 * n))]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(values) + b"\n")
    config = write_config(
        tmp_path / "config.yaml",
        source="file:in.jsonl",
        kafka={"servers": [own_broker.address]},
        predictions={"to": "kafka:predictions"},
        checkpoint={"folder": "state", "interval_s": 0.1},
    )
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", 2 * n)
        assert daemon.get("/healthz")[0] == 200
        # The checkpoint that now waits is given up, for it is told to stop meanwhile.
        assert daemon.stop() == 74
        assert daemon.count("records_not_written") == 1
        assert daemon.output == b""
    assert not (tmp_path / "state" / "model.nb").exists()

    with Daemon(config, "--until-end") as daemon:
        daemon.until_metric("streamnb_messages_total", 2 * n)
        own_broker.start()
        own_broker.create_topic("predictions", 2)
        assert daemon.wait() == 0
        assert daemon.summary["judged"] == n
    assert counts_at(tmp_path / "state") == counts_of(examples(n))
    with Reader(own_broker.address, "predictions") as reader:
        reader.until(lambda: reader.n_values >= n)
        found = [json.loads(value or b"") for values in reader.values.values() for value in values]
        assert {line["id"] for line in found} == {f"m{i}" for i in range(n, 2 * n)}
