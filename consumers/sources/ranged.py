"""A part of a stream: from an offset or a time, up to another one (`--from` and `--to`).

The range begins at the first message of each partition that has the offset or the time, or a later
one, and ends before the first that has the end's. Reading ends with it, or with what was there at
the start. A checkpoint's positions win: a run that was stopped goes on where it was. A beginning
that lies behind a position would leave messages out between the two, and is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from consumers.config.addresses import Bound, StreamRange
from consumers.errors import SourceError
from consumers.messages import Partition, RawColumns
from consumers.sources.base import LogFacts, Source


def behind_position(partition: Partition, begin: Bound, position: int) -> SourceError:
    """Return the error for a range that begins behind what was read before."""
    return SourceError(
        f"{partition}: --from {begin} lies behind offset {position}, up to which the checkpoint "
        "has read: the messages between would be left out. Leave --from out to go on there, or "
        "begin with an empty checkpoint.folder"
    )


def offsets_of(
    bound: Bound | None,
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    offsets_at: Callable[[int], Mapping[Partition, int | None]],
) -> Mapping[Partition, int]:
    """Return the offset of a bound in each log, its end if the bound lies behind it."""
    if bound is None:
        return {}
    if bound.kind == "offset":
        return {each: min(max(bound.at, starts[each]), ends[each]) for each in starts}
    return {each: ends[each] if at is None else at for each, at in offsets_at(bound.at).items()}


class RangedSource(Source):
    """Reads a part of a source.

    `times_of` returns the time of each message of a batch, -1 if it has none: such a message counts
    as one of the time before it. If the source itself `begins` at the range, as Kafka's does, it
    has checked the positions too.
    """

    def __init__(
        self,
        source: Source,
        part: StreamRange,
        times_of: Callable[[RawColumns], NDArray[np.int64]],
        *,
        begins: bool,
    ) -> None:
        self.name = source.name
        self.record_format = source.record_format
        self._source = source
        self._part = part
        self._times_of = times_of
        self._begins = begins
        self._position_of: Callable[[Partition], int | None] = lambda _: None
        self._begun: set[Partition] = set()
        self._done: set[Partition] = set()

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin; see `Source.open`."""
        self._position_of = position_of
        self._source.open(position_of)

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next messages of the range; a beginning behind a position is an error."""
        cut = (self._cut(raw) for raw in self._source.poll(timeout_s))
        return [raw for raw in cut if raw is not None]

    def at_end(self) -> bool:
        """Return whether the range, or what was there of it at opening, has been returned."""
        lag = self._source.lag()
        done = [each in self._done or lag.get(each) == 0 for each in self._source.assignment()]
        return self._source.at_end() or (any(done) and all(done) and bool(self._done))

    def _cut(self, raw: RawColumns) -> RawColumns | None:
        """Return the part of a batch that lies in the range, None if nothing does."""
        if raw.partition in self._done:
            return None
        begin, end = self._part.begin, self._part.end
        is_new = raw.partition not in self._begun
        if begin is not None and is_new and not (self._begins and begin.kind == "time"):
            first = self._first(raw, begin)
            position = self._position_of(raw.partition)
            if position is not None and first > 0 and not self._begins:
                raise behind_position(raw.partition, begin, position)
            if first == len(raw):
                return None
            raw = raw.tail(first)
        self._begun.add(raw.partition)
        last = len(raw) if end is None else self._first(raw, end)
        if last < len(raw):
            self._done.add(raw.partition)
        return raw.head(last) if last else None

    def _first(self, raw: RawColumns, bound: Bound) -> int:
        """Return the place of the first message at a bound or behind it; `len(raw)` if none is."""
        found = raw.offsets if bound.kind == "offset" else self._times_of(raw)
        places = np.flatnonzero(found >= bound.at)
        return int(places[0]) if places.size else len(raw)

    # What follows is the source's own.

    @property
    def topic_id(self) -> str | None:
        """The id that Kafka gave the topic."""
        return self._source.topic_id

    @property
    def decoder(self) -> str | None:
        """How Kafka's responses are decoded."""
        return self._source.decoder

    @property
    def lost_messages(self) -> int:  # type: ignore[override]  # read only
        """How many messages were removed before they could be read."""
        return self._source.lost_messages

    @property
    def beginnings(self) -> Mapping[Partition, LogFacts]:  # type: ignore[override]  # read only
        """Where reading began."""
        return self._source.beginnings

    def resume(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Take what the checkpoint knows of the logs."""
        self._source.resume(logs)

    def logs(self, positions: Mapping[Partition, int]) -> Mapping[Partition, LogFacts]:
        """Return what a checkpoint at these positions should know of the logs."""
        return self._source.logs(positions)

    def assignment(self) -> Collection[Partition]:
        """Return the partitions that are read here."""
        return self._source.assignment()

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread messages, those behind the range too."""
        return self._source.lag()

    def trouble(self) -> str | None:
        """Return what keeps the source from reading."""
        return self._source.trouble()

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Report a checkpoint's positions."""
        self._source.commit(positions)

    def close(self) -> None:
        """Release everything."""
        self._source.close()
