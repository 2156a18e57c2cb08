"""Model ⇄ one file. The only module of the library that touches files.

The file is what `serialization` gives: a JSON header and raw arrays. The header holds format and
version, classes, priors, groups, hash key, and a digest of the whole file. Per group there is what
its parts share (of words: fingerprints, text, where each text ends), and per **section** the
statistics of one part. A model kept whole is one section without a name; a model kept in parts has
one a part, each with its log's position if the caller gave one. The model is the sections' sum.

Writing: ① everything into a new, locked file beside the old one ② fsync ③ older files move down,
`model.nb` being linked as `model.nb.1`, or copied where the file system has no hard links ④ rename
over `model.nb` ⑤ fsync the folder. A kill at any instant leaves a complete `model.nb`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import re
import stat
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
from numpy.typing import NDArray

from streamnb import serialization
from streamnb.errors import (
    InputError,
    StoreError,
    StoreVersionError,
    check_kind,
    check_path,
    check_whole,
)
from streamnb.features.statistics import Arrays
from streamnb.model import NaiveBayes
from streamnb.state import ModelState

_ATTEMPTS = 5
_MODE_MAX = 0o7777
_COPY_BYTES = 1 << 20
# What a file system without hard links says to one.
NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class StoreWarning(UserWarning):
    """The newest file was damaged or gone, and an older one was taken."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a file held."""

    model: NaiveBayes
    positions: dict[str, int]  # the next offset of each part's log, if it was given
    path: Path  # another file than the one asked for, if that was damaged
    header: dict[str, Any]  # the file's own description of the model
    extras: Arrays = field(default_factory=dict)  # what was saved beside the model
    file: tuple[int, int, int] = (0, 0, 0)  # which one was read: time in ns, inode and size


def save(
    model: NaiveBayes | ModelState,
    path: str | os.PathLike[str],
    *,
    positions: Mapping[str, int] | None = None,
    notes: Mapping[str, Any] | None = None,
    extras: Mapping[str, NDArray[Any]] | None = None,
    keep: int = 1,
    mode: int | None = None,
) -> int:
    """Save a model to one file, safely.

    Parameters
    ----------
    model : NaiveBayes or ModelState
        A state's `frozen_parts` may be saved on another thread while the model learns on.
    path : path
        The file; its folder must exist.
    positions : mapping of str to int, optional
        The next offset of each part's log, saved with the part in one step.
    notes : mapping of str to JSON values, optional
        Whatever the caller wants to find again in the header; each text has a UTF-8 form.
    extras : mapping of str to ndarray, optional
        Arrays of bool, float64, int32, int64, uint64 or uint8, to be found again by `read`.
    keep : int
        How many files to keep, at least 1: `path`, `path.1`, … with `path` the newest.
    mode : int, optional
        The file's permissions, such as ``0o600``, whatever the umask; None: by the umask. The file
        holds the words that were learned.

    Returns
    -------
    int
        The file's size in bytes.

    Raises
    ------
    InputError
        For an argument that cannot be used.
    StoreError
        If it cannot be written; what stood there before still stands.
    """
    check_kind("model", model, NaiveBayes, ModelState)
    state = model.state if isinstance(model, NaiveBayes) else model
    target = check_path("path", path)
    check_whole("keep", keep, 1)
    _check_mode(mode)
    _check_positions(positions)
    header, arrays = serialization.pack(state, positions or {})
    header["notes"], arrays = _checked_notes(notes), arrays | _checked_extras(extras)
    try:
        with new_file(target) as (fresh, file):
            blocks = serialization.to_blocks(header, _each_once(arrays, header))
            size = _write(file, blocks, mode)
            _move_down(target, keep)
            fresh.replace(target)
    except OSError as error:
        raise StoreError(
            f"{target}: cannot be written ({error.strerror or error}). The file before it still"
            " stands; see to the folder and the disk's room, then save again."
        ) from error
    try:
        _sync_folder(target.parent)
    except OSError as error:
        raise StoreError(
            f"{target}: written, but its folder cannot be synced ({error.strerror or error}): after"
            " a power cut the file before it may stand again. See to the disk, then save again."
        ) from error
    return size


def _check_mode(mode: int | None) -> None:
    if mode is None:
        return
    check_whole("mode", mode, 0)
    if mode > _MODE_MAX:
        raise InputError(f"mode must be permissions, at most 0o7777. Got {mode!r} instead.")


def _check_positions(positions: Any) -> None:
    for part, position in _mapping("positions", positions).items():
        check_kind("positions: a part", part, str)
        check_whole(f"positions[{part!r}]", position, 0)


def _checked_notes(notes: Any) -> dict[str, Any]:
    checked = dict(_mapping("notes", notes))
    try:
        _check_text(checked)
    except (TypeError, ValueError) as error:
        raise InputError(f"notes must be values that JSON knows ({error}).") from error
    return checked


def _check_text(notes: Any) -> None:
    """Refuse notes with half a character: other readers of JSON end at it."""
    json.dumps(notes, ensure_ascii=False).encode()


def _checked_extras(extras: Any) -> Arrays:
    checked: Arrays = {}
    for name, array in _mapping("extras", extras).items():
        check_kind("extras: a name", name, str)
        serialization.check_name(f"extras: {name!r}", name)
        check_kind(f"extras[{name!r}]", array, np.ndarray)
        if array.dtype.name not in serialization.DTYPES:
            known = ", ".join(serialization.DTYPES)
            raise InputError(f"extras[{name!r}] must be of {known}. Got {array.dtype} instead.")
        # A file has the bytes of this order alone; an array that has them stays the same memory.
        ordered = array.astype(array.dtype.newbyteorder("<"), copy=False)
        checked[f"{serialization.EXTRAS}{name}"] = ordered
    return checked


def _each_once(arrays: Arrays, header: dict[str, Any]) -> Arrays:
    """Return arrays without extras that are the very memory of another; the header names that."""
    names: dict[Any, str] = {}
    repeated = {}
    for name, array in arrays.items():
        memory = array.__array_interface__
        place = memory["data"][0], array.shape, array.strides, memory["typestr"]
        first = names.setdefault(place, name)
        if first != name and name.startswith(serialization.EXTRAS):
            repeated[name] = first
    if repeated:
        header["repeated"] = repeated
    return {name: array for name, array in arrays.items() if name not in repeated}


def load(path: str | os.PathLike[str]) -> NaiveBayes:
    """Load a model that `save` wrote.

    If the file is damaged or gone and an older one is kept beside it, that one is taken, with a
    `StoreWarning`. A file that may be whole is not passed over: the next save would push it out.

    Raises
    ------
    StoreError
        If no file can be used, as one of `HalfLives`: what was found, and what to do. It is a
        `StoreVersionError` if another version saved it.
    """
    return read_model(path).model


def read_model(path: str | os.PathLike[str]) -> Stored:
    """Load a model with its positions and extras; see `load`."""
    stored = read(path)
    serialization.refuse_half_lives(str(stored.path), stored.header, stored.extras)
    return stored


def read(path: str | os.PathLike[str]) -> Stored:
    """Read whatever model a file holds, the counts of a `HalfLives` too; see `load`."""
    target = check_path("path", path)
    try:
        return _read_one(target)
    except StoreVersionError:
        raise
    except StoreError as error:
        if _is_out_of_reach(error):
            raise
        for older in older_files(target):
            try:
                stored = _read_one(older)
            except StoreError as fault:
                if _is_out_of_reach(fault):
                    raise
                continue
            warnings.warn(f"{error} Going on with {older}.", StoreWarning, stacklevel=2)
            return stored
        raise


def _is_out_of_reach(error: StoreError) -> bool:
    """Return whether a file may be whole: a network file system says EIO too, for a while."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno != errno.ENOENT


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if value is not None:
        check_kind(name, value, Mapping)
    return value or {}


def positions_of(path: Path) -> dict[str, int]:
    """Return the positions that one file holds by its header alone; its arrays are not read."""
    with _header_errors(path):
        sections = _header(path)["sections"]
        return {each["part"]: each["position"] for each in sections if each["position"] is not None}


def notes_of(path: Path) -> dict[str, Any]:
    """Return the notes that one file holds; its arrays are not read."""
    with _header_errors(path):
        notes: dict[str, Any] = _header(path)["notes"]
        return notes


def groups_of(path: Path) -> dict[str, Any]:
    """Return the groups of features that one file's model has; its arrays are not read."""
    with _header_errors(path):
        groups: dict[str, Any] = _header(path)["groups"]
        return groups


def _opened(path: Path) -> BinaryIO:
    """Open a file for reading; a pipe, which would wait for somebody to write, is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return os.fdopen(descriptor, "rb")


def _header(path: Path) -> dict[str, Any]:
    _opened(path).close()
    with safetensors.safe_open(path, framework="numpy") as file:
        header: dict[str, Any] = json.loads(file.metadata()["header"])
    _check_text(header["notes"])
    return header


@contextlib.contextmanager
def _header_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, *serialization.UNREADABLE) as error:
        raise StoreError(f"{path}: its header cannot be read ({error!r}).") from error


def lock(path: Path) -> io.FileIO:
    """Lock a file by another beside it, as the file itself is replaced by every save."""
    try:
        beside = io.FileIO(path.with_name(f".{path.name}.lock"), "w")
    except OSError as error:
        raise StoreError(
            f"{path}: its folder cannot be written ({error.strerror}). Name another file."
        ) from error
    try:
        fcntl.flock(beside, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        beside.close()
        raise StoreError(
            f"{path}: another process learns into it. Stop that one, or name another file."
        ) from None
    return beside


def older_files(target: Path) -> list[Path]:
    """Return the older files kept beside `target`, newest first."""
    pattern = re.compile(re.escape(target.name) + r"\.([1-9][0-9]*)")
    try:
        found = [pattern.fullmatch(path.name) for path in target.parent.iterdir()]
    except OSError:
        return []
    return [_older(target, n) for n in sorted(int(match[1]) for match in found if match)]


def _older(target: Path, number: int) -> Path:
    return target.with_name(f"{target.name}.{number}")


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open an empty file beside a target, and no other save's, to be renamed over the target.

    It is locked for as long: if another save writes it, that is a StoreError, and two at once never
    mix. What a kill leaves of it the next save writes over, once no child that was forked meanwhile
    holds the lock. It goes if an error ends the writing.
    """
    fresh = target.with_name(f".{target.name}.new")
    with fresh.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = os.path.samestat(os.fstat(file.fileno()), fresh.stat())
        except (BlockingIOError, FileNotFoundError):
            is_ours = False
        except OSError:  # a file system without locks
            is_ours = True
        if not is_ours:
            raise StoreError(
                f"{target}: another save writes it at the same time. What that leaves is whole;"
                " save again, or let one thread or process do it."
            )
        try:
            if file.tell():  # what a kill left
                file.truncate(0)
            yield fresh, file
        except BaseException:
            with contextlib.suppress(OSError):  # the next save writes over it
                fresh.unlink(missing_ok=True)
            raise


def _write(file: BinaryIO, blocks: Iterable[bytes | memoryview], mode: int | None) -> int:
    """Write a new file and wait until the disk has it; return its size."""
    is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)  # a link may lead to a device
    if mode is not None and is_file:  # before anything stands in it
        os.fchmod(file.fileno(), mode)
    size = 0
    for block in blocks:
        size += file.write(block)
    file.flush()
    os.fsync(file.fileno())
    return size


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's names."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move_down(target: Path, keep: int) -> None:
    """Make room for a new `target`: it stays, and is `target.1` as well; the oldest leave."""
    first = _older(target, 1)
    # A save that was killed between here and its rename has moved them already, or some of them.
    # What need not move stays, so that no good file is pushed out for nothing.
    is_kept = first.exists() and target.exists() and _are_same(first, target)
    older = older_files(target)
    for rank in range(len(older), 0, -1):
        old = older[rank - 1]
        number = int(old.suffix[1:])
        is_in_the_way = number == rank and not is_kept
        if number + is_in_the_way >= keep:
            old.unlink()
        elif is_in_the_way:
            old.replace(_older(target, number + 1))
    if keep > 1 and target.exists() and not first.exists():
        try:
            os.link(target, first)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            _copy(target, first)


def _are_same(first: Path, second: Path) -> bool:
    """Return whether two files are of one save: one file by a link, or a copy of it."""
    one, other = first.stat(), second.stat()
    if os.path.samestat(one, other):
        return True
    # Two saves of one state have one digest, but no copy has another time than what it is of.
    if (one.st_size, one.st_mtime_ns) != (other.st_size, other.st_mtime_ns):
        return False
    digest = _digest(first)
    return digest is not None and digest == _digest(second)


def _digest(path: Path) -> str | None:
    """Return the digest that a file's header names; None if it cannot be read."""
    try:
        _opened(path).close()
        with safetensors.safe_open(path, framework="numpy") as file:
            digest: str = file.metadata()["digest"]
            return digest
    except (OSError, *serialization.UNREADABLE):
        return None


def _copy(path: Path, copy: Path) -> None:
    """Copy a file under a name that nobody has; the disk has all of it before it has the name."""
    with path.open("rb") as file, new_file(copy) as (fresh, new):
        found = os.fstat(file.fileno())
        _write(new, iter(partial(file.read, _COPY_BYTES), b""), stat.S_IMODE(found.st_mode))
        with contextlib.suppress(OSError):  # then a kill here may cost the oldest file
            os.utime(fresh, ns=(found.st_atime_ns, found.st_mtime_ns))
        fresh.replace(copy)


def _read_one(path: Path) -> Stored:
    """Read one file, whatever is kept beside it."""
    try:
        for _ in range(_ATTEMPTS):
            with _opened(path) as whole:
                found = os.fstat(whole.fileno())
                digest = serialization.check(whole, found.st_size, str(path))
            with safetensors.safe_open(path, framework="numpy") as file:
                meta = file.metadata()
                if meta["digest"] != digest:
                    continue  # a newer file has just been put in its place
                header = json.loads(meta["header"])
                _check_text(header["notes"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- no mapping
            arrays |= {name: arrays[first] for name, first in header.get("repeated", {}).items()}
            state, positions = serialization.unpack(header, arrays)
            extras = {
                name.removeprefix(serialization.EXTRAS): array
                for name, array in arrays.items()
                if name.startswith(serialization.EXTRAS)
            }
            which = found.st_mtime_ns, found.st_ino, found.st_size
            return Stored(NaiveBayes.of(state), positions, path, header, extras, which)
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be read ({error.strerror or error}). Check the path, and who may read"
            " there."
        ) from error
    except serialization.UNREADABLE as error:
        raise StoreError(
            f"{path}: whole, but it does not describe a model ({error!r}). Another program wrote"
            " it, perhaps. Give a file that streamnb saved."
        ) from error
    raise StoreError(f"{path}: it is replaced again and again while it is read. Load it again.")
