"""A group of categories: fields of which each has one of several values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from streamnb.categories.state import CategoriesState
from streamnb.categories.values import value_text
from streamnb.errors import InputError, check_kind
from streamnb.fields import check_fields
from streamnb.likelihoods.categorical import Categorical

_Declared = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Categories:
    """Categories under a likelihood: each field has one of several values.

    Values are learned as they come: e_j is the number of values with a count above zero at that
    moment, and one that was never seen has the probability α/(N_jc + α·e_j).

    Parameters
    ----------
    likelihood : Categorical
        With its prior.
    fields : sequence of str, optional
        The fields. By default the group is open: it takes up any field that no other group names,
        when texts or truth values first come under its name.
    values : mapping of str to sequence, optional
        The values that some fields have. Others are ignored there as if they were missing, and e_j
        is the number of those declared.
    max_values : int
        Bound on the values of all other fields together. At the bound the least useful ones leave
        (`statistics.leaving` has the rule) until three quarters are kept.

    Examples
    --------
    >>> Categories(fields=["colour"], values={"colour": ["red", "green"]}).values
    (('colour', ('red', 'green')),)
    """

    likelihood: Categorical = field(default_factory=Categorical)
    fields: Any = None
    values: Any = None
    max_values: int = 1_000_000

    def __post_init__(self) -> None:
        check_kind("Categories.likelihood", self.likelihood, Categorical)
        object.__setattr__(self, "fields", check_fields(self.fields))
        object.__setattr__(self, "values", _declared(self.values, self.fields))
        bound: Any = self.max_values
        is_whole = isinstance(bound, int | np.integer) and not isinstance(bound, bool)
        if not (is_whole and 1 <= bound < 1 << 31):
            raise InputError(
                f"max_values must be a whole number between 1 and 2,147,483,647. Got {bound!r}"
                " instead."
            )

    def start(self, name: str, n_classes: int, hash_key: int) -> CategoriesState:
        """Return the living side of this group, knowing nothing yet."""
        return CategoriesState(self, name, n_classes, hash_key)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        return {
            "kind": "categories",
            "likelihood": self.likelihood.to_dict(),
            "fields": None if self.fields is None else list(self.fields),
            "values": {name: list(values) for name, values in self.values},
            "max_values": int(self.max_values),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        return cls(
            Categorical.from_dict(values["likelihood"]),
            values["fields"],
            values["values"],
            values["max_values"],
        )


def _declared(values: Any, fields: tuple[str, ...] | None) -> _Declared:
    """Return declared values as text by field, or say what is wrong with them."""
    if values is None:
        return ()
    if not isinstance(values, Mapping):
        raise InputError(f"values must be a mapping of fields to sequences. Got {values!r}.")
    check_fields(list(values) or None)
    unnamed = [name for name in values if fields is not None and name not in fields]
    if unnamed:
        raise InputError(f"values are declared of {unnamed[0]!r}, which is not among the fields.")
    return tuple((name, _texts(name, given)) for name, given in values.items())


def _texts(name: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise InputError(f"values[{name!r}] must be a sequence of values. Got {given!r} instead.")
    texts = [value_text(name, i, value) for i, value in enumerate(given)]
    if None in texts or len(set(texts)) < len(texts):
        raise InputError(f"values[{name!r}] must differ, and none be missing. Got {given!r}.")
    return tuple(text for text in texts if text is not None)
