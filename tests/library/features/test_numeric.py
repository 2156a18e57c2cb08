"""Numbers in a model: the laws of every stream, fields that come and go, and what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamnb import (
    Dirichlet,
    Gaussian,
    HalfLife,
    Multinomial,
    NaiveBayes,
    NormalInverseGamma,
    Numbers,
    VarianceFloor,
    Words,
    merge,
    subtract,
)
from streamnb.columns import NUMBERS, Kind
from streamnb.errors import InputError
from streamnb.inspection.group_view import view_of
from streamnb.inspection.numeric import GaussianView
from streamnb.kernels import gaussian as kernel
from streamnb.kernels.layout import RowUpdates
from streamnb.learn import prequential
from streamnb.likelihoods import NUMBER_FAMILIES
from streamnb.likelihoods.gaussian import Posterior
from streamnb.predict import Joint, with_joint

FIELDS = ("c", "a", "b")
Example = tuple[dict[str, Any], str]

values = st.one_of(st.integers(-5, 5), st.floats(-1e4, 1e4).map(lambda x: round(x, 3)), st.none())
examples = st.tuples(
    st.dictionaries(st.sampled_from(FIELDS), values), st.sampled_from(["yes", "no", "maybe"])
)
streams = st.lists(examples, max_size=12)
likelihoods = st.one_of(
    st.builds(
        Gaussian,
        st.builds(VarianceFloor, st.sampled_from([1e-9, 1e-2])),
        st.sampled_from(["own", "shared"]),
    ),
    st.builds(
        Gaussian,
        st.builds(NormalInverseGamma, kappa=st.sampled_from([0.1, 2.0])),
        st.sampled_from(["own", "shared"]),
    ),
)
groups = st.builds(Numbers, likelihoods, st.sampled_from([None, FIELDS]))


def made(group: Numbers, **options: Any) -> NaiveBayes:
    """Return a model of numbers alone."""
    return NaiveBayes(features={"x": group}, hash_key=1, **options)


def columns_of(stream: Sequence[Example]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return examples as columns and labels."""
    xs = [x for x, _ in stream]
    return {name: [x.get(name) for x in xs] for name in FIELDS}, [y for _, y in stream]


def learned(group: Numbers, stream: Sequence[Example], **options: Any) -> NaiveBayes:
    """Return a model that has learned a stream in one call."""
    model = made(group, **options)
    if stream:
        model.learn_many(*columns_of(stream))
    return model


def posterior(model: NaiveBayes) -> Posterior:
    """Return what a model of numbers alone knows of their means and variances."""
    view = view_of(model.state.groups["x"], model.state.clock.scale)
    assert isinstance(view, GaussianView)
    return view.posterior


def close(one: NaiveBayes, other: NaiveBayes) -> bool:
    """Return whether two models of the same fields hold the same moments, to rounding."""
    mine, theirs = by_name(one), by_name(other)
    names = mine.keys() | theirs.keys()
    nothing = np.zeros((3, len(one.classes)))
    return all(
        np.allclose(mine.get(name, nothing), theirs.get(name, nothing), rtol=1e-12, atol=1e-9)
        for name in names
    )


def by_name(model: NaiveBayes) -> dict[str, NDArray[np.float64]]:
    """Return n, mean and M2 of each field that has any."""
    state: Any = model.state.groups["x"]
    found = np.stack(list(state.moments().values()))
    return {name: found[:, j] for j, name in enumerate(state.fields) if found[0, j].any()}


# ---- laws -------------------------------------------------------------------------------------


@given(groups, streams, st.lists(st.integers(0, 12), max_size=4))
def test_a_stream_cut_anywhere_is_the_whole(
    group: Numbers, stream: list[Example], cuts: list[int]
) -> None:
    """One by one, in batches, or at once: the same answers and the same file, bit for bit."""
    whole, pieces, single = made(group), made(group), made(group)
    together = whole.prequential_many(*columns_of(stream)) if stream else np.zeros((0, 0))
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for begin, end in itertools.pairwise(bounds):
        out = pieces.prequential_many(*columns_of(stream[begin:end]))
        k = out.shape[1]
        assert np.array_equal(out, together[begin:end, :k])
    for x, y in stream:
        single.learn_one(x, y)
    assert NaiveBayes.to_bytes(whole) == NaiveBayes.to_bytes(pieces) == NaiveBayes.to_bytes(single)


@given(groups, streams, streams, st.integers(1, 12))
def test_a_point_mass_is_marked_by_what_came_before(
    group: Numbers, first: list[Example], then: list[Example], size: int
) -> None:
    """Of a number its class has had one value only, or of all classes if the class has none."""
    model, kept, stream = made(group), [], first + then
    for rows in (first, *(then[i : i + size] for i in range(0, len(then), size))):
        joint: list[Joint] = []
        prequential(model.state, *columns_of(rows), joint=joint) if rows else None
        kept += [(row, tuple(model.classes)) for each in joint for row in each.is_point]
    whole: Any = with_joint(model.state, columns_of(stream)[0])[1].is_point if stream else []
    for i, (x, _) in enumerate(stream):
        row, known = kept[i]
        asked = [*known, None]  # None: a class that nobody knows
        assert row.tolist() == [is_point(group, stream[:i], x, label) for label in asked]
        asked = [*model.classes, None]
        assert whole[i].tolist() == [is_point(group, stream, x, label) for label in asked]


def is_point(group: Numbers, stream: Sequence[Example], x: Any, label: Any) -> bool:
    """Return whether a number of `x` has no variance in a class that has learned a stream."""
    likelihood: Any = group.likelihood
    for name in [name for name in x if x[name] is not None and not likelihood.is_bayes]:
        own: dict[str, set[float]] = {}
        for each, y in stream:
            if each.get(name) is not None:
                own.setdefault(y, set()).add(each[name])
        of = [own.get(label, set().union(*own.values()))]
        seen = [*own.values()] if likelihood.is_shared else of
        if own and max(map(len, seen)) < 2:
            return True
    return False


@given(groups, streams, streams)
def test_saved_and_loaded_it_is_the_same(
    group: Numbers, before: list[Example], after: list[Example]
) -> None:
    """A model read back from its arrays has the same bits, and learns and answers on alike."""
    model = learned(group, before)
    other = NaiveBayes.from_bytes(NaiveBayes.to_bytes(model))
    assert NaiveBayes.to_bytes(model) == NaiveBayes.to_bytes(other)
    if after:
        answers = model.prequential_many(*columns_of(after))
        assert np.array_equal(answers, other.prequential_many(*columns_of(after)))
        assert NaiveBayes.to_bytes(model) == NaiveBayes.to_bytes(other)


@given(groups, streams, streams, streams)
def test_merged_in_any_order_is_learned_together(
    group: Numbers, one: list[Example], two: list[Example], three: list[Example]
) -> None:
    """Chan's sum is the whole stream's moments, to rounding; taking one away leaves the others."""
    models = [learned(group, s, classes=["yes", "no", "maybe"]) for s in (one, two, three)]
    together = learned(group, [*one, *two, *three], classes=["yes", "no", "maybe"])
    merged = merge(*models)
    assert close(merged, together)
    assert close(merge(models[2], merge(models[1], models[0])), together)
    assert close(subtract(merged, models[1]), merge(models[0], models[2]))


@given(groups, streams, streams, st.booleans())
def test_unlearned_is_never_learned(
    group: Numbers, kept: list[Example], more: list[Example], backwards: bool
) -> None:
    """What is unlearned, in any order, leaves moments as they were, to rounding."""
    classes = ["yes", "no", "maybe"]
    model = learned(group, [*kept, *more], classes=classes)
    for x, y in reversed(more) if backwards else more:
        model.unlearn_one(x, y)
    assert close(model, learned(group, kept, classes=classes))
    for x, y in kept:
        model.unlearn_one(x, y)
    assert NaiveBayes.to_bytes(model) == NaiveBayes.to_bytes(made(group, classes=classes))


@given(groups, streams, streams)
def test_a_sum_of_parts_is_the_whole(
    group: Numbers, one: list[Example], two: list[Example]
) -> None:
    """A model in two parts holds what a whole one does, to rounding; each part is its own log's."""
    classes = ["yes", "no", "maybe"]
    model = made(group, classes=classes)
    for name, stream in (("1", one), ("0", two), ("1", two)):
        if stream:
            model.learn_many(*columns_of(stream), part=name)
    if one or two:
        assert close(model, learned(group, [*one, *two, *two], classes=classes))
        assert NaiveBayes.to_bytes(
            NaiveBayes.from_bytes(NaiveBayes.to_bytes(model))
        ) == NaiveBayes.to_bytes(model)


@given(groups, streams)
def test_the_order_of_fields_does_not_matter(group: Numbers, stream: list[Example]) -> None:
    """Fields that come in another order make the same answers, bit for bit."""
    model = learned(group, stream)
    turned = made(Numbers(group.likelihood, group.fields and group.fields[::-1]))
    if stream:
        columns, labels = columns_of(stream)
        turned.learn_many(dict(reversed(columns.items())), labels)
        assert np.array_equal(
            model.joint_log_likelihood_many(columns), turned.joint_log_likelihood_many(columns)
        )


@given(likelihoods, streams, st.lists(st.floats(0.25, 4.0), min_size=12, max_size=12))
def test_whole_weights_are_repetitions(
    likelihood: Gaussian, stream: list[Example], weights: list[float]
) -> None:
    """Weight 3 is the same example three times; n is exact, mean and M2 are to rounding."""
    whole = [math.ceil(w) for w in weights[: len(stream)]]
    weighed, repeated = made(Numbers(likelihood)), made(Numbers(likelihood))
    if stream:
        weighed.learn_many(*columns_of(stream), weights=[float(w) for w in whole])
    for (x, y), w in zip(stream, whole, strict=True):
        for _ in range(w):
            repeated.learn_one(x, y)
    assert close(weighed, repeated)


@given(streams)
def test_decay_is_the_plain_formula(stream: list[Example]) -> None:
    """With a half-life of two examples, the k-th last enters with weight 2^(−k/2)."""
    group = Numbers(Gaussian(NormalInverseGamma(0.0, 1.0, 2.0, 3.0)))
    decaying = learned(group, stream, decay=HalfLife(examples=2))
    ages = range(len(stream) - 1, -1, -1)
    plain = made(group)
    if stream:
        plain.learn_many(*columns_of(stream), weights=[2.0 ** (-age / 2) for age in ages])
        found, wanted = posterior(decaying), posterior(plain)
        for mine, theirs in zip(found, wanted, strict=True):
            assert np.allclose(mine, theirs, rtol=1e-9, atol=1e-9)


# ---- fields and values ------------------------------------------------------------------------


def test_a_new_field_is_as_one_that_was_always_there() -> None:
    """A field that comes late is predicted by what it has seen; before that it says nothing."""
    model = made(Numbers())
    for i in range(20):
        model.learn_one({"a": i % 7}, "yes" if i % 2 else "no")
    before = model.predict_proba_one({"a": 3})
    assert model.predict_proba_one({"a": 3, "late": 9.0}) == before
    for i in range(20):
        model.learn_one({"late": 9.0 + i % 3, "a": i % 7}, "yes" if i % 2 else "no")
    assert model.state.groups["x"].fields == ("a", "late")
    assert model.predict_proba_one({"a": 3, "late": 9.0}) != model.predict_proba_one({"a": 3})


@pytest.mark.parametrize("missing", [None, math.nan, pd.NA, np.float32("nan")], ids=repr)
def test_missing_values_skip_their_field(missing: Any) -> None:
    """None, nan, NA and a field that is not there are the same."""
    group = Numbers(fields=["a", "b"])
    one, other = made(group), made(group)
    for i in range(12):
        one.learn_one({"a": i, "b": missing}, i % 2)
        other.learn_one({"a": i}, i % 2)
    assert NaiveBayes.to_bytes(one) == NaiveBayes.to_bytes(other)
    assert one.predict_proba_one({"a": 2, "b": missing}) == other.predict_proba_one({"a": 2})


def test_columns_of_any_kind_are_read_alike() -> None:
    """Lists, arrays of all numeric types, and data frames teach the same."""
    a, b, labels = [1, 2, 3, 250], [0.5, None, 2.0, -1.0], ["x", "y", "x", "y"]
    wanted = made(Numbers())
    wanted.learn_many({"a": a, "b": b}, labels)
    floats = np.array(b, dtype=np.float64)
    many: list[Any] = [{"a": np.array(a, dtype=t), "b": floats} for t in ("u1", "i8", "f4", "O")]
    many += [
        pd.DataFrame({"a": a, "b": b}),
        pd.DataFrame({"a": pd.array(a, dtype="Int64"), "b": pd.array(b, dtype="Float64")}),
        pl.DataFrame({"a": a, "b": b}),
        {"a": pl.Series(a), "b": pd.Series(b)},
        {"a": a, "b": np.ma.masked_invalid(floats)},
    ]
    for columns in many:
        model = made(Numbers())
        model.learn_many(columns, labels)
        assert NaiveBayes.to_bytes(model) == NaiveBayes.to_bytes(wanted)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("1.5", "'1.5' (str)"),
        (True, "True (bool)"),
        (math.inf, "inf (float)"),
        (-1e61, "-1e+61 (float)"),
        (10**400, "(int)"),
        ([1.0], "[1.0] (list)"),
        (2j, "2j (complex)"),
    ],
)
def test_bad_values_are_refused(value: Any, shown: str) -> None:
    """Field, row, value and what is allowed are named, and the model is as it was."""
    model = learned(Numbers(fields=["a", "b"]), [({"a": 1.0}, "yes"), ({"a": 2}, "no")])
    before = NaiveBayes.to_bytes(model)
    with pytest.raises(InputError, match=r"field 'a', row 1: the value must be a number") as told:
        model.learn_many({"a": [1.0, value], "b": [1, 2]}, ["yes", "no"])
    assert shown in str(told.value)
    with pytest.raises(InputError, match="field 'a', row 0"):
        model.learn_one({"a": value}, "yes")
    with pytest.raises(InputError, match="field 'a', row 0"):
        model.predict_one({"a": value})
    assert NaiveBayes.to_bytes(model) == before


def test_more_than_was_learned_is_not_unlearned() -> None:
    """A number of a class that has none of that field is refused, and nothing changes."""
    model = learned(Numbers(), [({"a": 1.0, "b": 2.0}, "yes"), ({"a": 2.0}, "no")])
    before = NaiveBayes.to_bytes(model)
    for x, y in (({"b": 1.0}, "no"), ({"c": 1.0}, "yes")):
        with pytest.raises(InputError, match="cannot be unlearned"):
            model.unlearn_one(x, y)
    assert NaiveBayes.to_bytes(model) == before


# ---- specifications ---------------------------------------------------------------------------


@given(groups)
def test_a_specification_survives_its_dict(group: Numbers) -> None:
    """What the header says of a group makes an equal one."""
    assert Numbers.from_dict(group.to_dict()) == group


SENSELESS: list[Callable[[], object]] = [
    lambda: VarianceFloor(-1),
    lambda: VarianceFloor(math.inf),
    lambda: NormalInverseGamma(kappa=0),
    lambda: NormalInverseGamma(mean=math.nan),
    lambda: NormalInverseGamma(alpha="1"),
    lambda: NormalInverseGamma(alpha=None),
    lambda: NormalInverseGamma(beta=[1.0, True]),
    lambda: NormalInverseGamma(beta=[[1.0], [1.0, 2.0]]),
    lambda: Gaussian("none"),  # type: ignore[arg-type]
    lambda: Gaussian(variance="common"),  # type: ignore[arg-type]
    lambda: Gaussian(NormalInverseGamma(alpha=[[1.0, 2.0]]), "shared"),
    lambda: Numbers(VarianceFloor()),  # type: ignore[arg-type]
    lambda: Numbers(fields=["a", "a"]),
    lambda: made(Numbers(Gaussian(NormalInverseGamma(mean=[1.0, 2.0])))),
    lambda: made(Numbers(Gaussian(NormalInverseGamma(mean=[1.0, 2.0])), ["a", "b", "c"])),
]


@pytest.mark.parametrize("make", SENSELESS, ids=[str(i) for i in range(len(SENSELESS))])
def test_what_makes_no_sense_is_refused_at_once(make: Callable[[], object]) -> None:
    """Settings that cannot be meant are InputErrors when they are made, or when they meet."""
    with pytest.raises(InputError):
        make()


def test_a_prior_that_names_its_classes_admits_no_other() -> None:
    """With numbers for two classes, a third one is refused and the model is as it was."""
    prior = NormalInverseGamma(mean=[[0.0, 5.0]])
    model = made(Numbers(Gaussian(prior)), classes=["no", "yes"])
    model.new_classes = True
    model.learn_many({"a": [0.0, 5.0]}, ["no", "yes"])
    before = NaiveBayes.to_bytes(model)
    with pytest.raises(InputError, match=r"NormalInverseGamma\.mean has numbers for 2 classes"):
        model.learn_one({"a": 1.0}, "maybe")
    assert NaiveBayes.to_bytes(model) == before


# ---- another likelihood -------------------------------------------------------------------------


@dataclass(frozen=True)
class Exponential:
    """Waiting times: p(x | c) = λ·e^(−λx), with λ as one over the mean of the class."""

    name: ClassVar[str] = "exponential"
    kind: ClassVar[Kind] = NUMBERS

    def estimator(self, n_fields: int, n_classes: int, *, is_open: bool) -> ExponentialEstimator:  # noqa: ARG002
        """Return a new estimator."""
        return ExponentialEstimator()

    def to_dict(self) -> dict[str, Any]:
        """Return the likelihood for the model's header."""
        return {"name": self.name}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Exponential:  # noqa: ARG003
        """Return the likelihood that `to_dict` described."""
        return cls()


class ExponentialEstimator:
    """Predicts from the moments by NumPy alone."""

    def run(
        self,
        held: kernel.Moments,
        x: NDArray[np.float64],
        places: NDArray[np.int64],
        updates: RowUpdates,
        out: NDArray[np.float64],
        *,
        learn: bool,
    ) -> None:
        """Add each row's log-likelihood, then learn the row."""
        for row in range(len(x)):
            there = (places >= 0) & ~np.isnan(x[row])
            n, mean = held.n[1:, places[there]], held.mean[1:, places[there]]
            mean = np.where(n > 0.0, mean, 1.0)  # a class that has seen nothing yet
            out[row] -= (np.log(mean) + x[row, there] / mean).sum(axis=1)
            if learn:
                kernel.learn(held, x[row : row + 1], places, updates.rows(row, row + 1))


def test_another_likelihood_needs_its_formula_and_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns, predicts by the closed form, unlearns, merges and is saved like the Gaussian."""
    monkeypatch.setitem(NUMBER_FAMILIES, "exponential", Exponential)
    short, long = [1.0, 2.0, 3.0], [10.0, 30.0]
    model = made(Numbers(Exponential(), ["a"]))
    model.learn_many({"a": short + long}, ["short"] * 3 + ["long"] * 2)
    joint = {
        y: math.log((len(v) + 1) / 7) - math.log(np.mean(v)) - 4.0 / float(np.mean(v))
        for y, v in (("short", short), ("long", long))
    }
    total = math.log(sum(map(math.exp, joint.values())))
    found = model.predict_log_proba_one({"a": 4.0})
    assert found == pytest.approx({y: value - total for y, value in joint.items()}, abs=1e-12)

    loaded = NaiveBayes.from_bytes(model.to_bytes())
    assert loaded.predict_log_proba_one({"a": 4.0}) == found
    model.learn_one({"a": 50.0}, "long")
    model.unlearn_one({"a": 50.0}, "long")
    assert close(model, loaded)
    other = made(Numbers(Exponential(), ["a"]))
    other.learn_one({"a": 50.0}, "long")
    model.learn_one({"a": 50.0}, "long")
    assert close(merge(loaded, other), model)


# ---- fields that a class has no value of --------------------------------------------------------


def posteriors(model: NaiveBayes, x: dict[str, Any]) -> list[float]:
    """Return one example's probabilities, in the order of the classes."""
    return [math.exp(p) for p in model.predict_log_proba_one(x).values()]


@pytest.mark.parametrize("variance", ["own", "shared"])
def test_one_value_of_a_late_field_decides_nothing(variance: Literal["own", "shared"]) -> None:
    """A class without a value of a field stands where all classes together stand."""
    generator = np.random.default_rng(4)
    labels = ["a", "b"] * 100
    model = made(Numbers(Gaussian(variance=variance)))
    model.learn_many({"f": generator.normal(size=200) + 3.0 * (np.arange(200) % 2)}, labels)
    model.learn_one({"f": 0.1, "g": 0.5}, "a")
    before = posteriors(model, {"f": 3.0})
    assert before[1] > 0.9
    for g in (0.5, 0.6, 40.0):  # 10¹¹ nats for both classes, which leaves four digits
        assert posteriors(model, {"f": 3.0, "g": g}) == pytest.approx(before, rel=1e-3)
    model.learn_many({"f": [0.2, -0.3], "g": [1.0, 0.0]}, ["a", "a"])
    n, mean, m2 = 3, 0.5, 0.5
    joint = model.joint_log_likelihood_one({"g": 1.5})
    expected = -0.5 * (math.log(2 * math.pi * (m2 / n)) + (1.5 - mean) ** 2 / (m2 / n))
    prior = np.log(model.class_priors())
    assert list(joint.values()) == pytest.approx((prior + expected).tolist(), abs=1e-6)


def test_a_late_group_of_one_field_is_no_proof() -> None:
    """A class that never had a number of the group is still told by its words."""
    features: dict[str, Any] = {"text": Words(Multinomial()), "x": Numbers()}
    model = NaiveBayes(features=features, hash_key=1)
    model.learn_many({"text": ["red sun", "blue sea"] * 50}, ["a", "b"] * 50)
    model.learn_many({"text": ["red", "red", "red"], "g": [1.0, 2.0, 3.0]}, ["a"] * 3)
    assert posteriors(model, {"text": "blue sea", "g": 2.0})[1] > 0.99


def test_a_class_of_which_nothing_was_learned_is_for_its_prior_to_tell() -> None:
    """Declared, never learned or unlearned: its numbers are those of all classes together."""
    model = made(Numbers(), classes=["a", "b", "c"])
    seen = [1.0, 2.0, 3.0, 4.0]
    model.learn_many({"f": seen}, ["a", "b", "a", "b"])
    v = float(np.var(seen)) * (1.0 + 1e-9)
    density = -0.5 * (math.log(2 * math.pi * v) + (2.0 - np.mean(seen)) ** 2 / v)
    expected = math.log(model.class_priors()[2]) + density
    assert model.joint_log_likelihood_one({"f": 2.0})["c"] == pytest.approx(expected)
    never = model.to_bytes()
    model.learn_one({"g": 1.0}, "c")
    model.unlearn_one({"g": 1.0}, "c")
    assert model.to_bytes() == never
    assert model.joint_log_likelihood_one({"f": 2.0})["c"] == pytest.approx(expected)
    by_share = NaiveBayes(
        ["a", "b", "c"], class_prior=Dirichlet(0.0), features={"x": Numbers()}, hash_key=1
    )
    by_share.learn_many({"f": seen}, ["a", "b", "a", "b"])
    assert by_share.joint_log_likelihood_one({"f": 2.0})["c"] == -math.inf


@pytest.mark.parametrize("share", [0.0, 1e-9])
def test_a_field_that_never_varied_tells_no_class_apart(share: float) -> None:
    """Its first other value is news of the field: what the rest says stands."""
    features: dict[str, Any] = {
        "text": Words(Multinomial()),
        "x": Numbers(Gaussian(VarianceFloor(share))),
    }
    model = NaiveBayes(features=features, hash_key=1)
    columns = {"text": ["red sun", "blue sea"] * 50, "version": [5.0] * 100}
    model.learn_many(columns, ["a", "b"] * 50)
    alone = model.judge_one({"text": "blue sea"})
    for version in (5.0, 6.0):
        assert model.judge_one({"text": "blue sea", "version": version}) == alone
    found = model.explain_one({"text": "blue sea", "version": 6.0})
    assert not [each for each in found.contributions if each.group == "x"]


@given(groups, streams, streams, st.dictionaries(st.sampled_from(FIELDS), values, min_size=1))
def test_explanations_and_parts_say_what_the_model_does(
    group: Numbers, one: list[Example], two: list[Example], x: dict[str, Any]
) -> None:
    """Contributions add up to the answer where classes lack values; so do parts and one model."""
    classes = ["yes", "no", "maybe"]
    model, parted = made(group, classes=classes), made(group, classes=classes)
    for name, stream in (("0", one), ("1", two)):
        if stream:
            model.learn_many(*columns_of(stream))
            parted.learn_many(*columns_of(stream), part=name)
    joint = list(model.joint_log_likelihood_one(x).values())
    of_parts = list(parted.joint_log_likelihood_one(x).values())
    assert np.isneginf(joint).tolist() == np.isneginf(of_parts).tolist()
    state = model.state
    view = view_of(state.groups["x"], state.clock.scale)
    fields = state.groups["x"].read({name: [value] for name, value in x.items()}, 1)
    total = np.log(model.class_priors())
    for effect in view.contributions(fields, 0):
        total = total + effect.by_class
    assert np.allclose(total, joint, rtol=1e-9, atol=1e-9)
