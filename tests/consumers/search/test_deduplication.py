"""What people said of a message holds for the one of its place, also before it has come again."""

from __future__ import annotations

from pathlib import Path

from consumers.search import Change, RecentStore
from consumers.search.transactions import Deduplicator
from tests.consumers.search.stores import LOG, ids, running, settle, tell


def taught(store: RecentStore, id: str) -> tuple[str, str | None, str | None, str | None]:  # noqa: A002
    """Return the newest message of an id: its text, and what it teaches by which part."""
    row = store.get(id)
    assert row is not None
    return row.text, row.taught, row.taught_part, row.corrected


def test_what_was_said_before_a_message_comes_holds_when_it_comes(tmp_path: Path) -> None:
    """After the file was lost the log is read first: the stream's messages come corrected."""
    path = tmp_path / "recent.db"
    with running(path) as store:
        store.correct("m1", "negative", "c/0", (LOG, 1))
        store.correct("m0", "positive", "c/0", (LOG, 0))
        store.correct("m0", "negative", "c/1", (LOG, 0))
        store.correct("another", "negative", "c/0", (LOG, 3))
        store.remove("m2", (LOG, 2))
        tell(store, ["zero", "one", "two", "three"])
        assert taught(store, "m0") == ("zero", "negative", "c/1", "negative")
        assert taught(store, "m1") == ("one", "negative", "c/0", "negative")
        assert taught(store, "m3") == ("three", "positive", "t/0", None)
        assert ids(store, "") == ["m3", "m1", "m0"]
        assert store.state().share == 1.0
    with running(path) as store:
        tell(store, ["zero", "one", "two", "three"])
        assert taught(store, "m0") == ("zero", "negative", "c/1", "negative")
        assert ids(store, "") == ["m3", "m1", "m0"]


def test_a_removal_outweighs_what_was_said_before() -> None:
    """A message that was corrected and then removed, both before it came, stays away."""
    with running(None) as store:
        store.correct("m0", "positive", "c/0", (LOG, 0))
        store.remove("m0", (LOG, 0))
        store.correct("m0", "positive", "c/0", (LOG, 0))
        tell(store, ["zero", "one"])
        assert ids(store, "") == ["m1"]


def test_what_was_said_of_a_message_leaves_a_newer_one_of_its_id_alone() -> None:
    """Read back after a restart, a correction is not that of a message which came later."""
    told: list[Change] = []
    with running(None) as store:
        store.change_listeners.append(told.extend)
        tell(store, [{"text": f"version {k}", "id": "a"} for k in range(3)])
        store.correct("a", "negative", "c/0", (LOG, 1))
        assert taught(store, "a") == ("version 2", "negative", "t/0", None)
        assert told == []  # what people see by this id is as it was
        store.remove("a", (LOG, 1))
        assert taught(store, "a") == ("version 2", "negative", "t/0", None)
        assert store.state().n_messages == 1
        store.correct("a", "positive", "c/0", (LOG, 2))
        assert taught(store, "a") == ("version 2", "positive", "c/0", "positive")
        store.remove("a", (LOG, 2))
        assert store.get("a") is None


def test_what_is_said_of_messages_that_never_come_is_bounded(tmp_path: Path) -> None:
    """Of a label topic that others share, only so much is remembered of messages not held."""
    with running(tmp_path / "recent.db") as store:
        settle(store)
        transactions = store._writer.file
        assert transactions is not None
        known: Deduplicator = transactions._known
        known.expected_max = 2
        for k in range(4):
            store.correct(f"m{k}", "positive", "c/0", (LOG, k))
        tell(store, ["zero", "one", "two", "three"])
        assert [taught(store, f"m{k}")[3] for k in (0, 2)] == [None, "positive"]
