"""Decay beside the rest: merging, parts, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Categories,
    Complement,
    Flags,
    HalfLife,
    Hybrid,
    Multinomial,
    NaiveBayes,
    Numbers,
    Words,
    merge,
    subtract,
)
from streamnb.decay import Clock
from streamnb.errors import InputError
from streamnb.features.protocol import Group
from streamnb.serialization import pack, unpack
from tests.library.features.count_models import (
    PROBES,
    WORDS,
    Example,
    close,
    examples,
    facts,
    learn,
    model_of,
)
from tests.library.test_decay import HALF_LIVES, bags, has_zeros, plain_features, timed
from tests.library.test_hybrid import CLASSES, Twin


@given(plain_features, timed, timed, HALF_LIVES)
def test_merged_by_seconds_is_one_stream(
    groups: dict[str, Group], mine: list[Example], theirs: list[Example], half_life: float
) -> None:
    """With a half-life in seconds the sum is what one model learns from both streams."""
    decay = HalfLife(seconds=half_life)
    merged = learn(model_of(groups, decay=decay), mine) + learn(
        model_of(groups, decay=decay), theirs
    )
    whole = learn(model_of(groups, decay=decay), [*mine, *theirs])
    assert merged.class_counts == pytest.approx(whole.class_counts, rel=1e-10, abs=1e-200)
    if not has_zeros(groups):
        close(merged.joint_log_likelihood_many(PROBES), whole.joint_log_likelihood_many(PROBES))
    assert facts(NaiveBayes.from_bytes(merged.to_bytes())) == facts(merged)
    rest = merged - learn(model_of(groups, decay=decay), theirs)
    mine_then = learn(model_of(groups, decay=decay), mine)
    age = 2.0 ** ((max_time(mine) - max_time([*mine, *theirs])) / half_life) if mine else 0.0
    assert rest.class_counts == pytest.approx(mine_then.class_counts * age, rel=1e-6, abs=1e-6)


def max_time(stream: Sequence[Example]) -> float:
    """Return the latest time."""
    return max(each.time_s or 0.0 for each in stream)


@given(examples(max_size=20), examples(max_size=20), st.sampled_from([0.05, 3.0]))
def test_merged_by_examples_enters_as_it_stands(
    mine: list[Example], theirs: list[Example], half_life: float
) -> None:
    """With a half-life in examples, both count in the sum as they do by themselves."""
    decay = HalfLife(examples=half_life)
    a = learn(model_of(bags(), decay=decay), mine)
    b = learn(model_of(bags(), decay=decay), theirs)
    merged = merge(a, b)
    assert merged.class_counts == pytest.approx(a.class_counts + b.class_counts, rel=1e-12)
    summed = a.word_counts(WORDS) + b.word_counts(WORDS)
    assert merged.word_counts(WORDS) == pytest.approx(summed, rel=1e-12)
    with pytest.raises(InputError, match="cannot be subtracted"):
        subtract(merged, a)


@given(timed, st.sampled_from([0.05, 7.3]))
def test_parts_are_of_one_clock(stream: list[Example], half_life: float) -> None:
    """In parts by seconds the model is the parts' sum, and each part is saved bit for bit."""
    model = model_of(bags(), decay=HalfLife(seconds=half_life))
    for i, each in enumerate(stream):
        model.learn_one(
            each.x, each.label, weight=each.weight, time_s=each.time_s, part=f"p/{i % 3}"
        )
    whole = learn(model_of(bags(), decay=HalfLife(seconds=half_life)), stream)
    assert model.class_counts == pytest.approx(whole.class_counts, rel=1e-12, abs=1e-200)
    restored = NaiveBayes.from_bytes(model.to_bytes())
    assert restored.to_bytes() == model.to_bytes()
    # The parts are restored bit for bit; their sum, of fractions now, to rounding.
    close(
        restored.joint_log_likelihood_many(PROBES), model.joint_log_likelihood_many(PROBES), 1e-12
    )


def test_real_times_do() -> None:
    """Seconds since 1970 do: what float64 holds of them is what a weight is exact to."""
    model = model_of(bags(), decay=HalfLife(seconds=3600.0))
    learn(
        model,
        [
            Example(None, {"a": 1.0}, "ham", 1.0, 1_763_720_000.0),
            Example(None, {"a": 1.0}, "spam", 1.0, 1_763_720_000.0 + 7200.0),
        ],
    )
    assert model.class_counts == pytest.approx([0.25, 1.0, 0.0], rel=1e-9)


HALVES: list[dict[str, Any]] = [
    {},
    {"examples": 1, "seconds": 1},
    {"examples": 0},
    {"seconds": -1},
    {"seconds": float("nan")},
    {"seconds": float("inf")},
    {"examples": "3"},
]


@pytest.mark.parametrize("given", HALVES, ids=str)
def test_half_lives_are_checked(given: dict[str, Any]) -> None:
    """One of the two, finite and above zero."""
    with pytest.raises(InputError, match="HalfLife"):
        HalfLife(**given)


def test_normalised_complement_does_not_decay() -> None:
    """Its weights run over the whole vocabulary: together with decay it is refused, by name."""
    groups: dict[str, Group] = {"bag": Bag(Complement(normalise=True), field="bag")}
    with pytest.raises(InputError, match=r"group 'bag': Complement\(.*normalise"):
        model_of(groups, decay=HalfLife(examples=3))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "time_s"),
    ({"time_s": float("nan")}, "times_s.0. must be finite"),
    ({"time_s": float("inf")}, "times_s.0. must be finite"),
    ({"time_s": "3"}, "times_s"),
    ({"time_s": 1e300}, "half-li"),
    ({"time_s": 0.0, "weight": 1e300}, "weight"),
]


@pytest.mark.parametrize(("how", "message"), REFUSED, ids=[str(how) for how, _ in REFUSED])
def test_times_are_checked(how: dict[str, Any], message: str) -> None:
    """A time that is missing or no number is refused, and not a byte changes."""
    model = model_of(bags(), decay=HalfLife(seconds=1e-3))
    learn(model, [Example(None, {"a": 1.0}, "ham", 1.0, 0.0)])
    before = model.to_bytes()
    with pytest.raises(InputError, match=message):
        model.learn_one({"bag": {"a": 1}}, "spam", **how)
    with pytest.raises(InputError):
        model.unlearn_one({"bag": {"a": 1}}, "ham", **how)
    assert model.to_bytes() == before


def test_examples_half_life_takes_no_parts_and_no_unlearning() -> None:
    """By examples, a part would not be a function of its own log, nor an example's age known."""
    model = model_of(bags(), decay=HalfLife(examples=5))
    before = model.to_bytes()
    with pytest.raises(InputError, match="part 'p'"):
        model.learn_one({"bag": {"a": 1}}, "ham", part="p")
    assert model.to_bytes() == before
    model.learn_one({"bag": {"a": 1}}, "ham")
    learned = model.to_bytes()
    with pytest.raises(InputError, match="cannot unlearn"):
        model.unlearn_one({"bag": {"a": 1}}, "ham")
    assert model.to_bytes() == learned


@pytest.mark.parametrize("likelihood", [Bernoulli(Beta(1, 1)), Multinomial(), Complement()])
def test_all_forgotten_answers_the_prior(likelihood: Any) -> None:
    """What is older than float64 can tell is gone: words leave, and the new ones alone speak."""
    model = model_of({"bag": Bag(likelihood, field="bag")}, decay=HalfLife(seconds=1.0))
    learn(model, [Example(None, {"a": 1.0}, "ham", 1.0, 0.0)])
    learn(model, [Example(None, {"b": 1.0}, "spam", 1.0, 1e5)])
    assert model.words() == ["b"]
    assert model.vocabulary_size == 1
    fresh = model_of({"bag": Bag(likelihood, field="bag")}, decay=HalfLife(seconds=1.0))
    learn(fresh, [Example(None, {"b": 1.0}, "spam", 1.0, 1e5)])
    assert model.joint_log_likelihood_many(PROBES) == pytest.approx(
        fresh.joint_log_likelihood_many(PROBES), rel=1e-12
    )
    learn(model, [Example(None, {"z": 1.0}, "eggs", 1.0, 0.0)])  # far too late to matter
    assert model.words() == ["b"]


# ---- weights of a hybrid, in parts, by seconds ---------------------------------------------------


class Row(NamedTuple):
    """An example of a log."""

    log: str
    text: str
    label: str
    time_s: float
    weight: float


TEXTS = st.sampled_from(["a b", "not a b", "c d e", "", "e e a", "d"])
LOGS = ("1", "2")
HYBRID = Hybrid(half_life=30.0)


def rows(times: st.SearchStrategy[float]) -> st.SearchStrategy[list[Row]]:
    """Draw two logs, as they are read in turns."""
    weights = st.sampled_from([1.0, 1.0, 0.5, 3.0])
    row = st.builds(Row, st.sampled_from(LOGS), TEXTS, st.sampled_from(CLASSES), times, weights)
    return st.lists(row, min_size=2, max_size=40)


OTHERS: dict[str, Group] = {
    "long": Flags(fields=["long"]),
    "first": Categories(fields=["first"], max_values=3),
    "length": Numbers(fields=["length"]),
}


def weighing(half_life: float, others: dict[str, Group] | None = None) -> NaiveBayes:
    """Return an untrained model with all that is learned in order: weights and recent classes."""
    words = Words(Multinomial(), (1, 2), negation=True, counts="presence", hybrid=HYBRID)
    groups: dict[str, Group] = {"text": words} | (others or {})
    decay = HalfLife(seconds=half_life)
    return NaiveBayes(CLASSES, features=groups, decay=decay, hash_key=7, prior_half_life=5.0)


def take_in(model: NaiveBayes, stream: Sequence[Row], part: str | None = None) -> None:
    """Learn rows as one batch."""
    fields = {
        "text": [row.text for row in stream],
        "long": [len(row.text) > 3 for row in stream],
        "first": [row.text[:1] or None for row in stream],
        "length": [float(len(row.text)) for row in stream],
    }
    columns = {name: fields[name] for name in model.state.fields}
    labels, weights = [row.label for row in stream], [row.weight for row in stream]
    times_s = [row.time_s for row in stream]
    model.learn_many(columns, labels, weights=weights, times_s=times_s, part=part)


def alone(model: NaiveBayes, stream: Sequence[Row], log: str) -> NaiveBayes:
    """Have an untrained model learn one log, example by example."""
    for row in stream:
        if row.log == log:
            take_in(model, [row])
    return model


def learned_by_word(state: Any) -> dict[str, list[float]]:
    """Return precision and gradients of words, as at landmark 0."""
    group = state.groups["text"]
    columns = group.live_columns()
    learned = np.ldexp(group.weights.words[columns], int(state.clock.landmark)).tolist()
    return dict(zip(group.vocabulary.words(columns), learned, strict=True))


def weights_of(model: NaiveBayes) -> list[Any]:
    """Return what a model has learned in order, its words by name and as at landmark 0."""
    group: Any = model.state.groups["text"]
    groups, others = group.weights.groups.tolist(), group.weights.others.tolist()
    return [
        learned_by_word(model.state),
        groups,
        others,
        group.weights.recent.tolist(),
        model.state.recent.tolist(),
    ]


def moved(model: NaiveBayes, half_life: float) -> NaiveBayes:
    """Return another model that has a model's parts out of files."""
    other = weighing(half_life)
    for name in reversed([*model.parts]):
        other.set_part(name, NaiveBayes.from_bytes(model.part(name).to_bytes()))
    return other


SPREAD = st.floats(0.0, 300.0)  # with the shortest half-life, landmarks move


@given(rows(SPREAD), st.sampled_from([1.0, 7.3, 1e6]), st.sets(st.integers(0, 20), max_size=3))
def test_weights_of_a_part_are_those_of_its_log_alone(
    stream: list[Row], half_life: float, moves: set[int]
) -> None:
    """Whatever other parts read, and wherever parts move by files, they are the same bits."""
    model = weighing(half_life)
    for i, (log, batch) in enumerate(groupby(stream, key=lambda row: row.log)):
        take_in(model, list(batch), log)
        if i in moves:
            model = moved(model, half_life)
            model = NaiveBayes.from_bytes(model.to_bytes())
    for log in model.parts:
        expected = alone(weighing(half_life), stream, log)
        found = model.part(log)
        assert weights_of(found) == weights_of(expected)
        assert found.state.clock.now == expected.state.clock.now
    if len(model.parts) == len(LOGS):
        model.drop_part("1")
        expected = alone(weighing(half_life), stream, "2")
        assert weights_of(model) == weights_of(expected)
        assert model.state.clock.now == expected.state.clock.now
        asked = {"text": ["a b", "not a", "d"]}
        close(model.predict_log_proba_many(asked), expected.predict_log_proba_many(asked), 1e-9)
        later = Row("2", "a b c", "odd", 301.0, 1.0)
        take_in(model, [later], "2")
        take_in(expected, [later])
        assert weights_of(model) == weights_of(expected)


@given(rows(SPREAD), st.sampled_from([7.3, 100.0]))
def test_weights_of_other_groups_are_those_of_the_log_alone(
    stream: list[Row], half_life: float
) -> None:
    """What flags, categories and numbers say of a part's examples is by its own time, too.

    To rounding: the logarithms of counts at another landmark are.
    """
    model = weighing(half_life, OTHERS)
    for log, batch in groupby(stream, key=lambda row: row.log):
        take_in(model, list(batch), log)
    for log in model.parts:
        found, expected = model.part(log), alone(weighing(half_life, OTHERS), stream, log)
        (words, *rest), (expected_words, *expected_rest) = weights_of(found), weights_of(expected)
        assert words.keys() == expected_words.keys()
        pairs = [(words[word], expected_words[word]) for word in words]
        for own, theirs in [*pairs, *zip(rest, expected_rest, strict=True)]:
            assert np.allclose(own, theirs, rtol=0.0, atol=2.0**-20)


class TimedTwin(Twin):
    """The formulas in plain Python, of a log whose examples have times."""

    now = -np.inf

    def learn_at(self, words: list[str], y: int, half_lives: float) -> None:
        """Learn an example, its time in half-lives: as it is in the newest counts, 1 at most."""
        self.after = max(self.now, half_lives)
        self.learn(words, y, 2.0 ** min(half_lives - self.now, 0.0))

    def pass_time(self) -> None:
        """Let what is counted, and what words have learned, decay to the time of an example."""
        factor = 2.0 ** (self.now - self.after)
        self.now = self.after
        self.tokens = [each * factor for each in self.tokens]
        for held in (self.counts, self.words):
            for word, own in held.items():
                held[word] = [each * factor for each in own]


@given(rows(st.integers(0, 9).map(lambda lives: 8.0 * lives)))
def test_weights_of_parts_are_the_twins(stream: list[Row]) -> None:
    """A part's steps are those of the formulas at its own newest time."""
    model, twins = weighing(8.0), {log: TimedTwin(HYBRID) for log in LOGS}
    for row in (each._replace(weight=1.0) for each in stream * 2):
        take_in(model, [row], row.log)
        asked = weighing(1.0)
        take_in(asked, [row])
        twins[row.log].learn_at(asked.words(), CLASSES.index(row.label), row.time_s / 8.0)
    for log in model.parts:
        words, groups, *_ = weights_of(model.part(log))
        for (kind, band), own in twins[log].groups.items():
            assert np.allclose(groups[8 * kind + band], own, rtol=0, atol=1e-4)
        for word, theirs in twins[log].words.items():
            precision, _, *gradients = theirs
            own = np.ldexp(words[word], -int(twins[log].now))
            assert np.allclose(own, [precision, *gradients], rtol=0, atol=1e-4)


def test_a_file_says_the_newest_time_of_a_part_where_it_is_not_the_models() -> None:
    """Files from before it have the model's for all; one that no part can have is refused."""
    model = weighing(10.0)
    take_in(model, [Row("1", "a b", "good", 5.0, 1.0)], "1")
    take_in(model, [Row("2", "a", "bad", 90.0, 1.0)], "2")
    header, arrays = pack(model.state, {})
    first, second = header["sections"]
    assert first["now"] == 5.0
    assert "now" not in second
    assert "now" not in pack(model.part("1").state, {})[0]["sections"][0]
    for wrong in ("5", float("nan"), 91.0, True):
        first["now"] = wrong
        with pytest.raises(InputError, match=r"a part's now must be a time up to 90\.0"):
            unpack(header, arrays)
    del first["now"]
    state, _ = unpack(header, arrays)
    assert [part.now for part in state.parts.values()] == [90.0, 90.0]


def test_without_weights_a_file_says_no_time_of_a_part() -> None:
    """Counts are of one clock; weights that begin later go by the times known then."""
    words = Words(Multinomial())
    model = NaiveBayes(CLASSES, features={"text": words}, decay=HalfLife(seconds=10.0), hash_key=7)
    take_in(model, [Row("1", "a b", "good", 5.0, 1.0)], "1")
    take_in(model, [Row("2", "a", "bad", 90.0, 1.0)], "2")
    header, _ = pack(model.state, {})
    assert not any("now" in section for section in header["sections"])
    loaded = NaiveBayes.from_bytes(model.to_bytes())
    for each in (model, loaded):
        each.set_hybrid("text", HYBRID)
        take_in(each, [Row("1", "a d", "odd", 80.0, 1.0)], "1")
    assert loaded.to_bytes() == model.to_bytes()
    model.set_hybrid("text", None)
    model.drop_part("2")
    assert model.state.clock.now == 90.0


def test_words_of_files_from_before_begin_to_decay_as_they_are() -> None:
    """What words had learned did not decay: a part's sums were not scaled up to its own time."""
    model = weighing(10.0)
    rng = np.random.default_rng(5)
    for i in range(60):
        text = " ".join(rng.choice(list("abcde"), 3))
        take_in(model, [Row("1", text, CLASSES[rng.integers(3)], 4.0 * i, 1.0)], "1")
    take_in(model, [Row("2", "a b", "odd", 3_000.0, 1.0)] * 2, "2")  # 276 half-lives later
    header, arrays = pack(model.state, {})
    del header["weights_decay"]
    for i, part in enumerate(model.state.parts.values()):
        name, clock = f"sections/{i}/text/hybrid_words", model.state.clock
        arrays[name] = arrays[name] / Clock(clock.half_life, part.now, clock.landmark).scale
    loaded, _ = unpack(header, arrays)
    states: list[Any] = [loaded, model.state]
    for name in model.parts:
        found, expected = (
            np.unique(each.parts[name].groups["text"].weights.words, axis=0) for each in states
        )
        assert found.any()
        assert np.allclose(found, expected, rtol=1e-12, atol=0.0)
    assert NaiveBayes.from_bytes(model.part("1").to_bytes()).words()
    header, _ = pack(weighing(10.0).without_prior().state, {})
    assert header["weights_decay"]


@given(rows(SPREAD), st.sampled_from([7.3, 1e3]))
def test_merged_by_seconds_words_add_up_at_one_time(stream: list[Row], half_life: float) -> None:
    """Two logs' models, merged, answer as one model of both parts, and subtracting one undoes it.

    To rounding, as the clocks that they come with have other landmarks.
    """
    model, apart = weighing(half_life), {log: weighing(half_life) for log in LOGS}
    for row in stream:
        take_in(model, [row], row.log)
        take_in(apart[row.log], [row])
    merged = merge(*apart.values())
    asked = {"text": ["a b", "not a", "d", "c d e"]}
    if len(model.parts) == len(LOGS):
        found = merged.without_prior().predict_log_proba_many(asked)
        close(found, model.without_prior().predict_log_proba_many(asked), 1e-6)


@pytest.mark.parametrize("silence_s", [600.0, 1_000.0, 1_061.0, 1_074.0, 1_100.0, 5_000.0])
@pytest.mark.parametrize("part", [None, "1"])
def test_after_a_long_silence_weights_are_numbers(silence_s: float, part: str | None) -> None:
    """However little is left of what was known: and batches learn as single examples do."""
    stream = [Row("1", "a b", CLASSES[i % 2], i / 10, 1.0) for i in range(20)]
    stream += [Row("1", text, "bad", silence_s, 1.0) for text in ("a b", "a c")]
    single, batch = weighing(1.0, OTHERS), weighing(1.0, OTHERS)
    for row in stream:
        take_in(single, [row], part)
    take_in(batch, stream, part)
    assert single.to_bytes() == batch.to_bytes()
    assert NaiveBayes.from_bytes(single.to_bytes()).to_bytes() == single.to_bytes()
    assert all(np.isfinite(each).all() for each in single.state.groups["text"].weights)


def test_of_a_gradient_that_falls_to_zero_no_sign_is_left() -> None:
    """So that a model is the same bytes before it is saved and after it is loaded."""
    model = weighing(1.0)
    take_in(model, [Row("1", "a", label, 0.0, 1.0) for label in CLASSES * 2])
    words = model.state.groups["text"].weights.words
    words[words[:, 0] > 0.0, 1] = -5e-324
    assert np.signbit(words).any()
    model.state.rescale(0.25)
    assert not np.signbit(words).any()


def test_after_an_abrupt_change_it_follows_as_a_new_model_does() -> None:
    """All labels flip: some half-lives later the words' weights have forgotten what they were."""
    rng = np.random.default_rng(11)
    words = [f"w{i}" for i in range(100)]
    lean = rng.normal(0.0, 1.5, 100)
    drawn = rng.integers(0, 100, (9_000, 6))
    truth = rng.random(9_000) < 1.0 / (1.0 + np.exp(-lean[drawn].sum(axis=1)))
    texts = [" ".join(words[i] for i in row) for row in drawn]
    labels = [CLASSES[int(is_good != (at >= 6_000))] for at, is_good in enumerate(truth)]
    right = {}
    for begin in (0, 6_000):
        group = Words(Multinomial(), hybrid=Hybrid())
        decay = HalfLife(examples=300.0)
        model = NaiveBayes(CLASSES[:2], features={"text": group}, decay=decay, hash_key=7)
        said = model.prequential_many({"text": texts[begin:]}, labels[begin:])[-1_500:]
        right[begin] = np.mean(
            [
                CLASSES[c] == label
                for c, label in zip(said.argmax(axis=1), labels[-1_500:], strict=True)
            ]
        )
    assert right[6_000] > 0.75
    assert right[0] >= right[6_000] - 0.01


# ---- far from the landmark, where weights are whole by accident ----------------------------------


def of_all_groups() -> NaiveBayes:
    """Return a model with a half-life of a second, and a group of each kind."""
    groups: dict[str, Group] = {
        "text": Words(Multinomial()),
        "bernoulli": Words(Bernoulli(Beta(1.0, 1.0)), field="text"),
        "complement": Words(Complement(normalise=False), field="text"),
        "number": Numbers(fields=["number"]),
        "flag": Flags(fields=["flag"]),
        "place": Categories(fields=["place"]),
    }
    return NaiveBayes(features=groups, decay=HalfLife(seconds=1.0), hash_key=1)


def columns_of(word: str, n: int) -> dict[str, Any]:
    """Return the fields of examples that are all the same."""
    return {"text": [word] * n, "number": [7.0] * n, "flag": [True] * n, "place": [word] * n}


def check_forgot(model: NaiveBayes) -> None:
    """Assert that a model knows nothing of class "a" any more, nor of its word."""
    assert "a" not in model.classes
    assert all("word" not in model.words(name) for name in ("text", "bernoulli", "complement"))
    values = model.state.groups["place"].live_values()  # type: ignore[attr-defined]
    assert len(values.columns) == len(model.classes)


whens = st.floats(0.0, 54.0) | st.floats(46.0, 54.0)
after = st.lists(st.floats(0.0, 8.0), min_size=1, max_size=6)


@given(whens, after, st.booleans(), st.randoms(use_true_random=False))
@hypothesis.example(52.11, [0.0, 0.41], False, Random(0))
@hypothesis.example(51.56, [0.0, 0.76], False, Random(0))
def test_unlearned_anywhere_before_the_landmark_moves(
    when: float, ages: list[float], in_parts: bool, random: Random
) -> None:
    """What is taken back leaves no rest, where float64 has few bits for a weight's fraction."""
    model = of_all_groups()
    parts = ["p", "q"] if in_parts else [None, None]
    model.learn_many(columns_of("other", 1), ["b"], times_s=[0.0], part=parts[0])
    times = [when + age for age in ages]
    columns, labels = columns_of("word", len(times)), ["a"] * len(times)
    model.learn_many(columns, labels, times_s=times, part=parts[1])
    random.shuffle(times)
    model.unlearn_many(columns, labels, times_s=times, part=parts[1])
    check_forgot(model)
    assert model.state.class_counts.tolist() == [1.0]
    assert model.words("text") == ["other"]


@given(whens, after, after)
@hypothesis.example(51.76, [0.0, 1.64], [0.97])
@hypothesis.example(52.75, [0.0, 0.28], [0.05])
def test_a_sum_without_its_parts_is_nothing_anywhere(
    when: float, mine: list[float], theirs: list[float]
) -> None:
    """So does a sum of models from which both are taken away again."""
    first, second = of_all_groups(), of_all_groups()
    for model, ages in ((first, mine), (second, theirs)):
        model.learn_many(columns_of("other", 1), ["b"], times_s=[0.0])
        times = [when + age for age in ages]
        model.learn_many(columns_of("word", len(ages)), ["a"] * len(ages), times_s=times)
    left = merge(first, second) - first - second
    check_forgot(left)
    assert left.classes == ()
