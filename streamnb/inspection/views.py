"""The view of each kind of group."""

from __future__ import annotations

from streamnb.features.categorical import CategoriesState
from streamnb.features.counted_words import CountedState
from streamnb.features.flags import FlagsState
from streamnb.features.numeric import NumbersState
from streamnb.features.protocol import GroupState
from streamnb.inspection.categorical import CategoriesView, FlagsView
from streamnb.inspection.group_view import GroupView
from streamnb.inspection.numeric import NumbersView
from streamnb.inspection.words import BernoulliView, ComplementView, MultinomialView
from streamnb.likelihoods import Bernoulli, Multinomial
from streamnb.likelihoods.complement import Complement
from streamnb.state import ModelState

_VIEWS: dict[type, type[GroupView]] = {
    Bernoulli: BernoulliView,
    Complement: ComplementView,
    Multinomial: MultinomialView,
    CategoriesState: CategoriesView,
    FlagsState: FlagsView,
    NumbersState: NumbersView,
}


def view_of(state: GroupState, scale: float) -> GroupView:
    """Return the view of a group.

    Parameters
    ----------
    state : GroupState
    scale : float
        How far decay has scaled the counts by now; 1 without decay.
    """
    kind = type(state.spec.likelihood) if isinstance(state, CountedState) else type(state)
    return _VIEWS[kind](state, scale)


def views_of(state: ModelState) -> dict[str, GroupView]:
    """Return the view of each group, decayed up to now."""
    scale = state.clock.scale
    return {name: view_of(group, scale) for name, group in state.groups.items()}
