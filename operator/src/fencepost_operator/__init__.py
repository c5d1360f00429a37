"""The Fencepost operator: observe, decide, record, act; one task per pipeline."""
