"""Settings of what is in a message: its parts, and where its label comes from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PlainValidator, Tag, field_validator

from consumers.settings.base import Section, distinct, mark, wrong

# Of the recorded tweets; a model without a neutral class rejects those, and says so.
SENTIMENT140 = {"0": "negative", "2": "neutral", "4": "positive"}

# Parts of a message that a group may read by these names, wherever `message` says that they are.
MESSAGE_PARTS = ("text", "user", "lang")

FieldPath = Annotated[str, Field(min_length=1)]


def _one_or_several(value: Any) -> str | tuple[str, ...]:
    """Return a path, or several where a list has more than one."""
    paths = [value] if isinstance(value, str) else value
    is_list = isinstance(paths, list | tuple) and len(paths) > 0
    if not is_list or not all(isinstance(path, str) and path for path in paths):
        raise wrong("must be a field's name or path, or a list of them")
    return paths[0] if len(paths) == 1 else distinct(tuple(paths))


# A plain validator, as the mistakes of a union would be told once a member.
FieldPaths = Annotated[str | tuple[str, ...], PlainValidator(_one_or_several)]


class MessageSettings(Section):
    """Where in a message its parts are: a field's name, or a path such as `commit.record.text`.

    An id may be made of several fields, as `[did, commit.collection, commit.rkey]`; see
    `decode_fields.id_of`.
    """

    id: FieldPaths = "id"
    time: FieldPath = "created_at"
    user: FieldPath = "user"
    lang: FieldPath = "lang"
    text: FieldPath = "text"
    operation: FieldPath = "operation"
    fields: tuple[FieldPath, ...] = ()
    max_bytes: int = Field(default=1 << 20, ge=64)

    @property
    def id_paths(self) -> tuple[str, ...]:
        """The fields that make an id, in order."""
        return (self.id,) if isinstance(self.id, str) else self.id

    @field_validator("fields")
    @classmethod
    def _fields(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        return distinct(fields)


class FieldLabels(Section):
    """Labels stand in a field of the message."""

    kind: Literal["field"] = "field"
    field: FieldPath = "label"
    mapping: dict[str, str] = Field(default_factory=lambda: dict(SENTIMENT140))

    @field_validator("mapping", mode="before")
    @classmethod
    def _keys_are_text(cls, mapping: Any) -> Any:
        """Take a key that YAML reads as a whole number for the text it was written as."""
        if not isinstance(mapping, dict):
            return mapping
        if any(isinstance(key, bool) for key in mapping):
            raise wrong("has a key that YAML reads as true or false: put the key in quotes")
        return {str(key) if isinstance(key, int) else key: mapping[key] for key in mapping}


class EmoticonLabels(Section):
    """Labels are read off the emoticons, which then leave the text (Go, Bhayani and Huang 2009)."""

    kind: Literal["emoticons"] = "emoticons"
    signs: dict[str, tuple[str, ...]] = Field(
        default_factory=lambda: {
            "positive": (":)", ":-)", ": )", ":D", ":-D", "=)", "=D", ";)", ";-)"),
            "negative": (":(", ":-(", ": (", "=(", ":'("),
        }
    )

    @field_validator("signs")
    @classmethod
    def _signs(cls, signs: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        if any(not sign.strip() for own in signs.values() for sign in own):
            raise wrong("must not hold an empty sign: it would be found in every text")
        distinct(tuple(sign for own in signs.values() for sign in own))
        return signs


def _kind(labels: Any) -> Any:
    """Tell which labels are meant; they stand in a field unless `kind` says otherwise."""
    kind = (
        labels.get("kind", "field") if isinstance(labels, dict) else getattr(labels, "kind", None)
    )
    return mark(str(kind))


Labels = Annotated[
    Annotated[FieldLabels, Tag(mark("field"))] | Annotated[EmoticonLabels, Tag(mark("emoticons"))],
    Discriminator(
        _kind,
        custom_error_type="setting",
        custom_error_message="{text}",
        custom_error_context={"text": "must be a section whose kind is field or emoticons"},
    ),
]

LABELS: dict[str, type[Section]] = {"field": FieldLabels, "emoticons": EmoticonLabels}
