"""One file a family: its prior, and how it answers from the counts.

A family is a frozen value (`Bernoulli(Beta(1, 1))`) that makes an *estimator*: the object that
reads and teaches counts through the family's kernel, and holds whatever the family caches.
`base.WordLikelihood` is all that a family for words must offer, `base.NumberLikelihood` all that
one for numbers must.
"""

from typing import Any

from streamnb.likelihoods.base import NumberLikelihood, WordLikelihood
from streamnb.likelihoods.bernoulli import Bernoulli
from streamnb.likelihoods.gaussian import Gaussian
from streamnb.likelihoods.multinomial import Complement, Multinomial

_WORD_FAMILIES: dict[str, type[Bernoulli] | type[Complement] | type[Multinomial]] = {
    family.name: family for family in (Bernoulli, Complement, Multinomial)
}
NUMBER_FAMILIES: dict[str, Any] = {family.name: family for family in (Gaussian,)}


def likelihood_from_dict(values: dict[str, Any]) -> WordLikelihood:
    """Return the family for words that its `to_dict` described."""
    return _WORD_FAMILIES[values["name"]].from_dict(values)


def number_likelihood_from_dict(values: dict[str, Any]) -> NumberLikelihood:
    """Return the family for numbers that its `to_dict` described."""
    found: NumberLikelihood = NUMBER_FAMILIES[values["name"]].from_dict(values)
    return found
