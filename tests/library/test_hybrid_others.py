"""What a hybrid weights beside its words: its formula against a plain twin, its laws, its gain."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import streamnb as nb
from streamnb.errors import InputError
from streamnb.serialization import pack, unpack
from tests.library.test_hybrid import CLASSES, Twin, fresh

Row = tuple[dict[str, Any], str]
HYBRID = nb.Hybrid(half_life=30.0)
OTHERS: dict[str, Any] = {
    "flags": nb.Flags(fields=["link", "reply"]),
    "kinds": nb.Categories(fields=["job"], max_values=3),
    "numbers": nb.Numbers(fields=["size"]),
}
VALUES: dict[str, list[Any]] = {
    "text": ["a b", "not a b", "c d e", "", "e e", None],
    "link": [True, False, None],
    "reply": [True, False],
    "job": ["yes", "no", "maybe", "never", "ever", None],
    "size": [-3.0, 0.0, 0.5, 4.0, 1e9, None],
}
EXAMPLES = st.fixed_dictionaries({name: st.sampled_from(each) for name, each in VALUES.items()})
STREAMS = st.lists(st.tuples(EXAMPLES, st.sampled_from(CLASSES)), min_size=1, max_size=20)
PROBES = {name: [each[k % len(each)] for k in range(9)] for name, each in VALUES.items()}


def mixed(**others: Any) -> nb.NaiveBayes:
    """Return an untrained model of words under a hybrid and other groups, by default all kinds."""
    words = nb.Words(nb.Multinomial(), (1, 2), negation=True, counts="presence", hybrid=HYBRID)
    return nb.NaiveBayes(CLASSES, features={"text": words} | (others or OTHERS), hash_key=7)


def columns(stream: list[Row]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return a stream as columns and labels."""
    return {name: [x[name] for x, _ in stream] for name in VALUES}, [y for _, y in stream]


def others_of(model: nb.NaiveBayes) -> NDArray[np.float64]:
    """Return precisions and gradients of the other groups' weights."""
    group: Any = model.state.groups["text"]
    weights: NDArray[np.float64] = group.weights.others
    return weights


class MixedTwin(Twin):
    """The formulas in plain Python; what the other groups say comes from models of them alone."""

    def __init__(self) -> None:
        super().__init__(HYBRID)
        self.alone = {
            name: nb.NaiveBayes(
                CLASSES, nb.Fixed(dict.fromkeys(CLASSES, 1 / 3)), {name: group}, hash_key=7
            )
            for name, group in OTHERS.items()
        }
        self.others = {name: [0.0, 0.0] for name in OTHERS}
        self.said = {name: [0.0] * 3 for name in OTHERS}

    def ask(self, x: dict[str, Any]) -> None:
        """Note what each group says of an example, less what it says of its best class."""
        for name, model in self.alone.items():
            own = {field: [value] for field, value in x.items() if field in model.state.fields}
            logs = model.joint_log_likelihood_many(own)[0].tolist()
            best = max(logs)
            self.said[name] = [
                max(each - best, -10.0) if each > -math.inf else each for each in logs
            ]

    def answer(self, words: list[str]) -> list[float]:
        """Return z_c, -inf if a group finds the class impossible."""
        z, _ = self.scores(words)
        return [
            -math.inf if any(own[c] == -math.inf for own in self.said.values()) else z[c]
            for c in range(3)
        ]

    def scores(self, words: list[str]) -> tuple[list[float], dict[tuple[int, int], list[float]]]:
        """Return z_c with the other groups, and s_gc of the words' groups."""
        z, sums = super().scores(words)
        for name, (precision, gradients) in self.others.items():
            for c, s in enumerate(self.to_learn(name)):
                z[c] += (1 + gradients / (100 + precision)) * s
        return z, sums

    def to_learn(self, name: str) -> list[float]:
        """Return s_oc as the step has it: what is impossible lies ten below the best."""
        return [max(each, -10.0) for each in self.said[name]]

    def learn(self, words: list[str], y: int, weight: float = 1.0) -> None:
        """Take a step of all weights, then count the words."""
        z, _ = self.scores(words)
        z = [z[c] + math.log(self.recent[c] + 1) for c in range(3)]
        p = [math.exp(each - max(z)) for each in z]
        p = [each / math.fsum(p) for each in p]
        super().learn(words, y, weight)
        for name, own in self.others.items():
            s, before = self.to_learn(name), own[1] / (100 + own[0])
            mean = sum(p[c] * s[c] for c in range(3))
            more = weight * max(sum(p[c] * s[c] ** 2 for c in range(3)) - mean**2, 0.0)
            more = min(own[0] + more, 500.0) - own[0]
            own[0] += more
            own[1] += more * before + weight * sum(((c == y) - p[c]) * s[c] for c in range(3))


@given(STREAMS)
def test_answers_are_the_twins(stream: list[Row]) -> None:
    """Before each example is learned, its posteriors are those of the formulas, text or none."""
    model, twin, counts = mixed(), MixedTwin(), np.ones(3)
    for x, label in stream * 4:
        words = fresh(None)
        words.learn_one({"text": x["text"] or ""}, label)
        twin.ask(x)
        found = np.exp(list(model.prequential_one(x, label).values()))
        joint = np.array(twin.answer(words.words())) + np.log(counts)
        if np.isneginf(joint).all():  # the class prior alone answers
            joint = np.log(counts)
        expected = np.exp(joint - joint.max())
        assert np.allclose(found, expected / expected.sum(), rtol=0, atol=1e-5)
        twin.learn(words.words(), CLASSES.index(label))
        for group in twin.alone.values():
            own = {field: x[field] for field in group.state.fields}
            group.learn_one(own, label)
        counts[CLASSES.index(label)] += 1
    assert np.allclose(others_of(model), list(twin.others.values()), rtol=0, atol=1e-4)


@given(STREAMS, st.lists(st.integers(0, 20), max_size=3))
def test_a_stream_cut_anywhere_teaches_the_same(stream: list[Row], cuts: list[int]) -> None:
    """Batches, single examples, one part alone and a file give the same bits."""
    whole = mixed()
    returned = whole.prequential_many(*columns(stream))
    answers = whole.predict_log_proba_many(PROBES)
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for part in (None, "a"):
        model, single = mixed(), mixed()
        rows = [
            model.prequential_many(*columns(stream[begin:end]), part=part)
            for begin, end in pairwise(bounds)
        ]
        assert np.array_equal(np.concatenate(rows), returned)
        for x, label in stream:
            single.learn_one(x, label, part=part)
        for each in (model, single, nb.NaiveBayes.from_bytes(model.to_bytes())):
            assert np.array_equal(others_of(each), others_of(whole))
            assert np.array_equal(each.predict_log_proba_many(PROBES), answers)
    one = whole.predict_log_proba_one({name: each[0] for name, each in PROBES.items()})
    assert list(one.values()) == answers[0].tolist()


@given(STREAMS, st.randoms(use_true_random=False))
def test_parts_folds_and_merged_models_add_up(stream: list[Row], random: Any) -> None:
    """A part learns by what its own log taught; weights add up exactly, in any order."""
    logs: dict[str, list[Row]] = {"a": [], "b": [], "c": []}
    others = OTHERS | {"kinds": nb.Categories(fields=["job"])}  # no value leaves a sum
    model, folds = mixed(**others), nb.Folds(mixed(**others), 3)
    for x, label in stream:
        name = random.choice(list(logs))
        logs[name].append((x, label))
        model.learn_one(x, label, part=name)
        folds.learn_many(*columns([(x, label)]), "abc".index(name))
    apart = {name: mixed(**others) for name in logs}
    for name, log in logs.items():
        if log:
            apart[name].learn_many(*columns(log))
    for name in model.parts:
        assert np.array_equal(others_of(model.part(name)), others_of(apart[name]))
    merged = nb.merge(*(apart[name] for name in random.sample(list(logs), 3)))
    loaded = nb.NaiveBayes.from_bytes(model.to_bytes())
    total: Any = folds.total()
    for each in (merged, loaded, total):
        assert np.array_equal(others_of(each), others_of(model))
        found = each.predict_log_proba_many(PROBES)
        assert np.allclose(np.exp(found), np.exp(model.predict_log_proba_many(PROBES)), atol=1e-6)
    less: Any = folds.without(1)
    for each in (merged - apart["b"], less):
        assert np.array_equal(others_of(each), others_of(apart["a"]) + others_of(apart["c"]))


@given(STREAMS, STREAMS)
def test_unlearning_leaves_the_weights(kept: list[Row], gone: list[Row]) -> None:
    """Counts are as if it had never been; the weights stay, as those of the words' groups do."""
    # Without a bound on values, so that all of them can be taken back.
    others = {"flags": OTHERS["flags"], "kinds": nb.Categories(fields=["job"])}
    model, expected = mixed(**others), mixed(**others)
    model.learn_many(*columns(kept + gone))
    before = others_of(model).copy()
    model.unlearn_many(*columns(gone))
    expected.learn_many(*columns(kept))
    assert model.digest() == expected.digest()
    assert np.array_equal(others_of(model), before)


@given(STREAMS)
def test_contributions_add_up_to_the_log_odds(stream: list[Row]) -> None:
    """The features of a group that is weighted are told with its weight."""
    model = mixed()
    model.learn_many(*columns(stream * 3))
    for x in (stream[0][0], {"text": "a", "size": 0.1, "link": True}):
        told, posterior = model.explain_one(x), model.predict_log_proba_one(x)
        expected = posterior[told.label] - posterior[told.runner_up]
        assert told.log_odds == expected or math.isclose(told.log_odds, expected, abs_tol=1e-8)
        if math.isfinite(expected) and not told.by_prior:
            total = math.fsum(each.weight for each in told.contributions)
            assert math.isclose(total, expected, abs_tol=1e-8)


def test_a_file_from_before_weights_begins_at_one() -> None:
    """Without the array all weights of other groups are 1, and go on from there."""
    model = mixed()
    model.learn_many(*columns([({**dict.fromkeys(VALUES), "link": True}, "good")] * 9))
    header, arrays = pack(model.state, {})
    name = "sections/0/text/hybrid_others"
    assert arrays[name].any()
    state, _ = unpack(header, {key: each for key, each in arrays.items() if key != name})
    group: Any = state.groups["text"]
    assert group.weights.others.tolist() == [[0.0, 0.0]] * 3
    with pytest.raises(InputError, match="hybrid_others: shape"):
        unpack(header, arrays | {name: np.zeros((2, 2))})
    arrays[name][0, 0] = -1.0
    with pytest.raises(InputError, match="a hybrid's precisions"):
        unpack(header, arrays)


@pytest.mark.parametrize("parts", [[None], ["a"], ["a", "b"]])
def test_the_first_hybrid_by_name_weights_the_other_groups(parts: list[str | None]) -> None:
    """Another one does from where that is dropped, from nothing on; without any, none does."""
    words = {name: nb.Words(nb.Multinomial(), hybrid=HYBRID, field="text") for name in "ba"}
    model = nb.NaiveBayes(CLASSES, features=words | {"flags": OTHERS["flags"]}, hash_key=7)
    plain = nb.NaiveBayes(
        CLASSES,
        features={
            **{name: nb.Words(nb.Multinomial(), field="text") for name in "ba"},
            "flags": OTHERS["flags"],
        },
        hash_key=7,
    )

    def learn(model: nb.NaiveBayes) -> None:
        for i in range(12):
            x = {"text": "xyz"[i % 3], "link": i % 2 == 0, "reply": i % 5 == 0}
            model.learn_one(x, CLASSES[i % 2], part=parts[i % len(parts)])

    def learned_by(name: str) -> bool:
        group: Any = model.state.groups[name]
        return bool(len(group.weights.others) == 1 and group.weights.others.any())

    learn(model)
    assert (learned_by("a"), learned_by("b")) == (True, False)
    model.set_hybrid("a", None)
    assert not learned_by("b")
    learn(model)
    assert learned_by("b")
    model.set_hybrid("b", None)
    for _ in range(2):
        learn(plain)
    asked = {"text": ["x", None], "link": [True, False]}
    expected = plain.predict_log_proba_many(asked)
    assert np.array_equal(model.predict_log_proba_many(asked), expected)


def test_an_impossible_class_stays_impossible() -> None:
    """A weight, whatever it is, makes no class possible that a group rules out, and none is nan."""
    kinds = nb.Categories(nb.Categorical(nb.Dirichlet(0.0)), fields=["job"])
    model = mixed(kinds=kinds)
    random = np.random.default_rng(3)
    for i in range(300):  # the job speaks against its class half of the time
        model.learn_one({"text": "a", "job": "xy"[i % 2]}, CLASSES[int(random.integers(2))])
    found = model.predict_log_proba_many({"text": ["a", "a"], "job": ["x", "z"]})
    assert found[0, 2] == -np.inf
    assert not np.isnan(found).any()
    others_of(model)[0] = 0.0, -1e6  # a weight far below zero
    found = model.predict_log_proba_many({"text": ["a"], "job": ["x"]})
    assert found[0, 2] == -np.inf
    assert model.explain_one({"text": "a", "job": "x"}).label != "odd"


def _generated(doubled: bool) -> tuple[dict[str, list[Any]], NDArray[np.int64]]:
    """Return columns and classes: groups that tell of the text and of each other, or do not."""
    random, n = np.random.default_rng(4), 12_000
    y = random.integers(2, size=n)
    weights = np.where(np.arange(60) < 30, 1.0 + 0.6 * y[:, None], 1.6 - 0.6 * y[:, None])
    totals = np.cumsum(weights, axis=1)
    drawn = random.random((n, 8)) * totals[:, -1:]
    words = (totals[:, None, :] < drawn[:, :, None]).sum(axis=2)
    low = (words < 30).sum(axis=1) if doubled else random.binomial(8, np.where(y == 1, 0.55, 0.45))
    one = random.normal(size=n) + 0.9 * y
    columns: dict[str, list[Any]] = {"text": [" ".join(f"w{j}" for j in row) for row in words]}
    columns |= {name: (low > 4).tolist() for name in ("link", "reply")[: 1 + doubled]}
    columns["job"] = [str(k) for k in (low if doubled else random.integers(4, size=n)).tolist()]
    for name in ("size", "also", "again")[: 1 + 2 * doubled]:
        columns[name] = (one + 0.1 * random.normal(size=n)).tolist()
    return columns, y


def _loss_and_error(logs: NDArray[np.float64], y: NDArray[np.int64]) -> tuple[float, float]:
    """Return log-loss and calibration error in 20 bins, behind the first 1,000 rows."""
    logs, y = logs[1000:], y[1000:]
    p, right = np.exp(logs.max(axis=1)), logs.argmax(axis=1) == y
    bins = np.minimum((p * 20).astype(int), 19)
    gaps = np.bincount(bins, weights=right) - np.bincount(bins, weights=p)
    return float(-logs[np.arange(len(y)), y].mean()), float(np.abs(gaps).sum() / len(y))


@pytest.mark.parametrize("doubled", [True, False])
def test_groups_that_tell_the_same_are_not_counted_twice(doubled: bool) -> None:
    """Beside a sum of both, as it was: far better if they tell the same, else hardly different."""
    columns, y = _generated(doubled)
    labels = [CLASSES[c] for c in y.tolist()]
    numbers = nb.Numbers(fields=[name for name in ("size", "also", "again") if name in columns])
    flags = nb.Flags(fields=[name for name in ("link", "reply") if name in columns])
    kinds = nb.Categories(fields=["job"])
    others: dict[str, Any] = {"numbers": numbers, "flags": flags, "kinds": kinds}
    uniform = nb.Fixed(dict.fromkeys(CLASSES, 1 / 3))
    words: Any = nb.Words(nb.Multinomial(), hybrid=nb.Hybrid())
    logs = [
        nb.NaiveBayes(CLASSES, prior, features, hash_key=7).prequential_many(columns, labels)
        for prior, features in (
            (None, {"text": words} | others),
            (None, {"text": words}),
            (uniform, others),
        )
    ]
    summed = np.logaddexp.reduce(logs[1] + logs[2], axis=1)
    before = _loss_and_error(logs[1] + logs[2] - summed[:, None], y)
    found = _loss_and_error(logs[0], y)
    if doubled:
        assert found[0] < before[0] - 0.25
        assert found[1] < before[1] - 0.1
    else:
        assert found[0] < before[0] + 0.003
        assert found[1] < before[1] + 0.006


@pytest.mark.parametrize("n_far", [1, 1_000])
def test_a_class_that_lies_far_off_hides_no_other(n_far: int) -> None:
    """What numbers say of two classes is not made less by what they say of a third.

    One stray label makes a class of next to no variance, from which all others lie far.
    """
    rng = np.random.default_rng(4)
    model = nb.NaiveBayes(
        ["bad", "good", "far"],
        features={
            "text": nb.Words(nb.Multinomial(), field="text", hybrid=nb.Hybrid()),
            "size": nb.Numbers(nb.Gaussian(), fields=["near", "apart"]),
        },
    )

    def learn_and_judge(labels: list[str], *, learn: bool) -> float:
        near = rng.normal(size=len(labels)) + np.array([2.0 * (each == "good") for each in labels])
        apart = rng.normal(size=len(labels)) * 0.1
        apart += np.array([50.0 * (each == "far") for each in labels])
        x = {"text": ["the same"] * len(labels), "near": near, "apart": apart}
        if learn:
            model.learn_many(x, labels)
        return float(np.mean(np.array(model.predict_many(x)) == np.array(labels)))

    labels = [*["bad", "good"] * 1_500, *["far"] * n_far]
    learn_and_judge(rng.permutation(labels).tolist(), learn=True)
    assert learn_and_judge(["bad", "good"] * 500, learn=False) > 0.8
    told = model.explain_one({"text": "the same", "near": 2.0, "apart": 0.0})
    assert sum(each.weight for each in told.contributions) == pytest.approx(told.log_odds)


def test_a_model_without_classes_explains_nothing_and_says_so() -> None:
    """What a hybrid weights beside its text has no best class then."""
    words = nb.Words(nb.Multinomial(), hybrid=HYBRID)
    model = nb.NaiveBayes(features={"text": words, "flags": nb.Flags(fields=["link"])})
    with pytest.raises(InputError, match="two classes to tell apart, and the model has 0"):
        model.explain_one({"text": "a", "link": True})
