"""Write the figures of one run into README.md, docs/performance.md and docs/scale.md.

`python -m benchmarks publish FILE` takes the JSON of a run of all cases, keeps it as
docs/benchmark.json, and writes the tables between the markers of these documents from it alone. So
a figure in a document is one that a run found, with its commit, date and machine;
`tests/benchmarks/test_publish.py` fails if one is not.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
RUN: Final = Path("docs") / "benchmark.json"
README: Final = Path("README.md")
GUIDE: Final = Path("docs") / "performance.md"
SCALE: Final = Path("docs") / "scale.md"
DOCUMENTS: Final = (README, GUIDE, SCALE)
RECORDED: Final = "recorded tweets"
BEGIN: Final = "<!-- {}: written by `make benchmark` -->"
END: Final = "<!-- end of {} -->"
# `[case: figure]` in a row of the README
REFERENCE: Final = re.compile(r"\[(\w+): ([^\]]+)\]")
# The end of a row of docs/scale.md, which names its case and figure itself
SCALE_ROW: Final = re.compile(r"(?<=\| )[0-9.,]+ [^|]+ \| `(\w+)`: ([^|]+) \|$", re.MULTILINE)

Run = Mapping[str, Any]


class UnpublishedError(Exception):
    """A run is no source for the documents; the message says why, as a clause."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the README's table: what was measured, its figures, the cases that measure it.

    A row that `is_new` is left out if the run is older than its figures and has none of them.
    """

    what: str
    figures: str
    cases: str
    is_new: bool = False


# What a reader decides by. `[case: figure]` stands for a figure of the run.
ROWS: Final = (
    Row(
        "predict and learn, multinomial, unigrams",
        "[multinomial: streamnb] tweets/s, [multinomial: faster than River] times River",
        "multinomial",
    ),
    Row(
        "the same, Bernoulli, 5,000 tweets",
        "[bernoulli: streamnb] tweets/s, [bernoulli: faster than River] times River",
        "bernoulli",
    ),
    Row(
        "one call a tweet to predict, one to learn",
        "[one_at_a_time: streamnb] tweets/s, [one_at_a_time: faster than River] times River",
        "one_at_a_time",
    ),
    Row(
        "scikit-learn's `partial_fit` in batches of 1,000 / 10,000",
        "[sklearn: faster than batches of 1,000] / [sklearn: faster than batches of 10,000] times"
        " as fast",
        "sklearn",
    ),
    Row(
        "Vowpal Wabbit's driver, 200,000 tweets, unigrams / words and pairs (`-b 18`)",
        "[vw: speed of VW, b = 18, 200,000] / [vw_pairs: speed of VW, b = 18, 200,000] times as"
        " fast, with a second thread that reads ahead",
        "vw vw_pairs",
    ),
    Row(
        "the daemon on Kafka with its defaults, page on, but `hybrid`, `punctuation`, `ends`,"
        " `entities` and `compose` off, as in all rows of the daemon that do not say *default"
        " model*; JSON of 300 bytes, unigrams",
        "[kafka_daemon: daemon, unigrams] messages/s, all learned: [kafka_daemon: daemon, unigrams:"
        " faster than kafka-python] times what kafka-python only drains, [kafka_daemon: daemon,"
        " unigrams: speed of confluent-kafka] times confluent-kafka's",
        "kafka_daemon",
    ),
    Row(
        "the same with `client: librdkafka` / with words, pairs and negation",
        "[kafka_daemon: daemon, unigrams, client: librdkafka] / [kafka_daemon: daemon, pairs and"
        " negation] messages/s",
        "kafka_daemon",
    ),
    Row(
        "the same with the *default model*: hybrid, words, pairs and negation",
        "[kafka_daemon: daemon, default model] messages/s",
        "kafka_daemon",
        is_new=True,
    ),
    Row(
        "the daemon on a file, unigrams / words, pairs and negation",
        "[file_daemon: unigrams] / [file_daemon: pairs and negation] messages/s: [file_daemon:"
        " unigrams: speed of the library] / [file_daemon: pairs and negation: speed of the library]"
        " times the library alone",
        "file_daemon",
    ),
    Row(
        "the same with the *default model*",
        "[file_daemon: default model] messages/s: [file_daemon: default model: speed of the"
        " library] times the library alone, [file_daemon: default model: speed of pairs and"
        " negation] times words, pairs and negation without the hybrid",
        "file_daemon",
        is_new=True,
    ),
    Row(
        "the daemon with page, store and API beside without HTTP, store and corrections; words and"
        " pairs / unigrams",
        "[page_cost: pairs and negation, on to off] / [page_cost: unigrams, on to off] times as"
        " fast; with one core kept busy [page_cost_busy: pairs and negation, on to off] /"
        " [page_cost_busy: unigrams, on to off]",
        "page_cost page_cost_busy",
    ),
    Row(
        "the same with the *default model*",
        "[page_cost: default model, on to off] times as fast",
        "page_cost",
        is_new=True,
    ),
    Row(
        "the *default model* while a million stored rows are exported as CSV, beside alone",
        "[pages: speed beside an export to alone] times as fast",
        "pages",
        is_new=True,
    ),
    Row(
        "the page in a browser, a thousand tweets a second: a key / a tab or button / the first"
        " screenful of a search",
        "[page_answers: a key is shown, p95] / [page_answers: a tab or button answers, p95] /"
        " [page_answers: a search: figures and first screenful] ms",
        "page_answers",
        is_new=True,
    ),
    Row(
        "a checkpoint every 5 s beside none / with the memory for deletes, beside neither",
        "[checkpoints: speed with checkpoints to without] / [checkpoints: speed with both to"
        " neither] times as fast",
        "checkpoints",
    ),
    Row(
        "2 % of the messages deleted and 2 % updated, beside none",
        "[deletes: speed with deletes and updates to without] times as fast",
        "deletes",
    ),
    Row(
        "a live stream of Jetstream, by its first / its second wire, with the *default model*",
        "[live: Jetstream, version 1] / [live: Jetstream, version 2] frames/s",
        "live",
    ),
    Row(
        "200 predictions a second while learning at full rate",
        "p50 [latency: p50] ms, p99 [latency: p99] ms",
        "latency",
    ),
    Row(
        "the same over HTTP; saturated with one text / 1,000 texts a request",
        "p50 [predict_http: p50 at 200/s] ms, p99 [predict_http: p99 at 200/s] ms; [predict_http:"
        " one text, saturated] requests/s / [predict_http: 1,000 texts a request] texts/s",
        "predict_http",
    ),
    Row(
        "cost with 10⁴ / 10⁵ / 10⁶ words known, multinomial",
        "[vocabulary: multinomial, 10,000 words] / [vocabulary: multinomial, 100,000 words] /"
        " [vocabulary: multinomial, 1,000,000 words] µs a tweet",
        "vocabulary",
    ),
    Row(
        "1,600,000 tweets in time order, words and pairs with these options off, prequential; with"
        " them 83.2 % to the turn, see [accuracy](docs/accuracy.md)",
        "accuracy [whole_stream: accuracy] %, log-loss [whole_stream: log-loss] nats",
        "whole_stream",
    ),
    Row(
        "the same with the *default model*, to the last positive tweet / the whole stream",
        "accuracy [whole_stream: default model: accuracy to the last positive tweet] /"
        " [whole_stream: default model: accuracy] %, log-loss [whole_stream: default model:"
        " log-loss to the last positive tweet] / [whole_stream: default model: log-loss] nats",
        "whole_stream",
        is_new=True,
    ),
    Row(
        "memory of 10⁶ words and two snapshots",
        "[memory: model and two snapshots, RSS] MB",
        "memory",
    ),
    Row(
        "the same with the *default model*",
        "[memory: default model and two snapshots, RSS] MB, [memory: default model: memory of the"
        " plain] times as much",
        "memory",
        is_new=True,
    ),
    Row(
        "process start to the end of a run of one message",
        "[start: warm] s; the very first time [start: cold] s",
        "start",
    ),
)


def publish(path: Path, root: Path, cases: Mapping[str, str]) -> None:
    """Keep a run as docs/benchmark.json and write the documents from it.

    `cases` says of each case, by its name, what it does. Raises `UnpublishedError`, before anything
    is written, if the run is not one of all cases on the recorded tweets.
    """
    text = path.read_text(encoding="utf-8")
    run = json.loads(text)
    written = {name: rewritten(root, name, run, cases) for name in DOCUMENTS}
    (root / RUN).write_text(text, encoding="utf-8")
    for name, document in written.items():
        (root / name).write_text(document, encoding="utf-8")


def rewritten(root: Path, name: Path, run: Run, cases: Mapping[str, str]) -> str:
    """Return a document with what stands between its markers written from a run."""
    check(run, cases)
    text = (root / name).read_text(encoding="utf-8")
    tables = {
        README: {"figures": [about(run), "", *readme_table(run)]},
        GUIDE: {
            "figures": [about(run), "", *guide_table(run, cases)],
            "scaling": list(scaling_tables(run)),
        },
        SCALE: {"figures": [about(run), "", *scale_table(run, text)]},
    }[name]
    for title, lines in tables.items():
        begin, end = BEGIN.format(title), END.format(title)
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise UnpublishedError(f"{name} lacks {begin!r}, or {end!r} behind it")
        text = "\n".join([before + begin, *lines, end]) + after
    return text


def check(run: Run, cases: Mapping[str, str]) -> None:
    """Raise `UnpublishedError` unless a run has all cases, none left out, on recorded tweets."""
    ran = {result["case"]: result for result in run["results"]}
    missing = [name for name in cases if name not in ran]
    if missing:
        raise UnpublishedError(f"the run has no {', '.join(missing)}")
    left_out = [result["left_out"] for result in ran.values() if result.get("left_out")]
    if left_out:
        raise UnpublishedError(f"the run is not whole: {left_out[0]}")
    if RECORDED not in run["tweets"]:
        raise UnpublishedError(f"the run is of {run['tweets']}")


def about(run: Run) -> str:
    """Return when, of which commit and on which machine a run was, as a paragraph.

    A note that somebody added to the JSON is shown as well.
    """
    machine = run["machine"]
    said = (
        f"One run on {run['date']}, of commit {run['commit']}: {machine['cores']} cores"
        f" ({machine['processor']}), Python {machine['python']}, {run['tweets']}."
    )
    return f"{said} {run['note']}" if "note" in run else said


def figures_of(run: Run) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return a run's figures by case and name."""
    return {
        (result["case"], figure["name"]): figure
        for result in run["results"]
        for figure in result["figures"]
    }


def figure_of(found: Mapping[tuple[str, str], Mapping[str, Any]], case: str, name: str) -> Any:
    """Return a figure of a run, or raise `UnpublishedError`."""
    if (case, name) not in found:
        raise UnpublishedError(f"the run has no figure {name!r} of {case}")
    return found[case, name]


def readme_table(run: Run) -> Iterator[str]:
    """Yield the lines of the README's table."""
    found = figures_of(run)

    def shown(match: re.Match[str]) -> str:
        return short(figure_of(found, *match.groups())["value"])

    yield "| what | figure | command |"
    yield "| --- | --- | --- |"
    for row in ROWS:
        if row.is_new and found.keys().isdisjoint(REFERENCE.findall(row.figures)):
            continue
        figures = REFERENCE.sub(shown, row.figures)
        yield f"| {row.what} | {figures} | `python -m benchmarks {row.cases}` |"


def scale_table(run: Run, text: str) -> Iterator[str]:
    """Yield the lines of the table of docs/scale.md: its rows, with the figures of this run."""
    found = figures_of(run)

    def shown(match: re.Match[str]) -> str:
        case, name = match.groups()
        figure = figure_of(found, case, name)
        return f"{short(figure['value'])} {figure['unit']} | `{case}`: {name} |"

    yield "| what | figure | row |"
    yield "| --- | --- | --- |"
    for line in text.splitlines():
        if SCALE_ROW.search(line):
            yield SCALE_ROW.sub(shown, line)


def guide_table(run: Run, cases: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the guide's table: every figure but those of `scaling`."""
    ran = {result["case"]: result for result in run["results"]}
    yield "| case | figure | value | wanted |"
    yield "| --- | --- | --- | --- |"
    for name, what in cases.items():
        yield f"| `{name}` | *{what.rstrip('.')}* | | |"
        if name == "scaling":
            yield "| | the tables below | | |"
            continue
        for figure in ran[name]["figures"]:
            value = f"{short(figure['value'])} {figure['unit']}"
            yield f"| | {figure['name']} | {value} |{_wanted(figure)}|"


def scaling_tables(run: Run) -> Iterator[str]:
    """Yield a table for each axis along which `scaling` measures: a row a curve."""
    figures = next(result for result in run["results"] if result["case"] == "scaling")["figures"]
    axes: defaultdict[str, defaultdict[str, dict[str, Any]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for figure in figures:
        curve, _, axis = figure["curve"].rpartition(", by ")
        at = "p" if figure.get("at") is None else short(figure["at"])
        axes[axis][curve][at] = figure
    for axis, curves in axes.items():
        sizes = list(next(iter(curves.values())))
        heads = [f"{sizes[0]} {axis}", *sizes[1:]]
        yield from (
            "",
            f"| ns an example | {' | '.join(heads)} |",
            "| --- " * (1 + len(heads)) + "|",
        )
        for curve, row in curves.items():
            yield f"| {curve} | {' | '.join(short(row[at]['value']) for at in sizes)} |"
    yield ""


def _wanted(figure: Mapping[str, Any]) -> str:
    """Return the cell with the demand on a figure, and whether it was missed."""
    if figure.get("at_least") is not None:
        demand = f"≥ {_plain(figure['at_least'])}"
    elif figure.get("at_most") is not None:
        demand = f"≤ {_plain(figure['at_most'])}"
    else:
        return " "
    return f" {demand} " if figure["met"] else f" **{demand}, missed** "


def _plain(value: float) -> str:
    """Return a number of a demand: all its digits up to four."""
    return f"{float(f'{value:.4g}'):,.10g}"


def short(value: float) -> str:
    """Return a number rounded to three digits that mean something."""
    return f"{float(f'{value:.3g}'):,.10g}"


def sentences(cases: Mapping[str, Any]) -> dict[str, str]:
    """Return the first line of each case's docstring."""
    return {name: (case.__doc__ or name).partition("\n")[0] for name, case in cases.items()}
