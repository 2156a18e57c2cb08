"""`python -m benchmarks.accuracy`: how right and how sure named models are, one beside the other.

Each tweet is judged before it is learned, in time order; 20,000 balanced tweets from before the
stream's turn are never learned, and judged without the class prior once it has ended. Names are
those of `CHOICES`, options of words and of the hybrid, and of `PEERS`, other libraries; without a
name it judges the plain model and the hybrid. With `--parts N` the tweets are dealt out in pieces
as to N partitions, with `--late N` each is learned once N more have been judged. Each model after
the first is also compared with it, tweet by tweet. With `--topics`
the held-out tweets are those of topics of which the model has learned no tweet.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import streamnb as nb
from benchmarks.against_vw import write_tweets
from benchmarks.peers import require
from benchmarks.tweets import CLASSES, Tweets, load
from consumers.config.settings import Settings
from consumers.features import build_model
from streamnb.inspection.words import word_group
from streamnb.reader import ModelReader

PIECE = 4096
HELD_OUT = 10_000  # of each class
MAX_WORDS = 2_000_000  # as the daemon's default
BINS = 20  # of the calibration error
PARTS_PIECE = 512
COVERAGE, BLOCK = 0.9, 5_000  # of prediction sets; tweets whose sets are judged together
SIGNS: dict[str, Any] = {"punctuation": True, "ends": True}
# Fields that tell again what the text does, in groups beside it.
READ: dict[str, Callable[[str], Any]] = {
    "characters": len,
    "words": lambda text: len(text.split()),
    "mention": lambda text: "USER" in text,
    "link": lambda text: "URL" in text,
    "exclaims": lambda text: "!" in text,
    "first": lambda text: text.lower().split(None, 1)[0] if text.strip() else None,
    "last": lambda text: text.lower().rsplit(None, 1)[-1] if text.strip() else None,
}
BESIDE = {
    "numbers": nb.Numbers(nb.Gaussian(nb.NormalInverseGamma()), ["characters", "words"]),
    "flags": nb.Flags(fields=["mention", "link", "exclaims"]),
    "categories": nb.Categories(fields=["first", "last"]),
}
# How the daemon reads and learns texts by its own defaults.
_DAEMON = word_group(build_model(Settings().model).state, "text").spec
DAEMON: dict[str, Any] = {
    each.name: getattr(_DAEMON, each.name) for each in fields(nb.Words) if each.name != "max_words"
}
CHOICES: dict[str, dict[str, Any]] = {
    "plain": {"hybrid": None},
    "daemon": DAEMON,
    "hybrid": {},
    "fields": {"beside": BESIDE},
    "plain-fields": {"beside": BESIDE, "hybrid": None},
    "punctuation": {"punctuation": True},
    "ends": {"ends": True},
    "signs": SIGNS,
    "plain-signs": SIGNS | {"hybrid": None},
    "characters": {"characters": (3, 5)},
    "signs-characters": SIGNS | {"characters": (3, 5)},
    "gap": {"gap": 1},
    "signs-gap": SIGNS | {"gap": 1},
    "signs-gap-2": SIGNS | {"gap": 2},
    "trigrams": {"ngrams": (1, 3)},
    "signs-trigrams": SIGNS | {"ngrams": (1, 3)},
    "smoothing-1": SIGNS | {"hybrid": nb.Hybrid(smoothing=1.0)},
    "smoothing-5": SIGNS | {"hybrid": nb.Hybrid(smoothing=5.0)},
    "shrinkage-0.05": SIGNS | {"hybrid": nb.Hybrid(shrinkage=0.05)},
    "shrinkage-0.2": SIGNS | {"hybrid": nb.Hybrid(shrinkage=0.2)},
    "half-life-300": SIGNS | {"hybrid": nb.Hybrid(half_life=300)},
    "half-life-2000": SIGNS | {"hybrid": nb.Hybrid(half_life=2_000)},
    **{
        f"prior-{half_life}": DAEMON | {"prior_half_life": half_life}
        for half_life in (100, 300, 700, 2_000, 10_000, 100_000)
    },
}
TOPICS = (
    "iphone|ipod|itunes|apple",
    "movie|film|cinema",
    "school|exam|homework|class",
    "rain|sun|sunny|weather|snow",
    "music|song|album|concert",
    "game|football|baseball|soccer",
    "dog|cat|puppy|kitten",
    "mom|mum|dad|mother|father",
    "hair|dress|shoes|clothes",
    "flight|airport|plane|train",
)
TOPIC_HELD_OUT = 2_000  # of each class and topic
Floats = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a model said, and the processor time a tweet that it took.

    Attributes
    ----------
    stream, held : ndarray of shape (n, 2)
        Log-posteriors of each row of the stream before it was learned, and of the held-out rows.
    learn_s, predict_s : float
        Seconds a tweet, to judge and learn, and to judge alone.
    """

    stream: Floats
    held: Floats
    learn_s: float
    predict_s: float


def judge(log_posteriors: Floats, truth: Places) -> tuple[float, float, float]:
    """Return accuracy, log-loss and expected calibration error."""
    said = log_posteriors.argmax(axis=1)
    sure = np.exp(log_posteriors.max(axis=1))
    right = said == truth
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = np.bincount(places, weights=sure - right, minlength=BINS)
    log_loss = -log_posteriors[np.arange(len(truth)), truth].mean()
    return float(right.mean()), float(log_loss), float(np.abs(gaps).sum() / len(truth))


@dataclass(frozen=True, slots=True)
class JudgedSets:
    """What prediction sets cover, in percent.

    Attributes
    ----------
    covered, tail : float
        In all, and behind the stream's turn; the latter is NaN if nothing follows it.
    least, most : float
        Of the blocks.
    size, single : float
        Mean number of classes in a set, and the percentage of sets with one class.
    """

    covered: float
    tail: float
    least: float
    most: float
    size: float
    single: float


def judge_sets(log_posteriors: Floats, truth: Places, turn: int) -> JudgedSets:
    """Judge the sets that answers get, each before its label is told."""
    learner, cuts = nb.ConformalSets(COVERAGE), range(0, len(truth), BLOCK)
    sets = np.concatenate(
        [
            learner.prequential_many(log_posteriors[i : i + BLOCK], truth[i : i + BLOCK])
            for i in cuts
        ]
    )
    covered, sizes = 100.0 * sets[np.arange(len(truth)), truth], sets.sum(axis=1)
    blocks = [float(covered[i : i + BLOCK].mean()) for i in cuts]
    tail = float(covered[turn:].mean()) if turn < len(truth) else math.nan
    single = 100.0 * float((sizes == 1).mean())
    return JudgedSets(
        float(covered.mean()), tail, min(blocks), max(blocks), float(sizes.mean()), single
    )


def model_of(max_words: int = MAX_WORDS, **options: Any) -> nb.NaiveBayes:
    """Return a model of words and pairs, as the daemon's default, with a choice's options.

    `prior_half_life`, `half_life` in examples, `classes` and the groups `beside` are the model's,
    all others are the words'.
    """
    half_life, beside = options.pop("prior_half_life", None), options.pop("beside", {})
    examples = options.pop("half_life", None)
    decay = None if examples is None else nb.HalfLife(examples=examples)
    classes = options.pop("classes", CLASSES)
    pairs: dict[str, Any] = {
        "likelihood": nb.Multinomial(),
        "ngrams": (1, 2),
        "negation": True,
        "counts": "presence",
        "hybrid": nb.Hybrid(),
    }
    words = nb.Words(max_words=max_words, **(pairs | options))
    features = {"text": words} | beside
    return nb.NaiveBayes(
        classes, features=features, decay=decay, hash_key=1, prior_half_life=half_life
    )


def columns_of(model: ModelReader, tweets: Tweets, rows: Places) -> dict[str, Any]:
    """Return the texts of some rows, and the fields read off them that the model has."""
    texts = [tweets.texts[row] for row in rows.tolist()]
    fields = [name for name in READ if name in model.state.fields]
    return {"text": texts} | {name: [READ[name](text) for text in texts] for name in fields}


def learn(
    model: nb.NaiveBayes, tweets: Tweets, rows: Places, parts: int = 0, late: int = 0
) -> Floats:
    """Learn rows in order; return the log-posteriors from before each."""
    size = PARTS_PIECE if parts > 1 else PIECE
    found = []
    for i, first in enumerate(range(0, len(rows), size)):
        piece = rows[first : first + size]
        part = str(i % parts) if parts else None
        if late:
            found.append(model.predict_log_proba_many(columns_of(model, tweets, piece)))
            piece = rows[max(0, first - late) : max(0, first - late + size)]
        labels = [tweets.labels[row] for row in piece.tolist()]
        judged = model.prequential_many(columns_of(model, tweets, piece), labels, part=part)
        if not late:
            found.append(judged)
    return np.concatenate(found)


def ours(tweets: Tweets, rows: Places, held: Places, choice: dict[str, Any], **how: int) -> Judged:
    """Judge a model of `CHOICES`."""
    parts, late, max_words = how["parts"], how["late"], how["max_words"]
    learn(model_of(max_words, **choice), tweets, rows[:100], parts)  # compile
    model = model_of(max_words, **choice)
    began = time.process_time()
    stream = learn(model, tweets, rows, parts, late)
    learned = time.process_time()
    asked = model.without_prior()
    columns = columns_of(model, tweets, held)
    predicting = time.process_time()
    found = asked.predict_log_proba_many(columns)
    seconds = time.process_time() - predicting
    return Judged(stream, found, (learned - began) / len(rows), seconds / len(held))


def vowpal_wabbit(tweets: Tweets, rows: Places, held: Places) -> Judged:
    """Judge Vowpal Wabbit's logistic model of words and pairs, read from a file by its driver."""
    require("vowpalwabbit")
    import pylibvw  # noqa: PLC0415 -- a peer

    with tempfile.TemporaryDirectory(prefix="streamnb-accuracy-") as folder:
        data, said = Path(folder) / "tweets.vw", Path(folder) / "said"
        order = np.concatenate([rows, held]).tolist()
        texts, labels = ([of[row] for row in order] for of in (tweets.texts, tweets.labels))
        write_tweets(data, Tweets(texts, labels, tweets.origin), len(rows))
        options = ["--quiet", "--no_stdin", "--loss_function", "logistic", "--link", "logistic"]
        files = ["--data", str(data), "--predictions", str(said)]
        model = pylibvw.vw([*options, "--ngram", "2", "-b", "24", *files])
        began = time.process_time()
        model.run_parser()
        seconds = time.process_time() - began
        model.finish()
        found = two_columns(np.loadtxt(said))
    stream, of_held = found[: len(rows)], found[len(rows) :]
    return Judged(stream, of_held, seconds / len(found), float("nan"))


def sgd(tweets: Tweets, rows: Places, held: Places) -> Judged:
    """Judge scikit-learn's logistic SGDClassifier of words and pairs, a thousand tweets a step."""
    require("scikit-learn")
    from sklearn.feature_extraction.text import HashingVectorizer  # noqa: PLC0415 -- a peer
    from sklearn.linear_model import SGDClassifier  # noqa: PLC0415 -- a peer

    read = HashingVectorizer(n_features=1 << 22, ngram_range=(1, 2), binary=True)
    model = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=1)
    found = []
    began = time.process_time()
    for first in range(0, len(rows), 1000):
        piece = rows[first : first + 1000]
        x = read.transform([tweets.texts[row] for row in piece.tolist()])
        found.append(model.predict_proba(x)[:, 1] if first else np.full(len(piece), 0.5))
        model.partial_fit(x, [tweets.labels[row] for row in piece.tolist()], classes=CLASSES)
    learned = time.process_time()
    of_held = model.predict_proba(read.transform([tweets.texts[row] for row in held.tolist()]))
    seconds = time.process_time() - learned
    return Judged(
        two_columns(np.concatenate(found)),
        two_columns(of_held[:, 1]),
        (learned - began) / len(rows),
        seconds / len(held),
    )


def two_columns(p: Floats) -> Floats:
    """Return log-posteriors of both classes from the second one's probability."""
    safe = np.clip(p, 1e-15, 1.0 - 1e-15)
    return np.log(np.column_stack([1.0 - safe, safe]))


PEERS: dict[str, Callable[[Tweets, Places, Places], Judged]] = {
    "vowpal-wabbit": vowpal_wabbit,
    "sgd": sgd,
}


def show(
    name: str, judged: Judged, turn: int, truth: Places, truth_held: Places, begin: int = 0
) -> None:
    """Print a model's figures, with half the width of the 95 % interval of each accuracy.

    `begin` leaves out of one more row the tweets before which no label had come.
    """
    behind = f"to it, behind {begin:,}", judged.stream[begin:turn], truth[begin:turn]
    for what, log_posteriors, labels in (
        ("to the turn", judged.stream[:turn], truth[:turn]),
        *([behind] if 0 < begin < turn else []),
        ("whole stream", judged.stream, truth),
        ("held out, without prior", judged.held, truth_held),
    ):
        accuracy, log_loss, ece = judge(log_posteriors, labels)
        width = 1.96 * (accuracy * (1.0 - accuracy) / len(labels)) ** 0.5
        print(f"{name:<15} {what:<24} {accuracy:7.2%} ±{width:5.2%}  {log_loss:8.4f}  {ece:6.4f}")
    said = judged.held.argmax(axis=1)
    recalls = [(said[truth_held == c] == c).mean() for c in (0, 1)]
    print(
        f"{name:<15} recalls {recalls[0]:.1%} and {recalls[1]:.1%}; learning"
        f" {1e6 * judged.learn_s:.2f} µs a tweet ({1.0 / judged.learn_s:,.0f} a second), predicting"
        f" {1e6 * judged.predict_s:.2f} µs",
        flush=True,
    )


def show_beside(first: Floats, judged: Floats, truth: Places) -> None:
    """Print how many points of accuracy, and how much log-loss, a model has more than the first.

    Half the width of the 95 % interval is of the means of a thousand runs of neighbours.
    """
    rows = np.arange(len(truth))
    for what, scale, more in (
        (
            "accuracy",
            100.0,
            (judged.argmax(axis=1) == truth) * 1.0 - (first.argmax(axis=1) == truth),
        ),
        ("log-loss", 1.0, first[rows, truth] - judged[rows, truth]),
    ):
        blocks = [each.mean() for each in np.array_split(more, min(1000, len(more)))]
        width = 1.96 * float(np.std(blocks)) / len(blocks) ** 0.5
        print(f"  {what} {scale * more.mean():+.4f} ±{scale * width:.4f}", end="")
    print("  beside the first, to the turn", flush=True)


def held_out(truth: Places) -> Places:
    """Return balanced rows from before the turn, the last row of the second class."""
    turn = int(np.flatnonzero(truth == 1)[-1]) + 1
    random = np.random.default_rng(3)
    n = min(HELD_OUT, turn // 20)
    own = [random.permutation(np.flatnonzero(truth[:turn] == c))[:n] for c in range(2)]
    return np.concatenate(own)


def of_topics(texts: list[str], truth: Places, turn: int) -> tuple[Places, Places]:
    """Return balanced rows of each topic, shape (topics, rows), and all rows of no topic."""
    topics = np.zeros((len(TOPICS), len(truth)), dtype=bool)
    for own, words in zip(topics, TOPICS, strict=True):
        search = re.compile(rf"\b(?:{words})s?\b", re.IGNORECASE).search
        own[:] = [search(text) is not None for text in texts[: len(truth)]]
    rows = np.flatnonzero(~topics.any(axis=0))
    topics[:, turn:] = False
    random = np.random.default_rng(3)
    wanted = [[np.flatnonzero(own & (truth == c)) for c in range(2)] for own in topics]
    n = min(TOPIC_HELD_OUT, *(len(each) for of in wanted for each in of))
    held = [np.concatenate([random.permutation(each)[:n] for each in of]) for of in wanted]
    return np.stack(held), rows


def show_topics(name: str, said: Places, truth: Places) -> None:
    """Print balanced accuracy on each topic, and their mean with its 95 % interval."""
    right = (said == truth).reshape(len(TOPICS), -1).mean(axis=1)
    width = 1.96 * (right * (1.0 - right) / (len(truth) / len(TOPICS))).sum() ** 0.5 / len(TOPICS)
    print(f"{name:<15} topics, mean balanced accuracy {right.mean():.2%} ±{width:.2%}:", end=" ")
    print(", ".join(f"{own:.1%}" for own in right), flush=True)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Of CHOICES and PEERS.")] = None,
    parts: Annotated[int, typer.Option(help="Partitions; 0 keeps the model whole.")] = 0,
    tweets: Annotated[int, typer.Option(help="How many tweets of the stream; 0 for all.")] = 0,
    late: Annotated[int, typer.Option(help="By how many tweets labels are late.")] = 0,
    behind: Annotated[int, typer.Option(help="Leave out so many first ones of one row.")] = 0,
    max_words: Annotated[int, typer.Option(help="Bound of the vocabulary.")] = MAX_WORDS,
    topics: Annotated[bool, typer.Option(help="Hold topics out.")] = False,
) -> None:
    """Judge models on the recorded tweets."""
    unknown = set(names or ()) - CHOICES.keys() - PEERS.keys()
    if unknown:
        raise typer.BadParameter(f"no model is named {', '.join(sorted(unknown))}")
    stream = load()
    truth = np.array([CLASSES.index(label) for label in stream.labels])[: tweets or None]
    turn = int(np.flatnonzero(truth == 1)[-1]) + 1
    held = held_out(truth)
    rows = np.setdiff1d(np.arange(len(truth)), held)
    if topics:
        by_topic, rows = of_topics(stream.texts, truth, turn)
        held = by_topic.ravel()
    print(f"{'model':<15} {'what':<24} accuracy          log-loss     ECE")
    first = None
    for name in names or ["plain", "hybrid"]:
        if name in PEERS:
            judged = PEERS[name](stream, rows, held)
        else:
            how = {"parts": parts, "late": late, "max_words": max_words}
            judged = ours(stream, rows, held, CHOICES[name], **how)
        n_turn = int((rows < turn).sum())
        show(name, judged, n_turn, truth[rows], truth[held], behind or late)
        if first is None:
            first = judged.stream[:n_turn]
        else:
            show_beside(first, judged.stream[:n_turn], truth[rows][:n_turn])
        if topics:
            show_topics(name, judged.held.argmax(axis=1), truth[held])


if __name__ == "__main__":
    typer.run(main)
