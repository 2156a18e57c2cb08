"""The whole daemon on a real broker, beside clients that only drain the same topic.

A million JSON tweets of about 300 bytes in two partitions; the daemon reads, decodes, judges and
learns all of them, publishes ten snapshots a second and writes a checkpoint each five seconds. The
two clients do nothing with what they get. Broker and client share this machine's cores. The daemon
runs as it does by default, with page, store and corrections: without the hybrid, once more on the
other client, and with the model that it has by default.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.alternate import alternate
from benchmarks.daemon_run import DEFAULT, PAIRS, UNIGRAMS, Run, run_daemon
from benchmarks.kafka_drain import drained
from benchmarks.kafka_topics import PARTITIONS, fill, messages, running_broker
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

MESSAGES = 1_000_000
TURNS = 5
_DRAINS = {
    "kafka-python, draining only": "kafka_python",
    "confluent-kafka, draining only": "confluent",
    "our source, draining only": "columns",
}
_DAEMONS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "daemon, unigrams": (UNIGRAMS, {}),
    "daemon, pairs and negation": (PAIRS, {}),
    "daemon, default model": (DEFAULT, {}),
    "daemon, unigrams, client: librdkafka": (UNIGRAMS, {"kafka": {"client": "librdkafka"}}),
}


def kafka_daemon(tweets: Tweets, show: Show) -> Result:
    """Learn a topic with three models, one of them the default, and drain it with three clients."""
    with running_broker() as broker:
        broker.create_topic("tweets", PARTITIONS)
        fill(broker.address, "tweets", messages(tweets, MESSAGES))
        runs: dict[str, list[Run]] = {name: [] for name in _DAEMONS}
        timed: dict[str, Callable[[], float]] = {
            name: drained(client, broker.address, "tweets", MESSAGES)
            for name, client in _DRAINS.items()
        }
        source = f"kafka://{broker.address}/tweets"
        timed |= {
            name: _learned(source, words, settings, runs[name])
            for name, (words, settings) in _DAEMONS.items()
        }
        turns = alternate(timed, TURNS, show)
    result = Result("kafka_daemon", f"{MESSAGES:,} JSON messages of {tweets.origin}")
    for name in timed:
        result.add(name, MESSAGES / turns.median_s(name), "messages/s")
    for name in _DAEMONS:
        slow, fast = list(_DRAINS)[:2]
        demanded = name == "daemon, unigrams"
        result.add(
            f"{name}: faster than kafka-python",
            turns.ratio(slow, name),
            "times",
            at_least=3.0 if demanded else None,
        )
        result.add(
            f"{name}: speed of confluent-kafka",
            turns.ratio(fast, name),
            "times",
            at_least=0.4 if demanded else None,
        )
        _add_rest(result, name, runs[name])
    return result


def _learned(
    source: str, words: Mapping[str, Any], settings: Mapping[str, Any], runs: list[Run]
) -> Callable[[], float]:
    def timed() -> float:
        run = run_daemon(source, MESSAGES, words, settings=settings)
        runs.append(run)
        return MESSAGES / run.messages_per_s

    return timed


def _add_rest(result: Result, name: str, runs: list[Run]) -> None:
    overall = statistics.median(run.overall_per_s for run in runs)
    result.add(f"{name}, with its start and end", overall, "messages/s")
    snapshots = statistics.median(run.snapshots_per_s for run in runs)
    result.add(f"{name}, snapshots", snapshots, "1/s")
    processor = statistics.median(run.processor_us for run in runs)
    result.add(f"{name}, processor time", processor, "µs/message")
