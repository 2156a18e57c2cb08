"""Corrections as values, as lines of a log, and the errors if one is not taken.

All errors are a `CorrectionError`: `UnknownMessage`, `UnknownLabel` and `UnusableExample` tell of
the request; `NotReady`, `NotWritten` and `InDoubt` of the service and its log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from consumers.decode.json import is_too_deep
from consumers.errors import ConsumerError
from consumers.messages import (
    KnownClasses,
    Partition,
    RawColumns,
    Reason,
    Reject,
    first_few,
    part_name,
)


class CorrectionError(ConsumerError):
    """Root of what the service answers where it does not take a correction."""


class UnknownMessage(CorrectionError):  # noqa: N818 -- what was found, not what went wrong
    """No message of that id is among those that are kept."""


class UnknownLabel(CorrectionError):  # noqa: N818 -- as above
    """The label is none of the model's classes."""


class UnusableExample(CorrectionError):  # noqa: N818 -- as above
    """The example has a field that the model does not read, or a value that it cannot use."""


class NotReady(CorrectionError):  # noqa: N818 -- a state, named for what it is
    """Corrections cannot be taken at the moment; asking again later helps."""


class NotWritten(CorrectionError):  # noqa: N818 -- as above
    """The log did not take the correction, and nothing of it was kept."""


class InDoubt(CorrectionError):  # noqa: N818 -- as above
    """The log has not said in time whether it took the correction."""


_OFFSET_MAX = 2**63 - 1


class Correction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person said of one message.

    An example that came by itself has an id of its own and no place. In `example` a field that is
    missing says nothing.
    """

    kind: Literal["label", "delete"]
    id: str
    time_ms: int  # when it was said, in Unix milliseconds
    example: dict[str, Any] = {}  # the model's fields as the message was learned
    label: str | None = None  # None for a deletion
    was: str | None = None  # the class that it has taught so far; None where it taught nothing
    was_part: str | None = None  # the part that learned it: of the stream, or of the log itself
    partition: tuple[str, int] | None = None  # the message's own log
    offset: Annotated[int, msgspec.Meta(ge=-1, le=_OFFSET_MAX)] = -1
    # Whether the example was taken out of the log, as its message was deleted.
    gone: bool = False

    @property
    def place(self) -> Partition | None:
        """The message's own log; None where it has none."""
        return None if self.partition is None else Partition(*self.partition)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a log of corrections, read back; `said` is a reject where it is no correction.

    Reading goes on at `next_offset` once the line at `offset` has been applied.
    """

    partition: Partition
    offset: int
    next_offset: int
    said: Correction | Reject

    @property
    def part(self) -> str:
        """The part of the model that learns what is said here."""
        return part_name(self.partition)


def encode(correction: Correction) -> bytes:
    """Return a correction as one line of JSON, without its line end.

    Examples
    --------
    >>> encode(Correction("delete", "m7", 5, {"text": "so it goes"}))
    b'{"kind":"delete","id":"m7","time_ms":5,"example":{"text":"so it goes"}}'
    """
    return msgspec.json.encode(correction)


def decoded(line: bytes) -> Correction | None:
    """Return the correction of a line; None if it is none."""
    try:
        return msgspec.json.decode(line, type=Correction)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_json(line: bytes) -> bool:
    """Return whether a line is JSON, whatever it says."""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def without_example(correction: Correction) -> bytes:
    """Return a correction's line without its example; never longer than the line with it."""
    gone = correction.gone or bool(correction.example)
    return encode(msgspec.structs.replace(correction, example={}, gone=gone))


def entries(raw: RawColumns, classes: Sequence[str]) -> Iterator[Entry]:
    """Yield what the lines of a batch say, in their order.

    `classes` are the model's; those that may join may be taught too.
    """
    offsets, known = [*raw.offsets.tolist(), raw.next_offset], KnownClasses.of(classes)
    for i in range(len(raw)):
        yield Entry(raw.partition, offsets[i], offsets[i + 1], _said(raw, i, known))


def _said(raw: RawColumns, i: int, classes: KnownClasses) -> Correction | Reject:
    try:
        said = msgspec.json.decode(raw.value(i) or b"", type=Correction)
    except msgspec.ValidationError as error:
        return _refused(raw, i, Reason.WRONG_TYPE, f"it is no correction: {error}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _refused(raw, i, Reason.NOT_JSON, f"it is no correction: {error}")
    if is_too_deep(raw.value(i) or b""):
        return _refused(raw, i, Reason.NOT_JSON, "it is no correction: it is nested too deeply")
    fault = _contradiction(said)
    if fault is not None:
        return _refused(raw, i, Reason.WRONG_TYPE, fault, said.id)
    for label in (said.label, said.was):
        if label is not None and not classes.takes(label):
            detail = f"label {label!r:.200} is none of {first_few(classes)}"
            return _refused(raw, i, Reason.UNKNOWN_LABEL, detail, said.id)
    return said


def _contradiction(said: Correction) -> str | None:
    """Return how a correction contradicts itself; None if it does not."""
    if (said.label is None) != (said.kind == "delete"):
        return f"a {said.kind} has the label {said.label!r:.200}"
    if (said.was is None) != (said.was_part is None):
        return f"was {said.was!r:.200} and was_part {said.was_part!r:.200} belong together"
    return None


def _refused(
    raw: RawColumns, i: int, reason: Reason, detail: str, name: str | None = None
) -> Reject:
    """Return the reject that a line becomes."""
    return Reject(
        reason,
        detail,
        raw.partition,
        int(raw.offsets[i]),
        int(raw.times_ms[i]),
        raw.key(i),
        raw.value(i),
        name,
    )
