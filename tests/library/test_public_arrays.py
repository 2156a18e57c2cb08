"""Every public argument that takes an array is fuzzed: here, or where `ELSEWHERE` says.

What is given is refused as `InputError`, with nothing changed, or answered as a plain array of the
same content is; and it is never answered if it is no such array at all.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import streamnb
from streamnb.errors import InputError
from tests.library import test_array_fuzzing
from tests.library.test_array_fuzzing import arrays

nb: Any = streamnb  # what a caller without a type checker may write
Array = NDArray[Any]

LOGS = np.log([[0.2, 0.8], [0.9, 0.1], [0.5, 0.5]])
TRUTH = np.array([0, 1, 0])
COSTS = np.array([[0.0, 10.0], [1.0, 0.0]])
COUNTS = np.array([[5.0, 1.0], [0.0, 9.0]])
LABELS = np.array(["x", "y", "x"])
ONES = np.array([1.0, 0.5, 2.0])
WORDS = np.array(["a", "b"])
COLUMNS = {"f": ["a b", "b", None]}
CURVE = nb.Calibrator().curve


class Entry(NamedTuple):
    """An argument: an array that it takes, what is asked with it, and what it can take at all."""

    good: Array
    ask: Callable[[Any], Any]
    fits: Callable[[Array], Any]


# ---- what an argument can take -------------------------------------------------------------------


def logs(array: Array) -> bool:
    """Return whether something is logarithms of probabilities, some of them perhaps nan."""
    return array.ndim == 2 and not (array > 1e-6).any()


def whole_logs(array: Array) -> bool:
    """Return whether something is logarithms of probabilities."""
    return logs(array) and not np.isnan(array).any()


def places(array: Array) -> bool:
    """Return whether something is the place of a class for each of three examples."""
    return array.shape == (3,) and set(array.tolist()) <= {-1, 0, 1}


def amounts(*shape: int) -> Callable[[Array], Any]:
    """Return what says whether something is finite numbers from 0 on, of a shape."""
    return lambda array: (
        array.shape == shape and np.isfinite(array).all() and (not array.size or array.min() >= 0)
    )


def texts(array: Array) -> bool:
    """Return whether something is a row of texts."""
    return array.ndim == 1 and (not array.size or array.dtype.kind == "U")


def three(array: Array) -> bool:
    """Return whether something has a value for each of three examples."""
    return array.shape == (3,)


# ---- what is asked -------------------------------------------------------------------------------


def plain(found: Any) -> Any:
    """Return what was answered as plain values."""
    return found.tolist() if hasattr(found, "tolist") else found


def changing(make: Callable[[], Any], state: Callable[[Any], Any], ask: Any) -> Any:
    """Return what asks something new: who refuses is as it was."""

    def asked(value: Any) -> Any:
        made = make()
        before = state(made)
        try:
            found = ask(made, value)
        except InputError:
            assert state(made) == before
            raise
        return plain(found), state(made)

    return asked


def counted(ask: Any, half_life: int | None = None) -> Any:
    """Return what asks a calibrator that has counted three examples."""

    def make() -> Any:
        made = nb.Calibrator(half_life)
        made.prequential_many(LOGS, TRUTH)
        return made

    return changing(make, lambda made: made.to_dict(), ask)


def sets(ask: Any) -> Any:
    """Return what asks prediction sets."""
    return changing(nb.ConformalSets, lambda made: made.to_dict(), ask)


def confident(ask: Any) -> Any:
    """Return what asks what has learned from nothing yet."""
    return changing(
        lambda: nb.Confidence(nb.Calibrator(), nb.ConformalSets()),
        lambda made: (made.calibrator.to_dict(), made.conformal.to_dict()),
        ask,
    )


FEATURES = {"f": nb.Words(nb.Multinomial(), field="f")}


def model_of(part: str | None = None, **options: Any) -> Any:
    """Return a model that has learned three texts."""
    made = nb.NaiveBayes(["x", "y"], features=FEATURES, hash_key=3, **options)
    made.learn_many(COLUMNS, LABELS, part=part)
    return made


def taught(ask: Any, **options: Any) -> Any:
    """Return what asks a model that has learned three texts."""
    return changing(lambda: model_of(**options), lambda made: made.to_bytes(), ask)


def learner(ask: Any) -> Any:
    """Return what asks the learner of such a model."""

    def make() -> Any:
        return nb.Learner(
            model_of("p"), nb.SnapshotBoard(), nb.EveryExamples(99), lambda: 0.0,
            confidence=nb.Confidence(nb.Calibrator()),
        )  # fmt: skip

    def state(made: Any) -> Any:
        return made.model.to_bytes(), made.is_current, made.confidence.calibrator.to_dict()

    return changing(make, state, ask)


def folds(ask: Any) -> Any:
    """Return what asks folds of such a model."""
    return changing(
        lambda: nb.Folds(nb.NaiveBayes(["x", "y"], features=FEATURES, hash_key=3), 2),
        lambda made: made.total().class_counts.tolist(),
        ask,
    )


def lives(ask: Any) -> Any:
    """Return what asks half-lives side by side."""
    return changing(
        lambda: nb.HalfLives(["x", "y"], FEATURES["f"], [50.0], hash_key=3),
        lambda made: (made.shares(), made.model.to_bytes()),
        ask,
    )


def moved(**values: Any) -> Any:
    """Return what is said to have moved since some counts."""
    given = {"words": ("a", "b"), "counts": COUNTS, "tokens": np.array([5.0, 10.0])} | values
    model = model_of()
    found = nb.moved_words(nb.WordCounts("f", **given), model, least_z=0.0)
    assert all(np.isfinite([each.z, each.before, each.after]).all() for each in found)
    return found


def rule(**values: Any) -> Any:
    """Return what is made of posteriors by a rule of these values."""
    made = nb.AnswerRule(**values)
    return plain(made.calibrated(LOGS)), plain(made.sets(LOGS)), plain(made.labels(LOGS))


def restored(costs: Any) -> Any:
    """Return what is said by a rule that was described."""
    made = nb.AnswerRule.from_dict({"curve": None, "threshold": 0.9}, costs)
    return plain(made.labels(LOGS))


def dictionary_of(group: Any, dictionary: Any) -> Any:
    """Return the dictionary of a group of words."""
    return group(nb.Multinomial(), dictionary=dictionary).dictionary


def taken_back(numbers: Any) -> Any:
    """Return what is left of a calibrator, with a half-life and without, behind examples."""
    return [
        counted(lambda made, value: made.unlearn_many(LOGS, TRUTH, value), half_life)(numbers)
        for half_life in (None, 2)
    ]


RULE = nb.AnswerRule(CURVE, 0.8)

ENTRIES: dict[str, Entry] = {
    "Calibrator.calibrate(log_posteriors)": Entry(
        LOGS, counted(lambda made, value: made.calibrate(value)), logs
    ),
    "Calibrator.prequential_many(log_posteriors)": Entry(
        LOGS, counted(lambda made, value: made.prequential_many(value, TRUTH)), logs
    ),
    "Calibrator.prequential_many(truth)": Entry(
        TRUTH, counted(lambda made, value: made.prequential_many(LOGS, value)), places
    ),
    "Calibrator.prequential_many(asked)": Entry(
        LOGS, counted(lambda made, value: made.prequential_many(LOGS, TRUTH, value)),
        logs,
    ),
    "Calibrator.unlearn_many(log_posteriors)": Entry(
        LOGS, counted(lambda made, value: made.unlearn_many(value, TRUTH)), logs
    ),
    "Calibrator.unlearn_many(truth)": Entry(
        TRUTH, counted(lambda made, value: made.unlearn_many(LOGS, value)), places
    ),
    "Calibrator.unlearn_many(numbers)": Entry(
        np.array([0, 1, 2]),
        taken_back,
        lambda array: three(array) and array.min() >= 0,
    ),
    "ConformalSets.sets(log_posteriors)": Entry(
        LOGS, sets(lambda made, value: made.sets(value)), whole_logs
    ),
    "ConformalSets.prequential_many(log_posteriors)": Entry(
        LOGS, sets(lambda made, value: made.prequential_many(value, TRUTH)), logs
    ),
    "ConformalSets.prequential_many(truth)": Entry(
        TRUTH, sets(lambda made, value: made.prequential_many(LOGS, value)), places
    ),
    "ConformalSets.prequential_many(asked)": Entry(
        LOGS, sets(lambda made, value: made.prequential_many(LOGS, TRUTH, value)), logs
    ),
    "Confidence(costs)": Entry(
        COSTS, lambda value: plain(nb.Confidence(costs=value).costs),
        lambda array: ((array >= 0) & np.isfinite(array)).all(),
    ),
    "Confidence.learn(log_posteriors)": Entry(
        LOGS, confident(lambda made, value: made.learn(value, TRUTH)), logs
    ),
    "Confidence.learn(truth)": Entry(
        TRUTH, confident(lambda made, value: made.learn(LOGS, value)), places
    ),
    "AnswerRule(curve)": Entry(
        CURVE, lambda value: rule(curve=value, threshold=0.8),
        lambda array: (np.diff(array) > 0.0).all(),
    ),
    "AnswerRule(costs)": Entry(
        COSTS, lambda value: rule(costs=value),
        lambda array: amounts(2, array.shape[-1])(array),
    ),
    "AnswerRule.from_dict(costs)": Entry(
        COSTS, restored, lambda array: amounts(2, array.shape[-1])(array)
    ),
    "AnswerRule.calibrated(log_posteriors)": Entry(
        LOGS, lambda value: plain(RULE.calibrated(value)), logs
    ),
    "AnswerRule.sets(log_posteriors)": Entry(LOGS, lambda value: plain(RULE.sets(value)), logs),
    "AnswerRule.labels(log_posteriors)": Entry(
        LOGS, lambda value: plain(RULE.labels(value)), whole_logs
    ),
    "cheapest(log_posteriors)": Entry(
        LOGS, lambda value: plain(nb.cheapest(value, COSTS)), whole_logs
    ),
    "cheapest(costs)": Entry(
        COSTS, lambda value: plain(nb.cheapest(LOGS, value)),
        lambda array: amounts(2, array.shape[-1])(array),
    ),
    "expected_costs(log_posteriors)": Entry(
        LOGS, lambda value: plain(nb.expected_costs(value, COSTS)), whole_logs
    ),
    "expected_costs(costs)": Entry(
        COSTS, lambda value: plain(nb.expected_costs(LOGS, value)),
        lambda array: amounts(2, array.shape[-1])(array),
    ),
    "DriftMartingale.update(losses)": Entry(
        ONES,
        changing(
            nb.DriftMartingale, lambda made: made.to_dict(), lambda made, value: made.update(value)
        ),
        lambda array: array.ndim <= 1 and (array >= 0.0).all(),
    ),
    "WordCounts(counts)": Entry(COUNTS, lambda value: moved(counts=value), amounts(2, 2)),
    "WordCounts(tokens)": Entry(
        np.array([5.0, 10.0]), lambda value: moved(tokens=value), amounts(2)
    ),
    "WordCounts(words)": Entry(
        WORDS, lambda value: moved(words=tuple(value) if isinstance(value, list) else value), texts
    ),
    "ModelReader.word_counts(words)": Entry(
        WORDS, lambda value: plain(model_of().word_counts(value)), texts
    ),
    "ModelReader.word_likelihoods(words)": Entry(
        WORDS, lambda value: plain(model_of().word_likelihoods(value)), texts
    ),
    "HalfLives(half_lives)": Entry(
        np.array([20.0, 50.0]),
        lambda value: nb.HalfLives(["x"], nb.Words(nb.Multinomial()), value).half_lives,
        lambda array: array.ndim == 1 and array.size and (array >= 10).all(),
    ),
    "HalfLives(classes)": Entry(
        LABELS[:2],
        lambda value: nb.HalfLives(value, nb.Words(nb.Multinomial())).classes,
        lambda array: array.ndim == 1 and array.size,
    ),
    "NaiveBayes(classes)": Entry(
        LABELS[:2],
        lambda value: nb.NaiveBayes(value, features=FEATURES).classes,
        lambda array: array.ndim == 1,
    ),
    "HalfLives.learn_many(labels)": Entry(
        LABELS, lives(lambda made, value: made.learn_many(COLUMNS, value)), three
    ),
    "HalfLives.prequential_many(labels)": Entry(
        LABELS, lives(lambda made, value: made.prequential_many(COLUMNS, value)), three
    ),
    "Folds.learn_many(labels)": Entry(
        LABELS, folds(lambda made, value: made.learn_many(COLUMNS, value, 1)), three
    ),
    "Folds.learn_many(weights)": Entry(
        ONES, folds(lambda made, value: made.learn_many(COLUMNS, LABELS, 1, weights=value)),
        amounts(3),
    ),
    "Learner.learn(labels)": Entry(
        LABELS, learner(lambda made, value: made.learn("q", COLUMNS, value)), three
    ),
    "Learner.learn(weights)": Entry(
        ONES, learner(lambda made, value: made.learn("q", COLUMNS, LABELS, weights=value)),
        amounts(3),
    ),
    "Learner.learn(times_s)": Entry(
        ONES, learner(lambda made, value: made.learn("q", COLUMNS, LABELS, times_s=value)),
        lambda array: three(array) and np.isfinite(array).all(),
    ),
    "Learner.unlearn_many(labels)": Entry(
        LABELS, learner(lambda made, value: made.unlearn_many("p", COLUMNS, value)), three
    ),
    "Learner.unlearn_many(weights)": Entry(
        ONES / 2.0,
        learner(lambda made, value: made.unlearn_many("p", COLUMNS, LABELS, weights=value)),
        amounts(3),
    ),
    "Learner.unlearn_many(times_s)": Entry(
        ONES, learner(lambda made, value: made.unlearn_many("p", COLUMNS, LABELS, times_s=value)),
        lambda array: three(array) and np.isfinite(array).all(),
    ),
}  # fmt: skip
for _name in ("prequential_many", "unlearn_many"):
    ENTRIES |= {
        f"NaiveBayes.{_name}(labels)": Entry(
            LABELS, taught(lambda made, value, _name=_name: getattr(made, _name)(COLUMNS, value)),
            three,
        ),
        f"NaiveBayes.{_name}(weights)": Entry(
            ONES / 2.0,
            taught(
                lambda made, value, _name=_name: getattr(made, _name)(
                    COLUMNS, LABELS, weights=value
                )
            ),
            amounts(3),
        ),
        f"NaiveBayes.{_name}(times_s)": Entry(
            ONES,
            taught(
                lambda made, value, _name=_name: getattr(made, _name)(
                    COLUMNS, LABELS, times_s=value
                )
            ),
            lambda array: three(array) and np.isfinite(array).all(),
        ),
    }  # fmt: skip
for _name in ("likelihood_of", "log_likelihood", "log_loss", "nll"):
    ENTRIES[f"ModelReader.{_name}(labels)"] = Entry(
        LABELS, taught(lambda made, value, _name=_name: getattr(made, _name)(COLUMNS, value)), three
    )
for _group in ("Words", "Bag"):
    ENTRIES[f"{_group}(dictionary)"] = Entry(
        WORDS, partial(dictionary_of, getattr(nb, _group)), texts
    )

_beside = test_array_fuzzing.test_what_stands_beside_the_columns
ELSEWHERE: dict[str, Any] = {
    "Learner.learn(taken)": test_array_fuzzing.test_what_is_taken_back_among_what_is_learned,
    "Learner.teach(taken)": test_array_fuzzing.test_what_is_taken_back_among_what_is_learned,
    "Learner.prequential(taken)": test_array_fuzzing.test_what_is_taken_back_among_what_is_learned,
    "NaiveBayes.learn_many(labels)": _beside,
    "NaiveBayes.learn_many(weights)": _beside,
    "NaiveBayes.learn_many(times_s)": _beside,
    "Codes(codes)": test_array_fuzzing.test_codes,
    "Codes(classes)": test_array_fuzzing.test_codes,
    "Quantifier(confusion)": test_array_fuzzing.test_prevalence,
    "Quantifier(n_examples)": test_array_fuzzing.test_prevalence,
    "Quantifier.adjust(counts)": test_array_fuzzing.test_prevalence,
    "adjusted_shares(counts)": test_array_fuzzing.test_prevalence,
    "adjusted_shares(confusion)": test_array_fuzzing.test_prevalence,
}

_MADE_HERE = "the library makes it, for others to read"
_OF_A_GROUP = "a group calls it, with columns of its own"
_FEW = "a few settings of a group, refused one by one in test_invalid_arguments.py"
EXEMPT = {
    "AdjustedShares": _MADE_HERE,
    "Answer": _MADE_HERE,
    "Explanation": _MADE_HERE,
    "LinearForm": _MADE_HERE,
    "Bernoulli.log_theta": _OF_A_GROUP,
    "Complement.log_theta": _OF_A_GROUP,
    "Multinomial.log_theta": _OF_A_GROUP,
    "Bag(fields)": _FEW,
    "Words(ngrams)": _FEW,
    "Words(characters)": _FEW,
    "Quantifier(classes)": "names that stand in a reason; any value is one",
    "save(extras)": "arrays of any content, kept as they are",
}


# ---- fuzzing -------------------------------------------------------------------------------------

_ODD = [
    None, 5, 0.0, "abc", "", b"xy", {}, {"a": 1}, (), [], [[]], [None], ["0"], [["x"]], object(),
    [[0], [1, 2]], [[1.0, 2.0]], [[-(10**30), 0]], [10**400] * 3, [True, False, True], [1j] * 3,
    [[[0.0]]], ["a", 5], ["0", "1", "0"], [["0", "-1"]] * 3, np.datetime64(5, "s"), np.float64(1.0),
]  # fmt: skip
_TYPES = ["f2", "f4", ">f8", "g", "i1", "u8", "O", "U", "S", "?", "c16", "m8[s]", "M8[s]"]
_VALUES = [np.nan, np.inf, -np.inf, -5.0, 7.0, 0.3, 1e308, -1e308, 1e-300]


def _cast(good: Array, dtype: str) -> Array:
    try:
        with np.errstate(all="ignore"):
            return good.astype(dtype)
    except (TypeError, ValueError):  # not of texts
        return good


def _with_value(good: Array, at: int, value: float, dtype: str) -> Array:
    changed = good.astype(dtype) if dtype and good.dtype.kind in "iuf" else good.copy()
    if good.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            changed.flat[at % good.size] = np.float64(value).astype(changed.dtype)
    return changed


def near(good: Array) -> st.SearchStrategy[Any]:
    """Draw what is like a good array, but for its type, its shape, a value or its container."""
    values, at = st.sampled_from(_VALUES), st.integers(0, good.size - 1)
    shapes = (good[:0], good[:-1], good[:1], good[..., None], good[None], good.T, good.ravel())
    return st.one_of(
        st.sampled_from(_TYPES).map(lambda dtype: _cast(good, dtype)),
        st.builds(_with_value, st.just(good), at, values, st.sampled_from(["", "f8"])),
        st.sampled_from([*shapes, np.concatenate((good, good)), good[..., :1], good.tolist()]),
        st.booleans().map(lambda mask: np.ma.masked_array(good, mask)),
        st.sampled_from(_ODD),
        arrays(),
    )


@pytest.mark.parametrize("name", ENTRIES)
@given(data=st.data())
def test_every_public_array(name: str, data: st.DataObject) -> None:
    """It is refused, and nothing has changed, or answered as a plain one of its content is."""
    entry = ENTRIES[name]
    value = data.draw(near(entry.good))
    try:
        found = entry.ask(value)
    except InputError:
        return
    content = list(value) if isinstance(value, dict) else plain(value)  # of a mapping its keys
    if content is None:  # an argument that may be left out
        return
    if entry.good.dtype.kind == "U":
        assert entry.fits(np.array(content))
        assert repr(found) == repr(entry.ask(content))
        return
    read = np.array(content).reshape(np.shape(value))
    assert not read.size or read.dtype.kind in ("iu" if entry.fits is places else "biufO")
    clean = read.astype(entry.good.dtype)
    assert entry.fits(clean)
    assert repr(found) == repr(entry.ask(clean))


@pytest.mark.parametrize("name", ENTRIES)
def test_an_array_as_it_should_be_is_taken(name: str) -> None:
    """So the fuzzed entries are those that they are named after."""
    entry = ENTRIES[name]
    assert entry.fits(entry.good)
    entry.ask(entry.good.tolist() if entry.good.dtype.kind == "U" else entry.good)


# ---- none is left out ----------------------------------------------------------------------------

_ARRAY = re.compile(r"\b(ArrayLike|Floats|Whole|NDArray|ndarray|Sequence|Iterable|list|tuple)\b")


def public_arrays() -> Iterator[str]:
    """Yield each argument of a public class, method or function that may be an array."""
    for name in streamnb.__all__:
        value = getattr(streamnb, name)
        if inspect.isclass(value) and not issubclass(value, Exception):
            yield from _arrays_of(name, value)
            for own in dir(value):
                method = getattr(value, own)
                if not own.startswith("_") and inspect.isroutine(method):
                    yield from _arrays_of(method.__qualname__, method)
        elif inspect.isfunction(value):
            yield from _arrays_of(name, value)


def _arrays_of(name: str, function: Any) -> Iterator[str]:
    for each in inspect.signature(function).parameters.values():
        if _ARRAY.search(str(each.annotation)):
            yield f"{name}({each.name})"


def test_no_public_array_is_left_out() -> None:
    """Whoever adds an argument that takes an array fuzzes it, or says why not."""
    found = set(public_arrays())
    exempt = {each for each in found if each in EXEMPT or each.partition("(")[0] in EXEMPT}
    assert found - exempt == {*ENTRIES, *ELSEWHERE}
    assert {each for each in EXEMPT if not any(name.startswith(each) for name in exempt)} == set()
