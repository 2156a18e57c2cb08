"""What can be told of a model beyond its posteriors, one file a kind of group."""

from __future__ import annotations

from streamnb.categories.state import CategoriesState
from streamnb.flags.state import FlagsState
from streamnb.groups import GroupState
from streamnb.likelihoods import Bernoulli, Multinomial
from streamnb.likelihoods.complement import Complement
from streamnb.numbers.state import NumbersState
from streamnb.views.base import Linear, ParameterCount, View
from streamnb.views.bernoulli_words import BernoulliView
from streamnb.views.categories import CategoriesView
from streamnb.views.complement_words import ComplementView
from streamnb.views.flags import FlagsView
from streamnb.views.multinomial_words import MultinomialView
from streamnb.views.numbers import NumbersView
from streamnb.words.counted import CountedState

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
    "FlagsView",
    "Linear",
    "MultinomialView",
    "NumbersView",
    "ParameterCount",
    "View",
    "view_of",
]
