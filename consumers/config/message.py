"""Where in a message its parts are, which messages count, and labels that come later.

Presets for well-known streams are such settings as data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    Tag,
    field_validator,
    model_validator,
)

from consumers.config.addresses import OutputAddress
from consumers.config.sections import (
    COUNT_MAX,
    SECONDS_MAX,
    FieldPath,
    SecretPath,
    Section,
    by_kind,
    distinct,
    mark,
    one_secret,
    parsed_by,
    wrong,
)

# Parts of a message that a group may read by these names, wherever `message` says that they are.
MESSAGE_PARTS = ("text", "user", "lang")


class FirstOf(str):
    """Several paths, of which the first counts that has a value; as text, joined by bars.

    >>> FirstOf(("full_text", "text")), FirstOf(("full_text", "text")).paths
    ('full_text | text', ('full_text', 'text'))
    """

    __slots__ = ("paths",)

    paths: tuple[str, ...]

    def __new__(cls, paths: tuple[str, ...]) -> Self:
        """Return these paths as one."""
        made = super().__new__(cls, " | ".join(paths))
        made.paths = paths
        return made


def paths_of(path: str) -> tuple[str, ...]:
    """Return the paths that stand in one setting: several in `FirstOf`, else itself."""
    return path.paths if isinstance(path, FirstOf) else (path,)


_PATH_WANTED = "must be a field's name or path, or first_of: with a list of them"


def _one_path(value: Any) -> str:
    """Return a path, or `FirstOf` where a section has several."""
    if isinstance(value, str) and value:
        return value
    paths: Any = value.get("first_of") if isinstance(value, dict) and len(value) == 1 else None
    is_list = isinstance(paths, list | tuple) and len(paths) > 0
    if not is_list or not all(isinstance(path, str) and path for path in paths):
        raise wrong(_PATH_WANTED)
    return FirstOf(distinct(tuple(paths))) if len(paths) > 1 else paths[0]


def _one_or_several(value: Any) -> str | tuple[str, ...]:
    """Return a path, or several where a list has more than one."""
    if not isinstance(value, list | tuple):
        value = (value,)
    try:
        paths = tuple(map(_one_path, value))
    except ValueError:
        paths = ()
    if not paths:
        raise wrong("must be a field's name or path, or a list of them")
    return paths[0] if len(paths) == 1 else distinct(paths)


def _as_written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_written(each) for each in value]
    return {"first_of": [*value.paths]} if isinstance(value, FirstOf) else value


# Plain validators, as the mistakes of a union would be told once a member.
OnePath = Annotated[str, PlainValidator(_one_path), PlainSerializer(_as_written)]
Paths = Annotated[
    str | tuple[str, ...], PlainValidator(_one_or_several), PlainSerializer(_as_written)
]


def _values(value: Any) -> tuple[str, ...] | None:
    """Return the values of a condition: none for `any`, None for no condition at all."""
    if value is None or value == "any":
        return None if value is None else ()
    is_list = isinstance(value, list | tuple) and (len(value) > 0 or isinstance(value, tuple))
    if not is_list or not all(isinstance(each, str | int) for each in value):
        raise wrong("must be a list of values, the word any, or null for no condition")
    return distinct(
        tuple(str(each).lower() if isinstance(each, bool) else str(each) for each in value)
    )


def _values_as_written(value: tuple[str, ...] | None) -> Any:
    return "any" if value == () else value


WantedValues = Annotated[
    tuple[str, ...] | None, PlainValidator(_values), PlainSerializer(_values_as_written)
]
Conditions = dict[FieldPath, WantedValues]
Retweets = Literal["keep", "drop", "fold"]
OperationName = Literal["create", "update", "delete", "delete_account"]


def _own_operations() -> dict[str, OperationName]:
    return {"create": "create", "update": "update", "delete": "delete"}


_POSTS = "app.bsky.feed.post"
_EVENT = "network.bsky.jetstream.subscribeEvents#"
# Of the states of an account that is not active these two are meant to last. One that is
# deactivated or suspended is expected back, and the network does not send its posts again.
_OF_BLUESKY: dict[str, OperationName] = {
    **_own_operations(), "deleted": "delete_account", "takendown": "delete_account"
}  # fmt: skip

# The settings of well-known streams, as anybody could write them.
PRESETS: dict[str, dict[str, Any]] = {
    # Bluesky's Jetstream: likes, follows and identities come along. Times are the server's, as an
    # author may claim any, and a deletion has no other.
    "jetstream": {
        "id": ["did", "commit.collection", "commit.rkey"],
        "time": "time_us",
        "user": "did",
        "lang": "commit.record.langs",
        "text": "commit.record.text",
        "operation": {"first_of": ["commit.operation", "account.status"]},
        "operations": _OF_BLUESKY,
        "reply": "commit.record.reply",
        "ignore": {"account.active": ["true"]},
        "keep": {"kind": ["commit", "account"], "commit.collection": [_POSTS]},
    },
    "jetstream-v2": {
        "id": ["payload.did", "payload.collection", "payload.rkey"],
        "time": "payload.time",
        "user": "payload.did",
        "lang": "payload.record.langs",
        "text": "payload.record.text",
        # A resync sends all that an account has behind it, as if it were created.
        "operation": {"first_of": ["payload.operation", "payload.account.status", "payload.$type"]},
        "operations": {**_OF_BLUESKY, f"{_EVENT}sync": "delete_account"},
        "reply": "payload.record.reply",
        "ignore": {"payload.account.active": ["true"]},
        "keep": {
            "payload.$type": [f"{_EVENT}commit", f"{_EVENT}account", f"{_EVENT}sync"],
            "payload.collection": [_POSTS],
        },
    },
    # An event and its payload, which a deletion's id alone may be.
    "mastodon": {
        "unwrap": "payload",
        "id": {"first_of": ["payload.id", "payload"]},
        "time": "payload.created_at",
        "user": "payload.account.acct",
        "lang": "payload.language",
        "text": "payload.content",
        "operation": "event",
        "operations": {"update": "create", "status.update": "update", "delete": "delete"},
        "markup": "html",
        "retweet": "payload.reblog",
        "reply": "payload.in_reply_to_id",
        "keep": {"event": ["update", "status.update", "delete"]},
    },
    "x-v2": {
        "id": "data.id",
        "deleted": "data.delete.tweet.id",
        "time": "data.created_at",
        "user": "data.author_id",
        "lang": "data.lang",
        "text": {"first_of": ["data.note_tweet.text", "data.text"]},
        "markup": "entities",
        "retweet": "data.referenced_tweets",
        "reply": {"first_of": ["data.in_reply_to_user_id", "data.referenced_tweets"]},
        "keep": {"data.id": "any"},
    },
    "twitter-v1": {
        "id": "id_str",
        "deleted": "delete.status.id_str",
        "user": "user.screen_name",
        "text": {"first_of": ["extended_tweet.full_text", "full_text", "text"]},
        "markup": "entities",
        "retweet": "retweeted_status",
        "reply": "in_reply_to_status_id_str",
        "keep": {"id_str": "any"},
    },
    # Recent changes: an edit is judged by its comment, and labelled when it is reverted or not.
    "wikimedia": {
        "id": ["wiki", "revision.new"],
        "time": "timestamp",
        "text": "comment",
        "fields": ["wiki", "title"],
        "ignore": {"meta.domain": ["canary"]},
        "keep": {"type": ["edit", "new"]},
    },
}


MessageFormat = Literal["json", "text", "avro", "protobuf", "json-schema"]


def _service_url(url: str | None, like: str) -> str | None:
    """Return the address of a service, or refuse one that says too little or a secret."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        raise wrong(f"must be an address such as {like}") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise wrong("must be an address alone; user, password and token have settings of their own")
    if not is_whole or not url.isascii():
        raise wrong(f"must be an address such as {like}")
    return url


def _url_like(like: str) -> AfterValidator:
    return AfterValidator(lambda url: _service_url(url, like))


class RegistrySettings(Section):
    """The schema registry that has the schemas of `message.format`."""

    url: Annotated[
        str | None,
        _url_like("https://registry.example.org:8081"),
        AfterValidator(lambda url: url and url.rstrip("/")),  # paths follow
    ] = None
    user: str | None = None
    password: SecretStr | None = None  # only by ${NAME} from the environment
    password_file: SecretPath | None = None
    token: SecretStr | None = None  # only by ${NAME} from the environment
    token_file: SecretPath | None = None
    ssl_cafile: Path | None = None
    timeout_s: float = Field(default=10.0, gt=0, le=60.0)
    retry_pause_max_s: float = Field(default=5.0, gt=0, le=60.0)
    unknown_timeout_s: float = Field(default=5.0, ge=0, le=300.0)  # until an unknown id is rejected
    schemas_max: int = Field(default=1_000, ge=1, le=COUNT_MAX)

    @model_validator(mode="after")
    def _login_is_whole(self) -> Self:
        if (self.user is None) != (one_secret(self, "password") is None):
            raise wrong("user and password (or password_file) belong together; give both or none")
        if self.user is not None and ":" in self.user:
            raise wrong("user must not hold a colon: a login ends its name there")
        if self.user is not None and one_secret(self, "token") is not None:
            raise wrong("must have a user and a password, or a token, not both")
        token = one_secret(self, "token") or ""
        if not (token.isascii() and token.isprintable()):
            raise wrong("token must be ASCII in one line, as an HTTP header is")
        if self.ssl_cafile is not None and not self.ssl_cafile.is_file():
            raise wrong("ssl_cafile must be a file of certificates (PEM) that exists")
        return self

    @property
    def login(self) -> tuple[str, str] | None:
        """User and password, wherever that comes from; None without."""
        password = one_secret(self, "password")
        return None if self.user is None or password is None else (self.user, password)

    @property
    def bearer_token(self) -> str | None:
        """The token, wherever it comes from."""
        return one_secret(self, "token")


class MessageSettings(Section):
    """Where in a message its parts are: a field's name, or a path such as `commit.record.text`.

    An id may be made of several fields, as `[did, commit.collection, commit.rkey]`; see
    `decode.fields.id_of`. A `preset` gives the settings of a well-known stream; those that stand
    beside it win, and the conditions of `keep` and `ignore` are put together.
    """

    preset: str | None = None
    format: MessageFormat = "json"
    registry: RegistrySettings = RegistrySettings()
    id: Paths = "id"
    time: OnePath = "created_at"
    user: OnePath = "user"
    lang: OnePath = "lang"
    text: OnePath = "text"
    operation: OnePath = "operation"
    operations: dict[str, OperationName] = Field(default_factory=_own_operations)
    deleted: OnePath | None = None  # an id that stands there asks to delete
    weight: FieldPath | None = None  # None: each message counts as one example
    fields: Annotated[tuple[FieldPath, ...], AfterValidator(distinct)] = ()
    unwrap: FieldPath | None = None  # a field whose text is JSON again
    markup: Literal["none", "entities", "html"] = "none"
    nfc: bool = False
    retweet: FieldPath | None = None  # where the original of a retweet stands
    retweets: Retweets = "keep"
    reply: OnePath | None = None  # what stands there makes a reply
    replies: Literal["keep", "drop"] = "keep"
    keep: Conditions = Field(default_factory=dict)
    ignore: Conditions = Field(default_factory=dict)
    sample: float = Field(default=1.0, gt=0, le=1)  # by a hash of the id
    max_bytes: int = Field(default=1 << 20, ge=64, le=COUNT_MAX)

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, value: Any) -> Any:
        """Put a preset's settings below those that are given; its name may stand alone."""
        given = {"preset": value} if isinstance(value, str) else value
        name = given.get("preset") if isinstance(given, dict) else None
        if name is None:
            return given
        if not isinstance(name, str) or name not in PRESETS:
            raise wrong(f"must have a preset of {', '.join(PRESETS)}")
        made = {"nfc": True, **PRESETS[name], **given}
        for key in ("keep", "ignore"):
            own = given.get(key)
            if own is None or isinstance(own, Mapping):  # else it is refused as it is
                made[key] = PRESETS[name].get(key, {}) | (own or {})
        return made

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.deleted is not None and not isinstance(self.id, str):
            raise wrong("deleted names a whole id, so id must be a single path")
        if self.deletes_accounts and len(self.id_paths) == 1:
            raise wrong("operations: delete_account needs id: a list of paths, the account's first")
        if self.retweets == "fold" and self.retweet is None:
            raise wrong("retweets: fold needs retweet: the path of the message that is repeated")
        if self.replies == "drop" and self.reply is None:
            raise wrong("replies: drop needs reply: a path with a value in replies alone")
        if self.unwrap is not None and "." in self.unwrap:
            raise wrong("unwrap must be a name, not a path")
        if self.format == "text" and (self.text != "text" or self.unwrap is not None):
            raise wrong("format text needs text: text and no unwrap: the whole message is the text")
        if self.format in {"avro", "protobuf"} and self.registry.url is None:
            raise wrong(f"format {self.format} needs registry.url, where the schemas are")
        return self

    @property
    def id_paths(self) -> tuple[str, ...]:
        """The fields that make an id, in order."""
        return (self.id,) if isinstance(self.id, str) else self.id

    @property
    def deletes_accounts(self) -> bool:
        """Whether a message may ask to delete all of an account: all ids with its first part."""
        return "delete_account" in self.operations.values()


_RAW_SOURCES = {"kafka", "recording"}  # whose values are bytes of any kind
_OWN_FORMAT = {"generator", "jetstream"}


def wrong_form(
    message: MessageSettings, source: str, file_format: str
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find why a kind of source cannot bring messages of `message.format`."""
    here = ("message", "format")
    if message.format not in {"json", "text"} and source not in _RAW_SOURCES:
        yield here, f"is for topics and their recordings: the source ({source}) has no such values"
    if message.format == "text" and source in _OWN_FORMAT:
        yield here, f"must be json: the source ({source}) has a format of its own"
    if message.format == "text" and source in {"file", "stdin"} and file_format == "csv":
        yield here, "must be json with file.format: csv, whose records have columns"


def effective(message: MessageSettings) -> MessageSettings:
    """Return settings whose paths say where to look: also in originals, and for a deleted id."""
    ids = message.id_paths
    if message.deleted is not None:
        ids = (FirstOf((*paths_of(message.deleted), *paths_of(ids[0]))),)
    update: dict[str, Any] = {"id": ids[0] if len(ids) == 1 else ids}
    if message.retweets == "fold" and message.retweet is not None:
        own = {name: getattr(message, name) for name in _FOLDED}
        update = {name: path and _folded(path, message.retweet) for name, path in own.items()}
        update["id"] = tuple(_folded(path, message.retweet) for path in ids)
    return message.model_copy(update=update)


_FOLDED = ("time", "user", "lang", "text", "reply")


def _folded(path: str, original: str) -> str:
    """Return the paths of a part in the original, then those in the message around it.

    >>> _folded("payload.id", "payload.reblog")
    'payload.reblog.id | payload.id'
    """
    around = original.rpartition(".")[0]
    around = f"{around}." if around else ""
    inner = tuple(
        f"{original}.{each.removeprefix(around)}"
        for each in paths_of(path)
        if each.startswith(around)
    )
    return FirstOf((*inner, *paths_of(path))) if inner else path


class LateLabelsSettings(Section):
    """Labels that come after their messages, in a log of their own."""

    source: Annotated[str, parsed_by(OutputAddress.parse)] = (
        "none"  # none | file:PATH | kafka:TOPIC
    )
    format: Literal["json", "text"] = "json"
    id: Paths | None = None  # null: the record's key
    field: FieldPath = "label"
    time: FieldPath = "created_at"
    window_s: float = Field(default=86_400.0, gt=0, le=SECONDS_MAX)
    default: str | None = None  # what is learned of a message without a label
    horizon_s: float = Field(default=86_400.0, gt=0, le=SECONDS_MAX)  # after so long

    @property
    def address(self) -> OutputAddress:
        """`source`, taken apart."""
        return OutputAddress.parse(self.source)

    @model_validator(mode="after")
    def _has_an_id(self) -> Self:
        is_file = self.address.kind == "file"
        if self.format == "text" and (is_file or self.id is not None):
            raise wrong("format text holds the label alone: its id is the key of a record of Kafka")
        if is_file and self.id is None:
            raise wrong("id must name a field: the lines of a file have no key")
        return self


# ---- labels that messages bring -----------------------------------------------------------------


class TeacherSettings(Section):
    """A service, or a second model, that labels messages which come without a label."""

    url: Annotated[str | None, _url_like("http://127.0.0.1:8200/v1/predict")] = None
    model: Path | None = None  # a saved model instead
    token: SecretStr | None = None  # only by ${NAME} from the environment
    token_file: SecretPath | None = None
    ssl_cafile: Path | None = None
    timeout_s: float = Field(default=10.0, gt=0, le=60.0)
    budget_per_s: float = Field(default=1.0, gt=0, le=1_000.0)  # messages
    min_confidence: float = Field(default=0.9, ge=0, le=1)
    cache_size: int = Field(default=10_000, ge=0, le=1_000_000)  # texts

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.url is not None and self.model is not None:
            raise wrong("url and model are both given; keep one")
        if self.url is None and self.bearer_token is not None:
            raise wrong("token and token_file are for url")
        if not ((token := self.bearer_token or "").isascii() and token.isprintable()):
            raise wrong("token must be ASCII in one line, as an HTTP header is")
        for name, what in (("ssl_cafile", "certificates (PEM)"), ("model", "a saved model")):
            path: Path | None = getattr(self, name)
            if path is not None and not path.is_file():
                raise wrong(f"{name} must be a file of {what} that exists")
        return self

    @property
    def is_on(self) -> bool:
        """Whether anybody is asked."""
        return self.url is not None or self.model is not None

    @property
    def bearer_token(self) -> str | None:
        """The token, wherever it comes from."""
        return one_secret(self, "token")


class _TaughtLabels(Section):
    """What all kinds of labels have."""

    teacher: TeacherSettings = TeacherSettings()


# Of the recorded tweets; a model without a neutral class rejects those, and says so.
SENTIMENT140 = {"0": "negative", "2": "neutral", "4": "positive"}


class FieldLabels(_TaughtLabels):
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


VARIATIONS = "\ufe0e\ufe0f"  # select how the character before is drawn, and mean no other
_WITHOUT_VARIATIONS = str.maketrans("", "", VARIATIONS)


class EmoticonLabels(_TaughtLabels):
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
        bare = {name: [_bare(sign) for sign in own] for name, own in signs.items()}
        if any(not sign for own in bare.values() for sign in own):
            raise wrong("must not hold an empty sign: it would be found in every text")
        distinct(tuple(sign for own in signs.values() for sign in own))
        distinct(tuple(sign for own in bare.values() for sign in dict.fromkeys(own)))
        return signs


def _bare(sign: str) -> str:
    """Return a sign without blanks around it and without variation selectors."""
    return sign.translate(_WITHOUT_VARIATIONS).strip()


Labels = Annotated[
    Annotated[FieldLabels, Tag(mark("field"))] | Annotated[EmoticonLabels, Tag(mark("emoticons"))],
    by_kind("field", "must be a section whose kind is field or emoticons"),
]

LABELS: dict[str, type[Section]] = {"field": FieldLabels, "emoticons": EmoticonLabels}
