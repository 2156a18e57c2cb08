"""What was removed from the store of recent messages leaves all of its files."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from consumers.search.query_syntax import QueryError, parse
from consumers.search.store import RecentStore
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


def holders(folder: Path) -> set[str]:
    """Return the files that hold a word of the removed message."""
    return {each.name for each in folder.iterdir() if b"xylophonist" in each.read_bytes()}


def checkpointed(store: RecentStore) -> None:
    """Have all that stands in the log beside the file written into the file."""
    transactions = store._writer.file
    assert transactions is not None
    transactions._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_a_damaged_file_with_words_of_removed_messages_is_not_kept(tmp_path: Path) -> None:
    """A removal just before the damage: the file is deleted, not moved aside with the words."""
    path = tmp_path / "recent.db"
    with running(path) as store, capture_logs() as logs:
        tell(store, ["one xylophonist", "good day"])
        forget(store, ["m0"])
        settle(store)
        checkpointed(store)
        assert holders(tmp_path) == {"recent.db"}
        damage = sqlite3.connect(path)
        damage.execute("UPDATE words1_idx SET pgno = 1 << 20")
        damage.execute("UPDATE words1_data SET block = x'00ff00ff00ff' WHERE id = 10")
        damage.commit()
        damage.close()
        with pytest.raises(QueryError, match="damaged and begins again"):
            store.search(parse("day"))
        settle(store)
        settle(store)
        assert "recent_store_deleted" in [line["event"] for line in logs]
        tell(store, ["good night"], first=2)
        assert ids(store, "good") == ["m2"]
    assert holders(tmp_path) == set()


def test_a_kill_and_damage_after_a_removal_leave_no_words(tmp_path: Path) -> None:
    """A store that was killed before the purge and is found damaged does not keep the words."""
    path, killed = tmp_path / "recent.db", tmp_path / "killed" / "recent.db"
    killed.parent.mkdir()
    with running(path) as store:
        tell(store, ["one xylophonist", "good day"])
        store.remove("m0")
        checkpointed(store)
        for each in tmp_path.glob("recent.db*"):  # as a kill would leave them
            shutil.copy(each, killed.parent / each.name)
        clock_of(store).now_s += 11
        settle(store)
        settle(store)
        assert {each.name for each in tmp_path.glob("*unpurged*")} == set()
    assert holders(killed.parent) == {"recent.db"}
    with sqlite3.connect(killed) as db:
        db.execute("DROP TABLE gone")
    db.close()
    with running(killed) as store:
        assert ids(store, "") == []
    assert holders(killed.parent) == set()
    assert "recent.db.aside" not in {each.name for each in killed.parent.iterdir()}


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
