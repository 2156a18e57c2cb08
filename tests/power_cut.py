"""The disks that a power cut may leave of a folder, while real code writes to it.

The calls of the code are noted as it runs. A disk keeps what was synced. Of what was written to a
file since, any sectors may be missing, or there as zeros; of names that were made, moved or deleted
since their folder was synced, any may be as before. A file that was synced may still lack its name.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from tests.system_calls import Call, hooked, real_path

FOLDER = -2  # the file of a name that is a folder's
_SECTOR = 512
_RANDOM_STATES = 3  # of each kind, at each instant


class Change(NamedTuple):
    """What a call changed.

    `kind` is write, resize, sync or drop of a file, which is a sync that failed; enter, move, leave
    or sync_names of names; or `ack`.
    Names are paths below the folder that is watched.
    """

    kind: str
    file: int = -1
    name: str = ""
    to: str = ""
    at: int = 0
    data: bytes = b""
    value: Any = None


@dataclass(slots=True)
class Disk:
    """What is safe of a folder, and the changes since that may be safe or not."""

    files: dict[int, bytes] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    unsynced: dict[int, list[Change]] = field(default_factory=dict)
    moves: list[Change] = field(default_factory=list)

    def do(self, change: Change) -> None:
        """Let one more change happen."""
        if change.kind in {"write", "resize"}:
            self.unsynced.setdefault(change.file, []).append(change)
        elif change.kind in {"enter", "move", "leave"}:
            self.moves.append(change)
        elif change.kind == "sync":
            old = self.files.get(change.file, b"")
            self.files[change.file] = _written(old, self.unsynced.pop(change.file, []))
        elif change.kind == "drop":
            self.unsynced.pop(change.file, None)
        elif change.kind == "sync_names":
            safe = [move for move in self.moves if os.path.dirname(move.name) == change.name]  # noqa: PTH120
            self.names = _moved(self.names, safe)
            self.moves = [move for move in self.moves if move not in safe]

    def after_a_cut(self, chance: random.Random) -> Iterator[dict[str, bytes]]:
        """Yield folders, names with what their files hold, that a power cut now may leave."""
        namings = [_moved(self.names, self.moves[:n]) for n in range(len(self.moves) + 1)]
        for _ in range(_RANDOM_STATES if self.moves else 0):
            kept = [move for move in self.moves if chance.random() < 0.5]
            namings.append(_moved(self.names, kept))
        for naming in namings:
            names = _reached(naming)
            pending = any(self.unsynced.get(file) for file in names.values())
            kinds = ["none", "all", "zeros", *["some", "cut"] * _RANDOM_STATES]
            for kind in kinds if pending else ["all"]:
                yield {
                    name: self._left(file, kind, chance)
                    for name, file in names.items()
                    if file != FOLDER
                }

    def _left(self, file: int, kind: str, chance: random.Random) -> bytes:
        old, changes = self.files.get(file, b""), self.unsynced.get(file, [])
        if kind == "none":
            return old
        if kind == "some":
            changes = [change for change in changes if chance.random() < 0.5]
        elif kind == "cut" and changes:
            n = chance.randrange(len(changes))
            end = chance.randrange(len(changes[n].data) + 1)
            changes = [*changes[:n], changes[n]._replace(data=changes[n].data[:end])]
        elif kind == "zeros":  # the length is there, and no data
            changes = [change._replace(data=bytes(len(change.data))) for change in changes]
        return _written(old, changes)


def _written(old: bytes, changes: list[Change]) -> bytes:
    data = bytearray(old)
    for change in changes:
        if change.kind == "resize":
            data = data[: change.at].ljust(change.at, b"\0")
        else:
            data = data.ljust(change.at, b"\0")
            data[change.at : change.at + len(change.data)] = change.data
    return bytes(data)


def _moved(names: dict[str, int], moves: list[Change]) -> dict[str, int]:
    names = dict(names)
    for change in moves:
        if change.kind == "enter":
            names[change.name] = change.file
        elif change.kind == "leave":
            names.pop(change.name, None)
        elif change.name in names:  # its file may never have got that name
            names[change.to] = names.pop(change.name)
    return names


def _reached(names: dict[str, int]) -> dict[str, int]:
    """Return the names whose folders have theirs."""
    folders = {name for name, file in names.items() if file == FOLDER} | {""}
    return {
        name: file
        for name, file in names.items()
        if {str(each) for each in PurePath(name).parents} - {"."} <= folders
    }


class PowerCut:
    """Notes what is done to a folder, and rebuilds what a power cut may have left of it.

    What is in the folder before is safe. With `lies` the disk acknowledges calls of these kinds of
    change without obeying: the code might as well have forgotten them. The sync of number `failing`
    fails, and what it was to make safe never is, though the file reads as if it were there.

    Attributes
    ----------
    changes : list of Change
        What happened so far.
    """

    def __init__(self, folder: Path, lies: tuple[str, ...] = (), failing: int = 0) -> None:
        self.changes: list[Change] = []
        self._folder = folder
        self._lies = lies
        self._until_failing = failing
        self._first = Disk()
        self._numbers: dict[int, int] = {}  # by inode
        for path in sorted(folder.rglob("*")):
            if path.is_dir():
                self._first.names[self._name(path)] = FOLDER
                continue
            number = self._numbers.setdefault(path.stat().st_ino, len(self._numbers))
            self._first.names[self._name(path)] = number
            self._first.files[number] = path.read_bytes()
        self._n_files = len(self._numbers)

    def watched(self) -> Any:
        """Return a context in which the calls of the code are noted."""
        return hooked(self._folder, self.note)

    def acknowledge(self, value: Any) -> None:
        """Note that from now on something is promised."""
        self.changes.append(Change("ack", value=value))

    def disk(self) -> Disk:
        """Return the disk after all that happened so far."""
        disk = Disk(dict(self._first.files), dict(self._first.names))
        for change in self.changes:
            disk.do(change)
        return disk

    def states(self, chance: random.Random) -> Iterator[tuple[list[Any], dict[str, bytes]]]:
        """Yield what was acknowledged, and a folder that a power cut then may leave, each once."""
        disk, promised = self._first, []
        seen: set[Any] = set()
        for change in [Change("begin"), *self.changes]:
            disk.do(change)
            if change.kind == "ack":
                promised.append(change.value)
            for left in disk.after_a_cut(chance):
                key = len(promised), hash(tuple(sorted(left.items())))
                if key not in seen:
                    seen.add(key)
                    yield list(promised), left

    def add(self, change: Change) -> None:
        """Note a change; a write as one of each sector."""
        if change.kind in self._lies:
            return
        if change.kind != "write":
            self.changes.append(change)
            return
        begin = 0
        while begin < len(change.data):
            at = change.at + begin
            end = begin + _SECTOR - at % _SECTOR
            self.changes.append(change._replace(at=at, data=change.data[begin:end]))
            begin = end

    def file(self, inode: int, *, is_new: bool = False) -> int:
        """Return the number of a file; one that is new gets the next, whatever inode it has."""
        if is_new or inode not in self._numbers:
            self._numbers[inode] = self._n_files
            self._n_files += 1
        return self._numbers[inode]

    def _name(self, path: Any) -> str:
        below = real_path(path).relative_to(self._folder)
        return "" if below == Path() else str(below)

    def note(self, call: Call, act: Any) -> Any:
        """Carry out a call, and note what it changes."""
        name, path, args = call
        is_new = name == "open" and not os.path.lexists(path)
        done = act()
        if name == "open":
            self._note_open(path, done, args[1], is_new=is_new)
        elif name in {"rename", "replace"}:
            self.add(Change("move", name=self._name(path), to=self._name(args[1])))
        elif name == "link":
            number = self.file(path.stat().st_ino)
            self.add(Change("enter", number, name=self._name(args[1])))
        elif name == "mkdir":
            self.add(Change("enter", FOLDER, name=self._name(path)))
        elif name in {"unlink", "remove"}:
            self.add(Change("leave", name=self._name(path)))
        else:
            self._note_fd(name, path, args, done)
        return done

    def _note_open(self, path: Path, fd: int, flags: int, *, is_new: bool) -> None:
        number = self.file(os.fstat(fd).st_ino, is_new=is_new)
        if is_new:
            self.add(Change("enter", number, name=self._name(path)))
        elif flags & os.O_TRUNC:
            self.add(Change("resize", number))

    def _note_fd(self, name: str, path: Path, args: tuple[Any, ...], done: Any) -> None:
        status = os.fstat(args[0])
        if stat.S_ISDIR(status.st_mode):
            self.add(Change("sync_names", name=self._name(path)))
            return
        number = self.file(status.st_ino)
        if name in {"write", "pwrite"}:
            at = args[2] if name == "pwrite" else os.lseek(args[0], 0, os.SEEK_CUR) - done
            self.add(Change("write", number, at=at, data=bytes(memoryview(args[1]))[:done]))
        elif name == "ftruncate":
            self.add(Change("resize", number, at=args[1]))
        elif name in {"fsync", "fdatasync"}:
            self._until_failing -= 1
            if self._until_failing == 0:
                self.add(Change("drop", number))
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.add(Change("sync", number))


def put_back(folder: Path, left: dict[str, bytes]) -> Path:
    """Make a folder hold what a power cut left, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in left.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder
