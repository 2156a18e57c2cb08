"""`python -m benchmarks.drift_daemon`: the daemon behind a sudden change, beside a fresh one.

Half of a made-up vocabulary changes sides at once, a message a second. The daemon learns the whole
stream by its default model, once as it comes and once with half-lives as challengers that an alarm
has compared; a fresh daemon learns only what follows the change. Accuracies are those of the
predictions that it writes of labelled messages, each by a snapshot from before it was learned.
Alarms and the words that moved are those that it logs. Each stream has a seed; the summary is of
all of them, from message `SETTLED` behind the change on.
"""

from __future__ import annotations

import io
import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from scipy import stats
from structlog.testing import capture_logs

from benchmarks.drift import CLASSES, PlantedStream
from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.pipeline.challengers import ENTRY
from consumers.terminal import make_view
from streamnb import storage

BLOCK = 5_000  # messages that a figure is of
SETTLED = 20_000  # messages behind the change, from where on a model is judged as settled
PUBLISH_EXAMPLES = 200
BEGAN_S: Final = 1_700_000_000
SIDE_BY_SIDE: Final[dict[str, Any]] = {
    "model": {"half_life_s": 1_000_000_000},
    "challengers": {"long": {"half_life_s": 20_000}, "short": {"half_life_s": 5_000}},
    "promotion": {"action": "promote", "examples": 5_000, "margin_nats": 0.0},
    "drift": {"enabled": True, "reaction": "compare"},
    "learned": {"messages_max": 0},  # decayed counts round, so nothing is taken back from them
}
_COUNTS: Final[dict[str, Any]] = {"features": {"text": {"hybrid": False}}, "calibration": True}
WAYS: Final[dict[str, dict[str, Any]]] = {
    "default": {"drift": {"enabled": True}},
    "none": {"drift": {"enabled": True, "reaction": "none"}},
    "side by side": SIDE_BY_SIDE,
    "of counts": SIDE_BY_SIDE | {
        "challengers": {
            name: {"half_life_s": half_life_s} | _COUNTS
            for name, half_life_s in (("long", 100_000), ("middle", 10_000), ("short", 1_000))
        },
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reacted:
    """What the daemon made of a stream.

    Attributes
    ----------
    right : ndarray of bool
        Which messages were judged right, in their order.
    serving : str or None
        The model that answers in the end, if there are challengers.
    alarms : tuple of int
        The labelled message of each alarm, counted from 1, if drift is watched.
    named : tuple of tuple
        The words that moved, each time that some were named.
    """

    right: NDArray[np.bool_]
    serving: str | None
    alarms: tuple[int, ...]
    named: tuple[tuple[str, ...], ...]


def write_messages(path: Path, texts: Sequence[str], labels: Sequence[str]) -> None:
    """Write a stream of labelled messages, one a second."""
    with path.open("w", encoding="utf-8") as file:
        for i, (text, label) in enumerate(zip(texts, labels, strict=True)):
            said = {"id": str(i), "created_at": BEGAN_S + i, "text": text, "label": label}
            file.write(json.dumps(said) + "\n")


def run_logged(folder: Path, **sections: Any) -> list[Any]:
    """Let a daemon learn `tweets.jsonl` of a folder to its end; return what it logged.

    Predictions of all messages are in `said.jsonl`.
    """
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
    with capture_logs() as logged:
        run(Settings.model_validate(settings | sections), view, until_end=True)
    return list(logged)


def alarms_of(logged: list[Any]) -> tuple[int, ...]:
    """Return the labelled message of each alarm of drift, counted from 1."""
    return tuple(each["message"] for each in logged if each["event"] == "drift")


def learned(texts: Sequence[str], labels: Sequence[str], **sections: Any) -> Reacted:
    """Let a daemon learn a stream to its end."""
    with tempfile.TemporaryDirectory(prefix="streamnb-drift-") as name:
        folder = Path(name)
        write_messages(folder / "tweets.jsonl", texts, labels)
        logged = run_logged(folder, **sections)
        lines = (folder / "said.jsonl").read_bytes().splitlines()
        entries = storage.notes_of(folder / "state" / "model.nb")["entries"]
    told = [json.loads(line) for line in lines]
    words = [each["words"] for each in logged if each["event"] == "drift_words"]
    return Reacted(
        np.array([each["label"] == each["truth"] for each in told]),
        entries.get(ENTRY, {}).get("serving"),
        alarms_of(logged),
        tuple(tuple(word.split(" ", 1)[0] for word in each) for each in words),
    )


def compare(
    seed: int, before: int, after: int, ways: Sequence[str] = ("default", "side by side")
) -> dict[str, Reacted]:
    """Return what several daemons, a fresh one first, made of a stream that changes."""
    turned = np.repeat([0.0, 1.0], [before, after])
    texts, labels = PlantedStream(seed).draw(turned.tolist())
    return {
        "fresh": learned(texts[before:], labels[before:]),
        **{name: learned(texts, labels, **WAYS[name]) for name in ways},
    }


def n_named(found: Reacted, seed: int) -> int:
    """Return how many of the ten strongest words are among those named first."""
    named = found.named[0] if found.named else ()
    return len(set(named) & set(PlantedStream(seed).strongest))


def behind(found: Reacted, fresh: Reacted, after: int) -> NDArray[np.float64]:
    """Return by how many points of accuracy a daemon is behind the fresh one, block by block."""
    own, other = (each.right[-after:] for each in (found, fresh))
    blocks = [slice(at, at + BLOCK) for at in range(0, after, BLOCK)]
    return np.array([100.0 * (other[block].mean() - own[block].mean()) for block in blocks])


def summary(gaps: NDArray[np.float64]) -> str:
    """Say how far behind daemons are that have settled; `gaps` are points by seed and block."""
    own = gaps[:, SETTLED // BLOCK :]
    means, n = own.mean(axis=1), len(own)
    width = stats.t.ppf(0.975, n - 1) * means.std(ddof=1) / n**0.5 if n > 1 else math.nan
    return (
        f"{means.mean():.2f} ±{width:.2f} points behind the fresh one from {SETTLED:,} messages on"
        f" (mean of {n} streams), worst stream {means.max():.2f}, worst {BLOCK:,} {own.max():.2f}"
    )


def main(
    seeds: Annotated[int, typer.Option(help="How many streams.")] = 1,
    first: Annotated[int, typer.Option(help="The first one's seed.")] = 0,
    before: Annotated[int, typer.Option(help="Messages before the change.")] = 100_000,
    after: Annotated[int, typer.Option(help="Messages behind it.")] = 40_000,
    ways: Annotated[
        list[str] | None, typer.Option("--way", help=f"Of {', '.join(WAYS)}; may be repeated.")
    ] = None,
) -> None:
    """Print the accuracy of each, behind the change, block by block."""
    gaps: dict[str, list[NDArray[np.float64]]] = {}
    for seed in range(first, first + seeds):
        of_all = compare(seed, before, after, ways or ("default", "side by side"))
        for name, found in of_all.items():
            own = found.right[-after:]
            figures = [100.0 * own[at : at + BLOCK].mean() for at in range(0, after, BLOCK)]
            answers = "" if found.serving is None else f"; {found.serving} answers"
            watched = ""
            if name != "fresh":
                gaps.setdefault(name, []).append(behind(found, of_all["fresh"], after))
                at = ", ".join(f"{each - before:+,}" for each in found.alarms)
                watched = f"; alarms {at or 'none'}; {n_named(found, seed)} of 10 words named"
            print(
                f"seed {seed}, {name:<13}", " ".join(f"{each:5.1f}" for each in figures),
                f"% of each {BLOCK:,}{answers}{watched}", flush=True,
            )  # fmt: skip
    for name, each in gaps.items():
        print(f"{name:<13} {summary(np.array(each))}", flush=True)


if __name__ == "__main__":
    typer.run(main)
