"""Settings of the daemon itself: when it publishes, what it keeps, what it hands out."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from consumers.settings.addresses import CorrectionsAddress, OutputAddress
from consumers.settings.base import Section, distinct, wrong

TOKEN_CHARACTERS_MIN = 16
_HOST_NAME = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_ASCII = re.compile("[!-~][ -~]*[!-~]")


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


class RecentSettings(Section):
    """The newest messages, kept to be searched."""

    enabled: bool = True
    messages_max: int = Field(default=1_000_000, ge=1_000)
    age_max_s: float = Field(default=86_400.0, gt=0)
    rate_max_per_s: float = Field(default=5_000.0, gt=0)  # above it a sample is kept


class CorrectionsSettings(Section):
    """Where labels and deletions that people send are logged, to be learned from there."""

    to: str = "journal"  # none | journal | kafka:TOPIC

    @field_validator("to")
    @classmethod
    def _to(cls, to: str) -> str:
        try:
            CorrectionsAddress.parse(to)
        except ValueError as error:
            raise wrong(str(error)) from None
        return to

    @property
    def address(self) -> CorrectionsAddress:
        """`to`, taken apart."""
        return CorrectionsAddress.parse(self.to)


class PageSettings(Section):
    """What the page shows, and when it would rather say why it does not."""

    unsure_below: float = Field(default=0.65, ge=0, le=1)  # posterior of the likeliest class
    share_messages_min: int = Field(default=30, ge=1)


class HttpSettings(Section):
    """The page, the API, metrics and health over HTTP."""

    enabled: bool = True
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8100, ge=0, le=65_535)  # 0: a free one
    allowed_hosts: tuple[str, ...] = ()  # besides localhost, IP addresses and `host`
    token: SecretStr | None = None  # only by ${NAME} from the environment
    body_bytes_max: int = Field(default=2 << 20, ge=1024)
    request_timeout_s: float = Field(default=10.0, gt=0)
    connections_max: int = Field(default=1_000, ge=1)
    stuck_after_s: float = Field(default=30.0, gt=0)

    @field_validator("allowed_hosts")
    @classmethod
    def _allowed_hosts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST_NAME.fullmatch(name):
                raise wrong(
                    "must hold names as they stand in an address, without scheme and port, such as "
                    f"streamnb.example.org, *.example.org for all below one, or *, not {name!r}"
                )
        return distinct(names)

    @field_validator("token")
    @classmethod
    def _token_is_long(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and len(token.get_secret_value()) < TOKEN_CHARACTERS_MIN:
            raise wrong(
                f"must have at least {TOKEN_CHARACTERS_MIN} characters, such as those of "
                "`openssl rand -hex 16`"
            )
        if token is not None and not _ASCII.fullmatch(token.get_secret_value()):
            raise wrong(
                "must be of letters, digits and signs of ASCII, without blanks around them: others "
                "reach an HTTP header in one encoding or another. `openssl rand -hex 16` makes one"
            )
        return token
