"""A broker in memory: topics of partitions, and a consumer group that rebalances as Kafka's does.

Whoever joins, leaves or is away for longer than the session makes all members give up what they
have; when all of them have done so, or were left behind, partitions are given out anew.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from consumers.config.addresses import KafkaSettings
from consumers.corrections.model import LogPosition, NotWritten, decoded
from consumers.kafka.client import (
    AssignmentChange,
    ClientError,
    Fetched,
    FetchFault,
    GroupClient,
    TopicDescription,
)
from consumers.messages import Partition
from consumers.sources.records import from_parts
from tests.simulation.scheduler import Process, Scheduler, Task

SESSION_S = 3.0
_BATCH_MAX = 6  # messages of a partition in a poll


@dataclass
class Topic:
    """A topic: the values of each partition's log."""

    name: str
    id: str
    logs: dict[Partition, list[bytes | None]]


@dataclass(eq=False)
class Member:
    """A member of the group, as the broker sees it."""

    process: Process
    owned: tuple[Partition, ...] = ()
    given: tuple[Partition, ...] | None = None  # and not told yet
    has_rejoined: bool = True
    away_since_s: float | None = None


@dataclass
class Broker:
    """The broker, and the one group that reads from it."""

    scheduler: Scheduler
    chance: random.Random
    topics: dict[str, Topic] = field(default_factory=dict)
    committed: dict[Partition, int] = field(default_factory=dict)
    starts: dict[Partition, int] = field(default_factory=dict)  # of logs that retention has cut
    away_until_s: float = 0.0
    grown_s: float = 0.0  # when a topic got partitions last
    n_rebalances: int = 0
    n_expelled: int = 0
    n_refused: int = 0
    changed: list[Task] = field(default_factory=list)
    _members: list[Member] = field(default_factory=list)
    _is_rebalancing: bool = False

    def add_topic(self, name: str, n_partitions: int) -> Topic:
        """Make a topic."""
        logs: dict[Partition, list[bytes | None]] = {
            Partition(name, number): [] for number in range(n_partitions)
        }
        self.topics[name] = Topic(name, f"id-of-{name}", logs)
        return self.topics[name]

    def log(self, partition: Partition) -> list[bytes | None]:
        """Return the values of a partition."""
        return self.topics[partition.topic].logs[partition]

    def append(self, partition: Partition, value: bytes | None) -> int:
        """Write a message; return its offset."""
        log = self.log(partition)
        log.append(value)
        self.scheduler.wake(self.changed)
        return len(log) - 1

    def grow(self, name: str, n_partitions: int) -> None:
        """Give a topic more partitions."""
        logs = self.topics[name].logs
        for number in range(len(logs), n_partitions):
            logs[Partition(name, number)] = []
        self.grown_s = self.scheduler.now_s

    def retain(self, partition: Partition, n: int) -> None:
        """Remove all of a log but its newest messages."""
        start = len(self.log(partition)) - n
        self.starts[partition] = max(start, self.starts.get(partition, 0))

    def check(self) -> None:
        """Raise `ClientError` while nobody answers."""
        if self.scheduler.now_s < self.away_until_s:
            self.n_refused += 1
            raise ClientError("the broker is away")

    # ---- the group -----------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Take a member in."""
        self._members.append(member)
        self.rebalance()

    def leave(self, member: Member) -> None:
        """Let a member go; others get what it had."""
        if member in self._members:
            self._members.remove(member)
            self.rebalance()

    def heard(self, member: Member, topic: str) -> list[AssignmentChange]:
        """Take note of a poll; return what has happened to the member's partitions."""
        self._expel()
        if member not in self._members:
            lost, member.owned, member.given = member.owned, (), None
            member.has_rejoined, member.away_since_s = True, None
            self.join(member)
            return [AssignmentChange(assigned=False, partitions=lost)] if lost else []
        told = []
        if self._is_rebalancing and not member.has_rejoined:
            lost, member.owned, member.has_rejoined = member.owned, (), True
            told += [AssignmentChange(assigned=False, partitions=lost)] if lost else []
        if self._is_rebalancing and all(each.has_rejoined for each in self._members):
            self._give_out(topic)
        if member.given is not None:
            member.owned, member.given = member.given, None
            told.append(AssignmentChange(assigned=True, partitions=member.owned))
        return told

    def rebalance(self) -> None:
        """Have all members give up what they have, and give it out anew."""
        self._is_rebalancing = True
        self.n_rebalances += 1
        for each in self._members:
            each.has_rejoined = not each.owned and each.given is None
            if each.given is not None:
                each.given = None
                each.has_rejoined = not each.owned
        self.scheduler.wake(self.changed)

    def _give_out(self, topic: str) -> None:
        self._is_rebalancing = False
        order = self.chance.sample(self._members, len(self._members))
        partitions = list(self.topics[topic].logs)
        for i, each in enumerate(order):
            each.given = tuple(partitions[i :: len(order)])
        self.scheduler.wake(self.changed)

    def _expel(self) -> None:
        """Leave those behind that were away for longer than the session."""
        now_s = self.scheduler.now_s
        for each in list(self._members):
            is_away = each.process.is_dead or each.process.paused_until_s > now_s
            if not is_away:
                each.away_since_s = None
            elif each.away_since_s is None:
                each.away_since_s = now_s
            elif now_s > each.away_since_s + SESSION_S:
                self.n_expelled += 1
                self._members.remove(each)
                self.rebalance()


class BrokerClient(GroupClient):
    """What a daemon's source reads the simulated broker by: in the group, or `alone` all of it."""

    decoder = "simulated"

    def __init__(
        self,
        broker: Broker,
        topic: str,
        settings: KafkaSettings,
        process: Process,
        *,
        is_alone: bool = False,
    ) -> None:
        super().__init__(("simulated:9092",), topic, settings)
        self._broker = broker
        self._member = Member(process)
        self._at: dict[Partition, int] = {}
        self._has_joined, self._is_alone = False, is_alone
        # What is known of the topic, and until when nobody asks again.
        self._interval_s, self._known_until_s = settings.metadata_interval_s, 0.0
        self._known: tuple[Partition, ...] = ()

    def open(self) -> None:
        """Do nothing: the settings are right."""

    def connect(self, timeout_s: float) -> bool:
        """Join the group."""
        self._broker.scheduler.act()
        self._wait_if_away(timeout_s)
        if self._is_alone:
            self._hear_of_topic()
            return True
        self._broker.join(self._member)
        self._has_joined = True
        return True

    def poll(self, max_messages: int, timeout_s: float) -> list[Fetched]:
        """Return what came; a member that lost its partitions may be handed some more of them."""
        broker, scheduler = self._broker, self._broker.scheduler
        until_s = scheduler.now_s + timeout_s
        while True:
            scheduler.act()
            self._wait_if_away(until_s - scheduler.now_s)
            # What was fetched before may be handed over before the news of the group.
            fetched = self._fetch(max_messages) if broker.chance.random() < 0.3 else []
            self._hear_of_topic()
            if not self._is_alone:
                self.events.extend(broker.heard(self._member, self.topic_name))
            if fetched or self.events:
                return fetched
            fetched = self._fetch(max_messages)
            left_s = until_s - scheduler.now_s
            if fetched or left_s <= 0:
                return fetched
            scheduler.wait(broker.changed, left_s)

    def _hear_of_topic(self) -> None:
        """Ask now and then which partitions there are; who reads alone is given all of them."""
        now_s = self._broker.scheduler.now_s
        if now_s < self._known_until_s:
            return
        self._known_until_s = now_s + self._interval_s
        was, self._known = self._known, tuple(self._broker.topics[self.topic_name].logs)
        if self._is_alone and was != self._known:
            if was:
                self.events.append(AssignmentChange(assigned=False, partitions=was))
            self.events.append(AssignmentChange(assigned=True, partitions=self._known))

    def n_partitions(self) -> int | None:
        """Return how many partitions there were when that was asked last."""
        return len(self._known) or None

    def _fetch(self, max_messages: int) -> list[Fetched]:
        found = []
        for partition, at in self._at.items():
            log = self._broker.log(partition)
            if at < self._broker.starts.get(partition, 0):
                fault = FetchFault("position", "out of range")
                found.append(Fetched(partition, position=at, fault=fault))
                continue
            n = min(len(log) - at, max_messages, self._broker.chance.randint(1, _BATCH_MAX))
            if n > 0:
                end, nothing = at + n, [None] * n
                columns = from_parts(partition, nothing, log[at:end], range(at, end), [0] * n, end)
                self._at[partition] = end
                found.append(Fetched(partition, columns, end, len(log)))
        return found

    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Read on from there."""
        self._at = dict(positions)

    def log_starts(
        self, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, int]:
        """Return the first offsets that retention has left."""
        self._wait_if_away(timeout_s)
        return {each: self._broker.starts.get(each, 0) for each in partitions}

    def log_ends(self, partitions: Collection[Partition], timeout_s: float) -> dict[Partition, int]:
        """Return where the logs end now."""
        self._wait_if_away(timeout_s)
        return {each: len(self._broker.log(each)) for each in partitions}

    def offsets_at(
        self, partitions: Collection[Partition], time_ms: int, timeout_s: float
    ) -> dict[Partition, int | None]:
        """Return nothing: nobody asks by time."""
        assert not time_ms
        self._wait_if_away(timeout_s)
        return dict.fromkeys(partitions)

    def find_topic(self, timeout_s: float) -> None:
        """Answer if the broker is there."""
        self._wait_if_away(timeout_s)

    def topic(self, timeout_s: float) -> TopicDescription:
        """Return the topic."""
        self._wait_if_away(timeout_s)
        topic = self._broker.topics[self.topic_name]
        return TopicDescription(topic.id, frozenset(topic.logs))

    def topic_id(self) -> str | None:
        """Return the topic's id."""
        return self._broker.topics[self.topic_name].id

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Note what is committed, as the broker does, for lag tools."""
        self._broker.scheduler.act()
        if not self._is_alone:
            self._broker.committed |= positions

    def close(self, *, finish_commit: bool) -> None:
        """Leave the group."""
        del finish_commit
        self._broker.scheduler.act()
        if self._has_joined:
            self._broker.leave(self._member)

    def _wait_if_away(self, timeout_s: float) -> None:
        broker, scheduler = self._broker, self._broker.scheduler
        if scheduler.now_s < broker.away_until_s:
            scheduler.wait([], max(0.0, min(timeout_s, broker.away_until_s - scheduler.now_s)))
        broker.check()


class TopicLog:
    """What a daemon writes a topic of corrections by; a line is sent until the broker has it.

    It is answered for somewhat later, or never: who is killed meanwhile does not know of it.
    """

    is_own = False

    def __init__(self, broker: Broker, topic: str, process: Process) -> None:
        self.name = topic
        self._broker, self._process = broker, process

    def append(self, key: bytes, line: bytes) -> Sent:
        """Send a line to the partition of its message's number."""
        del key  # each line is of a message
        broker = self._broker
        broker.scheduler.act()
        said = decoded(line)
        assert said is not None
        assert said.place is not None
        partition = Partition(self.name, said.place.partition)
        if partition not in broker.topics[self.name].logs:
            raise NotWritten("the topic has no such partition yet")
        sent = Sent(broker)
        self._send(partition, line, sent)
        return sent

    def _send(self, partition: Partition, line: bytes, sent: Sent) -> None:
        """Write a line once the broker is there, if its process is."""
        broker, process = self._broker, self._process
        may_s = max(broker.away_until_s, process.paused_until_s)
        if process.is_dead:
            return
        if broker.scheduler.now_s < may_s:
            broker.scheduler.call_at(may_s, lambda: self._send(partition, line, sent))
            return
        at = LogPosition(partition, broker.append(partition, line))
        acked_s = broker.scheduler.now_s + broker.chance.choice((0.0, 0.01, 0.3))
        broker.scheduler.call_at(acked_s, lambda: sent.acknowledge(at))

    def close(self) -> None:
        """Do nothing: what is on its way may still come."""


class Sent:
    """A line on its way."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._at: LogPosition | None = None
        self._waiting: list[Task] = []

    def acknowledge(self, at: LogPosition) -> None:
        """Say where it stands."""
        self._at = at
        self._broker.scheduler.wake(self._waiting)

    def outcome(self, timeout_s: float) -> LogPosition | None:
        """Return where it stands, None if that is not known in time."""
        scheduler = self._broker.scheduler
        scheduler.act()
        until_s = scheduler.now_s + timeout_s
        while self._at is None and scheduler.now_s < until_s:
            scheduler.wait(self._waiting, until_s - scheduler.now_s)
        return self._at

    def is_given_up(self) -> bool:
        """Return False: it is sent as long as its process lives."""
        return False
