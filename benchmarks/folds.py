"""`python -m benchmarks.folds`: k folds by subtraction, beside as many trainings without a fold.

The folds are counted in one pass and each model without a fold is made by subtraction. Beside that
stand one training on all tweets, and one a fold on those of the others; the digests of the counts
must be the same. The weights of a hybrid are not: without a fold they are those of a training in
parts, so what is said of the fold's tweets differs. The times are processor time in this process,
so the ratio is hardly moved by what else the machine does. Tweet i lies in fold i mod k.

The case `folds` of `python -m benchmarks` compares digests of the first tweets, times one training
and the folds of all, and has `streamnb evaluate` judge a file by folds and one message after the
other, from start to end.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import streamnb as nb
from benchmarks.accuracy import CHOICES, PIECE, columns_of, model_of
from benchmarks.alternate import alternate
from benchmarks.file_daemon import command_s, write_lines
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets, load
from streamnb.reader import ModelReader

FOLDS = 10
MODELS = {"plain": CHOICES["plain"], "daemon": CHOICES["daemon"]}
# More than the stream's features: no word may leave, else what is left depends on the order.
MAX_WORDS = 1 << 24
COMPARED_TWEETS = 20_000
EVALUATED_MESSAGES, EVALUATED_TURNS = 400_000, 3
TIMES_MAX = 2.0  # one training, or one evaluation


@dataclass(frozen=True, slots=True)
class Folded:
    """How folds compare with trainings.

    Attributes
    ----------
    n_equal : int
        Of how many folds the model without it has the digest of a training without it.
    training_s, folds_s, trainings_s : float
        Processor time of one training on all tweets, of all folds counted and subtracted, and of
        a training for each fold.
    folds_accuracy, trainings_accuracy : float
        How many of the tweets the model without their fold has right, in each of the two ways.
    """

    n_equal: int
    training_s: float
    folds_s: float
    trainings_s: float
    folds_accuracy: float
    trainings_accuracy: float


def learned(model: nb.NaiveBayes, tweets: Tweets, left_out: int | None, k: int) -> nb.NaiveBayes:
    """Let a model learn all tweets but those of one fold, in their order."""
    for first in range(0, len(tweets), k * PIECE):
        rows = np.arange(first, min(first + k * PIECE, len(tweets)))
        if left_out is not None:
            rows = rows[rows % k != left_out]
        model.learn_many(
            columns_of(model, tweets, rows), [tweets.labels[row] for row in rows.tolist()]
        )
    return model


def in_folds(model: nb.NaiveBayes, tweets: Tweets, k: int) -> nb.Folds:
    """Count the tweets in their folds."""
    folds = nb.Folds(model, k)
    for first in range(0, len(tweets), k * PIECE):
        piece = np.arange(first, min(first + k * PIECE, len(tweets)))
        for fold in range(k):
            rows = piece[piece % k == fold]
            labels = [tweets.labels[row] for row in rows.tolist()]
            folds.learn_many(columns_of(model, tweets, rows), labels, fold)
    return folds


def right(model: ModelReader, tweets: Tweets, fold: int, k: int) -> int:
    """Return how many tweets of a fold a model has right."""
    n = 0
    for first in range(fold, len(tweets), k * PIECE):
        rows = np.arange(first, min(first + k * PIECE, len(tweets)), k)
        said = model.predict_many(columns_of(model, tweets, rows))
        n += sum(tweets.labels[row] == each for row, each in zip(rows.tolist(), said, strict=True))
    return n


def timed(name: str, tweets: Tweets, k: int = FOLDS) -> tuple[float, float]:
    """Return the seconds of one training, and of all folds counted and subtracted."""
    began = time.process_time()
    learned(model_of(MAX_WORDS, **MODELS[name]), tweets, None, k)
    training_s = time.process_time() - began
    began = time.process_time()
    counted = in_folds(model_of(MAX_WORDS, **MODELS[name]), tweets, k)
    for fold in range(k):
        counted.without(fold)
    return training_s, time.process_time() - began


def compare(name: str, tweets: Tweets, k: int = FOLDS) -> Folded:
    """Hold folds of a model of `MODELS` against trainings, one after the other."""

    def fresh() -> nb.NaiveBayes:
        return model_of(MAX_WORDS, **MODELS[name])

    few = tweets.first(100)
    learned(fresh(), few, None, k).digest(), in_folds(fresh(), few, k).without(0)  # compile
    began = time.process_time()
    learned(fresh(), tweets, None, k)
    training_s = time.process_time() - began
    began = time.process_time()
    folds = in_folds(fresh(), tweets, k)
    folds_s = time.process_time() - began
    trainings_s, n_equal, n_right = 0.0, 0, np.zeros(2, np.int64)
    for fold in range(k):
        began = time.process_time()
        rest: ModelReader = folds.without(fold)
        folds_s += time.process_time() - began
        counted = rest.digest()
        began = time.process_time()
        training = learned(fresh(), tweets, fold, k)
        trainings_s += time.process_time() - began
        n_equal += training.digest() == counted
        n_right += [right(each, tweets, fold, k) for each in (rest, training)]
    return Folded(n_equal, training_s, folds_s, trainings_s, *(n_right / len(tweets)).tolist())


def folds(tweets: Tweets, show: Show) -> Result:
    """Count ten folds and subtract each, beside one training; and judge a file by the command."""
    what = f"{tweets.origin}, room for {MAX_WORDS:,} words; {EVALUATED_MESSAGES:,} JSON lines"
    result = Result("folds", what)
    some = tweets.first(COMPARED_TWEETS)
    for name in show.track(list(MODELS)):
        n_equal = compare(name, some).n_equal  # which compiles what is timed, too
        name_equal = f"{name}: equal digests of {COMPARED_TWEETS:,} tweets"
        result.add(name_equal, n_equal, "folds", at_least=FOLDS)
        training_s, folds_s = timed(name, tweets)
        result.add(f"{name}: one training", len(tweets) / training_s, "tweets/s")
        ratio = folds_s / training_s
        result.add(f"{name}: time of one training", ratio, "times", at_most=TIMES_MAX)
    with tempfile.TemporaryDirectory(prefix="streamnb-folds-") as folder:
        source, default = write_lines(Path(folder), tweets, EVALUATED_MESSAGES), Path(folder, "c")
        default.write_text("{}", encoding="utf-8")
        words = "evaluate", source, "--config", default
        commands = {
            "evaluate": lambda: command_s(*words),
            f"evaluate --folds {FOLDS}": lambda: command_s(*words, "--folds", f"{FOLDS}"),
        }
        turns = alternate(commands, EVALUATED_TURNS, show)
    for name in commands:
        result.add(name, EVALUATED_MESSAGES / turns.median_s(name), "messages/s")
    once, by_folds = commands
    ratio = turns.ratio(by_folds, once)
    result.add(f"{by_folds}: time of {once}", ratio, "times", at_most=TIMES_MAX)
    return result


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Of MODELS.")] = None,
    tweets: Annotated[int, typer.Option(help="How many tweets of the stream; 0 for all.")] = 0,
    folds: Annotated[int, typer.Option(min=2, help="How many folds.")] = FOLDS,
) -> None:
    """Compare folds by subtraction with a training for each fold."""
    unknown = set(names or ()) - MODELS.keys()
    if unknown:
        raise typer.BadParameter(f"no model {', '.join(sorted(unknown))}; there are {[*MODELS]}")
    stream = load()
    stream = stream.first(tweets or len(stream))
    print(f"{len(stream):,} of {stream.origin}, {folds} folds; processor time")
    for name in names or MODELS:
        found = compare(name, stream, folds)
        print(
            f"{name:<8} {found.n_equal} of {folds} digests equal; one training"
            f" {found.training_s:.1f} s, {folds} folds {found.folds_s:.1f} s ="
            f" {found.folds_s / found.training_s:.2f} times one training,"
            f" {folds} trainings {found.trainings_s:.1f} s; accuracy {found.folds_accuracy:.2%} by"
            f" folds, {found.trainings_accuracy:.2%} by trainings",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
