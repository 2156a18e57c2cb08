"""Checks of the laws that a model obeys, for the model that you have configured.

`check_model` takes a function that makes your model, trains it on a stream (yours, or one generated
from the model's specification) in many ways, and reports which laws hold: that a batch equals
single examples, that models merge in any order, that unlearning leaves no trace, and so on.

`ManualClock` and `FaultSchedule` stand in for time and failure in your own tests. As fixtures of
pytest, with recorded streams, they are in `consumers.testing`.
"""

from streamnb.testing.cases import Broken, Case, DoesNotApply, Example
from streamnb.testing.runner import (
    LAWS,
    FaultSchedule,
    Finding,
    Law,
    LawBroken,
    ManualClock,
    Report,
    check_model,
    examples_for,
)

__all__ = [
    "LAWS",
    "Broken",
    "Case",
    "DoesNotApply",
    "Example",
    "FaultSchedule",
    "Finding",
    "Law",
    "LawBroken",
    "ManualClock",
    "Report",
    "check_model",
    "examples_for",
]
