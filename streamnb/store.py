"""Model ⇄ one file. The only room of the library that touches files.

The file is a safetensors container: a JSON header and raw little-endian arrays, readable in any
language, without pickle. The header holds format and version, classes, priors, tokeniser, hash key,
and a BLAKE2b digest of the whole file (taken with the digest's own place zeroed). Per group there
are the words (fingerprints, text, where each text ends), and per **section** the sparse counts of
one part. A model kept whole is one section without a name; a model kept in parts has one a part,
each with its log's position if the caller gave one. The model is the sections' sum.

Writing: ① everything into a new file beside the old one ② fsync ③ older files move down, `model.nb`
being linked as `model.nb.1` ④ rename over `model.nb` ⑤ fsync the folder. A kill at any instant
leaves a complete `model.nb`.

The container is written here, array by array, because the library's own writer holds every array
twice; it is read by the library.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from streamnb import packing
from streamnb.errors import StoreError
from streamnb.model import NaiveBayes

FORMAT = "streamnb model"
VERSION = 1
_NO_DIGEST = "0" * 64
_DTYPES = {"uint8": "U8", "int32": "I32", "int64": "I64", "uint64": "U64", "float64": "F64"}
_HEADER_BYTES_MAX = 100_000_000
_BLOCK = 1 << 20


class StoreWarning(UserWarning):
    """The newest file was damaged, and an older one was taken."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a file held.

    Attributes
    ----------
    model : NaiveBayes
    positions : dict of str to int
        The next offset of each part's log, where it was given.
    path : Path
        The file it came from: another one than asked for where that was damaged.
    header : dict
        The file's own description of the model.
    """

    model: NaiveBayes
    positions: dict[str, int]
    path: Path
    header: dict[str, Any]


def save(
    model: NaiveBayes,
    path: str | os.PathLike[str],
    *,
    positions: Mapping[str, int] | None = None,
    notes: Mapping[str, Any] | None = None,
    keep: int = 1,
) -> int:
    """Save a model to one file, safely.

    Parameters
    ----------
    model : NaiveBayes
    path : path
        The file; its folder must exist.
    positions : mapping of str to int, optional
        The next offset of each part's log, saved with the part in one step.
    notes : mapping of str to JSON values, optional
        Whatever the caller wants to find again in the header.
    keep : int
        How many files to keep: `path`, `path.1`, … with `path` the newest.

    Returns
    -------
    int
        The file's size in bytes.

    Raises
    ------
    StoreError
        Where it cannot be written; what stood there before still stands.
    """
    target = Path(path)
    header, arrays = packing.pack(model, positions or {})
    header["notes"] = dict(notes or {})
    fresh = target.with_name(f".{target.name}.new")
    try:
        with fresh.open("wb") as file:
            for block in _container(header, arrays):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        _move_down(target, keep)
        fresh.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise StoreError(
            f"{target}: cannot be written ({error.strerror or error})."
            " The file before it still stands."
        ) from error
    return size


def load(path: str | os.PathLike[str]) -> NaiveBayes:
    """Load a model that `save` wrote; where it is damaged, an older one beside it, with a warning.

    Raises
    ------
    StoreError
        Where no file can be used: what was found, and what to do.
    """
    return read(path).model


def read(path: str | os.PathLike[str]) -> Stored:
    """Load a model with its positions; see `load`."""
    target = Path(path)
    try:
        return _read_one(target)
    except StoreError as error:
        for older in older_files(target):
            with contextlib.suppress(StoreError):
                stored = _read_one(older)
                warnings.warn(f"{error} Going on with {older}.", StoreWarning, stacklevel=2)
                return stored
        raise


def older_files(target: Path) -> list[Path]:
    """Return the older files kept beside `target`, newest first."""
    kept = [p for p in target.parent.glob(f"{target.name}.*") if p.suffix[1:].isdigit()]
    return sorted(kept, key=lambda p: int(p.suffix[1:]))


def _move_down(target: Path, keep: int) -> None:
    for old in reversed(older_files(target)):
        number = int(old.suffix[1:])
        if number >= keep - 1:
            old.unlink()
        else:
            old.replace(target.with_name(f"{target.name}.{number + 1}"))
    if keep > 1 and target.exists():
        os.link(target, target.with_name(f"{target.name}.1"))


def _container(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> list[bytes | memoryview]:
    """Return the file's blocks: length, header with digest, and the arrays' own memory."""
    # The format wants arrays aligned: those of eight-byte items stand first.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    entries: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT,
            "version": str(VERSION),
            "digest": _NO_DIGEST,
            "header": json.dumps(header, sort_keys=True),
        }
    }
    end = 0
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        entries[name] = {
            "dtype": _DTYPES[arrays[name].dtype.name],
            "shape": list(arrays[name].shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    blocks: list[bytes | memoryview] = [len(text).to_bytes(8, "little"), text]
    blocks += [
        memoryview(np.ascontiguousarray(arrays[name]).reshape(-1)).cast("B") for name in order
    ]
    digest = hashlib.blake2b(digest_size=32)
    for block in blocks:
        digest.update(block)
    blocks[1] = text.replace(_NO_DIGEST.encode(), digest.hexdigest().encode(), 1)
    return blocks


def _read_one(path: Path) -> Stored:
    meta = _check(path)
    try:
        header = json.loads(meta["header"])
        model, positions = packing.unpack(header, safetensors.numpy.load_file(path))
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError, IndexError) as error:
        raise StoreError(
            f"{path}: the file is whole but does not describe a model ({error!r})."
            " Was it written by another program?"
        ) from error
    return Stored(model, positions, path, header)


def _check(path: Path) -> dict[str, str]:
    """Return the container's metadata once format, version and digest are right."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            text = file.read(size) if size <= _HEADER_BYTES_MAX else b""
            try:
                meta = json.loads(text)["__metadata__"]
                wrong = None if meta["format"] == FORMAT else "another format"
            except (ValueError, KeyError, TypeError):
                wrong = "no header of ours"
            if wrong:
                raise StoreError(
                    f"{path}: not a streamnb model ({wrong}). Give a file that streamnb saved."
                )
            if meta.get("version") != str(VERSION):
                raise StoreError(
                    f"{path}: model format version {meta.get('version')!r}; this library reads"
                    f" version {VERSION}. Load it with the streamnb that saved it."
                )
            said = str(meta.get("digest"))
            digest = hashlib.blake2b(size.to_bytes(8, "little"), digest_size=32)
            digest.update(text.replace(said.encode(), _NO_DIGEST.encode(), 1))
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if digest.hexdigest() != said:
        raise StoreError(
            f"{path}: damaged: its digest does not match its content."
            " Restore it from a copy, or learn anew."
        )
    return dict(meta)
