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

from fencepost.contract import Reason, offset_key, split_offset_key
from fencepost.contract.losses import starts_of
from fencepost.fence import FenceRow
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.ports import Column

COORDINATES: Final = {"topic": "text", "partition": "int", "offset": "bigint"}
"""Columns that say which record a row came from, and their CQL types."""
SAMPLES: Final = 5
"""Ranges without a row that a report shows for each partition."""
_CHUNK: Final = 1 << 15
"""Offsets of one piece of a set."""
MOST_CHUNKS: Final = 1 << 18
"""Pieces of all partitions of one table, of 4 KiB each: offsets of an honest table are close to each other."""
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
    row.  `lost` are committed offsets without a row that were accepted as lost.  `in_progress` are rows of batches
    that were not committed when the check began; `beyond` are rows of offsets that were not planned when it ended;
    `earlier` are rows beyond of a log that was replaced or truncated, as was accepted.
    """

    partition: str
    start: int
    start_known: bool
    until: int
    rows: int
    offsets: int
    missing: int
    lost: int
    repeated: int
    before: int
    in_progress: int
    beyond: int
    earlier: int
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


class TooWide(Exception):
    """A table holds more than one command compares."""


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
    """Return the offsets that have rows, by 'topic/partition', and how many rows are of other topics.

    Raises TooWide.
    """
    found: dict[tuple[str, int], Offsets] = {}
    wanted, others, chunks = frozenset(topics), 0, 0
    for topic, partition, offset in positions:
        if topic not in wanted or offset < 0:
            others += 1
            continue
        place = found.get((topic, partition))
        if place is None:
            place = found[topic, partition] = Offsets()
        known = len(place.chunks)
        place.add(offset)
        chunks += len(place.chunks) - known
        if chunks > MOST_CHUNKS:
            raise TooWide(f"its offsets are spread over more than {MOST_CHUNKS:,} pieces of {_CHUNK:,}")
    return {offset_key(*place): offsets for place, offsets in found.items()}, others


def compare(
    found: Mapping[str, Offsets],
    *,
    starts: Mapping[str, int],
    before: FenceRow,
    after: FenceRow,
    accepted: Iterable[AcceptedLoss] = (),
) -> tuple[PartitionCount, ...]:
    """Hold the offsets that have rows against the fence row, read before and after the rows were.

    `starts` are the first offsets that were ever read of the log that is there now, where the history has them.
    `accepted` are the offsets that can no longer be read.
    """
    reached = {**after.offsets, **after.written_until}
    losses: dict[str, list[AcceptedLoss]] = {}
    for loss in accepted:
        losses.setdefault(loss.partition, []).append(loss)
    return tuple(
        _count(
            key,
            found.get(key, Offsets()),
            _Losses.of(key, losses.get(key, ())),
            start=starts.get(key),
            until=before.offsets.get(key, 0),
            planned=reached.get(key, 0),
        )
        for key in sorted({*found, *before.offsets}, key=split_offset_key)
    )


@dataclass(frozen=True, slots=True)
class _Losses:
    """What the accepted losses of one partition say of its rows."""

    gone: tuple[tuple[int, int], ...]
    """Ranges of the log that is there now, without records: in order, apart from each other."""
    earlier_until: int
    """Where a log ended that was replaced or truncated: below it, its rows may still be there."""
    start: int | None
    """Where the accepted loss lets the pipeline begin in the current log."""

    @classmethod
    def of(cls, key: str, losses: Iterable[AcceptedLoss]) -> _Losses:
        gone: list[tuple[int, int]] = []
        earlier_until, start = 0, None
        for loss in sorted(losses, key=lambda loss: (loss.at is not None, loss.at, loss.start)):
            if loss.is_replaced:
                gone, start = [], starts_of(loss.choice or "").get(key)
            if loss.reason in {Reason.OFFSET_OUT_OF_RANGE, Reason.POISON_RECORD}:
                gone.append((loss.start, loss.until))
            else:
                earlier_until = max(earlier_until, loss.start, loss.until)
        return cls(tuple(_apart(gone)), earlier_until, start)


def _apart(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the same offsets in ranges that come in order and do not meet."""
    last: tuple[int, int] | None = None
    for start, until in sorted(ranges):
        if last is not None and start <= last[1]:
            last = last[0], max(last[1], until)
            continue
        if last is not None:
            yield last
        last = start, until
    if last is not None:
        yield last


def _between(start: int, until: int, gone: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of [start, until) that are left without those that are gone."""
    for low, high in gone:
        if start < min(low, until):
            yield start, min(low, until)
        start = max(start, high)
    if start < until:
        yield start, until


def _count(
    key: str, offsets: Offsets, losses: _Losses, *, start: int | None, until: int, planned: int
) -> PartitionCount:
    lowest, known = offsets.lowest, start if start is not None else losses.start
    first = known if known is not None else min(lowest if lowest is not None else until, until)
    reached = max(planned, until)
    committed, within = offsets.count(first, until), offsets.count(first, reached)
    left = tuple(_between(first, until, losses.gone))
    missing = sum(high - low - offsets.count(low, high) for low, high in left)
    holes = (hole for low, high in left for hole in offsets.holes(low, high))
    above = offsets.rows - offsets.repeated - offsets.count(0, first) - within
    earlier = offsets.count(max(first, reached), max(losses.earlier_until, reached))
    return PartitionCount(
        partition=key,
        start=first,
        start_known=known is not None,
        until=until,
        rows=offsets.rows,
        offsets=committed,
        missing=missing,
        lost=max(until - first, 0) - committed - missing,
        repeated=offsets.repeated,
        before=offsets.count(0, first),
        in_progress=within - committed,
        beyond=above - earlier,
        earlier=earlier,
        holes=tuple(islice(holes, SAMPLES)) if missing else (),
    )
