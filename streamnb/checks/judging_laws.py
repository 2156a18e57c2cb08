"""Laws of judging: what an answer depends on, and that asking changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamnb.checks.case import Broken, Case, DoesNotApply, Fields, teach
from streamnb.checks.comparing import must_answer_alike, must_know_alike
from streamnb.flags.spec import Flags
from streamnb.groups import Floats
from streamnb.model import NaiveBayes
from streamnb.priors import Fixed
from streamnb.snapshot import Snapshot
from streamnb.words.bag import Bag

_ROUNDING = 1e-9  # of the largest term, where many are added up in another order


def posteriors_are_probabilities(case: Case) -> None:
    """Posteriors add up to 1 and are never nan, whatever is asked, and however little is known."""
    odd: list[Fields] = [dict.fromkeys(x) for x in case.probes[:1]]
    odd += [_unheard_of(case, x) for x in case.probes[:5]]
    for model in (case.fresh(), case.learned(case.examples[:1]), case.learned()):
        for x in [*case.probes, *odd]:
            joint = [*model.joint_log_likelihood_one(x).values()]
            if np.isnan(joint).any() or np.isposinf(joint).any():
                raise Broken(f"of {dict(x)!r} the joint log-likelihoods are {joint}")
            log_posteriors = [*model.predict_log_proba_one(x).values()]
            total = float(np.exp(log_posteriors).sum())
            if np.isnan(log_posteriors).any() or (model.classes and abs(total - 1.0) > 1e-12):
                raise Broken(f"of {dict(x)!r} the posteriors add up to {total!r}: {log_posteriors}")


def _unheard_of(case: Case, x: Fields) -> Fields:
    """Return an example with numbers, words and values that nobody has seen."""
    bags = case.fields_of(Bag)
    other: dict[str, Any] = {}
    for name, value in x.items():
        if isinstance(value, bool) or name in bags:
            other[name] = value
        elif isinstance(value, str):
            other[name] = f"{value} never seen"
        elif isinstance(value, int | float):
            other[name] = -1e50
    return other


def untrained_answers_prior(case: Case) -> None:
    """A model that has learned nothing answers its class prior: α_c/Σα, or uniform without α."""
    model = case.fresh()
    if not model.classes:
        if model.predict_one({}) is not None:
            raise Broken("a model without classes names one")
        raise DoesNotApply("no class is declared")
    prior = model._class_prior  # noqa: SLF001 -- a law may look inside
    if isinstance(prior, Fixed):
        given = dict(prior.probabilities)
        expected = np.array([given[label] for label in model.classes])
    else:
        alphas = np.broadcast_to(np.asarray(prior.concentration, float), len(model.classes))
        expected = alphas / alphas.sum() if alphas.any() else np.ones(len(alphas)) / len(alphas)
    if abs(expected.sum() - 1.0) > 1e-9:
        raise DoesNotApply("the fixed probabilities name classes that are not declared")
    # A prior that differs by class may speak of any value, so of nothing alone there is no answer.
    differ = _differ_by_class(case)
    if differ and case.has_absent_flags:
        raise DoesNotApply("flags that count as false where they are missing speak of nothing")
    probes = [{}] if differ else case.probes
    for x in probes:
        said = [*model.predict_proba_one(x).values()]
        if not np.allclose(said, expected, rtol=0, atol=1e-12):
            raise Broken(f"of {dict(x)!r} it says {said}, and its prior is {expected.tolist()}")


def _differ_by_class(case: Case) -> bool:
    """Tell whether some group's prior has numbers for each class."""
    return any(_is_matrix(spec.to_dict()["likelihood"]) for spec in case.of(object))


def _is_matrix(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_is_matrix, value.values()))
    return isinstance(value, list) and any(isinstance(row, list) for row in value)


def missing_values_skip_their_field(case: Case) -> None:
    """A missing value (None, nan, no key) skips its field's factor and leaves the others alone."""
    model = case.learned()
    nothing = np.array([*model.joint_log_likelihood_one({}).values()])
    for x in case.probes[:8]:
        for name in x:
            rest = {other: value for other, value in x.items() if other != name}
            expected = model.joint_log_likelihood_one(rest)
            for missing in (None, float("nan")):
                said = model.joint_log_likelihood_one({**rest, name: missing})
                if said != expected:
                    raise Broken(f"{rest!r} and {name!r} being {missing} is {said}, not {expected}")
        units = _units(case, x)
        parts = [
            np.array([*model.joint_log_likelihood_one({n: x[n] for n in unit}).values()])
            for unit in units
        ]
        _must_add_up(model, x, nothing, parts)


def _units(case: Case, x: Fields) -> list[list[str]]:
    """Return the fields that speak one by one; those that are words of one bag speak together."""
    together: set[str] = set()
    for spec in case.of(Bag):
        if spec.field is None:
            together |= case.fields_of(Bag)
    rest = [[name] for name in x if name not in together]
    bag = [name for name in x if name in together]
    return [*rest, bag] if bag else rest


def _must_add_up(model: NaiveBayes, x: Fields, nothing: Floats, parts: Sequence[Floats]) -> None:
    """Hold an example's joint log-likelihood to the sum of what its fields say one by one."""
    said = np.array([*model.joint_log_likelihood_one(x).values()])
    for c, base in enumerate(nothing):
        if not np.isfinite(base):
            continue  # an impossible class: how much more impossible cannot be told
        terms = [part[c] - base for part in parts]
        total = base + sum(terms)
        size = max([1.0, abs(base), *(abs(term) for term in terms if np.isfinite(term))])
        if said[c] != total and not abs(said[c] - total) <= _ROUNDING * size:
            raise Broken(
                f"{dict(x)!r} in class {model.classes[c]!r} is {said[c]!r}, and its fields one by"
                f" one add up to {total!r}"
            )


def groups_are_independent(case: Case) -> None:
    """What one group's fields hold is nothing to what the other groups learn and answer."""
    states = case.untrained._groups  # noqa: SLF001 -- a law may look inside
    if len(states) < 2 or any(state.is_open for state in states.values()):
        raise DoesNotApply("there is one group alone, or one that takes any field")
    whole = case.learned()
    for state in states.values():
        if isinstance(state.spec, Flags) and state.spec.absent_is_false:
            continue  # where its fields are missing it still speaks
        own = set(state.fields)
        blanked = [
            replace(each, x={n: v for n, v in each.x.items() if n not in own})
            for each in case.examples
        ]
        probes = [{n: v for n, v in x.items() if n not in own} for x in case.probes]
        must_answer_alike(case.learned(blanked), whole, probes)


def asking_changes_nothing(case: Case) -> None:
    """Whatever is asked, one example at a time or many, the model's bytes stay what they were."""
    model = case.learned()
    before = model.to_bytes()
    for x in case.probes:
        model.predict_one(x)
        model.predict_proba_one(_unheard_of(case, x))
    if case.examples:
        model.predict_many(case.columns(case.examples))
        model.answered_by_prior(case.columns(case.examples))
    model.class_priors()
    if model.to_bytes() != before:
        raise Broken("the model's bytes have changed")


def snapshots_never_change(case: Case) -> None:
    """A snapshot answers as the model did when it was taken, whatever the model learns since."""
    half = len(case.examples) // 2
    model, twin = case.learned(case.examples[:half]), case.learned(case.examples[:half])
    snapshot = Snapshot(model, version=1)
    must_answer_alike(snapshot, twin, case.probes)
    teach(model, case.examples[half:])
    case.teach_at_once(model, case.examples)
    must_answer_alike(snapshot, twin, case.probes)
    must_know_alike(snapshot, twin)
