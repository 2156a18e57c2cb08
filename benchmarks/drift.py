"""`python -m benchmarks.drift`: alarms and named words, on streams that drift and on stable ones.

`stable` judges stable streams and states the alarms: made-up ones, and the recorded tweets in a
random order; beside them the recorded tweets in the order of time, which are not stable. `planted`
turns half of a made-up vocabulary around: the words of one class become those of the other.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

import streamnb as nb

CLASSES = ("negative", "positive")
PIECE = 500
WINDOW = 4_000  # tweets after an alarm, before the words that moved are named
app = typer.Typer(add_completion=False, help=__doc__)


class PlantedStream:
    """Tweets of eight words; each word has a frequency, and a side on which it stands.

    `strongest` are the ten words whose change of sides shows most: by frequency, and by how much
    their log-odds change.
    """

    def __init__(self, seed: int, n_words: int = 4_000) -> None:
        self._random = np.random.default_rng(seed)
        self._names = np.array([f"w{j}" for j in range(n_words)])
        rates = 1.0 / (np.arange(n_words) + 20.0)
        sides = self._random.normal(0.0, 0.7, n_words)
        flipped = self._random.permutation(n_words) < n_words // 2
        self._cdfs = np.empty((2, 2, n_words))  # by regime and class
        for regime, own in enumerate((sides, np.where(flipped, -sides, sides))):
            for c, sign in enumerate((-1.0, 1.0)):
                weights = rates * np.exp(sign * own)
                self._cdfs[regime, c] = np.cumsum(weights) / weights.sum()
        share = 1.0 / (1.0 + np.exp(2.0 * sides))
        shows = np.where(flipped, rates * np.cosh(sides) * share * (1.0 - share) * sides**2, 0.0)
        self.strongest = self._names[np.argsort(-shows)[:10]].tolist()

    def draw(self, turned: Sequence[float]) -> tuple[list[str], list[str]]:
        """Return texts and labels; `turned` is each one's probability to be of the new regime."""
        n = len(turned)
        classes = self._random.integers(0, 2, n)
        regimes = (self._random.random(n) < turned).astype(int)
        drawn = self._random.random((n, 8))
        words = np.empty((n, 8), dtype=np.int64)
        for regime, c in itertools.product(range(2), range(2)):
            rows = (regimes == regime) & (classes == c)
            words[rows] = np.searchsorted(self._cdfs[regime, c], drawn[rows])
        texts = [" ".join(row) for row in self._names[words].tolist()]
        return texts, [CLASSES[c] for c in classes.tolist()]


@dataclass(frozen=True, slots=True)
class Detected:
    """What was noticed of a stream.

    Attributes
    ----------
    false_alarms, n_alarms : int
        Alarms before anything changed, and in all.
    delay : int or None
        Tweets from the beginning of the change to the first alarm.
    named, named_at : int
        How many of the ten strongest words were among the ten named, and how many tweets after the
        beginning of the change.
    """

    false_alarms: int
    n_alarms: int
    delay: int | None = None
    named: int = 0
    named_at: int = 0


def detect(
    stream: PlantedStream,
    stable: int,
    after: int,
    *,
    gradual: int = 0,
    period: int = 0,
    half_life: float | None = None,
    seed: int = 0,
) -> Detected:
    """Judge and learn `stable` tweets, then `after` more that change at once or gradually.

    With a `period` the change goes back and comes again each so many tweets.
    """
    turned = np.clip((np.arange(stable + after) - stable) / max(gradual, 1), 0.0, 1.0)
    turned[stable:] = 1.0 if not gradual else turned[stable:]
    if period:
        turned[stable:] = (np.arange(after) // period) % 2 == 0
    decay = None if half_life is None else nb.HalfLife(examples=half_life)
    model = nb.NaiveBayes(
        CLASSES, features={"text": nb.Words(nb.Multinomial())}, decay=decay, hash_key=1
    )
    martingale, alarms = nb.DriftMartingale(seed=seed), list[int]()
    earlier, named, named_at = None, 0, 0
    for begin in range(0, stable + after, PIECE):
        texts, labels = stream.draw(turned[begin : begin + PIECE].tolist())
        losses = log_losses(model.prequential_many({"text": texts}, labels), labels)
        alarms += [begin + at for at in martingale.update(losses)]
        end = begin + len(texts)
        if earlier is None and alarms and alarms[-1] >= stable:
            earlier, since = nb.count_words(model), end
        elif earlier is not None and not named_at and end >= since + WINDOW:
            words = {moved.word for moved in nb.moved_words(earlier, model)}
            named, named_at = len(words & set(stream.strongest)), end - stable
    late = [at for at in alarms if at >= stable]
    delay = late[0] - stable + 1 if late else None
    return Detected(len(alarms) - len(late), len(alarms), delay, named, named_at)


def log_losses(log_posteriors: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """Return minus the log-posterior of each true class."""
    truth = np.array([CLASSES.index(label) for label in labels])
    found: np.ndarray = np.maximum(-log_posteriors[np.arange(len(truth)), truth], 0.0)
    return found


def recorded(order: str, tweets: int, hybrid: nb.Hybrid | None) -> Iterator[np.ndarray]:
    """Yield the losses of the recorded tweets, in a random order or in that of time."""
    from benchmarks.accuracy import model_of  # noqa: PLC0415 -- needs the recording's packages
    from benchmarks.tweets import load  # noqa: PLC0415

    stream, model = load(), model_of(hybrid=hybrid)
    rows = np.arange(len(stream))
    if order == "random":
        rows = np.random.default_rng(1).permutation(rows)
    for begin in range(0, min(tweets, len(rows)), PIECE):
        piece = rows[begin : begin + PIECE].tolist()
        labels = [stream.labels[row] for row in piece]
        columns = {"text": [stream.texts[row] for row in piece]}
        yield log_losses(model.prequential_many(columns, labels), labels)


@app.command()
def stable(
    tweets: Annotated[int, typer.Option(help="Tweets of each stream.")] = 1_000_000,
    seeds: Annotated[int, typer.Option(help="How many made-up streams.")] = 1,
) -> None:
    """Count the alarms of stable streams."""
    for seed in range(seeds):
        found = detect(PlantedStream(seed), tweets, 0, seed=seed)
        print(f"made up, seed {seed}: {found.false_alarms} alarms in {tweets:,} tweets", flush=True)
    for order, name, hybrid in itertools.product(
        ("random", "time"), ("plain", "hybrid"), (nb.Hybrid(),)
    ):
        martingale, places, seconds, n = nb.DriftMartingale(), list[int](), 0.0, 0
        for losses in recorded(order, tweets, hybrid if name == "hybrid" else None):
            began = time.process_time()
            places += [n + at for at in martingale.update(losses)]
            seconds += time.process_time() - began
            n += len(losses)
        print(
            f"recorded, {order} order, {name}: {len(places)} alarms in {n:,} tweets"
            f" {places[:8]}, {1e9 * seconds / n:.0f} ns a tweet",
            flush=True,
        )


@app.command()
def planted(
    seeds: Annotated[int, typer.Option(help="How many streams of each kind.")] = 10,
    before: Annotated[int, typer.Option(help="Tweets before the change.")] = 100_000,
) -> None:
    """Turn half of the vocabulary around, and say how soon and how well that is noticed."""
    for kind, after, gradual, period, half_life in (
        ("abrupt", 20_000, 0, 0, None),
        ("gradual, 20,000 tweets", 40_000, 20_000, 0, None),
        ("recurring, 20,000 tweets", 80_000, 0, 20_000, 10_000.0),
    ):
        for seed in range(seeds):
            found = detect(
                PlantedStream(seed), before, after,
                gradual=gradual, period=period, half_life=half_life, seed=seed,
            )  # fmt: skip
            print(f"{kind}, seed {seed}: {found}", flush=True)


if __name__ == "__main__":
    app()
