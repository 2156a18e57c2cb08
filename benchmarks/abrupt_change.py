"""`python -m benchmarks.abrupt_change`: how fast the hybrid follows recorded tweets that change.

Two changes, at one tweet each: all labels flip, or those of tweets in which somebody says "I". Each
tweet is judged before it is learned; beside the model's accuracy stands that of one which begins at
the change.
"""

from __future__ import annotations

import re

import numpy as np
import typer
from numpy.typing import NDArray

import streamnb as nb
from benchmarks.accuracy import SIGNS, judge, model_of
from benchmarks.tweets import CLASSES, load

BEGIN, CHANGE, END = 200_000, 350_000, 410_000  # of the recorded tweets
SETTLED = 100_000  # tweets before what is judged of the time before the change
WINDOWS = ((0, 5_000), (5_000, 10_000), (10_000, 20_000), (20_000, 30_000), (30_000, 60_000))
HALF_LIVES = (None, 5_000, 20_000, 60_000)
PIECE = 2_000
FIRST_PERSON = re.compile(r"\b(i|i'm|my)\b", re.IGNORECASE)
Places = NDArray[np.int64]


def learn(model: nb.NaiveBayes, texts: list[str], truth: Places) -> NDArray[np.float64]:
    """Learn tweets in order; return the log-posteriors from before each."""
    pieces = [slice(begin, begin + PIECE) for begin in range(0, len(texts), PIECE)]
    return np.concatenate(
        [
            model.prequential_many({"text": texts[at]}, [CLASSES[c] for c in truth[at].tolist()])
            for at in pieces
        ]
    )


def rows_of(texts: list[str], truth: Places) -> None:
    """Print a row for each half-life."""
    n = CHANGE - BEGIN
    for half_life in HALF_LIVES:
        before, fresh = (model_of(**SIGNS, half_life=half_life) for _ in range(2))
        stable = judge(learn(before, texts[:n], truth[:n])[SETTLED:], truth[SETTLED:n])
        logs = [learn(model, texts[n:], truth[n:]) for model in (before, fresh)]
        cells = [f"{stable[0]:.2%} / {stable[1]:.4f} / {stable[2]:.4f}"]
        for begin, end in WINDOWS:
            own = truth[n:][begin:end]
            found, new = (judge(each[begin:end], own)[0] for each in logs)
            cells.append(f"{found:.1%} ({new:.1%})")
        name = "none" if half_life is None else f"{half_life:,}"
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Judge both changes."""
    tweets = load()
    texts = tweets.texts[BEGIN:END]
    truth = np.array([CLASSES.index(label) for label in tweets.labels[BEGIN:END]])
    behind = np.arange(len(truth)) >= CHANGE - BEGIN
    of_one = np.array([FIRST_PERSON.search(text) is not None for text in texts])
    windows = " | ".join(f"to {end:,}" for _, end in WINDOWS)
    for name, flips in (("all labels flip", behind), ("those with I flip", behind & of_one)):
        print(f"\n{name}\n\n| half-life | before the change | {windows} |")
        print(f"| {' | '.join(['---'] * (2 + len(WINDOWS)))} |", flush=True)
        rows_of(texts, np.where(flips, 1 - truth, truth))


if __name__ == "__main__":
    typer.run(main)
