"""A batch that fails, and records that Kafka lost: what is set aside, skipped or accepted; where reading resumes."""
