"""A seeded model of one stateful pipeline: random histories with faults on the real checkpoint, fence and services."""
