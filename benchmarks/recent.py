"""The store of recent messages: what writing a message costs, and how quickly queries answer.

The store is filled with a million tweets by its own thread, in transactions of the size that its
highest rate makes. Then each query is asked in turns: for the counts over its newest 10,000
matches, and for the first page of what it finds. The queries look for frequent and rare words, and
for what is hard: frequent words that hardly ever stand together, beginnings of two letters, phrases
of frequent words.

A second store has a million made-up loan applications, which are searched by the values of their
fields. What is asked first about a field reads 100,000 rows, later questions what came since.

A daemon is started on a copy of the first store, see `restart`.

The words of a chunk of tweets are counted as they are when the store lets go of it, and the hour
that this makes is repeated over 30 days, of which words are asked then, and all messages.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.alternate import alternate
from benchmarks.restart import add_restarts, right_answers
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets
from consumers.config.addresses import GeneratorSettings
from consumers.config.sections import HistorySettings, RecentSettings
from consumers.config.settings import Settings
from consumers.factories import build_decoder, build_source
from consumers.features import kinds_of
from consumers.messages import Partition, RawColumns
from consumers.search import database
from consumers.search.chunks import Retention
from consumers.search.history import STEPS_S, count_words
from consumers.search.store import RecentStore
from consumers.sources.generator import LoanMaker
from consumers.sources.records import raw_columns, split_lines

MESSAGES = 1_000_000
TURNS = 9
TRANSACTION = 500  # messages: ten a second are 5,000 messages
_PAGE = 50
_ROWS_A_S = 1e9  # more than come: all are kept
_LOG = Partition("tweets", 0)
QUERIES = {
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
WORDS = {"a frequent word": "the ", "a rare word": "obama ", "a word that nobody has": "qqq "}


_LOANS = Settings.model_validate(
    {
        "labels": {"field": "decision"},
        "model": {
            "classes": ["approve", "reject"],
            "features": {
                "credit": {"kind": "categories", "fields": ["score", "income"]},
                "record": {"kind": "flags", "fields": ["missed_payments", "stable_job"]},
                "figures": {"kind": "numbers", "fields": ["amount", "age"]},
                "note": {"kind": "words", "fields": ["note"]},
            },
        },
    }
)
# All but the first have few matches or none: as many rows are looked at as may be.
CONDITIONS = {
    "a frequent value": "score:low",
    "a value that nobody has": "income:none",
    "a large number": "amount:>49990",
    "a number and a flag": "age:>79 -stable_job:true",
    "a word and a number": "wedding amount:>49990",
}


def recent(tweets: Tweets, show: Show) -> Result:
    """Fill the store, count in it and search it."""
    result = Result("recent", f"{MESSAGES:,} messages of {tweets.origin}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recent.db"
        with _running(("text",), CLASSES, path) as store:
            _fill(result, store, Settings(), partial(_tweets, tweets), show)
            _ask(result, store, QUERIES, show)
            right = right_answers(store)
        add_restarts(result, path, MESSAGES, right, show)
        span_s = _count_words(result, path)
        with _running(("text",), CLASSES, path) as store:
            store.correct("nobody", None, None)  # until it is open
            hours: dict[str, Callable[[], object]] = {
                "everything": partial(store.history, span_s[0], span_s[1], "hour")
            }
            for name, word in WORDS.items():
                query = store.parse(word)
                hours[name] = partial(store.matches_over_time, query, None, span_s, "hour")
            for name, ask in hours.items():
                took_s = statistics.median([_seconds(ask) for _ in range(TURNS)])
                result.add(f"30 days of hours, {name}", took_s * 1e3, "ms", at_most=50.0)
    with _running(tuple(kinds_of(_LOANS.model)), tuple(_LOANS.model.classes)) as store:
        made = LoanMaker(GeneratorSettings(stream="loans"))
        _fill(result, store, _LOANS, made.make, show, " of fields")
        first_s = [
            _seconds(partial(store.counted, store.parse(f"{name}:>1e9")))
            for name in ("score", "stable_job", "amount", "age", "note")
        ]
        name = "count, first question about a field"
        result.add(name, statistics.median(first_s) * 1e3, "ms", at_most=50.0)
        _ask(result, store, CONDITIONS, show)
    return result


def _count_words(result: Result, path: Path) -> tuple[int, int]:
    """Count a file's oldest chunk, and its words, as 720 hours; return these, in seconds."""
    file = database.open_file(path, CLASSES, _bounds().chunk_rows)
    chunk = file.chunks[0]
    with contextlib.closing(file.db) as db:
        db.execute("BEGIN IMMEDIATE")
        steps_max, words_max = dict.fromkeys(STEPS_S.values(), 10_000), HistorySettings().words_max
        now_s = chunk.newest_ms // 1000
        began_s = time.thread_time()
        count_words(db, chunk, steps_max, words_max, now_s)
        took_s = time.thread_time() - began_s
        db.execute("DELETE FROM word_history")
        # The newest step, which may go on, keeps four times as many words as one that is over.
        count_words(db, chunk, steps_max, words_max // 4, now_s)
        db.execute(
            "WITH RECURSIVE ago(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM ago WHERE n < 720)"
            " INSERT INTO word_history SELECT step_s, begins_s - 3600 * n, of, unlisted_max, words,"
            " counts FROM ago JOIN (SELECT * FROM word_history WHERE step_s = 3600"
            " ORDER BY begins_s LIMIT 1)"
        )
        (begins_s,) = db.execute(
            "SELECT min(begins_s) FROM word_history WHERE step_s = 3600"
        ).fetchone()
        counts = np.full(len(CLASSES), MESSAGES // 1_000, "<i8").tobytes()
        db.execute(
            "WITH RECURSIVE hour(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM hour WHERE n < 719)"
            " INSERT OR REPLACE INTO history SELECT 3600, ? + 3600 * n, ? FROM hour",
            (begins_s, counts),
        )
        db.execute("COMMIT")
    result.add("count the words of a message", took_s / chunk.n * 1e6, "µs of a core")
    return begins_s, begins_s + 720 * 3_600


def _bounds() -> Retention:
    return Retention(max(1_000, MESSAGES), RecentSettings().age_max_s)


@contextlib.contextmanager
def _running(
    fields: tuple[str, ...], classes: tuple[str, ...], path: Path | None = None, n: int = 0
) -> Iterator[RecentStore]:
    """Run a store that keeps all messages, in a file; `n` if they are more than `MESSAGES`."""
    most = max(n, _bounds().messages_max)
    settings = RecentSettings(messages_max=most, rate_max_per_s=_ROWS_A_S)
    store = RecentStore(settings, path, classes, fields, 0.65, history=HistorySettings())
    store.start()
    try:
        yield store
    finally:
        store.stop()


def write_file(path: Path, tweets: Tweets, n: int, show: Show) -> None:
    """Write a store of `n` tweets, as a daemon of these classes finds it when it starts."""
    decoder = build_decoder(Settings(), build_source(Settings(), until_end=False))
    with _running(("text",), CLASSES, path, n) as store:
        for first in show.track(range(0, n, TRANSACTION)):
            lines = _tweets(tweets, first, min(TRANSACTION, n - first))
            messages = decoder.decode(_raw(lines, first))
            rows = np.arange(len(messages))
            store.offer(messages, rows, np.log(np.full((len(rows), 2), 0.5)))
            store.correct("nobody", None, None)  # is done behind what was offered


def _fill(
    result: Result,
    store: RecentStore,
    settings: Settings,
    lines: Callable[[int, int], list[bytes]],
    show: Show,
    of: str = "",
) -> None:
    """Write all messages; the cost is that of all threads, from the offer until they are safe."""
    decoder = build_decoder(settings, build_source(settings, until_end=False))
    written_s = offered_s = 0.0
    firsts = range(0, MESSAGES, TRANSACTION)
    for first in show.track(firsts):
        n = min(TRANSACTION, MESSAGES - first)
        messages = decoder.decode(_raw(lines(first, n), first))
        rows = np.arange(len(messages))
        log_posteriors = np.log(np.full((len(rows), 2), 0.5))
        began_s, began = time.process_time(), time.perf_counter()
        store.offer(messages, rows, log_posteriors)
        offered_s += time.perf_counter() - began
        store.correct("nobody", None, None)  # is done behind what was offered, at once
        written_s += time.process_time() - began_s
    result.add(
        f"write a message{of}",
        written_s / MESSAGES * 1e6,
        "µs of a core",
        at_most=None if of else 25.0,
    )
    result.add(f"hand over {TRANSACTION}{of}", offered_s / len(firsts) * 1e6, "µs")
    result.add(f"in the file{of}", store.state().n_bytes / MESSAGES, "bytes/message")


def _tweets(tweets: Tweets, first: int, n: int) -> list[bytes]:
    """Return some tweets as messages; behind the last comes the first again."""
    lines = []
    for i in range(first, first + n):
        k = i % len(tweets)
        values = {"id": str(i), "user": f"user{k % 99_991}", "lang": "en", "text": tweets.texts[k]}
        lines.append(msgspec.json.encode(values | {"label": CLASSES.index(tweets.labels[k]) * 4}))
    return lines


def _raw(lines: list[bytes], first: int) -> RawColumns:
    """Return messages as a source hands them over."""
    buffer = b"\n".join(lines)
    behind = first + len(lines)
    offsets = np.arange(first, behind)
    return raw_columns(_LOG, buffer, split_lines(buffer, last=True), offsets, behind)


def _ask(result: Result, store: RecentStore, queries: dict[str, str], show: Show) -> None:
    timed: dict[str, Callable[[], float]] = {}
    for name, text in queries.items():
        query = store.parse(text)
        timed[f"count, {name}"] = partial(_seconds, partial(store.counted, query))
        timed[f"search, {name}"] = partial(_seconds, partial(store.search, query, limit=_PAGE))
    turns = alternate(timed, TURNS, show, warm_up=next(iter(timed)))
    for name in timed:
        result.add(name, turns.median_s(name) * 1e3, "ms", at_most=50.0)


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
