"""Keys of offsets maps."""

from __future__ import annotations


def offset_key(topic: str, partition: int) -> str:
    """Return the key of a partition in offsets maps: 'topic/partition'."""
    return f"{topic}/{partition}"


def split_offset_key(key: str) -> tuple[str, int]:
    """Return (topic, partition) of an offsets key. Raises ValueError when it is not one."""
    topic, _, partition = key.rpartition("/")
    if not topic:
        raise ValueError(f"not a 'topic/partition' key: {key!r}")
    return topic, int(partition)
