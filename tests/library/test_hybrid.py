"""The hybrid: its formulas against a plain twin, its laws, and what it leaves as it is."""

from __future__ import annotations

import math
import tracemalloc
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamnb as nb
from streamnb.errors import InputError
from streamnb.inspection.explain import CLASS_PRIOR
from streamnb.kernels.hybrid import band
from streamnb.likelihoods.multinomial import small_bands
from streamnb.serialization import pack, unpack
from tests.kernels.inner import from_python

CLASSES = ["bad", "good", "odd"]
Text = tuple[str, str]
STREAMS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["a", "b", "not", "c", "d", "e"]), max_size=7).map(" ".join),
        st.sampled_from(CLASSES),
    ),
    min_size=1,
    max_size=30,
)
PROBES = {"text": ["a b c", "not a b", "", "z", "d e d e", None]}


def fresh(hybrid: nb.Hybrid | None = nb.Hybrid(), **options: Any) -> nb.NaiveBayes:  # noqa: B008
    """Return an untrained model of pairs with negation."""
    words = nb.Words(
        nb.Multinomial(), ngrams=(1, 2), negation=True, counts="presence", hybrid=hybrid, **options
    )
    return nb.NaiveBayes(CLASSES, features={"text": words}, hash_key=7)


def columns(stream: list[Text]) -> tuple[dict[str, list[str]], list[str]]:
    """Return a stream as columns and labels."""
    return {"text": [text for text, _ in stream]}, [label for _, label in stream]


def learned(stream: list[Text], **options: Any) -> nb.NaiveBayes:
    """Return a model that has learned a stream."""
    model = fresh(**options)
    model.learn_many(*columns(stream))
    return model


class Twin:
    """The formulas in plain Python, word by word."""

    def __init__(self, hybrid: nb.Hybrid) -> None:
        self.hybrid = hybrid
        self.counts: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * 3)
        self.tokens = [0.0] * 3
        self.recent = [0.0] * 3
        self.groups: defaultdict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self.words: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * 4)

    def scores(self, words: list[str]) -> tuple[list[float], dict[tuple[int, int], list[float]]]:
        """Return z_c, and s_gc by group."""
        known = [word for word in words if word in self.counts]
        x = (len(known) + 1) ** -0.75
        sums: dict[tuple[int, int], list[float]] = {}
        z = [0.0] * 3
        for word in known:
            total = sum(self.counts[word])
            band = sum(total >= limit for limit in (2, 4, 10, 30, 100, 1000, 10_000))
            kind = 2 if " " in word else int(word.startswith("¬"))
            own = sums.setdefault((kind, band), [0.0] * 3)
            m = self.hybrid.smoothing * 2 / 3
            for c in range(3):
                expected = total * self.tokens[c] / sum(self.tokens)
                r = math.log(self.counts[word][c] + m) - math.log(expected + m)
                own[c] += 3 * x * r
                logs = max(1.0, sum(self.recent) * (1 - 0.5 ** (1 / self.hybrid.half_life)))
                precision = 2 * self.hybrid.shrinkage * logs ** (1 / 3) + self.words[word][0]
                z[c] += x * self.words[word][1 + c] / precision
        for group, own in sums.items():
            for c in range(3):
                z[c] += self.weight(group) * own[c]
        return z, sums

    def weight(self, group: tuple[int, int]) -> float:
        """Return w_g."""
        precision, gradients = self.groups[group]
        return 0.6 + gradients / (100 + precision)

    def learn(self, words: list[str], y: int, weight: float = 1.0) -> None:
        """Take a step of the regression, by a weight up to 1, then count."""
        z, sums = self.scores(words)
        known = [word for word in words if word in self.counts]
        z = [z[c] + math.log(self.recent[c] + 1) for c in range(3)]
        p = [math.exp(each - max(z)) for each in z]
        p = [each / math.fsum(p) for each in p]
        e = [(c == y) - p[c] for c in range(3)]
        for group, s in sums.items():
            before = self.weight(group) - 0.6
            mean = sum(p[c] * s[c] for c in range(3))
            more = weight * (sum(p[c] * s[c] ** 2 for c in range(3)) - mean**2)
            more = min(self.groups[group][0] + more, 500.0) - self.groups[group][0]
            self.groups[group][0] += more
            step = weight * sum(e[c] * s[c] for c in range(3))
            self.groups[group][1] += more * before + step
        self.pass_time()
        x = (len(known) + 1) ** -0.75
        for word in known:
            own = self.words[word]
            more = weight * x * x * 2 / 3 * sum(each * (1 - each) for each in p)
            held = [each / (2 * self.hybrid.shrinkage + own[0]) for each in own[1:]]
            own[0] += more
            for c in range(3):
                own[1 + c] += more * held[c] + weight * x * e[c]
        self.recent = [each * 0.5 ** (1 / self.hybrid.half_life) for each in self.recent]
        self.recent[y] += 1
        self.count(words, y, weight)

    def pass_time(self) -> None:
        """Let what is counted decay; here nothing does."""

    def count(self, words: list[str], y: int, weight: float) -> None:
        """Count words."""
        for word in words:
            self.counts[word][y] += weight
            self.tokens[y] += weight


@given(STREAMS, st.sampled_from([nb.Hybrid(), nb.Hybrid(0.5, 2.0, 3.0)]))
def test_answers_are_the_twins(stream: list[Text], hybrid: nb.Hybrid) -> None:
    """Before each text is learned, its log-odds beyond the prior's are those of the formulas."""
    model, twin = fresh(hybrid), Twin(hybrid)
    for text, label in stream * 3:
        words = fresh(None)
        words.learn_one({"text": text}, label)
        found = list(model.prequential_one({"text": text}, label).values())
        expected, _ = twin.scores(words.words())
        counts = model.class_counts + 1.0
        counts[CLASSES.index(label)] -= 1.0
        expected = [z + math.log(n) for z, n in zip(expected, counts.tolist(), strict=True)]
        assert np.allclose(np.diff(found), np.diff(expected), rtol=0, atol=1e-5)
        twin.learn(words.words(), CLASSES.index(label))


def _sum_of(twins: list[Twin]) -> Twin:
    """Return a twin of which all that is counted and learned is the sum of others'."""
    total = Twin(twins[0].hybrid)
    for twin in twins:
        total.tokens = [a + b for a, b in zip(total.tokens, twin.tokens, strict=True)]
        total.recent = [a + b for a, b in zip(total.recent, twin.recent, strict=True)]
        for name in ("counts", "groups", "words"):
            sums = getattr(total, name)
            for key, own in getattr(twin, name).items():
                sums[key] = [a + b for a, b in zip(sums[key], own, strict=True)]
    return total


@given(st.lists(STREAMS, min_size=2, max_size=4))
def test_a_sum_of_logs_answers_as_the_twins_sum(logs: list[list[Text]]) -> None:
    """What several logs have learned adds up, and the prior counts by their number."""
    hybrid = nb.Hybrid(half_life=3.0)
    model, twins = fresh(hybrid), [Twin(hybrid) for _ in logs]
    for i, (log, twin) in enumerate(zip(logs, twins, strict=True)):
        model.learn_many(*columns(log * 3), part=str(i))
        for text, label in log * 3:
            words = fresh(None)
            words.learn_one({"text": text}, label)
            twin.learn(words.words(), CLASSES.index(label))
    total, asked = _sum_of(twins), fresh(None)
    asked.learn_one({"text": "a b not c"}, "good")
    expected, _ = total.scores(asked.words())
    found = model.without_prior().predict_log_proba_one({"text": "a b not c"})
    assert np.allclose(np.diff(list(found.values())), np.diff(expected), rtol=0, atol=1e-5)


@given(STREAMS, st.lists(st.integers(0, 30), max_size=3), st.sampled_from([3, 1000]))
def test_a_stream_cut_anywhere_teaches_the_same(
    stream: list[Text], cuts: list[int], max_words: int
) -> None:
    """Batches, single examples and one part alone give the same bytes and the same answers."""
    whole = fresh(max_words=max_words)
    returned = whole.prequential_many(*columns(stream))
    for part in (None, "a"):
        model = fresh(max_words=max_words)
        bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
        rows = []
        for begin, end in pairwise(bounds):
            rows += [model.prequential_many(*columns(stream[begin:end]), part=part)]
        assert np.array_equal(np.concatenate(rows), returned)
        if part is not None:
            model.forget_parts()
        assert model.digest() == whole.digest()
        answers = model.predict_log_proba_many(PROBES)
        assert np.array_equal(answers, whole.predict_log_proba_many(PROBES))


@given(STREAMS, st.sampled_from([3, 1000]))
def test_counts_are_those_without_it(stream: list[Text], max_words: int) -> None:
    """Counts, and what answers by them alone, are bit for bit those without a hybrid."""
    model, plain = (
        learned(stream, max_words=max_words),
        learned(stream, hybrid=None, max_words=max_words),
    )
    assert model.digest() == plain.digest()
    raw = model.raw()
    for found, expected in (
        (raw.predict_log_proba_many(PROBES), plain.predict_log_proba_many(PROBES)),
        (model.joint_log_likelihood_many(PROBES), plain.joint_log_likelihood_many(PROBES)),
        (model.training_log_likelihood(), plain.training_log_likelihood()),
        (raw.weights().weights, plain.weights().weights),
    ):
        assert np.array_equal(found, expected)
    assert nb.export_dict(raw) == nb.export_dict(plain)


@given(STREAMS, st.randoms(use_true_random=False))
def test_parts_and_merged_models_add_up_in_any_order(stream: list[Text], random: Any) -> None:
    """A part learns by its own log alone; the answers are the sum's, however it came about."""
    logs: dict[str, list[Text]] = {"a": [], "b": [], "c": []}
    model = fresh()
    for text, label in stream:
        name = random.choice(list(logs))
        logs[name].append((text, label))
        model.learn_one({"text": text}, label, part=name)
    apart = {name: learned(log) for name, log in logs.items()}
    names = list(logs)
    random.shuffle(names)
    merged = nb.merge(*(apart[name] for name in names))
    answers = model.predict_log_proba_many(PROBES)
    loaded = nb.NaiveBayes.from_bytes(model.to_bytes())
    for other in (merged, loaded):
        assert np.array_equal(other.predict_log_proba_many(PROBES), answers)
    for name in model.parts:
        alone = model.part(name).predict_log_proba_many(PROBES)
        assert np.array_equal(alone, apart[name].predict_log_proba_many(PROBES))
    less = merged - apart["b"]
    without = nb.merge(apart["a"], apart["c"])
    assert np.array_equal(
        less.predict_log_proba_many(PROBES), without.predict_log_proba_many(PROBES)
    )
    if "b" in model.parts:
        model.drop_part("b")
        found = model.predict_log_proba_many(PROBES)
        assert np.array_equal(found, without.predict_log_proba_many(PROBES))


@pytest.mark.parametrize("classes", [CLASSES, []], ids=["declared", "joining"])
def test_weights_depend_on_the_order_of_logs_where_a_class_joins(classes: list[str]) -> None:
    """Counts do not, nor weights of declared classes: a log learns against those known by then."""
    rng = np.random.default_rng(3)
    models = []
    logs = {"1": CLASSES[:2], "2": CLASSES}
    streams = {
        log: (
            {"text": [" ".join(rng.choice(list("abcdef"), 3)) for _ in range(90)]},
            rng.choice(own, 90).tolist(),
        )
        for log, own in logs.items()
    }
    for order in ("12", "21"):
        words = nb.Words(nb.Multinomial(), hybrid=nb.Hybrid())
        model = nb.NaiveBayes(classes, features={"text": words}, hash_key=7, new_classes=True)
        for log in order:
            model.learn_many(*streams[log], part=log)
        models.append(model)
    first, second = models
    assert first.digest() == second.digest()
    group, other = (model.state.groups["text"].weights.groups for model in models)
    assert np.array_equal(group, other) == bool(classes)


@given(STREAMS, STREAMS)
def test_unlearning_takes_counts_and_leaves_weights(kept: list[Text], gone: list[Text]) -> None:
    """Counts are as if it had never been; words of which nothing is left lose their weights."""
    model = learned(kept + gone)
    weights = dict(zip(model.words(), _words_of(model), strict=True))
    model.unlearn_many(*columns(gone))
    expected = learned(kept)
    assert model.digest() == expected.digest()
    for word, own in zip(model.words(), _words_of(model), strict=True):
        assert own == weights[word]
    model.unlearn_many(*columns(kept))
    assert not model.state.groups["text"].weights.words.any()


def _words_of(model: nb.NaiveBayes) -> list[list[float]]:
    """Return the weights of the words that count."""
    group: Any = model.state.groups["text"]
    return [group.weights.words[column].tolist() for column in group.live_columns()]


@pytest.mark.parametrize("parts", [[None], ["a"], ["a", "b", "c"]])
def test_words_that_decay_to_nothing_take_their_weights(parts: list[str | None]) -> None:
    """A word that is below the smallest number counts as new: it is so in a file, too."""
    group = nb.Words(nb.Multinomial(), hybrid=nb.Hybrid())
    model = nb.NaiveBayes(CLASSES, features={"text": group}, decay=nb.HalfLife(seconds=1))
    stream = [("old a", "bad"), ("new a", "good")] * 20 + [("a", "good")] * 1500
    for at, (text, label) in enumerate(stream):
        model.learn_one({"text": text}, label, time_s=at, part=parts[at % len(parts)])
    loaded = nb.NaiveBayes.from_bytes(model.to_bytes())
    assert model.words() == ["a"]
    for each in (model, loaded):
        each.learn_one({"text": "old a"}, "good", time_s=len(stream), part=parts[0])
    answers = model.predict_log_proba_many({"text": ["old a"]})
    assert np.array_equal(loaded.predict_log_proba_many({"text": ["old a"]}), answers)


def test_words_of_the_largest_counts_in_one_class_are_scored() -> None:
    """Many of them in one text: no product of what is scored falls to zero."""
    model, text = fresh(), " ".join("qwertyuiop")
    for _ in range(3):
        model.learn_one({"text": text}, "bad", weight=1e50)
        model.learn_one({"text": "z x c"}, "good", weight=1e50)
    model.learn_one({"text": text}, "good")
    assert np.isfinite(model.predict_log_proba_many({"text": [text]})[:, :2]).all()
    assert nb.NaiveBayes.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


def test_weights_of_the_largest_counts_can_be_loaded() -> None:
    """Whatever counts are accepted, the file that they lead to is one that can be read."""
    model = nb.NaiveBayes(
        CLASSES, features={"text": nb.Bag(nb.Multinomial(), field="text", hybrid=nb.Hybrid())}
    )
    for i in range(40):
        counts = {"a": 1e50, "bcd"[i % 3]: 1e50}
        model.learn_one({"text": counts}, CLASSES[i * i % 3])
    loaded = nb.NaiveBayes.from_bytes(model.to_bytes())
    asked = {"text": [{"a": 1e50}, {"b": 1.0}]}
    answers = model.predict_log_proba_many(asked)
    assert np.isfinite(answers).all()
    assert np.array_equal(loaded.predict_log_proba_many(asked), answers)


@given(STREAMS)
def test_contributions_add_up_to_the_log_odds(stream: list[Text]) -> None:
    """The class prior and the words together are the log-odds that the posterior has."""
    model = learned(stream * 2)
    for text in ("a b not c d", stream[0][0]):
        told = model.explain_one({"text": text})
        posterior = model.predict_log_proba_one({"text": text})
        assert math.isclose(
            told.log_odds, posterior[told.label] - posterior[told.runner_up], abs_tol=1e-9
        )
        total = math.fsum(each.weight for each in told.contributions)
        assert math.isclose(total, told.log_odds, abs_tol=1e-9)
        assert CLASS_PRIOR in {each.feature for each in told.contributions}


@given(STREAMS, STREAMS, st.booleans())
def test_weights_begin_and_end_beside_counts_that_stay(
    first: list[Text], then: list[Text], in_parts: bool
) -> None:
    """What learns on with weights, or without, has the counts of one that always did so."""
    part = "a" if in_parts else None
    for old, new in (
        (None, nb.Hybrid()),
        (nb.Hybrid(), None),
        (nb.Hybrid(), nb.Hybrid(half_life=9)),
    ):
        model = fresh(old)
        model.learn_many(*columns(first), part=part)
        snapshot = model.raw().predict_log_proba_many(PROBES)
        model.set_hybrid("text", new)
        assert np.array_equal(model.raw().predict_log_proba_many(PROBES), snapshot)
        model.learn_many(*columns(then), part=part)
        assert model.digest() == learned(first + then, hybrid=new).digest()
        assert model.describe()["groups"] == fresh(new).describe()["groups"]
        loaded = nb.NaiveBayes.from_bytes(model.to_bytes())
        answers = model.predict_log_proba_many(PROBES)
        assert np.array_equal(loaded.predict_log_proba_many(PROBES), answers)
        if new is None:
            plain = learned(first + then, hybrid=None)
            assert np.array_equal(plain.predict_log_proba_many(PROBES), answers)


def test_weights_are_set_for_words_under_a_multinomial_alone() -> None:
    """Another group or likelihood is refused, and nothing has changed."""
    model = nb.NaiveBayes(CLASSES, features={"text": nb.Words(nb.Bernoulli())})
    with pytest.raises(InputError, match=r"take Multinomial\(\), or no hybrid"):
        model.set_hybrid("text", nb.Hybrid())
    with pytest.raises(InputError, match="nothing"):
        model.set_hybrid("nothing", None)
    assert not model.state.is_hybrid


def _recalls(hybrid: nb.Hybrid) -> list[float]:
    """Return each class's recall without the class prior, after a long run of "no" alone."""
    random = np.random.default_rng(5)

    def drawn(c: int) -> str:
        weights = np.r_[[1 + c] * 30, [2 - c] * 30]
        return " ".join(f"w{j}" for j in random.choice(60, 8, p=weights / weights.sum()))

    classes = random.integers(2, size=6000)
    classes[3000:] = 0
    group = nb.Words(nb.Multinomial(), hybrid=hybrid)
    model = nb.NaiveBayes(["no", "yes"], features={"text": group})
    texts = [drawn(int(c)) for c in classes]
    model.learn_many({"text": texts}, [("no", "yes")[c] for c in classes])
    asked = model.without_prior()
    told = [asked.predict_many({"text": [drawn(c) for _ in range(500)]}) for c in (0, 1)]
    return [told[c].count(label) / 500 for c, label in enumerate(("no", "yes"))]


def test_a_long_run_of_one_class_does_not_bend_the_weights() -> None:
    """Without prior both classes are found after it, as the recent prior explains it, no weight."""
    assert min(_recalls(nb.Hybrid(half_life=20))) > 0.6
    assert min(_recalls(nb.Hybrid(half_life=1e9))) < 0.3


def test_a_class_that_never_came_is_not_answered() -> None:
    """Nothing speaks for it: without the class prior too, each text is of a class that was seen."""
    random = np.random.default_rng(3)

    def drawn(c: int) -> str:
        own = random.choice(2, 8, p=[0.6, 0.4])  # which words are the class's, not of both
        return " ".join(f"w{j}" for j in random.integers(40, size=8) + 40 * c * own)

    classes = random.integers(2, size=3_000)
    group = nb.Words(nb.Multinomial(), ngrams=(1, 2), counts="presence", hybrid=nb.Hybrid())
    model = nb.NaiveBayes(["never", "no", "yes"], features={"text": group})
    model.learn_many(
        {"text": [drawn(int(c)) for c in classes]}, [("no", "yes")[c] for c in classes]
    )
    asked = [drawn(c) for c in (0, 1) for _ in range(300)]
    truth = [label for label in ("no", "yes") for _ in range(300)]
    for answers in (model, model.without_prior()):
        told = answers.predict_many({"text": asked})
        assert "never" not in told
        assert np.mean(np.array(told) == np.array(truth)) > 0.8
    one = nb.NaiveBayes(["never", "seen"], features={"text": group})
    one.learn_many({"text": [drawn(0) for _ in range(300)]}, ["seen"] * 300)
    assert set(one.without_prior().predict_many({"text": asked[:300]})) == {"seen"}


def _texts(rng: np.random.Generator, n: int, own: str) -> list[str]:
    """Return texts of ten words: common ones of all classes by Zipf's law, two in ten of `own`."""
    common = np.minimum(rng.zipf(1.4, (n, 8)), 5_000)
    theirs = rng.integers(0, 40, (n, 2))
    rows = zip(common.tolist(), theirs.tolist(), strict=True)
    return [" ".join([*(f"w{j}" for j in all_), *(f"{own}{j}" for j in its)]) for all_, its in rows]


@pytest.mark.parametrize(("n_odd", "called_max", "found_min"), [(3, 0.02, 0.0), (80, 0.1, 0.9)])
def test_a_class_of_few_examples_does_not_have_most_answers(
    n_odd: int, called_max: float, found_min: float
) -> None:
    """Without the class prior: of three examples little is known, of eighty enough."""
    rng = np.random.default_rng(1)
    model = fresh()
    labels = [*["bad", "good"] * 2_000, *["odd"] * n_odd]
    texts = [_texts(rng, 1, label)[0] for label in labels]
    order = rng.permutation(len(texts)).tolist()
    model.learn_many({"text": [texts[i] for i in order]}, [labels[i] for i in order])
    asked = model.without_prior()
    others = _texts(rng, 250, "bad") + _texts(rng, 250, "good")
    assert asked.predict_many({"text": others}).count("odd") <= called_max * len(others)
    assert asked.predict_many({"text": _texts(rng, 500, "odd")}).count("odd") >= found_min * 500
    believed = np.array([1.0, 1.0, min(60 * (n_odd + 5) / 1_000, 1.0)])
    assert asked.class_priors() == pytest.approx(believed / believed.sum())
    assert model.raw().without_prior().class_priors() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("n_words", [8, 40])
@pytest.mark.parametrize("n_stray", [1, 3, 10])
def test_a_stray_label_changes_no_answer(n_words: int, n_stray: int) -> None:
    """A class of a few words is not called because it lacks those of the others."""
    rng = np.random.default_rng(n_words)
    frequent = 1.0 / np.arange(1, 2_001) ** 0.9
    shares = [frequent * np.exp(rng.normal(size=2_000)) for _ in range(2)]

    def drawn(c: int) -> str:
        own = shares[c] / shares[c].sum()
        return " ".join(f"w{j}" for j in rng.choice(2_000, n_words, p=own))

    classes = rng.integers(2, size=10_000).tolist()
    model = fresh()
    model.learn_many({"text": [drawn(c) for c in classes]}, [("bad", "good")[c] for c in classes])
    asked = {"text": [drawn(c) for c in (0, 1) for _ in range(300)]}
    before = model.predict_many(asked)
    assert "odd" not in before
    model.learn_many({"text": [drawn(0) for _ in range(n_stray)]}, ["odd"] * n_stray)
    for answers, moved_max in (
        (model, 0.01),
        (model.without_prior(), 0.01 if n_stray < 5 else 0.05),
    ):
        told = answers.predict_many(asked)
        assert np.mean(np.array(told) != np.array(before)) < moved_max


def test_folds_are_models_that_never_saw_them() -> None:
    """A fold left out is, bit for bit, a model of the other folds' parts."""
    stream = [
        (f"{a} {b}", CLASSES[(i + j) % 3])
        for i, a in enumerate("abcd")
        for j, b in enumerate("efgh")
    ]
    folds, parted = nb.Folds(fresh(), 4), fresh()
    for i, example in enumerate(stream):
        folds.learn_many(*columns([example]), i % 4)
        if i % 4 != 1:
            parted.learn_many(*columns([example]), part=str(i % 4))
    found = folds.without(1).predict_log_proba_many(PROBES)
    assert np.array_equal(found, parted.predict_log_proba_many(PROBES))


def test_what_only_counts_can_answer_is_refused_with_the_way_out() -> None:
    """Where the weights have no part in a question, it is for the raw model."""
    model = learned([("a b", "good"), ("c", "bad")])
    for ask in (model.weights, lambda: model.credible_interval_one({"text": "a"})):
        with pytest.raises(InputError, match=r"model\.raw\(\)"):
            ask()
    with pytest.raises(InputError, match=r"take Multinomial\(\), or no hybrid"):
        nb.Words(nb.Bernoulli(), hybrid=nb.Hybrid())
    with pytest.raises(InputError, match=r"features\.text\.hybrid"):
        nb.merge(model, fresh(None))
    for wrong in (0, -1.0, math.nan):
        with pytest.raises(InputError, match=r"Hybrid\.shrinkage must be"):
            nb.Hybrid(shrinkage=wrong)


@pytest.mark.parametrize(("name", "value"), [("words", -1.0), ("groups", -1.0), ("words", 1e200)])
def test_weights_that_nobody_learned_are_refused(name: str, value: float) -> None:
    """A file's precision below zero, or a sum beyond all streams, would be no number later."""
    header, arrays = pack(learned([("a b", "good")] * 3).state, {})
    arrays = {key: array.copy() for key, array in arrays.items()}
    unpack(header, arrays)
    arrays[f"sections/0/text/hybrid_{name}"][0, 0] = value
    with pytest.raises(InputError, match="a hybrid's precisions"):
        unpack(header, arrays)


def test_characters_are_of_a_kind_beside_words() -> None:
    """Weights of words are not shared with the n-grams of characters inside them."""
    model = learned([("so not", "good"), ("~", "bad")], characters=(3, 4))
    group: Any = model.state.groups["text"]
    kinds = {word: int(group.vocabulary.kinds[group.find([word])[0]]) for word in model.words()}
    of_words = {word: kind for word, kind in kinds.items() if not word.startswith("~")}
    assert of_words == {"so": 0, "not": 0, "so not": 2}
    assert {kinds[word] for word in kinds.keys() - of_words.keys()} == {3}
    assert kinds.keys() - of_words.keys() >= {"~^so", "~so$", "~not$"}


def test_the_table_of_bands_is_the_rule() -> None:
    """Small counts find in a table the band that the rule gives them, fractions as well."""
    rule, table = from_python(band), small_bands()
    assert [rule(float(count)) for count in range(len(table))] == table.tolist()
    assert [rule(count + 0.5) for count in range(len(table))] == table.tolist()


def test_a_hybrid_and_plain_counts_are_merged_as_the_refusal_says() -> None:
    """The error names the group and the call that makes both alike, with which they add up."""
    plain, learned = (
        nb.NaiveBayes(
            ["a", "b"], features={"a.b": nb.Words(nb.Multinomial(), field="t", hybrid=hybrid)}
        )
        for hybrid in (None, nb.Hybrid())
    )
    for model in (plain, learned):
        model.learn_many({"t": ["x y", "x"]}, ["a", "b"])
    with pytest.raises(InputError, match=r"set_hybrid\('a\.b', None\) drops"):
        _ = plain + learned
    learned.set_hybrid("a.b", None)
    assert (plain + learned).n_examples == 4


def test_a_move_of_the_landmark_takes_little_memory() -> None:
    """Counts and weights are scaled where they lie; rows beyond the last word stay as they are."""
    model = fresh()
    model.learn_many(*columns([(f"a{i} b{i}", CLASSES[i % 3]) for i in range(8_000)]))
    (group,) = model.state.groups.values()
    assert group.weights is not None
    held, counts = group.weights.words.copy(), group.counts.by_word.copy()
    tracemalloc.start()
    try:
        group.rescale(0.5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < held.nbytes / 2
    assert np.array_equal(group.weights.words, held * 0.5)
    assert np.array_equal(group.counts.by_word, counts * 0.5)
