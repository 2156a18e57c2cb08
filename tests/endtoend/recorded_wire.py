"""A TCP proxy between the daemon and a WebSocket server that keeps what the server sent."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from websockets.frames import DATA_OPCODES, Frame
from websockets.protocol import CLIENT, Protocol

_PATIENCE_S = 120.0


class RecordedWire:
    """Forwards bytes in both directions; the server may be killed and started again."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        name, _, port = host.partition(":")
        self._server = name, int(port)
        self._answers: list[tuple[threading.Thread, bytearray]] = []
        self._threads: list[threading.Thread] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Accept connections until the block ends."""
        accepting = threading.Thread(target=self._accept, daemon=True)
        accepting.start()
        try:
            yield
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            accepting.join(_PATIENCE_S)
            for thread in self._threads:
                thread.join(_PATIENCE_S)

    def sent(self) -> list[bytes]:
        """Return the messages of all WebSockets so far, in order; the server must have ended."""
        found: list[bytes] = []
        for answering, answer in list(self._answers):
            answering.join(_PATIENCE_S)
            assert not answering.is_alive(), "the daemon does not take what the server sent"
            head, _, frames = bytes(answer).partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 101 "):
                continue
            protocol = Protocol(CLIENT, max_size=None)
            protocol.receive_data(frames)
            for frame in protocol.events_received():
                assert isinstance(frame, Frame)
                if frame.opcode in DATA_OPCODES:
                    assert frame.fin
                    found.append(bytes(frame.data))
        return found

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                daemon, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:  # it is down
                    daemon.close()
                    continue
                answer = bytearray()
                answering = threading.Thread(
                    target=_forward, args=(server, daemon, answer), daemon=True
                )
                requesting = threading.Thread(
                    target=_forward_requests, args=(daemon, server, answering), daemon=True
                )
                answering.start()
                requesting.start()
                self._answers.append((answering, answer))
                self._threads.append(requesting)


def _forward_requests(
    daemon: socket.socket, server: socket.socket, answering: threading.Thread
) -> None:
    """Forward what the daemon sends; close both sockets once both directions have ended."""
    with daemon, server:
        _forward(daemon, server, bytearray())
        answering.join()


def _forward(source: socket.socket, to: socket.socket, kept: bytearray) -> None:
    """Forward and keep bytes until the source ends, even if the other side takes no more."""
    is_open = True
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            kept += data
            if is_open:
                try:
                    to.sendall(data)
                except OSError:
                    is_open = False
    # Closing a socket with unread bytes resets the connection, and the peer may lose the last ones.
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_WR)
