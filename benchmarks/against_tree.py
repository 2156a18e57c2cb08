"""The library and daemon of this tree against those of another one, in turns, by processor time.

`python -m benchmarks against_tree PATH [CASE]...` tells for each case how many times faster this
tree is: 1 for the same, below 1 for slower. Each tree has a process of its own; within a turn both
do the same work one right after the other, the first of them changing from turn to turn, and the
median over the turns is told. A first turn warms up and does not count. Whatever else the machine
does takes little from processor time. The exit code is 1 if a ratio falls short; the JSON is
written all the same.

The cases are what one process does of itself: the library's calls and the daemon on a file, with
its page and without. Of the cases of `python -m benchmarks` these are left out: those that measure
memory or a share of right answers, which has no processor time (`memory`, `whole_stream`); those
that wait for another process or a browser, where most of the time is the other's (`kafka_daemon`,
`kafka_codecs`, `live`, `latency`, `predict_http`, `pages`, `page_answers`); those that hold this
tree to its own promises (`page_cost`, `checkpoints`, `deletes`, `start`, `folds`, `half_lives`);
those that call what is not public, so that an older tree lacks it (`recent`); and those of a peer,
or that repeat a case above at other sizes (`sklearn`, `vw`, `vw_pairs`, `classes`, `fields`,
`lengths`, `scaling`, `ten_million_words`, `file_daemon`, `evaluation`).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks import tree_cases
from benchmarks.daemon_run import PLAIN
from benchmarks.file_daemon import write_lines
from benchmarks.result import Result, machine
from benchmarks.show import Show, table_of
from benchmarks.tweets import Tweets, load

AT_LEAST = 0.97
TURNS = 31
DAEMON_TURNS = 5
MESSAGES = 200_000
HERE = Path(__file__).resolve().parents[1]
_OFF = {"http": {"enabled": False}, "recent": {"enabled": False}}
_ON = {"http": {"port": 0}}
DAEMONS: dict[str, dict[str, Any]] = {"daemon": _OFF, "daemon_page": _ON}
CASES = (*tree_cases.CASES, *DAEMONS)

Seconds = Callable[[], float]


def in_turns(old: Seconds, new: Seconds, turns: int) -> tuple[float, float, float]:
    """Return the median seconds of both, and of old by new within one turn."""
    old(), new()
    pairs = []
    for turn in range(turns):
        if turn % 2:
            after = new()
            pairs.append((old(), after))
        else:
            before = old()
            pairs.append((before, new()))
    return (
        statistics.median(before for before, _ in pairs),
        statistics.median(after for _, after in pairs),
        statistics.median(before / after for before, after in pairs),
    )


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree)}


@contextlib.contextmanager
def library(tree: Path, texts: Path) -> Iterator[Callable[[str], float]]:
    """Start a tree's library; what is yielded runs a case by name.

    Raises
    ------
    RuntimeError
        Where another tree's library would be measured, or a case fails.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", tree_cases.__file__, texts],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tree,
        env=_environment(tree),
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def run(case: str) -> float:
        print(case, file=process.stdin, flush=True)
        told = process.stdout.readline() if process.stdout else ""
        if not told:
            raise RuntimeError(f"{tree}: the case {case} failed, see above")
        return float(told)

    with process:
        found = Path(process.stdout.readline().strip())
        if not found.is_relative_to(tree):
            raise RuntimeError(f"{tree} should be measured, and {found} was imported")
        yield run


def daemon(tree: Path, source: str, settings: Mapping[str, Any]) -> float:
    """Run a tree's daemon to the end of a file; return its processor seconds, start and all.

    Raises
    ------
    RuntimeError
        Where it failed.
    """
    with tempfile.TemporaryDirectory(prefix="streamnb-tree-") as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(json.dumps({"view": "log", **settings}), "utf-8")
        command = ["-m", "consumers", "run", "--source", source, "--until-end", "--json"]
        with (folder / "log").open("wb") as log, (folder / "summary").open("wb") as summary:
            process = subprocess.Popen(
                [sys.executable, "-P", *command],
                cwd=folder,
                env=_environment(tree),
                stdout=summary,
                stderr=log,
            )
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{tree}: {(folder / 'log').read_text(encoding='utf-8')[-2_000:]}")
    return used.ru_utime + used.ru_stime


def compare(
    old: Path, cases: list[str], tweets: Tweets, turns: int | None, n_messages: int, show: Show
) -> Iterator[Result]:
    """Yield what each case found, as soon as it has."""
    with tempfile.TemporaryDirectory(prefix="streamnb-tree-") as name, contextlib.ExitStack() as on:
        folder = Path(name)
        texts = folder / "texts.json"
        some = tweets.first(tree_cases.MANY)
        texts.write_text(json.dumps({"texts": some.texts, "labels": some.labels}), "utf-8")
        lasting = [case for case in cases if case not in DAEMONS]
        runs = [on.enter_context(library(tree, texts)) for tree in (old, HERE) if lasting]
        source = ""
        for case in cases:
            show.say(case)
            if case in DAEMONS:
                source = source or write_lines(folder, tweets, n_messages)
                both = [_daemon_of(tree, source, DAEMONS[case]) for tree in (old, HERE)]
            else:
                both = [_case_of(run, case) for run in runs]
            default = DAEMON_TURNS if case in DAEMONS else TURNS
            before_s, after_s, ratio = in_turns(both[0], both[1], turns or default)
            result = Result(case, tweets.origin)
            result.add("the other tree", before_s, "s")
            result.add("this tree", after_s, "s")
            result.add("faster than the other", ratio, "times", at_least=AT_LEAST)
            yield result


def _daemon_of(tree: Path, source: str, settings: Mapping[str, Any]) -> Seconds:
    # Both plain: version 0.1.0 had no such options, and knows no keys for them.
    known = (tree / "config.yaml").read_text(encoding="utf-8")
    own = {name: value for name, value in PLAIN.items() if f" {name}:" in known}
    plain = {"model": {"features": {"text": own}}} if own else {}
    return lambda: daemon(tree, source, {**settings, **plain})


def _case_of(run: Callable[[str], float], case: str) -> Seconds:
    return lambda: run(case)


def main(
    tree: Annotated[Path, typer.Argument(metavar="PATH", help="The other tree.", exists=True)],
    cases: Annotated[
        list[str] | None, typer.Argument(metavar="[CASE]...", help=f"Of {', '.join(CASES)}.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there as well.")
    ] = None,
    turns: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help=f"Else {TURNS}, {DAEMON_TURNS} of a daemon."),
    ] = None,
    messages: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many a daemon reads.")
    ] = MESSAGES,
) -> None:
    """Compare this tree with another one."""
    unknown = [name for name in cases or [] if name not in CASES]
    if unknown:
        raise typer.BadParameter(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    show = Show(Console(stderr=True))
    results: list[Result] = []
    try:
        chosen = cases or list(CASES)
        results += compare(tree.resolve(), chosen, load(), turns, messages, show)
    finally:
        Console().print(table_of(results))
        if json_file is not None:
            found = {
                "machine": machine(),
                "tree": str(tree),
                "results": [result.to_dict() for result in results],
            }
            json_file.write_text(json.dumps(found, indent=2, ensure_ascii=False), encoding="utf-8")
    missed = [result.case for result in results for figure in result.figures if figure.met is False]
    if missed:
        show.say(f"slower than {AT_LEAST:g} times the other tree: {', '.join(missed)}")
        raise typer.Exit(1)
