"""Imports without modules that a library takes if it finds them, and that we have no use for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def left_out(*modules: str) -> Iterator[None]:
    """Let imports in this block not find some modules, unless they are imported already.

    Parameters
    ----------
    modules : str
        Full names, such as ``"scipy.linalg"``.
    """
    hidden = [name for name in modules if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
