"""What the HTTP side answers from, and its values in the form of the API.

`AppState` is one frozen value that the daemon fills. A component that the settings turn off is
None, and its routes say which setting turns it on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET
from prometheus_client import CollectorRegistry

from consumers.config.settings import Settings, message_names
from consumers.http import schemas
from consumers.messages import NO_TIME
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.prequential import Judgements
from consumers.monitoring.quality import Share, Shares
from consumers.monitoring.status import Status
from consumers.search.comparison import ComparedMessages, share_move
from consumers.search.live_updater import LiveUpdater, ShareAlerts, shown_moves
from consumers.search.matching import CountsOverTime, MatchesOverTime
from consumers.search.query_syntax import Query
from consumers.search.rows import Change, Counted, Found, FoundRow, MessageRow, RecentState
from consumers.sinks.records import decided_by
from streamnb import AnswerRule, Predictor

if TYPE_CHECKING:
    from consumers.corrections.service import CorrectionService
    from consumers.search.label_queue import LabelQueue, WantedRow
    from consumers.search.store import RecentStore


class AppState(msgspec.Struct, frozen=True):
    """What the application answers from; all of it may be called from any thread."""

    settings: Settings
    registry: CollectorRegistry  # of `/metrics`
    metrics: Metrics  # where requests are counted
    predictor: Predictor
    status: Callable[[], Status]  # the daemon as it is now
    shares: Callable[[], Shares]  # with the newest error rates
    judged: Callable[[], Judgements] | None = None  # of the newest labelled messages
    recent: RecentStore | None = None
    label_queue: LabelQueue | None = None
    correction_service: CorrectionService | None = None
    live_updater: LiveUpdater | None = None
    alerts: ShareAlerts | None = None
    # Of a replica: for how many seconds its model may have been outdated, None before the first.
    follow_age_s: Callable[[], float | None] | None = None

    @property
    def classes(self) -> Sequence[str]:
        """The model's classes; some may join while the daemon runs."""
        return self.metrics.classes


def sample_of(state: RecentState) -> schemas.Sample:
    """Return which part of the stream the store holds."""
    return schemas.Sample(
        share=state.share if state.is_open else None,
        stored_per_s=state.stored_per_s,
        offered_per_s=state.offered_per_s,
        messages=state.n_messages if state.is_open else None,
        messages_max=state.messages_max,
        age_max_s=state.age_max_s,
    )


class Serializer:
    """Puts the store's values into the form of the API."""

    def __init__(self, app_state: AppState) -> None:
        settings = app_state.settings
        self._classes = app_state.classes
        self._unsure_below = settings.page.unsure_below
        self._shares = app_state.shares
        _, self._several = message_names(settings)

    def message(self, row: MessageRow, marked: Sequence[str]) -> schemas.Message:
        """Return a message."""
        return schemas.Message(
            key=row.key,
            id=row.id,
            time_ms=row.arrived_ms if row.time_ms == NO_TIME else row.time_ms,
            user=row.user,
            lang=row.lang,
            text=row.text,
            marked=list(marked),
            label=row.label,
            probability=row.probability,
            # A class that joined after the message came had no share of its posterior.
            probabilities=dict.fromkeys(self._classes, 0.0)
            | dict(zip(self._classes, row.probabilities, strict=False)),
            unsure=row.probability < self._unsure_below,
            # A person's word is no label of the stream, though the message teaches by it.
            truth=row.taught if row.truth is None and row.corrected is None else row.truth,
            corrected=row.corrected,
        )

    def wanted(self, picked: WantedRow, rule: AnswerRule) -> schemas.WantedMessage:
        """Return a message that a person should label."""
        row = picked.row
        with np.errstate(divide="ignore"):
            log_posteriors = np.log(np.array([row.probabilities]))
        (decided,) = decided_by(rule, self._classes, log_posteriors)
        return schemas.WantedMessage(
            **msgspec.structs.asdict(self.message(row, (row.text,))),
            picked="random" if picked.at_random else "uncertain",
            margin=picked.margin,
            prediction_set=decided.get("prediction_set"),
        )

    def search_answer(
        self, query: Query, lang: str | None, found: Found, state: RecentState
    ) -> schemas.SearchAnswer:
        """Return the messages that a search found."""
        return schemas.SearchAnswer(
            query=query.text,
            lang=lang,
            messages=[self.message(each.row, each.marked) for each in found.rows],
            more=found.more,
            before=found.before,
            sample=sample_of(state),
        )

    def summary(
        self, query: Query, lang: str | None, counted: Counted, state: RecentState
    ) -> schemas.ApiSummary:
        """Return shares and counts of the messages that match."""
        shares, classes = self._shares(), self._classes[: len(counted.counts)]
        # The words of the query are evidence too: among these messages the model has error rates of
        # its own, which the labelled ones among them show.
        counts, confusion = counted.for_shares
        is_everything = query.is_everything and lang is None
        estimate = shares.of_matches(
            classes,
            counted.counts,
            counts,
            confusion,
            list(map(sum, counted.confusion)),
            is_everything=is_everything,
        )
        return schemas.ApiSummary(
            query=query.text,
            lang=lang,
            is_everything=is_everything,
            n=counted.n,
            n_max=counted.n_max,
            newest_only=counted.newest_only,
            n_unsure=counted.n_unsure,
            enough=estimate.enough,
            messages_min=estimate.messages_min,
            classes=list(classes),
            counts=estimate.counts,
            raw=estimate.raw,
            corrected=estimate.corrected,
            corrected_reason=estimate.corrected_reason,
            series=schemas.Series(
                counted.step_s,
                [
                    schemas.Step(
                        time_ms, dict(zip(classes, own, strict=True)), UNSET if n is None else n
                    )
                    for time_ms, own, n in zip_longest(
                        counted.times_ms, counted.series, counted.n_came
                    )
                ],
            ),
            sample=sample_of(state),
            n_even=UNSET if counted.weighed is None else sum(counts),
        )

    def comparison(
        self, found: Sequence[ComparedMessages], state: RecentState
    ) -> schemas.CompareAnswer:
        """Return queries side by side."""
        sides = [self._compared(each, state) for each in found]
        spans = {each.side.span_ms for each in found}
        is_of_times = len(found) == len(spans) == 2 and None not in spans
        moved = None
        if is_of_times:
            counts, corrected = [each.counted for each in found], [each.corrected for each in sides]
            moves = shown_moves(counts, corrected, sides[0].classes)
            moved = share_move(found[0], found[1], sides[0].classes, found=moves)
        return schemas.CompareAnswer(sides, moved)

    def _compared(self, found: ComparedMessages, state: RecentState) -> schemas.ComparedSummary:
        side = found.side
        summary = self.summary(side.query, side.lang, found.counted, state)
        begin_ms, end_ms = side.span_ms or (None, None)
        return schemas.ComparedSummary(
            **msgspec.structs.asdict(summary),
            from_ms=begin_ms,
            to_ms=end_ms,
            n_read=found.n_read,
            words=[
                schemas.ComparedWord(
                    each.word,
                    each.log_odds,
                    each.standard_errors,
                    dict(zip(summary.classes, each.counts, strict=False)),
                    dict(zip(summary.classes, each.effects, strict=False)),
                )
                for each in found.words
            ],
        )

    def history(
        self, span_ms: tuple[int, int, int], found: CountsOverTime, query: Query, lang: str | None
    ) -> schemas.HistoryAnswer:
        """Return counts over time, from and to a time as they are known now."""
        classes = self._classes[: len(found.counts[0])] if found.counts else self._classes
        matches = None
        if isinstance(found, MatchesOverTime):
            steps = zip(found.n_all, found.n_of, found.at_most, strict=True)
            matches = schemas.HistoryMatches(
                query.text,
                lang,
                found.is_word,
                _ms(found.stored_from_s),
                [schemas.MatchedStep(*step) for step in steps],
            )
        return schemas.HistoryAnswer(
            *span_ms,
            kept_from_ms=_ms(found.kept_from_s),
            n=sum(map(sum, found.counts)),
            classes=list(classes),
            series=schemas.Series(
                found.step_s,
                [
                    schemas.Step(1000 * begins_s, dict(zip(classes, own, strict=True)))
                    for begins_s, own in zip(found.begins_s, found.counts, strict=True)
                ],
            ),
            note=self._history_note(found),
            matches=matches,
        )

    def _history_note(self, found: CountsOverTime) -> str:
        """Return what counts over time are of."""
        if not isinstance(found, MatchesOverTime):
            return f"All {self._several} are counted, by when they came."
        if not found.is_word:
            return f"Only a single word is counted for longer than {self._several} are stored."
        pairs = zip(found.at_most, found.counts, strict=True)
        missing = [n for n, own in pairs if n and not any(own)]
        note = f"Stored {self._several}, and counts of those no longer stored, by when they came."
        if not missing:
            return note
        return (
            f"{note} In {len(missing)} of {len(found.at_most)} steps it was none of the most"
            f" frequent words: in {max(missing)} {self._several} each, at most."
        )


def _ms(time_s: int | None) -> int | None:
    return None if time_s is None else 1000 * time_s


class ApiEventSerializer:
    """Encodes what open pages receive; see `consumers.search.live_query`."""

    def __init__(self, app_state: AppState) -> None:
        self._state = app_state
        self._serializer = Serializer(app_state)

    def summary(
        self, query: Query, lang: str | None, counted: Counted, state: RecentState
    ) -> bytes:
        """Return what `/v1/summary` answers."""
        return msgspec.json.encode(self._serializer.summary(query, lang, counted, state))

    def messages(self, found: Sequence[FoundRow]) -> bytes:
        """Return messages as `/v1/search` shows them."""
        shown = [self._serializer.message(each.row, each.marked) for each in found]
        return msgspec.json.encode(schemas.MessagesEvent(shown))

    def status(self) -> bytes:
        """Return the daemon's state."""
        status, alerts = self._state.status(), self._state.alerts
        return msgspec.json.encode(
            schemas.StatusEvent(
                state=status.health.state,
                rate_per_s=status.rate_per_s,
                lag=status.lag_total,
                n_examples=status.n_examples,
                snapshot_version=status.snapshot_version,
                snapshot_age_s=status.snapshot_age_s,
                accuracy=status.window_accuracy,
                n_messages=status.n_messages,
                note=status.note,
                alerts=() if alerts is None else alerts.newest(),
            )
        )

    def change(self, change: Change) -> bytes:
        """Return what happened to one message."""
        return msgspec.json.encode(schemas.ChangeEvent(change.id, change.corrected, change.removed))

    def problem(self, detail: str) -> bytes:
        """Return why a query cannot be answered."""
        return msgspec.json.encode(schemas.ProblemEvent(detail))


# ---- how classes look ----------------------------------------------------------------------------

_KNOWN = ("negative", "neutral", "positive")  # classes that have colours of their own
_N_COLOURS = 8
# As the settings call them; the page's style has the same.
COLOURS = {
    "blue": "positive", "red": "negative", "grey": "neutral", "orange": "k0", "purple": "k1",
    "green": "k2", "pink": "k3", "gold": "k4", "indigo": "k5", "brown": "k6", "olive": "k7",
}  # fmt: skip


class ClassLook(NamedTuple):
    """How a class is shown: `name` is HTML, `colour` a variable of the page's style.

    `dash` is the place of its line's dashes among those of the page's script.
    """

    label: str
    name: str
    colour: str
    dash: int


def looks_of(settings: Settings, classes: Sequence[str]) -> list[ClassLook]:
    """Return the classes in the page's order, each with its name as HTML and its colour."""
    listed = [label for label in settings.page.classes if label in classes]
    found = []
    for label in [*listed, *(label for label in classes if label not in listed)]:
        shown = settings.page.classes.get(label)
        colour = COLOURS.get((shown and shown.colour) or "") or _colour(classes, label)
        dash = _KNOWN_DASHES.get(label.lower(), list(classes).index(label) % N_DASHES)
        found.append(ClassLook(label, escape((shown and shown.name) or label), colour, dash))
    return found


def _colour(classes: Sequence[str], label: str) -> str:
    """Return the colour of a class that the settings give none, as the page's script does."""
    name = label.lower()
    return name if name in _KNOWN else f"k{list(classes).index(label) % _N_COLOURS}"


# As in the page's own file, and by the same rule as in its script.
_MARKS = (
    "circle", "square", "cross", "bar", "hexagon", "left", "right", "diamond", "up", "down"
)  # fmt: skip
_KNOWN_MARKS = {"negative": "down", "neutral": "diamond", "positive": "up"}
_KNOWN_DASHES = {"negative": 1, "neutral": 2, "positive": 0}
N_DASHES = 4


def named(classes: Sequence[str], look: ClassLook) -> str:
    """Return a class with its mark, as the page's script shows it; its tile has the paths."""
    place = list(classes).index(look.label)
    mark = _KNOWN_MARKS.get(look.label.lower()) or _MARKS[place % len(_MARKS)]
    return (
        f'<span class="named c-{look.colour}"><svg class="mark" viewBox="0 0 12 12" '
        f'aria-hidden="true"><use href="#mark-{mark}"/></svg>{look.name}</span>'
    )


def bar_of(share: Share, colour: str) -> str:
    """Return a bar with its interval; the words beside it say the same."""
    low, high = (f"{100 * end:.1f}" for end in (share.low, share.high))
    whisker = f'<path d="M{low} 2V8M{low} 5H{high}M{high} 2V8"/>' if share.high > share.low else ""
    return (
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class=track width=100 height=10 /><rect width="{100 * share.share:.1f}" height=10 '
        f'fill="var(--{colour})"/>{whisker}</svg>'
    )
