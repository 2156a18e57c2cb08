"""Live queries step by step: who is told what, how often, and within which bounds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumers.search import live_query
from consumers.search import live_query as pages
from consumers.search import live_updater as pending
from consumers.search.live_query import (
    ArrivedRows,
    BatchIndex,
    Event,
    NotWatchedError,
    Subscription,
    WatchRequest,
)
from consumers.search.query_syntax import FieldCondition, QueryError
from consumers.search.rows import MessageRow
from consumers.search.store import RecentStore
from consumers.search.writer import NewRows
from tests.consumers.search.live_stream import Page, Plain, Said, Stream, events, make_hub
from tests.consumers.search.stores import forget

LOVE = WatchRequest("love ", None)


@pytest.fixture
def stream() -> Iterator[Stream]:
    """Yield a store that runs."""
    made = Stream()
    made.recent.start()
    made.settle()
    yield made
    made.recent.stop()


def say(stream: Stream, *texts: str) -> None:
    """Bring messages into the store; their ids are their texts."""
    stream.say([Said(text, text) for text in texts])
    stream.settle()


def test_a_page_is_told_of_new_matches(stream: Stream) -> None:
    """What matches is counted and shown from the next tick on; other messages are not."""
    live_updater = make_hub(stream)
    say(stream, "love one")
    page = Page(live_updater, [LOVE])
    live_updater.welcome()
    page.look()
    assert page.told["summary", 0]["n"] == 1
    say(stream, "hate two", "love three")
    live_updater.tick()
    page.look()
    assert page.told["summary", 0]["n"] == 2
    shown = [found["row"]["text"] for found in page.told["messages", 0]["rows"]]
    assert shown == ["love three", "love one"]


def test_a_page_that_comes_later_is_told_at_once(stream: Stream) -> None:
    """A query that is watched already is told when a page opens, before any tick."""
    live_updater = make_hub(stream)
    say(stream, "love one")
    first = Page(live_updater, [LOVE])
    live_updater.tick()
    first.look()
    second = Page(live_updater, [WatchRequest("hate ", None), LOVE])
    second.look()
    assert second.told["summary", 1]["n"] == 1
    assert ("summary", 0) not in second.told


def test_pages_share_a_query_and_its_words(stream: Stream) -> None:
    """However many pages watch a query, it is kept once and put into words once a tick."""
    said: list[str] = []

    class Counting(Plain):
        def messages(self, found: object) -> bytes:
            said.append("messages")
            return super().messages(found)  # type: ignore[arg-type]  # handed on

    live_updater = make_hub(stream, Counting())
    many = [Page(live_updater, [LOVE]) for _ in range(20)]
    say(stream, "love one")
    live_updater.tick()
    assert said == ["messages"]
    assert live_updater.n_queries == 1
    for page in many:
        page.look()
        assert page.told["summary", 0]["n"] == 1


def test_what_did_not_change_is_not_told_again(stream: Stream) -> None:
    """A tick without news brings the daemon's state, and no figures."""
    live_updater = make_hub(stream)
    page = Page(live_updater, [LOVE])
    live_updater.tick()
    page.mail.take()
    say(stream, "hate two")
    live_updater.tick()
    assert [name for name, _ in events(page.mail.take())] == ["status"]


def test_nothing_is_matched_for_nobody(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a page nothing is kept of what comes; the last one to leave ends its query."""
    live_updater = make_hub(stream)
    page = Page(live_updater, [LOVE])
    say(stream, "love one")
    page.close()
    assert (live_updater.n_pages, live_updater.n_queries) == (0, 0)
    monkeypatch.setattr(live_query, "BatchIndex", None)  # whoever made one would fail
    live_updater.tick()
    say(stream, "love two")
    assert not live_updater._pending._rows
    live_updater.tick()


def test_everything_needs_no_index(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that show all messages cost no look-up of words."""
    monkeypatch.setattr(live_query, "BatchIndex", None)
    live_updater = make_hub(stream)
    page = Page(
        live_updater, [WatchRequest("", None), WatchRequest("", "en"), WatchRequest("", "de")]
    )
    live_updater.tick()
    say(stream, "love one", "hate two")
    live_updater.tick()
    page.look()
    assert [page.told["summary", i]["n"] for i in range(3)] == [2, 2, 0]
    assert len(page.told["messages", 1]["rows"]) == 2
    assert not page.told["messages", 2]["rows"]


def test_a_query_that_cannot_be_read_is_a_problem(stream: Stream) -> None:
    """It is told under its index with a sentence; the page's other queries are answered."""
    live_updater = make_hub(stream)
    page = Page(live_updater, [WatchRequest('"', None), LOVE])
    live_updater.tick()
    page.look()
    assert "no word" in page.told["problem", 0]["detail"]
    assert page.told["summary", 1]["n"] == 0


def test_changes_are_told_to_every_page(stream: Stream) -> None:
    """A correction and a removal reach also pages that show older messages."""
    live_updater = make_hub(stream)
    say(stream, "love one", "love two")
    page = Page(live_updater, [LOVE])
    live_updater.tick()
    stream.recent.correct("love one", "negative", None)
    stream.recent.remove("love two")
    stream.settle()
    live_updater.tick()
    page.look()
    assert page.changes == [
        {"id": "love one", "corrected": "negative", "removed": False},
        {"id": "love two", "corrected": None, "removed": True},
    ]
    [found] = page.told["messages", 0]["rows"]
    assert found["row"]["corrected"] == "negative"
    assert page.told["summary", 0]["n"] == 1


def test_queries_are_bounded(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query too many is a problem; one that is watched already is always welcome."""
    monkeypatch.setattr(pages, "QUERIES_MAX", 2)
    live_updater = make_hub(stream)
    page = Page(live_updater, [LOVE, WatchRequest("", None), WatchRequest("hate ", None), LOVE])
    live_updater.tick()
    page.look()
    assert set(page.told) == {
        ("status", None), ("problem", 2),
        *((name, i) for name in ("summary", "messages") for i in (0, 1, 3)),
    }  # fmt: skip


def queries(*texts: str) -> list[WatchRequest]:
    """Return what a page asks of these texts, in any language."""
    return [WatchRequest(text, None) for text in texts]


def test_who_had_no_room_is_watched_once_there_is(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When others close, queries that were refused come in, oldest first; those of who left not."""
    monkeypatch.setattr(pages, "QUERIES_MAX", 2)
    live_updater = make_hub(stream)
    say(stream, "love one")
    first = Page(live_updater, queries("a", "b"), "there")
    gone = Page(live_updater, queries("c"))
    waits, later = Page(live_updater, queries("love", "a", "d")), Page(live_updater, queries("e"))
    live_updater.tick()
    waits.look()
    assert ("summary", 0) not in waits.told
    gone.close()
    first.close()
    live_updater.welcome()
    waits.look()
    later.look()
    assert waits.told["summary", 0]["n"] == 1
    assert ("summary", 1) in waits.told
    assert ("summary", 2) not in waits.told  # `a` is watched on, and `love` beside it
    waits.close()
    live_updater.welcome()
    later.look()
    assert ("summary", 0) in later.told
    later.close()
    assert live_updater.n_queries == 0


def test_a_client_has_not_all_queries(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """One address may watch so many different ones; what is watched already is always welcome."""
    monkeypatch.setattr(pages, "QUERIES_A_CLIENT_MAX", 2)
    live_updater = make_hub(stream)
    greedy = Page(live_updater, queries("a", "a", "b", "c"))
    more = Page(live_updater, queries("d", "b"))
    other = Page(live_updater, queries("e"), "there")
    live_updater.tick()
    for page in (greedy, more, other):
        page.look()
    problems = [[at for name, at in page.told if name == "problem"] for page in (greedy, more)]
    assert problems == [[3], [0]]
    assert "from your address" in greedy.told["problem", 3]["detail"]
    assert ("summary", 0) in other.told
    greedy.close()  # `b` is watched on by the same client
    live_updater.welcome()
    more.look()
    assert ("summary", 0) in more.told


def test_a_query_that_another_watches_needs_no_room(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was refused it before is told of it from then on."""
    monkeypatch.setattr(pages, "QUERIES_A_CLIENT_MAX", 1)
    live_updater = make_hub(stream)
    refused = Page(live_updater, queries("a", "b"))
    Page(live_updater, queries("b"), "there")
    live_updater.tick()
    refused.look()
    assert {("problem", 1), ("summary", 1)} <= refused.told.keys()


def test_pages_are_bounded(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for so many pages in all, and for fewer of one client; leaving makes room."""
    monkeypatch.setattr(pages, "PAGES_MAX", 3)
    monkeypatch.setattr(pages, "PAGES_A_CLIENT_MAX", 2)
    live_updater = make_hub(stream)
    first, second = Page(live_updater, [LOVE]), Page(live_updater, [LOVE])
    with pytest.raises(NotWatchedError, match="from your address"):
        Page(live_updater, [LOVE])
    third = Page(live_updater, [LOVE], "there")
    with pytest.raises(NotWatchedError, match="3 pages are open"):
        Page(live_updater, [LOVE], "elsewhere")
    first.close()
    fourth = Page(live_updater, [LOVE], "elsewhere")
    assert live_updater.n_pages == 3
    for page in (second, third, fourth):
        page.close()


@pytest.mark.parametrize("bound", ["ROWS_MAX", "ROW_BYTES_MAX", "BUFFERED_CHANGES_MAX"])
def test_too_much_for_a_tick_is_asked_of_the_store(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Where more comes than is kept for a tick, the store is asked instead, and nothing is lost."""
    monkeypatch.setattr(pending, bound, 1)
    live_updater = make_hub(stream)
    page = Page(live_updater, [LOVE])
    live_updater.tick()
    say(stream, "love one", "love two", "love three")
    forget(stream.recent, ["love one", "love two"])
    stream.settle()
    assert len(live_updater._pending._rows) + len(live_updater._pending._changes) <= 3
    live_updater.tick()
    page.look()
    assert page.told["summary", 0]["n"] == 1


def test_a_tick_is_bounded(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries for which it has no time wait, and ask the store; each has its turn soon."""
    done: list[str] = []

    def slow(name: str) -> None:
        own = getattr(live_query.LiveQuery, name)

        def step(self: live_query.LiveQuery, *arrived: ArrivedRows) -> None:
            done.append(name)
            stream.now_s += 0.2
            own(self, *arrived)

        monkeypatch.setattr(live_query.LiveQuery, name, step)

    live_updater = make_hub(stream)
    page = Page(live_updater, [WatchRequest(text, None) for text in ("", *"abcdefg")])
    slow("take")
    slow("_begin")
    newest: list[list[int]] = []
    for n in range(1, 13):
        say(stream, "a b c d e f g")
        done.clear()
        live_updater.tick()
        assert done.count("take") <= 3  # of 0.2 s each, of half a second
        assert done.count("_begin") <= 2
        page.look()
        told = [page.told.get(("summary", i), {"n": 0})["n"] for i in range(8)]
        newest.append([n - each for each in told])
    assert max(max(behind) for behind in newest[4:]) <= 3
    monkeypatch.undo()
    for _ in range(2):
        live_updater.tick()
    page.look()
    assert [page.told["summary", i]["n"] for i in range(8)] == [12] * 8


def test_what_arrives_is_looked_at_once_for_all_queries(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of new messages are picked out once a tick, and conditions read once a query."""
    looked: list[str] = []

    def counted(owner: type, name: str) -> None:
        own = getattr(owner, name).fget

        def read(self: object) -> object:
            looked.append(name)
            return own(self)

        monkeypatch.setattr(owner, name, property(read))

    live_updater = make_hub(stream)
    queries = [f"label:positive confidence:>0.{k}" for k in range(1, 6)]
    page = Page(live_updater, [WatchRequest(text, None) for text in queries])
    live_updater.tick()
    counted(MessageRow, "values")
    counted(FieldCondition, "number")
    say(stream, *["love"] * 100)
    live_updater.tick()
    assert looked.count("values") == 100
    assert looked.count("number") <= 2 * len(queries)
    page.look()
    assert [page.told["summary", i]["n"] for i in range(5)] == [100] * 5


def test_no_whole_text_is_kept_for_a_page(stream: Stream) -> None:
    """Of a long message it is shown what is searched; what the model read stays in the store."""
    live_updater = make_hub(stream)
    page = Page(live_updater, [LOVE, WatchRequest("", None)])
    say(stream, "love " * 2_000)
    live_updater.tick()
    say(stream, "love you " * 2_000)  # the first was found in the store, this one as it came
    live_updater.tick()
    page.look()
    for index in (0, 1):
        rows = [found["row"] for found in page.told["messages", index]["rows"]]
        assert [(len(row["text"]), row["example"]) for row in rows] == 2 * [(4_000, {})]


def test_a_store_that_begins_anew_is_asked_anew(stream: Stream) -> None:
    """Keys that start again tell that what was known means nothing any more."""
    live_updater = make_hub(stream)
    stored: list[NewRows] = []
    stream.recent.listeners.append(stored.append)
    page = Page(live_updater, [LOVE])
    say(stream, "love one")
    live_updater.tick()
    live_updater._pending.stored(stored[0])  # its key came before
    _, has_gap = live_updater._pending.take()
    assert has_gap
    page.close()


def test_a_store_that_cannot_answer_is_a_problem_for_a_while(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages are told why; as soon as it can answer, they are told the figures."""

    def broken(*_: object) -> None:
        raise QueryError("The store cannot be searched just now.")

    live_updater = make_hub(stream)
    page = Page(live_updater, [LOVE])
    with monkeypatch.context() as patch:
        patch.setattr(RecentStore, "search", broken)
        live_updater.tick()
    page.look()
    assert page.told["problem", 0]["detail"] == "The store cannot be searched just now."
    say(stream, "love one")
    live_updater.tick()
    page.look()
    assert page.told["summary", 0]["n"] == 1


def test_a_slow_page_finds_the_newest_state_alone() -> None:
    """What is put twice is taken once; changes are kept, up to a bound; who put wakes once."""
    woken: list[bool] = []
    mail = Subscription(lambda: woken.append(True))
    for n in range(1000):
        mail.put([Event("summary", 0, b'{"n":%d}' % n), Event("change", None, b'{"id":%d}' % n)])
    assert woken == [True]
    found = events(mail.take())
    assert found[-1] == ("summary", {"index": 0, "n": 999})
    assert [data["id"] for name, data in found if name == "change"] == list(range(744, 1000))
    assert mail.take() == b""
    mail.end()
    assert mail.ended
    assert woken == [True, True]


def test_what_holds_now_is_told_last() -> None:
    """A problem that is over by the newest figures stands before them."""
    mail = Subscription(lambda: None)
    for name in ("summary", "problem", "summary"):
        mail.put([Event(name, 0, b'{"n":1}')])
    assert [name for name, _ in events(mail.take())] == ["problem", "summary"]


def test_a_failing_tick_does_not_end_the_thread(stream: Stream) -> None:
    """Whatever breaks in a tick is logged, and the pages are told again from the next one on."""
    told = []

    class Failing(Plain):
        def status(self) -> bytes:
            told.append("status")
            if len(told) == 1:
                raise RuntimeError("this one breaks")
            return super().status()

    live_updater = make_hub(stream, Failing())
    page = Page(live_updater, [LOVE])
    live_updater.start()
    try:
        while ("status", None) not in page.told:
            page.wait()
            page.look()
    finally:
        live_updater.stop()
    assert page.mail.ended


def test_an_index_is_closed_with_its_tick(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a tick's messages is let go of in that tick."""
    closed: list[BatchIndex] = []

    class Watched(BatchIndex):
        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr(live_query, "BatchIndex", Watched)
    live_updater = make_hub(stream)
    page = Page(live_updater, [LOVE])
    live_updater.tick()
    say(stream, "love one")
    live_updater.tick()
    assert len(closed) == 1
    page.close()
