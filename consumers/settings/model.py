"""Settings of what is learned: classes, what is known of them beforehand, and feature groups."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from consumers.settings.base import Section, distinct, wrong
from consumers.settings.class_prior import ClassPrior, check_class_prior, wrong_classes
from consumers.settings.groups import FeatureSettings, WordsSettings


def _words_of_the_text() -> dict[str, FeatureSettings]:
    return {"text": WordsSettings()}


class ModelSettings(Section):
    """What is learned."""

    classes: tuple[Annotated[str, Field(min_length=1)], ...] = ("negative", "positive")
    new_classes: bool = False
    class_prior: ClassPrior = 1.0
    features: dict[str, FeatureSettings] = Field(default_factory=_words_of_the_text)

    @field_validator("classes")
    @classmethod
    def _classes(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        if len(classes) < 2:
            raise wrong("must be at least 2 names")
        return distinct(classes)

    @field_validator("class_prior", mode="plain")
    @classmethod
    def _class_prior(cls, value: Any) -> ClassPrior:
        return check_class_prior(value)

    @field_validator("features", mode="before")
    @classmethod
    def _empty_groups(cls, features: Any) -> Any:
        """Take a group whose keys are all commented out for one of words, with its defaults."""
        if not isinstance(features, dict):
            return features
        return {name: {} if group is None else group for name, group in features.items()}

    @field_validator("features")
    @classmethod
    def _features(cls, features: dict[str, FeatureSettings]) -> dict[str, FeatureSettings]:
        if not features:
            raise wrong("must hold at least one feature group")
        return features

    @model_validator(mode="after")
    def _prior_fits(self) -> Self:
        problems = list(wrong_classes(self.class_prior, self.classes))
        if problems:
            text = "; ".join(f"{'.'.join(map(str, path))} {said}" for path, said in problems)
            raise PydanticCustomError("setting", "{text}", {"text": text, "problems": problems})
        return self

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields that the groups read, in order."""
        return tuple(field for name, group in self.features.items() for field in group.reads(name))
