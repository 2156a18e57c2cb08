"""Requests to other services over HTTP, bounded in time and size, on the standard library.

A service that sends a byte now and then is not waited for: the bound is that of the whole request.
`WebService` asks one service; `BoundedHttp` and `BoundedHttps` bound the requests of `urllib`, and
`TimedConnection` those of whoever reads answers by itself.
No redirect is followed and no proxy asked, as either would take a login to another host. No text of
a server gets into an error, as it may repeat a secret.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, Request

from consumers.errors import ConfigError

_BLOCK = 1 << 16


class RequestError(Exception):
    """A service gave no answer; the text is ours or the system's."""


class ServiceAnswer(NamedTuple):
    """What a service answered, whatever its status says."""

    status: int
    body: bytes


class WebService:
    """Asks one service, one request at a time; `cancel` may be called from any thread.

    `setting` is the section of the configuration that has the bounds. Certificates that cannot be
    read are a `ConfigError`.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        timeout_s: float,
        bytes_max: int,
        ssl_cafile: Path | None,
        *,
        setting: str,
    ) -> None:
        try:
            self._context = ssl.create_default_context(cafile=ssl_cafile)
        except OSError as error:
            raise ConfigError(
                f"{setting}.ssl_cafile: {ssl_cafile} has no certificates (PEM) that can be read: "
                f"{error.strerror or error}"
            ) from None
        self._headers, self._timeout_s, self._bytes_max = dict(headers), timeout_s, bytes_max
        self._setting = setting
        self._connection: HTTPConnection | None = None

    def ask(self, url: str, body: bytes | None = None) -> ServiceAnswer:
        """Get an address, or post a body of JSON to it; without an answer a `RequestError`."""
        try:
            parts = urlsplit(url)
            connection = self._connection = self._connection_to(parts.hostname or "", parts)
            try:
                connection.connect()
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                kind = {} if body is None else {"Content-Type": "application/json"}
                method = "GET" if body is None else "POST"
                connection.request(method, target, body, self._headers | kind)
                with connection.getresponse() as answer:
                    return ServiceAnswer(answer.status, self._read(answer))
            finally:
                self._connection = None
                connection.close()
        except TimeoutError:
            limit = f"{self._setting}.timeout_s: {self._timeout_s:g}"
            raise RequestError(f"the answer was not whole in time ({limit})") from None
        except (OSError, HTTPException, ValueError) as error:
            raise RequestError(_why(error)) from None

    def cancel(self) -> None:
        """End the request that is under way, if there is one."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _connection_to(self, host: str, parts: Any) -> HTTPConnection:
        # Without a port the last group of an IPv6 address would be taken for one.
        if parts.scheme == "https":
            port = parts.port or HTTPSConnection.default_port
            return TimedTlsConnection(host, port, timeout=self._timeout_s, context=self._context)
        port = parts.port or HTTPConnection.default_port
        return TimedConnection(host, port, timeout=self._timeout_s)

    def _read(self, answer: HTTPResponse) -> bytes:
        body = b""
        while block := answer.read1(_BLOCK):
            body += block
            if len(body) > self._bytes_max:
                raise RequestError(f"the answer is longer than {self._bytes_max} bytes")
        if answer.length:
            raise RequestError(f"the answer broke off after {len(body)} bytes")
        return body


class BoundedHttp(HTTPHandler):
    """A handler of `urllib`: its time limit is that of the whole request and answer."""

    def http_open(self, req: Request) -> HTTPResponse:
        """Ask over a connection that is bounded."""
        return self.do_open(TimedConnection, req)


class BoundedHttps(HTTPSHandler):
    """The same over TLS, with the certificates of the system."""

    def https_open(self, req: Request) -> HTTPResponse:
        """Ask over a connection that is bounded."""
        return self.do_open(TimedTlsConnection, req)


class TimedConnection(HTTPConnection):
    """A connection of which all calls together may take its time limit."""

    def connect(self) -> None:
        """Connect; the time begins to run."""
        assert self.timeout is not None
        until_s = time.monotonic() + self.timeout
        super().connect()
        self.sock = _BoundedSocket(self.sock, until_s)


class TimedTlsConnection(TimedConnection, HTTPSConnection):
    """The same over TLS."""


class _BoundedSocket:
    """A socket of which each call may take what is left of the whole time."""

    def __init__(self, inner: socket.socket, until_s: float) -> None:
        self._inner, self._until_s = inner, until_s

    def limit(self) -> None:
        """Give the next call the time that is left; with none it is a `TimeoutError`."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._inner.settimeout(left_s)

    def sendall(self, data: Any) -> None:
        """Send all of it."""
        self.limit()
        self._inner.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return what comes as a file; `http.client` reads it so."""
        assert mode == "rb"
        return io.BufferedReader(_BoundedReader(self._inner.makefile("rb", buffering=0), self))

    def shutdown(self, how: int) -> None:
        """End both ways."""
        self._inner.shutdown(how)

    def close(self) -> None:
        """Close it."""
        self._inner.close()


class _BoundedReader(io.RawIOBase):
    def __init__(self, raw: socket.SocketIO, bounds: _BoundedSocket) -> None:
        self._raw, self._bounds = raw, bounds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._bounds.limit()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _why(error: Exception) -> str:
    """Return what went wrong in our own words or the system's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
