"""Logs: one JSON object a line for machines, coloured lines for a person at a terminal.

Our own lines come by structlog, those of libraries (kafka-python, uvicorn) by the standard
library's logging; both leave by the same door and look alike. Everything goes to one stream, by
default standard error: standard output belongs to what a command was asked for.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import deque
from typing import Protocol, TextIO

import structlog

# While a broker is away kafka-python tells every attempt at ERROR, two lines a second; we tell it
# once, as the source's trouble.
_LIBRARIES = {"kafka": logging.CRITICAL, "uvicorn": logging.WARNING, "numba": logging.WARNING}

HELD_LINES_MAX = 200


class LogStream(Protocol):
    """What logs are written to: a text file, or `HeldLines`."""

    def write(self, text: str, /) -> int:
        """Take text."""

    def flush(self) -> None:
        """Pass it on."""

    def isatty(self) -> bool:
        """Return whether a person reads it."""


class LogHandler(logging.StreamHandler[LogStream]):
    """Writes log lines, and notes what keeps them from being written: nothing may end by that."""

    trouble: str | None = None
    _failed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        self._failed = False
        super().emit(record)
        if not self._failed:
            self.trouble = None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- logging's name
        """Note why a line was not written."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._failed = True
        self.trouble = f"log lines are lost: they cannot be written ({error.strerror or error})"


def trouble() -> str | None:
    """Return why log lines are lost, if the newest one was."""
    handlers = logging.getLogger().handlers
    return next((each.trouble for each in handlers if isinstance(each, LogHandler)), None)


def configure(stream: LogStream | None = None, *, json: bool | None = None) -> None:
    """Send all logs to `stream`, by default standard error.

    They are JSON lines or coloured ones; without `json`, JSON unless the stream is a terminal.
    """
    out: LogStream = sys.stderr if stream is None else stream
    as_json = not out.isatty() if json is None else json
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    ending: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta
    ]
    if as_json:
        ending += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ]
    else:
        # Its own choice would show local variables, so passwords, wherever `rich` is installed.
        plain = structlog.dev.plain_traceback
        ending.append(structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain))
    handler = LogHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=ending)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name, level in _LIBRARIES.items():
        logging.getLogger(name).setLevel(level)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


class HeldLines:
    """A stream that keeps log lines back while the live view owns the screen.

    It keeps the newest `HELD_LINES_MAX`; older ones are counted, and told of at the release.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._lines: deque[str] = deque(maxlen=HELD_LINES_MAX)
        self._n_dropped = 0

    def write(self, text: str) -> int:
        """Keep `text` back."""
        self._n_dropped += len(self._lines) == self._lines.maxlen
        self._lines.append(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: lines leave by `release`."""

    def isatty(self) -> bool:
        """Return whether the lines will be read at a terminal."""
        return self._terminal.isatty()

    def release(self) -> None:
        """Write out what was kept back; a terminal that hung up gets nothing."""
        with contextlib.suppress(OSError):
            if self._n_dropped:
                self._terminal.write(f"({self._n_dropped} older log lines were dropped)\n")
            while self._lines:
                self._terminal.write(self._lines.popleft())
            self._n_dropped = 0
            self._terminal.flush()
