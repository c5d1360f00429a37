"""What a run reports: its log, its metrics, its committed batches and its verdict."""
