"""The Kafka sink: its half in the driver, and its half in the Python workers."""
