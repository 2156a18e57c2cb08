"""A Kafka topic as a source, read by kafka-python.

`source` is the whole; `response` decodes what the broker sends, `seam` puts it into the client and
`self_check` says whether it may; `columns` turns what the client gives into batches; `listener` and
`committer` speak with the group, `client` holds what is odd about the client. Where reading stands
(`_places`) and what is said when something is wrong (`_kafka_sentences`) are shared with
`sources.librdkafka`.
"""

from consumers.sources.kafka.source import KafkaSource

__all__ = ["KafkaSource"]
