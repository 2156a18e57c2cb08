"""The laws of a model, to be run on the one that you have configured.

`check_model` takes a function that makes your model, teaches it a stream (yours, or one made up
from the model's own specification) in many ways, and tells which laws hold: that a batch is single
examples, that models merge in any order, that what is unlearned was never learned, and so on.
"""

from streamnb.testing.cases import Broken, Case, DoesNotApply, Example, examples_for
from streamnb.testing.runner import LAWS, Finding, Law, LawBroken, Report, check_model

__all__ = [
    "LAWS",
    "Broken",
    "Case",
    "DoesNotApply",
    "Example",
    "Finding",
    "Law",
    "LawBroken",
    "Report",
    "check_model",
    "examples_for",
]
