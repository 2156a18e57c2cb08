"""What was removed from the store of recent messages leaves all of its files."""

from __future__ import annotations

import shutil
from pathlib import Path

from structlog.testing import capture_logs

from tests.consumers.search.stores import clock_of, forget, ids, running, settle, tell


def test_words_of_removed_messages_are_gone_after_a_kill(tmp_path: Path) -> None:
    """Killed between a removal and the purge, a store purges at its next start, its log too."""
    path, killed = tmp_path / "recent.db", tmp_path / "killed" / "recent.db"
    killed.parent.mkdir()
    with running(path) as store:
        tell(store, ["one xylophonist", "good day"])
        forget(store, ["m0"])
        settle(store)
        for suffix in ("", "-wal"):  # as a kill would leave them
            shutil.copy(tmp_path / f"recent.db{suffix}", killed.parent / f"recent.db{suffix}")
    held = [each.name for each in killed.parent.iterdir() if b"xylophonist" in each.read_bytes()]
    assert held == ["recent.db-wal"]
    with running(killed) as store:
        clock_of(store).now_s += 11
        settle(store)
        settle(store)
        assert all(b"xylophonist" not in each.read_bytes() for each in killed.parent.iterdir())
        assert ids(store, "day") == ["m1"]


def test_a_deletion_deletes_the_file_that_was_moved_aside(tmp_path: Path) -> None:
    """Whether it holds the message nobody knows; until then it stays."""
    path = tmp_path / "recent.db"
    aside = tmp_path / "recent.db.aside"
    aside.write_bytes(b"what nobody can read")
    with running(path) as store, capture_logs() as logs:
        tell(store, ["good day", "bad day"])
        assert aside.exists()
        forget(store, ["m7"])
        settle(store)
        assert not aside.exists()
        store.remove("m0")
    assert [line["event"] for line in logs] == ["recent_store_aside_deleted"]
