"""Labels given as codes teach what the labels themselves teach."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import Codes, Dirichlet, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError

CLASSES = ("c", "a", "b", "never used")


def model(classes: tuple[str, ...]) -> NaiveBayes:
    """Return an untrained model."""
    words = {"text": Words(Multinomial())}
    return NaiveBayes(classes, Dirichlet(1.0), words, hash_key=1, new_classes=True)


@given(
    st.lists(st.tuples(st.sampled_from(["x y", "y", "z x", ""]), st.integers(0, 2)), max_size=12),
    st.permutations(["a", "b", "c"]).flatmap(
        lambda known: st.integers(0, 3).map(lambda n: tuple(known[:n]))
    ),
)
def test_codes_are_their_labels(examples: list[tuple[str, int]], known: tuple[str, ...]) -> None:
    """Whatever classes the model knows, in whatever order, posteriors and counts are the same."""
    texts = [text for text, _ in examples]
    codes = Codes(np.array([code for _, code in examples], dtype=np.int32), CLASSES)
    by_codes, by_labels = model(known), model(known)
    posteriors = by_codes.prequential_many({"text": texts}, codes)
    np.testing.assert_array_equal(
        posteriors, by_labels.prequential_many({"text": texts}, list(codes))
    )
    assert by_codes.classes == by_labels.classes
    np.testing.assert_array_equal(by_codes.class_counts, by_labels.class_counts)
    words = by_labels.words()
    np.testing.assert_array_equal(by_codes.word_counts(words), by_labels.word_counts(words))


def test_wrong_codes_are_refused() -> None:
    """Codes outside the classes, of another type or another length are an error that says so."""
    for codes in ([0, 2], [-1, 0]):
        with pytest.raises(InputError, match="between 0 and 1"):
            Codes(np.array(codes, dtype=np.int32), ("a", "b"))
    for wrong in (np.array([0, 1]), np.zeros((1, 1), np.int32), [0, 1]):
        with pytest.raises(InputError, match="int32"):
            Codes(wrong, ("a", "b"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 examples and 1 labels"):
        model(("a",)).learn_many({"text": ["x", "y"]}, Codes(np.zeros(1, np.int32), ("a",)))


@pytest.mark.parametrize("classes", [("a", "a"), (1, True)])
def test_classes_named_twice_are_refused(classes: tuple[str | int, ...]) -> None:
    """No model gets one class twice, once for each of two codes."""
    with pytest.raises(InputError, match=r"Codes.classes must differ. Got \("):
        Codes(np.array([0, 1], dtype=np.int32), classes)


def test_classes_of_codes_are_labels() -> None:
    """What is no label is refused, and numpy's scalars become Python's."""
    for wrong in (1.5, None, ["a"]):
        with pytest.raises(InputError, match=r"Codes.classes\[1\]: a label must be a str"):
            Codes(np.zeros(1, np.int32), ("a", wrong))  # type: ignore[arg-type]
    classes = Codes(np.zeros(1, np.int32), (np.str_("a"), np.bool_(True))).classes  # type: ignore[arg-type]
    assert [(label, type(label)) for label in classes] == [("a", str), (True, bool)]


@pytest.mark.parametrize("code", [-1, 7])
def test_codes_that_have_become_wrong_are_refused(code: int) -> None:
    """Their owner may write to the array: it is checked again at each call."""
    labels = Codes(np.array([0, 1], dtype=np.int32), ("a", "b"))
    learner = model(("a", "b"))
    before = learner.to_bytes()
    labels.codes[:] = code
    with pytest.raises(InputError, match="must lie between 0 and 1"):
        learner.learn_many({"text": ["good", "bad"]}, labels)
    assert learner.to_bytes() == before
