"""Standard input as a source: JSON lines from a pipe."""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections.abc import Callable
from typing import BinaryIO

import numpy as np

from consumers.config.settings import FileSettings
from consumers.decode.record_format import RecordFormat
from consumers.errors import ConfigError, SourceError
from consumers.messages import Partition, RawColumns
from consumers.sources.base import Source
from consumers.sources.records import raw_columns, split_lines


class StdinSource(Source):
    """Reads JSON lines from standard input, which cannot be read twice.

    Its one partition is `stdin[0]`, an offset is a record's number. A pipe has no memory: a daemon
    that starts again counts from its checkpoint's position, so numbers stay unique, but what the
    pipe held when it ended is lost. If that matters, read a file or Kafka.

    A `stream` needs a file descriptor. `clock` and `wait` count in seconds. Settings that ask for
    CSV are a `ConfigError`, a missing standard input is a `SourceError`.
    """

    def __init__(
        self,
        settings: FileSettings,
        stream: BinaryIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        if settings.format == "csv":
            raise ConfigError(
                "file.format: found csv, but standard input takes JSON lines; write the CSV to a "
                "file and set `source: file:PATH`"
            )
        self.name = "stdin"
        self.partition = Partition(self.name, 0)
        encoding = "utf-8" if settings.encoding == "auto" else settings.encoding
        self.record_format = RecordFormat("jsonl", (), encoding)
        self._settings = settings
        self._stream = stream
        self._clock = clock
        self._wait = wait
        self._fd = self._descriptor()
        self._selector: selectors.BaseSelector | None = None
        self._pending = b""
        self._position = 0
        self._ended = False

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin; the first record gets the checkpoint's position as its number, or 0."""
        self._position = position_of(self.partition) or 0
        # Not epoll, which refuses the regular file of `streamnb run < tweets.jsonl`.
        self._selector = selectors.PollSelector()
        self._selector.register(self._fd, selectors.EVENT_READ)

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the whole lines that came, waiting up to `timeout_s` for the first.

        An input that cannot be read is a `SourceError`.
        """
        assert self._selector is not None
        if self.at_end():
            self._wait(timeout_s)
            return []
        until = self._clock() + timeout_s
        while not self.at_end():
            if not self._ended and not self._selector.select(max(0.0, until - self._clock())):
                break
            batch = self._batch()
            if batch is not None:
                return [batch]
            if self._clock() >= until:
                break
        return []

    def at_end(self) -> bool:
        """Return whether the input has ended and all of it has been returned."""
        return self._ended and not self._pending

    def close(self) -> None:
        """Stop polling the input; whoever opened it closes it."""
        if self._selector is not None:
            self._selector.close()

    def _descriptor(self) -> int:
        """Return the file descriptor to read from."""
        try:
            return (self._stream or sys.stdin).fileno()
        except (AttributeError, OSError, ValueError) as error:  # None, without one, closed
            raise SourceError(
                f"stdin: there is no standard input to read ({error}); pipe JSON lines into the "
                "command, or name another `source`"
            ) from error

    def _batch(self) -> RawColumns | None:
        """Read once and return the whole lines, None if there is none."""
        if not self._ended:
            try:
                data = os.read(self._fd, self._settings.batch_bytes)
            except BlockingIOError:  # another reader of a non-blocking pipe was faster
                return None
            except OSError as error:
                raise SourceError(
                    f"stdin: reading failed after record {self._position} ({error.strerror}); "
                    "start the pipe again"
                ) from error
            self._ended = not data
            self._pending += data
        buffer = self._pending
        records = split_lines(buffer, last=self._ended)
        self._pending = buffer[records.consumed :]
        n = len(records.starts)
        if n == 0:
            return None
        offsets = np.arange(self._position, self._position + n, dtype=np.int64)
        self._position += n
        return raw_columns(self.partition, buffer, records, offsets, self._position)
