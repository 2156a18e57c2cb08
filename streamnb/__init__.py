"""Naive Bayes that never stops learning.

Arrays and dicts in, log-posteriors out: the library knows no transport, no clock and no
configuration file.
"""

from streamnb.board import SnapshotBoard
from streamnb.columns import TextColumn
from streamnb.errors import StreamnbError
from streamnb.labels import Codes
from streamnb.learner import EveryExamples, EveryInterval, Learner
from streamnb.likelihoods import Bernoulli, Multinomial
from streamnb.model import NaiveBayes
from streamnb.predictor import Answer, Predictor
from streamnb.priors import Beta, Dirichlet
from streamnb.snapshot import Snapshot
from streamnb.store import StoreWarning, load, save
from streamnb.words import Words

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Bernoulli",
    "Beta",
    "Codes",
    "Dirichlet",
    "EveryExamples",
    "EveryInterval",
    "Learner",
    "Multinomial",
    "NaiveBayes",
    "Predictor",
    "Snapshot",
    "SnapshotBoard",
    "StoreWarning",
    "StreamnbError",
    "TextColumn",
    "Words",
    "load",
    "save",
]
