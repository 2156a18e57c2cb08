"""How much the store holds: messages, age, bytes, and from these the size of a chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consumers.recent.chunk import Chunk
from consumers.settings.running import RecentSettings

BYTES_MAX = 4 << 30
_CHUNKS = 16
_CHUNK_ROWS_MAX = 1 << 16  # so that searching one takes some milliseconds, and no longer
_CHUNKS_BY_AGE = 24


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds.

    Attributes
    ----------
    messages_max : int
    age_max_s : float
    bytes_max : int
        A bound of the file beside those that can be set: messages may be long.
    """

    messages_max: int
    age_max_s: float
    bytes_max: int = BYTES_MAX

    @classmethod
    def of(cls, settings: RecentSettings) -> Bounds:
        """Return the bounds that are set."""
        return cls(settings.messages_max, settings.age_max_s)

    @property
    def chunk_rows(self) -> int:
        """Rows a chunk."""
        return max(1, min(self.messages_max // _CHUNKS, _CHUNK_ROWS_MAX))

    def cutoff_ms(self, now_ms: int) -> int:
        """Return since when messages must have come to be shown, in Unix milliseconds."""
        return now_ms - int(self.age_max_s * 1000)

    def is_full(self, chunk: Chunk, now_ms: int) -> bool:
        """Tell whether a chunk takes no more: by rows, bytes, or as its first row is old."""
        if not chunk.n:
            return False
        age_ms = now_ms - chunk.oldest_ms
        return (
            chunk.n >= chunk.capacity
            or chunk.n_bytes > self.bytes_max / (2 * _CHUNKS)
            or age_ms > self.age_max_s * 1000 / _CHUNKS_BY_AGE
        )

    def is_beyond(self, chunks: Sequence[Chunk], n_bytes: int) -> bool:
        """Tell whether the oldest chunk must go before another begins."""
        n_rows = sum(chunk.n for chunk in chunks)
        return n_rows + self.chunk_rows > self.messages_max or (
            n_bytes > self.bytes_max * (1 - 1 / _CHUNKS)
        )
