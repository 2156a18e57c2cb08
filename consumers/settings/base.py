"""What all sections of the configuration have in common."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

T = TypeVar("T")


class Section(BaseModel):
    """A part of the configuration: frozen, finite, and with no room for unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _before(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` where a number belongs, and take an empty section for its defaults."""
        field = cls.model_fields.get(info.field_name or "")
        annotation = None if field is None else field.annotation
        if isinstance(value, bool) and annotation in {int, float}:
            raise wrong("must be a number")  # Python would take true for 1 without a word
        if value is None and isinstance(annotation, type) and issubclass(annotation, Section):
            return {}  # every key below it is commented out
        return value


def wrong(text: str) -> PydanticCustomError:
    """Return the error to raise in a validator; `text` goes on where the key's path ends.

    Parameters
    ----------
    text : str
        For example ``must be at least 2 names``. The value that was found is added by the reader.

    Returns
    -------
    PydanticCustomError
        An error whose text reaches the user unchanged.
    """
    # The text goes in as a value, not as the template: braces in it are not to be filled.
    return PydanticCustomError("setting", "{text}", {"text": text})


def distinct(names: tuple[T, ...]) -> tuple[T, ...]:
    """Return `names` unchanged, or refuse them where one stands twice."""
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise wrong(f"must be distinct; {', '.join(map(repr, twice))} stands there more than once")
    return names
