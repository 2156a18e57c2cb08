"""What is seen of a run: a progress bar while it lasts, a table at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.result import Result

T = TypeVar("T")


class Show:
    """Tells a person at the terminal how far it is.

    Parameters
    ----------
    console : Console
        Where bars go; usually standard error.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self.case = ""

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False)

    def track(self, items: Sequence[T]) -> Iterator[T]:
        """Yield the items under a bar named after the case."""
        yield from track(items, description=self.case, console=self._console, transient=True)


def table_of(results: Sequence[Result]) -> Table:
    """Return all figures as one table."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("case", "figure"):
        table.add_column(name)
    for name in ("value", "unit", "demand", ""):
        table.add_column(name, justify="left" if name == "unit" else "right")
    for result in results:
        if result.left_out is not None:
            table.add_row(result.case, f"[yellow]left out:[/yellow] {result.left_out}")
        for i, figure in enumerate(result.figures):
            told = {None: "", True: "[green]met[/green]", False: "[red]missed[/red]"}[figure.met]
            name = result.case if i == 0 else ""
            table.add_row(name, figure.name, number(figure.value), figure.unit, figure.demand, told)
    return table


def number(value: float) -> str:
    """Return a number with about four digits that mean something."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
