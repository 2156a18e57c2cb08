"""The queue between reading and learning: bounded, in order, with an end that comes last."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from consumers.errors import SourceError
from consumers.messages import Messages, Partition
from consumers.pipeline.reader import BatchQueue
from tests.consumers.decoded_messages import messages

FIRST, SECOND = Partition("t", 0), Partition("t", 1)
MESSAGES = messages(FIRST, [b'{"text":"good day","label":4}'] * 3)
LONG_S = 60.0  # longer than anything here takes; a test that waits so long has failed


def batch(number: int, n_bytes: int = 10, partition: Partition = FIRST) -> tuple[Messages, int]:
    """Return a batch of three messages, and its size."""
    raw = replace(MESSAGES.raw, partition=partition, next_offset=number)
    return replace(MESSAGES, raw=raw), n_bytes


def test_batches_come_out_in_their_order() -> None:
    """What was put in first comes out first, and an empty queue gives nothing."""
    queue = BatchQueue()
    assert queue.take(0.0) is None
    for i in range(4):
        assert queue.put(*batch(i), 0.0)
    taken = [queue.take(0.0) for _ in range(4)]
    assert [each.next_offset for each in taken if isinstance(each, Messages)] == [0, 1, 2, 3]
    assert queue.take(0.0) is None


def test_it_is_bounded_by_number() -> None:
    """There is no room for one more than `batches_max`, until one was taken."""
    queue = BatchQueue(batches_max=2)
    assert [queue.put(*batch(i), 0.0) for i in range(3)] == [True, True, False]
    queue.take(0.0)
    assert queue.put(*batch(2), 0.0)


def test_it_is_bounded_by_bytes_but_for_one_batch() -> None:
    """Batches beyond `bytes_max` wait; a batch that is larger than that passes alone."""
    queue = BatchQueue(bytes_max=25)
    assert [queue.put(*batch(i), 0.0) for i in range(3)] == [True, True, False]
    for _ in range(2):
        queue.take(0.0)
    assert queue.put(*batch(3, n_bytes=1_000), 0.0)
    assert not queue.put(*batch(4, n_bytes=0), 0.0)


def test_what_waits_is_counted_by_partition() -> None:
    """Messages of each partition count as waiting until they are taken."""
    queue = BatchQueue()
    for partition in (FIRST, SECOND, FIRST):
        queue.put(*batch(0, partition=partition), 0.0)
    assert queue.waiting() == {FIRST: 6, SECOND: 3}
    queue.take(0.0)
    assert queue.waiting() == {FIRST: 3, SECOND: 3}


def test_the_end_comes_behind_everything() -> None:
    """As long as a batch waits there is no reason to end, and then it stays."""
    queue = BatchQueue()
    assert queue.end_reason is None
    queue.put(*batch(0), 0.0)
    queue.end("end of source")
    assert queue.end_reason is None
    assert queue.take(0.0) is not None
    assert queue.end_reason == "end of source"
    assert queue.take(LONG_S) is None


def test_an_error_comes_behind_everything() -> None:
    """What went wrong is raised once all that was read before has been taken, each time."""
    queue = BatchQueue()
    queue.put(*batch(0), 0.0)
    queue.fail(SourceError("gone"))
    assert queue.take(0.0) is not None
    for _ in range(2):
        with pytest.raises(SourceError, match="gone"):
            queue.take(LONG_S)


def test_each_side_waits_for_the_other() -> None:
    """A giver without room and a taker without a batch go on as soon as they can."""
    queue = BatchQueue(batches_max=1)
    put: list[bool] = []
    giver = threading.Thread(
        target=lambda: put.extend(queue.put(*batch(i), LONG_S) for i in range(50))
    )
    giver.start()
    taken = [queue.take(LONG_S) for _ in range(50)]
    giver.join(LONG_S)
    assert [each.next_offset for each in taken if isinstance(each, Messages)] == list(range(50))
    assert all(put)
