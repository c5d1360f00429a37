"""Kafka by librdkafka: the log's offsets in the driver, its records in the Python workers."""
