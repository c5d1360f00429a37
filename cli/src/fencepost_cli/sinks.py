"""Do the rows of a sink agree with the committed offsets?

A sink whose primary key holds topic, partition and offset says of each row which record it came from.  So the offsets
that have a row can be counted and held against the range that was committed.  What this cannot prove: a transform may
drop records, a compacted topic and the markers of transactions leave offsets without a record, and one record may
become several rows.  So offsets without a row, and with several, are reported and not judged, unless the caller says
that each offset makes exactly one row.  A row beyond what the fence row planned is always wrong.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from fencepost.contract import offset_key, split_offset_key
from fencepost.fence import FenceRow
from fencepost_cli.ports import Column

COORDINATES: Final = {"topic": "text", "partition": "int", "offset": "bigint"}
"""Columns that say which record a row came from, and their CQL types."""
SAMPLES: Final = 5
"""Ranges without a row that a report shows for each partition."""
_CHUNK: Final = 1 << 15
"""Offsets of one piece of a set."""
_FULL: Final = bytearray(b"\xff" * (_CHUNK // 8))


@dataclass(slots=True)
class Offsets:
    """A set of offsets, a bit each, and how often one was added again."""

    rows: int = 0
    repeated: int = 0
    chunks: dict[int, bytearray] = field(default_factory=dict)

    def add(self, offset: int) -> None:
        """Add the offset of one row."""
        chunk, bit = divmod(offset, _CHUNK)
        bits = self.chunks.get(chunk)
        if bits is None:
            bits = self.chunks[chunk] = bytearray(_CHUNK // 8)
        mask = 1 << (bit & 7)
        self.rows += 1
        if bits[bit >> 3] & mask:
            self.repeated += 1
        bits[bit >> 3] |= mask

    def __contains__(self, offset: int) -> bool:
        chunk, bit = divmod(offset, _CHUNK)
        bits = self.chunks.get(chunk)
        return bits is not None and bool(bits[bit >> 3] & 1 << (bit & 7))

    @property
    def lowest(self) -> int | None:
        """The lowest offset; None without one."""
        if not self.chunks:
            return None
        first = min(self.chunks)
        return next(offset for offset in range(first * _CHUNK, (first + 1) * _CHUNK) if offset in self)

    def count(self, start: int, until: int) -> int:
        """Return how many offsets of [start, until) are in the set."""
        return sum(
            (int.from_bytes(bits, "little") & _mask(chunk, start, until)).bit_count()
            for chunk, bits in self.chunks.items()
        )

    def holes(self, start: int, until: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges [from, until) of [start, until) that are not in the set."""
        hole: int | None = None
        offset, chunks = start, sorted(self.chunks)
        while offset < until:
            step = self._alike(offset, until, chunks)
            if offset not in self:
                hole = offset if hole is None else hole
            elif hole is not None:
                yield hole, offset
                hole = None
            offset += step
        if hole is not None:
            yield hole, until

    def _alike(self, offset: int, until: int, chunks: Sequence[int]) -> int:
        """Return how many offsets from here on are all in the set, or all not; at least one. `chunks` are sorted."""
        chunk = offset // _CHUNK
        bits = self.chunks.get(chunk)
        if bits is None:
            following = bisect(chunks, chunk)
            return min(chunks[following] * _CHUNK, until) - offset if following < len(chunks) else until - offset
        rest = min((chunk + 1) * _CHUNK, until) - offset
        return rest if bits == _FULL else 1


def _mask(chunk: int, start: int, until: int) -> int:
    """Return the bits of a chunk that lie in [start, until)."""
    low = min(max(start - chunk * _CHUNK, 0), _CHUNK)
    high = min(max(until - chunk * _CHUNK, 0), _CHUNK)
    return ((1 << high) - 1) ^ ((1 << low) - 1) if high > low else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCount:
    """One partition of a sink. `start` and `until` bound what was committed; the rest counts.

    `start_known` False: the history does not reach back to the first offset, so `start` is the lowest offset that has a
    row.  `in_progress` are rows of batches that were not committed when the check began; `beyond` are rows of offsets
    that nobody had planned when it ended.
    """

    partition: str
    start: int
    start_known: bool
    until: int
    rows: int
    offsets: int
    missing: int
    repeated: int
    before: int
    in_progress: int
    beyond: int
    holes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReport:
    """What one sink came to; `skipped` says why it was not read."""

    sink: str
    table: str
    skipped: str | None = None
    partitions: tuple[PartitionCount, ...] = ()
    other_rows: int = 0
    """Rows of topics that are not the pipeline's."""


def why_not(columns: Sequence[Column]) -> str | None:
    """Return why a table cannot be held against offsets; None when it can."""
    if not columns:
        return "the table does not exist"
    key = {column.name: column.type for column in columns if column.kind in {"partition_key", "clustering"}}
    wrong = [name for name, kind in COORDINATES.items() if key.get(name) != kind]
    if wrong:
        return f"its primary key has no {', '.join(f'{name} {COORDINATES[name]}' for name in wrong)}"
    return None


def partition_key(columns: Sequence[Column]) -> list[str]:
    """Return the names of the partition key's columns, in their order."""
    keys = [column for column in columns if column.kind == "partition_key"]
    return [column.name for column in sorted(keys, key=lambda column: column.position)]


def collect(positions: Iterable[tuple[str, int, int]], topics: Sequence[str]) -> tuple[dict[str, Offsets], int]:
    """Return the offsets that have rows, by 'topic/partition', and how many rows are of other topics."""
    found: dict[tuple[str, int], Offsets] = {}
    wanted, others = frozenset(topics), 0
    for topic, partition, offset in positions:
        if topic not in wanted or offset < 0:
            others += 1
            continue
        place = found.get((topic, partition))
        if place is None:
            place = found[topic, partition] = Offsets()
        place.add(offset)
    return {offset_key(*place): offsets for place, offsets in found.items()}, others


def compare(
    found: Mapping[str, Offsets], *, starts: Mapping[str, int], before: FenceRow, after: FenceRow
) -> tuple[PartitionCount, ...]:
    """Hold the offsets that have rows against the fence row, read before and after the rows were.

    `starts` are the first offsets that were ever read, where the history has them.
    """
    reached = {**after.offsets, **{key: max(end, after.offsets.get(key, 0)) for key, end in after.planned.items()}}
    return tuple(
        _count(key, found.get(key, Offsets()), starts.get(key), before.offsets.get(key, 0), reached.get(key, 0))
        for key in sorted({*found, *before.offsets}, key=split_offset_key)
    )


def _count(key: str, offsets: Offsets, start: int | None, until: int, planned: int) -> PartitionCount:
    lowest = offsets.lowest
    first = start if start is not None else min(lowest if lowest is not None else until, until)
    distinct = offsets.rows - offsets.repeated
    committed, within = offsets.count(first, until), offsets.count(first, max(planned, until))
    below = offsets.count(0, first)
    missing = max(until - first, 0) - committed
    holes = islice(offsets.holes(first, until), SAMPLES) if missing else ()
    return PartitionCount(
        partition=key,
        start=first,
        start_known=start is not None,
        until=until,
        rows=offsets.rows,
        offsets=committed,
        missing=missing,
        repeated=offsets.repeated,
        before=below,
        in_progress=within - committed,
        beyond=distinct - below - within,
        holes=tuple(holes),
    )
