"""Settings of the groups of features: what is read of a message, as what, and under which prior.

A group's `kind` tells what its fields hold: words of a text, categories, flags or numbers. Each
kind has keys of its own; the library's class of the same name says what they mean.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from consumers.settings.base import (
    LARGEST,
    LEAST,
    Section,
    between,
    distinct,
    mark,
    pseudo_count,
    wrong,
)
from consumers.settings.content import FieldPath

Kind = Literal["words", "categories", "flags", "numbers"]
Prior = Annotated[float, AfterValidator(pseudo_count)]
Count = Annotated[float, between(LEAST)]
Mean = Annotated[float, between(-LARGEST)]

NGRAM_MAX = 8  # what the tokeniser can do; runs of more words hardly ever come twice


class GroupSettings(Section):
    """What all groups of features have in common."""

    kind: str
    fields: tuple[FieldPath, ...] = ()  # none: the field of the group's own name

    @field_validator("fields")
    @classmethod
    def _fields(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        return distinct(fields)

    def reads(self, name: str) -> tuple[str, ...]:
        """Return the fields that the group reads when it is called `name`."""
        return self.fields or (name,)


class WordsSettings(GroupSettings):
    """A feature group of words."""

    kind: Literal["words"] = "words"
    likelihood: Literal["bernoulli", "complement", "multinomial"] = "multinomial"
    beta: tuple[Prior, Prior] = (1.0, 1.0)  # Bernoulli's prior (β₁, β₂)
    alpha: Prior = 1.0  # multinomial's and complement's prior
    normalise: bool = False  # complement's weights, to one length a class
    counts: Literal["presence", "occurrence"] | None = "presence"  # None: by the likelihood
    ngrams: tuple[int, int] = (1, 2)
    negation: bool = True
    case_fold: bool = True
    fold_mentions: bool = True
    fold_links: bool = True
    squeeze: bool = True
    emoticons: bool = True
    max_words: int = Field(default=2_000_000, ge=1, lt=1 << 31)
    dictionary: tuple[Annotated[str, Field(min_length=1)], ...] | None = None  # None: it grows

    @field_validator("fields")
    @classmethod
    def _one_field(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        if len(fields) > 1:
            raise wrong("must name one field: each field of words is a group of its own")
        return fields

    @field_validator("dictionary")
    @classmethod
    def _dictionary(cls, words: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if words is not None and not words:
            raise wrong("must hold at least one word; null is a vocabulary that grows")
        return None if words is None else distinct(words)

    @field_validator("ngrams")
    @classmethod
    def _ngrams(cls, ngrams: tuple[int, int]) -> tuple[int, int]:
        shortest, longest = ngrams
        if not 1 <= shortest <= longest <= NGRAM_MAX:
            raise wrong(
                f"must be [shortest, longest] with 1 ≤ shortest ≤ longest ≤ {NGRAM_MAX}, in words"
            )
        return ngrams

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        if self.likelihood == "bernoulli" and self.counts == "occurrence":
            raise wrong(
                "counts must be presence (or null) with the bernoulli likelihood, which asks only "
                "whether a word is there; to count occurrences take the multinomial likelihood"
            )
        if self.likelihood == "complement" and self.alpha == 0:
            raise wrong(
                "alpha must be above 0 with the complement likelihood: a word that only one class "
                "has would weigh without end"
            )
        if self.normalise and self.likelihood != "complement":
            raise wrong(f"normalise is for the complement likelihood, not for {self.likelihood}")
        return self


class CategoriesSettings(GroupSettings):
    """A feature group of categories: fields that hold one of a few values each."""

    kind: Literal["categories"] = "categories"
    alpha: Prior = 1.0
    # The values of a field where they are known beforehand; of other fields they come as they come.
    values: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    max_values: int = Field(default=1_000_000, ge=1, lt=1 << 31)

    @field_validator("values", mode="before")
    @classmethod
    def _values_are_text(cls, values: Any) -> Any:
        """Take numbers, and true and false, for their JSON texts, as in a message."""
        if not isinstance(values, dict):
            return {} if values is None else values
        return {
            field: [_json_text(value) for value in own] if isinstance(own, list) else own
            for field, own in values.items()
        }

    @field_validator("values")
    @classmethod
    def _values(cls, values: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for field, own in values.items():
            if not own:
                raise wrong(f"must hold at least one value of {field!r}, or leave the field out")
            distinct(own)
        return values


class FlagsSettings(GroupSettings):
    """A feature group of flags: fields that are true or false."""

    kind: Literal["flags"] = "flags"
    beta: tuple[Prior, Prior] = (1.0, 1.0)  # (β₁, β₂): true, false
    absent_is_false: bool = False


class NumbersSettings(GroupSettings):
    """A feature group of numbers, each normally distributed within a class."""

    kind: Literal["numbers"] = "numbers"
    variance: Literal["own", "shared"] = "own"
    prior: Literal["floor", "normal-inverse-gamma"] = "floor"
    variance_floor: Annotated[float, between(0)] = 1e-9  # of the largest variance of all fields
    prior_mean: Mean | None = None  # None: the mean of all classes together
    prior_kappa: Count = 1.0
    prior_alpha: Count = 1.0
    prior_beta: Count | None = None  # None: from the variance of all classes together


def _json_text(value: Any) -> Any:
    """Return a value of YAML as the text that it has in JSON; what is none is left to be told."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return repr(value) if isinstance(value, int | float) else value


def _kind(group: Any) -> Any:
    """Tell which kind of group is meant; words unless `kind` says otherwise."""
    kind = group.get("kind", "words") if isinstance(group, dict) else getattr(group, "kind", None)
    return mark(str(kind))


FeatureSettings = Annotated[
    Annotated[WordsSettings, Tag(mark("words"))]
    | Annotated[CategoriesSettings, Tag(mark("categories"))]
    | Annotated[FlagsSettings, Tag(mark("flags"))]
    | Annotated[NumbersSettings, Tag(mark("numbers"))],
    Discriminator(
        _kind,
        custom_error_type="setting",
        custom_error_message="{text}",
        custom_error_context={
            "text": "must be a section whose kind is words, categories, flags or numbers"
        },
    ),
]

GROUPS: dict[str, type[GroupSettings]] = {
    "words": WordsSettings,
    "categories": CategoriesSettings,
    "flags": FlagsSettings,
    "numbers": NumbersSettings,
}
