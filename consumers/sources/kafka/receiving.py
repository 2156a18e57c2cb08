"""A broker's answers are taken off the socket in large pieces.

The client reads 4,096 bytes at a time until the socket is empty: 75,000 system calls for a million
messages, each of which lets go of the interpreter's lock and has to get it back. Here a piece may
be a quarter of a megabyte, and a piece that is not full was the last.

Only the connections of one consumer read so. Its connections are made by a private method of its
connection manager; what that makes is given another way to read. Where either is not as it was
looked at, reading goes on in small pieces: slower, and right.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

from kafka.errors import KafkaConnectionError
from kafka.net.transport import KafkaTCPTransport

PIECE_BYTES: Final = 1 << 18


def receive_in_large_pieces(net: Any) -> str | None:
    """Have the plain connections of one network client read so; TLS has pieces of its own.

    Parameters
    ----------
    net : kafka.net.compat.KafkaNetClient
        It has no connection yet.

    Returns
    -------
    str or None
        Why it goes on in small pieces; None where it reads in large ones.
    """
    manager = getattr(net, "_manager", None)
    build = getattr(manager, "_build_transport", None)
    receive = getattr(KafkaTCPTransport, "_sock_recv", None)
    if not inspect.iscoroutinefunction(build):
        return "its connection manager has no coroutine _build_transport"
    if receive is None or list(inspect.signature(receive).parameters) != ["self"]:
        return "its transport has no method _sock_recv without parameters"

    async def build_ours(*args: Any, **kwargs: Any) -> Any:
        transport = await build(*args, **kwargs)
        if type(transport) is KafkaTCPTransport and hasattr(transport, "_sock"):
            transport._sock_recv = functools.partial(_receive, transport)  # noqa: SLF001
        return transport

    manager._build_transport = build_ours  # type: ignore[union-attr]  # noqa: SLF001
    return None


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
