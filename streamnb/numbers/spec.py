"""A group of numbers: fields whose values are numbers, under a Gaussian likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from streamnb.errors import InputError
from streamnb.fields import check_fields
from streamnb.likelihoods.gaussian import Gaussian
from streamnb.numbers.state import NumbersState


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers under a likelihood.

    Parameters
    ----------
    likelihood : Gaussian
        With its prior.
    fields : sequence of str, optional
        The fields. By default the group is open: it takes up any field that no other group names,
        when an int or float first comes under its name.

    Examples
    --------
    >>> Numbers(fields=["age", "height"]).fields
    ('age', 'height')
    """

    likelihood: Gaussian = field(default_factory=Gaussian)
    fields: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.likelihood, Gaussian):
            raise InputError(
                f"Numbers.likelihood must be a Gaussian. Got {self.likelihood!r} instead."
            )
        object.__setattr__(self, "fields", check_fields(self.fields))

    def start(self, name: str, n_classes: int, hash_key: int) -> NumbersState:  # noqa: ARG002
        """Return the living side of this group, knowing nothing yet."""
        return NumbersState(self, name, n_classes)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        return {
            "kind": "numbers",
            "likelihood": self.likelihood.to_dict(),
            "fields": None if self.fields is None else list(self.fields),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        return cls(Gaussian.from_dict(values["likelihood"]), values["fields"])
