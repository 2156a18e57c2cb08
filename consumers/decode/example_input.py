"""Examples that a person types: a text, fields by name, or a whole message.

A value given by name is read like a cell of CSV, a message as the daemon reads it. So an invalid
one is refused as a stream's message would be, in the same words.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, assert_never, get_args

import numpy as np

from consumers.config.message import MessageSettings
from consumers.config.model import FieldKind
from consumers.decode.decoder import Decoder
from consumers.decode.fields import DecodeError, FieldSpec, converter, field_specs
from consumers.decode.labels import NoLabels
from consumers.errors import QuestionError
from consumers.messages import Partition, RawColumns
from streamnb import NaiveBayes, Snapshot, TextColumn
from streamnb.inspection.summary import field_kinds

_ASKED = Partition("question", 0)
_WRITTEN_OUT_BELOW = 1e15  # whole numbers; larger ones keep their exponent


def kinds_in(model: NaiveBayes | Snapshot) -> dict[str, FieldKind]:
    """Return the fields that a model reads, with what they hold, as `kinds_of` does of settings.

    A group that no configuration can make is a `QuestionError`.
    """
    kinds: dict[str, FieldKind] = {}
    for field, kind in field_kinds(model.state).items():
        if kind not in get_args(FieldKind):
            raise QuestionError(
                f"the model's field {field!r} is of kind {kind!r}: ask it in Python"
            )
        kinds[field] = kind  # type: ignore[assignment]  # it is one of them
    return kinds


def with_text(kinds: Mapping[str, FieldKind], text: str) -> dict[str, Any]:
    """Return the example of a text, in the field of which the model reads words.

    If it reads no words, or those of several fields, that is a `QuestionError`.
    """
    field = text_field(kinds)
    if field is not None:
        return {field: text}
    if "words" not in kinds.values():
        raise QuestionError(f"the model reads no text; give its fields instead: {_known(kinds)}")
    raise QuestionError(f"the model reads several texts; name each: {_known(kinds)}")


def text_field(kinds: Mapping[str, FieldKind]) -> str | None:
    """Return the field for a text alone; None if there is none, or several.

    >>> text_field({"title": "words", "price": "numbers"})
    'title'
    """
    fields = [field for field, kind in kinds.items() if kind == "words"]
    if "text" in fields:
        return "text"
    return fields[0] if len(fields) == 1 else None


def with_fields(kinds: Mapping[str, FieldKind], given: Sequence[str]) -> dict[str, Any]:
    """Return the example of `NAME=VALUE` pairs; an empty value is missing.

    A pair that is malformed or repeated, a field that the model does not read, and an invalid value
    are a `QuestionError`.
    """
    reads = field_specs(kinds, MessageSettings())
    example: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise QuestionError(f"--set {pair!r} is not NAME=VALUE")
        if name in example:
            raise QuestionError(
                f"--set {name!r} is given twice; an example has one value of a field"
            )
        if name not in kinds:
            near = difflib.get_close_matches(name, kinds, n=1)
            guess = f"did you mean {near[0]!r}? Set" if near else "set"
            raise QuestionError(f"the model reads no field {name!r}; {guess} {_known(kinds)}")
        spec = reads.get(name)
        found = value if spec is None else _of_cell(spec._replace(path=name), value)
        example[name] = _shown(found, kinds[name])
    return example


def of_message(model: NaiveBayes, message: MessageSettings, text: str) -> dict[str, Any]:
    """Return the example in a message, decoded as the daemon does.

    If the daemon would reject it, or it has nothing to predict, that is a `QuestionError`.
    """
    kinds = kinds_in(model)
    decoder = Decoder(message, NoLabels([str(label) for label in model.classes]), reads=kinds)
    decoded = decoder.decode(_raw(text.encode("utf-8", "surrogateescape")))
    for reject in decoded.rejects:
        raise QuestionError(f"the message cannot be used ({reject.reason}): {reject.detail}")
    for reason in decoded.ignored:
        raise QuestionError(f"the message is ignored, by the condition {reason!r} of `message`")
    if not len(decoded.to_predict):
        raise QuestionError("the message is a deletion: there is nothing in it to judge")
    columns = decoded.fields | ({"text": decoded.texts} if "text" in kinds else {})
    return example_at(columns, kinds, 0)


def example_at(
    columns: Mapping[str, Any], kinds: Mapping[str, FieldKind], i: int
) -> dict[str, Any]:
    """Return entry `i` of decoded columns as an example, with values as people write them."""
    return {name: _shown(_entry(column, i), kinds[name]) for name, column in columns.items()}


def _known(kinds: Mapping[str, FieldKind]) -> str:
    """Return the options that set the fields."""
    return " ".join(f"--set {field}={_written_as(kind)}" for field, kind in kinds.items())


def _written_as(kind: FieldKind) -> str:
    match kind:
        case "words":
            return "TEXT"
        case "categories":
            return "VALUE"
        case "flags":
            return "true"
        case "numbers":
            return "NUMBER"
    assert_never(kind)


def _of_cell(spec: FieldSpec, value: str) -> Any:
    found = converter(spec, is_csv=True)(value or None)
    if isinstance(found, DecodeError):
        raise QuestionError(f"--set: {found.detail}")
    return found


def _raw(data: bytes) -> RawColumns:
    """Return a batch of one message."""
    zero, end = np.zeros(1, np.int64), np.full(1, len(data), np.int64)
    return RawColumns(_ASKED, data, zero, end, zero, zero - 1, zero, zero - 1, 1)


def _shown(value: Any, kind: FieldKind) -> Any:
    """Return a field's value as people write it; None if it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    match kind:
        case "words" | "categories":
            return value
        case "flags":
            return bool(value)
        case "numbers":
            return int(value) if value.is_integer() and abs(value) < _WRITTEN_OUT_BELOW else value
    assert_never(kind)


def _entry(column: Any, i: int) -> Any:
    """Return an entry of a column, None if it is missing."""
    if isinstance(column, TextColumn):
        data, starts, ends = column.texts
        return None if ends[i] < 0 else data[starts[i] : ends[i]].tobytes().decode()
    return float(column[i])
