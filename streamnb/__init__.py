"""Naive Bayes that never stops learning.

Arrays and dicts in, log-posteriors out: the library knows no transport, no clock and no
configuration file.
"""

from streamnb.board import SnapshotBoard
from streamnb.categories.spec import Categories
from streamnb.columns import TextColumn
from streamnb.decay import HalfLife
from streamnb.errors import StreamnbError
from streamnb.export import export_arrow, export_dict, export_json, to_arrow
from streamnb.flags.spec import Flags
from streamnb.judging import Judgement
from streamnb.labels import Codes
from streamnb.learner import EveryExamples, EveryInterval, Learner
from streamnb.likelihoods import Bernoulli, Complement, Multinomial
from streamnb.likelihoods.categorical import Categorical
from streamnb.likelihoods.gaussian import Gaussian
from streamnb.likelihoods.gaussian_priors import NormalInverseGamma, VarianceFloor
from streamnb.merging import merge, subtract
from streamnb.model import NaiveBayes
from streamnb.numbers.spec import Numbers
from streamnb.predictor import Answer, Predictor
from streamnb.priors import LAPLACE, MAXIMUM_LIKELIHOOD, Beta, Dirichlet, Fixed
from streamnb.quantify import AdjustedShares, Quantifier, adjusted_shares
from streamnb.snapshot import Snapshot
from streamnb.store import StoreWarning, load, save
from streamnb.telling import Explanation, LinearForm, Parameters
from streamnb.words.bag import Bag
from streamnb.words.text import Words

__version__ = "0.1.0"

__all__ = [
    "LAPLACE",
    "MAXIMUM_LIKELIHOOD",
    "AdjustedShares",
    "Answer",
    "Bag",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Categories",
    "Codes",
    "Complement",
    "Dirichlet",
    "EveryExamples",
    "EveryInterval",
    "Explanation",
    "Fixed",
    "Flags",
    "Gaussian",
    "HalfLife",
    "Judgement",
    "Learner",
    "LinearForm",
    "Multinomial",
    "NaiveBayes",
    "NormalInverseGamma",
    "Numbers",
    "Parameters",
    "Predictor",
    "Quantifier",
    "Snapshot",
    "SnapshotBoard",
    "StoreWarning",
    "StreamnbError",
    "TextColumn",
    "VarianceFloor",
    "Words",
    "adjusted_shares",
    "export_arrow",
    "export_dict",
    "export_json",
    "load",
    "merge",
    "save",
    "subtract",
    "to_arrow",
]
