"""`python -m benchmarks.half_lives_daemon`: half-lives side by side in the daemon, and each alone.

Recorded tweets in the order of time, a message a second. Each half-life has a daemon of its own,
and one daemon has all of them, as a model with challengers of which the best answers
(`promotion.action: promote`). Figures are of the predictions that it writes of labelled messages,
each by a snapshot from before it was learned. `python -m benchmarks.challengers` has the cost.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.drift_daemon import learned
from benchmarks.half_lives import difference
from benchmarks.tweets import load

NEVER_S: Final = 1_000_000_000  # forgets next to nothing
HALF_LIVES_S: Final = (1_000, 10_000, 100_000, 1_000_000, NEVER_S)
PUBLISH_EXAMPLES = 1_000
POINTS_MAX = 0.3  # that the side-by-side daemon may be behind the best one alone
_NO_MEMORY: Final = {"messages_max": 0}  # decayed counts round, so nothing is taken back from them


def sections_of(half_lives_s: tuple[int, ...], *, hybrid: bool) -> dict[str, Any]:
    """Return the settings of a model, and of challengers beside it with the other half-lives."""
    counts = {} if hybrid else {"features": {"text": {"hybrid": False}}}
    own, *others = ({"half_life_s": each} | counts for each in half_lives_s)
    learning = {"publish": "examples", "publish_examples": PUBLISH_EXAMPLES}
    sections: dict[str, Any] = {"model": own, "learned": _NO_MEMORY, "learning": learning}
    if others:
        sections["challengers"] = {f"of_{each['half_life_s']}": each for each in others}
        sections["promotion"] = {"action": "promote", "margin_nats": 0.0}
    return sections


def main(
    tweets: Annotated[int, typer.Option(help="The first so many.")] = 200_000,
    hybrid: Annotated[bool, typer.Option(help="The default model, or counts alone.")] = True,
) -> None:
    """Hold the daemon with five half-lives against one with each of them."""
    stream = load().first(tweets)
    others = tuple(each for each in HALF_LIVES_S if each != NEVER_S)
    ways = {f"{each:,}": (each,) for each in HALF_LIVES_S} | {"five": (NEVER_S, *others)}
    right: dict[str, NDArray[np.bool_]] = {}
    for name, half_lives_s in ways.items():
        found = learned(stream.texts, stream.labels, **sections_of(half_lives_s, hybrid=hybrid))
        right[name] = found.right
        share = found.right.mean()
        width = 196.0 * float(share * (1.0 - share) / len(stream)) ** 0.5
        answers = "" if found.serving is None else f"; {found.serving} answers in the end"
        print(f"{name:>13} {share:8.2%} ±{width:.2f}{answers}", flush=True)
    side_by_side = right.pop("five")
    best = max(right, key=lambda each: right[each].mean())
    ahead, width = difference(side_by_side, right[best])
    print(
        f"five side by side are {ahead:+.2f} ±{width:.2f} points from the best alone ({best}),"
        f" {'met' if -ahead <= POINTS_MAX else 'missed'}: at most {POINTS_MAX:g} behind"
        f" ({tweets:,} tweets of {stream.origin})",
        flush=True,
    )


if __name__ == "__main__":
    typer.run(main)
