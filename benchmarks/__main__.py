"""`python -m benchmarks [CASE ...]`: runs the cases, prints a table, writes JSON if asked to.

`python -m benchmarks against_tree PATH [CASE ...]` compares this tree with another one.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import against_tree
from benchmarks.against_river import bernoulli, multinomial, one_at_a_time
from benchmarks.against_sklearn import sklearn
from benchmarks.against_vw import vw, vw_pairs
from benchmarks.cost import classes, fields, lengths
from benchmarks.file_daemon import checkpoints, file_daemon
from benchmarks.kafka_daemon import kafka_daemon
from benchmarks.kafka_drain import kafka_codecs
from benchmarks.latency import latency
from benchmarks.memory import memory
from benchmarks.numeric import numeric, numeric_one
from benchmarks.page_cost import page_cost, page_cost_busy
from benchmarks.pages import pages
from benchmarks.peers import LeftOutError, is_installed
from benchmarks.plot import draw
from benchmarks.predict_http import predict_http
from benchmarks.recent import recent
from benchmarks.result import Result, machine
from benchmarks.scaling import scaling
from benchmarks.show import Show, table_of
from benchmarks.start import start
from benchmarks.tweets import Tweets, load
from benchmarks.vocabulary import ten_million_words, vocabulary
from benchmarks.whole_stream import whole_stream

Case = Callable[[Tweets, Show], Result]

CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        multinomial,
        bernoulli,
        one_at_a_time,
        numeric,
        numeric_one,
        sklearn,
        vw,
        vw_pairs,
        vocabulary,
        ten_million_words,
        classes,
        fields,
        lengths,
        scaling,
        latency,
        recent,
        kafka_daemon,
        kafka_codecs,
        file_daemon,
        checkpoints,
        predict_http,
        page_cost,
        page_cost_busy,
        pages,
        whole_stream,
        memory,
        start,
    )
}


def run(cases: list[str], n_tweets: int | None, show: Show, results: list[Result]) -> None:
    """Run cases by name, all where none is named.

    Parameters
    ----------
    cases : list of str
        Keys of `CASES`.
    n_tweets : int or None
        Use only the first of the stream.
    show : Show
        Where progress is told.
    results : list of Result
        Gets what each case found, as soon as it has: a case that fails takes no other with it.
    """
    show.say("reading the tweets")
    tweets = load()
    if n_tweets is not None:
        tweets = tweets.first(n_tweets)
    show.say(f"{len(tweets):,} of {tweets.origin}")
    gc.freeze()  # millions of strings, which no daemon holds: the collector need not walk them
    for name in cases or list(CASES):
        show.case = name
        began = time.perf_counter()
        try:
            result = CASES[name](tweets, show)
        except LeftOutError as error:
            result = Result(name, "", left_out=str(error))
        result.seconds = time.perf_counter() - began
        show.say(f"{name}: {result.seconds:.1f} s")
        results.append(result)


def main(
    cases: Annotated[
        list[str] | None, typer.Argument(metavar="[CASE]...", help=f"Of {', '.join(CASES)}.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there as well.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw two figures there.")
    ] = None,
    tweets: Annotated[
        int | None, typer.Option(min=1_000, metavar="N", help="Only the first N tweets.")
    ] = None,
) -> None:
    """Measure streamnb. Without a CASE all of them run, in about ten minutes."""
    unknown = [name for name in cases or [] if name not in CASES]
    if unknown:
        raise typer.BadParameter(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    show = Show(Console(stderr=True))
    results: list[Result] = []
    try:
        run(cases or [], tweets, show, results)
    finally:
        _hand_out(results, json_file, plots, show)


def _hand_out(
    results: list[Result], json_file: Path | None, plots: Path | None, show: Show
) -> None:
    Console().print(table_of(results))
    if json_file is not None:
        found = {"machine": machine(), "results": [result.to_dict() for result in results]}
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(found, indent=2, ensure_ascii=False), encoding="utf-8")
    if plots is not None and not is_installed("matplotlib"):
        show.say("no plots: matplotlib is not installed (pip install --group bench)")
    elif plots is not None:
        for path in draw(results, plots):
            show.say(f"drawn: {path}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["against_tree"]:
        del sys.argv[1]
        typer.run(against_tree.main)
    else:
        typer.run(main)
