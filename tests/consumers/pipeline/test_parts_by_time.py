"""A partition that moves under a half-life in seconds goes on by its own times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from consumers.config.model import READING, ModelSettings
from consumers.features import build_model
from consumers.messages import Partition, part_name
from consumers.pipeline.part_files import PartFiles
from streamnb import EveryExamples, Learner, NaiveBayes, SnapshotBoard

SETTINGS = ModelSettings.model_validate(
    {"features": {"text": dict.fromkeys(READING, False)}, "half_life_s": 10.0}
)
LOG, OTHER = Partition("tweets", 0), Partition("tweets", 1)
N = 80


def learner() -> Learner:
    """Return the learner of a member that has read nothing."""
    return Learner(build_model(SETTINGS), SnapshotBoard(), EveryExamples(1000), lambda: 0.0)


def read(learner: Learner, log: Partition, begin: int, end: int, start_s: float) -> None:
    """Learn messages of a partition, one a second."""
    rng = np.random.default_rng(log.partition)
    texts = [" ".join(f"w{k}" for k in rng.integers(0, 12, 4)) for _ in range(N)]
    labels = rng.choice(["positive", "negative"], N).tolist()
    times_s = np.arange(start_s, start_s + N)
    rows = slice(begin, end)
    learner.learn(part_name(log), {"text": texts[rows]}, labels[rows], times_s=times_s[rows])


def weights_of(model: NaiveBayes) -> tuple[Any, ...]:
    """Return the weights of a model, its words by name."""
    group: Any = model.state.groups["text"]
    columns = group.live_columns()
    words = zip(group.vocabulary.words(columns), group.weights.words[columns].tolist(), strict=True)
    return dict(words), group.weights.groups.tolist(), group.weights.recent.tolist()


def test_a_partition_learns_the_same_weights_whoever_reads_it(tmp_path: Path) -> None:
    """Both members have read the other partition far ahead; it goes from one to the other."""
    one, two, alone = learner(), learner(), learner()
    read(one, OTHER, 0, N, 300.0)
    read(one, LOG, 0, 30, 0.0)
    PartFiles(tmp_path, {}, build_model(SETTINGS), 3).write(one.model.state, LOG, 30)
    read(two, OTHER, 0, N, 500.0)
    loaded = PartFiles(tmp_path, {}, build_model(SETTINGS), 3).load(LOG)
    assert loaded is not None
    two.set_part(part_name(LOG), loaded.model)
    read(two, LOG, 30, N, 0.0)
    read(alone, LOG, 0, N, 0.0)
    assert weights_of(two.model.part(part_name(LOG))) == weights_of(alone.model)
    two.model.drop_part(part_name(OTHER))
    assert weights_of(two.model) == weights_of(alone.model)
