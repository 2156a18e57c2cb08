"""The sink protocol, the sink that drops all, and the one that waits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog

from consumers.errors import SinkError, TransactionError
from consumers.messages import Partition


class Record(msgspec.Struct, frozen=True):
    """One record on its way out; `short` stands in if the outside refuses it as too large."""

    key: bytes  # identifies repeats
    value: bytes  # JSON
    short: Record | None = None
    place: tuple[Partition, int] | None = None  # the message's partition and offset


class Flushable(Protocol):
    """Anything that must be flushed before a checkpoint is written."""

    def flush(self, timeout_s: float) -> None:
        """Make everything added safe, or raise `SinkError`."""


class Sink(Protocol):
    """Takes records, and makes them safe when flushed; used by one thread.

    If `flush` raises `SinkError`, the checkpoint that needed it is not written.
    """

    def add(self, records: Sequence[Record]) -> None:
        """Take records in order; may block for a bounded time.

        All are taken even if it raises `SinkError`, which says that too much is unflushed and a
        `flush` must succeed before the next `add`. So nobody adds the same records twice.
        """

    def flush(self, timeout_s: float) -> None:
        """Make everything added safe, or raise `SinkError`."""

    def close(self) -> None:
        """Flush what can be flushed, and close."""

    @property
    def n_pending_bytes(self) -> int:
        """Size of the records that are not safe yet; any thread may ask."""


class NoSink:
    """Drops all records: stands in for a sink that is off."""

    def add(self, records: Sequence[Record]) -> None:
        """Drop the records."""

    def flush(self, timeout_s: float) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    @property
    def n_pending_bytes(self) -> int:
        """Nothing ever waits."""
        return 0


_TRY_TIMEOUT_S = 1.0
_PAUSE_S = 0.5
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class PatientSink:
    """Waits for a sink that refuses records until it accepts them, or until `stop` is set."""

    def __init__(self, sink: Sink, stop: threading.Event) -> None:
        self._sink = sink
        self._stop = stop
        self._gave_up = False

    def add(self, records: Sequence[Record]) -> None:
        """Add records to the sink.

        `SinkError`: the daemon was told to stop while they waited; so is every call after that.
        """
        if self._gave_up:
            raise SinkError("records before these were not taken")
        try:
            self._sink.add(records)
        except TransactionError:  # waiting would not help
            self._gave_up = True
            raise
        except SinkError as error:
            log.warning("sink_waits", detail=str(error))
            self._wait()

    def flush(self, timeout_s: float) -> None:
        """Flush the sink, or raise `SinkError`."""
        self._sink.flush(timeout_s)

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()

    @property
    def n_pending_bytes(self) -> int:
        """What waits in the sink."""
        return self._sink.n_pending_bytes

    def _wait(self) -> None:
        """Flush the sink until it succeeds or the daemon stops."""
        while not self._stop.is_set():
            try:
                self._sink.flush(_TRY_TIMEOUT_S)
            except TransactionError:
                break
            except SinkError:
                self._stop.wait(_PAUSE_S)
            else:
                log.info("sink_goes_on")
                return
        self._gave_up = True
        raise SinkError("told to stop while records wait for a sink that does not take them")
