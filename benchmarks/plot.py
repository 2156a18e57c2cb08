"""Two figures of a run: how we stand beside our peers, and how the cost of a text grows.

Needs matplotlib (`pip install streamnb[plots]`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.result import Figure, Result

RATIOS = "ratios.png"
CURVES = "curves.png"
_DPI = 150
_INK, _SOFT = "#1f3a5f", "#9aa5b1"
_MET, _MISSED, _FREE = "#2f7f79", "#c0563f", "#9db4c0"
_CURVES_A_ROW = 2
_ALONG = {  # what grows, by case
    "vocabulary": "words known",
    "ten_million_words": "words known",
    "classes": "classes",
    "fields": "fields of text",
    "lengths": "characters a message",
}


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Draw what there is to draw; return the files.

    Parameters
    ----------
    results : sequence of Result
    folder : Path
        Made where it is missing.
    """
    import matplotlib as mpl  # noqa: PLC0415 -- wanted for plots alone

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    ratios = [
        (result.case, figure)
        for result in results
        for figure in result.figures
        if figure.unit == "times" and figure.value > 0
    ]
    curves = [result for result in results if result.case in _ALONG and result.figures]
    drawn: list[Path] = []
    if ratios:
        _save(_ratios(ratios), folder / RATIOS, drawn)
    if curves:
        _save(_curves(curves), folder / CURVES, drawn)
    return drawn


def _ratios(ratios: list[tuple[str, Figure]]) -> Any:
    """One bar a ratio, on a scale where twice and half are as far from equal."""
    from matplotlib import pyplot as plt  # noqa: PLC0415

    plot, axes = plt.subplots(figsize=(9, 0.9 + 0.3 * len(ratios)), layout="constrained")
    for row, (_, figure) in enumerate(ratios):
        colour = {None: _FREE, True: _MET, False: _MISSED}[figure.met]
        axes.barh(row, figure.value - 1, left=1, height=0.6, color=colour)
        ends = max(1, figure.value)
        axes.annotate(
            f"{figure.value:.3g}", (ends, row), (4, 0), textcoords="offset points", va="center",
            color=_INK, fontsize=8,
        )  # fmt: skip
        demand = figure.at_least if figure.at_least is not None else figure.at_most
        if demand is not None:
            axes.plot([demand, demand], [row - 0.4, row + 0.4], color=_INK, linewidth=1.5)
    axes.set_xscale("log")
    axes.axvline(1, color=_INK, linewidth=0.8)
    axes.set_yticks(
        range(len(ratios)), [f"{case}: {figure.name}" for case, figure in ratios], fontsize=8
    )
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("times, medians of turns; the dark mark is what is demanded")
    _plain(axes)
    return plot


def _curves(results: list[Result]) -> Any:
    """One small plot a case: cost against what grows."""
    from matplotlib import pyplot as plt  # noqa: PLC0415

    n_rows = -(-len(results) // _CURVES_A_ROW)
    plot, grid = plt.subplots(
        n_rows, _CURVES_A_ROW, figsize=(9, 2.9 * n_rows), layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(results) :]:
        axes.set_visible(False)
    for axes, result in zip(grid.flat, results, strict=False):
        curves: defaultdict[str, list[Figure]] = defaultdict(list)
        for figure in result.figures:
            if figure.at is not None:
                curves[figure.curve].append(figure)
        for (curve, figures), colour in zip(
            curves.items(), (_INK, _MET, _MISSED, _SOFT), strict=False
        ):
            xs = [figure.at for figure in figures]
            axes.plot(xs, [f.value for f in figures], "o-", color=colour, ms=4, label=curve)
            axes.set_ylabel(figures[0].unit)
        axes.set_xscale("log")
        highest = max(f.value for figures in curves.values() for f in figures)
        axes.set_ylim(0, 1.1 * highest)
        axes.set_xlabel(_ALONG[result.case])
        axes.set_title(result.case, loc="left", fontsize=10, color=_INK)
        if len(curves) > 1:
            axes.legend(frameon=False, fontsize=8)
        _plain(axes)
    return plot


def _plain(axes: Any) -> None:
    """Leave out the lines that say nothing."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color=_SOFT, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)


def _save(plot: Any, path: Path, drawn: list[Path]) -> None:
    from matplotlib import pyplot as plt  # noqa: PLC0415

    plot.savefig(path, dpi=_DPI)
    plt.close(plot)
    drawn.append(path)
