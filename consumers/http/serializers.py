"""What the store holds, in the form of the API: messages, summaries, and of which sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from consumers.http.schemas import ApiSummary, Message, Sample, SearchAnswer, Series, Step
from consumers.monitoring.shares import Shares
from consumers.search.query import Query
from consumers.search.rows import Counted, Found, RecentState, Row


def sample_of(state: RecentState) -> Sample:
    """Return which part of the stream the store holds."""
    return Sample(
        share=state.share,
        stored_per_s=state.stored_per_s,
        offered_per_s=state.offered_per_s,
        messages=state.n_messages,
        messages_max=state.messages_max,
        age_max_s=state.age_max_s,
    )


class Serializer:
    """Puts the store's values into the form of the API.

    Parameters
    ----------
    classes : sequence of str
        In the order of the posteriors' columns.
    unsure_below : float
        `page.unsure_below`.
    shares : callable
        Returns who says the shares of counts, by the newest error rates.
    """

    def __init__(
        self, classes: Sequence[str], unsure_below: float, shares: Callable[[], Shares]
    ) -> None:
        self._classes = list(classes)
        self._unsure_below = unsure_below
        self._shares = shares

    def message(self, row: Row, marked: Sequence[str]) -> Message:
        """Return a message."""
        return Message(
            key=row.key,
            id=row.id,
            time_ms=row.time_ms if row.time_ms >= 0 else row.arrived_ms,
            user=row.user,
            lang=row.lang,
            text=row.text,
            marked=list(marked),
            label=row.label,
            probability=row.probability,
            probabilities=dict(zip(self._classes, row.probabilities, strict=True)),
            unsure=row.probability < self._unsure_below,
            truth=row.truth,
            corrected=row.corrected,
        )

    def found(
        self, query: Query, lang: str | None, found: Found, state: RecentState
    ) -> SearchAnswer:
        """Return a page of what a search found."""
        return SearchAnswer(
            query=query.text,
            lang=lang,
            messages=[self.message(each.row, each.marked) for each in found.rows],
            more=found.more,
            before=found.before,
            sample=sample_of(state),
        )

    def summary(
        self, query: Query, lang: str | None, counted: Counted, state: RecentState
    ) -> ApiSummary:
        """Return what is said of the messages that match."""
        shares = self._shares()
        # The words that were searched for are evidence too: among these messages the model errs in
        # its own way, which those with a label tell.
        said = shares.of(counted.counts, counted.confusion)
        is_everything = query.is_everything and lang is None
        if is_everything and said.corrected is None:
            said = shares.of_stream(counted.counts)
        return ApiSummary(
            query=query.text,
            lang=lang,
            is_everything=is_everything,
            n=counted.n,
            n_max=counted.n_max,
            newest_only=counted.newest_only,
            n_unsure=counted.n_unsure,
            enough=said.enough,
            messages_min=said.messages_min,
            classes=self._classes,
            counts=said.counts,
            raw=said.raw,
            corrected=said.corrected,
            corrected_reason=said.corrected_reason,
            series=Series(
                counted.step_s,
                [
                    Step(time_ms, dict(zip(self._classes, own, strict=True)))
                    for time_ms, own in zip(counted.times_ms, counted.series, strict=True)
                ],
            ),
            sample=sample_of(state),
        )
