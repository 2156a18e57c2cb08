"""The law of live queries: what a page was told is what the store would answer now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.config.sections import RecentSettings
from consumers.search import live_query
from consumers.search import store as recent
from consumers.search.live_query import WatchRequest
from consumers.search.live_updater import LiveUpdater
from consumers.search.query_syntax import parse
from tests.consumers.search.live_stream import Page, Said, Stream, make_hub
from tests.consumers.search.stores import forget

NEWEST = 4
QUERIES = (
    WatchRequest("", None),
    WatchRequest("", "en"),
    WatchRequest("love ", None),
    WatchRequest("lov", None),
    WatchRequest("love -bad", "de"),
    WatchRequest('"bad day"', None),
    WatchRequest("-love ", "en"),
    WatchRequest("#sun", None),
    WatchRequest("label:positive", None),
    WatchRequest("bad confidence:>0.7", None),
    WatchRequest("-lang:de", "en"),
)
WORDS = st.sampled_from(["love", "bad", "day", "bad day", "lovely", "#sun", "sun"])
IDS = st.integers(0, 30).map(str)
SAID = st.builds(
    Said,
    IDS,
    st.lists(WORDS, min_size=1, max_size=3).map(" ".join),
    st.sampled_from(["en", "de", None]),
    st.sampled_from([0.1, 0.4, 0.6, 0.9]),
)
SAY = st.tuples(st.just("say"), st.lists(SAID, min_size=3, max_size=12))
CHANGE = st.one_of(
    st.tuples(st.just("remove"), IDS),
    st.tuples(st.just("forget"), st.lists(IDS, min_size=1, max_size=20)),
    st.tuples(st.just("correct"), st.tuples(IDS, st.sampled_from(["negative", "positive"]))),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 30.0])),
    st.tuples(st.just("open"), st.lists(st.sampled_from(QUERIES), min_size=1, max_size=3)),
    st.tuples(st.just("close"), st.integers(0, 1)),
    st.just(("welcome", None)),
)
TICK = st.just(("tick", None))
# Rounds of messages and changes; in some of them a tick comes in between.
ROUND = st.tuples(SAY, st.one_of(TICK, SAY), CHANGE, CHANGE, st.one_of(TICK, SAY), TICK)
STEPS = st.lists(ROUND, min_size=2, max_size=4).map(lambda rounds: [s for r in rounds for s in r])


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Let a dozen matches be more than are counted, shown and kept."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (recent, live_query):
            patch.setattr(module, "COUNTED_MAX", 5)
        patch.setattr(live_query, "SPARE", 2)
        patch.setattr(live_query, "NEWEST_MAX", NEWEST)
        patch.setattr(live_query, "_NEWEST_KEPT", NEWEST + 2)
        yield


@given(STEPS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_page_knows_what_the_store_knows(steps: Sequence[tuple[str, Any]]) -> None:
    """After any messages, removals, corrections and waiting, a tick makes the two say the same."""
    stream = Stream(
        RecentSettings.model_construct(
            enabled=True, messages_max=48, age_max_s=100.0, rate_max_per_s=1e6
        )
    )
    pages: list[Page] = []
    kept = make_hub(stream)
    stream.recent.start()
    try:
        for step in [("open", QUERIES[:4]), *steps, ("tick", None)]:
            _do(step, stream, kept, pages)
    finally:
        stream.recent.stop()


def _do(step: tuple[str, Any], stream: Stream, kept: LiveUpdater, pages: list[Page]) -> None:
    name, what = step
    changes: dict[str, Callable[[Any], None]] = {
        "say": stream.say,
        "remove": stream.recent.remove,
        "forget": partial(forget, stream.recent),
        "correct": lambda found: stream.recent.correct(found[0], found[1], None),
    }
    if name in changes:
        changes[name](what)
    elif name == "wait":
        stream.now_s += what
    elif name == "open":
        pages.append(Page(kept, what))
    elif name == "close":
        for page in pages[what : what + 1]:
            pages.remove(page)
            page.close()
    else:
        stream.settle()
        (kept.tick if name == "tick" else kept.welcome)()
        for page in pages if name == "tick" else ():
            _agrees(page, stream)


def _agrees(page: Page, stream: Stream) -> None:
    page.look()
    for index, (text, lang) in enumerate(page.asked):
        counted = stream.recent.counted(parse(text), lang)
        assert page.told["summary", index] == plain(counted)
        found = stream.recent.search(parse(text), lang, NEWEST).rows
        assert page.told["messages", index]["rows"] == plain(found)


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value))
