"""The laws of any configured model: those that users run by `streamnb.testing`, by Hypothesis.

With ``--hypothesis-profile deep`` each law is put to ten thousand cases.
"""

from __future__ import annotations

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from streamnb.testing import LAWS, DoesNotApply, Law
from tests.library.testing.random_models import Wanted, cases

_COUNTED = Wanted(decays="nnns", is_bounded=False)
# What a law speaks of, where that is not everything: others would not apply and prove nothing.
WANTED = {
    "weights_repeat": _COUNTED,
    "merging_has_no_order": _COUNTED,
    "subtracting_undoes_merging": _COUNTED,
    "unlearned_is_never_learned": _COUNTED,
    "parts_add_up": _COUNTED,
    "decay_is_the_plain_formula": Wanted(decays="es", is_bounded=False),
    "groups_are_independent": Wanted(is_named=True),
    "untrained_answers_prior": Wanted(is_declared=True),
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@given(data=st.data())
def test_the_law_holds(law: Law, data: st.DataObject) -> None:
    """Whatever families, priors, groups, classes, weights and decay a model has, each law holds."""
    case = data.draw(cases(WANTED.get(law.__name__, Wanted())))
    try:
        law(case)
    except DoesNotApply:
        reject()
