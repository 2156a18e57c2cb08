"""Messages to the columns that the model's groups read, and the model of the settings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consumers.messages import Messages
from consumers.settings.model import ModelSettings, WordsSettings
from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, TextColumn, Words
from streamnb.columns import missing_text
from streamnb.kernels.layout import Texts

_OWN_COLUMNS = {"text", "user", "lang"}


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
    messages: Messages, rows: NDArray[np.int64], names: Sequence[str]
) -> dict[str, TextColumn]:
    """Return the fields `names` of some rows; a value that is no text is missing.

    Parameters
    ----------
    messages : Messages
    rows : ndarray of shape (n,), int64
        Places in `messages`, ascending.
    names : sequence of str
        The text, or other fields that were decoded for the model.

    Returns
    -------
    dict of str to TextColumn
        By name, each of length n.
    """
    return {name: _chosen(_column(messages, name), rows) for name in names}


def _column(messages: Messages, name: str) -> TextColumn:
    if name == "text":
        return messages.texts
    return messages.fields[name] if name in messages.fields else missing_text(len(messages))


def _chosen(column: TextColumn, rows: NDArray[np.int64]) -> TextColumn:
    if len(rows) == len(column):
        return column
    data, starts, ends = column.texts
    return TextColumn(Texts(data, starts[rows], ends[rows]))
