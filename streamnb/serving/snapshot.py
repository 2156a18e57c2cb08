"""A snapshot: a model at one moment, as a sealed value. It answers as the model did, for ever."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from streamnb.errors import check_kind, check_whole
from streamnb.reading import Readable


class Snapshot(Readable):
    """What a model knew at one moment.

    It shares the vocabulary's table with the model, whose later words are beyond the snapshot's
    count and so unseen, and holds its own copy of every count. Any number of threads may read it.

    Attributes
    ----------
    version : int
        Rising by one with each snapshot published.
    n_examples : int
        How many examples it has seen.
    """

    version: int

    def __init__(self, model: Readable, version: int) -> None:
        check_kind("model", model, Readable)
        check_whole("version", version, 0)
        seal = object.__setattr__
        seal(self, "version", version)
        seal(self, "_classes", list(model._classes))  # noqa: SLF001 -- a snapshot is the model's other half
        for name in ("_class_prior", "_pseudo", "_is_fixed", "_clock", "_hash_key", "_n_examples"):
            seal(self, name, getattr(model, name))
        seal(self, "_class_counts", model._class_counts.copy())  # noqa: SLF001
        groups = {name: group.frozen_copy() for name, group in model._groups.items()}  # noqa: SLF001
        seal(self, "_groups", groups)

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
        """Put up a snapshot in place of the one before. Called by the learning thread alone."""
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
