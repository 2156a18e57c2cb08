"""Ways to learn that differ in cost alone: a second thread that reads ahead, one short text."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from streamnb import Bernoulli, Dirichlet, Folds, Hybrid, Multinomial, NaiveBayes, Words, learn
from streamnb.errors import InputError
from streamnb.features.protocol import scratch_of_this_thread
from streamnb.features.words import WordsState
from streamnb.inspection.words import word_group
from streamnb.predict import BATCH_ROWS
from streamnb.vocabulary import Vocabulary

CLASSES = ["x", "y"]


def model(likelihood: Bernoulli | Multinomial, *, max_words: int, n_threads: int) -> NaiveBayes:
    """Return an untrained model of single words and pairs."""
    words = Words(likelihood, ngrams=(1, 2), negation=True, max_words=max_words)
    return NaiveBayes(
        CLASSES, Dirichlet(1.0), {"text": words}, hash_key=5, n_threads=n_threads, new_classes=True
    )


def stream(n: int, n_words: int) -> tuple[list[str], list[str]]:
    """Return made-up texts and labels; words are frequent and rare, as in a language."""
    rng = random.Random(n + n_words)
    words = [f"w{int(n_words ** rng.random())}" for _ in range(6 * n)]
    texts = [" ".join(words[6 * i : 6 * i + rng.randint(0, 6)]) for i in range(n)]
    return texts, [rng.choice([*CLASSES, "later"]) for _ in range(n)]


def state(model: NaiveBayes) -> tuple[object, ...]:
    """Return all counts of a model, words by their text."""
    words: Sequence[str] = sorted(model.words())
    return (
        words,
        model.classes,
        model.class_counts.tolist(),
        model.word_counts(words).tolist(),
        model.vocabulary_size,
        model.words_dropped,
    )


@pytest.mark.parametrize("likelihood", [Multinomial(), Bernoulli()], ids=["multinomial", "bern"])
@pytest.mark.parametrize("max_words", [900, pytest.param(1_000_000, marks=pytest.mark.deep)])
@pytest.mark.parametrize("part", [None, "t/0"])
def test_reading_ahead_changes_no_answer(
    likelihood: Bernoulli | Multinomial, max_words: int, part: str | None
) -> None:
    """Posteriors and counts are bit for bit those of one thread, with words leaving and coming."""
    texts, labels = stream(5 * BATCH_ROWS + 17, 6_000)
    found = []
    for n_threads in (1, 2):
        made = model(likelihood, max_words=max_words, n_threads=n_threads)
        posteriors = made.prequential_many({"text": texts}, labels, part=part)
        found.append((posteriors.tobytes(), state(made)))
    assert found[0] == found[1]
    dropped = found[0][1][-1]
    assert (dropped == 0) == (max_words == 1_000_000)


@pytest.mark.parametrize("likelihood", [Multinomial(), Bernoulli()], ids=["multinomial", "bern"])
def test_one_short_text_is_a_batch_of_one(likelihood: Bernoulli | Multinomial) -> None:
    """Learned and judged one by one, all answers are those of the batch: bad text, rare class."""
    texts, labels = stream(400, 300)
    texts[7:10] = ["not \ud800 half a pair", "naïve " * 40, "long " * 400]
    batch = model(likelihood, max_words=250, n_threads=1)
    wanted = batch.prequential_many({"text": texts}, labels)
    single = model(likelihood, max_words=250, n_threads=1)
    for text, label, row in zip(texts, labels, wanted, strict=True):
        found = single.predict_log_proba_one({"text": text, "unused": 1})
        np.testing.assert_array_equal(list(found.values()), row[: len(found)])
        single.learn_one({"text": text}, label)
    assert state(single) == state(batch)
    assert batch.words_dropped > 0


@pytest.mark.parametrize("hybrid", [None, Hybrid()], ids=["counts", "hybrid"])
@pytest.mark.parametrize("part", [None, "t/0"])
def test_one_short_text_is_rewritten_as_a_batch_is(hybrid: Hybrid | None, part: str | None) -> None:
    """Entities and accents read alike, and so does a text that composing makes too long."""
    texts, labels = stream(400, 300)
    texts[7:13] = [
        "cafe\u0301 café isn&#39;t &lt;3 &amp;lt; &nosuch;",
        "not \ud800 half a pair &hearts;",
        "\u0958 " * 128,  # 256 characters, each of three bytes, which become six
        "\u0958" * 200 + " cafe\u0301",
        "\U0001d160" * 256,  # four bytes, which become twelve
        "",
    ]
    words = Words(
        Multinomial(), ngrams=(1, 2), negation=True, max_words=250, counts="presence",
        hybrid=hybrid, punctuation=True, ends=True, entities=True, compose=True,
    )  # fmt: skip
    batch, single = (
        NaiveBayes(CLASSES, None, {"text": words}, hash_key=5, new_classes=True) for _ in range(2)
    )
    wanted = batch.prequential_many({"text": texts}, labels, part=part)
    for text, label, row in zip(texts, labels, wanted, strict=True):
        found = single.predict_log_proba_one({"text": text})
        np.testing.assert_array_equal(list(found.values()), row[: len(found)])
        single.learn_one({"text": text}, label, part=part)
    assert state(single) == state(batch)
    assert batch.words_dropped > 0
    own: Any = word_group(single.state, "text")
    scratch = scratch_of_this_thread(1)[0]
    assert own.can_encode_one({"text": texts[7]})
    assert own.encode_one({"text": texts[7]}, scratch, learn=False) is scratch.batch
    assert own.encode_one({"text": texts[10]}, scratch, learn=False) is not scratch.batch


def test_each_thread_has_a_desk_of_its_own() -> None:
    """Two threads that ask at once do not write over each other's text."""
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(scratch_of_this_thread, 1).result()[0]
    assert scratch_of_this_thread(1)[0] is scratch_of_this_thread(2)[0]
    assert other is not scratch_of_this_thread(1)[0]


@pytest.mark.parametrize("n_threads", [1, 2])
def test_words_that_left_give_their_room_back_on_the_way(
    monkeypatch: pytest.MonkeyPatch, n_threads: int
) -> None:
    """One batch as long as a day makes new tables in between, not one table of all its words."""
    found: list[int] = []

    def compact(self: WordsState) -> object:
        found.append(self.vocabulary.n_words)
        return as_it_is(self)

    as_it_is = WordsState.compact
    monkeypatch.setattr(WordsState, "compact", compact)
    n = 4 * BATCH_ROWS
    made = model(Multinomial(), max_words=100, n_threads=n_threads)
    made.learn_many({"text": [f"w{i}" for i in range(n)]}, ["x"] * n)
    assert max(found) < n / 2


def test_words_that_left_give_their_room_back_one_by_one() -> None:
    """Learning single examples, the table is made anew as it is for a batch."""
    made = model(Multinomial(), max_words=100, n_threads=1)
    for i in range(5_000):
        made.learn_one({"text": f"w{i}"}, "x")
    assert word_group(made.state, "text").vocabulary.n_words < 1_500
    assert made.words_dropped > 4_800


def test_a_learner_that_fails_leaves_no_reader_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """While its error is looked at, no second thread still gives columns to words."""
    texts, labels = stream(3 * BATCH_ROWS, 500)
    made = model(Multinomial(), max_words=1_000_000, n_threads=2)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streamnb.kernels.posterior.normalise", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        made.learn_many({"text": texts}, labels)
    readers = [t for t in threading.enumerate() if t.name.startswith("streamnb-read-ahead")]
    assert (caught.type, readers) == (KeyboardInterrupt, [])


class Folded(dict[str, str]):
    """A mapping that knows its fields by another case, through `get` alone."""

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        """Return a field's value."""
        return super().get(key.upper(), default)


def test_a_mapping_of_another_kind_is_asked_as_a_batch_asks_it() -> None:
    """One example goes the short way only where nothing stands between it and its values."""
    made = model(Multinomial(), max_words=100, n_threads=1)
    made.learn_one(Folded(TEXT="good day"), "x")
    assert sorted(made.words()) == ["day", "good", "good day"]
    assert made.predict_one(Folded(TEXT="good day")) == "x"
    with pytest.raises(InputError, match="text must be a str"):
        made.learn_one({"text": MagicMock(spec=str)}, "x")
    assert made.n_examples == 1


def test_kinds_of_words_are_read_by_who_enters_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never by who learns, as another thread may be entering words then, nor by who predicts."""
    read_kinds, learn_batches = Vocabulary.read_kinds, learn.learn_batches
    callers, reads_nothing = list[str](), set[int]()

    def watched(self: Vocabulary) -> None:
        assert threading.get_ident() not in reads_nothing
        callers.append(threading.current_thread().name)
        read_kinds(self)

    def learning(*given: Any) -> Any:
        reads_nothing.add(threading.get_ident())
        found = learn_batches(*given)
        reads_nothing.clear()
        return found

    monkeypatch.setattr(Vocabulary, "read_kinds", watched)
    monkeypatch.setattr(learn, "learn_batches", learning)
    texts, labels = stream(5 * BATCH_ROWS + 17, 6_000)
    words = Words(Multinomial(), max_words=900, hybrid=Hybrid())
    made = NaiveBayes(CLASSES, features={"text": words}, hash_key=5, n_threads=2, new_classes=True)
    made.learn_many({"text": texts}, labels)
    assert made.words_dropped
    assert {"MainThread"} < {name.partition("_")[0] for name in callers}
    folds = Folds(NaiveBayes(CLASSES, features={"text": words}, new_classes=True), 2)
    for fold in range(2):
        folds.learn_many({"text": texts[fold:99:2]}, labels[fold:99:2], fold)
    readers = [made, *map(folds.without, range(2))]
    reads_nothing.add(threading.get_ident())
    for each in readers:
        each.predict_log_proba_many({"text": texts[:9]})
        each.predict_one({"text": texts[0]})
        each.explain_one({"text": texts[0]})


def test_other_numbers_of_threads_are_refused() -> None:
    """There is work for two threads and no more."""
    with pytest.raises(InputError, match="n_threads must be 1 or 2"):
        model(Multinomial(), max_words=10, n_threads=3)
