"""When a member of a group is at its end: others may have died, and their partitions come to it.

A real member that is killed is read for in `test_source.py`; here the clock is ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import pytest

from consumers.config.addresses import KafkaSettings
from consumers.kafka.client import AssignmentChange, Fetched, GroupClient, TopicDescription
from consumers.kafka.group_source import SETTLED_SESSIONS, GroupSource
from consumers.messages import Partition

OURS, OTHERS = Partition("topic", 0), Partition("topic", 1)
SETTINGS = KafkaSettings(session_timeout_s=6.0)
SETTLED_S = SETTLED_SESSIONS * SETTINGS.session_timeout_s
END = 100


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time, in seconds."""
        return self.now_s


class StoodClient(GroupClient):
    """A client of a topic of two partitions whose logs are at rest; a poll takes its time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(["nowhere:1"], "topic", SETTINGS)
        self._clock = clock
        self.fetched: list[Fetched] = []

    def open(self) -> None:
        """Open nothing."""

    def connect(self, timeout_s: float) -> bool:
        """Be connected."""
        return timeout_s >= 0

    def poll(self, max_messages: int, timeout_s: float) -> list[Fetched]:
        """Return what was set once."""
        self._clock.now_s += timeout_s
        fetched, self.fetched = self.fetched[:max_messages], []
        return fetched

    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Seek nothing."""

    def log_starts(
        self, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, int]:
        """Return that nothing was removed."""
        assert timeout_s > 0
        return dict.fromkeys(partitions, 0)

    def log_ends(self, partitions: Collection[Partition], timeout_s: float) -> dict[Partition, int]:
        """Return that all logs are as long."""
        assert timeout_s > 0
        return dict.fromkeys(partitions, END)

    def offsets_at(
        self, partitions: Collection[Partition], time_ms: int, timeout_s: float
    ) -> dict[Partition, int | None]:
        """Return that all is of later."""
        assert timeout_s > time_ms
        return dict.fromkeys(partitions, 0)

    def find_topic(self, timeout_s: float) -> None:
        """Find it."""

    def topic(self, timeout_s: float) -> TopicDescription:
        """Return it."""
        assert timeout_s > 0
        return TopicDescription("id", frozenset({OURS, OTHERS}))

    def topic_id(self) -> str | None:
        """Return that it is the same."""
        return "id"

    def n_partitions(self) -> int | None:
        """Return how many there are."""
        return 2

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit nothing."""

    def close(self, *, finish_commit: bool) -> None:
        """Close nothing."""


class Member:
    """A source on such a client, and its clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.client = StoodClient(self.clock)
        self.source = GroupSource(self.client, SETTINGS, self.clock)
        self.source.open(lambda _: None)
        self.poll = partial(self.source.poll, 0.1)
        self.poll()

    def told(self, *partitions: Partition, assigned: bool = True) -> None:
        """Tell of a change of the group, and read on."""
        self.client.events.append(AssignmentChange(assigned, partitions))
        self.poll()

    def read(self, *partitions: Partition) -> None:
        """Let partitions be read to their ends."""
        self.client.fetched = [Fetched(each, None, END, END) for each in partitions]
        self.poll()


def test_who_has_all_partitions_is_at_its_end_at_once() -> None:
    """Nobody else can hold any."""
    member = Member()
    member.told(OURS, OTHERS)
    member.read(OURS)
    assert not member.source.at_end()
    member.read(OTHERS)
    assert member.source.at_end()


@pytest.mark.parametrize("reading_s", [0.0, 1.0, 1_000.0])
def test_a_member_waits_at_its_end_for_partitions_of_a_dead_one(reading_s: float) -> None:
    """However long it read before: another may have been killed just then."""
    member = Member()
    member.told(OURS)
    member.clock.now_s += reading_s
    member.poll()
    member.read(OURS)
    assert not member.source.at_end()
    member.clock.now_s += SETTLED_S - 0.5
    assert not member.source.at_end()
    member.clock.now_s += 1.0
    assert member.source.at_end()  # the other one lives, and reads its own


def test_what_comes_meanwhile_is_read() -> None:
    """The group shares anew once the dead member's session is over."""
    member = Member()
    member.told(OURS)
    member.read(OURS)
    assert not member.source.at_end()
    member.told(OURS, assigned=False)
    member.clock.now_s += 10 * SETTLED_S  # others take long to join; nothing is ours, yet
    assert not member.source.at_end()
    member.told(OURS, OTHERS)
    assert not member.source.at_end()
    member.read(OURS, OTHERS)
    assert member.source.at_end()


def test_a_member_without_any_partition_waits_as_long() -> None:
    """It may be one too many, or get those of a dead one."""
    member = Member()
    member.told()
    assert not member.source.at_end()
    member.clock.now_s += 2.0
    member.poll()  # asks whether the topic is there
    assert not member.source.at_end()
    member.clock.now_s += SETTLED_S + 0.5
    assert member.source.at_end()
