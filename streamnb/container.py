"""A header and arrays as one safetensors container, with a digest of the whole.

A JSON header and raw little-endian arrays, readable in any language, without pickle. The header
says format and version and holds a BLAKE2b digest of the whole container, taken with the digest's
own place zeroed. It is written here, array by array, because the library's own writer holds every
array twice.
"""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any, BinaryIO

import numpy as np
import safetensors.numpy

from streamnb.errors import StoreError
from streamnb.groups import Arrays

FORMAT = "streamnb model"
VERSION = 2
_NO_DIGEST = "0" * 64
_DTYPES = {
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
            "dtype": _DTYPES[arrays[name].dtype.name],
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


def from_bytes(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return the header and arrays of a container, once its digest is right.

    Raises
    ------
    StoreError
        Where it is damaged, foreign, or of another version.
    """
    if not isinstance(data, bytes):  # a bytearray or memoryview, as sockets and shared memory give
        data = bytes(memoryview(data))
    check(io.BytesIO(data), len(data), "these bytes")
    size = int.from_bytes(data[:8], "little")
    meta = json.loads(data[8 : 8 + size])["__metadata__"]
    return json.loads(meta["header"]), safetensors.numpy.load(data)


def check(file: BinaryIO, n_bytes: int, where: str) -> str:
    """Return the digest of a container of `n_bytes` once format, version and digest are right.

    Raises
    ------
    StoreError
        It begins with `where`.
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
            " learn anew."
        )
    return said


def _said_digest(where: str, text: bytes) -> str:
    """Return the digest that a header claims, where it is one of ours and of our version."""
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
        raise StoreError(
            f"{where}: model format version {meta.get('version')!r}; this library reads version"
            f" {VERSION}. Load it with the streamnb that saved it."
        )
    return str(meta.get("digest"))
