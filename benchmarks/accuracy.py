"""`python -m benchmarks.accuracy`: how right and how sure the hybrid and the plain model are.

Each tweet is judged before it is learned, in time order; 20,000 balanced tweets from before the
stream's turn are never learned, and judged without the class prior once it has ended. With
`--parts N` the tweets are dealt out in pieces as to N partitions.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import streamnb as nb
from benchmarks.tweets import CLASSES, Tweets, load

PIECE = 4096
HELD_OUT = 10_000  # of each class
BINS = 20  # of the calibration error
PARTS_PIECE = 512


def judge(
    log_posteriors: NDArray[np.float64], truth: NDArray[np.int64]
) -> tuple[float, float, float]:
    """Return accuracy, log-loss and expected calibration error."""
    said = log_posteriors.argmax(axis=1)
    sure = np.exp(log_posteriors.max(axis=1))
    right = said == truth
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = np.bincount(places, weights=sure - right, minlength=BINS)
    log_loss = -log_posteriors[np.arange(len(truth)), truth].mean()
    return float(right.mean()), float(log_loss), float(np.abs(gaps).sum() / len(truth))


def model_of(hybrid: nb.Hybrid | None) -> nb.NaiveBayes:
    """Return the model of words and pairs that the daemon learns by default."""
    words = nb.Words(
        nb.Multinomial(), ngrams=(1, 2), negation=True, counts="presence", hybrid=hybrid
    )
    return nb.NaiveBayes(CLASSES, features={"text": words}, hash_key=1)


def learn(
    model: nb.NaiveBayes, tweets: Tweets, rows: NDArray[np.int64], parts: int
) -> tuple[NDArray[np.float64], float]:
    """Learn rows in order; return the log-posteriors from before each, and the seconds of work."""
    found = []
    began = time.process_time()
    for i, first in enumerate(range(0, len(rows), PIECE if parts < 2 else PARTS_PIECE)):
        piece = rows[first : first + (PIECE if parts < 2 else PARTS_PIECE)].tolist()
        columns: dict[str, Any] = {"text": [tweets.texts[row] for row in piece]}
        labels = [tweets.labels[row] for row in piece]
        part = str(i % parts) if parts else None
        found.append(model.prequential_many(columns, labels, part=part))
    return np.concatenate(found), time.process_time() - began


def main(
    parts: Annotated[int, typer.Option(help="Partitions; 0 keeps the model whole.")] = 0,
    tweets: Annotated[int, typer.Option(help="How many tweets of the stream; 0 for all.")] = 0,
) -> None:
    """Judge both models on the recorded tweets."""
    stream = load()
    truth = np.array([CLASSES.index(label) for label in stream.labels])[: tweets or None]
    turn = int(np.flatnonzero(truth == 1)[-1]) + 1
    random = np.random.default_rng(3)
    n_held = min(HELD_OUT, turn // 20)
    held = np.concatenate(
        [random.permutation(np.flatnonzero(truth[:turn] == c))[:n_held] for c in range(2)]
    )
    rows = np.setdiff1d(np.arange(len(truth)), held)
    to_turn = rows < turn
    print("model   what                     accuracy  log-loss     ECE")
    for name, hybrid in (("plain", None), ("hybrid", nb.Hybrid())):
        model = model_of(hybrid)
        learn(model_of(hybrid), stream, rows[:100], parts)  # compile
        found, seconds = learn(model, stream, rows, parts)
        columns = {"text": [stream.texts[row] for row in held]}
        began = time.process_time()
        model.predict_log_proba_many(columns)
        predicting = time.process_time() - began
        without_prior = model.without_prior().predict_log_proba_many(columns)
        for what, log_posteriors, labels in (
            ("to the turn", found[to_turn], truth[rows][to_turn]),
            ("whole stream", found, truth[rows]),
            ("held out, without prior", without_prior, truth[held]),
        ):
            accuracy, log_loss, ece = judge(log_posteriors, labels)
            print(f"{name:<7} {what:<24} {accuracy:8.2%}  {log_loss:8.4f}  {ece:6.4f}")
        recalls = [(without_prior.argmax(axis=1)[truth[held] == c] == c).mean() for c in (0, 1)]
        print(
            f"{name:<7} recalls {recalls[0]:.1%} and {recalls[1]:.1%}; learning"
            f" {1e6 * seconds / len(rows):.2f} µs, predicting {1e6 * predicting / len(held):.2f} µs"
            " a tweet",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
