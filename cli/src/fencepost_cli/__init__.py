"""The `fencepost` command line: what a pipeline's fence row, its history, Kafka and the sinks say, read only."""
