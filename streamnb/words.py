"""A group of words: tokeniser, vocabulary, counts and likelihood over one field of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from streamnb import statistics
from streamnb.columns import TextPieces, missing_text, text_column
from streamnb.desk import SHORT_CHARS_MAX, Desk
from streamnb.errors import InputError
from streamnb.kernels import counting, lookup
from streamnb.kernels.layout import Rows, Scratch, Texts
from streamnb.likelihoods import FAMILIES, Bernoulli, Multinomial
from streamnb.likelihoods.base import Batch
from streamnb.tokenizer import GRAMS_MAX, Tokenizer, scratch_for, tokens_max
from streamnb.vocabulary import Vocabulary

# Of max_words, when words must leave: rare enough that the pass over the table costs nothing.
_KEPT_SHARE = 0.75
UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Words:
    """Words of one text field, under a likelihood.

    Parameters
    ----------
    likelihood : Bernoulli or Multinomial
        With its prior.
    ngrams : tuple of two int
        Shortest and longest n-gram, in words.
    negation : bool
        Mark the words that a negating one governs.
    counts : {"presence", "occurrence"}, optional
        How often a word counts in one text: once, or each time. By default what the likelihood
        speaks of.
    max_words : int
        Bound on V. At the bound the least useful words leave (`statistics.leaving` has the rule)
        until three quarters are kept.
    field : str, optional
        The field of text; by default the group's name.
    case_fold, fold_mentions, fold_links, squeeze, emoticons : bool
        See `Tokenizer`.

    Examples
    --------
    >>> Words(Bernoulli(), ngrams=(1, 2)).tokenizer.ngrams
    (1, 2)
    """

    likelihood: Bernoulli | Multinomial
    ngrams: tuple[int, int] = (1, 1)
    negation: bool = False
    counts: Literal["presence", "occurrence"] | None = None
    max_words: int = 1_000_000
    field: str | None = None
    case_fold: bool = True
    fold_mentions: bool = True
    fold_links: bool = True
    squeeze: bool = True
    emoticons: bool = True

    def __post_init__(self) -> None:
        if self.counts not in (None, "presence", "occurrence"):
            raise InputError(
                f"counts must be 'presence' or 'occurrence'. Got {self.counts!r} instead."
            )
        if self.counts == "occurrence" and not self.likelihood.counts_occurrences:
            raise InputError(
                "counts='occurrence' needs a multinomial likelihood: Bernoulli speaks of presence."
            )
        if not 1 <= self.max_words < 1 << 31:
            raise InputError(
                f"max_words must be between 1 and 2,147,483,647. Got {self.max_words!r} instead."
            )
        object.__setattr__(self, "ngrams", tuple(self.ngrams))
        _ = self.tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        """How this group reads text."""
        return Tokenizer(**{f.name: getattr(self, f.name) for f in fields(Tokenizer)})

    @property
    def counts_occurrences(self) -> bool:
        """Whether repetitions in one text count."""
        if self.counts is None:
            return self.likelihood.counts_occurrences
        return self.counts == "occurrence"

    def start(self, name: str, n_classes: int, hash_key: int) -> WordsState:
        """Return the living side of this group, knowing nothing yet."""
        return WordsState(self, name, n_classes, hash_key)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {
            "kind": "words",
            "likelihood": self.likelihood.to_dict(),
            "ngrams": list(self.ngrams),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        values = dict(values)
        values.pop("kind")
        family = values.pop("likelihood")
        likelihood = FAMILIES[family["name"]].from_dict(family)
        return cls(likelihood=likelihood, **values | {"ngrams": tuple(values["ngrams"])})


class WordsState:
    """The living side of `Words`.

    Attributes
    ----------
    vocabulary : Vocabulary
        Word → column.
    counts : Counts
        N_jc, N_c, N_·c and V, by the vocabulary's columns.
    n_words_max : int
        The bound on V that learning keeps to.
    n_dropped : int
        How many words have left so far.
    """

    def __init__(self, spec: Words, name: str, n_classes: int, hash_key: int) -> None:
        self.spec = spec
        self.field = spec.field or name
        self.reader = spec.tokenizer.reader(hash_key, occurrence=spec.counts_occurrences)
        self.vocabulary = Vocabulary()
        self.counts = statistics.empty(n_classes, self.vocabulary.capacity)
        self.estimator = spec.likelihood.estimator()
        self.n_words_max = spec.max_words
        self.n_dropped = 0
        self.rebuild()

    def read(self, columns: Mapping[str, Any], n: int) -> TextPieces:
        """Return the text of a batch."""
        values = columns.get(self.field)
        text = missing_text(n) if values is None else text_column(self.field, values)
        if len(text) != n:  # kernels take this length on trust
            raise InputError(
                f"field {self.field!r}: its length is {n}, and it yielded {len(text)} values."
                " Give a list, and leave it alone until the call returns."
            )
        return text

    def encode(
        self, text: TextPieces, begin: int, end: int, labels: NDArray[np.int32], *, learn: bool
    ) -> Batch:
        """Return texts `begin` to `end` as columns and counts; to learn, new words get columns."""
        texts = text.piece(begin, end)
        n = end - begin
        sizes = np.maximum(texts.ends - texts.starts, 0)
        longest = self.spec.ngrams[1]
        room = int(np.minimum(tokens_max(sizes) * longest, GRAMS_MAX).sum())
        rows = Rows(
            np.empty(room, dtype=np.int32),
            np.empty(room, dtype=np.int32),
            np.zeros(n + 1, dtype=np.int64),
        )
        scratch = scratch_for(int(sizes.max(initial=0)), longest)
        self._encode(texts, labels, scratch, rows, learn=learn)
        return Batch(rows, texts.ends >= 0)

    def has_short(self, x: Mapping[str, Any]) -> bool:
        """Tell whether an example's text is one that `encode_one` can take."""
        text = x.get(self.field)
        return type(text) is str and len(text) <= SHORT_CHARS_MAX

    def encode_one(self, x: Mapping[str, Any], desk: Desk, *, learn: bool) -> Batch:
        """Return one short text as `encode` does, at the thread's own desk."""
        scratch = scratch_for(desk.put(x[self.field]), self.spec.ngrams[1])
        self._encode(desk.texts, desk.labels, scratch, desk.batch.rows, learn=learn)
        return desk.batch

    def _encode(
        self,
        texts: Texts,
        labels: NDArray[np.int32],
        scratch: Scratch,
        rows: Rows,
        *,
        learn: bool,
    ) -> None:
        n = len(texts.starts)
        n_known = self.vocabulary.n_words
        row = 0
        while row < n:
            row, why, wanted = lookup.encode(
                texts,
                labels,
                row,
                learn,
                n_known,
                self.reader,
                self.vocabulary.table,
                scratch,
                rows,
            )
            if why != lookup.DONE:
                self.vocabulary.make_room(why, wanted)

    def run(
        self,
        batch: Batch,
        labels: NDArray[np.int32],
        out: NDArray[np.float64],
        *,
        learn: bool,
        row: int = 0,
    ) -> None:
        """Judge each row from `row` to the end of `labels`, then learn it if labelled.

        Words leave where V would pass its bound.
        """
        if learn and len(self.counts.by_word) < self.vocabulary.capacity:
            self.counts = statistics.with_capacity(self.counts, self.vocabulary.capacity)
        n_judged = row
        while True:
            row, why, n_new = self.estimator.run(
                self.counts,
                batch,
                labels,
                out,
                row=row,
                n_judged=n_judged,
                learn=learn,
                n_words_max=self.n_words_max,
                n_words=len(self.counts.by_word),  # those beyond the last word are at zero
            )
            if why != counting.FULL:
                return
            n_judged = row + 1
            self._drop(n_new)

    def _drop(self, n_new: int) -> None:
        columns = statistics.leaving(
            self.counts,
            self.vocabulary.table,
            self._n_counted,
            kept(self.n_words_max, n_new),
        )
        statistics.drop(self.counts, columns)
        self.n_dropped += len(columns)
        self.rebuild()

    def rebuild(self) -> None:
        """Build the likelihood's cache anew, after the counts changed otherwise than by `run`."""
        self.estimator.rebuild(self.counts, self._n_counted)

    @property
    def _n_counted(self) -> int:
        """How many columns have counts; another thread may be giving out more meanwhile."""
        return min(self.vocabulary.n_words, len(self.counts.by_word))

    def is_loose(self) -> bool:
        """Tell whether so many words are at zero that a new, smaller table is due."""
        return self.vocabulary.n_words > 2 * int(self.counts.state[0]) + 1024

    def compact(self) -> NDArray[np.int64] | None:
        """Move to a new table if many words are at zero; return the columns that stay, or None."""
        if not self.is_loose():
            return None
        columns = statistics.live_columns(self.counts, self.vocabulary.n_words)
        self.vocabulary = self.vocabulary.keep(columns)
        self.counts = statistics.with_capacity(
            statistics.take_columns(self.counts, columns), self.vocabulary.capacity
        )
        return columns

    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew."""
        self.counts = statistics.with_classes(self.counts, n_classes)
        self.rebuild()

    def frozen(self) -> Self:
        """Return a copy over the same table that later learning does not touch."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.vocabulary = self.vocabulary.view()
        twin.counts = statistics.copy(self.counts, self.vocabulary.n_words)
        twin.estimator = self.estimator.copy()
        return twin

    def find(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return the columns of words with a count above zero, -1 for others."""
        columns = self.vocabulary.find(words, self.reader.key).astype(np.int64)
        known = columns >= 0
        columns[known] = np.where(
            self.counts.by_word[columns[known]].any(axis=1), columns[known], -1
        )
        return columns


def kept(n_words_max: int, n_new: int) -> int:
    """Return how many words stay when `n_new` new ones must fit under the bound."""
    return max(0, min(int(n_words_max * _KEPT_SHARE), n_words_max - n_new))
