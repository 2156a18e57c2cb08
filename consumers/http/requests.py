"""What a request brings, and the answers to it.

A request's body, parameters, id and examples are read strictly. An unknown name, a value of another
kind or bytes that are not UTF-8 are a problem that says so, instead of an answer to another
question; examples that the stream would refuse are refused in the same words, with the place in the
request. A problem (RFC 9457) says what was found and the way out, and nothing of the machine: no
path, no traceback.

At the end stand the rules for a request's Host, Origin, token and proxy headers. The Host of every
request is checked. A foreign page can let its own name point at our address (DNS rebinding); a
browser then takes our answers for that page's own. Such a request always carries that name, never
an IP address or a name of this machine.

A request that changes something needs more. On loopback any program of this machine may send it,
but no page of another site and no proxy, as every client of a proxy looks local. On other
addresses, and wherever a token is set, the token is required.
"""

from __future__ import annotations

import hmac
import http
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from consumers.config.model import FieldKind
from consumers.config.sections import HttpSettings
from consumers.config.settings import Settings
from consumers.decode.decoder import Decoder
from consumers.decode.example_input import example_at, text_field
from consumers.decode.json import replace_lone_surrogates
from consumers.decode.labels import NoLabels
from consumers.features import columns_of, judged_kinds
from consumers.http.schemas import QUERY_CHARS_MAX, ApiProblem
from consumers.messages import Partition, RawColumns
from consumers.process import cached

PROBLEM_MEDIA_TYPE = "application/problem+json"
NO_STORE = {"Cache-Control": "no-store"}
RETRY_SOON = {"Retry-After": "1"}
HELD_BYTES_MAX = 64 << 20  # of all bodies together, whoever sends them
T = TypeVar("T")
_JSON = "application/json"
_PAIRS_MAX = 64
_REQUEST = Partition("request", 0)
_TYPE = "about:blank"  # the status says what kind of problem it is; RFC 9457, 4.2.1


def json_response(answer: msgspec.Struct | bytes, status: int = 200) -> Response:
    """Return a schema, or its JSON, as an answer; numbers that are not finite become null."""
    body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    return Response(body, status, NO_STORE, "application/json")


class ProblemError(Exception):
    """A request that is answered by a problem.

    `detail` says what was found and the way out; `instance` names this occurrence in the log;
    `title` is the status's own phrase if it is left out.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        instance: str | None = None,
        title: str | None = None,
    ) -> None:
        super().__init__(detail)
        title = title or http.HTTPStatus(status).phrase
        self.problem = ApiProblem(_TYPE, title, status, detail, instance)
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the answer."""
        body, headers = msgspec.json.encode(self.problem), NO_STORE | self.headers
        return Response(body, self.problem.status, headers, PROBLEM_MEDIA_TYPE)


def component_is_off(what: str, setting: str) -> ProblemError:
    """Return the problem of asking a component that the settings turn off."""
    return ProblemError(404, f"{what}; set {setting}, and start the daemon again")


def corrections_off(settings: Settings) -> str:
    """Return why no corrections are taken: what is to be set, or that nothing would help."""
    if settings.model.half_life_s is not None:
        return "a model with model.half_life_s takes none"
    if settings.corrections.to != "none":
        lacking = "checkpoint.folder, where their journal is kept"
    elif settings.group.folder is None:
        lacking = "corrections.to: journal"
    elif settings.late_labels.address.kind == "none":
        lacking = "corrections.to: kafka:TOPIC"
    else:
        return "members of a group with late_labels take none"
    return f"set {lacking}, and start the daemon again"


class BodyReader:
    """Reads JSON bodies: each within `http.body_bytes_max`, all together within HELD_BYTES_MAX."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = 0

    async def read(self, request: Request, decoder: msgspec.json.Decoder[T]) -> T:
        """Return the decoded body of a request that says it is JSON.

        The problem is 400 if it is not JSON; 413 if it is too large, as soon as that is known; 415
        if its headers say something else than JSON; 422 if it is not the JSON that is expected; 503
        if too many bodies are being read.
        """
        _check_type(request)
        return _decode(await self._receive(request), decoder)

    async def _receive(self, request: Request) -> bytes:
        stated = _stated_length(request)
        if stated > self._bytes_max:
            raise self._too_large(stated)
        parts: list[bytes] = []
        n_bytes = 0
        try:
            while True:
                event = await request.receive()
                if event["type"] == "http.disconnect":
                    raise ClientDisconnect
                part: bytes = event.get("body", b"")
                n_bytes += len(part)
                self._held += len(part)
                if n_bytes > self._bytes_max:
                    raise self._too_large(stated)
                if self._held > HELD_BYTES_MAX:
                    raise ProblemError(
                        503,
                        "too many bodies are being sent at once; send it again in a moment",
                        headers=RETRY_SOON | {"Connection": "close"},
                    )
                parts.append(part)
                if not event.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self._held -= n_bytes

    def _too_large(self, stated: int) -> ProblemError:
        return ProblemError(
            413,
            f"the body has {stated or 'more'} bytes, and may have {self._bytes_max} "
            "(http.body_bytes_max); send it in parts",
            headers={"Connection": "close"},  # the client may still be sending
        )


def _decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # Half of an emoji that was cut in two is JSON; the stream's messages hold it too.
            whole = replace_lone_surrogates(body)
            if whole == body:
                raise
        return decoder.decode(whole)
    except msgspec.ValidationError as error:
        raise ProblemError(422, f"the body does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProblemError(400, f"the body is not JSON: {error}") from None
    except RecursionError:
        detail = "the body is not JSON that can be read: it is nested too deeply"
        raise ProblemError(400, detail) from None


def given_in(asked: msgspec.Struct, *names: str) -> tuple[str, Any]:
    """Return the one of these fields that a body gives, and its value; 422 unless it is one."""
    given = [name for name in names if getattr(asked, name) not in (None, msgspec.UNSET)]
    if len(given) != 1:
        wanted = f"{', '.join(names[:-1])} and {names[-1]}"
        raise ProblemError(422, f"the body has {len(given)} of them: give one of {wanted}")
    return given[0], getattr(asked, given[0])


def _check_type(request: Request) -> None:
    found = request.headers.get("content-type", "")
    if found.partition(";")[0].strip().lower() != _JSON:
        raise ProblemError(
            415,
            f"the body is said to be {found[:80] or 'nothing'!r}; send JSON, with the header "
            f"Content-Type: {_JSON}",
            headers={"Accept": _JSON},
        )
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise ProblemError(
            415,
            f"the body is said to be packed ({encoding[:80]!r}); send it as it is",
            headers={"Accept-Encoding": "identity"},
        )


def _stated_length(request: Request) -> int:
    """Return the body's length by its header, 0 without one."""
    found = request.headers.get("content-length", "")
    return int(found) if found.isascii() and found.isdigit() else 0


class QueryParameters:
    """The parameters in a request's address, of which only `names` are known.

    The problem is 400 if they are not UTF-8, 422 if one is unknown.
    """

    def __init__(self, request: Request, names: Sequence[str] = ()) -> None:
        raw: bytes = request.scope["query_string"]
        try:
            pairs = parse_qsl(
                raw.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_PAIRS_MAX,
            )
        except UnicodeDecodeError:
            raise ProblemError(400, "the address is not UTF-8; encode it with %XX") from None
        except ValueError:
            raise ProblemError(422, f"more than {_PAIRS_MAX} parameters; send fewer") from None
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            if name not in names:
                others = f"there are {', '.join(names)}" if names else "this path takes none"
                raise ProblemError(422, f"there is no parameter {name[:80]!r}; {others}")
            if "\0" in value:
                raise ProblemError(422, f"{name} holds a NUL; leave it out")
            self._values.setdefault(name, []).append(value)

    def texts(self, name: str, chars_max: int) -> list[str]:
        """Return all values of a parameter; 422 if one has more characters than it may."""
        values = self._values.get(name, [])
        longest = max(map(len, values), default=0)
        if longest > chars_max:
            raise ProblemError(
                422, f"{name} has {longest} characters, and may have {chars_max}; shorten it"
            )
        return values

    def text(self, name: str, chars_max: int = QUERY_CHARS_MAX) -> str:
        """Return the value of a parameter, empty if it is absent; 422 if there are several."""
        n_values = len(self._values.get(name, []))
        if n_values > 1:
            raise ProblemError(422, f"{name} is given {n_values} times; give it once")
        return "".join(self.texts(name, chars_max))

    def whole(self, name: str, low: int, high: int) -> int | None:
        """Return a whole number, None if it is absent; 422 if it is out of its bounds."""
        text = self.text(name)
        if not text:
            return None
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
        if value is None or not low <= value <= high:
            raise ProblemError(
                422, f"{name} is {text[:80]!r}; a whole number from {low} to {high} is wanted"
            )
        return value


def message_id(request: Request, prefix: str) -> str:
    """Return the id at the end of a path, behind `prefix`.

    The problem is 400 if it is not UTF-8, 404 if it is missing, 422 if parameters follow it.
    """
    if request.scope["query_string"]:
        raise ProblemError(
            422,
            "there are no parameters behind an id; write a question mark that belongs to it as %3F",
        )
    raw: bytes = request.scope["raw_path"]
    try:
        found = unquote(raw.decode("ascii"), errors="strict").removeprefix(prefix)
    except UnicodeDecodeError:
        raise ProblemError(400, "the id is not UTF-8; encode it with %XX") from None
    if not found:
        raise ProblemError(404, f"an id is missing behind {prefix}")
    return found


class RequestExamples(msgspec.Struct, frozen=True):
    """Examples as columns of the model's fields, each of length `n`."""

    columns: dict[str, Any]
    n: int
    kinds: Mapping[str, FieldKind] | None = None  # None if the columns are lists of texts

    def example(self, i: int) -> dict[str, Any]:
        """Return one example, its fields by name."""
        if self.kinds is None:
            return {name: column[i] for name, column in self.columns.items()}
        return example_at(self.columns, self.kinds, i)


class ExampleDecoder:
    """Decodes the texts and messages of requests as the settings say for the stream's."""

    def __init__(self, settings: Settings) -> None:
        model = settings.model
        self._kinds = judged_kinds(settings)
        self.text_field = text_field(self._kinds)  # of a text alone; None if none, or several
        self._decoder = Decoder(settings.message, NoLabels(model.classes), reads=self._kinds)

    def examples(self, name: str, value: Any) -> RequestExamples:
        """Return what a body gives as `text`, `texts`, `message` or `messages` as examples."""
        values = value if name in {"texts", "messages"} else [value]
        if name in {"text", "texts"}:
            return self._texts(values)
        return self._messages([bytes(each) for each in values], name)

    def _texts(self, texts: Sequence[str]) -> RequestExamples:
        """Return texts as examples; 422 if the model reads no text, or several."""
        if self.text_field is None:
            raise ProblemError(
                422,
                "the model does not read one text alone; send a message with its fields: "
                + ", ".join(self._kinds),
            )
        return RequestExamples({self.text_field: texts}, len(texts))

    def _messages(self, messages: Sequence[bytes], name: str) -> RequestExamples:
        """Return messages, as JSON objects, as examples; `name` is what the request calls them.

        The problem is 422 for the first that the stream would reject, or that is a deletion.
        """
        decoded = self._decoder.decode(_raw(messages))
        for reject in decoded.rejects:
            place = _place(name, reject.offset)
            raise ProblemError(422, f"{place} cannot be used ({reject.reason}): {reject.detail}")
        rows = decoded.to_predict
        if len(rows) != len(messages):
            at = int(np.setdiff1d(np.arange(len(messages)), rows)[0])
            raise ProblemError(
                422,
                f"{_place(name, at)} is a deletion, or ignored by the settings of `message`: there "
                "is nothing in it to judge",
            )
        columns = columns_of(decoded, rows, list(self._kinds))
        return RequestExamples(dict(columns), len(messages), self._kinds)


def _place(name: str, i: int) -> str:
    return f"{name}[{i}]" if name == "messages" else name


def _raw(messages: Sequence[bytes]) -> RawColumns:
    """Return messages as a source hands them over; their offsets are their places."""
    n = len(messages)
    ends = np.cumsum(np.fromiter(map(len, messages), np.int64, n))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    nothing = np.full(n, -1, np.int64)
    return RawColumns(
        _REQUEST, b"".join(messages), starts, ends, np.zeros(n, np.int64), nothing,
        np.arange(n, dtype=np.int64), nothing, n,
    )  # fmt: skip


# ---- who may read, and who may change ------------------------------------------------------------

_LOCALHOST = "localhost"
# Nothing behind a bracket but a port.
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]]*?)(:[^:\[\]]*)?")
# Headers that proxies add. A client that sends them itself only gets stricter rules.
_PROXY_HEADERS = frozenset({b"via", b"cdn-loop", b"x-envoy-external-address"})
_PROXY_PREFIXES = (b"x-forwarded", b"x-original-")
_PROXY_ENDINGS = (b"forwarded", b"forwarded-for", b"real-ip", b"client-ip", b"connecting-ip")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine.

    Examples
    --------
    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host.lower() == _LOCALHOST:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AllowedHosts:
    """The allowed Hosts: localhost, every IP address, `http.host` and `http.allowed_hosts`."""

    def __init__(self, settings: HttpSettings) -> None:
        names = {name.lower() for name in settings.allowed_hosts}
        self._all = "*" in names
        self._exact = frozenset({_LOCALHOST, settings.host.lower(), *names})
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        # A client sends the same Host with each request.
        self._known = cached("hosts", 256)(self._is_allowed)

    def check(self, scope: Scope) -> None:
        """Raise 400 unless a request has exactly one Host, 403 unless that is allowed."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            # A health check of HTTP/1.0 sends none; a browser always sends one.
            if not hosts and scope["http_version"] == "1.0":
                return
            raise ProblemError(400, f"the request has {len(hosts)} Host headers; send exactly one")
        if not self._known(hosts[0]):
            raise ProblemError(
                403,
                f"Host is {hosts[0].decode('latin-1')[:80]!r}, and is not allowed; ask by an IP "
                "address or localhost, or add the name to http.allowed_hosts",
            )

    def _is_allowed(self, header: bytes) -> bool:
        host = _name(header.decode("latin-1"))
        if host is None:
            return False
        if self._all or host in self._exact or host.endswith(self._suffixes):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True


def needs_token(settings: HttpSettings) -> bool:
    """Return whether a change requires the token."""
    return settings.bearer_token is not None or not is_loopback(settings.host)


def is_open(settings: HttpSettings) -> bool:
    """Return whether anybody at all may change something."""
    return settings.bearer_token is not None or is_loopback(settings.host)


CHANGES = "changes are taken"
_NOT_OPEN = (
    " from this machine alone, or with a token: set http.token by ${STREAMNB_TOKEN} or "
    "http.token_file, or http.host: 127.0.0.1"
)
NOT_OPEN = CHANGES + _NOT_OPEN


def check_change(request: Request, settings: HttpSettings, what: str = CHANGES) -> None:
    """Raise 401 without the right token, 403 if none is set and it comes from another site.

    `what` begins the sentence that says so.
    """
    token = settings.bearer_token
    if token is not None:
        _check_token(request, token)
    elif not is_loopback(settings.host):
        raise ProblemError(403, what + _NOT_OPEN)
    else:
        _check_no_proxy(request)
        _check_site(request, settings, what)


def _check_no_proxy(request: Request) -> None:
    for name, _ in request.headers.raw:
        is_from_proxy = name.startswith(_PROXY_PREFIXES) or name.endswith(_PROXY_ENDINGS)
        if is_from_proxy or name in _PROXY_HEADERS:
            raise ProblemError(
                403,
                f"the request came through a proxy (it has the header {name.decode('latin-1')}), "
                "so it may be anybody's; set http.token by ${STREAMNB_TOKEN} and send it, or ask "
                "the daemon itself",
            )


def _check_token(request: Request, token: str) -> None:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    right = hmac.compare_digest(given.strip().encode(), token.encode())
    if scheme.lower() != "bearer" or not right:
        raise ProblemError(
            401,
            "the token is missing or another one; send the header Authorization: Bearer TOKEN "
            "with the value of http.token",
            headers={"WWW-Authenticate": 'Bearer realm="streamnb"'},
        )


def _check_site(request: Request, settings: HttpSettings, what: str) -> None:
    hosts = request.headers.getlist("host")
    host = _name(hosts[0]) if len(hosts) == 1 else None
    if host is None or not (is_loopback(host) or host == settings.host.lower()):
        raise ProblemError(
            403,
            f"{what} under this machine's own names alone, and Host is "
            f"{', '.join(hosts)[:80]!r}; ask http://{settings.host} or set http.token",
        )
    origins = request.headers.getlist("origin")
    ours = f"http://{hosts[0].lower()}"
    if any(origin.lower() != ours for origin in origins):
        raise ProblemError(
            403,
            f"{what} from our own page alone, and Origin is {origins[0][:80]!r}; send "
            "none, or set http.token",
        )


def _name(host: str) -> str | None:
    """Return the name in a Host header, without its port; None if it is not a host."""
    if not _HOST.fullmatch(host):
        return None
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018 -- it raises if the port is not a number
    except ValueError:
        return None
    return parts.hostname if parts.netloc == host and "@" not in host else None
