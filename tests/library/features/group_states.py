"""A group's state taught and asked by itself, without a model around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.features.protocol import GroupState
from streamnb.kernels.layout import RowUpdates
from streamnb.labels import unlabelled_rows

KEY = 0x0123456789ABCDEF_FEDCBA9876543210
Example = tuple[Mapping[str, Any], int]


def columns_of(xs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return examples as columns."""
    names = list(dict.fromkeys(name for x in xs for name in x))
    return {name: [x.get(name) for x in xs] for name in names}


def teach(
    state: GroupState,
    examples: Sequence[Example],
    weight: float = 1.0,
    *,
    scale: float = 1.0,
    part: Any = None,
) -> NDArray[np.float64]:
    """Learn examples as one batch; return the log-likelihoods that stood before each."""
    n = len(examples)
    labels = np.array([y for _, y in examples], dtype=np.int32)
    fields = state.read(columns_of([x for x, _ in examples]), n)
    batch = state.encode(fields, 0, n, labels, learn=True)
    out = np.zeros((n, n_classes_of(state)))
    teaching = RowUpdates(labels, np.full(n, weight), *(np.full(n, scale),) * 3)
    if part is None:
        state.run(batch, teaching, out, learn=True)
    else:
        state.learn_part(part, batch, teaching, out)
    return out


def predict(
    state: GroupState, xs: Sequence[Mapping[str, Any]], scale: float = 1.0
) -> NDArray[np.float64]:
    """Return log-likelihoods, ndarray of shape (n, n_classes)."""
    n = len(xs)
    teaching = unlabelled_rows(n, scale)
    batch = state.encode(state.read(columns_of(xs), n), 0, n, teaching.labels, learn=False)
    out = np.zeros((n, n_classes_of(state)))
    state.run(batch, teaching, out, learn=False)
    return out


def unlearn(state: GroupState, x: Mapping[str, Any], y: int, weight: float = 1.0) -> int:
    """Take one example back; return how many features were skipped."""
    labels = np.array([y], dtype=np.int32)
    fields = state.read(columns_of([x]), 1)
    batch = state.encode_to_unlearn(fields, labels)
    batch, n_skipped = state.to_unlearn(batch, labels, np.array([weight]), None)
    teaching = RowUpdates(labels, np.array([-weight]), *(np.ones(1),) * 3)
    state.run(batch, teaching, np.zeros((1, n_classes_of(state))), learn=True)
    return n_skipped


def n_classes_of(state: Any) -> int:
    """Return how many classes a state has room for."""
    return int(next(a for a in state.counts if a.ndim == 2).shape[1])


def packed(state: GroupState) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return all that a file would hold of a state, comparable."""
    arrays, shared = state.pack("group")
    arrays = arrays | state.pack_part("part", state.as_part(), shared)
    return state.state_to_dict(), {name: array.tolist() for name, array in arrays.items()}


def reloaded(state: GroupState, n_classes: int) -> GroupState:
    """Return a state made of what a file would hold of another."""
    arrays, shared = state.pack("group")
    arrays = arrays | state.pack_part("part", state.as_part(), shared)
    arrays = {name: array.copy() for name, array in arrays.items()}
    twin: GroupState = state.spec.start(state.name, n_classes, KEY)
    for array in arrays.values():
        array.flags.writeable = False
    twin.unpack("group", arrays, state.state_to_dict())
    part = twin.unpack_part("part", arrays)
    part.n_dropped = state.as_part().n_dropped
    twin.sum_parts([part])
    return twin


def equal(one: GroupState, other: GroupState, xs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether two states hold and answer the same, bit for bit."""
    return packed(one) == packed(other) and bool(
        np.array_equal(predict(one, xs), predict(other, xs))
    )
