"""Comparison of queries, or of two times of one: shares, counts, and the words that set them apart.

Where the model reads fields, what their values are sets sides apart too: conditions, as a query has
them (`grade:A`, `owner:true`, `income:>=52000`), stand among the words and are ranked as they are.

Each side is counted as `RecentStore.counted` does it. Its words are those of its newest messages,
up to `WORD_MESSAGES_MAX` and `WORD_CHARS_MAX`, each word once a message. They are ranked by the
weighted log-odds ratio of Monroe, Colaresi and Quinn (2008, *Fightin' words*) of a side against all
others together, in standard errors. The prior is a Dirichlet whose mean are the frequencies of all
sides together: a rare word is pulled towards no difference, so needs more than luck to be listed.

Of two times of one query the words are named that moved a share.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.config.model import FieldKind
from consumers.search.chunks import Chunk, Keys, RowFilter
from consumers.search.matching import StoredText
from consumers.search.query_syntax import (
    BUILT_IN,
    CJK_RUN,
    SIGN,
    FieldCondition,
    Query,
    QueryError,
    TokenKind,
    ascii_lower,
    folded,
    plain_emoji,
    written_name,
)
from consumers.search.rows import Counted, Span, weights_of
from consumers.search.store import COUNTED_MAX, RecentStore

SIDES_MAX = 4
WORD_MESSAGES_MAX = 2_000  # of a side, whose words are counted
WORD_CHARS_MAX = 300_000  # of their texts: 0.05 s of processor time, of Chinese 0.35 s
WORDS_MAX = 12  # listed of a side
MOVING_WORDS_MAX = 5
BINS = 20  # of a field of numbers
PRIOR_SHARE = 0.1  # what the prior counts for, as a share of all words counted
# By chance alone one word in 740 is as far above zero. With this prior a word needs 18 messages.
STANDARD_ERRORS_MIN = 3.0
_TEXTS_AT_ONCE = 500
_LISTED_MIN = 4  # messages of all sides together: a word of fewer is never as far above zero
# Which ends of a field's numbers are compared, by their share of the messages of all sides.
_ENDS = (("<=", 0.1), ("<=", 0.25), (">=", 0.75), (">=", 0.9))
_END = re.compile('("[^"]+"|[^:]+):[<>]')  # how a condition on one begins; no word has a colon
_TYPED_MAX = 100  # characters of a condition
_LINK = re.compile(r"\b(?:https?://|www\.)\S+")
# Python's \w has no vowel signs, without which words of India and South-East Asia fall apart.
_WORD = re.compile("[#@]?[^\\W_][\\w'’\u0300-\u036f\u0900-\u0963\u0966-\u0dff\u0e00-\u0e4e]*")
_EMOJI = re.compile("[\U0001f1e6-\U0001f1ff]{2}|.", re.DOTALL)  # a flag is two characters
QueryReader: TypeAlias = Callable[[str], Query]  # raises `QueryError`
StoredBins: TypeAlias = dict[str, tuple[list[float], dict[str, list[int]]]]  # edges and numbers


class ComparedSide(msgspec.Struct, frozen=True):
    """What is compared: messages that match, of a time if there is one."""

    query: Query
    lang: str | None = None
    span_ms: Span | None = None


class DistinctiveWord(msgspec.Struct, frozen=True):
    """A word or condition that is more frequent on one side than on all others together.

    `standard_errors` says how many of them `log_odds` is above zero; `counts` are the messages
    with the word among those that were read, by class. `effects` say by class how much of the
    difference between this side's share and that of all others the messages with the word make up.
    Where messages weigh differently, `effects` and the proportions of `counts` are of what came.
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
    which is their effect, the largest first. Messages with several words count for each. Shares may
    be `corrected` for the model's errors; effects are on those as predicted.
    """

    label: str
    before: float
    after: float
    n_before: int
    n_after: int
    standard_errors: float
    words: tuple[MovingWord, ...] = ()
    corrected: bool = False

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
                counts[i], step_s=again.step_s, times_ms=again.times_ms, series=again.series,
                n_came=again.n_came,
            )  # fmt: skip
    # The characters bound this work; a time would be over sooner the busier the machine is.
    read = partial(store.texts, with_fields=store.compared.keys() != {"text"})
    rows = [newest_texts(read, found[-WORD_MESSAGES_MAX:], WORD_CHARS_MAX) for found in keys]
    classes = tuple(store.classes)  # as they are now: one may join meanwhile
    queries = [side.query for side in sides]
    words = distinctive_words(rows, classes, queries, left_out, store)
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
    store: RecentStore,
) -> list[list[DistinctiveWord]]:
    """Return the words and conditions of each side, best first.

    None is among them that a query names or, of words, is left out, and none that the store cannot
    be asked for together with the side's query.
    """
    kinds = store.compared
    # A class may be still to join again.
    rows = [[row for row in side if row.label < len(classes)] for side in rows]
    labels = [np.array([row.label for row in side], np.int64) for side in rows]
    weights = [_even_weights(store.chunks(), [row.key for row in side]) for side in rows]
    named = [term for query in queries for term in _named(query)]
    said = [[words_of(_said(row, kinds)) for row in side] for side in rows]

    def is_left_out(i: int, word: str) -> bool:
        is_unwanted = word in left_out or _is_named(word, named)
        return is_unwanted or not _is_addable(queries[i], word, store.parse)

    words = _distinctive(labels, weights, said, len(classes), is_left_out)
    fields = {each.name for query in queries for each in query.conditions}
    others = {n: kind for n, kind in kinds.items() if kind != "words" and n not in fields}
    if not others:
        return words
    met = conditions_met(rows, others, partial(_readable, store))
    conditions = _distinctive(
        labels, weights, met, len(classes),
        lambda i, condition: not _is_addable(queries[i], condition, store.parse),
        of_messages=True,
    )  # fmt: skip
    return [
        sorted(one + other, key=lambda each: -each.standard_errors)[:WORDS_MAX]
        for one, other in zip(words, conditions, strict=True)
    ]


def number_bins(store: RecentStore) -> StoredBins:
    """Return the edges of equal bins of each field of numbers, and what each class has in them.

    They are of the newest stored messages, as many as words are counted of.
    """
    names = [name for name, kind in store.compared.items() if kind == "numbers"]
    keys = store.keys(store.parse(""), None, WORD_MESSAGES_MAX if names else 0)
    rows = newest_texts(partial(store.texts, with_fields=True), keys, WORD_CHARS_MAX)
    classes, found = tuple(store.classes), {}
    for name in names:
        given = [
            (row.label, value)
            for row in rows
            if isinstance(value := (row.fields or {}).get(name), int | float)
        ]
        with suppress(ValueError, OverflowError):  # they are too large to be told apart
            labels, values = np.array(given, np.float64).reshape(-1, 2).T
            edges = np.histogram_bin_edges(values, BINS)
            bins = [
                np.histogram(values[labels == i], edges)[0].tolist() for i in range(len(classes))
            ]
            found[name] = (edges.tolist(), dict(zip(classes, bins, strict=True)))
    return found


def newest_texts(
    read: Callable[[Keys], list[StoredText]], keys: Keys, chars_max: int
) -> list[StoredText]:
    """Return the texts of the newest of some messages, `chars_max` characters at most.

    They are read in pieces, as each may have thousands of characters.
    """
    found: list[StoredText] = []
    while len(keys):
        keys, some = keys[:-_TEXTS_AT_ONCE], keys[-_TEXTS_AT_ONCE:]
        for one in sorted(read(some), reverse=True):
            chars_max -= len(one.text)
            if chars_max < 0:
                return found
            found.append(one)
    return found


def _said(row: StoredText, kinds: Mapping[str, FieldKind]) -> str:
    """Return the text of a message; without one, what its fields say that hold words.

    What is searched of these has the names of fields in it, and all other values.
    """
    if "text" in kinds:
        return row.text
    texts = [(row.fields or {}).get(name) for name, kind in kinds.items() if kind == "words"]
    return "\n".join([text for text in texts if isinstance(text, str)])


def _even_weights(chunks: Sequence[Chunk], keys: Sequence[int]) -> NDArray[np.float64]:
    """Return weights that sum to the size of an even sample that says as much: `WeighedCounts`."""
    sought, weights = np.array(keys, np.int64), np.ones(len(keys))
    for chunk in chunks:
        if (own := weights_of(chunk)) is not None:
            at = sought - chunk.first_key
            is_own = (at >= 0) & (at < len(own))
            weights[is_own] = own[at[is_own]]
    if not len(weights) or weights.min() == weights.max():
        return np.ones(len(keys))
    even: NDArray[np.float64] = weights * (weights.sum() / (weights * weights).sum())
    return even


def _distinctive(
    labels: Sequence[NDArray[np.int64]],
    weights: Sequence[NDArray[np.float64]],
    found: Sequence[Sequence[Collection[str]]],
    n_classes: int,
    is_left_out: Callable[[int, str], bool],
    *,
    of_messages: bool = False,
) -> list[list[DistinctiveWord]]:
    """Return the best of what was `found` in the messages of each side, whose classes `labels` are.

    Of the ends of a field's numbers there is one, the best.
    """

    def by_class(some: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
        sides = zip(labels, weights, some, strict=True)
        return np.array([np.bincount(own[at], each[at], n_classes) for own, each, at in sides])

    n_messages = by_class([np.ones(len(side), np.bool_) for side in found])
    # Words are ranked by rows: of those of large weight there are too few to be sure of any.
    totals = [Counter(chain.from_iterable(side)) for side in found]
    n_rows = list(map(len, found)) if of_messages else None
    best = []
    for i, rank in enumerate(ranked(totals, n_rows)):
        n_read_each = len(found[i]) / max(n_messages[i].sum(), 1.0)
        listed: list[DistinctiveWord] = []
        ends: set[str] = set()
        for word, log_odds, standard_errors in rank:
            if len(listed) == WORDS_MAX:
                break
            end = _END.match(word)
            if (end is not None and end[0] in ends) or is_left_out(i, word):
                continue
            ends.update([] if end is None else [end[0]])
            counts = by_class([np.array([word in row for row in side], np.bool_) for side in found])
            effects = effects_on_shares(counts, n_messages, i)
            read = np.rint(counts[i] * n_read_each).astype(np.int64)
            read[counts[i].argmax()] += not read.any()  # no share can be made of nothing
            own = tuple(read.tolist())
            listed.append(DistinctiveWord(word, log_odds, standard_errors, own, effects))
        best.append(listed)
    return best


def conditions_met(
    sides: Sequence[Sequence[StoredText]], kinds: Mapping[str, FieldKind], read: QueryReader
) -> list[list[set[str]]]:
    """Return the conditions on fields that each message meets, as they are typed.

    They are each value of a category or flag (`grade:A`, `owner:true`), and of numbers the lowest
    and highest tenth and quarter of all sides together, rounded (`income:>=52000`). What is too
    rare to be listed is left out, and so is what no query can ask for, as `read` reads it.
    """
    met = [[set[str]() for _ in side] for side in sides]
    rows = [
        (row.fields or {}, own)
        for side, of_side in zip(sides, met, strict=True)
        for row, own in zip(side, of_side, strict=True)
    ]
    for name, kind in kinds.items():
        given: dict[Any, list[set[str]]] = {}
        for fields, own in rows:
            given.setdefault(fields.get(name), []).append(own)
        for condition, values in _conditions(name, kind, given):
            having = [own for value in values for own in given[value]]
            typed = _typed(condition, read) if len(having) >= _LISTED_MIN else None
            if typed is not None:
                for own in having:
                    own.add(typed)
    return met


def _conditions(
    name: str, kind: FieldKind, given: Mapping[Any, Sequence[object]]
) -> list[tuple[FieldCondition, list[Any]]]:
    """Return conditions on a field, each with those of the `given` values that meet it."""
    if kind == "categories":
        spelled: dict[str, list[str]] = {}
        as_compared = str if name in BUILT_IN else ascii_lower
        for text in [value for value in given if isinstance(value, str)]:
            spelled.setdefault(as_compared(text), []).append(text)
        return [(FieldCondition(name, "=", texts[0]), texts) for texts in spelled.values()]
    values = sorted(value for value in given if isinstance(value, int | float))
    if kind == "flags":
        return [(FieldCondition(name, "=", "true" if v else "false"), [v]) for v in values]
    if len(values) < 2:
        return []
    cuts = np.quantile(
        np.repeat(values, [len(given[value]) for value in values]), [share for _, share in _ENDS]
    ).tolist()
    digits = 2 - math.floor(math.log10((cuts[-1] - cuts[0]) or (values[-1] - values[0])))
    found = []
    for (op, _), cut in zip(_ENDS, cuts, strict=True):
        # Of a number that is nearly always the same the end is what is not.
        moved = max(cut, values[1]) if op == ">=" else min(cut, values[-2])
        said = repr(round(float(moved), digits) + 0.0).removesuffix(".0")  # 0 has no sign
        condition = FieldCondition(name, op, said)
        found.append((condition, list(filter(condition.is_met_by, values))))
    return found


def _typed(condition: FieldCondition, read: QueryReader) -> str | None:
    """Return what is typed for a condition on a field; None if no query can ask for it."""
    if condition.is_built_in and condition.name != "lang":
        return None
    head = f"{written_name(condition.name)}:{condition.op.removeprefix('=')}"
    for text in (f"{head}{condition.value}", f'{head}"{condition.value}"'):
        if len(text) <= _TYPED_MAX:
            with suppress(QueryError):
                if read(text) == Query(text, (), (condition,)):
                    return text
    return None


def _readable(store: RecentStore, text: str) -> Query:
    """Return a query as a store reads it; a `QueryError` if it finds none of a language it names.

    That of a message may be empty, or one too many for the store to tell apart.
    """
    query = store.parse(text)
    for lang in [each.value for each in query.conditions if each.name == "lang"]:
        if not lang or not len(store.keys(Query(), lang, 1)):
            raise QueryError(f"No message is of language {lang!r}.")
    return query


def _is_addable(query: Query, word: str, read: QueryReader) -> bool:
    """Return whether a word or condition can be asked for with all that a query asks for already.

    A query may be full; and behind a quote that is not closed no condition is read.
    """
    try:
        both, own = read(f"{query.text} {word} "), read(f"{word} ")
    except QueryError:
        return False
    return both.conditions == query.conditions + own.conditions


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
    found: Sequence[ShareMove] | None = None,
) -> ShareMove | None:
    """Return how a share moved from one time to another; None if one of them has no message.

    It is the share of the class that rose most, unless a `label` is named, of those `found`.
    """
    if found is None:
        found = moves(before.counted.for_shares[0], after.counted.for_shares[0], classes)
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


def moves(
    before: Sequence[float], after: Sequence[float], classes: Sequence[str]
) -> list[ShareMove]:
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


def ranked(
    sides: Sequence[Mapping[str, int]], n_messages: Sequence[int] | None = None
) -> list[list[tuple[str, float, float]]]:
    """Return the words of each side with log-odds ratio and standard errors, best first.

    `sides` say of each word how many messages have it. With counts y of n words on a side, y' of n'
    on all others, and the prior's α of α₀, a tenth of y + y' and of n + n', the log-odds ratio is
    δ = log((y + α) / (n + α₀ − y − α)) − log((y' + α) / (n' + α₀ − y' − α)),
    and its variance about 1/(y + α) + 1/(y' + α).

    Given `n_messages` of each side, n and n' are these, and not all words: half of the messages may
    meet a condition. So the variance has a term for each side's messages that do not, as well.

    >>> both, one = {"the": 400, "a": 390}, {"rain": 60}
    >>> [[word for word, *_ in side] for side in ranked([both | one, both])]
    [['rain'], []]
    """
    n_with: Counter[str] = Counter()
    for side in sides:
        n_with.update(side)
    vocabulary = [word for word, n in n_with.items() if n >= _LISTED_MIN]
    counts = np.array([[side.get(word, 0) for word in vocabulary] for side in sides], float)
    n_found = [sum(side.values()) for side in sides] if n_messages is None else n_messages
    totals = np.array(n_found, float)
    pooled, total = counts.sum(axis=0), totals.sum()
    alpha, prior = PRIOR_SHARE * pooled, PRIOR_SHARE * total
    found = []
    for own, n, rest in zip(counts, totals, total - totals, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):  # of a single word: it says nothing
            here, there = own + alpha, pooled - own + alpha
            lacking, lacking_there = n + prior - here, rest + prior - there
            log_odds = np.log(here / lacking) - np.log(there / lacking_there)
            variance = 1 / here + 1 / there
            if n_messages is not None:
                variance += 1 / lacking + 1 / lacking_there
            standard_errors = log_odds / np.sqrt(variance)
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
