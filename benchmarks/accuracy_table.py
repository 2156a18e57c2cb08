"""`python -m benchmarks.accuracy_table`: judge what docs/accuracy.md states, and write its tables.

Each of `ROWS` is a run of `python -m benchmarks.accuracy`, of all recorded tweets; all of them take
some minutes. Their figures, with the demands on them, commit and date, are kept as
docs/accuracy.json, and the tables between the markers of docs/accuracy.md are written from that
file alone: by `--again` without a run. `tests/benchmarks/test_accuracy_table.py` fails if a figure
is not the run's, or misses what is demanded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.accuracy import (
    CHOICES,
    COVERAGE,
    MAX_WORDS,
    PEERS,
    Judged,
    held_out,
    judge,
    judge_sets,
    ours,
)
from benchmarks.publish import (
    END,
    RECORDED,
    ROOT,
    UnpublishedError,
    about,
    figure_of,
    figures_of,
    short,
)
from benchmarks.result import Result, commit, machine
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets, load

RUN: Final = Path("docs") / "accuracy.json"
GUIDE: Final = Path("docs") / "accuracy.md"
BEGIN: Final = "<!-- {}: written by `python -m benchmarks.accuracy_table` -->"
LATE: Final = 100_000  # tweets
SETS: Final = f"sets for {COVERAGE:.0%}: "
TURN, WHOLE, HELD, BEHIND = "to the turn", "whole stream", "held out", f"behind {LATE:,}"
SPEED, THOUSANDS = "judged and learned", "thousand tweets/s"

Bounds = tuple[float | None, float | None]  # at least, at most
Floats = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the tables: what is judged, and how the command names it."""

    what: str
    model: str
    parts: int = 0
    late: int = 0

    @property
    def command(self) -> str:
        """Return what stands behind `python -m benchmarks.accuracy` to judge it alone."""
        options = {"--parts": self.parts, "--late": self.late}
        return " ".join([self.model, *(f"{name} {n}" for name, n in options.items() if n)])


DAEMON: Final = Row(
    "**the daemon as it comes**: its configuration's defaults, `punctuation`, `ends`, `entities`"
    " and `compose` among them",
    "daemon",
)
OTHERS: Final = (
    "ends", "punctuation", "gap", "trigrams", "signs-trigrams", "signs-gap-2", "smoothing-1",
    "smoothing-5", "shrinkage-0.05", "shrinkage-0.2", "half-life-300", "half-life-2000", "fields",
    "plain-fields", *(f"prior-{n}" for n in (100, 300, 700, 2000, 10000, 100000)),
)  # fmt: skip
ROWS: Final = (
    DAEMON,
    *(Row(f"the same, {n} parts", "daemon", parts=n) for n in (2, 4, 8)),
    Row(f"the same, labels {LATE:,} tweets late", "daemon", late=LATE),
    Row("plain multinomial", "plain"),
    Row("hybrid", "hybrid"),
    Row("hybrid with `punctuation` and `ends`", "signs"),
    Row("hybrid with `punctuation`, `ends` and `gap=1`", "signs-gap"),
    *(Row(f"{name}, as told further down", name) for name in OTHERS),
    Row("Vowpal Wabbit, logistic, pairs, b = 24", "vowpal-wabbit"),
    Row("scikit-learn's SGDClassifier, pairs, 2²² hashes, 1,000 tweets a step", "sgd"),
)
_SETS: Final[dict[str, Bounds]] = {
    f"{SETS}covered": (89.5, 90.5),
    f"{SETS}covered behind the turn": (89.5, 90.5),
    f"{SETS}least covered block": (88.0, None),
    f"{SETS}most covered block": (None, 92.0),
}
_AHEAD: Final[dict[str, Bounds]] = {
    "the daemon ahead: accuracy": (0.0, None),
    "the daemon ahead: log-loss": (0.0, None),
    "the daemon ahead: calibration error": (0.0, None),
}
# By row, as the command names it.
DEMANDED: Final[dict[str, dict[str, Bounds]]] = {
    "daemon": {
        f"{TURN}: accuracy": (83.2, None),
        f"{TURN}: log-loss": (None, 0.380),
        f"{TURN}: calibration error": (None, 0.004),
        f"{HELD}: accuracy": (82.8, None),
        f"{HELD}: log-loss": (None, 0.39),
        f"{HELD}: recall of negative": (80.0, None),
        f"{HELD}: recall of positive": (80.0, None),
    }
    | _SETS,
    "daemon --parts 2": {
        f"{TURN}: accuracy": (83.0, None),
        f"{TURN}: calibration error": (None, 0.006),
    },
    "daemon --parts 8": {
        f"{TURN}: accuracy": (82.5, None),
        f"{TURN}: calibration error": (None, 0.006),
    },
    f"daemon --late {LATE}": {"accuracy lost to labels in time": (None, 1.0)},
    "vowpal-wabbit": _AHEAD,
    "sgd": _AHEAD,
}


def judged(row: Row, tweets: Tweets, rows: Places, held: Places) -> Judged:
    """Judge a row: all rows of the stream in order, and those held out."""
    if row.model in PEERS:
        return PEERS[row.model](tweets, rows, held)
    how = {"parts": row.parts, "late": row.late, "max_words": MAX_WORDS}
    return ours(tweets, rows, held, CHOICES[row.model], **how)


def add_figures(result: Result, what: str, said: Floats, truth: Places) -> None:
    """Add accuracy, log-loss and calibration error of some answers."""
    accuracy, log_loss, error = judge(said, truth)
    _add(result, f"{what}: accuracy", 100.0 * accuracy, "%")
    _add(result, f"{what}: log-loss", log_loss, "nats")
    _add(result, f"{what}: calibration error", error, "of 1")


def add_sets(result: Result, said: Floats, truth: Places, turn: int) -> None:
    """Add what prediction sets cover, in all and in each block, and how large they are."""
    sets = judge_sets(said, truth, turn)
    _add(result, f"{SETS}covered", sets.covered, "%")
    if turn < len(truth):
        _add(result, f"{SETS}covered behind the turn", sets.tail, "%")
    _add(result, f"{SETS}least covered block", sets.least, "%")
    _add(result, f"{SETS}most covered block", sets.most, "%")
    _add(result, f"{SETS}mean size", sets.size, "classes")
    _add(result, f"{SETS}of one class", sets.single, "%")


def add_difference(result: Result, own: Floats, other: Floats, truth: Places) -> None:
    """Add by how much the first is ahead of the other on the same tweets, with its intervals."""
    rows = np.arange(len(truth))
    right, other_right = own.argmax(axis=1) == truth, other.argmax(axis=1) == truth
    for what, scale, unit, ahead in (
        ("accuracy", 100.0, "points", right * 1.0 - other_right),
        ("log-loss", 1.0, "nats", own[rows, truth] - other[rows, truth]),
    ):
        blocks = [each.mean() for each in np.array_split(ahead, min(1_000, len(ahead)))]
        width = 1.96 * scale * float(np.std(blocks)) / len(blocks) ** 0.5
        _add(result, f"the daemon ahead: {what}", scale * float(ahead.mean()), unit)
        _add(result, f"the daemon ahead: {what}, half of its interval", width, unit)
    error, other_error = judge(own, truth)[2], judge(other, truth)[2]
    _add(result, "the daemon ahead: calibration error", other_error - error, "of 1")


def _add(result: Result, name: str, value: float, unit: str) -> None:
    """Add a figure with the demand on it."""
    at_least, at_most = DEMANDED.get(result.case, {}).get(name, (None, None))
    result.add(name, value, unit, at_least=at_least, at_most=at_most)


def results(tweets: Tweets, show: Show) -> list[Result]:
    """Judge all rows; the daemon comes first, as others are held against it."""
    truth = np.array([CLASSES.index(label) for label in tweets.labels])
    held = held_out(truth)
    rows = np.setdiff1d(np.arange(len(truth)), held)
    own = truth[rows]
    turn = int(np.flatnonzero(own == 1)[-1]) + 1
    found, daemon = [], np.empty((0, 2))
    for row in ROWS:
        show.say(row.command)
        said = judged(row, tweets, rows, held)
        result = Result(row.command, tweets.origin)
        add_figures(result, TURN, said.stream[:turn], own[:turn])
        add_figures(result, WHOLE, said.stream, own)
        add_figures(result, HELD, said.held, truth[held])
        _add(result, SPEED, 1e-3 / said.learn_s, THOUSANDS)
        for c, name in enumerate(CLASSES):
            recall = float((said.held[truth[held] == c].argmax(axis=1) == c).mean())
            _add(result, f"{HELD}: recall of {name}", 100.0 * recall, "%")
        if row is DAEMON:
            daemon = said.stream
        if row is DAEMON or row.late:
            add_figures(result, BEHIND, said.stream[LATE:turn], own[LATE:turn])
        if row.late:
            in_time, lost = (
                judge(each[LATE:turn], own[LATE:turn])[0] for each in (daemon, said.stream)
            )
            _add(result, "accuracy lost to labels in time", 100.0 * (in_time - lost), "points")
        elif row.model not in PEERS:
            add_sets(result, said.stream, own, turn)
        if row is not DAEMON and not row.late:
            add_difference(result, daemon[:turn], said.stream[:turn], own[:turn])
        found.append(result)
    return found


def rewritten(root: Path, run: Mapping[str, Any]) -> str:
    """Return docs/accuracy.md with what stands between its markers written from a run."""
    if RECORDED not in run["tweets"]:
        raise UnpublishedError(f"the run is of {run['tweets']}")
    text = (root / GUIDE).read_text(encoding="utf-8")
    tables = {
        "figures": [about(run), "", *figures_table(run)],
        "demands": list(demands_table(run)),
        "sets": list(sets_table(run)),
    }
    for title, lines in tables.items():
        begin, end = BEGIN.format(title), END.format(title)
        between = re.compile(f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})", re.DOTALL)
        written = "\n".join([*lines, ""])
        text, n = between.subn(lambda _, written=written: written, text)  # type: ignore[misc]
        if n != 1:
            raise UnpublishedError(f"{GUIDE} lacks {begin!r}, or {end!r} behind it")
    return text


def rows_of(found: Mapping[tuple[str, str], Any]) -> list[Row]:
    """Return the rows that a run has: an older one lacks those of `OTHERS`."""
    first = f"{TURN}: accuracy"
    return [row for row in ROWS if row.model not in OTHERS or (row.command, first) in found]


def figures_table(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of all rows."""
    found = figures_of(run)

    def shown(case: str, name: str, digits: int, unit: str = "") -> str:
        value = figure_of(found, case, name)["value"]
        return f"{value:.{digits}f} {unit}".strip()

    def judged_of(case: str, what: str) -> str:
        three = ("accuracy", 2, "%"), ("log-loss", 4, ""), ("calibration error", 4, "")
        return " / ".join(shown(case, f"{what}: {name}", n, unit) for name, n, unit in three)

    def ahead(case: str) -> str:
        name = "the daemon ahead: "
        if (case, f"{name}accuracy") not in found:
            return "–"
        both = []
        for what, n in (("accuracy", 3), ("log-loss", 5)):
            half = shown(case, f"{name}{what}, half of its interval", n)
            both.append(f"{shown(case, name + what, n)} ± {half}")
        return " / ".join([*both, shown(case, f"{name}calibration error", 4)])

    has_speed = (DAEMON.command, SPEED) in found  # older runs have none
    heads = [f"{what}: accuracy / log-loss / ECE" for what in (TURN, WHOLE, HELD)]
    heads.append("the daemon ahead of it, to the turn: points / nats / ECE")
    heads += ["recalls", *([THOUSANDS] if has_speed else []), "repeat"]
    yield f"| model | {' | '.join(heads)} |"
    yield "| --- " * (len(heads) + 1) + "|"
    for row in rows_of(found):
        case = row.command
        cells = [*(judged_of(case, what) for what in (TURN, WHOLE, HELD)), ahead(case)]
        cells.append(" and ".join(shown(case, f"{HELD}: recall of {c}", 1, "%") for c in CLASSES))
        if has_speed:
            cells.append(short(figure_of(found, case, SPEED)["value"]))
        yield f"| {row.what} | {' | '.join(cells)} | `{case}` |"
    for row in ROWS:
        if row is DAEMON or row.late:
            command = row.command if row.late else f"{row.command} --behind {LATE}"
            what = f"{row.what}; without the first {LATE:,} tweets"
            cells = [judged_of(row.command, BEHIND), *["–"] * (len(heads) - 2)]
            yield f"| {what} | {' | '.join(cells)} | `{command}` |"


def demands_table(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of what is demanded."""
    found = figures_of(run)
    yield "| row | figure | value | wanted |"
    yield "| --- | --- | --- | --- |"
    for case, demanded in DEMANDED.items():
        for name in demanded:
            figure = figure_of(found, case, name)
            bounds = (("≥", figure.get("at_least")), ("≤", figure.get("at_most")))
            wanted = " and ".join(
                f"{sign} {bound:g}" for sign, bound in bounds if bound is not None
            )
            missed = "" if figure["met"] else ", **missed**"
            value = f"{figure['value']:.4g} {figure['unit']}".removesuffix(" of 1")
            half = found.get((case, f"{name}, half of its interval"))
            interval = "" if half is None else f" ± {half['value']:.2g}"
            yield f"| `{case}` | {name} | {value}{interval} | {wanted}{missed} |"


def sets_table(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of prediction sets."""
    found = figures_of(run)
    yield (
        "| row | covered | behind the turn | least and most covered block | mean size |"
        " of one class |"
    )
    yield "| --- | --- | --- | --- | --- | --- |"
    for case in (row.command for row in ROWS):
        if (case, f"{SETS}covered") not in found:
            continue
        own = {
            name: figure_of(found, case, SETS + name)["value"]
            for name in (
                "covered", "covered behind the turn", "least covered block", "most covered block",
                "mean size", "of one class",
            )
        }  # fmt: skip
        covered, tail, least, most, size, one = own.values()
        yield (
            f"| `{case}` | {covered:.2f} % | {tail:.2f} % | {least:.2f} % and {most:.2f} % |"
            f" {size:.3f} | {one:.1f} % |"
        )


def main(
    again: Annotated[
        bool, typer.Option("--again", help="Write the tables from the last run.")
    ] = False,
) -> None:
    """Judge all rows, and write docs/accuracy.json and the tables of docs/accuracy.md."""
    show = Show(Console(stderr=True))
    path = ROOT / RUN
    if not again:
        tweets = load()
        run = {
            "commit": commit(),  # before the run, which may outlast it
            "date": datetime.now(UTC).date().isoformat(),
            "tweets": tweets.origin,
            "machine": machine(),
            "results": [result.to_dict() for result in results(tweets, show)],
        }
        rewritten(ROOT, run)  # nothing is kept that is no source for the document
        text = json.dumps(run, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")
    written = rewritten(ROOT, json.loads(path.read_text(encoding="utf-8")))
    (ROOT / GUIDE).write_text(written, encoding="utf-8")
    show.say(f"written: {GUIDE}")


if __name__ == "__main__":
    typer.run(main)
