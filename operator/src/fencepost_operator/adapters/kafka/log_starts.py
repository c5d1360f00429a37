"""How fast the start of a log advances, from looking at it again and again.

Kafka deletes whole segments, so the start stands still and then jumps.  Between two jumps the start says nothing, so
the speed is taken from the first jump that was seen to the last one.  When a jump is overdue, the time beyond the usual
interval counts as well: a log that gets no more records is not deleted any faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.observation import LogStart

JUMPS: Final = 16
"""How many jumps of a partition are remembered."""
SHORTEST_SPAN: Final = timedelta(minutes=5)
"""From the first jump to the last one; brokers look every five minutes for segments to delete."""
_ONE_JUMP: Final = timedelta(minutes=1)
"""Advances within this time are one jump: `kafka-delete-records.sh` may move the start at any moment."""


class LogStarts:
    """The jumps of the partitions of one reader's topics. Keys are 'topic/partition'."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._jumps: dict[str, deque[tuple[datetime, int]]] = {}

    def saw(self, starts: Mapping[str, int], now: datetime) -> None:
        """Take the starts as they are now. One that went back is of another log."""
        for key, start in starts.items():
            last = self._last.get(key, start)
            self._last[key] = start
            if start < last:
                self._jumps.pop(key, None)
            elif start > last:
                jumps = self._jumps.setdefault(key, deque(maxlen=JUMPS))
                if jumps and now - jumps[-1][0] < _ONE_JUMP:
                    jumps[-1] = (jumps[-1][0], start)
                else:
                    jumps.append((now, start))

    def trends(self, now: datetime) -> Mapping[str, LogStart]:
        """Return the speed of each partition that has jumped at least twice, over at least five minutes."""
        found: dict[str, LogStart] = {}
        for key, jumps in self._jumps.items():
            (began, first), (ended, last) = jumps[0], jumps[-1]
            span = ended - began
            if span < SHORTEST_SPAN:
                continue
            usual = span / (len(jumps) - 1)
            seconds = max(span, now - began - usual).total_seconds()
            found[key] = LogStart(offset=last, at=ended, per_second=(last - first) / seconds)
        return found
