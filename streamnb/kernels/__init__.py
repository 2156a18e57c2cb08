"""Compiled loops over plain arrays: no objects, no I/O, no knowledge of the rest of the library.

Each kernel has a slow, plain twin in `tests/naive.py`.
"""

from streamnb.kernels.jit import is_warm, warm_up

__all__ = ["is_warm", "warm_up"]
