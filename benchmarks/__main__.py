"""`python -m benchmarks [CASE ...]`: runs the cases, prints a table, writes JSON if asked to.

`python -m benchmarks against_tree PATH [CASE ...]` compares this tree with another one;
`python -m benchmarks publish FILE` writes the figures of a run of all cases into the documents.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import against_tree, publish
from benchmarks.against_river import bernoulli, multinomial, one_at_a_time
from benchmarks.against_sklearn import sklearn
from benchmarks.against_vw import vw, vw_pairs
from benchmarks.challengers import half_lives
from benchmarks.cost import classes, fields, hybrid, lengths
from benchmarks.file_daemon import checkpoints, deletes, evaluation, file_daemon
from benchmarks.folds import folds
from benchmarks.kafka_daemon import kafka_daemon
from benchmarks.kafka_drain import kafka_codecs
from benchmarks.latency import latency
from benchmarks.live import live
from benchmarks.memory import memory
from benchmarks.numeric import numeric, numeric_one
from benchmarks.page_answers import page_answers
from benchmarks.page_cost import page_cost, page_cost_busy
from benchmarks.pages import pages
from benchmarks.peers import LeftOutError, is_installed
from benchmarks.plot import draw
from benchmarks.predict_http import predict_http
from benchmarks.recent import recent
from benchmarks.result import Result, commit, machine
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
        hybrid,
        half_lives,
        scaling,
        latency,
        recent,
        kafka_daemon,
        kafka_codecs,
        file_daemon,
        evaluation,
        folds,
        checkpoints,
        deletes,
        live,
        predict_http,
        page_cost,
        page_cost_busy,
        pages,
        page_answers,
        whole_stream,
        memory,
        start,
    )
}


def run(cases: list[str], tweets: Tweets, show: Show, results: list[Result]) -> None:
    """Run cases by name, all if none is named.

    `results` gets what each case found as soon as it has: a case that fails takes no other with it.
    """
    gc.freeze()  # millions of strings, which no daemon holds: the collector need not walk them
    interrupt = signal.getsignal(signal.SIGINT)
    names = cases or list(CASES)
    what = publish.sentences(CASES)
    for number, name in enumerate(names, start=1):
        show.case = name
        show.say(f"{number} of {len(names)}, {name}: {what[name]}")
        began = time.perf_counter()
        try:
            result = CASES[name](tweets, show)
        except LeftOutError as error:
            result = Result(name, "", left_out=str(error))
        finally:
            signal.signal(signal.SIGINT, interrupt)  # whatever the case's libraries left there
        result.seconds = time.perf_counter() - began
        show.say(f"    {result.seconds:.0f} s")
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
    """Measure streamnb. Without a CASE all of them run, in about an hour."""
    unknown = [name for name in cases or [] if name not in CASES]
    if unknown:
        raise typer.BadParameter(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    show = Show(Console(stderr=True))
    results: list[Result] = []
    about = {"commit": commit(), "date": datetime.now(UTC).date().isoformat()}
    show.say("reading the tweets")
    texts = load() if tweets is None else load().first(tweets)
    show.say(f"{len(texts):,} of {texts.origin}")
    try:
        run(cases or [], texts, show, results)
    finally:
        about["tweets"] = f"{len(texts):,} of {texts.origin}" if tweets else texts.origin
        _hand_out(results, about, json_file, plots, show)


def _hand_out(
    results: list[Result],
    about: dict[str, str],
    json_file: Path | None,
    plots: Path | None,
    show: Show,
) -> None:
    Console().print(table_of(results))
    if json_file is not None:
        found = {**about, "machine": machine(), "results": [result.to_dict() for result in results]}
        json_file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        json_file.write_text(text, encoding="utf-8")
    if plots is not None and not is_installed("matplotlib"):
        show.say("no plots: matplotlib is not installed (pip install --group bench)")
    elif plots is not None:
        for path in draw(results, plots):
            show.say(f"drawn: {path}")


def publish_run(
    json_file: Annotated[Path, typer.Argument(metavar="FILE", help="The JSON of a run.")],
) -> None:
    """Write a run of all cases into docs/benchmark.json, README.md and docs/performance.md."""
    show = Show(Console(stderr=True))
    try:
        publish.publish(json_file, publish.ROOT, publish.sentences(CASES))
    except publish.UnpublishedError as error:
        show.say(f"the documents stay as they are: {error}")
    else:
        show.say(f"written: {', '.join(map(str, (publish.RUN, *publish.DOCUMENTS)))}")


_OTHERS: dict[str, Callable[..., None]] = {
    "against_tree": against_tree.main,
    "publish": publish_run,
}


if __name__ == "__main__":
    other = _OTHERS.get(sys.argv[1]) if sys.argv[1:] else None
    if other is not None:
        del sys.argv[1]
    typer.run(other or main)
