"""Messages for tests of what comes behind the decoder: made by the real one, from JSON lines."""

from __future__ import annotations

from collections.abc import Sequence

from consumers.config.settings import Settings
from consumers.decode.decoder import Decoder
from consumers.factories import build_decoder, build_source, known_classes
from consumers.messages import Messages, Partition, RawColumns
from consumers.sources.records import raw_columns, split_lines


def decoder(settings: Settings | None = None) -> Decoder:
    """Return the decoder of some settings, else of the default ones."""
    settings = settings or Settings()
    classes = known_classes(settings, None)
    return build_decoder(settings, build_source(settings, until_end=False), classes)


def raw(partition: Partition, lines: Sequence[bytes], first: int = 0) -> RawColumns:
    """Return lines as a source hands them over, their offsets counted up from `first`."""
    buffer = b"".join(line + b"\n" for line in lines)
    records = split_lines(buffer, last=True)
    offsets = records.starts * 0 + range(first, first + len(lines))
    return raw_columns(partition, buffer, records, offsets, first + len(lines))


def messages(partition: Partition, lines: Sequence[bytes], first: int = 0) -> Messages:
    """Return lines as they come out of the decoder."""
    return decoder().decode(raw(partition, lines, first))
