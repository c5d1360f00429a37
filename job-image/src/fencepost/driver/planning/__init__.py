"""What is read next: where a run begins, what each batch has of Kafka's log, and whether that is still the same log."""
