"""The three ways to write what is known of the classes beforehand, and what is wrong with others.

`1.0` is a Dirichlet α for every class, `{approve: 3, reject: 7}` one for each, and `{fixed:
{approve: 0.3, reject: 0.7}}` are probabilities that no message moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from consumers.settings.base import pseudo_count, wrong

ClassPrior: TypeAlias = float | dict[str, float] | dict[str, dict[str, float]]

FIXED = "fixed"
_SUM_ERROR_MAX = 1e-9
_FORMS = "must be a number of at least 0, one for each class, or fixed: with their probabilities"


def check_class_prior(value: Any) -> ClassPrior:
    """Return a class prior as it is meant, or refuse it.

    Raises
    ------
    PydanticCustomError
    """
    if not isinstance(value, Mapping):
        return pseudo_count(_number(value, ""))
    fixed = value.get(FIXED)
    if set(value) == {FIXED} and isinstance(fixed, Mapping):
        made = {str(name): _number(p, f" for {name}") for name, p in fixed.items()}
        if abs(math.fsum(made.values()) - 1.0) > _SUM_ERROR_MAX:
            raise wrong(
                f"must hold probabilities that add up to 1, not to {math.fsum(made.values()):g}"
            )
        return {FIXED: made}
    return {
        str(name): pseudo_count(_number(alpha, f" for {name}"), f" for {name}")
        for name, alpha in value.items()
    }


def classes_of(prior: ClassPrior) -> tuple[tuple[str | int, ...], list[str]] | None:
    """Return the classes that a prior names, with the path they stand at; None for a number."""
    if not isinstance(prior, dict):
        return None
    fixed = prior.get(FIXED)
    if isinstance(fixed, dict):
        return ("model", "class_prior", FIXED), list(fixed)
    return ("model", "class_prior"), list(prior)


def wrong_classes(
    prior: ClassPrior, classes: tuple[str, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find classes that a prior names and the model lacks, and the other way round."""
    found = classes_of(prior)
    if found is None:
        return
    path, named = found
    known = ", ".join(map(repr, classes))
    for name in named:
        if name not in classes:
            yield (*path, name), f"is not in model.classes: {known}"
    missing = [name for name in classes if name not in named]
    if missing:
        yield path, f"must have a number for every class; {', '.join(map(repr, missing))} has none"


def _number(value: Any, whose: str) -> float:
    if isinstance(value, str):  # what comes from a variable is always text
        try:
            value = float(value)
        except ValueError:
            raise wrong(f"{_FORMS}{whose}") from None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise wrong(f"{_FORMS}{whose and f'; that{whose} is {value!r}'}")
    return float(value)
