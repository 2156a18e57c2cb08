"""The recent store when its file fails: the daemon goes on, what was removed stays hidden."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumers.messages import KnownClasses
from consumers.search import database, sampler, writer
from consumers.search.comparison import ComparedSide, compare
from consumers.search.query_syntax import QueryError, StoreBusyError, parse
from consumers.search.store import RecentStore
from tests.consumers.search.stores import (
    CLASSES,
    LOG,
    ids,
    made,
    offer,
    running,
    settle,
    tell,
    tweets,
)


def aside(path: Path) -> Path:
    """Return where a file that cannot be used goes."""
    return path.with_name(path.name + ".aside")


def db_of(store: RecentStore) -> sqlite3.Connection:
    """Return the writer's connection."""
    transactions = store._writer.file
    assert transactions is not None
    return transactions._db


def listing_sport(path: Path) -> KnownClasses:
    """Make a file of two messages, one of a class that joined; return classes without that one."""
    with running(path, classes=(*CLASSES, "sport")) as store:
        tell(store, ["good day", "goal day"])
    with contextlib.closing(sqlite3.connect(path)) as db:
        (number,) = db.execute("SELECT number FROM chunk").fetchone()
        db.execute(f"UPDATE rows{number} SET label = 2, truth = 2 WHERE id = 'm1'")
        db.commit()
    return KnownClasses(CLASSES, open=True)


def test_a_file_that_is_ahead_of_the_model_waits_for_its_classes(tmp_path: Path) -> None:
    """After a kill the checkpoint may lack a class that the file lists; a replay brings it."""
    path = tmp_path / "recent.db"
    classes = listing_sport(path)
    with running(path, classes=classes) as store:
        found = store.get("m1")
        assert found is not None
        assert (found.label, found.truth) == ("sport", "sport")
        assert store.counted(parse("")).counts == (1, 0)
        assert store.counted(parse("day")).counts == (1, 0)
        classes.grow([*CLASSES, "sport"])
        tell(store, ["another day"], first=2)
        assert ids(store, "day") == ["m2", "m1", "m0"]
        assert store.counted(parse("")).counts == (2, 0, 1)
    assert not aside(path).exists()


def test_another_class_in_the_place_of_one_moves_the_file_aside(tmp_path: Path) -> None:
    """No message changes its class: the file is begun anew."""
    path = tmp_path / "recent.db"
    classes = listing_sport(path)
    with running(path, classes=classes) as store:
        tell(store, ["another day"], first=2)
        classes.grow([*CLASSES, "weather"])
        with capture_logs() as logs:
            tell(store, ["third day"], first=3)
            tell(store, ["fourth day"], first=4)
        assert ids(store, "day") == ["m4"]
    assert aside(path).exists()
    assert "recent_store_moved_aside" in [line["event"] for line in logs]


@pytest.mark.parametrize("content", [b"no database at all", b"SQLite format 3\0" + b"\xff" * 5_000])
def test_a_file_of_something_else_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    """What stands in the place of the file, and is none, is moved aside with a line in the log."""
    path = tmp_path / "recent.db"
    path.write_bytes(content)
    with capture_logs() as logs, running(path) as store:
        tell(store, ["good day"])
        assert ids(store, "day") == ["m0"]
    assert aside(path).read_bytes() == content
    assert [line["event"] for line in logs] == ["recent_store_moved_aside"]


@pytest.mark.parametrize("is_unpurged", [False, True])
def test_a_file_goes_before_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_unpurged: bool
) -> None:
    """A kill between the two leaves no file without the log that holds its last removals."""
    path = tmp_path / "recent.db"
    wal = path.with_name("recent.db-wal")
    for each in (path, wal):
        each.write_bytes(b"some")
    if is_unpurged:
        database.mark_unpurged(path)
    unlink = Path.unlink

    def killed(self: Path, missing_ok: bool = False) -> None:
        if self == wal:
            raise KeyboardInterrupt
        unlink(self, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            database.move_aside(path, "damage")
    assert (path.exists(), aside(path).exists(), wal.exists()) == (False, not is_unpurged, True)
    with running(path) as store:
        tell(store, ["good day"])
        assert ids(store, "day") == ["m0"]


def test_a_file_of_another_version_is_moved_aside(tmp_path: Path) -> None:
    """A file of another version, program or model is not for us, nor one that is not whole."""
    path = tmp_path / "recent.db"
    for change in (
        "PRAGMA user_version = 99",
        "PRAGMA application_id = 1",
        "UPDATE class SET name = 'other' WHERE code = 0",
        "DROP TABLE rows1",
        "DELETE FROM chunk",
        "UPDATE rows1 SET label = 7",
        "UPDATE rows1 SET offset = 'x'",
        "DROP TABLE gone",
    ):
        with running(path) as store:
            tell(store, ["good day"])
            assert ids(store, "day") == ["m0"], change
        with sqlite3.connect(path) as db:
            db.execute(change)
        db.close()
        with running(path) as store:
            assert ids(store, "day") == [], change
        assert aside(path).exists()
        aside(path).unlink()
        path.unlink()


def test_damage_found_by_a_search_begins_a_new_file(tmp_path: Path) -> None:
    """Damage that only a search comes upon is said; the store begins anew and takes messages."""
    path = tmp_path / "recent.db"
    with running(path) as store, capture_logs() as logs:
        tell(store, ["good day"])
        first_key = store.oldest_key
        db_of(store).execute("UPDATE words1_data SET block = x'00ff00ff00ff' WHERE id > 10")
        with pytest.raises(QueryError, match="damaged and begins again"):
            store.search(parse("day"))
        settle(store)
        settle(store)
        assert "recent_store_moved_aside" in [line["event"] for line in logs]
        tell(store, ["good night"], first=1)
        assert ids(store, "good") == ["m1"]
        assert store.oldest_key > first_key


def test_an_answer_that_is_too_large_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long messages are compared by what is searched of them; a question too many loses nothing."""
    connect = database.connect

    def small(path: Path, **given: Any) -> sqlite3.Connection:
        """Return a connection whose values may have 200 kB, in the place of SQLite's 1 GB."""
        db = connect(path, **given)
        if given.get("is_reader"):
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 200_000)
        return db

    monkeypatch.setattr(database, "connect", small)
    path = tmp_path / "recent.db"
    with running(path) as store, capture_logs() as logs:
        tell(store, ["good day " + "x" * 100_000] * 30 + ["short"] * 30)
        first, second = compare(
            store, [ComparedSide(parse("good ")), ComparedSide(parse("short "))]
        )
        assert (first.n_read, second.n_read) == (30, 30)
        assert [word.word for word in first.words] == ["day"]  # no query takes the other
        with pytest.raises(QueryError, match="cannot answer this: string or blob too big"):
            store.search(parse("good "))
        settle(store)
        settle(store)
        assert store.state().n_messages == 60
        assert store.trouble() is None
    assert not logs
    assert not aside(path).exists()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[RecentStore]:
    """Return a store with a message, on a disk that has become full."""
    with running(tmp_path / "recent.db") as store:
        tell(store, ["good day", "good night"])
        db = db_of(store)
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")
        yield store


def free(store: RecentStore) -> None:
    """Make room on the disk."""
    db_of(store).execute("PRAGMA max_page_count = 1000000")


def test_a_full_disk_loses_messages_and_nothing_else(full: RecentStore) -> None:
    """What cannot be written is counted and said once; searches go on; with room all is well."""
    with capture_logs() as logs:
        for first in (2, 3_002):
            offer(full, tweets(["good " + "x" * 300] * 3_000, first))
            settle(full)
    assert ids(full, "good") == ["m1", "m0"]
    state = full.state()
    assert (state.n_failed, state.n_messages) == (6_000, 2)
    assert [line["event"] for line in logs] == ["recent_store_failed"]
    free(full)
    tell(full, ["good again"], first=7_000)
    assert ids(full, "good") == ["m7000", "m1", "m0"]
    assert full.state().trouble is None
    assert full.state().share == 3 / 6_003  # each that was lost came once, however often tried


def test_a_change_waits_for_room(full: RecentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk a removed message is hidden at once; it leaves the file when there is room."""
    monkeypatch.setattr("consumers.search.database.delete", refuse)
    full.remove("m0", wait=False)
    wait_for_trouble(full)
    assert ids(full, "good") == ["m1"]
    assert full.get("m0") is None
    assert full.counted(parse("good")).n == 1
    monkeypatch.undo()
    settle(full)
    (n_rows,) = db_of(full).execute("SELECT count(*) FROM rows1").fetchone()
    assert n_rows == 1
    assert full.state().n_messages == 1


def test_late_labels_do_not_gather_on_a_full_disk(
    full: RecentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many come as messages: those that cannot be written are lost, and that is said."""
    monkeypatch.setattr("consumers.search.database.teach", refuse)
    with capture_logs() as logs:
        for _ in range(3):
            full.note_labels(LOG, [0, 1], ["positive", "negative"])
            settle(full)
    assert not full._sampler._items
    assert [line["n_labels_lost"] for line in logs] == [2]  # once a minute
    assert full._writer._n_labels_lost == 6
    monkeypatch.undo()
    full.note_labels(LOG, [0], ["positive"])
    settle(full)
    found = full.get("m0")
    assert found is not None
    assert found.taught == "positive"


def n_waiting(store: RecentStore) -> int:
    """Return how many ids of deletions of the stream wait, once the writer has failed again."""
    store._sampler.wait_done(10.0)
    items = list(store._sampler._items)
    return sum(len(item.ids) for item in items if isinstance(item, sampler.Forget))


def test_deletions_do_not_gather_on_a_full_disk(
    full: RecentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of messages that are not held are done; the others wait once, however often said."""
    monkeypatch.setattr("consumers.search.database.delete", refuse)
    held, others = [], []
    for n in range(20):
        at = LOG, [10 * n + 2, 10 * n + 3, 10 * n + 4]
        others.append(full.forget_ids([f"a{n}", f"b{n}", f"c{n}"], at))
        held.append(full.forget_ids([f"d{n}", "m0"], (LOG, [10 * n + 5, 10 * n + 6])))
        held.append(full.forget_ids(["m0", "m1"], (LOG, [10 * n + 7, 10 * n + 8])))
        assert n_waiting(full) <= 2
        full.correct("m1", "positive", None, wait=False)
        full.remove("m1", wait=False)
    full._sampler.wait_done(10.0)
    assert len(full._sampler._items) <= 4
    assert all(event.is_set() for event in others)
    assert not any(event.is_set() for event in held)
    monkeypatch.undo()
    free(full)
    settle(full)
    assert all(event.is_set() for event in held)
    assert ids(full, "good") == []
    (n_rows,) = db_of(full).execute("SELECT count(*) FROM rows1").fetchone()
    assert n_rows == 0


def test_a_file_goes_for_deletions_that_could_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows the rows of one that cannot be opened: too many deletions take it whole."""
    monkeypatch.setattr(writer, "DELETIONS_MAX", 10)
    monkeypatch.setattr(writer, "OPENINGS_MIN", 2)
    path = tmp_path / "recent.db"
    with running(path) as store:
        tell(store, ["good day", "good night"])
    with monkeypatch.context() as patched:
        patched.setattr("consumers.search.database.open_file", refuse)
        patched.setattr("consumers.search.writer.move_aside", refuse_move)
        store = made(path)
        store.start()
        wait_for_trouble(store)
        events = [store.forget_ids([f"x{n}", "m0"], (LOG, [n + 2, n + 2])) for n in range(9)]
        assert n_waiting(store) == 10
        more = range(9, 100)
        events += [store.forget_ids([f"x{n}", "m0"], (LOG, [n + 2, n + 2])) for n in more]
        assert n_waiting(store) == 0
        assert not any(event.is_set() for event in events)
    tell(store, ["good evening"], first=300)
    assert all(event.is_set() for event in events)
    assert ids(store, "good") == ["m300"]
    store.stop()
    assert not aside(path).exists()


def test_a_file_that_opens_a_moment_later_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many deletions that wait for it take their rows alone."""
    monkeypatch.setattr(writer, "DELETIONS_MAX", 1)
    path = tmp_path / "recent.db"
    with running(path) as store:
        tell(store, ["good day", "good night"])
    with monkeypatch.context() as patched:
        patched.setattr("consumers.search.database.open_file", refuse)
        store = made(path)
        store.start()
        wait_for_trouble(store)
        event = store.forget_ids(["x", "y", "m0"], (LOG, [5, 6, 7]))
        assert n_waiting(store) == 3
    settle(store)
    assert event.is_set()
    assert ids(store, "good") == ["m1"]
    store.stop()


def test_a_deletion_is_done_when_all_of_it_is(full: RecentStore) -> None:
    """A later one of a message that is not held says nothing of those that are."""
    both, one = sampler.Forget(["gone", "m0"], (LOG, [5, 6])), sampler.Forget(["gone"], (LOG, [8]))
    file = full._writer.file
    assert file is not None
    waiting = writer._newest([both, one])
    assert [item.ids for item in waiting if isinstance(item, sampler.Forget)] == [("m0",), ["gone"]]
    (kept,) = writer._to_do(waiting, file.published)
    assert isinstance(kept, sampler.Forget)
    assert kept.ids == ("m0",)
    assert (both.done.is_set(), one.done.is_set()) == (False, True)
    writer._set_done(kept)
    assert both.done.is_set()


def test_deletions_of_accounts_are_bounded_too(
    full: RecentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows which rows are of one, so for too many of them the file goes."""
    monkeypatch.setattr(writer, "DELETIONS_MAX", 10)
    with monkeypatch.context() as patched:
        patched.setattr("consumers.search.transactions.Transactions.apply", refuse)
        patched.setattr("consumers.search.writer.move_aside", refuse_move)
        events = [
            full.forget_ids([f"did:{n}"], (LOG, [n + 2]), of_accounts=True) for n in range(30)
        ]
        assert n_waiting(full) == 0
        assert not any(event.is_set() for event in events)
    tell(full, ["good evening"], first=300)
    assert all(event.is_set() for event in events)
    assert ids(full, "good") == ["m300"]


def refuse_move(*_: object) -> None:
    """Fail as a disk does that may only be read."""
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def refuse(*_: object, **__: object) -> None:
    """Fail as SQLite does when the disk is full."""
    raise sqlite3.OperationalError("database or disk is full")


def wait_for_trouble(store: RecentStore) -> None:
    """Wait until the writer has met its fault."""
    told = threading.Event()
    while store.state().trouble is None:
        told.wait(0.005)


def test_a_folder_that_is_not_there_is_tried_again(tmp_path: Path) -> None:
    """Where the file cannot be opened all is counted as lost, until it can."""
    path = tmp_path / "none" / "recent.db"
    store = made(path)
    store.start()
    wait_for_trouble(store)
    offer(store, tweets(["good day"]))
    with pytest.raises(StoreBusyError, match="unable to open database file"):
        store.search(parse("good"))
    trouble = store.state().trouble
    assert trouble is not None
    assert "unable to open database file" in trouble
    path.parent.mkdir()
    settle(store)
    tell(store, ["good night"], first=1)
    assert "m1" in ids(store, "good")
    assert store.state().trouble is None
    store.stop()


def test_no_reader_stays_open_to_a_folder_that_was_moved(tmp_path: Path) -> None:
    """What has the name of the file now is another's, which no export may read."""
    is_moved = threading.Event()
    store = made(tmp_path / "recent.db")
    store._writer._is_moved = is_moved.is_set
    store.start()
    tell(store, ["good day"])
    file = store._writer.file
    assert file is not None
    is_moved.set()
    store.stop()
    assert store._writer.file is None
    writer._LEFT_OPEN.remove(file)
    file._db.close()
    for readers in (file.readers, file.export_readers):
        with pytest.raises(StoreBusyError), readers.borrowed(0.0):
            pass


def test_searches_are_right_while_others_write() -> None:
    """While messages come and go every search sees a whole state: all its rows match, in order."""
    n, batch = 4_000, 100
    with running(None, messages_max=1_600) as store:
        failed: list[str] = []
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                found = store.search(parse("good -odd"), limit=20)
                keys = [one.row.key for one in found.rows]
                counts = store.counted(parse("even"))
                if keys != sorted(keys, reverse=True) or any(
                    one.row.offset % 2 or one.row.text != "good even" for one in found.rows
                ):
                    failed.append(f"{keys}")
                if counts.counts[1]:
                    failed.append(f"{counts}")

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for first in range(0, n, batch):
            tell(store, [f"good {'odd' if i % 2 else 'even'}" for i in range(batch)], first)
            store.remove(f"m{first}")
        done.set()
        for thread in threads:
            thread.join()
        assert not failed
        assert store.counted(parse("even")).n <= 800


def test_a_search_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that takes longer than it may ends with a sentence."""
    with running(None) as store:
        tell(store, ["good day"])
        monkeypatch.setattr("consumers.search.store.LIMIT_S", 0.0)
        with pytest.raises(QueryError, match="took longer than"):
            store.search(parse("good"))
        with pytest.raises(QueryError, match="took longer than"):
            store.counted(parse("good"))


def test_too_many_searches_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every connection is in use for long, a further search is refused with a sentence."""
    with running(None) as store:
        tell(store, ["good day"])
        file = store._writer.file
        assert file is not None
        free = file.readers._free
        taken = [free.get() for _ in range(free.qsize())]
        monkeypatch.setattr("consumers.search.store.LIMIT_S", 0.01)
        with pytest.raises(StoreBusyError, match="Too many searches run at once"):
            store.search(parse("good"))
        for reader in taken:
            free.put(reader)
        monkeypatch.undo()
        assert ids(store, "good") == ["m0"]


def test_a_file_that_is_out_of_reach_is_asked_again(tmp_path: Path) -> None:
    """Whoever searches meanwhile is told to ask again, not that the query is wrong."""
    folder = tmp_path / "state"
    folder.mkdir()
    with running(folder / "recent.db") as store:
        tell(store, ["good day"])
        away = folder.rename(tmp_path / "away")
        with pytest.raises(StoreBusyError, match="cannot be searched just now"):
            store.search(parse("good"))
        away.rename(folder)
        assert ids(store, "good") == ["m0"]


def test_an_unforeseen_error_does_not_end_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says what broke, loses that batch alone, and takes messages again by itself.

    What a person wanted changed is done when it can be.
    """
    with running(tmp_path / "recent.db") as store, capture_logs() as logs:
        tell(store, ["good day"])
        before = store.get("m0")
        assert before is not None
        with monkeypatch.context() as broken:
            broken.setattr("consumers.search.transactions.Transactions.apply", unforeseen)
            offer(store, tweets(["good evening"], 1))
            store.remove("m0", wait=False)
            wait_for_trouble(store)
            trouble = store.trouble()
            assert trouble is not None
            assert "nobody foresaw this" in trouble
            assert store.state().n_restarts >= 1
        settle(store)
        tell(store, ["good night"], first=2)
        assert ids(store, "good")[0] == "m2"
        assert "m0" not in ids(store, "good")
        after = store.get("m2")
        assert after is not None
        assert after.key > before.key
        assert store.trouble() is None
        assert store._writer.thread.is_alive()
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("recent_store_broke", "error")
    assert isinstance(line["exc_info"], ZeroDivisionError)


def test_an_error_that_stays_is_tried_once_a_second_and_ends_with_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that breaks at each turn, and while it is opened, stops when it is told to."""
    monkeypatch.setattr("consumers.search.writer.Transactions", unforeseen)
    store = made(tmp_path / "recent.db")
    store.start()
    wait_for_trouble(store)
    offer(store, tweets(["good day"]))
    store.stop()
    assert not store._writer.thread.is_alive()
    assert store.state().n_failed == 1


def unforeseen(*_: object) -> None:
    """Fail as nobody expects."""
    raise ZeroDivisionError("nobody foresaw this")


def test_nobody_waits_for_what_cannot_be_written(full: RecentStore) -> None:
    """A checkpoint waits for what was offered; if that fails, it goes on at once."""
    offer(full, tweets(["good " + "x" * 300] * 3_000, 2))
    thread = threading.Thread(target=full.wait_written, args=(3_600.0,), daemon=True)
    thread.start()
    thread.join(60.0)
    assert not thread.is_alive()
    assert full.state().n_failed == 3_000
    free(full)
    troubles: list[str | None] = []
    full.listeners.append(lambda _: troubles.append(full.trouble()))
    tell(full, ["good again"], first=7_000)
    offer(full, tweets(["good morning"], 8_000))
    assert full.wait_written(3_600.0)
    settle(full)  # the listeners of that turn have been told
    assert ids(full, "morning") == ["m8000"]
    assert troubles == [None, None]  # what comes while others are told is waited for again


def test_who_waits_for_a_file_that_another_holds_is_told(tmp_path: Path) -> None:
    """A checkpoint goes on after its time, and knows that the file is behind it."""
    path = tmp_path / "recent.db"
    with running(path) as store, contextlib.closing(sqlite3.connect(path)) as db:
        tell(store, ["good day"])
        db.execute("BEGIN IMMEDIATE")
        offer(store, tweets(["good morning"], 1))
        assert not store.wait_written(0.01)
        db.execute("ROLLBACK")
        assert store.wait_written(3_600.0)
        assert ids(store, "morning") == ["m1"]
