"""What a component saves in the checkpoint beside model and positions.

It stands below `pipeline`, which writes the file, because sinks and statistics have entries too.
In the file an entry's values are a note, and its arrays have its name before their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """What a component saves beside model and positions: JSON values and arrays."""

    values: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Checkpointed(Protocol):
    """A component whose state is part of the checkpoint, in an entry of its own."""

    name: str  # the entry's, with no slash in it

    def pack(self) -> CheckpointEntry:
        """Return the state; nothing may change it afterwards."""

    def unpack(self, entry: CheckpointEntry) -> None:
        """Go on from the state in an entry, before anything else is asked."""


def values_of(entries: Mapping[str, CheckpointEntry]) -> dict[str, Any]:
    """Return the entries' values as a note of the file; without entries there is none."""
    if not entries:
        return {}
    return {"entries": {name: dict(each.values) for name, each in entries.items()}}


def arrays_of(entries: Mapping[str, CheckpointEntry]) -> dict[str, NDArray[Any]]:
    """Return the entries' arrays by the names that they have in the file."""
    return {
        f"{name}/{array}": data
        for name, entry in entries.items()
        for array, data in entry.arrays.items()
    }


def entries_of(
    values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> dict[str, CheckpointEntry]:
    """Return the entries of a file by name."""
    own: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in values}
    for path, array in arrays.items():
        name, _, rest = path.partition("/")
        own[name][rest] = array
    return {name: CheckpointEntry(given, own[name]) for name, given in values.items()}
