"""Records in memory as Kafka holds them, batch after batch: a log for the driver, and a reader for its tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from fencepost.batch import Range, Watermarks
from fencepost.contract import offset_key
from fencepost.testing.inputs import record_batch

if TYPE_CHECKING:
    import pyarrow as pa

    from fencepost.kafka.reader import Reached, Seen

Fields: TypeAlias = Mapping[str, Any]
"""A record, with the fields of `fencepost.testing.frame`."""


class Arrivals:
    """Batches of records with their coordinates filled in. Raises ValueError; see `StreamTest`.

    `topics` are those of the records, `begins` and `ends` map 'topic/partition' to the first offset, and to the ends
    after each batch.
    """

    def __init__(self, batches: Sequence[Sequence[Fields]]) -> None:
        self.records: dict[str, list[Fields]] = {}
        self.begins: dict[str, int] = {}
        ends: list[Mapping[str, int]] = []
        for batch in filter(None, batches):
            ends.append(self._after(batch, ends[-1] if ends else {}))
        if not ends:
            raise ValueError("the batches have no records: give at least one")
        self.ends: Sequence[Mapping[str, int]] = [{**self.begins, **end} for end in ends]
        self.topics = tuple(sorted({record["topic"] for part in self.records.values() for record in part}))

    def done(self, offsets: Mapping[str, int]) -> int:
        """Return how many batches lie before these offsets."""
        return sum(all(offsets.get(key, 0) >= end for key, end in ends.items()) for ends in self.ends)

    def _after(self, batch: Sequence[Fields], reached: Mapping[str, int]) -> dict[str, int]:
        """Add the records of a batch; return the next offsets."""
        following = dict(reached)
        for given in batch:
            record = {"topic": "test", "partition": 0, **given}
            key = offset_key(record["topic"], record["partition"])
            offset = record.setdefault("offset", following.get(key, 0))
            if offset < following.get(key, offset):
                raise ValueError(f"offset {offset} of {key} follows offset {following[key] - 1}: leave the offsets out")
            self.begins.setdefault(key, offset)
            self.records.setdefault(key, []).append(record)
            following[key] = offset + 1
        return following


class BatchLog:
    """Shows the driver one batch more than the fence row has as planned, so that it plans the batches as given.

    `planned` returns the offsets of the row.  The answer is the same before and after the commit of a batch.
    """

    def __init__(self, arrivals: Arrivals, planned: Callable[[], Mapping[str, int]]) -> None:
        self._arrivals = arrivals
        self._planned = planned

    def state(self) -> Watermarks:
        """Return what the log holds now."""
        ends = self._arrivals.ends
        shown = ends[min(self._arrivals.done(self._planned()), len(ends) - 1)]
        return Watermarks(
            begins=self._arrivals.begins, ends=shown, topic_ids={topic: topic for topic in self._arrivals.topics}
        )

    def offsets_at(self, time: int, partitions: Collection[str]) -> Mapping[str, int | None]:  # noqa: ARG002 - of the port
        """Return nothing: no batch is so large that it has to be divided."""
        return {}


def read(
    records: Mapping[str, Sequence[Fields]], ranges: Sequence[Range], *, reached: Reached, seen: Seen
) -> Iterator[pa.RecordBatch]:
    """Yield the records of some ranges, in a task."""
    del reached, seen
    for part in ranges:
        if found := [record for record in records[part.key] if part.start <= record["offset"] < part.until]:
            yield record_batch(found)
