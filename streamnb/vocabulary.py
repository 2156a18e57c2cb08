"""The arrays of the word table as they grow and shrink, with each word's text for explanations.

`kernels.word_table` finds a word's column in them (`encode`, `find`) and enters new words. Columns
are given in order of arrival and never reused inside one table; growth and compaction make new
arrays, and whoever holds the old ones (a snapshot) goes on with them undisturbed.

Size: 24 bytes a word and its text, at up to 62 % of slots in use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from streamnb.errors import InputError
from streamnb.kernels import word_table
from streamnb.kernels.layout import Table, Texts
from streamnb.tokenizer import fingerprints

_FIRST_CAPACITY = 1 << 14
_MANY_WORDS, _MANY_BYTES = 1 << 20, 1 << 24
_GROWTH_MAX = 1 << 5  # keyed hashes fit into twice as many slots; those of a forged file never may


class Vocabulary:
    """A growing table of words, empty or over the arrays of another one.

    Examples
    --------
    >>> Vocabulary().n_words
    0
    """

    def __init__(self, table: Table | None = None) -> None:
        self.table = table or _empty(_FIRST_CAPACITY, 2 * _FIRST_CAPACITY, 8 * _FIRST_CAPACITY)
        # How many words it had when another group joined it: no group of them moves to a smaller
        # table before it has twice as many.
        self.n_shared = 0
        self.kinds = np.empty(0, dtype=np.uint8)  # of the first n_kinds words; see `read_kinds`
        self.n_kinds = 0

    @property
    def n_words(self) -> int:
        """Number of columns in use, those of words at zero included."""
        return int(self.table.state[word_table.N_WORDS])

    @property
    def capacity(self) -> int:
        """Number of columns there is room for."""
        return len(self.table.fingerprints)

    def make_room(self, why: int, wanted: int) -> None:
        """Grow what `kernels.word_table.encode` found too small."""
        table = self.table
        if why == word_table.NEEDS_COLUMNS:
            size = max(_larger(self.capacity), wanted)
            self.table = table._replace(
                fingerprints=_longer(table.fingerprints, size, self.n_words),
                word_ends=_longer(table.word_ends, size, self.n_words),
            )
        elif why == word_table.NEEDS_TEXT:
            used = int(table.state[word_table.TEXT_BYTES])
            size = max(_larger(len(table.words), _MANY_BYTES), wanted)
            self.table = table._replace(words=_longer(table.words, size, used))
        else:
            self._resize_slots(max(_larger(len(table.slots)), wanted))

    def _resize_slots(self, size: int) -> None:
        table = self.table
        slots = _filled(
            size, lambda slots: word_table.move_slots(table.slots, table.fingerprints, slots)
        )
        self.table = table._replace(slots=slots)

    def keep(self, columns: np.ndarray) -> Vocabulary:
        """Return a new vocabulary of the given columns (int64, ascending)."""
        return Vocabulary.from_arrays(*self.arrays_of(columns))

    def arrays_of(
        self, columns: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what `from_arrays` takes, of the given columns (int64); None: views of all."""
        table = self.table
        ends = table.word_ends[: self.n_words]
        if columns is None:
            words = table.words[: int(table.state[word_table.TEXT_BYTES])]
            return table.fingerprints[: self.n_words], words, ends
        sizes = np.diff(ends, prepend=0)[columns]
        new_ends = np.cumsum(sizes)
        words = np.empty(int(sizes.sum()), dtype=np.uint8)
        word_table.gather_text(table.words, ends[columns], new_ends, words)
        return table.fingerprints[columns], words, new_ends

    @classmethod
    def from_arrays(cls, fps: np.ndarray, words: np.ndarray, word_ends: np.ndarray) -> Vocabulary:
        """Build from fingerprints (uint64), text (uint8) and where each word ends (int64)."""
        n = len(fps)
        starts = np.concatenate([np.zeros(1, np.int64), word_ends[:-1]])[: len(word_ends)]
        _check_texts(n, starts, word_ends, words)
        room = max(n, _FIRST_CAPACITY)
        made = _empty(room, 1, max(len(words), 8 * _FIRST_CAPACITY))
        made.fingerprints[:n] = fps
        made.words[: len(words)] = words
        made.word_ends[:n] = word_ends
        made.state[:] = n, len(words)
        slots = _filled(2 * room, lambda slots: word_table.refill(made.fingerprints, n, slots))
        return cls(made._replace(slots=slots))

    @classmethod
    def declared(cls, group: str, words: Sequence[str], key: np.ndarray) -> Vocabulary:
        """Return the vocabulary of a group's dictionary: its words, in its order."""
        if len(set(words)) < len(words):
            raise InputError(f"group {group!r}: the words of its dictionary must differ.")
        encoded = [word.encode("utf-8", "replace") for word in words]
        ends = np.cumsum([len(word) for word in encoded], dtype=np.int64)
        text = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return cls.from_arrays(fingerprints(list(words), key), text, ends)

    def with_fingerprints(self, fps: np.ndarray) -> Vocabulary:
        """Return a new vocabulary of the same columns under other fingerprints (uint64)."""
        n = self.n_words
        words = self.table.words[: int(self.table.state[word_table.TEXT_BYTES])]
        return Vocabulary.from_arrays(fps, words, self.table.word_ends[:n])

    def enter(self, fps: np.ndarray, texts: Texts) -> np.ndarray:
        """Return the columns (int32) of whole texts, each as it is shown; a new text gets one.

        `fps` are their fingerprints, uint64.
        """
        _check_texts(len(fps), texts.starts, texts.ends, texts.data)
        out = np.empty(len(fps), dtype=np.int32)
        at, why = 0, -1
        while why != word_table.DONE:
            at, why, wanted = word_table.enter_many(fps, texts, at, self.table, out)
            if why != word_table.DONE:
                self.make_room(why, wanted)
        return out

    def texts(self, columns: np.ndarray) -> Texts:
        """Return the text of columns (int64), over this vocabulary's own buffer."""
        ends = self.table.word_ends[columns]
        begins = np.where(columns > 0, self.table.word_ends[columns - 1], 0)
        return Texts(self.table.words, begins, ends)

    def view(self) -> Vocabulary:
        """Return this vocabulary as it is now, over the same arrays: later words are beyond it."""
        twin = Vocabulary(self.table._replace(state=self.table.state.copy()))
        twin.kinds, twin.n_kinds = self.kinds, self.n_kinds
        return twin

    def read_kinds(self) -> None:
        """Read the kinds of the words that are new since the last call off their texts.

        A hybrid needs them. One caller at a time: who enters words for it calls this, as another
        thread may be entering words while the hybrid learns. Who learns from encoded rows or
        predicts never does; a view has places of its own, and the kinds are the same.
        """
        n_words = self.n_words
        if n_words > len(self.kinds):
            self.kinds = _longer(self.kinds, self.capacity, self.n_kinds)
        if n_words > self.n_kinds:
            word_table.word_kinds(self.table, self.n_kinds, n_words, self.kinds)
            self.n_kinds = n_words

    def find(self, words: Sequence[str], key: np.ndarray) -> np.ndarray:
        """Return the column of each word, -1 if it has none; ndarray of shape (n,), int32."""
        return self.look_up(fingerprints(list(words), key))

    def look_up(self, fps: np.ndarray) -> np.ndarray:
        """Return the column of each fingerprint, -1 if it has none; see `find`."""
        out = np.full(len(fps), -1, dtype=np.int32)
        word_table.find_many(fps, self.table.slots, self.table.fingerprints, self.n_words, out)
        return out

    def words(self, columns: np.ndarray) -> list[str]:
        """Return the text of columns."""
        ends = self.table.word_ends
        data = self.table.words
        begins = [int(ends[c - 1]) if c else 0 for c in columns]
        return [
            data[b : int(ends[c])].tobytes().decode("utf-8", "replace")
            for b, c in zip(begins, columns, strict=True)
        ]


def _check_texts(n: int, starts: np.ndarray, ends: np.ndarray, data: np.ndarray) -> None:
    """Refuse texts that do not lie within their buffer: kernels take it on trust."""
    if len(starts) != n or len(ends) != n:
        raise InputError(f"there are {n} fingerprints, and {len(ends)} texts.")
    if (ends < starts).any() or starts.min(initial=0) < 0 or ends.max(initial=0) > len(data):
        raise InputError(
            f"texts must lie within their {len(data)} bytes. Got some from"
            f" {starts.min(initial=0)} on and up to {ends.max(initial=0)}."
        )


def _larger(size: int, many: int = _MANY_WORDS) -> int:
    """Return what to grow to: small things fourfold, so that they grow seldom; large ones less."""
    return 4 * size if size < many else 2 * size


def _filled(size: int, enter: Callable[[np.ndarray], bool]) -> np.ndarray:
    """Return slots, at least `size` of them, that `enter` has found a place for every word in."""
    largest = _GROWTH_MAX * size
    while size <= largest:
        slots = np.zeros(1 << (size - 1).bit_length(), dtype=np.uint64)
        if enter(slots):
            return slots
        size = 2 * len(slots)
    raise InputError("too many words have like fingerprints: no keyed hash has made these.")


def _empty(n_columns: int, n_slots: int, n_bytes: int) -> Table:
    return Table(
        slots=np.zeros(1 << (n_slots - 1).bit_length(), dtype=np.uint64),
        fingerprints=np.zeros(n_columns, dtype=np.uint64),
        words=np.zeros(n_bytes, dtype=np.uint8),
        word_ends=np.zeros(n_columns, dtype=np.int64),
        state=np.zeros(2, dtype=np.int64),
    )


def _longer(array: np.ndarray, size: int, used: int) -> np.ndarray:
    longer = np.zeros(size, dtype=array.dtype)
    longer[:used] = array[:used]
    return longer
