"""Sources, sinks and labellers as the settings describe them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from consumers.config.settings import EmoticonLabels, KafkaSettings, OutputSettings, Settings
from consumers.decode.decoder import Decoder
from consumers.decode.labels import EmoticonLabeller, FieldLabeller, Labeller
from consumers.errors import ConfigError
from consumers.features import extra_fields, kinds_of
from consumers.sinks.base import NoSink, Sink
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sources.base import Source
from consumers.sources.file import FileSource
from consumers.sources.generator import GeneratorSource
from consumers.sources.stdin import StdinSource


def build_source(settings: Settings, *, until_end: bool) -> Source:
    """Return the source that `source` names, not opened yet.

    Raises
    ------
    ConfigError
        When what reads it is not installed.
    """
    address = settings.source_address
    if address.kind == "kafka":
        return _kafka_source(address.servers, address.topic or "", settings.kafka)
    if address.kind == "file" and address.path is not None:
        return FileSource(address.path, settings.file, follow=not until_end)
    if address.kind == "stdin":
        return StdinSource(settings.file)
    return GeneratorSource(settings.generator)


def _kafka_source(servers: Sequence[str], topic: str, settings: KafkaSettings) -> Source:
    """Return the source on the client that is asked for.

    It is imported here, as a client costs up to a third of a second at the start, and one of them
    need not be installed.
    """
    if settings.client == "kafka-python":
        from consumers.kafka.source import KafkaSource  # noqa: PLC0415

        return KafkaSource(servers, topic, settings)
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigError(
            "kafka.client: 'librdkafka' needs the package 'confluent-kafka', and it is not "
            "installed. Install the extra: pip install 'streamnb[librdkafka]'; or set kafka.client "
            "to 'kafka-python'"
        )
    from consumers.kafka.librdkafka_source import LibrdkafkaSource  # noqa: PLC0415

    return LibrdkafkaSource(servers, topic, settings)


def stream_identity(settings: Settings) -> dict[str, Any]:
    """Return what makes two streams the same: positions of one mean nothing in another."""
    address = settings.source_address
    if address.kind == "kafka":
        return {"source": "kafka", "topic": address.topic}
    if address.kind == "file" and address.path is not None:
        return {"source": "file", "name": address.path.name}
    if address.kind == "generator":
        generator = settings.generator
        made = {
            "source": "generator",
            "seed": generator.seed,
            "labelled_share": generator.labelled_share,
        }
        if generator.stream == "tweets":
            return made | {"turn_after": generator.turn_after}
        return made | {"stream": generator.stream}
    return {"source": address.kind}


def build_decoder(settings: Settings, source: Source) -> Decoder:
    """Return the decoder for what the source hands over."""
    labels = settings.labels
    classes = settings.model.classes
    labeller: Labeller
    if isinstance(labels, EmoticonLabels):
        labeller = EmoticonLabeller(labels, classes)
    else:
        labeller = FieldLabeller(labels, classes)
    fields = dict.fromkeys((*settings.message.fields, *extra_fields(settings.model)))
    message = settings.message.model_copy(update={"fields": tuple(fields)})
    form = getattr(source, "record_format", None)
    return Decoder(message, labeller, form, reads=kinds_of(settings.model))


def build_sink(output: OutputSettings, settings: Settings) -> Sink:
    """Return the sink that an output's `to` names."""
    address = output.address
    if address.kind == "kafka":
        from consumers.kafka.sink import KafkaSink  # noqa: PLC0415 -- as above

        return KafkaSink(settings.output_servers, address.topic or "", settings.kafka)
    if address.kind == "file" and address.path is not None:
        return JsonLinesSink(address.path)
    return NoSink()
