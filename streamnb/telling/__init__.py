"""What a model tells of itself beyond posteriors, one file a question."""

from streamnb.telling.explaining import Contribution, Explanation
from streamnb.telling.informative import TellingFeature
from streamnb.telling.likelihood import DataLikelihood
from streamnb.telling.linear import LinearForm
from streamnb.telling.mixin import Telling
from streamnb.telling.parameters import Parameters

__all__ = [
    "Contribution",
    "DataLikelihood",
    "Explanation",
    "LinearForm",
    "Parameters",
    "Telling",
    "TellingFeature",
]
