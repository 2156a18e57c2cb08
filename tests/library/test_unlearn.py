"""Unlearning is the exact inverse of learning, and refuses to take more than was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import (
    Bag,
    Bernoulli,
    Complement,
    Dirichlet,
    Fixed,
    Hybrid,
    Multinomial,
    NaiveBayes,
    Words,
)
from streamnb.errors import InputError
from streamnb.features.counted_words import CountedState
from streamnb.features.protocol import Group
from streamnb.kernels.layout import LIVE
from streamnb.learn import EARLIER, LEARNED, OWN, prequential
from streamnb.predict import BATCH_ROWS
from tests.library.features.count_models import (
    CLASSES,
    FRACTIONAL,
    PROBES,
    WHOLE,
    Example,
    batch,
    examples,
    facts,
    features,
    learn,
    model_of,
    states,
    unlearn,
)

FAMILIES = [Multinomial(), Bernoulli(), Complement(), Complement(normalise=True)]


@given(features(), examples(), examples(), st.sampled_from([(), CLASSES]), st.randoms())
def test_unlearned_is_never_learned(
    groups: dict[str, Group],
    kept: list[Example],
    taken: list[Example],
    classes: Sequence[str],
    random: Random,
) -> None:
    """What came last and is taken back, in any order, leaves no trace: the bytes are the same."""
    model = learn(model_of(groups, classes), kept)
    before = model.to_bytes()
    learn(model, taken)
    back = list(taken)
    random.shuffle(back)
    unlearn(model, back)
    assert model.to_bytes() == before
    # Nor does what memory holds beyond the bytes: the likelihoods' caches.
    assert facts(model) == facts(NaiveBayes.from_bytes(before))


@given(features(), examples(max_size=16), st.sets(st.integers(0, 15)))
def test_unlearned_from_the_middle_is_never_learned(
    groups: dict[str, Group], stream: list[Example], places: set[int]
) -> None:
    """Any examples may be taken back: counts, V and all answers are those of the others alone."""
    model = learn(model_of(groups), stream)
    unlearn(model, [e for i, e in enumerate(stream) if i in places])
    others = [e for i, e in enumerate(stream) if i not in places]
    assert facts(model) == facts(learn(model_of(groups), others))


@given(features(), examples(), examples())
def test_unlearned_from_a_part(
    groups: dict[str, Group], mine: list[Example], others: list[Example]
) -> None:
    """In a model kept in parts, an example is taken back from the part that learned it."""
    model = model_of(groups)
    model.learn_one({"text": "a", "bag": {"a": 1}}, "ham", part="p/0")
    for each in others:
        model.learn_one(each.x, each.label, weight=each.weight, part="p/1")
    before = model.to_bytes()
    for each in mine:
        model.learn_one(each.x, each.label, weight=each.weight, part="p/0")
    for each in mine:
        model.unlearn_one(each.x, each.label, weight=each.weight, part="p/0")
    assert model.to_bytes() == before
    assert facts(model) == facts(NaiveBayes.from_bytes(before))


@given(features(), examples(FRACTIONAL), st.randoms())
def test_fractional_weights_leave_no_dust(
    groups: dict[str, Group], stream: list[Example], random: Random
) -> None:
    """When all is taken back that had fractional weights, nothing stands: no rest of rounding."""
    model = learn(model_of(groups), stream)
    back = list(stream)
    random.shuffle(back)
    unlearn(model, back)
    assert facts(model) == facts(model_of(groups))


@given(features(), examples(FRACTIONAL, min_size=1), st.data())
def test_fractional_weights_come_back_to_rounding(
    groups: dict[str, Group], stream: list[Example], data: st.DataObject
) -> None:
    """Examples of fractional weight taken back leave the others' answers, to rounding, and V."""
    places = data.draw(st.sets(st.integers(0, len(stream) - 1)))
    model = learn(model_of(groups), stream)
    unlearn(model, [e for i, e in enumerate(stream) if i in places])
    expected = learn(model_of(groups), [e for i, e in enumerate(stream) if i not in places])
    assert model.vocabulary_size == expected.vocabulary_size
    assert sorted(model.words("text") if "text" in groups else model.words("bag")) == sorted(
        expected.words("text") if "text" in groups else expected.words("bag")
    )
    found = model.joint_log_likelihood_many(PROBES)
    wanted = expected.joint_log_likelihood_many(PROBES)
    assert np.array_equal(np.isneginf(found), np.isneginf(wanted))
    finite = np.isfinite(wanted)
    assert found[finite] == pytest.approx(wanted[finite], rel=1e-9, abs=1e-9)


def bag_model(likelihood: Any, **options: Any) -> NaiveBayes:
    """Return a model of one bag."""
    return model_of({"bag": Bag(likelihood, field="bag", **options)}, classes=("ham", "spam"))


REFUSED: list[tuple[dict[str, Any], Any, dict[str, Any], str]] = [
    ({"bag": {"a": 1}}, "ham", {"weight": 3}, "holds 2"),
    ({"bag": {"a": 3}}, "ham", {}, "'a' cannot be unlearned 3 times"),
    ({"bag": {"z": 1}}, "ham", {}, "'z' cannot be unlearned 1 times"),
    ({"bag": {"b": 1}}, "ham", {}, "'b' cannot be unlearned"),
    ({"bag": {"a": 1}}, "eggs", {}, "'eggs' was never learned"),
    ({"bag": {"a": 1}}, 1.5, {}, "label|y"),
    ({"bag": {"a": 1}}, "ham", {"part": "p"}, "part 'p'"),
    ({"bag": {"a": -1}}, "ham", {}, "row 0: a count for 'a'"),
    ({"bag": "a"}, "ham", {}, "a mapping of word to count"),
]


@pytest.mark.parametrize(("x", "y", "how", "message"), REFUSED)
@pytest.mark.parametrize("likelihood", [Multinomial(), Complement(normalise=True)])
def test_too_much_is_refused(
    likelihood: Any, x: dict[str, Any], y: Any, how: dict[str, Any], message: str
) -> None:
    """More than was learned cannot be taken: it says of what, and not a byte changes."""
    model = bag_model(likelihood)
    model.learn_one({"bag": {"a": 1}}, "ham")
    model.learn_one({"bag": {"a": 1, "c": 2}}, "ham")
    model.learn_one({"bag": {"b": 1}}, "spam")
    before, said = model.to_bytes(), facts(model)
    with pytest.raises(InputError, match=message):
        model.unlearn_one(x, y, **how)
    assert model.to_bytes() == before
    assert facts(model) == said


def test_a_text_that_was_missing_is_unlearned_as_such() -> None:
    """An example without text counts for its class alone, there and back."""
    model = model_of({"text": Words(Bernoulli())})
    model.learn_one({"text": "a"}, "ham")
    before = model.to_bytes()
    model.learn_one({"text": None}, "ham")
    with pytest.raises(InputError, match="an example of weight"):
        learn(model_of({"text": Words(Bernoulli())}), [Example(None, None, "ham")]).unlearn_one(
            {"text": ""}, "ham"
        )
    model.unlearn_one({}, "ham")
    assert model.to_bytes() == before


@pytest.mark.parametrize("likelihood", FAMILIES)
def test_words_that_had_left_are_skipped_and_counted(likelihood: Any) -> None:
    """A word dropped meanwhile, or come anew since, is skipped, never driven below zero."""
    model = bag_model(likelihood, max_words=4)
    first = {"rare": 1.0, "common": 1.0}
    model.learn_one({"bag": first}, "ham")
    for _ in range(3):
        model.learn_one({"bag": {"common": 1.0, "b": 1.0, "c": 1.0}}, "ham")
    assert model.words_dropped == 0
    model.learn_one({"bag": {"d": 1.0}}, "spam")
    assert "rare" not in model.words()
    model.unlearn_one({"bag": first}, "ham")
    assert model.n_skipped == 1
    assert model.word_counts(["common", "b", "rare"])[:, 0].tolist() == [3.0, 3.0, 0.0]
    # Come anew, with less than is to be taken back.
    model.learn_one({"bag": {"rare": 1.0}}, "ham", weight=2)
    if likelihood.counts_occurrences:
        model.unlearn_one({"bag": {"rare": 5.0}}, "ham")
        assert model.n_skipped == 2
    assert states(model)["bag"].counts.by_word.min() >= 0.0
    assert not np.isnan(model.joint_log_likelihood_many(PROBES)).any()
    assert facts(NaiveBayes.from_bytes(model.to_bytes())) == facts(model)


@given(features(bound=5), examples(max_size=25), st.data())
def test_unlearning_after_dropping_keeps_the_books(
    groups: dict[str, Group], stream: list[Example], data: st.DataObject
) -> None:
    """While words leave all the time, unlearning keeps counts at zero or above and caches right."""
    model = learn(model_of(groups), stream)
    for i in data.draw(st.sets(st.integers(0, 24))):
        if i < len(stream):
            model.unlearn_one(stream[i].x, stream[i].label, weight=stream[i].weight)
    for group in states(model).values():
        n = group.vocabulary.n_words
        counts = group.counts
        assert counts.by_word.min(initial=0.0) >= 0.0
        assert counts.tokens.tolist() == counts.by_word[:n].sum(axis=0).tolist()
        assert counts.state[0] == int(counts.by_word.any(axis=1).sum())
    assert facts(NaiveBayes.from_bytes(model.to_bytes())) == facts(model)


@given(
    features() | features(bound=5),
    examples(WHOLE) | examples(FRACTIONAL),
    st.lists(st.integers(0, 11), max_size=8),
    st.booleans(),
)
def test_many_are_unlearned_as_one_after_the_other(
    groups: dict[str, Group], stream: list[Example], places: list[int], in_parts: bool
) -> None:
    """One call leaves the bytes that single calls leave; what they refuse it refuses as a whole.

    Some examples are taken back twice, and words leave meanwhile, so both are tried often.
    """
    part = "p/0" if in_parts else None
    model = model_of(groups)
    for each in stream:
        model.learn_one(each.x, each.label, weight=each.weight, part=part)
    taken = [stream[i] for i in places if i < len(stream)]
    single, before, said = model.clone(), model.to_bytes(), facts(model)
    refused = False
    try:
        for each in taken:
            single.unlearn_one(each.x, each.label, weight=each.weight, part=part)
    except InputError:
        refused = True
    many = batch(taken) | {"times_s": None, "part": part}
    if refused:
        with pytest.raises(InputError):
            model.unlearn_many(**many)
        assert (model.to_bytes(), facts(model)) == (before, said)
    else:
        model.unlearn_many(**many)
        assert (model.to_bytes(), facts(model)) == (single.to_bytes(), facts(single))


def test_what_is_refused_of_many_is_named_by_its_row() -> None:
    """The error says which example it is that was not learned, and none is taken back."""
    model = bag_model(Multinomial())
    model.learn_many({"bag": [{"a": 1}, {"b": 1}]}, ["ham", "ham"])
    for second, message in (
        ({"a": 1}, "row 1: 'a' cannot be unlearned 1 times, as its class holds 0"),
        ({"z": 1}, "row 1: 'z' cannot be unlearned"),
    ):
        with pytest.raises(InputError, match=message):
            model.unlearn_many({"bag": [{"a": 1}, second]}, ["ham", "ham"])
    with pytest.raises(InputError, match="row 2: an example of weight 1 cannot be unlearned"):
        model.unlearn_many({"bag": [{"a": 1}, {"b": 1}, {}]}, ["ham", "ham", "ham"])
    assert model.n_examples == 2


@pytest.mark.parametrize(
    ("text", "word"),
    [("a x", "a x"), ("b a", "b a"), ("not b", "not"), ("a B", None), ("x, a b", "x")],
)
def test_an_unknown_word_of_a_text_is_named(text: str, word: str | None) -> None:
    """The word that was never learned stands in the error, of its row, and enters nowhere."""
    model = model_of({"text": Words(Multinomial(), ngrams=(1, 2), negation=True)})
    model.learn_many({"text": ["a b", "a b", "a"]}, ["ham"] * 3)
    before, words = model.to_bytes(), model.state.groups["text"].vocabulary.n_words  # type: ignore[attr-defined]  # a group of words has one
    rows = {"text": ["a b", text]}, ["ham", "ham"]
    if word is None:
        model.unlearn_many(*rows)
        assert model.n_examples == 1
        return
    with pytest.raises(InputError, match=f"row 1: '{word}' cannot be unlearned"):
        model.unlearn_many(*rows)
    assert model.to_bytes() == before
    assert model.state.groups["text"].vocabulary.n_words == words  # type: ignore[attr-defined]


def test_the_fixed_prior_and_declared_classes_stay() -> None:
    """A declared class stays when nothing is left of it; one that came anew goes."""
    prior = Fixed({"ham": 0.5, "spam": 0.5})
    words = {"text": Words(Multinomial())}
    model = NaiveBayes(["ham"], prior, words, hash_key=1, new_classes=True)
    before = model.to_bytes()
    stream = [Example("a b", None, "ham"), Example("c", None, "spam")]
    learn(model, stream)
    assert model.classes == ("ham", "spam")
    unlearn(model, stream)
    assert list(model.classes) == ["ham"]
    assert model.to_bytes() == before


def test_unlearning_takes_the_weight_it_is_told() -> None:
    """Half of an example may be taken back, and the rest later; weight 0 takes nothing."""
    model = model_of({"text": Words(Multinomial(Dirichlet(0.5)))})
    empty = model.to_bytes()
    example = Example("a b b", None, "ham", weight=4.0)
    learn(model, [example])
    whole = model.to_bytes()
    unlearn(model, [replace(example, weight=0.0)])
    assert model.to_bytes() == whole
    unlearn(model, [replace(example, weight=1.0)])
    assert model.word_counts(["a", "b"])[:, 0].tolist() == [3.0, 6.0]
    assert model.to_bytes() != empty


@given(
    st.builds(Words, st.sampled_from(FAMILIES), max_words=st.sampled_from([6, 1000]))
    | st.just(Words(Multinomial(), hybrid=Hybrid(), max_words=6)),
    examples(),
    examples(max_size=12),
    st.randoms(use_true_random=False),
    st.sampled_from([None, "p/0", "p/1"]),
)
def test_what_is_taken_back_in_its_place_is_as_by_a_call_of_its_own(
    words: Words, first: list[Example], stream: list[Example], random: Random, part: str | None
) -> None:
    """Among rows that are learned, too, while words leave: answers and counts are the same.

    Examples from before the call and of the call itself are taken back.
    """
    model = model_of({"text": words}, CLASSES)
    for i, each in enumerate(first):
        own = None if part is None else f"p/{i % 2}"
        model.learn_one(each.x, each.label, weight=each.weight, part=own)
    living = [(each, EARLIER) for i, each in enumerate(first) if part in {None, f"p/{i % 2}"}]
    rows = list[tuple[Example, int]]()
    for each in stream:
        rows.append((each, LEARNED))
        living.append((each, OWN))
        while living and random.random() < 0.5:
            rows.append(living.pop(random.randrange(len(living))))
    single, said = model.clone(), []
    for each, code in rows:
        if code == LEARNED:
            said += single.prequential_many(**batch([each]), part=part).tolist()
        else:
            single.unlearn_one(each.x, each.label, weight=each.weight, part=part)
    if rows:
        codes = np.array([code for _, code in rows], np.int8)
        many = batch([each for each, _ in rows]) | {"part": part, "taken": codes}
        found = prequential(model.state, **many)
        assert found[codes == LEARNED].tolist() == said
    assert facts(model) == facts(single)


def test_what_cannot_be_taken_back_in_its_place_is_left_with_all_behind_it() -> None:
    """The rows of the pieces before are done; nothing of the rest is, and the caller goes on."""
    model = model_of({"text": Words(Multinomial())}, CLASSES)
    n, n_first = 3 * BATCH_ROWS // 2, BATCH_ROWS
    columns, labels = {"text": ["a"] * n}, ["ham"] * (n - 2) + ["spam"] * 2
    codes = np.full(n, LEARNED, np.int8)
    codes[-1] = EARLIER
    found = prequential(model.state, columns, labels, taken=codes)
    assert (len(found), model.class_counts.tolist()) == (n_first, [n_first, 0.0, 0.0])
    codes[-1] = OWN
    rest = {"text": columns["text"][n_first:]}, labels[n_first:]
    found = prequential(model.state, *rest, taken=codes[n_first:])
    assert (len(found), model.class_counts.tolist()) == (n - n_first, [n - 2, 0.0, 0.0])


@pytest.mark.parametrize("parts", [(), ("p",), ("p", "q")])
@pytest.mark.parametrize("likelihood", [Multinomial(), Bernoulli(), Complement()])
@given(data=st.data())
def test_words_left_in_a_class_that_goes_do_not_count(
    parts: tuple[str, ...], likelihood: Any, data: st.DataObject
) -> None:
    """Where words were dropped, unlearning skips some, and a class may go with what is left of it.

    V counts the words that are left; else a full vocabulary would find no room for another text.
    """
    texts = st.lists(st.sampled_from(ascii_lowercase), max_size=12).map(" ".join)
    seen = data.draw(st.lists(st.tuples(texts, st.sampled_from("xyz")), min_size=1, max_size=6))
    part = None
    model = NaiveBayes((), features={"text": Words(likelihood, max_words=3)}, hash_key=1)
    for name in parts:
        model.learn_one({"text": "a"}, "w", part=name)
        part = name
    columns, labels = {"text": [text for text, _ in seen]}, [label for _, label in seen]
    model.learn_many(columns, labels, part=part)
    model.unlearn_many(columns, labels, part=part)
    group = model.state.groups["text"]
    assert isinstance(group, CountedState)
    held = [group.counts, *(each.groups["text"].counts for each in model.state.summands())]
    for counts in held:
        assert counts.state[LIVE] == np.count_nonzero(counts.by_word.any(axis=1))
    model.learn_many({"text": [" ".join(ascii_lowercase)] * 2}, ["x", "y"], part=part)
