"""The values that travel through the daemon: raw columns, messages, rejects, checkpoint entries.

A source returns **columns**: one buffer for a batch of one partition, and arrays of where each key
and value lies in it. The decoder turns them into `Messages`, arrays of one entry a message;
`Messages.envelope(i)` is a row of them, for sinks and screens.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias, overload

import msgspec
import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from streamnb import TextColumn
from streamnb.kernels.layout import Texts

Column = TextColumn | NDArray[np.float64]

ACCOUNT_MARK = "~"  # behind the first part of an id and its `/`: all ids that begin so
ID_MARK = "~"  # before an id that spells the name of a place; no topic begins with it

NO_TIME = -1  # in Unix milliseconds, as in Kafka; any other negative time is one before 1970

# The field of numbers that says how many examples a message counts as, beside those that the model
# reads; where it is missing that is 1.
WEIGHT = "message.weight"


def weighed(columns: Mapping[str, Column]) -> tuple[dict[str, Column], NDArray[np.float64] | None]:
    """Return columns without the weights among them, and these; None if they have none."""
    weights = columns.get(WEIGHT)
    if not isinstance(weights, np.ndarray):
        return dict(columns), None
    others = {name: column for name, column in columns.items() if name != WEIGHT}
    return others, np.where(np.isnan(weights), 1.0, weights)


class Partition(NamedTuple):
    """One ordered log: a Kafka partition, or a file, the generator, standard input."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


def part_name(partition: Partition) -> str:
    """Return the name of a partition's part in the model."""
    return f"{partition.topic}/{partition.partition}"


def partition_of(name: str) -> Partition:
    """Return the partition that `part_name` named."""
    topic, _, number = name.rpartition("/")
    return Partition(topic, int(number))


CLASSES_MAX = 100  # with those that join; each is a column of every count, and a metric's label
_CLASS_CHARACTERS_MAX = 200
_NAMES_SHOWN_MAX, _NAME_CHARACTERS_SHOWN_MAX = 5, 25


def first_few(names: Collection[str]) -> str:
    """Return the first names and how many more there are: an error may come with each message."""
    first = itertools.islice(names, _NAMES_SHOWN_MAX)
    shown = ", ".join([name[:_NAME_CHARACTERS_SHOWN_MAX] for name in first])
    rest = len(names) - _NAMES_SHOWN_MAX
    return shown + (f" and {rest:,} more" if rest > 0 else "")


class KnownClasses(Sequence[str]):
    """The model's classes in its order; classes may join behind, and none leaves.

    All components of the daemon share one, and any thread may read it. If it is `open`, labels may
    bring further classes (`model.new_classes`).
    """

    def __init__(self, names: Iterable[str], *, open: bool = False) -> None:  # noqa: A002 -- it is
        self._names = tuple(names)
        self._open = open
        self._lock = threading.Lock()

    @classmethod
    def of(cls, names: Sequence[str]) -> KnownClasses:
        """Return `names` if it is one already, else closed classes."""
        return names if isinstance(names, cls) else cls(names)

    def grow(self, names: Sequence[Any]) -> None:
        """Append the classes that joined the model, whose classes are `names` now.

        Fewer are those of an older snapshot. Others in these places are a `ValueError`: what is
        counted and stored by place would change its name.
        """
        if names == self._names:
            return
        given = tuple(map(str, names))
        with self._lock:
            known = self._names
            if given[: len(known)] != known[: len(given)]:
                raise ValueError(f"the classes {given} do not go on from {known}")
            self._names += given[len(known) :]

    def takes(self, label: str) -> bool:
        """Return whether a label may be learned: it is a class, or may become one."""
        if label in self._names:
            return True
        fits = 0 < len(label) <= _CLASS_CHARACTERS_MAX and label.isprintable()
        return self._open and fits and len(self._names) < CLASSES_MAX

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[str, ...]: ...
    def __getitem__(self, i: int | slice) -> str | tuple[str, ...]:
        return self._names[i]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


# The headers of one Kafka message, in order: names, which may repeat, and values.
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class RawColumns(msgspec.Struct, frozen=True):
    """A batch of raw messages of one partition.

    Attributes
    ----------
    partition : Partition
        Their log.
    buffer : bytes
        Every key and value of the batch; the arrays below point into it.
    value_starts, value_ends : ndarray of shape (n,), int64
        Where each value lies. An end of -1 marks a null value (a tombstone).
    key_starts, key_ends : ndarray of shape (n,), int64
        Where each key lies. An end of -1 marks a null key.
    offsets : ndarray of shape (n,), int64
        Each message's offset in its partition, increasing.
    times_ms : ndarray of shape (n,), int64
        Time of each message by the source's clock, in Unix milliseconds; -1 if unknown.
    next_offset : int
        The offset to read after this batch.
    headers : sequence of the messages' headers, optional
        Each message's names and values; only recorded and replayed streams bring them along.
    """

    partition: Partition
    buffer: bytes
    value_starts: NDArray[np.int64]
    value_ends: NDArray[np.int64]
    key_starts: NDArray[np.int64]
    key_ends: NDArray[np.int64]
    offsets: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    next_offset: int
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def value(self, i: int) -> bytes | None:
        """Return the raw value of message `i`, or None for a tombstone."""
        end = int(self.value_ends[i])
        return None if end < 0 else self.buffer[int(self.value_starts[i]) : end]

    def values(self, places: NDArray[np.int64]) -> list[bytes | None]:
        """Return the raw values of some messages; see `value`."""
        starts, ends = (each[places].tolist() for each in (self.value_starts, self.value_ends))
        lies = zip(starts, ends, strict=True)
        return [None if end < 0 else self.buffer[start:end] for start, end in lies]

    def key(self, i: int) -> bytes | None:
        """Return the raw key of message `i`, or None if it has none."""
        end = int(self.key_ends[i])
        return None if end < 0 else self.buffer[int(self.key_starts[i]) : end]

    @property
    def n_bytes(self) -> int:
        """What the values hold: the buffer may be that of other messages too."""
        return int((self.value_ends - self.value_starts).clip(0).sum())

    def head(self, n: int) -> RawColumns:
        """Return the first `n` messages; the next offset is the one behind them."""
        if n >= len(self):
            return self
        return replace(self, **self._cut(slice(n)), next_offset=int(self.offsets[n]))

    def tail(self, begin: int) -> RawColumns:
        """Return the messages from `begin` on."""
        return self if begin == 0 else replace(self, **self._cut(slice(begin, None)))

    def pieces(self, n_wanted: int) -> Iterator[RawColumns]:
        """Yield the batch in pieces of about the same size, each of about `n_wanted` messages.

        That is at most half as many again: a batch of a few more is not halved, as each piece
        costs.
        """
        n = len(self)
        n_pieces = max(1, round(n / n_wanted))
        cuts = [i * n // n_pieces for i in range(n_pieces + 1)]
        for begin, end in itertools.pairwise(cuts):
            yield self.tail(begin).head(end - begin)

    def _cut(self, part: slice) -> dict[str, Any]:
        """Return the arrays with only the messages of `part`."""
        arrays = ("value_starts", "value_ends", "key_starts", "key_ends", "offsets", "times_ms")
        cut = {name: getattr(self, name)[part] for name in arrays}
        return cut if self.headers is None else {**cut, "headers": self.headers[part]}


class Operation(StrEnum):
    """The operation that a message asks for."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Reason(StrEnum):
    """Why a message was rejected: the metric's label and the first field of the rejects file."""

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    NOT_CSV = "not_csv"
    MISSING_TEXT = "missing_text"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_LABEL = "unknown_label"
    TOO_LARGE = "too_large"
    NULL_BYTES = "null_bytes"
    TOMBSTONE = "tombstone"
    DECODER_FAILED = "decoder_failed"
    CORRECTION = "correction"
    UNMATCHED_LABEL = "unmatched_label"
    NO_SCHEMA = "no_schema"
    MALFORMED = "malformed"


class Reject(NamedTuple):
    """A message that could not be used: its reason, place and bytes, and its id if one was read."""

    reason: Reason
    detail: str
    partition: Partition
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    id: str | None = None


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decoded message as a row."""

    id: str
    time_ms: int
    user: str | None
    lang: str | None
    text: str
    label: str | None
    operation: Operation
    fields: dict[str, Any]
    has_text: bool = True  # whether its text was read; an empty one was, too

    @property
    def shown(self) -> str:
        """Its text, or without one its fields, as `income high · age 41`; not escaped."""
        return self.text if self.has_text else pairs(self.fields)


def pairs(fields: Mapping[str, Any]) -> str:
    """Return fields with their values on one line, such as `income high · age 41`.

    A field without a value, or with an empty text, is left out.
    """
    return " · ".join(
        f"{name} {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in fields.items()
        if value not in (None, "")
    )


class Metadata(NamedTuple):
    """What messages hold beside what is learned, as lists of one entry a message."""

    ids: list[str]
    times_ms: list[int]
    users: list[str | None]
    langs: list[str | None]
    fields: list[dict[str, Any]]


OPERATIONS = tuple(Operation)
_DELETE = OPERATIONS.index(Operation.DELETE)
_UPDATE = OPERATIONS.index(Operation.UPDATE)
NO_LABEL = -1


class Messages(msgspec.Struct):
    """The decoded messages of one batch as columns, and its rejects.

    What the model does not read stays in the raw bytes: `envelope` decodes all of a message, for
    the few that are shown or written.

    Attributes
    ----------
    raw : RawColumns
        The batch they were decoded from.
    at : ndarray of shape (n,), int64
        Each message's place in `raw`, ascending.
    classes : tuple of str
        The class of each label code.
    labels : ndarray of shape (n,), int32
        Each message's place in `classes`; `NO_LABEL` if it is to be predicted, not learned.
    operations : ndarray of shape (n,), int8
        Each message's place in `OPERATIONS`.
    texts : TextColumn, of length n
        A deletion's text is missing; all are if neither the model nor the labels need texts.
    ids : TextColumn, of length n
        Missing where a message has none.
    fields : dict of str to TextColumn or ndarray of shape (n,), float64
        The other fields that the model reads: words and categories as text, numbers and flags (0
        and 1) as floats, nan if missing. With `message.weight` there is `WEIGHT` too.
    metadata : callable
        Decodes the metadata of the messages at some places of `raw`.
    rejects : list of Reject
        The messages of `raw` that cannot be used: all that are not in `at`, but those ignored.
    ignored : dict of str to int
        How many messages are ignored, as settings leave them out, by reason.
    n_ambiguous : int
        Messages with emoticons of more than one class: they are predicted, never learned.
    n_superseded : int
        Messages left out because the stream had deleted or updated them before they came.
    n_added : int
        Rows beside those of the messages: deletions that the one of an account stands for.
    """

    raw: RawColumns
    at: NDArray[np.int64]
    classes: tuple[str, ...]
    labels: NDArray[np.int32]
    operations: NDArray[np.int8]
    texts: TextColumn
    ids: TextColumn
    fields: dict[str, Column]
    metadata: Callable[[RawColumns, NDArray[np.int64]], Metadata]
    rejects: list[Reject] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    n_ambiguous: int = 0
    n_superseded: int = 0
    n_added: int = 0

    def __len__(self) -> int:
        return len(self.at)

    @property
    def partition(self) -> Partition:
        """The log of the batch."""
        return self.raw.partition

    @property
    def next_offset(self) -> int:
        """The offset to read after this batch."""
        return self.raw.next_offset

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Each message's offset, shape (n,), int64, increasing."""
        whole = self.raw.offsets
        return whole if len(self.at) == len(whole) and not self.n_added else whole[self.at]

    @property
    def to_learn(self) -> NDArray[np.int64]:
        """Rows with a label that are no deletion, ascending, int64."""
        return np.flatnonzero((self.labels != NO_LABEL) & (self.operations != _DELETE))

    @property
    def to_predict(self) -> NDArray[np.int64]:
        """Rows without a label that are no deletion, ascending, int64."""
        return np.flatnonzero((self.labels == NO_LABEL) & (self.operations != _DELETE))

    @property
    def updated(self) -> NDArray[np.int64]:
        """Rows that take the place of the message of their id, ascending, int64."""
        return np.flatnonzero(self.operations == _UPDATE)

    @property
    def deleted(self) -> NDArray[np.int64]:
        """Rows that ask to delete the message of their id, ascending, int64."""
        return np.flatnonzero(self.operations == _DELETE)

    def label(self, i: int) -> str | None:
        """Return the label of message `i`, or None."""
        code = int(self.labels[i])
        return None if code == NO_LABEL else self.classes[code]

    def shown_texts(self, rows: NDArray[np.int64]) -> list[str | None]:
        """Return the texts of some messages; None if none was read, as of a deletion."""
        data, starts, ends = self.texts.texts
        lies = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
        view = data.data
        return [None if end < 0 else str(view[start:end], "utf-8") for start, end in lies]

    def envelopes(self, rows: NDArray[np.int64]) -> list[Envelope]:
        """Return some messages as rows."""
        metadata = self.metadata(self.raw, self.at[rows])
        labels = [self.label(i) for i in rows.tolist()]
        operations = [OPERATIONS[code] for code in self.operations[rows].tolist()]
        texts = self.shown_texts(rows)
        return [
            Envelope(
                name, time_ms, user, lang, text or "", label, operation, fields, text is not None
            )
            for name, time_ms, user, lang, text, label, operation, fields in zip(
                metadata.ids, metadata.times_ms, metadata.users, metadata.langs, texts, labels,
                operations, metadata.fields, strict=True,
            )
        ]  # fmt: skip

    def envelope(self, i: int) -> Envelope:
        """Return message `i` as a row."""
        return self.envelopes(np.array([i]))[0]

    def reject(
        self, rows: NDArray[np.int64], reason: Reason, detail: Callable[[str | None], str]
    ) -> Messages:
        """Return the messages without some, which become rejects; `detail` is called by label."""
        if not len(rows):
            return self
        raw, at = self.raw, self.at[rows]
        rejects = [
            Reject(
                reason, detail(self.label(row)), raw.partition, int(raw.offsets[i]),
                int(raw.times_ms[i]), raw.key(i), raw.value(i), name,
            )
            for row, i, name in zip(
                rows.tolist(), at.tolist(), self.metadata(raw, at).ids, strict=True
            )
        ]  # fmt: skip
        rejects = sorted([*self.rejects, *rejects], key=lambda each: each.offset)
        return replace(self.without(rows), rejects=rejects)

    def without(self, rows: NDArray[np.int64]) -> Messages:
        """Return the messages without some, which nothing else is told of."""
        kept = np.delete(np.arange(len(self)), rows)
        return replace(
            self,
            at=self.at[kept],
            labels=self.labels[kept],
            operations=self.operations[kept],
            texts=take_texts(self.texts.texts, kept),
            ids=take_texts(self.ids.texts, kept),
            fields={name: rows_of(column, kept) for name, column in self.fields.items()},
        )


def take_texts(texts: Texts, at: NDArray[np.int64]) -> TextColumn:
    """Return the texts at some ascending places, over the same buffer."""
    if len(at) == len(texts.starts):
        return TextColumn(texts)
    return TextColumn(Texts(texts.data, texts.starts[at], texts.ends[at]))


def account_prefixes(ids: Texts) -> Texts:
    """Return of each id of several parts the first with its `/`: that of its account.

    It is empty where there is no id, or one without a `/`.
    """
    slashes = np.append(np.flatnonzero(ids.data == ord("/")), len(ids.data))
    first = slashes[np.searchsorted(slashes, ids.starts)]
    return Texts(ids.data, ids.starts, np.where(first < ids.ends, first + 1, ids.starts))


def account_of(name: str) -> str | None:
    """Return how a deletion of its account names an id of several parts; see `account_id`."""
    first, slash, _ = name.partition("/")
    return f"{first}/{ACCOUNT_MARK}" if slash else None


def names_account(name: str) -> bool:
    """Return whether an id of several parts is that of an account's deletion."""
    return name.endswith(f"/{ACCOUNT_MARK}")


def place_name(partition: Partition, offset: int) -> str:
    """Return the name of a message without an id."""
    return f"{partition.topic}-{partition.partition}-{offset}"


def marked_ids(partition: Partition, ids: list[str | None]) -> list[str | None]:
    """Return ids so that none is the `place_name` of a message of the topic.

    An id that spells such a name gets `ID_MARK` before it, and so does one that would spell another
    id then. Without this a message could delete, or pass for, one that has no id.
    """
    # Hardly any batch holds such an id, and one search of all of them is cheap.
    if f"{partition.topic}-" not in "\0".join(filter(None, ids)):
        return ids
    is_place = _marked_place(partition.topic).fullmatch
    return [f"{ID_MARK}{name}" if name and is_place(name) else name for name in ids]


def id_named(partition: Partition, offset: int, name: str) -> str | None:
    """Return the id that a message's name stands for; None for the place of one without an id.

    It undoes what `marked_ids` does.
    """
    if name == place_name(partition, offset):
        return None
    is_marked = name.startswith(ID_MARK) and _marked_place(partition.topic).fullmatch(name)
    return name.removeprefix(ID_MARK) if is_marked else name


def _marked_place(topic: str) -> re.Pattern[str]:
    return re.compile(rf"{ID_MARK}*{re.escape(topic)}-[0-9]+-[0-9]+")


def names_of(messages: Messages, rows: NDArray[np.int64]) -> list[str]:
    """Return the ids of some messages as their metadata has them, without decoding it."""
    data, starts, ends = take_texts(messages.ids.texts, rows).texts
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    view = data.data
    found = [None if end < 0 else str(view[start:end], "utf-8") for start, end in bounds]
    offsets = messages.offsets[rows].tolist()
    return [
        place_name(messages.partition, offset) if name is None else name
        for name, offset in zip(marked_ids(messages.partition, found), offsets, strict=True)
    ]


def rows_of(column: Column, rows: NDArray[np.int64]) -> Column:
    """Return some rows of a column, given ascending, each once."""
    if len(rows) == len(column):
        return column
    return take_texts(column.texts, rows) if isinstance(column, TextColumn) else column[rows]


# ---- entries of the checkpoint: below `pipeline`, as sinks and statistics have some too ----------


class CheckpointEntry(msgspec.Struct, frozen=True):
    """What a component saves in the checkpoint beside model and positions: JSON values and arrays.

    In the file the values are a note, and the arrays have the entry's name before their own.
    """

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
    every = ((name, *each) for name, entry in entries.items() for each in entry.arrays.items())
    return {f"{name}/{array}": data for name, array, data in every}


def entries_of(
    values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> dict[str, CheckpointEntry]:
    """Return the entries of a file by name."""
    own: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in values}
    for path, array in arrays.items():
        name, _, rest = path.partition("/")
        own[name][rest] = array
    return {name: CheckpointEntry(given, own[name]) for name, given in values.items()}
