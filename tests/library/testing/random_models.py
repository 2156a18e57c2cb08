"""What Hypothesis draws for the laws of any configured model: its settings, and a stream for it.

Each kind of group comes named or open, with every family and prior; classes are declared or come as
they please; weights are whole or not; a model forgets or does not.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Categorical,
    Categories,
    Complement,
    Dirichlet,
    Fixed,
    Flags,
    Gaussian,
    HalfLife,
    Hybrid,
    Multinomial,
    NaiveBayes,
    NormalInverseGamma,
    Numbers,
    VarianceFloor,
    Words,
)
from streamnb.features.protocol import Group
from streamnb.priors import ClassPrior
from streamnb.testing import Case, Example

CLASSES = ("ham", "spam", "eggs")
WORDS = ("good", "bad", "rain", "not", "über", "日本", "👍🏽", ":)", "a", "b")
KINDS = ("text", "bag", "numbers", "kinds", "flags")


@dataclass(frozen=True)
class Wanted:
    """What a law can speak of.

    Attributes
    ----------
    decays : str
        Of "n" (never), "e" (by examples), "s" (by seconds): what to draw from.
    is_declared : bool
        All classes are declared.
    is_bounded : bool
        Features may leave because a group is full.
    is_named : bool
        Every group names its fields, and there are at least two.
    """

    decays: str = "nnnes"
    is_declared: bool = False
    is_bounded: bool = True
    is_named: bool = False


_alphas = st.sampled_from([1e-9, 0.3, 1.0, 2.5])
_zeros = st.just(0.0) | _alphas
_hybrids = st.none() | st.builds(
    Hybrid,
    smoothing=st.sampled_from([0.5, 2.5]),
    shrinkage=st.sampled_from([0.1, 2.0]),
    half_life=st.sampled_from([3.0, 700.0]),
)


def _by_class(numbers: st.SearchStrategy[Any], declared: bool) -> st.SearchStrategy[Any]:
    """Draw a prior's number, or where all classes are declared a row of one a class."""
    if not declared:
        return numbers
    return numbers | st.lists(numbers, min_size=3, max_size=3).map(lambda row: [row])


@functools.cache  # making a strategy costs more than drawing from it
def _words(declared: bool, forgets: bool) -> st.SearchStrategy[Any]:
    normalise = st.just(False) if forgets else st.booleans()
    return st.one_of(
        st.builds(Bernoulli, st.builds(Beta, *[_by_class(_zeros, declared)] * 2)),
        st.builds(Multinomial, st.builds(Dirichlet, _by_class(_zeros, declared))),
        st.builds(Complement, st.builds(Dirichlet, _by_class(_alphas, declared)), normalise),
    )


@functools.cache
def _gaussians(declared: bool) -> st.SearchStrategy[Gaussian]:
    nig = st.builds(
        NormalInverseGamma,
        mean=st.none() | _by_class(st.sampled_from([0.0, -3.0]), declared),
        kappa=_by_class(st.sampled_from([0.1, 2.0]), declared),
        alpha=st.sampled_from([0.5, 1.0, 3.0]),
        beta=st.none() | st.sampled_from([0.5, 4.0]),
    )
    floors = st.builds(VarianceFloor, st.sampled_from([0.0, 1e-9, 1e-2]))
    return st.builds(Gaussian, floors | nig, st.sampled_from(["own", "shared"]))


@st.composite
def _groups(draw: st.DrawFn, wanted: Wanted, *, declared: bool, forgets: bool) -> dict[str, Group]:
    """Draw some groups, in any order."""
    bound = draw(st.sampled_from([3, 8, 1000])) if wanted.is_bounded else 1000
    dictionary = st.none() | st.just(WORDS[:6])
    words = _words(declared, forgets)
    is_open = st.just(False) if wanted.is_named else st.booleans()
    kinds = draw(
        st.lists(
            st.sampled_from(KINDS), min_size=1 + wanted.is_named, max_size=len(KINDS), unique=True
        )
    )
    bag_is = draw(st.sampled_from(["field", "fields", *([] if wanted.is_named else ["open"])]))
    made: dict[str, Group] = {}
    for kind in kinds:
        likelihood = draw(words)
        hybrid = draw(_hybrids) if isinstance(likelihood, Multinomial) else None
        if kind == "text":
            made[kind] = Words(
                likelihood,
                hybrid=hybrid,
                ngrams=draw(st.sampled_from([(1, 1), (1, 2)])),
                negation=draw(st.booleans()),
                counts=draw(st.sampled_from([None, "presence"])),
                dictionary=draw(dictionary),
                max_words=bound,
            )
        elif kind == "bag":
            named = {"field": "bag"} if bag_is == "field" else {"fields": ("apple", "pear", "fig")}
            made[kind] = Bag(
                likelihood,
                hybrid=hybrid,
                dictionary=draw(dictionary),
                max_words=bound,
                **({} if bag_is == "open" else named),
            )
        elif kind == "numbers":
            # An open bag would take the numbers, and refuse those below zero.
            open_here = draw(is_open) and not ("bag" in kinds and bag_is == "open")
            made[kind] = Numbers(draw(_gaussians(declared)), None if open_here else ("x", "y", "z"))
        elif kind == "kinds":
            values = draw(st.none() | st.just({"job": ("yes", "no", "日本")}))
            made[kind] = Categories(
                Categorical(Dirichlet(draw(_by_class(_zeros, declared)))),
                None if draw(is_open) else ("job", "colour"),
                values,
                bound,
            )
        else:
            made[kind] = Flags(
                Bernoulli(Beta(*(draw(_by_class(_zeros, declared)) for _ in range(2)))),
                None if draw(is_open) else ("reply", "link"),
                draw(st.booleans()),
            )
    return made


# Values to choose from: that is cheaper than to draw them part by part, and there are few enough
# that they meet again.
_NOTHING = object()  # the key is not there
_COUNTS = [0, 1, 2, 4]
_TEXTS = [
    "",
    "good",
    "bad rain",
    "good good bad",
    "not good :)",
    "über 日本 👍🏽 a b",
    "a b a",
    "b",
]
_BAGS = [
    {},
    {"good": 1},
    {"bad": 2, "rain": 1},
    {"a": 3, "good": 0, "über": 1},
    {"日本": 4, "b": 1},
]
_NUMBERS = [0, 1, -5, 3.25, 0.1, -17.002, 9876.543, 1e-3, 1e6 + 0.5, -1e30, float("nan")]


def _fields(groups: dict[str, Group]) -> dict[str, list[Any]]:
    """Return what the values are, by field that the groups read or take up."""
    values: dict[str, list[Any]] = {}
    for kind, spec in groups.items():
        if kind == "text":
            values["text"] = _TEXTS
        elif isinstance(spec, Bag) and spec.field:
            values["bag"] = _BAGS
        elif kind == "bag":
            values |= dict.fromkeys(("apple", "pear", "fig"), _COUNTS)
        elif kind == "numbers":
            values |= dict.fromkeys(("x", "y", "z"), _NUMBERS)
        elif kind == "kinds":
            values["job"] = ["yes", "no", "日本", "maybe", ""]
            values["colour"] = ["red", "green", "1", "日本"]
        else:
            values |= {name: [True, False] for name in ("reply", "link")}
    return values


@st.composite
def _streams(
    draw: st.DrawFn, groups: dict[str, Group], labels: tuple[str, ...], decay: HalfLife | None
) -> list[Example]:
    fields = {n: st.sampled_from([*v, None, _NOTHING]) for n, v in _fields(groups).items()}
    whole = st.sampled_from([1.0, 1.0, 1.0, 2.0, 3.0, 1000.0, 0.0])
    weights = draw(st.sampled_from([whole, st.sampled_from([0.1, 0.25, 1.0, 1 / 3, 2.7])]))
    times: st.SearchStrategy[Any] = st.none()
    if decay is not None and decay.seconds is not None:
        span = draw(st.sampled_from([10.0, 10.0, 18.0, 3000.0])) * decay.seconds
        times = st.floats(0.0, 1.0).map(lambda t: 1e9 + span * round(t, 6))
    example = st.builds(
        Example,
        x=st.fixed_dictionaries(fields).map(_without_nothing),
        y=st.sampled_from(labels),
        weight=weights,
        time_s=times,
    )
    return draw(st.lists(example, max_size=9))


def _without_nothing(x: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in x.items() if value is not _NOTHING}


@st.composite
def cases(draw: st.DrawFn, wanted: Wanted) -> Case:
    """Draw a model as somebody could configure it, and a stream that it can learn."""
    declared = wanted.is_declared or draw(st.booleans())
    classes = CLASSES if declared else draw(st.sampled_from([(), ("spam",)]))
    decay = {
        "n": None,
        "e": HalfLife(examples=draw(st.sampled_from([0.05, 2.0, 30.0]))),
        "s": HalfLife(seconds=draw(st.sampled_from([0.5, 60.0]))),
    }[draw(st.sampled_from(wanted.decays))]
    priors: list[ClassPrior] = [Dirichlet(draw(_zeros))]
    if declared:
        priors += [Dirichlet([0.5, 2, 1]), Fixed({"ham": 0.5, "spam": 0.5, "eggs": 0.0})]
    groups = draw(_groups(wanted, declared=declared, forgets=decay is not None))
    prior = draw(st.sampled_from(priors))
    of_prior = st.sampled_from([None, None, 1.5, 700.0])
    model = NaiveBayes(
        classes,
        prior,
        groups,
        decay=decay,
        hash_key=5,
        n_threads=draw(st.sampled_from([1, 1, 1, 2])),
        new_classes=not declared or draw(st.booleans()),
        prior_half_life=None if isinstance(prior, Fixed) else draw(of_prior),
    )
    stream = draw(_streams(groups, CLASSES, decay))
    return Case(model, stream, draw(st.integers(0, 1000)))
