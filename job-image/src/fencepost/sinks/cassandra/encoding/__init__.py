"""Arrow batches as the bodies of Cassandra's requests: columns to cells, cells to rows, rows to batches."""
