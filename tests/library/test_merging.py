"""Models add up: whole counts exactly and in any order, and what was added can be taken away."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from random import Random
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Complement,
    Dirichlet,
    Fixed,
    HalfLife,
    Multinomial,
    NaiveBayes,
    Words,
    merge,
    subtract,
)
from streamnb.errors import InputError
from streamnb.features.protocol import Group
from tests.library.features.count_models import (
    CLASSES,
    FRACTIONAL,
    PROBES,
    WORDS,
    Example,
    batch,
    by_class,
    close,
    examples,
    facts,
    features,
    learn,
    model_of,
    rounding_bounds,
)

SOME_CLASSES = st.sampled_from([(), CLASSES])


@given(features(), examples(max_size=20), st.data(), st.booleans())
def test_the_sum_of_the_pieces_is_the_whole(
    groups: dict[str, Group], stream: list[Example], data: st.DataObject, declared: bool
) -> None:
    """A stream cut into any pieces, learned apart and merged, is the stream learned as one."""
    places = data.draw(st.lists(st.integers(0, 3), min_size=len(stream), max_size=len(stream)))
    classes = CLASSES if declared else ()
    pieces = [
        learn(model_of(groups, classes), [e for e, p in zip(stream, places, strict=True) if p == k])
        for k in range(4)
    ]
    whole = learn(model_of(groups, classes), stream)
    merged = merge(*pieces)
    assert by_class(merged) == by_class(whole)
    assert merged.n_examples == whole.n_examples
    assert facts(NaiveBayes.from_bytes(merged.to_bytes())) == facts(merged)


@given(features(), st.lists(examples(max_size=8), min_size=2, max_size=4), st.randoms())
def test_any_order_and_grouping_gives_the_same(
    groups: dict[str, Group], streams: list[list[Example]], random: Random
) -> None:
    """A + b = b + a and (a + b) + c = a + (b + c), bit for bit; none of them is touched."""
    models = [learn(model_of(groups), stream) for stream in streams]
    before = [model.to_bytes() for model in models]
    expected = facts(merge(*models))
    shuffled = list(models)
    random.shuffle(shuffled)
    assert facts(merge(*shuffled)) == expected
    right = models[-1]
    for model in reversed(models[:-1]):
        right = model + right
    assert facts(right) == expected
    assert [model.to_bytes() for model in models] == before


@given(features(), examples(), examples(), SOME_CLASSES)
def test_what_was_added_can_be_taken_away(
    groups: dict[str, Group], mine: list[Example], theirs: list[Example], classes: Sequence[str]
) -> None:
    """(a + b) − b is a, byte for byte, also where b brought words and classes."""
    a = learn(model_of(groups, classes), mine)
    b = learn(model_of(groups, classes), theirs)
    rest = (a + b) - b
    assert rest.to_bytes() == a.to_bytes()
    assert facts(rest) == facts(a)


@given(features(), examples(max_size=16), st.sets(st.integers(0, 15)))
def test_subtracting_is_unlearning_all_of_it(
    groups: dict[str, Group], stream: list[Example], places: set[int]
) -> None:
    """A model without what another learned of the same stream is that of the rest."""
    some = [e for i, e in enumerate(stream) if i in places]
    others = [e for i, e in enumerate(stream) if i not in places]
    rest = subtract(learn(model_of(groups), stream), learn(model_of(groups), some))
    assert facts(rest) == facts(learn(model_of(groups), others))


@given(features(), examples(FRACTIONAL, max_size=16), st.sets(st.integers(0, 15)))
@hypothesis.example(
    {"bag": Bag(Bernoulli(Beta(0.0, 0.0)), field="bag")},
    [
        Example(None, {}, "eggs", 0.1),
        Example(None, {"a": 1.0}, "eggs", 2.7),
        Example(None, {}, "eggs", 0.25),
        Example(None, {}, "eggs", 1.0),
    ],
    {0, 2, 3},
)
def test_fractional_weights_add_and_subtract_to_rounding(
    groups: dict[str, Group], stream: list[Example], places: set[int]
) -> None:
    """With fractional weights sums agree to rounding, and no word is left of nothing but it."""
    some = [e for i, e in enumerate(stream) if i in places]
    others = [e for i, e in enumerate(stream) if i not in places]
    whole = learn(model_of(groups), stream)
    merged = merge(*(learn(model_of(groups), each) for each in (others, some)))
    answer_alike(merged, whole, rounding_bounds(groups, stream, stream))
    rest, alone = whole - learn(model_of(groups), some), learn(model_of(groups), others)
    answer_alike(rest, alone, rounding_bounds(groups, stream, others))


def answer_alike(found: NaiveBayes, expected: NaiveBayes, bounds: NDArray[np.float64]) -> None:
    """Hold two models' words together exactly, and their answers to rounding."""
    assert found.vocabulary_size == expected.vocabulary_size
    assert found.class_counts == pytest.approx(expected.class_counts, rel=1e-12, abs=1e-12)
    ours, wanted = (each.joint_log_likelihood_many(PROBES) for each in (found, expected))
    close(ours, wanted, bounds=bounds)


@given(features(), examples(), examples())
def test_a_model_in_parts_enters_whole(
    groups: dict[str, Group], mine: list[Example], theirs: list[Example]
) -> None:
    """Parts are summed up; the merged model is kept whole, and can learn on."""
    a, b = model_of(groups), learn(model_of(groups), theirs)
    for i, each in enumerate(mine):
        a.learn_one(each.x, each.label, weight=each.weight, part=f"p/{i % 2}")
    merged = a + b
    assert not merged.parts
    expected = learn(model_of(groups), [*mine, *theirs])
    assert facts(merged) == facts(expected)
    assert facts(learn(merged, mine)) == facts(learn(expected, mine))


@given(examples(max_size=20), examples(max_size=20))
def test_a_sum_keeps_to_its_bound(mine: list[Example], theirs: list[Example]) -> None:
    """Where the sum holds more words than `max_words`, the least useful ones leave, and it says so.

    What was dropped before by either is told as well.
    """
    groups: dict[str, Group] = {"text": Words(Multinomial(), max_words=4)}
    a, b = learn(model_of(groups), mine), learn(model_of(groups), theirs)
    merged = a + b
    assert merged.vocabulary_size <= max(4, 5)
    assert merged.words_dropped >= a.words_dropped + b.words_dropped
    assert facts(NaiveBayes.from_bytes(merged.to_bytes())) == facts(merged)


def made(**changes: Any) -> NaiveBayes:
    """Return a model with some of its settings changed."""
    settings: dict[str, Any] = {
        "classes": ["ham", "spam"],
        "class_prior": Dirichlet(1.0),
        "features": {"text": Words(Multinomial()), "b": Bag(Bernoulli(), field="b")},
        "decay": None,
        "hash_key": 5,
    }
    settings |= changes
    return NaiveBayes(
        settings["classes"],
        settings["class_prior"],
        settings["features"],
        decay=settings["decay"],
        hash_key=settings["hash_key"],
    )


BAG = Bag(Bernoulli(), field="b")
BAG_2 = Bag(Bernoulli(Beta(2, 1)), field="b")
DIFFERENT: list[tuple[dict[str, Any], str]] = [
    ({"class_prior": Dirichlet(2.0)}, r"class_prior \(1.0, 2.0\)"),
    ({"class_prior": Fixed({"ham": 0.5, "spam": 0.5})}, "class_prior .*fixed"),
    ({"decay": HalfLife(examples=3)}, "decay .*3.0"),
    ({"features": {"text": Words(Multinomial(Dirichlet(2))), "b": BAG}}, "text.likelihood .*2.0"),
    ({"features": {"text": Words(Complement()), "b": BAG}}, "text.likelihood .*complement"),
    ({"features": {"text": Words(Multinomial(), negation=True), "b": BAG}}, "text.negation"),
    ({"features": {"text": Words(Multinomial(), ngrams=(1, 2)), "b": BAG}}, "features.text.ngrams"),
    ({"features": {"text": Words(Multinomial(), dictionary=("a",)), "b": BAG}}, "text.dictionary"),
    ({"features": {"text": Words(Multinomial(), max_words=9), "b": BAG}}, "text.max_words"),
    ({"features": {"text": Words(Multinomial())}}, "features.b.likelihood"),
    ({"features": {"text": Words(Multinomial()), "b": BAG_2}}, "features.b.likelihood .*2.0"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), DIFFERENT, ids=[m for _, m in DIFFERENT])
def test_models_of_another_kind_refuse(changes: dict[str, Any], message: str) -> None:
    """What two models differ in is named, with both values; neither is changed."""
    a, b = made(), made(**changes)
    a.learn_one({"text": "a"}, "ham")
    before = a.to_bytes(), b.to_bytes()
    for join in (merge, subtract):
        with pytest.raises(InputError, match=message):
            join(a, b)
    assert (a.to_bytes(), b.to_bytes()) == before


def test_all_that_differs_is_named_at_once() -> None:
    """The error lists each difference."""
    with pytest.raises(InputError, match=r"class_prior.*features\.text\.negation"):
        made() + made(
            class_prior=Dirichlet(3.0),
            hash_key=7,
            features={"text": Words(Multinomial(), negation=True), "b": BAG},
        )


@pytest.mark.parametrize("other", [None, 0, "model", {"text": 1}])
def test_only_models_add_up(other: Any) -> None:
    """Anything else is a type error to `+`, and an input error to `merge`."""
    with pytest.raises(TypeError):
        made() + other
    with pytest.raises(TypeError):
        made() - other
    with pytest.raises(InputError, match="a NaiveBayes is wanted"):
        merge(made(), other)


def test_a_fixed_prior_and_a_prior_by_class_bound_the_classes() -> None:
    """A class that the prior has no number for cannot come by merging either."""
    prior = Fixed({"ham": 0.5, "spam": 0.5})
    a, b = made(class_prior=prior, classes=["ham"]), made(class_prior=prior, classes=["spam"])
    assert (a + b).classes == ("ham", "spam")
    by_class_prior = Dirichlet([1.0, 2.0])
    c = made(class_prior=by_class_prior)
    with pytest.raises(InputError, match="classes"):
        c + made(class_prior=by_class_prior, classes=["ham", "eggs"])


TOO_MUCH: list[tuple[list[Example], str]] = [
    ([Example("a", None, "ham", 5.0)], "'ham' would hold"),
    ([Example("b b b", None, "ham")], "'b' would be counted -2"),
    ([Example("z", None, "ham")], "'z' would be counted -1"),
    ([Example("a", None, "eggs")], "'eggs' cannot be taken away"),
]


@pytest.mark.parametrize(("theirs", "message"), TOO_MUCH)
def test_more_than_there_is_cannot_be_taken_away(theirs: list[Example], message: str) -> None:
    """Subtracting what was never added is refused, and says of what."""
    groups: dict[str, Group] = {"text": Words(Multinomial())}
    a = learn(model_of(groups, ()), [Example("a b c", None, "ham"), Example("b", None, "spam")])
    before = a.to_bytes()
    with pytest.raises(InputError, match=message):
        a - learn(model_of(groups, ()), theirs)
    assert a.to_bytes() == before


def test_one_missing_count_is_seen_among_a_billion() -> None:
    """What is taken too often is refused however large the rest is."""
    groups: dict[str, Group] = {"bag": Bag(Multinomial(), field="bag")}
    huge = Example(None, {"a": 4e9}, "ham")
    a = learn(model_of(groups), [huge, Example(None, {}, "ham")])
    b = learn(model_of(groups), [huge, Example(None, {"b": 1.0}, "ham")])
    with pytest.raises(InputError, match="'b' would be counted -1"):
        a - b


@given(features(), examples(), examples())
def test_a_batch_learned_after_merging_is_learned_alike(
    groups: dict[str, Group], mine: list[Example], more: list[Example]
) -> None:
    """A merged model learns on as one that was never merged, bit for bit."""
    half = len(mine) // 2
    merged = learn(model_of(groups), mine[:half]) + learn(model_of(groups), mine[half:])
    whole = learn(model_of(groups), mine)
    merged.learn_many(**batch(more))
    whole.learn_many(**batch(more))
    assert facts(merged) == facts(whole)


def test_dictionaries_merge_by_word() -> None:
    """A declared dictionary stands as declared, whatever each model has seen of it."""
    groups: dict[str, Group] = {"text": Words(Multinomial(), dictionary=WORDS)}
    a = learn(model_of(groups), [Example("j i a", None, "ham")])
    b = learn(model_of(groups), [Example("a c c", None, "ham")])
    assert (a + b).word_counts(["a", "c", "j", "e"])[:, 0].tolist() == [2.0, 2.0, 1.0, 0.0]
    assert (a + b).vocabulary_size == len(WORDS)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_copy_has_as_many_threads(n_threads: int) -> None:
    """Cloned, copied or pickled, a model reads with as many threads as before."""
    model = NaiveBayes(features={"text": Words(Multinomial())}, n_threads=n_threads)
    model.learn_one({"text": "a"}, "x")
    copies = [model.clone(), copy.copy(model), copy.deepcopy(model)]
    copies.append(pickle.loads(pickle.dumps(model)))
    assert [each.n_threads for each in copies] == [n_threads] * 4
    assert {each.to_bytes() for each in copies} == {model.to_bytes()}


class Named(NaiveBayes):
    """A model that a program gave attributes of its own."""

    names: list[str]


def test_a_copy_has_the_attributes_of_a_subclass() -> None:
    """Copied or pickled, it is the same kind of model, with what its program keeps on it."""
    model = Named(features={"text": Words(Multinomial())})
    model.learn_one({"text": "a"}, "x")
    model.names = ["mine"]
    shallow, deep = copy.copy(model), copy.deepcopy(model)
    pickled = pickle.loads(pickle.dumps(model))
    for each in (shallow, deep, pickled):
        assert type(each) is Named
        assert each.names == ["mine"]
        assert each.to_bytes() == model.to_bytes()
        assert each.state is not model.state
    assert shallow.names is model.names
    assert deep.names is not model.names
