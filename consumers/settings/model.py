"""Settings of what is learned: classes, feature groups and their likelihoods."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from consumers.settings.base import Section, distinct, wrong

Prior = Annotated[float, Field(ge=0)]

NGRAM_MAX = 8  # what the tokeniser can do; runs of more words hardly ever come twice


class WordsSettings(Section):
    """A feature group of words."""

    kind: Literal["words"] = "words"
    likelihood: Literal["bernoulli", "multinomial"] = "multinomial"
    beta: tuple[Prior, Prior] = (1.0, 1.0)  # Bernoulli's prior (β₁, β₂)
    alpha: Prior = 1.0  # multinomial's prior
    counts: Literal["presence", "occurrence"] | None = "presence"  # None: by the likelihood
    ngrams: tuple[int, int] = (1, 2)
    negation: bool = True
    case_fold: bool = True
    fold_mentions: bool = True
    fold_links: bool = True
    squeeze: bool = True
    emoticons: bool = True
    max_words: int = Field(default=2_000_000, ge=1, lt=1 << 31)

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
        return self


class ModelSettings(Section):
    """What is learned."""

    classes: tuple[Annotated[str, Field(min_length=1)], ...] = ("negative", "positive")
    class_prior: Prior = 1.0  # Dirichlet α for every class
    features: dict[str, WordsSettings] = Field(default_factory=lambda: {"text": WordsSettings()})

    @field_validator("classes")
    @classmethod
    def _classes(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        if len(classes) < 2:
            raise wrong("must be at least 2 names")
        return distinct(classes)

    @field_validator("features")
    @classmethod
    def _features(cls, features: dict[str, WordsSettings]) -> dict[str, WordsSettings]:
        if not features:
            raise wrong("must hold at least one feature group")
        return features
