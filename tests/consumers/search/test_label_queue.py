"""The messages to label: least sure first, within a day's budget, and gone once answered."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consumers.config.sections import LabellingSettings
from consumers.search import label_queue
from consumers.search.label_queue import SHARE_MAX, LabelQueue
from consumers.search.store import RecentStore
from tests.consumers.search.stores import (
    CLASSES,
    LOG,
    Clock,
    forget,
    running,
    settle,
    tweets,
    wall_of,
)

DAY_MS = 86_400_000
NOON_MS = 1_699_876_800_000  # of a day before the stores' clock
EVEN = np.log([[0.5, 0.5]])


def tell(
    store: RecentStore, shares: Sequence[float], first: int = 0, **fields: Sequence[Any]
) -> None:
    """Store messages without labels, each judged positive with one of these probabilities."""
    names = list(fields)
    values = zip(*fields.values(), strict=True) if fields else itertools.repeat(())
    rows = [
        {"text": f"text {first + i}", "label": None, "created_at": NOON_MS}
        | dict(zip(names, own, strict=True))
        for i, (_, own) in enumerate(zip(shares, values, strict=False))
    ]
    told = tweets(rows, first)
    assert len(told.to_predict) == len(rows)
    share = np.array(shares)
    store.offer(told, told.to_predict, np.log(np.stack([1 - share, share], axis=1)))
    settle(store)


def queue_of(store: RecentStore, **settings: Any) -> LabelQueue:
    """Return the queue of a store, which is worked out again each time."""
    given = {"enabled": True, "random_share": 0.0} | settings
    return LabelQueue(LabellingSettings(**given), store, thread_time=lambda: 0.0)


def wanted(queue: LabelQueue) -> list[str]:
    """Return the ids to label, in their order."""
    return [each.row.id for each in queue.wanted(1_000)]


def test_what_the_model_is_least_sure_of_comes_first(tmp_path: Path) -> None:
    """By the margin, whichever class is ahead; a message with a label is not asked for."""
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.9, 0.45, 0.7, 0.52])
        store.offer(told := tweets(["known"], 9), told.to_learn, EVEN)
        settle(store)
        queue = queue_of(store, per_day=3)
        assert wanted(queue) == ["m3", "m1", "m2"]
        assert [round(each.margin, 6) for each in queue.wanted(1)] == [0.04]
        assert [each.row.id for each in queue.wanted(1)] == ["m3"]


def test_a_message_whose_label_came_later_is_not_asked_for(tmp_path: Path) -> None:
    """Its label is known, though it did not come with it."""
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.9, 0.45, 0.7, 0.52])
        assert wanted(queue_of(store, per_day=3)) == ["m3", "m1", "m2"]
        store.note_labels(LOG, [3], ["negative"])
        settle(store)
        assert wanted(queue_of(store, per_day=3)) == ["m1", "m2", "m0"]


def test_what_an_empty_model_judged_comes_last(tmp_path: Path) -> None:
    """It holds all classes for equally likely, whatever a message says; then it is asked for too.

    One of two classes, before another joined, is one of these; a third of three is no less.
    """
    with running(tmp_path / "recent.db", classes=(*CLASSES, "neutral")) as store:
        tell(store, [0.5, 0.5, 0.9, 0.52])
        row = {"label": None, "created_at": NOON_MS}
        told = tweets([row | {"text": f"text {i}"} for i in (4, 5)], 4)
        given = np.array([[1 / 3] * 3, [0.34, 0.33, 0.33]])
        store.offer(told, told.to_predict, np.log(given))
        settle(store)
        assert wanted(queue_of(store, per_day=4)) == ["m5", "m3", "m2", "m4"]
        assert wanted(queue_of(store, per_day=9)) == ["m5", "m3", "m2", "m4", "m0", "m1"]


def test_each_day_of_the_messages_has_its_budget(tmp_path: Path) -> None:
    """By the messages' own times; one from the future is of the day when it came."""
    times = [NOON_MS, NOON_MS, NOON_MS, NOON_MS - DAY_MS, NOON_MS + 900 * DAY_MS]
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.55, 0.52, 0.7, 0.6, 0.95], created_at=times)
        assert wanted(queue_of(store, per_day=2)) == ["m4", "m1", "m0", "m3"]
        assert wanted(queue_of(store, per_day=2, keep=3)) == ["m4", "m1", "m0"]


def test_a_day_begins_at_midnight_utc(tmp_path: Path) -> None:
    """To the millisecond: two messages before it share a budget, and two from it on another."""
    midnight_ms = NOON_MS + DAY_MS // 2
    times = [midnight_ms + apart for apart in (-2, -1, 0, 1)]
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.6, 0.55, 0.7, 0.52], created_at=times)
        assert wanted(queue_of(store, per_day=1)) == ["m3", "m1"]
        assert wanted(queue_of(store, per_day=2)) == ["m3", "m2", "m1", "m0"]


def test_the_same_words_are_asked_once(tmp_path: Path) -> None:
    """A retweet, another link and capitals make no other message; nor once it is answered."""
    texts = [
        "so sunny here http://t.co/1",
        "RT @ann: so sunny here http://t.co/2",
        "So sunny HERE!!!",
        "so rainy here",
    ]
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.51, 0.52, 0.53, 0.6], text=texts)
        queue = queue_of(store)
        assert wanted(queue) == ["m0", "m3"]
        store.correct("m0", "negative", "part")
        assert wanted(queue) == ["m3"]


def test_copies_leave_room_for_others(tmp_path: Path) -> None:
    """However many say the same and come first, the day's budget is asked for."""
    texts = ["all say this"] * 300 + [f"this says {i}" for i in range(20)]
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.51] * 300 + [0.6] * 20, text=texts)
        assert wanted(queue_of(store, per_day=5)) == ["m0", *(f"m{300 + i}" for i in range(4))]


def test_copies_of_an_answer_are_not_asked_whatever_waits(tmp_path: Path) -> None:
    """Also where fewer may wait than were answered."""
    texts = ["said before", *(f"another {i}" for i in range(9)), "said before", "new"]
    with running(tmp_path / "recent.db") as store:
        tell(store, [*[0.5] * 11, 0.9], text=texts)
        for i in range(10):
            store.correct(f"m{i}", "negative", "part")
        assert wanted(queue_of(store, keep=1)) == ["m11"]


def test_copies_on_many_days_take_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each day costs a question to the file, and no more are put than are of use."""
    monkeypatch.setattr(label_queue, "_TEXTS_MAX", 500)
    with running(tmp_path / "recent.db") as store:
        days = [NOON_MS - i * DAY_MS for i in range(200)]
        tell(store, [0.5] * 200, text=["all say this"] * 200, created_at=days)
        read, asked = store._read, itertools.count()
        monkeypatch.setattr(store, "_read", lambda *given: (next(asked), read(*given))[1])
        assert wanted(queue_of(store, keep=1)) == ["m0"]
        assert 1 < next(asked) < 20


def test_of_one_id_the_newest_is_asked(tmp_path: Path) -> None:
    """A label is given to that one; an older one would be asked for ever."""
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.5, 0.6, 0.7], id=["a", "a", "b"])
        store.offer(told := tweets([{"id": "b", "text": "known"}], 3), told.to_learn, EVEN)
        settle(store)
        queue = queue_of(store)
        assert [(each.row.id, each.row.offset) for each in queue.wanted(9)] == [("a", 1)]
        store.correct("a", "negative", "part")
        assert wanted(queue) == []
        assert queue.state().n_answered == 1


def test_answers_of_all_days_are_counted_however_few_wait(tmp_path: Path) -> None:
    """Days that are asked no more have their share in the figures."""
    times = [NOON_MS] * 3 + [NOON_MS - DAY_MS] * 3
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.9] * 6, created_at=times)
        for name, label in (("m3", "positive"), ("m4", "negative")):
            store.correct(name, label, "part")
        for keep in (1, 100):
            state = queue_of(store, keep=keep, random_share=1.0).state()
            assert (state.n_answered, state.n_random_answered, state.n_random_right) == (2, 2, 1)


def test_answers_leave_the_queue_and_count_in_the_budget(tmp_path: Path) -> None:
    """Nothing moves up; so also after a restart."""
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.51, 0.52, 0.53, 0.54, 0.55])
        queue = queue_of(store, per_day=3)
        assert wanted(queue) == ["m0", "m1", "m2"]
        store.correct("m1", "negative", "part")
        assert wanted(queue) == ["m0", "m2"]
        store.correct("m4", "negative", "part")  # nobody asked
        assert wanted(queue) == ["m0"]
        assert (queue.state().n_uncertain, queue.state().n_answered) == (1, 2)
    with running(tmp_path / "recent.db") as store:
        assert wanted(queue_of(store, per_day=3)) == ["m0"]
        assert queue_of(store, per_day=3).state().n_answered == 2


def test_labels_count_at_once(tmp_path: Path) -> None:
    """Those given and taken back since the queue was worked out are counted, as people look."""
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.51, 0.52, 0.53])
        queue = LabelQueue(LabellingSettings(enabled=True), store, clock=lambda: 0.0)
        queue._due_at_s = 1.0  # it is not worked out again
        assert queue.state().n_answered == 0
        for name in ("m0", "m1"):
            store.correct(name, "negative", "part")
        assert queue.state().n_answered == 2
        store.correct("m1", None, "part")
        assert queue.state().n_answered == 1


def test_answers_are_counted_whatever_happens_meanwhile(tmp_path: Path) -> None:
    """Given, changed and taken back, removed, dropped with a chunk; and after a restart."""
    random, first = np.random.default_rng(3), 0
    names = itertools.cycle(["negative", "positive", None])
    settings = {"messages_max": 160}  # ten messages a chunk
    for _ in range(3):
        with running(tmp_path / "recent.db", **settings) as store:
            queue = queue_of(store, keep=1)
            for _ in range(40):
                ids = [f"m{i}" for i in random.integers(max(0, first - 200), first + 1, 3)]
                if random.random() < 0.4:
                    tell(store, [0.5] * 7, first)
                    first += 7
                elif random.random() < 0.2:
                    forget(store, ids)
                    settle(store)
                else:
                    for each in ids:
                        store.correct(each, next(names), "part")
                answered = [
                    int((chunk.columns["corrected"][held] >= 0).sum())
                    for chunk, held in store.held_rows()
                ]
                assert queue.state().n_answered == sum(answered)
    assert sum(answered) > 9
    assert first > 160


def test_only_chunks_in_which_a_label_changed_are_looked_through(tmp_path: Path) -> None:
    """A question costs nothing for the rows of all others, however many are stored."""

    class Columns(dict[str, Any]):
        number = 0

        def __getitem__(self, name: str) -> Any:
            if name in {"truth", "corrected"}:
                read.append((self.number, name))
            return super().__getitem__(name)

    read: list[tuple[int, str]] = []
    with running(tmp_path / "recent.db", messages_max=160) as store:
        tell(store, [0.5] * 35)
        queue = queue_of(store)
        store.correct("m1", "negative", "part")
        for chunk in store.chunks():
            chunk.columns = columns = Columns(chunk.columns)
            columns.number = chunk.number
        assert queue._n_answered() == 1
        assert {number for number, _ in read} == {1, 2, 3, 4}
        read.clear()
        assert queue._n_answered() == 1
        assert not read
        for name in ("m22", "m23"):
            store.correct(name, "negative", "part")
        assert queue._n_answered() == 3
        assert {number for number, _ in read} == {3}
        store.correct("m22", None, "part")
        forget(store, ["m1"])
        settle(store)
        assert queue._n_answered() == 1


def test_some_are_drawn_whatever_the_model_says(tmp_path: Path) -> None:
    """The draw hangs on the ids alone, and the share that was right is counted over it."""
    n = 400
    drawn = []
    for life, shares in enumerate((np.linspace(0.51, 0.99, n), np.linspace(0.99, 0.51, n))):
        with running(tmp_path / f"recent{life}.db") as store:
            tell(store, shares.tolist())
            queue = queue_of(store, per_day=100, random_share=0.5, keep=100)
            found = queue.wanted(100)
            drawn.append([each.row.id for each in found if each.at_random])
            assert [each.at_random for each in found] == [True] * 50 + [False] * 50
            unsure = {each.row.id for each in found if not each.at_random}
            assert len(unsure & {f"m{i if life == 0 else n - 1 - i}" for i in range(60)}) == 50
            for name, label in zip(
                drawn[-1][:3], ("negative", "positive", "positive"), strict=True
            ):
                store.correct(name, label, "part")
            state = queue.state()
            assert (state.n_random, state.n_random_answered, state.n_random_right) == (47, 3, 2)
    assert drawn[0] == drawn[1]
    places = np.array([int(name[1:]) for name in drawn[0]])
    assert 0.3 < places.mean() / n < 0.7  # neighbours' checksums are alike, the draw is not


def test_a_day_that_is_answered_while_it_lasts_keeps_its_share_at_random(tmp_path: Path) -> None:
    """The draws are asked once no message can take their place; the budget holds all the while."""
    random = np.random.default_rng(1)
    with running(tmp_path / "recent.db") as store:
        queue = queue_of(store, per_day=50, random_share=0.2)
        today_ms = int(wall_of(store).now_s * 1000)
        for hour in range(6):
            times = [today_ms] * 100
            tell(store, random.uniform(0.5, 1, 100).tolist(), 100 * hour, created_at=times)
            asked = queue.wanted(1_000)
            assert [each.at_random for each in asked] == [False] * (40 if hour == 0 else 0)
            for each in asked:
                store.correct(each.row.id, "positive", "part")
            assert queue.state().n_random_answered == 0
        wall_of(store).now_s += 86_400.0
        tell(store, [0.9], 600, created_at=[today_ms + DAY_MS])
        asked = [each for each in queue.wanted(1_000) if each.row.id != "m600"]
        assert len(asked) == 10
        assert asked[0].at_random
        for each in asked:
            store.correct(each.row.id, "positive", "part")
        assert queue.state().n_random_answered == 10
        assert queue.state().n_answered == 50
        assert wanted(queue) == ["m600"]


def test_draws_that_say_the_same_count_with_the_answer_to_one(tmp_path: Path) -> None:
    """Half of a day are copies of one text that is judged wrong: half of the draws are wrong."""
    n = 200
    texts = ["RT @ann all say this" if i % 2 else f"this says {i}" for i in range(n)]
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.6 if i % 2 else 0.9 for i in range(n)], text=texts)
        queue = queue_of(store, per_day=100, random_share=0.4)
        for _ in range(3):
            for each in queue.wanted(1_000):
                is_copy = int(each.row.id[1:]) % 2 == 1
                store.correct(each.row.id, "negative" if is_copy else "positive", "part")
        state = queue.state()
        assert (state.n_random, state.n_random_answered) == (0, 40)
        assert 12 <= state.n_random_right <= 28
        assert state.n_answered < 100


def test_how_the_log_is_cut_changes_nothing(tmp_path: Path) -> None:
    """The same messages, in one batch or in many, are asked for in the same order."""
    shares = np.random.default_rng(3).uniform(0.5, 1.0, 60).tolist()
    with running(tmp_path / "one.db") as store:
        tell(store, shares)
        whole = wanted(queue_of(store, per_day=20, random_share=0.3))
    with running(tmp_path / "many.db") as store:
        for first in range(0, 60, 7):
            tell(store, shares[first : first + 7], first)
        assert wanted(queue_of(store, per_day=20, random_share=0.3)) == whole
    assert len(whole) == 20


def test_a_deleted_message_leaves_at_once(tmp_path: Path) -> None:
    """Deleted by the stream or by a person, it is in no answer; what was picked behind it stays."""
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.51, 0.52, 0.53])
        queue = queue_of(store, per_day=2)
        assert wanted(queue) == ["m0", "m1"]
        forget(store, ["m0"])
        settle(store)
        assert wanted(queue) == ["m1", "m2"]
        store.remove("m1")
        assert wanted(queue) == ["m2"]


@pytest.mark.parametrize("took_s", [0.01, 2.0])
def test_working_it_out_takes_a_bounded_share_of_a_core(tmp_path: Path, took_s: float) -> None:
    """It is done again once its time is a hundredth of what passed; answers leave all the same."""
    times = itertools.count()
    clock = Clock(0.0)
    with running(tmp_path / "recent.db") as store:
        tell(store, [0.51, 0.52])
        settings = LabellingSettings(enabled=True, random_share=0.0)
        queue = LabelQueue(settings, store, clock, lambda: next(times) * took_s)
        assert wanted(queue) == ["m0", "m1"]
        tell(store, [0.51], 2)
        store.correct("m0", "positive", "part")
        clock.now_s = took_s / SHARE_MAX * 0.99
        assert wanted(queue) == ["m1"]
        clock.now_s = took_s / SHARE_MAX
        assert wanted(queue) == ["m2", "m1"]
