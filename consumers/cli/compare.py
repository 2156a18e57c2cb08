"""Several models on one source: who is right more often, how sure that is, and where they differ.

Each model is that of a configuration; how messages are read and labelled is the first one's. The
source is read once: each batch is decoded once, and every model judges and learns it by itself, on
a thread of its own.
Models of other libraries may stand beside ours: they are given the same messages in the same order.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.cli.evaluation import Evaluation, Method, read_messages
from consumers.cli.figures import Blocks, JudgedExamples, importing_scikit_learn
from consumers.cli.model_report import as_rows, feature_scores
from consumers.config.model import FeatureSettings, FieldKind
from consumers.config.settings import Settings
from consumers.decode.example_input import example_at
from consumers.errors import ConfigError
from consumers.factories import build_decoder
from consumers.features import columns_of, kinds_of
from consumers.messages import Envelope, Messages
from streamnb import Codes


class Comparison(msgspec.Struct):
    """What several models said of the same examples, by the models' names."""

    judged: dict[str, JudgedExamples]
    n_disagreements: int  # messages of which not all said the same
    disagreements: list[dict[str, Any]]  # some of them: where the true class fared most unlike


class _Disagreement(msgspec.Struct, frozen=True):
    spread: float  # between the probabilities of the true class
    message: Envelope
    examples: dict[str, dict[str, Any]]
    said: dict[str, tuple[str, float, float]]  # label, its probability, that of the true class


def compare(
    settings: Mapping[str, Settings],
    method: Method,
    n_shown: int,
    peers: Sequence[str] = (),
    *,
    show: bool = False,
) -> Comparison:
    """Judge the source of the first settings by the models of all, as messages come.

    `peers` are names of `PEERS`; they read what the first model does.
    """
    first = next(iter(settings.values()))
    base = first.model_copy(update={"model": _reading(settings)})
    evaluations = {
        name: Evaluation(base.model_copy(update={"model": each.model}), method)
        for name, each in settings.items()
    }
    for name in peers:
        learner = build_peer(name, first)
        own = base.model_copy(update={"model": first.model})
        evaluations[name] = Evaluation(own, method, learner)
    found: list[_Disagreement] = []
    n_found = 0

    def take(messages: Messages) -> None:
        nonlocal n_found
        taken = list(threads.map(lambda each: each.take(messages), evaluations.values()))
        if not taken[0]:
            return
        n_new, new = _disagreements(messages, evaluations, n_shown)
        n_found += n_new
        found[:] = sorted(found + new, key=lambda each: -each.spread)[:n_shown]

    known = next(iter(evaluations.values())).known
    # Other libraries may import from SciPy and pandas as they learn, and so does a calibrator.
    is_alone = not peers and not any(each.model.calibration for each in settings.values())
    beside = importing_scikit_learn() if is_alone else nullcontext()
    with ThreadPoolExecutor(len(evaluations), thread_name_prefix="compare") as threads, beside:
        read_messages(
            base, "compare", take, method.messages_max,
            lambda source: build_decoder(base, source, known), show=show,
        )  # fmt: skip
    judged = {name: each.result() for name, each in evaluations.items()}
    return Comparison(judged, n_found, [_explained(each, evaluations) for each in found])


def _shown(settings: Settings, key: str) -> str:
    """Return a setting of the model, as a list in YAML has it."""
    value = getattr(settings.model, key)
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value).lower()


def _reading(settings: Mapping[str, Settings]) -> Any:
    """Return model settings by which all fields are read that a model wants.

    Models that cannot be told of the same messages are a `ConfigError`.
    """
    (first_name, first), *others = settings.items()
    for name, each in others:
        for key in ("classes", "new_classes"):
            if getattr(each.model, key) != getattr(first.model, key):
                raise ConfigError(
                    f"{name}: model.{key} is {_shown(each, key)}, and in {first_name}"
                    f" {_shown(first, key)}. Give all models the same"
                    + (", in the same order" if key == "classes" else "")
                )
    kinds: dict[str, FieldKind] = {}
    groups: dict[str, FeatureSettings] = {}
    for name, each in settings.items():
        for field, kind in kinds_of(each.model).items():
            if kinds.setdefault(field, kind) != kind:
                raise ConfigError(
                    f"{name}: reads {field!r} as {kind}, and another model as {kinds[field]}. A"
                    " field can be read in one way at a time"
                )
        for group, spec in each.model.features.items():
            fields = tuple(spec.reads(group))
            groups[f"{name} {group}"] = spec.model_copy(update={"fields": fields})
    return first.model.model_copy(update={"features": groups})


def _disagreements(
    messages: Messages, evaluations: Mapping[str, Evaluation], n_shown: int
) -> tuple[int, list[_Disagreement]]:
    """Return how many messages of a batch the models disagree on, and the strongest."""
    labels, _ = next(iter(evaluations.values())).last()
    posteriors = [each.last()[1] for each in evaluations.values()]
    best = np.array([each.argmax(axis=1) for each in posteriors])
    rows = np.flatnonzero((best != best[0]).any(axis=0))
    of_truth = np.array([np.exp(each[rows, labels[rows]]) for each in posteriors])
    spread = np.ptp(of_truth, axis=0)
    found = []
    for i in np.argsort(-spread, kind="stable")[:n_shown].tolist():
        row = rows[i]
        at = messages.to_learn[row : row + 1]
        examples, said = {}, {}
        for m, (name, each) in enumerate(evaluations.items()):
            examples[name] = example_at(columns_of(messages, at, list(each.kinds)), each.kinds, 0)
            place = int(best[m, row])
            sure = float(np.exp(posteriors[m][row, place]))
            said[name] = (each.known[place], sure, float(of_truth[m, i]))
        found.append(_Disagreement(float(spread[i]), messages.envelope(int(at[0])), examples, said))
    return len(rows), found


def _explained(found: _Disagreement, evaluations: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Return a disagreement as plain values, with what speaks for each answer at the end."""
    models = {}
    for name, (label, sure, of_truth) in found.said.items():
        model = evaluations[name].model
        known = next(each for each in model.classes if str(each) == label)
        is_ours = evaluations[name].is_ours
        example = found.examples[name]
        words, others = (
            feature_scores(model, model.explain_one(example), known) if is_ours else ([], [])
        )
        models[name] = {
            "said": label, "probability": sure, "probability_of_truth": of_truth,
            "scores": as_rows("feature", words + others),
        }  # fmt: skip
    envelope = found.message
    return {
        "id": envelope.id, "label": envelope.label, "message": envelope.shown, "models": models
    }  # fmt: skip


# ---- pairs ---------------------------------------------------------------------------------------


def pairs(judged: Mapping[str, JudgedExamples], *, seed: int = 0) -> list[dict[str, Any]]:
    """Return McNemar's test of each pair of models, and by how much the first one is ahead.

    The test is the exact one, two-sided: of the examples that one of the two has right, each is as
    likely as not to be the first one's. It takes examples for independent; the intervals, over the
    same blocks as those of the figures, do not.
    """
    n = len(next(iter(judged.values())).labels)
    blocks = Blocks(n, seed)
    right, losses = {}, {}
    for name, each in judged.items():
        right[name] = each.log_posteriors.argmax(axis=1) == each.labels
        losses[name] = each.losses()
    found = []
    for first, second in combinations(judged, 2):
        only_first = int((right[first] & ~right[second]).sum())
        only_second = int((right[second] & ~right[first]).sum())
        is_possible = losses[first][1] & losses[second][1]
        gain = losses[second][0] - losses[first][0]
        found.append(
            {
                "first": first, "second": second,
                "only_first_right": only_first, "only_second_right": only_second,
                "p_value": mcnemar(only_first, only_second),
                "accuracy": blocks.ratio(_difference(right[first], right[second]), np.ones(n)),
                "log_loss": blocks.ratio(np.where(is_possible, gain, 0.0), is_possible),
            }
        )  # fmt: skip
    return found


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of McNemar's exact test.

    >>> mcnemar(1, 9)
    0.021484375
    """
    from scipy.special import bdtr  # noqa: PLC0415 -- with scikit-learn, which a thread imports

    n = only_first + only_second
    return float(min(1.0, 2.0 * bdtr(min(only_first, only_second), n, 0.5)))


def _difference(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> NDArray[np.float64]:
    return first.astype(np.float64) - second


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return short names of configurations: the files' own where these differ, else the paths."""
    own = [each.stem for each in paths]
    alike = len(set(own)) < len(own) or not PEERS.keys().isdisjoint(own)
    return [str(each) for each in paths] if alike else own


def same_file(paths: Sequence[Path]) -> tuple[Path, Path] | None:
    """Return two paths of one file, whatever links lead there; None if there are none."""
    for first, second in combinations(paths, 2):
        if first.resolve() == second.resolve() or (
            first.exists() and second.exists() and first.samefile(second)
        ):
            return first, second
    return None


# ---- models of other libraries -------------------------------------------------------------------

_WORD = re.compile(r"\w+")
_STEP = 1_000  # examples after which scikit-learn's model learns them
_LEAST = 1e-15  # a peer's probability; below it float64 has no sum of 1

Features = dict[str, float]


class Peer:
    """A model of another library in the place of ours: it judges each example, then learns it.

    It reads the fields of the first configuration's model: words and pairs of words, each once,
    values of categories and flags, and numbers as they are.
    """

    def __init__(self, engine: _Engine, settings: Settings) -> None:
        self.classes: tuple[str, ...] = settings.model.classes
        self._engine = engine
        self._kinds = kinds_of(settings.model)

    def prequential_many(
        self,
        columns: Mapping[str, Any],
        labels: Codes,
        *,
        weights: NDArray[np.float64] | None = None,
        times_s: NDArray[np.float64] | None = None,  # noqa: ARG002 -- as NaiveBayes has it
    ) -> NDArray[np.float64]:
        """Judge each example, then learn it; one without weight is judged alone."""
        rows = [self._features(columns, i) for i in range(len(labels.codes))]
        places = [self.classes.index(str(labels.classes[code])) for code in labels.codes.tolist()]
        is_learned = [True] * len(rows) if weights is None else (weights > 0).tolist()
        found = self._engine(rows, places, is_learned)
        whole = found / found.sum(axis=1, keepdims=True)
        log_posteriors: NDArray[np.float64] = np.log(np.clip(whole, _LEAST, 1.0))
        return log_posteriors

    def _features(self, columns: Mapping[str, Any], i: int) -> Features:
        found: Features = {}
        for name, value in example_at(columns, self._kinds, i).items():
            kind = self._kinds[name]
            if value is None:
                continue
            match kind:
                case "numbers":
                    found[name] = float(value)
                case "words":
                    words = _WORD.findall(value.lower())
                    both = [*words, *map("^".join, pairwise(words))]
                    found |= dict.fromkeys((f"{name}={word}" for word in both), 1.0)
                case "categories" | "flags":
                    found[f"{name}={value}"] = 1.0
                case _:
                    assert_never(kind)
        return found


# Judges and learns rows of features: their classes by place, and which of them are learned.
_Engine = Callable[[list[Features], list[int], list[bool]], NDArray[np.float64]]


def _river(n_classes: int) -> _Engine:
    """Return River's softmax regression, which learns one by one.

    It is told of all classes, as the others are: alone it gives those that have not come no share.
    """
    from river.linear_model import SoftmaxRegression  # noqa: PLC0415 -- a peer

    model: Any = SoftmaxRegression()
    for place in range(n_classes):
        model.weights[place]  # a defaultdict, which then has it, without a weight

    def judge(
        rows: list[Features], places: list[int], is_learned: list[bool]
    ) -> NDArray[np.float64]:
        found = np.empty((len(rows), n_classes))
        for i, row in enumerate(rows):
            for place, p in model.predict_proba_one(row).items():
                found[i, place] = p
            if is_learned[i]:
                model.learn_one(row, places[i])
        return found

    return judge


def _sklearn(n_classes: int) -> _Engine:
    """Return scikit-learn's logistic SGDClassifier, which learns a thousand at a time.

    However the examples are cut, it learns them in the same steps.
    """
    from scipy import sparse  # noqa: PLC0415 -- a peer's
    from sklearn.feature_extraction import FeatureHasher  # noqa: PLC0415 -- a peer
    from sklearn.linear_model import SGDClassifier  # noqa: PLC0415 -- a peer
    from sklearn.preprocessing import normalize  # noqa: PLC0415 -- a peer

    hasher = FeatureHasher(n_features=1 << 22)
    model = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=1)
    classes = np.arange(n_classes)
    waiting: list[tuple[Any, NDArray[np.int64]]] = []
    n_waiting, is_fitted = 0, False

    def judge(
        rows: list[Features], places: list[int], is_learned: list[bool]
    ) -> NDArray[np.float64]:
        nonlocal n_waiting, is_fitted
        found, begin = [np.empty((0, n_classes))], 0
        while begin < len(rows):
            learned = np.flatnonzero(is_learned[begin:])[: _STEP - n_waiting]
            n_waiting += len(learned)
            end = begin + int(learned[-1]) + 1 if n_waiting == _STEP else len(rows)
            x = normalize(hasher.transform(rows[begin:end]))  # else its steps are far too long
            even = np.full((end - begin, n_classes), 1.0 / n_classes)
            found.append(model.predict_proba(x) if is_fitted else even)
            waiting.append((x[learned], np.array(places[begin:end])[learned]))
            if n_waiting == _STEP:
                y = np.concatenate([each for _, each in waiting])
                model.partial_fit(sparse.vstack([x for x, _ in waiting]), y, classes)
                n_waiting, is_fitted = 0, True
                waiting.clear()
            begin = end
        return np.concatenate(found)

    return judge


def _vw(n_classes: int) -> _Engine:
    """Return Vowpal Wabbit's logistic model, one against all if there are several classes."""
    from vowpalwabbit import Workspace  # noqa: PLC0415 -- a peer

    kind = "--link logistic" if n_classes == 2 else f"--oaa {n_classes} --probabilities"
    model = Workspace(f"--quiet --loss_function logistic -b 22 {kind}")

    def judge(
        rows: list[Features], places: list[int], is_learned: list[bool]
    ) -> NDArray[np.float64]:
        found = np.empty((len(rows), n_classes))
        for i, row in enumerate(rows):
            features = " ".join(
                f"{_SIGNS.sub('_', name)}:{value:.9g}" for name, value in row.items()
            )
            said = model.predict(f"| {features}")
            found[i] = (1.0 - said, said) if n_classes == 2 else said
            if is_learned[i]:
                label = 2 * places[i] - 1 if n_classes == 2 else places[i] + 1
                model.learn(f"{label} | {features}")
        return found

    return judge


# In Vowpal Wabbit's format a bar begins a namespace and a colon a value.
_SIGNS = re.compile(r"[|:\s]")
PEERS: dict[str, tuple[str, str, Callable[[int], _Engine]]] = {
    "vw": ("vowpalwabbit", "Vowpal Wabbit's logistic model, 2²² weights", _vw),
    "river": ("river", "River's SoftmaxRegression", _river),
    "sklearn": (
        "scikit-learn", "scikit-learn's logistic SGDClassifier, 1,000 messages a step", _sklearn
    ),
}  # fmt: skip
_MODULES = {"scikit-learn": "sklearn"}
_EXTRAS = {"river": "'streamnb[river]'", "scikit-learn": "'streamnb[evaluation]'"}


def build_peer(name: str, settings: Settings) -> Peer:
    """Return the model of another library; without its package it is a `ConfigError`."""
    package, _, build = PEERS[name]
    if importlib.util.find_spec(_MODULES.get(package, package)) is None:
        raise ConfigError(
            f"--peer {name} needs the package {package!r}, and it is not installed. Install it: pip"
            f" install {_EXTRAS.get(package, package)}, or leave out --peer {name}"
        )
    if settings.model.new_classes or len(settings.model.classes) < 2:
        raise ConfigError(
            f"--peer {name}: other libraries must know all classes: set model.new_classes to false,"
            " and two or more in model.classes"
        )
    return Peer(build(len(settings.model.classes)), settings)
