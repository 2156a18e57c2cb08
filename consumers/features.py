"""Messages to the columns that the model's groups read, and the model of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from consumers.messages import Messages
from consumers.settings.model import ModelSettings, WordsSettings
from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words

_OWN_COLUMNS = {"text": "texts", "user": "users", "lang": "langs"}


def build_model(settings: ModelSettings) -> NaiveBayes:
    """Return the untrained model that the settings describe."""
    return NaiveBayes(
        classes=settings.classes,
        class_prior=Dirichlet(settings.class_prior),
        features={name: _words(group) for name, group in settings.features.items()},
    )


def _words(settings: WordsSettings) -> Words:
    likelihood: Bernoulli | Multinomial
    if settings.likelihood == "bernoulli":
        likelihood = Bernoulli(Beta(*settings.beta))
    else:
        likelihood = Multinomial(Dirichlet(settings.alpha))
    own = settings.model_dump(exclude={"kind", "likelihood", "beta", "alpha"})
    return Words(likelihood, **own)


def extra_fields(settings: ModelSettings) -> tuple[str, ...]:
    """Return the fields of a message that the model reads beyond text, user and lang."""
    return tuple(name for name in settings.features if name not in _OWN_COLUMNS)


def columns_of(
    messages: Messages, rows: Sequence[int], names: Sequence[str]
) -> dict[str, list[Any]]:
    """Return the fields `names` of some rows; a value that is no text is missing.

    Parameters
    ----------
    messages : Messages
    rows : sequence of int
        Places in `messages`, ascending.
    names : sequence of str
        Columns of a message (``text``, ``user``, ``lang``), or its other fields.

    Returns
    -------
    dict of str to list
        By name, each of length ``len(rows)``.
    """
    columns: dict[str, list[Any]] = {}
    for name in names:
        if name in _OWN_COLUMNS:
            values = getattr(messages, _OWN_COLUMNS[name])
            columns[name] = values if len(rows) == len(values) else [values[i] for i in rows]
        else:
            found = (messages.fields[i].get(name) for i in rows)
            columns[name] = [value if isinstance(value, str) else None for value in found]
    return columns
