"""Comparison of queries, or of two times of one: shares, counts, and the words that set them apart.

Each side is counted as `RecentStore.counted` does it. Its words are those of its newest messages,
up to `WORD_MESSAGES_MAX` and `WORD_CHARS_MAX`, each word once a message. They are ranked by the
weighted log-odds ratio of Monroe, Colaresi and Quinn (2008, *Fightin' words*) of a side against all
others together, in standard errors. The prior is a Dirichlet whose mean are the frequencies of all
sides together: a rare word is pulled towards no difference, so needs more than luck to be listed.

Of two times of one query the words are named that moved a share.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.search.chunks import Keys, RowFilter
from consumers.search.matching import StoredText, newest_texts
from consumers.search.query_syntax import (
    CJK_RUN,
    SIGN,
    Query,
    TokenKind,
    folded,
    plain_emoji,
)
from consumers.search.rows import Counted, Span
from consumers.search.store import COUNTED_MAX, RecentStore

SIDES_MAX = 4
WORD_MESSAGES_MAX = 2_000  # of a side, whose words are counted
WORD_CHARS_MAX = 300_000  # of their texts: 0.05 s of processor time, of Chinese 0.35 s
WORDS_MAX = 12  # listed of a side
MOVING_WORDS_MAX = 5
PRIOR_SHARE = 0.1  # what the prior counts for, as a share of all words counted
# By chance alone one word in 740 is as far above zero. With this prior a word needs 18 messages.
STANDARD_ERRORS_MIN = 3.0
_LISTED_MIN = 4  # messages of all sides together: a word of fewer is never as far above zero
_LINK = re.compile(r"\b(?:https?://|www\.)\S+")
# Python's \w has no vowel signs, without which words of India and South-East Asia fall apart.
_WORD = re.compile("[#@]?[^\\W_][\\w'’\u0300-\u036f\u0900-\u0963\u0966-\u0dff\u0e00-\u0e4e]*")
_EMOJI = re.compile("[\U0001f1e6-\U0001f1ff]{2}|.", re.DOTALL)  # a flag is two characters


class ComparedSide(msgspec.Struct, frozen=True):
    """What is compared: messages that match, of a time if there is one."""

    query: Query
    lang: str | None = None
    span_ms: Span | None = None


class DistinctiveWord(msgspec.Struct, frozen=True):
    """A word that is more frequent on one side than on all others together.

    `standard_errors` says how many of them `log_odds` is above zero; `counts` are the messages
    with the word among those that were read, by class. `effects` say by class how much of the
    difference between this side's share and that of all others the messages with the word make up.
    """

    word: str
    log_odds: float
    standard_errors: float
    counts: tuple[int, ...]
    effects: tuple[float, ...]


class ComparedMessages(msgspec.Struct, frozen=True):
    """One side: its counts, how many messages were read for words, and its words, best first."""

    side: ComparedSide
    counted: Counted
    n_read: int
    words: Sequence[DistinctiveWord]


class MovingWord(msgspec.Struct, frozen=True):
    """A word that moved a share, and by how much of it: 0.04 are four points."""

    word: str
    effect: float


class ShareMove(msgspec.Struct, frozen=True):
    """How the share of a class differs between two times, of the class whose share rose most.

    `standard_errors` says how many of them the difference is above zero. `words` are the ones that
    moved it: those that set one of the times apart and whose messages make up a part of the rise,
    which is their effect, the largest first. Messages with several words count for each.
    """

    label: str
    before: float
    after: float
    n_before: int
    n_after: int
    standard_errors: float
    words: tuple[MovingWord, ...] = ()

    @property
    def rise(self) -> float:
        """By how much the share rose; below 0 it fell."""
        return self.after - self.before


def compare(
    store: RecentStore, sides: Sequence[ComparedSide], left_out: frozenset[str] = frozenset()
) -> list[ComparedMessages]:
    """Return counts and words of sides, whose series have common steps unless each has its time.

    Words that are `left_out` are counted, and not listed.

    Raises
    ------
    QueryError
        If a search takes too long.
    """
    matching = [counted_side(store, side) for side in sides]
    keys, counts = [found for found, _ in matching], [counted for _, counted in matching]
    span_ms = _union(counts)
    if span_ms is not None and all(side.span_ms is None for side in sides):
        for i, found in enumerate(keys):
            again = store.counted_keys(found, newest_only=False, span_ms=span_ms)
            counts[i] = replace(
                counts[i], step_s=again.step_s, times_ms=again.times_ms, series=again.series
            )
    # The characters bound this work; a time would be over sooner the busier the machine is.
    rows = [newest_texts(store.texts, found[-WORD_MESSAGES_MAX:], WORD_CHARS_MAX) for found in keys]
    classes = tuple(store.classes)  # as they are now: one may join meanwhile
    words = distinctive_words(rows, classes, [side.query for side in sides], left_out)
    return [
        ComparedMessages(side, counted, len(read), own)
        for side, counted, read, own in zip(sides, counts, rows, words, strict=True)
    ]


def counted_side(store: RecentStore, side: ComparedSide) -> tuple[Keys, Counted]:
    """Return the keys of what is counted on a side, and its counts."""
    found, n_max, newest_only = _selected(store, side)
    counted = store.counted_keys(found, newest_only=newest_only, span_ms=side.span_ms)
    return found, replace(counted, n_max=n_max)


def _selected(store: RecentStore, side: ComparedSide) -> tuple[Keys, int, bool]:
    """Return the keys that are counted, how many there are at most, and whether there are more."""
    is_everything = side.query.is_everything
    n_max = store.state().messages_max if is_everything else COUNTED_MAX
    begin_ms, end_ms = side.span_ms or (None, None)
    rows = RowFilter(from_ms=begin_ms, to_ms=end_ms)
    keys, scan = store.scanned_keys(side.query, side.lang, n_max + 1, rows)
    return keys[-n_max:], n_max, scan.is_cut or len(keys) > n_max


def _union(counts: Sequence[Counted]) -> Span | None:
    """Return the time that the steps of all series lie in; None if there are no steps."""
    filled = [counted for counted in counts if counted.times_ms]
    if not filled:
        return None
    return (
        min(counted.times_ms[0] for counted in filled),
        max(counted.times_ms[-1] + 1000 * counted.step_s for counted in filled),
    )


# ---- words ---------------------------------------------------------------------------------------


def words_of(text: str) -> set[str]:
    """Return the different words of a text, small, with tags, names and emoji; links are no words.

    Of Chinese and Japanese, whose writing has no blanks, they are pairs of neighbours.

    >>> sorted(words_of("Coffee &amp; #Tea: don't https://t.co/x 🎉🎉"))
    ['#tea', 'coffee', "don't", '🎉']
    """
    text = (html.unescape(text) if "&" in text else text).lower()
    if "http" in text or "www." in text:  # most have no link
        text = _LINK.sub(" ", text)
    found: set[str] = set()
    if not text.isascii():
        for match in SIGN.finditer(text):
            if match.lastgroup == TokenKind.EMOJI.name:
                found.update(_EMOJI.findall(plain_emoji(match[0])))
        for run in CJK_RUN.findall(text):
            found.update([run[i : i + 2] for i in range(max(1, len(run) - 1))])
        text = CJK_RUN.sub(" ", text)
    words = [match.rstrip("'’_") for match in _WORD.findall(text)]
    found.update([word for word in words if len(word) > 1])
    return found


def distinctive_words(
    rows: Sequence[Sequence[StoredText]],
    classes: Sequence[str],
    queries: Sequence[Query],
    left_out: frozenset[str],
) -> list[list[DistinctiveWord]]:
    """Return the words of each side, best first; none that a query names or is left out."""
    tables: list[list[Counter[str]]] = []
    totals: list[Counter[str]] = [Counter() for _ in rows]
    n_messages = np.zeros((len(rows), len(classes)))
    for i, side in enumerate(rows):
        by_class: list[Counter[str]] = [Counter() for _ in classes]
        for row in side:
            if row.label < len(classes):  # one may be still to join again
                n_messages[i, row.label] += 1
                found = words_of(row.text)
                by_class[row.label].update(found)
                totals[i].update(found)
        tables.append(by_class)
    named = [term for query in queries for term in _named(query)]
    best = []
    for i, (by_class, rank) in enumerate(zip(tables, ranked(totals), strict=True)):
        words: list[DistinctiveWord] = []
        for word, log_odds, standard_errors in rank:
            if len(words) == WORDS_MAX:
                break
            if word not in left_out and not _is_named(word, named):
                counts = np.array([[table[word] for table in side] for side in tables], float)
                effects = effects_on_shares(counts, n_messages, i)
                own = tuple(table[word] for table in by_class)
                words.append(DistinctiveWord(word, log_odds, standard_errors, own, effects))
        best.append(words)
    return best


def effects_on_shares(
    counts: NDArray[np.float64], n_messages: NDArray[np.float64], i: int
) -> tuple[float, ...]:
    """Return by class what some messages add to the share on side `i` above that on all others.

    `counts` of shape (n_sides, n_classes) are these messages, `n_messages` all. If they are f of a
    side, and s of them of a class whose share on all sides together is S, they lift its share there
    by f·(s − S). Over parts that make up all messages the effects sum to the difference of the
    shares; and what they are on one of two sides, they are on the other with the sign turned.

    >>> with_word, n_messages = np.array([[0, 0], [0, 25]]), np.array([[50, 50], [25, 75]])
    >>> effects_on_shares(with_word, n_messages, 1)
    (-0.09375, 0.09375)
    """
    shares = n_messages.sum(axis=0) / n_messages.sum()
    others = np.arange(len(counts)) != i
    sides = (counts[i], n_messages[i].sum()), (counts[others].sum(0), n_messages[others].sum())
    own, rest = ((some - some.sum() * shares) / max(n, 1.0) for some, n in sides)
    return tuple((own - rest).tolist())


def share_move(
    before: ComparedMessages,
    after: ComparedMessages,
    classes: Sequence[str],
    label: str | None = None,
) -> ShareMove | None:
    """Return how a share moved from one time to another; None if one of them has no message.

    It is the share of the class that rose most, unless a `label` is named.
    """
    found = moves(before.counted.counts, after.counted.counts, classes)
    own = [each for each in found if label in {None, each.label}]
    if not own:
        return None
    most = max(own, key=lambda each: each.rise)
    k = list(classes).index(most.label)
    effects = {each.word: -each.effects[k] for each in before.words if k < len(each.effects)}
    effects |= {each.word: each.effects[k] for each in after.words if k < len(each.effects)}
    best = sorted(effects.items(), key=lambda each: -each[1])[:MOVING_WORDS_MAX]
    words = [MovingWord(word, effect) for word, effect in best if effect > 0.0]
    return replace(most, words=tuple(words))


def moves(before: Sequence[int], after: Sequence[int], classes: Sequence[str]) -> list[ShareMove]:
    """Return how the share of each class moved, without words; none if a time has no message."""
    n_classes = min(len(before), len(after), len(classes))  # one may have joined in between
    counts = np.array([before[:n_classes], after[:n_classes]], float)
    n = counts.sum(axis=1)
    if not n.all():
        return []
    shares = counts / n[:, np.newaxis]
    pooled = counts.sum(axis=0) / n.sum()
    errors = np.sqrt(pooled * (1.0 - pooled) * (1.0 / n).sum())
    rises = shares[1] - shares[0]
    in_errors = np.divide(rises, errors, out=np.zeros(n_classes), where=errors > 0.0)
    columns = zip(classes, *shares.tolist(), in_errors.tolist(), strict=False)
    return [
        ShareMove(label, was, now, int(n[0]), int(n[1]), in_error)
        for label, was, now, in_error in columns
    ]


def ranked(sides: Sequence[Mapping[str, int]]) -> list[list[tuple[str, float, float]]]:
    """Return the words of each side with log-odds ratio and standard errors, best first.

    `sides` say of each word how many messages have it. With counts y of n words on a side, y' of n'
    on all others, and the prior's α of α₀, a tenth of y + y' and of n + n', the log-odds ratio is
    δ = log((y + α) / (n + α₀ − y − α)) − log((y' + α) / (n' + α₀ − y' − α)),
    and its variance about 1/(y + α) + 1/(y' + α).

    >>> both, one = {"the": 400, "a": 390}, {"rain": 60}
    >>> [[word for word, *_ in side] for side in ranked([both | one, both])]
    [['rain'], []]
    """
    n_with: Counter[str] = Counter()
    for side in sides:
        n_with.update(side)
    vocabulary = [word for word, n in n_with.items() if n >= _LISTED_MIN]
    counts = np.array([[side.get(word, 0) for word in vocabulary] for side in sides], float)
    totals = np.array([sum(side.values()) for side in sides], float)
    pooled, total = counts.sum(axis=0), totals.sum()
    alpha, prior = PRIOR_SHARE * pooled, PRIOR_SHARE * total
    found = []
    for own, n, rest in zip(counts, totals, total - totals, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):  # of a single word: it says nothing
            here, there = own + alpha, pooled - own + alpha
            log_odds = np.log(here / (n + prior - here)) - np.log(there / (rest + prior - there))
            standard_errors = log_odds / np.sqrt(1 / here + 1 / there)
        far = np.flatnonzero(standard_errors >= STANDARD_ERRORS_MIN).tolist()
        rank = [(vocabulary[i], float(log_odds[i]), float(standard_errors[i])) for i in far]
        found.append(sorted(rank, key=lambda each: (-each[2], each[0])))
    return found


def _named(query: Query) -> list[tuple[str, bool]]:
    """Return the words that a query names, and whether each is a beginning."""
    found = []
    for term in query.terms:
        for atom in term.atoms:
            if atom.kind is TokenKind.EMOJI:
                words = _EMOJI.findall(plain_emoji(atom.value))
            elif atom.kind is TokenKind.CJK:
                words = [atom.value[i : i + 2] for i in range(max(1, len(atom.value) - 1))]
            else:
                words = folded(atom.value).split()
            found += [(word, atom.prefix and word == words[-1]) for word in words]
    return found


def _is_named(word: str, named: Sequence[tuple[str, bool]]) -> bool:
    plain = folded(word).lstrip("#@")
    return any(plain == one or (goes_on and plain.startswith(one)) for one, goes_on in named)
