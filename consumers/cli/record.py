"""A live stream into a recording: messages as they come, with all that is needed to replay them.

A second run on the same file goes on behind the last whole message of each partition, so a
recorder may be stopped, killed and started again: nothing is doubled, and nothing is left out that
the source still has. `consumers.sources.recording` has the format, reads and writes it.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from consumers.config.addresses import StreamRange
from consumers.config.settings import Settings
from consumers.decode.rows import RecordFormat
from consumers.factories import build_source, stream_identity
from consumers.messages import RawColumns
from consumers.sources.base import Source
from consumers.sources.recording import (
    RecordingHead,
    RecordingWriter,
)

_POLL_TIMEOUT_S: Final = 0.2
_DURATION: Final = re.compile(r"(?P<n>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h|d)")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


@dataclass(slots=True)
class Recorded:
    """What a run recorded, and why it ended; `file_bytes` is the size of the whole file."""

    messages: int = 0
    value_bytes: int = 0
    file_bytes: int = 0
    positions: dict[str, int] | None = None
    reason: Literal["told to stop", "end of source", "max messages", "time is up"] = "told to stop"


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """When a recording ends by itself."""

    until_end: bool = False
    messages_max: int | None = None
    seconds_max: float | None = None
    part: StreamRange | None = None


def duration_s(text: str) -> float:
    """Return the seconds of a duration such as `90s`, `5m`, `2h` or `1d`, or raise `ValueError`."""
    match = _DURATION.fullmatch(text)
    if match is None or float(match["n"]) <= 0:
        raise ValueError(f"must be a number with ms, s, m, h or d, such as 90s or 2h, not {text!r}")
    return float(match["n"]) * _UNITS_S[match["unit"]]


def source_to_record(settings: Settings, limits: RecordLimits) -> Source:
    """Return the source that `source` names, unopened.

    A topic is read record by record, as only records have headers, and in a group of its own: the
    recorder takes no partition away from the daemon that learns from the topic.
    """
    address = settings.source_address
    if address.kind != "kafka":
        return build_source(settings, until_end=limits.until_end, part=limits.part)
    own = {
        "client": "kafka-python",
        "decode": "records",
        "group_id": f"{settings.kafka.group_id}-record-{uuid.uuid4().hex[:8]}",
    }
    kafka = settings.kafka.model_copy(update=own)
    settings = settings.model_copy(update={"kafka": kafka})
    return build_source(settings, until_end=limits.until_end, part=limits.part)


def record(
    settings: Settings,
    path: Path,
    limits: RecordLimits,
    stop: threading.Event,
    *,
    show: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Recorded:
    """Record the source of the settings until it ends, a limit is reached or `stop` is set.

    A source that cannot be read on is a `SourceError`, a file that cannot be written a `SinkError`;
    what was recorded until then is whole.
    """
    source = source_to_record(settings, limits)
    try:
        writer = RecordingWriter(path, _head(settings, source.record_format), clock)
        try:
            with _Shown(source, path, show) as shown:
                done = _record(source, writer, limits, stop, shown, clock)
        finally:
            writer.close()
    finally:
        source.close()
    return done


def _head(settings: Settings, form: RecordFormat) -> RecordingHead:
    return RecordingHead(stream=stream_identity(settings), format=form)


def _record(
    source: Source,
    writer: RecordingWriter,
    limits: RecordLimits,
    stop: threading.Event,
    shown: _Shown,
    clock: Callable[[], float],
) -> Recorded:
    done = Recorded()
    until_end = limits.until_end or (limits.part is not None and limits.part.end is not None)
    until_s = None if limits.seconds_max is None else clock() + limits.seconds_max
    source.resume(writer.logs)
    source.open(writer.positions.get)
    try:
        while not stop.is_set():
            batches = source.poll(_POLL_TIMEOUT_S)
            writer.begin(source.beginnings)
            for raw in batches:
                _take(raw, writer, limits, done)
            writer.flush_if_due()
            shown.update(done, writer)
            if done.messages == limits.messages_max:
                done.reason = "max messages"
                break
            if until_s is not None and clock() >= until_s:
                done.reason = "time is up"
                break
            if until_end and not batches and source.at_end():
                done.reason = "end of source"
                break
    finally:
        writer.flush()
    done.file_bytes = writer.n_bytes
    done.positions = {str(each): at for each, at in sorted(writer.positions.items())}
    return done


def _take(raw: RawColumns, writer: RecordingWriter, limits: RecordLimits, done: Recorded) -> None:
    """Write a batch, or as much of it as is still asked for."""
    if limits.messages_max is not None:
        if done.messages == limits.messages_max:
            return
        raw = raw.head(limits.messages_max - done.messages)
    writer.add(raw)
    done.messages += len(raw)
    lengths = raw.value_ends - raw.value_starts
    done.value_bytes += int(lengths[raw.value_ends >= 0].sum())


class _Shown:
    """The progress at a terminal: how many messages, how many bytes, and what is in the way."""

    def __init__(self, source: Source, path: Path, show: bool) -> None:
        self._source = source
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
            disable=not show,
        )  # fmt: skip
        self._name = f"{source.name} → {path.name}"
        self._task = self._progress.add_task(self._name, total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, done: Recorded, writer: RecordingWriter) -> None:
        """Show how far it is."""
        if self._progress.disable:
            return
        lag = sum(self._source.lag().values())
        trouble = self._source.trouble()
        text = f"{self._name}: {done.messages:,} messages, {writer.n_bytes / 1e6:,.1f} MB"
        text += f", {lag:,} behind" if lag else ""
        text += f" ({trouble})" if trouble else ""
        self._progress.update(self._task, description=text)
