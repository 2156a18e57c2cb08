"""Which figures the cases hold to a bound, by the names that they give them.

A run that is published must have each of them: a figure that is not there is one that nobody can
miss. Names have sizes in them, which are the cases' own. That a case bounds these figures and no
others is tested where each runs on a few texts, with smaller sizes.
"""

from __future__ import annotations

from benchmarks import (
    against_sklearn,
    against_vw,
    export_cost,
    folds,
    kafka_drain,
    numeric,
    page_answers,
    recent,
    restart,
    scaling,
    vocabulary,
    whole_stream,
)
from benchmarks.daemon_run import MODELS


def demands() -> dict[str, list[str]]:
    """Return the names of the figures that have a bound, by case; one without any is not there."""
    return {
        **_beside_peers(),
        **_of_size(),
        **_of_daemon(),
        **_of_page(),
        "whole_stream": [f"default model: {name}" for name in whole_stream.DEMANDED],
        "memory": [
            "model and two snapshots, RSS",
            "model and two snapshots, USS",
            "default model: memory of the plain",
            "plain with the hybrid: memory of the plain",
        ],
        "start": [
            "cold",
            "warm",
            "cold, until the page answers",
            "warm, until the page answers",
            "cold: time that 0.1.0 takes",
            "warm: time that 0.1.0 takes",
            "warm: processor time that 0.1.0 takes",
        ],
    }


def _beside_peers() -> dict[str, list[str]]:
    streams = [kind.__name__ for kind in numeric.KINDS]
    against = f"speed of VW, b = {against_vw.DEFAULT_BITS}"
    return {
        "multinomial": ["faster than River"],
        "bernoulli": ["faster than River", "speed of our multinomial"],
        "one_at_a_time": ["faster than River"],
        "numeric": [
            f"{name}: {what}"
            for name in streams
            for what in ("faster than River", "streamnb is right")
        ],
        "numeric_one": [f"{name}: faster than River" for name in streams],
        "sklearn": [f"faster than batches of {against_sklearn.DEMANDED:,}"],
        **{case: [f"{against}, {n:,}" for n in against_vw.SIZES] for case in ("vw", "vw_pairs")},
    }


def _of_size() -> dict[str, list[str]]:
    learn_predict = ("learn", "predict")
    curves = [(kind, axis) for kind in scaling.KINDS for axis in ("classes", "fields")]
    return {
        "vocabulary": _grown(("multinomial", "Bernoulli"), vocabulary.SIZES),
        "ten_million_words": [
            *_grown(
                [f"{what} {of}" for of in ("frequent words", "any word") for what in learn_predict],
                vocabulary.HUGE_SIZES,
            ),
            "in memory, with text and room",
        ],
        "hybrid": [
            f"{what}: {ratio}"
            for what in ("learning", "judging")
            for ratio in (
                "pairs and hybrid, speed of pairs",
                "default model, speed of default model without its hybrid",
            )
        ],
        "half_lives": [
            f"{which}: time of one"
            for which in (
                "library, words",
                "library, pairs and negation",
                "daemon, counts alone",
                "daemon, default model",
            )
        ],
        "scaling": [
            f"{kind}, {what}, by {axis}: exponent"
            for kind, axis in [*curves, ("words", "words")]
            for what in learn_predict
        ],
        "latency": ["p50", "p99"],
        "folds": [
            *(
                f"{name}: {what}"
                for name in folds.MODELS
                for what in (
                    f"equal digests of {folds.COMPARED_TWEETS:,} tweets",
                    "time of one training",
                )
            ),
            f"evaluate --folds {folds.FOLDS}: time of evaluate",
        ],
    }


def _grown(what: tuple[str, ...] | list[str], sizes: tuple[int, ...]) -> list[str]:
    """Return the names of ratios of the largest size to the smallest."""
    return [f"{name}, time with {max(sizes):,} to {min(sizes):,}" for name in what]


def _of_daemon() -> dict[str, list[str]]:
    asked = [*recent.QUERIES, *recent.CONDITIONS]
    return {
        "recent": [
            "write a message",
            *(f"{how}, {what}" for what in asked for how in ("count", "search")),
            f"restart with {recent.MESSAGES:,} stored: right figures, slowest of {restart.STARTS}",
            *(f"30 days of hours, {what}" for what in ("everything", *recent.WORDS)),
            "count, first question about a field",
        ],
        "kafka_daemon": [
            "daemon, unigrams: faster than kafka-python",
            "daemon, unigrams: speed of confluent-kafka",
        ],
        "kafka_codecs": [
            f"{topic}: faster than kafka-python" for topic in (*kafka_drain.CODECS, "single")
        ],
        "file_daemon": ["unigrams", "unigrams: speed of the library"],
        "evaluation": [
            "evaluate: speed of the library",
            "compare two models: speed of the library",
        ],
        "checkpoints": [
            "speed with checkpoints to without",
            "speed with both to neither",
            "checkpoints a run, at least",
            "default model: speed with both to neither",
            "default model: checkpoints a run, at least",
        ],
        "deletes": ["speed with deletes and updates to without"],
        "live": ["Jetstream, version 1", "Jetstream, version 2"],
    }


def _of_page() -> dict[str, list[str]]:
    whole = f"a whole CSV of {export_cost.ROWS:,} rows"
    late = f"{page_answers.LATE_MS:.0f} ms"
    minute = f"a minute of {page_answers.MINUTE_PER_S:,}/s"
    searches = ("a search", f"first search of {page_answers.STORED:,} stored")
    return {
        "predict_http": [
            "replica, saturated",
            "replica, p99 of age, highest of the runs",
            "p99 at 200/s",
            "one text, saturated",
            "1,000 texts a request",
        ],
        "page_cost": [f"{name}, on to off" for name in MODELS],
        "page_cost_busy": ["pairs and negation, on to off", "unigrams, on to off"],
        "pages": [
            "speed with 100 pages open to none",
            "pages that were told",
            "longest time between figures of a page",
            "speed beside an export to alone",
            f"{whole}, with its header",
            f"{whole}: memory more of the daemon",
            f"{whole}: speed beside it to alone",
        ],
        "page_answers": [
            "first paint in a new profile",
            "a key is shown, p95",
            "a tab or button answers, p95",
            *(
                f"{name}: {what}"
                for name in searches
                for what in (
                    "heading",
                    "figures and first screenful",
                    f"all {page_answers.ROWS_MAX} rows",
                )
            ),
            f"{minute}: frames later than {late}",
            f"{minute}: tasks longer than {late}",
            f"{minute}: growth of the heap in it",
        ],
    }
