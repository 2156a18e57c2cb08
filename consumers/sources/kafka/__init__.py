"""A Kafka topic as a source, read by kafka-python.

`source` is the whole; `places` knows where reading stands, `columns` turns records into arrays,
`listener` and `committer` speak with the group, `client` holds what is odd about the client.
"""

from consumers.sources.kafka.source import KafkaSource

__all__ = ["KafkaSource"]
