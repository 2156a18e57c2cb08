"""The laws of a model, by theme: its input, its answers, the order of examples, merging and time.

A law takes a `Case` and raises `Broken` if the model breaks it, or `DoesNotApply` if it says
nothing about such a model. The first line of its docstring is the law.
"""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from streamnb import storage as store
from streamnb.errors import InputError
from streamnb.features.bag import Bag
from streamnb.features.categorical import Categories
from streamnb.features.flags import Flags
from streamnb.features.numeric import Numbers
from streamnb.features.words import Words
from streamnb.model import NaiveBayes
from streamnb.priors import Fixed
from streamnb.serving.publisher import Snapshot
from streamnb.testing.cases import (
    LIVES_TOLD,
    Broken,
    Case,
    DoesNotApply,
    ExampleFields,
    dropped,
    latest_time,
    must_add_up,
    must_agree,
    must_answer_alike,
    must_be_same,
    must_be_untouched,
    must_know_alike,
    of_all_examples,
    teach,
    times_of,
    with_weights,
)

_LIVES_MAX = 20.0  # half-lives: what is older is less than rounding beside what is new


# ---- input -------------------------------------------------------------------------------------


def input_is_left_alone(case: Case) -> None:
    """Learning and judging change nothing that the caller handed in."""
    model = case.fresh()
    for each in case.examples:
        kept = copy.deepcopy(dict(each.x))
        teach(model, [each])
        model.predict_proba_one(each.x)
        must_be_untouched(dict(each.x), kept)
    columns = {
        name: np.array(values) if {type(v) for v in values} <= {int, float} else values
        for name, values in case.columns(case.examples).items()
    }
    labels, weights = [e.y for e in case.examples], np.array([e.weight for e in case.examples])
    times = times_of(case.examples)
    given = (columns, labels, weights, times)
    kept_all = copy.deepcopy(given)
    case.fresh().learn_many(columns, labels, weights=weights, times_s=times)
    if case.examples:
        model.predict_log_proba_many(columns)
    must_be_untouched(given, kept_all)


def new_classes_join(case: Case) -> None:
    """A new class joins after the others, or is refused and nothing has changed."""
    model, label = case.learned(), "a class that nobody knows"
    if not case.examples:
        raise DoesNotApply("there is no example")
    before, classes = model.to_bytes(), model.classes
    counts = model.class_counts * model.state.clock.scale
    example = replace(case.examples[-1], y=label, weight=1.0)
    try:
        teach(model, [example])
    except InputError:
        if model.to_bytes() != before:
            raise Broken("a refused class has changed the model") from None
        return
    if model.classes != (*classes, label):
        raise Broken(f"after {classes!r} and a new {label!r} the classes are {model.classes!r}")
    held = model.class_counts * model.state.clock.scale
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
    """Return calls that a model must refuse, by what is wrong with them.

    Each fault occurs once in a single example, and once in the last row of a batch that is valid
    otherwise.
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
    for state in model.state.groups.values():
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


# ---- answers -----------------------------------------------------------------------------------


def posteriors_are_probabilities(case: Case) -> None:
    """Posteriors add up to 1 and are never nan, for any example and however little was learned."""
    odd: list[ExampleFields] = [dict.fromkeys(x) for x in case.probes[:1]]
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


def _unheard_of(case: Case, x: ExampleFields) -> ExampleFields:
    """Return an example with numbers, words and values that the model has not seen."""
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
    prior = model.state.class_prior
    if model.state.leaves_prior_out:
        expected = np.full(len(model.classes), 1.0 / len(model.classes))
    elif isinstance(prior, Fixed):
        given = dict(prior.probabilities)
        expected = np.array([given[label] for label in model.classes])
    else:
        alphas = np.broadcast_to(np.asarray(prior.concentration, float), len(model.classes))
        expected = alphas / alphas.sum() if alphas.any() else np.ones(len(alphas)) / len(alphas)
    if abs(expected.sum() - 1.0) > 1e-9:
        raise DoesNotApply("the fixed probabilities name classes that are not declared")
    # A prior that differs by class may favour a class for any value: only `{}` has a known answer.
    differ = _differ_by_class(case)
    if differ and case.has_absent_flags:
        raise DoesNotApply("flags that count as false where they are missing speak of nothing")
    probes = [{}] if differ else case.probes
    for x in probes:
        said = [*model.predict_proba_one(x).values()]
        if not np.allclose(said, expected, rtol=0, atol=1e-12):
            raise Broken(f"of {dict(x)!r} it says {said}, and its prior is {expected.tolist()}")


def _differ_by_class(case: Case) -> bool:
    """Return whether the prior of a group differs by class."""
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
        must_add_up(model, x, nothing, parts)


def _units(case: Case, x: ExampleFields) -> list[list[str]]:
    """Return the fields that contribute separately; the words of one bag contribute together."""
    together: set[str] = set()
    for spec in case.of(Bag):
        if spec.field is None:
            together |= case.fields_of(Bag)
    rest = [[name] for name in x if name not in together]
    bag = [name for name in x if name in together]
    return [*rest, bag] if bag else rest


def groups_are_independent(case: Case) -> None:
    """The fields of one group do not affect what the other groups learn and answer."""
    states = case.untrained.state.groups
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
    """Prediction, of one example or many, leaves the model's bytes as they were."""
    model = case.learned()
    before = model.to_bytes()
    for x in case.probes:
        model.predict_one(x)
        model.predict_proba_one(_unheard_of(case, x))
    if case.examples and model.classes:  # an example without weight brings none
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


# ---- batches, weights and order ----------------------------------------------------------------


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
    """A batch returns what the model predicted for each example just before it learned it."""
    returned = case.teach_at_once(case.fresh(), case.examples)
    model = case.fresh()
    for each, row in zip(case.examples, returned, strict=True):
        said = [*model.predict_log_proba_one(each.x).values()]
        if said != row[: len(said)].tolist() or not np.isneginf(row[len(said) :]).all():
            raise Broken(f"of {dict(each.x)!r} the batch says {row.tolist()}, the model {said}")
        teach(model, [each])


def weights_repeat(case: Case) -> None:
    """An example of weight 3 teaches what three such examples teach."""
    _refuse_half_life_in_examples(case)
    weights = case.rng().integers(1, 4, len(case.examples)).astype(float).tolist()
    weighted = with_weights(case.examples, weights)
    case = replace(case, examples=weighted)
    once = case.learned()
    ones = [replace(each, weight=1.0) for each in weighted for _ in range(int(each.weight))]
    repeated = case.learned(ones)
    _refuse_dropped(once, repeated)
    must_agree(case, once, repeated)


def weight_zero_teaches_nothing(case: Case) -> None:
    """An example of weight 0 leaves the model's bytes as they were."""
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
    """The order of an example's fields changes no bit."""
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


# ---- files, merging, unlearning and decay ------------------------------------------------------


def saved_and_loaded_is_same(case: Case) -> None:
    """A model restored from bytes, file, pickle or copy is the same, and learns on alike."""
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
    _refuse_dropped(whole)
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
    # Time passes all the same: the last example stays, so that both are read at the same time.
    streams = sorted(case.shared_out(2), key=latest_time)
    b, a = (case.learned(stream) for stream in streams)
    both = a + b
    _refuse_dropped(both)
    rest = both - b
    if case.is_exact and rest.classes != a.classes:
        raise Broken(f"the classes are {rest.classes!r}, not {a.classes!r}")
    must_agree(case, rest, a, both)


def unlearned_is_never_learned(case: Case) -> None:
    """Examples unlearned in any order leave no trace: counts, V and answers are as before.

    Taken back in one call, they leave what they leave one after the other.
    """
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
    _refuse_dropped(model)
    expected, whole = case.learned(kept), model.clone()
    order = case.rng().permutation(len(extra)).tolist()
    for each in (extra[i] for i in order):
        if each.weight:
            model.unlearn_one(each.x, each.y, weight=each.weight, time_s=each.time_s)
    at_once = whole.clone()
    case.unlearn_at_once(at_once, [extra[i] for i in order])
    must_be_same(at_once, model, case.probes)
    if case.is_exact and model.classes != expected.classes:
        raise Broken(f"the classes are {model.classes!r}, not {expected.classes!r}")
    if model.n_examples != expected.n_examples:
        raise Broken(f"{model.n_examples} examples are left, not {expected.n_examples}")
    must_agree(case, model, expected, whole)


def parts_add_up(case: Case) -> None:
    """A model kept in parts is their sum, and a file brings back each of them, bit for bit.

    Counts that are not whole numbers come back up to rounding: they are added in another order.
    """
    _refuse_half_life_in_examples(case)
    whole, parted = case.learned(), case.fresh()
    places = case.rng().integers(0, 3, len(case.examples)).tolist()
    for each, place in zip(case.examples, places, strict=True):
        parted.learn_one(
            each.x, each.y, weight=each.weight, time_s=each.time_s, part=f"part {place}"
        )
    _refuse_dropped(whole, parted)
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
    _refuse_dropped(model, plain)
    # A weight is exact to what float64 holds of a time, in half-lives.
    within = max(1e-9, 2e-15 * abs(now) / case.half_life.length)
    must_know_alike(model, plain, within=within, sizes=case.sizes)
    said, due = of_all_examples(model), of_all_examples(plain)
    must_answer_alike(said, due, case.wordy_probes, within=within)


def _refuse_dropped(*models: NaiveBayes) -> None:
    if any(map(dropped, models)):
        raise DoesNotApply("features were dropped, and which ones depends on order and time")


def _refuse_half_life_in_examples(case: Case) -> None:
    if case.half_life is not None and case.half_life.examples is not None:
        raise DoesNotApply(
            "what is left after a half-life in examples depends on how many examples followed"
        )


def _refuse_old(case: Case) -> None:
    if case.lives > _LIVES_MAX:
        raise DoesNotApply(f"examples lie more than {_LIVES_MAX:g} half-lives apart")
