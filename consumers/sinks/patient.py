"""A sink that is waited for: what it does not take now is owed, and the stream can wait.

Records must not be lost, and adding them again would double them. So where the sink behind says
that too much is owed, this one asks it to flush until it can, says so once, and goes on. Once the
daemon is told to stop it gives up for good: whatever is added later is refused at once, and the
checkpoint that would pass over it is not written, so all of it comes again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog

from consumers.errors import SinkError
from consumers.sinks.base import Record, Sink

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
