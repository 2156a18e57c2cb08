"""Examples made up from a model's own specification: values of each kind that its groups read.

Words are few, so that they repeat; numbers come at several scales; anything may be missing; classes
come that nobody declared, where the model takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamnb.categories.spec import Categories
from streamnb.checks.case import Example
from streamnb.errors import InputError
from streamnb.flags.spec import Flags
from streamnb.groups import GroupState
from streamnb.labels import Label
from streamnb.model import NaiveBayes
from streamnb.numbers.spec import Numbers
from streamnb.words.bag import Bag
from streamnb.words.text import Words

Rng = np.random.Generator
Maker = Callable[[Rng], Any]

_WORDS = ["good", "bad", "rain", "not", "über", "Straße", "日本", "👍🏽", ":)", "#tag", "it's", "o"]
_VALUES = ["red", "green", "blue", "größer", "日本", "", "1"]
_CENTRES = [0.0, 1e-3, 5.0, -40.0, 1e6]
_MISSING = 0.15
_NAMES = ("first", "second", "third")  # of fields that nobody named


def examples_for(model: NaiveBayes, n: int, seed: int) -> list[Example]:
    """Return examples that a model can learn.

    Parameters
    ----------
    model : NaiveBayes
        One that has learned nothing; it stays so.
    n : int
        How many.
    seed : int

    Returns
    -------
    list of Example
        With times where the model's half-life is in seconds.
    """
    rng = np.random.default_rng(seed)
    makers = _makers(model)
    labels = _labels(model)
    half_life = model._clock.half_life  # noqa: SLF001 -- a check may look inside
    step_s = None if half_life is None or half_life.seconds is None else half_life.seconds / 4
    made = []
    for i in range(n):
        x = {name: make(rng) for name, make in makers.items()}
        for name in makers:
            if rng.random() < _MISSING:
                x[name] = None
                if rng.random() < 0.5:
                    del x[name]
        time_s = None if step_s is None else step_s * (i + float(rng.integers(-3, 4)))
        weight = float(rng.choice([1, 1, 1, 2, 3]))
        made.append(Example(x, labels[int(rng.integers(len(labels)))], weight, time_s))
    return made


def _labels(model: NaiveBayes) -> list[Label]:
    """Return the declared classes, and more where the model takes more."""
    if model._is_closed:  # noqa: SLF001 -- a check may look inside
        return list(model.classes)
    more: list[Label] = ["this", "that", 3]
    try:
        trial = model.clone()
        for label in more:
            trial.add_class(label)
    except InputError:
        more = []  # a prior names its classes, so there are no others
    return [*model.classes, *(label for label in more if label not in model.classes)]


def _makers(model: NaiveBayes) -> dict[str, Maker]:
    """Return what makes a value, by field."""
    states = model._groups.values()  # noqa: SLF001
    makers: dict[str, Maker] = {}
    for i, state in enumerate(states):
        # An open bag takes every number, so there is none left for other open groups.
        taken = any(isinstance(other.spec, Bag) and other.is_open for other in [*states][:i])
        if state.is_open and taken:
            continue
        for name in state.fields or [f"{word} of {state.name}" for word in _NAMES]:
            makers[name] = _maker(state, name, len(makers))
    return makers


def _maker(state: GroupState, field: str, at: int) -> Maker:
    """Return what makes values of one field."""
    spec = state.spec
    if isinstance(spec, Words):
        words = [*(spec.dictionary or ())[:8], *_WORDS]
        return lambda rng: " ".join(_some(rng, words))
    if isinstance(spec, Bag):
        if spec.field is None:
            return lambda rng: int(rng.integers(0, 4))
        words = [*(spec.dictionary or ())[:8], *_WORDS]
        return lambda rng: {word: int(rng.integers(0, 4)) for word in _some(rng, words)}
    if isinstance(spec, Categories):
        declared = dict(spec.values).get(field, ())
        values = [*declared, "another"] if declared else _VALUES
        return lambda rng: values[int(rng.integers(len(values)))]
    if isinstance(spec, Flags):
        return lambda rng: bool(rng.random() < 0.4)
    if isinstance(spec, Numbers):
        return lambda rng: _number(rng, _CENTRES[at % len(_CENTRES)])
    raise InputError(
        f"group {state.name!r}: nobody here knows what {type(spec).__name__} reads. Give examples."
    )


def _some(rng: Rng, words: list[str]) -> list[str]:
    return [words[int(i)] for i in rng.integers(0, len(words), rng.integers(0, 6))]


def _number(rng: Rng, centre: float) -> Any:
    """Return a number near a centre, a whole one now and then, or nan."""
    value = centre + float(rng.normal()) * max(abs(centre) / 100, 1e-3)
    return [value, value, value, round(value), float("nan")][int(rng.integers(5))]
