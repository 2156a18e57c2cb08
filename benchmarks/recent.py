"""The store of recent messages: what writing a message costs, and how quickly queries answer.

The store is filled with a million tweets by its own thread, in transactions of the size that its
highest rate makes. Then each query is asked in turns: for the counts over its newest 10,000
matches, and for the first page of what it finds. The queries look for frequent and rare words, and
for what is hard: frequent words that hardly ever stand together, beginnings of two letters, phrases
of frequent words.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.alternate import alternate
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets
from consumers.config.sections import RecentSettings
from consumers.config.settings import Settings
from consumers.factories import build_decoder, build_source
from consumers.messages import Partition, RawColumns
from consumers.search import RecentStore, parse
from consumers.sources.records import raw_columns, split_lines

MESSAGES = 1_000_000
TURNS = 9
TRANSACTION = 500  # messages: ten a second are 5,000 messages
_PAGE = 50
_ROWS_A_S = 1e9  # more than come: all are kept
_LOG = Partition("tweets", 0)
_QUERIES = {
    "everything": "",
    "a frequent word": "the ",
    "a rare word": "obama ",
    "frequent words": "the and of ",
    "words seldom together": "i zebra ",
    "a beginning of two letters": "th",
    "three beginnings": "to* co* wa* ",
    "three beginnings of three letters": "con* pro* tha* ",
    "a phrase of frequent words": '"the i"',
    "all but a word": "-the ",
    "a beginning, not another": "th* -an* ",
}


def recent(tweets: Tweets, show: Show) -> Result:
    """Fill the store, count in it and search it."""
    result = Result("recent", f"{MESSAGES:,} messages of {tweets.origin}")
    with tempfile.TemporaryDirectory() as folder:
        settings = RecentSettings(messages_max=max(1_000, MESSAGES), rate_max_per_s=_ROWS_A_S)
        store = RecentStore(settings, Path(folder) / "recent.db", CLASSES, ("text",), 0.65)
        store.start()
        try:
            _fill(result, store, tweets, show)
            _ask(result, store, show)
        finally:
            store.stop()
    return result


def _fill(result: Result, store: RecentStore, tweets: Tweets, show: Show) -> None:
    """Write all messages; the cost is that of all threads, from the offer until they are safe."""
    settings = Settings()
    decoder = build_decoder(settings, build_source(settings, until_end=False))
    written_s = offered_s = 0.0
    firsts = range(0, MESSAGES, TRANSACTION)
    for first in show.track(firsts):
        messages = decoder.decode(_raw(tweets, first, min(TRANSACTION, MESSAGES - first)))
        rows = np.arange(len(messages))
        log_posteriors = np.log(np.full((len(rows), len(CLASSES)), 1 / len(CLASSES)))
        began_s, began = time.process_time(), time.perf_counter()
        store.offer(messages, rows, log_posteriors)
        offered_s += time.perf_counter() - began
        store.correct("nobody", None, None)  # is done behind what was offered, at once
        written_s += time.process_time() - began_s
    result.add("write a message", written_s / MESSAGES * 1e6, "µs of a core", at_most=25.0)
    result.add(f"hand over {TRANSACTION}", offered_s / len(firsts) * 1e6, "µs")
    result.add("in the file", store.state().n_bytes / MESSAGES, "bytes/message")


def _raw(tweets: Tweets, first: int, n: int) -> RawColumns:
    """Return some tweets as a source hands them over; behind the last comes the first again."""
    lines = []
    for i in range(first, first + n):
        k = i % len(tweets)
        values = {"id": str(i), "user": f"user{k % 99_991}", "lang": "en", "text": tweets.texts[k]}
        lines.append(msgspec.json.encode(values | {"label": CLASSES.index(tweets.labels[k]) * 4}))
    buffer = b"\n".join(lines)
    offsets = np.arange(first, first + n)
    return raw_columns(_LOG, buffer, split_lines(buffer, last=True), offsets, first + n)


def _ask(result: Result, store: RecentStore, show: Show) -> None:
    timed: dict[str, Callable[[], float]] = {}
    for name, text in _QUERIES.items():
        query = parse(text)
        timed[f"count, {name}"] = partial(_seconds, partial(store.counted, query))
        timed[f"search, {name}"] = partial(_seconds, partial(store.search, query, limit=_PAGE))
    turns = alternate(timed, TURNS, show, warm_up=next(iter(timed)))
    for name in timed:
        result.add(name, turns.median_s(name) * 1e3, "ms", at_most=50.0)


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
