"""Words over time: what is stored and what was counted as it left make one, exact or bounded."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.config.sections import HistorySettings
from consumers.search import history
from consumers.search.history import STEPS_S, StepWords
from consumers.search.matching import MatchesOverTime, indexed_word
from consumers.search.query_syntax import SlowQueryError, parse
from consumers.search.store import RecentStore
from tests.consumers.search.stores import (
    CLASSES,
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

BEGAN_S = 1_700_000_000
MINUTE_S = BEGAN_S // 60 * 60
ON = HistorySettings()
SMALL: dict[str, Any] = {"messages_max": 64}  # sixteen chunks of four
WORDS = ("good", "day", "rain", "sun", "fog", "ice")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have words of two messages of a chunk and step counted."""
    monkeypatch.setattr(history, "WORD_MESSAGES_MIN", 2)


def over_time(store: RecentStore, text: str, step: str | None = "minute") -> MatchesOverTime:
    """Return the counts of a query over all time, the word that is typed last being whole."""
    return store.matches_over_time(store.parse(f"{text} "), None, (0, 4 * BEGAN_S), step)


def total(found: MatchesOverTime) -> list[int]:
    """Return the sums by class."""
    sums: list[int] = np.array(found.counts, np.int64).reshape(-1, 2).sum(axis=0).tolist()
    return sums


@pytest.mark.usefixtures("few")
def test_a_word_is_counted_for_as_long_as_the_daemon_has_run(tmp_path: Path) -> None:
    """Long after its messages have left, over a restart; what is stored is added once."""
    path = tmp_path / "recent.db"
    texts = ["Good day, good #Rain", "good sun"] * 50
    for first in range(0, 400, 100):
        with running(path, history=ON, **SMALL) as store:
            wall_of(store).now_s = MINUTE_S + 3_600.0 * (first // 100)
            tell(store, texts, first)
    with running(path, history=ON, **SMALL) as store:
        assert store.state().n_messages <= 64
        for step, n in (("minute", 4), ("hour", 4), ("day", 2)):
            for word, counts in (("GOOD", [200, 200]), ("rain", [200, 0]), ("sun", [0, 200])):
                found = over_time(store, word, step)
                assert (found.is_word, found.kept_from_s) == (True, None)
                assert found.stored_from_s == MINUTE_S + 3 * 3_600
                assert total(found) == counts
                assert set(found.at_most) == {None}
                assert len(found.counts) == len(found.n_of) == n
                assert sum(found.n_of) == sum(found.n_all) == 400
        never = over_time(store, "never", "hour")
        assert total(never) == [0, 0]
        assert never.at_most[-1] is not None
        assert store.history(0, 4 * BEGAN_S, "hour").counts == [[50, 50]] * 4


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.lists(st.sets(st.sampled_from(WORDS)), max_size=30)),
        st.tuples(st.just("tell again"), st.integers(1, 100)),
        st.tuples(st.sampled_from(["remove", "forget", "correct"]), st.integers(0, 60)),
        st.tuples(st.just("wait"), st.sampled_from([20, 60, 1_500, 40_000])),
        st.tuples(st.just("restart"), st.sampled_from([1, 2, 100])),
    ),
    min_size=1,
    max_size=12,
)


def run(
    steps: Sequence[tuple[str, Any]], path: Path
) -> tuple[RecentStore, list[tuple[int, int, set[str]]]]:
    """Do what steps say; return the store, and what stays of each message: time, class, words."""
    told: list[tuple[int, int, set[str]] | None] = []
    left = set[str]()  # ids of messages that have left the store: if they came again, too
    forgotten: list[int] = []
    texts: list[str] = []
    now_s = float(BEGAN_S)
    store = made(path, history=ON, **SMALL)
    store.start()
    for name, what in steps:
        wall_of(store).now_s = now_s
        if name == "tell":
            new = [" ".join(sorted(words)) for words in what]
            tell(store, new, len(told))
            told += [(int(now_s), i % 2, words) for i, words in enumerate(what, len(told))]
            texts += new
        elif name == "tell again":
            first = max(0, len(told) - what)
            tell(store, texts[first:], first)
            forget(store, [f"m{i}" for i in forgotten if i >= first])  # which comes again, too
            settle(store)
        elif name == "wait":
            now_s += what
        elif name == "restart":
            store.stop()
            store = made(path, history=ON.model_copy(update={"words_max": what}), **SMALL)
            store.start()
            settle(store)
        elif told:
            i = what % len(told)
            is_held = store.get(f"m{i}") is not None and f"m{i}" not in left
            if name == "correct":
                store.correct(f"m{i}", CLASSES[i // 2 % 2], None)
                continue
            store.remove(f"m{i}") if name == "remove" else forget(store, [f"m{i}"])
            settle(store)
            told[i] = None if is_held else told[i]
            forgotten += [i] * (is_held and name == "forget")
        if name in {"tell", "tell again"}:
            left |= {f"m{k}" for k in range(len(told))} - set(ids(store, "", limit=1_000))
    return store, [each for each in told if each is not None]


@settings(max_examples=20)
@given(steps=STEPS, n_more=st.integers(0, 100))
def test_counts_are_those_of_a_set_or_bounded(
    steps: Sequence[tuple[str, Any]], n_more: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of each word and step: at least the counts, at most the bound; without one just these."""
    path = tmp_path_factory.mktemp("law") / "recent.db"
    more = [{WORDS[i % 2]} for i in range(n_more)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "WORD_MESSAGES_MIN", 2)
        store, told = run([*steps, ("tell", more), ("restart", 100)], path)
        try:
            for step, step_s in STEPS_S.items():
                of, of_word = Counter[int](), Counter[tuple[str, int, int]]()
                for at_s, label, words in told:
                    begin_s = at_s // step_s * step_s
                    of[begin_s] += 1
                    of_word.update((word, begin_s, label) for word in words)
                for word in WORDS:
                    found = over_time(store, word, step)
                    assert dict(zip(found.begins_s, found.n_of, strict=True)) == of
                    rows = zip(found.begins_s, found.counts, found.at_most, strict=True)
                    for begin_s, counts, at_most in rows:
                        true = [of_word[word, begin_s, label] for label in (0, 1)]
                        if at_most is None:
                            assert counts == true
                        else:
                            assert np.all(np.array(counts) <= true)
                            assert sum(true) <= at_most
        finally:
            store.stop()


@pytest.mark.usefixtures("few")
def test_a_kill_at_any_statement_neither_loses_nor_doubles(tmp_path: Path) -> None:
    """Copied as a kill would leave it amid a drop, and told again: each message counts once."""
    path, copies = tmp_path / "recent.db", tmp_path / "copies"
    made_copies: list[Path] = []

    def copy(statement: str) -> None:
        if not statement.startswith(("DROP", "DELETE", "INSERT", "CREATE", "COMMIT")):
            return
        folder = copies / str(len(made_copies))
        folder.mkdir(parents=True)
        for each in tmp_path.glob("recent.db*"):
            if each.suffix != ".db-shm":
                shutil.copy(each, folder / each.name)
        made_copies.append(folder / "recent.db")

    with running(path, history=ON, **SMALL) as store:
        tell(store, ["good day"] * 66)
        file = store._writer.file
        assert file is not None
        file._db.set_trace_callback(copy)
        tell(store, ["good day"] * 6, first=66)
        file._db.set_trace_callback(None)
    assert len(made_copies) > 20
    for copied in made_copies[::4]:
        with running(copied, history=ON, **SMALL) as store:
            tell(store, ["good day"] * 10, first=62)
            found = over_time(store, "day")
            assert (sum(found.n_of), total(found)) == (72, [36, 36])
            assert store.state().n_messages < 72


@pytest.mark.usefixtures("few")
def test_what_comes_again_after_it_left_counts_once(tmp_path: Path) -> None:
    """As after a kill amid a fast stream: it is shown again, and its deletion takes out nothing."""
    path = tmp_path / "recent.db"
    with running(path, history=ON, **SMALL) as store:
        wall_of(store).now_s = MINUTE_S
        tell(store, ["good day"] * 400)
    for _ in range(2):
        with running(path, history=ON, **SMALL) as store:
            wall_of(store).now_s = MINUTE_S + 60.0
            tell(store, ["good day"] * 100, first=300)
            again, other, *_ = ids(store, "day")
            assert store.get(again).arrived_ms == 1000 * (MINUTE_S + 60)  # type: ignore[union-attr]
            found = over_time(store, "day")
            assert (sum(found.n_of), total(found)) == (400, [200, 200])
            store.remove(again)
            forget(store, [other])
            settle(store)
            assert np.sum(store.history(0, 4 * BEGAN_S, "day").counts, axis=0).tolist() == [200] * 2
    with running(path, history=ON, **SMALL) as store:
        tell(store, ["good day"] * 100, first=400)
        assert store.get("m399") is None
        found = over_time(store, "day")
        assert (sum(found.n_of), total(found)) == (500, [250, 250])


@pytest.mark.usefixtures("few")
def test_a_recreated_topic_counts_once_its_offsets_pass(tmp_path: Path) -> None:
    """Its messages are stored and shown from the first; words are counted as all messages are."""
    with running(tmp_path / "recent.db", history=ON, **SMALL) as store:
        tell(store, ["good day"] * 200)
        for first in range(0, 300, 50):
            new = [{"id": f"new{k}", "text": "good day"} for k in range(first, first + 50)]
            tell(store, new, first)
            assert ids(store, "day")[0] == f"new{first + 49}"
            found = over_time(store, "day")
            n = max(200, first + 50)
            assert (sum(found.n_of), sum(found.n_all), sum(total(found))) == (n, n, n)


@pytest.mark.usefixtures("few")
def test_an_empty_file_knows_that_messages_have_left(tmp_path: Path) -> None:
    """After a restart, too: stored is not "since the first", and no key is given twice."""
    path, aged = tmp_path / "recent.db", {"messages_max": 64, "age_max_s": 240.0}
    with running(path, **aged) as store:
        tell(store, ["good day"] * 8)
    with running(path, history=ON, **aged) as store:
        tell(store, ["good day"] * 2, first=8)
        newest = store.get("m9")
        wall_of(store).now_s += 1_000
        settle(store)
        while store.held_rows() or store._writer.file.published:  # type: ignore[union-attr]
            settle(store)
    with running(path, history=ON, **aged) as store:
        wall_of(store).now_s += 2_000
        tell(store, ["good day"] * 4, first=10)
        row = store.get("m10")
        assert newest is not None
        assert row is not None
        assert row.key > newest.key
        assert over_time(store, "day").stored_from_s == BEGAN_S + 2_000
        forget(store, ["m10"])
        settle(store)
        assert np.sum(store.history(0, 4 * BEGAN_S, "day").counts) == 5


@pytest.mark.deep
def test_words_take_no_room_of_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many bytes they have, as many messages are held; the bytes are known exactly."""
    monkeypatch.setattr(history, "WORD_MESSAGES_MIN", 1)
    monkeypatch.setattr("consumers.search.chunks._BYTES_MAX", 3_000_000)
    path = tmp_path / "recent.db"
    for first in (0, 240):
        with running(path, history=ON, **SMALL) as store:
            for k in range(first, first + 240, 4):
                wall_of(store).now_s = MINUTE_S + 60.0 * k
                texts = [" ".join(f"w{i}of{m}" for i in range(500)) for m in range(k, k + 4)]
                tell(store, texts, first=k)
            assert store.state().n_messages > 56
    with sqlite3.connect(path) as db:
        n_bytes = history.message_bytes(db)
        db.execute("DROP TABLE word_history")
        db.execute("UPDATE left_chunks SET word_bytes = 0")
        assert 0 <= n_bytes - history.message_bytes(db) <= 3 * 4_096
    db.close()


def test_many_classes_have_fewer_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of a step, and of a chunk as it leaves, are bounded by cells; the rest has a bound."""
    monkeypatch.setattr(history, "WORD_MESSAGES_MIN", 1)
    texts = [" ".join(WORDS[: 1 + i % 6]) for i in range(100)]
    for name, n_kept in (("_STEP_CELLS_MAX", 3), ("_CHUNK_CELLS_MAX", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(history, name, 2 * n_kept)
            with running(tmp_path / f"{name}.db", history=ON, **SMALL) as store:
                for minute in range(2):
                    wall_of(store).now_s = MINUTE_S + 60.0 * minute
                    tell(store, texts, first=100 * minute)
                found = [over_time(store, word) for word in WORDS]
        true = [sum(len(text.split()) > k for text in texts) for k in range(6)]
        for word, n in zip(found, true, strict=True):
            assert sum(word.counts[0]) <= n <= (word.at_most[0] or sum(word.counts[0]))
        listed = [k for k, word in enumerate(found) if sum(word.counts[0])]
        assert listed == list(range(n_kept))


def test_reading_words_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nothing is stored, and only counts of words are read."""
    with running(tmp_path / "recent.db", history=ON, messages_max=64, age_max_s=240.0) as store:
        tell(store, ["good day"] * 8)
        wall_of(store).now_s += 1_000
        while store._writer.file.published:  # type: ignore[union-attr]
            settle(store)
        assert sum(over_time(store, "day").n_of) == 8
        monkeypatch.setattr("consumers.search.store.LIMIT_S", 0.0)
        with pytest.raises(SlowQueryError, match="took longer than"):
            over_time(store, "day")


def test_an_index_is_asked_of_single_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """To fold a word takes an index in memory; no other query needs one."""
    asked: list[str] = []
    monkeypatch.setattr("consumers.search.matching.indexed_word", asked.append)
    with running(None, history=ON) as store:
        tell(store, ["good day"])
        for text in ("good day", "-good", "", "good"):
            over_time(store, text)
    assert asked == ["good"]


def test_rare_and_removed_words_are_not_kept(tmp_path: Path) -> None:
    """A word of four messages, one of signs and one that was removed leave with their messages."""
    path = tmp_path / "recent.db"
    texts = ["good xylophonist"] * 4 + ["good day #zither"] * 6 + ["good theremin"] * 6
    with running(path, history=ON, messages_max=16 * 32) as store:
        tell(store, texts)
        forget(store, [f"m{k}" for k in range(10, 16)])
        settle(store)
        tell(store, ["good"] * 600, first=16)
        store.stop()
        files = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert b"xylophonist" not in files
    assert b"theremin" not in files
    with running(path, history=ON, messages_max=16 * 32) as store:
        found = over_time(store, "xylophonist")
        # Four chunks have left, each with words of up to four messages that were left out.
        assert (total(found), found.at_most) == ([0, 0], [16])
        assert total(over_time(store, "zither")) == [3, 3]
        assert total(over_time(store, "good")) == [305, 305]


def test_what_is_too_old_is_counted_until_it_leaves(tmp_path: Path) -> None:
    """Messages that are too old to be shown are neither lost nor counted twice."""
    with running(tmp_path / "recent.db", history=ON, messages_max=16 * 8, age_max_s=240.0) as store:
        for k in range(12):
            wall_of(store).now_s = MINUTE_S + 60.0 * k
            tell(store, ["good day"] * 8, first=8 * k)
            assert total(over_time(store, "day")) == [4 * k + 4] * 2
        assert store.state().n_messages < 96
        wall_of(store).now_s += 1_000
        settle(store)
        while store.state().n_messages:  # a chunk a turn
            assert total(over_time(store, "day")) == [48, 48]
            settle(store)
        found = over_time(store, "day")
        assert total(found) == [48, 48]
        assert found.begins_s == [MINUTE_S + 60 * k for k in range(12)]


@pytest.mark.usefixtures("few")
def test_only_a_word_reaches_back(tmp_path: Path) -> None:
    """Of any other query the stored messages are counted, and the answer says since when."""
    with running(tmp_path / "recent.db", history=ON, **SMALL) as store:
        for k in range(40):
            wall_of(store).now_s = MINUTE_S + 60.0 * k
            tell(store, [{"text": "good day #rain", "lang": "en"}] * 4, first=4 * k)
        oldest_s = MINUTE_S + 60 * (40 - store.state().n_messages // 4)
        n = store.state().n_messages // 2
        word = over_time(store, "good label:positive")
        assert (word.is_word, total(word), word.kept_from_s) == (True, [0, 80], None)
        for text in ("good day", '"good day"', "-fog", "#rain", "go*", "good lang:en"):
            found = over_time(store, text)
            assert (found.is_word, total(found)) == (False, [n, n]), text
            assert found.kept_from_s == found.stored_from_s == oldest_s
        named = store.matches_over_time(store.parse("good "), "en", (0, 4 * BEGAN_S), "minute")
        assert (named.is_word, total(named)) == (False, [n, n])
        typed = store.matches_over_time(parse("goo"), None, (0, 4 * BEGAN_S), "minute")
        assert not typed.is_word
        early = store.matches_over_time(
            store.parse("good "), None, (MINUTE_S + 61, MINUTE_S + 179), "minute"
        )
        assert list(early.begins_s) == [MINUTE_S + 60, MINUTE_S + 120]
        assert early.counts == [[2, 2], [2, 2]]


@pytest.mark.usefixtures("few")
def test_so_many_steps_and_words_are_kept_as_are_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of minutes the newest; of a step that is over the most frequent words, others are bounded."""
    monkeypatch.setattr(history, "WORD_MINUTES_MAX", 5)
    one = ON.model_copy(update={"words_max": 1})
    with running(tmp_path / "recent.db", history=one, **SMALL) as store:
        for k in range(40):
            wall_of(store).now_s = MINUTE_S + 60.0 * k
            tell(store, ["good day", "good day", "good", "fine"], first=4 * k)
        found = over_time(store, "good")
        oldest_s = found.stored_from_s
        assert oldest_s is not None
        assert found.kept_from_s == found.begins_s[0] == oldest_s - 300
        hours = over_time(store, "good", "hour")
        assert (hours.kept_from_s, total(hours)) == (None, [80, 40])
        minutes = over_time(store, "day")
        assert (minutes.counts[0], minutes.at_most[0]) == ([0, 0], 2)
        assert minutes.counts[-1] == [1, 1]
        span = (MINUTE_S, MINUTE_S + 3_000)
        assert store.matches_over_time(store.parse("good "), None, span, None).step_s == 3_600


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("in_minute", "n_chunks"), [(4, 2), (2, 1)])
def test_steps_that_are_gone_stay_unknown_under_a_larger_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_minute: int, n_chunks: int
) -> None:
    """Whether they were deleted, or a chunk that left alone had more steps than are kept."""
    path = tmp_path / "recent.db"
    with monkeypatch.context() as small, running(path, history=ON, **SMALL) as store:
        small.setattr(history, "WORD_MINUTES_MAX", 1)
        told = 0
        while told - store.state().n_messages < 4 * n_chunks:
            wall_of(store).now_s = MINUTE_S + 60.0 * (told // in_minute)
            tell(store, ["good day"] * in_minute, first=told)
            told += in_minute
        assert told - store.state().n_messages == 4 * n_chunks
        before = over_time(store, "good").kept_from_s
        assert before == MINUTE_S + 60
    with running(path, history=ON, **SMALL) as store:
        assert over_time(store, "good").kept_from_s == before
        assert over_time(store, "good", "hour").kept_from_s is None


@pytest.mark.usefixtures("few")
def test_words_of_a_clock_that_ran_ahead_make_room(tmp_path: Path) -> None:
    """Once the clock is right they leave for the words of the steps that come."""
    path, ahead_s = tmp_path / "recent.db", 40 * 86_400
    with running(path, history=ON.model_copy(update={"minutes_max": 60}), **SMALL) as store:
        for first, is_ahead in ((0, True), (120, False)):
            for k in range(first, first + 120):
                wall_of(store).now_s = MINUTE_S + 60.0 * k + ahead_s * is_ahead
                tell(store, ["good day"] * 4, first=4 * k)
    with sqlite3.connect(path) as db:
        steps = db.execute("SELECT begins_s FROM word_history WHERE step_s = 60").fetchall()
    db.close()
    n_held = SMALL["messages_max"] // 4
    newest = [MINUTE_S + 60 * k for k in range(240 - n_held - 60, 240 - n_held)]
    assert sorted(begins_s for (begins_s,) in steps) == newest


def test_turned_off_and_on_again_it_says_since_when(tmp_path: Path) -> None:
    """Off, nothing of words stays; on again, what left meanwhile is not known, and that is said."""
    path = tmp_path / "recent.db"
    off = ON.model_copy(update={"words_max": 0})
    for first, history_ in ((0, ON), (200, off), (400, ON)):
        with running(path, history=history_, **SMALL) as store:
            for k in range(0, 200, 20):
                wall_of(store).now_s = MINUTE_S + 60.0 * (first + k)
                tell(store, ["good day"] * 20, first=first + k)
            found = over_time(store, "good")
            if history_ is off:
                assert not found.is_word
                with sqlite3.connect(path) as db:
                    assert db.execute("SELECT count(*) FROM word_history").fetchone() == (0,)
                db.close()
    assert found.is_word
    assert found.kept_from_s == found.begins_s[0] == MINUTE_S + 60 * 320


@pytest.mark.parametrize("n_gone", [1, 4])
def test_turned_on_it_says_since_when_though_the_oldest_was_deleted(
    tmp_path: Path, n_gone: int
) -> None:
    """When a row came that was deleted is not known any more; all that left came before others."""
    path = tmp_path / "recent.db"
    with running(path, history=ON.model_copy(update={"words_max": 0}), **SMALL) as store:
        for k in range(100):
            wall_of(store).now_s = MINUTE_S + 60.0 * k
            tell(store, ["good day"], first=k)
        oldest = store.chunks()[0]
        assert oldest.number > 1
        offsets = oldest.columns["offset"][:n_gone].tolist()
        forget(store, [f"m{offset}" for offset in offsets])
        settle(store)
    with running(path, history=ON, **SMALL) as store:
        assert over_time(store, "good").kept_from_s == MINUTE_S + 60 * (offsets[-1] + 1)


@pytest.mark.usefixtures("few")
def test_a_file_from_before_goes_on(tmp_path: Path) -> None:
    """Its tables are made; words are known since its oldest message came."""
    path = tmp_path / "recent.db"
    with running(path, history=ON, **SMALL) as store:
        for k in range(0, 100, 4):
            wall_of(store).now_s = MINUTE_S + 60.0 * k
            tell(store, ["good day"] * 4, first=k)
        oldest_s = over_time(store, "good").stored_from_s
        assert oldest_s is not None
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE word_history")
        db.execute("DROP TABLE words_since")
    db.close()
    with running(path, history=ON, **SMALL) as store:
        wall_of(store).now_s = MINUTE_S + 60.0 * 100
        tell(store, ["good day"] * 40, first=100)
        found = over_time(store, "good")
        assert (found.kept_from_s, found.begins_s[0]) == (oldest_s, oldest_s)
        assert sum(total(found)) == 140 - 4 * (oldest_s - MINUTE_S) // 240


@pytest.mark.usefixtures("few")
def test_classes_may_join(tmp_path: Path) -> None:
    """Counts of before have none of the class that joined; an older model does without it."""
    path = tmp_path / "recent.db"
    with running(path, history=ON, **SMALL) as store:
        tell(store, ["good day"] * 80)
    with running(path, history=ON, classes=(*CLASSES, "sport"), **SMALL) as store:
        told = tweets(["good goal"] * 80, first=80)
        store.offer(told, told.to_learn, np.log([[0.1, 0.1, 0.8]] * 80))
        settle(store)
        assert np.sum(over_time(store, "good").counts, axis=0).tolist() == [40, 40, 80]
        assert np.sum(over_time(store, "goal").counts, axis=0).tolist() == [0, 0, 80]
    with running(path, history=ON, **SMALL) as store:
        assert total(over_time(store, "good")) == [40, 40]


LISTED = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9), max_size=8)


@given(chunks=st.lists(LISTED, min_size=1, max_size=6), n_max=st.integers(1, 6))
def test_merged_lists_bound_what_they_leave_out(chunks: list[dict[str, int]], n_max: int) -> None:
    """However short the lists: each word is in as many messages as it says, or bounded."""

    def lists() -> Iterator[StepWords]:
        for counts in chunks:
            listed = {word: n for word, n in counts.items() if n >= 3}
            yield StepWords(
                np.array([sum(counts.values())]), 2, list(listed),
                np.array(list(listed.values()), np.int64).reshape(-1, 1),
                np.zeros(len(listed), np.int64),
            ).cut(n_max)  # fmt: skip

    first, *others = lists()
    whole = first
    for other in others:
        whole = whole.merged(other).cut(n_max)
    true = sum(map(Counter, chunks), Counter[str]())
    assert whole.of.tolist() == [true.total()]
    assert len(whole.words) <= n_max
    at = {word: i for i, word in enumerate(whole.words)}
    for word in "abcdefgh":
        if word not in at:
            assert true[word] <= whole.unlisted_max
        else:
            n = int(whole.counts[at[word], 0])
            assert n <= true[word] <= n + int(whole.missed_max[at[word]])


def test_a_word_of_the_index_is_found_again_as_it_stands_there() -> None:
    """What the index folds stays the same when it is folded again; so it can be asked for."""
    letters = [chr(c) for c in range(0x80, 0x3000, 61) if chr(c).isalpha()]
    folded = [indexed_word(f"a{letter}b") for letter in letters]
    assert all(word is None or indexed_word(word) == word for word in folded)
    assert indexed_word("Ünïcode") == "unicode"
    assert indexed_word("two words") is None
    assert indexed_word("a" * 41) is None


def test_words_are_counted_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few words a block takes, the counts are the same."""
    counts = []
    for chars in (1, 10, 100_000):
        monkeypatch.setattr(history, "_BLOCK_CHARS", chars)
        with running(tmp_path / f"{chars}.db", history=ON, messages_max=320) as store:
            offer(store, tweets([" ".join(WORDS[: i % 6 + 1]) for i in range(600)]))
            settle(store)
            counts.append([over_time(store, word).counts for word in WORDS])
    assert counts[0] == counts[1] == counts[2]
    assert counts[0][0] == [[300, 300]]
