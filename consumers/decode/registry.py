"""A client of a schema registry, by Confluent's protocol over HTTP, on the standard library alone.

It tells three things apart: an answer; that the registry itself says that there is no such schema;
and everything else, which is a `RegistryError` to be tried again, such as a registry that is down,
a login that is refused, or another server at a mistaken address. No text of a server gets into an
error, as it may repeat a secret. At the end stands how the protocol says which message of a
Protobuf schema a payload is.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

import msgspec
import structlog

from consumers.config.message import RegistrySettings
from consumers.errors import ConfigError, RegistryError

log = structlog.get_logger(__name__)
_ANSWER_BYTES_MAX = 16 << 20
_REFERENCES_MAX = 1_000  # of one schema, those of its references among them
_DEPTH_MAX = 50  # of references
_FIRST_PAUSE_S = 0.1


class SchemaError(Exception):
    """A schema cannot be used."""


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct):
    """A schema as the registry answers it."""

    schema: str
    schemaType: str | None = None  # noqa: N815 -- the protocol's own spelling; None is Avro
    references: list[_Reference] | None = None


class _AnswerError(HTTPException):
    """An answer is too long or too slow; the text is ours."""


class _RegistryProblem(msgspec.Struct):
    error_code: int


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: it would take the login to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, which makes it an error."""


class SchemaRegistry:
    """Asks a schema registry by its protocol, one request at a time.

    Certificates that cannot be read are a `ConfigError`. What keeps it from an answer is a
    `RegistryError`, whose pause grows with each one in a row.
    """

    def __init__(self, settings: RegistrySettings, clock: Callable[[], float]) -> None:
        try:
            context = ssl.create_default_context(cafile=settings.ssl_cafile)
        except OSError as error:
            raise ConfigError(
                f"message.registry.ssl_cafile: {settings.ssl_cafile} has no certificates (PEM) "
                f"that can be read: {error.strerror or error}"
            ) from None
        handlers = (ProxyHandler({}), _NoRedirects(), HTTPSHandler(context=context))
        self._open = build_opener(*handlers).open
        self._settings, self._clock = settings, clock
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if settings.login is not None:
            login = base64.b64encode(":".join(settings.login).encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
        elif settings.bearer_token is not None:
            self._headers["Authorization"] = f"Bearer {settings.bearer_token}"
        self._n_failures = 0

    def schema(self, name: int) -> RegisteredSchema | None:
        """Return the schema of an id; None if the registry says that it has none."""
        return self._asked(f"/schemas/ids/{name}")

    def references(self, schema: RegisteredSchema) -> dict[str, str]:
        """Return what a schema refers to by name, each behind what it refers to itself."""
        found: dict[str, str] = {}
        self._add_references(schema, found, ())
        return found

    def _add_references(
        self, schema: RegisteredSchema, found: dict[str, str], above: tuple[str, ...]
    ) -> None:
        for each in schema.references or ():
            if each.name in found:
                continue
            is_far = len(above) >= _DEPTH_MAX or len(found) >= _REFERENCES_MAX
            if each.name in above or is_far:
                raise SchemaError(f"its reference {each.name!r} leads back to itself, or too far")
            there = self._asked(f"/subjects/{quote(each.subject, safe='')}/versions/{each.version}")
            if there is None:
                raise SchemaError(
                    f"its reference {each.name!r}, version {each.version} of subject "
                    f"{each.subject!r}, is not in the registry"
                )
            self._add_references(there, found, (*above, each.name))
            found[each.name] = there.schema

    def _asked(self, path: str) -> RegisteredSchema | None:
        url = f"{self._settings.url}{path}"
        request = Request(url, headers=self._headers)  # noqa: S310 -- http or https, by the settings
        try:
            with self._open(request, timeout=self._settings.timeout_s) as answer:
                body = self._read(answer)
        except HTTPError as error:
            with error:
                if self._is_unknown(error):
                    self._reached()
                    return None
                raise self._failed(
                    f"{url}: HTTP status {error.code}{_HINTS.get(error.code, '')}"
                ) from None
        except (OSError, HTTPException, ValueError) as error:
            raise self._failed(f"{url}: {_why(error)}") from None
        try:
            found = msgspec.json.decode(body, type=RegisteredSchema)
        except (ValueError, RecursionError):  # MsgspecError and UnicodeDecodeError are ValueErrors
            raise self._failed(f"{url}: the answer is none of a schema registry") from None
        self._reached()
        return found

    def _read(self, answer: Any) -> bytes:
        """Return a body that is neither too long nor too slow."""
        until_s, body = self._clock() + self._settings.timeout_s, b""
        while chunk := answer.read1(1 << 16):
            body += chunk
            if len(body) > _ANSWER_BYTES_MAX:
                raise _AnswerError(f"the answer is longer than {_ANSWER_BYTES_MAX} bytes")
            if self._clock() > until_s:
                raise _AnswerError("the answer was not whole in registry.timeout_s")
        return body

    def _is_unknown(self, error: HTTPError) -> bool:
        """Return whether an answer says that what was asked for is not there.

        A registry says so with a code of its own, such as 40403. Without one another server may
        have answered, or the registry itself at a mistaken address (with 404), and no message may
        be rejected for that.
        """
        if error.code not in {404, 422}:
            return False
        try:
            found = msgspec.json.decode(self._read(error), type=_RegistryProblem)
        except (OSError, HTTPException, ValueError, RecursionError):
            return False
        return found.error_code // 100 == error.code

    def _failed(self, text: str) -> RegistryError:
        if not self._n_failures:
            log.warning("registry_not_reached", detail=text)
        pause_s = min(self._settings.retry_pause_max_s, _FIRST_PAUSE_S * 2.0**self._n_failures)
        self._n_failures = min(self._n_failures + 1, 30)
        return RegistryError(f"the schema registry does not answer: {text}", pause_s)

    def _reached(self) -> None:
        if self._n_failures:
            log.info("registry_reached_again", failures=self._n_failures)
        self._n_failures = 0


def _why(error: Exception) -> str:
    """Return what went wrong in our own words or the system's: a server's may repeat a secret."""
    if isinstance(error, _AnswerError):
        return str(error)
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {reason.verify_message}"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return type(reason if isinstance(reason, Exception) else error).__name__


_HINTS = {
    401: "; message.registry.user and password, or token, are refused",
    403: "; message.registry.user and password, or token, may not read schemas",
    404: "; message.registry.url names no schema registry",
}


def message_places(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message a payload is, from the outermost inwards, and where that ends.

    >>> message_places(bytes([0, 8])), message_places(bytes([4, 2, 0, 8]))
    (((0,), 1), ((1, 0), 3))
    """
    if payload[:1] == b"\0":
        return (0,), 1  # the first message of the file, in a form of its own
    n, at = _integer(payload, 0)
    places = []
    if not 0 < n <= 100:  # protobuf's own bound on nesting
        raise ValueError(f"its message is named by {n} numbers")
    for _ in range(n):
        place, at = _integer(payload, at)
        places.append(place)
    return tuple(places), at


def _integer(payload: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint that is not negative, and where it ends."""
    value = shift = 0
    for byte in payload[at : at + 5]:
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            if value & 1:
                raise ValueError("the number of its message is negative")
            return value >> 1, at
    raise ValueError("the number of its message has no end")
