"""Models that are wrong in one small way each: every law must be able to find its own fault.

Beside each fault stands a configuration in which it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from streamnb import Dirichlet, Flags, HalfLife, Multinomial, NaiveBayes, Numbers, Words
from streamnb.errors import InputError
from streamnb.features.flags import FlagsState
from streamnb.features.protocol import Floats

Learn = Callable[..., None]


class _Learner(NaiveBayes):
    """A model that learns each single example in a way of its own."""

    def learn_one(self, x: Any, y: Any, **how: Any) -> None:
        """Learn what `change` makes of the example."""
        x, y, how = self.change(x, y, how)
        super().learn_one(x, y, **how)

    def change(self, x: Any, y: Any, how: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Return the example as it is learned."""
        return x, y, how


class ForgetsLastRow(NaiveBayes):
    """Of a batch of more than two it learns all but the last."""

    def prequential_many(self, columns: Any, labels: Any, **how: Any) -> Floats:
        """Learn one row less."""
        n = len(labels)
        if n > 2:
            columns = {name: values[:-1] for name, values in columns.items()}
            labels, how = labels[:-1], {k: v if v is None else v[:-1] for k, v in how.items()}
        out = super().prequential_many(columns, labels, **how)
        return out if n <= 2 else np.vstack([out, out[-1:]])


class JudgesAfterwards(NaiveBayes):
    """A batch's answers are those that stand behind it."""

    def prequential_many(self, columns: Any, labels: Any, **how: Any) -> Floats:
        """Learn first, then judge."""
        super().prequential_many(columns, labels, **how)
        return self.predict_log_proba_many(columns)


class CapsWeights(_Learner):
    """No example counts more than twice."""

    def change(self, x: Any, y: Any, how: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Cap the weight."""
        return x, y, how | {"weight": min(how.get("weight", 1.0), 2.0)}


class NotesNothing(_Learner):
    """An example of weight 0 brings its class all the same."""

    def change(self, x: Any, y: Any, how: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Add the class."""
        self.add_class(y)
        return x, y, how


class ReadsFirstField(_Learner):
    """Only the field that comes first is learned."""

    def change(self, x: Any, y: Any, how: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Leave out all other fields."""
        return dict(list(x.items())[:1]), y, how


class FillsInZeros(NaiveBayes):
    """What is missing counts as 0."""

    def joint_log_likelihood_one(self, x: Mapping[str, Any]) -> dict[Any, float]:
        """Fill in zeros."""
        filled = {name: 0.0 if x.get(name) is None else x[name] for name in self.state.fields}
        return super().joint_log_likelihood_one(filled)


class TiesFields(_Learner):
    """Where there is no text, numbers are not learned either."""

    def change(self, x: Any, y: Any, how: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Leave out the numbers."""
        return (x if x.get("text") else {}), y, how


class MarksInput(_Learner):
    """It leaves a mark in what it was given."""

    def change(self, x: Any, y: Any, how: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Mark the example."""
        seen = x
        if isinstance(x, dict):
            seen, x["seen"] = dict(x), True
        return seen, y, how


class KnowsAllClasses(_Learner):
    """A class that comes late is taken for the first one."""

    def change(self, x: Any, y: Any, how: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Rename the class."""
        return x, (self.classes[0] if y not in self.classes else y), how


class CountsRefused(NaiveBayes):
    """What it refuses it has counted already."""

    def learn_one(self, x: Any, y: Any, **how: Any) -> None:
        """Count, then fail."""
        try:
            super().learn_one(x, y, **how)
        except InputError:
            self.state.n_examples += 1
            raise


class ForgetsPrior(NaiveBayes):
    """As long as nothing is learned all classes are alike to it."""

    def predict_proba_one(self, x: Mapping[str, Any]) -> dict[Any, float]:
        """Answer the same for each class."""
        said = super().predict_proba_one(x)
        return said if self.n_examples else dict.fromkeys(said, 1.0 / len(said))


class NeverNormalises(NaiveBayes):
    """Its posteriors are joint likelihoods."""

    def predict_log_proba_one(self, x: Mapping[str, Any]) -> dict[Any, float]:
        """Leave out the normalisation."""
        return self.joint_log_likelihood_one(x)


class TrustsItself(NaiveBayes):
    """It learns its own answers."""

    def predict_one(self, x: Mapping[str, Any]) -> Any:
        """Answer, and learn that."""
        said = super().predict_one(x)
        if said is not None:
            self.learn_one(x, said)
        return said


class FailsToAnswer(NaiveBayes):
    """It divides by nothing."""

    def predict_one(self, x: Mapping[str, Any]) -> Any:
        """Fail."""
        raise ZeroDivisionError(f"of {x}")


class LosesCount(NaiveBayes):
    """Loaded, it has forgotten how many examples there were."""

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Load, and begin to count anew."""
        model = super().from_bytes(data)
        model.state.n_examples = 0
        return model


class IgnoresOther(NaiveBayes):
    """A sum is its first part."""

    def __add__(self, other: object) -> Self:
        return self.clone()


class KeepsOther(NaiveBayes):
    """A difference is its first part."""

    def __sub__(self, other: object) -> Self:
        return self.clone()


class OnlyDiscounts(NaiveBayes):
    """Of an example that is taken back everything stays but the number of examples."""

    def unlearn_one(self, x: Any, y: Any, **how: Any) -> None:  # noqa: ARG002 -- it does nothing
        """Count one less."""
        self.state.n_examples -= 1


class DoublesParts(_Learner):
    """In parts, all counts twice."""

    def change(self, x: Any, y: Any, how: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Double the weight."""
        return x, y, how | {"weight": how.get("weight", 1.0) * (1 + (how.get("part") is not None))}


class AgesSlowly(_Learner):
    """For it time passes at half its speed."""

    def change(self, x: Any, y: Any, how: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Halve the time."""
        return x, y, how | {"time_s": (how.get("time_s") or 0.0) / 2}


class _NeverFrozen(FlagsState):
    def frozen_copy(self) -> Self:
        twin = super().frozen_copy()
        twin.counts = self.counts
        return twin


class SharedFlags(Flags):
    """Flags whose snapshots are the living counts themselves."""

    def start(self, name: str, n_classes: int, hash_key: int) -> FlagsState:  # noqa: ARG002
        """Return the living side."""
        return _NeverFrozen(self, name, n_classes)


def _numbers() -> dict[str, Any]:
    return {"numbers": Numbers(fields=["x", "y"])}


def _mixed() -> dict[str, Any]:
    return {"text": Words(Multinomial()), **_numbers()}


CLASSES = ("ham", "spam")
# The fault that each law must find, and the groups of the model that has it.
FAULTS: dict[str, tuple[type[NaiveBayes], Callable[[], dict[str, Any]]]] = {
    "batches_are_single_examples": (ForgetsLastRow, _mixed),
    "judged_before_learned": (JudgesAfterwards, _mixed),
    "weights_repeat": (CapsWeights, _mixed),
    "weight_zero_teaches_nothing": (NotesNothing, _mixed),
    "fields_have_no_order": (ReadsFirstField, _numbers),
    "missing_values_skip_their_field": (FillsInZeros, _numbers),
    "groups_are_independent": (TiesFields, _mixed),
    "input_is_left_alone": (MarksInput, _mixed),
    "new_classes_join": (KnowsAllClasses, _mixed),
    "bad_input_changes_nothing": (CountsRefused, _mixed),
    "untrained_answers_prior": (ForgetsPrior, _mixed),
    "posteriors_are_probabilities": (NeverNormalises, _mixed),
    "asking_changes_nothing": (TrustsItself, _mixed),
    "snapshots_never_change": (NaiveBayes, lambda: {"flags": SharedFlags(fields=["a"])}),
    "saved_and_loaded_is_same": (LosesCount, _mixed),
    "merging_has_no_order": (IgnoresOther, _mixed),
    "subtracting_undoes_merging": (KeepsOther, _mixed),
    "unlearned_is_never_learned": (OnlyDiscounts, _mixed),
    "parts_add_up": (DoublesParts, _mixed),
    "decay_is_the_plain_formula": (AgesSlowly, _mixed),
}


def faulty(law: str) -> NaiveBayes:
    """Return a new model with the fault that a law must find."""
    kind, groups = FAULTS[law]
    decay = HalfLife(seconds=60.0) if kind is AgesSlowly else None
    prior = Dirichlet([1.0, 3.0] if kind is ForgetsPrior else 1.0)
    return kind(CLASSES, prior, groups(), decay=decay, new_classes=True)
