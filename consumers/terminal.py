"""What a person sees of a running daemon: a screen at a terminal, a line now and then elsewhere.

Both are drawn from a `Status`, by small functions for numbers, ages, bars, and texts made harmless.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, Protocol

import structlog
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from consumers.monitoring.status import Judged, Status

REFRESH_PER_S = 4.0
HISTORY_MAX = 240  # points of the sparkline, a minute's worth
LINE_INTERVAL_S = 5.0
UNSURE_BELOW = 0.7  # a posterior below it is shown dimmed
_BLOCKS = "▁▂▃▄▅▆▇█"
_NAMED_COLOURS = {"positive": "green", "negative": "red", "neutral": "yellow"}
_COLOURS = ("cyan", "magenta", "yellow", "blue", "green", "red")
_WORDS_CLASSES_MAX = 4
_SIGNS = f"{_BLOCKS}━─●✓✗·–…"  # of the screen, beside words
_N_NUMBERS = 6  # rows of figures
_STREAM_WIDTH = 27
_QUALITY_WIDTH = 30


class View(Protocol):
    """Shows the daemon's status. One thread calls all methods."""

    def start(self) -> None:
        """Begin to show."""

    def update(self, status: Status) -> None:
        """Take the newest status. Cheap: it may be called many times a second."""

    def stop(self) -> None:
        """Release the screen. Safe without a start, and twice."""


class LiveView:
    """Draws the newest status on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._accuracies: deque[float] = deque(maxlen=HISTORY_MAX)
        self._live: Live | None = None

    def start(self) -> None:
        """Take the screen."""
        self._live = Live(
            get_renderable=self._draw,
            console=self._console,
            screen=True,
            refresh_per_second=REFRESH_PER_S,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start(refresh=True)

    def update(self, status: Status) -> None:
        """Take the newest status; it is drawn at the next refresh."""
        self._status = status

    def stop(self) -> None:
        """Give the screen back."""
        if self._live is not None:
            # A terminal that hung up; Rich ends the program where nobody reads its output.
            with contextlib.suppress(OSError, SystemExit):
                self._live.stop()
            self._live = None

    def _draw(self) -> RenderableType:
        status = self._status
        if status is None:
            return ""
        if status.window_accuracy is not None:
            self._accuracies.append(status.window_accuracy)
        width, height = self._console.size
        return frame(status, tuple(self._accuracies), width, height)


class LogView:
    """Logs a line each `interval_s`, and at once when trouble or a note comes or goes."""

    def __init__(
        self, logger: Any, clock: Callable[[], float], interval_s: float = LINE_INTERVAL_S
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._interval_s = interval_s
        self._line_s: float | None = None
        self._told: tuple[str | None, bool] = (None, False)
        self._unsaid: Status | None = None

    def start(self) -> None:
        """Begin; the first status is logged at once."""
        self._line_s = None

    def update(self, status: Status) -> None:
        """Log the status if its time has come."""
        now_s = self._clock()
        news = (status.trouble, status.note is not None)
        due = self._line_s is None or now_s - self._line_s >= self._interval_s
        if due or news != self._told:
            self._line_s, self._told, self._unsaid = now_s, news, None
            self._logger.info("status", **fields_of(status))
        else:
            self._unsaid = status

    def stop(self) -> None:
        """Log the last status, unless it was."""
        if self._unsaid is not None:
            self._logger.info("status", **fields_of(self._unsaid))
            self._unsaid = None


def fields_of(status: Status) -> dict[str, Any]:
    """Return a status as the fields of a log line, without messages and without what is unknown."""
    fields = {
        "source": status.source,
        "messages": status.n_messages,
        "learned": status.n_learned,
        "learned_late": status.n_learned_late or None,
        "judged": status.n_judged,
        "rejected": status.n_rejected,
        "ignored": status.n_ignored,
        "rate_per_s": round(status.rate_per_s, 1),
        "lag": status.lag_total,
        "window_accuracy": _rounded(status.window_accuracy),
        "window_log_loss": _rounded(status.window_log_loss),
        "vocabulary_size": status.vocabulary_size,
        "n_features": status.n_features,
        "snapshot_version": status.snapshot_version,
        "checkpoint_age_s": _rounded(status.checkpoint_age_s),
        "trouble": status.trouble,
        "note": status.note,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def make_view(
    kind: Literal["auto", "live", "log"], console: Console, clock: Callable[[], float]
) -> View:
    """Return the view that is asked for; with ``auto``, the live one if it can be drawn."""
    if kind == "live" or (kind == "auto" and _can_draw(console)):
        return LiveView(console)
    return LogView(structlog.get_logger("streamnb"), clock)


def _can_draw(console: Console) -> bool:
    """Return whether a console is a terminal whose encoding has the signs of the screen."""
    shown = _SIGNS.encode(console.encoding, "replace").decode(console.encoding)
    return console.is_terminal and not console.is_dumb_terminal and shown == _SIGNS


def colour_of(label: str, classes: Sequence[str]) -> str:
    """Return the colour that a class has everywhere on the screen."""
    if label in _NAMED_COLOURS:
        return _NAMED_COLOURS[label]
    place = classes.index(label) if label in classes else 0
    return _COLOURS[place % len(_COLOURS)]


def plain(text: str) -> str:
    """Return `text` on one line, without anything that a terminal would obey.

    Escape sequences, other control characters and marks that turn the writing direction become
    spaces. Rich reads its own markup only if it is asked to, so that stays.
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


def frame(status: Status, accuracies: Sequence[float], width: int, height: int) -> RenderableType:
    """Return one frame of at most `height` rows.

    The sparkline is drawn from window `accuracies`, oldest first.
    """
    rows: list[RenderableType] = [_title(status, width), Text("")]
    rows += _numbers(status, accuracies, width)
    rows.append(Text(""))
    if status.telling:
        rows += [_rule("telling features"), *_telling(status, width), Text("")]
    rows.append(_rule("newest"))
    room = max(0, height - len(rows) - 2)
    newest = [_message(judged, status.classes, width) for judged in status.newest[-room:]]
    newest = newest[:room]  # without room, [-0:] would have been all of them
    filling = [Text("")] * (room - len(newest) + 1)
    # A low screen loses its last rows but never its foot, which says what is wrong.
    return Group(*[*rows, *newest, *filling][: max(0, height - 1)], _foot(status))


def _line(*parts: str | Text | tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _rule(title: str) -> Rule:
    return Rule(Text(f" {title} ", style="dim"), style="grey30", align="left", characters="─")


def _title(status: Status, width: int) -> RenderableType:
    if status.trouble is not None:
        state = Text("● waiting for source", style="bold yellow")
    elif status.note is not None:
        state = Text("● busy", style="cyan")
    elif status.rate_per_s > 0:
        state = Text("● reading", style="green")
    else:
        state = Text("● idle", style="dim")
    right = Text.assemble(state, ("  " + elapsed(status.elapsed_s), "dim"))
    left = Text.assemble(("streamnb", "bold"), ("  " + plain(status.source), "dim"))
    left.truncate(max(8, width - right.cell_len - 4), overflow="ellipsis", pad=True)
    return _line(" ", left, "  ", right)


def _numbers(status: Status, accuracies: Sequence[float], width: int) -> list[Text]:
    """Return the rows of figures: the stream, its quality, the shares of the newest."""
    stream = _stream(status)
    quality = _quality(status, accuracies)
    shares = _shares(status, min(30, max(5, width - _STREAM_WIDTH - _QUALITY_WIDTH - 17)))
    lines = []
    for i, row in enumerate(stream):
        right = shares[i] if i < len(shares) else Text("")
        lines.append(_line(row, quality[i] if i < len(quality) else "", right))
    return lines


def _stream(status: Status) -> list[Text]:
    lag = "–" if status.lag_total is None else number(status.lag_total)
    rows = (
        ("rate", f"{number(status.rate_per_s)} /s"),
        ("learned", number(status.n_learned)),
        *([("late", number(status.n_learned_late))] if status.n_learned_late else []),
        ("judged", number(status.n_judged)),
        ("rejected", number(status.n_rejected)),
        *([("ignored", number(status.n_ignored))] if status.n_ignored else []),
        ("lag", lag),
        ("words", number(status.vocabulary_size))
        if status.vocabulary_size == status.n_features
        else ("features", number(status.n_features)),
    )
    return [
        Text.assemble((f" {name:<9}", "dim"), f"{value:>{_STREAM_WIDTH - 14}}", "    ")
        for name, value in rows
    ]


def _quality(status: Status, accuracies: Sequence[float]) -> list[Text]:
    rows = (
        ("accuracy", share(status.window_accuracy), share(status.accuracy)),
        ("log-loss", nats(status.window_log_loss), nats(status.log_loss)),
    )
    blank = Text(" " * _QUALITY_WIDTH)
    lines = [Text(f"{'':<9}{'window':>8}{'overall':>9}    ", style="dim")]
    lines += [
        Text.assemble((f"{name:<9}", "dim"), f"{window:>8}", (f"{overall:>9}    ", "dim"))
        for name, window, overall in rows
    ]
    spark = sparkline(accuracies, _QUALITY_WIDTH - 4)
    lines += [blank, Text(f"{spark:<{_QUALITY_WIDTH}}", style="cyan"), blank]
    return lines


def _shares(status: Status, room: int) -> list[Text]:
    lines = []
    for label, value in zip(status.classes, status.shares, strict=False):
        colour = colour_of(label, status.classes)
        name = plain(label)[:9]
        drawn = bar(value, room, colour)
        lines.append(Text.assemble((f"{name:<9} ", colour), drawn, f" {value:4.0%}"))
    return lines[:_N_NUMBERS]


def _telling(status: Status, width: int) -> list[Text]:
    lines = []
    for label, words in list(status.telling.items())[:_WORDS_CLASSES_MAX]:
        colour = colour_of(label, status.classes)
        told = " · ".join(map(plain, words))
        line = Text.assemble((f" {plain(label)[:9]:<9} ", "dim"), (told, colour))
        line.truncate(width - 1, overflow="ellipsis")
        lines.append(line)
    return lines


def _message(judged: Judged, classes: Sequence[str], width: int) -> Text:
    colour = colour_of(judged.label, classes)
    sure = judged.probability >= UNSURE_BELOW
    if judged.truth is None:
        mark = Text("  ")
    elif judged.truth == judged.label:
        mark = Text("✓ ", style="dim")
    else:
        mark = Text("✗ ", style="yellow")
    user = f"@{plain(judged.user)} " if judged.user else ""
    line = Text.assemble(
        " ",
        (f"{plain(judged.label)[:8]:<8}", colour if sure else f"dim {colour}"),
        (f" {judged.probability:4.0%} ", "" if sure else "dim"),
        mark,
        (user, "dim"),
        (plain(judged.text), colour if sure else "dim"),
    )
    line.no_wrap = True
    line.truncate(width - 1, overflow="ellipsis")
    return line


def _foot(status: Status) -> Text:
    if status.trouble is not None:
        return _line((f" {plain(status.trouble)}", "yellow"))
    if status.note is not None:
        return _line((f" {plain(status.note)}", "cyan"))
    parts = [
        f"snapshot {status.snapshot_version}, {age(status.snapshot_age_s)}",
        f"checkpoint {age(status.checkpoint_age_s)}",
    ]
    if status.http_address:
        parts.append(status.http_address)
    if status.words_dropped:
        parts.append(f"{number(status.words_dropped)} words dropped")
    return _line((" " + "  ·  ".join(parts), "dim"))
