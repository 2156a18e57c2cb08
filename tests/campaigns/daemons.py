"""Kill real daemons and the real broker at random instants, and compare every count."""

from __future__ import annotations

import json
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from streamnb.storage import read
from tests.broker.broker import Broker, missing_parts
from tests.campaigns.campaign import Run
from tests.campaigns.instants import FreshFile
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import PATIENCE_S, Daemon, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, message, messages

N = 20_000
PARTITIONS = 2
KILLS = 5
BROKER_KILLS = 3
CLIENTS = ("kafka-python", "librdkafka")
SHUTDOWN_S = 10.0
EXIT_S = 1.0  # the interpreter's own end behind the summary
STOPPED = (("topic", 2), ("file", 0), ("file", 1), ("topic", 0))  # each how many has a label


def kills(run: Run) -> None:
    """A daemon killed at any instant, amid a checkpoint too, has the counts of one never killed."""
    found = examples(N)
    expected = counts_of(found)
    with started_broker() as broker:
        for chance, folder in run.steps():
            topic = f"kills-{run.step}"
            broker.create_topic(topic, PARTITIONS)
            for number in range(PARTITIONS):
                fill(broker.address, topic, messages(found)[number::PARTITIONS], number)
            client = chance.choice(CLIENTS)
            for life in range(KILLS + 1):
                config = write_config(
                    folder / "config.yaml",
                    source=f"kafka://{broker.address}/{topic}",
                    # Nobody waits for the dead member.
                    kafka={
                        "group_id": f"{topic}-{life}", "max_poll_messages": 200, "client": client,
                    },
                    checkpoint={"folder": "state", "interval_s": 0.05},
                )  # fmt: skip
                if life == KILLS:
                    with Daemon(config, "--until-end") as daemon:
                        assert daemon.wait() == 0, daemon.lines[-3:]
                    break
                fresh = FreshFile(folder / "state")
                with Daemon(config) as daemon:
                    daemon.until(_instant(chance, daemon, fresh), "the kill")
                    daemon.kill()
                run.figures["kills"] += 1
                run.figures["kills amid a checkpoint"] += fresh.is_there()
            positions = read(folder / "state" / "model.nb").positions
            assert sum(positions.values()) == N, positions
            assert counts_at(folder / "state") == expected
            run.figures["messages"] += N


def _instant(chance: random.Random, daemon: Daemon, fresh: FreshFile) -> Callable[[], bool]:
    """Return a condition that some instant of a life fulfils: by time, by messages, by a file."""
    kind = chance.choice(("time", "messages", "checkpoint", "checkpoint"))
    last_s = time.monotonic() + chance.uniform(0, 4 if kind == "time" else 12)
    n = chance.randrange(N)

    def has_come() -> bool:
        if kind == "messages" and daemon.count("serving"):
            return daemon.metric("streamnb_messages_total") >= n or time.monotonic() > last_s
        if kind == "checkpoint" and daemon.count("restored") and fresh.comes():
            return True
        return time.monotonic() > last_s

    return has_come


def broker_kills(run: Run) -> None:
    """A broker killed and restarted under load costs no message, and doubles none."""
    found = examples(N)
    expected = counts_of(found)
    for chance, folder in run.steps():
        with started_broker(folder / "broker") as broker:
            broker.create_topic("stream", PARTITIONS)
            config = write_config(
                folder / "config.yaml",
                source=f"kafka://{broker.address}/stream",
                kafka={
                    "max_poll_messages": 200, "session_timeout_s": 6,
                    "client": chance.choice(CLIENTS),
                },
                checkpoint={"folder": "state", "interval_s": 0.1},
            )  # fmt: skip
            with Daemon(config) as daemon, _written(broker, messages(found)) as written:
                for kill in range(BROKER_KILLS):
                    least = (kill + chance.random()) * N / (BROKER_KILLS + 1)
                    daemon.until_metric("streamnb_messages_total", least)
                    broker.kill()
                    broker.start(broker.port)
                    run.figures["broker kills"] += 1
                daemon.until(written.is_set, "all is written")
                daemon.until_metric("streamnb_messages_total", N)
                assert daemon.metric("streamnb_messages_total") == N
                assert daemon.stop() == 0
        assert counts_at(folder / "state") == expected
        run.figures["messages"] += N


@contextmanager
def _written(broker: Broker, values: list[bytes]) -> Iterator[threading.Event]:
    """Write values piece by piece on a thread, each once whatever happens; set when done."""
    done, gives_up = threading.Event(), threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.timeout.ms": int(PATIENCE_S * 1_000),
            "log_level": 0,
        }
    )

    def write() -> None:
        for i, value in enumerate(values):
            producer.produce("stream", value, partition=i % PARTITIONS)
            if i % 100 == 0:
                producer.poll(0)
                gives_up.wait(0.02)
        if producer.flush(PATIENCE_S) == 0:
            done.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield done
    finally:
        gives_up.set()
        thread.join()


def stops(run: Run) -> None:
    """A daemon told to stop at full rate ends in order and in time, and nothing learned is lost.

    Its stream is a file or a topic, in which all, half or none of the messages have a label.
    """
    found = examples(5 * N)
    with started_broker() as broker:
        topics = set[str]()
        for chance, folder in run.steps():
            kind, labelled = STOPPED[run.step % len(STOPPED)]
            taught = [i for i in range(len(found)) if labelled and i % labelled == 0]
            lines = [message(each, i, labelled=bool(labelled) and i % labelled == 0)
                     for i, each in enumerate(found)]  # fmt: skip
            (folder / "in.jsonl").write_bytes(b"\n".join(lines) + b"\n")
            source = "file:in.jsonl"
            if kind == "topic":
                topic = f"stops-{labelled}"
                source = f"kafka://{broker.address}/{topic}"
                if topic not in topics:
                    topics.add(topic)
                    broker.create_topic(topic, PARTITIONS)
                    for number in range(PARTITIONS):
                        fill(broker.address, topic, lines[number::PARTITIONS], number)
            config = write_config(
                folder / "config.yaml",
                source=source,
                file={"batch_bytes": 1 << 16},
                kafka={
                    "max_poll_messages": 200, "group_id": f"stops-{run.step}",
                    "client": chance.choice(CLIENTS),
                },
                predictions={"to": "file:told.jsonl"},
                checkpoint={"folder": "state", "interval_s": 3600},
                shutdown_timeout_s=SHUTDOWN_S,
            )  # fmt: skip
            with Daemon(config) as daemon:
                daemon.until_metric("streamnb_messages_total", chance.randrange(1, 2 * N))
                by = chance.choice((signal.SIGTERM, signal.SIGINT))
                _stop_in_time(daemon, by, run)
                first = daemon.summary
            stored = read(folder / "state" / "model.nb")
            assert stored.model.n_examples == first["learned"]
            assert sum(stored.positions.values()) > 0
            with Daemon(config, "--until-end") as daemon:
                assert daemon.wait() == 0
                assert first["messages"] + daemon.summary["messages"] == len(found)
            if taught:
                assert counts_at(folder / "state") == counts_of(found[i] for i in taught)
            told = [
                json.loads(line)["id"] for line in (folder / "told.jsonl").read_bytes().splitlines()
            ]
            assert sorted(told) == sorted(
                {f"m{i}" for i in range(len(found))} - {f"m{i}" for i in taught}
            )
            run.figures["stops"] += 1
            run.figures["stops amid the stream"] += first["messages"] < len(found)
            of = {0: "no labels", 1: "labels", 2: "labels for half"}[labelled]
            run.figures[f"of a {kind} with {of}"] += 1


def _stop_in_time(daemon: Daemon, by: signal.Signals, run: Run) -> None:
    """Stop a daemon; its summary comes in time, and behind that Python's own end alone."""
    began_s = time.monotonic()
    daemon.send(by)
    while not daemon.output:
        assert daemon.listen(0.1), daemon.lines[-3:]
    said_s = time.monotonic()
    assert daemon.wait() == 0
    for what, took_s, most_s in (
        ("stop", said_s - began_s, SHUTDOWN_S),
        ("end of a process behind it", time.monotonic() - said_s, EXIT_S),
    ):
        assert took_s <= most_s, (what, took_s)
        name = f"longest {what} in ms"
        run.figures[name] = max(run.figures[name], int(1e3 * took_s))


@contextmanager
def started_broker(folder: Path | None = None) -> Iterator[Broker]:
    """Run a broker of one's own."""
    missing = missing_parts()
    assert missing is None, missing
    with tempfile.TemporaryDirectory(prefix="broker-") as made:
        broker = Broker(folder or Path(made))
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()
