"""One batch: the offsets that it reads, and what came of it.

Offsets are the next to read; a range is [start, until).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fencepost.contract import offset_key, split_offset_key


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Kafka at one moment: per partition the first offset and the end, per topic its id. Absent topics are absent."""

    begins: Mapping[str, int]
    ends: Mapping[str, int]
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Offsets [start, until) of one partition."""

    topic: str
    partition: int
    start: int
    until: int

    @property
    def key(self) -> str:
        """'topic/partition'."""
        return offset_key(self.topic, self.partition)

    @property
    def records(self) -> int:
        """Offsets in the range; at least the number of records (compaction and transactions leave gaps)."""
        return self.until - self.start


@dataclass(frozen=True, slots=True)
class Batch:
    """A bounded read: its ranges, and every partition's offset after it."""

    ranges: tuple[Range, ...]
    until: Mapping[str, int]

    @property
    def records(self) -> int:
        """Offsets in all ranges."""
        return sum(part.records for part in self.ranges)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return not self.ranges

    def spans(self) -> dict[str, tuple[int, int]]:
        """Return {'topic/partition': (start, until)}, as in a verdict."""
        return {part.key: (part.start, part.until) for part in self.ranges}


EMPTY: Final = Batch(ranges=(), until={})


def between(offsets: Mapping[str, int], until: Mapping[str, int]) -> Batch:
    """Return the batch that leads from one map of offsets to another; what does not grow is not read.

    A partition that `offsets` does not have yet grew meanwhile, and starts at 0 (see `advance`).
    """
    starts = {key: offsets.get(key, 0) for key in until}
    ranges = [Range(*split_offset_key(key), starts[key], end) for key, end in until.items() if end > starts[key]]
    return Batch(ranges=tuple(sorted(ranges)), until={**offsets, **{part.key: part.until for part in ranges}})


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch did: rows a sink, and milliseconds a phase."""

    rows: Mapping[str, int]
    phases: Mapping[str, int] = field(default_factory=dict)
