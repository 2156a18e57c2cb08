"""The texts that cases run on: recorded tweets where their folder is there, else made-up ones.

The recording is Sentiment140 (Go, Bhayani and Huang 2009), looked for in `STREAMNB_DATA`, else in
`shared/data` beside the project. As a stream it is sorted by (date, row). Tweets may not be handed
on: they stay in memory, and no figure or file quotes one.
"""

from __future__ import annotations

import lzma
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import polars as pl

from consumers.config.addresses import GeneratorSettings
from consumers.sources.generator import LABELS, Tweet, TweetMaker

CLASSES = ("negative", "positive")
RECORDED = Path("sentiment140") / "s140_full.csv.xz"
MADE_UP = 200_000  # how many the generator makes where there are no recorded ones
_MADE_AT_ONCE = 10_000
_NAMES = {0: "negative", 4: "positive"}


@dataclass(frozen=True, slots=True)
class Tweets:
    """A labelled stream.

    Attributes
    ----------
    texts, labels : list of str
        In the order of the stream; a label is "negative" or "positive".
    origin : str
        Where they come from, in words.
    """

    texts: list[str]
    labels: list[str]
    origin: str

    def __len__(self) -> int:
        return len(self.texts)

    def first(self, n: int) -> Tweets:
        """Return the first `n`."""
        return Tweets(self.texts[:n], self.labels[:n], self.origin)


def data_folder() -> Path:
    """Return where the recorded tweets should be."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("STREAMNB_DATA") or beside)


@cache
def load() -> Tweets:
    """Return all recorded tweets in time order, or made-up ones where the recording is absent."""
    path = data_folder() / RECORDED
    return _recorded(path) if path.is_file() else _made_up(MADE_UP)


def _recorded(path: Path) -> Tweets:
    with lzma.open(path) as file:
        frame = pl.read_csv(file.read(), columns=["row", "polarity", "date", "text"])
    frame = frame.sort("date", "row")
    labels = [_NAMES[polarity] for polarity in frame["polarity"].to_list()]
    return Tweets(frame["text"].to_list(), labels, f"{len(labels):,} recorded tweets")


def _made_up(n: int) -> Tweets:
    """Make tweets as the generator does, all of them labelled."""
    row_builder = TweetMaker(GeneratorSettings(labelled_share=1.0))
    decode = msgspec.json.Decoder(Tweet).decode
    made = [
        decode(value)
        for first in range(0, n, _MADE_AT_ONCE)
        for value in row_builder.make(first, min(_MADE_AT_ONCE, n - first))
    ]
    texts = [tweet.text for tweet in made]
    labels = [CLASSES[tweet.label == LABELS[1]] for tweet in made]
    origin = (
        f"{n:,} made-up tweets (no recorded ones at {data_folder()}; STREAMNB_DATA names theirs)"
    )
    return Tweets(texts, labels, origin)
