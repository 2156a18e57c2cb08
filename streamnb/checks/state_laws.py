"""Laws of what a state can do: be saved, merged, taken apart again, kept in parts, and forget."""

from __future__ import annotations

import copy
import math
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from streamnb import store
from streamnb.checks.case import LIVES_TOLD, Broken, Case, DoesNotApply, Example, teach
from streamnb.checks.comparing import must_answer_alike, must_be_same, must_know_alike
from streamnb.checks.learning_laws import dropped, must_agree
from streamnb.model import NaiveBayes

_LIVES_MAX = 20.0  # what is older is less than rounding beside what is new


def saved_and_loaded_is_same(case: Case) -> None:
    """Saved and loaded, as bytes, file, pickle or copy, a model is the same and learns on alike."""
    half = len(case.examples) // 2
    model = case.learned(case.examples[:half])
    twins = {way: make(model) for way, make in _WAYS.items()}
    before = model.to_bytes()
    for way, twin in twins.items():
        if twin.to_bytes() != before:
            raise Broken(f"by {way} the bytes are not the same")
        _must_be_by(way, twin, model, case)
    teach(model, case.examples[half:])
    for way, twin in twins.items():
        _must_be_by(
            f"{way}, and having learned on,", teach(twin, case.examples[half:]), model, case
        )


def _must_be_by(way: str, twin: NaiveBayes, model: NaiveBayes, case: Case) -> None:
    try:
        must_be_same(twin, model, case.probes)
    except Broken as broken:
        raise Broken(f"by {way} {broken}") from None


def _through_file(model: NaiveBayes) -> NaiveBayes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.nb"
        store.save(model, path)
        return store.load(path)


_WAYS: dict[str, Callable[[NaiveBayes], NaiveBayes]] = {
    "bytes": lambda model: type(model).from_bytes(model.to_bytes()),
    "a file": _through_file,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),  # noqa: S301 -- our own
    "a deep copy": copy.deepcopy,
    "a clone": lambda model: model.clone(),
}


def merging_has_no_order(case: Case) -> None:
    """Streams learned apart and merged, in any order and grouping, are the stream learned whole."""
    _refuse_half_life_in_examples(case)
    whole = case.learned()
    a, b, c = (case.learned(stream) for stream in case.shared_out(3))
    if dropped(whole):
        raise DoesNotApply("features have left, and which ones depends on the order")
    before = [model.to_bytes() for model in (a, b, c)]
    for merged in ((a + b) + c, c + (b + a), b + (c + a)):
        must_agree(case, merged, whole)
        # What is too old to weigh anything is learned by a model that knows nothing newer.
        if merged.n_examples != whole.n_examples and case.lives < LIVES_TOLD:
            raise Broken(f"{merged.n_examples} examples are learned, not {whole.n_examples}")
    if [model.to_bytes() for model in (a, b, c)] != before:
        raise Broken("merging has changed a model that was merged")


def subtracting_undoes_merging(case: Case) -> None:
    """(a + b) − b is a: counts bit for bit, moments to rounding."""
    _refuse_half_life_in_examples(case)
    _refuse_old(case)
    # Time passes all the same: what happened last stays, so that both are read at one time.
    streams = sorted(case.shared_out(2), key=_latest)
    b, a = (case.learned(stream) for stream in streams)
    both = a + b
    if dropped(both):
        raise DoesNotApply("features have left")
    rest = both - b
    if case.is_exact and rest.classes != a.classes:
        raise Broken(f"the classes are {rest.classes!r}, not {a.classes!r}")
    must_agree(case, rest, a, both)


def unlearned_is_never_learned(case: Case) -> None:
    """Examples taken back in any order leave no trace: counts, V and answers are as before."""
    _refuse_half_life_in_examples(case)
    _refuse_old(case)
    half = len(case.examples) // 2
    kept, extra = list(case.examples[:half]), list(case.examples[half:])
    if case.half_life is not None and extra:
        # As above.
        last = max(extra, key=lambda each: (each.weight > 0.0, each.time_s or 0.0))
        kept.append(last)
        extra.remove(last)
    model = teach(case.learned(kept), extra)
    if dropped(model):
        raise DoesNotApply("features have left")
    expected, whole = case.learned(kept), model.clone()
    for i in case.rng().permutation(len(extra)).tolist():
        each = extra[i]
        if each.weight:
            model.unlearn_one(each.x, each.y, weight=each.weight, time_s=each.time_s)
    if case.is_exact and model.classes != expected.classes:
        raise Broken(f"the classes are {model.classes!r}, not {expected.classes!r}")
    if model.n_examples != expected.n_examples:
        raise Broken(f"{model.n_examples} examples are left, not {expected.n_examples}")
    must_agree(case, model, expected, whole)


def parts_add_up(case: Case) -> None:
    """A model kept in parts is their sum, and a file brings back each of them, bit for bit.

    Of what is not counted in whole numbers the sum itself comes back to rounding: it is formed in
    another order.
    """
    _refuse_half_life_in_examples(case)
    whole, parted = case.learned(), case.fresh()
    places = case.rng().integers(0, 3, len(case.examples)).tolist()
    for each, place in zip(case.examples, places, strict=True):
        parted.learn_one(
            each.x, each.y, weight=each.weight, time_s=each.time_s, part=f"part {place}"
        )
    if dropped(whole) or dropped(parted):
        raise DoesNotApply("features have left, and each part has a bound of its own")
    must_agree(case, parted, whole)
    if parted.classes != whole.classes:
        raise Broken(f"the classes are {parted.classes!r}, not {whole.classes!r}")
    twin = type(parted).from_bytes(parted.to_bytes())
    if twin.to_bytes() != parted.to_bytes() or [*twin.parts] != [*parted.parts]:
        raise Broken("by bytes its parts are not the same")
    must_agree(case, twin, parted)


def decay_is_the_plain_formula(case: Case) -> None:
    """Under a half-life h an example of age a counts 2^(−a/h), as if it had that weight."""
    if case.half_life is None:
        raise DoesNotApply("the model has no half-life")
    if case.lives >= LIVES_TOLD:
        raise DoesNotApply("examples are so old that no plain weight is as small as theirs")
    model, plain = case.learned(), case.fresh(forgets=False)
    taught = [each for each in case.examples if each.weight]
    times = [float(i) if e.time_s is None else e.time_s for i, e in enumerate(taught)]
    now = max(times, default=0.0)
    ages = (now - np.array(times)) / case.half_life.length
    for each, weight in zip(taught, np.exp2(-ages).tolist(), strict=True):
        plain.learn_one(each.x, each.y, weight=each.weight * weight)
    if dropped(model) or dropped(plain):
        raise DoesNotApply("features have left, and which ones depends on when")
    # A weight is exact to what float64 holds of a time, in half-lives.
    within = max(1e-9, 2e-15 * abs(now) / case.half_life.length)
    must_know_alike(model, plain, within=within, sizes=case.sizes)
    must_answer_alike(model, plain, case.wordy_probes, within=within)


def _latest(stream: list[Example]) -> float:
    """Return when a stream's last example was; 0 where they have no times."""
    return max((each.time_s or 0.0 for each in stream if each.weight), default=-math.inf)


def _refuse_half_life_in_examples(case: Case) -> None:
    if case.half_life is not None and case.half_life.examples is not None:
        raise DoesNotApply("what a half-life in examples has left depends on all that came since")


def _refuse_old(case: Case) -> None:
    if case.lives > _LIVES_MAX:
        raise DoesNotApply(f"examples lie more than {_LIVES_MAX:g} half-lives apart")
