"""`python -m benchmarks.challengers`: what four challengers cost beside the model that serves.

A stream of one partition is learned to its end by the whole daemon in this process, once with one
half-life and once with five, in turns, by the processor time of all threads. The start and the last
checkpoint are in it. The models count alone, or with `--hybrid` are as the daemon comes.

The case `half_lives` of `python -m benchmarks` measures both, and `HalfLives` of the library.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from structlog.testing import capture_logs

from benchmarks.alternate import Turns, alternate
from benchmarks.file_daemon import write_lines
from benchmarks.half_lives import COST_ROWS, PAIRS, WORDS, learned, one_model
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets, load
from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.terminal import make_view
from streamnb import HalfLives, NaiveBayes, Words

MESSAGES, TURNS = 100_000, 11
DEMAND = 2.0  # times one half-life
_HALF_LIVES_S: Final = (1e9, 20.0, 200.0, 600.0, 2_000.0)  # of 2,000 seconds that the stream takes
_COUNTS: Final = {"text": {"hybrid": False}}


def compare(tweets: Tweets, messages: int, turns: int, *, hybrid: bool = False) -> Turns:
    """Learn a stream by the daemon with one half-life and with five, in turns."""
    with tempfile.TemporaryDirectory(prefix="streamnb-challengers-") as folder:
        source = write_lines(Path(folder), tweets, messages)
        timed = {
            name: partial(_learned_s, source, _HALF_LIVES_S[:n], hybrid=hybrid)
            for name, n in (("one", 1), ("five", 5))
        }
        return alternate(timed, turns, Show(Console(stderr=True)), warm_up="five")


def _learned_s(source: str, half_lives_s: tuple[float, ...], *, hybrid: bool) -> float:
    """Return the processor time that the daemon takes to learn all of a source."""
    counts = {} if hybrid else {"features": _COUNTS}
    own, *others = ({"half_life_s": each} | counts for each in half_lives_s)
    with tempfile.TemporaryDirectory(prefix="streamnb-challengers-") as folder:
        settings: dict[str, Any] = {
            "source": source,
            "model": own,
            "challengers": {f"challenger_{i}": each for i, each in enumerate(others)},
            "learned": {"messages_max": 0},  # decayed counts round, so nothing is taken back
            "checkpoint": {"folder": Path(folder) / "state"},
            "http": {"enabled": False},
            "recent": {"enabled": False},
            "corrections": {"to": "none"},
        }
        view = make_view("log", Console(file=io.StringIO()), lambda: 0.0)
        began_s = time.process_time()
        with capture_logs():
            run(Settings.model_validate(settings), view, until_end=True)
        return time.process_time() - began_s


def half_lives(tweets: Tweets, show: Show) -> Result:
    """Learn with five half-lives side by side, beside one, in the library and by the daemon."""
    some = tweets.first(MESSAGES)
    result = Result("half_lives", f"the first {len(some):,} of {tweets.origin}, by processor time")
    for name, words in (("words", WORDS), ("pairs and negation", PAIRS)):
        timed = {
            "one": partial(_library_s, one_model, words, some),
            "five": partial(_library_s, _side_by_side, words, some),
        }
        turns = alternate(timed, TURNS, show, warm_up="five")
        ratio = turns.ratio("five", "one")
        result.add(f"library, {name}: time of one", ratio, "times", at_most=DEMAND)
    for name, hybrid in (("counts alone", False), ("default model", True)):
        turns = compare(some, MESSAGES, TURNS, hybrid=hybrid)
        for of in ("one", "five"):
            cost_us = 1e6 * turns.median_s(of) / MESSAGES
            result.add(f"daemon, {name}: {of}", cost_us, "µs/message")
        ratio = turns.ratio("five", "one")
        result.add(f"daemon, {name}: time of one", ratio, "times", at_most=DEMAND)
    return result


def _side_by_side(words: Words) -> HalfLives:
    return HalfLives(CLASSES, words, hash_key=1)


def _library_s(
    make: Callable[[Words], NaiveBayes | HalfLives], words: Words, tweets: Tweets
) -> float:
    return learned(make(words), tweets.texts, tweets.labels, COST_ROWS)[1]


def main(
    messages: Annotated[int, typer.Option(help="Messages of the stream.")] = MESSAGES,
    turns: Annotated[int, typer.Option(help="How many times each learns it.")] = 7,
    hybrid: Annotated[bool, typer.Option(help="The default model, or counts alone.")] = False,
) -> None:
    """Print the processor time of a message, and the ratio beside its demand."""
    tweets = load().first(messages)
    found = compare(tweets, messages, turns, hybrid=hybrid)
    one, five = (1e6 * found.median_s(name) / messages for name in ("one", "five"))
    ratio = found.ratio("five", "one")
    print(
        f"one half-life {one:.2f} µs, five {five:.2f} µs a message; {ratio:.2f} times,"
        f" {'met' if ratio < DEMAND else 'missed'}: < {DEMAND:g} ({turns} turns, {messages:,}"
        f" messages, {tweets.origin})"
    )


if __name__ == "__main__":
    typer.run(main)
