"""The SQLite file of the store: its tables, the statements that read and write them, opening it.

Each chunk has a table of rows and a full-text index of them; `gone`, `place`, `lang`, `class` and
`chunk` are there once, as are those of `chunks` and `history`. A file that is damaged, of
another version or of other classes is moved aside, and a new one begun: what it held are copies of
messages, and the stream brings new ones. Only one is kept aside, until a message is deleted: what
it holds of that cannot be taken out. One that may itself hold words of removed messages is deleted
instead.
"""

# ruff: noqa: S608 -- what is put into statements here are numbers and names of our own tables

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import queue
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import structlog
from msgspec import field

from consumers.messages import Partition
from consumers.private_files import open_private
from consumers.process import cached
from consumers.search.chunks import Chunk, columns_of, create_tables, packed_columns, restored
from consumers.search.history import create_tables as create_history
from consumers.search.query_syntax import CLOSE, OPEN, SEPARATORS, StoreBusyError

LANGS_MAX = 1_000  # languages that can be asked for; further ones count as unknown
KEY_LAST = (1 << 63) - 1
TOKENIZER = f"\"unicode61 remove_diacritics 2 separators '{SEPARATORS}'\""
COLUMNS = (
    "key", "id", "id_crc", "place", "offset", "time_ms", "arrived_ms", "user", "lang", "lang_code",
    "text", "signs", "example", "label", "probability", "probabilities", "truth", "taught",
    "taught_part", "corrected",
)  # fmt: skip
SHOWN = (
    "key", "id", "place", "offset", "time_ms", "arrived_ms", "user", "lang", "text", "example",
    "label", "probability", "probabilities", "truth", "taught", "taught_part", "corrected",
)  # fmt: skip
_ROWS_A_STATEMENT = 250
CHOSEN = "key IN (SELECT value FROM json_each(?))"  # of a JSON list of keys
_VERSION = 2
_UNPACKED_VERSION = 1  # without `packed` and `changed`
_APPLICATION = 0x6E625253  # tells our files from other SQLite files
_CACHE_KIB = 16_000
EXPORT_CACHE_KIB = 1_000  # a file is read once, from one end to the other
# Prepared ones that a connection keeps. An insert of up to 250 rows differs by their number, its
# chunk's, and which columns have one value: 256 of them took 10 MB, which a run had reached after
# half a million messages.
_STATEMENTS = 32
_WAL_PAGES = 4_000  # of 4 KiB, until they go into the file
_WAL_KEPT_BYTES = 32 << 20
_BUSY_S = 0.2
_DAMAGE = {
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT,
}  # fmt: skip
_READERS = 4
_CLOSE_S = 2.0  # how long to wait for each connection that a search still uses
RowValues: TypeAlias = tuple[Any, ...]
log = structlog.get_logger(__name__)


class UnfitFileError(sqlite3.DatabaseError):
    """The file is SQLite's, and yet none that can be used here."""


class Register(msgspec.Struct):
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


class Contents(msgspec.Struct):
    """What a file holds, read into memory; `db` is the writer's connection."""

    db: sqlite3.Connection
    chunks: list[Chunk]  # oldest first
    places: Register  # partitions, as JSON
    langs: Register  # the first, of number 0, is that of messages without one
    classes: list[str]  # in whose order labels are numbered; others may have joined since
    gone: dict[tuple[int, int], int]  # place and offset of removed messages → checksum of the id

    def lang_code(self, lang: str | None) -> int:
        """Return the number of a language, of a new one too; 0 for those that are unknown."""
        if not lang or (lang not in self.langs.codes and len(self.langs.names) > LANGS_MAX):
            return 0
        return self.langs.code(lang)

    def known_lang(self, lang: str | None) -> int | None:
        """Return the number of a language; None for any, -1 if no message is of it."""
        return self.langs.codes.get(lang, -1) if lang else None

    def place_code(self, partition: Partition) -> int:
        """Return the number of a partition, of a new one too."""
        return self.places.code(msgspec.json.encode(partition).decode())


def partition_at(name: str) -> Partition:
    """Return the partition that the register of places calls so."""
    topic, partition = msgspec.json.decode(name, type=tuple[str, int])
    return Partition(topic, partition)


def connect(
    path: Path, *, is_reader: bool = False, cache_kib: int = _CACHE_KIB
) -> sqlite3.Connection:
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
        path,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )
    db.execute(f"PRAGMA cache_size = -{cache_kib}")
    if is_reader:
        db.execute("PRAGMA query_only = ON")
        return db
    # What is deleted is overwritten: gone from the file, not just from its tables.
    db.execute("PRAGMA secure_delete = ON")
    db.execute("PRAGMA journal_mode = WAL")
    # After a power cut, too, the next correction must take back what the message teaches now.
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
    return db


class Readers:
    """A few connections for searches, each used by one thread at a time."""

    def __init__(self, path: Path, n: int = _READERS, cache_kib: int = _CACHE_KIB) -> None:
        self._path = path
        self._cache_kib = cache_kib
        self._n = n
        self._is_closed = False
        self._free: queue.LifoQueue[sqlite3.Connection | None] = queue.LifoQueue()
        for _ in range(n):
            self._free.put(None)  # a place, of which the first who needs it makes a connection

    @contextlib.contextmanager
    def borrowed(self, timeout_s: float) -> Iterator[sqlite3.Connection]:
        """Lend a connection; `StoreBusyError` if all are in use for long, or none can be opened."""
        try:
            db = self._free.get(timeout=timeout_s)
        except queue.Empty:
            raise StoreBusyError(
                "Too many searches run at once; search again in a moment."
            ) from None
        try:
            if self._is_closed:
                raise StoreBusyError("The store is closed.")
            if db is None:
                db = connect(self._path, is_reader=True, cache_kib=self._cache_kib)
            yield db
        except sqlite3.OperationalError as error:
            raise StoreBusyError(f"The store cannot be searched just now: {error}.") from error
        finally:
            self._free.put(db)

    def close(self) -> None:
        """Close the connections, once those who use them are done."""
        self._is_closed = True
        for _ in range(self._n):
            with contextlib.suppress(queue.Empty):  # a search that goes on ends with the process
                db = self._free.get(timeout=_CLOSE_S)
                if db is not None:
                    db.close()


def open_file(path: Path, classes: Sequence[str], capacity: int) -> Contents:
    """Open the file, a new one if there is none that can be used.

    Labels are kept as numbers, so a file of other classes cannot. A chunk has `capacity` rows.
    `sqlite3.OperationalError`: it cannot be opened at all, for want of a folder, permission, space.
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
    """Return whether an error means that the file is no good, and not that it is out of reach.

    A table that is not there is an error of the general code; a constraint fails where the file
    has rows that memory knows nothing of. An answer that is too large says nothing of the file.
    """
    if isinstance(error, UnfitFileError) or not isinstance(error, sqlite3.Error):
        return True
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF in _DAMAGE


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def mark_unpurged(path: Path) -> None:
    """Note, safe from a power cut, that the file is to hold words of removed rows for a while.

    The note is a file of its own, for a damaged database cannot be asked.
    """
    try:
        os.close(open_private(_beside(path, ".unpurged"), os.O_WRONLY))
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise sqlite3.OperationalError(f"a removal cannot be noted ({error.strerror})") from error


def is_unpurged(path: Path) -> bool:
    """Return whether the file may hold words of removed rows."""
    return _beside(path, ".unpurged").exists()


def unmark_unpurged(path: Path) -> None:
    """Note that the words of all removed rows have left the file."""
    with contextlib.suppress(OSError):  # a note that stays does no harm
        _beside(path, ".unpurged").unlink()


def drop_aside(path: Path) -> bool:
    """Delete the file that was moved aside, for what it may hold; return whether it is gone."""
    aside = _beside(path, ".aside")
    try:
        aside.unlink()
    except FileNotFoundError:
        return True
    except OSError as error:
        log.error("recent_store_aside_not_deleted", path=str(aside), detail=str(error))  # noqa: TRY400 -- all is said
        return False
    log.warning("recent_store_aside_deleted", path=str(aside))
    return True


def move_aside(path: Path, reason: str) -> None:
    """Make room for a new file; one that was moved aside before goes.

    A file that still holds words of removed messages is deleted instead. The file goes before its
    log: after a kill between the two SQLite drops a log without a file, but reads a file without
    its log as it was before the last removals.
    """
    is_deleted = is_unpurged(path)
    if is_deleted:
        log.warning("recent_store_deleted", path=str(path), reason=reason)
        path.unlink(missing_ok=True)
    else:
        aside = _beside(path, ".aside")
        log.warning("recent_store_moved_aside", path=str(path), aside=str(aside), reason=reason)
        if path.exists():
            path.replace(aside)
    for suffix in ("-wal", "-shm"):
        _beside(path, suffix).unlink(missing_ok=True)
    if is_deleted:
        unmark_unpurged(path)


def _opened(path: Path, classes: Sequence[str], capacity: int) -> Contents:
    db = connect(path)
    try:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (n_tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not n_tables:
            _begin(db, classes)
        elif (application, version) == (_APPLICATION, _UNPACKED_VERSION):
            _convert(db)
        elif (application, version) != (_APPLICATION, _VERSION):
            raise UnfitFileError(f"it is of version {version} of application {application:x}")  # noqa: TRY301 -- as SQLite does
        create_tables(db)
        create_history(db)
        return _read(db, classes, capacity)
    except BaseException:
        db.close()
        raise


def _begin(db: sqlite3.Connection, classes: Sequence[str]) -> None:
    """Make the tables that are there once."""
    db.execute("BEGIN IMMEDIATE")
    for table in ("class", "place", "lang"):
        db.execute(f"CREATE TABLE {table} (code INTEGER PRIMARY KEY, name TEXT)")
    db.execute("CREATE TABLE gone (place INTEGER, offset INTEGER, id_crc INTEGER)")
    db.execute(
        "CREATE TABLE chunk (number INTEGER PRIMARY KEY, first_key INTEGER, next_key INTEGER,"
        " n_offered INTEGER, n_bytes INTEGER)"
    )
    save_classes(db, classes)
    db.execute("INSERT INTO lang VALUES (0, '')")
    db.execute(f"PRAGMA application_id = {_APPLICATION}")
    db.execute(f"PRAGMA user_version = {_VERSION}")
    db.execute("COMMIT")


def _convert(db: sqlite3.Connection) -> None:
    """Make a file of version 1 one of today's; its full chunks are packed one by one later."""
    db.execute(f"PRAGMA user_version = {_VERSION}")


def save_classes(db: sqlite3.Connection, classes: Sequence[str]) -> None:
    """List the classes, in whose order labels are numbered; those that are listed stay.

    If another one is listed in the place of a class, it is an `UnfitFileError`.
    """
    check_classes(_names(db, "class"), classes)
    db.executemany("INSERT OR IGNORE INTO class VALUES (?, ?)", list(enumerate(classes)))


def check_classes(listed: Sequence[str], classes: Sequence[str]) -> None:
    """Raise an `UnfitFileError` unless the file's classes or the model's go on from the other.

    Some may have joined the model since; after a kill it may be an older one, and they join again.
    """
    n = min(len(listed), len(classes))
    if list(listed[:n]) != list(classes[:n]):
        raise UnfitFileError(f"its classes are {list(listed)}, the model's {list(classes)}")


def _read(db: sqlite3.Connection, classes: Sequence[str], capacity: int) -> Contents:
    kept = _names(db, "class")
    check_classes(kept, classes)
    gone = db.execute("SELECT place, offset, id_crc FROM gone ORDER BY rowid")
    return Contents(
        db=db,
        classes=kept,
        gone={(int(place), int(offset)): int(crc) for place, offset, crc in gone},
        places=_register(db, "place"),
        langs=_register(db, "lang"),
        chunks=_chunks(db, max(len(kept), len(classes)), capacity),
    )


def _names(db: sqlite3.Connection, table: str) -> list[str]:
    return [str(name) for (name,) in db.execute(f"SELECT name FROM {table} ORDER BY code")]


def _register(db: sqlite3.Connection, table: str) -> Register:
    names = _names(db, table)
    return Register(names, {name: code for code, name in enumerate(names)}, len(names))


def _chunks(db: sqlite3.Connection, n_classes: int, capacity: int) -> list[Chunk]:
    found = db.execute(
        "SELECT number, first_key, next_key, n_offered, n_bytes FROM chunk ORDER BY number"
    ).fetchall()
    if numbers(db) != {number for number, *_ in found}:
        raise UnfitFileError("its tables are not those that it lists")
    chunks = []
    for number, first_key, next_key, n_offered, n_bytes in found:
        (n_changed,) = db.execute(
            "SELECT count(*) FROM changed WHERE number = ?", (number,)
        ).fetchone()
        columns = packed_columns(db, number)
        is_packed = columns is not None
        if columns is None:
            columns = columns_of(db, number)
        if len({len(column) for column in columns.values()}) > 1:
            raise UnfitFileError(f"a column of chunk {number} is not whole")
        labels = columns["label"]
        if labels.min(initial=0) < 0 or labels.max(initial=0) >= n_classes:
            raise UnfitFileError(f"chunk {number} has a label without a class")
        chunk = restored(db, number, (first_key, next_key), capacity, columns)
        chunk.n_offered, chunk.n_bytes = n_offered, n_bytes
        chunk.is_packed, chunk.n_changed = is_packed, n_changed
        chunks.append(chunk)
    return chunks


def create(db: sqlite3.Connection, number: int) -> None:
    """Make the tables of a chunk."""
    columns = ", ".join(["key INTEGER PRIMARY KEY", *COLUMNS[1:]])
    db.execute(f"CREATE TABLE rows{number} ({columns})")
    db.execute(
        f"CREATE VIRTUAL TABLE words{number} USING fts5(text, signs, content = 'rows{number}',"
        " content_rowid = 'key', columnsize = 0, prefix = '2',"
        f" tokenize = {TOKENIZER})"
    )
    # Merge late, many at once: a chunk is made one piece when it is full.
    late = [("automerge", 0), ("crisismerge", 64)]
    db.executemany(f"INSERT INTO words{number} (words{number}, rank) VALUES (?, ?)", late)


def drop(db: sqlite3.Connection, number: int) -> None:
    """Drop a chunk."""
    db.execute(f"DROP TABLE IF EXISTS words{number}")
    db.execute(f"DROP TABLE IF EXISTS rows{number}")
    for table in ("packed", "changed", "stratum"):
        db.execute(f"DELETE FROM {table} WHERE number = ?", (number,))


@cached("statements", _STATEMENTS)
def _insertion(number: int, n: int, is_same: tuple[bool, ...]) -> str:
    """Return the statement that inserts `n` rows; a column of one value is one parameter.

    To bind a parameter takes SQLite longer than to write it.
    """
    places = itertools.count(1)
    first = [next(places) if same else None for same in is_same]
    rows = [",".join([f"?{next(places) if k is None else k}" for k in first]) for _ in range(n)]
    return f"INSERT INTO rows{number} VALUES ({'),('.join(rows)})"


def insert(db: sqlite3.Connection, number: int, rows: Sequence[RowValues]) -> None:
    """Put rows, values of `COLUMNS` with ascending keys above all there are, into a chunk."""
    for begin in range(0, len(rows), _ROWS_A_STATEMENT):
        columns = list(zip(*rows[begin : begin + _ROWS_A_STATEMENT], strict=True))
        n = len(columns[0])
        is_same = tuple([c[0] == c[-1] and c.count(c[0]) == n for c in columns])
        values = [column[0] for column in itertools.compress(columns, is_same)]
        others = itertools.compress(columns, map(operator.not_, is_same))
        values += itertools.chain.from_iterable(zip(*others, strict=True))
        db.execute(_insertion(number, n, is_same), values)
    if rows:
        db.execute(
            f"INSERT INTO words{number} (rowid, text, signs)"
            f" SELECT key, text, signs FROM rows{number} WHERE key >= ?",
            (rows[0][0],),
        )


def delete(db: sqlite3.Connection, number: int, keys: Sequence[int]) -> int:
    """Delete rows of a chunk, and return how many there were.

    Until `make_one` their words still stand in the file.
    """
    listed = (msgspec.json.encode(keys).decode(),)
    db.execute(
        f"INSERT INTO words{number} (words{number}, rowid, text, signs)"
        f" SELECT 'delete', key, text, signs FROM rows{number} WHERE {CHOSEN}",
        listed,
    )
    return db.execute(f"DELETE FROM rows{number} WHERE {CHOSEN}", listed).rowcount


def make_one(db: sqlite3.Connection, number: int) -> None:
    """Make a chunk's index one piece: quicker to search, and without the words of deleted rows."""
    db.execute(f"INSERT INTO words{number} (words{number}) VALUES ('optimize')")


def teach(
    db: sqlite3.Connection, number: int, key: int, label: int | None, part: str | None,
    *, by_person: bool = True,
) -> None:  # fmt: skip
    """Note what a row now teaches, by a person's word or by a label that came later than it."""
    db.execute(
        f"UPDATE rows{number} SET taught = ?, taught_part = ?, corrected = ? WHERE key = ?",
        (label, part, label if by_person else None, key),
    )


def ids_of(db: sqlite3.Connection, number: int, keys: Sequence[int]) -> list[tuple[int, str, int]]:
    """Return key, id and when it came of those of some rows that there are, keys ascending."""
    (found,) = db.execute(
        f"SELECT json_group_array(json_array(key, id, arrived_ms)) FROM rows{number}"
        f" WHERE {CHOSEN}",
        (msgspec.json.encode(keys).decode(),),
    ).fetchone()
    return sorted(msgspec.json.decode(found, type=list[tuple[int, str, int]]))


def ids_since(db: sqlite3.Connection, number: int, key: int) -> list[tuple[int, str]]:
    """Return key and id of the rows from a key on."""
    (found,) = db.execute(
        f"SELECT json_group_array(json_array(key, id)) FROM rows{number} WHERE key >= ?", (key,)
    ).fetchone()
    return msgspec.json.decode(found, type=list[tuple[int, str]])


def numbers(db: sqlite3.Connection) -> set[int]:
    """Return the chunks whose tables are there."""
    (found,) = db.execute(
        "SELECT group_concat(substr(name, 5), ' ') FROM sqlite_schema"
        " WHERE type = 'table' AND name GLOB 'rows[0-9]*'"
    ).fetchone()
    return set(map(int, (found or "").split()))


def found_rows(
    db: sqlite3.Connection, number: int, bounds: tuple[int, int], n_max: int, match: str
) -> list[list[Any]]:
    """Return the newest rows that match with keys in [bounds[0], bounds[1]), newest first.

    A row is the columns of `SHOWN`, then the text with marks around what was found. The example,
    which may be far longer than what is shown of it, is an empty one.
    """
    return _collected(
        db,
        number,
        f"SELECT rowid AS at, highlight(words{number}, 0, ?, ?) AS marked FROM words{number}"
        f" WHERE words{number} MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid DESC LIMIT ?",
        (OPEN, CLOSE, match, *bounds, n_max),
    )


def newest_rows(
    db: sqlite3.Connection, number: int, bounds: tuple[int, int], n_max: int
) -> list[list[Any]]:
    """Return the newest rows with keys in [bounds[0], bounds[1]), as `found_rows` does."""
    return _collected(
        db,
        number,
        f"SELECT key AS at, text AS marked FROM rows{number} WHERE key >= ? AND key < ?"
        " ORDER BY key DESC LIMIT ?",
        (*bounds, n_max),
    )


def rows_with_keys(
    db: sqlite3.Connection, number: int, keys: Sequence[int], *, whole: bool = False
) -> list[list[Any]]:
    """Return some rows, newest first, as `found_rows` does; `whole`: with their examples."""
    chosen = f"SELECT key AS at, text AS marked FROM rows{number} WHERE {CHOSEN}"
    return _collected(db, number, chosen, (msgspec.json.encode(keys).decode(),), whole=whole)


def lines_of(
    db: sqlite3.Connection, number: int, selects: Sequence[tuple[Sequence[str], str]],
    keys: Sequence[int],
) -> tuple[int, bytes]:  # fmt: skip
    """Return how many of some rows there are, and their lines, newest first, as one text.

    `selects` make the parts of a line, as `rows.ExportForm` says; if there are several, of one row.
    """
    n, lines = 0, b""
    for named, line in selects:
        n, part = db.execute(
            f"SELECT count(*), CAST(group_concat({line}, '') AS BLOB) FROM"
            f" (SELECT {', '.join(named)} FROM rows{number} WHERE {CHOSEN} ORDER BY key DESC)",
            (msgspec.json.encode(keys).decode(),),
        ).fetchone()
        lines += part or b""
    return n, lines


def marked_rows(
    db: sqlite3.Connection, number: int, match: str, keys: Sequence[int]
) -> list[list[Any]]:
    """Return some rows that match, newest first, as `found_rows` does."""
    return _collected(
        db,
        number,
        f"SELECT rowid AS at, highlight(words{number}, 0, ?, ?) AS marked FROM words{number}"
        # With a limit SQLite asks the index by itself; within the join it could not be highlighted.
        f" WHERE words{number} MATCH ? AND rowid IN (SELECT value FROM json_each(?)) LIMIT ?",
        (OPEN, CLOSE, match, msgspec.json.encode(keys).decode(), len(keys)),
    )


def _collected(
    db: sqlite3.Connection, number: int, chosen: str, values: Sequence[Any], *, whole: bool = False
) -> list[list[Any]]:
    """Return the rows whose keys, and marked texts, a statement chooses."""
    own = {"probability": "r.probabilities -> r.label"}  # SQLite writes 15 digits of a number
    if not whole:
        own["example"] = "'{}'"
    columns = ", ".join([own.get(name, f"r.{name}") for name in SHOWN])
    (found,) = db.execute(
        f"SELECT json_group_array(json_array({columns}, c.marked)) FROM ({chosen}) AS c"
        f" JOIN rows{number} AS r ON r.key = c.at",
        values,
    ).fetchone()
    rows: list[list[Any]] = msgspec.json.decode(found)
    return sorted(rows, key=lambda row: row[0], reverse=True)
