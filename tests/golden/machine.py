"""What the last bit of a logarithm depends on beside our code."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

import numpy as np


def machine() -> dict[str, Any]:
    """Return the kind of processor, by which NumPy picks its loops, and versions of libraries."""
    info: Any = np.show_config(mode="dicts")
    return {
        "machine": platform.machine(),
        "simd": sorted(info["SIMD Extensions"]["found"]),
        "libc": list(platform.libc_ver()),
        **{name: version(name) for name in ("numpy", "numba", "llvmlite", "scipy")},
    }
