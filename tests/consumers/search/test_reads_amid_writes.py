"""What is asked while the writer goes on: an answer is of one state of the file, and whole."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consumers.config.sections import HistorySettings
from consumers.search import database, matching
from consumers.search.chunks import Chunk
from consumers.search.label_queue import _answers_in
from consumers.search.query_syntax import parse
from consumers.search.store import RecentStore
from tests.consumers.search.stores import ids, running, settle, tell


def once_amid(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, then: Callable[[], object]
) -> None:
    """Have something happen as soon as a function of a module has read the file."""
    reads, to_do = getattr(module, name), [then]

    def read(*args: Any, **kwargs: Any) -> Any:
        found = reads(*args, **kwargs)
        if to_do:
            to_do.pop()()
        return found

    monkeypatch.setattr(module, name, read)


def pages_of(store: RecentStore, text: str, limit: int) -> list[list[str]]:
    """Return the ids of a query page by page."""
    pages, before = list[list[str]](), None
    while True:
        found = store.search(parse(text), limit=limit, before=before)
        pages.append([each.row.id for each in found.rows])
        if not found.more:
            return pages
        before = found.before


def test_what_comes_amid_a_search_by_conditions_takes_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is behind the state of the file that is read, so it is neither listed nor counted."""
    with running(tmp_path / "recent.db") as store:
        tell(store, ["good day"] * 6)
        once_amid(
            monkeypatch, database, "numbers", lambda: tell(store, ["good night"] * 20, first=6)
        )
        assert pages_of(store, "label:negative", 2) == [["m4", "m2"], ["m0"]]


def test_what_goes_amid_a_search_by_conditions_ends_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page may be short of it, and says that there is more."""
    with running(tmp_path / "recent.db") as store:
        tell(store, ["good day"] * 12)

        def remove() -> None:
            for name in ("m10", "m8", "m6"):
                store.remove(name)

        once_amid(monkeypatch, database, "rows_with_keys", remove)
        assert pages_of(store, "label:negative", 2) == [[], ["m4", "m2"], ["m0"]]


def test_what_comes_amid_a_count_is_not_counted_as_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All messages match, so as many match as were looked through."""
    with running(tmp_path / "recent.db", history=HistorySettings()) as store:
        tell(store, ["good day"] * 6)
        once_amid(
            monkeypatch, matching, "matching_keys", lambda: tell(store, ["good day"] * 20, first=6)
        )
        for n in (6, 26):
            found = store.matches_over_time(parse("good day "), None, (0, 10**10), None)
            assert (int(np.sum(found.counts)), sum(found.n_of)) == (n, n)


def test_damage_that_several_searches_find_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that finds it while the file is closed speaks of that file, and not of the next."""
    path = tmp_path / "recent.db"
    with running(path) as store:
        tell(store, ["good day"] * 3)
        writer = store._writer
        closes, says = database.Readers.close, [writer.damaged]

        def close(readers: database.Readers) -> None:
            closes(readers)
            if says:
                says.pop()("found by another search")

        monkeypatch.setattr(database.Readers, "close", close)
        writer.damaged("found by a search")
        settle(store)
        tell(store, ["good night"], first=3)
        settle(store)
        settle(store)
        assert not says
        assert ids(store, "night") == ["m3"]
    with contextlib.closing(sqlite3.connect(path.with_name("recent.db.aside"))) as aside:
        assert aside.execute("SELECT count(*) FROM rows1").fetchone() == (3,)


def test_answers_are_looked_for_in_the_same_rows_of_each_column() -> None:
    """While the labelled rows of a chunk are looked for, the writer adds to it."""
    chunk = Chunk(1, 100, 10)
    chunk.n = 3
    chunk.columns["corrected"][:] = [1, -1, 1] + [1] * 7
    chunk.columns["truth"][:] = -1

    class Growing(np.ndarray[Any, Any]):
        """A column whose chunk has more rows once it has been looked at."""

        def __getitem__(self, chosen: Any) -> Any:
            found = np.asarray(self)[chosen]
            chunk.n = 5
            return found

    chunk.columns["corrected"] = chunk.columns["corrected"].view(Growing)
    assert _answers_in(chunk, None).keys.tolist() == [100, 102]
