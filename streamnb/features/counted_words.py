"""What groups of words share: vocabulary, counts and likelihood, however the words are read."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.features import statistics
from streamnb.features.protocol import (
    Floats,
    GroupPart,
    GroupState,
    Places,
    count_within_bound,
    learn_within_bound,
)
from streamnb.features.statistics import UNBOUNDED, Arrays, kept, left_of, short_words
from streamnb.kernels import counting, word_table
from streamnb.kernels import hybrid as kernel
from streamnb.kernels.hybrid import Said, Weights
from streamnb.kernels.layout import DECLARED, LIVE, Counts, RowUpdates, RunOptions
from streamnb.labels import UNLABELLED
from streamnb.likelihoods.base import Batch, BatchToUnlearn, WordLikelihood, take_rows
from streamnb.likelihoods.multinomial import (
    Hybrid,
    ThreadScratch,
    check_weights,
    hybrid_scratch,
    merge_weights,
)
from streamnb.tokenizer import fingerprints_of, hash_key_words
from streamnb.vocabulary import Vocabulary

NOTHING_SAID = Said(np.empty((0, 0)), np.empty((0, 0)))  # without other groups to be weighted
_kept = ThreadScratch()


class CountedState(GroupState):
    """The state of a group of words.

    `key` (2,): SipHash's key. `vocabulary`: word → column. `n_words_max`: the bound on V that
    learning keeps to; `n_part_words_max`: that of a part. `n_declared`: how many words the
    dictionary declares; None where words come as they please. `weights`: the hybrid's, if any.
    """

    counts: Counts  # N_jc, N_c, N_·c and V, by the vocabulary's columns
    n_others: int = 0  # groups beside it that the hybrid weights, too; see `set_n_others`
    ranked_by: slice | None = None  # the classes by whose counts words leave; all if none

    def __init__(
        self,
        spec: Any,
        name: str,
        n_classes: int,
        key: NDArray[np.uint64],
        dictionary: Sequence[str] | None,
    ) -> None:
        self.spec, self.name, self.key = spec, name, key
        self._likelihood: WordLikelihood = spec.likelihood
        self.vocabulary = Vocabulary.declared(name, dictionary, key) if dictionary else Vocabulary()
        capacity = self.vocabulary.capacity
        self.counts = statistics.empty(Counts, classes=n_classes, columns=capacity)
        self.counts.state[DECLARED] = len(dictionary or ())
        self.n_declared = len(dictionary) if dictionary else None
        self.estimator = self._likelihood.estimator(self.n_declared, n_classes)
        self.leaves_prior_out = self._likelihood.leaves_prior_out
        self.hybrid = spec.hybrid
        self.weights = self._empty_weights(n_classes)
        self.read_kinds()
        self.set_bounded(bounded=True)
        self.rebuild()

    # ---- learning and predicting ----------------------------------------------------------------

    def run(
        self,
        batch: Batch,
        updates: RowUpdates,
        out: Floats,
        *,
        learn: bool,
        row: int = 0,
        said: Said = NOTHING_SAID,
    ) -> None:
        """Predict each row from `row` on, then learn it where it says so.

        Words leave where V would pass its bound. `said`: what the groups say that the hybrid
        weights.
        """
        if self.weights is not None:
            self._run_hybrid(self, batch, updates, said, out, learn=learn)
            return
        if learn and len(self.counts.by_word) < len(self.vocabulary.table.fingerprints):
            self.counts = self.grow(self.counts)
        options = RunOptions(row, row, learn, self.n_words_max)
        while True:
            # Columns beyond the last word are at zero.
            row, why, n_new = self.estimator.run(
                self.counts, batch, updates, options, len(self.counts.by_word), out
            )
            if why != counting.FULL:
                return
            options = options._replace(row=row, n_predicted=row + 1)
            self._drop(n_new)

    def learn_part(
        self,
        part: GroupPart,
        batch: Batch,
        updates: RowUpdates,
        out: Floats,
        said: Said = NOTHING_SAID,
    ) -> None:
        """Learn rows in a part and in the group's sum; see `learn_within_bound`."""
        if self.weights is not None:
            self._run_hybrid(part, batch, updates, said, out, learn=True)
            return
        learn_within_bound(self, part, batch, updates, out, self.n_part_words_max)

    def count(
        self, part: GroupPart, batch: Batch, updates: RowUpdates, said: Said = NOTHING_SAID
    ) -> None:
        """Learn rows in a part alone; see `GroupState`."""
        if self.weights is not None:
            out = np.zeros((len(updates.labels), len(self.counts.tokens)))
            self._run_hybrid(part, batch, updates, said, out, learn=True, alone=True)
            return
        count_within_bound(self, part, batch, updates, self.n_part_words_max)

    def learn_rows(
        self, counts: Counts, batch: Batch, updates: RowUpdates, row: int, n_words_max: int
    ) -> tuple[int, int, int]:
        """Add a batch's labelled rows to some counts; see `kernels.counting.add_rows`."""
        return counting.add_rows(counts, batch.rows, batch.present, updates, row, n_words_max)

    def drop_from_part(self, part: GroupPart, n_kept: int) -> int:
        """Drop a part's least useful words, from the sum as well; return how many."""
        self._grow_sum()  # it was not, while parts learned alone
        table, n_words = self.vocabulary.table, self.vocabulary.n_words
        columns = statistics.must_leave(part.counts, table, n_words, n_kept)
        held = statistics.drop(part.counts, columns, decays=self.decays)
        statistics.subtract_rows(self.counts, columns, held, decays=self.decays)
        self._forget_weights(part, columns)
        self.rebuild()
        return len(columns)

    def _drop(self, n_new: int) -> None:
        table, n_kept, own = self.vocabulary.table, kept(self.n_words_max, n_new), self.ranked_by
        columns = statistics.must_leave(self.counts, table, self._n_counted, n_kept, ranked_by=own)
        statistics.drop(self.counts, columns, decays=self.decays)
        self._forget_weights(self.as_part(), columns)
        self.n_dropped += len(columns)
        self.rebuild()

    def rebuild(self) -> None:
        """Rebuild the likelihood's cache, after the counts changed otherwise than by `run`."""
        self.estimator.rebuild(self.counts, self._n_counted)

    @property
    def _n_counted(self) -> int:
        """How many columns have counts; another thread may be giving out more meanwhile."""
        return min(self.vocabulary.n_words, len(self.counts.by_word))

    def log_theta(self, columns: NDArray[np.int64], scale: float) -> Floats:
        """Return log θ_jc of columns, ndarray of shape (n, n_classes), in nats."""
        return self._likelihood.log_theta(self.counts, columns, self.n_declared, scale)

    def live_columns(self) -> NDArray[np.int64]:
        """Return the columns that there is something to tell of: all of a declared dictionary."""
        n = self.vocabulary.n_words
        return np.arange(n) if self.n_declared else statistics.live_columns(self.counts, n)

    def find(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return the columns of words with a count above zero or declared, -1 for others."""
        columns = self.vocabulary.find(words, self.key).astype(np.int64)
        known = (columns >= 0) & (columns < self._n_counted)
        columns[~known] = -1
        if not self.n_declared:
            columns[known] = np.where(
                self.counts.by_word[columns[known]].any(axis=1), columns[known], -1
            )
        return columns

    # ---- unlearning, merging and copies ---------------------------------------------------------

    def to_unlearn(
        self,
        batch: BatchToUnlearn,
        labels: NDArray[np.int32],
        weights: Floats,
        part: GroupPart | None,
    ) -> tuple[Batch, int]:
        """Return a batch, of which learning leaves out words that have left; see `GroupState`."""
        counts = self.counts if part is None else part.counts
        n_dropped = self.n_dropped if part is None else part.n_dropped
        rows = batch.rows
        own = np.where(batch.present, labels, np.int32(UNLABELLED))
        statistics.check_examples(
            f"group {self.name!r}", own, weights, counts.examples, decays=self.decays
        )
        short, wanted, held = short_words(counts, rows, own, weights, decays=self.decays)
        if short.any() and not n_dropped:
            at = int(np.argmax(short))
            row = statistics.at_row(int(np.searchsorted(rows.indptr, at, "right")) - 1, len(labels))
            what = f"group {self.name!r}{row}: {batch.word(at)!r}"
            raise statistics.not_learned(what, float(wanted[at]), float(held[at]))
        return Batch(rows, own >= 0), int(short.sum())

    def holds(
        self, batch: Batch, labels: NDArray[np.int32], weights: Floats, part: GroupPart | None
    ) -> bool:
        """Return whether the rows with a label can be taken back, whatever is learned meanwhile.

        Words that have left are no hindrance: the rows go without them.
        """
        counts = self.counts if part is None else part.counts
        n_dropped = self.n_dropped if part is None else part.n_dropped
        own = np.where(batch.present, labels, np.int32(UNLABELLED))
        if statistics.has_short(counts.examples, own, weights):
            return False
        if n_dropped:
            return True
        chosen = np.flatnonzero(own >= 0)
        rows = take_rows(batch.rows, chosen)
        return not short_words(counts, rows, own[chosen], weights[chosen], decays=False)[0].any()

    def merge(self, other: Any, places: NDArray[np.int64], factor: float, sign: int) -> None:
        """Add another group's counts, word by word, or take them away; see `GroupState`."""
        theirs = other.live_columns()
        fps = other.vocabulary.table.fingerprints[theirs]
        ours = self.vocabulary.enter(fps, other.vocabulary.texts(theirs))
        counts = self.counts = self.grow(self.counts)
        by_word = other.counts.by_word[theirs] * factor
        examples, tokens = other.counts.examples * factor, other.counts.tokens * factor
        if sign > 0:
            counts.by_word[np.ix_(ours, places)] += by_word
            counts.examples[places] += examples
            counts.tokens[places] += tokens
        else:
            self._take(ours, places, by_word, examples, other.n_dropped)
        if self.weights is not None:
            self.weights = self._grow_weights(self.weights)
            merge_weights(self.weights, other.weights, (ours, theirs), places, sign, factor)
            totals = statistics.column_totals(counts, len(self.weights.words))
            self.weights.words[totals == 0.0] = 0.0
            self.read_kinds()
        self.recount(counts)
        self.n_dropped = max(0, self.n_dropped + sign * other.n_dropped)
        if not self.n_declared and int(counts.state[LIVE]) > self.n_words_max:
            self._drop(0)
        self.rebuild()

    def _take(
        self,
        ours: NDArray[np.int64],
        places: NDArray[np.int64],
        by_word: Floats,
        examples: Floats,
        n_dropped: int,
    ) -> None:
        """Take counts of some words and classes away; words that had left are skipped."""
        counts = self.counts
        entries = np.ix_(ours, places)
        held = counts.by_word[entries]
        left = left_of(held, by_word, decays=self.decays)
        short = left < 0.0
        if short.any() and not (self.n_dropped or n_dropped):
            at, c = (int(each[0]) for each in np.nonzero(short))
            raise InputError(
                f"group {self.name!r}: {self.vocabulary.words(ours[at : at + 1])[0]!r} would be"
                f" counted {left[at, c]:g} times. Subtract only what was merged before."
            )
        left = np.where(short, held, left)
        self.n_skipped += int(short.any(axis=1).sum())
        counts.by_word[entries] = left
        gone = statistics.total(held - left)
        tokens = left_of(counts.tokens[places], gone, decays=self.decays)
        counts.tokens[places] = np.maximum(tokens, 0.0)
        counts.examples[places] = left_of(counts.examples[places], examples, decays=self.decays)
        if counts.examples.min(initial=0.0) < 0.0:
            raise InputError(
                f"group {self.name!r}: a class would hold {counts.examples.min():g} examples."
                " Subtract only what was merged before."
            )

    def rekey(self, hash_key: int) -> None:
        """Go on with another hash key; see `GroupState`."""
        texts = self.vocabulary.texts(np.arange(self.vocabulary.n_words))
        held = self.vocabulary.table.fingerprints[: self.vocabulary.n_words]
        unlike = np.flatnonzero(fingerprints_of(texts, self.key) != held)
        if len(unlike):
            raise InputError(
                f"group {self.name!r}: the text of {self.vocabulary.words(unlike[:1])[0]!r} is not"
                " kept whole, so that it cannot be brought to another hash key. Make both models"
                " with the same hash_key."
            )
        self.key = hash_key_words(hash_key)
        self.vocabulary = self.vocabulary.with_fingerprints(fingerprints_of(texts, self.key))
        self.read_kinds()
        self.counts = self.grow(self.counts)

    def rescale(self, factor: float) -> None:
        """Multiply all counts by a power of two."""
        self.rescale_part(self.as_part(), factor)
        self.rebuild()

    def rescale_counts(self, counts: Counts, factor: float) -> None:
        """Multiply counts by a power of two; memory beyond the last word is not touched."""
        n = min(self.vocabulary.n_words, len(counts.by_word))
        super().rescale_counts(statistics.take(counts, "columns", np.arange(n)), factor)

    def rescale_part(self, part: GroupPart, factor: float) -> None:
        """Multiply a part's counts; a word that falls to zero takes its weights with it."""
        super().rescale_part(part, factor)
        if part.weights is not None:
            words = part.weights.words[: self.vocabulary.n_words]
            np.multiply(words, factor, out=words)
            np.add(words, 0.0, out=words)  # -0.0 becomes 0.0
            totals = statistics.column_totals(part.counts, len(words))
            self._forget_weights(part, np.flatnonzero(totals == 0.0))

    def set_classes(self, n_classes: int) -> None:
        """Add room for new classes, or remove the last ones; see `GroupState`."""
        self.estimator = self._likelihood.estimator(self.n_declared, n_classes)
        n_words = self.vocabulary.n_words
        self.counts = statistics.resized(self.counts, n_words, classes=n_classes)
        if self.weights is not None:
            self.weights = statistics.resized(self.weights, n_words, classes=n_classes)
        self.rebuild()

    def frozen_table(self) -> Self:
        """Return a copy over the same table as it is now; see `GroupState`."""
        twin = super().frozen_table()
        twin.vocabulary = self.vocabulary.view()
        return twin

    def frozen_copy(self) -> Self:
        """Return a copy over the same table that later learning does not touch."""
        twin = super().frozen_copy()
        twin.estimator = self.estimator.copy()
        twin.weights = self._copy_weights(self.weights)
        return twin

    def empty_counts(self) -> Counts:
        """Return counts of nothing, under the same dictionary."""
        counts: Counts = super().empty_counts()
        counts.state[DECLARED] = self.counts.state[DECLARED]
        return counts

    def grow(self, counts: Counts) -> Counts:
        """Return counts with room for the vocabulary."""
        return statistics.grown(counts, columns=self.vocabulary.capacity)

    def recount(self, counts: Counts) -> None:
        """Count the words above zero."""
        statistics.recount(counts)

    def copy_counts(self, counts: Counts) -> Counts:
        """Copy the counts of the words that came, without the room for others."""
        return statistics.copy(counts, self.vocabulary.n_words)

    def needs_compaction(self) -> bool:
        """Return whether so many words are at zero that a new, smaller table is due."""
        n_kept = max(int(self.counts.state[LIVE]), self.vocabulary.n_shared)
        n_words = int(self.vocabulary.table.state[word_table.N_WORDS])
        return not self.n_declared and n_words > 2 * n_kept + 1024

    def compact(self) -> NDArray[np.int64] | None:
        """Move to a new table if many words are at zero; return the columns that stay, or None."""
        if not self.needs_compaction():
            return None
        columns = statistics.live_columns(self.counts, self.vocabulary.n_words)
        self.vocabulary = self.vocabulary.keep(columns)
        self.counts = self.grow(statistics.take(self.counts, "columns", columns))
        if self.weights is not None:
            self.weights = self._grow_weights(statistics.take(self.weights, "columns", columns))
            self.read_kinds()
        return columns

    # ---- the hybrid's weights ------------------------------------------------------------------

    def _run_hybrid(
        self,
        part: Any,
        batch: Batch,
        updates: RowUpdates,
        said: Said,
        out: Floats,
        *,
        learn: bool,
        alone: bool = False,
    ) -> None:
        """Predict each row, then learn it in a part and in the group's sum.

        The group is its own `part` if the model is kept whole. A part that learns `alone` answers,
        too, and the sum stays as it was.
        """
        is_whole = part.counts is self.counts
        if learn:
            sums, own = (self.counts.by_word, self.weights.words), part.counts.by_word
            have = min(map(len, (*sums, own, part.weights.words)))
            if have < len(self.vocabulary.table.fingerprints):  # asked here: few calls need more
                self._make_room(part, is_whole=is_whole, alone=alone)
        answering = part if alone or is_whole else self
        weights, own_weights = answering.weights, part.weights
        mode = kernel.WHOLE if alone or is_whole else self._mode(part)
        n_max = self.n_words_max if is_whole else self.n_part_words_max
        options = RunOptions(0, 0, learn, n_max)
        room: Any = self.hybrid, len(self.counts.tokens), len(weights.others)
        if room != _kept.made_for:
            _kept.made_for, _kept.scratch = room, hybrid_scratch(*room)
        while True:
            row, why, n_new = kernel.hybrid(
                answering.counts, weights, part.counts, own_weights, mode, self.vocabulary.kinds,
                batch.rows, batch.present, updates, options, said, _kept.scratch, out,
            )  # fmt: skip
            if why != counting.FULL:
                return
            options = options._replace(row=row, n_predicted=row + 1)
            if is_whole:
                self._drop(n_new)
                continue
            n_dropped = self.drop_from_part(part, kept(n_max, n_new))
            part.n_dropped += n_dropped
            if not alone:
                self.n_dropped += n_dropped

    def _make_room(self, part: GroupPart, *, is_whole: bool, alone: bool) -> None:
        """Have room for the vocabulary in the group and in a part, before it learns."""
        capacity = self.vocabulary.capacity
        if not alone:
            self._grow_sum()
        if is_whole:
            part.counts, part.weights = self.counts, self.weights
        elif len(part.counts.by_word) < capacity:
            assert part.weights is not None
            grow = statistics.reserved if alone else statistics.grown
            part.counts = grow(part.counts, columns=capacity)
            part.weights = grow(part.weights, columns=capacity)

    def _grow_sum(self) -> None:
        self.counts, self.weights = self.grow(self.counts), self._grow_weights(self.weights)

    def _mode(self, part: GroupPart) -> int:
        """Return whether a part has all that the group has: then one score does for both."""
        assert self.weights is not None
        assert part.weights is not None
        own = (part.counts.tokens, part.counts.examples, part.weights.recent, part.weights.groups)
        total = (self.counts.tokens, self.counts.examples, self.weights.recent, self.weights.groups)
        alike = all(map(np.array_equal, own, total))
        return kernel.ONE_PART if alike else kernel.PARTS

    def _empty_weights(self, n_classes: int) -> Weights | None:
        if self.hybrid is None:
            return None
        sizes = {"columns": self.vocabulary.capacity, "other_groups": self.n_others}
        return statistics.empty(Weights, classes=n_classes, **sizes)

    def _grow_weights(self, weights: Weights | None) -> Weights | None:
        n = self.vocabulary.capacity
        return None if weights is None else statistics.grown(weights, columns=n)

    def _copy_weights(self, weights: Weights | None) -> Weights | None:
        n = self.vocabulary.n_words
        return None if weights is None else statistics.copy(statistics.grown(weights, columns=n), n)

    def _forget_weights(self, part: GroupPart, columns: NDArray[np.int64]) -> None:
        """Set a part's weights of some words to zero; the sum, if it is another, follows."""
        if self.weights is not None and part.weights is not None:
            if part.weights is not self.weights:
                self.weights.words[columns] -= part.weights.words[columns]
            part.weights.words[columns] = 0.0

    def read_kinds(self) -> None:
        """Have the vocabulary know the kinds of new words, if a hybrid needs them."""
        if self.hybrid is not None:
            self.vocabulary.read_kinds()

    def weighted_log_odds(
        self, columns: NDArray[np.int64], times: Floats, n_tokens: float, scale: float
    ) -> Floats:
        """Return what words add to the scores of an example of so many, shape (n, n_classes)."""
        assert self.weights is not None
        assert self.hybrid is not None
        out = np.zeros((len(columns), len(self.counts.tokens)))
        scratch, kinds = hybrid_scratch(self.hybrid, out.shape[1], 0), self.vocabulary.kinds
        kernel.explain(
            self.counts, self.weights, kinds, columns, times, n_tokens, scale, scratch, out
        )
        return out

    def without_hybrid(self) -> Self:
        """Return a group over the same counts that answers by them alone."""
        twin = copy.copy(self)
        twin.set_hybrid(None)
        return twin

    def set_n_others(self, n_others: int) -> None:
        """Weight so many other groups, too; see `GroupPart`."""
        if n_others != self.n_others:
            self.n_others, own = n_others, self.as_part()
            own.set_n_others(n_others)
            self.weights = own.weights

    def set_hybrid(self, hybrid: Hybrid | None) -> None:
        """Begin with fresh weights, or go on without any; those of parts stay."""
        self.spec, self.hybrid = replace(self.spec, hybrid=hybrid), hybrid
        self.weights = self._empty_weights(len(self.counts.tokens))
        self.read_kinds()

    # ---- parts -----------------------------------------------------------------------------------

    def new_part(self) -> GroupPart:
        """Return a part that has learned nothing."""
        weights = self._empty_weights(len(self.counts.tokens))
        return replace(super().new_part(), weights=weights)

    def frozen_part(self, part: GroupPart) -> GroupPart:
        """Return a copy of a part that later learning does not touch."""
        return replace(super().frozen_part(part), weights=self._copy_weights(part.weights))

    def pack_part(self, prefix: str, part: GroupPart, places: Places) -> Arrays:
        """Return what a file holds of a part: weights of the words that count."""
        arrays = super().pack_part(prefix, part, places)
        if part.weights is not None:
            columns = places["columns"][arrays[f"{prefix}/columns"]]
            arrays |= statistics.pack_weights(f"{prefix}/hybrid_", part.weights, columns)
        return arrays

    def unpack_part(self, prefix: str, arrays: Arrays) -> GroupPart:
        """Return the part that `pack_part` gave, after `unpack`."""
        part = super().unpack_part(prefix, arrays)
        part.weights = weights = self._empty_weights(len(self.counts.tokens))
        if weights is not None:
            columns = self._unpacked["columns"][arrays[f"{prefix}/columns"]]
            statistics.unpack_weights(f"{prefix}/hybrid_", arrays, weights, columns)
            check_weights(prefix, weights, decays=self.decays)
        return part

    # ---- files -----------------------------------------------------------------------------------

    def sum_parts(self, parts: Sequence[GroupPart]) -> None:
        """Set the counts to the sum of the parts'."""
        super().sum_parts(parts)
        self.weights = weights = self._empty_weights(len(self.counts.tokens))
        for part in parts:
            if weights is not None and part.weights is not None:
                statistics.add(weights, part.weights)
        self.rebuild()

    def leave_out(self, part: GroupPart, others: Sequence[GroupPart]) -> None:
        """Set the counts to the sum of all parts but one."""
        super().leave_out(part, others)
        if self.weights is not None and part.weights is not None:
            for total, theirs in zip(self.weights, part.weights, strict=True):
                total[: len(theirs)] -= theirs[: len(total)]
        self.rebuild()

    def set_bounded(self, *, bounded: bool) -> None:
        """Bound V here, or leave that to the parts."""
        self.n_part_words_max = UNBOUNDED if self.n_declared else int(self.spec.max_words)
        self.n_words_max = self.n_part_words_max if bounded else UNBOUNDED

    def state_to_dict(self) -> dict[str, Any]:
        """Return what the file's header says of it."""
        return {"n_skipped": self.n_skipped} | ({"in_order": True} if self.in_order else {})

    def pack(self, prefix: str) -> tuple[Arrays, Places]:
        """Return the words with a count above zero, and their columns."""
        chosen = self.live_columns()
        some = chosen if len(chosen) < self.vocabulary.n_words else None
        if self.in_order and not self.n_declared:
            some = chosen = chosen[np.argsort(self.vocabulary.table.fingerprints[chosen])]
        fps, words, ends = self.vocabulary.arrays_of(some)
        return {
            f"{prefix}/fingerprints": fps,
            f"{prefix}/words": words,
            f"{prefix}/word_ends": ends,
        }, {"columns": chosen}

    def unpack(self, prefix: str, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Take up the words that `pack` gave."""
        fps, declared = arrays[f"{prefix}/fingerprints"], self.vocabulary
        self.vocabulary = Vocabulary.from_arrays(
            fps, arrays[f"{prefix}/words"], arrays[f"{prefix}/word_ends"]
        )
        if self.n_declared and not np.array_equal(fps, declared.arrays_of()[0]):
            raise InputError(f"the words of {prefix} are not those of its dictionary.")
        self.counts = self.grow(self.counts)
        self.n_skipped = int(state["n_skipped"])
        self.in_order = bool(state.get("in_order", False))  # files of 0.1.0 never are
        self._unpacked = {"columns": np.arange(self.vocabulary.n_words)}
        self.read_kinds()
