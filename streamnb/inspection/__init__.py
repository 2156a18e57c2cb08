"""What a model can say of itself beyond posteriors; `group_view.GroupView` lists the questions."""

from streamnb.inspection import categorical, numeric, words  # noqa: F401 -- to be found by view_of
from streamnb.inspection.explain import Contribution, Explanation, RankedFeature
from streamnb.inspection.parameters import DataLikelihood, LinearForm, Parameters

__all__ = [
    "Contribution",
    "DataLikelihood",
    "Explanation",
    "LinearForm",
    "Parameters",
    "RankedFeature",
]
