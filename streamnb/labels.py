"""Labels in: what may name a class, and labels as indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError

Label = str | int | bool
JUDGE_ONLY = -1


def check_label(where: str, i: int, label: Any) -> Label:
    """Return a label as plain Python, or say what is wrong with it.

    Raises
    ------
    InputError
        Where it is not a str, int or bool.
    """
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, str | int):
        return label
    raise InputError(
        f"{where}[{i}]: a label must be a str, int or bool."
        f" Got {label!r} ({type(label).__name__}) instead."
    )


def check_labels(labels: Any, n: int) -> list[Label]:
    """Return labels as a list of plain Python values, of length `n`."""
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise InputError(f"labels must be a sequence. Got {type(labels).__name__} instead.")
    plain = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(plain) != n:
        raise InputError(f"there are {n} examples and {len(plain)} labels.")
    if not set(map(type, plain)) <= {str, int, bool}:
        return [check_label("labels", i, label) for i, label in enumerate(plain)]
    return plain


def to_indices(labels: Sequence[Label], index: dict[Label, int]) -> NDArray[np.int32]:
    """Return the place of each label among the classes, ndarray of shape (n,), int32."""
    return np.fromiter(map(index.__getitem__, labels), np.int32, len(labels))


def nobody(n: int) -> NDArray[np.int32]:
    """Return `n` times no label: to be judged only."""
    return np.full(n, JUDGE_ONLY, dtype=np.int32)
