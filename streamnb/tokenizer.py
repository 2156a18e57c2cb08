"""The options of the tokeniser, and the tables that its kernels read.

Emoticons and negating words are data, and listed here alone.
"""

from __future__ import annotations

import html
import re
import threading
import unicodedata
from dataclasses import dataclass, fields
from functools import cache
from html.entities import html5
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError, check_bool
from streamnb.kernels import tokenize as characters
from streamnb.kernels import word_table
from streamnb.kernels.layout import Scratch, Texts, TokenizerTables

NGRAM_MAX = 8  # the longest n-gram, in words; longer runs hardly ever come twice
GAP_MAX = 4  # words between those of a pair
CHARACTERS_MAX = 8  # the longest n-gram of characters
# Of characters with their words' ends there are at most four and a quarter a token that may be:
# a byte folds to one and a half at most, and three bytes to two words.
_CHARACTERS_PER_TOKEN = 5
GRAMS_PER_TOKEN_MAX = NGRAM_MAX + GAP_MAX + _CHARACTERS_PER_TOKEN * (CHARACTERS_MAX - 1)
# Tokens and distinct n-grams of one text; `kernels.bernoulli` relies on it.
GRAMS_MAX = (1 << 17) - 1
_ENTITY = re.compile("&(#?[0-9A-Za-z]{1,32};)")
# Nothing is composed with an ASCII letter behind it. A longer piece ends before a letter, if its
# marks are no more than the 30 of Unicode's stream-safe format (UAX 15); and not between the two or
# three letters of a Korean syllable, or a symbol and the stroke through it.
_PIECE = 1000
_PIECES = re.compile(
    rf"[\x00-\x7f]?[^\x00-\x7f]{{1,{_PIECE}}}[^\w\x00-\x7f]{{0,30}}"
    r"[\u1161-\u1175\u11a8-\u11c2\u0338]{0,2}"
)
_SCRATCH_KEPT_BYTES = 1 << 16
Size = TypeVar("Size", int, NDArray[np.int64])

EMOTICONS = (  # noqa: SIM905 -- easier to read in a row
    ":) :-) :] :-] :} :'-) :') =) =] ;) ;-) ;] ;D ;-D :D :-D =D xD XD :P :-P :p :-p =P =p ;P ;p"
    " :3 :* :-* ;* ^^ ^_^ ^.^ ^-^ \\o/ <3 (: (-: (; (= [: C: c: :o) :^) :> :-> B-)"
    " :( :-( :[ :-[ :{ :c :'( :'-( =( =[ ): )-: )= ]: D: D= D8 :/ :-/ :\\ :-\\ =/ =\\ :| :-| =|"
    " :S :-S :s :x :X :@ :-@ >:( >:) >:-( >:D </3 -_- -.- T_T T.T ;_; ;( ;-( u_u o_O O_o o.O O.o"
    " o_o O_O :O :o :-O :-o =O =o :$"
).split()

NEGATORS = (  # noqa: SIM905
    "not no never none nobody nothing nowhere neither nor without hardly barely cannot cant dont"
    " doesnt didnt isnt arent aint wasnt werent wont wouldnt couldnt shouldnt havent hasnt hadnt"
    " mustnt neednt"
).split()


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """How text becomes words; saved with the model, since other options make another model.

    Parameters
    ----------
    ngrams : tuple of two int
        Shortest and longest n-gram, in words.
    negation : bool
        Mark the two words after a negating one, as far as the clause goes.
    case_fold, fold_mentions, fold_links, squeeze, emoticons : bool
        Unicode case folding; `@name` as one word; links as one word; `soooo` as `soo`; emoticons as
        words.
    punctuation : bool
        Commas and runs of `!` and `?`, and of dots, as words: `,`, `!`, `!!`, `?`, `??`, `?!`, `.`
        and `...`.
    ends : bool
        Let the beginning and the end of a text stand in its n-grams: `^ thanks` and `bye $`.
    gap : int
        Pairs of words with up to so many others between them, as `so … good`.
    entities : bool
        HTML's character references undone: `isn&#39;t` is `isn't`, and `&lt;3` a heart.
    compose : bool
        Unicode's normal form C: a letter and its accent are read as one character, however written.
    characters : tuple of two int, optional
        Also the n-grams of characters inside words, shortest and longest, with the word's ends:
        (3, 4) reads `so` as `so`, `~^so`, `~^so$` and `~so$`. Ideographs in a row are one here.
    """

    ngrams: tuple[int, int] = (1, 1)
    negation: bool = False
    case_fold: bool = True
    fold_mentions: bool = True
    fold_links: bool = True
    squeeze: bool = True
    emoticons: bool = True
    punctuation: bool = False
    ends: bool = False
    gap: int = 0
    entities: bool = False
    compose: bool = False
    characters: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_ngrams(self.ngrams)
        check_characters(self.characters)
        for each in fields(self):
            if each.name not in ("ngrams", "gap", "characters"):
                check_bool(each.name, getattr(self, each.name))
        if type(self.gap) is not int or not 0 <= self.gap <= GAP_MAX:
            raise InputError(f"gap must be a whole number from 0 to {GAP_MAX}. Got {self.gap!r}.")
        if self.ends and self.ngrams[1] == 1:
            raise InputError(
                "ends=True speaks of n-grams with the text's beginning and end. Take ngrams=(1, 2)"
                f" or longer. Got {self.ngrams!r} instead."
            )

    def tokens_max(self, n_bytes: Size) -> Size:
        """Return the most tokens that `n_bytes` of text can hold.

        `a:)b:)` has four in six bytes, and with punctuation `!.!.` as many as bytes.
        """
        words = n_bytes if self.punctuation else (2 * n_bytes + 2) // 3
        return words + 2 * self.ends

    @property
    def grams_per_token(self) -> int:
        """How many n-grams and pairs may begin at one token, those of characters among them."""
        shortest, longest = self.characters or (1, 0)
        return self.ngrams[1] + self.gap + _CHARACTERS_PER_TOKEN * (longest - shortest + 1)

    @property
    def has_extras(self) -> bool:
        """Whether it reads more than words and their n-grams: see `word_table.encode_extras`."""
        return self.punctuation or self.ends or self.gap > 0 or self.characters is not None

    @property
    def rewrites(self) -> bool:
        """Whether texts are changed before they are read."""
        return self.entities or self.compose

    def rewritten(self, texts: Texts) -> Texts:
        """Return texts without entities and composed, if the options ask for it.

        Only a text that has something to change becomes a `str`. Bytes that are not UTF-8 stay as
        they are.
        """
        marked = np.empty(len(texts.starts), dtype=np.bool_)
        characters.may_change(texts, self.entities, self.compose, *_composing(), marked)
        (rows,) = marked.nonzero()
        if not len(rows):
            return texts
        data, starts, ends = texts
        changed = []
        for row in rows.tolist():
            text = data[starts[row] : ends[row]].tobytes().decode("utf-8", "surrogateescape")
            if self.entities:
                text = _ENTITY.sub(_character, text)
            if self.compose:
                text = composed(text)
            changed.append(text.encode("utf-8", "surrogateescape"))
        first = int(starts.min())
        last = int(ends.max(initial=first))
        new_ends = last - first + np.cumsum([len(text) for text in changed], dtype=np.int64)
        starts, ends = starts - first, np.where(ends < 0, ends, ends - first)
        starts[rows] = new_ends - [len(text) for text in changed]
        ends[rows] = new_ends
        old = data[first:last].tobytes()
        joined = np.frombuffer(bytearray(b"".join([old, *changed])), dtype=np.uint8)
        return Texts(joined, starts, ends)

    def reader(self, hash_key: int, *, occurrence: bool) -> TokenizerTables:
        """Return the arrays that the kernels read text by.

        With `occurrence` they count every occurrence of a word, not only its presence.
        """
        options = np.zeros(characters.N_OPTIONS, dtype=np.int64)
        options[characters.OPT_CASE] = self.case_fold
        options[characters.OPT_MENTIONS] = self.fold_mentions
        options[characters.OPT_LINKS] = self.fold_links
        options[characters.OPT_SQUEEZE] = self.squeeze
        options[characters.OPT_EMOTICONS] = self.emoticons
        options[characters.OPT_NEGATION] = self.negation
        options[characters.OPT_NGRAM_MIN], options[characters.OPT_NGRAM_MAX] = self.ngrams
        options[characters.OPT_OCCURRENCE] = occurrence
        options[characters.OPT_PUNCTUATION] = self.punctuation
        options[characters.OPT_ENDS], options[characters.OPT_GAP] = self.ends, self.gap
        options[characters.OPT_CHARACTERS_MIN :] = self.characters or 0
        key = hash_key_words(hash_key)
        negators = _negator_slots(fingerprints(NEGATORS, key))
        blocks, classes, folds, expansions = _unicode()
        letters = _ascii_letters(classes, folds, fold=self.case_fold)
        openers = _openers(letters, links=self.fold_links, emoticons=self.emoticons)
        trie, accepts = _emoticon_trie()
        return TokenizerTables(
            options,
            key,
            negators,
            letters,
            openers,
            _stops(classes),
            blocks,
            classes,
            folds,
            expansions,
            trie,
            accepts,
            fingerprints([*characters.EDGES.tobytes().decode(), word_table.GAP], key),
        )


def check_ngrams(ngrams: Any) -> tuple[int, int]:
    """Return the shortest and the longest n-gram, two whole numbers of words from 1 to 8."""
    return _check_sizes("ngrams must be", ngrams, 1, NGRAM_MAX)


def check_characters(sizes: Any) -> tuple[int, int] | None:
    """Return the shortest and the longest n-gram of characters, from 2 to 8, or None."""
    if sizes is None:
        return None
    return _check_sizes("characters must be None or", sizes, 2, CHARACTERS_MAX)


def _check_sizes(must: str, sizes: Any, least: int, most: int) -> tuple[int, int]:
    if isinstance(sizes, tuple | list) and [type(n) for n in sizes] == [int, int]:
        shortest, longest = sizes
        if least <= shortest <= longest <= most:
            return shortest, longest
    raise InputError(
        f"{must} (shortest, longest), whole numbers with {least} <= shortest <= longest <= {most}."
        f" Got {sizes!r} instead."
    )


def hash_key_words(hash_key: int) -> np.ndarray:
    """Return a key of 128 bits as SipHash's two words, ndarray of shape (2,), uint64."""
    return np.array([hash_key & (1 << 64) - 1, hash_key >> 64], dtype=np.uint64)


def fingerprints(words: list[str], key: np.ndarray) -> np.ndarray:
    """Return the fingerprints of words or n-grams, in the form that they are shown in, (n,) uint64.

    N-grams have single spaces between their words; a negated word begins with `¬`. `key` is what
    `hash_key_words` returned.
    """
    encoded = [word.encode("utf-8", "replace") for word in words]
    ends = np.cumsum([len(e) for e in encoded], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])[: len(encoded)]
    data = np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8)
    return fingerprints_of(Texts(data, starts, ends), key)


def fingerprints_of(texts: Texts, key: np.ndarray) -> np.ndarray:
    """Return the fingerprints of words in one buffer; see `fingerprints`."""
    out = np.empty(len(texts.starts), dtype=np.uint64)
    scratch = scratch_for(int((texts.ends - texts.starts).max(initial=0)), 1)
    word_table.fingerprint_many(texts, key, scratch, out)
    return out


def _negator_slots(fps: np.ndarray) -> np.ndarray:
    """Return a table with a slot of its own for each fingerprint: a look-up reads one slot."""
    size = 256
    while True:
        places = fps & np.uint64(size - 1)
        if len(set(places.tolist())) == len(fps):
            slots = np.zeros(size, dtype=np.uint64)
            slots[places.astype(np.int64)] = fps
            return slots
        size *= 2


@cache
def _unicode() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    with np.load(Path(__file__).parent / "kernels" / "unicode.npz") as tables:
        return tables["index"], tables["classes"], tables["folds"], tables["expansions"]


@cache
def _composing() -> tuple[np.ndarray, np.ndarray]:
    with np.load(Path(__file__).parent / "kernels" / "unicode.npz") as tables:
        return tables["mark_index"], tables["marks"]


def composed(text: str) -> str:
    """Return a text in normal form C; of more marks on one letter than people write, in pieces."""
    if len(text) <= _PIECE:  # a run of marks costs its square
        return unicodedata.normalize("NFC", text)
    return _PIECES.sub(lambda piece: unicodedata.normalize("NFC", piece[0]), text)


def _character(entity: re.Match[str]) -> str:
    """Return the character that an entity stands for; a name that is none stays as it is."""
    name = entity[1]
    return html.unescape(entity[0]) if name[0] == "#" else html5.get(name, entity[0])


def _ascii_letters(classes: np.ndarray, folds: np.ndarray, *, fold: bool) -> np.ndarray:
    """Return the form in which each ASCII letter is written, 0 for other bytes."""
    letters = np.zeros(256, dtype=np.uint8)
    for byte in range(128):
        if classes[byte] == characters.LETTER:  # the first block of the tables holds ASCII
            letters[byte] = byte + (int(folds[byte]) if fold else 0)
    return letters


def _stops(classes: np.ndarray) -> np.ndarray:
    """Mark the ASCII characters at which any word ends."""
    inside = (characters.LETTER, characters.DIGIT, characters.APOSTROPHE)
    stops = np.zeros(256, dtype=np.uint8)
    stops[:128] = ~np.isin(classes[:128], inside)
    return stops


def _openers(letters: np.ndarray, *, links: bool, emoticons: bool) -> np.ndarray:
    """Return how many letters, from each byte on, are sure to open a word; 0 if none are.

    A letter that also opens an emoticon needs a second letter, unless the emoticon's next character
    is a letter too (`xD`): then nothing is sure.
    """
    openers: np.ndarray = (letters != 0).astype(np.uint8)
    if emoticons:
        for emoticon in EMOTICONS:
            byte = ord(emoticon[0])
            if openers[byte]:
                openers[byte] = 0 if emoticon[1:2].isalnum() else 2
    if links:
        for byte in b"hHwW":
            openers[byte] |= characters.MAY_OPEN_LINK if openers[byte] else 0
    return openers


@cache
def _emoticon_trie() -> tuple[np.ndarray, np.ndarray]:
    nodes: list[dict[int, int]] = [{}]
    ends: set[int] = set()
    for emoticon in EMOTICONS:
        node = 0
        for byte in emoticon.encode("ascii"):
            if byte not in nodes[node]:
                nodes[node][byte] = len(nodes)
                nodes.append({})
            node = nodes[node][byte]
        ends.add(node)
    trie = np.zeros((len(nodes), 128), dtype=np.int16)
    for node, branches in enumerate(nodes):
        for byte, target in branches.items():
            trie[node, byte] = target
    accepts = np.zeros(len(nodes), dtype=np.uint8)
    accepts[list(ends)] = 1
    return trie, accepts


class _ThreadTokens(threading.local):
    scratch: Scratch | None = None


_kept = _ThreadTokens()


def scratch_for(n_bytes: int, grams_per_token: int) -> Scratch:
    """Return buffers for a text of `n_bytes`; each thread keeps those of common size."""
    if n_bytes <= _SCRATCH_KEPT_BYTES:
        if _kept.scratch is None:
            _kept.scratch = _make_scratch(_SCRATCH_KEPT_BYTES, GRAMS_PER_TOKEN_MAX)
        return _kept.scratch
    return _make_scratch(n_bytes, grams_per_token)


def _make_scratch(n_bytes: int, grams_per_token: int) -> Scratch:
    n_tokens = min(n_bytes + 2, GRAMS_MAX)  # the most that any tokeniser finds
    n_grams = min(n_tokens * grams_per_token, GRAMS_MAX)
    n_seen = 1 << (2 * n_grams).bit_length()
    # A character may fold to three, and `@a` becomes `<user>`: at most three times as long, and
    # eight bytes more for each token.
    text_words = np.empty((3 * n_bytes + 8 * n_tokens) // 8 + 16, dtype=np.uint64)
    return Scratch(
        text=text_words.view(np.uint8),
        text_words=text_words,
        begins=np.empty(n_tokens, dtype=np.int64),
        ends=np.empty(n_tokens, dtype=np.int64),
        fingerprints=np.empty(n_tokens, dtype=np.uint64),
        marks=np.empty(n_tokens, dtype=np.uint8),
        seen=np.zeros(n_seen, dtype=np.int32),
        grams=np.empty(n_grams, dtype=np.uint64),
        lasts=np.empty(n_grams, dtype=np.int32),
        sizes=np.empty(n_grams, dtype=np.int32),
        counts=np.empty(n_grams, dtype=np.int32),
        inside=np.empty(8 * len(text_words), dtype=np.uint8),
        inside_end=np.zeros(1, dtype=np.int64),
    )
