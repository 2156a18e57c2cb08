"""A broker's answers are taken off the socket in large pieces.

The client reads 4,096 bytes at a time until the socket is empty: 75,000 system calls for a million
messages, each of which lets go of the interpreter's lock and has to get it back. Here a piece may
be a quarter of a megabyte, and a piece that is not full was the last.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.errors import KafkaConnectionError
from kafka.net.transport import KafkaTCPTransport

PIECE_BYTES: Final = 1 << 18


def receive_in_large_pieces() -> None:
    """Have all plain connections of this process read so from now on; TLS has pieces of its own."""
    KafkaTCPTransport._sock_recv = _receive  # noqa: SLF001 -- the seam's version guard covers it


def _receive(transport: Any) -> tuple[bytes, Exception | None]:
    """Return what there is to read, and what ended the connection, if anything did."""
    pieces: list[bytes] = []
    while not pieces or len(pieces[-1]) == PIECE_BYTES:
        try:
            piece = transport._sock.recv(PIECE_BYTES)  # noqa: SLF001
        except (BlockingIOError, InterruptedError):
            break
        except OSError as error:
            return b"".join(pieces), KafkaConnectionError(error)
        if not piece:
            return b"".join(pieces), KafkaConnectionError("the broker closed the connection")
        pieces.append(piece)
    return b"".join(pieces), None
