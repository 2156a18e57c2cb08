"""A group of flags: fields that are true or false."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from streamnb.errors import InputError, check_kind
from streamnb.fields import check_fields
from streamnb.flags.state import FlagsState
from streamnb.likelihoods.bernoulli import Bernoulli


@dataclass(frozen=True, slots=True)
class Flags:
    """Flags under a Bernoulli likelihood: a true one speaks, and a false one too.

    Parameters
    ----------
    likelihood : Bernoulli
        With its prior: Beta(β₁, β₂), with numbers for each field where fields are named.
    fields : sequence of str, optional
        The fields. By default the group is open: it takes up any field that no other group names,
        when truth values first come under its name.
    absent_is_false : bool
        Read a flag that is missing as false; otherwise it says nothing. An open group knows a flag
        then from the first example where it was true.

    Examples
    --------
    >>> Flags(fields=["has_link", "is_reply"]).absent_is_false
    False
    """

    likelihood: Bernoulli = field(default_factory=Bernoulli)
    fields: Any = None
    absent_is_false: bool = False

    def __post_init__(self) -> None:
        check_kind("Flags.likelihood", self.likelihood, Bernoulli)
        object.__setattr__(self, "fields", check_fields(self.fields))
        if not isinstance(self.absent_is_false, bool):
            raise InputError(
                f"absent_is_false must be True or False. Got {self.absent_is_false!r} instead."
            )

    def start(self, name: str, n_classes: int, hash_key: int) -> FlagsState:  # noqa: ARG002
        """Return the living side of this group, knowing nothing yet; it hashes nothing."""
        return FlagsState(self, name, n_classes)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        return {
            "kind": "flags",
            "likelihood": self.likelihood.to_dict(),
            "fields": None if self.fields is None else list(self.fields),
            "absent_is_false": self.absent_is_false,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        likelihood = Bernoulli.from_dict(values["likelihood"])
        return cls(likelihood, values["fields"], values["absent_is_false"])
