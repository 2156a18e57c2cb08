"""`python -m benchmarks.year`: a year of made-up tweets through the daemon, by message time.

A share of each day's tweets is sent, as fast as the daemon learns them, and each is written at its
own time of that year. The words are of three kinds: lasting ones, whose frequencies fall as Zipf's
law has it; those of topics, of which each day brings some that are used ever less for a month; and
such as come once, as misspellings and names do. After each month a line says what is full, what has
left, how large memory and files are, and how right the newest predictions were.

The daemon is as it comes, with its page, its memory for deletes and a checkpoint every 5 s.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.show import Show
from benchmarks.tweets import CLASSES
from tests.endtoend.daemon_process import Daemon, write_config

DAYS, MONTH = 360, 30
START = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
WORDS = 11  # of a tweet
LASTING, OF_A_DAY, LIFE_DAYS, LONGEST_DAYS = 40_000, 300, 10.0, 30
KINDS = (0.75, 0.17, 0.08)  # shares of lasting words, those of topics, and such as come once
ONCE_MAX = 1 << 40
SPREAD = 0.35  # of the words' sides
Floats = NDArray[np.floating[Any]]
PIECE = 20_000  # tweets written at once


class Year:
    """Tweets of one day after the other; all follows from the seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._sides = self._random.normal(0.0, SPREAD, LASTING)
        self._rates = 1.0 / (np.arange(LASTING) + 20.0)
        self._of_topics = self._random.normal(0.0, SPREAD, (DAYS, OF_A_DAY))

    def _drawn(self, rates: Floats, sides: Floats, n: int) -> np.ndarray:
        """Return words of either class, in shape (2, n)."""
        found = np.empty((2, n), dtype=np.int64)
        for c, sign in enumerate((-1.0, 1.0)):
            cdf = np.cumsum(rates * np.exp(sign * sides))
            found[c] = np.searchsorted(cdf, self._random.random(n) * cdf[-1])
        return found

    def lines(self, day: int, first: int, n: int) -> bytes:
        """Return tweets of a day as JSON lines; `first` is the number of the first one."""
        shape, all_words = (n, WORDS), n * WORDS
        classes = self._random.integers(0, 2, n)
        kinds = self._random.choice(3, size=shape, p=KINDS)
        days = np.arange(max(0, day - LONGEST_DAYS), day + 1)
        weights = np.exp((days - day) / LIFE_DAYS).repeat(OF_A_DAY)
        of_topics = days[0] * OF_A_DAY + self._drawn(
            weights, self._of_topics[days].ravel(), all_words
        )
        of_class = np.repeat(classes, WORDS)
        at = np.arange(all_words)
        numbers = np.choose(
            kinds,
            [
                self._drawn(self._rates, self._sides, all_words)[of_class, at].reshape(shape),
                of_topics[of_class, at].reshape(shape),
                self._random.integers(0, ONCE_MAX, shape),
            ],
        )
        begin = START + dt.timedelta(days=day)
        lines = []
        for i, (row, of, c) in enumerate(
            zip(numbers.tolist(), kinds.tolist(), classes.tolist(), strict=True)
        ):
            text = " ".join(f"{'wtx'[kind]}{number}" for number, kind in zip(row, of, strict=True))
            written = begin + dt.timedelta(seconds=86_400.0 * i / n)
            lines.append(
                f'{{"id": "{first + i}", "created_at": "{written.isoformat()}", '
                f'"text": "{text}", "label": "{CLASSES[c]}"}}\n'
            )
        return "".join(lines).encode()


def main(
    tweets: Annotated[int, typer.Option(min=DAYS, help="Tweets of the year.")] = 10_800_000,
    seed: Annotated[int, typer.Option(min=0, help="All follows from it.")] = 1,
) -> None:
    """Send the year, and print a line a month."""
    console, year, n_day = Console(), Year(seed), tweets // DAYS
    read, write = os.pipe()
    with (
        os.fdopen(read, "rb") as stdin,
        os.fdopen(write, "wb") as stream,
        tempfile.TemporaryDirectory(prefix="streamnb-year-") as name,
    ):
        folder, state = Path(name), Path(name) / "state"
        config = write_config(
            folder / "config.yaml", source="stdin", checkpoint={"folder": "state", "interval_s": 5}
        )
        with Daemon(config, stdin=stdin) as daemon:
            n, spent_s, began_at_s = 0, 0.0, time.time()
            for day in Show(Console(stderr=True)).track(range(DAYS)):
                for size in _pieces(n_day):
                    stream.write(year.lines(day, n, size))
                    stream.flush()
                    n += size
                if (day + 1) % MONTH == 0:
                    daemon.until_metric("streamnb_messages_total", n)
                    spent_s, before_s = daemon.processor_s(), spent_s
                    cost_us = 1e6 * (spent_s - before_s) / (MONTH * n_day)
                    console.print(_month(daemon, (day + 1) // MONTH, n, state, cost_us, began_at_s))
            assert daemon.stop() == 0


def _pieces(n: int) -> list[int]:
    return [min(PIECE, n - begin) for begin in range(0, n, PIECE)]


def _month(
    daemon: Daemon, month: int, n: int, state: Path, cost_us: float, began_at_s: float
) -> str:
    """Return what a month has left behind."""
    metric = daemon.metric
    sizes = {each.name: each.stat().st_size for each in state.iterdir() if each.is_file()}
    stored = sum(size for each, size in sizes.items() if each.startswith("recent"))
    began_s = time.perf_counter()
    _, answer = daemon.get(f"/v1/history?from={1_000 * int(began_at_s)}")
    took_ms = 1e3 * (time.perf_counter() - began_s)
    kept = json.loads(answer)["n"]
    return (
        f"month {month}: {n:,} tweets, {metric('streamnb_vocabulary_words'):,.0f} words, "
        f"{metric('streamnb_words_dropped_total'):,.0f} left, accuracy of the newest "
        f"{metric('streamnb_prequential_window_accuracy_ratio'):.2%}, memory at most "
        f"{daemon.peak_bytes() >> 20} MB, model file {sizes.get('model.nb', 0) >> 20} MB, store "
        f"{stored >> 20} MB, all files {sum(sizes.values()) >> 20} MB, {cost_us:.1f} µs of "
        f"processor time a tweet, history of {kept:,} messages in {took_ms:.0f} ms"
    )


if __name__ == "__main__":
    typer.run(main)
