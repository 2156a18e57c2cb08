"""`python -m benchmarks.many_classes`: the hybrid with more classes than two.

One word is taken out of recorded tweets that hold one of twenty, and asked for: the first 2, 3, 5,
10 and 20 of these are the classes. Each tweet is judged before it is learned, with the default
smoothing, which is spread over the classes, and with that of two classes in each of them.
"""

from __future__ import annotations

import random
import re

import numpy as np
import typer

import streamnb as nb
from benchmarks.accuracy import SIGNS, judge, model_of
from benchmarks.tweets import load

WORDS = (
    "love", "work", "home", "sleep", "school", "rain", "movie", "coffee", "friends", "phone",
    "summer", "music", "book", "dog", "party", "birthday", "car", "dinner", "weekend", "game",
)  # fmt: skip
SIZES = (2, 3, 5, 10, 20)
TWEETS_MAX = 20_000
PIECE = 500


def drawn() -> list[tuple[str, str]]:
    """Return tweets without their word, each with that, in random order."""
    pattern = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)
    found = []
    for text in load().texts:
        named = {each.lower() for each in pattern.findall(text)}
        if len(named) == 1:
            found.append((pattern.sub(" ", text), named.pop()))
    random.Random(1).shuffle(found)
    return found


def judged(tweets: list[tuple[str, str]], classes: list[str], smoothing: float) -> str:
    """Return accuracy, log-loss and ECE of tweets, each judged before it is learned."""
    model = model_of(**SIGNS, classes=classes, hybrid=nb.Hybrid(smoothing=smoothing))
    texts, labels = [text for text, _ in tweets], [label for _, label in tweets]
    logs = np.concatenate(
        [
            model.prequential_many(
                {"text": texts[begin : begin + PIECE]}, labels[begin : begin + PIECE]
            )
            for begin in range(0, len(texts), PIECE)
        ]
    )
    accuracy, log_loss, ece = judge(logs, np.array([classes.index(label) for label in labels]))
    return f"{accuracy:.2%} / {log_loss:.4f} / {ece:.4f}"


def main() -> None:
    """Judge the tweets of the first words."""
    everything, default = drawn(), nb.Hybrid().smoothing
    print("| classes | tweets | as it is, m = 5/k | m = 2.5 |")
    print("| --- | --- | --- | --- |")
    for k in SIZES:
        classes = list(WORDS[:k])
        own = [each for each in everything if each[1] in classes][:TWEETS_MAX]
        found = [judged(own, classes, value) for value in (default, default * k / 2)]
        print(f"| {k} | {len(own):,} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
