"""A model's state ⇄ a header and arrays ⇄ one safetensors container, with a digest of the whole.

A JSON header and raw little-endian arrays, readable in any language, without pickle. The header
says format and version and holds a BLAKE2b digest of the whole container, taken with the digest's
own place zeroed. It is written here, array by array, because the library's own writer holds every
array twice.

A `Version` is such a header and arrays, of which a container need not have been made. What changed
from one version to another is a container of its own (`delta`), small where few words changed, and
`patched` makes the other version of it: the same to the last bit, or it is an error.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from streamnb.decay import Clock, HalfLife
from streamnb.errors import InputError, StoreError, StoreVersionError, check_kind, check_whole
from streamnb.features import statistics
from streamnb.features.bag import Bag
from streamnb.features.categorical import Categories
from streamnb.features.counted_words import CountedState
from streamnb.features.flags import Flags
from streamnb.features.numeric import Numbers
from streamnb.features.protocol import Group
from streamnb.features.statistics import Arrays, of_shape
from streamnb.features.words import Words
from streamnb.kernels.hashing import checksum
from streamnb.kernels.posterior import DUST
from streamnb.kernels.word_table import gather_text
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
_NARROW = {"int8": "I8", "int16": "I16"}  # of deltas alone
_DELTA = "delta"  # the key of a delta's header, and how the names of its own arrays begin
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
            "dtype": (DTYPES | _NARROW)[arrays[name].dtype.name],
            "shape": list(arrays[name].shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    blocks: list[bytes | memoryview] = [len(text).to_bytes(8, "little"), text]
    blocks += [_memory(arrays[name]).data for name in order]
    digest = hashlib.blake2b(digest_size=32)
    for block in blocks:
        digest.update(block)
    blocks[1] = text.replace(_NO_DIGEST.encode(), digest.hexdigest().encode(), 1)
    return blocks


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


class Version(NamedTuple):
    """A model's header and arrays, and by group which columns its words have in which table.

    Groups of declared words have none, nor have others than of words.
    """

    header: dict[str, Any]
    arrays: Arrays
    columns: dict[str, NDArray[np.int64]]
    tables: dict[str, NDArray[np.uint64]]  # the fingerprints of all columns that there are


def version_of(state: ModelState, notes: dict[str, Any]) -> Version:
    """Return a model that is not kept in parts as a version; arrays may share its memory."""
    header, arrays, shared = _packed(state, {})
    groups = {
        name: group
        for name, group in state.groups.items()
        if isinstance(group, CountedState) and group.n_declared is None
    }
    columns = {name: shared[name]["columns"] for name in groups}
    tables = {name: group.vocabulary.arrays_of()[0] for name, group in groups.items()}
    return Version(header | {"notes": notes}, arrays, columns, tables)


def pack(state: ModelState, positions: Mapping[str, int]) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays of a model; arrays may share the state's memory.

    A state that another thread goes on teaching must be of `frozen_parts`. `positions` holds the
    next offset of parts' logs. Words stand as they came; one that left and came again stands where
    it was before only if no file was read meanwhile. Of groups `in_order` they stand by their
    fingerprints, so that the bytes are a function of what was counted.
    """
    return _packed(state, positions)[:2]


def _packed(
    state: ModelState, positions: Mapping[str, int]
) -> tuple[dict[str, Any], Arrays, dict[str, Any]]:
    """Return what `pack` does, and by group which columns and fields a file has of it."""
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
    return header, arrays, shared


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


# ---- what changed from one version to another ----------------------------------------------------


def name_of(header: dict[str, Any], arrays: Arrays) -> str:
    """Return what tells a version from others: a hash of its header, and of arrays' checksums."""
    digest = hashlib.blake2b(json.dumps(header).encode(), digest_size=32)
    for name in sorted(arrays):
        digest.update(f"{name}/{arrays[name].dtype}{arrays[name].shape}".encode())
        memory = _memory(arrays[name])
        n = len(memory) - len(memory) % 8
        words, sums = memory[:n].view(np.uint64), np.arange(4, dtype=np.uint64)
        checksum(words if words.flags.aligned else words.copy(), sums)
        digest.update(sums.tobytes() + memory[n:].tobytes())
    return digest.hexdigest()


def delta(old: Version, new: Version, name: str) -> tuple[dict[str, Any], Arrays] | None:
    """Return the header and arrays by which `patched` makes `new` of `old`; `name` is that of new.

    Of a group of words these are the words that came, which ones stayed, and the numbers that
    changed; other arrays that changed are there whole. None if the versions have other arrays.
    """
    if old.arrays.keys() != new.arrays.keys():
        return None
    changes: Arrays = {}
    known = set[str]()
    for group in sorted(old.columns.keys() & new.columns.keys()):
        if _has_rows_alike(old, new, group):
            changes |= _changed_words(old, new, group)
            known |= {*_table_of(group), *_rows_of(group, new.arrays)}
    for each in new.arrays.keys() - known:
        before, after = old.arrays[each], new.arrays[each]
        is_like = (before.dtype, before.shape) == (after.dtype, after.shape)
        if not is_like or not np.array_equal(_memory(before), _memory(after)):
            changes[each] = after
    return {_DELTA: {"header": new.header, "name": name}}, changes


def patched(old: Arrays, header: dict[str, Any], changes: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the header and arrays that a `delta` says, if they are those of its name.

    It is a StoreError if they are not, or one of `UNREADABLE` if it is no delta of these arrays.
    """
    said, arrays = header[_DELTA], dict(old)
    for name in changes:
        kind, _, group = name.partition("/")
        if kind != _DELTA:
            arrays[name] = changes[name].copy()
        elif group.endswith("/came"):
            arrays |= _patched_words(old, changes, group.removesuffix("/came"))
    if name_of(said["header"], arrays) != said["name"]:
        raise StoreError("a delta: damaged, or of another version. Take that version whole.")
    return said["header"], arrays


def _memory(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _table_of(group: str) -> list[str]:
    return [f"groups/{group}/{each}" for each in ("fingerprints", "words", "word_ends")] + [
        f"sections/0/{group}/columns"
    ]


def _rows_of(group: str, arrays: Arrays) -> list[str]:
    names = [f"sections/0/{group}/{each}" for each in ("by_word", "hybrid_words")]
    return [name for name in names if name in arrays]


def _has_rows_alike(old: Version, new: Version, group: str) -> bool:
    """Return whether words have the columns they had, for as many classes, and all have a row."""
    shapes = [
        [each.arrays[name].shape[1:] for name in _rows_of(group, each.arrays)]
        for each in (old, new)
    ]
    table, own = old.tables[group], new.tables[group]
    if shapes[0] != shapes[1] or not np.array_equal(own[: len(table)], table):
        return False
    columns = f"sections/0/{group}/columns"
    return all(len(each.arrays[columns]) == len(each.columns[group]) for each in (old, new))


def _changed_words(old: Version, new: Version, group: str) -> Arrays:
    """Return what a delta holds of a group."""
    before, after, n = old.columns[group], new.columns[group], len(new.tables[group])
    came, stayed = ~statistics.are_among(after, before, n), statistics.are_among(before, after, n)
    fps, words, word_ends, _ = (new.arrays[each] for each in _table_of(group))
    rows = statistics.places(came)
    sizes = np.diff(word_ends, prepend=0)[rows]
    text = np.empty(int(sizes.sum()), np.uint8)
    gather_text(words, word_ends[rows], np.cumsum(sizes), text)
    changes: Arrays = {
        "came": np.packbits(came),
        "stayed": np.packbits(stayed),
        "fingerprints": fps[rows],
        "sizes": statistics.narrow(sizes),
        "words": text,
    }
    changes = {f"{_DELTA}/{group}/{each}": array for each, array in changes.items()}
    for name in _rows_of(group, new.arrays):
        now, was = new.arrays[name], statistics.moved(old.arrays[name], came, stayed)
        is_changed = np.zeros(len(now), np.bool_)
        for c in range(now.shape[1]):
            is_changed |= was.view(np.int64)[:, c] != now.view(np.int64)[:, c]
        rows = np.flatnonzero(is_changed)
        was, now = was.take(rows, axis=0), now.take(rows, axis=0)
        added = statistics.narrow(now - was)
        is_exact = added.dtype != np.float64 and np.array_equal(_memory(was + added), _memory(now))
        changes[f"{_DELTA}/{name}/changed"] = np.packbits(is_changed)
        changes[f"{_DELTA}/{name}/values"] = added if is_exact else now
    return changes


def _patched_words(old: Arrays, changes: Arrays, group: str) -> Arrays:
    """Return the arrays of a group that `_changed_words` says."""
    table = _table_of(group)
    fps, words, word_ends, _ = (old[each] for each in table)
    new_fps, sizes, text = (
        changes[f"{_DELTA}/{group}/{each}"] for each in ("fingerprints", "sizes", "words")
    )
    n_new = len(new_fps)
    stayed = statistics.bits(changes, f"{_DELTA}/{group}/stayed", len(fps))
    came = statistics.bits(changes, f"{_DELTA}/{group}/came", int(stayed.sum()) + n_new)
    # What kernels take on trust; anything else that is wrong shows in the name.
    n_bytes = len(text) if text.dtype == np.uint8 and text.ndim == 1 else -1
    are_sizes = sizes.dtype.kind in "iu" and sizes.shape == (n_new,) and sizes.min(initial=0) >= 0
    lie_within = are_sizes and sizes.max(initial=0) <= n_bytes == sizes.sum(dtype=np.int64)
    if not lie_within or int(came.sum()) != n_new or new_fps.dtype != np.uint64:
        raise InputError(f"group {group!r}: the words that came do not lie within their text.")
    rows = statistics.places(came)
    ends_at = statistics.moved(word_ends, came, stayed)
    ends_at[rows] = len(words) + np.cumsum(sizes, dtype=np.int64)
    lengths = statistics.moved(np.diff(word_ends, prepend=0), came, stayed)
    lengths[rows] = sizes
    new_ends = np.cumsum(lengths)
    whole = np.concatenate([words, text])
    if not np.array_equal(ends_at, new_ends):  # as they stand unless words went or came amid others
        whole, packed = np.empty(int(lengths.sum()), np.uint8), whole
        gather_text(packed, ends_at, new_ends, whole)
    all_fps = statistics.moved(fps, came, stayed)
    all_fps[rows] = new_fps
    arrays: Arrays = dict(
        zip(table, (all_fps, whole, new_ends, np.arange(len(came), dtype=np.int32)), strict=True)
    )
    for name in _rows_of(group, old):
        array = arrays[name] = statistics.moved(old[name], came, stayed)
        rows = np.flatnonzero(statistics.bits(changes, f"{_DELTA}/{name}/changed", len(came)))
        values = of_shape(changes, f"{_DELTA}/{name}/values", len(rows), *array.shape[1:])
        array[rows] = values if values.dtype == np.float64 else array.take(rows, axis=0) + values
    return arrays
