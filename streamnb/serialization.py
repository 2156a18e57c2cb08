"""A model's state ⇄ a header and arrays ⇄ one safetensors container, with a digest of the whole.

A JSON header and raw little-endian arrays, readable in any language, without pickle. The header
says format and version and holds a BLAKE2b digest of the whole container, taken with the digest's
own place zeroed. It is written here, array by array, because the library's own writer holds every
array twice.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from streamnb.decay import Clock, HalfLife
from streamnb.errors import (
    InputError,
    StoreError,
    StoreVersionError,
    check_kind,
    check_whole,
)
from streamnb.features.bag import Bag
from streamnb.features.categorical import Categories
from streamnb.features.flags import Flags
from streamnb.features.numeric import Numbers
from streamnb.features.protocol import Arrays, Group
from streamnb.features.statistics import of_shape
from streamnb.features.words import Words
from streamnb.kernels.posterior import DUST
from streamnb.priors import class_prior_from_dict
from streamnb.state import ModelState, PartState, new_state

FORMAT = "streamnb model"
EXTRAS = "extras/"  # how the names of arrays begin that are not the model's
VERSION = 2
# What comes of a header or of arrays that have the right digest, and describe no model.
UNREADABLE = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    safetensors.SafetensorError,
)
# What `HalfLives.save` writes beside the counts.
_HALF_LIVES = frozenset({"half_lives", "ages", "log_weights", "tempers"})
_NO_DIGEST = "0" * 64
DTYPES = {
    "bool": "BOOL",
    "float64": "F64",
    "int32": "I32",
    "int64": "I64",
    "uint64": "U64",
    "uint8": "U8",
}
_BLOCK = 1 << 20


def to_blocks(header: dict[str, Any], arrays: Arrays) -> list[bytes | memoryview]:
    """Return the container's blocks: length, header with digest, and the arrays' own memory."""
    # The format wants arrays aligned: those of eight-byte items stand first.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    entries: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT,
            "version": str(VERSION),
            "digest": _NO_DIGEST,
            # In its own order: that of the groups is part of what the model is.
            "header": json.dumps(header),
        }
    }
    end = 0
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        entries[name] = {
            "dtype": DTYPES[arrays[name].dtype.name],
            "shape": list(arrays[name].shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    blocks: list[bytes | memoryview] = [len(text).to_bytes(8, "little"), text]
    blocks += [np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data for name in order]
    digest = hashlib.blake2b(digest_size=32)
    for block in blocks:
        digest.update(block)
    blocks[1] = text.replace(_NO_DIGEST.encode(), digest.hexdigest().encode(), 1)
    return blocks


def digest_of(blocks: list[bytes | memoryview]) -> str:
    """Return the digest that the blocks of a container, as `to_blocks` makes them, have."""
    return _said_digest("these blocks", bytes(blocks[1]))


def from_bytes(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return the header and arrays of a container, once its digest is right."""
    if not isinstance(data, bytes):  # a bytearray or memoryview, as sockets and shared memory give
        data = bytes(memoryview(data))
    check(io.BytesIO(data), len(data), "these bytes")
    size = int.from_bytes(data[:8], "little")
    meta = json.loads(data[8 : 8 + size])["__metadata__"]
    return json.loads(meta["header"]), safetensors.numpy.load(data)


def check(file: BinaryIO, n_bytes: int, where: str) -> str:
    """Return the digest of a container of `n_bytes` once format, version and digest are right.

    Otherwise a StoreError says so, beginning with `where`.
    """
    size = int.from_bytes(file.read(8), "little")
    # A length is believed only as far as the file goes, so that none can ask for memory.
    text = file.read(size) if size <= n_bytes else b""
    said = _said_digest(where, text)
    digest = hashlib.blake2b(size.to_bytes(8, "little"), digest_size=32)
    digest.update(text.replace(said.encode("utf-8", "replace"), _NO_DIGEST.encode(), 1))
    while block := file.read(_BLOCK):
        digest.update(block)
    if digest.hexdigest() != said:
        raise StoreError(
            f"{where}: damaged: its digest does not match its content. Restore it from a copy, or"
            " start from nothing."
        )
    return said


def refuse_half_lives(where: str, header: Mapping[str, Any], extras: Iterable[str]) -> None:
    """Refuse what `HalfLives.save` wrote where one model is asked for; `extras` are arrays' names.

    Its counts are a model of classes such as "0:spam", one a half-life, that answers none of them.
    """
    notes, classes = header.get("notes"), header["classes"]
    if not (_HALF_LIVES.issubset(extras) and isinstance(notes, dict)):
        return
    own = notes.get("classes")
    if not (isinstance(own, list) and own):
        return
    n_lives = len(classes) // len(own)
    if classes == [f"{h}:{label}" for h in range(n_lives) for label in own]:
        raise StoreError(
            f"{where}: half-lives side by side, and not one model. Load it with HalfLives.load."
        )


def _said_digest(where: str, text: bytes) -> str:
    """Return the digest that a header claims, if the header is ours and of our version."""
    try:
        meta = json.loads(text)["__metadata__"]
        wrong = None if meta["format"] == FORMAT else "another format"
    except (ValueError, KeyError, TypeError, RecursionError):
        wrong = "no header of ours"
    if wrong:
        raise StoreError(
            f"{where}: not a streamnb model, or damaged ({wrong}). Give a file that streamnb saved,"
            " or restore this one from a copy."
        )
    if meta.get("version") != str(VERSION):
        raise StoreVersionError(
            f"{where}: model format version {meta.get('version')!r}; this library reads version"
            f" {VERSION}. Load it with the streamnb that saved it."
        )
    return str(meta.get("digest"))


_KINDS: dict[str, Any] = {
    "bag": Bag,
    "categories": Categories,
    "flags": Flags,
    "numbers": Numbers,
    "words": Words,
}


# Of a file's arrays of one dimension by the end of their names; all others are float64.
_TYPES: dict[str, Any] = {
    "fingerprints": np.uint64,
    "words": np.uint8,
    "word_ends": np.int64,
    "values": np.uint8,
    "value_ends": np.int64,
    "field_of": np.int32,
    "columns": np.int32,
}
# All others are counts, or sums of squares. Taking back leaves 0 where rounding would leave less.
_SIGNED = ("mean", "mean_low", "m2_low", "hybrid_groups", "hybrid_others", "hybrid_words")
# Numbers reach 1e60, weights under decay 1e127. Taking back a number that was never learned moves a
# mean beyond; from its bound on squares would overflow.
_MEAN_MAX, _COUNT_MAX = 1e100, 1e300


def pack(state: ModelState, positions: Mapping[str, int]) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays of a model; arrays may share the state's memory.

    A state that another thread goes on teaching must be of `frozen_parts`. `positions` holds the
    next offset of parts' logs. Words stand as they came; one that left and came again stands where
    it was before only if no file was read meanwhile. Of groups `in_order` they stand by their
    fingerprints, so that the bytes are a function of what was counted.
    """
    _check_names(state)
    parts = _sections(state)
    unknown = set(positions) - {name for name, _ in parts}
    if unknown:
        raise InputError(
            f"positions of parts that the model does not have: {', '.join(sorted(unknown))}."
            " Give positions of its parts alone."
        )
    arrays: Arrays = {}
    shared: dict[str, Any] = {}
    for name, group in state.groups.items():
        packed, shared[name] = group.pack(f"groups/{name}")
        arrays |= packed
    sections: list[dict[str, Any]] = []
    for i, (part_name, part) in enumerate(parts):
        position = None if part_name is None else positions.get(part_name)
        sections.append(
            {
                "part": part_name,
                "position": None if position is None else int(position),  # of any kind of integer
                "n_examples": part.n_examples,
                "n_dropped": part.n_dropped,
            }
        )
        if part_name is not None and state.learns_in_order and part.now != state.clock.now:
            sections[-1]["now"] = part.now
        arrays[f"sections/{i}/class_counts"] = part.class_counts
        if state.prior_half_life is not None:
            arrays[f"sections/{i}/recent"] = part.recent
        for name, each in part.groups.items():
            arrays |= state.groups[name].pack_part(f"sections/{i}/{name}", each, shared[name])
    header = state.describe() | {
        "hash_key": f"{state.hash_key:032x}",
        "n_declared_classes": state.n_declared_classes,
        "clock": state.clock.to_dict(),
    }
    if not state.new_classes:  # without the key a file is that of 0.1.0: open to any class
        header["new_classes"] = False
    if state.is_hybrid and state.clock.half_life is not None:
        header["weights_decay"] = True
    header["states"] = {name: group.state_to_dict() for name, group in state.groups.items()}
    header["sections"] = sections
    return header, arrays


def unpack(header: dict[str, Any], arrays: Arrays) -> tuple[ModelState, dict[str, int]]:
    """Return the state that `pack` described, and its parts' positions."""
    arrays = {
        name: _without_dust(name, array)
        for name, array in arrays.items()
        if not name.startswith(EXTRAS)
    }
    _check_arrays(arrays)
    state = new_state(
        header["classes"],
        class_prior_from_dict(header["class_prior"]),
        {name: group_from_dict(spec) for name, spec in header["groups"].items()},
        decay=None if header["decay"] is None else HalfLife(**header["decay"]),
        hash_key=int(header["hash_key"], 16),
        new_classes=header.get("new_classes", True),
        prior_half_life=header.get("prior_half_life"),
    )
    check_whole("n_declared_classes", header["n_declared_classes"], 0)
    state.n_declared_classes = header["n_declared_classes"]
    if header["clock"] is not None:
        state.clock = Clock.from_dict(state.clock.half_life, header["clock"])
    _check_sections(header["sections"], state.clock)
    groups, n_classes = state.groups, len(state.classes)
    for name, group in groups.items():
        group.unpack(f"groups/{name}", arrays, header["states"][name])
    positions: dict[str, int] = {}
    sections: list[tuple[str | None, PartState]] = []
    for i, section in enumerate(header["sections"]):
        part = PartState(
            of_shape(arrays, f"sections/{i}/class_counts", n_classes).copy(),
            np.zeros(n_classes)
            if state.prior_half_life is None
            else of_shape(arrays, f"sections/{i}/recent", n_classes).copy(),
            {
                name: group.unpack_part(f"sections/{i}/{name}", arrays)
                for name, group in groups.items()
            },
            section["n_examples"],
            section.get("now", state.clock.now),
        )
        for name, each in part.groups.items():
            each.n_dropped = section["n_dropped"][name]
            if each.weights is not None and not header.get("weights_decay", False):
                # From before words' weights decayed: they begin to as of their part's newest time.
                own = Clock(state.clock.half_life, part.now, state.clock.landmark).scale
                np.multiply(each.weights.words, own, out=each.weights.words)
        sections.append((section["part"], part))
        if section["position"] is not None:
            positions[section["part"]] = section["position"]
    _join(state, sections)
    return state, positions


def _check_sections(sections: Any, clock: Clock) -> None:
    """Refuse sections that are neither a model kept whole nor its parts."""
    check_kind("sections", sections, list)
    for section in sections:
        check_kind("part", section["part"], str, type(None))
        check_kind("n_examples", section["n_examples"], int)  # taken back in halves: below 0
        if section["position"] is not None:
            check_whole("position", section["position"], 0)
        clock.check_part(section.get("now", clock.now))
        for n_dropped in section["n_dropped"].values():
            check_kind("n_dropped", n_dropped, int)
    names = [section["part"] for section in sections]
    if names != [None] and (not names or None in names or len(set(names)) < len(names)):
        raise InputError("sections must be one without a name, or parts whose names differ.")


def group_from_dict(spec: dict[str, Any]) -> Group:
    """Return the specification of a group that its `to_dict` described."""
    group: Group = _KINDS[spec["kind"]].from_dict(spec)
    return group


def _without_dust(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return counts with 0 for what rounding left below it; a copy only where there is any.

    Version 0.1.0 saved such counts, of words that had left a part.
    """
    if array.dtype != np.float64 or name.endswith((*_SIGNED, "m2")) or not array.size:
        return array
    if not -DUST * array.max() <= array.min() < 0.0:
        return array
    settled: NDArray[Any] = np.maximum(array, 0.0)
    return settled


def _check_arrays(arrays: Arrays) -> None:
    """Refuse arrays that learning cannot have left: kernels take types and values on trust."""
    for name, array in arrays.items():
        end = name.rpartition("/")[2]
        wanted = np.dtype(_TYPES.get(end, np.float64))
        if array.dtype != wanted or (end in _TYPES and array.ndim != 1):
            raise InputError(
                f"{name}: {wanted} is wanted. Got {array.dtype} of {array.ndim} dimensions instead."
            )
        if end in ("columns", "field_of") and array.min(initial=0) < 0:
            raise InputError(f"{name}: a place below zero, {array.min()}, is none.")
        if wanted == np.float64:
            least = -math.inf if end in _SIGNED else 0.0
            lowest, highest = array.min(initial=math.inf), array.max(initial=-math.inf)
            # nan is its own minimum, and fails any comparison.
            most = _MEAN_MAX if end in ("mean", "mean_low") else _COUNT_MAX
            if array.size and not (max(least, -most) <= lowest and highest <= most):
                unfit = array[~((np.abs(array) <= most) & (array >= least))]
                what = "finite numbers" if least else "finite numbers from 0 on"
                raise InputError(
                    f"{name}: {what}, up to {most:g}, are wanted, whatever was unlearned or has"
                    f" decayed. Got {unfit[0]} instead."
                )


def _check_names(state: ModelState) -> None:
    """Refuse group names that a file could be written with, but not read."""
    for name in state.groups:
        check_name(f"group {name!r}", name)


def check_name(what: str, name: str) -> None:
    """Refuse the name of an array that a file could be written with, but not read."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{what}: its name has no UTF-8 form, so no file could hold it. Give it another one."
        ) from None


def _sections(state: ModelState) -> list[tuple[str | None, PartState]]:
    """Return the parts by name, or a model kept whole as one part without a name."""
    if state.parts:
        return [*state.parts.items()]
    return [(None, state.as_part())]


def _join(state: ModelState, sections: list[tuple[str | None, PartState]]) -> None:
    """Make a state the sum of its sections, and keep those that have a name as parts."""
    state.set_parts({name or "": part for name, part in sections})
    if sections[0][0] is None:
        state.forget_parts()
