"""Bodies of requests: read within their bounds, and decoded into a type of `wire`, or a problem."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from consumers.decode.json import replace_lone_surrogates
from consumers.http.problems import ProblemError

T = TypeVar("T")

HELD_BYTES_MAX = 64 << 20  # of all bodies together, whoever sends them
_JSON = "application/json"


class Bodies:
    """Reads bodies, each within its bound and all together within theirs.

    Parameters
    ----------
    bytes_max : int
        Of one body (`http.body_bytes_max`).
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = 0

    async def read(self, request: Request) -> bytes:
        """Return the body of a request that says it is JSON.

        Raises
        ------
        ProblemError
            413 where it is too large, which is told while it is still being sent; 415 where it is
            something else than JSON; 503 where too many are being read.
        """
        _check_type(request)
        if _length(request) > self._bytes_max:
            raise self._too_large(request)
        parts: list[bytes] = []
        n_bytes = 0
        try:
            while True:
                event = await request.receive()
                if event["type"] == "http.disconnect":
                    raise ClientDisconnect
                part: bytes = event.get("body", b"")
                n_bytes += len(part)
                self._held += len(part)
                if n_bytes > self._bytes_max:
                    raise self._too_large(request)
                if self._held > HELD_BYTES_MAX:
                    raise ProblemError(
                        503,
                        "too many bodies are being sent at once; send it again in a moment",
                        headers={"Retry-After": "1", "Connection": "close"},
                    )
                parts.append(part)
                if not event.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self._held -= n_bytes

    def _too_large(self, request: Request) -> ProblemError:
        # Whoever is still sending hears of it at once, and is not listened to any more.
        shown = _length(request) or "more"
        return ProblemError(
            413,
            f"the body has {shown} bytes, and may have {self._bytes_max} (http.body_bytes_max); "
            "send it in parts",
            headers={"Connection": "close"},
        )


def decoded(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Return a body as its type.

    Raises
    ------
    ProblemError
        400 where it is not JSON, 422 where it is another JSON than is wanted.
    """
    try:
        return _decode(body, decoder)
    except msgspec.ValidationError as error:
        raise ProblemError(422, f"the body does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProblemError(400, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise ProblemError(
            400, "the body is not JSON that can be read: it is nested too deeply"
        ) from None


def _decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Half of an emoji that was cut in two is JSON, and the stream's messages may hold it too.
        whole = replace_lone_surrogates(body)
        if whole == body:
            raise
    return decoder.decode(whole)


def _check_type(request: Request) -> None:
    found = request.headers.get("content-type", "")
    if found.partition(";")[0].strip().lower() != _JSON:
        raise ProblemError(
            415,
            f"the body is said to be {found[:80] or 'nothing'!r}; send JSON, with the header "
            f"Content-Type: {_JSON}",
            headers={"Accept": _JSON},
        )
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise ProblemError(
            415,
            f"the body is said to be packed ({encoding[:80]!r}); send it as it is",
            headers={"Accept-Encoding": "identity"},
        )


def _length(request: Request) -> int:
    """Return how long the body is said to be, 0 where nothing is said."""
    found = request.headers.get("content-length", "")
    return int(found) if found.isascii() and found.isdigit() else 0
