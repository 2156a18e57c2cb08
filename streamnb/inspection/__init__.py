"""What a model tells of itself beyond posteriors, one file a question."""

from streamnb.inspection.data_likelihood import DataLikelihood
from streamnb.inspection.explain import Contribution, Explanation
from streamnb.inspection.linear import LinearForm
from streamnb.inspection.parameters import Parameters
from streamnb.inspection.rank import RankedFeature

__all__ = [
    "Contribution",
    "DataLikelihood",
    "Explanation",
    "LinearForm",
    "Parameters",
    "RankedFeature",
]
