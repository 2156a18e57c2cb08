"""Prequential learning against Vowpal Wabbit's own driver reading a file.

The driver is C++ and calls no Python while it runs: it parses the file in one thread and learns a
logistic model in another, each text judged before it is learned. Ours may have two threads as well,
one that reads ahead of the one that learns; what one alone does stands beside it. So that both pay
for reading their texts, ours are a list of `str`; the same from one buffer, as Kafka and files hand
texts over, stands beside it too.

Its weights are a table of 2ᵇ without a check of who else uses a slot. With its default of b = 18
pairs of words fill that many times over; b = 22 keeps about as many apart as there are. We keep all
of them apart, with their texts.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.alternate import alternate
from benchmarks.ours import PAIRS, UNIGRAMS, in_one_call, in_one_call_from_buffer
from benchmarks.peers import require
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets
from streamnb import Words

SIZES = (20_000, 200_000)
TURNS = 5
DEFAULT_BITS = 18
BITS = (DEFAULT_BITS, 22)
# In its format a bar begins a namespace and a colon a weight; lines end an example.
_SIGNS = re.compile(r"[|:\s]+")
_TARGETS = {CLASSES[0]: "-1", CLASSES[1]: "1"}


def vw(tweets: Tweets, show: Show) -> Result:
    """Judge and learn unigrams."""
    return _compared("vw", UNIGRAMS, (), tweets, show)


def vw_pairs(tweets: Tweets, show: Show) -> Result:
    """Judge and learn words and pairs; ours mark negations as well."""
    return _compared("vw_pairs", PAIRS, ("--ngram", "2"), tweets, show)


def _compared(
    case: str, words: Words, options: tuple[str, ...], tweets: Tweets, show: Show
) -> Result:
    require("vowpalwabbit")
    result = Result(case, tweets.origin)
    for size in SIZES:
        some = tweets.first(size)
        with tempfile.TemporaryDirectory(prefix="streamnb-vw-") as folder:
            path = Path(folder) / "tweets.vw"
            write_tweets(path, some)
            timed = {
                "streamnb": in_one_call(words, some, n_threads=2),
                "streamnb, one thread": in_one_call(words, some),
                "streamnb, one thread, from one buffer": in_one_call_from_buffer(words, some),
            }
            timed |= {f"VW, b = {b}": _driver(path, b, options, len(some)) for b in BITS}
            turns = alternate(timed, TURNS, show, warm_up="streamnb")
        for name in timed:
            result.add(f"{name}, {len(some):,}", len(some) / turns.median_s(name), "tweets/s")
        for b in BITS:
            theirs = f"VW, b = {b}"
            demand = 1.0 if b == DEFAULT_BITS else None
            ratio = turns.ratio(theirs, "streamnb")
            result.add(f"speed of {theirs}, {len(some):,}", ratio, "times", at_least=demand)
            alone = turns.ratio(theirs, "streamnb, one thread")
            result.add(f"one thread, speed of {theirs}, {len(some):,}", alone, "times")
    return result


def write_tweets(path: Path, tweets: Tweets, n_labelled: int | None = None) -> None:
    """Write tweets as Vowpal Wabbit reads them; without labels behind `n_labelled`."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for i, (text, label) in enumerate(zip(tweets.texts, tweets.labels, strict=True)):
            target = _TARGETS[label] if n_labelled is None or i < n_labelled else ""
            file.write(f"{target} | {_SIGNS.sub(' ', text)}\n")


def _driver(path: Path, bits: int, options: tuple[str, ...], n: int) -> Callable[[], float]:
    import pylibvw  # noqa: PLC0415 -- a peer

    arguments = ["--quiet", "--no_stdin", "--loss_function", "logistic", "--passes", "1"]
    arguments += ["-b", str(bits), "--data", str(path), *options]

    def timed() -> float:
        # `vowpalwabbit.Workspace` makes the model and runs the driver in one go; one floor below
        # it they are two steps, so that making the model stays out of the time here too.
        model = pylibvw.vw(arguments)
        began = time.perf_counter()
        model.run_parser()
        seconds = time.perf_counter() - began
        n_read = round(model.get_weighted_examples())
        model.finish()
        if n_read != n:
            raise RuntimeError(f"Vowpal Wabbit read {n_read:,} examples of {path}, not {n:,}")
        return seconds

    return timed
