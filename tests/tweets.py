"""The recorded tweets in the order they were written, for tests that need a real stream."""

from __future__ import annotations

import csv
import lzma
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Tweet(NamedTuple):
    """One recorded tweet."""

    id: str
    date: str
    text: str
    label: str


LONGEST = 200_000  # as many as any test asks for


def tweets_in_time_order(folder: Path, n: int) -> tuple[Tweet, ...]:
    """Return the first `n` of the recorded tweets by (date, row)."""
    assert n <= LONGEST
    return _first_tweets(folder)[:n]


@cache
def _first_tweets(folder: Path) -> tuple[Tweet, ...]:
    """Return the first tweets, read once a process: it takes seconds, however few are wanted."""
    with lzma.open(
        folder / "sentiment140" / "s140_full.csv.xz", "rt", encoding="utf-8", newline=""
    ) as file:
        rows = csv.reader(file)
        next(rows)
        # Only what can be among the first stays in memory: the key is small beside the text.
        kept = [(row[3], int(row[0]), row[1], row[6]) for row in rows]
    kept.sort()
    names = {"0": "negative", "4": "positive"}
    return tuple(
        Tweet(f"row-{row}", date, text, names[label]) for date, row, label, text in kept[:LONGEST]
    )
