"""Small pieces of text for the screen: numbers, ages, bars, and tweets made harmless."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

_BLOCKS = "▁▂▃▄▅▆▇█"
_NAMED_COLOURS = {"positive": "green", "negative": "red", "neutral": "yellow"}
_COLOURS = ("cyan", "magenta", "yellow", "blue", "green", "red")


def colour_of(label: str, classes: Sequence[str]) -> str:
    """Return the colour that a class has everywhere on the screen."""
    if label in _NAMED_COLOURS:
        return _NAMED_COLOURS[label]
    place = classes.index(label) if label in classes else 0
    return _COLOURS[place % len(_COLOURS)]


def plain(text: str) -> str:
    """Return `text` on one line, without anything that a terminal would obey.

    Escape sequences, other control characters and marks that turn the writing direction become
    spaces. Rich's own markup is nothing to care for here: it is only read where one asks for it.
    """
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def escaped(text: str) -> str:
    """Return `text` with its lines and spaces kept, and what a terminal would obey spelled out.

    Messages about files and settings repeat what they found, which may hold escape sequences.
    """
    return "".join(
        char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
    )


def number(value: float) -> str:
    """Return a count or a rate with its thousands apart: ``12,345``, or ``0.4`` below ten."""
    return f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def share(value: float | None) -> str:
    """Return a share from 0 to 1 as per cent, or a dash where there is none."""
    return "–" if value is None else f"{100 * value:.1f} %"


def nats(value: float | None) -> str:
    """Return a log-loss, or a dash where there is none."""
    return "–" if value is None else f"{value:.3f}"


def age(seconds: float | None) -> str:
    """Return how long ago something was: ``0.1 s``, ``2 min``, or ``never``."""
    if seconds is None:
        return "never"
    if seconds < 10:
        return f"{seconds:.1f} s ago"
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"


def elapsed(seconds: float) -> str:
    """Return a running time as ``1:02:03``, or ``2:03`` below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the values as `width` blocks at most, each a mean, between their own extremes.

    A span below one percentage point is drawn as if it were one, so that a steady accuracy is a
    steady line and not a mountain range.
    """
    if not values or width < 1:
        return ""
    n = min(width, len(values))
    cuts = [len(values) * i // n for i in range(n + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low = min(means)
    span = max(max(means) - low, 0.01)
    return "".join(_BLOCKS[min(7, int(8 * (mean - low) / span))] for mean in means)


def bar(value: float, width: int, colour: str) -> Text:
    """Return a share from 0 to 1 as a bar."""
    filled = round(max(0.0, min(1.0, value)) * width)
    return Text.assemble(("━" * filled, colour), ("━" * (width - filled), "grey30"))
