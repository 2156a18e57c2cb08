"""`python -m benchmarks [CASE ...]`: runs the cases, prints a table, writes JSON if asked to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.against_river import bernoulli, multinomial, one_at_a_time
from benchmarks.memory import memory
from benchmarks.result import Result, machine
from benchmarks.show import Show, table_of
from benchmarks.start import start
from benchmarks.tweets import Tweets, load
from benchmarks.vocabulary import vocabulary
from benchmarks.whole_stream import whole_stream

Case = Callable[[Tweets, Show], Result]

CASES: dict[str, Case] = {
    case.__name__: case
    for case in (multinomial, bernoulli, one_at_a_time, vocabulary, whole_stream, memory, start)
}


def run(cases: list[str], n_tweets: int | None, show: Show) -> list[Result]:
    """Run cases by name, all where none is named.

    Parameters
    ----------
    cases : list of str
        Keys of `CASES`.
    n_tweets : int or None
        Use only the first of the stream.
    show : Show
        Where progress is told.
    """
    show.say("reading the tweets")
    tweets = load()
    if n_tweets is not None:
        tweets = tweets.first(n_tweets)
    show.say(f"{len(tweets):,} of {tweets.origin}")
    results = []
    for name in cases or list(CASES):
        show.case = name
        began = time.perf_counter()
        result = CASES[name](tweets, show)
        result.seconds = time.perf_counter() - began
        show.say(f"{name}: {result.seconds:.1f} s")
        results.append(result)
    return results


def main(
    cases: Annotated[
        list[str] | None, typer.Argument(metavar="[CASE]...", help=f"Of {', '.join(CASES)}.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there as well.")
    ] = None,
    tweets: Annotated[
        int | None, typer.Option(min=1_000, metavar="N", help="Only the first N tweets.")
    ] = None,
) -> None:
    """Measure streamnb. Without a CASE all of them run, in about two minutes."""
    unknown = [name for name in cases or [] if name not in CASES]
    if unknown:
        raise typer.BadParameter(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    results = run(cases or [], tweets, Show(Console(stderr=True)))
    Console().print(table_of(results))
    if json_file is not None:
        found = {"machine": machine(), "results": [result.to_dict() for result in results]}
        json_file.write_text(json.dumps(found, indent=2, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
