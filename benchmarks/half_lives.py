"""`python -m benchmarks.half_lives`: half-lives side by side against one model and each one alone.

`cost` takes processor time in turns, of one model and of five half-lives over the same tweets.
`accuracy` holds the mixture against each of its half-lives alone, over the recorded tweets and over
a made-up vocabulary of which half changes sides. Without a command it does both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

import streamnb as nb
from benchmarks.alternate import alternate
from benchmarks.drift import CLASSES, PIECE, PlantedStream, log_losses
from benchmarks.show import Show
from benchmarks.tweets import load

Stream = tuple[str, nb.Words, list[str], list[str]]
WORDS = nb.Words(nb.Multinomial(), counts="presence")
PAIRS = nb.Words(nb.Multinomial(), ngrams=(1, 2), negation=True, counts="presence")
COST_ROWS = 5_000
BLOCK = 1_000  # neighbours, of which the interval of a difference is made
LOSS_MAX = 34.5  # nats: a mean with one infinity says nothing
app = typer.Typer(add_completion=False, invoke_without_command=True, help=__doc__)
Tweets = Annotated[int, typer.Option(help="Tweets of each stream.")]
Turns = Annotated[int, typer.Option(help="How many times each model learns the tweets.")]


def one_model(words: nb.Words, half_life: float | None = None) -> nb.NaiveBayes:
    """Return what a user without half-lives side by side has."""
    decay = None if half_life is None else nb.HalfLife(examples=half_life)
    return nb.NaiveBayes(CLASSES, features={"text": words}, decay=decay, hash_key=1)


def learned(
    model: nb.NaiveBayes | nb.HalfLives, texts: Sequence[str], labels: Sequence[str], rows: int
) -> tuple[np.ndarray, float]:
    """Judge and learn all, `rows` at once; return the log-posteriors and the processor seconds."""
    found, seconds = [], 0.0
    for begin in range(0, len(texts), rows):
        columns, own = {"text": texts[begin : begin + rows]}, labels[begin : begin + rows]
        began = time.process_time()
        found.append(model.prequential_many(columns, own))
        seconds += time.process_time() - began
    return np.concatenate(found), seconds


def difference(own: NDArray[np.bool_], other: NDArray[np.bool_]) -> tuple[float, float]:
    """Return by how many points the first is ahead, and half the width of its 95 % interval."""
    ahead = 100.0 * (own.astype(float) - other)
    n = max(2, len(ahead) // BLOCK)
    blocks = [each.mean() for each in np.array_split(ahead, n)]
    return float(ahead.mean()), 1.96 * float(np.std(blocks, ddof=1)) / n**0.5


@app.command()
def cost(tweets: Tweets = 100_000, turns: Turns = 15) -> None:
    """Say how many times the processor time of one model five half-lives take."""
    stream = load().first(tweets)
    models: dict[str, Callable[[nb.Words], nb.NaiveBayes | nb.HalfLives]] = {
        "one": one_model,
        "one, decayed": lambda words: one_model(words, 10_000.0),
        "five": lambda words: nb.HalfLives(CLASSES, words, hash_key=1),
    }

    def seconds(model: str, words: nb.Words) -> float:
        return learned(models[model](words), stream.texts, stream.labels, COST_ROWS)[1]

    for name, words in (("words", WORDS), ("pairs, negation", PAIRS)):
        timed = {each: partial(seconds, each, words) for each in models}
        found = alternate(timed, turns, Show(Console(stderr=True)), warm_up="five")
        each = ", ".join(f"{of} {1e6 * found.median_s(of) / len(stream):.2f} µs" for of in timed)
        print(
            f"{name:<16} {each} a tweet; five take {found.ratio('five', 'one'):.2f} times one,"
            f" {found.ratio('five', 'one, decayed'):.2f} times one that forgets"
            f" (medians of {turns} turns, {len(stream):,} tweets, {stream.origin})",
            flush=True,
        )


@app.command()
def accuracy(tweets: Tweets = 200_000) -> None:
    """Hold the mixture against one model and each half-life alone, as they learn."""
    for name, words, texts, labels in streams(tweets):
        mixture = nb.HalfLives(CLASSES, words, hash_key=1)
        models: dict[str, nb.HalfLives | nb.NaiveBayes] = {
            "plain": one_model(words),
            "side by side": mixture,
        }
        for half_life in mixture.half_lives:
            models[f"{half_life:,.0f}"] = nb.HalfLives(CLASSES, words, [half_life], hash_key=1)
        rights: dict[str, NDArray[np.bool_]] = {}
        for each, model in models.items():
            found, _ = learned(model, texts, labels, PIECE)
            right = found.argmax(axis=1) == [CLASSES.index(y) for y in labels]
            loss = np.minimum(log_losses(found, labels), LOSS_MAX).mean()
            rights[each] = right
            tenths = " ".join(f"{100 * tenth.mean():.1f}" for tenth in np.array_split(right, 10))
            print(f"{name:<22}{each:>14} {right.mean():8.2%} {loss:7.4f}  {tenths}", flush=True)
        mixed, plain = rights.pop("side by side"), rights.pop("plain")
        best = max(rights, key=lambda each: rights[each].mean())
        (of_best, width), (of_plain, width_plain) = (
            difference(mixed, other) for other in (rights[best], plain)
        )
        print(
            f"{name:<22} side by side is {of_best:+.2f} ±{width:.2f} points from the best alone"
            f" ({best}), {of_plain:+.2f} ±{width_plain:.2f} from one model",
            flush=True,
        )


def streams(tweets: int) -> list[Stream]:
    """Return recorded tweets in two orders, and made-up ones that change once, and back."""
    recorded = load()
    in_time = list(range(min(tweets, len(recorded))))
    shuffled = np.random.default_rng(1).permutation(len(recorded))[:tweets].tolist()
    found = []
    for name, rows, words in (
        ("order of time, words", in_time, WORDS),
        ("order of time, pairs", in_time, PAIRS),
        ("random order, words", shuffled, WORDS),
        ("random order, pairs", shuffled, PAIRS),
    ):
        texts = [recorded.texts[row] for row in rows]
        found.append((name, words, texts, [recorded.labels[row] for row in rows]))
    places = np.arange(tweets)
    for name, turned in (
        ("turned in the middle", places >= tweets // 2),
        ("turned every 20,000", places // 20_000 % 2),
    ):
        found.append((name, WORDS, *PlantedStream(1).draw(turned.astype(float).tolist())))
    return found


@app.callback()
def both(context: typer.Context) -> None:
    """Do both, unless one is asked for."""
    if context.invoked_subcommand is None:
        cost()
        accuracy()


if __name__ == "__main__":
    app()
