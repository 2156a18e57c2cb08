r"""Rows from JSON messages: a type with the declared fields alone, and the getters of its parts.

msgspec builds only what the type declares and steps over the rest, so a message of 3 kB of which
five fields are wanted costs little more than one that has only these. Lone surrogates (`"\ud800"`,
half of an emoji that was cut in two) are JSON but not text; they become U+FFFD, as a browser would.

How deep a message may be nested is a number of our own. What Python allows depends on how deep the
calling thread's stack is: a message that one thread had just read, another could not.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from consumers.decode.fields import Fault
from consumers.errors import ConfigError
from consumers.messages import Reason

Getter = Callable[[Any], Any]

_SHOWN_MAX = 60

# Arrays and objects within each other, the message itself among them. A fifth of what Python allows
# at an empty stack, so that reading, showing and writing have room wherever they are called.
NESTING_MAX = 200
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', flags=re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE, _EITHER_CASE = np.uint8(ord("[")), np.uint8(0xDF)
_STEPS = {byte: 1 if byte in b"[{" else -1 for byte in b"[]{}"}

# One escape of a JSON string at a time: a surrogate pair, half of one, or any other. Only whole
# escapes are halves: `\ud8` before other bytes is broken JSON, and may not take a character apart.
_HALF = rb"\\u[dD][%s][0-9a-fA-F]{2}"
_ESCAPE = re.compile(
    _HALF % b"89abAB" + _HALF % b"c-fC-F" + b"|(" + _HALF % b"89a-fA-F" + rb")|\\.",
    flags=re.DOTALL,
)


class Node:
    """One field of the tree that the configured paths make."""

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.wanted = False

    def add(self, path: Sequence[str]) -> None:
        """Put a path into the tree."""
        node = self
        for name in path:
            node = node.children.setdefault(name, Node())
        node.wanted = True

    def type(self, place: str) -> Any:
        """Return the msgspec type of this field: anything at an end, else an object of its parts.

        The Python names are f0, f1, …, for a JSON name can be any text.
        """
        if self.wanted:
            return Any
        parts = list(self.children.items())
        fields = [
            (f"f{i}", child.type(f"{place}.{name}"), None) for i, (name, child) in enumerate(parts)
        ]
        try:
            made: Any = msgspec.defstruct(
                "Row", fields, rename={f"f{i}": name for i, (name, _) in enumerate(parts)}
            )
        except ValueError as error:
            raise ConfigError(
                f"message: a field name in {place} cannot be used: {error}"
            ) from error
        return made if place == "$" else made | None

    def getter(self, path: Sequence[str]) -> Getter:
        """Return the function that takes the value at a path out of a row, None where it is absent.

        Where a path goes on below another wanted field, that field is a plain dict.
        """
        names: list[str] = []
        node, rest = self, list(path)
        while rest and not node.wanted:
            names.append(f"f{list(node.children).index(rest[0])}")
            node = node.children[rest.pop(0)]
        take = operator.attrgetter(".".join(names))
        if len(path) == 1:
            return take

        def get(row: Any) -> Any:
            try:
                value = take(row)
            except AttributeError:  # an object on the way is missing, which reads as None
                return None
            for name in rest:
                value = value.get(name) if isinstance(value, dict) else None
            return value

        return get


class JsonReader:
    """Reads rows from JSON messages.

    Parameters
    ----------
    paths : iterable of str
        The fields that will be asked for, such as `text` or `commit.record.text`.
    encoding : str
        The encoding of the messages; JSON is UTF-8 unless somebody says otherwise.

    Attributes
    ----------
    root : Node
        The tree that the paths make.

    Raises
    ------
    ConfigError
        When a path holds a quote, a backslash or a control character.
    """

    def __init__(self, paths: Iterable[str], encoding: str = "utf-8") -> None:
        self._encoding = encoding
        self.root = Node()
        for path in paths:
            self.root.add(path.split("."))
        row_type = self.root.type("$")
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(row_type).decode
        self._floats: list[str] = []  # as they are written, of a message with one out of range
        self._spell = msgspec.json.Decoder(row_type, float_hook=self._floats.append).decode

    def getter(self, path: str) -> Getter:
        """Return the function that takes the value at `path`, one of `paths`, out of a row."""
        return self.root.getter(path.split("."))

    def rows(self, values: Sequence[bytes]) -> tuple[list[Any], dict[int, Fault]]:
        """Return a row for each value (None where it has none), and why by position."""
        if self._encoding != "utf-8":
            values = [value.decode(self._encoding).encode() for value in values]
        decode = self._decode
        rows: list[Any] = []
        faults: dict[int, Fault] = {}
        for i, value in enumerate(values):
            try:
                # msgspec looks only at the strings it builds; a message is one encoding as a whole.
                if not value.isascii():
                    value.decode()
                row = decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                row = self._second_look(value, error)
                if row.__class__ is Fault:
                    faults[i] = row
                    row = None
            rows.append(row)
        return rows, faults

    def refuse_deep(
        self, values: Sequence[bytes], rows: list[Any], faults: dict[int, Fault]
    ) -> None:
        """Take back the rows of values that are nested too deeply.

        It is asked when a message first comes: what has passed it once can be read again by `rows`
        alone, on whichever thread.
        """
        for i, value in enumerate(values):
            if rows[i] is not None and is_too_deep(value):
                faults[i], rows[i] = _too_deep(), None

    def _second_look(self, value: bytes, error: Exception) -> Any:
        """Return the row of a value that decodes once lone surrogates are mended, else a fault."""
        whole = mended(value)
        if whole != value and not isinstance(error, UnicodeDecodeError):
            try:
                return self._decode(whole)
            except (msgspec.DecodeError, RecursionError) as second:
                error = second
        if "out of range - at " in str(error):
            return self._out_of_range(whole, str(error))
        return _fault(value, error)

    def _out_of_range(self, value: bytes, error: str) -> Fault:
        """Name a number that no float, or no int of Python's, can hold: where it is, and which."""
        self._floats.clear()
        # An int is told without a hook; behind it there may be anything, deep nesting too.
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            self._spell(value)
        number = next(
            (shown for shown in self._floats if math.isinf(float(shown))),
            "an integer of thousands of digits",
        )
        path = error.partition(" - at ")[2].strip("`").removeprefix("$.")
        return Fault(
            Reason.WRONG_TYPE,
            f"the number at '{path}' is {number[:_SHOWN_MAX]}; it must be between "
            f"{-sys.float_info.max:.2g} and {sys.float_info.max:.2g}",
        )


def mended(value: bytes) -> bytes:
    r"""Return JSON with U+FFFD in the place of lone surrogates.

    Examples
    --------
    >>> mended(rb'["\ud83d\ude00", "\ud83d"]')
    b'["\\ud83d\\ude00", "\\ufffd"]'
    """
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], value)


def is_too_deep(value: bytes) -> bool:
    """Tell whether arrays and objects stand more than `NESTING_MAX` deep in right JSON."""
    if len(value) <= 2 * NESTING_MAX:  # each level has two brackets
        return False
    # Few have so many at all. Both openings are one but for a bit, and numpy counts faster.
    openings = (np.frombuffer(value, np.uint8) & _EITHER_CASE) == _SQUARE
    return int(np.count_nonzero(openings)) > NESTING_MAX and nesting(value) > NESTING_MAX


def nesting(value: bytes) -> int:
    """Return how many arrays and objects stand within each other at most, in right JSON.

    Examples
    --------
    >>> nesting(b'{"a": [1, {"b": "[[[["}]}')
    3
    """
    brackets = _STRING.sub(b"", value).translate(None, _NO_BRACKETS)
    return max(itertools.accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _too_deep() -> Fault:
    return Fault(
        Reason.NOT_JSON, f"arrays or objects are nested too deeply: {NESTING_MAX} levels are read"
    )


def _fault(value: bytes, error: Exception) -> Fault:
    """Name what is wrong with a value that did not decode."""
    at = value.find(b"\0")
    if at >= 0:
        return Fault(Reason.NULL_BYTES, f"a NUL at byte {at} of {len(value)}")
    if isinstance(error, UnicodeDecodeError):
        return Fault(Reason.NOT_UTF8, _utf8_detail(value))
    if isinstance(error, RecursionError):
        return _too_deep()
    if not isinstance(error, msgspec.ValidationError):
        return Fault(Reason.NOT_JSON, f"{error}, {len(value)} bytes")
    if " - at " in str(error):
        where = "`message`, `labels.field` and `model.features`"
        return Fault(Reason.WRONG_TYPE, f"{error} (see the paths under {where})")
    return Fault(Reason.NOT_AN_OBJECT, f"{error}; a message is one JSON object")


def _utf8_detail(value: bytes) -> str:
    """Say where a value stops being UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"byte 0x{value[error.start]:02x} at {error.start} of {len(value)}: {error.reason}"
    return "a string in it is not UTF-8"
