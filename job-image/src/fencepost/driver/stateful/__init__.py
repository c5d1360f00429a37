"""A run of a stateful pipeline: Spark's query, the plans of its batches, and how Spark reaches its checkpoint."""
