"""A server on loopback that plays a script to each connection, and what speaks WebSocket there."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl

PATIENCE_S = 60.0


class Peer:
    """One connection of a client; `head` is its request, `asked` its query."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.settimeout(PATIENCE_S)
        head = b""
        while b"\r\n\r\n" not in head:
            data = connection.recv(4096)
            if not data:
                raise ConnectionError("the client has gone before it asked")
            head += data
        head, _, self._body = head.partition(b"\r\n\r\n")
        self.head = head.decode() + "\r\n"
        target = self.head.split(" ")[1]
        self.path, _, query = target.partition("?")
        self.asked = dict(parse_qsl(query))

    def header(self, name: str) -> str | None:
        """Return a header of the request."""
        found = re.search(rf"^{name}: (.*)\r$", self.head, re.MULTILINE | re.IGNORECASE)
        return None if found is None else found[1]

    def body(self) -> bytes:
        """Return the body of the request."""
        n = int(self.header("Content-Length") or 0)
        while len(self._body) < n and (data := self._connection.recv(4096)):
            self._body += data
        return self._body

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._connection.sendall(data)

    def accept(self) -> None:
        """Answer a WebSocket's handshake."""
        key = (self.header("Sec-WebSocket-Key") or "") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accepted = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        wanted = self.header("Sec-WebSocket-Protocol")
        more = "" if wanted is None else f"Sec-WebSocket-Protocol: {wanted}\r\n"
        self.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accepted}\r\n{more}\r\n".encode()
        )

    def answer(self, status: str, body: str = "", *headers: str) -> None:
        """Answer with a whole body."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        self.send(("\r\n".join(lines) + "\r\n\r\n" + body).encode())

    def begin(self) -> None:
        """Answer with a body that has no end."""
        self.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        """Send a piece of such a body."""
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def receive(self, n: int) -> bytes:
        """Return the next `n` bytes that the client sends, fewer if it closes before."""
        found = b""
        while len(found) < n and (data := self._connection.recv(n - len(found))):
            found += data
        return found

    def until_closed(self) -> bytes:
        """Wait until the client closes; return all that it sent."""
        found = b""
        try:
            while data := self._connection.recv(4096):
                found += data
        except ConnectionError:
            pass
        return found


Script = Callable[[Peer], None]


class LiveServer:
    """Plays the next script to each connection that is made, the last one to all that follow."""

    def __init__(self, *scripts: Script, context: ssl.SSLContext | None = None) -> None:
        self._scripts = list(scripts)
        self._context = context  # to speak TLS
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.peers: list[Peer] = []
        self.errors: list[Exception] = []
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in [self._thread, *self._threads]:
            thread.join(PATIENCE_S)
        assert not self.errors

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
            thread = threading.Thread(target=self._play, args=(script, connection), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, script: Script, connection: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            try:
                if self._context is not None:
                    connection = self._context.wrap_socket(connection, server_side=True)
                    stack.enter_context(connection)
                peer = Peer(connection)
                self.peers.append(peer)
                script(peer)
            except (ConnectionError, TimeoutError, ssl.SSLError):
                pass  # the client has gone
            except Exception as error:  # noqa: BLE001 -- the test is told
                self.errors.append(error)


def frame(data: bytes, opcode: int = 1, *, final: bool = True) -> bytes:
    """Return a WebSocket frame as a server sends it."""
    first = opcode | (0x80 if final else 0)
    n = len(data)
    if n < 126:
        return bytes([first, n]) + data
    if n < 1 << 16:
        return bytes([first, 126]) + n.to_bytes(2, "big") + data
    return bytes([first, 127]) + n.to_bytes(8, "big") + data


def commit1(n: int, collection: str = "app.bsky.feed.post", **more: Any) -> bytes:
    """Return commit number `n` on Jetstream's first wire."""
    commit = {"rev": f"r{n}", "operation": "create", "collection": collection, "rkey": f"k{n}"}
    record = {"text": f"text {n}", "langs": ["en"]}
    return json.dumps(
        {"did": "did:plc:a", "time_us": time_us(n), "kind": "commit"}
        | {"commit": commit | {"record": record}}
        | more
    ).encode()


def commit2(n: int, collection: str = "app.bsky.feed.post", **more: Any) -> bytes:
    """Return the same commit on its second wire."""
    micros = f"2026-11-23T06:{n // 60:02}:{n % 60:02}.000000Z"
    payload: Mapping[str, Any] = {
        "$type": "network.bsky.jetstream.subscribeEvents#commit", "seq": 100 + n,
        "did": "did:plc:a", "time": micros, "rev": f"r{n}", "operation": "create",
        "collection": collection, "rkey": f"k{n}", "record": {"text": f"text {n}"},
    }  # fmt: skip
    return json.dumps({"$type": "message", "payload": {**payload, **more}}).encode()


def time_us(n: int) -> int:
    """Return the time of commit number `n`: one a second."""
    return 1_795_413_600_000_000 + n * 1_000_000
