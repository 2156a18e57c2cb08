"""A snapshot: a model at one moment, as a sealed value. It answers as the model did, for ever."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from streamnb.errors import check_kind, check_whole
from streamnb.reader import ModelReader


class Snapshot(ModelReader):
    """What a model knew at one moment.

    It shares the vocabulary's table with the model, whose later words are beyond the snapshot's
    count and so unseen, and holds its own copy of every count. Any number of threads may read it.

    Attributes
    ----------
    version : int
        Rises by one with each snapshot published.
    n_examples : int
        How many examples it has seen.
    """

    version: int

    def __init__(self, model: ModelReader, version: int) -> None:
        check_kind("model", model, ModelReader)
        check_whole("version", version, 0)
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "state", model.state.frozen_copy(with_parts=False))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        """Refuse: a snapshot is a value."""
        raise AttributeError(
            f"a snapshot is sealed; {name} cannot be set. Teach the model instead."
        )


class SnapshotBoard:
    """Holds the newest snapshot.

    Examples
    --------
    >>> SnapshotBoard().current() is None
    True
    """

    def __init__(self) -> None:
        self._current: Snapshot | None = None
        self._posted = threading.Event()

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the snapshot by a newer one. Only the learning thread calls this."""
        check_kind("snapshot", snapshot, Snapshot)
        self._current = snapshot
        self._posted.set()

    def current(self) -> Snapshot | None:
        """Return the newest snapshot, None before the first."""
        return self._current

    def wait(self, timeout_s: float) -> Snapshot | None:
        """Wait for the first snapshot; return the newest, or None when none came in time."""
        self._posted.wait(timeout_s)
        return self._current
