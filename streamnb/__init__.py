"""Naive Bayes that never stops learning.

Arrays and dicts in, log-posteriors out: the library knows no transport, no clock and no configuration file.
"""

from streamnb.board import SnapshotBoard
from streamnb.columns import TextColumn
from streamnb.likelihoods import Bernoulli, Multinomial
from streamnb.model import NaiveBayes
from streamnb.priors import Beta, Dirichlet
from streamnb.snapshot import Snapshot
from streamnb.words import Words

__version__ = "0.1.0"

__all__ = [
    "Bernoulli",
    "Beta",
    "Dirichlet",
    "Multinomial",
    "NaiveBayes",
    "Snapshot",
    "SnapshotBoard",
    "TextColumn",
    "Words",
]
