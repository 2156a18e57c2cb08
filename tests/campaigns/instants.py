"""Kill a daemon amid a checkpoint: as soon as its new file is there, or a little later."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.endtoend.daemon_process import Daemon

LOOK_S = 0.05  # for so long the file is looked for, before the daemon's log is read again
_LATER_S = 0.002  # about as long as a small checkpoint takes


class FreshFile:
    """The new file of a checkpoint of one life, and not one that an earlier kill has left.

    Parameters
    ----------
    state : Path
        The state folder, before the life begins.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / ".model.nb.new"
        self._left = self._stamp()

    def is_there(self) -> bool:
        """Return whether a checkpoint is under way, or was when the daemon was killed."""
        return self._stamp() not in (None, self._left)

    def comes(self) -> bool:
        """Look for it without a pause, for a moment; return whether it came."""
        until_s = time.monotonic() + LOOK_S
        while not (found := self.is_there()) and time.monotonic() < until_s:
            pass
        return found

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns


def kill_amid_a_checkpoint(
    daemon: Daemon, fresh: FreshFile, chance: random.Random, patience_s: float
) -> None:
    """Kill a daemon within one of its first checkpoints, or once `patience_s` are over."""
    last_s = time.monotonic() + patience_s
    later_s = chance.choice((0.0, 0.0, chance.uniform(0.0, _LATER_S)))
    for _ in range(chance.choice((1, 1, 2))):
        while fresh.is_there() and time.monotonic() < last_s:
            pass
        while not fresh.comes() and time.monotonic() < last_s:
            assert daemon.listen(0), f"it ended: {daemon.lines[-5:]}"
    daemon.listen(later_s)
    daemon.kill()
