"""`python -m benchmarks.second_text`: what a second text costs, and what calibration mends.

Recorded tweets are cut in half, each half a field with a group of words of its own, as the daemon
comes. Each tweet is judged before it is learned, as by `streamnb evaluate`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.accuracy import judge
from benchmarks.tweets import CLASSES, Tweets, load
from consumers.cli import evaluation
from consumers.config.settings import Settings

_COUNTS = {"hybrid": False}
# Groups of words by the field that each reads, and whether answers are calibrated.
CHOICES: dict[str, tuple[dict[str, dict[str, Any]], bool]] = {
    "the first one alone": ({"first": {}}, False),
    "both, each with a hybrid": ({"first": {}, "second": {}}, False),
    "the same, calibrated": ({"first": {}, "second": {}}, True),
    "both, the second without one": ({"first": {}, "second": _COUNTS}, False),
    "the same without, calibrated": ({"first": {}, "second": _COUNTS}, True),
    "in one field, as they came": ({"whole": {}}, False),
}


def write_halves(path: Path, tweets: Tweets) -> None:
    """Write tweets as messages of three texts: the first half of their words, the rest, and all."""
    with path.open("w", encoding="utf-8") as file:
        for i, (text, label) in enumerate(zip(tweets.texts, tweets.labels, strict=True)):
            words = text.split()
            cut = (len(words) + 1) // 2
            first, second = " ".join(words[:cut]), " ".join(words[cut:])
            fields = {"first": first, "second": second, "whole": text}
            file.write(json.dumps({"id": str(i), "label": label} | fields) + "\n")


def judged(path: Path, groups: dict[str, dict[str, Any]], *, calibrated: bool) -> tuple[float, ...]:
    """Return accuracy, log-loss and calibration error of the tweets of a file."""
    words = {"kind": "words"}
    features = {name: words | {"fields": [name]} | choice for name, choice in groups.items()}
    settings = {
        "source": f"file:{path}",
        "labels": {"kind": "field", "mapping": {each: each for each in CLASSES}},
        "model": {"features": features, "calibration": calibrated},
    }
    found = evaluation.judge(Settings.model_validate(settings), evaluation.Method())
    return judge(found.log_posteriors.astype(np.float64), found.labels)


def main(tweets: Annotated[int, typer.Option(help="The first so many.")] = 60_000) -> None:
    """Judge tweets that were cut in half."""
    stream = load().first(tweets)
    print("| the halves of a tweet | accuracy / log-loss / ECE |\n| --- | --- |")
    with tempfile.TemporaryDirectory(prefix="streamnb-halves-") as folder:
        path = Path(folder) / "halves.jsonl"
        write_halves(path, stream)
        for name, (groups, calibrated) in CHOICES.items():
            accuracy, log_loss, ece = judged(path, groups, calibrated=calibrated)
            width = 1.96 * (accuracy * (1.0 - accuracy) / len(stream)) ** 0.5
            figures = f"{accuracy:.1%} ±{width:.1%} / {log_loss:.3f} / {ece:.3f}"
            print(f"| {name} | {figures} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
