"""Kafka as a source, a sink and a log of corrections, over two clients."""
