"""What the daemon draws for the page's view of the model, as HTML that its script puts in place.

`GET /page/NAME` returns the part of that name, empty if there is none. A browser lays out text and
scales lines by itself, so most charts are a stretched SVG between labels of HTML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from consumers.config.model import PromotionSettings
from consumers.config.settings import Settings
from consumers.http import schemas
from consumers.http.openapi import ApiRoute
from consumers.http.requests import NO_STORE, QueryParameters
from consumers.http.routes_model import counted_share, fields_of, stored_bins
from consumers.http.state import AppState, ClassLook, bar_of, looks_of, named
from consumers.http.threads import Batcher, Shared, WorkerPool
from consumers.monitoring.prequential import SCORED_MAX, Judgements, wilson
from consumers.monitoring.quality import Trend
from consumers.monitoring.status import ChallengersReport, JudgedBlock, OwnModelsReport, Status
from streamnb import Snapshot

_CURVE_POINTS = 60
_DEVIATIONS = 3.0  # to either side of a mean
_DASHES = ("none", "8 3", "2 3", "10 3 2 3")
_SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)  # of false positives, at which the recall is told
_RECALLS = (0.2, 0.5, 0.8, 0.9, 0.95)  # at which the precision is told
_QUARTERS = ("0%", "25%", "50%", "75%", "100%")
_WORDS_MAX = 12
_LINE_COLOURS = ("k5", "k0", "k2", "k3", "k1", "k4", "k6", "k7", "positive")  # of models


def part_routes(app_state: AppState, batcher: Batcher, workers: WorkerPool) -> list[ApiRoute]:
    """Return the routes of the parts."""
    settings = app_state.settings

    def of_status(drawn: Callable[[Settings, Status], str]) -> Callable[[Snapshot], str]:
        return lambda _snapshot: drawn(settings, app_state.status())

    def curves() -> str:
        judged = app_state.judged
        return "" if judged is None else drawn_curves(settings, app_state.classes, judged())

    shared_curves, stored = Shared(curves), stored_bins(app_state.recent)  # not for each open page
    parts: dict[str, Callable[[Snapshot], str]] = {
        "fields": lambda snapshot: (
            drawn_models(app_state.status().per)
            + drawn_fields(settings, fields_of(snapshot, stored))
        ),
        "quality": of_status(drawn_quality),
        "words": of_status(drawn_words),
        "curves": lambda _snapshot: shared_curves(),
        "challengers": of_status(drawn_challengers),
    }

    def route(name: str, drawn: Callable[[Snapshot], str]) -> ApiRoute:
        async def part(request: Request) -> Response:
            QueryParameters(request)
            snapshot = await batcher.ask(lambda current: current)
            return HTMLResponse(await workers.run(partial(drawn, snapshot)), headers=NO_STORE)

        return ApiRoute(f"/page/{name}", part, None)

    return [route(name, drawn) for name, drawn in parts.items()]


# ---- charts --------------------------------------------------------------------------------------


def _top(heading: str, of: str) -> str:
    """Return a figure's heading with the button that saves a picture of the figure."""
    return (
        f'<div class="chart-top">{heading}<button class="plain save" data-save=png '
        f'data-testid=save-picture aria-label="Save a picture of {of}" title="Save a picture">⤓'
        "</button></div>"
    )


def _table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, shown: bool = False
) -> str:
    """Return a table, of HTML, that scrolls where it is too wide; its first column has names."""
    head = "".join(
        f"<th scope=col{' class=number' * (i > 0)}>{name}</th>" for i, name in enumerate(heads)
    )
    body = "".join(
        f"<tr><th scope=row>{name}</th>"
        + "".join(f"<td class=number>{cell}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table>'
        f"{f'<caption>{title}</caption>' * shown}<thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _swatch(stroke: str) -> str:
    return f'<i><svg viewBox="0 0 22 8" aria-hidden="true"><path d="M0 4H22" {stroke}/></svg></i>'


def _stroke(colour: str, i: int) -> str:
    """Return how a line is drawn: a dash beside the colour, which is never the only sign."""
    return f'stroke="var(--{colour})" stroke-dasharray="{_DASHES[i % len(_DASHES)]}"'


def _line(points: Iterable[tuple[float, float]], stroke: str) -> str:
    """Return a line through points, each from 0 to 1 both ways; of one point a dash."""
    at = [f"{100 * x:.2f} {100 - 100 * y:.2f}" for x, y in points]
    return f'<path d="M{"L".join(at)}{"h.01" * (len(at) == 1)}" {stroke}/>'


def _plot(
    name: str, axes: tuple[str, str], ticks: tuple[Sequence[str], Sequence[str]], lines: str
) -> str:
    """Return a chart: what it is called, its axes with equal steps, and its lines."""
    (x_name, y_name), (xs, ys) = axes, ticks
    n_steps = max(1, len(ys) - 1)
    grid = "".join(f"M0 {100 * k / n_steps:.2f}H100" for k in range(n_steps + 1))
    return (
        f'<div class="xy" role="img" aria-label="{name}"><p>{y_name}</p>'
        f"<p class=ys>{''.join(f'<span>{tick}</span>' for tick in reversed(ys))}</p>"
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none">'
        f'<path class=grid d="{grid}"/>{lines}</svg>'
        f"<p class=xs>{''.join(f'<span>{tick}</span>' for tick in xs)}</p><p>{x_name}</p></div>"
    )


def _steps(low: float, high: float) -> list[float]:
    """Return round numbers at equal steps, two to six of them, that hold a range.

    >>> _steps(0.31, 0.52), _steps(0.5, 0.5)
    ([0.3, 0.4, 0.5, 0.6], [0.4, 0.6])
    """
    span = high - low or abs(high) or 1.0
    unit = 10.0 ** math.floor(math.log10(span / 3))
    step = unit * next(m for m in (1, 2, 5, 10) if span / (m * unit) <= 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


# ---- calibration, confusion and classes ----------------------------------------------------------


def drawn_quality(settings: Settings, status: Status) -> str:
    """Return what the newest labelled messages say of the model, and its classes."""
    rows = {row.label: row for row in status.class_rows}
    # One that joins is known here or there first.
    labels = max(tuple(rows), status.quality.confusion.classes, key=len)
    looks = looks_of(settings, labels)
    classes = [
        (named(labels, look), f"{rows[look.label].count:,.0f}", f"{rows[look.label].prior:.1%}")
        for look in looks
        if look.label in rows
    ]
    return (
        f"<section class=figure>{_top('<h2>Calibration</h2>', 'calibration')}<p class=note>If the "
        "model is calibrated, the dots lie on the dashed line. Larger dots stand for more messages,"
        f" bars for 95% intervals.</p>{_calibration(status)}</section><section class=figure>"
        f"{_top('<h2>Confusion matrix</h2>', 'the confusion matrix')}<p class=note>The latest "
        "labelled messages, each predicted before it was learned. Each row adds up to 100%.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Confusion matrix">'
        f'<table class="confusion" data-testid="confusion">{_confusion(status, looks)}</table>'
        '</div><h2>Classes</h2><div data-testid="model-classes">'
        f"{_table('Classes', ('Class', 'Examples', 'Prior'), classes)}</div></section>"
    )


def _calibration(status: Status) -> str:
    """Return how often what was predicted with a probability was right; a dot for each bin."""
    filled = [
        (each.n, each.mean_probability, each.accuracy)
        for each in status.quality.calibration
        if each.mean_probability is not None and each.accuracy is not None
    ]
    most = max((n for n, *_ in filled), default=1)
    dots, whiskers, corners, words = [], [], [], []
    for n, said, right in filled:
        x, y, radius = 10 + 80 * said, 90 - 80 * right, 1.2 + 2.4 * math.sqrt(n / most)
        low, high = wilson(right * n, n)
        dots.append(
            f'<circle class="dot" cx="{x:.2f}" cy="{y:.2f}" r="{radius:.2f}">'
            f"<title>predicted {said:.1%}, right {right:.1%} of {n:,}</title></circle>"
        )
        whiskers.append(f"M{x:.2f} {90 - 80 * low:.2f}V{90 - 80 * high:.2f}")
        corners.append(f"{x:.2f} {y:.2f}")
        words.append(f"predicted {said:.0%}, right {right:.0%}")
    line = f'<path class="stroke" d="M{"L".join(corners)}"/>' if corners else ""
    return (
        '<svg class="calibration" data-testid="calibration" viewBox="0 0 100 106" role="img" '
        f'aria-label="Calibration: {"; ".join(words) or "no labelled messages yet"}.">'
        '<rect class="frame" x="6" y="6" width="88" height="88"/><path class="diagonal" '
        f'd="M10 90L90 10"/><path class="whiskers" d="{"".join(whiskers)}"/>{line}{"".join(dots)}'
        '<text x="6" y="99">0%</text><text x="94" y="99" text-anchor="end">100%</text>'
        '<text x="50" y="104" text-anchor="middle">predicted probability</text>'
        '<text x="8" y="11">accuracy</text></svg>'
    )


def _confusion(status: Status, looks: Sequence[ClassLook]) -> str:
    """Return the head and the rows of the confusion matrix, in the page's order."""
    classes, counts = status.quality.confusion.classes, status.quality.confusion.counts
    if not any(map(any, counts)):
        return "<caption>No labelled messages yet.</caption>"
    at = {label: i for i, label in enumerate(classes)}
    shown = [look for look in looks if look.label in at]
    rows = []
    for look in shown:
        row = counts[at[look.label]]
        total = sum(row) or 1
        cells = "".join(
            f'<td class="number cell t{round(10 * n / total)} c-{other.colour}'
            f'{" right" * (other is look)}">{n / total:.1%}<small>{n:,}</small></td>'
            for other, n in ((other, row[at[other.label]]) for other in shown)
        )
        rows.append(f"<tr><th scope=row>true {named(classes, look)}</th>{cells}</tr>")
    heads = "".join(
        f"<th scope=col class=number>predicted {named(classes, look)}</th>" for look in shown
    )
    return f"<thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"


def drawn_words(_settings: Settings, status: Status) -> str:
    """Return the words that rise and fall."""
    report = status.quality
    past = ""
    if report.trend_s is not None and report.trend_s >= 1:
        time = f"the last {_span(report.trend_s)}, against the time before"
        past = f"<p class=note>Change over {time}.</p>"
    return "".join(
        f'<section class="figure"><h2>{name} words</h2>{note}<ol class="words moving" '
        f'data-testid="{name.lower()}">{_moving(words, sign)}</ol></section>'
        for name, note, sign, words in (
            ("Rising", past, "▲", sorted(report.rising, key=lambda each: -each.ratio)),
            ("Falling", past, "▼", sorted(report.falling, key=lambda each: each.ratio)),
        )
    )


def _moving(words: Sequence[Trend], sign: str) -> str:
    if not words:
        return '<li class="note">No word has changed enough yet.</li>'
    return "".join(
        f'<li title="{_number(each.before, 2)} before, {_number(each.now, 2)} now">'
        f'<span class="word" dir="auto">{escape(each.word)}</span><span class="number">{sign} × '
        f"{each.ratio:.{2 if each.ratio < 10 else 0}f}</span></li>"
        for each in words[:_WORDS_MAX]
    )


# ---- curves --------------------------------------------------------------------------------------


def drawn_curves(settings: Settings, classes: Sequence[str], judged: Judgements) -> str:
    """Return ROC and precision-recall curves of each class against all others."""
    found = [
        (name, _stroke(colour, dash), curve)
        for label, name, colour, dash in looks_of(settings, list(classes))
        if (curve := judged.curve(classes.index(label))) is not None
    ]
    if not found:
        why = "No class has labelled messages beside others yet."
        if len(classes) > SCORED_MAX:
            why = f"Curves are drawn of up to {SCORED_MAX} classes; there are {len(classes)}."
        return f"<h2>ROC, precision and recall</h2><p class=note>{why}</p>"
    n = max(curve.n + curve.n_others for *_, curve in found)
    told = "; ".join(f"{name} {curve.auc:.3f}" for name, _, curve in found)
    roc = "".join(
        _line([(0.0, 0.0), *zip(curve.false_positives, curve.recall, strict=True)], stroke)
        for _, stroke, curve in found
    )
    precision = "".join(
        _line(zip(curve.recall, curve.precision, strict=True), stroke) for _, stroke, curve in found
    )
    rows = [
        (
            _swatch(stroke) + name,
            f"{curve.auc:.3f} ({curve.low:.3f}–{curve.high:.3f})",
            f"{curve.average_precision:.3f}",
            f"{curve.n:,}",
            f"{curve.n_others:,}",
        )
        for name, stroke, curve in found
    ]
    heads = "Class", "AUC", "Average precision", "Messages", "Others"
    names, _, curves = zip(*found, strict=True)
    at_shares = [
        (f"{at:.0%}", *[f"{c.recall[c.false_positives <= at].max(initial=0):.1%}" for c in curves])
        for at in _SHARES
    ]
    at_recalls = [
        (f"{at:.0%}", *[f"{each.precision[each.recall >= at].max():.1%}" for each in curves])
        for at in _RECALLS
    ]
    return (
        _top("<h2>ROC, precision and recall</h2>", "the curves")
        + f"<p class=note>Each class against all others, by its probability, over the latest {n:,} "
        "labelled messages, each predicted before it was learned. AUC: the area below the ROC "
        "curve, with its 95% interval.</p>"
        '<div class="plots"><div><h3>ROC</h3>'
        + _plot(
            f"ROC curves. Area below: {told}.",
            ("false positive rate", "true positive rate"), (_QUARTERS, _QUARTERS),
            '<path class="diagonal" d="M0 100L100 0"/>' + roc,
        )
        + "</div><div><h3>Precision and recall</h3>"
        + _plot(
            "Precision by recall; the table below has the figures.",
            ("recall", "precision"), (_QUARTERS, _QUARTERS), precision,
        )
        + "</div></div>"
        + _table("Curves by class", heads, rows)
        + '<details class="fold"><summary>Table</summary>'
        + _table("ROC: true positive rate", ("False positive rate", *names), at_shares, shown=True)
        + _table("Precision by recall", ("Recall", *names), at_recalls, shown=True)
        + "</details>"
    )  # fmt: skip


# ---- challengers ---------------------------------------------------------------------------------


def drawn_challengers(settings: Settings, status: Status) -> str:
    """Return the models that learn side by side, their curves, and who is better by the rule."""
    report = status.challengers
    if report is None:
        return ""
    last = report.blocks[-1] if report.blocks else None
    losses = {} if last is None else last.log_loss
    best = min(losses, key=lambda name: losses[name], default=None)
    half_lives = {name: each.half_life_s for name, each in settings.models.items()}
    strokes = {
        each.name: _stroke(_LINE_COLOURS[i % len(_LINE_COLOURS)], i)
        for i, each in enumerate(report.models)
    }
    rows = []
    for each in report.models:
        accuracy = None if last is None else last.accuracy.get(each.name)
        name = f"{_swatch(strokes[each.name])}{escape(each.name)}"
        cells = [
            f"{name}{' <small>answers</small>' * each.serves}",
            *([_span(half_lives.get(each.name))] if any(half_lives.values()) else []),
            _or_none(losses.get(each.name), ".4f", is_best=each.name == best),
            _or_none(accuracy, ".1%"),
            _or_none(each.window_log_loss, ".4f"),
            _or_none(each.window_accuracy, ".1%"),
            f"{each.n_examples:,}",
        ]
        rows.append(cells)
    heads = ["Model", *(["Half-life"] if any(half_lives.values()) else [])]
    heads += ["Log-loss, last block", "Accuracy, last block"]
    heads += ["Log-loss, latest", "Accuracy, latest", "Learned"]
    named_axes = [("log_loss", "log-loss, in nats"), ("accuracy", "accuracy")] * bool(report.blocks)
    charts = "".join(_by_block(*each, report.blocks, strokes) for each in named_axes)
    note = "Half-lives are compared, not mixed: the model that answers has all the weight."
    return (
        f"{_top('<h2>Challengers</h2>', 'the challengers')}<p data-testid=challengers-rule>"
        f"{_by_rule(settings.promotion, report)}</p>"
        f'<div class="plots">{charts}</div>{_table("Models side by side", heads, rows)}'
        f"{f'<p class=note>{note}</p>' if any(half_lives.values()) else ''}"
    )


def _or_none(value: float | None, written: str, *, is_best: bool = False) -> str:
    if value is None:
        return "–"
    return f"<b>{value:{written}}</b>" if is_best else format(value, written)


def _span(seconds: float | None) -> str:
    """Return a half-life in its largest unit.

    >>> _span(604800), _span(5400), _span(234.1), _span(None)
    ('7 d', '1.5 h', '3.9 min', '–')
    """
    if not seconds:
        return "–"
    size, unit = next(
        (n, u) for n, u in ((86_400, "d"), (3_600, "h"), (60, "min"), (0, "s")) if seconds >= n
    )
    return f"{_number(seconds / (size or 1), 3)} {unit}"


def _by_rule(rule: PromotionSettings, report: ChallengersReport) -> str:
    """Return who would be promoted, and by which figures, in a sentence."""
    own = report.blocks[-1].log_loss.get(report.serving) if report.blocks else None
    others = {} if own is None else dict(report.blocks[-1].log_loss)
    others.pop(report.serving, None)
    if own is None or not others:
        return (
            f"Nobody is compared yet: a block has {rule.examples:,} labelled messages, which two "
            "models must have judged."
        )
    best = min(others, key=lambda name: others[name])
    gain = own - others[best]
    is_better = gain > 0 and gain >= rule.margin_nats
    size = _number(abs(gain), 3) if abs(gain) >= 1e-6 else "less than 0.000001"
    than = f"{size} nats {'below' if gain > 0 else 'above'}"
    follows = {
        "none": "nothing follows (promotion.action: none)",
        "say": "the log says so (promotion.action: say)",
        "promote": "it answers from there on, unless it was taken back (promotion.action: promote)",
    }[rule.action]
    verdict = f"is better by the rule: {follows}" if is_better else "would not be promoted"
    return (
        f"Up to message {report.blocks[-1].example:,}, the log-loss of <b>{escape(best)}</b> lies "
        f"{than} that of {escape(report.serving)}; the rule asks for {rule.margin_nats:g} below. "
        f"It {verdict}."
    )


def _by_block(
    name: str, y_name: str, blocks: Sequence[JudgedBlock], strokes: Mapping[str, str]
) -> str:
    """Return a chart with a line for each model over blocks of labelled messages."""
    title = f"{y_name.partition(',')[0].capitalize()} by block"
    values = [value for each in blocks for value in getattr(each, name).values()]
    ticks = _steps(min(values), max(values))
    first, last = blocks[0].example, blocks[-1].example
    lines = ""
    for model, stroke in strokes.items():
        points = [
            (
                (each.example - first) / (last - first) if last > first else 0.5,
                (getattr(each, name)[model] - ticks[0]) / (ticks[-1] - ticks[0]),
            )
            for each in blocks
            if model in getattr(each, name)
        ]
        lines += _line(points, stroke) if points else ""
    ends = [f"{first:,}", f"{last:,}"] if last > first else ["", f"{last:,}", ""]
    step = ticks[1] - ticks[0]
    digits = max(0, math.ceil(-math.log10(100 * step if name == "accuracy" else step)))
    written = [f"{tick:.{digits}{'%' if name == 'accuracy' else 'f'}}" for tick in ticks]
    newest = "; ".join(
        f"{escape(model)} {_number(value)}" for model, value in getattr(blocks[-1], name).items()
    )
    return (
        f"<div><h3>{title}</h3>"
        + _plot(f"{title}. Last: {newest}.", ("labelled messages", y_name), (ends, written), lines)
        + "</div>"
    )


# ---- fields by class -----------------------------------------------------------------------------


def drawn_models(report: OwnModelsReport | None) -> str:
    """Return a table of the models of single values; empty without `per.field`."""
    if report is None:
        return ""
    rows = []
    for each in report.models:
        shares = (each.window_accuracy, each.shared_window_accuracy)
        who = "itself" if each.answers else f"the shared model, until {report.examples_min:,}"
        cells = (f"{each.n_examples:,}", *(_or_none(share, ".1%") for share in shares), who)
        rows.append((f"<bdi>{escape(each.value)}</bdi>", *cells))
    heads = ("value", "learned", "own right", "shared right", "who answers")
    return _table(f"Models by {escape(report.field)}", heads, rows, shown=True)


def drawn_fields(settings: Settings, answer: schemas.FieldsAnswer) -> str:
    """Return a figure for each field; empty if the model reads nothing but words."""
    looks = looks_of(settings, answer.classes)
    heads = "".join(f"<th scope=col>{name}</th>" for _, name, *_ in looks)
    figures = []
    for category in answer.categories:
        note = f"{category.n_values:,} values" * (category.n_values > len(category.values))
        shares = [(one.value, _shares_of(one.counts, category.counts)) for one in category.values]
        figures.append(_field(category, _share_table(category, shares, looks, heads), note))
    figures += [
        _field(flag, _share_table(flag, [("true", flag.shares)], looks, heads), "")
        for flag in answer.flags
    ]
    figures += [_field(number, _curves(number, looks), "") for number in answer.numbers]
    return "".join(figures)


def _shares_of(counts: Mapping[str, float], totals: Mapping[str, float]) -> dict[str, float | None]:
    return {label: counts[label] / n if (n := totals[label]) > 0 else None for label in totals}


def _field(
    field: schemas.CategoryField | schemas.FlagField | schemas.NumberField, body: str, note: str
) -> str:
    """Return the figure of one field."""
    name = f"<bdi>{escape(field.field)}</bdi> <small>{escape(field.group)}</small>"
    below = f"<p class=note>{note}; the most frequent are shown.</p>" if note else ""
    top = _top(f"<h3>{name}</h3>", escape(field.field))
    return f"<div data-testid=field>{top}{body}{below}</div>"


def _share_table(
    field: schemas.CategoryField | schemas.FlagField,
    rows: Sequence[tuple[str, Mapping[str, float | None]]],
    looks: Sequence[ClassLook],
    heads: str,
) -> str:
    """Return a row for each value, and in it for each class its share and a bar with interval."""
    lines = []
    for value, shares in rows:
        cells = []
        for label, _, colour, _ in looks:
            share, cell = shares[label], ">–"
            if share is not None and not math.isnan(share):  # else no example of it has the field
                own = counted_share(share, field.counts[label])
                cell = f' title="{own.low:.1%} to {own.high:.1%}">{share:.1%}{bar_of(own, colour)}'
            cells.append(f"<td class=number{cell}</td>")
        lines.append(f"<tr><th scope=row><bdi>{escape(value)}</bdi></th>{''.join(cells)}</tr>")
    title = escape(f"{field.field} of {field.group} by class")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table><thead>'
        f"<tr><td></td>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _number(value: float, n_digits: int = 4) -> str:
    """Return a number with so many digits that count, without an exponent if it reads well.

    >>> _number(14083.4, 3), _number(0.0123), _number(-2.5e-7), _number(0.0), _number(3e12)
    ('14,083', '0.0123', '-2.5e-07', '0', '3e+12')
    """
    size = abs(value)
    if value and not 1e-6 <= size < 1e9:
        return f"{value:.{n_digits}g}"
    places = 0 if not value else max(0, n_digits - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _curves(field: schemas.NumberField, looks: Sequence[ClassLook]) -> str:
    """Return a normal curve for each class over one axis, and a table of what they are drawn by."""
    known = [
        (label, name, colour, dash, mean, deviation)
        for label, name, colour, dash in looks
        if (mean := field.means[label]) is not None
        and (deviation := field.deviations[label]) is not None
        and math.isfinite(mean)
        and math.isfinite(deviation)
    ]
    if not known:
        return "<p class=note>No value was learned yet.</p>"
    low = min(mean - _DEVIATIONS * deviation for *_, mean, deviation in known)
    high = max(mean + _DEVIATIONS * deviation for *_, mean, deviation in known)
    width = high - low
    if width == 0:
        low, width = low - 0.5, 1.0  # one value, always the same
    if not math.isfinite(width):
        return "<p class=note>The numbers are too large to be drawn.</p>"
    sharpest = min((deviation for *_, deviation in known if deviation > 0), default=0.0)
    strokes = {label: _stroke(colour, dash) for label, _, colour, dash, *_ in known}
    bins, paths = [], []
    for label, _, colour, _, mean, deviation in known:
        at = 100 * (mean - low) / width
        line = f"{at:.2f} 40L{at:.2f} 2"
        if deviation > 0:
            bins.append(_histogram(field, label, colour, (low, width, sharpest)))
            steps = [_DEVIATIONS * (2 * i / _CURVE_POINTS - 1) for i in range(_CURVE_POINTS + 1)]
            line = "L".join(
                f"{100 * (mean + t * deviation - low) / width:.2f} "
                f"{40 - 38 * math.exp(-0.5 * t * t) * sharpest / deviation:.2f}"
                for t in steps
            )
        paths.append(f'<path d="M{line}" {strokes[label]}/>')
    rows = "".join(
        f"<tr><th scope=row>{_swatch(strokes[label])}{name}</th>"
        f"<td class=number>{_number(mean)} ± {_number(deviation, 3)}</td>"
        f"<td class=number>{field.counts[label]:,.0f}</td></tr>"
        for label, name, *_, mean, deviation in known
    )
    return (
        '<svg class="curves" viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(bins + paths)}</svg>"
        f"<p class=ends><span>{_number(low, 3)}</span><span>{_number(low + width, 3)}</span></p>"
        "<table><thead><tr><td></td><th scope=col class=number>mean ± deviation</th>"
        f"<th scope=col class=number>examples</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _histogram(
    field: schemas.NumberField, label: str, colour: str, scale: tuple[float, float, float]
) -> str:
    """Return the steps of a class's stored numbers, as high as its curve if they lie as it says."""
    (low, width, sharpest), counts = scale, field.bins.get(label, [])
    if not sum(counts):
        return ""
    xs = [min(100.0, max(0.0, 100 * (edge - low) / width)) for edge in field.edges]
    # A normal curve of deviation 1 is 1 / sqrt(2 pi) high.
    unit = math.sqrt(2 * math.pi) * sharpest / (sum(counts) * (field.edges[1] - field.edges[0]))
    tops = [40 - min(40.0, 38 * n * unit) for n in counts]
    line = "".join(f"V{y:.2f}H{x:.2f}" for y, x in zip(tops, xs[1:], strict=True))
    return f'<path class=bins d="M{xs[0]:.2f} 40{line}V40Z" fill="var(--{colour})"/>'
