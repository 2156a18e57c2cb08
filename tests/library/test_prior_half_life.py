"""The half-life of the class prior: its formula against a plain twin, its laws, and its limits."""

from __future__ import annotations

import math
import pickle
import warnings
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamnb as nb
from streamnb.errors import InputError, StoreError
from streamnb.serialization import from_bytes, to_blocks
from streamnb.serving.publisher import Snapshot

CLASSES = ["bad", "good", "odd"]
GROUPS: dict[str, dict[str, Any]] = {
    "gaussian": {"size": nb.Numbers(nb.Gaussian(nb.NormalInverseGamma()), fields=["size"])},
    "bernoulli": {"text": nb.Words(nb.Bernoulli())},
    "multinomial": {"text": nb.Words(nb.Multinomial())},
    "complement": {"text": nb.Words(nb.Complement())},
    "categorical": {"text": nb.Categories(nb.Categorical(), fields=["text"])},
    "flags": {"flag": nb.Flags(nb.Bernoulli(), fields=["flag"])},
    "hybrid": {"text": nb.Words(nb.Multinomial(), hybrid=nb.Hybrid())},
}
Row = tuple[str, str, float, bool]
ROWS = st.tuples(
    st.sampled_from(CLASSES),
    st.sampled_from(["a", "a b", "b c", ""]),
    st.integers(-3, 3).map(float),
    st.booleans(),
)
STREAMS = st.lists(ROWS, min_size=1, max_size=15)
HALF_LIVES = st.sampled_from([0.7, 3.0, 700.0])


def model_of(half_life: float | None, family: str = "multinomial", **options: Any) -> nb.NaiveBayes:
    """Return an untrained model."""
    features = GROUPS[family]
    return nb.NaiveBayes(
        CLASSES, features=features, hash_key=7, prior_half_life=half_life, **options
    )


def columns_of(stream: list[Row]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return a stream as columns and labels."""
    labels, texts, sizes, flags = (list(each) for each in zip(*stream, strict=True))
    return {"text": texts, "size": sizes, "flag": flags}, labels


def learned(half_life: float | None, stream: list[Row], **options: Any) -> nb.NaiveBayes:
    """Return a model that has learned a stream."""
    model = model_of(half_life, **options)
    if stream:
        model.learn_many(*columns_of(stream))
    return model


def twin(half_life: float, labels: list[str], weights: list[float]) -> list[float]:
    """Return R_c by the formula, in plain Python."""
    recent = [0.0] * len(CLASSES)
    for label, weight in zip(labels, weights, strict=True):
        recent = [each * 0.5 ** (1.0 / half_life) for each in recent]
        recent[CLASSES.index(label)] += weight
    return recent


@pytest.mark.parametrize("family", GROUPS)
@given(stream=STREAMS, half_life=HALF_LIVES, data=st.data())
def test_the_prior_is_the_plain_formula_beside_any_family(
    family: str, stream: list[Row], half_life: float, data: st.DataObject
) -> None:
    """Each answer is the likelihood without a prior, times (R_c + α) / (ΣR + 3α)."""
    columns, labels = columns_of(stream)
    n = len(labels)
    weights = data.draw(st.lists(st.sampled_from([1.0, 2.0, 0.3]), min_size=n, max_size=n))
    model, plain = (
        nb.NaiveBayes(CLASSES, nb.Dirichlet(0.5), GROUPS[family], hash_key=7, prior_half_life=each)
        for each in (half_life, None)
    )
    said = model.prequential_many(columns, labels, weights=weights)
    for i in range(n):
        row = {name: values[i : i + 1] for name, values in columns.items()}
        without = plain.without_prior().predict_log_proba_many(row)[0]
        recent = np.array(twin(half_life, labels[:i], weights[:i]))
        joint = without + np.log((recent + 0.5) / (recent.sum() + 1.5))
        expected = joint - np.logaddexp.reduce(joint)
        assert np.allclose(said[i], expected, rtol=0, atol=1e-6)
        plain.learn_many(row, labels[i : i + 1], weights=weights[i : i + 1])
    recent = np.array(twin(half_life, labels, weights))
    assert np.allclose(model.class_priors(), (recent + 0.5) / (recent.sum() + 1.5), atol=1e-6)
    assert model.digest() == plain.digest()
    asked, due = (each.without_prior().predict_log_proba_many(columns) for each in (model, plain))
    assert np.array_equal(asked, due)


@given(stream=STREAMS, family=st.sampled_from([*GROUPS]))
def test_without_a_half_life_all_is_as_it_was(stream: list[Row], family: str) -> None:
    """None, 0 and infinity are one: bytes and answers of a model that knows no such setting.

    So are the answers under a half-life beyond what float64 can tell from it, while examples are
    learned and taken back.
    """
    columns, labels = columns_of(stream)
    plain = nb.NaiveBayes(CLASSES, features=GROUPS[family], hash_key=7)
    before = plain.prequential_many(columns, labels)
    for half_life in (None, 0, 0.0, math.inf):
        model = model_of(half_life, family)
        assert np.array_equal(model.prequential_many(columns, labels), before)
        assert model.to_bytes() == plain.to_bytes()
        assert model.describe() == plain.describe()
    model = model_of(1e18, family)
    assert np.array_equal(model.prequential_many(columns, labels), before)
    for each in (model, plain):
        each.unlearn_many({name: values[::2] for name, values in columns.items()}, labels[::2])
    said, due = (each.predict_log_proba_many(columns) for each in (model, plain))
    assert np.array_equal(said, due)


@given(stream=STREAMS, more=STREAMS, half_life=HALF_LIVES, family=st.sampled_from([*GROUPS]))
def test_a_saved_model_goes_on_alike(
    stream: list[Row], more: list[Row], half_life: float, family: str
) -> None:
    """By bytes, pickle and clone it is the same, and the same once it has learned on."""
    model = learned(half_life, stream, family=family)
    twins = [nb.NaiveBayes.from_bytes(model.to_bytes()), pickle.loads(pickle.dumps(model))]
    twins.append(model.clone())
    model.learn_many(*columns_of(more))
    for each in twins:
        assert each.state.prior_half_life == half_life
        each.learn_many(*columns_of(more))
        assert each.to_bytes() == model.to_bytes()


@given(streams=st.lists(STREAMS, min_size=3, max_size=3), half_life=HALF_LIVES)
def test_merging_adds_recent_examples_in_any_order(
    streams: list[list[Row]], half_life: float
) -> None:
    """Sums of R are the same bits in any order and grouping, and so are those of parts."""
    models = [learned(half_life, stream) for stream in streams]
    due = sum(np.array(twin(half_life, columns_of(each)[1], [1.0] * len(each))) for each in streams)
    found = {(a + (b + c)).state.recent.tobytes() for a, b, c in permutations(models)} | {
        nb.merge(*each).state.recent.tobytes() for each in permutations(models)
    }
    assert len(found) == 1
    assert np.allclose(np.frombuffer(found.pop()), due, rtol=0, atol=1e-5)
    parted = model_of(half_life)
    for i, stream in enumerate(streams):
        parted.learn_many(*columns_of(stream), part=str(i))
    whole = nb.merge(*models)
    assert np.array_equal(parted.state.recent, whole.state.recent)
    probe = {"text": ["a", "b c", ""]}
    said, expected = (each.predict_log_proba_many(probe) for each in (parted, whole))
    assert np.array_equal(said, expected)
    # A part moves with its log, and a part that goes takes its own away, bit for bit.
    other = model_of(half_life)
    for name in ("2", "0", "1"):
        other.set_part(name, parted.part(name))
    assert np.array_equal(other.state.recent, parted.state.recent)
    parted.drop_part("1")
    assert np.array_equal(parted.state.recent, (models[0] + models[2]).state.recent)
    assert np.array_equal(
        nb.NaiveBayes.from_bytes(parted.to_bytes()).state.recent, parted.state.recent
    )


@given(streams=st.lists(STREAMS, min_size=3, max_size=3), half_life=HALF_LIVES)
def test_a_fold_is_left_out_exactly(streams: list[list[Row]], half_life: float) -> None:
    """Without a fold R is the sum over the others, bit for bit."""
    folds = nb.Folds(model_of(half_life), 3)
    for fold, stream in enumerate(streams):
        folds.learn_many(*columns_of(stream), fold)
    for fold in range(3):
        others = [learned(half_life, each) for i, each in enumerate(streams) if i != fold]
        rest, due = folds.without(fold), nb.merge(*others)
        assert np.array_equal(rest.state.recent, due.state.recent)
        assert np.array_equal(rest.class_priors(), due.class_priors())


@given(stream=STREAMS, half_life=HALF_LIVES, data=st.data())
def test_unlearning_keeps_the_share_that_is_recent(
    stream: list[Row], half_life: float, data: st.DataObject
) -> None:
    """R_c shrinks as N_c does; in one call as one after the other, in a part as in the sum."""
    gone = data.draw(st.lists(st.sampled_from(range(len(stream))), unique=True))
    model, parted = learned(half_life, stream), model_of(half_life)
    parted.learn_many(*columns_of(stream), part="p")
    parted.learn_many(*columns_of(stream), part="q")
    recent, counts = model.state.recent.copy(), model.class_counts
    at_once = model.clone()
    rows = [stream[i] for i in gone]
    if rows:
        at_once.unlearn_many(*columns_of(rows))
        parted.unlearn_many(*columns_of(rows), part="p")
    for label, text, _, _ in rows:
        model.unlearn_one({"text": text}, label)
    assert at_once.to_bytes() == model.to_bytes()
    held = np.maximum(counts, 1.0)
    assert np.allclose(model.state.recent, recent * model.class_counts / held, atol=1e-6)
    assert not model.state.recent[model.class_counts == 0.0].any()
    assert np.array_equal(parted.parts["p"].recent, model.state.recent)
    assert np.array_equal(parted.state.recent, model.state.recent + recent)


def test_subtracting_keeps_the_share_that_is_recent() -> None:
    """A slice that is subtracted takes of each class's recent examples as large a share."""
    both = [("bad", "a", 0.0, True), ("good", "b c", 0.0, True)] * 40
    last = [("bad", "a", 0.0, True)] * 20
    rest = learned(10.0, both + last) - learned(10.0, last)
    assert rest.class_counts.tolist() == [40.0, 40.0, 0.0]
    whole = learned(10.0, both + last).state.recent
    assert np.allclose(rest.state.recent, whole * [40 / 60, 1, 0], atol=1e-6)


def test_a_class_that_joins_or_leaves_is_counted() -> None:
    """A class that an example brings is recent with it; the newest leaves with its last example."""
    model = nb.NaiveBayes(features=GROUPS["multinomial"], prior_half_life=1.0)
    model.learn_many({"text": ["a", "b"]}, ["x", "y"])
    assert model.state.recent.tolist() == [0.5, 1.0]
    model.learn_many({"text": ["a"]}, ["z"], part=None)
    assert model.state.recent.tolist() == [0.25, 0.5, 1.0]
    model.unlearn_one({"text": "a"}, "z")
    assert model.classes == ("x", "y")
    assert model.state.recent.tolist() == [0.25, 0.5]


def test_beside_decay_an_example_counts_one_at_most() -> None:
    """One after a long silence outweighs no recent one; a late one counts what decay leaves."""
    decay = nb.HalfLife(seconds=60.0)
    model = model_of(1.0, decay=decay)
    texts = {"text": ["a", "a", "a"]}
    model.learn_many(texts, ["bad", "good", "odd"], times_s=[1e9, 1e9 + 86_400, 1e9 + 86_340])
    assert model.state.recent.tolist() == [0.25, 0.5, 0.5]


def test_it_is_explained_published_and_doubted() -> None:
    """The explanation has its log-odds, a snapshot its answers, an interval its few examples."""
    stream = [("bad", "a", 0.0, True)] * 300 + [("good", "a", 0.0, True)] * 10
    model = learned(5.0, stream)
    assert model.predict_one({"text": "a"}) == "good"
    assert learned(None, stream).predict_one({"text": "a"}) == "bad"
    told = model.explain_one({"text": ""})
    due = math.log(model.class_priors()[1] / model.class_priors()[0])
    assert told.log_odds == pytest.approx(due)
    assert (told.label, told.contributions[0].feature) == ("good", "class prior")
    snapshot = Snapshot(model, version=1)
    asked = {"text": ["a", "c"]}
    before = model.predict_log_proba_many(asked)
    model.learn_many({"text": ["a"] * 20}, ["bad"] * 20)
    assert np.array_equal(snapshot.predict_log_proba_many(asked), before)
    assert not np.array_equal(model.predict_log_proba_many(asked), before)
    ends = [
        learned(half_life, stream * 3).credible_interval_one({"text": ""}, method="delta")["good"]
        for half_life in (20.0, None)
    ]
    assert ends[0][1] - ends[0][0] > 5 * (ends[1][1] - ends[1][0])
    exported = nb.export_dict(learned(5.0, stream))["class_prior"]
    assert exported["half_life"] == 5.0
    assert exported["recent"] == learned(5.0, stream).state.recent.tolist()
    assert np.allclose(np.exp(exported["log_prior"]), learned(5.0, stream).class_priors())


def test_what_does_not_go_together_is_refused() -> None:
    """A prior that nothing moves, numbers that are none, and models of other half-lives."""
    with pytest.raises(InputError, match=r"prior_half_life is 3, and class_prior is Fixed"):
        nb.NaiveBayes(
            ["a", "b"], nb.Fixed({"a": 0.5, "b": 0.5}), GROUPS["flags"], prior_half_life=3
        )
    for wrong in (-1.0, math.nan, "7", True):
        with pytest.raises(InputError, match=r"prior_half_life must be a finite number above 0"):
            model_of(wrong)  # type: ignore[arg-type]  # a wrong type is what it refuses
    with pytest.raises(InputError, match=r"prior_half_life \(3\.0, None\)"):
        model_of(3.0) + model_of(None)


@pytest.mark.parametrize("number", [np.float32, np.float64, np.int64])
def test_it_may_be_a_number_of_numpy(number: Any) -> None:
    """As a grid of parameters brings them, without a warning; 0 is none there, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model_of(number(3)).state.prior_half_life == 3.0
        assert model_of(number(0)).state.prior_half_life is None


def test_a_forged_file_is_refused() -> None:
    """Recent examples of another shape, or below zero, are not believed."""
    model = learned(3.0, [("bad", "a", 0.0, True)])
    for recent, text in ((np.zeros(2), "shape"), (np.array([-1.0, 0.0, 0.0]), "from 0 on")):
        header, arrays = from_bytes(model.to_bytes())
        data = b"".join(to_blocks(header, arrays | {"sections/0/recent": recent}))
        with pytest.raises(StoreError, match=text):
            nb.NaiveBayes.from_bytes(data)
