"""The model of the settings, and the columns of messages that its groups read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consumers.config.model import (
    FIXED,
    CategoriesSettings,
    ClassPrior,
    FeatureSettings,
    FlagsSettings,
    Kind,
    ModelSettings,
    NumbersSettings,
    WordsSettings,
)
from consumers.config.sections import MESSAGE_PARTS
from consumers.messages import Column, Messages, rows_of
from streamnb import (
    Bernoulli,
    Beta,
    Categorical,
    Categories,
    Complement,
    Dirichlet,
    Fixed,
    Flags,
    Gaussian,
    Multinomial,
    NaiveBayes,
    NormalInverseGamma,
    Numbers,
    VarianceFloor,
    Words,
)
from streamnb.columns import missing_text


def build_model(settings: ModelSettings) -> NaiveBayes:
    """Return the untrained model of the settings."""
    return NaiveBayes(
        classes=settings.classes,
        class_prior=_class_prior(settings.class_prior, settings.classes),
        features={name: _group(name, group) for name, group in settings.features.items()},
        new_classes=settings.new_classes,
        hash_key=hash_key_of(settings),
    )


def hash_key_of(settings: ModelSettings) -> int | None:
    """Return the model's hash key, None if it is to be drawn at random."""
    key = settings.hash_key
    return None if key is None else int(key.get_secret_value(), 16)


def _class_prior(prior: ClassPrior, classes: Sequence[str]) -> Dirichlet | Fixed:
    if not isinstance(prior, dict):
        return Dirichlet(prior)
    fixed = prior.get(FIXED)
    if isinstance(fixed, dict):
        return Fixed({name: fixed[name] for name in classes})
    return Dirichlet([prior[name] for name in classes])


def _group(name: str, settings: FeatureSettings) -> Words | Categories | Flags | Numbers:
    """Return the specification of one group."""
    fields = settings.reads(name)
    if isinstance(settings, CategoriesSettings):
        prior = Dirichlet(settings.alpha)
        values = {field: list(own) for field, own in settings.values.items()} or None
        return Categories(
            Categorical(prior), fields=fields, values=values, max_values=settings.max_values
        )
    if isinstance(settings, FlagsSettings):
        beta = Beta(*settings.beta)
        return Flags(Bernoulli(beta), fields=fields, absent_is_false=settings.absent_is_false)
    if isinstance(settings, NumbersSettings):
        return Numbers(_gaussian(settings), fields=fields)
    return _words(settings)


def _gaussian(settings: NumbersSettings) -> Gaussian:
    prior: VarianceFloor | NormalInverseGamma = VarianceFloor(settings.variance_floor)
    if settings.prior == "normal-inverse-gamma":
        prior = NormalInverseGamma(
            mean=settings.prior_mean,
            kappa=settings.prior_kappa,
            alpha=settings.prior_alpha,
            beta=settings.prior_beta,
        )
    return Gaussian(prior=prior, variance=settings.variance)


def _words(settings: WordsSettings) -> Words:
    likelihood: Bernoulli | Complement | Multinomial
    if settings.likelihood == "bernoulli":
        likelihood = Bernoulli(Beta(*settings.beta))
    elif settings.likelihood == "complement":
        likelihood = Complement(Dirichlet(settings.alpha), normalise=settings.normalise)
    else:
        likelihood = Multinomial(Dirichlet(settings.alpha))
    options = {each.name for each in dataclasses.fields(Words)} - {"likelihood"}
    own = settings.model_dump(include=options)
    return Words(likelihood, field=settings.fields[0] if settings.fields else None, **own)


def kinds_of(settings: ModelSettings) -> dict[str, Kind]:
    """Return the fields of a message that the model reads, with the kind of their group."""
    return {
        field: group.kind
        for name, group in settings.features.items()
        for field in group.reads(name)
    }


def extra_fields(settings: ModelSettings) -> tuple[str, ...]:
    """Return the fields of a message that the model reads beyond text, user and lang."""
    return tuple(name for name in kinds_of(settings) if name not in MESSAGE_PARTS)


def columns_of(
    messages: Messages, rows: NDArray[np.int64], names: Sequence[str]
) -> dict[str, Column]:
    """Return the fields `names` of some rows, given ascending, each of their length."""
    return {name: rows_of(_column(messages, name), rows) for name in names}


def _column(messages: Messages, name: str) -> Column:
    if name == "text":
        return messages.texts
    return messages.fields[name] if name in messages.fields else missing_text(len(messages))
