"""The journal read back, as one more source. It never reads beyond what is safe on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from consumers.corrections.journal import Journal
from consumers.errors import SourceError
from consumers.messages import Partition, RawColumns
from consumers.sources._records import raw_columns, split_lines

_BATCH_BYTES = 1 << 20


class JournalSource:
    """Follows a journal as it grows; see `Source`. An offset is a line's first byte.

    Parameters
    ----------
    journal : Journal
        It stays open when the source is closed.
    """

    def __init__(self, journal: Journal) -> None:
        self.name = journal.name
        self._journal = journal
        self._position = self._target = 0
        self._pending = b""

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin at the checkpoint's position.

        Raises
        ------
        SourceError
            Where the journal is shorter: it is not the one that the checkpoint knows.
        """
        self._position = position_of(self._journal.partition) or 0
        self._target = self._journal.end
        if self._position > self._target:
            raise SourceError(
                f"{self._journal.name}: has {self._target} bytes, but was read up to byte "
                f"{self._position} before. Put the journal back that belongs to this "
                "checkpoint.folder, or begin with an empty folder"
            )

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next lines; wait up to `timeout_s` where there is none."""
        begin = self._position
        read = begin + len(self._pending)
        self._journal.wait_beyond(read, timeout_s)
        try:
            data = self._journal.read(read, _BATCH_BYTES)
        except OSError as error:
            raise SourceError(
                f"{self._journal.name}: reading failed after byte {read} ({error.strerror}); once "
                "the disk is well, start again, and it goes on at the checkpoint"
            ) from error
        buffer = self._pending + data
        records = split_lines(buffer, last=False)
        self._position += records.consumed
        self._pending = buffer[records.consumed :]
        if not len(records.starts):
            return []
        offsets = records.starts + begin
        return [raw_columns(self._journal.partition, buffer, records, offsets, self._position)]

    def lag(self) -> Mapping[Partition, int]:
        """Return nothing: bytes are known to be left, lines are not."""
        return {}

    def at_end(self) -> bool:
        """Tell whether all that stood in the journal at the start has been handed over."""
        return self._position >= self._target

    def trouble(self) -> str | None:
        """Return None: a file is there, or the program ends."""
        return None

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Do nothing: a journal keeps no positions."""

    def close(self) -> None:
        """Do nothing: the journal is closed by whoever opened it."""
