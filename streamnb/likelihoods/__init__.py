"""One file a family: its prior, and how it answers from the counts.

A family is a frozen value (`Bernoulli(Beta(1, 1))`) that makes an *estimator*: the object that
reads and teaches counts through the family's kernel, and holds whatever the family caches.
`base.WordLikelihood` is all that a family must offer.
"""

from streamnb.likelihoods.base import Estimator, WordLikelihood
from streamnb.likelihoods.bernoulli import Bernoulli
from streamnb.likelihoods.multinomial import Multinomial

FAMILIES: dict[str, type[Bernoulli] | type[Multinomial]] = {
    "bernoulli": Bernoulli,
    "multinomial": Multinomial,
}

__all__ = ["FAMILIES", "Bernoulli", "Estimator", "Multinomial", "WordLikelihood"]
