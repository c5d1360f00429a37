"""Leader epochs as the fence row stores them: with a checksum of the offsets that they belong to.

An epoch and an offset are a pair.  An older release commits offsets and leaves a column that it does not know, so that
the epochs in it belong to offsets of before.  The checksum shows it: one more entry of the map. It needs no column of
its own and covers the topics' ids, because a recreated topic may have the same offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from zlib import crc32

CHECKSUM: Final = "@offsets"
"""The entry's key; no partition has it, because a topic's name has no '@'."""


def sealed(epochs: Mapping[str, int], offsets: Mapping[str, int], topic_ids: Mapping[str, str]) -> dict[str, int]:
    """Return what is stored: nothing where no epoch is known."""
    return {**epochs, CHECKSUM: _checksum(offsets, topic_ids)} if epochs else {}


def unsealed(stored: Mapping[str, int], offsets: Mapping[str, int], topic_ids: Mapping[str, str]) -> dict[str, int]:
    """Return the epochs that were stored with these offsets, none of other ones."""
    if stored.get(CHECKSUM) != _checksum(offsets, topic_ids):
        return {}
    return {key: epoch for key, epoch in stored.items() if key != CHECKSUM}


def _checksum(offsets: Mapping[str, int], topic_ids: Mapping[str, str]) -> int:
    text = json.dumps([dict(offsets), dict(topic_ids)], sort_keys=True)
    return crc32(text.encode()) & 0x7FFF_FFFF  # the map's values are signed 32-bit integers
