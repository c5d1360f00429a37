"""Keys of offsets maps."""

from __future__ import annotations

from collections.abc import Iterable


def offset_key(topic: str, partition: int) -> str:
    """Return the key of a partition in offsets maps: 'topic/partition'."""
    return f"{topic}/{partition}"


def record_place(key: str, offset: int) -> str:
    """Return the place of a record of a 'topic/partition' in messages and commands: 'topic/partition@offset'."""
    return f"{key}@{offset}"


def split_offset_key(key: str) -> tuple[str, int]:
    """Return (topic, partition) of an offsets key. Raises ValueError when it is not one."""
    topic, _, partition = key.rpartition("/")
    if not topic:
        raise ValueError(f"not a 'topic/partition' key: {key!r}")
    return topic, int(partition)


def topics_of(keys: Iterable[str]) -> frozenset[str]:
    """Return the topics of the keys of an offsets map. Raises ValueError where one is not such a key."""
    return frozenset(split_offset_key(key)[0] for key in keys)
