"""A client of a schema registry, by Confluent's protocol over HTTP.

It tells three things apart: an answer; that the registry itself says that there is no such schema;
and everything else, which is a `RegistryError` to be tried again, such as a registry that is down,
a login that is refused, or another server at a mistaken address. No text of a server gets into an
error, as it may repeat a secret. At the end stands how the protocol says which message of a
Protobuf schema a payload is.
"""

from __future__ import annotations

import base64
from urllib.parse import quote

import msgspec
import structlog

from consumers.config.message import RegistrySettings
from consumers.errors import RegistryError
from consumers.web_request import RequestError, WebService

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


class _RegistryProblem(msgspec.Struct):
    error_code: int


class SchemaRegistry:
    """Asks a schema registry by its protocol, one request at a time.

    Certificates that cannot be read are a `ConfigError`. What keeps it from an answer is a
    `RegistryError`, whose pause grows with each one in a row.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if settings.login is not None:
            login = base64.b64encode(":".join(settings.login).encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        elif settings.bearer_token is not None:
            headers["Authorization"] = f"Bearer {settings.bearer_token}"
        self._service = WebService(
            headers, settings.timeout_s, _ANSWER_BYTES_MAX, settings.ssl_cafile,
            setting="message.registry",
        )  # fmt: skip
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
        try:
            status, body = self._service.ask(url)
        except RequestError as error:
            raise self._failed(f"{url}: {error}") from None
        if status != 200:
            if _is_unknown(status, body):
                self._reached()
                return None
            raise self._failed(f"{url}: HTTP status {status}{_HINTS.get(status, '')}")
        try:
            found = msgspec.json.decode(body, type=RegisteredSchema)
        except (ValueError, RecursionError):  # MsgspecError and UnicodeDecodeError are ValueErrors
            raise self._failed(f"{url}: the answer is none of a schema registry") from None
        self._reached()
        return found

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


def _is_unknown(status: int, body: bytes) -> bool:
    """Return whether an answer says that what was asked for is not there.

    A registry says so with a code of its own, such as 40403. Without one another server may have
    answered, or the registry itself at a mistaken address (with 404), and no message may be
    rejected for that.
    """
    if status not in {404, 422}:
        return False
    try:
        found = msgspec.json.decode(body, type=_RegistryProblem)
    except (ValueError, RecursionError):
        return False
    return found.error_code // 100 == status


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
