"""The room of corrections, built from the settings."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from consumers.config.settings import Settings
from consumers.corrections.applier import Applying
from consumers.corrections.journal import FILE_NAME, Journal, JournalSource
from consumers.corrections.log_reader import Log, Reading
from consumers.corrections.message_lookup import Examples, Remembers
from consumers.corrections.service import Desk
from consumers.errors import ConfigError
from consumers.features import kinds_of
from consumers.monitoring.metrics import Metrics
from consumers.sources.base import Source


@dataclass(frozen=True, slots=True)
class Corrections:
    """What the daemon needs of this room.

    Attributes
    ----------
    desk : Desk
        Where corrections are handed in; for the HTTP side.
    applying : Applying
        What applies them; for the pipeline, which starts and closes its reading.
    log : Log
        Where they are kept; to be closed at the very end, after the HTTP side.
    """

    desk: Desk
    applying: Applying
    log: Log


def build_corrections(
    settings: Settings,
    remembers: Remembers | None,
    metrics: Metrics,
    clock: Callable[[], float] = time.monotonic,
) -> Corrections | None:
    """Return the room that `corrections.to` asks for; None where it is off.

    With a journal the checkpoint's folder has to be there already, and to be ours alone.

    Parameters
    ----------
    settings : Settings
    remembers : Remembers or None
        The store of recent messages; None where it is off.
    metrics : Metrics
    clock : callable
        Monotonic seconds.

    Raises
    ------
    ConfigError
        Where the label topic is the stream itself, or has no servers.
    CheckpointError
        Where the journal cannot be opened.
    """
    address = settings.corrections.address
    folder = settings.checkpoint.folder
    log: Log
    if address.kind == "kafka":
        log, source = _kafka(settings, address.topic or "")
    elif address.kind == "journal" and folder is not None:
        log = Journal(folder / FILE_NAME)
        source = JournalSource(log)
    else:
        return None
    classes = tuple(settings.model.classes)
    reading = Reading(source, classes, lambda entry: desk.read_back(entry))  # noqa: PLW0108 -- made below
    desk = Desk(
        log,
        remembers,
        classes,
        Examples(kinds_of(settings.model), settings.message),
        lambda: _why_not(reading, log),
        bound=f"the newest {settings.recent.messages_max} messages",
    )
    applying = Applying(reading, settings.model.fields, metrics.corrections, clock)
    return Corrections(desk, applying, log)


def _why_not(reading: Reading, log: Log) -> str | None:
    if reading.trouble is not None:
        return f"corrections cannot be read back: {reading.trouble}"
    if not reading.caught_up.is_set():
        return f"the corrections of before are still being read from {log.name}"
    return None


def _kafka(settings: Settings, topic: str) -> tuple[Log, Source]:
    """Return the label topic to append to, and to be read by a group of this process alone."""
    from consumers.kafka.correction_log import KafkaLog  # noqa: PLC0415 -- it costs time at the start
    from consumers.kafka.source import KafkaSource  # noqa: PLC0415

    if settings.source_address.topic == topic:
        raise ConfigError(
            f"corrections.to: kafka:{topic} has the name of the stream; name another topic, as "
            "positions are known by it"
        )
    servers = settings.output_servers
    # All daemons read all of it. What is applied here stands in our checkpoint, so the group needs
    # no name that lasts, and with a new one nobody waits for the time-out of a member that died.
    group_id = f"{settings.kafka.group_id}-corrections-{uuid.uuid4().hex[:8]}"
    kafka = settings.kafka.model_copy(update={"group_id": group_id, "start_from": "earliest"})
    return KafkaLog(servers, topic, settings.kafka), KafkaSource(servers, topic, kafka)
