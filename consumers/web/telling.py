"""The words of the hub: what open pages are told, as the JSON that the other routes answer with."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from consumers.recent import Change, Counted, FoundRow, Query, RecentState
from consumers.web.rooms import Rooms
from consumers.web.showing import Shower
from consumers.web.wire import Label, Message
from streamnb.errors import StreamnbError

ANSWER_TIMEOUT_S = 0.5


class Messages(msgspec.Struct):
    """The newest messages that match, newest first."""

    messages: list[Message]


class Status(msgspec.Struct):
    """How the daemon fares; `accuracy` is prequential, over the window of the newest examples."""

    state: str
    rate_per_s: float
    lag: int | None
    n_examples: int | None
    snapshot_version: int
    snapshot_age_s: float | None
    accuracy: float | None
    n_messages: int


class Changed(msgspec.Struct):
    """What happened to a message: it has a label by a person now, or none, or it is gone."""

    id: str
    corrected: Label | None
    removed: bool


class Trouble(msgspec.Struct):
    """Why a query cannot be answered."""

    detail: str


class EventTeller:
    """Makes what pages are told; see `consumers.live.Teller`.

    Parameters
    ----------
    rooms : Rooms
        What it tells of.
    """

    def __init__(self, rooms: Rooms) -> None:
        settings = rooms.settings
        self._rooms = rooms
        self._shower = Shower(
            settings.model.classes, settings.page.unsure_below, rooms.quality.shares
        )

    def summary(
        self, query: Query, lang: str | None, counted: Counted, state: RecentState
    ) -> bytes:
        """Return what `/v1/summary` says."""
        return msgspec.json.encode(self._shower.summary(query, lang, counted, state))

    def messages(self, found: Sequence[FoundRow]) -> bytes:
        """Return messages as `/v1/search` shows them."""
        shown = [self._shower.message(each.row, each.marked) for each in found]
        return msgspec.json.encode(Messages(shown))

    def status(self) -> bytes:
        """Return how the daemon fares."""
        status = self._rooms.status()
        return msgspec.json.encode(
            Status(
                state=self._rooms.health.report().state,
                rate_per_s=status.rate_per_s,
                lag=status.lag_total,
                n_examples=self._n_examples(),
                snapshot_version=status.snapshot_version,
                snapshot_age_s=status.snapshot_age_s,
                accuracy=status.window_accuracy,
                n_messages=status.n_messages,
            )
        )

    def change(self, change: Change) -> bytes:
        """Return what happened to one message."""
        return msgspec.json.encode(Changed(change.id, change.corrected, change.removed))

    def problem(self, detail: str) -> bytes:
        """Return why a query cannot be answered."""
        return msgspec.json.encode(Trouble(detail))

    def _n_examples(self) -> int | None:
        """Return what the current snapshot has seen; None while it cannot say."""
        try:
            asked = self._rooms.predictor.ask(lambda snapshot: snapshot.n_examples)
            return asked.result(ANSWER_TIMEOUT_S)
        except (StreamnbError, TimeoutError):
            return None
