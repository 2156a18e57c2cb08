r"""JSON messages to rows, one by one, and to columns, a batch at a time.

`JsonReader` is the authority on what a JSON message says. `JsonScanner` is the fast path: compiled
kernels find the few fields that the daemon reads. The scan is sound, not complete: what it reports
is what the reader would say, and a message that it cannot decide is left to the reader.

msgspec builds only the declared fields and skips the rest, so a message of 3 kB with five declared
fields costs little more than one that has only these. Lone surrogates (`"\ud800"`, half of an emoji
that was cut in two) are JSON but not text; they become U+FFFD, as in a browser.

The depth of nesting has a limit of its own. Python's depends on how deep the calling thread's stack
is: one thread could read a message that another could not.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.config.message import MessageSettings, paths_of
from consumers.decode.fields import (
    WEIGHT_MAX,
    WEIGHT_MIN,
    DecodedColumn,
    DecodeError,
    FieldSpec,
    Selection,
    ValueType,
)
from consumers.errors import ConfigError
from consumers.kernels.json_numbers import read_flags, read_numbers
from consumers.kernels.json_scan import (
    ABSENT,
    ARRAY,
    ESCAPED,
    FALSE,
    INTEGER,
    N_KINDS,
    NULL,
    PLAIN,
    ROOT,
    TRUE,
    Names,
    Spans,
    Tree,
    copy_texts,
    match,
    name_table,
    scan,
)
from consumers.messages import Reason
from streamnb.kernels.layout import Texts

Getter = Callable[[Any], Any]
Longs = NDArray[np.int64]

_QUOTED_MAX = 60

# Levels of arrays and objects, the message itself included. A fifth of what Python allows at an
# empty stack, so that reading and writing have room wherever they are called.
NESTING_MAX = 200
_ERROR_BYTE = re.compile(r"\(byte (\d+)\)")
_NO_NUMBER = re.compile(rb"NaN|Infinity")  # which Python's json writes, and no other JSON has
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', flags=re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE, _EITHER_CASE = np.uint8(ord("[")), np.uint8(0xDF)
_STEPS = {byte: 1 if byte in b"[{" else -1 for byte in b"[]{}"}

# One escape of a JSON string at a time: a surrogate pair, half of one, or any other. `\ud8` before
# other bytes is broken JSON and no half: replacing it could split a character.
_HALF = rb"\\u[dD][%s][0-9a-fA-F]{2}"
_ESCAPE = re.compile(
    _HALF % b"89abAB" + _HALF % b"c-fC-F" + b"|(" + _HALF % b"89a-fA-F" + rb")|\\.", flags=re.DOTALL
)


class Node:
    """A field in the tree of configured paths."""

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.is_read = False

    def add(self, path: Sequence[str]) -> None:
        """Add a path to the tree."""
        node = self
        for name in path:
            node = node.children.setdefault(name, Node())
        node.is_read = True

    def type(self, place: str) -> Any:
        """Return the msgspec type of this field: anything at a leaf, else an object.

        The Python names are f0, f1, …, as a JSON name can be any text.
        """
        if self.is_read:
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
        """Return the function from a row to the value at a path, None if absent.

        If a path continues below another read field, that field is a plain dict.
        """
        names: list[str] = []
        node, rest = self, list(path)
        while rest and not node.is_read:
            names.append(f"f{list(node.children).index(rest[0])}")
            node = node.children[rest.pop(0)]
        take = operator.attrgetter(".".join(names))
        if len(path) == 1:
            return take

        def get(row: Any) -> Any:
            try:
                value = take(row)
            except AttributeError:  # an object on the way is missing
                return None
            for name in rest:
                value = value.get(name) if isinstance(value, dict) else None
            return value

        return get


def read_paths(
    message: MessageSettings,
    specs: Iterable[FieldSpec],
    label: str | None,
    *,
    needs_text: bool = True,
) -> list[str]:
    """Return the paths at which the daemon reads messages; `label` is that of their labels."""
    return [
        *message.id_paths, message.time, message.user, message.lang, message.operation,
        *message.fields, *(spec.path for spec in specs), *Selection(message).paths,
        *([message.text] if needs_text else []), *filter(None, [label, message.deleted]),
    ]  # fmt: skip


class JsonReader:
    """Reads rows from JSON messages; `root` is the tree of the paths, such as `commit.record.text`.

    A path that holds a quote, a backslash or a control character is a `ConfigError`. `unwrap` names
    a field whose text is JSON again.
    """

    def __init__(
        self, paths: Iterable[str], encoding: str = "utf-8", unwrap: str | None = None
    ) -> None:
        self._encoding = encoding
        self._unwrap = unwrap
        self.root = Node()
        for path in itertools.chain.from_iterable(map(paths_of, paths)):
            self.root.add(path.split("."))
        row_type = self.root.type("$")
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(row_type).decode
        self._floats: list[str] = []  # the spelling of floats, of a message with one out of range
        self._spell = msgspec.json.Decoder(row_type, float_hook=self._floats.append).decode

    def getter(self, path: str) -> Getter:
        """Return the function from a row to the value at `path`, one of `paths`."""
        gets = [self.root.getter(each.split(".")) for each in paths_of(path)]
        if len(gets) == 1:
            return gets[0]

        def first(row: Any) -> Any:
            return next((value for get in gets if (value := get(row)) is not None), None)

        return first

    def unwrapped(self, values: Sequence[bytes]) -> Sequence[bytes]:
        """Return the values with the JSON in the text of a field in that text's place."""
        name = self._unwrap
        return values if name is None else [_unwrapped(value, name) for value in values]

    def rows(self, values: Sequence[bytes]) -> tuple[list[Any], dict[int, DecodeError]]:
        """Return a row or None for each value, and the error of each None by position."""
        if self._encoding != "utf-8":
            values = [value.decode(self._encoding).encode() for value in values]
        decode = self._decode
        rows: list[Any] = []
        errors: dict[int, DecodeError] = {}
        for i, value in enumerate(values):
            try:
                # msgspec checks only the strings it builds; all of a message must be UTF-8.
                if not value.isascii():
                    value.decode()
                row = decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                row = self._decode_repaired(value, error)
                if row.__class__ is DecodeError:
                    errors[i] = row
                    row = None
            rows.append(row)
        return rows, errors

    def reject_deep(
        self, values: Sequence[bytes], rows: list[Any], errors: dict[int, DecodeError]
    ) -> None:
        """Replace the rows of values that are nested too deeply by errors.

        Called when a message is first read: later `rows` alone can read it, on any thread.
        """
        for i, value in enumerate(values):
            if rows[i] is not None and is_too_deep(value):
                errors[i], rows[i] = _too_deep(), None

    def _decode_repaired(self, value: bytes, error: Exception) -> Any:
        """Return the row of a value once its lone surrogates are replaced, else an error."""
        whole = replace_lone_surrogates(value)
        if whole != value and not isinstance(error, UnicodeDecodeError):
            try:
                return self._decode(whole)
            except (msgspec.DecodeError, RecursionError) as second:
                error = second
        if "out of range - at " in str(error):
            return self._out_of_range(whole, str(error))
        return _error(value, error)

    def _out_of_range(self, value: bytes, error: str) -> DecodeError:
        """Return the error for a number beyond Python's float and int: its path and digits."""
        self._floats.clear()
        # An int has no hook, and anything may follow it, deep nesting too.
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            self._spell(value)
        number = next(
            (shown for shown in self._floats if math.isinf(float(shown))),
            "an integer of thousands of digits",
        )
        path = error.partition(" - at ")[2].strip("`").removeprefix("$.")
        return DecodeError(
            Reason.WRONG_TYPE,
            f"the number at '{path}' is {number[:_QUOTED_MAX]}; it must be between "
            f"{-sys.float_info.max:.2g} and {sys.float_info.max:.2g}",
        )


def _unwrapped(value: bytes, name: str) -> bytes:
    r"""Return a message with the object that a field's text spells in that text's place.

    >>> _unwrapped(rb'{"event":"update","payload":"{\"id\":\"7\"}"}', "payload")
    b'{"event":"update","payload":{"id":"7"}}'
    """
    try:
        fields, text = _field_text(value, name)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            fields, text = _field_text(replace_lone_surrogates(value), name)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return value  # what is wrong with it is found where it is read
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return value
    inner = text.encode()
    if not _is_json(inner):
        inner = replace_lone_surrogates(inner)
        if not _is_json(inner):
            return text.encode()  # it could end its place and begin another field
    return msgspec.json.encode(fields | {name: msgspec.Raw(inner)})


def _field_text(value: bytes, name: str) -> tuple[dict[str, msgspec.Raw], Any]:
    """Return the fields of a message as JSON, and the value of one; None if it is absent."""
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    return fields, msgspec.json.decode(fields.get(name, b"null"))


def _is_json(value: bytes) -> bool:
    """Return whether msgspec reads a value as JSON; it takes no lone surrogates."""
    try:
        msgspec.json.decode(value, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def replace_lone_surrogates(value: bytes) -> bytes:
    r"""Return JSON with U+FFFD for each lone surrogate.

    >>> replace_lone_surrogates(rb'["\ud83d\ude00", "\ud83d"]')
    b'["\\ud83d\\ude00", "\\ufffd"]'
    """
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], value)


def is_too_deep(value: bytes) -> bool:
    """Return whether valid JSON is nested deeper than `NESTING_MAX`."""
    if len(value) <= 2 * NESTING_MAX:  # each level has two brackets
        return False
    # Few messages have so many. Both opening brackets differ in one bit, and numpy counts fast.
    openings = (np.frombuffer(value, np.uint8) & _EITHER_CASE) == _SQUARE
    return int(np.count_nonzero(openings)) > NESTING_MAX and nesting(value) > NESTING_MAX


def nesting(value: bytes) -> int:
    """Return the depth of nesting of valid JSON.

    >>> nesting(b'{"a": [1, {"b": "[[[["}]}')
    3
    """
    brackets = _STRING.sub(b"", value).translate(None, _NO_BRACKETS)
    return max(itertools.accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _too_deep() -> DecodeError:
    return DecodeError(
        Reason.NOT_JSON, f"arrays or objects are nested too deeply: {NESTING_MAX} levels are read"
    )


def _error(value: bytes, error: Exception) -> DecodeError:
    """Return the error for a value that did not decode."""
    at = value.find(b"\0")
    if at >= 0:
        return DecodeError(Reason.NULL_BYTES, f"a NUL at byte {at} of {len(value)}")
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(Reason.NOT_UTF8, _utf8_detail(value))
    if isinstance(error, RecursionError):
        return _too_deep()
    if not isinstance(error, msgspec.ValidationError):
        return DecodeError(Reason.NOT_JSON, f"{error}, {len(value)} bytes{_remedy(value, error)}")
    if " - at " in str(error):
        where = "`message`, `labels.field` and `model.features`"
        return DecodeError(Reason.WRONG_TYPE, f"{error} (see the paths under {where})")
    more = ", not a list: `jq -c '.[]'` writes each on a line" if value[:1] == b"[" else ""
    return DecodeError(Reason.NOT_AN_OBJECT, f"{error}; a message is one JSON object{more}")


def _remedy(value: bytes, error: Exception) -> str:
    """Return what to write instead of JSON over several lines, or of a number without a word."""
    if value.strip() == b"{":
        return "; a message is one line: `jq -c .` writes it so"
    at = _ERROR_BYTE.search(str(error))
    found = None if at is None else _NO_NUMBER.match(value, int(at[1]))
    if found is None:
        return ""
    return f"; JSON has no {found[0].decode()}, write null for a number that is missing"


def _utf8_detail(value: bytes) -> str:
    """Return where a value stops being UTF-8, in words."""
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"byte 0x{value[error.start]:02x} at {error.start} of {len(value)}: {error.reason}"
    return "a string in it is not UTF-8"


class ScanResult(msgspec.Struct, frozen=True):
    """Where the fields of a batch of n messages stand, by path.

    `undecided`, shape (n,), marks the messages that the scan could not decide.
    """

    buffer: NDArray[np.uint8]
    spans: Spans
    places: dict[str, int]
    undecided: NDArray[np.bool_]

    def kinds(self, path: str) -> NDArray[np.uint8]:
        """Return the kind of value at a path, shape (n,), uint8; see `kernels.json_scan`."""
        return self._field(path)[0]

    def is_any(self, path: str, kinds: Collection[int]) -> NDArray[np.bool_]:
        """Return whether the value at a path is of one of some kinds, shape (n,), bool."""
        is_one: NDArray[np.bool_] = np.zeros(256, np.bool_)
        is_one[list(kinds)] = True
        return is_one[self.kinds(path)]

    def is_there(self, path: str) -> NDArray[np.bool_]:
        """Return whether a value stands at a path, shape (n,), bool."""
        return ~self.is_any(path, (ABSENT, NULL))

    def values(self, path: str, at: Longs) -> list[bytes]:
        """Return the values at a path of some messages, which all have one, as JSON."""
        kinds, starts, ends = self._field(path)
        kinds, starts, ends = kinds[at], starts[at], ends[at]
        quotes = ((kinds == PLAIN) | (kinds == ESCAPED)).astype(np.int64)
        lies = zip((starts - quotes).tolist(), (ends + quotes).tolist(), strict=True)
        data = self.buffer.data
        return [bytes(data[start:end]) for start, end in lies]

    def texts(self, path: str, also: Collection[int] = ()) -> Texts:
        """Return the strings at a path in a buffer of their own; other values are missing.

        Values of the kinds `also` count as texts too, as they are spelled.
        """
        kinds, starts, ends = self._field(path)
        n_bytes = int(np.sum(ends - starts, where=self.is_any(path, (PLAIN, ESCAPED, *also))))
        n = len(kinds)
        texts = Texts(np.empty(n_bytes, np.uint8), np.empty(n, np.int64), np.empty(n, np.int64))
        is_text: NDArray[np.bool_] = np.zeros(N_KINDS, np.bool_)
        is_text[list(also)] = True
        copy_texts(self.buffer, kinds, starts, ends, is_text, texts)
        return texts

    def numbers(self, path: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the numbers at a path, nan if absent, and which are undecided."""
        return self._read(read_numbers, path)

    def flags(self, path: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the flags at a path as 0, 1 or nan if absent, and which are undecided."""
        return self._read(read_flags, path)

    def _read(
        self, read: Callable[..., None], path: str
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        kinds, starts, ends = self._field(path)
        values, unsure = np.empty(len(kinds)), np.empty(len(kinds), np.bool_)
        read(self.buffer, kinds, starts, ends, values, unsure)
        return values, unsure

    def _field(self, path: str) -> tuple[NDArray[np.uint8], Longs, Longs]:
        """Return kinds, starts and ends of the values at a path, or at the first that has one."""
        spans = self.spans
        first, *others = (self.places[each] for each in paths_of(path))
        kinds, starts, ends = spans.kinds[first], spans.starts[first], spans.ends[first]
        for field in others:
            missing = (kinds == ABSENT) | (kinds == NULL)
            kinds = np.where(missing, spans.kinds[field], kinds)
            starts = np.where(missing, spans.starts[field], starts)
            ends = np.where(missing, spans.ends[field], ends)
        return kinds, starts, ends

    def match(self, path: str, names: Names) -> NDArray[np.int32]:
        """Return the place of each value among names, shape (n,), int32; see `spans.match`."""
        kinds, starts, ends = self._field(path)
        found = np.empty(len(kinds), np.int32)
        match(self.buffer, kinds, starts, ends, names, found)
        return found


def scanned_field(
    scan: ScanResult, spec: FieldSpec, deleted: NDArray[np.bool_], undecided: NDArray[np.bool_]
) -> DecodedColumn:
    """Return a declared field as a column; add what the scan cannot decide to `undecided`."""
    also: tuple[int, ...] = ()
    match spec.type:
        case ValueType.WORDS:
            pass
        case ValueType.METADATA:
            also = (INTEGER,)
            # The first entry of a list counts, which the scan does not find.
            undecided |= ~deleted & (scan.kinds(spec.path) == ARRAY)
        case ValueType.CATEGORY:
            also = (INTEGER, TRUE, FALSE)
            undecided |= ~deleted & ~scan.is_any(spec.path, (ABSENT, NULL, PLAIN, ESCAPED, *also))
        case ValueType.FLAG | ValueType.NUMBER | ValueType.WEIGHT:
            return _float_field(scan, spec, deleted, undecided)
        case _:
            assert_never(spec.type)
    texts = scan.texts(spec.path, also)
    texts.ends[deleted] = -1
    return texts


def _float_field(
    scan: ScanResult, spec: FieldSpec, deleted: NDArray[np.bool_], undecided: NDArray[np.bool_]
) -> NDArray[np.float64]:
    values, unsure = (scan.flags if spec.type is ValueType.FLAG else scan.numbers)(spec.path)
    if spec.type is ValueType.WEIGHT:
        unsure |= (values < WEIGHT_MIN) | (values > WEIGHT_MAX)
        values = np.rint(values / WEIGHT_MIN) * WEIGHT_MIN
    undecided |= unsure & ~deleted
    values[deleted] = np.nan
    return values


class JsonScanner:
    """Finds fields in JSON messages.

    `root` holds all paths that `JsonReader` reads, also those that are not scanned: if something
    else stands in the place of an object on the way to one, that is an error.
    """

    def __init__(self, root: Node, paths: Collection[str]) -> None:
        self._places: dict[str, int] = {}
        self._names: list[bytes] = []
        self._parents = [-1]
        self._is_read = [False]
        self._paths = set(itertools.chain.from_iterable(map(paths_of, paths)))
        self._add(root, ROOT, ())
        self._table = name_table(self._names, self._parents[1:])
        parents = np.array(self._parents, np.int64)
        leads_on = np.isin(np.arange(len(parents)), parents)
        self._tree = Tree(parents, np.array(self._is_read, np.bool_), leads_on)

    def _add(self, node: Node, field: int, path: tuple[str, ...]) -> None:
        """Give a number to each scanned field below one."""
        for name, child in node.children.items():
            here = (*path, name)
            if child.children or ".".join(here) in self._paths:
                self._parents.append(field)
                self._is_read.append(child.is_read)
                self._names.append(name.encode("utf-8", "surrogatepass"))
                self._places[".".join(here)] = place = len(self._names)
                self._add(child, place, here)

    def scan(self, buffer: bytes, starts: Longs, ends: Longs) -> ScanResult:
        """Scan the messages `buffer[start:end]`; one whose end is -1 is undecided."""
        n, n_fields = len(starts), len(self._parents)
        spans = Spans(
            np.full((n_fields, n), ABSENT, np.uint8),
            np.empty((n_fields, n), np.int64),
            np.empty((n_fields, n), np.int64),
        )
        data = np.frombuffer(buffer, np.uint8)
        undecided = np.empty(n, np.bool_)
        scan(
            data,
            np.ascontiguousarray(starts, np.int64),
            np.ascontiguousarray(ends, np.int64),
            self._table,
            self._tree,
            spans,
            undecided,
        )
        return ScanResult(data, spans, self._places, undecided)


def name_table_of(texts: Sequence[str]) -> Names:
    """Return a table of strings for `match`; one with a lone surrogate matches nothing."""
    return name_table([text.encode("utf-8", "surrogatepass") for text in texts])
