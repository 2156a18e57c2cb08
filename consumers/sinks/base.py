"""The sink protocol, and the two kinds of record that leave the daemon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Record(msgspec.Struct, frozen=True):
    """One record on its way out.

    Attributes
    ----------
    key : bytes
        Makes repeats recognisable.
    value : bytes
        JSON.
    short : Record or None
        What goes out instead where the outside refuses the whole as too large.
    """

    key: bytes
    value: bytes
    short: Record | None = None


class Flushable(Protocol):
    """Holds what has to be safe before a checkpoint stands."""

    def flush(self, timeout_s: float) -> None:
        """Make everything that was added safe, or raise `SinkError`."""


class Sink(Protocol):
    """Takes records; keeps them safe when asked.

    Owned by one thread. `flush` returns once everything added is safe, or raises `SinkError`, and
    the checkpoint that asked for it is then not written.
    """

    def add(self, records: Sequence[Record]) -> None:
        """Take records, in order. May block for a bounded time when the outside is slow.

        All are taken, also where it raises `SinkError`: that says that too much is owed, and that
        a `flush` has to succeed before more may come. So nobody adds the same records twice.
        """

    def flush(self, timeout_s: float) -> None:
        """Make everything that was added safe, or raise `SinkError`."""

    def close(self) -> None:
        """Flush what can be flushed and let go."""
