"""Sections of the configuration, and what all sections have in common.

Those of sources and outputs stand in `addresses.py`, those of messages and the model in
`message.py` and `model.py`.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

T = TypeVar("T")

# The library's own bounds on numbers of a prior. They stand here again, as the library is slow to
# import, so that such a mistake is told with the file's others, by line and key.
LEAST, LARGEST = 1e-60, 1e60
# The largest time and count of a setting that needs no smaller bound: 126 years, as a thread cannot
# wait for more than 292, and a number that 32 bits hold.
SECONDS_MAX, COUNT_MAX = 4e9, 1_000_000_000


class Section(BaseModel):
    """A part of the configuration: frozen, finite, and with no room for unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _before(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` where a number belongs, and take an empty section for its defaults."""
        field = cls.model_fields.get(info.field_name or "")
        annotation = None if field is None else field.annotation
        given = value if isinstance(value, list) else [value]
        if bool in map(type, given) and not _kinds(annotation) - {int, float, NoneType}:
            raise wrong("must be a number")  # Python would take true for 1 without a word
        if value is None and isinstance(annotation, type) and issubclass(annotation, Section):
            return {}  # every key below it is commented out
        return value


def _kinds(annotation: Any) -> set[Any]:
    """Return the types that a value may be of."""
    origin, args = get_origin(annotation), get_args(annotation)
    inner = {Annotated: args[:1], Union: args, UnionType: args, tuple: args}.get(origin, ())
    return {kind for each in inner for kind in _kinds(each)} or {annotation}


def wrong(text: str) -> PydanticCustomError:
    """Return the error to raise in a validator; `text` goes on where the key's path ends.

    It reaches the user unchanged, and the value that was found is added.
    """
    # The text goes in as a value, not as the template: braces in it are not to be filled.
    return PydanticCustomError("setting", "{text}", {"text": text})


def at_least(least: float) -> WrapValidator:
    """Return the check of a number up to `LARGEST`; pydantic's own would spell 1e60 out."""

    def check(value: Any, parse: Callable[[Any], float]) -> float:
        number = parse(value)
        if isinstance(value, bool) or not least <= number <= LARGEST:
            raise wrong(f"must be a number between {least:g} and {LARGEST:g}")
        return number

    return WrapValidator(check)


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


def by_kind(default: str, text: str) -> Discriminator:
    """Return what picks a section by its `kind`; `text` says what is wrong with any other value."""

    def kind_of(value: Any) -> str:
        is_section = isinstance(value, dict)
        kind = value.get("kind", default) if is_section else getattr(value, "kind", None)
        # Aliases can make a list whose text has no end.
        return mark(str(kind) if isinstance(kind, str | int | float | None) else "")

    return Discriminator(
        kind_of,
        custom_error_type="setting",
        custom_error_message="{text}",
        custom_error_context={"text": text},
    )


def parsed_by(parse: Callable[[Any], object]) -> AfterValidator:
    """Return the check that a value can be parsed, whose `ValueError` says what is wrong."""

    def check(value: T) -> T:
        parse(value)
        return value

    return AfterValidator(check)


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file that holds a secret, as Kubernetes and systemd mount them; it is shown by its path."""

    path: Path
    secret: SecretStr = field(repr=False)


SECRET_FILE_BYTES_MAX = 4096


def _secret_in(value: Any) -> SecretFile:
    """Read a secret from the file of that path; the line end of an editor does not belong to it."""
    if isinstance(value, SecretFile):
        return value
    if not isinstance(value, str | Path) or not str(value):
        raise wrong("must be the path of a file that holds the secret")
    path = Path(value)
    try:
        with path.open("rb") as file:
            content = file.read(SECRET_FILE_BYTES_MAX + 1)
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise wrong("must be a file of UTF-8 text") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise wrong(f"must be a file that this user can read ({why})") from None
    if len(content) > SECRET_FILE_BYTES_MAX:
        raise wrong(f"must be a file of at most {SECRET_FILE_BYTES_MAX} bytes: the secret alone")
    if not text or "\n" in text or "\0" in text:
        raise wrong("must be a file with the secret alone, in one line; its content is not shown")
    return SecretFile(path, SecretStr(text))


SecretPath = Annotated[
    SecretFile, PlainValidator(_secret_in), PlainSerializer(lambda file: str(file.path))
]


def one_secret(section: Section, key: str) -> str | None:
    """Return a secret, whether `key` or the file that `key_file` names brings it."""
    given: SecretStr | None = getattr(section, key)
    file: SecretFile | None = getattr(section, f"{key}_file")
    if given is not None and file is not None:
        raise wrong(f"{key} and {key}_file are both given; keep one")
    secret = given if file is None else file.secret
    return None if secret is None else secret.get_secret_value()


FieldPath = Annotated[str, Field(min_length=1)]


TOKEN_CHARACTERS_MIN = 16
PORT = "(0*[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST_NAME = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
Origin = Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9._:\[\]-]+$")]
_WEBHOOK = re.compile(rf"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:{PORT})?([/?][!-~]*)?")
ASCII = re.compile("[!-~]([ -~]*[!-~])?")  # that an HTTP header may have, in one line


class LearningSettings(Section):
    """When the world sees what was learned."""

    publish: Literal["interval", "examples"] = "interval"
    publish_interval_s: float = Field(default=0.1, gt=0, le=SECONDS_MAX)
    publish_share_max: float = Field(default=0.1, gt=0, le=1)
    publish_examples: int = Field(default=1_000, ge=1, le=COUNT_MAX)
    window: int = Field(default=10_000, ge=1, le=10_000_000)  # examples of the prequential window


class DriftSettings(Section):
    """Alarms when log-losses grow, and the words that moved."""

    enabled: bool = False
    alpha: float = Field(default=0.001, gt=0, lt=1)
    tolerance: float = Field(default=0.0, ge=0, le=0.4)
    words_after: int = Field(default=4_000, ge=1, le=COUNT_MAX)  # labelled messages
    reaction: Literal["none", "relearn", "compare"] = "relearn"  # soon after an alarm


class AlertSettings(Section):
    """Alerts when a class's share of the messages of a query rises."""

    queries: tuple[str, ...] = Field(default=(), max_length=20)  # as in the search box; "" is all
    window_s: float = Field(default=300.0, ge=10, le=86_400)
    before_s: float = Field(default=3_600.0, ge=10, le=864_000)  # the time compared with
    rise_min: float = Field(default=0.1, gt=0, lt=1)
    webhook: SecretStr | None = None  # only by ${NAME} from the environment
    timeout_s: float = Field(default=10.0, gt=0, le=60)  # of one delivery

    @field_validator("webhook")
    @classmethod
    def _is_address(cls, webhook: SecretStr | None) -> SecretStr | None:
        if webhook is not None and not _WEBHOOK.fullmatch(webhook.get_secret_value()):
            raise wrong("must be an address as https://HOST:PORT/PATH, no login, PORT up to 65535")
        return webhook


class CheckpointSettings(Section):
    """Where model and stream positions are kept, as one file."""

    folder: Path | None = Path("state")  # null: keep nothing
    interval_s: float = Field(default=10.0, gt=0, le=SECONDS_MAX)
    keep: int = Field(default=3, ge=1, le=COUNT_MAX)


class SharedSettings(Section):
    """What the members of a consumer group share: each knows the whole model by it."""

    folder: Path | None = None  # null: each member knows its own partitions' part alone
    interval_s: float = Field(default=5.0, gt=0, le=SECONDS_MAX)
    keep: int = Field(default=3, ge=1, le=COUNT_MAX)


class LearnedSettings(Section):
    """The memory of what each message taught, for the stream's deletes and updates."""

    messages_max: int = Field(default=1_000_000, ge=0, le=COUNT_MAX)  # of a partition; 0: nothing


VALUE_BYTES_MAX = 64  # of a value of `per.field`; a longer one has no model of its own


class PerSettings(Section):
    """A model of its own for each value of a field, beside the one that learns everything."""

    field: str | None = Field(default=None, min_length=1)  # lang, user or a path; None: one model
    values: tuple[Annotated[str, Field(min_length=1)], ...] = Field(default=(), max_length=64)
    most: int = Field(default=8, ge=1, le=64)  # without `values`: the first so many
    examples_min: int = Field(default=200, ge=1, le=COUNT_MAX)  # below it the shared model answers
    prior_examples: float = Field(default=0.0, ge=0, le=1e9)  # that the shared one counts as


def wrong_values(field: str, values: Sequence[str]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find values of `per.field` that no message has: their models would never begin."""
    for k, value in enumerate(values):
        here = ("per", "values", k)
        main = value.lower().replace("_", "-").partition("-")[0]
        if len(value.encode()) > VALUE_BYTES_MAX:
            yield here, f"has more than {VALUE_BYTES_MAX} bytes; such a value has no model"
        elif field == "lang" and main == "und":
            yield here, "is an unknown language, which has no model"
        elif field == "lang" and value != main:
            yield here, f"must be {main!r}: of a language the first part counts, in small letters"


class PredictorSettings(Section):
    """The thread that judges what has no label."""

    queue_size_max: int = Field(default=64, ge=1, le=COUNT_MAX)  # batches


class RecentSettings(Section):
    """The newest messages, kept to be searched."""

    enabled: bool = True
    messages_max: int = Field(default=1_000_000, ge=1_000, le=COUNT_MAX)
    age_max_s: float = Field(default=86_400.0, gt=0, le=SECONDS_MAX)
    rate_max_per_s: float = Field(default=5_000.0, gt=0, le=COUNT_MAX)  # above it a sample is kept
    # Of a core, for storing what comes faster than a thousand messages a second: a sample of it.
    processor_share_max: float = Field(default=0.01, gt=0, le=1)


class HistorySettings(Section):
    """Counts of all messages over time, beside the newest; so many steps that have messages."""

    enabled: bool = True
    minutes_max: int = Field(default=2_880, ge=60, le=100_000)
    hours_max: int = Field(default=2_400, ge=24, le=100_000)
    days_max: int = Field(default=3_650, ge=1, le=100_000)
    words_max: int = Field(default=1_000, ge=0, le=10_000)  # of each step; 0: none are counted


class LabellingSettings(Section):
    """Which messages people are asked to label."""

    enabled: bool = False
    per_day: int = Field(default=50, ge=1, le=10_000)  # messages of a day, by their own times
    keep: int = Field(default=200, ge=1, le=10_000)  # that wait at most, of all days
    random_share: float = Field(default=0.2, ge=0, le=1)  # of a day's messages


class HttpSettings(Section):
    """The page, the API, metrics and health over HTTP."""

    enabled: bool = True
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8100, ge=0, le=65_535)  # 0: a free one
    allowed_hosts: tuple[str, ...] = ()  # besides localhost, IP addresses and `host`
    allowed_origins: tuple[Origin, ...] = ()  # pages of other sites that may ask
    embed_sites: tuple[Origin, ...] = ()  # that may frame /embed
    token: SecretStr | None = None  # only by ${NAME} from the environment
    token_file: SecretPath | None = None
    snapshots: bool = False  # handed out to replicas, which are whole models
    snapshot_interval_s: float = Field(default=0.0, ge=0, le=60)  # one for all; 0: the newest
    body_bytes_max: int = Field(default=2 << 20, ge=1024, le=COUNT_MAX)
    request_timeout_s: float = Field(default=10.0, gt=0, le=SECONDS_MAX)
    connections_max: int = Field(default=1_000, ge=1, le=COUNT_MAX)
    stuck_after_s: float = Field(default=30.0, gt=0, le=SECONDS_MAX)

    @field_validator("allowed_hosts")
    @classmethod
    def _allowed_hosts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST_NAME.fullmatch(name):
                raise wrong(
                    "must hold names as they stand in an address, without scheme and port, such as "
                    f"streamnb.example.org, *.example.org for all below one, or *, not {name!r}"
                )
        return distinct(names)

    @field_validator("token")
    @classmethod
    def _token_is_long(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None:
            _check_token(token.get_secret_value())
        return token

    @field_validator("token_file")
    @classmethod
    def _token_in_file_is_long(cls, file: SecretFile | None) -> SecretFile | None:
        if file is not None:
            _check_token(file.secret.get_secret_value())
        return file

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        _ = self.bearer_token  # only one of the two may be given
        return self

    @property
    def bearer_token(self) -> str | None:
        """The token, wherever it comes from."""
        return one_secret(self, "token")


def _check_token(token: str) -> None:
    if len(token) < TOKEN_CHARACTERS_MIN:
        raise wrong(
            f"must have at least {TOKEN_CHARACTERS_MIN} characters, such as those of "
            "`openssl rand -hex 16`"
        )
    if not ASCII.fullmatch(token):
        raise wrong(
            "must be of letters, digits and signs of ASCII, without blanks around them: others "
            "reach an HTTP header in one encoding or another. `openssl rand -hex 16` makes one"
        )


class FollowSettings(Section):
    """How a replica follows a model (`streamnb serve --follow`)."""

    interval_s: float = Field(default=0.2, ge=0.01, le=3600)  # from one look to the next
    timeout_s: float = Field(default=10.0, gt=0, le=3600)  # for a version to come whole
    stale_after_s: float = Field(default=60.0, gt=0, le=SECONDS_MAX)  # until it is not ready
    switch_after_s: float = Field(default=0.0, ge=0, le=60)  # from an interval's begin; 0: at once


# ---- priors --------------------------------------------------------------------------------------

# There are three ways to write what is known of the classes beforehand: `1.0` is a Dirichlet α for
# every class, `{approve: 3, reject: 7}` one for each, and `{fixed: {approve: 0.3, reject: 0.7}}`
# are probabilities that no message moves.

ClassPriorSetting: TypeAlias = float | dict[str, float] | dict[str, dict[str, float]]

FIXED = "fixed"
_SUM_ERROR_MAX = 1e-9
_FORMS = "must be a number of at least 0, one for each class, or fixed: with their probabilities"


def pseudo_count(value: float, whose: str = "") -> float:
    """Return a number of a prior, or refuse one of which sums and products may not be finite."""
    if value and not LEAST <= value <= LARGEST:
        raise wrong(f"must be 0, or a number between {LEAST:g} and {LARGEST:g}{whose}")
    return value


PseudoCount = Annotated[float, AfterValidator(pseudo_count)]


def check_class_prior(value: Any) -> ClassPriorSetting:
    """Return a class prior as it is meant, or refuse it."""
    if not isinstance(value, Mapping):
        return pseudo_count(_number(value, ""))
    fixed = value.get(FIXED)
    if set(value) == {FIXED} and isinstance(fixed, Mapping):
        made = {str(name): _number(p, f" for {name}") for name, p in fixed.items()}
        if abs(math.fsum(made.values()) - 1.0) > _SUM_ERROR_MAX:
            raise wrong(
                f"must hold probabilities that add up to 1, not to {math.fsum(made.values()):g}"
            )
        return {FIXED: made}
    return {
        str(name): pseudo_count(_number(alpha, f" for {name}"), f" for {name}")
        for name, alpha in value.items()
    }


def classes_of(prior: ClassPriorSetting) -> tuple[tuple[str | int, ...], list[str]] | None:
    """Return the classes that a prior names, with the path they stand at; None for a number."""
    if not isinstance(prior, dict):
        return None
    fixed = prior.get(FIXED)
    if isinstance(fixed, dict):
        return ("class_prior", FIXED), list(fixed)
    return ("class_prior",), list(prior)


def wrong_classes(
    prior: ClassPriorSetting, classes: tuple[str, ...], where: tuple[str | int, ...] = ("model",)
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find classes that a prior names and the model lacks, and the other way round."""
    found = classes_of(prior)
    if found is None:
        return
    path, named = (*where, *found[0]), found[1]
    known = ", ".join(map(repr, classes))
    for name in named:
        if name not in classes:
            yield (*path, name), f"is not in model.classes: {known}"
    missing = [name for name in classes if name not in named]
    if missing:
        yield path, f"must have a number for every class; {', '.join(map(repr, missing))} has none"


def _number(value: Any, whose: str) -> float:
    if isinstance(value, str):  # what comes from a variable is always text
        try:
            value = float(value)
        except ValueError:
            raise wrong(f"{_FORMS}{whose}") from None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= sys.float_info.max:
        shown = repr(value) if isinstance(value, int | float | None) else "none of these"
        raise wrong(f"{_FORMS}{whose and f'; that{whose} is {shown}'}")
    return float(value)


def wrong_prior_half_life(
    prior: ClassPriorSetting, half_life: float | None
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Find a half-life of a class prior that no message moves."""
    if half_life and isinstance(prior, dict) and FIXED in prior:
        yield ("prior_half_life",), "must be null or 0 with a fixed class_prior: nothing moves it"


def wrong_costs(
    costs: Mapping[str, Mapping[str, float]] | None, classes: tuple[str, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find classes that costs name and the model lacks."""
    known = ", ".join(map(repr, classes))
    for true, own in (costs or {}).items():
        for name in (true, *own):
            if name not in classes:
                path = ("model", "costs", true) if name == true else ("model", "costs", true, name)
                yield path, f"is not in model.classes: {known}"


# ---- the page ------------------------------------------------------------------------------------

# Each has a light and a dark shade in style.css that can be read on its ground; a free choice of
# colour could not.
Colour = Literal[
    "blue", "red", "grey", "orange", "purple", "green", "pink", "gold", "indigo", "brown", "olive"
]
ShortText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)]


class ClassSettings(Section):
    """How the page shows one class."""

    name: ShortText | None = None  # None: as the class is called
    colour: Colour | None = None  # None: one that is free


class PageSettings(Section):
    """What the page shows, what it calls things, and when it would rather say why it does not."""

    unsure_below: float = Field(default=0.65, ge=0, le=1)  # posterior of the likeliest class
    share_messages_min: int = Field(default=30, ge=1, le=COUNT_MAX)
    title: ShortText = "streamnb"
    message_name: ShortText | None = None  # None: by the source
    message_name_plural: ShortText | None = None  # None: with an s
    question: ShortText | None = None  # stands before what is searched for; None: by the classes
    placeholder: ShortText | None = None  # in the empty search box; None: by the model's fields
    classes: dict[str, ClassSettings] = Field(default_factory=dict, max_length=100)
    function_words: tuple[ShortText, ...] | None = None  # in no ranking; None: the built-in ones

    @property
    def class_names(self) -> dict[str, str]:
        """What the page calls classes, of those that have another name there."""
        return {label: each.name for label, each in self.classes.items() if each.name}


def wrong_page_classes(
    page: PageSettings, classes: tuple[str, ...], *, new_classes: bool
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find classes that the page shows and the model will never have."""
    if new_classes:
        return
    known = ", ".join(map(repr, classes))
    for label in page.classes:
        if label not in classes:
            yield ("page", "classes", label), f"is not in model.classes: {known}"
