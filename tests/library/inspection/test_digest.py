"""The digest of what was counted: a function of the counts and their names, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamnb import Categories, Flags, HalfLife, Multinomial, NaiveBayes, Numbers, Words, merge
from streamnb.errors import InputError
from streamnb.features.protocol import Group
from streamnb.inspection.summary import CountDifference, differences
from streamnb.serving.publisher import Snapshot
from tests.library.features.count_models import (
    CLASSES,
    Example,
    examples,
    features,
    learn,
    model_of,
    unlearn,
)
from tests.library.inspection.mixed_models import Stream, groups, streams

Mixed = Mapping[str, Group]


@given(features(), examples(), examples(), st.randoms())
def test_unlearned_is_as_if_never_learned(
    kinds: Mixed, stream: list[Example], deleted: list[Example], random: Random
) -> None:
    """A model that unlearned some examples has the digest of one that never saw them."""
    order = [*stream, *deleted]
    random.shuffle(order)
    never = learn(model_of(kinds, ()), stream)
    assert unlearn(learn(model_of(kinds, ()), order), deleted).digest() == never.digest()


@given(groups(0.5, 1.0), st.data())
def test_neither_order_nor_key_nor_file_changes_it(kinds: Mixed, data: st.DataObject) -> None:
    """Whole counts in another order, under another key, saved, in parts: the same digest."""
    stream: Stream = data.draw(streams())
    shuffled = data.draw(st.permutations(stream))
    first = NaiveBayes(features=kinds, hash_key=1)
    second = NaiveBayes(CLASSES[::-1], features=kinds, hash_key=2)
    parts = NaiveBayes(CLASSES, features=kinds)
    for (x, y), (other_x, other_y) in zip(stream, shuffled, strict=True):
        first.learn_one(x, y)
        second.learn_one(other_x, other_y)
        parts.learn_one(x, y, part=y)
    assert second.digest(moments=False) == first.digest(moments=False)
    assert NaiveBayes.from_bytes(first.to_bytes()).digest() == first.digest()
    assert Snapshot(first, 1).digest() == first.digest()
    assert parts.digest(moments=False) == first.digest(moments=False)
    for name in parts.parts:
        assert parts.digest(name) == parts.part(name).digest()
    if "numbers" not in kinds:
        assert second.digest() == first.digest()


@given(features(), examples(), examples())
def test_other_counts_have_another_digest(
    kinds: Mixed, stream: list[Example], more: list[Example]
) -> None:
    """Digests agree exactly if no count differs; a difference is named with both counts."""
    first, second = learn(model_of(kinds), stream), learn(model_of(kinds), [*stream, *more])
    found = list(differences(first.state, second.state))
    assert (first.digest() == second.digest()) == (not found)
    assert bool(found) == bool(more)
    added = Counter(json.dumps(each.label) for each in more for _ in range(int(each.weight)))
    assert {each.label: each.second - each.first for each in found if each.group == ""} == added
    merged = merge(first, learn(model_of(kinds), more))
    assert merged.digest() == second.digest()


def test_the_bytes_are_those_that_the_guide_says() -> None:
    """Plain Python over dicts makes the same digest of what a stream holds."""
    stream = [("win a prize", "spam"), ("lunch", "ham"), ("win win", "spam"), ("a über", "ham")]
    model = NaiveBayes(features={"text": Words(Multinomial())})
    counts: Counter[tuple[str, str]] = Counter()
    for text, label in stream:
        model.learn_one({"text": text}, label)
        counts.update((word, label) for word in text.split())
    labels = ["ham", "spam"]
    assert sorted({word for word, _ in counts}) == sorted(model.words())
    words = sorted({word.encode() for word, _ in counts})
    by_word = [[float(counts[word.decode(), label]) for label in labels] for word in words]
    tokens = [float(sum(counts[word.decode(), label] for word in words)) for label in labels]
    tables: list[tuple[str, str, list[bytes], list[Any]]] = [
        ("", "classes", [b""], [2.0, 2.0]),
        ("text", "by_word", words, by_word),
        ("text", "examples", [b""], [2.0, 2.0]),
        ("text", "tokens", [b""], tokens),
    ]
    expected = hashlib.sha256(b'{"streamnb counts": 1, "landmark": null}')
    for group, statistic, names, values in tables:
        shape = [group, statistic, [json.dumps(label) for label in labels], len(names)]
        expected.update(json.dumps(shape, ensure_ascii=False).encode())
        expected.update(b"".join(len(name).to_bytes(8, "little") for name in names))
        expected.update(b"".join(names) + np.array(values, "<f8").tobytes())
    assert model.digest() == expected.hexdigest()


def test_each_statistic_counts() -> None:
    """A value, a flag, a number and a class's own count change the digest; 0 and −0 do not."""
    kinds: Mixed = {
        "kind": Categories(fields=["kind"]),
        "flag": Flags(fields=["flag"]),
        "n": Numbers(),
    }

    def made(**changes: Any) -> NaiveBayes:
        model = NaiveBayes(features=kinds)
        model.learn_one({"kind": "a", "flag": True, "n": 1.5} | changes, "x")
        return model

    others = [made(kind="b"), made(flag=False), made(n=2.5), made(n=None), made(flag=None)]
    assert len({model.digest() for model in (made(), *others)}) == 6
    assert made(n=0.0).digest() == made(n=-0.0).digest()
    assert made(n=2.5).digest(moments=False) == made().digest(moments=False)
    assert made(n=None).digest(moments=False) != made().digest(moments=False)
    assert list(differences(made().state, made(kind="b").state)) == [
        CountDifference("kind", "by_value", "kind=a", '"x"', 1.0, 0.0),
        CountDifference("kind", "by_value", "kind=b", '"x"', 0.0, 1.0),
    ]


def test_labels_of_different_kinds_differ() -> None:
    """The label 1 is not the label "1", nor is either True."""

    def digest(label: Any) -> str:
        model = NaiveBayes(features={"text": Words(Multinomial())})
        model.learn_one({"text": "a"}, label)
        return model.digest()

    assert len({digest(1), digest("1"), digest(True)}) == 3


def test_long_values_are_known_by_what_is_kept_of_them() -> None:
    """Values of which the same 200 bytes are kept count by themselves, whatever the hash key."""
    stream = [("v" * 300 + end, label) for end, label in ("ax", "ay", "bx")]
    models = [NaiveBayes(features={"k": Categories(fields=["k"])}, hash_key=key) for key in (1, 2)]
    for model, order in zip(models, (stream, stream[::-1]), strict=True):
        model.learn_many({"k": [value for value, _ in order]}, [label for _, label in order])
    assert models[0].digest() == models[1].digest()
    models[1].learn_one({"k": "v" * 300 + "b"}, "x")
    assert models[0].digest() != models[1].digest()


@given(examples(times=st.floats(-50, 50), min_size=1))
def test_decayed_counts_enter_with_their_landmark(stream: list[Example]) -> None:
    """The same decayed stream gives the same digest, and time moves it if it moves the counts."""
    kinds = {"text": Words(Multinomial())}
    models = [learn(model_of(kinds, decay=HalfLife(seconds=1.0)), stream) for _ in range(2)]
    assert models[0].digest() == models[1].digest()
    assume(models[0].state.class_counts.any())
    models[1].learn_one({"text": "a"}, "ham", time_s=1000.0)
    assert models[0].digest() != models[1].digest()


def test_an_unknown_part_is_refused() -> None:
    """The error names the parts there are."""
    model = NaiveBayes(features={"text": Words(Multinomial())})
    model.learn_one({"text": "a"}, "x", part="monday")
    with pytest.raises(InputError, match="It has monday"):
        model.digest("tuesday")
