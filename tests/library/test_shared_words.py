"""Models that learn the same examples over one vocabulary are, bit for bit, what they are alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from streamnb import (
    Bernoulli,
    Categories,
    Complement,
    HalfLife,
    Hybrid,
    Multinomial,
    NaiveBayes,
    Words,
)
from streamnb.errors import InputError
from streamnb.features.protocol import Group
from streamnb.features.words import WordsState
from streamnb.labels import read_labels
from streamnb.learn import EARLIER, EncodedRows, prequential
from streamnb.merging import share_words

CLASSES = ["x", "y"]
MODELS = {
    "long": (Words(Multinomial(), hybrid=Hybrid()), 1e6),
    "short": (Words(Multinomial()), 5.0),
    "short, hybrid": (Words(Multinomial(), hybrid=Hybrid()), 7.0),
    "few words": (Words(Multinomial(), max_words=90), None),
    "few words, hybrid": (Words(Multinomial(), max_words=60, hybrid=Hybrid()), None),
    "bernoulli": (Words(Bernoulli(), counts="presence", max_words=150), None),
    "complement": (Words(Complement()), None),
    "pairs": (Words(Multinomial(), ngrams=(1, 2)), 40.0),
    "repetitions": (Words(Multinomial(), counts="occurrence"), None),
}
ALIKE = set(MODELS) - {"pairs", "bernoulli"}


@dataclass(frozen=True)
class Piece:
    """What one call learns."""

    texts: list[str | None]
    labels: list[str]
    weights: list[float]
    times_s: list[float]
    part: str

    def learned(self, model: NaiveBayes, encoded: EncodedRows | None) -> np.ndarray:
        """Teach a model; return what it said before."""
        times_s = None if model.state.clock.half_life is None else self.times_s
        return prequential(
            model.state, {"text": self.texts}, read_labels(self.labels, None),
            weights=self.weights, times_s=times_s, part=self.part, encoded=encoded,
        )  # fmt: skip


def made(name: str, hash_key: int) -> NaiveBayes:
    """Return an untrained model."""
    words, seconds = MODELS[name]
    decay = None if seconds is None else HalfLife(seconds=seconds)
    return NaiveBayes(
        CLASSES, features={"text": words}, decay=decay, hash_key=hash_key, new_classes=True
    )


def pieces(seed: int, sizes: Sequence[int]) -> list[Piece]:
    """Return a stream with words that come once, late and missing texts, and a class that joins."""
    rng = random.Random(seed)
    found, now_s = [], 1_000.0
    for size in sizes:
        texts: list[str | None] = []
        times_s = []
        for _ in range(size):
            words = [f"w{int(200 ** rng.random())}" for _ in range(rng.randint(0, 4))]
            words += [f"n{rng.randrange(10**9)}" for _ in range(rng.randint(0, 3))]
            texts.append(" ".join(words) if rng.random() < 0.95 else None)
            now_s += rng.expovariate(1.0)
            late_s = 10.0 ** rng.uniform(0, 5) if rng.random() < 0.1 else 0.0
            times_s.append(now_s - late_s)
        if rng.random() < 0.2:
            now_s += 10.0 ** rng.uniform(0, 4)
        labels = [rng.choice([*CLASSES, *CLASSES, "later"]) for _ in texts]
        weights = [rng.choice([0.0, 1.0, 1.0, 2.0]) for _ in texts]
        found.append(Piece(texts, labels, weights, times_s, rng.choice(["p/0", "p/1"])))
    return found


def restored(model: NaiveBayes) -> NaiveBayes:
    """Return a model as its file gives it."""
    again = NaiveBayes.from_bytes(model.to_bytes())
    again.new_classes = True
    return again


@settings(max_examples=12, phases=(Phase.explicit, Phase.generate))
@given(
    st.permutations(sorted(MODELS)),
    st.integers(0, 10**6),
    st.lists(st.integers(0, 400), min_size=1, max_size=8),
    st.integers(0, 8),
)
def test_sharing_changes_no_bit(order: list[str], seed: int, sizes: list[int], stop: int) -> None:
    """Answers and counts are those of each model alone, whoever leads, after a restart too."""
    alone = {name: made(name, 3) for name in order}
    together = {name: made(name, 5 + k) for k, name in enumerate(order)}
    for at, piece in enumerate(pieces(seed, sizes)):
        if at == stop:
            together = {name: restored(model) for name, model in together.items()}
            alone = {name: restored(model) for name, model in alone.items()}
        leader, *others = together.values()
        for each in others:
            share_words(each.state, leader.state)
        encoded = EncodedRows()
        for name, model in together.items():
            said, expected = piece.learned(model, encoded), piece.learned(alone[name], None)
            assert said.tobytes() == expected.tobytes(), name
    for name, model in together.items():
        assert model.digest() == alone[name].digest(), name
        assert restored(model).digest() == restored(alone[name]).digest(), name


def vocabulary(model: NaiveBayes) -> Any:
    """Return the vocabulary of a model's words."""
    group = model.state.groups["text"]
    assert isinstance(group, WordsState)
    return group.vocabulary


def test_texts_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that read alike, and cut a call's rows alike, take what the first one encoded.

    What a call brings is checked once.
    """
    calls: list[WordsState] = []
    encode, read, n_reads = WordsState.encode, WordsState.read, list[int]()

    def read_once(group: WordsState, columns: Any, n: int) -> Any:
        n_reads.append(n)
        return read(group, columns, n)

    monkeypatch.setattr(WordsState, "read", read_once)

    def counted(group: WordsState, *args: Any, **options: Any) -> Any:
        calls.append(group)
        return encode(group, *args, **options)

    monkeypatch.setattr(WordsState, "encode", counted)
    names = ["long", "short", "short, hybrid", "pairs"]
    models = [made(name, 5 + k) for k, name in enumerate(names)]
    shared = [share_words(each.state, models[0].state) for each in models[1:]]
    assert shared == [True, True, False]
    encoded = EncodedRows()
    piece = Piece(["a b", "b c", None], ["x", "y", "x"], [1.0] * 3, [1.0, 2.0, 3.0], "p")
    for each in models:
        piece.learned(each, encoded)
    assert calls == [models[0].state.groups["text"], models[3].state.groups["text"]]
    assert n_reads == [3]
    assert [each.state.hash_key for each in models] == [5, 5, 5, 8]
    assert all(each.words() == models[0].words() for each in models[1:3])


@pytest.mark.parametrize(
    "words",
    [
        Words(Multinomial(), negation=False),
        Words(Multinomial(), ngrams=(1, 2)),
        Words(Multinomial(), counts="presence"),
        Words(Multinomial(), field="other"),
        Words(Multinomial(), dictionary=("a", "b")),
    ],
    ids=["negation", "ngrams", "counts", "field", "dictionary"],
)
def test_other_readers_keep_their_own_words(words: Words) -> None:
    """Another tokeniser, way to count, field or dictionary reads other words, or is another's."""
    first = NaiveBayes(CLASSES, features={"text": Words(Multinomial(), negation=True)}, hash_key=5)
    other = NaiveBayes(CLASSES, features={"text": words}, hash_key=6)
    assert not share_words(other.state, first.state)
    assert other.state.hash_key == 6
    assert vocabulary(other) is not vocabulary(first)


def test_a_key_that_cannot_change_stays() -> None:
    """Texts of categories may not be kept whole, so models with such are shared by equal keys."""
    features: dict[str, Group] = {"text": Words(Multinomial()), "kind": Categories()}
    first = made("long", 5)
    for hash_key in (5, 6):
        other = NaiveBayes(CLASSES, features=features, hash_key=hash_key)
        assert share_words(other.state, first.state) == (hash_key == 5)
        assert other.state.hash_key == hash_key


def test_a_shared_table_shrinks_seldom_and_is_shared_again() -> None:
    """Words that left are let go of once the table has doubled, and by all models."""
    leader, other = made("few words", 5), made("few words, hybrid", 5)
    tables, sizes = [], []
    for k in range(60):
        share_words(other.state, leader.state)
        assert vocabulary(other) is vocabulary(leader)
        tables.append(vocabulary(leader))
        texts: list[str | None] = [f"n{100 * k + i} n{10_000 + 100 * k + i}" for i in range(100)]
        piece = Piece(texts, ["x", "y"] * 50, [1.0] * 100, [0.0] * 100, "p")
        encoded = EncodedRows()
        for each in (leader, other):
            piece.learned(each, encoded)
        sizes.append(vocabulary(leader).n_words)
    n_tables = len({id(each) for each in tables})
    assert 3 <= n_tables <= 12
    assert max(sizes) < 4_000


def test_rows_that_are_taken_back_are_not_shared() -> None:
    """What has left one model is left out of its rows; another may hold it, and take it back."""
    model = made("long", 5)
    model.learn_many({"text": ["a b"]}, ["x"], times_s=[1.0])
    digest, labels = model.digest(), read_labels(["x"], None)
    with pytest.raises(InputError, match="encoded and taken do not go together"):
        prequential(
            model.state, {"text": ["a b"]}, labels, times_s=[1.0], encoded=EncodedRows(),
            taken=np.array([EARLIER], np.int8),
        )  # fmt: skip
    assert model.digest() == digest
