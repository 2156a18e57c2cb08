"""How commands read a source: all of it or up to given positions, decoded piece by piece."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from rich import progress

from consumers.config.addresses import StreamRange
from consumers.config.settings import Settings
from consumers.decode.decoder import Decoder
from consumers.errors import ConfigError, SourceError
from consumers.factories import build_source
from consumers.messages import Messages, Partition, RawColumns
from consumers.pipeline.reader import pieces
from consumers.sources.base import Source

PIECE_MESSAGES = 50_000
_POLL_TIMEOUT_S = 0.5


def source_apart(settings: Settings, what: str, part: StreamRange | None = None) -> Source:
    """Return the source of the settings for a command, `what`, that reads it once more.

    It takes no partition away from a running daemon, and ends where the stream ends.
    """
    kind = settings.source_address.kind
    if kind == "stdin":
        raise ConfigError("source: stdin cannot be read again; name a file that holds it")
    group_id = f"{settings.kafka.group_id}-{what}-{uuid.uuid4().hex[:8]}"
    own = {
        "kafka": settings.kafka.model_copy(update={"group_id": group_id, "start_from": "earliest"}),
        "generator": settings.generator.model_copy(update={"rate_per_s": 0}),
    }
    part = None if part is None or part.begin is None else StreamRange(part.begin, None)
    return build_source(settings.model_copy(update=own), until_end=True, part=part)


def polls(
    source: Source,
    targets: Mapping[Partition, int] | None,
    begins: Mapping[Partition, int] | None,
    tell: Callable[[str], object],
) -> Iterator[RawColumns]:
    """Yield all of a source up to the targets, and close it; a log without all is a `SourceError`.

    `targets` is None to read on to the source's end, whatever of it is left; `begins` is where to
    begin, None for where the source does by itself.
    """
    places = targets or {}
    reached = dict.fromkeys(places, -1) if begins is None else {p: begins[p] for p in places}
    try:
        source.open(lambda each: None if begins is None else begins.get(each))
        while targets is None or any(reached[each] < at for each, at in targets.items()):
            batches = source.poll(_POLL_TIMEOUT_S)
            if targets is not None and source.lost_messages:
                raise SourceError(
                    f"{source.name}: {source.lost_messages} messages from the beginning on are no "
                    "longer there, so that their counts cannot be verified. Give the topic a longer"
                    " retention, or verify against a recording of it"
                )
            for raw in batches:
                n = len(raw)
                if targets is not None:
                    n = int(np.searchsorted(raw.offsets, targets.get(raw.partition, 0)))
                if n:
                    yield raw.head(n)
                if raw.partition in reached:
                    reached[raw.partition] = max(reached[raw.partition], raw.next_offset)
            tell(f"{source.name}{f' ({source.trouble()})' if source.trouble() else ''}")
            if not batches and source.at_end():
                break
    finally:
        source.close()
    short = {each: at for each, at in places.items() if reached[each] < at}
    if short and source.name != "kafka":  # there the last offsets may be no messages
        raise SourceError(
            f"{source.name}: ends before offset {next(iter(short.values()))} of"
            f" {next(iter(short))}, up to which the checkpoint has read; name the whole of it"
        )


def progress_bar(*, show: bool) -> progress.Progress:
    """Return a bar of progress, shown at a terminal."""
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        disable=not show,
    )


def decode(raw: RawColumns, decoder: Decoder, take: Callable[[Messages], None]) -> None:
    """Decode a batch piece by piece, and hand each on."""
    for piece in pieces(raw, PIECE_MESSAGES):
        take(decoder.decode(piece))
