"""What people said of a message holds for the one of its place, also before it has come again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from consumers.messages import Partition
from consumers.search.rows import Change, weights_of
from consumers.search.store import RecentStore
from consumers.search.transactions import Deduplicator
from consumers.search.writer import Writer
from tests.consumers.search.stores import (
    LOG,
    clock_of,
    ids,
    made,
    offer,
    running,
    settle,
    tell,
    tweets,
)


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


RATE_PER_S = 20.0  # so that of what comes at once 100 are taken


def held(store: RecentStore) -> tuple[int, int, float]:
    """Return how many rows are held, for how many messages they stand, and their weights' sum."""
    chunks = store.chunks()
    sums = [c.n if (own := weights_of(c)) is None else own.sum() for c in chunks]
    return sum(c.n for c in chunks), sum(c.n_offered for c in chunks), round(float(sum(sums)), 6)


def test_what_is_read_again_after_a_kill_is_no_second_message(tmp_path: Path) -> None:
    """Rows stand for what was left out around them: it is not offered, and takes no token."""
    path, texts = tmp_path / "recent.db", ["good day"] * 400
    bounds: dict[str, Any] = {"rate_max_per_s": RATE_PER_S}
    with running(path, **bounds) as store:
        tell(store, texts)
        tell(store, texts, 400)  # no token is left: behind all rows
        clock_of(store).now_s += 10.0
        settle(store)
        settle(store)
        before = held(store)
    assert before == (100, 800, 800.0)
    with running(path, **bounds) as store:
        for first in (0, 300):  # cut in another way
            tell(store, texts, first)
        assert (held(store), store._sampler.n_offered) == (before, 0)
        tell(store, ["good night"] * 70, 780)
        assert held(store) == (150, 850, 850.0)
        assert ids(store, "night", limit=50) == [f"m{k}" for k in range(849, 799, -1)]


def test_a_stream_that_was_begun_anew_is_offered_anew(tmp_path: Path) -> None:
    """Its first message of another id shows it; from there all that comes counts."""
    path = tmp_path / "recent.db"
    bounds: dict[str, Any] = {"rate_max_per_s": RATE_PER_S}
    with running(path, **bounds) as store:
        tell(store, ["good day"] * 400)
        assert held(store) == (100, 400, 400.0)
    for begun in ("a", "b"):
        with running(path, **bounds) as store:
            n_offered = held(store)[1]
            for first in (0, 40):
                named = [{"id": f"{begun}{k}", "text": "good night"} for k in range(40)]
                tell(store, named, first)
            assert store._sampler.n_offered == 80
            assert held(store)[1] == n_offered + 80
            assert {each[0] for each in ids(store, "night")} >= {begun}
    with running(path, **bounds) as store:  # a kill: what the last of them brought comes again
        before = held(store)
        tell(store, [{"id": f"b{k}", "text": "good night"} for k in range(40)], 40)
        assert (held(store), store._sampler.n_offered) == (before, 0)


def test_a_log_that_is_read_from_its_beginning_again_is_stored_as_it_comes(tmp_path: Path) -> None:
    """What is read from before all that is held pushes that out: nothing would stand for it."""
    path = tmp_path / "recent.db"
    for _ in range(2):
        with running(path, messages_max=64) as store:
            for first in range(0, 200, 20):
                tell(store, ["good day"] * 20, first)
                settle(store)
            assert ids(store, "day", limit=1) == ["m199"]
            assert store._sampler.n_offered == 200


def test_what_came_before_the_file_was_open_tells_where_reading_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is read anew is stored anew, however far it was read before the file was open."""
    path = tmp_path / "recent.db"
    batches = [tweets(["good day"] * 20, first) for first in range(0, 200, 20)]
    with running(path, messages_max=64) as store:
        for told in batches:
            offer(store, told)
            settle(store)
    may_open, opens = threading.Event(), Writer._open

    def open_later(writer: Writer) -> None:
        assert may_open.wait(60.0)
        opens(writer)

    monkeypatch.setattr(Writer, "_open", open_later)
    store = made(path, messages_max=64)
    store.start()
    for told in batches[:8]:
        offer(store, told)
    may_open.set()
    settle(store)
    for told in batches[8:]:
        offer(store, told)
    settle(store)
    n_offered = store._sampler.n_offered
    store.stop()
    assert n_offered == 200


def test_what_stands_at_old_numbers_of_standard_input_is_new(tmp_path: Path) -> None:
    """After a kill it counts on from the checkpoint, and what comes never came before."""
    path, log = tmp_path / "recent.db", Partition("stdin", 0)
    for n_rows in (100, 200):
        with running(path, rate_max_per_s=RATE_PER_S) as store:
            told = tweets(["good day"] * 400)
            raw = replace(told.raw, partition=log)
            offer(store, replace(told, raw=raw))
            settle(store)
            assert store._sampler.n_offered == 400
            assert held(store)[0] <= n_rows
