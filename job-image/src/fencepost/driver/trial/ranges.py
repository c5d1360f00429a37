"""What a trial reads, batch after batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fencepost.batch import Batch, Watermarks, between
from fencepost.contract import split_offset_key


@dataclass(frozen=True, slots=True)
class Reach:
    """The records of a trial that Kafka still has: 'topic/partition' to the first offset, and to the end."""

    start: Mapping[str, int]
    until: Mapping[str, int]

    @property
    def records(self) -> int:
        """How many offsets there are."""
        return sum(max(0, end - self.start[key]) for key, end in self.until.items())


def reach(start: Mapping[str, int], until: Mapping[str, int], log: Watermarks) -> tuple[Reach, int]:
    """Return what is left in the log, and how many offsets are not; a partition without a start begins with its log."""
    wanted = {key: min(start.get(key, 0), end) for key, end in until.items()}
    found = {key: min(max(first, log.begins.get(key, first)), until[key]) for key, first in wanted.items()}
    return Reach(found, dict(until)), sum(found[key] - first for key, first in wanted.items() if key in start)


class Reading:
    """Where a trial is. Partitions that the start does not have come last: their topics grew.

    A key's records before the growth, in an older partition, so come before those after it.
    """

    def __init__(self, reach: Reach, *, grown: frozenset[str], topic_ids: Mapping[str, str]) -> None:
        self._reach = reach
        self._grown = grown
        self._topic_ids = topic_ids
        self.offsets = dict(reach.start)
        """The next offset to read of each partition."""

    def next(self, limit: int) -> Batch | None:
        """Return the next batch of about `limit` offsets, which counts as read; None at the end."""
        open_ = {key: end for key, end in self._reach.until.items() if self.offsets[key] < end}
        turn = {key: end for key, end in open_.items() if key not in self._grown} or open_
        if not turn:
            return None
        share = max(1, limit // len(turn))
        ends = {key: min(end, self.offsets[key] + share) for key, end in turn.items()}
        starts = {key: self.offsets[key] for key in ends}
        self.offsets |= ends
        topics = {split_offset_key(key)[0] for key in ends}
        return between(starts, ends, topic_ids={key: at for key, at in self._topic_ids.items() if key in topics})

    @property
    def done(self) -> int:
        """How many offsets are read."""
        return sum(at - self._reach.start[key] for key, at in self.offsets.items())

    def ranges(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield what is read, 'topic/partition' and [start, until)."""
        for key, at in sorted(self.offsets.items()):
            if at > self._reach.start[key]:
                yield key, (self._reach.start[key], at)
