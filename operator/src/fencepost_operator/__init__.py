"""The Fencepost operator: observe, decide, record, act; one loop a pipeline."""
