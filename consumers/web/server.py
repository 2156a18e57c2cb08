"""The thread that listens: uvicorn around the application of `consumers.web.app`.

`start` binds the port in the caller's thread, so that a port in use is told at once, and leaves
the rest to the new thread: even the imports of Starlette and uvicorn (a quarter of a second) are
made there, while the daemon already reads. Who connects meanwhile waits in the socket's backlog.
"""

from __future__ import annotations

import errno
import socket
import threading
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry

from consumers.config import HttpSettings
from consumers.errors import ConfigError
from consumers.health import Health

if TYPE_CHECKING:
    import uvicorn

STOP_TIMEOUT_S = 2.0
_BACKLOG = 128


class HttpServer:
    """Serves metrics and health from a daemon thread.

    Parameters
    ----------
    settings : HttpSettings
        Host and port; port 0 takes a free one.
    registry : CollectorRegistry
        The metrics to show.
    health : Health
        The watch over the consuming thread.
    """

    def __init__(self, settings: HttpSettings, registry: CollectorRegistry, health: Health) -> None:
        self._settings = settings
        self._registry = registry
        self._health = health
        self._lock = threading.Lock()
        self._stopping = False
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None

    def start(self) -> int:
        """Begin to listen.

        Returns
        -------
        int
            The port, also where the settings left it open.

        Raises
        ------
        ConfigError
            The address cannot be had; the message names `http.port` or `http.host`.
        """
        self._socket = _listen(self._settings)
        self._thread = threading.Thread(
            target=self._serve, args=(self._socket,), name="serve", daemon=True
        )
        self._thread.start()
        return int(self._socket.getsockname()[1])

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

    def _serve(self, listening: socket.socket) -> None:
        # Imported here, beside the daemon's own start and not before it.
        import uvicorn  # noqa: PLC0415

        from consumers.web.app import make_app  # noqa: PLC0415

        server = uvicorn.Server(
            uvicorn.Config(
                make_app(self._registry, self._health),
                log_config=None,  # our own logging stays as it is
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        with self._lock:
            if self._stopping:
                return
            self._server = server
        try:
            server.run(sockets=[listening])
        except SystemExit:
            # uvicorn leaves a failed start this way; the daemon goes on without HTTP, and says so.
            structlog.get_logger().exception("HTTP could not be served")


def _listen(settings: HttpSettings) -> socket.socket:
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
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
