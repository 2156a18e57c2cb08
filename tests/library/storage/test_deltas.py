"""What changed from one version to another: it makes the other one, bit for bit, or is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import (
    Bag,
    Categories,
    Flags,
    HalfLife,
    Hybrid,
    Multinomial,
    NaiveBayes,
    Numbers,
    Snapshot,
    Words,
)
from streamnb.errors import InputError, StoreError
from streamnb.serialization import (
    UNREADABLE,
    Version,
    delta,
    from_bytes,
    name_of,
    patched,
    to_blocks,
    unpack,
    version_of,
)

KEY = 7
MODELS: dict[str, dict[str, Any]] = {
    "words": {},
    "bounded": {"max_words": 8},
    "hybrid": {"hybrid": Hybrid()},
    "bounded hybrid": {"hybrid": Hybrid(), "max_words": 8},
    "pairs": {"ngrams": (1, 2)},
    "dictionary": {"dictionary": tuple("abcde")},
}


def model_of(kind: str, *, keyed: bool = False, decays: bool = False) -> NaiveBayes:
    """Return a model with groups of all kinds."""
    return NaiveBayes(
        features={
            "text": Words(Multinomial(), **MODELS[kind]),
            "bag": Bag(Multinomial(), field="bag"),
            "kind": Categories(fields=["kind"]),
            "is": Flags(fields=["is"]),
            "n": Numbers(fields=["n"]),
        },
        hash_key=KEY if keyed else None,
        decay=HalfLife(examples=3) if decays else None,
    )


def published(model: NaiveBayes, number: int) -> Version:
    """Return a version as a daemon publishes it."""
    return version_of(Snapshot(model, number).state, {"snapshot": {"version": number}})


def container(version: Version) -> bytes:
    """Return the bytes of a version's file."""
    return b"".join(to_blocks(version.header, version.arrays))


def sent(old: Version, new: Version) -> bytes | None:
    """Return the bytes of a delta; None if there is none."""
    found = delta(old, new, name_of(new.header, new.arrays))
    return None if found is None else b"".join(to_blocks(*found))


EXAMPLES = st.fixed_dictionaries(
    {
        "text": st.text("abcdefghijklmno ¬é", max_size=12),
        "bag": st.dictionaries(st.sampled_from("pqrstu"), st.integers(1, 300), max_size=3),
        "kind": st.sampled_from(["red", "green", "blue", "black", None]),
        "is": st.sampled_from([True, False, None]),
        "n": st.sampled_from([0.0, -0.0, 1.5, -2.25, None]),
    }
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("learn"), EXAMPLES, st.sampled_from("xyz"), st.sampled_from([1, 1, 0.3])),
        st.tuples(st.just("unlearn"), st.integers(0, 30)),
        st.tuples(st.just("publish"), st.integers(1, 4)),
    ),
    max_size=40,
)


@given(steps=STEPS, kind=st.sampled_from([*MODELS]), keyed=st.booleans(), decays=st.booleans())
def test_a_delta_makes_the_version_bit_for_bit(
    steps: list[tuple[Any, ...]], kind: str, *, keyed: bool, decays: bool
) -> None:
    """So it does from any of the last versions, as they stand where their deltas have led."""
    model = model_of(kind, keyed=keyed, decays=decays and kind != "dictionary")
    learned: list[tuple[Any, ...]] = []
    versions = [published(model, 0)]
    held = [versions[0].arrays]
    for step in [*steps, ("publish", 1)]:
        if step[0] == "learn":
            _, x, y, weight = step
            model.learn_one(x, y, weight=weight)
            learned.append((x, y, weight))
        elif step[0] == "unlearn":
            if step[1] < len(learned) and not decays:
                x, y, weight = learned.pop(step[1])
                model.unlearn_one(x, y, weight=weight)
        else:
            new = published(model, len(versions))
            base = max(0, len(versions) - step[1])
            data = sent(versions[base], new)
            arrays = new.arrays
            if data is not None:
                header, arrays = patched(held[base], *from_bytes(data))
                state, _ = unpack(header, arrays)
                made = version_of(state, header["notes"])
                assert container(made) == container(new)
                arrays = made.arrays
            versions.append(new)
            held.append(arrays)


def test_what_did_not_change_is_not_sent() -> None:
    """A delta has the numbers of the words that changed, and the words that came."""
    model = model_of("hybrid")
    words = [f"w{i}" for i in range(4000)]
    model.learn_many({"text": [" ".join(words)] * 2}, ["x", "y"])
    old = published(model, 1)
    model.learn_one({"text": "w7 w8 and something new"}, "x")
    new = published(model, 2)
    data = sent(old, new)
    assert data is not None
    assert len(data) < len(container(new)) / 20
    _, changes = from_bytes(data)
    assert changes["delta/text/words"].tobytes() == b"andsomethingnew"
    assert changes["delta/sections/0/text/by_word/values"].dtype == np.int8
    assert changes["delta/sections/0/text/by_word/values"].tolist() == [[1, 0]] * 5
    assert "groups/text/fingerprints" not in changes


def test_words_that_went_and_came_again_stand_where_they_stood() -> None:
    """They are words that came, amid those that stayed."""
    model = model_of("words")
    for text in ("a b", "c", "d e"):
        model.learn_one({"text": text}, "x")
    versions = [published(model, 0)]
    model.unlearn_one({"text": "c"}, "x")
    versions.append(published(model, 1))
    model.learn_one({"text": "c f"}, "x")
    versions.append(published(model, 2))
    came: dict[int, bytes] = {}
    for old, new in itertools.pairwise(versions):
        data = sent(old, new)
        assert data is not None
        header, changes = from_bytes(data)
        came[len(came)] = changes["delta/text/words"].tobytes()
        assert container(Version(*patched(old.arrays, header, changes), {}, {})) == container(new)
    assert came == {0: b"", 1: b"cf"}


def a_delta() -> tuple[Version, Version, dict[str, Any], dict[str, Any]]:
    """Return two versions, and the header and arrays of what changed."""
    model = model_of("hybrid")
    model.learn_many({"text": ["a b c", "c d e"]}, ["x", "y"])
    old = published(model, 1)
    model.learn_many({"text": ["a f g", "h"]}, ["x", "y"])
    new = published(model, 2)
    found = delta(old, new, name_of(new.header, new.arrays))
    assert found is not None
    return old, new, *found


def test_a_delta_of_another_version_is_refused() -> None:
    """Its name is that of what it should make."""
    _, new, header, changes = a_delta()
    with pytest.raises((StoreError, *UNREADABLE)):
        patched(new.arrays, header, changes)
    other = model_of("hybrid")
    other.learn_many({"text": ["a b c", "c d i"]}, ["x", "y"])
    with pytest.raises(StoreError, match="of another version"):
        patched(published(other, 1).arrays, header, changes)


def test_a_version_whose_arrays_differ_in_a_bit_has_another_name() -> None:
    """Or in the place of a word, or in the length of an array."""
    _, new, _, _ = a_delta()
    names = {name_of(new.header, new.arrays)}
    words = np.arange(9, dtype=np.uint64)
    others: list[Any] = [np.roll(words, 4), words[:8], np.append(words, np.uint64(0))]
    for bit, place in itertools.product((0, 63), range(9)):
        others.append(words ^ np.uint64(1 << bit) * (words == place))
    memory = words.view(np.uint8)
    others += [words, memory, memory[:-1], memory[1:]]
    for each in others:
        names.add(name_of(new.header, new.arrays | {"sections/0/class_counts": each}))
    assert len(names) == 1 + len(others)


HOSTILE: dict[str, Callable[[Any], Any]] = {
    "cut": lambda array: array[:-1],
    "longer": lambda array: np.concatenate([array, array[:1]]),
    "far": lambda array: array.astype(np.int64) + (1 << 62),
    "below": lambda array: array.astype(np.int64) - (1 << 62),
    "as numbers": lambda array: np.full(array.shape, np.nan),
    "of two dimensions": lambda array: array.reshape(1, *array.shape),
    "one": lambda array: array.reshape(-1)[:1],
    "none": lambda array: array[:0],
    "all bits": lambda array: np.full(array.shape, 255, np.uint8),
}


@pytest.mark.parametrize("damage", [*HOSTILE])
def test_a_hostile_delta_is_refused(damage: str) -> None:
    """Whatever its arrays say, kernels never leave their arrays, and nothing is made of it."""
    old, new, header, changes = a_delta()
    before = container(old)
    n_refused = 0
    for name in changes:
        wrong = changes | {name: HOSTILE[damage](changes[name])}
        try:
            made = patched(old.arrays, header, wrong)
        except (StoreError, InputError, *UNREADABLE):
            n_refused += 1
        else:  # bits behind the last, or nothing in another shape
            assert container(Version(*made, {}, {})) == container(new)
    assert n_refused > len(changes) // 3
    assert container(old) == before
    assert container(Version(*patched(old.arrays, header, changes), {}, {})) == container(new)
