"""The views of a running daemon: a screen that is redrawn, or log lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.live import Live

from consumers.monitoring.status import Status
from consumers.terminal.frame import frame


class View(Protocol):
    """Shows the daemon's status. One thread calls all methods."""

    def start(self) -> None:
        """Begin to show."""

    def update(self, status: Status) -> None:
        """Take the newest status. Cheap: it may be called many times a second."""

    def stop(self) -> None:
        """Release the screen. Safe without a start, and twice."""


REFRESH_PER_S = 4.0
HISTORY_MAX = 240  # points of the sparkline, a minute's worth


class LiveView:
    """Draws the newest status on a terminal.

    Parameters
    ----------
    console : Console
        The terminal.
    """

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


LINE_INTERVAL_S = 5.0


class LogView:
    """Logs a line each `interval_s`, and at once when trouble or a note comes or goes.

    Parameters
    ----------
    logger : structlog logger
        Where the lines go.
    clock : callable
        Seconds that only grow.
    interval_s : float
        Seconds between two lines.
    """

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
        "judged": status.n_judged,
        "rejected": status.n_rejected,
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
