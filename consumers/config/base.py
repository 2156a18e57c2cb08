"""What all sections of the configuration have in common."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

T = TypeVar("T")

# The library's own bounds on numbers of a prior. They stand here again, as the library is slow to
# import, so that such a mistake is told with the file's others, by line and key.
LEAST, LARGEST = 1e-60, 1e60


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


def between(least: float, largest: float = LARGEST) -> AfterValidator:
    """Return the check of a number's size; pydantic's own would spell 1e60 out."""

    def check(value: float) -> float:
        if not least <= value <= largest:
            raise wrong(f"must be a number between {least:g} and {largest:g}")
        return value

    return AfterValidator(check)


def pseudo_count(value: float, whose: str = "") -> float:
    """Return a number of a prior, or refuse one of which sums and products may not be finite."""
    if value and not LEAST <= value <= LARGEST:
        raise wrong(f"must be 0, or a number between {LEAST:g} and {LARGEST:g}{whose}")
    return value


def distinct(names: tuple[T, ...]) -> tuple[T, ...]:
    """Return `names` unchanged, or refuse them where one stands twice."""
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise wrong(f"must be distinct; {', '.join(map(repr, twice))} stands there more than once")
    return names


def mark(kind: str) -> str:
    """Return the tag of one kind of section, which no user would take for a key.

    Pydantic puts it into the path of a mistake, where it is left out again.
    """
    return f"<{kind}>"
