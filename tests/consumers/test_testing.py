"""The fixtures for users' own tests: a recorded stream, a manual clock, faults on schedule."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from consumers.decode.rows import RecordFormat
from consumers.messages import Partition
from consumers.sources.recording import RecordingHead, RecordingWriter
from consumers.sources.records import from_parts
from consumers.testing import RecordedMessage, RecordedStream
from streamnb import load
from streamnb.errors import InputError
from streamnb.testing import FaultSchedule, ManualClock
from tests.endtoend.daemon_process import ROOT
from tests.endtoend.expected_counts import counts, counts_of, examples, message


@pytest.fixture
def stream(
    tmp_path: Path, recorded_stream: Callable[[Path | str], RecordedStream]
) -> RecordedStream:
    """Return a recording of forty messages, of which thirty have a label."""
    head = RecordingHead(stream={"source": "kafka", "topic": "t"}, format=RecordFormat())
    writer = RecordingWriter(tmp_path / "r.gz", head)
    values = [message(each, i, labelled=i < 30) for i, each in enumerate(examples(40))]
    keys = [b"%d" % i for i in range(40)]
    headers: list[list[tuple[str, bytes | None]]] = [[("h", b"\xff")]] * 40
    writer.add(from_parts(Partition("t", 3), keys, values, range(40), range(40), 40, headers))
    writer.flush()
    writer.close()
    return recorded_stream(tmp_path / "r.gz")


def test_a_recorded_stream_is_read_and_learned(stream: RecordedStream, tmp_path: Path) -> None:
    """Its messages come one by one; a daemon learns from it what it learned from the topic."""
    messages = list(stream.messages())
    assert messages[7] == RecordedMessage(
        "t", 3, 7, 7, b"7", message(examples(8)[7], 7), (("h", b"\xff"),)
    )
    labelled = [each for each in messages if "label" in each.json()]
    summary = stream.learn(tmp_path / "state", learning={"window": 50})
    assert (summary.learned, summary.messages) == (len(labelled), 40)
    assert summary.positions == {"t[3]": 40}
    assert counts(load(tmp_path / "state" / "model.nb")) == counts_of(examples(30))


def test_time_passes_when_it_is_told_to(manual_clock: ManualClock) -> None:
    """By `advance`, or by whoever waits."""
    assert manual_clock() == 0.0
    manual_clock.advance(2.5)
    manual_clock.wait(1.5)
    assert (manual_clock(), manual_clock.waits_s) == (4.0, [1.5])


def test_faults_come_on_schedule(
    fault_schedule: Callable[[dict[int, Exception]], FaultSchedule],
) -> None:
    """The calls that are named fail, the others go through with their arguments and results."""
    faults = fault_schedule({1: OSError("away"), 3: KeyError("gone")})
    double = faults.wrap(lambda n, *, by: n * by)
    with pytest.raises(OSError, match="away"):
        double(1, by=2)
    assert double(2, by=2) == 4
    with pytest.raises(KeyError, match="gone"):
        double(3, by=2)
    assert double(4, by=2) == 8
    assert (faults.n_calls, faults.met) == (4, [1, 3])


def test_a_seed_replays_its_faults() -> None:
    """The same seed draws the same calls; a rate or a call that cannot be is refused."""

    def met(seed: int) -> list[int]:
        faults = FaultSchedule.drawn(seed, 1_000, 0.2, [OSError(), ValueError()])
        for _ in range(1_100):
            try:
                faults.check()
            except (OSError, ValueError):
                continue
        return faults.met

    assert met(7) == met(7) != met(8)
    assert 100 < len(met(7)) < 300
    with pytest.raises(InputError, match="rate must be 0 to 1, found 2"):
        FaultSchedule.drawn(1, 10, 2.0, [OSError()])
    with pytest.raises(InputError, match="counted from 1, found 0"):
        FaultSchedule({0: OSError()})


def test_the_plugin_imports_nothing_before_it_is_asked() -> None:
    """Every pytest of a machine loads it: it must cost no compiler and no extra."""
    code = (
        "import sys, consumers.testing; print(sorted({'numba', 'numpy', 'msgspec', 'streamnb', "
        "'structlog', 'kafka'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True, timeout=60
    )
    assert done.stdout.strip() == b"[]"
