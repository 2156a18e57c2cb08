"""The sink protocol, and the two kinds of record that leave the daemon."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog

from consumers.errors import SinkError


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


class NoSink:
    """Takes records and forgets them, so that nobody has to ask whether there is a sink."""

    def add(self, records: Sequence[Record]) -> None:
        """Forget the records."""

    def flush(self, timeout_s: float) -> None:
        """Do nothing: what was to be kept is kept."""

    def close(self) -> None:
        """Do nothing."""


_TRY_TIMEOUT_S = 1.0
_PAUSE_S = 0.5
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class PatientSink:
    """Waits for a sink until it takes what it is given, or until the daemon stops.

    Parameters
    ----------
    sink : Sink
        Where the records go.
    stop : threading.Event
        Set when the daemon is to end.
    """

    def __init__(self, sink: Sink, stop: threading.Event) -> None:
        self._sink = sink
        self._stop = stop
        self._gave_up = False

    def add(self, records: Sequence[Record]) -> None:
        """Hand records on.

        Raises
        ------
        SinkError
            When the daemon is told to stop while they wait, and for all records after these.
        """
        if self._gave_up:
            raise SinkError("records before these were not taken")
        try:
            self._sink.add(records)
        except SinkError as error:
            log.warning("sink_waits", detail=str(error))
            self._wait()

    def flush(self, timeout_s: float) -> None:
        """Make safe what was added, or raise `SinkError`."""
        self._sink.flush(timeout_s)

    def close(self) -> None:
        """Let go of the sink."""
        self._sink.close()

    def _wait(self) -> None:
        """Wait until the sink has made safe what it took."""
        while not self._stop.is_set():
            try:
                self._sink.flush(_TRY_TIMEOUT_S)
            except SinkError:
                self._stop.wait(_PAUSE_S)
            else:
                log.info("sink_goes_on")
                return
        self._gave_up = True
        raise SinkError("told to stop while records wait for a sink that does not take them")
