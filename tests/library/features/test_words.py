"""A group of words: its settings, the rule by which words leave, compaction, and large tables."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError
from streamnb.features import statistics
from streamnb.features.statistics import kept
from streamnb.features.words import WordsState
from streamnb.inspection.words import word_group
from streamnb.kernels.layout import Rows
from streamnb.likelihoods.base import Batch
from streamnb.vocabulary import Vocabulary
from tests import naive
from tests.encoding import KEY, state_of, text_column
from tests.kernels.likelihood_runs import same
from tests.kernels.rows import teaching_of
from tests.kernels.test_bernoulli import largest_deviation, rebuilt, zipf
from tests.strategies import groups

WRONG = {
    "counts must be 'presence' or 'occurrence'. Got 'often' instead.": {"counts": "often"},
    "counts='occurrence' needs a multinomial": {"counts": "occurrence"},
    "between 1 and 2,147,483,647. Got 0 instead.": {"max_words": 0},
    "between 1 and 2,147,483,647. Got 2147483648": {"max_words": 1 << 31},
    "ngrams must be (shortest, longest), whole numbers with 1 <= shortest <= longest <= 8": {
        "ngrams": (2, 1)
    },
    "Got (0, 1) instead.": {"ngrams": (0, 1)},
    "Got (1, 9) instead.": {"ngrams": (1, 9)},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_settings_are_refused(message: str) -> None:
    """A setting that cannot be used is named, with the value found and what is allowed."""
    with pytest.raises(InputError, match=re.escape(message)):
        Words(Bernoulli(), **WRONG[message])  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "1"])
def test_wrong_priors_are_refused(value: float) -> None:
    """A pseudo-count is a finite number of at least zero."""
    for make in (Dirichlet, Beta, lambda wrong: Beta(1.0, wrong)):
        with pytest.raises(InputError, match="must be a finite number of at least 0"):
            make(value)


@given(groups())
def test_settings_come_back_from_a_header(group: Words) -> None:
    """A group is a value: its description makes it again, equal to the first."""
    assert Words.from_dict(group.to_dict()) == group


def taught(state: WordsState, texts: list[str], labels: list[int]) -> WordsState:
    """Teach texts to a group, one at a time."""
    for text, y in zip(texts, labels, strict=True):
        label = np.array([y], dtype=np.int32)
        batch = state.encode(text_column([text.encode()]), 0, 1, label, learn=True)
        state.run(batch, teaching_of([y]), np.zeros((1, 2)), learn=True)
    return state


@given(st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(1, 3)), st.integers(0, 12))
def test_the_rarest_words_leave_first(totals: dict[str, int], n_kept: int) -> None:
    """The smallest total goes first, and of equal ones that whose text has the smaller hash."""
    group = Words(Multinomial())
    texts = [" ".join([word] * total) for word, total in totals.items()]
    state = taught(state_of(group, 2), texts, [i % 2 for i in range(len(texts))])
    table, n_words = state.vocabulary.table, state.vocabulary.n_words
    columns = statistics.leaving(state.counts, table, n_words, n_kept)
    order = sorted(totals, key=lambda w: (totals[w], naive.plain_hash(w.encode())))
    expected = order[: max(0, len(order) - n_kept)]
    assert sorted(state.vocabulary.words(columns)) == sorted(expected)
    assert columns.tolist() == sorted(columns.tolist())


@given(st.integers(1, 1000), st.integers(0, 1500))
def test_what_is_kept_leaves_room(n_words_max: int, n_new: int) -> None:
    """At most three quarters stay, and so few that the new words fit if they can."""
    stay = kept(n_words_max, n_new)
    assert 0 <= stay <= 0.75 * n_words_max
    assert stay + n_new <= max(n_words_max, n_new)


def test_words_that_come_again_start_from_zero() -> None:
    """A word that left and comes again has the counts since, and those before are gone for good."""
    model = NaiveBayes(classes=["x"], features={"text": Words(Multinomial(), max_words=4)})
    model.learn_many({"text": ["b b b b", "c c c", "d d", "a"]}, ["x"] * 4)
    assert model.word_counts(["a"]).item() == 1.0
    model.learn_one({"text": "e e e"}, "x")
    assert set(model.words()) == {"b", "c", "d", "e"}
    assert (model.words_dropped, model.word_counts(["a"]).item()) == (1, 0.0)
    model.learn_one({"text": "a a"}, "x")
    assert model.word_counts(["a"]).item() == 2.0
    assert model.vocabulary_size == len(model.words()) <= 4


def test_words_without_counts_yet_are_none_of_the_caches() -> None:
    """Words given columns ahead of being learned are not looked for in counts still too short."""
    state = state_of(Words(Bernoulli()))
    texts = text_column([f"w{i}".encode() for i in range(3_000)])
    batch = state.encode(texts, 0, 3_000, np.zeros(3_000, dtype=np.int32), learn=True)
    assert state.vocabulary.n_words > len(state.counts.by_word) == state._n_counted
    state.rebuild()
    out = np.zeros((3_000, 1))
    state.run(batch, teaching_of([0] * 3_000), out, learn=True)
    assert state._n_counted == state.vocabulary.n_words == 3_000


def test_a_moved_bound_holds_from_the_next_example() -> None:
    """`set_max_words` is kept when new words come, and a wider bound lets them in again."""
    model = NaiveBayes(classes=["x"], features={"text": Words(Bernoulli(), max_words=100)})
    model.learn_one({"text": " ".join(f"w{i}" for i in range(40))}, "x")
    model.set_max_words("text", 8)
    model.learn_one({"text": "new"}, "x")
    assert model.vocabulary_size <= 8
    model.set_max_words("text", 100)
    model.learn_one({"text": " ".join(f"v{i}" for i in range(40))}, "x")
    assert 40 < model.vocabulary_size <= 48
    with pytest.raises(InputError, match="group must be one of text"):
        model.set_max_words("nothing", 5)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Bernoulli(Beta(0.2, 0)), Multinomial()])
def test_cache_and_counts_survive_churn(likelihood: Bernoulli | Multinomial) -> None:
    """After thousands of words came, left and were moved away, the cache is that of the counts."""
    model = NaiveBayes(classes=["x", "y"], features={"text": Words(likelihood, max_words=200)})
    twin = naive.NaiveModel(Words(likelihood, max_words=200), classes=["x", "y"])
    generator = np.random.default_rng(8)
    texts = [" ".join(f"w{r}" for r in row) for row in generator.zipf(1.4, (3000, 6)) % 9000]
    labels = generator.choice(["x", "y"], 3000).tolist()
    for begin in range(0, 3000, 500):
        chunk = slice(begin, begin + 500)
        model.learn_many({"text": texts[chunk]}, labels[chunk])
        state = word_group(model.state, "text")
        fresh = likelihood.estimator(None, 2)
        fresh.rebuild(state.counts, state.vocabulary.n_words)
        assert same(state.estimator, fresh)
    for text, label in zip(texts, labels, strict=True):
        twin.learn(text, label)
    assert {w: twin.counts[w] for w in model.words()} == twin.counts
    assert state.vocabulary.n_words < len(set(" ".join(texts).split()))  # it was compacted
    words = model.words()
    assert model.word_counts(words).tolist() == [[twin.counts[w][c] for c in "xy"] for w in words]


def many_words(n_words: int, examples: list[int]) -> tuple[WordsState, list[int]]:
    """Return a group whose counts are as if it had learned millions of texts."""
    counts, ranks = zipf(n_words, examples, seed=4)
    state = Words(Bernoulli()).start("text", len(examples), KEY)
    names = [f"w{i}".encode() for i in range(n_words)] if n_words <= 1 << 20 else []
    fingerprints = np.arange(1, n_words + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    text = np.frombuffer(bytearray(b"".join(names)), dtype=np.uint8)
    ends = np.cumsum([len(n) for n in names], dtype=np.int64) if names else np.zeros(n_words, int)
    state.vocabulary = Vocabulary.from_arrays(fingerprints, text, ends)
    state.counts = state.grow(counts)
    state.rebuild()
    return state, ranks.tolist()


def batch_of_columns(rows: list[list[int]]) -> Batch:
    """Return rows of columns, each there once."""
    columns = np.array([c for row in rows for c in row], dtype=np.int32)
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Batch(Rows(columns, np.ones(len(columns)), indptr), np.ones(len(rows), dtype=np.bool_))


def learn_on(state: WordsState, n: int, ranks: list[int]) -> None:
    """Teach a large group `n` more examples of frequent and rare words."""
    rows = [ranks[i % 5 :: 5] for i in range(n)]
    labels = np.arange(n, dtype=np.int32) % len(state.counts.examples)
    out = np.zeros((n, len(state.counts.examples)))
    state.run(batch_of_columns(rows), teaching_of(labels.tolist()), out, learn=True)


@pytest.mark.parametrize(
    "n_words",
    [
        100_000,
        pytest.param(1_000_000, marks=pytest.mark.deep),
        pytest.param(10_000_000, marks=pytest.mark.deep),
    ],
)
def test_large_vocabularies(n_words: int) -> None:
    """With up to ten million words, after millions of examples, answers are fsum's to 1e-9 nats."""
    state, ranks = many_words(n_words, [4_194_200, 3_000_000])
    learn_on(state, 400, ranks)  # N_c of the first class passes 2²² on the way
    assert same(state.estimator, rebuilt(state.counts, Beta()))
    assert largest_deviation(state.counts, np.array(ranks), Beta()) < 1e-9


def test_word_counts_add_up() -> None:
    """N_·c is the sum of N_jc: of occurrences or, by presence, of texts a word stands in."""
    text = ["a a b", "a c"]
    for counts, expected in ((None, Counter(a=3, b=1, c=1)), ("presence", Counter(a=2, b=1, c=1))):
        group = Words(Multinomial(), counts=counts)  # type: ignore[arg-type]
        model = NaiveBayes(classes=["x"], features={"text": group})
        model.learn_many({"text": text}, ["x", "x"])
        found = dict(zip(model.words(), model.word_counts(model.words())[:, 0], strict=True))
        assert found == expected
        assert word_group(model.state, "text").counts.tokens.tolist() == [expected.total()]
