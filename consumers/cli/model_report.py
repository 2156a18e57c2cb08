"""What `predict` and `inspect` find in a model: plain values, ready for JSON and for the screen.

Only the model's public reading side is asked. Scores of features are in nats: the log-likelihood in
a class, less the logarithm of the mean likelihood in the others.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from consumers.cli.conventions import find_config
from consumers.config.settings import Settings, load
from consumers.decode.example_input import kinds_in
from consumers.errors import CheckpointError, ConfigError, MismatchError
from consumers.features import kinds_of, learned_confidence, learned_rule, own_costs
from consumers.monitoring import logs
from consumers.pipeline.checkpoint import FILE_NAME
from consumers.sinks.records import decided_by
from streamnb import ConformalSets, NaiveBayes, Snapshot, StoreWarning, storage
from streamnb.errors import InputError
from streamnb.inspection.explain import Explanation
from streamnb.inspection.summary import (
    flag_rows,
    n_features,
    number_rows,
    value_rows,
    values_dropped,
)
from streamnb.inspection.words import MISSING
from streamnb.labels import Label
from streamnb.reader import ModelReader
from streamnb.storage import Stored

Scores = list[tuple[str, float, bool]]  # a feature, its score, and whether no class has learned it
FEATURES_MAX = 8  # of each kind, to explain a prediction


def read_model(path: Path) -> tuple[Stored, list[str]]:
    """Read a checkpoint, and what there is to say about its state."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StoreWarning)
        stored = storage.read_model(path)
    return stored, [str(warning.message) for warning in caught]


def _settings_of(config: Path | Settings | None) -> Settings:
    """Return settings as they are, or those of a file.

    A command that has an option which wins over the file must give its settings: without the option
    the file may be refused.
    """
    return config if isinstance(config, Settings) else load(find_config(config), os.environ)


def newest_checkpoint(config: Path | Settings | None, *, takes_model: bool = True) -> Path:
    """Return the file of the newest checkpoint of a configuration.

    Where there is none, the error names --model if the command `takes_model`.
    """
    folder = _settings_of(config).checkpoint.folder
    other = "a model with --model FILE" if takes_model else "the daemon's configuration by --config"
    if folder is None:
        raise ConfigError(f"checkpoint.folder is null: name {other}")
    path = folder / FILE_NAME
    if not any(folder.glob(f"{FILE_NAME}*")):
        raise CheckpointError(
            f"{path}: there is no checkpoint yet; let `streamnb run` learn first, or name {other}"
        )
    return path


def read_newest(config: Path | None, source: str | None) -> tuple[Settings, Stored, list[str]]:
    """Read the settings and their newest checkpoint, for a command that reads its log again."""
    settings = load(find_config(config), os.environ, {"source": source})
    logs.configure(None)
    stored, troubles = read_model(newest_checkpoint(settings, takes_model=False))
    said = stored.header["notes"].get("entries", {}).get("challengers")
    if said is not None:
        name = said["serving"]
        if said["models"][name]["begins"] is not None:
            raise ConfigError(
                f"challengers.{name}: it serves, and began at a later place of the log than the "
                "checkpoint, which its counts cannot be compared with"
            )
        model = settings.models.get(name, settings.model)
        settings = settings.model_copy(update={"model": model, "challengers": {}})
    return settings, stored, troubles


def answering(stored: Stored, config: Path | Settings | None) -> NaiveBayes | Snapshot:
    """Return what a checkpoint answers by: its model, calibrated if it knows how.

    The costs are those of the configuration, if its classes are the model's.
    """
    answers = calibrated_model(stored)
    if not isinstance(answers, Snapshot):
        return answers
    costs = own_costs(_settings_of(config).model, stored.model)
    return Snapshot(stored.model, 0, replace(answers.rule, costs=costs))


def calibrated_model(stored: Stored) -> NaiveBayes | Snapshot:
    """Return a file's model, answering by the rule that a daemon or `streamnb.save` left there."""
    rule = learned_rule(stored.header["notes"], len(stored.model.classes))
    return stored.model if rule is None else Snapshot(stored.model, 0, rule)


class SavedModel(NamedTuple):
    """What a file answers by; its sets are of calibrated answers, if it has a calibrator."""

    model: NaiveBayes | Snapshot
    sets: ConformalSets | None


def saved_model(path: Path, settings: Settings, *, calibrated: bool = True) -> SavedModel:
    """Return what a file answers by: its model, calibrated as it has learned if that is asked for.

    One that reads other fields than the settings' is a `MismatchError`.
    """
    stored, _ = read_model(path)
    wanted, found = kinds_in(stored.model), kinds_of(settings.model)
    if wanted != found:
        raise MismatchError(
            f"{path} reads {_shown(wanted)}, and the configuration's model {_shown(found)}. Give"
            " the configuration that the model was learned with, by -c"
        )
    known = learned_confidence(stored.header["notes"])
    if known is not None and not calibrated and known.calibrator is not None:
        return SavedModel(stored.model, None)
    sets = None if known is None else known.conformal
    return SavedModel(calibrated_model(stored) if calibrated else stored.model, sets)


def _shown(kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in kinds.items())


def predict(
    model: NaiveBayes | Snapshot,
    example: Mapping[str, Any],
    text: str | None = None,
    reader: ModelReader | None = None,
) -> dict[str, Any]:
    """Judge one example; `text` was asked about, where that is all the example holds.

    `reader` answers in the model's place, if it is given: the same one without its class prior.

    Returns ``text``, or ``fields`` where it was no text; ``label``, the most probable class;
    ``probabilities`` by class; ``prediction_set`` and ``decision``, where the checkpoint has them;
    ``by_prior``, whether every class was impossible, so that the class prior alone answered;
    ``words`` and ``features``, those that weigh most, each with its
    score: above 0 it speaks for the label, below 0 against. What is ``unseen`` no class has
    learned, and its score is the prior's alone.
    """
    reader = model if reader is None else reader
    label = reader.predict_one(example)
    words: Scores = []
    features: Scores = []
    by_prior = False
    if len(model.classes) > 1 and label is not None:
        whole = reader.explain_one(example)
        words, features = feature_scores(reader, whole, label)
        by_prior = whole.by_prior
    there = {field: value for field, value in example.items() if not _is_missing(value)}
    decided: dict[str, Any] = {}
    if isinstance(model, Snapshot):
        logs = np.array([[*reader.predict_log_proba_one(example).values()]])
        decided = decided_by(model.rule, [str(each) for each in model.classes], logs)[0]
    asked = {"text": text} if text is not None and len(there) <= 1 else {"fields": there}
    return {
        **asked,
        "label": label,
        "probabilities": reader.predict_proba_one(example),
        **decided,
        "by_prior": by_prior,
        "words": as_rows("word", words),
        "features": as_rows("feature", features),
    }


def feature_scores(model: ModelReader, whole: Explanation, label: Label) -> tuple[Scores, Scores]:
    """Return the words and the other features that weigh most for or against a label.

    `whole` is the model's explanation of the example.
    """
    names = set(_groups(model, "words"))
    words: Scores = []
    others: Scores = []
    for each in whole.contributions:
        if each.group is not None:
            is_word = each.group in names and each.value != MISSING
            found = each.value, each.against_others(label), each.unseen
            (words if is_word else others).append(found)
    for scores in (words, others):
        scores.sort(key=lambda each: (-abs(each[1]), each[0]))
    return words[:FEATURES_MAX], others[:FEATURES_MAX]


def as_rows(name: str, scores: Scores) -> list[dict[str, Any]]:
    """Return scores as plain values, with the features under `name`."""
    return [{name: value, "score": score, "unseen": unseen} for value, score, unseen in scores]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _groups(model: ModelReader, kind: str) -> list[str]:
    """Return the names of the groups of a kind."""
    groups = model.state.describe()["groups"]
    return [name for name, spec in groups.items() if spec["kind"] == kind]


def inspect(stored: Stored, n: int, words: Sequence[str] = ()) -> dict[str, Any]:
    """Describe a checkpoint.

    ``digest`` is that of the counts. Of each group the `words` are shown, or without any the `n`
    most frequent ones, and of each field the `n` most frequent values. ``classes`` have their count
    N_c and prior π; ``words`` their group, counts N_jc and likelihoods θ by class; ``values``,
    ``flags`` and ``numbers`` what was counted by class, see `streamnb.inspection.summary`;
    ``sections`` their position.
    """
    model = stored.model
    classes = [
        {"label": label, "count": count, "prior": prior}
        for label, count, prior in zip(
            model.classes, model.class_counts.tolist(), model.class_priors().tolist(), strict=True
        )
    ]
    return {
        "path": str(stored.path),
        "digest": model.digest(),
        "n_examples": model.n_examples,
        "vocabulary_size": model.vocabulary_size,
        "words_dropped": model.words_dropped,
        "values_dropped": values_dropped(model.state),
        "n_features": n_features(model.state),
        "classes": classes,
        "words": _words(model, n, words),
        "values": _values(model, n),
        "flags": [
            {
                "group": row.group,
                "field": row.field,
                "true": _by_class(model, row.true),
                "false": _by_class(model, row.false),
            }
            for row in flag_rows(model.state)
        ],
        "numbers": [
            {
                "group": row.group,
                "field": row.field,
                "n": _by_class(model, row.n),
                "mean": _by_class(model, row.mean),
                "m2": _by_class(model, row.m2),
                "deviation": _by_class(model, row.deviation),
            }
            for row in number_rows(model.state)
        ],
        "sections": [
            {"name": name, "position": stored.positions.get(name), "n_examples": part.n_examples}
            for name, part in model.parts.items()
        ],
    }


def _words(model: NaiveBayes, n: int, words: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for group in _groups(model, "words"):
        shown = list(words) or model.top_words(n, group)
        if not shown:
            continue
        counts = model.word_counts(shown, group)
        theta = model.word_likelihoods(shown, group)
        rows += [
            {
                "group": group,
                "word": word,
                "counts": _by_class(model, counts[i]),
                "likelihoods": _by_class(model, theta[i]),
            }
            for i, word in enumerate(shown)
        ]
    return rows


def _values(model: NaiveBayes, n: int) -> list[dict[str, Any]]:
    rows = []
    told: dict[tuple[str, str], int] = {}
    for row in value_rows(model.state):
        place = told[row.group, row.field] = told.get((row.group, row.field), 0) + 1
        if place <= n:
            counts = _by_class(model, row.counts)
            rows.append(
                {"group": row.group, "field": row.field, "value": row.value, "counts": counts}
            )
    return rows


def _by_class(model: NaiveBayes, values: Any) -> dict[str, float]:
    return dict(zip(map(str, model.classes), values.tolist(), strict=True))


def training_figures(model: ModelReader) -> dict[str, float] | None:
    """Return the joint log-likelihood of what a model learned, if its counts alone have it."""
    try:
        total = model.training_log_likelihood()
    except InputError:
        return None
    weight = float(model.class_counts.sum())  # what the total sums over: weighted and decayed
    return {
        "examples": float(model.n_examples),
        "log_likelihood": total,
        "joint_nll": -total / weight if weight else 0.0,
    }
