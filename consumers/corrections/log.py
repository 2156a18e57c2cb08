"""What the desk asks of a log that corrections are appended to: a journal or a Kafka topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from consumers.messages import Partition


@dataclass(frozen=True, slots=True)
class Written:
    """Where an appended line stands; it is safe there.

    Attributes
    ----------
    partition : Partition
        The log.
    offset : int
        Its place in it: of its first byte in a journal, of the record in a topic.
    """

    partition: Partition
    offset: int

    def outcome(self, timeout_s: float) -> Written | None:  # noqa: ARG002 -- as `Appended` has it
        """Return itself: it is known."""
        return self


class Appended(Protocol):
    """A line on its way into a log."""

    def outcome(self, timeout_s: float) -> Written | None:
        """Return where the line stands, once it is safe; None where that is not known in time.

        Raises
        ------
        NotWritten
            Where it is certain that the log did not take it.
        """


class Log(Protocol):
    """Takes lines from any thread."""

    @property
    def name(self) -> str:
        """What people know it by."""

    def append(self, key: bytes, line: bytes) -> Appended:
        """Send a line on its way; lines of one key stay in their order.

        Raises
        ------
        NotWritten
            Where it is certain that the log did not take it.
        """

    def close(self) -> None:
        """Let go."""
