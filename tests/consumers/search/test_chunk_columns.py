"""Chunks opened by their packed columns are as those read from their rows, whatever happened."""

from __future__ import annotations

import contextlib
import lzma
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.search import chunks as chunk_columns
from consumers.search import database
from consumers.search.chunks import Chunk, restored
from consumers.search.query_syntax import parse
from consumers.search.store import RecentStore
from consumers.search.transactions import Transactions
from tests.consumers.search.stores import CLASSES, LOG, clock_of, forget, ids, running, settle, tell

VERSION_1 = Path(__file__).parents[2] / "golden" / "recent-1.db.xz"
FEW = {"messages_max": 1_600}  # chunks of a hundred rows


def file_of(store: RecentStore) -> Transactions:
    """Return the writer's file."""
    file = store._writer.file
    assert file is not None
    return file


def from_rows(db: sqlite3.Connection, chunk: Chunk) -> Chunk:
    """Return a chunk as its rows have it, its packed columns untouched."""
    keys = (chunk.first_key, chunk.next_key)
    columns = chunk_columns.columns_of(db, chunk.number)
    return restored(db, chunk.number, keys, chunk.capacity, columns)


def check(store: RecentStore) -> list[bool]:
    """Hold a store that was just opened against its rows; return which chunks were packed."""
    file = file_of(store)
    for chunk in file.published:
        twin = from_rows(file._db, chunk)
        assert (chunk.n, chunk.n_gone, chunk.n_deleted) == (twin.n, twin.n_gone, twin.n_deleted)
        assert np.array_equal(chunk.alive, twin.alive)
        for name, column in twin.columns.items():
            assert np.array_equal(chunk.columns[name], column), name
    return [chunk.is_packed for chunk in file.published]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 9)),
        st.tuples(st.sampled_from(["correct", "remove", "forget"]), st.integers(0, 15)),
        st.tuples(st.sampled_from(["pass", "restart"]), st.just(0)),
    ),
    max_size=20,
)


@settings(max_examples=20)
@given(steps=STEPS)
def test_what_is_opened_packed_is_what_the_rows_say(
    steps: Sequence[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over writes, corrections, removals, purges and restarts, in any order."""
    path = tmp_path_factory.mktemp("law") / "recent.db"
    n_told = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr("consumers.search.chunks.Retention.chunk_rows", 4)
        patch.setattr("consumers.search.transactions.CHANGED_MAX", 2)
        store = stack.enter_context(running(path))
        for step, k in [("write", 9), *steps, ("restart", 0)]:
            if step == "write":
                tell(store, [f"good {i}" for i in range(k)], n_told)
                n_told += k
            elif step == "correct":
                store.correct(f"m{k}", CLASSES[k % 2] if k % 3 else None, "c/0")
            elif step == "remove":
                store.remove(f"m{k}")
            elif step == "forget":
                forget(store, [f"m{k}"])
            elif step == "pass":
                clock_of(store).now_s += 11
            else:
                held = ids(store, "", limit=1_000)
                stack.close()
                store = stack.enter_context(running(path))
                assert all(check(store)[:-1])
                assert ids(store, "", limit=1_000) == held
            settle(store)


def test_a_kill_at_any_statement_leaves_what_was_said(tmp_path: Path) -> None:
    """Copied as a kill would leave it before each statement, the file opens and is as its rows."""
    path, copies = tmp_path / "recent.db", tmp_path / "copies"
    made: list[tuple[Path, int, bool]] = []
    done = {"n": 0, "is_removed": False}  # what was acknowledged so far

    def copy(_: str) -> None:
        folder = copies / str(len(made))
        folder.mkdir(parents=True)
        for each in tmp_path.glob("recent.db*"):
            if each.suffix != ".db-shm":
                shutil.copy(each, folder / each.name)
        made.append((folder / "recent.db", int(done["n"]), bool(done["is_removed"])))

    with running(path, **FEW) as store:
        tell(store, ["good day"] * 90)
        done["n"] = 90
        file_of(store)._db.set_trace_callback(copy)
        tell(store, ["good day"] * 30, first=90)
        done["n"] = 120
        store.correct("m5", "negative", "c/0")
        store.remove("m7")
        done["is_removed"] = True
        clock_of(store).now_s += 11
        settle(store)
        settle(store)
        file_of(store)._db.set_trace_callback(None)
    assert len(made) > 30
    n_packed = set()
    for copied, n, is_removed in made:
        with running(copied, **FEW) as store:
            n_packed.add(sum(check(store)))
            assert len(store.search(parse("good"), limit=1_000).rows) >= n - 1
            assert not is_removed or store.get("m7") is None
    assert n_packed == {0, 1}


@pytest.mark.parametrize("change", ["columns = x'00'", "columns = 'a text'", "columns = NULL"])
def test_packed_columns_that_are_damaged_are_not_believed(tmp_path: Path, change: str) -> None:
    """The rows are read instead, and packed again a second later."""
    path = tmp_path / "recent.db"
    with running(path, **FEW) as store:
        tell(store, ["good day"] * 250)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE packed SET {change} WHERE number = 1")
        (value,) = db.execute("SELECT columns FROM packed WHERE number = 2").fetchone()
        wrong = value[:-1] + bytes([value[-1] ^ 1])
        db.execute("UPDATE packed SET columns = ? WHERE number = 2", (wrong,))
    with running(path, **FEW) as store:
        assert check(store) == [False, False, False]
        assert store.state().n_messages == 250
        for _ in range(3):
            clock_of(store).now_s += 2
            settle(store)
            settle(store)
    with running(path, **FEW) as store:
        assert check(store) == [True, True, False]


def test_packed_columns_of_before_late_labels_are_not_believed(tmp_path: Path) -> None:
    """They say nothing of labels that came late: the rows do, and are packed again."""
    path = tmp_path / "recent.db"
    with running(path, **FEW) as store:
        tell(store, [{"text": "good day", "label": None}] * 150)
        store.note_labels(LOG, range(10), ["positive"] * 10)
        settle(store)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        (value,) = db.execute("SELECT columns FROM packed").fetchone()
        columns = chunk_columns.unpacked(value)
        assert columns is not None
        columns["at"] = (columns.pop("key") - 1).astype("<u4")
        names = ["at", *[name for name in chunk_columns.TYPES if name != "late"]]
        body = b"".join(columns[name].tobytes() for name in names)
        known = struct.pack("<HqI", 1, 1, 100) + body
        old = struct.pack("<I", zlib.crc32(known)) + known
        db.execute("UPDATE packed SET columns = ?", (old,))
        db.execute("DELETE FROM changed")
    with running(path, **FEW) as store:
        assert check(store) == [False, False]
        assert store.counted(parse("good")).confusion == ((0, 0), (10, 0))
        clock_of(store).now_s += 2
        settle(store)
        settle(store)
    with running(path, **FEW) as store:
        assert check(store) == [True, False]
        assert store.counted(parse("good")).confusion == ((0, 0), (10, 0))


def test_a_file_of_version_1_opens_and_is_packed(tmp_path: Path) -> None:
    """It holds what it held, with what was corrected and without what was removed."""
    path = tmp_path / "recent.db"
    path.write_bytes(lzma.decompress(VERSION_1.read_bytes()))
    gone = {20, 30, 130, 249}
    held = [f"m{i}" for i in reversed(range(250)) if i not in gone]
    for expected in ([False, False, False], [True, True, False]):
        with running(path, **FEW) as store:
            assert check(store) == expected
            assert ids(store, "", limit=1_000) == held
            corrected = {name: store.get(name) for name in ("m10", "m120", "m240", "m11")}
            assert [row and row.corrected for row in corrected.values()] == [
                "positive",
                "negative",
                "positive",
                None,
            ]
            assert store.counted(parse("")).n == len(held)
            for _ in range(3):
                clock_of(store).now_s += 2
                settle(store)
                settle(store)
            tell(store, ["good day"] * 251)  # what was removed for good stays away
            assert store.get("m20") is None
            held = ids(store, "", limit=1_000)
    assert not path.with_name("recent.db.aside").exists()


def test_no_trace_of_a_removed_row_stays_in_the_packed_columns(tmp_path: Path) -> None:
    """Neither its place nor the checksum of its id, once its words are purged."""
    path = tmp_path / "recent.db"
    with running(path, **FEW) as store:
        tell(store, ["good day"] * 150)
        store.remove("m7")
        db = file_of(store)._db
        assert db.execute("SELECT number, key FROM changed").fetchall() == [(1, 8)]
        clock_of(store).now_s += 11
        settle(store)
        settle(store)
        assert db.execute("SELECT count(*) FROM changed").fetchone() == (0,)
        (value,) = db.execute("SELECT columns FROM packed").fetchone()
    columns = chunk_columns.unpacked(value)
    assert columns is not None
    assert columns["offset"].tolist() == [i for i in range(100) if i != 7]
    assert columns["key"].tolist() == [i for i in range(1, 101) if i != 8]


def test_a_transaction_that_fails_packs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a chunk packed of which memory knows a removal that the file does not."""
    path = tmp_path / "recent.db"

    def refuse(*_: object) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    with running(path, **FEW) as store:
        tell(store, ["good day"] * 150)
        with monkeypatch.context() as full:
            full.setattr(database, "create", refuse)
            tell(store, ["good day"] * 60, first=150)
            assert [chunk.is_packed for chunk in file_of(store).published] == [True, False]
        (chunk, _) = file_of(store).published
        chunk.kill([3])  # as if its removal were taken back
        chunk.n_changed = 5
        chunk_columns.pack(file_of(store)._db, chunk)
        assert chunk.n_changed == 5
    with running(path, **FEW) as store:
        assert check(store) == [True, False]
        assert store.get("m2") is not None
