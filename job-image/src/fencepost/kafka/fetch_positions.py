"""How far a consumer has fetched, by its statistics: also where it gives no record.

librdkafka skips the records of aborted transactions without a word, and `Consumer.position` is that of what it gave.
Its statistics have the offset that it fetches next.  They may still have that of an earlier assignment, so they are of
use for a consumer that has one assignment in its life.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Final

INTERVAL: Final = 1.0
"""Seconds between two reports."""

Partition = tuple[str, int]


class FetchPositions:
    """Takes a consumer's reports; offsets are the next to fetch."""

    def __init__(self, starts: Mapping[Partition, int]) -> None:
        self._furthest = dict(starts)
        self._has_moved = False
        self._quiet: deque[Mapping[Partition, int]] = deque(maxlen=2)
        """The last reports since the consumer last gave something."""

    def report(self, text: str) -> None:
        """Take the JSON that librdkafka hands to `stats_cb`."""
        found = {
            (topic, int(number)): int(partition["next_offset"])
            for topic, one in json.loads(text)["topics"].items()
            for number, partition in one["partitions"].items()
        }
        for key, offset in found.items():
            if offset > self._furthest.get(key, offset):
                self._furthest[key] = offset
                self._has_moved = True
        self._quiet.append(found)

    def given(self) -> None:
        """Note that the consumer gave something: a report from before that may count what it is still to give."""
        self._quiet.clear()

    def moved(self) -> bool:
        """Return whether the consumer has fetched more since the last call."""
        moved, self._has_moved = self._has_moved, False
        return moved

    def passed(self, partition: Partition) -> int | None:
        """Return an offset before which nothing is to come, None while none is known.

        What is fetched is queued before it is reported, and the queue was empty after the first of two reports.
        """
        if len(self._quiet) < 2:  # noqa: PLR2004 - see above
            return None
        return min(report.get(partition, -1) for report in self._quiet)
