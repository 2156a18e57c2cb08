"""What a request brings: its body, its parameters and the id at the end of its path.

All are read strictly. An unknown name, a value of another kind or bytes that are not UTF-8 are a
problem that says so, instead of an answer to another question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request

from consumers.decode.json import replace_lone_surrogates
from consumers.http.responses import RETRY_SOON, ProblemError
from consumers.http.schemas import ID_CHARS_MAX, QUERY_CHARS_MAX

T = TypeVar("T")

HELD_BYTES_MAX = 64 << 20  # of all bodies together, whoever sends them
_JSON = "application/json"
_PAIRS_MAX = 64


class BodyReader:
    """Reads JSON bodies: each within `http.body_bytes_max`, all together within HELD_BYTES_MAX."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = 0

    async def read(self, request: Request, decoder: msgspec.json.Decoder[T]) -> T:
        """Return the decoded body of a request that says it is JSON.

        Raises
        ------
        ProblemError
            400 if it is not JSON; 413 if it is too large, as soon as that is known; 415 if its
            headers say something else than JSON; 422 if it is not the JSON that is expected; 503
            if too many bodies are being read.
        """
        _check_type(request)
        return _decode(await self._receive(request), decoder)

    async def _receive(self, request: Request) -> bytes:
        stated = _stated_length(request)
        if stated > self._bytes_max:
            raise self._too_large(stated)
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
                    raise self._too_large(stated)
                if self._held > HELD_BYTES_MAX:
                    raise ProblemError(
                        503,
                        "too many bodies are being sent at once; send it again in a moment",
                        headers=RETRY_SOON | {"Connection": "close"},
                    )
                parts.append(part)
                if not event.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self._held -= n_bytes

    def _too_large(self, stated: int) -> ProblemError:
        return ProblemError(
            413,
            f"the body has {stated or 'more'} bytes, and may have {self._bytes_max} "
            "(http.body_bytes_max); send it in parts",
            headers={"Connection": "close"},  # the client may still be sending
        )


def _decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # Half of an emoji that was cut in two is JSON; the stream's messages hold it too.
            whole = replace_lone_surrogates(body)
            if whole == body:
                raise
        return decoder.decode(whole)
    except msgspec.ValidationError as error:
        raise ProblemError(422, f"the body does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProblemError(400, f"the body is not JSON: {error}") from None
    except RecursionError:
        detail = "the body is not JSON that can be read: it is nested too deeply"
        raise ProblemError(400, detail) from None


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


def _stated_length(request: Request) -> int:
    """Return the body's length by its header, 0 without one."""
    found = request.headers.get("content-length", "")
    return int(found) if found.isascii() and found.isdigit() else 0


class QueryParameters:
    """The parameters in a request's address, of which only `names` are known.

    Raises
    ------
    ProblemError
        400 if they are not UTF-8, 422 if one is unknown.
    """

    def __init__(self, request: Request, names: Sequence[str] = ()) -> None:
        raw: bytes = request.scope["query_string"]
        try:
            pairs = parse_qsl(
                raw.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_PAIRS_MAX,
            )
        except UnicodeDecodeError:
            raise ProblemError(400, "the address is not UTF-8; encode it with %XX") from None
        except ValueError:
            raise ProblemError(422, f"more than {_PAIRS_MAX} parameters; send fewer") from None
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            if name not in names:
                others = f"there are {', '.join(names)}" if names else "this path takes none"
                raise ProblemError(422, f"there is no parameter {name[:80]!r}; {others}")
            if "\0" in value:
                raise ProblemError(422, f"{name} holds a NUL; leave it out")
            self._values.setdefault(name, []).append(value)

    def texts(self, name: str, chars_max: int) -> list[str]:
        """Return all values of a parameter; 422 if one has more characters than it may."""
        values = self._values.get(name, [])
        longest = max(map(len, values), default=0)
        if longest > chars_max:
            raise ProblemError(
                422, f"{name} has {longest} characters, and may have {chars_max}; shorten it"
            )
        return values

    def text(self, name: str, chars_max: int = QUERY_CHARS_MAX) -> str:
        """Return the value of a parameter, empty if it is absent; 422 if there are several."""
        n_values = len(self._values.get(name, []))
        if n_values > 1:
            raise ProblemError(422, f"{name} is given {n_values} times; give it once")
        return "".join(self.texts(name, chars_max))

    def whole(self, name: str, low: int, high: int) -> int | None:
        """Return a whole number, None if it is absent; 422 if it is out of its bounds."""
        text = self.text(name)
        if not text:
            return None
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
        if value is None or not low <= value <= high:
            raise ProblemError(
                422, f"{name} is {text[:80]!r}; a whole number from {low} to {high} is wanted"
            )
        return value


def message_id(request: Request, prefix: str) -> str:
    """Return the id at the end of a path, behind `prefix`.

    Raises
    ------
    ProblemError
        400 if it is not UTF-8, 404 if it is missing, 422 if no message can have it or parameters
        follow it.
    """
    if request.scope["query_string"]:
        raise ProblemError(
            422,
            "there are no parameters behind an id; write a question mark that belongs to it as %3F",
        )
    raw: bytes = request.scope["raw_path"]
    try:
        found = unquote(raw.decode("ascii"), errors="strict").removeprefix(prefix)
    except UnicodeDecodeError:
        raise ProblemError(400, "the id is not UTF-8; encode it with %XX") from None
    if not found:
        raise ProblemError(404, f"an id is missing behind {prefix}")
    if "\0" in found or len(found) > ID_CHARS_MAX:
        raise ProblemError(
            422,
            f"no message has such an id: it holds a NUL, or more than {ID_CHARS_MAX} characters",
        )
    return found
