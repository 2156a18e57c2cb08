"""Entry points are compiled for the types that their parameters are written with."""

from __future__ import annotations

from typing import Any, get_type_hints

import numpy as np
from numba import types

from consumers.decode.kernels import json_numbers, json_scan, spans  # noqa: F401

# with these every kernel is imported
from consumers.kafka.kernels import crc32c, record_batch  # noqa: F401
from streamnb import tokenizer  # noqa: F401
from streamnb.kernels import jit as _jit
from streamnb.kernels.layout import compiled_type

SCALARS = {
    int: types.int64,
    float: types.float64,
    bool: types.boolean,
    np.uint64: types.uint64,
}


def wanted(hint: Any) -> Any:
    """Return numba's type for a parameter's annotation."""
    if hint in SCALARS:
        return SCALARS[hint]
    return hint.__metadata__[0] if hasattr(hint, "__metadata__") else compiled_type(hint)


def test_signatures_follow_the_annotations() -> None:
    """No entry point takes a number for a truth value, or one array for another."""
    assert _jit.DISABLED or len(_jit.entry_points) >= 10
    wrong = []
    for each in _jit.entry_points:
        function = each.dispatcher.py_func
        hints = get_type_hints(function, include_extras=True)
        hints.pop("return")
        if [wanted(hint) for hint in hints.values()] != list(each.signature.args):
            wrong.append((function.__qualname__, each.signature.args))
    assert wrong == []
