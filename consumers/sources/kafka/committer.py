"""Positions told to the broker, so that lag tools see how far the checkpoints have got."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from consumers.messages import Partition


class Committer:
    """Commits without waiting, and makes up for it when closing.

    Nothing ever depends on these offsets, so a failure is a line in the log and no more.

    Parameters
    ----------
    log : structlog.stdlib.BoundLogger
        Where failures are told.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._unconfirmed: dict[Any, Any] = {}
        self._failing = False

    def commit(self, consumer: Any, positions: Mapping[Partition, int]) -> None:
        """Send positions on their way."""
        offsets = {
            TopicPartition(*partition): OffsetAndMetadata(position, "", -1)
            for partition, position in positions.items()
        }
        if not offsets:
            return
        self._unconfirmed = offsets
        try:
            consumer.commit_async(offsets, callback=self._answered)
        except KafkaError as error:
            self._tell(error)

    def finish(self, consumer: Any, timeout_s: float) -> None:
        """Wait for the last positions, which are often still on their way when closing begins."""
        if not self._unconfirmed:
            return
        try:
            consumer.commit(self._unconfirmed, timeout_ms=round(timeout_s * 1000))
        except KafkaError as error:
            self._tell(error)

    def _answered(self, offsets: Mapping[Any, Any], answer: object) -> None:
        if isinstance(answer, Exception):
            self._tell(answer)
            return
        self._failing = False
        if offsets == self._unconfirmed:
            self._unconfirmed = {}

    def _tell(self, error: Exception) -> None:
        """Say it once while it lasts; a broker that is away would fill the log."""
        if not self._failing:
            self._failing = True
            self._log.info("kafka_commit_failed", error=repr(error))
