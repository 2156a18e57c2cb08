"""How kernels are compiled, in one place.

`inner` marks a function that only other kernels call. `kernel(returns, *arguments)` marks an entry
point: it is compiled once, for exactly that signature, by `warm_up`, and never again: a call with
other types is an error at once instead of a second compilation in mid-stream. Every entry point
releases the GIL.

Machine code is kept on disk in a folder named after a hash of **all** kernel sources and of the
compiler's version, because numba's own cache does not notice an edit in a file that a kernel calls
into. `STREAMNB_CACHE_DIR` moves that folder; where no folder can be written, kernels are compiled
in memory at each start.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import llvmlite
import numba
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

DISABLED = bool(numba.config.DISABLE_JIT)
# Without fastmath the order of float operations is the order in the source: answers are the same on
# every machine.
_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": False, "error_model": "numpy"}
_entry_points: list[tuple[Any, Any]] = []
_lock = threading.Lock()


def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(f"{numba.__version__} {llvmlite.__version__} {sys.version}".encode())
    return digest.hexdigest()[:16]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _find_cache_folder() -> Path | None:
    chosen = os.environ.get("STREAMNB_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    root = Path(chosen) if chosen else Path(home) / "streamnb"
    folder = root / f"kernels-{_source_hash()}"
    return folder if _writable(folder) else None


CACHE_FOLDER = None if DISABLED else _find_cache_folder()


def _compile(function: Callable[P, R], *, cache: bool) -> Any:
    """Wrap in numba's dispatcher, with our cache folder for this one function alone."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(CACHE_FOLDER or "")
    try:
        return numba.njit(
            cache=cache and CACHE_FOLDER is not None, _nrt=False, forceinline=not cache, **_OPTIONS
        )(function)
    finally:
        numba.config.CACHE_DIR = before


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that is called by kernels alone."""
    return function if DISABLED else cast(Callable[P, R], _compile(function, cache=False))


def kernel(returns: Any, *arguments: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark an entry point with its one signature, in numba's types."""

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        if DISABLED:
            # uint64 scalars warn on wrap-around without the compiler; hashes wrap around by design.
            return np.errstate(over="ignore", divide="ignore", invalid="ignore")(function)
        dispatcher = _compile(function, cache=True)
        _entry_points.append((dispatcher, returns(*arguments)))
        return cast(Callable[P, R], dispatcher)

    return mark


def is_warm() -> bool:
    """Tell whether the kernels' machine code is on disk or in memory: no compilation is due."""
    if DISABLED or all(dispatcher.signatures for dispatcher, _ in _entry_points):
        return True
    # numba names an overload's file NAME-LINE.pyVERSION.NUMBER.nbc; one for each entry point means:
    # all compiled.
    return CACHE_FOLDER is not None and len(list(CACHE_FOLDER.rglob("*.nbc"))) >= len(_entry_points)


def warm_up() -> None:
    """Compile every kernel, or load it from disk, before the first use. Again costs nothing."""
    if DISABLED:
        return
    with _lock:
        for dispatcher, signature in _entry_points:
            if not dispatcher.signatures:
                dispatcher.compile(signature)
                dispatcher.disable_compile()
