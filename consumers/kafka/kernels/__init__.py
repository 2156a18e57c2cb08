"""Compiled loops over Kafka's record batches."""
