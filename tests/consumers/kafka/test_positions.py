"""Where reading begins in a Kafka partition, and where it goes on after the group rebalanced."""

from __future__ import annotations

from typing import Literal

import pytest

from consumers.errors import ReplacedError
from consumers.kafka.group_source import Positions
from consumers.messages import Partition
from consumers.sources.base import LogFacts

PARTITION = Partition("topic", 0)
ADDED = Partition("topic", 1)


@pytest.mark.parametrize(("start_from", "begin"), [("earliest", 3), ("latest", 50)])
def test_an_unknown_partition_begins_as_asked(
    start_from: Literal["earliest", "latest"], begin: int
) -> None:
    """Where nothing is known of a partition, reading begins at its log's start or end."""
    positions = Positions(start_from)
    positions.see_topic("id", {PARTITION: 50})
    assert positions.start(PARTITION, None, 3, 50) == 0
    assert positions.position(PARTITION) == begin
    assert positions.logs == {PARTITION: LogFacts(begin, "id")}


@pytest.mark.parametrize("start_from", ["earliest", "latest"])
def test_a_partition_that_was_added_begins_at_its_start(
    start_from: Literal["earliest", "latest"],
) -> None:
    """All that a partition holds is newer than the topic's first sight, over a restart too."""
    first = Positions(start_from)
    first.see_topic("id", {PARTITION: 50})
    first.start(PARTITION, None, 0, 50)
    again = Positions(start_from)
    again.resume(first.logs)
    for positions in (first, again):
        assert positions.start(ADDED, None, 0, 70) == 0
        assert positions.position(ADDED) == 0


def test_a_partition_begins_where_the_first_run_decided() -> None:
    """What came while nobody ran is read, and so is what came to partitions of other members."""
    first = Positions("latest")
    first.see_topic("id", {PARTITION: 50, ADDED: 7})
    first.start(PARTITION, None, 0, 50)
    again = Positions("latest")
    again.resume(first.logs)
    assert again.start(PARTITION, None, 0, 90) == 0
    assert again.start(ADDED, None, 9, 90) == 2
    assert (again.position(PARTITION), again.position(ADDED)) == (50, 9)


def test_a_checkpoint_without_facts_goes_on() -> None:
    """Version 0.1.0 saved positions alone: reading goes on there, and the facts are new."""
    positions = Positions("latest")
    positions.see_topic("id", {ADDED: 7})
    positions.start(PARTITION, 20, 0, 50)
    assert positions.position(PARTITION) == 20
    assert positions.logs == {PARTITION: LogFacts(0, "id"), ADDED: LogFacts(7, "id")}


def test_another_topic_of_that_name_is_refused() -> None:
    """Both ids are named; a broker that tells none is believed."""
    positions = Positions("earliest", "topic")
    positions.resume({PARTITION: LogFacts(0, "old")})
    positions.check_topic("old")
    positions.check_topic(None)
    with pytest.raises(ReplacedError, match=r"'topic'.* id new now.* id old\..*folder"):
        positions.check_topic("new")


def test_what_comes_while_the_group_rebalances_is_read() -> None:
    """A quiet partition that is taken away and given back goes on where it began, not later."""
    positions = Positions("latest")
    positions.see_topic(None, {PARTITION: 50})
    positions.start(PARTITION, None, 0, 50)
    positions.forget(PARTITION)
    assert positions.start(PARTITION, None, 0, 53) == 0
    assert positions.position(PARTITION) == 50


def test_what_was_removed_before_the_first_read_is_lost() -> None:
    """Retention that passes the place where we began takes messages that we were to read."""
    positions = Positions("earliest")
    positions.start(PARTITION, None, 0, 50)
    positions.forget(PARTITION)
    assert positions.start(PARTITION, None, 20, 60) == 20
    assert positions.position(PARTITION) == 20


@pytest.mark.parametrize("wanted", [51, None])
def test_a_shorter_log_is_refused(wanted: int | None) -> None:
    """A log that ends before the place where we are to go on is another one of that name."""
    positions = Positions("latest")
    positions.see_topic(None, {PARTITION: 51})
    positions.start(PARTITION, None, 0, 51)
    with pytest.raises(ReplacedError, match="deleted and created again"):
        positions.start(PARTITION, wanted, 0, 50)
