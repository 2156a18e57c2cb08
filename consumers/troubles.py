"""What goes wrong for a while: said once in the log, kept for whoever asks, retried after pauses.

The pauses grow, up to a bound: a fault that stays costs little, one that passes is soon noticed.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

_FIRST_PAUSE_S = 0.05


class Troubles:
    """The troubles of one source, each under a key.

    Parameters
    ----------
    log : structlog.stdlib.BoundLogger
        Where each trouble is said once when it begins and once when it is over.
    clock : callable
        Seconds that only grow.
    pause_max_s : float
        The longest pause before the next attempt; pauses double from 0.05 s.
    """

    def __init__(
        self,
        log: structlog.stdlib.BoundLogger,
        clock: Callable[[], float],
        pause_max_s: float,
    ) -> None:
        self._log = log
        self._clock = clock
        self._pause_max_s = pause_max_s
        self._sentences: dict[str, str] = {}
        self._pauses_s: dict[str, float] = {}
        self._retry_at_s: dict[str, float] = {}

    def say(self, key: str, sentence: str) -> None:
        """Note that something goes wrong, or still does; the next attempt waits longer."""
        if key not in self._sentences:
            self._log.warning("source_trouble", trouble=sentence)
        self._sentences[key] = sentence
        pause_s = min(self._pauses_s.get(key, _FIRST_PAUSE_S / 2) * 2, self._pause_max_s)
        self._pauses_s[key] = pause_s
        self._retry_at_s[key] = self._clock() + pause_s

    def clear(self, key: str) -> None:
        """Note that it is over, if it was."""
        sentence = self._sentences.pop(key, None)
        if sentence is not None:
            self._pauses_s.pop(key)
            self._retry_at_s.pop(key)
            self._log.info("source_trouble_over", trouble=sentence)

    def first(self) -> str | None:
        """Return the oldest trouble's sentence, or None when all is well."""
        return next(iter(self._sentences.values()), None)

    def pause_s(self, key: str) -> float:
        """Return how many seconds to wait before the next attempt; 0 where nothing is wrong."""
        return max(0.0, self._retry_at_s.get(key, 0.0) - self._clock())
