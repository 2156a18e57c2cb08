"""A Kafka topic as a source, read by librdkafka, the client written in C (`confluent-kafka`).

`source` is the whole; `member` is our place in the consumer group, `columns` turns messages into
arrays, `faults` knows what comes in the place of messages, `client` holds the settings. Where
reading stands (`_places`) and what is said when something is wrong (`_kafka_sentences`) are shared
with `sources.kafka`.
"""

from consumers.sources.librdkafka.source import LibrdkafkaSource

__all__ = ["LibrdkafkaSource"]
