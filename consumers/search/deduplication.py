"""Which messages have been dealt with already, so that none is kept twice after a restart.

A message is known by its place in the stream. One that comes again is not stored: the row that is
there wins, with what a person corrected, and one that was removed for good stays away. What a
person said of a message that is not there yet waits for it: where the file was lost, the log of
corrections is read back before the stream brings the messages again. Only where a place held a
message of another id was the stream itself made anew: then the new one is stored.

To ask costs next to nothing as long as the stream goes forward, for then each message lies behind
all that were held of its partition.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consumers.search.chunk import Chunk
from consumers.search.sampler import Correct, Offer

GONE_MAX = 50_000  # messages of which it is remembered that they were removed for good
EXPECTED_MAX = 50_000  # corrections of messages that are not held

At = tuple[int, int]  # place and offset
Gone = dict[At, int]  # → checksum of the id


class Held(NamedTuple):
    """A row that the file holds."""

    chunk: Chunk
    key: int
    id: str

    @property
    def at(self) -> At:
        """Its place in the stream."""
        own, i = self.chunk.columns, self.key - self.chunk.first_key
        return int(own["place"][i]), int(own["offset"][i])


def not_behind(held: Sequence[Held], place: int, last: Mapping[str, int]) -> list[Held]:
    """Return rows without those of a partition that stand behind the last offset of their id."""
    return [one for one in held if one.at[0] != place or one.at[1] <= last[one.id]]


class Deduplicator:
    """What is known of places in the stream.

    Parameters
    ----------
    gone : dict
        The messages that were removed for good, as the file has them.
    chunks : sequence of Chunk
        All there are.
    n_places : int
        How many partitions have a number.

    Attributes
    ----------
    expected_max : int
        Bounds what is remembered of messages that are not held.
    """

    def __init__(self, gone: Gone, chunks: Sequence[Chunk], n_places: int) -> None:
        self._gone = gone
        self.expected_max = EXPECTED_MAX
        self._expected: dict[At, Correct] = {}  # what was said of messages that are not held
        # Messages with a label and those without come in order each, but not together: they are
        # judged on different threads.
        self._highest: dict[tuple[int, bool], int] = {}
        for kind in (False, True):
            for place in range(n_places):
                for chunk in chunks:
                    own = {name: column[: chunk.n] for name, column in chunk.columns.items()}
                    at = (own["place"] == place) & ((own["truth"] >= 0) == kind)
                    self._raise(place, kind, own["offset"][at & chunk.alive[: chunk.n]])
            for place, offset in gone:
                self._raise(place, kind, np.array([offset]))

    def state(self) -> tuple[Gone, dict[tuple[int, bool], int]]:
        """Return what `restore` needs to come back to now."""
        return dict(self._gone), dict(self._highest)

    def restore(self, state: tuple[Gone, dict[tuple[int, bool], int]]) -> None:
        """Come back to what was known before a transaction that failed."""
        self._gone, self._highest = state

    def unknown(
        self, offer: Offer, place: int, chunks: Sequence[Chunk]
    ) -> tuple[NDArray[np.int64], list[Held]]:
        """Return which rows of an offer are to be stored, and held rows that must go for them."""
        offsets = np.array(offer.columns["offset"], np.int64)
        labelled = np.array([truth is not None for truth in offer.columns["truth"]], np.bool_)
        is_new = np.ones(len(offsets), np.bool_)
        replaced: list[Held] = []
        for kind in (False, True):
            own = labelled == kind
            again = np.flatnonzero(own & (offsets <= self._highest.get((place, kind), -1)))
            if len(again):
                is_new[again] = self._look(offer, place, again, chunks, replaced)
            self._raise(place, kind, offsets[own])
        return np.flatnonzero(is_new), replaced

    def expect(self, said: Correct, at: At) -> None:
        """Remember what was said of a message that is not held, in case it is still to come."""
        self._expected.pop(at, None)
        if at not in self._gone:
            self._expected[at] = said
        while len(self._expected) > self.expected_max:
            del self._expected[next(iter(self._expected))]

    def said_of(self, ids: Sequence[str], place: int, offsets: Sequence[int]) -> dict[int, Correct]:
        """Return what was said of some messages before they came, by their position."""
        if not self._expected:
            return {}
        found = {k: self._expected.get((place, offset)) for k, offset in enumerate(offsets)}
        return {k: said for k, said in found.items() if said is not None and said.id == ids[k]}

    def bury(self, db: sqlite3.Connection, crcs: Gone) -> None:
        """Remember that messages were removed, in case the stream brings them again."""
        for (place, offset), crc in crcs.items():
            self._gone[place, offset] = crc
            self._expected.pop((place, offset), None)
            for kind in (False, True):  # one that is still to come must not pass unseen
                self._raise(place, kind, np.array([offset]))
            db.execute("INSERT INTO gone VALUES (?, ?, ?)", (place, offset, crc))
        while len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]
        db.execute("DELETE FROM gone WHERE rowid <= (SELECT max(rowid) FROM gone) - ?", (GONE_MAX,))

    def _look(
        self,
        offer: Offer,
        place: int,
        again: NDArray[np.int64],
        chunks: Sequence[Chunk],
        replaced: list[Held],
    ) -> list[bool]:
        """Tell which of the rows `again`, of places that lie behind, are new all the same."""
        offsets = np.array(offer.columns["offset"], np.int64)[again]
        held: dict[int, tuple[Chunk, int]] = {}
        for chunk in chunks:
            at = chunk.at_offsets(place, offsets)
            held |= {offset: (chunk, key) for offset, key in at.items()}
        is_new = []
        crcs = [offer.columns["id_crc"][k] for k in again.tolist()]
        for crc, offset in zip(crcs, offsets.tolist(), strict=True):
            if offset not in held:
                is_new.append(self._gone.get((place, offset)) != crc)
                continue
            chunk, key = held[offset]
            same = int(chunk.columns["id_crc"][key - chunk.first_key]) == crc
            if not same and chunk.is_alive(key):
                replaced.append(Held(chunk, key, ""))
            is_new.append(not same)
        return is_new

    def _raise(self, place: int, kind: bool, offsets: NDArray[np.int64]) -> None:
        highest = self._highest.get((place, kind), -1)
        self._highest[place, kind] = int(offsets.max(initial=highest))
