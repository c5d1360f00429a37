"""Kafka, asked with the properties of a pipeline."""
