"""Fields of a message: where they stand, what they may hold, and the columns they become.

`converter` gives the function from a value to a column's entry or a `DecodeError`. The functions
below it work on whole columns, then on texts (markup and Unicode), on the values by which messages
are left out, and on times.
"""

from __future__ import annotations

import hashlib
import html
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeAlias, assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.config.message import MESSAGE_PARTS, MessageSettings
from consumers.config.model import FieldKind
from consumers.messages import ACCOUNT_MARK, NO_TIME, WEIGHT, Reason, take_texts
from consumers.process import cached
from streamnb import TextColumn
from streamnb.columns import LARGEST, missing_text, text_column
from streamnb.errors import InputError
from streamnb.features.category_values import value_text
from streamnb.kernels.layout import Texts
from streamnb.tokenizer import composed


class DecodeError(NamedTuple):
    """Why a message cannot be used: the reason to count it by, a sentence for people, and its id.

    It is a value, not an exception: the decoder turns it into a `Reject`, which adds the message's
    offset and raw bytes.
    """

    reason: Reason
    detail: str
    id: str | None = None  # if one could be read
    has_no_id: bool = False  # it was decoded: the name of its place is its id


DecodedColumn: TypeAlias = Texts | NDArray[np.float64]

_FLAGS = {"true": 1.0, "1": 1.0, "1.0": 1.0, "false": 0.0, "0": 0.0, "0.0": 0.0}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_SHOWN_MAX = 60


class ValueType(StrEnum):
    """How a field is read: by the kind of its group; user and language in a way of their own."""

    WORDS = "words"  # a string; anything else is missing
    METADATA = "metadata"  # also an integer, or a list's first entry
    CATEGORY = "categories"
    FLAG = "flags"
    NUMBER = "numbers"
    WEIGHT = "weight"

    @property
    def is_float(self) -> bool:
        """Whether the field's column holds floats; else it holds texts."""
        match self:
            case ValueType.FLAG | ValueType.NUMBER | ValueType.WEIGHT:
                return True
            case ValueType.WORDS | ValueType.METADATA | ValueType.CATEGORY:
                return False
        assert_never(self)


# Weights are multiples of the least: so sums of them are exact, and taken back bit for bit.
WEIGHT_MIN, WEIGHT_MAX = 2.0**-10, 1e6
_EXPECTED = {
    ValueType.WEIGHT: f"a number between 1/1024 and {WEIGHT_MAX:,.0f}",
    ValueType.WORDS: "a string",
    ValueType.CATEGORY: "a string, number, true or false",
    ValueType.FLAG: "true, false, 1 or 0",
    ValueType.NUMBER: f"a number between {-LARGEST:g} and {LARGEST:g}",
}
_SETTINGS = {ValueType.WEIGHT: "message.weight", ValueType.CATEGORY: "model.features or per.field"}


class FieldSpec(NamedTuple):
    """A field that is read: its path in a message, and the type of its values."""

    path: str
    type: ValueType


def field_specs(kinds: Mapping[str, FieldKind], message: MessageSettings) -> dict[str, FieldSpec]:
    """Return how fields are read, by name; the text is left out, as every message has one.

    The kinds are those of the groups of ``text``, ``user``, ``lang`` or a path, or of `WEIGHT`.
    """
    specs = {
        name: FieldSpec(getattr(message, name), ValueType.METADATA)
        if name in MESSAGE_PARTS
        else FieldSpec(name, ValueType(kind))
        for name, kind in kinds.items()
        if name != "text"
    }
    if WEIGHT in specs and message.weight is not None:
        specs[WEIGHT] = FieldSpec(message.weight, ValueType.WEIGHT)
    return specs


def converter(spec: FieldSpec, *, is_csv: bool) -> Callable[[Any], Any]:
    """Return the function from a message's value to a column's entry or a `DecodeError`.

    Cells of CSV are all text, and an empty one is None.
    """
    convert: Callable[[Any], Any]
    match spec.type:
        case ValueType.METADATA:
            return metadata_text
        case ValueType.WORDS:
            return _text
        case ValueType.CATEGORY:
            convert = _category
        case ValueType.FLAG:
            convert = _flag_of_cell if is_csv else _flag
        case ValueType.NUMBER:
            convert = _number_of_cell if is_csv else _number
        case ValueType.WEIGHT:
            convert = (lambda cell: _weight(_number_of_cell(cell))) if is_csv else _weight
        case _:
            assert_never(spec.type)
    nothing = missing_entry(spec)

    def entry(value: Any) -> Any:
        if value is None:
            return nothing
        found = convert(value)
        return _error(spec, value) if found is None else found

    return entry


def learned_values(example: Mapping[str, Any], kinds: Mapping[str, FieldKind]) -> dict[str, Any]:
    """Return the values by which an example is learned that was decoded before, and written down.

    Other fields and missing values are left out; a value that no message may have is an InputError.
    """
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        value = example.get(name)
        if value is None:
            continue
        spec = FieldSpec(name, ValueType.WEIGHT if name == WEIGHT else ValueType(kind))
        is_metadata = name in MESSAGE_PARTS and name != "text"
        read: Any = metadata_text(value) if is_metadata else None
        if read is None:  # people may give a user or language that a message has not
            read = converter(spec, is_csv=False)(value)
        # Where messages are decoded, what is no text is missing.
        if read is None or (name == "text" and isinstance(read, str) and "\0" in read):
            read = _error(spec, value)
        if isinstance(read, DecodeError):
            raise InputError(read.detail)
        found[name] = read
    return found


def missing_entry(spec: FieldSpec) -> Any:
    """Return the entry of an absent field."""
    return math.nan if spec.type.is_float else None


def id_of(parts: Sequence[Any]) -> str | None:
    """Return the id of a message by the values at its `id_paths`, or None if it has none.

    Several parts are joined by `/`, with `~` escaped as `~0` and `/` as `~1`, as in a JSON pointer
    (RFC 6901): ids of different parts differ. If a part is missing there is no id, as the rest may
    be another message's. A single part stays as it is.

    >>> id_of([17]), id_of(["did:x", "app.bsky.feed.post", "3k/~"]), id_of(["did:x", None])
    ('17', 'did:x/app.bsky.feed.post/3k~1~0', None)
    """
    if None in parts:
        return None
    if len(parts) == 1:
        return str(parts[0])
    return "/".join([str(part).replace("~", "~0").replace("/", "~1") for part in parts])


def account_id(first: Any) -> str | None:
    """Return what names all messages whose id of several parts begins with one.

    No id is spelled so, as a `~` in one has `0` or `1` behind it.

    >>> account_id("did:x"), account_id(None)
    ('did:x/~', None)
    """
    return None if first is None else f"{id_of((first, ''))}{ACCOUNT_MARK}"


def metadata_text(value: Any) -> str | None:
    """Return a user or language as text: an integer's digits, a list's first entry."""
    if value.__class__ is list and value:
        value = value[0]
    return str(value) if value.__class__ is str or value.__class__ is int else None


def quoted(value: Any) -> str:
    """Return the start of a value, to quote in an error; a truth value as JSON has it."""
    text = repr(value).lower() if isinstance(value, bool) else repr(value)
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


def _weight(value: Any) -> float | None:
    number = _number(value)
    if number is None or not WEIGHT_MIN <= number <= WEIGHT_MAX:
        return None
    return round(number / WEIGHT_MIN) * WEIGHT_MIN


def _error(spec: FieldSpec, value: Any) -> DecodeError:
    """Return the error for a value that its field may not hold."""
    if value.__class__ is str and "\0" in value:
        return DecodeError(Reason.NULL_BYTES, f"the text at '{spec.path}' holds a NUL character")
    setting = _SETTINGS.get(spec.type, "model.features")
    return DecodeError(
        Reason.WRONG_TYPE,
        f"the value at '{spec.path}' is {quoted(value)}; {_EXPECTED[spec.type]} is needed, or null "
        f"where it is missing (setting {setting})",
    )


def missing_column(spec: FieldSpec, n: int) -> DecodedColumn:
    """Return the column of `n` messages without the field."""
    return np.full(n, math.nan) if spec.type.is_float else missing_text(n).texts


def with_entries(
    column: DecodedColumn, at: NDArray[np.int64], values: Sequence[Any]
) -> DecodedColumn:
    """Return a column with new entries at some places."""
    if isinstance(column, Texts):
        return with_texts(column, at, values)
    column = column.copy()
    column[at] = values
    return column


def with_texts(texts: Texts, at: NDArray[np.int64], values: Sequence[str | None]) -> Texts:
    """Return texts with new entries at some places."""
    new = text_column("text", values).piece(0, len(values))
    n_bytes = len(texts.data)
    starts, ends = texts.starts.copy(), texts.ends.copy()
    starts[at] = new.starts + n_bytes
    ends[at] = np.where(new.ends < 0, -1, new.ends + n_bytes)
    return Texts(np.concatenate((texts.data, new.data)), starts, ends)


def take(column: DecodedColumn, at: NDArray[np.int64]) -> TextColumn | NDArray[np.float64]:
    """Return a column's entries at some ascending places."""
    return take_texts(column, at) if isinstance(column, Texts) else column[at]


# Texts without their markup.
_TAG = re.compile(r"""</?([a-zA-Z][a-zA-Z0-9]*+)(?:[^<>"']|"[^"]*"|'[^']*')*+>""")
_BLOCKS = (
    " address article blockquote br dd div dl dt figure footer h1 h2 h3 h4 h5 h6 header hr li ol p "
    "pre section table td th tr ul "
)
_UNSHOWN = (("<!--", "-->"), ("<script", "</script>"), ("<style", "</style>"))
# A look behind spares a second pass over blanks; the first of a run alone begins a match.
_SPACES = re.compile(r"(?<![ \t])[ \t]*+\n[ \t\n]*")
_DIGITS = re.compile(r"&#0*([0-9]{1,8})[0-9]*")


def plain_text(text: str) -> str:
    r"""Return what a reader sees of HTML: no tags, a line for each block, entities undone.

    >>> plain_text('<p>a &lt;3<br />b <a href="/x">#c</a></p><p>d</p>')
    'a <3\nb #c\nd'
    """
    for begin, end in _UNSHOWN:
        text = _without(text, begin, end)
    text = _TAG.sub(lambda tag: "\n" if f" {tag[1].lower()} " in _BLOCKS else "", text)
    return unescaped(_SPACES.sub("\n", text).strip())


def unescaped(text: str) -> str:
    """Return a text with its entities undone, also those of more digits than Python reads."""
    try:
        return html.unescape(text)
    except ValueError:
        return html.unescape(_DIGITS.sub(r"&#\1", text))


def _without(text: str, begin: str, end: str) -> str:
    """Return a text without what stands between two marks; a mark left open stays."""
    kept, at = [], 0
    while (start := text.find(begin, at)) >= 0 and (stop := text.find(end, start)) >= 0:
        kept.append(text[at:start])
        at = stop + len(end)
    return "".join([*kept, text[at:]])


def text_form(message: MessageSettings) -> Callable[[str], str] | None:
    """Return what makes a message's text of the one that it holds; None if it stays as it is."""
    undo = {"none": None, "entities": unescaped, "html": plain_text}[message.markup]
    if not message.nfc:
        return undo
    return composed if undo is None else lambda text: composed(undo(text))


def may_change(message: MessageSettings, texts: Texts) -> NDArray[np.intp]:
    """Return the places of texts that `text_form` may change, of texts one behind the other."""
    if message.markup == "html":
        return np.flatnonzero(texts.ends >= 0)
    odd = texts.data >= (0x80 if message.nfc else 0xFF)
    if message.markup == "entities":
        odd |= texts.data == ord("&")
    # Those that are missing or empty take no room.
    whole = np.flatnonzero(texts.ends > texts.starts)
    places = np.searchsorted(texts.starts[whole], np.flatnonzero(odd), "right") - 1
    return whole[np.unique(places)]


# What messages are chosen by.
_SAMPLE_BYTES = 8
RETWEET_SIGN = "RT @"
_REPLY = "replied_to"
_CACHED_BYTES_MAX = 200
_SUBTAGS_MAX = 8  # beyond these a tag is not taken apart: each subtag is a range as long as it


def value_names(value: Any) -> frozenset[str]:
    """Return what a condition compares: a value's text, or those of a list's entries."""
    values = value if value.__class__ is list else (value,)
    return frozenset(
        ("true" if each else "false") if each.__class__ is bool else str(each)
        for each in values
        if each.__class__ in {str, int, bool}
    )


def _language(name: str) -> str:
    return name.lower().replace("_", "-")


def language_ranges(value: Any) -> frozenset[str]:
    """Return the ranges that a language, or one of a list, falls into: `en-US` is of `en` too.

    >>> sorted(language_ranges(["en-US", "de"]))
    ['de', 'en', 'en-us']
    """
    ranges: set[str] = set()
    for name in value_names(value):
        parts = _language(name).split("-", _SUBTAGS_MAX)
        ranges.update("-".join(parts[: k + 1]) for k in range(len(parts)))
    return frozenset(ranges)


def is_sampled(name: bytes, share: float) -> bool:
    """Return whether a message is of a sample, by its id: so all that concerns one goes along."""
    digest = hashlib.blake2b(name, digest_size=_SAMPLE_BYTES).digest()
    return int.from_bytes(digest) < share * 2.0 ** (8 * _SAMPLE_BYTES)


class Condition:
    """A condition on the value at a path; what does not meet it is ignored for `reason`.

    `accepts` is asked of values that are there, `absent` says what holds if none is. A deletion
    meets it without the value, and always if that `can_change` in a message, as its language may;
    other values say what kind a record is of, and one of another kind takes no message back.
    """

    def __init__(
        self, reason: str, path: str, accepts: Any, *, absent: bool, can_change: bool = True
    ) -> None:
        self.reason, self.path, self.absent, self.can_change = reason, path, absent, can_change
        self.accepts: Callable[[Any], bool] | bool = accepts
        self._accepts_short = cached("conditions", 4096)(self._accepts_json)

    def met(self, value: Any, *, is_delete: bool = False) -> bool:
        """Return whether a message with a value, None if absent, meets the condition."""
        if value is None or (is_delete and self.can_change):
            return self.absent or is_delete
        return self.accepts if isinstance(self.accepts, bool) else self.accepts(value)

    def accepts_json(self, value: bytes) -> bool:
        """Return whether a value is accepted, by its JSON; of objects all or none are."""
        if value.startswith(b"{"):
            return self.met({})
        short = len(value) <= _CACHED_BYTES_MAX
        return self._accepts_short(value) if short else self._accepts_json(value)

    def _accepts_json(self, value: bytes) -> bool:
        return self.met(msgspec.json.decode(value))


def conditions_of(message: MessageSettings) -> list[Condition]:
    """Return the conditions on values in the order in which they are asked."""
    found: list[Condition] = []
    own = {getattr(message, name) for name in MESSAGE_PARTS}
    for wanted, conditions in ((False, message.ignore), (True, message.keep)):
        for name, values in conditions.items():
            if values is None:
                continue
            path = getattr(message, name) if name in MESSAGE_PARTS else name
            names = language_ranges if name == "lang" else value_names
            known = frozenset(map(_language, values)) if name == "lang" else set(values)
            accepts: Callable[[Any], bool] | bool = wanted
            if values:
                accepts = partial(_is_any, names, known, wanted)
            found.append(Condition(name, path, accepts, absent=not wanted, can_change=path in own))
    if message.replies == "drop" and message.reply is not None:
        found.append(Condition("reply", message.reply, _is_no_reply, absent=True))
    return found


def _is_no_reply(value: Any) -> bool:
    """Return whether a value is a list of other messages, as on X, to none of which it replies."""
    entries = value if value.__class__ is list else ({},)
    return all(each.__class__ is dict and each.get("type", _REPLY) != _REPLY for each in entries)


def _is_any(
    names: Callable[[Any], Collection[str]], known: Collection[str], wanted: bool, value: Any
) -> bool:
    return any(name in known for name in names(value)) is wanted


class Selection:
    """Which messages count, of those that can be read; `reasons` are why others are ignored.

    A reason is the path or the part that `keep` or `ignore` names, or reply, retweet or sample.
    """

    def __init__(self, message: MessageSettings) -> None:
        self.conditions = conditions_of(message)
        self.reasons = (*(each.reason for each in self.conditions), "retweet", "sample")
        self.retweet_code, self.sample_code = len(self.conditions), len(self.conditions) + 1
        self.retweets, self.retweet = message.retweets, message.retweet
        self.sample = message.sample
        self.is_whole = not self.conditions and message.retweets == "keep" and message.sample == 1

    def can_change(self, code: int) -> bool:
        """Return whether an update may leave a message out that counted before it."""
        if code < len(self.conditions):
            return self.conditions[code].can_change
        return code == self.retweet_code

    @property
    def paths(self) -> list[str]:
        """The paths that it reads beside those of the message's parts."""
        found = [each.path for each in self.conditions]
        return [*found, self.retweet] if self.retweets != "keep" and self.retweet else found

    def drops_retweet(self, original: Any, text: Any) -> bool:
        """Return whether a message is a retweet to ignore, by what stands at `retweet`."""
        if self.retweets == "keep":
            return False
        if original.__class__ is dict and self.retweets == "drop":
            return True
        if original.__class__ is list and any(
            each.__class__ is dict and each.get("type") == "retweeted" for each in original
        ):
            return True
        return text.__class__ is str and text.startswith(RETWEET_SIGN)

    def drops_id(self, name: str | None, value: bytes) -> bool:
        """Return whether a message is not of the sample; without an id its bytes decide."""
        return self.sample < 1 and not is_sampled(
            value if name is None else name.encode("utf-8", "surrogatepass"), self.sample
        )


# Times of messages, in any of their forms, to Unix milliseconds.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MONTHS = {
    "Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "May": 5, "Jun": 6,
    "Jul": 7, "Aug": 8, "Sep": 9, "Oct": 10, "Nov": 11, "Dec": 12,
}  # fmt: skip
_ZONES_H = {"UTC": 0, "GMT": 0, "PST": -8, "PDT": -7}  # those of Sentiment140 and of old logs

# A number's size tells its unit: from 1973 to 5138 the four ranges do not meet.
_SECONDS_MAX = 1e11
_MILLISECONDS_MAX = 1e14
_MICROSECONDS_MAX = 1e17
_NANOSECONDS_MAX = 9e18

# No form is longer; a text of a megabyte must not stay in the caches as a key.
_CHARACTERS_MAX = 100


def to_unix_ms(value: Any) -> int | None:
    """Return a time as Unix milliseconds, or None if it cannot be understood.

    It is a string in ISO 8601 (UTC if it names no zone) or in Twitter's form, or a number, or a
    string of digits: Unix seconds, milliseconds, microseconds or nanoseconds, by its size. Anything
    else gives None, also a year beyond the calendar.

    >>> to_unix_ms("2009-04-07T05:19:45Z") == to_unix_ms("Mon Apr 06 22:19:45 PDT 2009")
    True
    >>> to_unix_ms(1239081585), to_unix_ms("tomorrow")
    (1239081585000, None)
    """
    if value.__class__ is str:
        return _from_text(value) if len(value) <= _CHARACTERS_MAX else None
    if value.__class__ is int or value.__class__ is float:
        return _from_number(value)
    return None


@cached("times", 4096)
def _from_text(text: str) -> int | None:
    """Read a string. Messages of a stream share their seconds, so a small cache helps."""
    # First, as Python reads some digits as date and hour. Eight digits are a date, 20090407.
    digits = text.removeprefix("-")
    if digits.isdecimal() and (digits != text or len(text) != 8):
        return _from_number(int(text)) if len(digits) < 20 else None
    try:
        when = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return _twitter(text)
    return _since_epoch(when)


def _from_number(number: float) -> int | None:
    """Read a number of seconds, milliseconds, microseconds or nanoseconds."""
    size = abs(number)
    if size < _SECONDS_MAX:
        return int(number * 1000) if number != -1 else NO_TIME
    if size < _MILLISECONDS_MAX:
        return int(number)
    if size < _MICROSECONDS_MAX:
        return int(number // 1_000)
    if size < _NANOSECONDS_MAX:
        return int(number // 1_000_000)
    return None


def _twitter(text: str) -> int | None:
    """Read `Mon Apr 06 22:19:45 +0000 2009`, with an offset or one of a few names for the zone."""
    try:
        _, month, day, clock, zone, year = text.split()
        midnight_ms = _midnight(month, day, zone, year)
        hour, minute, second = map(int, clock.split(":"))
    except (ValueError, KeyError, OverflowError):  # the last for a year beyond a C integer
        return None
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return None
    return midnight_ms + 1000 * (60 * (60 * hour + minute) + second)


@cached("days", 256)
def _midnight(month: str, day: str, zone: str, year: str) -> int:
    """Return when a day begins: the slow part, cached as the next message is of the same day."""
    if zone in _ZONES_H:
        offset = timedelta(hours=_ZONES_H[zone])
    else:
        sign = {"+": 1, "-": -1}[zone[0]]
        offset = sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
    return _since_epoch(datetime(int(year), _MONTHS[month], int(day), tzinfo=timezone(offset)))


def _since_epoch(when: datetime) -> int:
    """Return the milliseconds between 1970 and a time, which is in UTC unless it says otherwise."""
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - _EPOCH) // _MILLISECOND if when.year > 1 else NO_TIME
