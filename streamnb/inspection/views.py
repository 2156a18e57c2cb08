"""What can be told of a model beyond its posteriors, one file a kind of group."""

from __future__ import annotations

from streamnb.features.categorical import CategoriesState
from streamnb.features.counted_words import CountedState
from streamnb.features.flags import FlagsState
from streamnb.features.numeric import NumbersState
from streamnb.features.protocol import GroupState
from streamnb.inspection.categorical import CategoriesView
from streamnb.inspection.flags import FlagsView
from streamnb.inspection.numeric import NumbersView
from streamnb.inspection.view_protocol import FeatureLogs, Linear, ParameterCount, View
from streamnb.inspection.words import BernoulliView, ComplementView, MultinomialView
from streamnb.likelihoods import Bernoulli, Multinomial
from streamnb.likelihoods.complement import Complement

_WORD_VIEWS: dict[type, type[View]] = {
    Bernoulli: BernoulliView,
    Complement: ComplementView,
    Multinomial: MultinomialView,
}
_VIEWS: dict[type, type[View]] = {
    CategoriesState: CategoriesView,
    FlagsState: FlagsView,
    NumbersState: NumbersView,
}


def view_of(state: GroupState, scale: float) -> View:
    """Return the view of a group.

    Parameters
    ----------
    state : GroupState
    scale : float
        How far decay has scaled the counts by now; 1 without decay.
    """
    if isinstance(state, CountedState):
        return _WORD_VIEWS[type(state.spec.likelihood)](state, scale)
    return _VIEWS[type(state)](state, scale)


__all__ = [
    "BernoulliView",
    "CategoriesView",
    "ComplementView",
    "FeatureLogs",
    "FlagsView",
    "Linear",
    "MultinomialView",
    "NumbersView",
    "ParameterCount",
    "View",
    "view_of",
]
