"""How results and errors look at a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from consumers.messages import pairs
from consumers.monitoring.status import Summary
from consumers.terminal import colour_of, escaped, nats, number, plain, share

if TYPE_CHECKING:  # it stands on the daemon's components, which cost time
    from consumers.cli.verify import Verified

_FAR_OFF = 1e5
_NAME_WIDTH = 20  # of the first column at a terminal that is too narrow for a table
_NO_FIGURE = {"value": math.nan, "low": math.nan, "high": math.nan}
_UNBOUNDED = 1 << 20


def print_error(console: Console, text: str) -> None:
    """Print an error as one block; nothing in it is taken for markup."""
    console.print(Text.assemble(("error: ", "bold red"), (escaped(text), "red")), soft_wrap=True)


def print_warning(console: Console, text: str) -> None:
    """Print a warning; nothing in it is taken for markup."""
    console.print(Text(f"warning: {escaped(text)}", style="yellow"), soft_wrap=True)


def print_prediction(console: Console, answer: Mapping[str, Any]) -> None:
    """Print one answer of `predict`: the label, all probabilities, the features that weigh most."""
    classes = [str(label) for label in answer["probabilities"]]
    label = str(answer["label"])
    head = Text.assemble((plain(label), f"bold {colour_of(label, classes)}"), "  ")
    for name, probability in zip(classes, answer["probabilities"].values(), strict=True):
        head.append(f"{plain(name)} {probability:.4f}  ", style="" if name == label else "dim")
    if "prediction_set" in answer:
        head.append(f"set {{{', '.join(map(plain, answer['prediction_set']))}}}  ")
    if "decision" in answer:
        head.append(f"cheapest: {plain(answer['decision'])}")
    console.print(head, soft_wrap=True)
    asked = answer["text"] if "text" in answer else pairs(answer["fields"])
    if asked:
        console.print(Text(f"  {plain(asked)}", style="dim"), soft_wrap=True)
    told = [row | {"feature": row["word"]} for row in answer["words"]] + answer["features"]
    line = scores_line(told, len(told))
    if all(row["unseen"] for row in told):
        line = ""
    nothing = "none of its words is known" if "text" in answer else "nothing in it is known"
    console.print(Text(f"  {line or nothing}"), soft_wrap=True)
    if answer["by_prior"]:
        console.print(Text("  every class is impossible: by the class prior alone"), soft_wrap=True)


def _nats(score: float) -> str:
    """Return a score; one that is far off any other, as an outlier's is, by its size alone."""
    return f"{score:+.2f}" if abs(score) < _FAR_OFF else f"{score:+.2g}"


def print_inspection(console: Console, found: Mapping[str, Any]) -> None:
    """Print what `inspect` found."""
    console.print(Text(escaped(found["path"]), style="bold"), soft_wrap=True)
    left = found["values_dropped"]
    values = f", {number(left)} values dropped" if left else ""
    console.print(
        f"{number(found['n_examples'])} examples, {number(found['vocabulary_size'])} words, "
        f"{number(found['words_dropped'])} dropped, {number(found['n_features'])} features{values}",
        highlight=False,
    )
    console.print(f"counts' digest {found['digest']}", highlight=False, soft_wrap=True)
    table = _table("class", "N_c", "prior π")
    for row in found["classes"]:
        table.add_row(Text(plain(str(row["label"]))), number(row["count"]), f"{row['prior']:.6f}")
    _show(console, table)
    classes = [str(row["label"]) for row in found["classes"]]
    for rows, make in (
        (found["words"], _words),
        (found["values"], _values),
        (found["flags"], _flags),
        (found["numbers"], _numbers),
    ):
        if rows:
            _show(console, make(rows, classes))
    if found["sections"]:
        table = _table("section", "next position", "examples")
        for row in found["sections"]:
            position = "–" if row["position"] is None else number(row["position"])
            table.add_row(Text(plain(row["name"])), position, number(row["n_examples"]))
        _show(console, table)


def _words(rows: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> Table:
    table = _table("word", *_heads("N_jc", classes), *_heads("θ", classes))
    for row in rows:
        table.add_row(
            Text(plain(row["word"])),
            *(number(row["counts"][name]) for name in classes),
            *(f"{row['likelihoods'][name]:.3g}" for name in classes),
        )
    return table


def _values(rows: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> Table:
    table = _table("value", *_heads("N_jvc", classes))
    for row in rows:
        counts = (number(row["counts"][name]) for name in classes)
        table.add_row(Text(plain(f"{row['field']}={row['value']}")), *counts)
    return table


def _flags(rows: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> Table:
    table = _table("flag", *_heads("true", classes), *_heads("false", classes))
    for row in rows:
        counts = [row[key][name] for key in ("true", "false") for name in classes]
        table.add_row(Text(plain(row["field"])), *map(number, counts))
    return table


def _numbers(rows: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> Table:
    table = _table("number", *_heads("n", classes), *_heads("mean ± deviation", classes))
    for row in rows:
        spread = (
            f"{row['mean'][name]:.6g} ± {row['deviation'][name]:.3g}" if row["n"][name] else "–"
            for name in classes
        )
        table.add_row(
            Text(plain(row["field"])), *(number(row["n"][name]) for name in classes), *spread
        )
    return table


def _heads(what: str, classes: Sequence[str]) -> list[str]:
    return [f"{what} {plain(name)}" for name in classes]


def _reasons(rejected: Mapping[str, int]) -> str:
    named = ", ".join(f"{reason} {number(count)}" for reason, count in rejected.items())
    return f" ({named})" if named else ""


def _parts(counts: Mapping[str, int]) -> str:
    return "".join(f", {name} {number(count)}" for name, count in counts.items())


def print_summary(console: Console, summary: Summary, rejects_to: str) -> None:
    """Print what a run did, and how to keep rejects if they were kept nowhere."""
    lost = sum(summary.rejected.values()) and rejects_to == "none"
    hint = "; rejects.to: file:PATH keeps each, with what is wrong with it" if lost else ""
    late = f", {number(summary.learned_late)} of them late" if summary.learned_late else ""
    in_time = "learned in time" if summary.learned_late else "learned"
    held = ", ".join(
        f"{label} {number(count)}"
        for label, count in zip(summary.classes, summary.class_counts, strict=False)
    )
    late_labels = {}
    if summary.late_labels:
        late_labels = {"late labels": _parts(summary.late_labels).removeprefix(", ")}
    missing = {}
    if summary.lost:
        missing["lost"] = (
            f"{number(summary.lost)} besides, never read; the log says where (messages_lost)"
        )
    if summary.gaps:
        missing["gaps"] = f"{number(summary.gaps)}; the log says where (stream_gap)"
    rows = {
        "ended": summary.exit_reason,
        "source": summary.source,
        "messages": f"{number(summary.messages)} = {in_time} + judged + deleted + superseded +"
        " ignored + rejected",
        "time": f"{summary.seconds:.1f} s from start to end; from the first message to the last"
        f" {number(summary.messages_per_s)} a second",
        "learned": number(summary.learned) + late,
        "judged": f"{number(summary.judged)}, {number(summary.ambiguous)} of them ambiguous",
        "deleted": number(summary.deletions),
        "superseded": number(summary.superseded),
        "ignored": number(sum(summary.ignored.values())) + _parts(summary.ignored),
        "rejected": number(sum(summary.rejected.values())) + _parts(summary.rejected) + hint,
        **missing,
        **late_labels,
        "accuracy": f"{share(summary.accuracy)}, log-loss {nats(summary.log_loss)}",
        "model": "; ".join(filter(None, (_size(summary), held))),
        "checkpoint": summary.checkpoint or "none is kept: checkpoint.folder is null",
    }
    for name, value in rows.items():
        console.print(Text.assemble((f"{name:<12}", "dim"), plain(value)), soft_wrap=True)


def print_verified(console: Console, done: Verified) -> None:
    """Print whether a checkpoint counts what its log says, and if not, where it differs."""
    rows = {
        "checkpoint": done.checkpoint,
        "its digest": f"{done.digest} (without means and variances)",
        "the log's": f"{done.replayed_digest} (without means and variances)",
        "the log": f"{number(done.messages)} messages, {number(done.examples)} examples;"
        f" {number(done.taken_back)} taken back, {number(done.corrections)} corrections",
    }
    for name, value in rows.items():
        console.print(Text.assemble((f"{name:<12}", "dim"), plain(value)), soft_wrap=True)
    for note in done.notes:
        print_warning(console, note)
    if done.is_equal:
        console.print("the checkpoint counts what its log says")
        return
    table = _table("statistic", "of", "class", "checkpoint", "log")
    for each in done.differences:
        where = f"{each.group}.{each.statistic}".lstrip(".")
        cells = (Text(plain(text)) for text in (where, each.name, each.label))
        table.add_row(*cells, f"{each.first:g}", f"{each.second:g}")
    _show(console, table)
    console.print(
        "the checkpoint does NOT count what its log says; the first differences are above"
    )


def print_evaluation(console: Console, found: Mapping[str, Any]) -> None:
    """Print the figures of `evaluate`, each with its interval."""
    facts = f"{plain(found['source'])}: {evaluation_facts(found)}"
    for each in (facts, *training_facts(found), *found["notes"]):
        console.print(each, highlight=False, markup=False, soft_wrap=True)
    table = _table("figure", "value", "95 % interval")
    for name, each in found["figures"].items():
        table.add_row(name.replace("_", " "), *figure_texts(each))
    _show(console, table)
    names = ("precision", "recall", "specificity", "f1", "roc_auc", "pr_auc")
    table = _table("class", "n", *(name.replace("_", " ") for name in names))
    for label, row in found["by_class"].items():
        cells = ("\n".join(figure_texts(row[name])).replace("– ", "–\n") for name in names)
        table.add_row(Text(plain(label)), number(row["support"]), *cells)
    _show(console, table)
    table = _table("truth, and what was said", *map(plain, found["classes"]))
    for label, row in zip(found["classes"], found["confusion"], strict=True):
        table.add_row(Text(plain(label)), *map(number, row))
    _show(console, table)
    table = _table("the surest", "accuracy", "95 % interval", "sure from")
    for row in found["coverage"]:
        table.add_row(share(row["coverage"]), *figure_texts(row), f"{row['confidence']:.4f}")
    _show(console, table)
    if found["impossible"]:
        console.print(
            "of a class that their model gave no probability, and so not in the log-loss: "
            f"{number(found['impossible'])}"
        )


def print_comparison(console: Console, found: Mapping[str, Any]) -> None:
    """Print the figures of several models side by side, their pairs, and where they disagree."""
    facts = f"{plain(found['source'])}: {evaluation_facts(found)}"
    console.print(facts, highlight=False, markup=False, soft_wrap=True)
    for fact in (*peer_facts(found), *models_facts(found["models"])):
        console.print(fact, highlight=False, markup=False, soft_wrap=True)
    models = found["models"]
    table = _table("figure", *map(plain, models))
    for name in figure_names(models):
        own = (each["figures"].get(name, _NO_FIGURE) for each in models.values())
        cells = ("\n".join(figure_texts(each)) for each in own)
        table.add_row(name.replace("_", " "), *cells)
    _show(console, table)
    heads = ("only 1st right", "only 2nd right", "McNemar's p", "accuracy ahead", "log-loss ahead")
    table = _table("pair", *heads)
    for row in found["pairs"]:
        ahead = ("\n".join(figure_texts(row[key])) for key in ("accuracy", "log_loss"))
        table.add_row(
            Text(plain(f"{row['first']} – {row['second']}")), number(row["only_first_right"]),
            number(row["only_second_right"]), f"{row['p_value']:.3g}", *ahead,
        )  # fmt: skip
    _show(console, table)
    for row in found["pairs"]:
        console.print(verdict(row), highlight=False, markup=False, soft_wrap=True)
    console.print(f"\nthey disagree on {number(found['disagreements'])} messages", highlight=False)
    for row in found["shown"]:
        head = Text.assemble((plain(str(row["label"])), "bold"), f"  {plain(row['message'])}")
        console.print(head, soft_wrap=True)
        for name, each in row["models"].items():
            why = scores_line(each["scores"], 4)
            said = f"{plain(each['said'])} {each['probability']:.4f}"
            console.print(Text(f"  {plain(name)}: {said}  {why}", style="dim"), soft_wrap=True)


def scores_line(scores: Sequence[Mapping[str, Any]], n: int) -> str:
    """Return the `n` features that weigh most, with their scores; what is unseen says so."""
    most = sorted(scores, key=lambda each: -abs(each["score"]))[:n]
    return " · ".join(
        f"{plain(each['feature'])} {_nats(each['score'])}{' (unseen)' if each['unseen'] else ''}"
        for each in most
    )


def evaluation_facts(found: Mapping[str, Any]) -> str:
    """Return in a sentence what was read and judged."""
    rejected, ignored = (sum(found[name].values()) for name in ("rejected", "ignored"))
    return (
        f"{number(found['examples'])} of {number(found['messages'])} messages judged "
        f"({_method(found)}{', calibrated' if found.get('calibrated') else ''}); "
        f"{number(found['unlabelled'])} without a label, {number(rejected)} "
        f"rejected{_reasons(found['rejected'])}, {number(found['deletions'])} deletions not carried"
        " out" + (f", {number(ignored)} ignored" if ignored else "")
    )


def _method(found: Mapping[str, Any]) -> str:
    """Return how messages were judged, with the number that was asked for."""
    late, share, folds = found["delay"], found.get("hold_out"), found.get("folds")
    if late:
        return f"prequential, each label {number(late)} messages late"
    if share is not None:
        return f"the last {100 * share:g} %"
    return found["method"] if folds is None else f"{number(folds)} folds"


def training_facts(found: Mapping[str, Any]) -> list[str]:
    """Return in a sentence how probable a model finds what it learned, if its counts say."""
    training = found["training"]
    if training is None:
        return []
    total, joint_nll = (f"{training[name]:,.4g}" for name in ("log_likelihood", "joint_nll"))
    both = f"log-likelihood {total} nats, joint NLL {joint_nll} an example"
    return [f"what the model has learned: {both}, both without multinomial coefficients"]


def folds_notes(overfull: Mapping[str, tuple[int, int, int]]) -> list[str]:
    """Return a sentence for each group whose folds are no trainings; see `Folds.overfull`."""
    return [
        f"{name}: the folds together hold {number(n_held)} words or values, {number(n_left)} have"
        f" left a fold that was full, and one training holds {number(n_max)} at most: the figures"
        " are of models with other words, mostly more, and not bit for bit those of trainings"
        for name, (n_held, n_max, n_left) in overfull.items()
    ]


def late_sets_note(delay: int) -> str:
    """Return in a sentence what prediction sets still promise if labels come late."""
    return (
        f"prediction sets are by the threshold of {number(delay)} labels before: the promise of"
        " model.coverage is of messages as they are learned, and not of the sets judged here, of"
        f" which those of the {number(delay)} messages after a change may all miss"
    )


def verdict(row: Mapping[str, Any]) -> str:
    """Return in a sentence which model of a pair is right more often, if the interval says so."""
    first, second = plain(row["first"]), plain(row["second"])
    low, high = (100.0 * row["accuracy"][end] for end in ("low", "high"))
    if not (low > 0.0 or high < 0.0):
        return f"{first} and {second}: no difference in accuracy is shown, as the interval holds 0"
    better, worse = (first, second) if low > 0.0 else (second, first)
    least, most = sorted((abs(low), abs(high)))
    return f"{better} is right more often than {worse}, by {least:.2f} to {most:.2f} points"


def one_class_note(label: str) -> str:
    """Return in a sentence what figures are worth if all examples are of one class."""
    return (
        f"all examples are of one class, {plain(label)}: accuracy does not say how well classes are"
        " told apart; is the source sorted by its labels?"
    )


def joint_note(n_left_out: int, n: int) -> str:
    """Return in a sentence how many examples the joint NLL leaves out, and why."""
    return (
        f"joint NLL leaves out {number(n_left_out)} of {number(n)} examples: of a number their"
        " class had had one value only, so its variance was the floor and their density says"
        " nothing; with the prior normal-inverse-gamma all count"
    )


def ruled_out_note(n_ruled_out: int, n: int) -> str:
    """Return in a sentence how many examples the joint NLL has no figure for, and why."""
    return (
        f"joint NLL is of the others: the model held {number(n_ruled_out)} of {number(n)} examples"
        " for impossible, p(x, y) = 0, and the prior alone answered; a prior above 0, as alpha: 1,"
        " holds nothing for impossible"
    )


def models_facts(models: Mapping[str, Any]) -> list[str]:
    """Return whether each of several models is calibrated, its `training_facts` and notes."""
    calibrated = ["its answers are calibrated"]
    return [
        f"{name}, {fact}"
        for name, found in models.items()
        for fact in calibrated * found["calibrated"] + training_facts(found) + found["notes"]
    ]


def peer_facts(found: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each model of another library."""
    return [f"{name}: {what}" for name, what in found["peers"].items()]


def figure_names(models: Mapping[str, Any]) -> list[str]:
    """Return the names of the figures that any of several models has, in their order."""
    return list(dict.fromkeys(name for found in models.values() for name in found["figures"]))


def figure_texts(each: Mapping[str, float]) -> tuple[str, str]:
    """Return a figure and its interval as text; a dash for what there is not."""
    if math.isnan(each["value"]):
        return "–", "–"
    has_interval = not math.isnan(each["low"])
    interval = f"{each['low']:.4f} – {each['high']:.4f}" if has_interval else "–"
    return f"{each['value']:.4f}", interval


def _size(summary: Summary) -> str:
    """Return how much a model knows: words, or features where there are others beside them."""
    if summary.n_features == summary.vocabulary_size:
        return f"{number(summary.vocabulary_size)} words"
    return f"{number(summary.n_features)} features"


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(Text(first), no_wrap=True)
    for name in others:
        table.add_column(Text(name), justify="right", overflow="fold")
    return table


def _show(console: Console, table: Table) -> None:
    """Print a table: as wide as it needs, or at a terminal as narrow as its figures allow.

    There cells break between words, headings anywhere, and names give way last; but no figure is
    cut: what is too wide even so is left to the terminal to break.
    """
    unbounded = console.options.update(width=_UNBOUNDED)
    width = Measurement.get(console, unbounded, table).maximum
    widths, least = [], []
    for column in table.columns:
        cells = [Measurement.get(console, unbounded, cell) for cell in column.cells]
        head = Measurement.get(console, unbounded, column.header)
        widths.append(max(each.maximum for each in (head, *cells)))
        sign = max(map(cell_len, str(column.header)), default=1)  # a wide one does not break
        least.append(max(sign, *(each.minimum for each in cells)))
    least[0] = min(widths[0], _NAME_WIDTH)
    while console.is_terminal and width > console.width:
        wide = [i for i, each in enumerate(widths) if each > least[i]]
        if not wide:
            break
        widths[max(wide, key=lambda i: (i > 0, widths[i]))] -= 1
        width -= 1
    for column, each in zip(table.columns, widths, strict=True):
        column.width = each
    table.width = width
    console.print()
    console.print(table, crop=False)
