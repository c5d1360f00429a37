"""The loop of a trial: batch after batch through the new code and the comparison; nothing is planned or committed.

A batch that fails for what is in a record is cut down to the records that fail alone: each is a finding, and the trial
continues.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from fencepost.batch import Batch, Written
from fencepost.contract import record_place
from fencepost.driver.recovery.bisection import Bisection, Piece
from fencepost.driver.trial.ranges import Reading
from fencepost.errors import DriverError, RecordFailed, suspects_record
from fencepost.fence import FenceRow

log = logging.getLogger(__name__)

MOST_POISON: Final = 100
"""Records that may fail before the trial ends: looking for each takes some twenty attempts."""
ALL_FAIL: Final = 10
"""Records that fail, with none that passes, after which the code counts as failing for every record."""


class Engine(Protocol):
    """What runs the new code on a batch."""

    def write(self, batch: Batch, row: FenceRow) -> Written:
        """Read, transform and compare a batch. Raises DriverError."""
        ...


class Findings(Protocol):
    """Where what the tasks of a batch found is taken."""

    def take(self, folder: Path, batch: int) -> None:
        """Move what is in a folder; batches have growing numbers."""
        ...


class Limit(Protocol):
    """How large a batch may be."""

    @property
    def records(self) -> int:
        """How many records the next batch may have."""
        ...

    def measure(self, batch: Batch, written: Written, *, seconds: float) -> None:
        """Adapt it to what a batch took."""
        ...


@dataclass(slots=True)
class Poison:
    """The records that fail alone."""

    count: int = 0
    first: str = ""
    error: str = ""

    def add(self, place: str, error: str) -> None:
        """Count one."""
        self.count += 1
        if self.count == 1:
            self.first, self.error = place, error


@dataclass(slots=True, kw_only=True)
class Trying:
    """One trial. `note` is why it ended early, '' where it read everything."""

    pipeline: str
    engine: Engine
    findings: Findings
    reading: Reading
    limit: Limit
    folder: Path
    is_over: Callable[[], bool]
    now: Callable[[], float]
    report: Callable[[int], None]
    poison: Poison = field(default_factory=Poison)
    note: str = ""
    _attempts: int = 0
    _has_passed: bool = False

    def run(self) -> None:
        """Try everything that there is. Raises DriverError where the code or a dependency fails, not a record."""
        while (batch := self._next()) is not None:
            try:
                self._write(batch)
            except DriverError as error:
                if not suspects_record(error):
                    raise
                self._isolate(batch, error)
            self.report(self.reading.done)

    @property
    def done(self) -> int:
        """How many offsets are read."""
        return self.reading.done

    def ranges(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield what is read, 'topic/partition' and [start, until)."""
        return self.reading.ranges()

    def _next(self) -> Batch | None:
        if self.is_over():
            self.note = "the trial reached limits.maxDuration"
        elif self.poison.count >= MOST_POISON:
            self.note = f"the trial ended after {MOST_POISON} records that the new code cannot process"
        return None if self.note else self.reading.next(self.limit.records)

    def _write(self, batch: Batch) -> None:
        """Run one attempt; what the tasks of one that failed found does not count."""
        self._attempts += 1
        row = FenceRow(pipeline=self.pipeline, owner="", version=self._attempts, clock=self._attempts)
        folder, began = self.folder / str(row.write_timestamp), self.now()
        try:
            written = self.engine.write(batch, row)
            self.limit.measure(batch, written, seconds=self.now() - began)
            self.findings.take(folder, self._attempts)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._has_passed = self._has_passed or written.records > 0

    def _isolate(self, batch: Batch, error: DriverError) -> None:
        log.warning("the batch failed: looking for the record", extra={"fields": {"error": error.message}})
        bisection = Bisection(batch.ranges)
        while (piece := bisection.piece) is not None and not self.is_over() and self.poison.count < MOST_POISON:
            try:
                self._write(Batch(ranges=piece, until=_ends(piece)))
            except DriverError as failure:
                if not suspects_record(failure):
                    raise
                suspect = bisection.failed()
                if suspect is None:
                    continue
                self.poison.add(record_place(suspect.key, suspect.start), failure.message)
                if self.poison.count >= ALL_FAIL and not self._has_passed:
                    raise RecordFailed(
                        f"each of {ALL_FAIL} records that were tried alone fails: {failure.message}",
                        remedy="Correct the new code.",
                    ) from failure
            bisection.done()


def _ends(piece: Piece) -> Mapping[str, int]:
    return {part.key: part.until for part in piece}
