"""`python -m benchmarks.rare_class`: a third class of which few examples were learned.

Beside recorded tweets in two classes stand those that name the weather, as a class of their own.
Asked without the class prior, as by `/v1/predict`: how many of the others are called weather, and
how much of the weather is found, by the library, which believes less in a rare class, and with all
classes alike.
"""

from __future__ import annotations

import random
import re
from itertools import product

import numpy as np
import typer

import streamnb as nb
from benchmarks.accuracy import SIGNS, model_of
from benchmarks.tweets import CLASSES, load

RARE = "weather"
NAMES_WEATHER = re.compile(r"\b(rain\w*|sunny|sunshine|weather|snow\w*)\b", re.IGNORECASE)
OTHERS, EXAMPLES = (5_000, 50_000), (3, 10, 30, 100, 300, 1_000)
ASKED, ASKED_RARE = 2_000, 500

Labelled = list[tuple[str, str]]


def drawn() -> tuple[Labelled, Labelled]:
    """Return the tweets of the two classes and of the third, in random order."""
    stream = load()
    pairs = list(zip(stream.texts, stream.labels, strict=True))
    random.Random(1).shuffle(pairs)
    rare = [(text, RARE) for text, _ in pairs if NAMES_WEATHER.search(text)]
    return [pair for pair in pairs if not NAMES_WEATHER.search(pair[0])], rare


def learned(examples: Labelled) -> nb.NaiveBayes:
    """Return a model of words and pairs, with punctuation and ends, of these examples."""
    model = model_of(**SIGNS, classes=[*CLASSES, RARE])
    shuffled = random.Random(2).sample(examples, len(examples))
    model.learn_many({"text": [text for text, _ in shuffled]}, [label for _, label in shuffled])
    return model


def shares(model: nb.NaiveBayes, asked: Labelled) -> tuple[float, float]:
    """Return the share that is called the third class: as the library answers, and all alike."""
    reader = model.without_prior()
    logs = reader.predict_log_proba_many({"text": [text for text, _ in asked]})
    place = len(CLASSES)
    alike = logs - np.log(reader.class_priors())
    return float((logs.argmax(1) == place).mean()), float((alike.argmax(1) == place).mean())


def main() -> None:
    """Count wrong and right answers of a class that is new."""
    common, rare = drawn()
    asked, asked_rare = common[-ASKED:], rare[-ASKED_RARE:]
    print("| others | of the class | called it | found | all alike: called it | found |")
    print("| --- | --- | --- | --- | --- | --- |")
    for n_others, n_rare in product(OTHERS, EXAMPLES):
        model = learned(common[:n_others] + rare[:n_rare])
        (called, called_alike), (found, found_alike) = (
            shares(model, texts) for texts in (asked, asked_rare)
        )
        figures = (called, found, called_alike, found_alike)
        row = " | ".join(f"{share:.1%}" for share in figures)
        print(f"| {n_others:,} | {n_rare:,} | {row} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
