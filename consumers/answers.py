"""What `predict` and `inspect` find in a model: plain values, ready for JSON and for the screen.

Only the model's public reading side is asked. Scores of words are in nats: log θ of a class minus
log of the mean θ of the other classes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamnb import NaiveBayes, StoreWarning, Words
from streamnb.store import Stored, read

WORDS_TOLD = 8  # words that a prediction is explained by


def read_model(path: Path) -> tuple[Stored, list[str]]:
    """Read a checkpoint, and what there is to say about its state.

    Raises
    ------
    StoreError
        No file beside `path` can be used.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StoreWarning)
        stored = read(path)
    return stored, [str(warning.message) for warning in caught]


def predict(model: NaiveBayes, text: str) -> dict[str, Any]:
    """Judge one text.

    Returns
    -------
    dict
        ``text``; ``label``, the most probable class; ``probabilities`` by class; ``words``, those
        that weigh most, each with its score: above 0 it speaks for the label, below 0 against.
    """
    example = {"text": text}
    probabilities = model.predict_proba_one(example)
    label = model.predict_one(example)
    return {
        "text": text,
        "label": label,
        "probabilities": probabilities,
        "words": [{"word": word, "score": score} for word, score in _weights(model, text, label)],
    }


def _weights(model: NaiveBayes, text: str, label: Any) -> list[tuple[str, float]]:
    """Return the known words of `text` with their scores for `label`, the weightiest first."""
    spec = model.describe()["groups"].get("text")
    if spec is None or len(model.classes) < 2:
        return []
    # A model of this one text finds exactly the words that the real one would find in it.
    reader = NaiveBayes(["any"], features={"text": Words.from_dict(spec)})
    reader.learn_one({"text": text}, "any")
    words = reader.words("text")
    if not words:
        return []
    known = (model.word_counts(words, "text").sum(axis=1) > 0).tolist()
    theta = model.word_likelihoods(words, "text")
    c = model.classes.index(label)
    scores = [
        (word, _log_ratio(row[c], (sum(row) - row[c]) / (len(row) - 1)))
        for word, row, is_known in zip(words, theta.tolist(), known, strict=True)
        if is_known
    ]
    return sorted(scores, key=lambda pair: (-abs(pair[1]), pair[0]))[:WORDS_TOLD]


def _log_ratio(own: float, others: float) -> float:
    if own == others:
        return 0.0
    if own == 0:
        return -math.inf
    return math.inf if others == 0 else math.log(own / others)


def inspect(stored: Stored, n_words: int, words: Sequence[str] = ()) -> dict[str, Any]:
    """Describe a checkpoint.

    Parameters
    ----------
    stored : Stored
        What was read.
    n_words : int
        How many of the most frequent words to show of each group, where `words` is empty.
    words : sequence of str
        The words to show.

    Returns
    -------
    dict
        ``path``, ``n_examples``, ``vocabulary_size``, ``words_dropped``; ``classes``, each with its
        count N_c and prior π; ``words``, each with its group, counts N_jc and likelihoods θ by
        class; ``sections``, each with its position and its number of examples.
    """
    model = stored.model
    classes = [
        {"label": label, "count": count, "prior": prior}
        for label, count, prior in zip(
            model.classes, model.class_counts.tolist(), model.class_priors().tolist(), strict=True
        )
    ]
    rows = []
    for group in model.describe()["groups"]:
        shown = list(words) or model.top_words(n_words, group)
        if not shown:
            continue
        counts = model.word_counts(shown, group).tolist()
        theta = model.word_likelihoods(shown, group).tolist()
        rows += [
            {
                "group": group,
                "word": word,
                "counts": dict(zip(map(str, model.classes), counts[i], strict=True)),
                "likelihoods": dict(zip(map(str, model.classes), theta[i], strict=True)),
            }
            for i, word in enumerate(shown)
        ]
    return {
        "path": str(stored.path),
        "n_examples": model.n_examples,
        "vocabulary_size": model.vocabulary_size,
        "words_dropped": model.words_dropped,
        "classes": classes,
        "words": rows,
        "sections": [
            {"name": name, "position": stored.positions.get(name), "n_examples": part.n_examples}
            for name, part in model.parts.items()
        ],
    }
