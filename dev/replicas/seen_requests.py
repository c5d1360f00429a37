"""What clients saw of a fence row: each request with its answer, in the order of one monotonic clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from fencepost.fence import FenceError, FenceRow
from fencepost.fence.cassandra.table import CassandraFenceTable


class Answer(StrEnum):
    """How a request ended. SEEN is a read's, UNKNOWN any request's whose effect is open."""

    APPLIED = "applied"
    REFUSED = "refused"
    SEEN = "seen"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to the table; times in seconds of the monotonic clock.

    A read has the row that it returned as `after`, None for no row; an insert has no `before`.
    """

    client: str
    began: float
    ended: float
    answer: Answer
    before: FenceRow | None
    after: FenceRow | None


@dataclass(frozen=True, slots=True)
class Write:
    """A row of output that a driver wrote, acknowledged or not: the batch that began on `row` covers `offset`."""

    offset: int
    value: str
    timestamp: int
    row: FenceRow


@dataclass(slots=True)
class Record:
    """What all clients saw. `promised` are the rows that `Fence` returned as the result of a change."""

    calls: list[Call] = field(default_factory=list)
    promised: list[FenceRow] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def add(self, call: Call) -> None:
        """Keep a request."""
        with self._guard:
            self.calls.append(call)

    def promise(self, row: FenceRow) -> FenceRow:
        """Keep the result of a change that `Fence` reported as applied, and return it."""
        with self._guard:
            self.promised.append(row)
        return row

    def owner(self) -> str:
        """Return the owner in the newest row that is known to be in the table."""
        with self._guard:
            newest = max(self.promised, key=lambda row: row.version, default=None)
        return newest.owner if newest is not None else ""

    def wrote(self, write: Write) -> None:
        """Keep a row of output, before it is sent."""
        with self._guard:
            self.writes.append(write)


class RecordedTable(CassandraFenceTable):
    """The real table; each request of the protocol is recorded with its answer."""

    record: Record
    client: str

    def read(self, pipeline: str) -> FenceRow | None:
        """Read and record the row."""
        began = time.monotonic()
        row = CassandraFenceTable.read(self, pipeline)
        self._keep(began, Answer.SEEN, None, row)
        return row

    def insert(self, row: FenceRow) -> bool:
        """Insert and record the answer."""
        return self._changing(None, row, lambda: CassandraFenceTable.insert(self, row))

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        """Swap and record the answer."""
        return self._changing(before, after, lambda: CassandraFenceTable.swap(self, before, after))

    def _changing(self, before: FenceRow | None, after: FenceRow, request: Callable[[], bool]) -> bool:
        began = time.monotonic()
        try:
            applied = request()
        except FenceError:
            self._keep(began, Answer.UNKNOWN, before, after)
            raise
        self._keep(began, Answer.APPLIED if applied else Answer.REFUSED, before, after)
        return applied

    def _keep(self, began: float, answer: Answer, before: FenceRow | None, after: FenceRow | None) -> None:
        self.record.add(
            Call(client=self.client, began=began, ended=time.monotonic(), answer=answer, before=before, after=after)
        )
