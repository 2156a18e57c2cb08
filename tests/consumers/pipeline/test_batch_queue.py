"""The handover between reading and learning: bounded, in order, with an end that comes last."""

from __future__ import annotations

import threading

import pytest

from consumers.errors import SourceError
from consumers.messages import Partition
from consumers.pipeline.batch_queue import Batch, Handover
from tests.consumers.decoded_messages import messages

FIRST, SECOND = Partition("t", 0), Partition("t", 1)
MESSAGES = messages(FIRST, [b'{"text":"good day","label":4}'] * 3)
LONG_S = 60.0  # longer than anything here takes; a test that waits so long has failed


def batch(number: int, n_bytes: int = 10, partition: Partition = FIRST) -> Batch:
    """Return a batch of three messages."""
    return Batch(partition, number, 3, n_bytes, MESSAGES)


def test_batches_come_out_in_their_order() -> None:
    """What was put in first comes out first, and an empty handover gives nothing."""
    handover = Handover()
    assert handover.take(0.0) is None
    for i in range(4):
        assert handover.put(batch(i), 0.0)
    taken = [handover.take(0.0) for _ in range(4)]
    assert [each.next_offset for each in taken if each is not None] == [0, 1, 2, 3]
    assert handover.take(0.0) is None


def test_it_is_bounded_by_number() -> None:
    """There is no room for one more than `batches_max`, until one was taken."""
    handover = Handover(batches_max=2)
    assert [handover.put(batch(i), 0.0) for i in range(3)] == [True, True, False]
    handover.take(0.0)
    assert handover.put(batch(2), 0.0)


def test_it_is_bounded_by_bytes_but_for_one_batch() -> None:
    """Batches beyond `bytes_max` wait; a batch that is larger than that passes alone."""
    handover = Handover(bytes_max=25)
    assert [handover.put(batch(i), 0.0) for i in range(3)] == [True, True, False]
    for _ in range(2):
        handover.take(0.0)
    assert handover.put(batch(3, n_bytes=1_000), 0.0)
    assert not handover.put(batch(4, n_bytes=0), 0.0)


def test_what_waits_is_counted_by_partition() -> None:
    """Messages of each partition count as waiting until they are taken."""
    handover = Handover()
    for partition in (FIRST, SECOND, FIRST):
        handover.put(batch(0, partition=partition), 0.0)
    assert handover.waiting() == {FIRST: 6, SECOND: 3}
    handover.take(0.0)
    assert handover.waiting() == {FIRST: 3, SECOND: 3}


def test_the_end_comes_behind_everything() -> None:
    """As long as a batch waits there is no reason to end, and then it stays."""
    handover = Handover()
    assert handover.reason is None
    handover.put(batch(0), 0.0)
    handover.end("end of source")
    assert handover.reason is None
    assert handover.take(0.0) is not None
    assert handover.reason == "end of source"
    assert handover.take(LONG_S) is None


def test_an_error_comes_behind_everything() -> None:
    """What went wrong is raised once all that was read before has been taken, each time."""
    handover = Handover()
    handover.put(batch(0), 0.0)
    handover.fail(SourceError("gone"))
    assert handover.take(0.0) is not None
    for _ in range(2):
        with pytest.raises(SourceError, match="gone"):
            handover.take(LONG_S)


def test_each_side_waits_for_the_other() -> None:
    """A giver without room and a taker without a batch go on as soon as they can."""
    handover = Handover(batches_max=1)
    put: list[bool] = []
    giver = threading.Thread(
        target=lambda: put.extend(handover.put(batch(i), LONG_S) for i in range(50))
    )
    giver.start()
    taken = [handover.take(LONG_S) for _ in range(50)]
    giver.join(LONG_S)
    assert [each.next_offset for each in taken if each is not None] == list(range(50))
    assert all(put)
