"""Fingerprints: SipHash-1-3, those of n-grams and negated words, and the order without a key."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb.kernels import counting
from streamnb.tokenizer import fingerprints
from tests import naive
from tests.encoding import KEY

# The table of test vectors that its authors published for SipHash-2-4: message i is the bytes
# 0, 1, … i−1, the key the bytes 0 to 15.
PUBLISHED_2_4 = {
    0: 0x726FDB47DD0E0E31,
    1: 0x74F839C593DC67FD,
    2: 0x0D6C8009D9A94F5A,
    3: 0x85676696D7FB7E2D,
    4: 0xCF2794E0277187B7,
    5: 0x18765564CD99A68D,
    6: 0xCBC9466E58FEE3CE,
    7: 0xAB0200F58B01D137,
    8: 0x93F5F5799A932462,
    15: 0xA129CA6149BE45E5,
}
words = st.text(st.characters(codec="utf-8", exclude_characters=" ¬"), min_size=1, max_size=80)
keys = st.integers(0, (1 << 128) - 1)


def as_array(key: int) -> np.ndarray:
    """Return a key as the kernels take it."""
    return np.array([key & naive.MASK, key >> 64], dtype=np.uint64)


@pytest.mark.parametrize("length", PUBLISHED_2_4)
def test_twin_gives_the_published_vectors(length: int) -> None:
    """The twin with two and four rounds gives what SipHash's authors published."""
    key = int.from_bytes(bytes(range(16)), "little")
    assert naive.siphash(bytes(range(length)), key, 2, 4) == PUBLISHED_2_4[length]


def test_twin_is_pythons_own_siphash() -> None:
    """With a key of zeros and its rounds the twin gives Python's own hashes of bytes."""
    rounds = {"siphash13": (1, 3), "siphash24": (2, 4)}[sys.hash_info.algorithm]
    data = [bytes(range(n)) for n in range(1, 70)]
    program = f"print([hash(d) for d in {data!r}])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    said = [int(value) & naive.MASK for value in done.stdout.strip(" []\n").split(",")]
    assert said == [naive.siphash(d, 0, *rounds) for d in data]


@given(st.lists(words, max_size=5), keys)
def test_words_have_the_twins_fingerprints(some: list[str], key: int) -> None:
    """A word's fingerprint is SipHash-1-3 of its UTF-8 bytes, whatever their number."""
    assert fingerprints(some, as_array(key)).tolist() == [
        naive.siphash(w.encode(), key) for w in some
    ]


@given(st.lists(st.tuples(words, st.booleans()), min_size=1, max_size=8), keys)
def test_ngrams_have_the_twins_fingerprints(parts: list[tuple[str, bool]], key: int) -> None:
    """An n-gram's fingerprint is made of its words' own, negated ones among them."""
    shown = " ".join(("¬" if negated else "") + word for word, negated in parts)
    assert fingerprints([shown], as_array(key)).tolist() == [naive.fingerprint(shown, key)]


def test_neighbours_differ() -> None:
    """Order, negation and where one word ends are all in the fingerprint."""
    shown = ["a b", "b a", "ab", "a", "¬a", "¬a b", "a ¬b", "a a", "a b a", "aa"]
    assert len(set(fingerprints(shown, as_array(KEY)).tolist())) == len(shown)


def test_no_words_have_no_fingerprints() -> None:
    """Asking for nothing, or for the empty word, is no error."""
    assert fingerprints([], as_array(KEY)).tolist() == []
    assert fingerprints([""], as_array(KEY)).tolist() == [naive.siphash(b"", KEY)]


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_order_without_a_key_is_the_twins(texts: list[bytes]) -> None:
    """The order in which equal words leave is FNV-1a of their text, mixed."""
    data = np.frombuffer(bytearray(b"".join(texts)), dtype=np.uint8)
    ends = np.cumsum([len(t) for t in texts], dtype=np.int64)
    out = np.empty(len(texts), dtype=np.uint64)
    counting.order_words(data, ends, np.arange(len(texts)), out)
    assert out.tolist() == [naive.plain_hash(t) for t in texts]
