"""A group of words: tokeniser, vocabulary, counts and likelihood over one field of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import TextPieces, check_length, missing_text, text_column
from streamnb.errors import InputError, check_choice, check_kind
from streamnb.features import statistics
from streamnb.features.counted_words import CountedState
from streamnb.features.fields import check_max, is_name
from streamnb.features.protocol import (
    SHORT_BYTES_MAX,
    SHORT_CHARS_MAX,
    ExampleScratch,
    GroupState,
    plain_values,
)
from streamnb.kernels import word_table
from streamnb.kernels.layout import Rows, Scratch, Texts
from streamnb.labels import UNLABELLED, unlabelled
from streamnb.likelihoods import likelihood_from_dict
from streamnb.likelihoods.base import Batch, BatchToUnlearn, WordLikelihood
from streamnb.likelihoods.multinomial import Hybrid, Multinomial, hybrid_from_dict
from streamnb.tokenizer import GRAMS_MAX, Tokenizer, check_characters, check_ngrams, scratch_for
from streamnb.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Words:
    """Words of one text field, under a likelihood.

    Parameters
    ----------
    likelihood : Bernoulli, Multinomial or Complement
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
    dictionary : sequence of str, optional
        The words that there are, as `NaiveBayes.words` shows them (n-grams with single spaces, `¬`
        before a negated word). Others are ignored then, V is their number, and `max_words` says
        nothing. By default words join as they come.
    hybrid : Hybrid, optional
        Weights learned beside the counts, for sharper answers; needs a `Multinomial`.
    case_fold, fold_mentions, fold_links, squeeze, emoticons, punctuation, ends, gap, entities, \
    compose, characters
        See `Tokenizer`.

    Examples
    --------
    >>> from streamnb import Bernoulli
    >>> Words(Bernoulli(), ngrams=(1, 2)).tokenizer.ngrams
    (1, 2)
    """

    likelihood: WordLikelihood
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
    dictionary: tuple[str, ...] | None = None
    hybrid: Hybrid | None = None
    punctuation: bool = False
    ends: bool = False
    gap: int = 0
    entities: bool = False
    compose: bool = False
    characters: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_words("Words", self.likelihood, self.field)
        check_hybrid("Words", self.hybrid, self.likelihood)
        if self.counts is not None:
            check_choice("counts", self.counts, "presence", "occurrence")
        if self.counts == "occurrence" and not self.likelihood.counts_occurrences:
            raise InputError(
                "counts='occurrence' needs a multinomial likelihood: Bernoulli speaks of presence."
            )
        object.__setattr__(self, "max_words", check_max("max_words", self.max_words))
        object.__setattr__(self, "ngrams", check_ngrams(self.ngrams))
        object.__setattr__(self, "characters", check_characters(self.characters))
        object.__setattr__(self, "dictionary", check_dictionary(self.dictionary))
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
        """Return the state of a group that has learned nothing."""
        return WordsState(self, name, n_classes, hash_key)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        return plain_values(self) | {"kind": "words"}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        read = {
            "likelihood": likelihood_from_dict(values["likelihood"]),
            "ngrams": tuple(values["ngrams"]),
            "hybrid": hybrid_from_dict(values.get("hybrid")),
        }
        return cls(**{name: value for name, value in (values | read).items() if name != "kind"})


# For one text: whose it is does not matter to reading it, only whether it is to be learned.
_FIRST = np.zeros(1, dtype=np.int32)
_NONE = unlabelled(1)


def check_words(group: str, likelihood: Any, field: Any) -> None:
    """Refuse what is no likelihood of words, or no name of a field."""
    # Any family that says whether repetitions count: a class does not, only its objects do.
    # A group says so too, and is none: it has a likelihood that does.
    says_so = isinstance(getattr(likelihood, "counts_occurrences", None), bool)
    of_group = getattr(likelihood, "likelihood", None)
    if not says_so or hasattr(of_group, "counts_occurrences"):
        raise InputError(
            f"{group}.likelihood must be a Multinomial(), Bernoulli() or Complement()."
            f" Got {likelihood!r} instead."
        )
    if field is not None and not is_name(field):
        raise InputError(f"{group}.field must be a str without NUL. Got {field!r} instead.")


def check_hybrid(group: str, hybrid: Any, likelihood: Any) -> None:
    """Refuse what is no hybrid, or one beside a likelihood that it cannot correct."""
    if hybrid is None:
        return
    check_kind(f"{group}.hybrid", hybrid, Hybrid)
    if not isinstance(likelihood, Multinomial):
        raise InputError(
            f"{group}.hybrid corrects the log-odds of a multinomial. Got {likelihood!r} as the"
            " likelihood: take Multinomial(), or no hybrid."
        )


def check_dictionary(words: Any) -> tuple[str, ...] | None:
    """Return declared words as a tuple, or say what is wrong with them."""
    if words is None:
        return None
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise InputError(f"dictionary must be a sequence of str. Got {words!r} instead.")
    for i, word in enumerate(words):
        if not isinstance(word, str) or not word:
            raise InputError(f"dictionary[{i}] must be a str that is not empty. Got {word!r}.")
    # A lone surrogate has no UTF-8 form: it is read as "?", in the words of a text as well.
    forms = {word.encode("utf-8", "replace") for word in words}
    if not words or len(forms) < len(words):
        raise InputError("dictionary must hold at least one word, and each only once.")
    return tuple(words)


class WordsState(CountedState):
    """The state of `Words`: text to columns and counts; the rest is `CountedState`'s."""

    takes_in_place = True

    def __init__(self, spec: Words, name: str, n_classes: int, hash_key: int) -> None:
        self.field = spec.field or name
        self.tokenizer = spec.tokenizer
        self._grams_per_token = self.tokenizer.grams_per_token
        self._rewrites = self.tokenizer.rewrites
        self._extras = self.tokenizer.has_extras
        self.reader = self.tokenizer.reader(hash_key, occurrence=spec.counts_occurrences)
        super().__init__(spec, name, n_classes, self.reader.key, spec.dictionary)

    @property
    def fields(self) -> Sequence[str]:
        """The one field of text."""
        return (self.field,)

    def read(self, columns: Mapping[str, Any], n: int) -> TextPieces:
        """Return the text of a batch."""
        values = columns.get(self.field)
        text = missing_text(n) if values is None else text_column(self.field, values)
        check_length(self.field, text, n)
        return text

    def encode(
        self, text: TextPieces, begin: int, end: int, labels: NDArray[np.int32], *, learn: bool
    ) -> Batch:
        """Return texts `begin` to `end` as columns and counts; to learn, new words get columns."""
        learn = learn and not self.n_declared
        if self.n_declared:  # other words are none, in rows that are taken back too
            labels = np.maximum(labels, np.int32(UNLABELLED))
        return self._batch(text, begin, end, labels, self.vocabulary, learn=learn)

    def encode_to_unlearn(self, text: TextPieces, labels: NDArray[np.int32]) -> BatchToUnlearn:
        """Return all rows with their unknown words; the vocabulary stays as it is."""
        # Of a declared dictionary other words are none.
        batch = self._batch(
            text, 0, len(labels), labels, self.vocabulary, learn=False, keep=not self.n_declared
        )
        n = int(batch.rows.indptr[-1])
        rows = Rows(batch.rows.columns[:n], batch.rows.counts[:n], batch.rows.indptr)
        return BatchToUnlearn(rows, batch.present, partial(self._word, text, rows.indptr))

    def _word(self, text: TextPieces, indptr: NDArray[np.int64], at: int) -> str:
        """Return the text of an entry of rows, known or not: its row is read once more."""
        row, own = int(np.searchsorted(indptr, at, "right")) - 1, Vocabulary()
        batch = self._batch(text, row, row + 1, _FIRST, own, learn=True)
        place = at - int(indptr[row])
        return own.words(batch.rows.columns[place : place + 1])[0]

    def _batch(
        self,
        text: TextPieces,
        begin: int,
        end: int,
        labels: NDArray[np.int32],
        vocabulary: Vocabulary,
        *,
        learn: bool,
        keep: bool = False,
    ) -> Batch:
        texts = text.piece(begin, end)
        if self._rewrites:
            texts = self.tokenizer.rewritten(texts)
        n = end - begin
        sizes = np.maximum(texts.ends - texts.starts, 0)
        each = self._grams_per_token
        room = int(np.minimum(self.tokenizer.tokens_max(sizes) * each, GRAMS_MAX).sum())
        rows = Rows(np.empty(room, dtype=np.int32), np.empty(room), np.zeros(n + 1, dtype=np.int64))
        scratch = scratch_for(int(sizes.max(initial=0)), each)
        self._encode(texts, labels, vocabulary, scratch, rows, learn=learn, keep=keep)
        return Batch(rows, texts.ends >= 0)

    def can_encode_one(self, x: Mapping[str, Any]) -> bool:
        """Return whether an example's text is one that `encode_one` can take."""
        text = x.get(self.field)
        return type(text) is str and len(text) <= SHORT_CHARS_MAX

    def encode_one(self, x: Mapping[str, Any], scratch: ExampleScratch, *, learn: bool) -> Batch:
        """Return one short text as `encode` does, in the thread's own buffers."""
        scratch.put_text(x[self.field])
        text = scratch.text
        if self._rewrites:
            text = self.tokenizer.rewritten(text)
            if text is not scratch.text and text.ends[0] - text.starts[0] > SHORT_BYTES_MAX:
                longer: Batch = super().encode_one(x, scratch, learn=learn)
                return longer  # by composing it
        labels = _FIRST if learn else _NONE
        learn = learn and not self.n_declared
        rows = scratch.batch.rows
        self._encode(text, labels, self.vocabulary, scratch.tokens, rows, learn=learn)
        return scratch.batch

    def reads_as(self, other: GroupState) -> bool:
        """Return whether another group turns the same examples into the same words."""
        return (
            isinstance(other, WordsState)
            and (self.n_declared, other.n_declared) == (None, None)
            and (self.field, self.tokenizer) == (other.field, other.tokenizer)
            and self.spec.counts_occurrences == other.spec.counts_occurrences
        )

    def join(self, other: WordsState) -> NDArray[np.int64]:
        """Go on in another group's vocabulary, of the same hash key, which it reads as.

        Return the old column of each of its columns, -1 for words that stand at zero here.
        """
        live = self.live_columns()
        fps = self.vocabulary.table.fingerprints[live]
        there = other.vocabulary.enter(fps, self.vocabulary.texts(live))
        self.vocabulary = other.vocabulary
        self.vocabulary.n_shared = self.vocabulary.n_words
        columns = np.full(self.vocabulary.n_words, -1, dtype=np.int64)
        columns[there] = live
        self.counts = self.grow(statistics.take(self.counts, "columns", columns))
        if self.weights is not None:
            self.weights = self._grow_weights(statistics.take(self.weights, "columns", columns))
            self.read_kinds()
        return columns

    def rekey(self, hash_key: int) -> None:
        """Go on with another hash key; see `GroupState`."""
        super().rekey(hash_key)
        self.reader = self.tokenizer.reader(hash_key, occurrence=self.spec.counts_occurrences)

    def _encode(
        self,
        texts: Texts,
        labels: NDArray[np.int32],
        vocabulary: Vocabulary,
        scratch: Scratch,
        rows: Rows,
        *,
        learn: bool,
        keep: bool = False,
    ) -> None:
        n = len(texts.starts)
        # Words without counts are unseen: a call that was broken off may have left some.
        n_words = int(self.vocabulary.table.state[word_table.N_WORDS])
        n_known = min(n_words, len(self.counts.by_word))
        encode = word_table.encode_extras if self._extras else word_table.encode
        row = 0
        while row < n:
            row, why, wanted = encode(
                texts,
                labels,
                row,
                learn,
                keep,
                n_known,
                self.reader,
                vocabulary.table,
                scratch,
                rows,
            )
            if why != word_table.DONE:
                vocabulary.make_room(why, wanted)
        # Asked without a call, which one example would feel.
        if learn and self.hybrid is not None:
            known = self.vocabulary
            if known.table.state[word_table.N_WORDS] > known.n_kinds:
                known.read_kinds()
