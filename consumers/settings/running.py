"""Settings of the daemon itself: when it publishes, what it keeps, what it hands out."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from consumers.settings.addresses import OutputAddress
from consumers.settings.base import Section, wrong


class LearningSettings(Section):
    """When the world sees what was learned."""

    publish_interval_s: float = Field(default=0.1, gt=0)
    publish_share_max: float = Field(default=0.1, gt=0, le=1)
    window: int = Field(default=10_000, ge=1, le=10_000_000)  # examples of the prequential window


class CheckpointSettings(Section):
    """Where model and stream positions are kept, as one file."""

    folder: Path | None = Path("state")  # null: keep nothing
    interval_s: float = Field(default=10.0, gt=0)
    keep: int = Field(default=3, ge=1)


class OutputSettings(Section):
    """Where a kind of record goes: nowhere, a file of JSON lines, or a Kafka topic."""

    to: str = "none"  # none | file:PATH | kafka:TOPIC

    @field_validator("to")
    @classmethod
    def _to(cls, to: str) -> str:
        try:
            OutputAddress.parse(to)
        except ValueError as error:
            raise wrong(str(error)) from None
        return to

    @property
    def address(self) -> OutputAddress:
        """`to`, taken apart."""
        return OutputAddress.parse(self.to)


class PredictorSettings(Section):
    """The thread that judges what has no label."""

    queue_size_max: int = Field(default=64, ge=1)  # batches


class HttpSettings(Section):
    """Metrics and health over HTTP."""

    enabled: bool = True
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8100, ge=0, le=65_535)  # 0: a free one
    stuck_after_s: float = Field(default=30.0, gt=0)
