"""`python -m benchmarks.unseen_words`: what n-grams of characters do for words that are new.

A model learns some tweets from before the recorded stream's turn, and is asked without the class
prior for others: as they are, with a third of the longer words misspelt by one letter, and for
those of which a fifth of the words or more was never seen.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.accuracy import SIGNS, model_of
from benchmarks.tweets import CLASSES, load

LEARNED = (5_000, 30_000, 150_000)
ASKED = 20_000  # half of each class
LONG = 5  # letters, from which on a word is misspelt
MISSPELT, UNSEEN = 1 / 3, 1 / 5  # of the longer words, and of all of a text
CHOICES: dict[str, dict[str, Any]] = {
    "without": SIGNS,
    "with (3, 5)": SIGNS | {"characters": (3, 5)},
    "with (4, 6)": SIGNS | {"characters": (4, 6)},
}
_LONG_WORD = re.compile(rf"[a-z]{{{LONG},}}", re.IGNORECASE)

Truth = NDArray[np.bool_]


def misspelt(text: str, random: np.random.Generator) -> str:
    """Return a text with a letter left out, doubled, swapped or replaced in some longer words."""

    def changed(found: re.Match[str]) -> str:
        word = found[0]
        if random.random() >= MISSPELT:
            return word
        i = int(random.integers(1, len(word) - 1))
        other = chr(ord("a") + int(random.integers(26)))
        ways = (
            word[:i] + word[i + 1 :],
            word[:i] + word[i] + word[i:],
            word[: i - 1] + word[i] + word[i - 1] + word[i + 1 :],
            word[:i] + other + word[i + 1 :],
        )
        return ways[int(random.integers(len(ways)))]

    return _LONG_WORD.sub(changed, text)


def is_strange(text: str, known: set[str]) -> bool:
    """Return whether a fifth of a text's words or more is not known."""
    words = text.lower().split()
    return sum(word not in known for word in words) >= UNSEEN * len(words) > 0


def balanced(said: list[Any], truth: Truth) -> str:
    """Return the mean recall of both classes with half the width of its 95 % interval."""
    right = np.array([label == CLASSES[1] for label in said]) == truth
    recalls = np.array([right[truth == c].mean() for c in (False, True)])
    n = np.array([(truth == c).sum() for c in (False, True)])
    width = 1.96 * float(np.sqrt((recalls * (1.0 - recalls) / n).sum())) / 2.0
    return f"{recalls.mean():.1%} ± {width:.1%}"


def main() -> None:
    """Judge words with and without n-grams of characters on words that are new."""
    stream = load()
    truth = np.array([label == CLASSES[1] for label in stream.labels])
    turn = int(np.flatnonzero(truth)[-1]) + 1
    random = np.random.default_rng(3)
    order = random.permutation(turn)
    asked = np.concatenate([order[truth[order] == c][: ASKED // 2] for c in (False, True)])
    rest = random.permutation(np.setdiff1d(order, asked))
    texts = [stream.texts[row] for row in asked.tolist()]
    spelt = [misspelt(text, random) for text in texts]
    print(f"| asked | learned | {' | '.join(CHOICES)} |")
    print("| --- " * (2 + len(CHOICES)) + "|")
    for n in LEARNED:
        rows = np.sort(rest[:n]).tolist()
        learned = [stream.texts[row] for row in rows]
        known = {word for text in learned for word in text.lower().split()}
        strange = np.array([is_strange(text, known) for text in texts])
        odd = [text for text, is_odd in zip(texts, strange, strict=True) if is_odd]
        found: list[list[str]] = []
        for choice in CHOICES.values():
            model = model_of(**choice)
            model.learn_many({"text": learned}, [stream.labels[row] for row in rows])
            ask = model.without_prior().predict_many
            found.append(
                [
                    balanced(ask({"text": texts}), truth[asked]),
                    balanced(ask({"text": spelt}), truth[asked]),
                    balanced(ask({"text": odd}), truth[asked][strange]),
                ]
            )
        what = (f"{ASKED:,} tweets", "those, misspelt", f"{len(odd):,} of them with unseen words")
        for name, figures in zip(what, zip(*found, strict=True), strict=True):
            print(f"| {name} | {n:,} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
