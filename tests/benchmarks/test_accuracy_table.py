"""The tables in docs/accuracy.md are those of docs/accuracy.json alone, which misses no demand."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks import accuracy, accuracy_table
from benchmarks.accuracy import PEERS, Judged
from benchmarks.accuracy_table import (
    BEHIND,
    DEMANDED,
    GUIDE,
    HELD,
    ROWS,
    RUN,
    SPEED,
    THOUSANDS,
    TURN,
    WHOLE,
)
from benchmarks.drift import PlantedStream
from benchmarks.publish import END, ROOT, UnpublishedError, figures_of
from benchmarks.result import Figure
from benchmarks.show import Show
from benchmarks.tweets import Tweets

AGAIN = "run: .venv/bin/python -m benchmarks.accuracy_table --again"
N, LATE = 3_000, 500


@pytest.fixture
def run() -> dict[str, Any]:
    """Return the run that the tables are written from."""
    found: dict[str, Any] = json.loads((ROOT / RUN).read_text(encoding="utf-8"))
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with a copy of the document."""
    (tmp_path / GUIDE).parent.mkdir()
    shutil.copy(ROOT / GUIDE, tmp_path / GUIDE)
    return tmp_path


def test_the_tables_are_those_of_the_run(run: dict[str, Any]) -> None:
    """Every row between the markers says what the run found, and no row was added or changed."""
    shown = (ROOT / GUIDE).read_text(encoding="utf-8")
    assert accuracy_table.rewritten(ROOT, run) == shown, AGAIN


def test_no_row_says_otherwise_of_a_command_of_the_run(run: dict[str, Any]) -> None:
    """A table beside those of the run that names one of its commands has its figures."""
    found = figures_of(run)
    known: dict[str, set[str]] = {}
    for case in {case for case, _ in found}:
        for what in (TURN, WHOLE, HELD, BEHIND):
            names = ("accuracy", "log-loss", "calibration error")
            own = [found.get((case, f"{what}: {name}")) for name in names]
            if all(own):
                a, b, c = (each["value"] for each in own if each)
                told = {f"{a:.2f} %", f"{a:.2f} % / {b:.4f} / {c:.4f}"}
                known.setdefault(case, set()).update(told)
    n_held = 0
    for line in (ROOT / GUIDE).read_text(encoding="utf-8").splitlines():
        cells = [each.strip("* `") for each in line.strip("| ").split("|")]
        for cell in cells[:-1] if cells[-1] in known else []:
            if re.fullmatch(r"[\d.]+ %( / [\d.]+ / [\d.]+)?", cell):
                assert cell in known[cells[-1]], line
                n_held += 1
    assert n_held > 40


def test_the_run_meets_every_demand(run: dict[str, Any]) -> None:
    """Each figure that something is demanded of is there, with that demand, and meets it."""
    found = figures_of(run)
    for case, demanded in DEMANDED.items():
        for name, (at_least, at_most) in demanded.items():
            figure = found[case, name]
            assert (figure.get("at_least"), figure.get("at_most")) == (at_least, at_most)
            assert Figure(name, figure["value"], figure["unit"], at_least, at_most).met, name


@pytest.mark.parametrize("title", ["figures", "demands", "sets"])
def test_a_changed_figure_is_found(title: str, copy: Path, run: dict[str, Any]) -> None:
    """A figure that was edited in any table is no longer what is written."""
    path = copy / GUIDE
    shown = path.read_text(encoding="utf-8")
    before, begin, rest = shown.partition(accuracy_table.BEGIN.format(title))
    rows, digit = rest.split("| --- |\n", 1), r"(?<=\d\.)\d"
    edited = before + begin + rows[0] + "| --- |\n" + re.sub(digit, "x", rows[1], count=1)
    assert edited != shown
    path.write_text(edited, encoding="utf-8")
    assert accuracy_table.rewritten(copy, run) == shown


def test_another_run_or_none_of_the_recording_is_found(copy: Path, run: dict[str, Any]) -> None:
    """Figures of another run are no longer those that stand there; made-up tweets are refused."""
    shown = (copy / GUIDE).read_text(encoding="utf-8")
    for result in run["results"]:
        for figure in result["figures"]:
            changed = {**figure, "value": figure["value"] + 1.0}
            other = {**run, "results": [{"case": result["case"], "figures": [changed]}]}
            rest = {**result, "figures": [e for e in result["figures"] if e is not figure]}
            other["results"] += [rest, *(e for e in run["results"] if e is not result)]
            assert accuracy_table.rewritten(copy, other) != shown, figure["name"]
    with pytest.raises(UnpublishedError, match="made-up"):
        accuracy_table.rewritten(copy, {**run, "tweets": "200,000 made-up tweets"})
    (copy / GUIDE).write_text(shown.replace("end of sets", "end"), encoding="utf-8")
    with pytest.raises(UnpublishedError, match="end of sets"):
        accuracy_table.rewritten(copy, run)


def test_speeds_wait_for_a_run_that_has_them(copy: Path, run: dict[str, Any]) -> None:
    """An older run's table has no column of them; in another one each row has its own."""
    for result in run["results"]:
        result["figures"] = [each for each in result["figures"] if each["name"] != SPEED]
    assert f"| {THOUSANDS} |" not in accuracy_table.rewritten(copy, run)
    for result in run["results"]:
        result["figures"].append({"name": SPEED, "value": 123.4, "unit": THOUSANDS})
    written = accuracy_table.rewritten(copy, run)
    assert f"| recalls | {THOUSANDS} | repeat |" in written
    assert written.count("| 123 |") == len(accuracy_table.rows_of(figures_of(run)))


def test_all_rows_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small version of `python -m benchmarks.accuracy_table` has what its tables are made of."""
    texts, labels = PlantedStream(1).draw([0.0] * N)
    tweets = Tweets(texts, labels, f"{N:,} recorded tweets")

    def unsure(_: Tweets, rows: Any, held: Any) -> Judged:
        stream, of_held = (np.full((len(each), 2), np.log(0.5)) for each in (rows, held))
        return Judged(stream, of_held, 1.0, 1.0)

    rows = [replace(row, late=LATE) if row.late else row for row in ROWS]
    for module, name, value in (
        (accuracy_table, "LATE", LATE),
        (accuracy_table, "ROWS", rows),
        (accuracy_table, "DEMANDED", {}),
        (accuracy, "BLOCK", 500),
        (accuracy, "PIECE", LATE),
        (accuracy_table, "PEERS", dict.fromkeys(PEERS, unsure)),
    ):
        monkeypatch.setattr(module, name, value)
    results = accuracy_table.results(tweets, Show(Console(quiet=True)))
    assert [result.case for result in results] == [row.command for row in rows]
    found = figures_of({"results": [result.to_dict() for result in results]})
    assert {case for case, name in found if name == SPEED} == {row.command for row in rows}
    assert 70.0 < found["daemon", "to the turn: accuracy"]["value"] < 95.0
    late = found[f"daemon --late {LATE}", "accuracy lost to labels in time"]["value"]
    assert 0.0 < late < 20.0
    for peer in PEERS:  # which has half of them right by chance
        assert 20.0 < found[peer, "the daemon ahead: accuracy"]["value"] < 45.0
        assert found[peer, "the daemon ahead: log-loss"]["value"] > 0.1
    run = {
        "commit": "0123abc",
        "date": "2030-01-02",
        "tweets": tweets.origin,
        "machine": {"cores": 2, "processor": "one", "python": "3"},
        "results": [result.to_dict() for result in results],
    }
    begins = (accuracy_table.BEGIN.format(title) for title in ("figures", "demands", "sets"))
    ends = (END.format(title) for title in ("figures", "demands", "sets"))
    path = tmp_path / GUIDE
    path.parent.mkdir()
    path.write_text("\n".join(itertools.chain(*zip(begins, ends, strict=True))), encoding="utf-8")
    written = accuracy_table.rewritten(tmp_path, run)
    assert "2030-01-02, of commit 0123abc" in written
    assert f"| `daemon --late {LATE}` |" in written
