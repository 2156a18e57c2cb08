"""`python -m benchmarks.drift_daemon`: the daemon behind a sudden change, beside a fresh one.

Half of a made-up vocabulary changes sides at once, a message a second. The daemon learns the whole
stream by its default model, once as it comes and once with half-lives as challengers that an alarm
has compared; a fresh daemon learns only what follows the change. Accuracies are those of the
predictions that it writes of labelled messages, each by a snapshot from before it was learned.
"""

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from structlog.testing import capture_logs

from benchmarks.drift import CLASSES, PlantedStream
from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.pipeline.challengers import ENTRY
from consumers.terminal import make_view
from streamnb import storage

BLOCK = 5_000  # messages that a figure is of
PUBLISH_EXAMPLES = 200
BEGAN_S: Final = 1_700_000_000
SIDE_BY_SIDE: Final[dict[str, Any]] = {
    "model": {"half_life_s": 1_000_000_000},
    "challengers": {"long": {"half_life_s": 20_000}, "short": {"half_life_s": 5_000}},
    "promotion": {"action": "promote", "examples": 5_000, "margin_nats": 0.0},
    "drift": {"enabled": True, "reaction": "compare"},
    "learned": {"messages_max": 0},  # decayed counts round, so nothing is taken back from them
}


@dataclass(frozen=True, slots=True)
class Reacted:
    """What the daemon made of a stream.

    Attributes
    ----------
    right : ndarray of bool
        Which messages were judged right, in their order.
    serving : str or None
        The model that answers in the end, if there are challengers.
    alarm_at : int or None
        The labelled message of the newest alarm, if drift is watched.
    """

    right: NDArray[np.bool_]
    serving: str | None
    alarm_at: int | None


def learned(texts: list[str], labels: list[str], **sections: Any) -> Reacted:
    """Let a daemon learn a stream to its end."""
    with tempfile.TemporaryDirectory(prefix="streamnb-drift-") as name:
        folder = Path(name)
        with (folder / "tweets.jsonl").open("w", encoding="utf-8") as file:
            for i, (text, label) in enumerate(zip(texts, labels, strict=True)):
                said = {"id": str(i), "created_at": BEGAN_S + i, "text": text, "label": label}
                file.write(json.dumps(said) + "\n")
        settings: dict[str, Any] = {
            "source": f"file:{folder / 'tweets.jsonl'}",
            "labels": {"kind": "field", "mapping": {each: each for each in CLASSES}},
            "learning": {"publish": "examples", "publish_examples": PUBLISH_EXAMPLES},
            "predictions": {"to": f"file:{folder / 'said.jsonl'}", "labelled": True},
            "checkpoint": {"folder": folder / "state"},
            "http": {"enabled": False},
            "recent": {"enabled": False},
            "corrections": {"to": "none"},
        }
        view = make_view("log", Console(file=io.StringIO()), lambda: 0.0)
        with capture_logs():
            run(Settings.model_validate(settings | sections), view, until_end=True)
        lines = (folder / "said.jsonl").read_bytes().splitlines()
        entries = storage.notes_of(folder / "state" / "model.nb")["entries"]
    told = [json.loads(line) for line in lines]
    return Reacted(
        np.array([each["label"] == each["truth"] for each in told]),
        entries.get(ENTRY, {}).get("serving"),
        entries.get("drift", {}).get("alarm_at"),
    )


def compare(seed: int, before: int, after: int) -> dict[str, Reacted]:
    """Return what three daemons made of a stream that changes after `before` messages."""
    turned = np.repeat([0.0, 1.0], [before, after])
    texts, labels = PlantedStream(seed).draw(turned.tolist())
    return {
        "fresh": learned(texts[before:], labels[before:]),
        "default": learned(texts, labels),
        "side by side": learned(texts, labels, **SIDE_BY_SIDE),
    }


def main(
    seeds: Annotated[int, typer.Option(help="How many streams.")] = 1,
    before: Annotated[int, typer.Option(help="Messages before the change.")] = 100_000,
    after: Annotated[int, typer.Option(help="Messages behind it.")] = 40_000,
) -> None:
    """Print the accuracy of each, behind the change, block by block."""
    for seed in range(seeds):
        for name, found in compare(seed, before, after).items():
            own = found.right[-after:]
            figures = [100.0 * own[at : at + BLOCK].mean() for at in range(0, after, BLOCK)]
            alarm = "" if found.alarm_at is None else f"; newest alarm {found.alarm_at - before:+,}"
            answers = "" if found.serving is None else f"; {found.serving} answers{alarm}"
            print(
                f"seed {seed}, {name:<13}", " ".join(f"{each:5.1f}" for each in figures),
                f"% of each {BLOCK:,}{answers}", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
