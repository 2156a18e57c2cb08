"""Slow, plain twins of the kernels: hashes, counts, likelihoods and the posterior, spelled out.

Nothing here is fast, and nothing is shared with the kernels. The tokeniser's twin is
`naive_text.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import mpmath

from streamnb import Bernoulli, Multinomial, Words
from streamnb.labels import Label
from tests.naive_text import grams

MASK = (1 << 64) - 1


# ---- hashes -------------------------------------------------------------------------------------


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & MASK


def _sip_round(v: list[int]) -> None:
    v[0] = (v[0] + v[1]) & MASK
    v[1] = _rotate(v[1], 13) ^ v[0]
    v[0] = _rotate(v[0], 32)
    v[2] = (v[2] + v[3]) & MASK
    v[3] = _rotate(v[3], 16) ^ v[2]
    v[0] = (v[0] + v[3]) & MASK
    v[3] = _rotate(v[3], 21) ^ v[0]
    v[2] = (v[2] + v[1]) & MASK
    v[1] = _rotate(v[1], 17) ^ v[2]
    v[2] = _rotate(v[2], 32)


def siphash(data: bytes, key: int, compressions: int = 1, finalisations: int = 3) -> int:
    """Return SipHash-c-d of bytes under a key of 128 bits, the low half first."""
    k0, k1 = key & MASK, key >> 64
    magic = b"somepseudorandomlygeneratedbytes"
    v = [
        int.from_bytes(magic[8 * i : 8 * i + 8], "big") ^ half
        for i, half in enumerate((k0, k1, k0, k1))
    ]
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 255])
    for i in range(0, len(padded), 8):
        word = int.from_bytes(padded[i : i + 8], "little")
        v[3] ^= word
        for _ in range(compressions):
            _sip_round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(finalisations):
        _sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def mix(value: int) -> int:
    """Return the finaliser of MurmurHash3 for 64 bits."""
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33


def plain_hash(data: bytes) -> int:
    """Return FNV-1a, mixed."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & MASK
    return mix(value)


def fingerprint(shown: str, key: int) -> int:
    """Return the fingerprint of an n-gram as it is shown."""
    whole = 0
    for i, word in enumerate(shown.split(" ")):
        value = siphash(word.removeprefix("¬").encode(), key)
        if word.startswith("¬"):
            value = mix(value ^ 0x6E6567617465643A)
        whole = mix((whole * 0x9E3779B97F4A7C15 + value) & MASK) if i else value
    return whole


# ---- the model ----------------------------------------------------------------------------------


@dataclass
class NaiveModel:
    """Naive Bayes over one field of text, kept in dicts, summed over all words by `math.fsum`."""

    group: Words
    alpha: float = 1.0
    classes: list[Label] = field(default_factory=list)
    class_counts: Counter[Label] = field(default_factory=Counter)
    texts: Counter[Label] = field(default_factory=Counter)
    counts: dict[str, Counter[Label]] = field(default_factory=dict)
    n_dropped: int = 0

    def learn(self, text: str | None, label: Label) -> None:
        """Learn one example; words leave first where V would pass its bound."""
        if label not in self.classes:
            self.classes.append(label)
        self.class_counts[label] += 1
        if text is None:
            return
        self.texts[label] += 1
        found = grams(text, self.group.tokenizer, occurrence=self.group.counts_occurrences)
        while self.counts:
            n_new = len(found.keys() - self.counts.keys())
            if not n_new or len(self.counts) + n_new <= self.group.max_words:
                break
            self._drop(n_new)
        for word, times in found.items():
            self.counts.setdefault(word, Counter())[label] += times

    def _drop(self, n_new: int) -> None:
        n_kept = max(0, min(int(self.group.max_words * 0.75), self.group.max_words - n_new))
        order = sorted(self.counts, key=lambda w: (self.counts[w].total(), plain_hash(w.encode())))
        for word in order[: max(0, len(order) - n_kept)]:
            del self.counts[word]
            self.n_dropped += 1

    def joint(self, text: str | None) -> list[float]:
        """Return log p(x, c) of each class."""
        found = grams(text, self.group.tokenizer, occurrence=self.group.counts_occurrences)
        known = {word: times for word, times in found.items() if word in self.counts}
        n, k = self.class_counts.total(), len(self.classes)
        total = n + k * self.alpha
        out = []
        for c in self.classes:
            prior = log((self.class_counts[c] + self.alpha) / total) if total else -log(k)
            out.append(prior if text is None else prior + self._words(known, c))
        return out

    def _words(self, known: dict[str, int], c: Label) -> float:
        family = self.group.likelihood
        if isinstance(family, Multinomial):
            alpha = family.prior.concentration
            bottom = sum(counts[c] for counts in self.counts.values()) + alpha * len(self.counts)
            if known and bottom == 0.0:
                return -math.inf  # an empty class under maximum likelihood, not 0/0
            return fsum(
                times * (log(self.counts[word][c] + alpha) - log(bottom))
                for word, times in known.items()
            )
        assert isinstance(family, Bernoulli)
        beta1, beta2 = family.prior.present, family.prior.absent
        n_c = float(self.texts[c])
        if n_c + beta2 == 0.0:
            return -math.inf
        return bernoulli(
            ((counts[c], word in known) for word, counts in self.counts.items()), n_c, beta1, beta2
        )


def bernoulli(words: Iterable[tuple[float, bool]], n_c: float, beta1: float, beta2: float) -> float:
    """Return Σ_j x_j·log θ_j + (1−x_j)·log(1−θ_j) over words given as (N_jc, x_j)."""
    bottom = log(n_c + beta1 + beta2)
    return fsum(
        (log(n + beta1) if there else log((n_c - n) + beta2)) - bottom for n, there in words
    )


def log(x: float) -> float:
    """Return the natural logarithm, -inf of zero."""
    return math.log(x) if x > 0 else -math.inf


def fsum(terms: Iterable[float]) -> float:
    """Return the sum, rounded once; -inf where a term is."""
    listed = list(terms)
    return -math.inf if -math.inf in listed else math.fsum(listed)


def posterior(joint: Sequence[float], prior: Sequence[float]) -> list[float]:
    """Return log-posteriors to fifty digits; the class prior's where every class has -inf."""
    scores = prior if all(s == -math.inf for s in joint) else joint
    with mpmath.workdps(50):
        total = mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(s)) for s in scores))
        return [float(mpmath.mpf(s) - total) for s in scores]
