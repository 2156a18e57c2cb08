"""Fingerprints: 64-bit keyed hashes that are the same in every process and on every machine.

A word's fingerprint is SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
2012; one compression and three finalisation rounds, as Rust and CPython use it) of its UTF-8 bytes.
The 128-bit key stands in the model's header and is drawn at random, so nobody can prepare words
that collide without having the file. An n-gram's fingerprint, and that of a negated word, is made
from the words' own by the finaliser of MurmurHash3, a bijection: unpredictable as they are.

A `checksum` of arrays has no key and takes a twentieth of the time of a digest: it finds what
went wrong by accident, and nothing that was made to deceive.

Everything is uint64 and wraps around; in numba a stray int64 operand would turn the sum into a
float.
"""

from __future__ import annotations

import numpy as np

from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import U8, U64, Int

_MAGIC0 = np.uint64(0x736F6D6570736575)
_MAGIC1 = np.uint64(0x646F72616E646F6D)
_MAGIC2 = np.uint64(0x6C7967656E657261)
_MAGIC3 = np.uint64(0x7465646279746573)
_LAST = np.uint64(0xFF)
_TOP_BYTE = np.uint64(56)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX2 = np.uint64(0xC4CEB9FE1A85EC53)
_NEGATED = np.uint64(0x6E6567617465643A)
_R13, _R16, _R17, _R21, _R32 = (np.uint64(r) for r in (13, 16, 17, 21, 32))
_R33 = np.uint64(33)
_L13, _L16, _L17, _L21 = (np.uint64(64 - r) for r in (13, 16, 17, 21))
_FNV_START = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


@inner
def _round(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    v0 = v0 + v1
    v1 = ((v1 << _R13) | (v1 >> _L13)) ^ v0
    v0 = (v0 << _R32) | (v0 >> _R32)
    v2 = v2 + v3
    v3 = ((v3 << _R16) | (v3 >> _L16)) ^ v2
    v0 = v0 + v3
    v3 = ((v3 << _R21) | (v3 >> _L21)) ^ v0
    v2 = v2 + v1
    v1 = ((v1 << _R17) | (v1 >> _L17)) ^ v2
    v2 = (v2 << _R32) | (v2 >> _R32)
    return v0, v1, v2, v3


@inner
def _finish(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, word: np.uint64
) -> np.uint64:
    v3 = v3 ^ word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 = v0 ^ word
    v2 = v2 ^ _LAST
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@inner
def siphash_short(word: np.uint64, n_bytes: int, key0: np.uint64, key1: np.uint64) -> np.uint64:
    """Return SipHash-1-3 of the lowest `n_bytes` bytes of a word, at most 7; the rest are zero."""
    return _finish(
        key0 ^ _MAGIC0,
        key1 ^ _MAGIC1,
        key0 ^ _MAGIC2,
        key1 ^ _MAGIC3,
        word | np.uint64(n_bytes) << _TOP_BYTE,
    )


@inner
def siphash(words: U64, begin: int, n_bytes: int, key0: np.uint64, key1: np.uint64) -> np.uint64:
    """Return SipHash-1-3 of `n_bytes` bytes from the little-endian word `words[begin]` on.

    What stands behind the last byte in its word is masked out.
    """
    v0 = key0 ^ _MAGIC0
    v1 = key1 ^ _MAGIC1
    v2 = key0 ^ _MAGIC2
    v3 = key1 ^ _MAGIC3
    last = begin + (n_bytes >> 3)
    for at in range(begin, last):
        word = words[at]
        v3 = v3 ^ word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 = v0 ^ word
    word = np.uint64(n_bytes & 255) << _TOP_BYTE
    if n_bytes & 7:
        word |= words[last] & ((np.uint64(1) << np.uint64(8 * (n_bytes & 7))) - np.uint64(1))
    return _finish(v0, v1, v2, v3, word)


@inner
def mix(value: np.uint64) -> np.uint64:
    """Return the finaliser of MurmurHash3: a bijection in which every bit moves every other."""
    value = (value ^ (value >> _R33)) * _MIX1
    value = (value ^ (value >> _R33)) * _MIX2
    return value ^ (value >> _R33)


@inner
def join(left: np.uint64, right: np.uint64) -> np.uint64:
    """Return the fingerprint of an n-gram that continues `left` by the word `right`."""
    return mix(left * _GOLDEN + right)


@inner
def negate(fingerprint: np.uint64) -> np.uint64:
    """Return the fingerprint of a word inside the scope of a negation."""
    return mix(fingerprint ^ _NEGATED)


@inner
def plain_hash(data: U8, start: Int, end: Int) -> np.uint64:
    """Return FNV-1a, mixed: without a key, for an order of words that is the same everywhere."""
    value = _FNV_START
    for at in range(start, end):
        value = (value ^ np.uint64(data[at])) * _FNV_PRIME
    return mix(value)


@kernel
def checksum(words: U64, out: U64) -> None:
    """Mix words into the four sums of `out`, each into every fourth, as xxHash64 does."""
    a, b, c, d = out[0], out[1], out[2], out[3]
    last = len(words) - len(words) % 4
    for at in range(0, last, 4):
        a, b = _mixed_in(a, words[at]), _mixed_in(b, words[at + 1])
        c, d = _mixed_in(c, words[at + 2]), _mixed_in(d, words[at + 3])
    for at in range(last, len(words)):
        a, b, c, d = b, c, d, _mixed_in(a, words[at])
    out[0], out[1], out[2], out[3] = a, b, c, d


@inner
def _mixed_in(value: np.uint64, word: np.uint64) -> np.uint64:
    value = value + word * _MIX2
    return ((value << _R32) | (value >> _R32)) * _MIX1
