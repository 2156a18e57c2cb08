"""Models of different hash keys add up by their texts, and nothing shows a key."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest

from streamnb import (
    Bag,
    Bernoulli,
    Categories,
    Flags,
    Multinomial,
    NaiveBayes,
    Numbers,
    Snapshot,
    Words,
    export_dict,
    merge,
    subtract,
)
from streamnb.errors import InputError
from streamnb.river import StreamNB
from streamnb.serialization import from_bytes, to_blocks

KEYS = (0xDEAD_BEEF_0000_0000_0000_0000_0000_0001, 0xFEED_F00D_0000_0000_0000_0000_0000_0002)
SHOWN = [text for key in KEYS for text in (str(key), f"{key:x}", f"{key:032x}")]


def model_of(key: int, **options: Any) -> NaiveBayes:
    """Return an untrained model with every kind of group."""
    return NaiveBayes(
        ["ham", "spam"],
        features={
            "text": Words(Multinomial(), ngrams=(1, 3), negation=True),
            "known": Words(Bernoulli(), field="text", dictionary=("a", "b b")),
            "bag": Bag(Multinomial(), field="bag"),
            "kinds": Categories(values={"size": ["s", "m"]}),
            "flags": Flags(fields=["flag"]),
            "numbers": Numbers(fields=["n"]),
        },
        hash_key=key,
        **options,
    )


Stream = list[tuple[dict[str, Any], str]]
PIECES = ["a", "b", "Ünï", "not", "c", ":)", "x.", "soooo", "\ud800", "@me"]
VALUES: dict[str, list[Any]] = {
    "size": ["s", "m", "other", None],
    "job": ["x", "ü", "a\0b", "", None],
    "n": [-3, 2, None],
}


def stream_of(seed: int) -> Stream:
    """Return a few examples in which anything may be missing."""
    rng = random.Random(seed)
    stream: Stream = []
    for _ in range(rng.randrange(7)):
        x: dict[str, Any] = {name: rng.choice(values) for name, values in VALUES.items()}
        x["text"] = " ".join(rng.choices(PIECES, k=rng.randrange(8)))
        x["bag"] = {word: rng.randint(1, 3) for word in rng.sample("abc", rng.randrange(4))}
        for name in rng.sample(list(x), rng.randrange(3)):
            del x[name]
        stream.append((x | {"flag": rng.random() < 0.5}, rng.choice(["ham", "spam"])))
    return stream


def learn(model: NaiveBayes, stream: Stream) -> NaiveBayes:
    """Teach a stream."""
    for x, y in stream:
        model.learn_one(x, y)
    return model


@pytest.mark.parametrize("seed", range(8))
def test_another_key_changes_no_count(seed: int) -> None:
    """Sum and difference are, byte for byte, what they are where both share the first one's key."""
    one, two = stream_of(seed), stream_of(seed + 100)
    first, other = learn(model_of(KEYS[0]), one), learn(model_of(KEYS[1]), two)
    twin = learn(model_of(KEYS[0]), two)
    before = other.to_bytes()
    total, wanted = merge(first, other), merge(first, twin)
    assert total.to_bytes() == wanted.to_bytes()
    assert subtract(total, other).to_bytes() == subtract(total, twin).to_bytes()
    assert other.to_bytes() == before
    # It goes on with the words that it was given: none of them is a new one.
    assert learn(total, two).to_bytes() == learn(wanted, two).to_bytes()


def test_with_a_given_key_bytes_are_a_function_of_counts() -> None:
    """In whatever order words came, left and came again, saved or not, pickled, added or not."""
    features: dict[str, Any] = {
        "text": Words(Multinomial()),
        "bag": Bag(Multinomial(), field="bag"),
    }
    stream: Stream = [
        ({"text": text, "bag": {text[::-1]: 2}}, label)
        for text, label in (("a b", "ham"), ("c d a", "spam"), ("e", "ham"), ("b f g", "spam"))
    ]
    one, two, other = (NaiveBayes(["ham", "spam"], features=features, hash_key=7) for _ in range(3))
    learn(one, stream)
    learn(two, stream[::-1])
    assert one.to_bytes() == two.to_bytes()
    two.unlearn_one(*stream[0])
    two = learn(pickle.loads(pickle.dumps(two)), stream[:1])
    assert two.to_bytes() == one.to_bytes()
    two.unlearn_one(*stream[2])
    assert merge(two, learn(other, stream[2:3])).to_bytes() == one.to_bytes()


def test_a_model_in_parts_is_brought_along() -> None:
    """The other model's parts enter as their sum, under the first one's key."""
    first, other = model_of(KEYS[0]), model_of(KEYS[1])
    other.learn_one({"text": "a b"}, "ham", part="t/0")
    other.learn_one({"text": "b c", "job": "x"}, "spam", part="t/1")
    total = first + other
    assert total.word_counts(["a", "b", "b c"], "text").tolist() == [[1, 0], [1, 1], [0, 1]]
    assert other.parts.keys() == {"t/0", "t/1"}


def test_a_text_that_is_cut_short_is_refused() -> None:
    """A category too long to be kept whole has no other fingerprint to go by: it is named."""
    first, other = model_of(KEYS[0]), model_of(KEYS[1])
    other.learn_one({"job": "long " * 60}, "ham")
    with pytest.raises(InputError, match=r"'job': .*'long .* not kept whole.*same hash_key") as no:
        merge(first, other)
    assert not any(text in str(no.value) for text in SHOWN)
    twin = learn(model_of(KEYS[0]), [({"job": "long " * 60}, "ham")])
    assert merge(first, twin).to_bytes() == twin.to_bytes()


def test_a_foreign_word_is_refused_without_a_secret() -> None:
    """A vocabulary whose texts are not those of its fingerprints is refused; no key is shown."""
    first, other = model_of(KEYS[0]), learn(model_of(KEYS[1]), [({"text": "foreign"}, "ham")])
    state = other.state.groups["text"]
    state.vocabulary.table.fingerprints[0] ^= np.uint64(1)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"group 'text': the text of 'foreign' is not kept") as no:
        merge(first, other)
    assert not any(text in str(no.value) for text in SHOWN)


def test_nothing_shows_a_key() -> None:
    """Neither a description, nor an export, nor River's listing, nor an error holds a hash key."""
    model = learn(model_of(KEYS[0]), [({"text": "a"}, "ham")])
    river = StreamNB(hash_key=KEYS[0])
    with pytest.raises(InputError) as differing:
        merge(model, NaiveBayes(features={"text": Words(Multinomial())}, hash_key=KEYS[1]))
    with pytest.raises(InputError, match="hash_key must be an integer of 128 bits") as mistyped:
        NaiveBayes(features={"text": Words(Multinomial())}, hash_key=str(KEYS[0]))  # type: ignore[arg-type]
    told: list[Any] = [
        repr(model), model._repr_html_(), model.describe(), export_dict(model),
        repr(Snapshot(model, 1)), model.parameters(), repr(river), str(river), river.clone(),
        differing.value, mistyped.value,
    ]  # fmt: skip
    assert [each for each in told for text in SHOWN if text in f"{each!s}{each!r}"] == []
    assert river.clone().model.state.hash_key == KEYS[0]
    assert pickle.loads(pickle.dumps(river)).model.state.hash_key == KEYS[0]


def test_a_text_that_ends_within_its_fields_name_is_refused() -> None:
    """A forged file may say so under a right digest: nothing is read outside the text."""
    field = "a_field_with_a_very_long_name_" * 10
    models = []
    for key in (1, 2):
        features = {"kinds": Categories(fields=[field])}
        models.append(NaiveBayes(["x", "y"], features=features, hash_key=key))
        models[-1].learn_many({field: ["red", "green", "blue"] * 20}, ["x", "y", "x"] * 20)
    header, arrays = from_bytes(models[1].to_bytes())
    arrays["groups/kinds/value_ends"] = np.ones_like(arrays["groups/kinds/value_ends"])
    forged = NaiveBayes.from_bytes(b"".join(to_blocks(header, arrays)))
    assert merge(*models).class_counts.tolist() == [80.0, 40.0]
    with pytest.raises(InputError, match="not kept whole"):
        merge(models[0], forged)
