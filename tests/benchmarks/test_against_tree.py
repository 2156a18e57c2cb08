"""A tree is measured against another: every case runs, and each tree's own library is used."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from rich.console import Console

from benchmarks import __main__, against_tree, tree_cases
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

LABELS = ["negative", "positive"] * 500
TWEETS = Tweets([f"text {i % 97} of {i % 31}" for i in range(1_000)], LABELS, "made-up texts")


@pytest.mark.parametrize("case", tree_cases.CASES)
def test_a_case_runs(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case of the library does its work on a few texts."""
    for name, value in {"MANY": 200, "FEW": 20, "WORDS": 100, "TURNS_OF_BYTES": 1}.items():
        monkeypatch.setattr(tree_cases, name, value)
    monkeypatch.setattr(tree_cases, "texts", lambda: (TWEETS.texts, TWEETS.labels))
    tree_cases.CASES[case]()()


@pytest.mark.deep
def test_a_tree_is_compared_with_itself() -> None:
    """Processes of both trees give three figures a case, the ratio among them."""
    show = Show(Console(quiet=True))
    cases = ["multinomial", "daemon"]
    found = list(against_tree.compare(against_tree.HERE, cases, TWEETS, 1, 1_000, show))
    assert [result.case for result in found] == cases
    for result in found:
        assert [figure.unit for figure in result.figures] == ["s", "s", "times"]
        assert all(math.isfinite(figure.value) for figure in result.figures)


def test_another_library_than_the_tree_s_is_refused(tmp_path: Path) -> None:
    """A folder without a library is no tree: what is installed would be measured in its place."""
    texts = tmp_path / "texts.json"
    texts.write_text('{"texts": [], "labels": []}', encoding="utf-8")
    with (
        pytest.raises(RuntimeError, match="should be measured"),
        against_tree.library(tmp_path, texts),
    ):
        pass


def test_the_ratio_is_taken_within_a_turn() -> None:
    """The first turn warms up; then the order changes, and old by new is the median."""
    order: list[str] = []
    old_s, new_s = iter([9.0, 2.0, 8.0, 6.0]), iter([9.0, 1.0, 2.0, 2.0])

    def old() -> float:
        order.append("old")
        return next(old_s)

    def new() -> float:
        order.append("new")
        return next(new_s)

    assert against_tree.in_turns(old, new, 3) == (6.0, 2.0, 3.0)
    assert order == ["old", "new", "old", "new", "new", "old", "old", "new"]


@pytest.mark.parametrize(("ratio", "code"), [(0.97, None), (0.96, 1)])
def test_a_ratio_that_falls_short_is_a_failure(
    ratio: float, code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command fails if one of its cases does, and writes what all of them found."""

    def compared(_tree: Path, cases: list[str], *_rest: object) -> Iterator[Result]:
        for case, found in zip(cases, (1.0, ratio), strict=True):
            result = Result(case, "")
            result.add("faster than the other", found, "times", at_least=against_tree.AT_LEAST)
            yield result

    monkeypatch.setattr(against_tree, "compare", compared)
    monkeypatch.setattr(against_tree, "load", lambda: TWEETS)
    path, failed = tmp_path / "figures.json", None
    try:
        against_tree.main(tmp_path, ["multinomial", "daemon"], path, None, 1)
    except typer.Exit as error:
        failed = error.exit_code
    assert failed == code
    written = json.loads(path.read_text(encoding="utf-8"))["results"]
    assert [result["figures"][0]["value"] for result in written] == [1.0, ratio]


def test_each_case_is_compared_or_said_not_to_be() -> None:
    """A new case is measured against the other tree as well, or the reason stands why it is not."""
    told = set(re.findall(r"`(\w+)`", against_tree.__doc__ or ""))
    own = {*against_tree.CASES, "page_cost_busy"}  # what is said of `page_cost` is of both
    assert __main__.CASES.keys() - own <= told
    assert not told & {*against_tree.CASES}
