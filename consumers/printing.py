"""How results and errors look at a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from consumers.status import Summary
from consumers.view.text import colour_of, escaped, nats, number, plain, share


def print_error(console: Console, text: str) -> None:
    """Print an error as one block; nothing in it is taken for markup."""
    console.print(Text.assemble(("error: ", "bold red"), (escaped(text), "red")), soft_wrap=True)


def print_warning(console: Console, text: str) -> None:
    """Print a warning; nothing in it is taken for markup."""
    console.print(Text(f"warning: {escaped(text)}", style="yellow"), soft_wrap=True)


def print_prediction(console: Console, answer: Mapping[str, Any]) -> None:
    """Print one answer of `predict`: the label, all probabilities, the words that weigh most."""
    classes = [str(label) for label in answer["probabilities"]]
    label = str(answer["label"])
    head = Text.assemble((plain(label), f"bold {colour_of(label, classes)}"), "  ")
    for name, probability in zip(classes, answer["probabilities"].values(), strict=True):
        head.append(f"{plain(name)} {probability:.4f}  ", style="" if name == label else "dim")
    console.print(head, soft_wrap=True)
    console.print(Text(f"  {plain(answer['text'])}", style="dim"), soft_wrap=True)
    words = " · ".join(f"{plain(row['word'])} {row['score']:+.2f}" for row in answer["words"])
    console.print(Text(f"  {words or 'none of its words is known'}"), soft_wrap=True)


def print_inspection(console: Console, found: Mapping[str, Any]) -> None:
    """Print what `inspect` found."""
    console.print(Text(escaped(found["path"]), style="bold"), soft_wrap=True)
    console.print(
        f"{number(found['n_examples'])} examples, {number(found['vocabulary_size'])} words, "
        f"{number(found['words_dropped'])} dropped",
        highlight=False,
    )
    table = _table("class", "N_c", "prior π")
    for row in found["classes"]:
        table.add_row(Text(plain(str(row["label"]))), number(row["count"]), f"{row['prior']:.6f}")
    _show(console, table)
    if found["words"]:
        names = list(found["words"][0]["counts"])
        table = _table(
            "word",
            *(f"N_jc {plain(name)}" for name in names),
            *(f"θ {plain(name)}" for name in names),
        )
        for row in found["words"]:
            table.add_row(
                Text(plain(row["word"])),
                *(number(row["counts"][name]) for name in names),
                *(f"{row['likelihoods'][name]:.3g}" for name in names),
            )
        _show(console, table)
    if found["sections"]:
        table = _table("section", "next position", "examples")
        for row in found["sections"]:
            position = "–" if row["position"] is None else number(row["position"])
            table.add_row(Text(plain(row["name"])), position, number(row["n_examples"]))
        _show(console, table)


def print_summary(console: Console, summary: Summary) -> None:
    """Print what a run did."""
    rejected = sum(summary.rejected.values())
    rows = {
        "ended": summary.exit_reason,
        "source": summary.source,
        "messages": f"{number(summary.messages)} in {summary.seconds:.1f} s, "
        f"{number(summary.messages_per_s)} a second",
        "learned": number(summary.learned),
        "judged": f"{number(summary.judged)}, {number(summary.ambiguous)} of them ambiguous",
        "rejected": number(rejected)
        + "".join(f", {reason} {number(count)}" for reason, count in summary.rejected.items()),
        "accuracy": f"{share(summary.accuracy)}, log-loss {nats(summary.log_loss)}",
        "model": f"{number(summary.vocabulary_size)} words; "
        + ", ".join(
            f"{label} {number(count)}"
            for label, count in zip(summary.classes, summary.class_counts, strict=True)
        ),
    }
    for name, value in rows.items():
        console.print(Text.assemble((f"{name:<10}", "dim"), plain(value)), soft_wrap=True)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(Text(first))
    for name in others:
        table.add_column(Text(name), justify="right")
    return table


def _show(console: Console, table: Table) -> None:
    console.print(Padding(table, (1, 0, 0, 0)))
