"""What the service asks of the recent store: what a message was, and what it teaches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from consumers.config.model import Kind
from consumers.config.settings import MessageSettings
from consumers.corrections.model import UnusableExample
from consumers.decode.fields import DecodeError, converter, field_specs
from consumers.messages import Partition

Place = tuple[Partition, int]  # a log of the stream, and an offset in it


class FoundMessage(Protocol):
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


class MessageLookup(Protocol):
    """Whoever keeps the newest messages; every method may be called from any thread."""

    def get(self, id: str, /) -> FoundMessage | None:  # noqa: A002 -- as messages call it
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


class ExampleReader:
    """Checks examples, and writes them as they are learned.

    Parameters
    ----------
    kinds : mapping of str to Kind
        The fields that the model reads, with what its groups make of them.
    message : MessageSettings
        How the stream's messages are read.
    """

    def __init__(self, kinds: Mapping[str, Kind], message: MessageSettings) -> None:
        self._kinds = dict(kinds)
        reads = field_specs(kinds, message)
        self._converters: dict[str, Callable[[Any], Any]] = {
            name: converter(read._replace(path=name), is_csv=False) for name, read in reads.items()
        }

    def checked(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """Return an example's fields as the model learns them, those that are missing left out.

        Raises
        ------
        UnusableExample
            For a field that the model does not read, a value that the stream's messages may not
            have either, and an example without any value.
        """
        found: dict[str, Any] = {}
        for name, value in example.items():
            if name not in self._kinds:
                raise UnusableExample(
                    f"the model reads no field {name!r}; give {', '.join(self._kinds)}"
                )
            read = self._read(name, value)
            if read is not None and not (isinstance(read, float) and math.isnan(read)):
                found[name] = read
        if not found:
            raise UnusableExample(
                f"the example has no value to learn from; give {', '.join(self._kinds)}"
            )
        return found

    def _read(self, name: str, value: Any) -> Any:
        if name not in self._converters:  # the text, which is checked where messages are decoded
            if value is not None and not isinstance(value, str):
                raise UnusableExample(f"{name} must be a string, not {value!r:.60}")
            return value
        read = self._converters[name](value)
        if isinstance(read, DecodeError):
            raise UnusableExample(read.detail)
        return read
