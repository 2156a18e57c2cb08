"""The report of `evaluate` and `compare`: one HTML file that needs nothing else, dark and light.

matplotlib draws each plot as SVG with colours that stand for names; these become variables of the
page's style, so that one drawing serves both colour schemes. Nothing in the file is of the clock or
the machine: the same figures give the same bytes.
"""

from __future__ import annotations

import importlib.util
import io
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from consumers.cli.output import figure_names, figure_texts, scores_line, verdict
from consumers.errors import ConfigError, SinkError
from consumers.private_files import open_private
from consumers.terminal import plain

Measured = Mapping[str, Any]  # what `figures` returns
_SHOWN_CLASSES_MAX = 6  # that have curves
_BIN_MIN = 10  # examples of a bin that is drawn: fewer say nothing, and are in the JSON
_INK, _LINE = "#0a0a01", "#0a0a02"
_SERIES = tuple(f"#0a0b{i:02x}" for i in range(8))
_VARIABLES = {_INK: "--ink", _LINE: "--line"} | {
    each: f"--series-{i}" for i, each in enumerate(_SERIES)
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # nothing is fetched, nothing runs
_STYLE = """
:root { color-scheme: light dark; --page: #fbfbfa; --card: #fff; --ink: #1d2733; --soft: #566270;
  --line: #c9d0d6; --series-0: #1f5fa8; --series-1: #b4451f; --series-2: #24793d;
  --series-3: #7a4ba8; --series-4: #8a6a00; --series-5: #0f7480; --series-6: #b0307a;
  --series-7: #5b6670; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --card: #1c2229; --ink: #e6eaee;
  --soft: #a3aeb9; --line: #46515c; --series-0: #6fb1f5; --series-1: #f2906b; --series-2: #74c98a;
  --series-3: #c29bf0; --series-4: #dcb84a; --series-5: #5cc8d4; --series-6: #f08cc4;
  --series-7: #aab5c0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 90rem; background: var(--page);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .75rem; }
p { margin: .25rem 0; max-width: 48rem; color: var(--soft); overflow-wrap: anywhere; }
.plots { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); }
figure { margin: 0; padding: .75rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .5rem; }
figcaption { font-weight: 600; }
figure p { font-size: .85rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: system-ui, sans-serif; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .75rem .2rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
th:first-child, .text { text-align: left; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
td small { color: var(--soft); display: block; }
.matrix td { padding: .4rem .75rem; }
.matrix small { color: inherit; }
.key { color: var(--colour); }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .4em;
  border-radius: .2em; background: var(--colour); }
"""


def check_report(path: Path, *read: Path | None) -> None:
    """Refuse what would fail after the source was read, and a file that is `read` here itself."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            "--report needs the package 'matplotlib', and it is not installed. Install the extra:"
            " pip install 'streamnb[plots]'"
        )
    if not path.parent.is_dir():
        raise ConfigError(f"--report {path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise ConfigError(f"--report {path}: is a folder; name a file in it")
    if path.exists() and any(each and each.exists() and path.samefile(each) for each in read):
        raise ConfigError(f"--report {path}: is read here, and would be lost; name another file")


def write_report(
    path: Path,
    title: str,
    facts: Sequence[str],
    models: Mapping[str, Measured],
    sections: Sequence[str] = (),
) -> None:
    """Write the figures of models by their names; `sections` are further parts, as HTML."""
    bootstrap = next(iter(models.values()))["bootstrap"]
    intervals = (
        f"Intervals: the middle {bootstrap['interval']:.0%} of {bootstrap['replicates']} bootstrap"
        f" replicates over {bootstrap['blocks']:,} blocks of the stream, seed {bootstrap['seed']}."
    )
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(each)}</p>" for each in (*facts, intervals)),
        _keys(models) if len(models) > 1 else "",
        f'<h2>Curves</h2><div class="plots">{"".join(_plots(models))}</div>',
        "<h2>Figures</h2>",
        _figures(models),
        *sections,
        *(_by_class(name if len(models) > 1 else "", found) for name, found in models.items()),
        "</main></body></html>\n",
    ]
    data = "\n".join(each for each in parts if each).encode()
    try:
        fd = open_private(path, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
    except OSError as error:
        raise SinkError(f"{path}: the report cannot be written ({error.strerror})") from error


def comparison_sections(found: Mapping[str, Any]) -> list[str]:
    """Return the parts of a comparison beside its models' figures: pairs, and disagreements."""
    rows = [
        [
            escape(plain(f"{row['first']} – {row['second']}")),
            *(f"{row[key]:,}" for key in ("only_first_right", "only_second_right")),
            f"{row['p_value']:.3g}",
            *(with_interval(row[key]) for key in ("accuracy", "log_loss")),
        ]
        for row in found["pairs"]
    ]
    heads = ["pair", "only the first right", "only the second right", "p (McNemar)",
             "accuracy ahead", "log-loss ahead"]  # fmt: skip
    shown = [
        [
            escape(str(row["label"])),
            escape(row["message"]),
            *(
                f"{escape(each['said'])} {each['probability']:.4f}"
                f"<small>{escape(scores_line(each['scores'], 4))}</small>"
                for each in row["models"].values()
            ),
        ]
        for row in found["shown"]
    ]
    names = [escape(name) for name in found["models"]]
    return [
        "<h2>Pairs</h2><p>How far the first is ahead of the second. McNemar's test takes messages"
        " for independent; the intervals, over blocks of neighbours, do not.</p>"
        + table(heads, rows)
        + "".join(f"<p>{escape(verdict(row))}.</p>" for row in found["pairs"]),
        f"<h2>Where they disagree</h2><p>On {found['disagreements']:,} messages; here those for"
        " whose true class they differ most. Below each answer, in nats, what speaks for it (above"
        " 0) or against it in the model as it was at the end of the stream.</p>"
        + table(["truth", "message", *names], shown, len(names) + 1),
    ]


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], n_texts: int = 0, of: str = ""
) -> str:
    """Return a table as HTML, `of` a model; cells are HTML already.

    The first cell of a row is its head, the last `n_texts` are prose.
    """
    prose = len(heads) - n_texts
    head = "".join(
        f'<th scope="col"{" class=text" if i >= prose else ""}>{each}</th>'
        for i, each in enumerate(heads)
    )
    body = []
    for first, *others in rows:
        n_numbers = len(others) - n_texts
        cells = "".join(f"<td>{each}</td>" for each in others[:n_numbers])
        cells += "".join(f'<td class="text">{each}</td>' for each in others[n_numbers:])
        body.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{heads[0]}{of}"><table><thead>'
        f"<tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def with_interval(each: Mapping[str, float]) -> str:
    """Return a figure and its interval as HTML."""
    value, interval = figure_texts(each)
    return value if math.isnan(each["value"]) else f"{value}<small>{interval}</small>"


def _keys(models: Mapping[str, Measured]) -> str:
    names = (
        f'<span class="key" style="--colour: var({_VARIABLES[_series(i)]})">{escape(name)}</span>'
        for i, name in enumerate(map(plain, models))
    )
    return f"<p>{' &ensp; '.join(names)}</p>"


def _series(i: int) -> str:
    return _SERIES[i % len(_SERIES)]


def _figures(models: Mapping[str, Measured]) -> str:
    rows = [
        [
            name.replace("_", " "),
            *(
                with_interval(found["figures"][name]) if name in found["figures"] else "–"
                for found in models.values()
            ),
        ]
        for name in figure_names(models)
    ]
    rows.append(["impossible", *(f"{found['impossible']:,}" for found in models.values())])
    return table(["figure", *map(escape, models)], rows)


def _by_class(name: str, found: Measured) -> str:
    """Return the figures of each class, the confusion matrix, and accuracy by coverage."""
    kinds = ("precision", "recall", "specificity", "f1", "roc_auc", "pr_auc")
    rows = [
        [escape(label), f"{row['support']:,}", *(with_interval(row[kind]) for kind in kinds)]
        for label, row in found["by_class"].items()
    ]
    most = max(max(row) for row in found["confusion"]) or 1
    matrix = "".join(
        f'<tr><th scope="row">{escape(label)}</th>'
        + "".join(
            '<td style="background: color-mix(in srgb, var(--series-0)'
            f' {35 * n / most:.0f}%, transparent)">{n:,}<small>{n / (sum(row) or 1):.1%}</small>'
            "</td>"
            for n in row
        )
        + "</tr>"
        for label, row in zip(found["classes"], found["confusion"], strict=True)
    )
    heads = "".join(f'<th scope="col">{escape(label)}</th>' for label in found["classes"])
    of = f": {escape(name)}" if name else ""
    return (
        f"<h2>Classes{of}</h2>"
        + table(["class", "examples", *(each.replace("_", " ") for each in kinds)], rows, of=of)
        + f"<h2>Confusion matrix{of}</h2><p>Rows are true classes, columns what was said; shares"
        ' are of the row.</p><div class="wide" tabindex="0" role="region" aria-label="confusion'
        f' matrix{of}"><table class="matrix"><thead><tr><th scope="col">truth</th>{heads}</tr>'
        f"</thead><tbody>{matrix}</tbody></table></div>"
        f"<h2>If only the surest answers are given{of}</h2>"
        + table(
            ["answered", "accuracy", "sure from"],
            [
                [f"{row['coverage']:.1%}", with_interval(row), f"{row['confidence']:.4f}"]
                for row in found["coverage"]
            ],
            of=of,
        )
    )


# ---- plots ---------------------------------------------------------------------------------------


def _plots(models: Mapping[str, Measured]) -> list[str]:
    """Return the plots as figures of HTML."""
    several = len(models) > 1
    along: list[tuple[str, tuple[str, str], Draw]] = [
        ("Accuracy over the stream", ("messages", "accuracy"), _over_stream("accuracy")),
        ("Log-loss over the stream", ("messages", "nats"), _over_stream("log_loss")),
        (
            "Reliability",
            (f"probability of the answer (bins of {_BIN_MIN} and more)", "share right"),
            _reliability,
        ),
        ("Coverage against accuracy", ("share answered, the surest first", "accuracy"), _coverage),
    ]
    found = [_plot(*each, models) for each in along]
    first = next(iter(models.values()))
    labels = [each for each in first["classes"] if each in first["roc"]]
    labels.sort(key=lambda each: -first["by_class"][each]["support"])
    if len(first["classes"]) == 2:  # the other one's curves are these, seen from behind
        labels = first["classes"][1:] if labels else []
    shown = labels[:_SHOWN_CLASSES_MAX]
    left = f" (the {len(shown)} largest of {len(labels)} classes)" if shown != labels else ""
    for kind, title, axes in (
        ("roc", "ROC", ("false positive rate", "true positive rate")),
        ("precision_recall", "Precision against recall", ("recall", "precision")),
    ):
        if several:
            found += [
                _plot(f"{title}: {label}", axes, _rates(kind, [label]), models) for label in shown
            ]
        elif shown:
            name = f"{title}: {shown[0]}" if len(shown) == 1 else f"{title}{left}"
            found.append(_plot(name, axes, _rates(kind, shown), models))
    return found


Draw = Callable[[Any, int, str, Measured], None]


def _plot(title: str, axes: tuple[str, str], draw: Draw, models: Mapping[str, Measured]) -> str:
    """Return one plot: its title, and what `draw` draws of each model."""
    import matplotlib as mpl  # noqa: PLC0415 -- an extra
    from matplotlib.figure import Figure as Drawing  # noqa: PLC0415 -- the same

    own: dict[Any, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": title, "font.size": 10, "text.color": _INK,
        "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK, "axes.edgecolor": _LINE,
        "axes.grid": True, "grid.color": _LINE, "grid.linewidth": 0.5, "grid.alpha": 0.6,
        "axes.spines.top": False, "axes.spines.right": False, "text.parse_math": False,
    }  # fmt: skip
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(own)
        drawing = Drawing(figsize=(5.0, 3.3), layout="constrained")
        drawing.patch.set_visible(False)
        plot = drawing.subplots()
        plot.patch.set_visible(False)
        plot.set_xlabel(axes[0])
        plot.set_ylabel(axes[1])
        for i, (name, found) in enumerate(models.items()):
            draw(plot, i, _in_legend(name) if len(models) > 1 else "", found)
        if plot.get_legend_handles_labels()[1]:
            plot.legend(frameon=False, fontsize=8.5)
        out = io.StringIO()
        with warnings.catch_warnings():  # the browser's fonts show it, not those of here
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing", UserWarning)
            drawing.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f"{_page_svg(out.getvalue(), title)}</figure>"
    )


def _page_svg(text: str, title: str) -> str:
    """Return a drawing as a part of the page: without what it says of itself, in its colours."""
    svg = text[text.index("<svg") :].rstrip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*|<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub("<[^>]*>", lambda tag: _page_tag(tag[0]), svg)  # texts between stay as they are
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)


def _page_tag(tag: str) -> str:
    tag = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", tag)  # nobody asks for them, and plots repeat them
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    tag = re.sub(r' (?:width|height)="[\d.]+pt"', "", tag)
    for colour, name in _VARIABLES.items():
        tag = tag.replace(colour, f"var({name})")
    return tag


def _in_legend(name: str) -> str:
    """Return a name as a legend shows it, without what would turn the figure beside it around.

    Matplotlib leaves out what begins with an underscore.
    """
    shown = plain(name)
    return f"\u2009{shown}" if shown.startswith("_") else shown


def _over_stream(key: str) -> Draw:
    def draw(plot: Any, i: int, name: str, found: Measured) -> None:
        rows = found["curve"]
        plot.plot(
            [row["example"] for row in rows], [row[key] for row in rows], color=_series(i),
            label=name, linewidth=1.5, marker="o" if len(rows) == 1 else "",
        )  # fmt: skip
        plot.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        plot.xaxis.set_major_locator(_few_places())

    return draw


def _few_places() -> Any:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 -- an extra

    return MaxNLocator(5, integer=True)


def _reliability(plot: Any, i: int, name: str, found: Measured) -> None:
    if i == 0:
        plot.axline((1.0, 1.0), slope=1.0, color=_INK, linewidth=0.8, linestyle=(0, (4, 4)))
    rows = [row for row in found["reliability"] if row["examples"] >= _BIN_MIN]
    said, were = ([row[key] for row in rows] for key in ("confidence", "accuracy"))
    n = found["examples"]
    plot.plot(said, were, color=_series(i), linewidth=1.2, label=name)
    sizes = [12 + 160 * row["examples"] / n for row in rows]  # areas are the bins' shares
    plot.scatter(said, were, sizes, color=_series(i), alpha=0.55, linewidths=0)
    plot.set_xlim(1 / len(found["classes"]) - 0.03, 1.03)
    plot.set_ylim(bottom=min(plot.get_ylim()[0], plot.get_xlim()[0]), top=1.03)


def _coverage(plot: Any, i: int, name: str, found: Measured) -> None:
    rows = found["coverage"]
    share, value, low, high = (
        [row[key] for row in rows] for key in ("coverage", "value", "low", "high")
    )
    plot.fill_between(share, low, high, color=_series(i), alpha=0.2, linewidth=0)
    plot.plot(share, value, color=_series(i), label=name, linewidth=1.5)
    plot.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def _rates(kind: str, labels: Sequence[str]) -> Draw:
    def draw(plot: Any, i: int, name: str, found: Measured) -> None:
        area = "roc_auc" if kind == "roc" else "pr_auc"
        for j, label in enumerate(labels):
            if label not in found[kind]:
                continue
            told = [name] if name else [label] if len(labels) > 1 else []
            told.append(f"area {found['by_class'][label][area]['value']:.4f}")
            xs, ys = zip(*found[kind][label], strict=True)
            shown = _in_legend(", ".join(told))
            plot.plot(xs, ys, color=_series(i + j), label=shown, linewidth=1.5)
        plot.set_xlim(-0.01, 1.01)
        plot.set_ylim(top=1.01)

    return draw
