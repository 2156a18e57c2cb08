"""Models of every kind of group and streams for them, for the tests of what a model tells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Categorical,
    Categories,
    Dirichlet,
    Flags,
    Gaussian,
    Multinomial,
    NaiveBayes,
    NormalInverseGamma,
    Numbers,
    VarianceFloor,
    Words,
)
from streamnb.features.protocol import Group

Stream = list[tuple[dict[str, Any], Any]]
WORDS = ["good", "bad", "rain", "sun", "lunch", "prize", "win"]
CLASSES = ["ham", "spam", "eggs"]


def columns_of(stream: Sequence[tuple[dict[str, Any], Any]]) -> dict[str, list[Any]]:
    """Return a stream's fields as columns; what an example does not have is None."""
    names = dict.fromkeys(name for x, _ in stream for name in x)
    return {name: [x.get(name) for x, _ in stream] for name in names}


def learned(
    stream: Sequence[tuple[dict[str, Any], Any]],
    groups: dict[str, Group],
    alpha: float = 1.0,
    **options: Any,
) -> NaiveBayes:
    """Return a model of three classes that has learned a stream."""
    model = NaiveBayes(CLASSES, Dirichlet(alpha), groups, **options)
    if stream:
        model.learn_many(columns_of(stream), [y for _, y in stream])
    return model


def word_likelihoods(*pseudo: float) -> st.SearchStrategy[Bernoulli | Multinomial]:
    """Draw a likelihood of words that generates them."""
    counts = st.sampled_from(pseudo)
    return st.one_of(
        st.builds(Multinomial, st.builds(Dirichlet, counts)),
        st.builds(Bernoulli, st.builds(Beta, counts, counts)),
    )


@st.composite
def groups(draw: st.DrawFn, *pseudo: float, shared: bool = False) -> dict[str, Group]:
    """Draw groups over the fields of `streams`: one of them, or all together."""
    counts = st.sampled_from(pseudo)
    variance: Any = "shared" if shared else draw(st.sampled_from(["own", "shared"]))
    everything: dict[str, Group] = {
        "text": Words(draw(word_likelihoods(*pseudo))),
        "bag": Bag(draw(word_likelihoods(*pseudo)), field="bag"),
        "flags": Flags(Bernoulli(Beta(draw(counts), draw(counts))), fields=["reply", "link"]),
        "kinds": Categories(Categorical(Dirichlet(draw(counts))), fields=["income", "job"]),
        "numbers": Numbers(Gaussian(VarianceFloor(0.1), variance=variance), fields=["age"]),
    }
    if draw(st.booleans()):
        return everything
    name = draw(st.sampled_from(list(everything)))
    return {name: everything[name]}


def examples() -> st.SearchStrategy[dict[str, Any]]:
    """Draw an example; any field may be missing."""
    words = st.lists(st.sampled_from(WORDS), max_size=5)
    fields: dict[str, st.SearchStrategy[Any]] = {
        "text": words.map(" ".join),
        "bag": st.dictionaries(st.sampled_from(WORDS), st.integers(1, 3), max_size=3),
        "reply": st.booleans(),
        "link": st.booleans(),
        "income": st.sampled_from(["low", "mid", "high"]),
        "job": st.sampled_from(["yes", "no"]),
        "age": st.integers(-20, 20).map(float),
    }
    return st.fixed_dictionaries({name: st.none() | field for name, field in fields.items()})


def streams(min_size: int = 0, max_size: int = 25) -> st.SearchStrategy[Stream]:
    """Draw a stream of examples with their classes."""
    return st.lists(
        st.tuples(examples(), st.sampled_from(CLASSES)), min_size=min_size, max_size=max_size
    )


def mixed_model(n: int = 200, seed: int = 7) -> NaiveBayes:
    """Return a smoothed model of every kind of group that has learned a random stream."""
    rng = np.random.default_rng(seed)
    stream: Stream = []
    for _ in range(n):
        c = int(rng.integers(3))
        p = np.roll(np.array([8, 4, 2, 1, 1, 1, 1]) / 18, 2 * c)
        stream.append(
            (
                {
                    "text": " ".join(rng.choice(WORDS, rng.integers(0, 6), p=p)),
                    "bag": {str(w): 1 + c for w in rng.choice(WORDS, 2)},
                    "reply": bool(rng.random() < 0.2 + 0.3 * c),
                    "link": bool(rng.random() < 0.5),
                    "income": str(rng.choice(["low", "mid", "high"], p=[0.2, 0.5, 0.3])),
                    "job": str(rng.choice(["yes", "no"], p=[0.3 + 0.2 * c, 0.7 - 0.2 * c])),
                    "age": float(rng.normal(30 + 5 * c, 4)),
                },
                CLASSES[c],
            )
        )
    return learned(
        stream,
        {
            "text": Words(Multinomial()),
            "bag": Bag(Bernoulli(), field="bag"),
            "flags": Flags(fields=["reply", "link"]),
            "kinds": Categories(fields=["income", "job"]),
            "numbers": Numbers(Gaussian(NormalInverseGamma()), fields=["age"]),
        },
    )


def scale_of(values: Sequence[float]) -> float:
    """Return what an error is measured by: the largest finite value, at least 1."""
    return max([1.0, *(abs(v) for v in values if math.isfinite(v))])
