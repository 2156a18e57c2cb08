"""Bugs that only a power cut shows are found: a sync that is missing, or comes too late."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamnb import storage
from tests.campaigns.power_loss import SCENARIOS, Scenario, checkpoint
from tests.power_cut import PowerCut

N_TRIES = 5


def is_found(scenario: Scenario, folder: Path, *lies: str) -> bool:
    """Return whether one of a few runs of a scenario fails."""
    for seed in range(N_TRIES):
        below = folder / str(seed)
        below.mkdir()
        try:
            scenario(random.Random(seed), below, lies)
        except Exception:  # noqa: BLE001 -- a file that cannot be read is found as well
            return True
    return False


@pytest.mark.deep
@pytest.mark.parametrize("lie", ["sync", "sync_names"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_a_missing_sync_is_found(scenario: Scenario, lie: str, tmp_path: Path) -> None:
    """Without the syncs of files, or those of folders, something acknowledged is lost."""
    assert is_found(scenario, tmp_path, lie)


def test_a_rename_before_the_sync_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that gets its name before its bytes are synced may be there without them."""
    sync = storage._sync_folder

    def unsynced(path: Path, blocks: Iterable[bytes | memoryview], mode: int | None) -> int:
        assert mode is not None
        return path.write_bytes(b"".join(blocks))

    def late(folder: Path) -> None:
        with (folder / "model.nb").open("rb+") as file:
            os.fsync(file.fileno())
        sync(folder)

    monkeypatch.setattr(storage, "_write", unsynced)
    monkeypatch.setattr(storage, "_sync_folder", late)
    assert is_found(checkpoint, tmp_path)


def test_every_disk_of_a_few_calls(tmp_path: Path) -> None:
    """What may be left is all between what was synced and what was done, and nothing else."""
    (tmp_path / "a").write_bytes(b"old")
    cut = PowerCut(tmp_path)
    with cut.watched():
        fd = os.open(tmp_path / "b", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"new")
        os.fsync(fd)
        os.close(fd)
        (tmp_path / "b").replace(tmp_path / "a")
        cut.acknowledge("renamed")
        with synced(tmp_path):
            cut.acknowledge("synced")
    found = list(cut.states(random.Random(1)))
    early, renamed, after = (
        {tuple(sorted(left.items())) for said, left in found if said == list(promised)}
        for promised in ([], ["renamed"], ["renamed", "synced"])
    )
    old, new, both = (("a", b"old"),), (("a", b"new"),), (("a", b"old"), ("b", b"new"))
    assert early >= {old, both, (("a", b"old"), ("b", b"")), (("a", b"old"), ("b", b"\0\0\0")), new}
    assert renamed == {old, new, both}
    assert after == {new}


@contextmanager
def synced(folder: Path) -> Iterator[Any]:
    """Sync a folder."""
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    yield fd
    os.close(fd)
