"""The plain twin of the JSON scan: what the same fields are by Python's own reader."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from consumers.decode.json import JsonScanner, Node, ScanResult
from consumers.kernels.json_scan import (
    ABSENT,
    ARRAY,
    ESCAPED,
    FALSE,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    PLAIN,
    TRUE,
)

MISSING = object()


def scanned(values: Sequence[bytes], paths: Sequence[str], pad: bytes = b"") -> ScanResult:
    """Scan values that stand one behind the other, between some bytes of padding."""
    root = Node()
    for path in paths:
        root.add(path.split("."))
    buffer, starts, ends = pad, [], []
    for value in values:
        starts.append(len(buffer))
        buffer += value
        ends.append(len(buffer))
        buffer += pad
    return JsonScanner(root, paths).scan(
        buffer, np.array(starts, np.int64), np.array(ends, np.int64)
    )


def found(scan: ScanResult, path: str, i: int) -> tuple[int, bytes]:
    """Return the kind and the bytes of one field."""
    field = scan.places[path]
    kind = int(scan.spans.kinds[field, i])
    if kind == ABSENT:
        return kind, b""
    start, end = int(scan.spans.starts[field, i]), int(scan.spans.ends[field, i])
    return kind, scan.buffer[start:end].tobytes()


def value_at(message: Any, path: str) -> Any:
    """Return what stands at a path in a message that was read, `MISSING` where nothing does."""
    for name in path.split("."):
        if not isinstance(message, dict) or name not in message:
            return MISSING
        message = message[name]
    return message


def kinds_of(value: Any) -> set[int]:
    """Return the kinds that the scan may say of a value."""
    if value is MISSING:
        return {ABSENT}
    simple = {None: NULL, True: TRUE, False: FALSE}
    if value is None or isinstance(value, bool):
        return {simple[value]}
    by_type = {str: {PLAIN, ESCAPED}, int: {INTEGER}, float: {NUMBER}, dict: {OBJECT}}
    return by_type.get(type(value), {ARRAY})


def meaning(kind: int, data: bytes) -> Any:
    """Return the value that a span of some kind stands for."""
    if kind == ABSENT:
        return MISSING
    return json.loads(b'"' + data + b'"' if kind in {PLAIN, ESCAPED} else data)
