"""What the tasks of a batch read: one Spark accumulator for the life of a session.

An accumulator that adds would count too much: a task is repeated after a failure or a lost executor, each sink reads
the batch once, and so does each action in the transform.  This one keeps a figure per slice of a batch, and of several
the largest, so that each record counts once whoever reads it how often.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from pyspark.accumulators import AccumulatorParam

from fencepost.batch import Sighting

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

Part: TypeAlias = int | str | tuple[str] | tuple[str, int, int]
"""A slice, a partition, the timestamps of a partition ('topic/partition',), or a record of a partition with its leader
epoch: ('topic/partition', offset, epoch)."""
Figures: TypeAlias = dict[tuple[int, Part], tuple[int, int]]
"""{(batch, slice): (records, bytes)}, {(batch, partition): (offset, 0)} of what is known beyond a range,
{(batch, timestamps): (largest, 0)} in ms since 1970, and
{(batch, record): (0, 0)} of records that show an epoch: two reads of a slice may see different ones, and both count."""


class _Largest(AccumulatorParam[Figures]):
    """Joins two sets of figures."""

    def zero(self, value: Figures) -> Figures:  # noqa: ARG002 - Spark's signature
        """Return no figures."""
        return {}

    def addInPlace(self, value1: Figures, value2: Figures) -> Figures:  # noqa: N802 - Spark's name
        """Put the second figures into the first."""
        for key, figure in value2.items():
            value1[key] = max(figure, value1.get(key, (0, 0)))
        return value1


class SliceCounter:
    """Counts in a worker what it reads of one slice, and reports after each Arrow batch."""

    def __init__(self, accumulator: Accumulator[Figures], batch: int) -> None:
        self._accumulator = accumulator
        self.batch = batch

    def add(self, index: int, records: int, size: int) -> None:
        """Report the records and bytes that one read of the slice `index` has given so far."""
        self._accumulator.add({(self.batch, index): (records, size)})

    def reach(self, key: str, offset: int) -> None:
        """Report that a partition has no record from the slice's end up to `offset`."""
        self._accumulator.add({(self.batch, key): (offset, 0)})

    def add_time(self, key: str, timestamp: int) -> None:
        """Report the largest timestamp of some of a partition's records, in ms since 1970."""
        self._accumulator.add({(self.batch, (key,)): (timestamp, 0)})

    def see(self, key: str, offset: int, epoch: int) -> None:
        """Report the leader epoch of a partition's record."""
        self._accumulator.add({(self.batch, (key, offset, epoch)): (0, 0)})


class ReadCounts:
    """The driver's side. One accumulator for all batches: PySpark never forgets one."""

    def __init__(self, context: SparkContext) -> None:
        self._accumulator: Accumulator[Figures] = context.accumulator({}, _Largest())
        self._batch = 0

    def begin(self) -> SliceCounter:
        """Return the counter for the tasks of the next batch. Late reports of an earlier one do not count."""
        self._batch += 1
        self._accumulator.value = {}
        return SliceCounter(self._accumulator, self._batch)

    @property
    def counter(self) -> Callable[[int], SliceCounter]:
        """Return what makes the counter of the batch with a number, for tasks that learn the number later."""
        return partial(SliceCounter, self._accumulator)

    def total(self) -> tuple[int, int]:
        """Return the records and bytes that the tasks of the newest batch have read."""
        found = [figure for part, figure in self._newest().items() if isinstance(part, int)]
        return sum(records for records, _ in found), sum(size for _, size in found)

    def reached(self) -> dict[str, int]:
        """Return up to which offset partitions have no record after the newest batch, as far as its tasks saw it.

        A partition is in several slices; that the last record of one is followed by none holds for the later ones too.
        """
        return {key: offset for key, (offset, _) in self._newest().items() if isinstance(key, str)}

    def times(self) -> dict[str, int]:
        """Return the largest timestamp of each partition in the newest batch, in ms since 1970, of a stream."""
        return {part[0]: at for part, (at, _) in self._newest().items() if isinstance(part, tuple) and len(part) == 1}

    def epochs(self) -> dict[str, tuple[Sighting, ...]]:
        """Return the records of the newest batch whose leader epochs its tasks reported, by offset and epoch."""
        found: dict[str, list[Sighting]] = {}
        for part in self._newest():
            if isinstance(part, tuple) and len(part) > 1:
                key, offset, epoch = part
                found.setdefault(key, []).append(Sighting(offset, epoch))
        return {key: tuple(sorted(seen)) for key, seen in found.items()}

    def _newest(self) -> dict[Part, tuple[int, int]]:
        figures: Figures = dict(self._accumulator.value)
        return {part: figure for (batch, part), figure in figures.items() if batch == self._batch}
