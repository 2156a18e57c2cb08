"""Where messages come from, which of them, where records go: small languages, and their settings.

A source is one of `SOURCE_FORMS`; an output is `none`, `file:PATH` or `kafka:TOPIC`. Parsing raises
a `ValueError` that names the part that is wrong, and what is allowed. Behind the addresses stand
the sections of sources and outputs.
"""

from __future__ import annotations

import os
import re
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

import msgspec
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from consumers.config.sections import (
    ASCII,
    COUNT_MAX,
    PORT,
    SECONDS_MAX,
    SecretPath,
    Section,
    distinct,
    one_secret,
    parsed_by,
    wrong,
)

SOURCE_FORMS = (
    "generator, stdin, file:PATH, recording:PATH, kafka://HOST:PORT[,HOST:PORT...]/TOPIC, "
    "jetstream[://HOST[:PORT][,HOST[:PORT]...]], sse+https://URL, lines+https://URL or wss://URL"
)
# Bluesky's own, all with the same stream.
JETSTREAM_HOSTS = tuple(
    f"wss://jetstream{n}.us-{side}.bsky.network" for side in ("east", "west") for n in (1, 2)
)
OUTPUT_FORMS = "none, file:PATH or kafka:TOPIC"

# A host is a name, an IPv4 address, or an IPv6 address in square brackets.
_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_HOST = re.compile(rf"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(:{PORT})?")
_LIVE = ("jetstream", "sse+", "lines+", "ws:", "wss:")
# What must not stand in an address: how such names end, and what they have for their last word.
_SECRET_ENDINGS = (
    "accesskey", "apikey", "authkey", "authorization", "credentials", "passphrase", "passwd",
    "password", "privatekey", "secret", "secretkey", "signature", "token",
)  # fmt: skip
_SECRET_WORDS = {"auth", "bearer", "jwt", "key", "pass", "pwd", "sig"}  # unlike `monkey`, `bypass`
_PUBLIC = re.compile("((next|page|sync|continuation)token|(partition|public|routing|sort)key)")
_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class SourceAddress(msgspec.Struct, frozen=True):
    """Where messages come from, taken apart; `servers` are ``host:port``, in the order written.

    `urls` are those of a live stream, with a scheme.
    """

    kind: Literal[
        "generator", "stdin", "file", "recording", "kafka", "jetstream", "sse", "lines", "websocket"
    ]
    path: Path | None = None
    servers: tuple[str, ...] = ()
    topic: str | None = None
    urls: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> SourceAddress:
        """Take a source's address apart.

        >>> SourceAddress.parse("kafka://127.0.0.1:9092/tweets").servers
        ('127.0.0.1:9092',)
        """
        if text in {"generator", "stdin"}:
            return cls(kind="generator" if text == "generator" else "stdin")
        if text.startswith(_LIVE):
            return cls._parse_live(text)
        if text.startswith("file:"):
            return cls(kind="file", path=_path(text.removeprefix("file:")))
        if text.startswith("recording:"):
            return cls(kind="recording", path=_path(text.removeprefix("recording:"), "recording"))
        if text.startswith("kafka://"):
            servers, slash, topic = text.removeprefix("kafka://").partition("/")
            if not slash:
                raise ValueError("must end with /TOPIC: kafka://HOST:PORT/TOPIC")
            return cls(kind="kafka", servers=parse_servers(servers), topic=check_topic(topic))
        if ":" not in text and Path(text).suffix:
            raise ValueError(f"must say what it is: file:{text}, or recording:{text}")
        raise ValueError(f"must be {SOURCE_FORMS}")

    @classmethod
    def _parse_live(cls, text: str) -> SourceAddress:
        if text == "jetstream":
            return cls(kind="jetstream", urls=JETSTREAM_HOSTS)
        scheme, _, rest = text.partition("://")
        if scheme in {"jetstream", "jetstream+ws"}:
            return cls(kind="jetstream", urls=_jetstream_hosts(scheme, rest))
        kinds: dict[str, Literal["sse", "lines", "websocket"]] = {
            "sse+http": "sse", "sse+https": "sse", "lines+http": "lines", "lines+https": "lines",
            "ws": "websocket", "wss": "websocket",
        }  # fmt: skip
        if scheme in kinds and rest:
            url = check_url(text.removeprefix("sse+").removeprefix("lines+"))
            return cls(kind=kinds[scheme], urls=(url,))
        raise ValueError(f"must be {SOURCE_FORMS}")

    @property
    def has_past(self) -> bool:
        """Whether what came before can be read, so that reading may begin at an offset or a time.

        >>> SourceAddress.parse("file:a.jsonl").has_past, SourceAddress.parse("stdin").has_past
        (True, False)
        """
        return self.kind in {"file", "recording", "kafka"}


def _jetstream_hosts(scheme: str, text: str) -> tuple[str, ...]:
    hosts = text.split(",")
    for host in hosts:
        if _HOST.fullmatch(host) is None:
            raise ValueError(f"must name each server as HOST or HOST:PORT, not {host!r}")
    return tuple(f"{'ws' if scheme.endswith('ws') else 'wss'}://{host}" for host in hosts)


def check_url(url: str) -> str:
    """Return a live stream's address unchanged, or refuse one that is none or holds a secret."""
    parts = urlsplit(url)
    names = parse_qs(parts.query.replace(";", "&"))  # some servers part them by either
    if "@" in parts.netloc or any(map(_is_secret, names)):
        # Said without repeating it; the address stands in logs and in /config.
        raise ValueError("must not hold a password or a token; use live.token or live.headers")
    if _HOST.fullmatch(parts.netloc) is None or not url.isascii() or not url.isprintable():
        raise ValueError(f"must be an address with a host, in ASCII, not {url!r}")
    return url


def _is_secret(name: str) -> bool:
    """Return whether a parameter's name says that it holds a secret, however it is spelled."""
    words = _WORD.findall(re.sub(r"[vV]?\d+\Z", "", name))
    whole, last = "".join(words).lower(), "".join(words[-1:]).lower()
    if _PUBLIC.fullmatch(whole):
        return False
    return whole.endswith(_SECRET_ENDINGS) or whole in _SECRET_WORDS or last in _SECRET_WORDS


class OutputAddress(msgspec.Struct, frozen=True):
    """Where records of one kind go: nowhere, to `path`, or to `topic`."""

    kind: Literal["none", "file", "kafka"]
    path: Path | None = None
    topic: str | None = None

    @classmethod
    def parse(cls, text: str) -> OutputAddress:
        """Take an output's address apart."""
        if text == "none":
            return cls(kind="none")
        if text.startswith("file:"):
            return cls(kind="file", path=_path(text.removeprefix("file:")))
        if text.startswith("kafka://"):
            raise ValueError("must be kafka:TOPIC; the servers go to kafka.servers")
        if text.startswith("kafka:"):
            return cls(kind="kafka", topic=check_topic(text.removeprefix("kafka:")))
        raise ValueError(f"must be {OUTPUT_FORMS}")


class CorrectionsAddress(msgspec.Struct, frozen=True):
    """Where corrections are logged: nowhere, in the state folder's journal, or in `topic`."""

    kind: Literal["none", "journal", "kafka"]
    topic: str | None = None

    @classmethod
    def parse(cls, text: str) -> CorrectionsAddress:
        """Take the address apart."""
        if text in {"none", "journal"}:
            return cls("none" if text == "none" else "journal")
        if text.startswith("kafka:") and not text.startswith("kafka://"):
            return cls("kafka", check_topic(text.removeprefix("kafka:")))
        raise ValueError("must be none, journal or kafka:TOPIC")


def parse_servers(text: str) -> tuple[str, ...]:
    """Return the brokers of a comma-separated list, each checked by `check_server`."""
    if "@" in text:
        # Said without repeating it: what stands before an @ is usually a password.
        raise ValueError(
            "must not hold a user or a password; use kafka.sasl_username and kafka.sasl_password"
        )
    return tuple(check_server(server) for server in text.split(","))


def check_server(text: str) -> str:
    """Return ``HOST:PORT`` unchanged, or raise `ValueError` where it is anything else."""
    match = _SERVER.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65_535:
        raise ValueError(
            f"must name each server as HOST:PORT with a port of 1 to 65535, not {text!r}"
        )
    return text


def is_topic(text: str) -> bool:
    """Return whether a name is one that Kafka takes for a topic."""
    return _TOPIC.fullmatch(text) is not None and text not in {".", ".."}


def check_topic(text: str) -> str:
    """Return a topic's name unchanged, or raise `ValueError` where Kafka would refuse it."""
    if not is_topic(text):
        raise ValueError(
            f"must name a topic of 1 to 249 letters, digits, '.', '_' or '-', not {text!r}"
        )
    return text


def _path(text: str, kind: str = "file") -> Path:
    if not text or "\0" in text:
        raise ValueError(f"must name a file: {kind}:PATH")
    return Path(text)


BOUND_FORMS = "Unix milliseconds, an ISO time (UTC unless it names a zone) or offset:N"
_TIME_MAX_MS = 253_402_300_799_999  # the end of the year 9999


class Bound(NamedTuple):
    """One end of a range: an offset, or a time in Unix milliseconds."""

    kind: Literal["offset", "time"]
    at: int

    def __str__(self) -> str:
        if self.kind == "offset":
            return f"offset:{self.at}"
        seconds, ms = divmod(self.at, 1000)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"

    @classmethod
    def parse(cls, text: str, first_ms: int = 0) -> Bound:
        """Read an end of a range, or raise `ValueError`, also for a time before `first_ms`.

        Without it that is 1970: sources have no earlier times.

        >>> Bound.parse("2026-11-02T10:00+01:00"), Bound.parse("offset:7")
        (Bound(kind='time', at=1793610000000), Bound(kind='offset', at=7))
        """
        kind: Literal["offset", "time"] = "offset" if text.startswith("offset:") else "time"
        digits = text.removeprefix("offset:")
        at = None
        try:
            if re.fullmatch(r"-?[0-9]{1,18}", digits):
                at = int(digits)
            elif kind == "time":
                found = datetime.fromisoformat(text)
                if found.tzinfo is None:
                    found = found.replace(tzinfo=UTC)
                at = (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        except (ValueError, OverflowError):
            pass
        first, last = (first_ms, _TIME_MAX_MS) if kind == "time" else (0, 1 << 62)
        if at is None or not first <= at <= last:
            raise ValueError(f"must be {BOUND_FORMS}, not {text!r}")
        # Seconds, or a date without hyphens, would be a day of 1970: all of a stream would be read.
        if kind == "time" and re.fullmatch(r"[0-9]{8}|[0-9]{10}", text):
            raise ValueError(f"must be {BOUND_FORMS}; {text!r} would be {cls(kind, at)}")
        return cls(kind, at)


class StreamRange(msgspec.Struct, frozen=True):
    """From where to where a stream is read; None is no bound, an empty range a `ValueError`."""

    begin: Bound | None = None
    end: Bound | None = None

    def __post_init__(self) -> None:
        begin, end = self.begin, self.end
        if begin is not None and end is not None and begin.kind == end.kind and end.at <= begin.at:
            raise ValueError(f"{end} must lie behind --from {begin}")


# How the names of the daemon's own files in checkpoint.folder begin.
OWN_FILES = ("model.nb", "model_history.json", "recent.db", "corrections.jsonl", "erasures.jsonl")


def is_one_file(first: Path | None, second: Path | None) -> bool:
    """Return whether two paths are of one file, by links too; None is of none."""
    if first is None or second is None:
        return False
    return os.path.realpath(first) == os.path.realpath(second)


def is_own_file(path: Path | None, folder: Path | None) -> bool:
    """Return whether a path has a name in the state folder that the daemon's own files have."""
    if path is None or folder is None:
        return False
    own, root = Path(os.path.realpath(path)), os.path.realpath(folder)
    return str(own.parent) == root and own.name.startswith(OWN_FILES)


# ---- sections of sources -------------------------------------------------------------------------

Server = Annotated[str, parsed_by(check_server)]
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class GeneratorSettings(Section):
    """The made-up stream."""

    stream: Literal["tweets", "loans", "sensors"] = "tweets"
    seed: int = Field(default=7, ge=0, lt=1 << 63)
    rate_per_s: float = Field(default=2_000.0, ge=0, le=COUNT_MAX)  # 0: as fast as it goes
    labelled_share: float = Field(default=0.7, ge=0, le=1)
    turn_after: int = Field(default=20_000, ge=1, le=COUNT_MAX)  # tweets until one topic turns


class FileSettings(Section):
    """A recorded file or standard input."""

    format: Literal["auto", "jsonl", "csv"] = "auto"
    encoding: Literal["auto", "utf-8", "latin-1"] = "auto"
    batch_bytes: int = Field(default=4 << 20, ge=1024, le=1 << 30)


class KafkaSettings(Section):
    """How to reach Kafka, beyond the address and topic of the source."""

    # For outputs: needed where the source is not Kafka, and free to be another cluster.
    servers: Annotated[tuple[Server, ...], AfterValidator(distinct)] = ()
    client: Literal["kafka-python", "librdkafka"] = "kafka-python"  # what reads the source
    group_id: Annotated[str, Field(min_length=1)] = "streamnb"
    start_from: Literal["earliest", "latest"] = "earliest"
    decode: Literal["columns", "records"] = "columns"
    # The bounds are the client libraries' own, and the protocol's: a size has 32 bits with a sign.
    max_poll_messages: int = Field(default=20_000, ge=1, le=1_000_000)
    fetch_max_bytes: int = Field(default=50 << 20, ge=1024, lt=1 << 31)
    message_max_bytes: int = Field(default=12 << 20, ge=1024, le=1_000_000_000)
    bootstrap_timeout_s: float = Field(default=10.0, gt=0, le=86_400.0)
    retry_pause_max_s: float = Field(default=1.0, gt=0, le=1.0)
    metadata_interval_s: float = Field(default=5.0, ge=0.1, le=300.0)
    transactions: bool = False  # predictions, rejects and offsets, in one
    transaction_interval_s: float = Field(default=1.0, gt=0, le=60.0)
    session_timeout_s: float = Field(default=10.0, ge=6.0, le=300.0)  # 6 s: the brokers' least
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None  # only by ${NAME} from the environment
    sasl_password_file: SecretPath | None = None
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None  # our own, for brokers that ask for one
    ssl_keyfile: Path | None = None
    ssl_key_password: SecretStr | None = None  # only by ${NAME} from the environment
    ssl_key_password_file: SecretPath | None = None

    @property
    def password(self) -> str | None:
        """The password of the login, wherever it comes from."""
        return one_secret(self, "sasl_password")

    @property
    def key_password(self) -> str | None:
        """What opens `ssl_keyfile`, wherever it comes from."""
        return one_secret(self, "ssl_key_password")

    @model_validator(mode="after")
    def _fetch_holds_a_message(self) -> Self:
        if self.message_max_bytes > self.fetch_max_bytes:
            raise wrong(
                f"message_max_bytes ({self.message_max_bytes}) must not be above "
                f"fetch_max_bytes ({self.fetch_max_bytes}): such a message could never be fetched"
            )
        return self

    @model_validator(mode="after")
    def _login_is_whole(self) -> Self:
        """Refuse half a login: Kafka's own answer to one is silence until a time-out."""
        password = self.password
        if self.security_protocol.startswith("SASL"):
            login = {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_username": self.sasl_username,
                "sasl_password or sasl_password_file": password,
            }
            missing = [key for key, value in login.items() if value is None]
            if missing:
                raise wrong(
                    f"{', '.join(missing)} must be given: security_protocol is "
                    f"{self.security_protocol}"
                )
        elif self.sasl_mechanism is not None:
            raise wrong(
                f"sasl_mechanism {self.sasl_mechanism} needs security_protocol SASL_SSL or "
                f"SASL_PLAINTEXT; it is {self.security_protocol}"
            )
        return self

    @field_validator("ssl_cafile", "ssl_certfile", "ssl_keyfile")
    @classmethod
    def _certificates_are_there(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is not None and not path.is_file():
            what = "a private key" if info.field_name == "ssl_keyfile" else "certificates"
            raise wrong(f"must be a file of {what} (PEM) that exists")
        return path

    @model_validator(mode="after")
    def _certificate_is_whole(self) -> Self:
        """Load our own certificate as the client libraries will, which say far less of a fault."""
        if self.ssl_certfile is None:
            if self.ssl_keyfile is not None or self.key_password is not None:
                raise wrong("ssl_certfile must be given with ssl_keyfile and ssl_key_password")
            return self
        if not self.security_protocol.endswith("SSL"):
            raise wrong(
                f"ssl_certfile needs security_protocol SSL or SASL_SSL; it is "
                f"{self.security_protocol}"
            )
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
                self.ssl_certfile, self.ssl_keyfile, self.key_password or ""
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise wrong(
                "ssl_certfile, ssl_keyfile and ssl_key_password do not fit each other: "
                f"{why}. ssl_certfile is a certificate (PEM), ssl_keyfile its private key, unless "
                "that stands in ssl_certfile too, and ssl_key_password opens it if it is encrypted"
            ) from None
        return self


class LiveSettings(Section):
    """How to stay connected to a live stream, whatever its kind."""

    token: SecretStr | None = None  # only by ${NAME} from the environment
    token_file: SecretPath | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    ssl_cafile: Path | None = None
    connect_timeout_s: float = Field(default=10.0, gt=0, le=60.0)
    idle_timeout_s: float = Field(default=60.0, gt=0, le=SECONDS_MAX)
    retry_pause_s: float = Field(default=0.5, gt=0, le=SECONDS_MAX)
    retry_pause_max_s: float = Field(default=30.0, gt=0, le=SECONDS_MAX)

    @field_validator("ssl_cafile")
    @classmethod
    def _certificates_are_there(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise wrong("must be a file of certificates (PEM) that exists")
        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:
            why = error.strerror or error
            raise wrong(f"must be a file of certificates (PEM) that can be used ({why})") from None
        return path

    @model_validator(mode="after")
    def _fits_headers(self) -> Self:
        written: dict[str, str] = {}
        for name, value in self.all_headers.items():
            other = written.setdefault(name.lower(), name)
            if other != name:
                raise wrong(
                    f"{other!r} and {name!r} are one HTTP header and would be sent twice; keep one "
                    "in live.headers (live.token is Authorization)"
                )
            if not _HEADER_NAME.fullmatch(name) or not ASCII.fullmatch(value):
                raise wrong(f"{name!r} must be an HTTP header of ASCII, its value in one line")
            if name.lower() in {"content-length", "transfer-encoding"}:
                raise wrong(f"{name!r} is for requests with a body, and these have none")
        return self

    @property
    def all_headers(self) -> dict[str, str]:
        """What is sent with each request, the token too."""
        token = one_secret(self, "token")
        found = {name: value.get_secret_value() for name, value in self.headers.items()}
        if "user-agent" not in map(str.lower, found):
            found["User-Agent"] = "streamnb"
        return found if token is None else found | {"Authorization": f"Bearer {token}"}

    @property
    def secret_settings(self) -> list[str]:
        """The settings whose values who reads along could use, as their names say."""
        token = [] if one_secret(self, "token") is None else ["live.token"]
        named = (each for each in self.headers if _is_secret(each) or "cookie" in each.lower())
        return [*token, *(f"live.headers.{each}" for each in named)]

    @property
    def secrets(self) -> list[str]:
        """What must not be repeated."""
        token = one_secret(self, "token")
        found = [value.get_secret_value() for value in self.headers.values()]
        return found if token is None else [*found, token]


def wire_version(value: Any) -> Any:
    """Return a version as a number: a variable of the environment gives text."""
    return {"1": 1, "2": 2}.get(value, value) if isinstance(value, str) else value


class JetstreamSettings(Section):
    """What of Bluesky's network is read."""

    version: Annotated[Literal[1, 2], BeforeValidator(wire_version)] = 1
    collections: Annotated[tuple[str, ...], AfterValidator(distinct)] = ("app.bsky.feed.post",)
    kinds: Annotated[tuple[str, ...], AfterValidator(distinct)] = ("commit", "account", "sync")
    dids: Annotated[tuple[str, ...], AfterValidator(distinct)] = ()
    start_at: int | None = Field(default=None, ge=0, le=_TIME_MAX_MS * 1000)  # null: what comes
    collection_idle_timeout_s: float = Field(default=300.0, gt=0, le=SECONDS_MAX)
    compress: bool = False
    history: bool = False  # by the host's archive, from start_at on; null: all of it
    archive_key: SecretStr | None = None  # only by ${NAME} from the environment
    archive_key_file: SecretPath | None = None

    @property
    def key(self) -> str | None:
        """The archive's key, wherever it comes from."""
        return one_secret(self, "archive_key")

    @model_validator(mode="after")
    def _begins_in_microseconds(self) -> Self:
        """Refuse seconds and milliseconds: a server takes small cursors for its own numbers.

        It then goes on with what comes, and says nothing. A host of version 2 numbers messages from
        1 on, so what may be seconds may be a number too.
        """
        begin, end = (10**9, 10**15) if self.version == 1 else (10**12, 4 * 10**12)
        if self.start_at is not None and begin <= self.start_at < end:
            other = "" if self.version == 1 else ", or a number of the host's"
            unit = "milliseconds" if self.start_at >= 10**12 else "seconds"
            raise wrong(
                f"start_at must be Unix microseconds{other}; {self.start_at} looks like {unit}"
            )
        return self

    @model_validator(mode="after")
    def _fits_the_wire(self) -> Self:
        if self.history and self.version == 1:
            raise wrong("history needs version: 2; the first wire has no archive")
        if self.key is not None and not self.history:
            raise wrong("archive_key is for history: true")
        if self.key is not None and not ASCII.fullmatch(self.key):
            raise wrong("archive_key must be ASCII, in one line")
        if self.compress and self.version == 1:
            raise wrong(
                "compress needs version: 2; no server gives out the dictionary of version 1"
            )
        return self


# ---- sections of outputs -------------------------------------------------------------------------


class OutputSettings(Section):
    """Where a kind of record goes: nowhere, a file of JSON lines, or a Kafka topic."""

    to: Annotated[str, parsed_by(OutputAddress.parse)] = "none"  # none | file:PATH | kafka:TOPIC

    @property
    def address(self) -> OutputAddress:
        """`to`, taken apart."""
        return OutputAddress.parse(self.to)


class PredictionsSettings(OutputSettings):
    """Where predictions go, and of which messages."""

    labelled: bool = False  # also of messages that are learned

    @model_validator(mode="after")
    def _has_place(self) -> Self:
        if self.labelled and self.to == "none":
            raise wrong("labelled needs predictions.to, where the predictions go")
        return self


class CorrectionsSettings(Section):
    """Where labels and deletions that people send are logged, to be learned from there."""

    # none | journal | kafka:TOPIC
    to: Annotated[str, parsed_by(CorrectionsAddress.parse)] = "journal"

    @property
    def address(self) -> CorrectionsAddress:
        """`to`, taken apart."""
        return CorrectionsAddress.parse(self.to)
