"""The model's own surface: what it takes, what it refuses, and texts of every shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streamnb as nb
from streamnb import Bernoulli, Dirichlet, Multinomial, NaiveBayes, Predictor, SnapshotBoard, Words
from streamnb.errors import InputError, StreamnbError

FAMILIES = [Bernoulli(), Multinomial()]


def model_of(likelihood: Bernoulli | Multinomial | None = None, **options: Any) -> NaiveBayes:
    """Return a model of ham and spam over one text."""
    return NaiveBayes(
        classes=["ham", "spam"], features={"text": Words(likelihood or Bernoulli(), **options)}
    )


def test_learning_returns_nothing_and_predicting_is_by_class() -> None:
    """`learn_one` is a command; answers are dicts by class, in the classes' order."""
    model = model_of()
    model.learn_one({"text": "win a prize"}, "spam")
    model.learn_one({"text": "lunch at noon", "unused": 5}, "ham")
    proba = model.predict_proba_one({"text": "a prize"})
    log_proba = model.predict_log_proba_one({"text": "a prize"})
    joint = model.joint_log_likelihood_one({"text": "a prize"})
    assert list(proba) == list(log_proba) == list(joint) == ["ham", "spam"]
    assert list(np.exp(list(log_proba.values()))) == list(proba.values())
    assert joint["spam"] - joint["ham"] == pytest.approx(log_proba["spam"] - log_proba["ham"])
    assert model.predict_one({"text": "a prize"}) == max(proba, key=lambda c: proba[c]) == "spam"


def test_a_model_without_classes_answers_none() -> None:
    """Before any class is known there is none to predict; the first example brings one."""
    model = NaiveBayes(features={"text": Words(Bernoulli())})
    assert model.predict_one({"text": "a"}) is None
    assert model.predict_proba_one({"text": "a"}) == {}
    assert model.predict_log_proba_many({"text": ["a", "b"]}).shape == (2, 0)
    model.learn_one({"text": "a"}, 3)
    assert model.predict_proba_one({"text": "a"}) == {3: 1.0}


def test_labels_are_strings_numbers_or_truth_values() -> None:
    """A class is a str, an int or a bool; numpy's own become Python's."""
    for labels in (["é", ""], [0, -7], [True, False], np.array([1, 2]), np.array(["a", "b"])):
        model = NaiveBayes(features={"text": Words(Bernoulli())})
        model.learn_many({"text": ["x", "y"]}, labels)  # type: ignore[arg-type]
        assert model.classes == tuple(labels)
        assert {type(label) for label in model.classes} <= {str, int, bool}
    model = NaiveBayes(classes=[np.int64(4)], features={"text": Words(Bernoulli())})  # type: ignore[list-item]
    assert type(model.classes[0]) is int


def test_new_classes_join_in_the_order_they_come() -> None:
    """Declared classes stand first; others follow as they come, in mid-batch too."""
    model = NaiveBayes(["z"], features={"text": Words(Multinomial())}, new_classes=True)
    out = model.prequential_many({"text": ["a", "b", "a", "b"]}, ["y", "z", "x", "y"])
    assert model.classes == ("z", "y", "x")
    assert out.shape == (4, 3)
    assert np.isneginf(out).tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]


def test_an_empty_batch_is_no_error() -> None:
    """Learning and judging nothing leaves everything as it is."""
    model = model_of()
    assert model.prequential_many({"text": []}, []).shape == (0, 2)
    assert model.predict_log_proba_many({"text": []}).shape == (0, 2)
    assert model.n_examples == 0
    assert (model.words(), model.top_words(5)) == ([], [])
    assert model.telling_words(5) == {"ham": [], "spam": []}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"classes": ["a", "a"]}, r"classes must differ. Got \['a', 'a'\] instead"),
    ({"classes": ["a", 1.5]}, r"classes\[1\]: a label must be a str, int or bool. Got 1.5 \(float"),
    ({"classes": [None]}, r"classes\[0\]: a label .* Got None"),
    ({"features": {}}, "features must hold at least one group"),
    ({"hash_key": 1 << 128}, "hash_key must be an integer of 128 bits"),
    ({"hash_key": -1}, "hash_key must be an integer of 128 bits"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_wrong_models_are_refused(arguments: dict[str, Any], message: str) -> None:
    """What cannot be a model is refused, with the argument, the value and what is allowed."""
    with pytest.raises(InputError, match=message) as caught:
        NaiveBayes(**{"features": {"text": Words(Bernoulli())}} | arguments)
    assert isinstance(caught.value, StreamnbError)
    assert isinstance(caught.value, ValueError)


LABELS: list[tuple[Any, str]] = [
    (["ham", 1.5], r"labels\[1\]: a label must be a str, int or bool. Got 1.5 \(float\)"),
    (["ham", None], r"labels\[1\]: .* Got None"),
    (["ham"], "there are 2 examples and 1 labels"),
    ("ham", "labels must be a sequence. Got str"),
    (7, "labels must be a sequence. Got int"),
    (np.array("hs"), "labels must be a sequence. Got ndarray"),
]


@pytest.mark.parametrize(("labels", "message"), LABELS)
def test_wrong_labels_change_nothing(labels: Any, message: str) -> None:
    """A label that cannot be used is named by its row, and no example of the batch is learned."""
    model = model_of()
    with pytest.raises(InputError, match=message):
        model.learn_many({"text": ["a", "b"]}, labels)
    assert (model.n_examples, model.classes, model.words()) == (0, ("ham", "spam"), [])


def test_wrong_questions_are_named() -> None:
    """One example is a mapping, and a group is asked for by its name."""
    model = model_of()
    with pytest.raises(InputError, match=r"x must be a mapping of field names to values\. Got str"):
        model.learn_one("a text", "ham")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"x must be a mapping of field names to values\. Got str"):
        Predictor(SnapshotBoard()).predict_one("a text")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="row 0: text must be a str"):
        model.learn_one({"text": 5}, "ham")
    with pytest.raises(InputError, match=r"group must be one of text\. Got 'words' instead"):
        model.words("words")
    assert model.n_examples == 0


@pytest.mark.parametrize("likelihood", FAMILIES)
@pytest.mark.parametrize(
    "text",
    [
        "\ud800 lone \udfff surrogates",
        "nul \0 in \0\0 text",
        "",
        " ",
        "\u202eright to left\u202c",
        "\U0010ffff\ufeff\u0000",
        "e\u0301" * 500,
        "😀" * 3000,
    ],
)
def test_odd_texts_teach_and_answer(text: str, likelihood: Bernoulli | Multinomial) -> None:
    """Any str can be learned and judged; nothing of it turns into nan."""
    model = model_of(likelihood, ngrams=(1, 3), negation=True)
    model.learn_many({"text": [text, "plain", text]}, ["ham", "spam", "ham"])
    assert not np.isnan(model.predict_log_proba_many({"text": [text, text + " plain"]})).any()
    assert len(model.words()) == model.vocabulary_size
    assert (model.word_counts(model.words()).sum(axis=1) > 0).all()


@pytest.mark.parametrize("likelihood", FAMILIES)
def test_huge_texts(likelihood: Bernoulli | Multinomial) -> None:
    """Ten megabytes in one text, and a hundred thousand different words, are one example."""
    model = model_of(likelihood)
    model.learn_one({"text": "many words " * 950_000}, "ham")
    wide = " ".join(f"w{i}" for i in range(100_000))
    model.learn_one({"text": wide}, "spam")
    assert model.vocabulary_size == 100_002
    # One text has 131,071 tokens at most; what stands behind them is left out.
    expected = 65_535 if likelihood.counts_occurrences else 1
    assert model.word_counts(["words"])[0, 0] == expected
    assert model.predict_one({"text": wide}) == "spam"
    assert model.predict_one({"text": "many"}) == "ham"


def test_a_text_beyond_the_bound_of_grams_is_cut() -> None:
    """A text of more n-grams than one may have is cut there, in a batch and alone alike."""
    text = " ".join(f"w{i}" for i in range(150_000))
    models = [model_of(Multinomial(), ngrams=(1, 2)) for _ in range(2)]
    models[0].learn_one({"text": text}, "ham")
    models[1].learn_many({"text": ["x", text]}, ["ham", "ham"])
    assert models[0].vocabulary_size == (1 << 17) - 1
    assert set(models[1].words()) - {"x"} == set(models[0].words())


def test_statistics_by_word() -> None:
    """Words are asked for as they are shown; what is not known has zeros."""
    model = model_of(Multinomial(Dirichlet(1)), ngrams=(1, 2), negation=True)
    model.learn_many({"text": ["good day", "good good", "not good"]}, ["ham", "ham", "spam"])
    shown = ["good", "good day", "not ¬good", "¬good", "bad"]
    assert model.word_counts(shown).tolist() == [[3, 0], [1, 0], [0, 1], [0, 1], [0, 0]]
    assert model.word_counts([]).shape == (0, 2)
    assert model.word_likelihoods(["bad"]).tolist() == [[0, 0]]
    assert model.top_words(1) == ["good"]
    telling = model.telling_words(2)
    assert telling["ham"][0][0] == "good"
    assert all(score > 0 for told in telling.values() for _, score in told)


def test_one_class_alone() -> None:
    """With one class there is no doubt, and nothing that tells it from others."""
    model = NaiveBayes(classes=["x"], features={"text": Words(Bernoulli())})
    model.learn_one({"text": "a"}, "x")
    assert model.predict_proba_one({"text": "b"}) == {"x": 1.0}
    assert list(model.telling_words(3)) == ["x"]


def test_what_makes_two_models_the_same_kind() -> None:
    """A description holds classes, priors and groups, and not the hash key."""
    one, other = model_of(), model_of()
    assert one.state.hash_key != other.state.hash_key
    assert one.describe() == other.describe()
    assert one.describe() != model_of(negation=True).describe()
    assert one.describe()["classes"] == ["ham", "spam"]


def test_errors_are_one_family() -> None:
    """All errors of the library are caught by one name, and each knows its exit code."""
    assert issubclass(InputError, nb.StreamnbError)
    assert InputError.exit_code == 65
