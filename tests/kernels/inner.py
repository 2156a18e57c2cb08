"""Inner functions of kernels, which only other kernels can call, made callable for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

from streamnb.kernels.jit import DISABLED

P = ParamSpec("P")
R = TypeVar("R")


def from_python(function: Callable[P, R]) -> Callable[P, R]:
    """Return an inner function behind a compiled one that Python can call."""
    if DISABLED:
        return function

    def call(*arguments: object) -> object:
        return function(*arguments)  # type: ignore[call-arg, arg-type]

    return cast(Callable[P, R], numba.njit(error_model="numpy")(call))
