"""The thread that listens: uvicorn around the application of `consumers.http.app`.

`start` binds the port in the caller's thread, so that a port in use is an error at once, and leaves
the rest to the new thread: even the imports of Starlette and uvicorn (0.3 s) are made there,
while the daemon already reads. Who connects meanwhile waits in the socket's backlog.
`open_page` shows what is served in a browser (`streamnb run --open`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import socket
import sys
import threading
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from consumers.config.sections import HttpSettings
from consumers.errors import ConfigError, ConsumerError
from consumers.http.state import AppState
from consumers.monitoring.logs import traced_app

if TYPE_CHECKING:
    import uvicorn

STOP_TIMEOUT_S = 2.0
FILES_SPARED = 100  # for checkpoints, the store of recent messages, brokers
NICE = -5  # three times the weight of other threads, if the service's limits allow it
_BACKLOG = 1024
# Bytes of a connection that the system takes before they can be sent; by itself it takes megabytes.
# These would be old when a slow client gets them: what still waits here can be left out (events),
# and what the client takes is seen at once.
_UNSENT_MAX = 16 << 10
# A page that is served answers at once, one whose server is being imported a second later.
PATIENCE_S = 30.0
EVERY_ADDRESS = {"http://0.0.0.0:": "http://127.0.0.1:", "http://[::]:": "http://[::1]:"}
log = structlog.get_logger(__name__)


class HttpServer:
    """Serves the page, the API, metrics and health from a daemon thread; port 0 is any free one."""

    def __init__(self, settings: HttpSettings, app_state: AppState) -> None:
        self._settings = settings
        self._app_state = app_state
        self._connections_max = settings.connections_max
        self._lock = threading.Lock()
        self._stopping = False
        self._server: uvicorn.Server | None = None
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None

    def start(self) -> int:
        """Begin to listen; return the port.

        ConfigError names `http.port` or `http.host` if the address cannot be bound.
        """
        wanted = self._settings.connections_max
        self._connections_max = connections_allowed(wanted, allow_many_files())
        if self._connections_max < wanted:
            log.warning(
                "few_connections",
                detail=f"{self._connections_max} instead of http.connections_max: {wanted}, as the "
                "process may have too few open files; raise the limit of its service",
            )
        self._socket = _listen(self._settings)
        port = int(self._socket.getsockname()[1])  # the thread may close it again
        self._thread = threading.Thread(
            target=self._run, args=(self._socket,), name="serve", daemon=True
        )
        self._thread.start()
        return port

    def stop(self) -> None:
        """End the thread, within two seconds; answers under way are finished."""
        with self._lock:
            self._stopping = True
            if self._server is not None:
                self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
        if self._socket is not None:
            self._socket.close()

    def watch(self) -> None:
        """Raise what ended the thread, if anything did: no request is answered any more."""
        error = self._failure
        if isinstance(error, ConsumerError):
            raise error
        if error is not None:
            raise ConsumerError(
                f"HTTP could not be served any more: {error!r}. The log has more; start again: the "
                "stream goes on from the last checkpoint"
            ) from error

    def _run(self, listening: socket.socket) -> None:
        try:
            self._serve(listening)
        except BaseException as error:  # `watch` raises it on the main thread
            log.exception("http_failed")
            self._failure = error
            # Clients are turned away at once, instead of waiting in the backlog.
            listening.close()

    def _serve(self, listening: socket.socket) -> None:
        # Imported on this thread, beside the start of the daemon.
        import uvicorn  # noqa: PLC0415

        from consumers.http.app import make_app  # noqa: PLC0415
        from consumers.http.connection import BoundedConfig, check_uvicorn  # noqa: PLC0415

        raise_priority()
        settings, metrics = self._settings, self._app_state.metrics.http
        app = make_app(self._app_state)
        served = traced_app(app)
        config = BoundedConfig(served, metrics, settings.request_timeout_s, self._connections_max)
        config.load()
        check_uvicorn(config)
        server = uvicorn.Server(config)
        metrics.watch_connections(lambda: len(server.server_state.connections))
        with self._lock:
            if self._stopping:
                return
            self._server = server
        # Malformed requests are counted; a log line for each would let any client fill the log.
        # A filter of this server's own: a level, put back by one, would stay raised by another that
        # served beside it.
        chatter, quiet = logging.getLogger("uvicorn.error"), _Quiet()
        chatter.addFilter(quiet)
        try:
            server.run(sockets=[listening])
            if not self._stopping:
                raise RuntimeError("the server ended, and nobody had stopped it")
        finally:
            chatter.removeFilter(quiet)
            for workers in app.state.workers:
                workers.close()


class _Quiet(logging.Filter):
    """Lets only what is critical pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is critical."""
        return record.levelno >= logging.CRITICAL


def start_server(
    app_state: AppState, stack: contextlib.ExitStack
) -> tuple[str, Callable[[], None]]:
    """Serve an application until the stack stops it; return its address and `HttpServer.watch`."""
    http = app_state.settings.http
    server = HttpServer(http, app_state)
    port = server.start()
    stack.callback(server.stop)
    address = f"http://{f'[{http.host}]' if ':' in http.host else http.host}:{port}"
    log.info("serving", address=address)
    return address, server.watch


def raise_priority() -> None:
    """Schedule this thread before the others, if the system allows it.

    It has little to do, but a person waits for it; behind threads that always have work it would
    wait for several of their turns at each step.
    """
    thread = threading.get_native_id()
    with contextlib.suppress(PermissionError):  # a sandbox may forbid it
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)


def allow_many_files() -> int:
    """Raise the limit of open files as far as the system allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def connections_allowed(wanted: int, n_files: int) -> int:
    """Return how many connections fit into the limit of open files, up to `wanted`.

    Checkpoints and searches need files too, and as many connections again may be open for the
    moment in which they are turned away.

    Examples
    --------
    >>> connections_allowed(1000, 1_048_576), connections_allowed(1000, 1024)
    (1000, 462)
    """
    return max(1, min(wanted, (n_files - FILES_SPARED) // 2))


def _listen(settings: HttpSettings) -> socket.socket:
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    # Accepted connections have it too. A system without it takes more ahead.
    with contextlib.suppress(AttributeError, OSError):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_MAX)
    try:
        # A port whose last connections are only winding up may be taken again at once.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"http.port: {port} on {host} is taken by another program (another streamnb?); "
                "choose another http.port, or 0 for any free one, or set http.enabled: false"
            ) from None
        if error.errno == errno.EACCES:
            raise ConfigError(
                f"http.port: {port} may not be opened by this user; choose one above 1023"
            ) from None
        raise ConfigError(
            f"http.host: {host!r} is not an address of this machine ({error.strerror}); "
            "choose 127.0.0.1, or 0.0.0.0 for all its addresses"
        ) from None
    listening.setblocking(False)
    return listening


def open_page(address: str | None, environ: Mapping[str, str] = os.environ) -> None:
    """Open a page once it answers, on a thread of its own; without a screen, say where it is.

    `address` is None if nothing is served. `environ` says whether there is a screen, or a browser
    that needs none (BROWSER).
    """
    if address is None:
        log.warning("page_not_opened", detail="http.enabled is false, so there is no page to open")
        return
    for every, this in EVERY_ADDRESS.items():
        address = address.replace(every, this)
    # A browser of a terminal would take the screen that the daemon draws on.
    if not any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        log.warning("page_not_opened", detail=f"there is no screen here; the page is at {address}")
        return
    threading.Thread(target=_open, args=(address,), name="open-page", daemon=True).start()


def _open(address: str) -> None:
    # An address of this machine is asked as it is: to a proxy it would name the proxy's own.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=PATIENCE_S):
            opened = webbrowser.open(address)
    except (urllib.error.URLError, OSError, webbrowser.Error) as error:
        log.warning("page_not_opened", detail=f"{address}: {error}")
        return
    if not opened:
        log.warning("page_not_opened", detail=f"no browser was found; the page is at {address}")
