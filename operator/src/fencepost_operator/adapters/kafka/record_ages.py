"""How old the record at an offset is, without reading it: by asking Kafka for the offsets of timestamps, and bisecting.

Kafka answers a timestamp with the first offset whose record is at least as young.  That offset is at most C exactly
when some record up to C is as young as the timestamp, so bisecting finds the largest timestamp among the records up to
C.  For timestamps that grow with the offset that is C's own.  For others it is what retention goes by: Kafka deletes a
segment once its youngest record is too old, and no segment before those in front of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from fencepost_operator.observation import NO_RECORD

PRECISION: Final = 5_000
"""Milliseconds, or this many and 1 % of the age: how much older than it is a record may seem."""
FRACTION: Final = 0.01
STEPS: Final = 6
"""Requests per look. Some 12 find any age, and one is enough for a record that has just arrived."""
RENEWED_AFTER: Final = 15_000
"""Milliseconds for which the age at an earlier offset stands for that at the committed one: it is never younger."""


@dataclass(slots=True)
class _Bracket:
    """Where the timestamp of the record at `offset` lies: low ≤ it < high, in ms since 1970.

    `reference` is when the search began: ages count from there, and the first question is for the last seconds.
    """

    offset: int
    low: int
    high: int
    reference: int
    asked: bool = False

    @property
    def settled(self) -> bool:
        oldest, width = self.reference - self.low, self.high - self.low
        return width <= max(PRECISION, FRACTION * oldest)

    def question(self) -> int:
        """Return the timestamp whose answer halves the possible ages, by their logarithm."""
        if not self.asked:
            return max(self.low, self.reference - PRECISION)
        youngest, oldest = max(1, self.reference - self.high), self.reference - self.low
        return min(self.high - 1, max(self.low + 1, self.reference - math.isqrt(youngest * oldest)))


class RecordAges:
    """The searches of one reader of topics, and what they found. Keys are 'topic/partition'."""

    def __init__(self) -> None:
        self._brackets: dict[str, _Bracket] = {}

    def look_for(self, offsets: Mapping[str, int], now: datetime) -> None:
        """Say at which offset of which partitions the record's age is wanted from now on."""
        at = milliseconds(now)
        for gone in self._brackets.keys() - offsets.keys():
            del self._brackets[gone]
        for key, offset in offsets.items():
            before = self._brackets.get(key)
            if before is None:
                self._brackets[key] = _Bracket(offset, 0, at, at)
            elif offset < before.offset:
                self._brackets[key] = _Bracket(offset, 0, before.high, at, asked=True)
            elif offset > before.offset and before.settled and at - before.reference >= RENEWED_AFTER:
                self._brackets[key] = _Bracket(offset, min(before.low, at), at, at)

    def forget(self, topics: Collection[str]) -> None:
        """Drop what was found for topics that were recreated."""
        for key in [key for key in self._brackets if key.rpartition("/")[0] in topics]:
            del self._brackets[key]

    def questions(self) -> Mapping[str, int]:
        """Return the timestamp to ask next of each partition whose search is not over, in ms since 1970."""
        return {key: bracket.question() for key, bracket in self._brackets.items() if not bracket.settled}

    def answer(self, key: str, timestamp: int, offset: int) -> None:
        """Take Kafka's answer: the first offset at or after a timestamp. Whatever it is, the search gets narrower."""
        bracket = self._brackets.get(key)
        if bracket is None:
            return
        bracket.asked = True
        if offset != NO_RECORD and offset <= bracket.offset:
            bracket.low = min(max(bracket.low, timestamp), bracket.high)
        else:
            bracket.high = max(min(bracket.high, timestamp), bracket.low)

    def found(self) -> Mapping[str, datetime]:
        """Return since when the record has been there, where that was found; one without a timestamp is left out."""
        return {
            key: datetime.fromtimestamp(bracket.low // 1000, UTC)
            for key, bracket in self._brackets.items()
            if bracket.settled and bracket.low
        }


def milliseconds(moment: datetime) -> int:
    """Return a moment as Kafka counts it: milliseconds since 1970."""
    return int(moment.timestamp() * 1000)
