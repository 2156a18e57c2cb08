"""Who may read and who may change: rules for a request's Host, Origin, token and proxy headers.

The Host of every request is checked. A foreign page can let its own name point at our address
(DNS rebinding); a browser then takes our answers for that page's own. Such a request always carries
that name, never an IP address or a name of this machine.

A request that changes something needs more. On loopback any program of this machine may send it,
but no page of another site and no proxy, as every client of a proxy looks local. On other
addresses, and wherever a token is set, the token is required.
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
import re
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Scope

from consumers.config.settings import HttpSettings
from consumers.http.requests import ProblemError

_LOCALHOST = "localhost"
# Nothing behind a bracket but a port.
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]]*?)(:[^:\[\]]*)?")
# Headers that proxies add. A client that sends them itself only gets stricter rules.
_PROXY_HEADERS = frozenset({b"forwarded", b"via", b"x-real-ip"})
_PROXY_PREFIX = b"x-forwarded-"


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
        self._known = functools.lru_cache(maxsize=256)(self._is_allowed)

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
        if name in _PROXY_HEADERS or name.startswith(_PROXY_PREFIX):
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
