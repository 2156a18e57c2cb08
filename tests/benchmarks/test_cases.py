"""Every benchmark still runs: each case on a few texts, for the shape of what it finds.

What it measures on so little says nothing. `start` is left out: its first start compiles every
kernel, and the daemon's start is tested elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks import (
    __main__,
    accuracy,
    against_river,
    against_sklearn,
    against_vw,
    challengers,
    cost,
    export_cost,
    file_daemon,
    folds,
    kafka_daemon,
    kafka_drain,
    latency,
    live,
    numeric,
    ours,
    page_answers,
    page_cost,
    pages,
    predict_http,
    publish,
    recent,
    restart,
    scaling,
    vocabulary,
    whole_export,
)
from benchmarks.alternate import alternate
from benchmarks.demands import demands
from benchmarks.peers import LeftOutError, is_installed
from benchmarks.plot import CURVES, RATIOS
from benchmarks.result import Figure, Result
from benchmarks.show import Show, table_of
from benchmarks.tweets import Tweets
from benchmarks.whole_stream import DEMANDED
from consumers.config.settings import Settings
from consumers.features import build_model
from streamnb.inspection.words import word_group
from tests.broker.broker import Broker
from tests.browser.browser_path import require_browser

KAFKA = ("kafka_daemon", "kafka_codecs")
# Each starts daemons and asks them for seconds.
LONG = (
    "checkpoints", "deletes", "evaluation", "file_daemon", "folds", "half_lives", "predict_http",
    "page_answers", "page_cost", "page_cost_busy", "pages", "kafka_daemon", "kafka_codecs", "live",
    "memory",
)  # fmt: skip
QUICK = [case for case in __main__.CASES if case not in (*KAFKA, "start")]
N_MESSAGES = 2_000
# Cases that bound some figures only if there is enough to measure.
OF_MUCH = ("ten_million_words", "memory", "whole_stream")
NEEDED = {"vw": "vowpalwabbit", "vw_pairs": "vowpalwabbit"}  # what tests can do without

SMALL: dict[ModuleType, dict[str, object]] = {
    against_river: {"TURNS": 1, "SLOW_TURNS": 1, "BERNOULLI_TWEETS": 100},
    against_sklearn: {"TURNS": 1},
    against_vw: {"TURNS": 1, "SIZES": (200,)},
    challengers: {"TURNS": 1, "MESSAGES": N_MESSAGES},
    cost: {"TURNS": 1, "CLASSES": (2, 3), "FIELDS": (1, 2), "LENGTHS": (30, 100), "BYTES": 1_000,
           "HYBRID_TWEETS": 200},
    page_answers: {"PAINTS": 1, "ROUNDS": 1, "SEARCHES": 1, "MINUTE_S": 1, "RUSH_PER_S": 500,
                   "STORED": 2 * N_MESSAGES},
    page_cost: {"TURNS": 1, "MESSAGES": N_MESSAGES, "DEFAULT_MESSAGES": N_MESSAGES},
    export_cost: {"TURNS": 1, "MESSAGES": N_MESSAGES, "ROWS": N_MESSAGES},
    whole_export: {"SETTLED": N_MESSAGES, "SPAN_S": 0.5},
    pages: {"TURNS": 1, "MESSAGES": N_MESSAGES, "PAGES": 2},
    numeric: {"TURNS": 1, "TIMED": 100, "LONGEST": 150},
    file_daemon: {
        "TURNS": 1, "MESSAGES": N_MESSAGES, "LONG_MESSAGES": N_MESSAGES,
        "DEFAULT_LONG_MESSAGES": N_MESSAGES, "LONG_TURNS": 1,
        "BY_EXAMPLES_MESSAGES": N_MESSAGES, "EVALUATED_MESSAGES": N_MESSAGES, "EVALUATED_TURNS": 1,
    },
    folds: {"COMPARED_TWEETS": 500, "EVALUATED_MESSAGES": N_MESSAGES, "EVALUATED_TURNS": 1},
    kafka_daemon: {"TURNS": 1, "MESSAGES": N_MESSAGES},
    live: {"TURNS": 1, "FRAMES": N_MESSAGES},
    kafka_drain: {
        "TURNS": 1, "MESSAGES": N_MESSAGES, "SINGLE_MESSAGES": N_MESSAGES, "CODECS": ("lz4",),
    },
    latency: {"ROUNDS": 1, "SECONDS": 0.1},
    predict_http: {"ROUNDS": 1, "SECONDS": 0.5, "SETTLED": N_MESSAGES, "BATCH": 100},
    recent: {"TURNS": 1, "MESSAGES": N_MESSAGES},
    restart: {"STARTS": 1},
    scaling: {
        "TURNS": 1, "ROWS": 40, "CLASSES": (2, 3), "FIELDS": (1, 2), "WORDS": (100, 200),
    },
    vocabulary: {
        "TURNS": 1, "TEXTS": 50, "SMALL": 100, "SIZES": (100, 200), "HUGE_SIZES": (100, 1_000),
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every case small."""
    for module, constants in SMALL.items():
        for name, value in constants.items():
            monkeypatch.setattr(module, name, value)


@pytest.fixture(scope="module")
def texts() -> Tweets:
    """Return a few made-up tweets."""
    labels = ["negative", "positive"] * 500
    return Tweets([f"text {i % 97} of {i % 31}" for i in range(1_000)], labels, "made-up texts")


def check(case: str, texts: Tweets) -> None:
    """Run a case and see that its figures are numbers with units, or that it misses a peer."""
    if case == "page_answers":
        require_browser()
    show = Show(Console(quiet=True))
    missing = NEEDED.get(case)
    if missing is not None and not is_installed(missing):
        with pytest.raises(LeftOutError, match=missing):
            __main__.CASES[case](texts, show)
        return
    result = __main__.CASES[case](texts, show)
    assert result.case == case
    assert result.figures
    for figure in result.figures:
        assert figure.unit
        assert math.isfinite(figure.value), figure.name
    names = [figure.name for figure in result.figures]
    assert len(set(names)) == len(names)
    demanded = set(demands().get(case, ()))
    bounded = {figure.name for figure in result.figures if figure.met is not None}
    assert bounded <= demanded
    assert bounded == demanded or case in OF_MUCH
    # These tweets have no tail behind the last positive one; `whole_stream` has a test of its own.
    assert demanded <= set(names) or case == "whole_stream"
    # The next run of all cases has what waits for it.
    new = [publish.REFERENCE.findall(row.figures) for row in publish.ROWS if row.is_new]
    assert {name for found in new for of, name in found if of == case} <= set(names)


def rare(cases: Iterable[str]) -> list[Any]:
    """Return cases, the long ones marked to be left to the long run."""
    return [pytest.param(each, marks=pytest.mark.deep) if each in LONG else each for each in cases]


@pytest.mark.deep
@pytest.mark.parametrize("case", rare(QUICK))
def test_a_case_runs(case: str, texts: Tweets) -> None:
    """A case finds figures that are numbers, each by a name of its own, or says who is missing."""
    check(case, texts)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("case", rare(KAFKA))
def test_a_kafka_case_runs(
    case: str, texts: Tweets, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case that fills a topic reads all of it, with every client and the daemon."""

    @contextlib.contextmanager
    def shared() -> Iterator[Broker]:
        yield broker

    for module in (kafka_drain, kafka_daemon):
        monkeypatch.setattr(module, "running_broker", shared)
    check(case, texts)


def test_turns_go_there_and_back() -> None:
    """No one is always the first; each turn's ratio is of that turn's runs."""
    ran: list[str] = []

    def timed(name: str, seconds: float) -> float:
        ran.append(name)
        return seconds * len(ran)

    both = {"a": lambda: timed("a", 1.0), "b": lambda: timed("b", 2.0)}
    turns = alternate(both, 3, Show(Console(quiet=True)))
    assert "".join(ran) == "abbaab"
    assert turns.seconds == {"a": [1.0, 4.0, 5.0], "b": [4.0, 6.0, 12.0]}
    assert turns.ratio("b", "a") == 2.4


def test_a_missing_peer_is_named() -> None:
    """A case that was left out stands in the table with the reason."""
    result = Result("vw", "", left_out="vowpalwabbit not installed")
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(table_of([result]))
    assert "vowpalwabbit not installed" in console.export_text()


def test_a_failing_case_takes_no_other_with_it(
    texts: Tweets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found before a case failed is written all the same."""

    def broken(tweets: Tweets, show: Show) -> Result:
        raise RuntimeError(f"{show.case} fails on {len(tweets)} texts")

    monkeypatch.setattr(__main__, "load", lambda: texts)
    monkeypatch.setitem(__main__.CASES, "memory", broken)
    path = tmp_path / "figures.json"
    with pytest.raises(RuntimeError, match="memory fails on 1000 texts"):
        __main__.main(["classes", "memory"], path, tweets=1_000)
    written = json.loads(path.read_text(encoding="utf-8"))
    assert [result["case"] for result in written["results"]] == ["classes"]


def test_a_case_takes_ctrl_c_from_no_other(
    texts: Tweets, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Ctrl-C interrupts a run after a case that left a handler of its own, or was left out."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def deaf(tweets: Tweets, show: Show) -> Result:
        signal.signal(signal.SIGINT, lambda _number, _frame: None)
        if show.case == "fields":
            raise LeftOutError("a peer is missing")
        return Result(show.case, tweets.origin)

    def interrupted(tweets: Tweets, show: Show) -> Result:
        signal.raise_signal(signal.SIGINT)
        return Result(show.case, tweets.origin)

    monkeypatch.setitem(__main__.CASES, "memory", interrupted)
    for name in ("classes", "fields"):
        monkeypatch.setitem(__main__.CASES, name, deaf)
        results: list[Result] = []
        with pytest.raises(KeyboardInterrupt):
            __main__.run([name, "memory"], texts, Show(Console(quiet=True)), results)
        assert [result.case for result in results] == [name]


@pytest.mark.deep
def test_plots_are_drawn(
    texts: Tweets,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ratios and curves become a picture each; without matplotlib a line says why there is none."""
    monkeypatch.setattr(__main__, "load", lambda: texts)
    __main__.main(["vocabulary", "classes"], plots=tmp_path, tweets=1_000)
    drawn = {path.name for path in tmp_path.iterdir() if path.stat().st_size}
    if is_installed("matplotlib"):
        assert drawn == {CURVES, RATIOS}
    else:
        assert not drawn
        assert "matplotlib is not installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "at_least", "at_most", "met"),
    [
        (2.0, 2.0, None, True),
        (1.9, 2.0, None, False),
        (2.1, None, 2.0, False),
        (1, None, None, None),
    ],
)
def test_a_demand_is_met_or_missed(
    value: float, at_least: float | None, at_most: float | None, met: bool | None
) -> None:
    """A figure on its bound meets it; without a demand there is nothing to meet."""
    assert Figure("figure", value, "times", at_least, at_most).met is met


def test_accuracy_is_demanded_of_the_whole_recorded_stream(texts: Tweets) -> None:
    """Of the default model, and of no other texts; the published figures keep to it."""

    def demanded(given: Tweets) -> dict[str, tuple[float | None, float | None]]:
        found = __main__.CASES["whole_stream"](given, Show(Console(quiet=True))).figures
        bounds = {each.name: (each.at_least, each.at_most) for each in found}
        return {name: own for name, own in bounds.items() if own != (None, None)}

    labels = [*texts.labels[:-100], *["negative"] * 100]  # as the recording ends
    recorded = Tweets(texts.texts, labels, "1,000 recorded tweets")
    own = {f"default model: {name}": bounds for name, bounds in DEMANDED.items()}
    assert list(own) == demands()["whole_stream"]
    assert demanded(recorded) == own
    assert demanded(texts) == demanded(recorded.first(900)) == {}
    path = Path(__main__.__file__).parents[1] / "docs" / "benchmark.json"
    cases = json.loads(path.read_text(encoding="utf-8"))["results"]
    (published,) = (each for each in cases if each["case"] == "whole_stream")
    values = {each["name"]: each["value"] for each in published["figures"]}
    known = {name: bounds for name, bounds in own.items() if name in values}
    assert len(known) >= 5
    for name, (at_least, at_most) in known.items():
        assert Figure(name, values[name], "%", at_least, at_most).met


def test_the_row_of_the_daemon_has_its_default_model() -> None:
    """The figure of `daemon` is that of a daemon whose configuration says nothing of its model."""
    found = accuracy.model_of(**accuracy.CHOICES["daemon"])
    assert found.describe() == build_model(Settings().model).describe()


def test_the_library_beside_the_default_model_has_its_words() -> None:
    """The library alone learns what the daemon learns, so their ratio is what the daemon adds."""
    beside, own = ours.new_model(ours.DEFAULT), build_model(Settings().model)
    assert word_group(beside.state, "text").spec == word_group(own.state, "text").spec


def test_a_choice_is_compared_tweet_by_tweet(capsys: pytest.CaptureFixture[str]) -> None:
    """Two points more accuracy on the same tweets, and the log-loss beside it, with intervals."""
    first = np.log(np.tile([[0.75, 0.25]], (1_000, 1)))
    second = first.copy()
    second[::50] = second[::50, ::-1]  # right about one in fifty that is of the other class
    truth = np.where(np.arange(1_000) % 50, 0, 1)
    accuracy.show_beside(first, second, truth)
    told = capsys.readouterr().out
    less = 0.02 * np.log(3)
    assert "accuracy +2.0000 ±0.8677" in told
    assert f"log-loss {-less:+.4f} ±" in told
