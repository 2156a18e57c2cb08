"""What the desk asks of the store of recent messages: what a message was, and what it teaches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from consumers.messages import Partition

Place = tuple[Partition, int]  # a log of the stream, and an offset in it


class Remembered(Protocol):
    """What is known of a message of before."""

    @property
    def example(self) -> Mapping[str, Any]:
        """The model's fields, as the message was or would have been learned."""

    @property
    def taught(self) -> str | None:
        """The class that it teaches now; None where it teaches nothing."""

    @property
    def taught_part(self) -> str | None:
        """The part of the model that learned it."""

    @property
    def partition(self) -> Partition:
        """Its log."""

    @property
    def offset(self) -> int:
        """Its place there."""


class Remembers(Protocol):
    """Whoever keeps the newest messages; every method may be called from any thread."""

    def get(self, id: str, /) -> Remembered | None:  # noqa: A002 -- as messages call it
        """Return what is known of a message, None where it is not kept."""

    def correct(self, id: str, label: str, part: str, at: Place, /) -> None:  # noqa: A002
        """Note that a message now teaches a label by a part; saying it again changes nothing.

        It is the message of that place which is meant, and no other of its id. It may be still to
        come: after a restart the log is read back before the stream brings it again. What is noted
        of one that is kept outlives a kill once this returns.

        Raises
        ------
        StoreError
            Where it could not be noted in time.
        """

    def remove(self, id: str, at: Place, /) -> None:  # noqa: A002
        """Forget a message for good, and all of its id but newer ones of its log; see `correct`."""
