"""Stateful pipelines beside native Structured Streaming: batches, restores, recovery, and what each batch costs."""
