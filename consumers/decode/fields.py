"""Why one message cannot be used, before it is known which message of the stream it was."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from consumers.config.model import Kind
from consumers.config.sections import MESSAGE_PARTS
from consumers.config.settings import MessageSettings
from consumers.messages import Reason
from streamnb import TextColumn
from streamnb.columns import LARGEST, missing_text, text_column
from streamnb.features.category_values import value_text
from streamnb.kernels.layout import Texts


class Fault(NamedTuple):
    """What is wrong with a message: the reason to count it by, and a sentence for people.

    The decoder makes a `Reject` of it, which also carries the message's place and its raw bytes.
    """

    reason: Reason
    detail: str


Column: TypeAlias = Texts | NDArray[np.float64]

_FLAGS = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_SHOWN_MAX = 60


class How(Enum):
    """How a field is read."""

    WORDS = auto()  # a string; anything else is missing
    ABOUT = auto()  # a user or a language: also an integer's digits, or a list's first entry
    CATEGORY = auto()
    FLAG = auto()
    NUMBER = auto()


_HOW: dict[Kind, How] = {
    "words": How.WORDS,
    "categories": How.CATEGORY,
    "flags": How.FLAG,
    "numbers": How.NUMBER,
}
_WANTED = {
    How.CATEGORY: "a string, number, true or false",
    How.FLAG: "true, false, 1 or 0",
    How.NUMBER: f"a number between {-LARGEST:g} and {LARGEST:g}",
}


class Read(NamedTuple):
    """A field that is read: where it stands in a message, and how."""

    path: str
    how: How


def reads_of(kinds: Mapping[str, Kind], message: MessageSettings) -> dict[str, Read]:
    """Return how fields are read, by name, but for the text, which every message brings along.

    Parameters
    ----------
    kinds : mapping of str to Kind
        ``text``, ``user``, ``lang``, or a path; each with what its group makes of it.
    message : MessageSettings
        Where user and language stand.
    """
    return {
        name: Read(getattr(message, name), How.ABOUT)
        if name in MESSAGE_PARTS
        else Read(name, _HOW[kind])
        for name, kind in kinds.items()
        if name != "text"
    }


def converter(read: Read, *, is_csv: bool) -> Callable[[Any], Any]:
    """Return the function from a message's value to the column's entry, or to a `Fault`.

    Parameters
    ----------
    read : Read
    is_csv : bool
        Whether values are the cells of a record, where all is text and an empty one is None.
    """
    if read.how is How.ABOUT:
        return about_word
    if read.how is How.WORDS:
        return _text
    convert: Callable[[Any], Any] = {
        (How.CATEGORY, False): _category,
        (How.CATEGORY, True): _category,
        (How.FLAG, False): _flag,
        (How.FLAG, True): _flag_of_cell,
        (How.NUMBER, False): _number,
        (How.NUMBER, True): _number_of_cell,
    }[read.how, is_csv]
    nothing = None if read.how is How.CATEGORY else math.nan

    def entry(value: Any) -> Any:
        if value is None:
            return nothing
        found = convert(value)
        return _fault(read, value) if found is None else found

    return entry


def nothing_of(read: Read) -> Any:
    """Return the entry of a field that is absent."""
    return math.nan if read.how in {How.FLAG, How.NUMBER} else None


def id_of(parts: Sequence[Any]) -> str | None:
    """Return a message's id, or None where it has none.

    Several parts are joined by `/`, in which each `~` is written `~0` and each `/` `~1`, as in a
    JSON pointer (RFC 6901): no two ids of different parts are the same. An id of which a part is
    missing is none: half of it may be another message's. A single part stays as it is.

    Parameters
    ----------
    parts : sequence of (str, int or None)
        What stands at `message.id_paths`.

    Examples
    --------
    >>> id_of([17]), id_of(["did:x", "app.bsky.feed.post", "3k/~"]), id_of(["did:x", None])
    ('17', 'did:x/app.bsky.feed.post/3k~1~0', None)
    """
    if None in parts:
        return None
    if len(parts) == 1:
        return str(parts[0])
    return "/".join([str(part).replace("~", "~0").replace("/", "~1") for part in parts])


def about_word(value: Any) -> str | None:
    """Return a user or language as text.

    A number is its digits, and of a list, such as Bluesky's `langs`, the first entry counts.
    """
    if value.__class__ is list and value:
        value = value[0]
    return str(value) if value.__class__ is str or value.__class__ is int else None


def shown(value: Any) -> str:
    """Return a value as it goes into a message to people: short."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _category(value: Any) -> str | None:
    if value.__class__ not in {str, bool, int, float} or (value.__class__ is str and "\0" in value):
        return None
    return value_text("", 0, value)


def _flag(value: Any) -> float | None:
    is_number = value.__class__ in {bool, int, float}
    return float(value) if is_number and value in {0, 1} else None


def _flag_of_cell(cell: str) -> float | None:
    return _FLAGS.get(cell.strip().lower())


def _number(value: Any) -> float | None:
    is_number = value.__class__ is float or value.__class__ is int
    return float(value) if is_number and abs(value) <= LARGEST else None


def _number_of_cell(cell: str) -> float | None:
    cell = cell.strip()
    return _number(float(cell)) if _NUMBER.fullmatch(cell) else None


def _fault(read: Read, value: Any) -> Fault:
    """Return what is wrong with a value that its field may not hold."""
    if value.__class__ is str and "\0" in value:
        return Fault(Reason.NULL_BYTES, f"the text at '{read.path}' holds a NUL character")
    return Fault(
        Reason.WRONG_TYPE,
        f"the value at '{read.path}' is {shown(value)}; {_WANTED[read.how]} is needed, or null "
        "where it is missing (setting model.features)",
    )


def missing(read: Read, n: int) -> Column:
    """Return the column of `n` messages without the field."""
    return np.full(n, math.nan) if nothing_of(read) is not None else missing_text(n).texts


def replaced(column: Column, at: NDArray[np.int64], values: Sequence[Any]) -> Column:
    """Return a column of which the entries at some places are others."""
    if isinstance(column, Texts):
        return with_texts(column, at, values)
    column = column.copy()
    column[at] = values
    return column


def with_texts(texts: Texts, at: NDArray[np.int64], values: Sequence[str | None]) -> Texts:
    """Return texts of which those at some places are others."""
    new = text_column("text", values).piece(0, len(values))
    room = len(texts.data)
    starts, ends = texts.starts.copy(), texts.ends.copy()
    starts[at] = new.starts + room
    ends[at] = np.where(new.ends < 0, -1, new.ends + room)
    return Texts(np.concatenate((texts.data, new.data)), starts, ends)


def chosen_texts(texts: Texts, at: NDArray[np.int64]) -> TextColumn:
    """Return the texts at some places, ascending, over the same buffer."""
    if len(at) == len(texts.starts):
        return TextColumn(texts)
    return TextColumn(Texts(texts.data, texts.starts[at], texts.ends[at]))


def chosen(column: Column, at: NDArray[np.int64]) -> TextColumn | NDArray[np.float64]:
    """Return a column's entries at some places, ascending."""
    return chosen_texts(column, at) if isinstance(column, Texts) else column[at]
