"""Recorded tweets, for tests that need real ones: in the order they were written, or a sample."""

from __future__ import annotations

import csv
import lzma
import random
from functools import cache
from pathlib import Path
from typing import NamedTuple

import polars as pl


class Tweet(NamedTuple):
    """One recorded tweet."""

    id: str
    date: str
    text: str
    label: str


LONGEST = 200_000  # as many as any test asks for
_LABELS = {"0": "negative", "4": "positive"}


def some_tweets(folder: Path, n: int) -> list[Tweet]:
    """Return `n` recorded tweets in any order, always the same: read in a tenth of the time."""
    file = folder / "sentiment140" / "s140_raw_subset.csv.xz"
    with lzma.open(file, "rt", encoding="utf-8", newline="") as rows:
        found = random.Random(n).sample(list(csv.DictReader(rows)), n)
    return [Tweet(f"row-{x['row']}", x["date"], x["text"], _LABELS[x["polarity"]]) for x in found]


def tweets_in_time_order(folder: Path, n: int) -> tuple[Tweet, ...]:
    """Return the first `n` of the recorded tweets by (date, row)."""
    assert n <= LONGEST
    return _first_tweets(folder)[:n]


@cache
def _first_tweets(folder: Path) -> tuple[Tweet, ...]:
    """Return the first tweets, read once a process: it takes seconds, however few are wanted."""
    with lzma.open(folder / "sentiment140" / "s140_full.csv.xz") as file:
        rows = pl.read_csv(file.read(), columns=["row", "polarity", "date", "text"])
    first = rows.sort("date", "row").head(LONGEST)
    return tuple(
        Tweet(f"row-{row}", date, text, _LABELS[str(polarity)])
        for row, polarity, date, text in first.select("row", "polarity", "date", "text").rows()
    )
