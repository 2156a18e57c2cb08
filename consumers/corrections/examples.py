"""An example that comes with a request, as the model would have learned it from the stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from consumers.config import MessageSettings
from consumers.corrections.errors import UnusableExample
from consumers.decode_fields import converter, reads_of
from consumers.fault import Fault
from consumers.settings.groups import Kind


class Examples:
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
        reads = reads_of(kinds, message)
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
        if isinstance(read, Fault):
            raise UnusableExample(read.detail)
        return read
