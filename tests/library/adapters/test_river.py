"""`StreamNB`: River's own checks, none skipped; frames as single examples; River's tools."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from river import (
    checks,
    compose,
    datasets,
    drift,
    ensemble,
    evaluate,
    feature_extraction,
    imblearn,
    metrics,
    multiclass,
    naive_bayes,
    preprocessing,
)

import streamnb as nb
from streamnb.errors import InputError
from streamnb.river import StreamNB

CHECKED: dict[str, dict[str, Any]] = {
    "default": {},
    "words": {"features": nb.Bag(nb.Multinomial())},
    "presence": {"features": nb.Bag(nb.Bernoulli(nb.Beta(0.5, 1.5)))},
    "shared": {"features": nb.Numbers(nb.Gaussian(variance="shared")), "classes": [True, False]},
    "decayed": {"decay": nb.HalfLife(examples=50.0), "class_prior": nb.Dirichlet(0.5)},
}
CHECKED_DEEP = ("words", "presence", "shared", "decayed")


def checks_of_all() -> Iterator[Any]:
    """Yield River's checks of every kind of model, none left out."""
    for name, parameters in CHECKED.items():
        model = StreamNB(**parameters)
        assert model._unit_test_skips() == set()
        for i, check in enumerate(checks.yield_checks(model)):
            is_slow = "memory_growth" in check.__name__
            marks = [pytest.mark.deep] if name in CHECKED_DEEP or is_slow else []
            yield pytest.param(parameters, check, id=f"{name}-{i}-{check.__name__}", marks=marks)


@pytest.mark.parametrize(("parameters", "check"), list(checks_of_all()))
def test_river_is_content(parameters: dict[str, Any], check: Callable[[Any], None]) -> None:
    """Every check that River has for a mini-batch classifier is passed."""
    check(StreamNB(**parameters))


def test_the_checks_hold_frames_to_single_examples() -> None:
    """Among those checks are the three that River's own naive Bayes leaves out."""
    theirs: Any = naive_bayes.MultinomialNB
    names = {check.__name__ for check in checks.yield_checks(StreamNB())}
    assert theirs()._unit_test_skips() <= names


# ---- frames ----------------------------------------------------------------------------------


def stream(n: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return examples with numbers, flags, text and gaps, and their classes."""
    rng = np.random.default_rng(3)
    rows: list[dict[str, Any]] = [
        {
            "size": float(rng.normal(c, 1.0)) if rng.random() < 0.9 else None,
            "n": int(rng.poisson(3 + 2 * c)),
            "known": bool(rng.random() < 0.3 + 0.4 * c) if rng.random() < 0.9 else None,
            "colour": str(rng.choice(["red", "green", "blue"])) if rng.random() < 0.9 else None,
        }
        for c in rng.integers(0, 2, n)
    ]
    return rows, [str(label) for label in rng.choice(["a", "b", "c"], n)]


def as_pandas(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return examples as a pandas frame with an index of its own."""
    return pd.DataFrame(rows, index=pd.Index(range(100, 100 + len(rows))))


def as_nullable(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return examples as a pandas frame whose columns know what is missing."""
    return as_pandas(rows).convert_dtypes()


FRAMES: list[Callable[[list[dict[str, Any]]], Any]] = [as_pandas, as_nullable, pl.DataFrame]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("cut", [1, 7, 60])
def test_frames_are_single_examples(frame: Any, cut: int) -> None:
    """However a stream is cut into frames, it teaches and answers as its examples do, bit for bit.

    Bit for bit the same file, that is.
    """
    rows, labels = stream(60)
    one, many = StreamNB(hash_key=1), StreamNB(hash_key=1)
    for x, y in zip(rows, labels, strict=True):
        one.learn_one(x, y)
    for begin in range(0, 60, cut):
        piece = slice(begin, begin + cut)
        many.learn_many(frame(rows[piece]), pd.Series(labels[piece]))
    assert many.model.to_bytes() == one.model.to_bytes()
    found = many.predict_proba_many(frame(rows))
    for i, x in enumerate(rows):
        proba = one.predict_proba_one(x)
        assert {label: found[label].to_list()[i] for label in found.columns} == proba
    assert many.predict_many(frame(rows)).to_list() == [one.predict_one(x) for x in rows]


def test_answers_are_frames_of_the_same_library() -> None:
    """A pandas frame gets pandas with its index, Polars gets Polars; labels are the columns."""
    rows, labels = stream(20)
    model = StreamNB()
    model.learn_many(as_pandas(rows), pd.Series(labels))
    given = as_pandas(rows)
    assert model.predict_proba_many(given).index.equals(given.index)
    assert model.predict_many(given).index.equals(given.index)
    joint = model.joint_log_likelihood_many(given)
    assert joint.iloc[3].to_dict() == model.joint_log_likelihood(rows[3])
    assert isinstance(model.predict_proba_many(pl.DataFrame(rows)), pl.DataFrame)
    assert isinstance(model.predict_many(pl.DataFrame(rows)), pl.Series)


@pytest.mark.parametrize("frame", [as_pandas, pl.DataFrame])
def test_before_any_class_there_is_nothing_to_say(frame: Any) -> None:
    """An untrained model answers None, and a frame without columns."""
    rows, _ = stream(3)
    model = StreamNB()
    assert model.predict_one(rows[0]) is None
    assert model.predict_proba_one(rows[0]) == {}
    assert model.predict_many(frame(rows)).to_list() == [None] * 3
    assert list(model.predict_proba_many(frame(rows)).columns) == []


def test_an_empty_frame_teaches_nothing() -> None:
    """No rows, no change, no error."""
    model = StreamNB(classes=["a"])
    before = model.model.to_bytes()
    model.learn_many(pd.DataFrame({"size": []}), pd.Series([], dtype=str))
    assert model.predict_many(pd.DataFrame({"size": []})).to_list() == []
    assert model.model.to_bytes() == before


def test_names_are_known_by_their_text() -> None:
    """1 and "1" are one field; an example that has both is refused."""
    one, many = StreamNB(hash_key=1), StreamNB(hash_key=1)
    one.learn_one({0: 1.0, "1": 2.0}, "a")
    many.learn_many(pd.DataFrame([[1.0, 2.0]]), ["a"])
    assert many.model.to_bytes() == one.model.to_bytes()
    with pytest.raises(InputError, match="two fields have names of one text"):
        one.learn_one({1: 1.0, "1": 2.0}, "a")
    with pytest.raises(InputError, match="mapping of field names"):
        one.learn_one([1.0], "a")  # type: ignore[arg-type]
    assert many.model.to_bytes() == one.model.to_bytes()


def test_a_weight_counts_an_example_often() -> None:
    """`w` is how many examples one counts as, as River's other classifiers have it."""
    heavy, often = StreamNB(hash_key=1), StreamNB(hash_key=1)
    heavy.learn_one({"colour": "red"}, True, w=3.0)
    for _ in range(3):
        often.learn_one({"colour": "red"}, np.bool_(True))  # type: ignore[arg-type]  # as River has it
    assert heavy.predict_proba_one({"colour": "red"}) == often.predict_proba_one({"colour": "red"})
    assert heavy.model.class_counts.tolist() == [3.0]


# ---- words -----------------------------------------------------------------------------------

DOCUMENTS = [
    ("Chinese Beijing Chinese", "yes"),
    ("Chinese Chinese Shanghai", "yes"),
    ("Chinese Macao", "maybe"),
    ("Tokyo Japan Chinese", "no"),
]
# River's multinomial also counts words that no document had; here they are ignored.
ASKED = ["Chinese Shanghai", "Tokyo Tokyo Macao", ""]
PRIOR = nb.Dirichlet(0.0)  # River's class prior is the frequency
WORDS: dict[str, tuple[Any, Any]] = {
    "multinomial": (nb.Multinomial(), naive_bayes.MultinomialNB),
    "bernoulli": (nb.Bernoulli(), naive_bayes.BernoulliNB),
}


def bag_of_words(model: Any) -> Any:
    """Return a pipeline that splits text into words."""
    return compose.Pipeline(feature_extraction.BagOfWords(lowercase=False), model)


@pytest.mark.parametrize("family", WORDS)
def test_behind_a_bag_of_words_it_answers_as_river(family: str) -> None:
    """Behind `BagOfWords` it gives what River's classifier gives, one by one and as a frame."""
    likelihood, theirs = WORDS[family]
    one = bag_of_words(StreamNB(nb.Bag(likelihood), class_prior=PRIOR))
    many, river = one.clone(), bag_of_words(theirs())
    for text, label in DOCUMENTS:
        one.learn_one(text, label)
        river.learn_one(text, label)
    texts, labels = zip(*DOCUMENTS, strict=True)
    many.learn_many(pd.Series(texts), pd.Series(labels))
    found = many.predict_proba_many(pd.Series(ASKED))
    for i, text in enumerate(ASKED):
        proba = one.predict_proba_one(text)
        # River adds a little to what it takes the logarithm of.
        assert proba == pytest.approx(river.predict_proba_one(text), rel=1e-8)
        assert found.iloc[i].to_dict() == pytest.approx(proba, rel=1e-12)


def test_words_may_come_one_by_one_or_as_any_frame() -> None:
    """Sparse or dense, with gaps or without, a frame of counts is its rows."""
    rows: list[dict[str, Any]] = [{"a": 2, "b": 1}, {"b": 3.5}, {}, {"a": 0, "c": 1, "d": None}]
    dense = pd.DataFrame(rows, columns=["a", "b", "c", "d"])
    frames = [dense, dense.fillna(0.0).astype(pd.SparseDtype("float", 0.0)), pl.from_pandas(dense)]
    labels = ["x", "y", "x", "y"]
    one = StreamNB(nb.Bag(nb.Bernoulli()), hash_key=1)
    for x, y in zip(rows, labels, strict=True):
        one.learn_one(x, y)
    for frame in frames:
        many = StreamNB(nb.Bag(nb.Bernoulli()), hash_key=1)
        many.learn_many(frame, labels)
        assert many.model.words() == ["a", "b", "c"]
        assert many.model.to_bytes() == one.model.to_bytes()
        found = many.predict_proba_many(frame)
        for i, x in enumerate(rows):
            answer = {label: found[label].to_list()[i] for label in found.columns}
            assert one.predict_proba_one(x) == answer


def test_short_and_long_ways_are_one() -> None:
    """A plain `dict` of counts goes a quicker way than a `Counter`-like one, to the same file."""

    class Slow(dict[str, Any]):
        """Of a type that the quick way does not take."""

    rng = np.random.default_rng(5)
    words = [f"w{i}" for i in range(40)]
    quick = nb.NaiveBayes(features={"g": nb.Bag(nb.Multinomial(), field="w")}, hash_key=7)
    slow = nb.NaiveBayes(features={"g": nb.Bag(nb.Multinomial(), field="w")}, hash_key=7)
    for i in range(200):
        counted = {str(w): int(rng.integers(1, 4)) for w in rng.choice(words, 6)}
        label = "ab"[i % 2]
        assert quick.predict_proba_one({"w": counted}) == slow.predict_proba_one(
            {"w": Slow(counted)}
        )
        quick.learn_one({"w": counted}, label)
        slow.learn_one({"w": Slow(counted)}, label)
    assert quick.to_bytes() == slow.to_bytes()


@pytest.mark.parametrize("what", [None, 5, "x", (), object()])
def test_what_is_no_frame_is_refused(what: Any) -> None:
    """Neither rows nor labels end in an error of another library's."""
    model = StreamNB()
    for ask in (model.predict_many, model.predict_proba_many):
        with pytest.raises(InputError, match=r"X must be a data frame"):
            ask(what)
    with pytest.raises(InputError, match=r"X must be a data frame"):
        model.learn_many(what, ["a"])
    with pytest.raises(InputError, match=r"labels"):
        model.learn_many(pd.DataFrame({"a": [1]}), what)


@pytest.mark.parametrize("frame", [pl.DataFrame, pa.table])
def test_labels_that_a_frame_cannot_hold_are_refused(frame: Any) -> None:
    """Text has no two columns of one name, and no column of more than one kind; pandas has both."""
    asked = {"x": [1.0, 2.0]}
    alike, mixed = StreamNB(), StreamNB()
    alike.learn_many(pd.DataFrame(asked), [1, "1"])
    mixed.learn_many(pd.DataFrame(asked), [1, "a"])
    for ask in (alike.predict_proba_many, alike.joint_log_likelihood_many):
        assert list(ask(pd.DataFrame(asked)).columns) == [1, "1"]
        with pytest.raises(InputError, match=r"have one text, among 1, '1'"):
            ask(frame(asked))
    for model in (alike, mixed):
        assert model.predict_many(pd.DataFrame(asked)).tolist() == list(model.model.classes)
        with pytest.raises(InputError, match=r"more than one kind, among 1, '(1|a)'"):
            model.predict_many(frame(asked))
    assert mixed.predict_proba_many(frame(asked)).shape == (2, 2)


class Name(str):
    """A text, as those of other libraries are."""

    __slots__ = ()


def test_a_label_of_a_kind_of_text_is_text() -> None:
    """A frame that holds text holds it beside plain text."""
    model = StreamNB()
    model.learn_many(pd.DataFrame({"x": [1.0, 2.0]}), [Name("a"), "b"])
    assert model.predict_many(pl.DataFrame({"x": [1.0, 2.0]})).to_list() == ["a", "b"]


def test_labels_may_be_an_array_of_arrow() -> None:
    """An array teaches as a chunked one or a list does."""
    table, labels = pa.table({"x": [1.0, 2.0]}), ["a", "b"]
    taught = []
    for given in (labels, pa.array(labels), pa.chunked_array([labels]), pd.Series(labels)):
        model = StreamNB(hash_key=1)
        model.learn_many(table, given)
        taught.append(model.model.to_bytes())
    assert taught == taught[:1] * 4


def test_a_bag_takes_frames_alone() -> None:
    """A mapping of columns has no rows that could be counted words."""
    with pytest.raises(InputError, match=r"X must be a data frame.*Got dict"):
        StreamNB(nb.Bag(nb.Multinomial())).learn_many({"win": [1, 0]}, ["a", "b"])


def test_classes_may_be_an_array() -> None:
    """As for the model itself; an empty one declares none."""
    assert StreamNB(classes=np.array(["a", "b"])).model.classes == ("a", "b")
    assert StreamNB(classes=np.array([], dtype=str)).classes is None


def test_fractions_are_counts() -> None:
    """TF-IDF's fractional counts are learned as they are."""
    model: Any = feature_extraction.TFIDF(lowercase=False) | StreamNB(nb.Bag(nb.Multinomial()))
    for text, label in DOCUMENTS:
        model.learn_one(text, label)
    assert model.predict_one("Chinese Shanghai") == "yes"


# ---- River's tools ---------------------------------------------------------------------------


def phishing() -> Any:
    """Return the start of a stream."""
    return datasets.Phishing().take(400)


def accuracy() -> Any:
    """Return River's measure of how often a model is right."""
    kind: Any = metrics.Accuracy
    return kind()


TOOLS: dict[str, Callable[[], Any]] = {
    "alone": StreamNB,
    "scaled": lambda: preprocessing.StandardScaler() | StreamNB(),
    "by type": lambda: (
        (compose.SelectType(float) | preprocessing.StandardScaler()) + compose.SelectType(int)
        | StreamNB()
    ),
    "retrained": lambda: drift.DriftRetrainingClassifier(StreamNB(), drift.binary.DDM()),
    "bagging": lambda: ensemble.BaggingClassifier(StreamNB(), n_models=3, seed=1),
    "ADWIN": lambda: ensemble.ADWINBaggingClassifier(StreamNB(), n_models=3, seed=1),
    "boosting": lambda: ensemble.AdaBoostClassifier(StreamNB(), n_models=3, seed=1),
    "one against the rest": lambda: multiclass.OneVsRestClassifier(StreamNB(classes=[False, True])),
    "balanced": lambda: imblearn.RandomOverSampler(
        StreamNB(), desired_dist={True: 0.5, False: 0.5}, seed=1
    ),
}


@pytest.mark.parametrize("name", TOOLS)
def test_it_works_within_river(name: str) -> None:
    """Pipelines, drift wrappers and ensembles take it as they take River's own."""
    found = evaluate.progressive_val_score(phishing(), TOOLS[name](), accuracy())
    assert found.get() > 0.8


def test_progressive_validation_is_prequential_learning() -> None:
    """River's loop counts what the library's own prequential call counts."""
    rows, labels = zip(*phishing(), strict=True)
    model = StreamNB(classes=[True, False])
    twin = model.clone().model
    found = evaluate.progressive_val_score(phishing(), model, accuracy())
    best = twin.prequential_many(pd.DataFrame(rows), labels).argmax(axis=1)
    right = [twin.classes[c] == label for c, label in zip(best.tolist(), labels, strict=True)]
    assert found.get() == pytest.approx(np.mean(right), abs=1e-12)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_go_their_own_way(copied: Any) -> None:
    """A pickled or deep-copied model knows the same, to the byte, and then learns alone."""
    model = StreamNB()
    for x, y in phishing():
        model.learn_one(x, y)
    before = model.model.to_bytes()
    twin = copied(model)
    assert twin.model.to_bytes() == before
    twin.learn_one(x, y)
    assert model.model.to_bytes() == before != twin.model.to_bytes()


def test_a_clone_knows_nothing_and_may_differ() -> None:
    """`clone` keeps the parameters, and takes new ones."""
    model = StreamNB(nb.Numbers(), classes=["a", "b"], hash_key=5)
    model.learn_one({"size": 1.0}, "a")
    twin = model.clone()
    assert twin.model.n_examples == 0
    assert twin.model.classes == ("a", "b")
    assert twin.features == model.features
    assert model.clone({"classes": ["c"]}).model.classes == ("c",)


def test_any_label_of_the_stream_may_join() -> None:
    """Classes that are declared are where a River model begins, and no more."""
    model = StreamNB(classes=["a"])
    model.learn_one({"x": 1.0}, "a")
    model.learn_one({"x": 2.0}, "b")
    assert model.classes == ("a",)
    assert set(model.predict_proba_one({"x": 2.0})) == {"a", "b"}
    with pytest.raises(InputError, match="'b'"):
        nb.NaiveBayes(["a"], features={"x": nb.Numbers(fields=["x"])}).learn_one({"x": 2.0}, "b")
