"""What stands in a request's address: parameters and ids, read strictly.

A name that is not known, a value of another kind, bytes that are no UTF-8: each is a problem that
says so, instead of an answer to another question.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request

from consumers.http.problems import ProblemError
from consumers.http.schemas import ID_CHARS_MAX, QUERY_CHARS_MAX, SEARCH_LIMIT_MAX

_PAIRS_MAX = 64


class QueryParameters:
    """The parameters of a request.

    Parameters
    ----------
    request : Request
    names : sequence of str
        Those that there are.

    Raises
    ------
    ProblemError
        400 where they are not UTF-8, 422 where one is none of them.
    """

    def __init__(self, request: Request, names: Sequence[str]) -> None:
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

    def texts(self, name: str) -> list[str]:
        """Return all values of a parameter."""
        return self._values.get(name, [])

    def text(self, name: str, chars_max: int = QUERY_CHARS_MAX) -> str:
        """Return the one value of a parameter, empty where it is absent.

        Raises
        ------
        ProblemError
            422 where there are several, or it is too long.
        """
        values = self.texts(name)
        if len(values) > 1:
            raise ProblemError(422, f"{name} is given {len(values)} times; give it once")
        value = values[0] if values else ""
        if len(value) > chars_max:
            raise ProblemError(
                422, f"{name} has {len(value)} characters, and may have {chars_max}; shorten it"
            )
        return value

    def whole(self, name: str, low: int, high: int) -> int | None:
        """Return a whole number, None where it is absent.

        Raises
        ------
        ProblemError
            422 where it is none, or out of its bounds.
        """
        text = self.text(name)
        if not text:
            return None
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
        if value is None or not low <= value <= high:
            raise ProblemError(
                422, f"{name} is {text[:80]!r}; a whole number from {low} to {high} is wanted"
            )
        return value

    def limit(self, otherwise: int) -> int:
        """Return how many are wanted."""
        return self.whole("limit", 1, SEARCH_LIMIT_MAX) or otherwise


def message_id(request: Request, prefix: str) -> str:
    """Return the id at the end of a path.

    Parameters
    ----------
    request : Request
    prefix : str
        What stands before it.

    Raises
    ------
    ProblemError
        400 where it is not UTF-8, 404 where there is none, 422 where no message can have it, or
        something stands behind it.
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
