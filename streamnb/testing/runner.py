"""Checks the laws of a model: one finding for each law, and an error that names the broken ones.

Behind it are made-up examples, and stand-ins for time and for failure, so that a test decides when
either happens.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np

from streamnb.errors import InputError, StreamnbError
from streamnb.features.bag import Bag
from streamnb.features.categorical import Categories
from streamnb.features.flags import Flags
from streamnb.features.numeric import Numbers
from streamnb.features.protocol import GroupState
from streamnb.features.words import Words
from streamnb.labels import Label
from streamnb.model import NaiveBayes
from streamnb.testing import laws as all_laws
from streamnb.testing.cases import Broken, Case, DoesNotApply, Example, timed


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one law.

    Attributes
    ----------
    law : str
        Its name.
    says : str
        What it says, in a sentence.
    passed : bool or None
        None if the law does not apply to such a model.
    why : str
        Why it is broken or does not apply; empty if it holds.
    seed : int
        The seed of all random choices.
    examples : tuple of Example
        The shortest stream that was found to break a broken law.
    """

    law: str
    says: str
    passed: bool | None
    why: str
    seed: int
    examples: tuple[Example, ...] = ()

    def __str__(self) -> str:
        mark = {True: "holds", False: "BROKEN", None: "n/a"}[self.passed]
        text = f"{mark:<7}{self.law}"
        if self.why:
            text += f": {self.why}"
        if self.passed is False:
            shown = "".join(f"\n           {_shown(example)}" for example in self.examples)
            text += f"\n         says: {self.says}\n         seed {self.seed}, examples:{shown}"
        return text


def _shown(example: Example) -> str:
    more: dict[str, Any] = {}
    if example.weight != 1.0:
        more["weight"] = example.weight
    if example.time_s is not None:
        more["time_s"] = example.time_s
    extra = "".join(f", {name}={value!r}" for name, value in more.items())
    return f"{dict(example.x)!r}, {example.y!r}{extra}"


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all laws.

    Attributes
    ----------
    findings : tuple of Finding
        In the order of `LAWS`.
    """

    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether no law is broken."""
        return not self.broken

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The laws that are broken."""
        return tuple(each for each in self.findings if each.passed is False)

    def __str__(self) -> str:
        counts = [sum(each.passed is verdict for each in self.findings) for verdict in _VERDICTS]
        heading = "{} laws hold, {} are broken, {} do not apply".format(*counts)
        return "\n".join([heading, *map(str, self.findings)])


_VERDICTS: Sequence[bool | None] = (True, False, None)


class LawBroken(StreamnbError, AssertionError):  # noqa: N818 -- a finding, named for what it says
    """A model breaks laws; the message names each, with the seed and a short example.

    Attributes
    ----------
    report : Report
    """

    exit_code = 70  # EX_SOFTWARE of sysexits.h

    def __init__(self, report: Report) -> None:
        super().__init__("\n".join(map(str, report.broken)))
        self.report = report


Law = Callable[[Case], None]
LAWS: tuple[Law, ...] = (
    all_laws.batches_are_single_examples,
    all_laws.judged_before_learned,
    all_laws.weights_repeat,
    all_laws.weight_zero_teaches_nothing,
    all_laws.fields_have_no_order,
    all_laws.missing_values_skip_their_field,
    all_laws.groups_are_independent,
    all_laws.input_is_left_alone,
    all_laws.new_classes_join,
    all_laws.bad_input_changes_nothing,
    all_laws.untrained_answers_prior,
    all_laws.posteriors_are_probabilities,
    all_laws.asking_changes_nothing,
    all_laws.snapshots_never_change,
    all_laws.saved_and_loaded_is_same,
    all_laws.merging_has_no_order,
    all_laws.subtracting_undoes_merging,
    all_laws.unlearned_is_never_learned,
    all_laws.parts_add_up,
    all_laws.decay_is_the_plain_formula,
)
_RUNS_MAX = 300  # of a broken law, in search of a shorter stream


def check_model(
    make_model: Callable[[], NaiveBayes],
    examples: Iterable[Example | tuple[Any, Any]] | None = None,
    *,
    n: int = 30,
    seed: int = 0,
    laws: Sequence[Law] = LAWS,
    raise_on_failure: bool = True,
) -> Report:
    """Check the laws of a configured model.

    Parameters
    ----------
    make_model : callable
        Returns the model as you configure it, with nothing learned. Its class takes what
        `NaiveBayes` takes, as loading demands too.
    examples : iterable of Example, or of pairs (x, y), optional
        The stream to check with; by default one generated from the model's specification: words,
        numbers at several scales, values and flags, some of them missing.
    n : int
        How many examples to generate.
    seed : int
        Of all random choices.
    laws : sequence of callable
        The laws to check, by default all.
    raise_on_failure : bool
        Raise if a law is broken; otherwise only report it.

    Returns
    -------
    Report

    Raises
    ------
    LawBroken
        If a law is broken; it names each one, the seed, and the shortest stream that breaks it.
    InputError
        If the model has learned something already, or no examples can be generated for it.

    Examples
    --------
    >>> import streamnb as nb
    >>> from streamnb import checks
    >>> def make_model():
    ...     return nb.NaiveBayes(
    ...         classes=["ham", "spam"],
    ...         features={
    ...             "text": nb.Words(nb.Multinomial()),
    ...             "more": nb.Numbers(fields=["length", "hour"]),
    ...         },
    ...     )
    >>> report = checks.check_model(make_model, n=12)
    >>> print(str(report).splitlines()[0])
    19 laws hold, 0 are broken, 1 do not apply
    """
    untrained = make_model()
    if examples is None:
        stream = examples_for(untrained, n, seed)
    else:
        stream = timed(untrained, [e if isinstance(e, Example) else Example(*e) for e in examples])
    report = Report(tuple(_find(law, Case(untrained, stream, seed)) for law in laws))
    if raise_on_failure and not report.passed:
        raise LawBroken(report)
    return report


def _find(law: Law, case: Case) -> Finding:
    name = law.__name__
    says = (law.__doc__ or name).partition("\n")[0]
    try:
        why = _why_broken(law, case)
    except DoesNotApply as reason:
        return Finding(name, says, None, str(reason), case.seed)
    if why is None:
        return Finding(name, says, passed=True, why="", seed=case.seed)
    short = shortened(law, case)
    return Finding(name, says, False, _why_broken(law, short) or why, case.seed, (*short.examples,))


def _why_broken(law: Law, case: Case) -> str | None:
    """Return why a law is broken, None if it holds."""
    # Each run gets a copy of the examples: a faulty model may change them.
    own = replace(case, examples=copy.deepcopy(list(case.examples)))
    try:
        law(own)
    except Broken as broken:
        return str(broken)
    except DoesNotApply:
        raise
    except Exception as error:  # noqa: BLE001 -- a model that is wrong may fail in any way
        return f"it raises {type(error).__name__}: {error}"
    return None


def shortened(law: Law, case: Case) -> Case:
    """Return a shorter case that breaks a law as well: by halves, quarters, …, then by fields."""
    n_left = _RUNS_MAX

    def breaks(candidate: Case) -> bool:
        nonlocal n_left
        n_left -= 1
        try:
            return _why_broken(law, candidate) is not None
        except DoesNotApply:
            return False

    size = len(case.examples)
    while size >= 1 and n_left > 0:
        size = (size + 1) // 2
        case, went = _first(case, _without_rows(case, size), breaks)
        if not went and size == 1:
            break
    for i in range(len(case.examples)):
        went = True
        while went and n_left > 0:
            case, went = _first(case, _without_fields(case, i), breaks)
    return case


def _first(
    case: Case, candidates: Iterator[Case], breaks: Callable[[Case], bool]
) -> tuple[Case, bool]:
    """Return the first of some shorter cases that breaks a law, or the case itself."""
    found = next((candidate for candidate in candidates if breaks(candidate)), None)
    return (case, False) if found is None else (found, True)


def _without_rows(case: Case, size: int) -> Iterator[Case]:
    rows = list(case.examples)
    for begin in range(0, len(rows), size):
        yield replace(case, examples=[*rows[:begin], *rows[begin + size :]])


def _without_fields(case: Case, i: int) -> Iterator[Case]:
    rows = list(case.examples)
    for name in rows[i].x:
        rest = {other: value for other, value in rows[i].x.items() if other != name}
        yield replace(case, examples=[*rows[:i], replace(rows[i], x=rest), *rows[i + 1 :]])


# ---- made-up examples ----------------------------------------------------------------------------

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
        With times if the model's half-life is in seconds.
    """
    rng = np.random.default_rng(seed)
    makers = _makers(model)
    labels = _labels(model)
    half_life = model.state.clock.half_life
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
    """Return the declared classes, and more if the model accepts new ones."""
    if model.state.is_closed:
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
    states = model.state.groups.values()
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
        return _bag_maker(spec)
    if isinstance(spec, Numbers) or getattr(spec, "bins", None) is not None:
        return lambda rng: _number(rng, _CENTRES[at % len(_CENTRES)])
    if isinstance(spec, Categories):
        declared = dict(spec.values).get(field, ())
        values = [*declared, "another"] if declared else _VALUES
        return lambda rng: values[int(rng.integers(len(values)))]
    if isinstance(spec, Flags):
        return lambda rng: bool(rng.random() < 0.4)
    raise InputError(
        f"group {state.name!r}: nobody here knows what {type(spec).__name__} reads. Give examples."
    )


def _bag_maker(spec: Bag) -> Maker:
    """Return what makes a bag's counts: of one word if each has a field, else of several."""
    if spec.field is None:
        return lambda rng: int(rng.integers(0, 4))
    words = [*(spec.dictionary or ())[:8], *_WORDS]
    return lambda rng: {word: int(rng.integers(0, 4)) for word in _some(rng, words)}


def _some(rng: Rng, words: list[str]) -> list[str]:
    return [words[int(i)] for i in rng.integers(0, len(words), rng.integers(0, 6))]


def _number(rng: Rng, centre: float) -> Any:
    """Return a number near a centre, a whole one now and then, or nan."""
    value = centre + float(rng.normal()) * max(abs(centre) / 100, 1e-3)
    return [value, value, value, round(value), float("nan")][int(rng.integers(5))]


# ---- stand-ins for time and failure --------------------------------------------------------------

Returned = TypeVar("Returned")


class ManualClock:
    """A clock that moves only when it is told to, or when somebody waits.

    Everything in streamnb that looks at a clock takes it as an argument: give it this one.

    Parameters
    ----------
    now_s : float
        What it shows at first, in seconds.

    Attributes
    ----------
    now_s : float
        What it shows.
    waits_s : list of float
        How long each call of `wait` was.

    Examples
    --------
    >>> from streamnb.testing import ManualClock
    >>> clock = ManualClock(100.0)
    >>> clock.advance(2.5)
    >>> clock.wait(1.0)
    >>> clock(), clock.waits_s
    (103.5, [1.0])
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.waits_s: list[float] = []

    def __call__(self) -> float:
        """Return what it shows, in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Parameters
        ----------
        seconds : float
            How much; below 0 it goes back, as the clock of a machine may.
        """
        self.now_s += seconds

    def wait(self, seconds: float) -> None:
        """Let time pass at once, in the place of `time.sleep`.

        Parameters
        ----------
        seconds : float
            How long the caller wanted to wait.
        """
        self.waits_s.append(seconds)
        self.now_s += seconds


class FaultSchedule:
    """Which calls fail, and with what: the first one is call 1.

    Parameters
    ----------
    faults : mapping of int to exception
        What each of these calls raises; the others go through.

    Attributes
    ----------
    n_calls : int
        How many calls there were.
    met : list of int
        The calls that failed.

    Examples
    --------
    >>> from streamnb.testing import FaultSchedule
    >>> faults = FaultSchedule({2: OSError("no space left")})
    >>> write = faults.wrap(len)
    >>> write("abc")
    3
    >>> write("abc")
    Traceback (most recent call last):
    OSError: no space left
    >>> write("abc"), faults.met
    (3, [2])
    """

    def __init__(self, faults: Mapping[int, Exception]) -> None:
        if any(call < 1 for call in faults):
            raise InputError(f"faults: calls are counted from 1, found {min(faults)}")
        self._faults = dict(faults)
        self.n_calls = 0
        self.met: list[int] = []

    @classmethod
    def drawn(cls, seed: int, n_calls: int, rate: float, errors: Sequence[Exception]) -> Self:
        """Draw a schedule; the same seed gives the same one.

        Parameters
        ----------
        seed : int
            What replays it.
        n_calls : int
            How many calls it covers; those behind them go through.
        rate : float
            The share of calls that fail, from 0 to 1.
        errors : sequence of exception
            What they raise, drawn among these.

        Returns
        -------
        FaultSchedule
        """
        if not 0 <= rate <= 1 or not errors:
            raise InputError(f"rate must be 0 to 1, found {rate}, and errors must name some")
        chance = random.Random(seed)  # noqa: S311 -- a test's faults, not a secret
        failing = [call for call in range(1, n_calls + 1) if chance.random() < rate]
        return cls({call: chance.choice(errors) for call in failing})

    def check(self) -> None:
        """Count a call, and raise what is due at it."""
        self.n_calls += 1
        error = self._faults.get(self.n_calls)
        if error is not None:
            self.met.append(self.n_calls)
            raise error

    def wrap(self, function: Callable[..., Returned]) -> Callable[..., Returned]:
        """Return the function with the faults before it.

        Parameters
        ----------
        function : callable
            What is called if no fault is due.

        Returns
        -------
        callable
        """

        def faulty(*args: Any, **kwargs: Any) -> Returned:
            self.check()
            return function(*args, **kwargs)

        return faulty
