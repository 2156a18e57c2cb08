"""The check at the start: whether uvicorn still has what `connection` overrides and reads.

A hook that uvicorn no longer calls, or calls otherwise, would take a bound away without a word.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from consumers.errors import ConfigError

UVICORN: Final = "uvicorn>=0.54,<0.55"  # as in pyproject.toml; a test holds the two together

# What `connection.Connection` overrides or calls, with the parameters, and what it reads.
_METHODS: Final = {
    "__init__": ("config", "server_state", "app_state", "_loop"),
    "connection_made": ("transport",),
    "data_received": ("data",),
    "eof_received": (),
    "on_message_begin": (),
    "on_headers_complete": (),
    "on_body": ("body",),
    "on_message_complete": (),
    "on_response_complete": (),
    "connection_lost": ("exc",),
    "_unset_keepalive_if_required": (),
}
_OF_A_CONNECTION: Final = (
    "config", "connections", "cycle", "flow", "headers", "loop", "parser", "pipeline", "transport",
    "url",
)  # fmt: skip
_OF_A_REQUEST: Final = (
    "disconnected", "keep_alive", "message_event", "more_body", "response_complete",
    "response_started",
)  # fmt: skip


def check_uvicorn(config: uvicorn.Config) -> None:
    """See to it that uvicorn still has what `connection.Connection` stands on.

    Parameters
    ----------
    config : uvicorn.Config
        What it would serve with; it is loaded.

    Raises
    ------
    ConfigError
        When a method has gone or takes other parameters, or an attribute has gone.
    """
    missing: list[str] = []
    try:
        missing.extend(_missing(config))
    except Exception as error:  # noqa: BLE001 -- a private class may have become anything
        missing.append(f"a connection cannot be made: {error!r}")
    if missing:
        raise ConfigError(
            f"http.enabled: uvicorn {version('uvicorn')} does not fit the bounds of connections: "
            f"{'; '.join(missing)}. Install {UVICORN}, or set http.enabled: false"
        )


def _missing(config: uvicorn.Config) -> Iterator[str]:
    for name, parameters in _METHODS.items():
        method = vars(HttpToolsProtocol).get(name)
        if method is None:
            yield f"HttpToolsProtocol.{name} is not there"
        elif tuple(inspect.signature(method).parameters)[1:] != parameters:
            yield f"HttpToolsProtocol.{name} takes {inspect.signature(method)}"
    nothing: Any = object()
    connection = HttpToolsProtocol(config, ServerState(), {}, nothing)
    connection.on_message_begin()
    request_takes = list(inspect.signature(RequestResponseCycle).parameters)
    made: list[tuple[Any, tuple[str, ...]]] = [
        (connection, _OF_A_CONNECTION),
        (RequestResponseCycle(**dict.fromkeys(request_takes, nothing)), _OF_A_REQUEST),
        (FlowControl(nothing), ("write_paused",)),
    ]
    for each, names in made:
        for name in names:
            if not hasattr(each, name):
                yield f"{type(each).__name__}.{name} is not there"
