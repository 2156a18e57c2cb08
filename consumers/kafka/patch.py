"""Where columns enter the client: a private class of it is replaced, if that is found to be safe.

The client's fetcher makes a `PartitionRecords` of each response. Giving it our class instead is no
part of the client's interface, so two things must hold first: the client is of a version that this
was made for, and a few batches, written by the client itself, come out of both classes alike. Where
either fails, reading goes on with the client's own class: slower, and right.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

import kafka
from kafka.errors import KafkaConnectionError
from kafka.net.transport import KafkaTCPTransport

from consumers.kafka.fetch_decoder import ColumnRecords
from consumers.kafka.self_check import difference

_FROM: Final = (3, 0, 12)
_BELOW: Final = (3, 1)


def is_known() -> bool:
    """Tell whether the client is of a version whose private parts were looked at."""
    parts = tuple(int(part) for part in kafka.__version__.split(".")[:3] if part.isdigit())
    return _FROM <= parts < _BELOW


def replace_decoder(consumer: Any) -> str | None:
    """Make a new consumer hand over columns, if both conditions hold.

    Parameters
    ----------
    consumer : kafka.KafkaConsumer
        It has not polled yet.

    Returns
    -------
    str or None
        Why it goes on handing over records; None where it hands over columns.
    """
    if not is_known():
        return f"kafka-python is {kafka.__version__}; columns were made for 3.0, from 3.0.12 on"
    why = difference(ColumnRecords)
    if why is None:
        consumer._fetcher.PartitionRecords = ColumnRecords  # noqa: SLF001
    return why


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
