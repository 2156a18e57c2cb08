"""Laws of what is handed in: it is left alone, a new class joins, and what is wrong is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streamnb.categories.spec import Categories
from streamnb.checks.case import Broken, Case, DoesNotApply, teach
from streamnb.checks.comparing import must_be_same
from streamnb.errors import InputError
from streamnb.flags.spec import Flags
from streamnb.model import NaiveBayes
from streamnb.numbers.spec import Numbers
from streamnb.words.bag import Bag
from streamnb.words.text import Words


def input_is_left_alone(case: Case) -> None:
    """Learning and judging change nothing that the caller handed in."""
    model = case.fresh()
    for each in case.examples:
        kept = copy.deepcopy(dict(each.x))
        teach(model, [each])
        model.predict_proba_one(each.x)
        _must_be_untouched(dict(each.x), kept)
    columns = {
        name: np.array(values) if {type(v) for v in values} <= {int, float} else values
        for name, values in case.columns(case.examples).items()
    }
    labels, weights = [e.y for e in case.examples], np.array([e.weight for e in case.examples])
    times = (
        None
        if any(e.time_s is None for e in case.examples)
        else [float(e.time_s or 0.0) for e in case.examples]
    )
    given = (columns, labels, weights, times)
    kept_all = copy.deepcopy(given)
    case.fresh().learn_many(columns, labels, weights=weights, times_s=times)
    if case.examples:
        model.predict_log_proba_many(columns)
    _must_be_untouched(given, kept_all)


def _must_be_untouched(given: Any, kept: Any) -> None:
    # As text: nan differs from itself, and an array's repr holds all of so short a one.
    if repr(given) != repr(kept):
        raise Broken(f"{kept!r} was handed in, and has become {given!r}")


def new_classes_join(case: Case) -> None:
    """A class that comes anew joins behind the others, or is refused and nothing has changed."""
    model, label = case.learned(), "a class that nobody knows"
    if not case.examples:
        raise DoesNotApply("there is no example")
    before, classes = model.to_bytes(), model.classes
    counts = model.class_counts * model._clock.scale  # noqa: SLF001 -- time passes with an example
    example = replace(case.examples[-1], y=label, weight=1.0)
    try:
        teach(model, [example])
    except InputError:
        if model.to_bytes() != before:
            raise Broken("a refused class has changed the model") from None
        return
    if model.classes != (*classes, label):
        raise Broken(f"after {classes!r} and a new {label!r} the classes are {model.classes!r}")
    held = model.class_counts * model._clock.scale  # noqa: SLF001
    if case.half_life is None and held.tolist() != [*counts.tolist(), 1.0]:
        raise Broken(f"the class counts were {counts.tolist()} and are {held.tolist()}")
    if set(model.predict_proba_one(example.x)) != set(model.classes):
        raise Broken("not every class has a probability")


def bad_input_changes_nothing(case: Case) -> None:
    """What cannot be used is refused as an `InputError`; bytes and answers stay what they were."""
    model = case.learned()
    if not case.examples:
        raise DoesNotApply("there is no example")
    before, twin = model.to_bytes(), model.clone()
    for what, attempt in _attempts(case, model).items():
        try:
            attempt()
        except InputError:
            if model.to_bytes() != before:
                raise Broken(f"{what} was refused, and has changed the model") from None
        else:
            raise Broken(f"{what} was not refused")
    # Not in the bytes alone: what memory holds beyond them must not show in an answer.
    must_be_same(model, twin, case.probes)


def _attempts(case: Case, model: NaiveBayes) -> dict[str, Callable[[], None]]:
    """Return what a model must refuse, by what is wrong with it.

    Each fault comes once in a single example, and once in the last row of a batch of which all else
    could be learned.
    """
    good = case.examples[-1]
    x, y, time_s = dict(good.x), good.y, good.time_s
    columns, labels = case.columns(case.examples), [each.y for each in case.examples]
    times_s = None if time_s is None else [time_s] * len(labels)
    ones = [1.0] * len(labels)

    def one(x: Any, y: Any = y, weight: Any = 1.0) -> Callable[[], None]:
        return lambda: model.learn_one(x, y, weight=weight, time_s=time_s)

    def many(columns: Any, labels: Any = labels, weights: Any = None) -> Callable[[], None]:
        return lambda: model.learn_many(columns, labels, weights=weights, times_s=times_s)

    attempts = {
        "an example that is no mapping": one([1, 2]),
        "a label too many": many(columns, [*labels, y]),
        "a weight too many": many(columns, labels, [*ones, 1.0]),
    }
    for name, values in _bad_values(model).items():
        others = columns.get(name, [None] * len(labels))[:-1]
        for bad in values:
            attempts[f"{name!r} being {bad!r}"] = one({**x, name: bad})
            attempts[f"{name!r} being {bad!r} in a batch"] = many({**columns, name: [*others, bad]})
    for bad in (None, 1.5, b"bytes", ("a", "pair")):
        attempts[f"the label {bad!r}"] = one(x, bad)
        attempts[f"the label {bad!r} in a batch"] = many(columns, [*labels[:-1], bad])
    for bad in (-1.0, float("nan"), float("inf"), "1", None):
        attempts[f"the weight {bad!r}"] = one(x, y, bad)
        attempts[f"the weight {bad!r} in a batch"] = many(columns, labels, [*ones[:-1], bad])
    attempts["taking back a class that nobody knows"] = lambda: model.unlearn_one(
        x, "a class that nobody knows", time_s=time_s
    )
    return attempts


def _bad_values(model: NaiveBayes) -> dict[str, list[Any]]:
    """Return values that cannot be used, by field; an open group's fields are those it knows."""
    bad: dict[str, list[Any]] = {}
    for state in model._groups.values():  # noqa: SLF001
        spec = state.spec
        kinds: dict[type, list[Any]] = {
            Words: [7, b"bytes", ["a list"]],
            Numbers: ["seven", float("inf"), 10**400, 1j, True],
            Flags: [2, "yes", object()],
            Categories: [1j, ["a list"], object()],
            Bag: [-1, float("inf"), "x"],
        }
        if isinstance(spec, Bag) and spec.field is not None:
            kinds[Bag] = [{"a": -1}, {"a": float("inf")}, {"a": "x"}, 7, "text"]
        found = next((values for kind, values in kinds.items() if isinstance(spec, kind)), None)
        if found is not None and state.fields:
            bad[state.fields[0]] = found
    return bad
