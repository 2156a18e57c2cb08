"""The recent store: what it keeps, finds and counts, and that what was removed is gone."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import force_setattr, replace

from consumers.config.sections import HistorySettings
from consumers.messages import Partition
from consumers.search.query_syntax import StoreBusyError, parse
from consumers.search.rows import Change, MessageRow
from consumers.search.store import RecentStore, RecentStoreError
from tests.consumers.search.stores import (
    LOG,
    clock_of,
    forget,
    ids,
    made,
    offer,
    running,
    settle,
    tell,
    tweets,
    wall_of,
)


def test_a_row_is_the_message_whole(tmp_path: Path) -> None:
    """A row holds what the message said, what was thought of it, and what it taught."""
    with running(tmp_path / "recent.db") as store:
        told = {
            "text": "good day",
            "user": "ann",
            "lang": "en",
            "created_at": "2024-01-01T00:00:00Z",
        }
        tell(store, ["bad", told | {"label": None}, told])
        judged, learned = store.get("m1"), store.get("m2")
        assert judged is not None
        assert learned is not None
        assert (judged.truth, judged.taught, judged.taught_part) == (None, None, None)
        assert (learned.truth, learned.taught, learned.taught_part) == (
            "negative",
            "negative",
            "t/0",
        )
        assert learned == MessageRow(
            key=3, id="m2", partition=LOG, offset=2, time_ms=learned.time_ms,
            arrived_ms=1_700_000_000_000, user="ann", lang="en", text="good day",
            example={"text": "good day"}, label="negative", probability=learned.probability,
            probabilities=learned.probabilities, truth="negative", taught="negative",
            taught_part="t/0", corrected=None,
        )  # fmt: skip
        assert learned.probabilities == pytest.approx((0.8, 0.2))
        assert learned.probability == max(learned.probabilities)
        assert store.get("nobody") is None


@given(
    texts=st.lists(st.sampled_from(["good", "bad", "good day", "so bad"]), max_size=40),
    removed=st.sets(st.integers(0, 39), max_size=6),
    limit=st.integers(1, 7),
    rows=st.integers(1, 9),
)
def test_pages_and_counts_are_those_of_a_list(
    texts: list[str], removed: set[int], limit: int, rows: int
) -> None:
    """Page by page a search finds all that match, newest first; the counts are over just these."""
    with running(None) as store:
        force_setattr(store._bounds, "messages_max", 16 * rows)  # chunks of few rows
        tell(store, texts)
        for i in removed:
            store.remove(f"m{i}")
        held = [i for i in range(len(texts)) if i not in removed]
        held = [i for i in held if store.get(f"m{i}") is not None]
        assert len(held) == store.state().n_messages
        expected = [f"m{i}" for i in reversed(held) if "good" in texts[i].split()]
        found: list[str] = []
        before = None
        while True:
            page = store.search(parse("good "), limit=limit, before=before)
            found += [one.row.id for one in page.rows]
            if not page.more:
                assert page.before is None
                break
            before = page.before
            assert len(page.rows) == limit
        assert found == expected
        counts = store.counted(parse("good "))
        codes = [int(name[1:]) % 2 for name in expected]
        assert counts.counts == (codes.count(0), codes.count(1))
        assert counts.n == len(expected)
        assert not counts.newest_only
        everything = store.counted(parse(""))
        assert everything.counts == (sum(i % 2 == 0 for i in held), sum(i % 2 for i in held))


def test_it_holds_no_more_than_it_may(tmp_path: Path) -> None:
    """Of more messages than may be held the newest are there, and at least fifteen sixteenths."""
    with running(tmp_path / "recent.db", messages_max=1_600) as store:
        for first in range(0, 4_000, 400):
            tell(store, ["good day"] * 400, first)
            assert store.state().n_messages <= 1_600
        assert store.state().n_messages > 1_500
        assert store.get("m3999") is not None
        assert store.get("m0") is None
        assert store.counted(parse("good")).n == store.state().n_messages


def test_what_is_too_old_is_not_shown(tmp_path: Path) -> None:
    """A message is shown until it is as old as may be, to the message, and then leaves the file."""
    with running(tmp_path / "recent.db", age_max_s=100.0) as store:
        wall = wall_of(store)
        began_s = wall()
        for k in range(4):
            wall.now_s = began_s + 10 * k
            tell(store, [f"good {k}"], first=k)
        wall.now_s = began_s + 110.5
        assert ids(store, "good") == ["m3", "m2"]
        assert store.counted(parse("good")).n == 2
        assert store.counted(parse("")).n == 2
        assert store.get("m1") is None
        wall.now_s = began_s + 200
        settle(store)
        settle(store)  # which begins when the turn before is over
        assert store.state().n_messages == 0
        tell(store, ["good again"], first=4)
        again = store.get("m4")
        assert again is not None
        assert again.key > 4


def test_a_clock_that_jumps_by_years_costs_what_looks_too_old(tmp_path: Path) -> None:
    """Ahead, what was there is too old; back again, all that comes is kept and shown."""
    with running(tmp_path / "recent.db", age_max_s=100.0) as store:
        wall = wall_of(store)
        began_s = wall()
        tell(store, ["good 0"])
        wall.now_s = began_s + 5 * 365 * 86_400
        tell(store, ["good 1"], first=1)
        settle(store)  # a turn reads the clock at its end
        assert ids(store, "good") == ["m1"]
        wall.now_s = began_s - 5 * 365 * 86_400
        tell(store, ["good 2"], first=2)
        assert ids(store, "good") == ["m2", "m1"]
        assert store.state().n_failed == 0


def test_what_came_before_a_clock_was_put_back_ages_all_the_same(tmp_path: Path) -> None:
    """What was stored with a time of the future, and what came behind it, leave by their age."""
    with running(tmp_path / "recent.db", age_max_s=100.0, history=HistorySettings()) as store:
        wall = wall_of(store)
        began_s = wall()
        for k in range(3):
            wall.now_s = began_s + k + (365 * 86_400 if k == 1 else 0)
            tell(store, [f"good {k}"], first=k)
            settle(store)  # a turn reads the clock at its end
        assert ids(store, "good") == ["m2", "m1"]
        stored_from_s = store.matches_over_time(parse("good day "), None, (0, 10**10), None)
        assert stored_from_s.stored_from_s == math.ceil(began_s) + 2
        wall.now_s = began_s + 50
        tell(store, ["good 3"], first=3)
        assert ids(store, "good") == ["m3", "m2", "m1"]
        wall.now_s = began_s + 120
        settle(store)
        settle(store)  # which begins when the turn before is over
        assert ids(store, "good") == ["m3"]
        wall.now_s = began_s + 200
        settle(store)
        settle(store)
        assert store.state().n_messages == 0


def test_a_removed_message_is_really_gone(tmp_path: Path) -> None:
    """What was removed is found no more, and its words stand in no byte of the file."""
    path = tmp_path / "recent.db"
    secret = "xylophonist"
    with running(path) as store:
        tell(store, ["good day", f"the {secret} of Ulm #{secret}", "bad day"])
        assert ids(store, secret) == ["m1"]
        store.remove("m1")
        assert ids(store, secret) == []
        assert ids(store, "day") == ["m2", "m0"]
        assert store.get("m1") is None
        clock_of(store).now_s += 11
        settle(store)
        settle(store)
        written = [file.read_bytes() for file in tmp_path.iterdir() if file.suffix != ".db-shm"]
        assert written
        assert not any(secret.encode() in data for data in written)
        assert store.counted(parse("")).n == 2


def test_words_of_removed_messages_are_gone_after_a_stop(tmp_path: Path) -> None:
    """A store that is stopped leaves no word of what was removed in its file."""
    path = tmp_path / "recent.db"
    with running(path) as store:
        tell(store, ["one xylophonist", "good day"])
        forget(store, ["m0"])
    assert b"xylophonist" not in path.read_bytes()
    assert b"good day" in path.read_bytes()


def test_the_stream_deletes_behind_what_it_told() -> None:
    """A deletion of the stream removes all messages of an id that came before it, none after."""
    with running(None) as store:
        offer(store, tweets([{"text": "one", "id": "a"}, {"text": "two", "id": "a"}, "three"]))
        forget(store, ["a", "nobody"])
        offer(store, tweets([{"text": "four", "id": "a"}], first=3))
        settle(store)
        assert [found.row.text for found in store.search(parse("")).rows] == ["four", "three"]


def test_what_was_made_anew_stays() -> None:
    """A deletion leaves what stands behind it in its partition, whenever it is heard of."""
    with running(None) as store:
        offer(store, tweets([{"text": "one", "id": "a"}, "two"]))
        offer(store, tweets([{"text": "three", "id": "a"}, {"text": "four", "id": "b"}], first=4))
        store.forget_ids(["a", "b", "a"], (LOG, [2, 3, 3]))
        settle(store)
        assert [found.row.text for found in store.search(parse("")).rows] == [
            "four",
            "three",
            "two",
        ]
        store.forget_ids(["a", "b"], (Partition("other", 0), [1, 1]))
        settle(store)
        assert [found.row.text for found in store.search(parse("")).rows] == ["two"]


def test_an_account_leaves_with_all_its_messages(tmp_path: Path) -> None:
    """Of all chunks, before and after a restart, but for what stands behind its deletion."""
    names = [f"{who}/{n}" for n in range(3) for who in ("a", "b", "a~1")] + ["a", "a/3"]
    rows: list[dict[str, Any] | str] = [{"text": "day", "id": name} for name in names]
    path = tmp_path / "recent.db"
    with running(path) as store:
        offer(store, tweets(rows))
        store.forget_ids(["nobody/~"], (LOG, [20]), of_accounts=True)  # all are looked at once
        offer(store, tweets([{"text": "day", "id": "a/4"}], first=20))
        settle(store)
        store.forget_ids(["a/~"], (LOG, [10]), of_accounts=True)
        offer(store, tweets([{"text": "day", "id": "a/5"}, {"text": "day", "id": "b/5"}], first=30))
        settle(store)
        left = [name for name in names[:-1] if not name.startswith("a/")]
        assert sorted(ids(store, "day")) == sorted([*left, "a/4", "a/5", "b/5"])
    with running(path) as store:
        store.forget_ids(["b/~", "b/1"], (LOG, [29, 40]), of_accounts=True)
        store.forget_ids(["a~1/1"], (LOG, [40]))
        settle(store)
        assert sorted(ids(store, "day")) == sorted(["a", "a/4", "a/5", "a~1/0", "a~1/2", "b/5"])


OTHER = Partition("other", 0)
DELETED = st.tuples(st.sampled_from("abc"), st.sampled_from([LOG, OTHER]), st.integers(0, 7))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.lists(DELETED, max_size=4), st.sampled_from("abc")), max_size=8))
def test_deletes_that_are_done_together_are_as_one_by_one(
    log: list[tuple[list[tuple[str, Partition, int]], str]],
) -> None:
    """Each removes what was there of its id, but for what stands behind it in its partition."""
    held: list[tuple[int, str]] = []
    with running(None) as store:
        for offset, (deleted, name) in enumerate(log):
            for gone, partition, at in deleted:
                store.forget_ids([gone], (partition, [at]))
                held = [
                    (own, each)
                    for own, each in held
                    if each != gone or (partition == LOG and own > at)
                ]
            offer(store, tweets([{"text": "day", "id": name}], first=offset))
            held.append((offset, name))
        settle(store)  # the store gathers what comes before, so it takes all at once
        found = [(each.row.offset, each.row.id) for each in store.search(parse("")).rows]
    assert found == held[::-1]


def test_a_correction_is_absolute() -> None:
    """A correction says what a message teaches now and who says so, however often it is given."""
    with running(None) as store:
        tell(store, ["good day", "bad day"])
        for label, part in (("positive", "corrections/0"), (None, None), ("positive", "c/0")) * 2:
            store.correct("m0", label, part)
            row = store.get("m0")
            assert row is not None
            assert (row.taught, row.taught_part, row.corrected) == (label, part, label)
            assert (row.truth, row.label) == ("negative", "negative")
            (found,) = store.search(parse("good")).rows
            assert found.row == replace(row, example={})
        with pytest.raises(ValueError, match="no class 'neutral'; there are negative, positive"):
            store.correct("m0", "neutral", "c/0")


def test_a_probability_is_one_number_wherever_it_stands() -> None:
    """All its digits are those of the probabilities of all classes, and of the new row told."""
    new: list[float] = []
    with running(None) as store:
        store.listeners.append(lambda rows: new.extend(row.probability for row in rows))
        for k in range(40):
            offer(store, tweets(["good"], first=k), probability=0.5 + 0.4 / (k + 1.1))
        settle(store)
        settle(store)  # listeners of one turn are told before the next turn begins
        found = [each.row for each in store.search(parse("good")).rows]
        assert [row.probability for row in found] == [max(row.probabilities) for row in found]
        assert [row.probability for row in found] == new[::-1]
        row = store.get("m39")
        assert row is not None
        assert row.probability == new[-1]


def test_labels_that_come_later_say_how_a_search_was_judged(tmp_path: Path) -> None:
    """They count as those that came with their messages, after a start too, and in packed chunks.

    What a person says of a message hides them, for good.
    """
    path, few = tmp_path / "r.db", {"messages_max": 1_600}  # chunks of a hundred rows
    with running(path, **few) as store:
        tell(store, [{"text": "good", "label": None} for _ in range(250)])
        store.note_labels(LOG, range(20), ["positive"] * 20)
        store.note_labels(LOG, range(90, 250), ["negative"] * 160)
        settle(store)
        assert store.counted(parse("good")).confusion == ((160, 0), (20, 0))
        store.correct("m1", "negative", "corrections/0")
        store.correct("m2", "negative", "corrections/0")
        store.correct("m2", None, None)
        store.note_labels(LOG, [1], ["positive"])
        for query in ("good", ""):
            assert store.counted(parse(query)).confusion == ((160, 0), (18, 0))
        tell(store, [{"text": "good"}], first=251)
        store.note_labels(LOG, [251], ["negative"])  # it has a label of its own
        settle(store)
        assert store.counted(parse("good")).confusion == ((160, 0), (18, 1))
    for query in ("good", ""):
        with running(path, **few) as store:
            assert store.counted(parse(query)).confusion == ((160, 0), (18, 1))


def test_a_label_that_comes_later_is_shown(tmp_path: Path) -> None:
    """It is what the message teaches, in its own part, unless a person has said it; no other's."""
    with running(tmp_path / "r.db") as store:
        tell(store, [{"text": f"day {i}", "label": None} for i in range(4)])
        store.correct("m1", "negative", "corrections/0")
        store.note_labels(LOG, [0, 1, 2, 9], ["positive", "positive", "unheard of", "positive"])
        store.note_labels(Partition("other", 0), [3], ["positive"])
        settle(store)
        found = [store.get(f"m{i}") for i in range(4)]
        said = [(row.truth, row.taught, row.taught_part) for row in found if row is not None]
        assert said == [
            (None, "positive", "t/0"),
            (None, "negative", "corrections/0"),
            (None, None, None),
            (None, None, None),
        ]
        store.correct("m0", "negative", "corrections/0")
        row = store.get("m0")
        assert row is not None
        assert (row.taught, row.corrected) == ("negative", "negative")
        store.correct("m0", None, None)  # what came late is lost for good
        row = store.get("m0")
        assert row is not None
        assert (row.truth, row.taught, row.corrected) == (None, None, None)


def test_a_message_that_comes_again_is_kept_once(tmp_path: Path) -> None:
    """After a restart the old row wins, with its correction; what was removed stays removed."""
    path = tmp_path / "recent.db"
    with running(path) as store:
        tell(store, ["zero", "one", "two"])
        store.correct("m1", "negative", "c/0")
        store.remove("m2")
        before = store.get("m1")
    with running(path) as store:
        assert store.get("m1") == before
        assert ids(store, "") == ["m1", "m0"]
        tell(store, ["zero", "one", "two", "three"])
        assert store.get("m1") == before
        assert ids(store, "") == ["m3", "m1", "m0"]
        assert store.state().share == 1.0
        assert store.state().n_stored == 1


def test_a_stream_made_anew_takes_the_places_of_the_old(tmp_path: Path) -> None:
    """A message of another id at a place that is held means another stream: the new one is kept."""
    path = tmp_path / "recent.db"
    with running(path) as store:
        tell(store, ["old zero", "old one"])
        store.remove("m1")
    with running(path) as store:
        tell(store, [{"text": "new zero", "id": "x"}, {"text": "new one", "id": "y"}])
        assert ids(store, "") == ["y", "x"]


def test_labelled_and_judged_messages_may_overtake_each_other() -> None:
    """Messages that are judged on another thread come late, and are kept all the same."""
    with running(None) as store:
        first = tweets([{"text": "a"}, {"text": "b", "label": None}])
        second = tweets([{"text": "c"}, {"text": "d", "label": None}], first=2)
        log_posteriors = np.log([[0.2, 0.8]])
        for told in (first, second):
            store.offer(told, told.to_learn, log_posteriors)
        for told in (first, second):
            store.offer(told, told.to_predict, log_posteriors)
        settle(store)
        assert ids(store, "") == ["m3", "m1", "m2", "m0"]


def test_who_listens_hears_of_all_that_changes() -> None:
    """Listeners get each row once it can be found, and each change that a person or stream made."""
    store = made(None)
    rows: list[MessageRow] = []
    changes: list[Change] = []
    store.listeners.append(rows.extend)
    store.change_listeners.append(changes.extend)
    store.start()
    tell(store, ["good day", "bad day"])
    settle(store)  # listeners of one turn are told before the next turn begins
    assert [row.id for row in rows] == ["m0", "m1"]
    assert rows[1] == store.get("m1")
    store.correct("m0", "positive", "c/0")
    store.remove("m0")
    forget(store, ["m1", "nobody"])
    store.stop()
    assert changes == [
        Change("m0", "positive", removed=False),
        Change("m0", None, removed=True),
        Change("m1", None, removed=True),
    ]


def test_a_temporary_store_leaves_nothing() -> None:
    """Without a path the file is temporary, and gone after the stop."""
    store = made(None)
    folder = store._path.parent
    store.start()
    tell(store, ["good"])
    assert list(folder.iterdir())
    store.stop()
    assert not folder.exists()


@pytest.mark.parametrize("text", ["", "hello "])
def test_rows_that_are_to_go_hide_no_others(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """While they still stand in the file, as on a full disk, pages and counts go on below them."""
    monkeypatch.setattr("consumers.search.store._ROWS_AGAIN", 4)
    with running(None) as store:
        tell(store, [f"hello {i}" for i in range(40)])
        (chunk,) = store.chunks()
        chunk.kill([chunk.first_key + i for i in (*range(5, 15), *range(20, 40))])
        before = None
        for wanted, more in ((["m19", "m18", "m17"], True), (["m16", "m15", "m4"], True)):
            found = store.search(parse(text), limit=3, before=before)
            assert ([one.row.id for one in found.rows], found.more) == (wanted, more)
            before = found.before
        found = store.search(parse(text), limit=4, before=before)
        assert ([one.row.id for one in found.rows], found.more) == (["m3", "m2", "m1", "m0"], False)
        keys = store.keys(parse("hello "), None, 3)
        assert (keys - chunk.first_key).tolist() == [17, 18, 19]


def check_that_it_is_closed(store: RecentStore) -> None:
    """Ask everything of a store that does not run."""
    offer(store, tweets(["good"], first=5))
    store.remove("m0")
    store.correct("m0", None, None)
    forget(store, ["m0"])
    for ask in (
        lambda: store.search(parse("good")),
        lambda: store.counted(parse("")),
        lambda: store.counted(parse("good")),
        lambda: store.get("m0"),
        lambda: store.keys(parse("good"), None, 5),
        lambda: store.rows(np.array([1])),
    ):
        with pytest.raises(StoreBusyError, match="still loading; ask again"):
            ask()
    assert store.languages() == []
    assert store.held(np.array([1])).tolist() == []
    assert store.counted_keys(np.array([1]), newest_only=False).n == 0
    assert not store.state().is_open


def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    """Before its start and after its stop a store takes nothing, and never answers "none held"."""
    store = made(tmp_path / "recent.db")
    check_that_it_is_closed(store)
    store.start()
    tell(store, ["good"])
    store.stop()
    check_that_it_is_closed(store)
    store.stop()


@pytest.mark.parametrize("noted", [None, 1, 60], ids=["as written", "none", "too few"])
def test_a_chunk_filled_within_a_write_is_whole_after_a_restart(
    tmp_path: Path, noted: int | None
) -> None:
    """What one write brings may fill a chunk and begin the next; files of 0.1.0 noted too few."""
    path, n = tmp_path / "recent.db", 250
    with running(path, messages_max=1_600) as store:
        tell(store, ["good day"] * n)
        assert store.state().n_messages == n
    if noted is not None:
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE chunk SET next_key = ? WHERE number = 1", (noted,))
    with running(path, messages_max=1_600) as store:
        assert (store.state().n_messages, store.counted(parse("")).n) == (n, n)
        assert len(ids(store, "good", limit=1_000)) == n
        store.remove("m99")
        assert store.get("m99") is None
        assert store.counted(parse("good")).n == n - 1


def test_texts_and_examples_are_kept_apart_where_they_differ() -> None:
    """A long text is shown cut off, and one with marks without them; it taught the whole."""
    with running(None) as store:
        long, marked = "good " * 2_000, "a \ufdd0good\ufdd1 day"
        tell(store, [long, marked])
        row, other = store.get("m0"), store.get("m1")
        assert row is not None
        assert other is not None
        assert (len(row.text), row.example) == (4_000, {"text": long})
        assert (other.text, other.example) == ("a good day", {"text": marked})
        (found,) = store.search(parse("day")).rows
        assert found.marked == ("a good ", "day", "")
        assert found.row.example == {}  # it may be long: who needs it asks for one message


def test_long_messages_are_bounded_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies beyond the part that is shown counts too: old messages go before the file grows."""
    bound = 4 << 20
    monkeypatch.setattr("consumers.search.chunks._BYTES_MAX", bound)
    with running(tmp_path / "recent.db") as store:
        for k in range(40):
            tell(store, [f"word{k} " + "x" * 200_000], first=k)
        assert 10 <= store.state().n_messages <= bound // 200_000
        assert ids(store, "word39 word", limit=2) == ["m39"]
    assert (tmp_path / "recent.db").stat().st_size < 1.25 * bound  # with pages that are free


def test_places_are_told_apart() -> None:
    """The same offset in two partitions is two messages."""
    with running(None) as store:
        told = tweets(["good"])
        tell(store, ["good"])
        other = tweets(["good"])
        other.raw = type(told.raw)(
            **{name: getattr(told.raw, name) for name in told.raw.__struct_fields__}
            | {"partition": Partition("t", 1)}
        )
        offer(store, other)
        settle(store)
        found = [one.row.partition for one in store.search(parse("")).rows]
        assert found == [Partition("t", 1), LOG]


def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a change that cannot be written is told so after a while."""
    monkeypatch.setattr("consumers.search.store._WAIT_S", 0.01)
    store = made(None)
    store._sampler.open()  # and nobody takes
    with pytest.raises(RecentStoreError, match=r"'m0' could not be changed for 0\.01 s"):
        store.remove("m0")
    store.stop()
