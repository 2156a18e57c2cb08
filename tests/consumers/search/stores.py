"""What tests of the recent store share: a store, messages for it, and the wait until it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from consumers.config.sections import HistorySettings, RecentSettings
from consumers.messages import Messages, Partition
from consumers.monitoring.quality import Shares
from consumers.search.query_syntax import parse
from consumers.search.store import RecentStore
from tests.consumers.decoded_messages import messages

LOG = Partition("t", 0)
CLASSES = ("negative", "positive")
UNSURE_BELOW = 0.65
SETTINGS = RecentSettings()


def stream_shares(messages_min: int = 30) -> Shares:
    """Return those of a stream without labels, said from so many messages on."""
    return Shares.unknown(CLASSES, messages_min)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def made(
    path: Path | None,
    *,
    times_made_up: bool = False,
    classes: Sequence[str] = CLASSES,
    history: HistorySettings | None = None,
    **settings: Any,
) -> RecentStore:
    """Return a store that was not started, of these settings."""
    return RecentStore(
        SETTINGS.model_copy(update=settings), path, classes, ("text",), UNSURE_BELOW,
        wall_clock=Clock(1_700_000_000.0), clock=Clock(100.0), times_made_up=times_made_up,
        history=history,
    )  # fmt: skip


def wall_of(store: RecentStore) -> Clock:
    """Return the clock on the wall of a store from `made`; the other is `clock_of`."""
    clock = store._sampler._wall_clock
    assert isinstance(clock, Clock)
    return clock


def clock_of(store: RecentStore) -> Clock:
    """Return the clock that only grows."""
    clock = store._sampler._clock
    assert isinstance(clock, Clock)
    return clock


@contextlib.contextmanager
def running(path: Path | None, **settings: Any) -> Iterator[RecentStore]:
    """Run a store."""
    store = made(path, **settings)
    store.start()
    settle(store)
    try:
        yield store
    finally:
        store.stop()


def settle(store: RecentStore) -> None:
    """Wait until all that was offered is stored."""
    store.correct("nobody", None, None)


def tweets(rows: Sequence[dict[str, Any] | str], first: int = 0) -> Messages:
    """Return messages, given by their texts or by their fields, from offset `first` on.

    Without an id they are called by their offsets; odd ones are positive.
    """
    lines = []
    for offset, row in enumerate(rows, first):
        given = {"text": row} if isinstance(row, str) else row
        lines.append(msgspec.json.encode({"id": f"m{offset}", "label": offset % 2 * 4} | given))
    return messages(LOG, lines, first)


def offer(store: RecentStore, told: Messages, probability: float = 0.8) -> None:
    """Offer all messages that are no deletions, each judged as it is labelled."""
    rows = np.concatenate([told.to_learn, told.to_predict])
    rows.sort()
    labels = np.maximum(told.labels[rows], 0)
    shares = np.full((len(rows), 2), 1 - probability)
    shares[np.arange(len(rows)), labels] = probability
    store.offer(told, rows, np.log(shares))


def tell(store: RecentStore, rows: Sequence[dict[str, Any] | str], first: int = 0) -> None:
    """Offer messages and wait until they are stored."""
    offer(store, tweets(rows, first))
    settle(store)


def forget(store: RecentStore, names: Sequence[str]) -> None:
    """Forget all messages of some ids, as a deletion in another partition has it."""
    store.forget_ids(names, (Partition("elsewhere", 0), [0] * len(names)))


def ids(store: RecentStore, text: str, **asked: Any) -> list[str]:
    """Return the ids of what a query finds, newest first."""
    return [found.row.id for found in store.search(parse(text), **asked).rows]
