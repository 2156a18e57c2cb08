"""Which messages a person should label next: those that would teach most, within a daily budget.

Nothing is saved. The queue is worked out from the store of recent messages when somebody asks: a
message leaves it with the store, by a deletion or by a person's label, and after a restart it is
what the store's file says. The learner has no part in it, and working it out takes a hundredth of a
core at most; in between, what was picked last is shown, less what has left it since. How many are
answered is counted at each question: that alone is kept by chunk, until a label comes or goes.

A day is one of UTC, by the messages' own times (never later than they came), so that a log read
again asks the same. Of each day's messages without a label two kinds are picked: some at random, by
a hash of their ids, and those whose likeliest class is the least likely, of which what a model
without examples judged comes last. Each label that a person gives to a message of the day counts in
its budget. Those at random are asked once the day is over: before, a message that comes would take
the place of one that was answered. A draw that says what was answered already counts with that
answer, so that copies, of which one is asked, weigh what they are. Of messages of one id the newest
is asked, as it is the one that a label is given to.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.config.sections import LabellingSettings
from consumers.messages import NO_TIME
from consumers.search.chunks import Chunk, Keys
from consumers.search.query_syntax import QueryError
from consumers.search.rows import MessageRow
from consumers.search.store import RecentStore

SHARE_MAX = 0.01  # of a core
# Texts that are read when it is worked out, and more for each message that may be asked: some say
# the same. To ask for one costs as much as to read some.
_TEXTS_MAX = 10_000
_TEXTS_EACH = 100
_ASKING = 50
_DAY_MS = 86_400_000
_NOT_SAID = re.compile(r"https?://\S+|@\w+|\brt\b")
_WORD = re.compile(r"\w+")


class WantedRow(NamedTuple):
    """A message that is to be labelled."""

    row: MessageRow
    at_random: bool  # else because the model is unsure

    @property
    def margin(self) -> float:
        """By how much the likeliest class was ahead of the next when the message came."""
        *_, second, first = sorted((0.0, 0.0, *self.row.probabilities))
        return first - second


class LabellingState(msgspec.Struct, frozen=True):
    """How far labelling is, over the held messages."""

    n_random: int = 0  # messages that wait for a label, picked at random
    n_uncertain: int = 0  # and because the model is unsure
    n_answered: int = 0  # messages without a label of the stream that a person has labelled
    n_random_answered: int = 0  # those of them that were picked at random
    n_random_right: int = 0  # and had been judged to be what the person said


class _Picks(NamedTuple):
    """What is to be labelled, first to be asked first, and what was when it was worked out."""

    keys: Keys
    at_random: NDArray[np.bool_]
    n_random_answered: int
    n_random_right: int


class _Unlabelled(NamedTuple):
    """The held messages without a label of the stream, as columns, oldest first."""

    keys: NDArray[Any]
    days: NDArray[Any]
    hashes: NDArray[Any]
    labels: NDArray[Any]  # the numbers of the classes that they were judged to be
    corrected: NDArray[Any]  # and of those that a person said; -1: nothing
    probabilities: NDArray[Any]

    def some(self, rows: NDArray[np.int64]) -> _Unlabelled:
        """Return some rows."""
        return _Unlabelled(*(column[rows] for column in self))


class LabelQueue:
    """The messages that a person should label; any thread may ask.

    `clock` returns monotonic seconds, `thread_time` the processor time of the calling thread.
    """

    def __init__(
        self,
        settings: LabellingSettings,
        recent: RecentStore,
        clock: Callable[[], float] = time.monotonic,
        thread_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._settings = settings
        self._recent = recent
        self._clock = clock
        self._thread_time = thread_time
        self._lock = threading.Lock()
        self._picks = _Picks(np.empty(0, np.int64), np.empty(0, np.bool_), 0, 0)
        self._due_at_s = -np.inf
        self._answers: dict[int, _AnsweredRows] = {}  # by a chunk's number

    def wanted(self, limit: int) -> list[WantedRow]:
        """Return the messages to label next, `limit` at most; of each day those at random first.

        `QueryError`: the store cannot be read just now.
        """
        picks = self._current()
        rows = {row.key: row for row in self._recent.rows(picks.keys[:limit])}
        both = zip(picks.keys.tolist(), picks.at_random.tolist(), strict=True)
        return [WantedRow(rows[key], at_random) for key, at_random in both if key in rows]

    def state(self) -> LabellingState:
        """Return how far labelling is."""
        picks = self._current()
        n_random = int(picks.at_random.sum())
        n_uncertain = len(picks.keys) - n_random
        return LabellingState(n_random, n_uncertain, self._n_answered(), *picks[2:])

    def _n_answered(self) -> int:
        """Return how many are labelled now: who labels looks whether it counts.

        Chunks are looked through whose labels have changed since somebody asked, and no others.
        """
        known = self._answers
        answers = [_answers_in(chunk, known.get(chunk.number)) for chunk in self._recent.chunks()]
        self._answers = {each.number: each for each in answers}
        keys = [each.keys for each in answers]
        return len(self._recent.held(np.concatenate([np.empty(0, np.int64), *keys])))

    def _current(self) -> _Picks:
        """Return what is to be labelled now; it is worked out again only now and then."""
        with self._lock:
            if self._clock() >= self._due_at_s:
                began_s = self._thread_time()
                with contextlib.suppress(QueryError):  # the file is busy: what was picked stands
                    self._picks = self._worked_out()
                self._due_at_s = self._clock() + (self._thread_time() - began_s) / SHARE_MAX
            picks = self._picks
        is_open = np.isin(picks.keys, self._recent.unanswered(picks.keys))
        return picks._replace(keys=picks.keys[is_open], at_random=picks.at_random[is_open])

    def _worked_out(self) -> _Picks:
        found, settings = self._unlabelled(), self._settings
        is_answered = found.corrected >= 0
        texts = _Texts(self._recent, _TEXTS_MAX + _TEXTS_EACH * settings.keep)
        last = np.flatnonzero(is_answered)[-_TEXTS_MAX:]
        texts.note_answers(found.keys[last], found.corrected[last])
        answered_days, today = set(found.days[is_answered].tolist()), self._today()
        keys: list[int] = []
        at_random: list[bool] = []
        n_drawn = n_right = 0
        for day, rows in _newest_days(found.days):
            is_full = len(keys) >= settings.keep or texts.n_left <= 0
            if is_full and day not in answered_days:
                continue
            own = found.some(rows)
            is_over = day < today
            random, uncertain = self._ranked(own, is_over)
            labels = own.corrected.astype(np.int64)
            n_answered = int((labels >= 0).sum())
            open_draws = random[labels[random] < 0]
            labels[open_draws] = texts.answers(own.keys[open_draws])
            drawn = random[labels[random] >= 0]
            n_drawn += len(drawn)
            n_right += int((labels[drawn] == own.labels[drawn]).sum())
            n_random = len(random) if is_over else self._n_random
            n_answered_else = n_answered - int((own.corrected[random] >= 0).sum())
            for is_random, ranked, n_max in (
                (True, random, n_random),
                (False, uncertain, settings.per_day - n_random - n_answered_else),
            ):
                left = min(n_max, settings.keep - len(keys))
                new = texts.new(own.keys[ranked[labels[ranked] < 0]], left)
                keys += new
                at_random += [is_random] * len(new)
        chosen = np.array(keys, np.int64), np.array(at_random, np.bool_)
        return _Picks(*chosen, n_drawn, n_right)

    @property
    def _n_random(self) -> int:
        """Return how many messages of a day are drawn at random."""
        return round(self._settings.per_day * self._settings.random_share)

    def _today(self) -> int:
        """Return the day on which the newest message came: those before it are over."""
        newest_ms = (chunk.newest_ms for chunk, _ in self._recent.held_rows())
        return max(newest_ms, default=0) // _DAY_MS

    def _ranked(
        self, own: _Unlabelled, is_over: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of a day that are drawn at random, and the others the model doubts."""
        random = _lowest(own.hashes, self._n_random if is_over else 0)
        others = np.ones(len(own.keys), np.bool_)
        others[random] = False
        others &= own.corrected < 0
        rows = np.flatnonzero(others)
        # A model without examples holds all classes for equally likely, and has no doubts of a
        # message. If nothing else is left, it is asked for all the same: it may be the first label.
        even = 1.0 / np.arange(2, len(self._recent.classes) + 1)  # some classes may have joined
        doubts = own.probabilities[rows]
        is_empty = np.isin(doubts, even.astype(doubts.dtype))
        return random, rows[np.lexsort((doubts, is_empty))]

    def _unlabelled(self) -> _Unlabelled:
        parts: list[tuple[NDArray[Any], ...]] = []
        later = np.empty(0, np.uint32)  # checksums of the ids in the chunks behind
        for chunk, held in self._recent.held_rows()[::-1]:
            columns = chunk.columns
            crcs = columns["id_crc"][held][::-1]
            own_ids, last = np.unique(crcs, return_index=True)
            is_newest = np.zeros(len(held), np.bool_)
            is_newest[len(held) - 1 - last[~np.isin(own_ids, later)]] = True
            later = np.union1d(later, own_ids)
            is_asked = is_newest | (columns["corrected"][held] >= 0)
            is_asked &= (columns["truth"][held] < 0) & (columns["late"][held] < 0)
            at = held[is_asked]
            own, arrived = columns["time_ms"][at], columns["arrived_ms"][at]
            times_ms = np.where(own == NO_TIME, arrived, np.minimum(own, arrived))
            parts.append(
                (
                    at + chunk.first_key, times_ms // _DAY_MS, _mixed(columns["id_crc"][at]),
                    *(columns[name][at] for name in ("label", "corrected", "probability")),
                )
            )  # fmt: skip
        if not parts:
            empty = np.empty(0, np.int64)
            return _Unlabelled(*[empty] * len(_Unlabelled._fields))
        return _Unlabelled(*map(np.concatenate, zip(*parts[::-1], strict=True)))


class _AnsweredRows(NamedTuple):
    """Where a person has labelled rows of a chunk, removed ones too, and the stream has not."""

    chunk: weakref.ref[Chunk]  # so that one which the store lets go of is gone
    number: int
    n_relabelled: int  # of the chunk, before it was looked through
    keys: Keys


def _answers_in(chunk: Chunk, known: _AnsweredRows | None) -> _AnsweredRows:
    """Return the answers in a chunk: those known, if no label has come or gone since."""
    # In this order, and once: what changes meanwhile is found next time.
    n_relabelled, n = chunk.n_relabelled, chunk.n
    if known is not None and known.chunk() is chunk and known.n_relabelled == n_relabelled:
        return known
    corrected, truth = (chunk.columns[name][:n] for name in ("corrected", "truth"))
    keys = np.flatnonzero((corrected >= 0) & (truth < 0)) + chunk.first_key
    return _AnsweredRows(weakref.ref(chunk), chunk.number, n_relabelled, keys)


class _Texts:
    """What was asked already, and answered: of messages that say the same, one is asked."""

    def __init__(self, recent: RecentStore, n_max: int) -> None:
        self._recent = recent
        self.n_left = n_max  # texts that may still be read
        self._seen: dict[str, int] = {}  # by what was said, the label that a person gave it; or -1

    def note_answers(self, keys: Keys, labels: NDArray[Any]) -> None:
        """Take messages for asked, and answered with these labels."""
        given = dict(zip(keys.tolist(), labels.tolist(), strict=True))
        self._seen.update((_said(row.text), given[row.key]) for row in self._recent.texts(keys))

    def answers(self, keys: Keys) -> list[int]:
        """Return the labels of what says the same as some messages, -1 where nothing does."""
        read = keys[: max(self.n_left, 0)] if self._seen else keys[:0]
        self.n_left -= len(read) + _ASKING * (len(read) > 0)
        found = {row.key: self._seen.get(_said(row.text), -1) for row in self._recent.texts(read)}
        return [found.get(key, -1) for key in keys.tolist()]

    def new(self, keys: Keys, n_max: int) -> list[int]:
        """Return the first of some messages that say what none before did, `n_max` at most."""
        found: list[int] = []
        size = max(_TEXTS_EACH, 2 * n_max)
        for begin in range(0, len(keys), size):
            if len(found) >= n_max or self.n_left <= 0:
                break
            piece = keys[begin : begin + size]
            self.n_left -= len(piece) + _ASKING
            rows = {row.key: row for row in self._recent.texts(piece)}
            for key in piece.tolist():
                said = _said(rows[key].text) if key in rows else None
                if said is not None and said not in self._seen and len(found) < n_max:
                    self._seen[said] = -1
                    found.append(key)
        return found


def _said(text: str) -> str:
    """Return a text's words alone: a retweet, or a copy with another link, says the same."""
    folded = text.casefold()
    return " ".join(_WORD.findall(_NOT_SAID.sub(" ", folded))) or folded


def _newest_days(days: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each day with the rows of its messages, the newest day first."""
    order = np.argsort(days, kind="stable")
    ends = np.flatnonzero(np.diff(days[order], append=np.iinfo(np.int64).max)) + 1
    for begin, end in zip([0, *ends[:-1].tolist()][::-1], ends.tolist()[::-1], strict=False):
        yield int(days[order[begin]]), order[begin:end]


def _lowest(values: NDArray[np.generic], n: int) -> NDArray[np.int64]:
    """Return the rows of the `n` lowest values, lowest first; equal ones in their order."""
    rows = np.arange(len(values))
    if n < len(values):
        rows = np.flatnonzero(values <= np.partition(values, n)[n])
    return rows[np.argsort(values[rows], kind="stable")][:n]


def _mixed(checksums: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return hashes whose order says nothing of ids: checksums of neighbours are alike.

    It is the last step of MurmurHash3.
    """
    found = checksums ^ (checksums >> np.uint32(16))
    for factor, shift in ((0x85EBCA6B, 13), (0xC2B2AE35, 16)):
        found = found * np.uint32(factor)
        found ^= found >> np.uint32(shift)
    return found
