"""Starts are held to those of the first version, which comes out of the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import start
from benchmarks.demands import demands
from benchmarks.result import Result
from benchmarks.start import Start, add_ratios, add_seconds, take_out


def test_a_start_is_compared_with_the_one_beside_it() -> None:
    """The first pair is cold; of the warm ones the median counts; a slow start is missed."""
    own = [Start(1.0, 20.0, 30.0), Start(1.0, 1.0, 3.0), Start(1.0, 2.0, 1.0), Start(1.0, 3.0, 2.0)]
    first = [Start(30.0, 50.0, 50.0), *[Start(2.0, 2.0, 4.0)] * 3]
    result = Result("start", "")
    add_ratios(result, own, first)
    held = {each.name: (each.value, each.met) for each in result.figures if each.met is not None}
    assert held == {
        "cold: time that 0.1.0 takes": (0.4, True),
        "warm: time that 0.1.0 takes": (1.0, False),
        "warm: processor time that 0.1.0 takes": (0.5, True),
    }
    seconds = Result("start", "")
    add_seconds(seconds, own)
    bounded = [each.name for each in seconds.figures if each.met is not None]
    assert [*bounded, *held] == demands()["start"]


def test_the_first_version_comes_out_of_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its two packages are written; where the history does not go so far back, nothing is."""
    if take_out(tmp_path / "first"):
        found = {path.name for path in (tmp_path / "first").iterdir()}
        assert found == {"streamnb", "consumers"}
    else:  # a copy without its history, where a skip would be a failure
        assert not (tmp_path / "first").exists()
    monkeypatch.setattr(start, "FIRST_VERSION", "0" * 40)
    assert not take_out(tmp_path / "none")
    assert not (tmp_path / "none").exists()
