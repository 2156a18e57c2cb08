"""The file of the store: opening it, and what to do with one that cannot be used.

A file that is damaged, of another version or of other classes is moved aside, and a new one begun:
what it held are copies of messages, and the stream brings new ones. Only one is kept aside, until a
message is deleted: what it holds of that cannot be taken out.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import structlog

from consumers.messages import Partition
from consumers.private_files import open_private
from consumers.search import tables
from consumers.search.chunk import Chunk, restored

LANGS_MAX = 1_000  # languages that can be asked for; further ones count as unknown
_VERSION = 1
_APPLICATION = 0x6E625253  # tells our files from other SQLite files
_CACHE_KIB = 16_000
_WAL_PAGES = 4_000  # of 4 KiB, until they go into the file
_WAL_KEPT_BYTES = 32 << 20
_BUSY_S = 0.2
log = structlog.get_logger(__name__)


class UnfitFileError(sqlite3.DatabaseError):
    """The file is SQLite's, and yet none that can be used here."""


@dataclass(slots=True)
class Register:
    """Names with numbers, counted up from 0; each has its number for as long as the file stands.

    One thread gives numbers; any may look them up.
    """

    names: list[str] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    n_saved: int = 0

    def code(self, name: str) -> int:
        """Return the number of a name; one that is new gets the next."""
        found = self.codes.get(name)
        if found is None:
            self.names.append(name)
            found = self.codes[name] = len(self.names) - 1
        return found


@dataclass(slots=True)
class Contents:
    """What a file holds, read into memory.

    Attributes
    ----------
    db : sqlite3.Connection
        The writer's connection.
    chunks : list of Chunk
        Oldest first.
    places : Register
        Partitions, as JSON.
    langs : Register
        Languages; the first, of number 0, is that of messages without one.
    gone : dict of (int, int) to int
        Place and offset of messages that were removed for good → checksum of the id.
    """

    db: sqlite3.Connection
    chunks: list[Chunk]
    places: Register
    langs: Register
    gone: dict[tuple[int, int], int]

    def lang_code(self, lang: str | None) -> int:
        """Return the number of a language, of a new one too; 0 for those that are unknown."""
        if not lang or (lang not in self.langs.codes and len(self.langs.names) > LANGS_MAX):
            return 0
        return self.langs.code(lang)


def connect(path: Path, *, is_reader: bool = False) -> sqlite3.Connection:
    """Return a connection; statements begin and end their transactions themselves."""
    if not is_reader:
        # SQLite gives the files that it makes beside this one the same mode.
        try:
            os.close(open_private(path, os.O_RDWR))
        except OSError as error:
            raise sqlite3.OperationalError(
                f"unable to open database file ({error.strerror})"
            ) from error
    db = sqlite3.connect(
        path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    if is_reader:
        db.execute("PRAGMA query_only = ON")
        return db
    # What is deleted is overwritten, so that it is gone from the file and not just from its tables.
    db.execute("PRAGMA secure_delete = ON")
    db.execute("PRAGMA journal_mode = WAL")
    # What a message teaches since it was corrected has to be known after a power cut as well: the
    # next correction would take back what is not there.
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
    return db


def connect_memory() -> sqlite3.Connection:
    """Return a connection to an empty database in memory."""
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def open_file(path: Path, classes: Sequence[str], capacity: int) -> Contents:
    """Open the file, a new one where there is none that can be used.

    Parameters
    ----------
    path : Path
    classes : sequence of str
        Labels are kept as numbers, so a file of other classes is not for us.
    capacity : int
        Rows a chunk.

    Raises
    ------
    sqlite3.OperationalError
        Where it cannot be opened at all: no such folder, no permission, a full disk.
    """
    try:
        return _opened(path, classes, capacity)
    # Damage shows as an error of SQLite, or as values that fit nowhere.
    except (sqlite3.DatabaseError, ValueError, IndexError, TypeError, OverflowError) as error:
        if not is_damage(error):
            raise
        move_aside(path, str(error))
        return _opened(path, classes, capacity)


def is_damage(error: Exception) -> bool:
    """Tell whether an error means that the file is no good, and not that it is out of reach.

    A full disk, a lock or a missing permission are operational errors with a code of their own; a
    table that is not there is one of the general code.
    """
    code = getattr(error, "sqlite_errorcode", None)
    return not isinstance(error, sqlite3.OperationalError) or code == sqlite3.SQLITE_ERROR


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".aside")


def _unpurged(path: Path) -> Path:
    return path.with_name(path.name + ".unpurged")


def mark_unpurged(path: Path) -> None:
    """Note, safe from a power cut, that the file is to hold words of removed rows for a while.

    The note is a file of its own, for a damaged database cannot be asked.
    """
    try:
        os.close(open_private(_unpurged(path), os.O_WRONLY))
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise sqlite3.OperationalError(f"a removal cannot be noted ({error.strerror})") from error


def is_unpurged(path: Path) -> bool:
    """Tell whether the file may hold words of removed rows."""
    return _unpurged(path).exists()


def unmark_unpurged(path: Path) -> None:
    """Note that the words of all removed rows have left the file."""
    _unpurged(path).unlink(missing_ok=True)


def drop_aside(path: Path) -> None:
    """Delete the file that was moved aside: it may hold a message that was deleted since."""
    try:
        _aside(path).unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        log.error("recent_store_aside_not_deleted", path=str(_aside(path)), detail=str(error))  # noqa: TRY400 -- all is said
    else:
        log.warning("recent_store_aside_deleted", path=str(_aside(path)))


def move_aside(path: Path, reason: str) -> None:
    """Make room for a new file; one that was moved aside before goes.

    A file that still holds words of removed messages is deleted instead.
    """
    aside = _aside(path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if is_unpurged(path):
        log.warning("recent_store_deleted", path=str(path), reason=reason)
        path.unlink(missing_ok=True)
        unmark_unpurged(path)
        return
    log.warning("recent_store_moved_aside", path=str(path), aside=str(aside), reason=reason)
    if path.exists():
        path.replace(aside)


def _opened(path: Path, classes: Sequence[str], capacity: int) -> Contents:
    db = connect(path)
    try:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (n_tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not n_tables:
            _begin(db, classes)
        elif (application, version) != (_APPLICATION, _VERSION):
            raise UnfitFileError(f"it is of version {version} of application {application:x}")  # noqa: TRY301 -- as SQLite does
        return _read(db, classes, capacity)
    except BaseException:
        db.close()
        raise


def _begin(db: sqlite3.Connection, classes: Sequence[str]) -> None:
    """Make the tables that are there once."""
    db.execute("BEGIN IMMEDIATE")
    db.execute("CREATE TABLE class (code INTEGER PRIMARY KEY, name TEXT)")
    db.execute("CREATE TABLE place (code INTEGER PRIMARY KEY, name TEXT)")
    db.execute("CREATE TABLE lang (code INTEGER PRIMARY KEY, name TEXT)")
    db.execute("CREATE TABLE gone (place INTEGER, offset INTEGER, id_crc INTEGER)")
    db.execute(
        "CREATE TABLE chunk (number INTEGER PRIMARY KEY, first_key INTEGER, next_key INTEGER,"
        " n_offered INTEGER, n_bytes INTEGER)"
    )
    db.executemany("INSERT INTO class VALUES (?, ?)", list(enumerate(classes)))
    db.execute("INSERT INTO lang VALUES (0, '')")
    db.execute(f"PRAGMA application_id = {_APPLICATION}")
    db.execute(f"PRAGMA user_version = {_VERSION}")
    db.execute("COMMIT")


def _read(db: sqlite3.Connection, classes: Sequence[str], capacity: int) -> Contents:
    kept = [name for _, name in db.execute("SELECT code, name FROM class ORDER BY code")]
    if kept != list(classes):
        raise UnfitFileError(f"its classes are {kept}, the model's {list(classes)}")
    gone = db.execute("SELECT place, offset, id_crc FROM gone ORDER BY rowid")
    return Contents(
        db=db,
        gone={(int(place), int(offset)): int(crc) for place, offset, crc in gone},
        places=_register(db, "place"),
        langs=_register(db, "lang"),
        chunks=_chunks(db, len(classes), capacity),
    )


def _register(db: sqlite3.Connection, table: str) -> Register:
    names = [str(name) for (name,) in db.execute(f"SELECT name FROM {table} ORDER BY code")]  # noqa: S608 -- ours
    return Register(names, {name: code for code, name in enumerate(names)}, len(names))


def _chunks(db: sqlite3.Connection, n_classes: int, capacity: int) -> list[Chunk]:
    found = db.execute(
        "SELECT number, first_key, next_key, n_offered, n_bytes FROM chunk ORDER BY number"
    ).fetchall()
    if tables.numbers(db) != {number for number, *_ in found}:
        raise UnfitFileError("its tables are not those that it lists")
    chunks = []
    for number, first_key, next_key, n_offered, n_bytes in found:
        rings = tables.rings_of(db, number)
        if len({len(column) for column in rings.values()}) > 1:
            raise UnfitFileError(f"a column of chunk {number} is not whole")
        labels: np.ndarray[tuple[int], np.dtype[np.int64]] = rings["label"]
        if labels.min(initial=0) < 0 or labels.max(initial=0) >= n_classes:
            raise UnfitFileError(f"chunk {number} has a label without a class")
        chunk = restored(number, (first_key, next_key), capacity, rings)
        chunk.n_offered, chunk.n_bytes = n_offered, n_bytes
        chunks.append(chunk)
    return chunks


def place_name(partition: Partition) -> str:
    """Return a partition as the register of places keeps it."""
    return msgspec.json.encode(partition).decode()


def partition_at(name: str) -> Partition:
    """Return the partition that `place_name` named."""
    topic, partition = msgspec.json.decode(name, type=tuple[str, int])
    return Partition(topic, partition)
