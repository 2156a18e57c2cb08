"""Several models on one source: who is right more often, how sure that is, and where they differ.

Each model is that of a configuration; how messages are read and labelled is the first one's. The
source is read once: each batch is decoded once, and every model judges and learns it by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from consumers.cli.evaluation import Evaluation, Method, read_messages
from consumers.cli.figures import Blocks, JudgedExamples
from consumers.cli.model_report import feature_scores
from consumers.config.model import FeatureSettings, Kind
from consumers.config.settings import Settings
from consumers.decode.example_input import example_at
from consumers.errors import ConfigError
from consumers.factories import build_decoder
from consumers.features import columns_of, kinds_of
from consumers.messages import Envelope, Messages


@dataclass(slots=True)
class Comparison:
    """What several models said of the same examples, by the models' names."""

    judged: dict[str, JudgedExamples]
    n_disagreements: int  # messages of which not all said the same
    disagreements: list[dict[str, Any]]  # some of them: where the true class fared most unlike


@dataclass(frozen=True, slots=True)
class _Disagreement:
    spread: float  # between the probabilities of the true class
    message: Envelope
    examples: dict[str, dict[str, Any]]
    said: dict[str, tuple[str, float, float]]  # label, its probability, that of the true class


def compare(
    settings: Mapping[str, Settings], method: Method, n_shown: int, *, show: bool = False
) -> Comparison:
    """Judge the source of the first settings by the models of all, as messages come."""
    first = next(iter(settings.values()))
    base = first.model_copy(update={"model": _reading(settings)})
    evaluations = {
        name: Evaluation(base.model_copy(update={"model": each.model}), method)
        for name, each in settings.items()
    }
    found: list[_Disagreement] = []
    n_found = 0

    def take(messages: Messages) -> None:
        nonlocal n_found
        taken = [each.take(messages) for each in evaluations.values()]
        if not taken[0]:
            return
        n_new, new = _disagreements(messages, evaluations, n_shown)
        n_found += n_new
        found[:] = sorted(found + new, key=lambda each: -each.spread)[:n_shown]

    known = next(iter(evaluations.values())).known
    read_messages(
        base, "compare", take, method.messages_max,
        lambda source: build_decoder(base, source, known), show=show,
    )  # fmt: skip
    judged = {name: each.result() for name, each in evaluations.items()}
    return Comparison(judged, n_found, [_explained(each, evaluations) for each in found])


def _reading(settings: Mapping[str, Settings]) -> Any:
    """Return model settings by which all fields are read that a model wants.

    Models that cannot be told of the same messages are a `ConfigError`.
    """
    (first_name, first), *others = settings.items()
    for name, each in others:
        for key in ("classes", "new_classes"):
            if getattr(each.model, key) != getattr(first.model, key):
                raise ConfigError(
                    f"{name}: model.{key} is {getattr(each.model, key)!r}, and in {first_name}"
                    f" {getattr(first.model, key)!r}. Give all models the same"
                )
    kinds: dict[str, Kind] = {}
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
        words, others = feature_scores(model, found.examples[name], known)
        models[name] = {
            "said": label, "probability": sure, "probability_of_truth": of_truth,
            "scores": [{"feature": value, "score": score} for value, score in words + others],
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
    n = only_first + only_second
    return float(min(1.0, 2.0 * bdtr(min(only_first, only_second), n, 0.5)))


def _difference(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> NDArray[np.float64]:
    return first.astype(np.float64) - second


def names_of(paths: Sequence[Any]) -> list[str]:
    """Return short names of configurations: the files' own where these differ, else the paths."""
    own = [each.stem for each in paths]
    return own if len(set(own)) == len(own) else [str(each) for each in paths]
