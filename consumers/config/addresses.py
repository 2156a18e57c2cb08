"""The small languages of addresses: where messages come from, which of them, where records go.

A source is one of `SOURCE_FORMS`; an output is `none`, `file:PATH` or `kafka:TOPIC`. Parsing raises
a `ValueError` that names the part that is wrong, and what is allowed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

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
PORT = "(0*[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST = re.compile(rf"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(:{PORT})?")
_LIVE = ("jetstream", "sse+", "lines+", "ws:", "wss:")
_SECRETS = {"access_token", "api_key", "apikey", "auth", "password", "secret", "token"}
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
    if "@" in parts.netloc or _SECRETS & parse_qs(parts.query).keys():
        # Said without repeating it; the address stands in logs and in /config.
        raise ValueError("must not hold a password or a token; use live.token or live.headers")
    if _HOST.fullmatch(parts.netloc) is None or not url.isascii() or not url.isprintable():
        raise ValueError(f"must be an address with a host, in ASCII, not {url!r}")
    return url


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
    def parse(cls, text: str) -> Bound:
        """Read an end of a range, or raise `ValueError`.

        >>> Bound.parse("2026-11-02T10:00+01:00"), Bound.parse("offset:7")
        (Bound(kind='time', at=1793610000000), Bound(kind='offset', at=7))
        """
        kind: Literal["offset", "time"] = "offset" if text.startswith("offset:") else "time"
        digits = text.removeprefix("offset:")
        try:
            if re.fullmatch(r"[0-9]{1,18}", digits):
                at = int(digits)
            elif kind == "time":
                found = datetime.fromisoformat(text)
                if found.tzinfo is None:
                    found = found.replace(tzinfo=UTC)
                at = (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
            else:
                at = -1
        except (ValueError, OverflowError):
            at = -1
        if not 0 <= at <= (_TIME_MAX_MS if kind == "time" else 1 << 62):
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
            raise ValueError(f"--to {end} must lie behind --from {begin}")
