"""A line between a client and a broker that is cut again and again."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator


class CuttingLine:
    """Passes bytes on, and ends each connection after a random number of them from the broker."""

    def __init__(self, port: int, target: int, mean_bytes: int, seed: int) -> None:
        self.n_cuts = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self._target = target
        self._mean_bytes = mean_bytes
        self._chance = random.Random(seed)
        self._threads: list[threading.Thread] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Let clients in for as long as it is open."""
        self._begin(self._accept)
        try:
            yield
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for thread in self._threads:
                thread.join()

    def _begin(self, what: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=what, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._target))
                n_bytes = int(self._chance.expovariate(1 / self._mean_bytes))
                self._begin(self._pass_on, client, broker, 1 << 60)
                self._begin(self._pass_on, broker, client, n_bytes)

    def _pass_on(self, source: socket.socket, to: socket.socket, left: int) -> None:
        with source, contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                to.sendall(data[:left])
                if left < len(data):
                    self.n_cuts += 1
                    break
                left -= len(data)
        for each in (source, to):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
