"""The law of corrections: the model is the one that learned what they leave to teach, no other."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.corrections.model import UnknownMessage
from consumers.messages import Partition
from tests.consumers.corrections.stepped_daemon import (
    JOURNAL_PART,
    STREAM,
    Life,
    Store,
    by_part,
    taught_anew,
)
from tests.endtoend.expected_counts import Example, counts, examples

N = 24
CLASSES = ("negative", "positive")
_NUMBERS = itertools.count()

corrections = st.one_of(
    st.tuples(st.just("label"), st.integers(0, N - 1), st.sampled_from(CLASSES)),
    st.tuples(st.just("delete"), st.integers(0, N - 1)),
    st.tuples(st.just("withdraw"), st.integers(0, N - 1)),
    st.tuples(st.just("teach"), st.integers(0, N - 1), st.sampled_from(CLASSES)),
)
takes = st.tuples(st.just("take"), st.sampled_from(STREAM), st.integers(1, 5))
rests = st.sampled_from([("correct",), ("save",), ("kill",), ("kill",)])
rounds = st.tuples(
    st.lists(takes, max_size=2), st.lists(corrections, max_size=4), st.lists(rests, max_size=3)
)
steps = st.lists(rounds, min_size=1, max_size=12).map(
    lambda found: [step for parts in found for part in parts for step in part]
)


class World:
    """What the stream and the people have said, beside the daemon that learn it."""

    def __init__(self, folder: Path) -> None:
        self.found = examples(N)
        self.life = Life(folder, Store(), self.found)
        self.said: dict[int, str | None] = {}
        self.taught: list[Example] = []

    def do(self, what: str, *how: object) -> None:
        """Take a step."""
        getattr(self, what)(*how)

    def take(self, partition: Partition, n: int) -> None:
        """Let the stream bring messages."""
        self.life.take(partition, n)

    def label(self, number: int, label: str) -> None:
        """Label a message that has come; without any, one that has not."""
        number = self._that_came(number)
        try:
            self.life.corrections.correction_service.label(f"m{number}", label)
        except UnknownMessage:
            assert self.life.store.get(f"m{number}") is None
        else:
            self.said[number] = label

    def delete(self, number: int) -> None:
        """Delete a message, likewise."""
        number = self._that_came(number)
        try:
            self.life.corrections.correction_service.delete(f"m{number}")
        except UnknownMessage:
            assert self.life.store.get(f"m{number}") is None
        else:
            self.said[number] = None

    def withdraw(self, number: int) -> None:
        """Take a label back, likewise; the message may be labelled again."""
        number = self._that_came(number)
        try:
            self.life.corrections.correction_service.label(f"m{number}", None)
        except UnknownMessage:
            assert self.life.store.get(f"m{number}") is None
        else:
            self.said[number] = None

    def teach(self, number: int, label: str) -> None:
        """Teach an example that is none of the stream's."""
        text = f"something else {number}"
        self.life.corrections.correction_service.teach({"text": text}, label)
        self.taught.append((text, label))

    def correct(self) -> None:
        """Read back and apply."""
        self.life.correct()

    def save(self) -> None:
        """Write a checkpoint."""
        self.life.save()

    def kill(self) -> None:
        """Die and begin anew."""
        self.life = self.life.kill()

    def expected(self) -> dict[str, list[Example]]:
        """Return what each part is to teach in the end."""
        parts: defaultdict[str, list[Example]] = defaultdict(list)
        parts[JOURNAL_PART] += self.taught
        for number, (text, label) in enumerate(self.found):
            said = self.said.get(number, label)
            if said == label and not self._moved(number):
                parts[f"t/{number % len(STREAM)}"].append((text, label))
            elif said is not None:
                parts[JOURNAL_PART].append((text, said))
        return {name: own for name, own in parts.items() if own}

    def _that_came(self, number: int) -> int:
        """Return one of the messages that came, deleted ones too."""
        rows = sorted(self.life.store.rows)
        return int(rows[number % len(rows)][1:]) if rows else number

    def _moved(self, number: int) -> bool:
        """Return whether what a message teaches has come to stand in the log's part."""
        kept = self.life.store.rows[f"m{number}"]
        return kept.taught_part == JOURNAL_PART


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps)
def test_corrections_and_kills_in_any_order_leave_what_was_meant(
    tmp_path: Path, taken: list[tuple[object, ...]]
) -> None:
    """However messages, corrections, checkpoints and kills interleave, every count is exact."""
    world = World(tmp_path / f"state-{next(_NUMBERS)}")
    for what, *how in taken:
        world.do(str(what), *how)
    world.life.finish()
    model, expected = world.life.learner.model, taught_anew(world.expected())
    assert by_part(model) == by_part(expected)
    assert counts(model) == counts(expected)
    assert world.life.rejects == []
    world.life = world.life.kill()
    assert by_part(world.life.learner.model) == by_part(expected)
    world.life.correct()
    assert by_part(world.life.learner.model) == by_part(expected)
    world.life.end()
