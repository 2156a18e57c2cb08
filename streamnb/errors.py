"""What can go wrong in the library, as a tree.

::

    StreamnbError
    ├── InputError      (also a ValueError) an argument cannot be used: field, value, way out
    ├── StoreError      a file is damaged or foreign
    │   └── StoreVersionError  it is of another version
    └── PredictorError  a question could not be answered
        ├── QueueFullError    the predictor's queue is at its bound; asking again later helps
        └── PredictorStopped  it has been stopped

Every message names the place, the value found and the way out.
"""

from __future__ import annotations

import math
import numbers
import operator
import os
import sys
import threading
from pathlib import Path
from typing import Any

SIZE_MAX = 2**31 - 1  # of anything that an array has a place for

_FOR_EVER_S = threading.TIMEOUT_MAX / 2  # added to the time of a clock, it can still be waited for


class StreamnbError(Exception):
    """Root of the library's errors."""

    exit_code: int = 1


class InputError(StreamnbError, ValueError):
    """An argument cannot be used; the model is unchanged."""

    exit_code = 65  # EX_DATAERR of sysexits.h


class StoreError(StreamnbError):
    """A model file is damaged or foreign."""

    exit_code = 74  # EX_IOERR


class StoreVersionError(StoreError):
    """A model file is of a version that this library does not read."""


class PredictorError(StreamnbError):
    """A question could not be answered."""


class QueueFullError(PredictorError):
    """The predictor's queue is full; asking again later helps."""


class PredictorStopped(PredictorError):  # noqa: N818 -- a state, named for what happened
    """The predictor has been stopped; nothing more will be answered."""


def shown(value: object) -> str:
    """Return a value as an error shows it.

    Examples
    --------
    >>> shown("a"), shown(10**5000)
    ("'a'", 'one of more than 4,300 digits')
    """
    try:
        return repr(value)
    except ValueError:  # Python prints no longer numbers
        return f"one of more than {sys.get_int_max_str_digits():,} digits"


def check_kind(name: str, value: object, *kinds: type) -> None:
    """Refuse a value that is of none of these types."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        article = "an" if wanted[0] in "AEIOUaeiou" else "a"
        raise InputError(f"{name} must be {article} {wanted}. Got {value!r} instead.")


def check_bool(name: str, value: object) -> None:
    """Refuse a value that is not True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False. Got {value!r} instead.")


def check_choice(name: str, value: object, *choices: str) -> None:
    """Refuse a value that is none of these words."""
    if not (isinstance(value, str) and value in choices):
        wanted = " or ".join(map(repr, choices))
        raise InputError(f"{name} must be {wanted}. Got {value!r} instead.")


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse a value that is no whole number, or below the least one."""
    try:
        is_fit = not isinstance(value, bool) and operator.index(value) >= least  # type: ignore[arg-type]
    except TypeError:  # also an array, though it has `__index__`
        is_fit = False
    if not is_fit:
        raise InputError(
            f"{name} must be a whole number of at least {least}. Got {value!r} instead."
        )


def check_size(name: str, value: Any, least: int) -> None:
    """Refuse a value that is no whole number, or how many of anything no array holds."""
    check_whole(name, value, least)
    if value > SIZE_MAX:
        raise InputError(f"{name} must be at most {SIZE_MAX:,}. Got {value!r} instead.")


def check_path(name: str, path: Any) -> Path:
    """Return a path, or refuse what names no file or folder."""
    check_kind(name, path, str, os.PathLike)
    found = Path(path)
    try:
        is_fit = bool(found.name) and b"\0" not in os.fsencode(found)
    except UnicodeEncodeError:  # a lone surrogate, half of a character
        is_fit = False
    if not is_fit:
        raise InputError(f"{name} must name a file. Got {path!r} instead.")
    return found


def check_has(name: str, value: object, *methods: str) -> None:
    """Refuse a value without these methods; `__call__` is what a function has."""
    lacking = [each for each in methods if not callable(getattr(value, each, None))]
    if isinstance(value, type) or lacking:
        wanted = "callable" if methods == ("__call__",) else f"an object with {', '.join(methods)}"
        raise InputError(f"{name} must be {wanted}. Got {value!r} instead.")


def check_timeout(timeout_s: object) -> float:
    """Return a time to wait, or refuse what is no number; what no clock reaches is for ever."""
    found = math.nan
    if isinstance(timeout_s, numbers.Real) and not isinstance(timeout_s, bool):
        try:
            found = float(timeout_s)
        except OverflowError:
            found = -math.inf if timeout_s < 0 else math.inf
    if math.isnan(found):
        raise InputError(
            f"timeout_s must be a number of seconds. Got {timeout_s!r} instead; to wait for as long"
            " as it takes give math.inf."
        )
    return min(found, _FOR_EVER_S)
