"""What is learned: the groups of features, the model and its challengers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias, assert_never, cast

from pydantic import AfterValidator, Field, SecretStr, Tag, field_validator, model_validator
from pydantic_core import PydanticCustomError

from consumers.config.sections import (
    COUNT_MAX,
    LARGEST,
    LEAST,
    ClassPriorSetting,
    FieldPath,
    PseudoCount,
    Section,
    at_least,
    by_kind,
    check_class_prior,
    distinct,
    mark,
    wrong,
    wrong_classes,
    wrong_costs,
    wrong_prior_half_life,
)
from consumers.messages import first_few
from streamnb.errors import InputError
from streamnb.features.category_values import Bins, check_bins
from streamnb.tokenizer import CHARACTERS_MAX, GAP_MAX, NGRAM_MAX


def wrong_priors(
    where: tuple[str | int, ...],
    group: GroupSettings,
    classes: tuple[str, ...],
    *,
    new_classes: bool,
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find classes that a group's priors name and the model lacks, and the other way round."""
    for key in ("alpha_by_class", "beta_by_class"):
        priors, path = getattr(group, key, None), (*where, key)
        if priors is None:
            continue
        if set(priors) != set(classes):
            yield path, f"must name every class of model.classes: {', '.join(map(repr, classes))}"
        if new_classes:
            yield path, "must be null with new_classes: a class that joins would have none"


FieldKind = Literal["words", "categories", "flags", "numbers"]  # what a field holds
NamedAlphas: TypeAlias = dict[str, PseudoCount] | None
NamedBetas: TypeAlias = dict[str, tuple[PseudoCount, PseudoCount]] | None
Count = Annotated[float, at_least(LEAST)]
HalfLifeSeconds = Annotated[float, Field(ge=1, le=1e9)] | None
PriorHalfLife = Annotated[float, Field(ge=0, le=1e9)] | None
Mean = Annotated[float, at_least(-LARGEST)]

_PRIORS_BY = ("alpha_by_class", "beta_by_class", "alpha_by_value", "beta_by_field")
# Options of words that may be left to the state folder.
READING = ("punctuation", "ends", "entities", "compose")


def holds_floats(kind: FieldKind) -> bool:
    """Return whether a column of a kind holds floats; one of another kind holds texts."""
    match kind:
        case "flags" | "numbers":
            return True
        case "words" | "categories":
            return False
    assert_never(kind)


class GroupSettings(Section):
    """What all groups of features have in common."""

    kind: str
    # None: the field of the group's own name.
    fields: Annotated[tuple[FieldPath, ...], AfterValidator(distinct)] = ()

    def reads(self, name: str) -> tuple[str, ...]:
        """Return the fields that the group reads when it is called `name`."""
        return self.fields or (name,)

    @property
    def holds(self) -> FieldKind:
        """What the group's fields hold, as a message is read."""
        return cast("FieldKind", self.kind)

    @model_validator(mode="after")
    def _one_prior(self) -> Self:
        """Refuse priors by two things at once."""
        given = [key for key in _PRIORS_BY if getattr(self, key, None) is not None]
        if len(given) > 1:
            raise wrong(f"{' and '.join(given)} must not both be given: a prior differs by one")
        return self


class WordsSettings(GroupSettings):
    """A feature group of words."""

    kind: Literal["words"] = "words"
    likelihood: Literal["bernoulli", "complement", "multinomial"] = "multinomial"
    beta: tuple[PseudoCount, PseudoCount] = (1.0, 1.0)  # Bernoulli's prior (β₁, β₂)
    beta_by_class: NamedBetas = None  # None: `beta` for all classes
    alpha: PseudoCount = 1.0  # multinomial's and complement's prior
    alpha_by_class: NamedAlphas = None  # None: `alpha` for all classes
    alpha_by_value: NamedAlphas = None  # of words of the dictionary; others have `alpha`
    normalise: bool = False  # complement's weights, to one length a class
    counts: Literal["presence", "occurrence"] | None = "presence"  # None: by the likelihood
    ngrams: tuple[int, int] = (1, 2)
    negation: bool = True
    case_fold: bool = True
    fold_mentions: bool = True
    fold_links: bool = True
    squeeze: bool = True
    emoticons: bool = True
    # None, of these four: as the state folder reads, in a new one on beside the multinomial.
    punctuation: bool | None = None  # commas, and runs of `!`, `?` and dots, as words
    ends: bool | None = None  # a text's beginning and end stand in its n-grams
    entities: bool | None = None  # HTML's character references are undone
    compose: bool | None = None  # texts are brought to Unicode's normal form C
    gap: int = Field(default=0, ge=0, le=GAP_MAX)  # words between those of a pair
    characters: tuple[int, int] | None = None  # n-grams of characters inside words
    max_words: int = Field(default=2_000_000, ge=1, lt=1 << 31)
    dictionary: tuple[Annotated[str, Field(min_length=1)], ...] | None = None  # None: it grows
    hybrid: bool = True  # weights learned beside the multinomial's counts; others have none

    @model_validator(mode="before")
    @classmethod
    def _hybrid_by_likelihood(cls, values: Any) -> Any:
        """Leave the hybrid out beside another likelihood, if it is not asked for."""
        if isinstance(values, dict) and values.get("likelihood", "multinomial") != "multinomial":
            return {"hybrid": False} | values
        return values

    def reading(self) -> dict[str, bool]:
        """Return the options of `READING` as a model without a state folder has them."""
        is_on = self.likelihood == "multinomial"
        default = dict.fromkeys(READING, is_on) | {"ends": is_on and self.ngrams[1] > 1}
        named = {name: getattr(self, name) for name in READING}
        return default | {name: value for name, value in named.items() if value is not None}

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

    @field_validator("characters")
    @classmethod
    def _characters(cls, sizes: tuple[int, int] | None) -> tuple[int, int] | None:
        if sizes is not None and not 2 <= sizes[0] <= sizes[1] <= CHARACTERS_MAX:
            raise wrong(
                f"must be null or [shortest, longest] with 2 ≤ shortest ≤ longest ≤"
                f" {CHARACTERS_MAX}, in characters"
            )
        return sizes

    @model_validator(mode="after")
    def _ends_fit(self) -> Self:
        if self.ends and self.ngrams[1] == 1:
            raise wrong(
                "ends lets a text's beginning and end stand in its runs of words: with it take "
                "ngrams of two words or more, as [1, 2]"
            )
        return self

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        if self.likelihood == "bernoulli" and self.counts == "occurrence":
            raise wrong(
                "counts must be presence (or null) with the bernoulli likelihood, which asks only "
                "whether a word is there; to count occurrences take the multinomial likelihood"
            )
        alphas = [self.alpha, *(self.alpha_by_class or {}).values()]
        if self.likelihood == "complement" and not all(alphas):
            raise wrong(
                "alpha must be above 0 with the complement likelihood: a word that only one class "
                "has would weigh without end"
            )
        is_beta = self.likelihood == "bernoulli"
        unused = ("alpha_by_class", "alpha_by_value") if is_beta else ("beta_by_class",)
        for key in unused:
            if getattr(self, key) is not None:
                raise wrong(f"{key} is no prior of the {self.likelihood} likelihood")
        if self.alpha_by_value is not None and self.likelihood != "multinomial":
            raise wrong("alpha_by_value is for the multinomial likelihood")
        check_named(self.alpha_by_value, self.dictionary, "the dictionary")
        if self.normalise and self.likelihood != "complement":
            raise wrong(f"normalise is for the complement likelihood, not for {self.likelihood}")
        if self.hybrid and self.likelihood != "multinomial":
            raise wrong(
                "hybrid corrects the multinomial likelihood: with the "
                f"{self.likelihood} one it must be false"
            )
        return self


class CategoriesSettings(GroupSettings):
    """A feature group of categories: fields that hold one of a few values each."""

    kind: Literal["categories"] = "categories"
    alpha: PseudoCount = 1.0
    alpha_by_class: NamedAlphas = None  # None: `alpha` for all classes
    alpha_by_value: NamedAlphas = (
        None  # of values of the one field that there is; others have `alpha`
    )
    # The values of a field where they are known beforehand; of other fields they come as they come.
    values: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    max_values: int = Field(default=1_000_000, ge=1, lt=1 << 31)
    # Numbers by the bin that they lie in: a step in arsinh, or edges that rise.
    bins: Any = None

    @property
    def holds(self) -> FieldKind:
        """What the group's fields hold: numbers, if they are put in bins."""
        return "categories" if self.bins is None else "numbers"

    @field_validator("bins", mode="plain")
    @classmethod
    def _bins(cls, bins: Any) -> Bins:
        """Return bins as the library takes them: text of a variable and a list's are numbers."""
        edges = [_number_in(each) for each in bins] if isinstance(bins, list) else bins
        try:
            return check_bins(_number_in(edges))
        except InputError:
            raise wrong("must be null, a step from 0.01 to 10, or numbers that rise") from None

    @model_validator(mode="after")
    def _bins_fit(self) -> Self:
        if self.bins is not None and (self.values or self.alpha_by_value):
            raise wrong("bins have values of their own: leave out values and alpha_by_value")
        return self

    @model_validator(mode="after")
    def _values_have_priors(self) -> Self:
        known = next(iter(self.values.values())) if len(self.values) == 1 else None
        if self.alpha_by_value is not None and len(self.fields) > 1:
            raise wrong("alpha_by_value is for a group of one field: make one for each")
        check_named(self.alpha_by_value, known, "values")
        return self

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
    beta: tuple[PseudoCount, PseudoCount] = (1.0, 1.0)  # (β₁, β₂): true, false
    beta_by_class: NamedBetas = None  # None: `beta` for all classes
    beta_by_field: NamedBetas = None  # others of the group's fields have `beta`
    absent_is_false: bool = False

    @model_validator(mode="after")
    def _fields_have_priors(self) -> Self:
        check_named(self.beta_by_field, self.fields or None, "fields", "beta_by_field")
        return self


class NumbersSettings(GroupSettings):
    """A feature group of numbers, each normally distributed within a class."""

    kind: Literal["numbers"] = "numbers"
    variance: Literal["own", "shared"] = "own"
    prior: Literal["floor", "normal-inverse-gamma"] = "floor"
    variance_floor: Annotated[float, at_least(0)] = 1e-9  # of the largest variance of all fields
    prior_mean: Mean | None = None  # None: the mean of all classes together
    prior_kappa: Count = 1.0
    prior_alpha: Count = 1.0
    prior_beta: Count | None = None  # None: from the variance of all classes together


def check_named(
    priors: Mapping[str, Any] | None,
    known: tuple[str, ...] | None,
    where: str,
    key: str = "alpha_by_value",
) -> None:
    """Refuse priors by name, of something that is not declared."""
    if priors is None:
        return
    if known is None:
        raise wrong(f"{key} needs {where}: what has a prior of its own must be known beforehand")
    unknown = [name for name in priors if name not in known]
    if unknown:
        raise wrong(f"{key} names {first_few(unknown)}, which is not in {where}")


def _json_text(value: Any) -> Any:
    """Return a flag or number of YAML as the text that it has in JSON, anything else as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return repr(value) if isinstance(value, int | float) else value


FeatureSettings = Annotated[
    Annotated[WordsSettings, Tag(mark("words"))]
    | Annotated[CategoriesSettings, Tag(mark("categories"))]
    | Annotated[FlagsSettings, Tag(mark("flags"))]
    | Annotated[NumbersSettings, Tag(mark("numbers"))],
    by_kind("words", "must be a section whose kind is words, categories, flags or numbers"),
]

GROUPS: dict[str, type[GroupSettings]] = {
    "words": WordsSettings,
    "categories": CategoriesSettings,
    "flags": FlagsSettings,
    "numbers": NumbersSettings,
}


def _words_of_the_text() -> dict[str, FeatureSettings]:
    return {"text": WordsSettings()}


def _empty_groups(features: Any) -> Any:
    """Take a group whose keys are all commented out for one of words, with its defaults."""
    if not isinstance(features, dict):
        return features
    return {name: {} if group is None else group for name, group in features.items()}


def _some_group(features: dict[str, FeatureSettings] | None) -> dict[str, FeatureSettings] | None:
    if features is not None and not features:
        raise wrong("must hold at least one feature group")
    return features


class ModelSettings(Section):
    """What is learned."""

    classes: tuple[Annotated[str, Field(min_length=1)], ...] = ("negative", "positive")
    new_classes: bool = False
    class_prior: ClassPriorSetting = 1.0
    prior_half_life: PriorHalfLife = None  # in examples of a partition; None and 0: all count
    features: dict[str, FeatureSettings] = Field(default_factory=_words_of_the_text)
    half_life_s: HalfLifeSeconds = None  # None: nothing is forgotten
    calibration: bool = False
    coverage: float | None = Field(default=None, ge=0.5, le=0.999)  # None: no prediction sets
    # By true class, what it costs to say another one; None: the likeliest class is decided for.
    costs: dict[str, dict[str, Annotated[float, at_least(0)]]] | None = None
    hash_key: SecretStr | None = None  # None: drawn at random

    @field_validator("hash_key")
    @classmethod
    def _hash_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not re.fullmatch("[0-9a-fA-F]{1,32}", key.get_secret_value()):
            raise wrong("must be 1 to 32 hexadecimal digits, in quotes")
        return key

    @field_validator("classes")
    @classmethod
    def _classes(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        if len(classes) < 2:
            raise wrong("must be at least 2 names")
        return distinct(classes)

    @field_validator("class_prior", mode="plain")
    @classmethod
    def _class_prior(cls, value: Any) -> ClassPriorSetting:
        return check_class_prior(value)

    _features_may_be_empty = field_validator("features", mode="before")(_empty_groups)
    _features_are_some = field_validator("features")(_some_group)

    @model_validator(mode="after")
    def _prior_fits(self) -> Self:
        problems = list(wrong_classes(self.class_prior, self.classes))
        for where, text in wrong_prior_half_life(self.class_prior, self.prior_half_life):
            problems.append((("model", *where), text))
        if self.new_classes and isinstance(self.class_prior, dict):
            text = "must be one number with new_classes: a class that joins would have none"
            problems.append((("model", "class_prior"), text))
        for name, group in self.features.items():
            here = ("model", "features", name)
            problems += wrong_priors(here, group, self.classes, new_classes=self.new_classes)
        problems += wrong_costs(self.costs, self.classes)
        if self.new_classes and self.costs is not None:
            text = "must be null with new_classes: a class that joins would have none"
            problems.append((("model", "costs"), text))
        if problems:
            text = "; ".join(f"{'.'.join(map(str, path))} {said}" for path, said in problems)
            raise PydanticCustomError("setting", "{text}", {"text": text, "problems": problems})
        return self

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields that the groups read, in order."""
        return tuple(field for name, group in self.features.items() for field in group.reads(name))


# ---- challengers ---------------------------------------------------------------------------------

MODEL = "model"  # the name of the model of the settings among its challengers
CHALLENGERS_MAX = 8


class ChallengerSettings(Section):
    """A model that learns beside the one that answers; what it leaves out is as in `model`."""

    class_prior: ClassPriorSetting | None = None
    prior_half_life: PriorHalfLife = None
    features: dict[str, FeatureSettings] | None = None
    half_life_s: HalfLifeSeconds = None
    calibration: bool | None = None

    @field_validator("class_prior", mode="plain")
    @classmethod
    def _class_prior(cls, value: Any) -> ClassPriorSetting | None:
        return None if value is None else check_class_prior(value)

    _features_may_be_empty = field_validator("features", mode="before")(_empty_groups)
    _features_are_some = field_validator("features")(_some_group)

    def beside(self, model: ModelSettings) -> ModelSettings:
        """Return the whole model section of the challenger."""
        own = {name: getattr(self, name) for name in type(self).model_fields}
        return model.model_copy(
            update={name: value for name, value in own.items() if value is not None}
        )


def _number_in(value: Any) -> Any:
    """Return the number that a text spells; anything else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


class PromotionSettings(Section):
    """When a challenger answers in the place of the model that does."""

    action: Literal["none", "say", "promote"] = "say"
    examples: int = Field(default=10_000, ge=1, le=COUNT_MAX)  # labelled messages of a block
    margin_nats: float = Field(default=0.01, ge=0, le=COUNT_MAX)  # of a block's mean log-loss


def with_groups_of(model: Any, challengers: Any) -> Any:
    """Complete challengers, as a file has them, by the groups that `model` has of the same names.

    A group of another kind begins from its own defaults, and so does `hybrid` with another
    likelihood.
    """
    known = model.get("features") if isinstance(model, dict) else None
    if not isinstance(challengers, dict) or not isinstance(known, dict):
        return challengers
    return {
        name: each | {"features": _completed(each["features"], known)}
        if isinstance(each, dict) and isinstance(each.get("features"), dict)
        else each
        for name, each in challengers.items()
    }


def _completed(features: dict[Any, Any], known: dict[Any, Any]) -> dict[Any, Any]:
    whole = {}
    for name, given in features.items():
        own, base = given or {}, known.get(name) or {}
        if not (isinstance(own, dict) and isinstance(base, dict)):
            whole[name] = given
            continue
        kind = base.get("kind", "words")
        base = dict(base) if own.get("kind", kind) == kind else {}
        likelihood = base.get("likelihood", "multinomial")  # the default of `WordsSettings`
        if own.get("likelihood", likelihood) != likelihood:
            base.pop("hybrid", None)
        whole[name] = base | own
    return whole
