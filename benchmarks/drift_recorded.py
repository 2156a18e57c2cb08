"""`python -m benchmarks.drift_recorded`: alarms of the daemon over the recorded tweets.

The daemon comes as it is but for `drift.enabled: true`, a message a second. It learns the tweets in
a random order, which is a stable stream, and in the order of time. Of each alarm stands what the
daemon predicted of the messages before it and behind it: the share of positive ones, how many were
right, and the mean log-loss.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.drift_daemon import alarms_of, run_logged, write_messages
from benchmarks.tweets import CLASSES, Tweets, load

AROUND = 2_000  # messages before an alarm, and as many behind it
PUBLISH_EXAMPLES = 5_000  # alarms are of what was stated before each was learned, by no snapshot
SEED = 1  # of the random order
ORDERS = ("random", "time")


class Said(msgspec.Struct):
    """What the daemon wrote of a message, as far as it is looked at."""

    label: str
    truth: str
    probabilities: dict[str, float]


def ordered(tweets: Tweets, order: str, n: int) -> Tweets:
    """Return the first `n` tweets in an order: those of all where it is random."""
    if order == "time":
        return tweets.first(n)
    rows = np.random.default_rng(SEED).permutation(len(tweets))[:n].tolist()
    texts, labels = ([of[row] for row in rows] for of in (tweets.texts, tweets.labels))
    return Tweets(texts, labels, tweets.origin)


def watched(tweets: Tweets) -> tuple[tuple[int, ...], NDArray[np.float64]]:
    """Return a daemon's alarms, and of each message whether it is positive, right, its loss."""
    decode = msgspec.json.Decoder(Said).decode
    with tempfile.TemporaryDirectory(prefix="streamnb-drift-") as name:
        folder = Path(name)
        write_messages(folder / "tweets.jsonl", tweets.texts, tweets.labels)
        logged = run_logged(
            folder,
            drift={"enabled": True},
            learning={"publish": "examples", "publish_examples": PUBLISH_EXAMPLES},
        )
        alarms = alarms_of(logged)
        found = np.empty((len(tweets), 3))
        with (folder / "said.jsonl").open("rb") as lines:
            for row, line in zip(found, lines, strict=True):
                said = decode(line)
                loss = -np.log(max(said.probabilities[said.truth], 1e-15))
                row[:] = said.truth == CLASSES[1], said.label == said.truth, loss
    return alarms, found


def main(
    tweets: Annotated[int, typer.Option(help="Tweets of each order.")] = 1_000_000,
    orders: Annotated[
        list[str] | None, typer.Option("--order", help=f"Of {', '.join(ORDERS)}.")
    ] = None,
) -> None:
    """Count the alarms of the daemon's own rule, and say what lies around each."""
    for order in orders or ORDERS:
        stream = ordered(load(), order, tweets)
        alarms, found = watched(stream)
        _, right, loss = found.mean(axis=0)
        print(
            f"{order} order: {len(alarms)} alarms in {len(stream):,} tweets of {stream.origin};"
            f" predicted {right:.2%} right, log-loss {loss:.4f}",
            flush=True,
        )
        for at in alarms:
            around = (found[max(0, at - AROUND) : at], found[at : at + AROUND])
            positive, right, loss = zip(*(each.mean(axis=0) for each in around), strict=True)
            print(
                f"  message {at:,}; before it and behind: positive {positive[0]:.1%} and"
                f" {positive[1]:.1%}, right {right[0]:.1%} and {right[1]:.1%}, log-loss"
                f" {loss[0]:.3f} and {loss[1]:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    typer.run(main)
