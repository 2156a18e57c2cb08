"""The view at a terminal: the frame of `consumers.view.frame`, drawn four times a second.

Rich draws in a thread of its own, so that an update costs the consuming thread one reference and
no drawing. The terminal's other screen is used: when the view stops, what was there before is back.
"""

from __future__ import annotations

from collections import deque

from rich.console import Console, RenderableType
from rich.live import Live

from consumers.status import Status
from consumers.view.frame import frame

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
