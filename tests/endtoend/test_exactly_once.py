"""Real tweets through a real broker; the daemon is killed; every count is exact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from consumers.config.settings import Settings
from consumers.features import build_model
from consumers.messages import Partition
from streamnb import NaiveBayes
from streamnb.features import statistics
from streamnb.features.protocol import GroupPart
from streamnb.inspection.words import word_group
from streamnb.state import PartState
from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import Daemon, write_config
from tests.tweets import Tweet, tweets_in_time_order

PARTITIONS = 2
POLARITY = {"negative": 0, "positive": 4}


def as_message(tweet: Tweet) -> bytes:
    """Return a tweet as a message of the topic."""
    return json.dumps(
        {
            "id": tweet.id,
            "created_at": tweet.date,
            "text": tweet.text,
            "label": POLARITY[tweet.label],
        }
    ).encode()


def counts_by_word(model: NaiveBayes) -> dict[str, tuple[float, ...]]:
    """Return N_jc of every word the model knows."""
    words = model.words()
    return dict(zip(words, map(tuple, model.word_counts(words).tolist()), strict=True))


def part_counts_by_word(model: NaiveBayes, part: PartState) -> dict[str, tuple[float, ...]]:
    """Return N_jc of every word that one part knows."""
    held = part.groups["text"]
    assert isinstance(held, GroupPart)
    counts, vocabulary = held.counts, word_group(model.state, "text").vocabulary
    columns = statistics.live_columns(counts, vocabulary.n_words)
    rows = map(tuple, counts.by_word[columns].tolist())
    return dict(zip(vocabulary.words(columns), rows, strict=True))


def learned_at_once(tweets: list[Tweet]) -> NaiveBayes:
    """Return the model of a process that was never disturbed and knows no Kafka."""
    model = build_model(Settings().model)
    model.learn_many({"text": [t.text for t in tweets]}, [t.label for t in tweets])
    return model


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.data
@pytest.mark.parametrize(
    "n_tweets", [4_000, 20_000, pytest.param(100_000, marks=pytest.mark.timeout(900))]
)
def test_counts_are_exact_when_the_daemon_is_killed_twice(
    broker: Broker, new_topic: Callable[..., str], data_folder: Path, tmp_path: Path, n_tweets: int
) -> None:
    """Tweets, two partitions, two SIGKILLs: every count equals an undisturbed run's."""
    tweets = tweets_in_time_order(data_folder, n_tweets)
    topic = new_topic(PARTITIONS)
    logs = [list(tweets[number::PARTITIONS]) for number in range(PARTITIONS)]
    quarter = n_tweets // PARTITIONS // 4

    def write(begin: int, end: int) -> None:
        for number, log in enumerate(logs):
            fill(
                broker.address, topic, map(as_message, log[begin * quarter : end * quarter]), number
            )

    config = write_config(
        tmp_path / "config.yaml",
        source=f"kafka://{broker.address}/{topic}",
        # Small polls and frequent checkpoints, so that a kill finds much behind and before it.
        kafka={"group_id": f"group-of-{topic}", "max_poll_messages": 500, "session_timeout_s": 6},
        checkpoint={"folder": "state", "interval_s": 0.05},
    )

    def saved() -> int:
        return sum(read(tmp_path / "state" / "model.nb").positions.values())

    positions_at_death = [0]
    for life in (0, 1):
        write(life, life + 1)  # each finds something new, however far the one before came
        with Daemon(config) as daemon:
            daemon.until_metric("streamnb_messages_total", quarter / 2)
            # The first checkpoints only say where each partition begins.
            daemon.until(lambda: saved() > positions_at_death[-1], "a checkpoint of something new")
            daemon.kill()
        positions_at_death.append(saved())
    assert positions_at_death[1] < positions_at_death[2] < n_tweets

    write(2, 4)
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
        assert daemon.summary["messages"] == n_tweets - positions_at_death[2]
    stored = read(tmp_path / "state" / "model.nb")
    whole = learned_at_once(list(tweets))
    assert stored.positions == {f"{topic}/{n}": len(log) for n, log in enumerate(logs)}
    assert np.array_equal(stored.model.class_counts, whole.class_counts)
    assert counts_by_word(stored.model) == counts_by_word(whole)
    for number, log in enumerate(logs):
        part = stored.model.parts[f"{topic}/{number}"]
        alone = learned_at_once(log)
        assert np.array_equal(part.class_counts, alone.class_counts)
        assert part_counts_by_word(stored.model, part) == counts_by_word(alone)
    assert daemon.summary["positions"] == {
        str(Partition(topic, n)): len(log) for n, log in enumerate(logs)
    }
