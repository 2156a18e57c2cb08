"""What a person sees of a running daemon: a screen at a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import structlog
from rich.console import Console

from consumers.terminal.view import LiveView, LogView, View

__all__ = ["LiveView", "LogView", "View", "make_view"]


def make_view(
    kind: Literal["auto", "live", "log"], console: Console, clock: Callable[[], float]
) -> View:
    """Return the view that is asked for.

    Parameters
    ----------
    kind : {"auto", "live", "log"}
        With ``auto``, the live view where the console is a terminal, else the log.
    console : Console
        Where the live view is drawn.
    clock : callable
        Seconds that only grow.
    """
    if kind == "live" or (kind == "auto" and console.is_terminal and not console.is_dumb_terminal):
        return LiveView(console)
    return LogView(structlog.get_logger("streamnb"), clock)
