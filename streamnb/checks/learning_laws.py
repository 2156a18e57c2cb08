"""Laws of learning: what an example teaches, however it comes, and what teaches nothing.

Each takes a `Case` and raises `Broken` where it does not hold. The first sentence says the law.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from streamnb.checks.case import LIVES_TOLD, Broken, Case, DoesNotApply, teach, with_weights
from streamnb.checks.comparing import must_answer_alike, must_be_same, must_know_alike
from streamnb.model import NaiveBayes

_ROUNDING = 1e-9
_ROUNDED_VARIANCES = 1e-6  # a variance may be small beside the one that its rounding came from


def batches_are_single_examples(case: Case) -> None:
    """However a stream is cut into batches, the model is the one that single examples make."""
    single = case.learned()
    cuts = case.rng().integers(0, len(case.examples) + 1, 3).tolist()
    for bounds in ([0, len(case.examples)], sorted([0, *cuts, len(case.examples)])):
        model = case.fresh()
        for begin, end in pairwise(bounds):
            case.teach_at_once(model, case.examples[begin:end])
        must_be_same(model, single, case.probes)
        if not dropped(single) and model.to_bytes() != single.to_bytes():
            raise Broken(f"cut at {bounds}, it knows the same and its bytes differ")


def judged_before_learned(case: Case) -> None:
    """What a batch answers is what the model said of each example just before it learned it."""
    returned = case.teach_at_once(case.fresh(), case.examples)
    model = case.fresh()
    for each, row in zip(case.examples, returned, strict=True):
        said = [*model.predict_log_proba_one(each.x).values()]
        if said != row[: len(said)].tolist() or not np.isneginf(row[len(said) :]).all():
            raise Broken(f"of {dict(each.x)!r} the batch says {row.tolist()}, the model {said}")
        teach(model, [each])


def weights_repeat(case: Case) -> None:
    """An example of weight 3 teaches what three such examples teach."""
    if case.half_life is not None and case.half_life.examples is not None:
        raise DoesNotApply("a half-life in examples passes with each repetition")
    weights = case.rng().integers(1, 4, len(case.examples)).astype(float).tolist()
    weighted = with_weights(case.examples, weights)
    case = replace(case, examples=weighted)
    once = case.learned()
    ones = [replace(each, weight=1.0) for each in weighted for _ in range(int(each.weight))]
    repeated = case.learned(ones)
    if dropped(once) or dropped(repeated):
        raise DoesNotApply("features have left, and which ones depends on when")
    must_agree(case, once, repeated)


def weight_zero_teaches_nothing(case: Case) -> None:
    """An example of weight 0 leaves the model's bytes as they were, whatever it brings."""
    model = case.learned()
    before = model.to_bytes()
    nothing = [*with_weights(case.examples, [0.0] * len(case.examples))]
    nothing += [replace(each, y="a class that nobody knows") for each in nothing[:1]]
    teach(model, nothing)
    if model.to_bytes() != before:
        raise Broken("examples of weight 0, one at a time, have changed the model")
    if nothing:
        case.teach_at_once(model, nothing)
    if model.to_bytes() != before:
        raise Broken("examples of weight 0 in a batch have changed the model")


def fields_have_no_order(case: Case) -> None:
    """In which order an example's fields stand is not to be seen, to the last bit."""
    rng = case.rng()
    shuffled = []
    for each in case.examples:
        names = list(each.x)
        rng.shuffle(names)
        shuffled.append(replace(each, x={name: each.x[name] for name in names}))
    one, other = case.learned(), case.learned(shuffled)
    must_be_same(other, one, case.probes)
    for each, moved in zip(case.examples, shuffled, strict=True):
        if one.joint_log_likelihood_one(each.x) != one.joint_log_likelihood_one(moved.x):
            raise Broken(f"{dict(each.x)!r} and {dict(moved.x)!r} have different answers")


def dropped(model: NaiveBayes) -> bool:
    """Tell whether features have left because a group was full."""
    return any(state.n_dropped for state in model._groups.values())  # noqa: SLF001


def must_agree(
    case: Case, found: NaiveBayes, expected: NaiveBayes, peak: NaiveBayes | None = None
) -> None:
    """Hold together models that learned the same otherwise.

    Whole counts and what follows from them must be equal bit for bit, all else to rounding.

    Parameters
    ----------
    case : Case
    found, expected : NaiveBayes
    peak : NaiveBayes, optional
        Where something was taken away: the model as it was before.
    """
    within = 0.0 if case.is_exact else _ROUNDING
    must_know_alike(found, expected, peak, within=within, sizes=case.sizes)
    # What rounding left of the largest weights may hide the smallest; and what has aged out of all
    # sight is told from nothing by one way of counting, and not by another.
    if case.lives > LIVES_TOLD or (peak is not None and not case.is_exact):
        return
    must_answer_alike(found, expected, case.wordy_probes, within=within)
    if case.has_spread(expected):
        must_answer_alike(found, expected, case.probes, within=_ROUNDED_VARIANCES)
