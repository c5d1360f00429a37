"""How much a batch may hold: records by the batches before it, and the size of one that does not fit into memory."""
