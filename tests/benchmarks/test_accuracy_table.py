"""`python -m benchmarks.accuracy_table` judges what it writes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks import accuracy, accuracy_table
from benchmarks.accuracy import PEERS, Judged
from benchmarks.accuracy_table import GUIDE, ROWS
from benchmarks.drift import PlantedStream
from benchmarks.publish import END, figures_of
from benchmarks.show import Show
from benchmarks.tweets import Tweets

N, LATE = 3_000, 500


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
