"""Settings of the places messages come from: the generator, files, Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from consumers.settings.addresses import check_server
from consumers.settings.base import Section, distinct, wrong


class GeneratorSettings(Section):
    """The made-up stream."""

    stream: Literal["tweets", "loans"] = "tweets"
    seed: int = Field(default=7, ge=0)
    rate_per_s: float = Field(default=2_000.0, ge=0)  # 0: as fast as it goes
    labelled_share: float = Field(default=0.7, ge=0, le=1)
    turn_after: int = Field(default=20_000, ge=1)  # tweets until one topic's sentiment turns


class FileSettings(Section):
    """A recorded file or standard input."""

    format: Literal["auto", "jsonl", "csv"] = "auto"
    encoding: Literal["auto", "utf-8", "latin-1"] = "auto"
    batch_bytes: int = Field(default=1 << 20, ge=1024)


class KafkaSettings(Section):
    """How to reach Kafka, beyond the address and topic of the source."""

    # For outputs: needed where the source is not Kafka, and free to be another cluster.
    servers: tuple[str, ...] = ()
    client: Literal["kafka-python", "librdkafka"] = "kafka-python"  # what reads the source
    group_id: Annotated[str, Field(min_length=1)] = "streamnb"
    start_from: Literal["earliest", "latest"] = "earliest"
    decode: Literal["columns", "records"] = "columns"
    max_poll_messages: int = Field(default=5_000, ge=1)
    fetch_max_bytes: int = Field(default=50 << 20, ge=1024)
    message_max_bytes: int = Field(default=12 << 20, ge=1024)
    bootstrap_timeout_s: float = Field(default=10.0, gt=0)
    retry_pause_max_s: float = Field(default=1.0, gt=0, le=1.0)
    session_timeout_s: float = Field(default=10.0, ge=6.0, le=300.0)  # 6 s: the brokers' least
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None  # only by ${NAME} from the environment
    ssl_cafile: Path | None = None

    @field_validator("servers")
    @classmethod
    def _servers(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            try:
                check_server(server)
            except ValueError as error:
                raise wrong(str(error)) from None
        return distinct(servers)

    @model_validator(mode="after")
    def _fetch_holds_a_message(self) -> Self:
        if self.message_max_bytes > self.fetch_max_bytes:
            raise wrong(
                f"message_max_bytes ({self.message_max_bytes}) must not be above "
                f"fetch_max_bytes ({self.fetch_max_bytes}): such a message could never be fetched"
            )
        return self

    @model_validator(mode="after")
    def _login_is_whole(self) -> Self:
        """Refuse half a login: Kafka's own answer to one is silence until a time-out."""
        if self.security_protocol.startswith("SASL"):
            login = {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_username": self.sasl_username,
                "sasl_password": self.sasl_password,
            }
            missing = [key for key, value in login.items() if value is None]
            if missing:
                raise wrong(
                    f"{', '.join(missing)} must be given: security_protocol is "
                    f"{self.security_protocol}"
                )
        elif self.sasl_mechanism is not None:
            raise wrong(
                f"sasl_mechanism {self.sasl_mechanism} needs security_protocol SASL_SSL or "
                f"SASL_PLAINTEXT; it is {self.security_protocol}"
            )
        return self

    @field_validator("ssl_cafile")
    @classmethod
    def _cafile_is_there(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise wrong("must be a file of certificates (PEM) that exists")
        return path
