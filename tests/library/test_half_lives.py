"""Half-lives side by side: against a plain twin, cut anywhere, saved, on streams that change."""

from __future__ import annotations

import copy
import math
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamnb as nb
from benchmarks.drift import CLASSES, PlantedStream
from streamnb import storage
from streamnb.errors import InputError, StoreError

WORDS = nb.Words(nb.Multinomial(nb.Dirichlet(0.5)))
LIVES = (10.0, 40.0, math.inf)


class PlainHalfLives:
    """The mixture as it is written down: counts in dictionaries, multiplied by what is left."""

    def __init__(self, half_lives: tuple[float, ...], memory: float, alpha: float) -> None:
        self.alpha = alpha
        self.left = [0.5 ** (1 / each) for each in half_lives]
        self.kept = 0.5 ** (1 / memory)
        self.examples = [[0.0, 0.0] for _ in half_lives]
        self.words: list[Any] = [(defaultdict(float), defaultdict(float)) for _ in half_lives]
        self.vocabulary: set[str] = set()
        self.log_weights = [0.0] * len(half_lives)
        self.tempers = [(2.0, 1.0)] * len(half_lives)

    def learns(self, text: str, y: int) -> list[float]:
        """Return the mixture's probabilities, then learn."""
        words = text.split()
        known = [word for word in words if word in self.vocabulary]
        x = 1 / math.sqrt(len(known) + 1)
        mixed, weights, heaviest = [0.0, 0.0], 0.0, max(self.log_weights)
        for h, left in enumerate(self.left):
            scores = []
            for c in range(2):
                total = sum(self.words[h][c].values()) + self.alpha * len(self.vocabulary)
                score = math.log(self.examples[h][c] + 1.0)
                for word in known:
                    score += math.log((self.words[h][c][word] + self.alpha) / total)
                scores.append(score)
            scores = [each - max(scores) for each in scores]
            gradient, precision = self.tempers[h]
            odds = [math.exp(each * x * gradient / precision) for each in scores]
            p = [each / sum(odds) for each in odds]
            share = math.exp(self.log_weights[h] - heaviest)
            weights += share
            mixed = [before + share * each for before, each in zip(mixed, p, strict=True)]
            mean = sum(each * score for each, score in zip(p, scores, strict=True))
            square = sum(each * score**2 for each, score in zip(p, scores, strict=True))
            gained = x * x * (square - mean**2)
            # Newton's step: the temper moves by its gradient over the precision so far.
            temper = gradient / precision + x * (scores[y] - mean) / (precision + gained)
            temper, precision = max(temper, 0.0), min(precision + gained, 500.0)
            self.tempers[h] = (temper * precision, precision)
            for c in range(2):
                self.examples[h][c] *= left
                for word in self.words[h][c]:
                    self.words[h][c][word] *= left
            for word in words:
                self.words[h][y][word] += 1.0
            self.examples[h][y] += 1.0
            p_true = max(p[y], 1e-15)
            self.log_weights[h] = self.kept * self.log_weights[h] + math.log(p_true)
        best = max(self.log_weights)
        self.log_weights = [each - best for each in self.log_weights]
        self.vocabulary |= set(words)
        return [each / weights for each in mixed]


def some_texts(seed: int, n: int, n_words: int = 6) -> tuple[list[str], list[str]]:
    """Return texts of fewer than `n_words` words, some without any."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, n_words, n)
    texts = [" ".join(f"w{j}" for j in random.integers(0, 12, k)) for k in lengths]
    return texts, [CLASSES[c] for c in random.integers(0, 2, n).tolist()]


@pytest.mark.parametrize(
    ("alpha", "n", "n_words"),
    [
        (0.5, 1_500, 6),  # over more half-lives than counts grow for
        (0.5, 400, 60),  # products beyond float64, words that occur more than eight times
        (1e-60, 400, 6),
        (1e60, 400, 6),
    ],
)
def test_it_is_its_plain_twin(alpha: float, n: int, n_words: int) -> None:
    """Each mixture is the twin's."""
    texts, labels = some_texts(1, n, n_words)
    plain = PlainHalfLives(LIVES, 50.0, alpha)
    wanted = [plain.learns(text, CLASSES.index(y)) for text, y in zip(texts, labels, strict=True)]
    words = nb.Words(nb.Multinomial(nb.Dirichlet(alpha)))
    model = nb.HalfLives(CLASSES, words, LIVES, memory=50.0)
    found = model.prequential_many({"text": texts}, labels)
    np.testing.assert_allclose(np.exp(found), wanted, rtol=1e-9)


@settings(max_examples=20)
@given(
    half_life=st.floats(10.0, 1e6),
    n=st.integers(1, 600),
    seed=st.integers(0, 5),
    counts=st.sampled_from(["presence", "occurrence"]),
)
def test_each_half_life_counts_as_a_model_that_has_it_alone(
    half_life: float, n: int, seed: int, counts: Any
) -> None:
    """Bit for bit what a plain model counts if nothing is forgotten; else but for rounding."""
    texts, labels = some_texts(seed, n, 20)
    words = nb.Words(nb.Multinomial(), counts=counts)
    lives = (math.inf, half_life)
    model = nb.HalfLives(CLASSES, words, lives, hash_key=1)
    model.learn_many({"text": texts}, labels)
    side_by_side = model.model.state.groups["text"].counts
    n_words = model.model.vocabulary_size
    for h, decay in enumerate((None, nb.HalfLife(examples=half_life))):
        plain = nb.NaiveBayes(CLASSES, features={"text": words}, decay=decay, hash_key=1)
        plain.learn_many({"text": texts}, labels)
        wanted = plain.state.groups["text"].counts
        scale = plain.state.clock.scale / 2.0 ** (n / lives[h] % 128.0)
        assert plain.vocabulary_size == n_words
        for name in ("by_word", "examples", "tokens"):
            found = getattr(side_by_side, name)[..., 2 * h : 2 * h + 2]
            own = getattr(wanted, name)
            if name == "by_word":
                found, own = found[:n_words], own[:n_words]
            if decay is None:
                assert found.tobytes() == own.tobytes()
            else:
                np.testing.assert_allclose(found * scale, own, rtol=1e-9)


def test_a_word_that_is_forgotten_is_no_word_any_more(tmp_path: Path) -> None:
    """After a thousand half-lives nothing is left of it: V is what a loaded model counts."""
    model = nb.HalfLives(CLASSES, WORDS, [10.0])
    model.learn_many({"text": ["once"]}, ["positive"])
    model.learn_many({"text": ["always"] * 12_000}, ["negative", "positive"] * 6_000)
    assert model.model.vocabulary_size == 1
    model.save(tmp_path / "lives")
    again = nb.HalfLives.load(tmp_path / "lives")
    texts, labels = ["once always", "always"] * 20, ["negative", "positive"] * 20
    found = model.prequential_many({"text": texts}, labels)
    assert again.prequential_many({"text": texts}, labels).tobytes() == found.tobytes()


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 300), max_size=4), seed=st.integers(0, 5))
def test_however_it_is_cut_and_bounded_it_is_the_same(cuts: list[int], seed: int) -> None:
    """Batches change no bit, words leaving a full vocabulary or not."""
    texts, labels = some_texts(seed, 300)
    words = nb.Words(nb.Multinomial(), max_words=8)
    whole = nb.HalfLives(CLASSES, words, LIVES, hash_key=1)
    wanted = whole.prequential_many({"text": texts}, labels)
    model, found = nb.HalfLives(CLASSES, words, LIVES, hash_key=1), []
    ends = sorted({*cuts, 300})
    for begin, end in zip([0, *ends], ends, strict=False):
        found.append(model.prequential_many({"text": texts[begin:end]}, labels[begin:end]))
    assert np.concatenate(found).tobytes() == wanted.tobytes()
    assert model.shares() == whole.shares()
    assert model.model.vocabulary_size <= 8


def test_it_goes_on_from_a_file(tmp_path: Path) -> None:
    """Saved and loaded, it answers and learns on bit for bit; another model's file is refused."""
    texts, labels = some_texts(3, 2_000)
    model = nb.HalfLives(CLASSES, WORDS, LIVES)
    model.learn_many({"text": texts}, labels)
    model.save(tmp_path / "lives")
    again = nb.HalfLives.load(tmp_path / "lives")
    assert (again.classes, again.half_lives) == (CLASSES, LIVES)
    for _ in range(2):
        said = model.predict_log_proba_many({"text": texts})
        assert again.predict_log_proba_many({"text": texts}).tobytes() == said.tobytes()
        found = model.prequential_many({"text": texts}, labels[::-1])
        assert again.prequential_many({"text": texts}, labels[::-1]).tobytes() == found.tobytes()
    nb.save(nb.NaiveBayes(features={"text": WORDS}), tmp_path / "other")
    with pytest.raises(StoreError):
        nb.HalfLives.load(tmp_path / "other")


@pytest.mark.parametrize("classes", [CLASSES, [1, 2], [True]], ids=str)
def test_a_file_of_half_lives_is_no_single_model(classes: Any, tmp_path: Path) -> None:
    """Its counts are of classes such as "0:positive", which no reader of models answers."""
    path = tmp_path / "lives"
    nb.HalfLives(classes, WORDS, LIVES).save(path)
    for read in (
        nb.load,
        storage.read_model,
        lambda file: nb.NaiveBayes.from_bytes(file.read_bytes()),
    ):
        with pytest.raises(StoreError, match=r"half-lives .* HalfLives\.load"):
            read(path)
    assert nb.HalfLives.load(path).classes == tuple(classes)
    # A model that has extras, notes and classes of these names one by one is a model.
    stored = storage.read(path)
    plain = nb.NaiveBayes(["0:a", "0:b"], features={"text": WORDS})
    storage.save(plain, path, notes=stored.header["notes"], extras=stored.extras)
    assert nb.load(path).classes == ("0:a", "0:b")


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_a_copy_learns_and_is_saved_by_itself(copied: Any, tmp_path: Path) -> None:
    """Pickled or copied, it answers as it did, and what it learns then is in its file."""
    texts, labels = some_texts(3, 300)
    model = nb.HalfLives(CLASSES, WORDS, LIVES)
    model.learn_many({"text": texts}, labels)
    twin = copied(model)
    said = model.predict_log_proba_many({"text": texts})
    assert twin.predict_log_proba_many({"text": texts}).tobytes() == said.tobytes()
    twin.learn_many({"text": texts}, labels[::-1])
    assert model.predict_log_proba_many({"text": texts}).tobytes() == said.tobytes()
    model.learn_many({"text": texts}, labels[::-1])
    twin.save(tmp_path / "twin")
    again = nb.HalfLives.load(tmp_path / "twin")
    said = model.predict_log_proba_many({"text": texts})
    assert again.predict_log_proba_many({"text": texts}).tobytes() == said.tobytes()


@pytest.mark.parametrize(
    "changed",
    [
        {"half_lives": np.full(50, 100.0)},  # more than there are counts of
        {"log_weights": np.full(len(LIVES), math.nan)},
        {"ages": np.zeros(1)},
        {"tempers": np.zeros((len(LIVES), 2))},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_file_with_other_half_lives_than_counts_is_refused(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    """Else its kernel would read what lies behind the counts, or answer nan."""
    nb.HalfLives(CLASSES, WORDS, LIVES).save(tmp_path / "lives")
    stored = storage.read(tmp_path / "lives")
    extras = {
        name: stored.extras[name] for name in ("half_lives", "ages", "log_weights", "tempers")
    }
    if len(changed.get("half_lives", ())):
        extras |= {"ages": np.zeros(50), "log_weights": np.zeros(50), "tempers": np.ones((50, 2))}
    storage.save(
        stored.model, tmp_path / "lives", notes=stored.header["notes"], extras=extras | changed
    )
    with pytest.raises(StoreError):
        nb.HalfLives.load(tmp_path / "lives")


def accuracy_of(found: Any, labels: list[str]) -> Any:
    """Return for each row whether it was right."""
    return found.argmax(axis=1) == np.array([CLASSES.index(each) for each in labels])


def test_a_sudden_change_is_recovered_from_and_a_stable_stream_loses_nothing() -> None:
    """Within 1 point of a fresh model after 20,000 tweets; within 0.3 of the best half-life."""
    stable, n = 60_000, 90_000
    turned = np.zeros(n)
    turned[stable:] = 1.0
    texts, labels = PlantedStream(7).draw(turned.tolist())
    lives = (1_000.0, 10_000.0, 100_000.0, 1_000_000.0, math.inf)

    def right(half_lives: tuple[float, ...], begin: int, end: int) -> Any:
        model = nb.HalfLives(CLASSES, WORDS, half_lives)
        own = labels[begin:end]
        return accuracy_of(model.prequential_many({"text": texts[begin:end]}, own), own)

    mixed = right(lives, 0, n)
    best = max(right((each,), 0, stable).mean() for each in lives)
    assert mixed[:stable].mean() > best - 0.003
    fresh = right(lives, stable, n)
    assert mixed[stable + 20_000 :].mean() > fresh[20_000:].mean() - 0.01
    kept = right((math.inf,), 0, n)
    assert kept[stable + 20_000 :].mean() < fresh[20_000:].mean() - 0.05  # what is lost without


@pytest.mark.parametrize(
    "wrong",
    [
        {"classes": []},
        {"half_lives": []},
        {"half_lives": [5.0]},
        {"half_lives": [math.nan]},
        {"half_lives": [50.0, math.nan]},
        {"memory": 0.0},
        {"words": nb.Words(nb.Bernoulli())},
        {"words": nb.Words(nb.Multinomial(), hybrid=nb.Hybrid())},
        {"words": nb.Words(nb.Multinomial(nb.Dirichlet([1.0, 2.0])))},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused(wrong: dict[str, Any]) -> None:
    """They are errors of the caller."""
    plain: dict[str, Any] = {"classes": CLASSES, "words": WORDS}
    with pytest.raises(InputError):
        nb.HalfLives(**(plain | wrong))


def test_an_unknown_label_is_refused_and_nothing_learned() -> None:
    """Classes are declared; a batch with another one teaches nothing."""
    model = nb.HalfLives(CLASSES, WORDS)
    with pytest.raises(InputError, match="'neutral'"):
        model.learn_many({"text": ["a", "b"]}, ["positive", "neutral"])
    assert model.model.vocabulary_size == 0


def test_a_code_that_no_row_has_is_no_class() -> None:
    """A list of codes may name more than came, as that of an Arrow dictionary does."""
    known = nb.Codes(np.array([0, 1], np.int32), ("negative", "neutral", "positive"))
    model = nb.HalfLives(["negative", "neutral"], WORDS)
    model.learn_many({"text": ["a", "b"]}, known)
    twin = nb.HalfLives(["negative", "neutral"], WORDS)
    twin.learn_many({"text": ["a", "b"]}, ["negative", "neutral"])
    asked = {"text": ["a", "b"]}
    found = model.predict_log_proba_many(asked)
    assert found.tobytes() == twin.predict_log_proba_many(asked).tobytes()
    with pytest.raises(InputError, match="'positive'"):
        model.learn_many({"text": ["a"]}, nb.Codes(np.array([2], np.int32), known.classes))


def test_the_counts_say_how_many_examples_came(tmp_path: Path) -> None:
    """As the words' counts are, under each half-life; and so they come back from a file."""
    texts, labels = some_texts(4, 300)
    model = nb.HalfLives(CLASSES, WORDS, LIVES)
    for end in (100, 300):
        begin = model.model.n_examples
        model.learn_many({"text": texts[begin:end]}, labels[begin:end])
        assert model.model.n_examples == end
    model.predict_log_proba_many({"text": texts})
    model.save(tmp_path / "lives")
    for counted in (model.model, nb.HalfLives.load(tmp_path / "lives").model):
        assert counted.n_examples == 300
        examples = counted.state.groups["text"].counts.examples
        assert counted.class_counts.tobytes() == examples.tobytes()
        assert counted.class_counts[-2:].tolist() == [labels.count(each) for each in CLASSES]


@pytest.mark.parametrize("n", [100, 300, 450, 700])
def test_the_words_that_leave_are_those_of_the_longest_half_life(n: int) -> None:
    """Counts of a short half-life, at a scale of their own, do not say which word is frequent."""
    words = nb.Words(nb.Multinomial(), max_words=40)
    model, plain = (
        nb.HalfLives(["a", "b"], words, [10.0, math.inf]),
        nb.NaiveBayes(["a", "b"], features={"text": words}),
    )
    texts = ["often"] * 500 + ["x"] * n + [f"new{i}" for i in range(45)]
    labels = ["ab"[i % 2] for i in range(len(texts))]
    model.learn_many({"text": texts}, labels)
    plain.learn_many({"text": texts}, labels)
    assert {"often", "x"} <= set(plain.words())
    assert sorted(model.model.words()) == sorted(plain.words())


def test_words_that_left_take_no_memory() -> None:
    """The table is brought to the words there are, as that of a plain model is."""
    words = nb.Words(nb.Multinomial(), max_words=1_000)
    model, plain = (
        nb.HalfLives(["a"], words, [10.0, math.inf]),
        nb.NaiveBayes(["a"], features={"text": words}),
    )
    for call in range(4):
        texts = {"text": [f"w{5_000 * call + i}" for i in range(5_000)]}
        model.learn_many(texts, ["a"] * 5_000)
        plain.learn_many(texts, ["a"] * 5_000)
    sizes = [
        (group.vocabulary.n_words, len(group.counts.by_word))  # type: ignore[attr-defined]
        for each in (model.model, plain)
        for group in each.state.groups.values()
    ]
    assert sizes[0] == sizes[1]
    assert sorted(model.model.words()) == sorted(plain.words())
    assert model.predict_many({"text": ["w19999"]}) == ["a"]
