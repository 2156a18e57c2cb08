"""Naive Bayes that never stops learning.

Arrays and dicts in, log-posteriors out: the library knows no transport, no clock and no
configuration file.
"""

from streamnb.calibration import Calibrator, ReliabilityBin
from streamnb.columns import TextColumn
from streamnb.decay import HalfLife
from streamnb.decisions import AnswerRule, Confidence, ConformalSets, cheapest, expected_costs
from streamnb.drift import (
    DriftMartingale,
    HalfLives,
    MovedWord,
    WordCounts,
    count_words,
    moved_words,
)
from streamnb.errors import InputError, StreamnbError
from streamnb.export import (
    export_arrow,
    export_dict,
    export_json,
    export_mlflow,
    log_mlflow,
    to_arrow,
)
from streamnb.features.bag import Bag
from streamnb.features.categorical import Categories
from streamnb.features.flags import Flags
from streamnb.features.numeric import Numbers
from streamnb.features.words import Words
from streamnb.folds import Folds
from streamnb.inspection.explain import Explanation
from streamnb.inspection.parameters import LinearForm, Parameters
from streamnb.labels import Codes
from streamnb.likelihoods.bernoulli import Bernoulli
from streamnb.likelihoods.gaussian import Gaussian, NormalInverseGamma, VarianceFloor
from streamnb.likelihoods.multinomial import Categorical, Complement, Hybrid, Multinomial
from streamnb.model import NaiveBayes, merge, subtract
from streamnb.predict import Judgement
from streamnb.prevalence import AdjustedShares, Quantifier, adjusted_shares
from streamnb.priors import LAPLACE, MAXIMUM_LIKELIHOOD, Beta, Dirichlet, Fixed
from streamnb.serving.predictor import Answer, Predictor
from streamnb.serving.publisher import (
    EveryExamples,
    EveryInterval,
    Learner,
    Snapshot,
    SnapshotBoard,
)
from streamnb.storage import StoreWarning, load, save

__version__ = "0.1.0"

__all__ = [
    "LAPLACE", "MAXIMUM_LIKELIHOOD", "AdjustedShares", "Answer", "AnswerRule", "Bag",
    "Bernoulli", "Beta", "Calibrator", "Categorical", "Categories", "Codes", "Complement",
    "Confidence", "ConformalSets", "Dirichlet", "DriftMartingale", "EveryExamples",
    "EveryInterval", "Explanation", "Fixed", "Flags", "Folds", "Gaussian", "HalfLife",
    "HalfLives", "Hybrid", "InputError", "Judgement", "Learner", "LinearForm", "MovedWord",
    "Multinomial", "NaiveBayes", "NormalInverseGamma", "Numbers", "Parameters", "Predictor",
    "Quantifier", "ReliabilityBin", "Snapshot", "SnapshotBoard", "StoreWarning",
    "StreamnbError", "TextColumn", "VarianceFloor", "WordCounts", "Words", "adjusted_shares",
    "cheapest", "count_words", "expected_costs", "export_arrow", "export_dict", "export_json",
    "export_mlflow", "load", "log_mlflow", "merge", "moved_words", "save", "subtract",
    "to_arrow",
]  # fmt: skip
