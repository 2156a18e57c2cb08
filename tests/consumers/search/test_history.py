"""History: every message is counted once, whatever is sampled, fails or is restarted."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from consumers.config.sections import HistorySettings
from consumers.search.history import STEPS_S
from consumers.search.matching import CountsOverTime
from consumers.search.query_syntax import parse
from consumers.search.store import RecentStore
from consumers.search.writer import MessageCounter
from tests.consumers.search.stores import (
    CLASSES,
    LOG,
    clock_of,
    forget,
    made,
    offer,
    running,
    settle,
    tell,
    tweets,
    wall_of,
)

BEGAN_S = 1_700_000_000
MINUTE_S = BEGAN_S // 60 * 60
ON = HistorySettings()


def whole(store: RecentStore, step: str | None = "minute") -> CountsOverTime:
    """Return the whole history."""
    return store.history(0, 4 * BEGAN_S, step)


def totals(store: RecentStore) -> list[int]:
    """Return how many messages of each class were counted; by all steps they are the same."""
    sums = [np.sum(whole(store, step).counts, axis=0) for step in ("minute", "hour", "day")]
    assert all(np.array_equal(one, sums[0]) for one in sums)
    found: list[int] = np.atleast_1d(sums[0]).tolist() if np.ndim(sums[0]) else [0, 0]
    return found


def test_all_messages_are_counted_by_minute_hour_and_day(tmp_path: Path) -> None:
    """Of a stream of which a sample is kept too; steps begin at round times."""
    with running(tmp_path / "recent.db", history=ON, rate_max_per_s=10.0) as store:
        wall = wall_of(store)
        for minute in range(3):
            wall.now_s = MINUTE_S + 60.0 * minute + 59
            tell(store, ["good day"] * 1_000, first=1_000 * minute)
        assert store.state().n_messages < 1_000
        found = whole(store)
        assert (found.step_s, found.kept_from_s) == (60, None)
        assert list(found.begins_s) == [MINUTE_S, MINUTE_S + 60, MINUTE_S + 120]
        assert found.counts == [[500, 500]] * 3
        assert whole(store, "day").begins_s == [BEGAN_S // 86_400 * 86_400]
        assert totals(store) == [1_500, 1_500]
        span = store.history(MINUTE_S + 61, MINUTE_S + 120, "minute")
        assert list(span.begins_s) == [MINUTE_S + 60]


KINDS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8)  # with a label, offered


@given(batches=st.lists(st.tuples(st.integers(0, 12), KINDS), max_size=8))
def test_each_kind_counts_from_its_own_place_on(
    batches: list[tuple[int, list[tuple[bool, bool]]]],
) -> None:
    """As one message after the other would, wherever a batch begins again and what it mixes."""
    counter = MessageCounter({60: 10})
    counter.begin({})
    highest, expected = {True: -1, False: -1}, np.zeros(2, np.int64)
    for first, kinds in batches:
        told = tweets(
            [{"text": "a", "label": 4 if is_known else None} for is_known, _ in kinds], first
        )
        rows = np.flatnonzero([is_offered for _, is_offered in kinds])
        judged = (rows + first) // 3 % 2
        counter.add(told, rows, np.log(np.eye(2)[judged] * 0.6 + 0.2), BEGAN_S * 1_000)
        before = highest.copy()
        for row, place in zip(rows.tolist(), judged.tolist(), strict=True):
            is_known = kinds[row][0]
            if first + row > before[is_known]:
                expected[place] += 1
                highest[is_known] = first + row
    taken = counter.take()
    found = taken.by_minute.get(MINUTE_S, np.zeros(0, np.int64))
    assert found.tolist() == expected.tolist()[: len(found)]
    assert found.sum() == expected.sum()
    assert taken.highest == {(LOG, kind): at for kind, at in highest.items() if at >= 0}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.integers(1, 5)),
        st.tuples(st.just("rewind"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["remove", "forget"]), st.integers(0, 6)),
        st.tuples(st.sampled_from(["restart", "wait"]), st.just(0)),
    ),
    max_size=15,
)


@settings(max_examples=25)
@given(steps=STEPS)
def test_the_counts_are_those_of_a_set(
    steps: Sequence[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Messages that come again are counted once, those removed not at all, over restarts."""
    path = tmp_path_factory.mktemp("law") / "recent.db"
    at, told, removed = 0, 0, set[int]()
    store = made(path, history=ON)
    store.start()
    now_s = wall_of(store).now_s
    for step, k in [("tell", 5), *steps, ("restart", 0)]:
        if step == "tell":
            offer(store, tweets(["good day"] * k, at))  # before the file is open, too
            at, told = at + k, max(told, at + k)
        elif step == "rewind":
            at = max(0, at - k)
        elif step in {"remove", "forget"}:
            settle(store)
            removed |= {k} if k < told else set()
            store.remove(f"m{k}") if step == "remove" else forget(store, [f"m{k}"])
            settle(store)
        elif step == "wait":
            now_s += 45
            wall_of(store).now_s = now_s
        else:
            settle(store)
            store.stop()
            store = made(path, history=ON)
            wall_of(store).now_s = now_s
            store.start()
    settle(store)
    left = [i for i in range(told) if i not in removed]
    assert totals(store) == [sum(i % 2 == c for i in left) for c in (0, 1)]
    store.stop()


def test_a_kill_at_any_statement_neither_loses_nor_doubles(tmp_path: Path) -> None:
    """Copied as a kill would leave it, and told all again: each message is counted once."""
    path, copies = tmp_path / "recent.db", tmp_path / "copies"
    made_copies: list[Path] = []

    def copy(_: str) -> None:
        folder = copies / str(len(made_copies))
        folder.mkdir(parents=True)
        for each in tmp_path.glob("recent.db*"):
            if each.suffix != ".db-shm":
                shutil.copy(each, folder / each.name)
        made_copies.append(folder / "recent.db")

    with running(path, history=ON) as store:
        tell(store, ["good day"] * 5)
        file = store._writer.file
        assert file is not None
        file._db.set_trace_callback(copy)
        tell(store, ["good day"] * 5, first=5)
        store.remove("m3")
        settle(store)
        file._db.set_trace_callback(None)
    assert len(made_copies) > 15
    outcomes = set()
    for copied in made_copies:
        with running(copied, history=ON) as store:
            tell(store, ["good day"] * 10)
            is_removed = store.get("m3") is None
            outcomes.add(is_removed)
            assert totals(store) == [5, 5 - is_removed]
    assert outcomes == {False, True}


def test_a_deletion_that_comes_again_takes_out_nothing_more(tmp_path: Path) -> None:
    """After a restart the stream may bring a message and its deletion a second time."""
    path = tmp_path / "recent.db"
    for _ in range(3):
        with running(path, history=ON) as store:
            tell(store, ["good day"] * 4)
            forget(store, ["m0"])
            settle(store)
            assert totals(store) == [1, 2]


@pytest.mark.parametrize("n_at_once", [1, 3, 10])
def test_a_deletion_in_a_recreated_topic_takes_out_what_was_counted(
    tmp_path: Path, n_at_once: int
) -> None:
    """Offsets that were counted of the old topic are not of the new one, nor after a restart."""
    path = tmp_path / "recent.db"
    with running(path, history=ON) as store:
        tell(store, [{"id": f"old{k}", "text": "good day"} for k in range(6)])
        assert sum(totals(store)) == 6
        new = [{"id": f"new{k}", "text": "good day"} for k in range(10)]
        for k in range(0, 10, n_at_once):
            tell(store, new[k : k + n_at_once], k)
        assert sum(totals(store)) == 10
        for k in (1, 2):
            store.remove(f"new{k}")
        settle(store)
        assert sum(totals(store)) == 10
    with running(path, history=ON) as store:
        for name in ("new3", "new5", "new6"):
            store.remove(name)
        settle(store)
        assert sum(totals(store)) == 9


def test_a_deletion_takes_out_what_is_left_of_the_old_topic(tmp_path: Path) -> None:
    """Messages of the old topic were counted, whether or not the new one has come so far."""
    with running(tmp_path / "recent.db", history=ON) as store:
        tell(store, [{"id": f"old{k}", "text": "good day"} for k in range(6)])
        tell(store, [{"id": f"new{k}", "text": "good day"} for k in range(3)])
        for name in ("old4", "new0"):
            store.remove(name)
        settle(store)
        assert sum(totals(store)) == 5


def test_a_deletion_takes_out_of_the_minute_that_was_counted(tmp_path: Path) -> None:
    """Also if the clock was put back, and after a restart."""
    path = tmp_path / "recent.db"
    with running(path, history=ON) as store:
        for first, ago_s in ((0, 0), (10, 1_800), (20, 0)):
            wall_of(store).now_s = MINUTE_S + 1_800.0 - ago_s
            tell(store, ["good day"] * 10, first)
        assert whole(store).counts == [[5, 5], [10, 10]]
        forget(store, [f"m{k}" for k in range(10, 16)])
        settle(store)
        assert whole(store).counts == [[2, 2], [10, 10]]
    with running(path, history=ON) as store:
        forget(store, [f"m{k}" for k in range(16, 24)])
        settle(store)
        assert whole(store).counts == [[0, 0], [8, 8]]


def test_what_is_stored_as_it_comes_again_stays_counted(tmp_path: Path) -> None:
    """Of messages that were counted, and not sampled, others' counts are not taken.

    A file of before does not say what was left out: then it is stored as it comes again.
    """
    path = tmp_path / "recent.db"
    with running(path, history=ON, rate_max_per_s=10.0) as store:
        wall_of(store).now_s = float(MINUTE_S)
        tell(store, ["good day"] * 1_000)
        n_held = store.state().n_messages
        assert n_held < 900
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE offered")
    for _ in range(2):  # and still so after a further start
        with running(path, history=ON) as store:
            wall_of(store).now_s = MINUTE_S + 300.0
            tell(store, ["good day"] * 1_030)
            assert store.state().n_messages == 1_030
            assert whole(store).counts == [[500, 500], [15, 15]]
    with running(path, history=ON) as store:
        forget(store, [f"m{k}" for k in range(1_000)])
        settle(store)
        assert store.state().n_messages == 30
        first, second = whole(store).counts
        assert (sum(first), second) == (1_000 - n_held, [15, 15])
        forget(store, [f"m{k}" for k in range(1_000, 1_030)])
        settle(store)
        assert whole(store).counts == [first, [0, 0]]


def test_labelled_and_judged_messages_are_counted_apart() -> None:
    """Those that are judged on another thread come late, and are counted all the same."""
    with running(None, history=ON) as store:
        first = tweets([{"text": "a"}, {"text": "b", "label": None}])
        second = tweets([{"text": "c"}, {"text": "d", "label": None}], first=2)
        for told in (first, second, first):
            store.offer(told, told.to_learn, np.log([[0.2, 0.8]]))
        for told in (first, second, second):
            store.offer(told, told.to_predict, np.log([[0.8, 0.2]]))
        settle(store)
        assert totals(store) == [2, 2]


def test_a_full_disk_delays_the_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written is counted when there is room, and a removal takes out one."""
    with running(tmp_path / "recent.db", history=ON) as store:
        tell(store, ["good day"] * 4)

        def refuse(*_: object) -> int:
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as full:
            full.setattr("consumers.search.database.delete", refuse)
            store.remove("m0", wait=False)
            offer(store, tweets(["good day"] * 4, first=4))
            while store.state().trouble is None:
                store._sampler.closed.wait(0.005)
            assert totals(store) == [2, 2]
        settle(store)
        assert totals(store) == [3, 4]


def test_so_many_steps_are_kept_as_are_set(tmp_path: Path) -> None:
    """The newest that have messages; of what is older the longer steps still know."""
    path = tmp_path / "recent.db"
    with running(path, history=ON.model_copy(update={"minutes_max": 60})) as store:
        wall = wall_of(store)
        for minute in range(70):
            wall.now_s = MINUTE_S + 60.0 * minute
            tell(store, ["good day"], first=minute)
        found = whole(store)
        assert list(found.begins_s) == [MINUTE_S + 60 * k for k in range(10, 70)]
        assert found.kept_from_s == MINUTE_S + 600
        assert np.sum(whole(store, "hour").counts) == 70
        assert store.history(MINUTE_S + 600, MINUTE_S + 9_000, None).step_s == 60
        assert store.history(MINUTE_S, MINUTE_S + 9_000, None).step_s == 3_600
        assert store.history(MINUTE_S, MINUTE_S + 9_000 * 3_600, None).step_s == 86_400


@pytest.mark.parametrize("step", ["minute", "hour", "day"])
def test_steps_of_a_clock_that_ran_ahead_make_room(tmp_path: Path, step: str) -> None:
    """Once the clock is right they leave for the steps that come, and these for none of them."""
    path, length_s = tmp_path / "recent.db", STEPS_S[step]
    now_s, ahead_s = MINUTE_S // length_s * length_s, 400 * 86_400
    settings = ON.model_copy(update={f"{step}s_max": 60})
    with running(path, history=settings) as store:
        for first, is_ahead in ((0, False), (100, True), (200, False)):
            for k in range(first, first + 70):
                wall_of(store).now_s = float(now_s + length_s * k + ahead_s * is_ahead)
                tell(store, ["good day"], first=k)
            found = whole(store, step)
            newest = [now_s + length_s * k + ahead_s * is_ahead for k in range(first + 10, k + 1)]
            assert list(found.begins_s) == newest
            assert found.kept_from_s == newest[0]


def sixty_steps(path: Path, step: str) -> CountsOverTime:
    """Write a file that keeps 60 steps of 130 of a length; return what it says of them."""
    with running(path, history=ON.model_copy(update={f"{step}s_max": 60})) as store:
        for k in range(130):
            wall_of(store).now_s = MINUTE_S + float(STEPS_S[step]) * k
            tell(store, ["good day"], first=k)
        return whole(store, step)


@pytest.mark.parametrize("step", ["minute", "hour", "day"])
def test_steps_that_are_gone_stay_unknown_under_a_larger_bound(tmp_path: Path, step: str) -> None:
    """Their counts are not zero: the answer says since when steps of this length are known."""
    path = tmp_path / "recent.db"
    before = sixty_steps(path, step)
    assert len(before.begins_s) == 60
    with running(path, history=ON) as store:
        found = whole(store, step)
        assert found == before
        assert found.kept_from_s == found.begins_s[0]
        longer = [each for each in STEPS_S if STEPS_S[each] > STEPS_S[step]]
        assert [whole(store, each).kept_from_s for each in longer] == [None] * len(longer)
        for each in longer[:1]:
            chosen = store.history(MINUTE_S, MINUTE_S + 130 * STEPS_S[step], None)
            assert chosen.step_s == STEPS_S[each]


@pytest.mark.parametrize("step", ["minute", "hour"])
def test_longer_steps_tell_what_a_file_from_before_has_forgotten(tmp_path: Path, step: str) -> None:
    """It did not note that steps had gone; of what it knows in full nothing is doubted."""
    path = tmp_path / "recent.db"
    sixty_steps(path, step)
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE forgotten")
    db.close()
    with running(path, history=ON) as store:
        known = {each: whole(store, each).kept_from_s for each in STEPS_S}
        assert known == dict.fromkeys(STEPS_S) | {step: whole(store, step).begins_s[0]}


def test_what_came_while_it_was_off_is_not_taken_out(tmp_path: Path) -> None:
    """A row that was not counted leaves no gap when it is removed."""
    path = tmp_path / "recent.db"
    for first, history in ((0, ON), (4, None), (8, ON)):
        with running(path, history=history) as store:
            assert store.has_history == (history is not None)
            tell(store, ["good day"] * 4, first)
    with running(path, history=ON) as store:
        assert totals(store) == [4, 4]
        store.remove("m4")
        assert totals(store) == [4, 4]
        store.remove("m8")
        assert totals(store) == [3, 4]


def test_classes_may_join(tmp_path: Path) -> None:
    """Counts of before have none of the class that joined."""
    path = tmp_path / "recent.db"
    with running(path, history=ON) as store:
        tell(store, ["good day"] * 3)
    with running(path, history=ON, classes=(*CLASSES, "sport")) as store:
        told = tweets(["goal day"], first=3)
        store.offer(told, told.to_learn, np.log([[0.1, 0.1, 0.8]]))
        settle(store)
        assert totals(store) == [2, 1, 1]
    with running(path, history=ON) as store:
        assert totals(store) == [2, 1]
        assert clock_of(store)() == 100.0


def test_messages_beyond_those_that_may_wait_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the file is open so many wait to be counted; how many more came stands in the log."""
    monkeypatch.setattr("consumers.search.writer._EARLY_MAX", 3)
    counter = MessageCounter({60: 10})
    for first in (0, 2, 4):
        told = tweets([{"text": "a"}] * 2, first)
        counter.add(told, np.arange(2), np.log(np.full((2, 2), 0.5)), BEGAN_S * 1_000)
    with capture_logs() as logs:
        counter.begin({})
    assert counter.take().by_minute[MINUTE_S].sum() == 4
    (told_of,) = logs
    assert told_of["event"] == "history_incomplete"
    assert told_of["detail"].startswith("2 messages came before recent.db was open")


@pytest.mark.parametrize("n_gone", [1, 62])
def test_what_is_known_after_a_restart_is_what_was_known(tmp_path: Path, n_gone: int) -> None:
    """When a row came that was deleted is not known any more; it was not in 1970."""
    path = tmp_path / "recent.db"
    ever = (0, 2 * BEGAN_S)

    def known_from_s(store: RecentStore) -> int | None:
        return store.matches_over_time(parse("good -x "), None, ever, "hour").stored_from_s

    with running(path, messages_max=1_000, history=ON) as store:
        for first in range(0, 1_100, 50):
            tell(store, ["good day"] * 50, first)
        wanted = known_from_s(store)
        oldest = store.chunks()[0].columns["offset"][:n_gone].tolist()
        forget(store, [f"m{offset}" for offset in oldest])
        settle(store)
        assert known_from_s(store) == wanted
    with running(path, messages_max=1_000, history=ON) as store:
        assert known_from_s(store) == wanted
