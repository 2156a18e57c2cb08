"""Who may teach: the rules for requests that change something.

On loopback anybody at this machine may, but no web page of somebody else's that happens to be open
there: its requests name another Origin, or come by a name of its own for our address (DNS
rebinding), so Origin and Host are looked at. Everywhere else, and wherever a token is set, the
token is asked for; nothing sends that along unasked.
"""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

from consumers.config import HttpSettings
from consumers.web.problems import ProblemError

_LOCALHOST = "localhost"


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine's own.

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


def needs_token(settings: HttpSettings) -> bool:
    """Tell whether a change asks for the token."""
    return settings.token is not None or not is_loopback(settings.host)


def is_open(settings: HttpSettings) -> bool:
    """Tell whether anybody at all may change something."""
    return settings.token is not None or is_loopback(settings.host)


NOT_OPEN = (
    "changes are taken from this machine alone, or with a token: set http.token by "
    "${STREAMNB_TOKEN}, or http.host: 127.0.0.1"
)


def check_change(request: Request, settings: HttpSettings) -> None:
    """Let a request pass that may change something.

    Raises
    ------
    ProblemError
        401 without the right token, 403 where none is set or the request comes from another site.
    """
    if settings.token is not None:
        _check_token(request, settings.token.get_secret_value())
    elif not is_loopback(settings.host):
        raise ProblemError(403, NOT_OPEN)
    else:
        _check_site(request, settings)


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


def _check_site(request: Request, settings: HttpSettings) -> None:
    hosts = request.headers.getlist("host")
    host = _name(f"//{hosts[0]}") if len(hosts) == 1 else None
    if host is None or not (is_loopback(host) or host == settings.host.lower()):
        raise ProblemError(
            403,
            f"changes are taken under this machine's own names alone, and Host is "
            f"{', '.join(hosts)[:80]!r}; ask http://{settings.host} or set http.token",
        )
    origins = request.headers.getlist("origin")
    ours = f"http://{hosts[0].lower()}"
    if any(origin.lower() != ours for origin in origins):
        raise ProblemError(
            403,
            f"changes are taken from our own page alone, and Origin is {origins[0][:80]!r}; send "
            "none, or set http.token",
        )


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
