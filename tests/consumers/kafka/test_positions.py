"""Where reading begins in a Kafka partition, and where it goes on after the group rebalanced."""

from __future__ import annotations

from typing import Literal

import pytest

from consumers.errors import SourceError
from consumers.kafka.group_source import Positions
from consumers.messages import Partition

PARTITION = Partition("topic", 0)


@pytest.mark.parametrize(("start_from", "begin"), [("earliest", 3), ("latest", 50)])
def test_an_unknown_partition_begins_as_asked(
    start_from: Literal["earliest", "latest"], begin: int
) -> None:
    """Where nothing is known of a partition, reading begins at its log's start or end."""
    positions = Positions(start_from)
    assert positions.start(PARTITION, None, 3, 50) == 0
    assert positions.position(PARTITION) == begin


def test_what_comes_while_the_group_rebalances_is_read() -> None:
    """A quiet partition that is taken away and given back goes on where it began, not later."""
    positions = Positions("latest")
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
    positions.start(PARTITION, None, 0, 51)
    with pytest.raises(SourceError, match="deleted and made anew"):
        positions.start(PARTITION, wanted, 0, 50)
