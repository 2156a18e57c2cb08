"""Saving that fails or is struck down: a whole model stands at the path at every instant."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from streamnb import serialization
from streamnb.errors import StoreError
from streamnb.storage import load, older_files, save
from tests.library.storage.saving_process import CALLS, KEEP, ages, at_step, model_of, no_link

NOBODY = 65_534


@pytest.mark.parametrize("with_links", [True, False])
def test_a_failure_at_any_step_is_told_and_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_links: bool
) -> None:
    """Whatever call of a save fails, it is a `StoreError`, and old or new stands there whole."""
    if not with_links:
        monkeypatch.setattr(os, "link", no_link)
    path = tmp_path / "model.nb"
    for n_examples in range(3):
        save(model_of(n_examples), path, keep=KEEP)
    new = model_of(3)
    step, n_told, n_old = 0, 0, 0
    while True:
        step += 1
        told = _save_failing_at(step, path, new)
        left = load(path).n_examples
        if told is None:
            break
        assert str(path) in told
        assert "No space left on device" in told
        n_told += 1
        n_old += "The file before it still stands" in told
        assert left == (2 if "The file before it still stands" in told else 3)
        assert not [p for p in tmp_path.iterdir() if p.name.endswith(".new")]
        for n_examples in range(3):
            save(model_of(n_examples), path, keep=KEEP)
        assert ages(path) == [2, 1, 0]
    assert left == 3
    assert n_told > n_old > 10


def _save_failing_at(step: int, path: Path, model: Any) -> str | None:
    """Save with a full disk at one step; return what was said, None where nothing failed."""

    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    hook = at_step(step, fail)

    def before_only(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in CALLS - {"close"}:
            hook(frame, event, called)

    sys.setprofile(before_only)
    try:
        save(model, path, keep=KEEP)
    except StoreError as error:
        return str(error)
    finally:
        sys.setprofile(None)
    return None


def test_the_disk_has_the_file_before_its_name_is_changed(tmp_path: Path) -> None:
    """A save waits for the disk before the rename, and for the folder after it."""
    path = tmp_path / "model.nb"
    save(model_of(1), path)
    called: list[str] = []

    def note(_frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__module__ == "posix":
            called.append(function.__name__)

    sys.setprofile(note)
    try:
        save(model_of(2), path, keep=2)
    finally:
        sys.setprofile(None)
    lasting = [name for name in called if name in {"fsync", "link", "replace"}]
    assert lasting == ["fsync", "link", "replace", "fsync"]


def test_two_saves_at_once_never_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one save writes, another to the same path is refused; the first one's file is whole."""
    path = tmp_path / "model.nb"
    save(model_of(1), path)
    whole = serialization.to_blocks
    refused: list[str] = []

    def amid(header: dict[str, Any], arrays: Any) -> Iterator[bytes | memoryview]:
        first, *others = whole(header, arrays)
        yield first
        monkeypatch.setattr(serialization, "to_blocks", whole)
        with pytest.raises(StoreError, match="another save writes it at the same time") as told:
            save(model_of(5), path)
        refused.append(str(told.value))
        yield from others

    monkeypatch.setattr(serialization, "to_blocks", amid)
    save(model_of(2), path)
    assert len(refused) == 1
    assert load(path).n_examples == 2
    save(model_of(5), path)
    assert load(path).n_examples == 5
    assert [each.name for each in tmp_path.iterdir()] == ["model.nb"]


def test_a_file_system_without_locks_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it says of a lock: what is wrong with it otherwise shows when it is written."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for n_examples in (1, 2):
        save(model_of(n_examples), tmp_path / "model.nb")
    assert load(tmp_path / "model.nb").n_examples == 2


def test_the_permissions_of_a_device_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link in the place of the new file may lead to one, which is no file of ours."""
    changed: list[int] = []
    monkeypatch.setattr(os, "fchmod", lambda fd, _mode: changed.append(fd))
    (tmp_path / ".model.nb.new").symlink_to("/dev/full")
    with pytest.raises(StoreError, match="No space left on device"):
        save(model_of(1), tmp_path / "model.nb", mode=0o600)
    assert changed == []


def test_an_interrupted_save_leaves_nothing_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in its middle: the file before it stands alone."""
    path = tmp_path / "model.nb"
    save(model_of(1), path)

    def amid(*_: Any) -> Iterator[bytes]:
        yield b"some"
        raise KeyboardInterrupt

    monkeypatch.setattr(serialization, "to_blocks", amid)
    with pytest.raises(KeyboardInterrupt):
        save(model_of(2), path)
    assert [each.name for each in tmp_path.iterdir()] == ["model.nb"]
    assert load(path).n_examples == 1


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_without_hard_links_the_file_before_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As many are kept as with links, with the permissions that they had."""
    path = tmp_path / "model.nb"

    def refused(*_paths: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    for n_examples in range(5):
        save(model_of(n_examples), path, keep=KEEP, mode=0o600)
    assert ages(path) == [4, 3, 2]
    assert [stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()] == [0o600] * 3


@pytest.mark.parametrize("has_links", [True, False])
def test_saves_of_one_state_push_out_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """What was erased from the state leaves the kept files, though nothing else changes."""
    path = tmp_path / "model.nb"

    def refused(*_paths: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not has_links:
        monkeypatch.setattr(os, "link", refused)
    save(model_of(5), path, keep=KEEP)
    for n_saves in range(1, KEEP + 1):
        save(model_of(2), path, keep=KEEP)
        assert ages(path) == [*[2] * n_saves, 5][:KEEP]


def test_a_link_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full is no file system without links: nothing is copied."""
    path = tmp_path / "model.nb"
    save(model_of(1), path)

    def refused(*_paths: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(StoreError, match="No space left"):
        save(model_of(2), path, keep=2)
    assert [each.name for each in tmp_path.iterdir()] == ["model.nb"]


def run(kind: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the saving process to its end."""
    command = [sys.executable, "-m", "tests.library.storage.saving_process", kind, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["steps", "steps-without-links"])
def test_a_kill_at_any_step_leaves_a_whole_model(tmp_path: Path, kind: str) -> None:
    """Killed before or after any call of a save, the path loads, and so does each older file.

    The save after that one carries on as if nothing had happened: no good file is pushed out.
    """
    done = run(kind, tmp_path)
    assert done.returncode == 0, done.stderr
    n_steps, n_old = map(int, done.stdout.split())
    assert n_steps > n_old > 10


@pytest.mark.deep
def test_a_kill_at_any_time_leaves_a_whole_model(tmp_path: Path) -> None:
    """A process that saves without end is killed again and again; the path always loads."""
    choice = random.Random(5)
    for _ in range(2):
        command = [
            sys.executable,
            "-m",
            "tests.library.storage.saving_process",
            "forever",
            str(tmp_path),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = [int(process.stdout.readline()) for _ in range(choice.randint(1, 12))]
            process.kill()
            said += map(int, process.stdout.read().split())
        assert load(tmp_path / "model.nb").n_examples in {said[-1], said[-1] + 1}
        for path in older_files(tmp_path / "model.nb"):
            load(path)


@pytest.mark.deep
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """Where the file finds no room it is an error each time, and the old file stands alone."""
    done = run("full", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith(f"{tmp_path / 'model.nb'}: cannot be written (File too large).")
        assert "The file before it still stands; see to the folder and the disk's room" in line


def test_a_folder_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    """In a folder without the right to write, saving is an error that says so."""
    path = tmp_path / "model.nb"
    save(model_of(1), path)
    tmp_path.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)  # root may write anywhere
    try:
        with pytest.raises(StoreError, match=r"model\.nb: cannot be written \(Permission denied\)"):
            save(model_of(2), path)
    finally:
        if is_root:
            os.seteuid(0)
        tmp_path.chmod(0o755)
    assert load(path).n_examples == 1


@pytest.mark.parametrize("name", ["no/model.nb", "file/model.nb", "folder"])
def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str) -> None:
    """A missing folder, a file in its place, and a folder in the file's place are errors."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="cannot be written") as caught:
        save(model_of(1), tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
