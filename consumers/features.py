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
from consumers.decode.fields import take, take_texts
from consumers.messages import CLASSES_MAX, Messages, Reason, Reject
from streamnb import (
    Bernoulli,
    Beta,
    Categorical,
    Categories,
    Codes,
    Complement,
    Dirichlet,
    Fixed,
    Flags,
    Gaussian,
    Multinomial,
    NaiveBayes,
    NormalInverseGamma,
    Numbers,
    TextColumn,
    VarianceFloor,
    Words,
)
from streamnb.columns import missing_text
from streamnb.labels import Label, new_labels

Column = TextColumn | NDArray[np.float64]


def build_model(settings: ModelSettings) -> NaiveBayes:
    """Return the untrained model of the settings."""
    return NaiveBayes(
        classes=settings.classes,
        class_prior=_class_prior(settings.class_prior, settings.classes),
        features={name: _group(name, group) for name, group in settings.features.items()},
        new_classes=settings.new_classes,
    )


def keep_classes(model: NaiveBayes) -> tuple[Label, ...]:
    """Declare the classes that joined, so that unlearning their last example leaves them.

    The figures, metrics and stored messages of a run know classes by their place in the model.
    """
    classes = model.classes
    model.state.n_declared_classes = len(classes)
    return classes


def is_over_limit(label: Label, n_new: int, model: NaiveBayes) -> bool:
    """Return whether a label may not become a class, as the model has too many; `n_new` join first.

    It is asked as the label is learned, so that the order of its log decides, in a replay too.
    """
    classes = model.classes
    return model.new_classes and label not in classes and len(classes) + n_new >= CLASSES_MAX


def over_limit(label: Label) -> str:
    """Return why a label is refused; see `is_over_limit`."""
    return (
        f"the label {str(label)[:60]!r} is none of the model's classes, and no more may join: there"
        f" are {CLASSES_MAX}; declare more in model.classes"
    )


def within_limit(messages: Messages, model: NaiveBayes) -> Messages:
    """Return a batch whose labels may all be learned; the other messages become rejects."""
    unknown = set(messages.classes).difference(model.classes)
    if not model.new_classes or len(model.classes) + len(unknown) <= CLASSES_MAX:
        return messages
    rows = messages.to_learn
    codes = Codes(messages.labels[rows], messages.classes)
    new = [label for _, label in new_labels(codes, model.classes)]
    over = [
        messages.classes.index(str(label))
        for k, label in enumerate(new)
        if is_over_limit(label, k, model)
    ]
    return _rejected(messages, rows[np.isin(codes.codes, over)]) if over else messages


def _rejected(messages: Messages, rows: NDArray[np.int64]) -> Messages:
    """Return a batch of which some messages became rejects, as their class may not join."""
    raw, labels = messages.raw, messages.labels[rows].tolist()
    ids = messages.metadata(raw, messages.at[rows]).ids
    rejects = [
        Reject(
            Reason.UNKNOWN_LABEL, over_limit(messages.classes[code]), raw.partition,
            int(raw.offsets[i]), int(raw.times_ms[i]), raw.key(i), raw.value(i), name,
        )
        for i, code, name in zip(messages.at[rows].tolist(), labels, ids, strict=True)
    ]  # fmt: skip
    kept = np.delete(np.arange(len(messages)), rows)
    return dataclasses.replace(
        messages,
        at=messages.at[kept],
        labels=messages.labels[kept],
        operations=messages.operations[kept],
        texts=take_texts(messages.texts.texts, kept),
        fields={name: _rows_of(column, kept) for name, column in messages.fields.items()},
        rejects=sorted([*messages.rejects, *rejects], key=lambda reject: reject.offset),
    )


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
    return {name: _rows_of(_column(messages, name), rows) for name in names}


def _column(messages: Messages, name: str) -> Column:
    if name == "text":
        return messages.texts
    return messages.fields[name] if name in messages.fields else missing_text(len(messages))


def _rows_of(column: Column, rows: NDArray[np.int64]) -> Column:
    if len(rows) == len(column):
        return column
    return take(column.texts if isinstance(column, TextColumn) else column, rows)
