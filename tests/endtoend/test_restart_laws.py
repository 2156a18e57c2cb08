"""A run that is cut into several, anywhere, ends with the counts of one run: for every source.

The daemon runs here within the test's own process, so that many cuts can be tried.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.monitoring.status import Status, Summary
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend.expected_counts import counts_at, counts_of, examples, messages

NewTopic = Callable[..., str]
cuts = st.lists(st.integers(1, 700), min_size=1, max_size=4)
_NUMBERS = itertools.count()


class NoView:
    """Shows nothing."""

    def start(self) -> None:
        """Show nothing."""

    def update(self, status: Status) -> None:
        """Show nothing."""

    def stop(self) -> None:
        """Show nothing."""


def run_on(folder: Path, *, n: int | None = None, **sections: Any) -> Summary:
    """Run the daemon on its checkpoint for `n` messages, or to the source's end."""
    made = Settings.model_validate(
        {
            "http": {"enabled": False},
            "checkpoint": {"folder": folder, "interval_s": 0.01},
            **sections,
        }
    )
    return run(made, NoView(), until_end=n is None, max_messages=n)


def check_cuts(folder: Path, lengths: list[int], **sections: Any) -> None:
    """Compare one run after the other with a single one, bit for bit, positions too."""
    shutil.rmtree(folder, ignore_errors=True)
    parts = [run_on(folder / "cut", n=n, **sections) for n in lengths]
    assert [part.messages for part in parts] == lengths
    whole = run_on(folder / "whole", n=sum(lengths), **sections)
    assert whole.messages == sum(lengths)
    assert parts[-1].positions == whole.positions
    assert parts[-1].class_counts == whole.class_counts
    assert counts_at(folder / "cut") == counts_at(folder / "whole")
    assert sum(part.learned for part in parts) == whole.learned
    assert sum(part.judged for part in parts) == whole.judged


@pytest.mark.deep
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts)
def test_the_generator_can_be_cut_anywhere(tmp_path: Path, lengths: list[int]) -> None:
    """`max_messages` is exact, and runs that follow each other learn what one run learns."""
    check_cuts(tmp_path / "state", lengths, generator={"rate_per_s": 0.0, "turn_after": 500})


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts, st.sampled_from([1024, 5000, 1 << 20]), st.sampled_from(["jsonl", "csv"]))
def test_a_file_can_be_cut_anywhere(
    tmp_path: Path, lengths: list[int], batch_bytes: int, kind: str
) -> None:
    """Wherever a file's reading is cut, reading on gives what reading at once gives."""
    path = tmp_path / f"in.{kind}"
    found = examples(3_000)
    if kind == "csv":
        rows = "".join(f'{i},"{text}\n""so""",{label}\n' for i, (text, label) in enumerate(found))
        path.write_text("id,text,label\n" + rows)
    else:
        path.write_bytes(b"\n".join(messages(found)))
    check_cuts(
        tmp_path / "state", lengths, source=f"file:{path}", file={"batch_bytes": batch_bytes}
    )


@pytest.mark.deep
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 1_500), min_size=1, max_size=3))
def test_a_file_can_be_cut_and_then_read_to_its_end(tmp_path: Path, lengths: list[int]) -> None:
    """After any cuts, reading to the end learns the whole file, once."""
    folder = tmp_path / f"state-{next(_NUMBERS)}"
    found = examples(1_000)
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(messages(found)) + b"\n")
    left = len(found)
    for n in lengths:
        if 0 < n < left:
            run_on(folder, n=n, source=f"file:{path}")
            left -= n
    assert run_on(folder, source=f"file:{path}").messages == left
    assert counts_at(folder) == counts_of(found)
    assert run_on(folder, source=f"file:{path}").messages == 0
    assert counts_at(folder) == counts_of(found)


@pytest.mark.integration
def test_a_topic_can_be_cut_anywhere(broker: Broker, new_topic: NewTopic, tmp_path: Path) -> None:
    """Runs of N messages over two partitions follow each other exactly, the last to the end."""
    topic = new_topic(2)
    found = examples(2_000)
    for number in (0, 1):
        fill(broker.address, topic, messages(found[number::2]), number)
    done = 0
    for attempt, n in enumerate((1, 499, 700)):
        # Each run is a group of its own: positions are ours, and a group takes time to form anew.
        summary = run_on(
            tmp_path / "state",
            n=n,
            source=f"kafka://{broker.address}/{topic}",
            kafka={"group_id": f"{topic}-{attempt}", "max_poll_messages": 190},
        )
        done += n
        assert summary.messages == n
        assert sum(summary.positions.values()) == done
    rest = run_on(
        tmp_path / "state",
        source=f"kafka://{broker.address}/{topic}",
        kafka={"group_id": f"{topic}-last"},
    )
    assert rest.messages == len(found) - done
    assert counts_at(tmp_path / "state") == counts_of(found)
