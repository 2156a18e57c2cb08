"""`python -m benchmarks.coverage`: what calibrator and prediction sets make of a model's answers.

Each example is judged, calibrated and given its set before its label is told to any of them. On the
recorded tweets, without those that `benchmarks.accuracy` holds out, the stream's turn is its last
positive tweet; behind it all are negative. `--steps` compares steps of the sets' threshold, and
`--snapshots` judges the sets of a snapshot, which has one threshold for all examples.
`--numbers` holds River's numeric streams against its GaussianNB, and `--overconfident` calibrates
made-up answers whose log-odds are three times what they should be. `--classes` does so with two to
a thousand classes, after few examples and many, and with answers that are worth what they state.
`--plain` calibrates what plain models say of numbers and of flags, made up so that two fields each
read the same quantity, and follows what is answered after the classes of such a stream change.
`--late` gives made-up answers their sets while labels are late: of a steady stream, of one that
turns in the middle, and of one made against the threshold; and says what a threshold would do that
is moved by what the answered sets held.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import streamnb as nb
from benchmarks.accuracy import CHOICES, PIECE, held_out, judge, learn, model_of
from benchmarks.numeric import KINDS, Stream, groups_for, read, river
from benchmarks.tweets import CLASSES, Tweets, load
from streamnb.features.protocol import Group

BLOCK = 5_000
BIN = 0.25  # the width of a category of numbers, in arsinh
LEAST = 1e-15  # River's bound on the probability of a true class
SNAPSHOT, SNAPSHOT_TWEETS = 1_000, 200_000
STEPS = (0.005, 0.0125, 0.02)
OVERCONFIDENT, MADE_UP_CLASSES, MADE_UP = 3.0, (2, 3, 10), 200_000
MANY_CLASSES, COUNTED, ASKED = (2, 3, 10, 100, 1_000), (0, 10, 100, 1_000, 10_000), 5_000
STREAMS = 10  # of at most 100 counted examples, of which one says little
SURE = 8.0  # nats of the likeliest class, above all others together
PLAIN_CLASSES, PLAIN, QUANTITIES = (3, 10, 20), 50_000, 5
CHANGE, CHANGE_STEP, HALF_LIFE = 20_000, 5_000, 2_000
LATE, LATE_STEADY, LATE_TURNED = (0, 9, 100, 1_000, 5_000), 200_000, 20_000

Floats = NDArray[np.float64]


def show_sets(
    name: str, sets: NDArray[np.bool_], truth: NDArray[np.int64], turn: int, what: str
) -> None:
    """Print how often the sets held the true class, in all and by block, and how large they are."""
    covered, sizes = sets[np.arange(len(truth)), truth], sets.sum(axis=1)
    blocks = covered[: len(covered) // BLOCK * BLOCK].reshape(-1, BLOCK).mean(axis=1)
    least, most = (blocks.min(), blocks.max()) if len(blocks) else (math.nan, math.nan)
    tail = f", behind the turn {covered[turn:].mean():.2%}" if turn < len(truth) else ""
    print(
        f"{name:<7} {what}: covered {covered.mean():.2%}{tail}, blocks of {BLOCK:,} {least:.2%} to"
        f" {most:.2%}; mean size {sizes.mean():.3f}, one class {(sizes == 1).mean():.1%}, none"
        f" {(sizes == 0).mean():.2%}",
        flush=True,
    )


def show(name: str, what: str, log_posteriors: Floats, truth: NDArray[np.int64]) -> None:
    """Print how right and how sure answers are."""
    accuracy, log_loss, ece = judge(np.maximum(log_posteriors, math.log(LEAST)), truth)
    print(f"{name:<7} {what:<28} {accuracy:8.2%}  {log_loss:8.4f}  {ece:6.4f}", flush=True)


def in_pieces(learner: Any, log_posteriors: Floats, truth: NDArray[np.int64]) -> Any:
    """Return what a calibrator, or sets, say of each example before its label is told."""
    return np.concatenate(
        [
            learner.prequential_many(log_posteriors[i : i + PIECE], truth[i : i + PIECE])
            for i in range(0, len(truth), PIECE)
        ]
    )


def recorded(tweets: int) -> tuple[Tweets, NDArray[np.int64], NDArray[np.int64], int]:
    """Return the stream, the rows to learn, the class of each and how many are up to the turn."""
    stream = load()
    truth = np.array([CLASSES.index(label) for label in stream.labels])[: tweets or None]
    rows = np.setdiff1d(np.arange(len(truth)), held_out(truth))
    own = truth[rows]
    return stream, rows, own, int(np.flatnonzero(own == 1)[-1]) + 1


def judge_tweets(tweets: int, coverage: float) -> None:
    """Print the figures of the recorded tweets, for the hybrid and the plain model."""
    stream, rows, truth, turn = recorded(tweets)
    print("model   what                         accuracy  log-loss     ECE")
    for name, hybrid in (("hybrid", nb.Hybrid()), ("plain", None)):
        stated = learn(model_of(hybrid=hybrid), stream, rows)
        calibrated = in_pieces(nb.Calibrator(), stated, truth)
        for what, answers in (("stated", stated), ("calibrated", calibrated)):
            show(name, f"{what}, to the turn", answers[:turn], truth[:turn])
            if turn < len(truth):
                show(name, f"{what}, behind the turn", answers[turn:], truth[turn:])
            sets = in_pieces(nb.ConformalSets(coverage), answers, truth)
            show_sets(name, sets, truth, turn, what)


def judge_steps(tweets: int, coverage: float) -> None:
    """Print what the steps of the sets' threshold make of the hybrid's answers."""
    stream, rows, truth, turn = recorded(tweets)
    stated = learn(model_of(), stream, rows)
    for step in STEPS:
        sets = in_pieces(nb.ConformalSets(coverage, step=step), stated, truth)
        show_sets("hybrid", sets, truth, turn, f"step {step:g}")


def judge_snapshots(tweets: int, coverage: float) -> None:
    """Print what the sets of snapshots cover, each of the examples between it and the next."""
    stream, rows, truth, turn = recorded(tweets or SNAPSHOT_TWEETS)
    confidence = nb.Confidence(None, nb.ConformalSets(coverage))
    model = model_of(**CHOICES["daemon"])
    learner = nb.Learner(
        model, nb.SnapshotBoard(), nb.EveryExamples(1), lambda: 0.0, confidence=confidence
    )
    said, found = [], []
    for first in range(0, len(rows), SNAPSHOT):
        own = rows[first : first + SNAPSHOT].tolist()
        columns = {"text": [stream.texts[row] for row in own]}
        said.append(learner.snapshot.predict_log_proba_many(columns))
        sets = learner.snapshot.rule.sets(said[-1])
        assert sets is not None  # the rule has them
        found.append(sets)
        learner.learn("tweets", columns, [stream.labels[row] for row in own])
    show("daemon", f"snapshots of {SNAPSHOT:,}", np.concatenate(said), truth)
    show_sets("daemon", np.concatenate(found), truth, turn, f"snapshots of {SNAPSHOT:,}")


def judge_overconfident() -> None:
    """Print the figures of made-up answers, and of the best: those that the truth is drawn by."""
    random = np.random.default_rng(1)
    for k in MADE_UP_CLASSES:
        scores = random.normal(size=(MADE_UP, k))
        best, stated = (
            each - np.log(np.exp(each).sum(axis=1, keepdims=True))
            for each in (scores, OVERCONFIDENT * scores)
        )
        drawn = random.random((MADE_UP, 1)) < np.exp(best).cumsum(axis=1)
        truth = drawn.argmax(axis=1)
        calibrated = in_pieces(nb.Calibrator(), stated, truth)
        print(f"{k} classes, {MADE_UP:,} examples")
        for what, answers in (("best", best), ("stated", stated), ("calibrated", calibrated)):
            show("", what, answers, truth)


def made_up(
    random: np.random.Generator, kind: str, k: int, n: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Return what is stated of k classes, and true ones: right, sure and right, or too sure."""
    scores = (2.0 if kind == "too sure" else 3.0) * random.normal(size=(n, k))
    if kind == "sure":
        scores[np.arange(n), random.integers(k, size=n)] += math.log(k - 1) + SURE
    best, stated = (
        each - np.logaddexp.reduce(each, axis=1, keepdims=True)
        for each in (scores, OVERCONFIDENT * scores if kind == "too sure" else scores)
    )
    below = best.max(axis=1, keepdims=True) - best  # by chance, in proportion to e^best
    return stated, (random.gumbel(size=(n, k)) - below).argmax(axis=1)


def judge_classes() -> None:
    """Print log-loss and calibration error of answers stated, and calibrated by some examples."""
    random = np.random.default_rng(1)
    print("answers   classes  stated         after " + "  ".join(f"{n:>13,}" for n in COUNTED))
    for kind in ("right", "sure", "too sure"):
        for k in MANY_CLASSES:
            asked, truth = made_up(random, kind, k, ASKED)
            row = [judge(asked, truth)[1:]]
            for n in COUNTED:
                found = []
                for _ in range(STREAMS if 0 < n <= 100 else 1):
                    calibrator = nb.Calibrator()
                    for begin in range(0, n, PIECE):
                        some = made_up(random, kind, k, min(PIECE, n - begin))
                        calibrator.prequential_many(*some)
                    found.append(judge(calibrator.calibrate(asked), truth)[1:])
                row.append(np.mean(found, axis=0))
            figures = [f"{log_loss:.4f}/{ece:.4f}" for log_loss, ece in row]
            print(f"{kind:<8} {k:8,}  " + "  ".join(f"{each:>13}" for each in figures), flush=True)


def judge_numbers(stream: Stream) -> None:
    """Print the figures of one of River's streams, for our Gaussian and River's."""
    classes = sorted(set(stream.labels), key=str)
    truth = np.array([classes.index(label) for label in stream.labels])
    model = nb.NaiveBayes(classes, features=groups_for(stream))
    stated = model.prequential_many(stream.columns, stream.labels)
    columns = {str(name): values for name, values in stream.columns.items()}
    fields = nb.Categories(nb.Categorical(), fields=list(columns), bins=BIN)
    counted = nb.NaiveBayes(classes, features={"bins": fields})
    of_bins = counted.prequential_many(columns, stream.labels)
    theirs, other = np.empty_like(stated), river(stream)
    for i, (x, y) in enumerate(stream.examples):
        said = other.predict_proba_one(x)
        theirs[i] = [math.log(max(said.get(c, 0.0), LEAST)) for c in classes]
        other.learn_one(x, y)
    print(f"{stream.name}: {len(truth):,} examples, {len(classes)} classes")
    for what, answers in (
        ("River", theirs),
        ("stated", stated),
        ("calibrated", nb.Calibrator().prequential_many(stated, truth)),
        ("bins", of_bins),
        ("bins, calibrated", nb.Calibrator().prequential_many(of_bins, truth)),
    ):
        show("", what, answers, truth)


def plain_groups(kind: str) -> dict[str, Group]:
    """Return the group that reads a stream of `plain_stream`."""
    fields = [f"{quantity}{twin}" for quantity in range(QUANTITIES) for twin in "ab"]
    if kind == "numbers":
        return {kind: nb.Numbers(nb.Gaussian(), fields=fields)}
    return {kind: nb.Flags(nb.Bernoulli(), fields=fields)}


def plain_stream(
    random: np.random.Generator, kind: str, centres: Floats, truth: NDArray[np.int64]
) -> dict[str, Any]:
    """Return columns of which two each read the same quantity, about its class's centre."""
    found: dict[str, Any] = {}
    for quantity in range(QUANTITIES):
        own = centres[truth, quantity] + random.normal(size=len(truth))
        for twin in "ab":
            read = own + 0.5 * random.normal(size=len(truth))
            found[f"{quantity}{twin}"] = read if kind == "numbers" else read > 0.0
    return found


def judge_plain() -> None:
    """Print the figures of plain counts of numbers and flags, stated and calibrated."""
    random = np.random.default_rng(1)
    for kind in ("numbers", "flags"):
        for k in PLAIN_CLASSES:
            truth = random.integers(k, size=PLAIN)
            columns = plain_stream(random, kind, random.normal(size=(k, QUANTITIES)), truth)
            model = nb.NaiveBayes(range(k), features=plain_groups(kind))
            stated = model.prequential_many(columns, truth.tolist())
            print(f"{kind}, {k} classes, {PLAIN:,} examples")
            for what, answers in (
                ("stated", stated),
                ("calibrated", nb.Calibrator().prequential_many(stated, truth)),
            ):
                show("", what, answers, truth)


def judge_change() -> None:
    """Print how sure and how right answers are before and after classes change their meaning."""
    random, k = np.random.default_rng(1), 3
    centres = random.normal(size=(k, QUANTITIES))
    truth = random.integers(k, size=3 * CHANGE)
    meant = np.where(np.arange(len(truth)) < CHANGE, truth, (truth + 1) % k)
    columns = plain_stream(random, "numbers", centres, meant)
    model = nb.NaiveBayes(
        range(k), features=plain_groups("numbers"), decay=nb.HalfLife(examples=HALF_LIFE)
    )
    stated = model.prequential_many(columns, truth.tolist())
    calibrated = nb.Calibrator().prequential_many(stated, truth)
    print(f"numbers, {k} classes, changed after {CHANGE:,} examples; sure: mean probability")
    for begin in range(0, len(truth), CHANGE_STEP):
        own = slice(begin, begin + CHANGE_STEP)
        sure = (np.exp(each[own]).max(axis=1).mean() for each in (stated, calibrated))
        accuracy, _, error = judge(stated[own], truth[own])
        _, _, left = judge(calibrated[own], truth[own])
        print(
            f"{begin:7,} to {begin + CHANGE_STEP:7,}: right {accuracy:.2%}; stated sure"
            f" {next(sure):.2%}, ECE {error:.4f}; calibrated sure {next(sure):.2%}, ECE {left:.4f}"
        )


def judge_late(coverage: float) -> None:
    """Print what sets hold if labels are late; the true class is the first of two."""
    random = np.random.default_rng(1)
    steady = random.beta(4.0, 1.2, LATE_STEADY)
    for delay in LATE:
        turned, half = steady[:LATE_TURNED].copy(), LATE_TURNED // 2
        turned[half : half + delay] = 1.0 - turned[half : half + delay]  # until the model hears it
        for name, p in (
            ("steady", steady), ("turned", turned), ("against", against(delay, coverage)),
        ):  # fmt: skip
            stated, truth = np.log(np.stack((p, 1.0 - p), axis=1)), np.zeros(len(p), np.int64)
            sets, n = nb.ConformalSets(coverage), len(p) - delay
            first = sets.sets(stated[:delay])
            late = sets.prequential_many(stated[:n], truth[:n], stated[delay:])
            show_sets(name, np.concatenate((first, late)), truth, len(p), f"{delay:,} late")
            print(f"{'':<8}as they are learned {sets.covered:.2%}")
        answered = moved_by_answered(steady, delay, coverage)
        show_sets("steady", answered, np.zeros(len(steady), np.int64), len(steady), "by answered")


def against(delay: int, coverage: float) -> Floats:
    """Return probabilities of true classes that no late threshold covers, if it can be helped."""
    step = nb.ConformalSets(coverage).step
    q, thresholds, found = coverage, [], []
    for t in range(LATE_TURNED):
        thresholds.append(q)
        answered = thresholds[max(0, t - delay)]
        score = q if q > answered else min(1.0, answered + 1e-6)
        q += step * coverage if score > q else -step * (1.0 - coverage)
        found.append(min(max(1.0 - score, LEAST), 1.0 - LEAST))
    return np.array(found)


def moved_by_answered(p: Floats, delay: int, coverage: float) -> NDArray[np.bool_]:
    """Return sets by a threshold that moves by whether the answered sets held the true class."""
    step = nb.ConformalSets(coverage).step
    q, thresholds = coverage, np.empty(len(p))
    for t, at in enumerate(range(-delay - 1, len(p) - delay - 1)):
        if at >= 0:
            q += step * coverage if 1.0 - p[at] > thresholds[at] else -step * (1.0 - coverage)
        thresholds[t] = q
    return np.stack((1.0 - p <= thresholds, p <= thresholds), axis=1)


def main(  # noqa: PLR0913, PLR0917 -- each is an option
    tweets: Annotated[int, typer.Option(help="How many tweets of the stream; 0 for all.")] = 0,
    coverage: Annotated[float, typer.Option(help="The share of sets to hold the class.")] = 0.9,
    numbers: Annotated[bool, typer.Option(help="River's numeric streams instead.")] = False,
    steps: Annotated[bool, typer.Option(help="Several steps of the sets instead.")] = False,
    snapshots: Annotated[bool, typer.Option(help="Sets of snapshots instead.")] = False,
    overconfident: Annotated[bool, typer.Option(help="Made-up answers instead.")] = False,
    classes: Annotated[bool, typer.Option(help="Made-up answers of many classes.")] = False,
    plain: Annotated[bool, typer.Option(help="Made-up numbers and flags instead.")] = False,
    late: Annotated[bool, typer.Option(help="Made-up answers whose labels are late.")] = False,
) -> None:
    """Judge calibrated answers and prediction sets."""
    if steps:
        judge_steps(tweets, coverage)
    elif snapshots:
        judge_snapshots(tweets, coverage)
    elif overconfident:
        judge_overconfident()
    elif classes:
        judge_classes()
    elif late:
        judge_late(coverage)
    elif plain:
        judge_plain()
        judge_change()
    elif numbers:
        for kind in KINDS:
            judge_numbers(read(kind))
    else:
        judge_tweets(tweets, coverage)


if __name__ == "__main__":
    typer.run(main)
