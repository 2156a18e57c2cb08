"""The calls by which Python code changes files: passed through a hook, which may note or fail them.

`io.open` gives files that are written in Python for so long, so what they write passes too.
"""

from __future__ import annotations

import _pyio  # type: ignore[import-not-found]
import builtins
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

BY_PATH = ("open", "rename", "replace", "link", "unlink", "remove", "mkdir")
BY_FD = ("write", "pwrite", "ftruncate", "fsync", "fdatasync", "fchmod")


class Call(NamedTuple):
    """A call: its name, the file that it is of, and its arguments."""

    name: str
    path: Path
    args: tuple[Any, ...]


Hook = Callable[[Call, Callable[..., Any]], Any]


@contextmanager
def hooked(folder: Path, hook: Hook) -> Iterator[None]:
    """Hand every call that is of a file in a folder to a hook, with what carries it out.

    One call is handed over at a time, whatever thread it comes from.
    """
    lock = threading.RLock()

    def replaced(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            path = _path_of(args[0])
            if path is None or not (path == folder or path.is_relative_to(folder)):
                return real(*args, **more)
            with lock:
                return hook(Call(name, path, args), lambda *a: real(*(a or args), **more))

        return call

    with ExitStack() as stack:
        for name in (*BY_PATH, *BY_FD):
            stack.enter_context(patch.object(os, name, replaced(name, getattr(os, name))))
        for module in (io, builtins):
            stack.enter_context(patch.object(module, "open", _pyio.open))
        yield


def _path_of(where: Any) -> Path | None:
    if isinstance(where, int):
        try:
            return Path(str(Path(f"/proc/self/fd/{where}").readlink()).removesuffix(" (deleted)"))
        except OSError:
            return None
    return real_path(where)


def real_path(where: str | bytes | os.PathLike[Any]) -> Path:
    """Return a path as it is from the root, also if it begins at a folder's descriptor."""
    path = Path(os.fsdecode(where)).absolute()
    return Path(os.path.realpath(path.parent)) / path.name if path.parts[1:2] == ("proc",) else path
