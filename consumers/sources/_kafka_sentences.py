"""What a Kafka source says when something is wrong: the place, the value, the way out."""

from __future__ import annotations

from consumers.messages import Partition


def bad_batch(partition: Partition, position: int, pause_max_s: float, error: Exception) -> str:
    """Say that a partition's next batch cannot be read."""
    return (
        f"{partition}: the batch at offset {position} cannot be read ({error!r}); it is tried "
        f"again at least every {pause_max_s:g} s while other partitions go on. If it stays so, "
        "remove the topic's records up to its end (kafka-delete-records): reading goes on behind "
        "it, and they count as lost"
    )


def silent(topic: str, no_answer: str, joined_nothing: bool, error: Exception) -> str:
    """Say that nobody answers, or that there is no such topic: the client does not tell which."""
    if joined_nothing:
        no_answer = f"there is no topic {topic!r} yet, or {no_answer}"
    return f"{no_answer} (the client says: {error!r})"


def no_topic(topic: str, why: str) -> str:
    """Say that a broker answered, and has no such topic or does not show it."""
    return (
        f"there is no topic {topic!r} yet; it is read as soon as it is made. Check the name in "
        f"`source`, and the right to see it (the client says: {why})"
    )


def unreadable(why: str) -> str:
    """Say that the client stumbled over something else."""
    return f"Kafka's client could not read on: {why}"


def missing_codec(topic: str, error: Exception) -> str:
    """Say that batches are compressed in a way that needs a package."""
    return (
        f"topic {topic!r} holds compressed batches that cannot be unpacked: {error}. gzip and zstd "
        "need nothing more; for lz4 and snappy install the extra: pip install 'streamnb[codecs]'"
    )
