"""Compiles every kernel ahead of the first run, for images of containers: `streamnb warm-up`."""

from __future__ import annotations

import importlib
import pkgutil
import time
from dataclasses import dataclass

import consumers.decode.kernels
import consumers.kafka.kernels
import streamnb.kernels
from consumers.errors import ConsumerError
from streamnb.kernels.jit import DISABLED, cache_folder, entry_points, is_warm, read_only, warm_up


@dataclass(frozen=True, slots=True)
class Warmed:
    """What warming up did.

    Attributes
    ----------
    kernels : int
        How many there are.
    folders : tuple of str
        Where their machine code is kept.
    seconds : float
        How long compiling or loading took.
    compiled : bool
        False where all of it was there already.
    """

    kernels: int
    folders: tuple[str, ...]
    seconds: float
    compiled: bool


def warm() -> Warmed:
    """Compile every kernel of both packages, or load it, whether or not a run would need it.

    Raises
    ------
    ConsumerError
        Where machine code cannot be kept, so that every start would compile again.
    """
    if DISABLED:
        raise ConsumerError(
            "NUMBA_DISABLE_JIT is set, so nothing is compiled; unset it, then warm up again."
        )
    for package in (streamnb.kernels, consumers.decode.kernels, consumers.kafka.kernels):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    folders = {cache_folder(each.sources) for each in entry_points}
    kept = tuple(sorted(str(read_only.get(each, each)) for each in folders if each is not None))
    was_warm = is_warm()
    if len(kept) < len(folders) or (folders & read_only.keys() and not was_warm):
        raise ConsumerError(
            "no folder for machine code can be written, so every start would compile again; let"
            " STREAMNB_CACHE_DIR name one that can."
        )
    began_s = time.perf_counter()
    warm_up()
    return Warmed(len(entry_points), kept, time.perf_counter() - began_s, not was_warm)
