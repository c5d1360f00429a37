"""Which offsets a purge index is complete for: the marks, and who writes and removes them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, Protocol

from fencepost.contract import split_offset_key
from fencepost.contract.sinks import index_name
from fencepost.sinks.cassandra.cql import full_name
from fencepost.sinks.cassandra.purge_index import MARKS
from fencepost.sinks.cassandra.queries import Queries
from fencepost.sinks.interface import BatchToken

CLOCKS: Final = 600.0
"""Seconds by which a mark may be older than its write timestamp says: clocks differ by five minutes at most."""
PER_RETENTION: Final = 50
"""Marks of a partition that live at the same time, while it has records."""
_MICRO: Final = 1_000_000
_PLACE: Final = 'pipeline = ? AND topic = ? AND "partition" = ? AND bucket = ?'


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """Rows of the records from `offset` on have entries that live for `retention` s from `written` (µs) or later."""

    offset: int
    written: int
    retention: int

    def is_live(self, now: float) -> bool:
        """Return whether none of these entries has expired yet."""
        return now < self.written / _MICRO + self.retention - CLOCKS


class Ledger(Protocol):
    """What the driver's half of a sink does for the index before a batch."""

    def begin(self, batch: BatchToken) -> None:
        """Note a batch before its first row is written. Raises BadSpec, DependencyDown."""
        ...


@dataclass(frozen=True, slots=True)
class MarkTable:
    """The marks of one pipeline in one index."""

    queries: Queries
    table: str
    pipeline: str

    def read(self, key: str) -> list[Mark]:
        """Return the marks of 'topic/partition', by offset."""
        found = self.queries.ask(
            f'SELECT "offset", retention, writetime(retention) AS written FROM {self._name} WHERE {_PLACE}',  # noqa: S608 - names of the schema
            self._place(key),
        )
        return sorted(Mark(row.offset, row.written, row.retention) for row in found if row.retention is not None)

    def write(self, key: str, mark: Mark) -> None:
        """Store a mark with a time to live."""
        self.queries.execute(
            f'INSERT INTO {self._name} (pipeline, topic, "partition", bucket, "offset", key, retention)'  # noqa: S608
            " VALUES (?, ?, ?, ?, ?, 0x, ?) USING TTL ? AND TIMESTAMP ?",
            [*self._place(key), mark.offset, mark.retention, mark.retention, mark.written],
        )

    def remove(self, key: str, *, at: int) -> None:
        """Delete all marks of 'topic/partition' up to a write timestamp (µs)."""
        self.queries.execute(f"DELETE FROM {self._name} USING TIMESTAMP ? WHERE {_PLACE}", [at, *self._place(key)])  # noqa: S608

    @property
    def _name(self) -> str:
        return full_name(self.queries.keyspace, index_name(self.table))

    def _place(self, key: str) -> list[str | int]:
        return [self.pipeline, *split_offset_key(key), MARKS]


@dataclass(slots=True)
class OpenLedger:
    """Marks where the index is complete from: where its entries begin, and again in steps of the retention.

    A batch that an earlier run may have begun without the index gets no first mark.
    """

    table: MarkTable
    retention: int
    _known: dict[str, list[Mark]] = field(default_factory=dict)

    def begin(self, batch: BatchToken) -> None:
        """Write the marks that are due."""
        for key, (start, _) in batch.offsets.items():
            if key not in self._known:
                self._known[key] = self._inherited(key, batch)
            marks = [mark for mark in self._known[key] if mark.is_live(batch.token / _MICRO)]
            if self._is_due(marks, start, batch):
                mark = Mark(start, batch.token, self.retention)
                self.table.write(key, mark)
                self._known[key] = [min(marks, default=mark), mark]

    def _inherited(self, key: str, batch: BatchToken) -> list[Mark]:
        """Return the marks of earlier runs; with a longer retention they would outlive the entries from now on."""
        found = self.table.read(key)
        if all(mark.retention <= self.retention for mark in found):
            return found
        self.table.remove(key, at=batch.token - 1)
        return []

    def _is_due(self, marks: list[Mark], start: int, batch: BatchToken) -> bool:
        if batch.is_repeated:
            return False  # an earlier try may have left rows whose entries expire before a new mark would
        if not marks:
            return True
        is_old = batch.token - max(mark.written for mark in marks) >= self.retention * _MICRO / PER_RETENTION
        return is_old and start >= max(marks).offset


@dataclass(slots=True)
class ClosedLedger:
    """Removes the marks: this run writes rows without entries."""

    table: MarkTable
    _done: set[str] = field(default_factory=set)

    def begin(self, batch: BatchToken) -> None:
        """Remove the marks of the partitions that the run has not written yet."""
        for key in batch.offsets.keys() - self._done:
            self.table.remove(key, at=batch.token)
            self._done.add(key)


def complete_from(marks: list[Mark], *, now: float | None = None) -> int | None:
    """Return the first offset from which on all entries are there; None where nothing is complete."""
    moment = time.time() if now is None else now
    return min((mark.offset for mark in marks if mark.is_live(moment)), default=None)
