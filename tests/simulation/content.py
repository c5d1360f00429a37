"""Records that no batch can write, because of what is in them; the errors' texts imitate what the product itself says.

What the driver makes of them is the real code: `fencepost.spark.failures`, the seals of `fencepost.errors`, and the
isolation of `fencepost.driver.recovery.poison`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.errors import NumberFormatException, PythonException

from fencepost.batch import Batch, Range, Record, SinkWork, Watermarks, Written, between
from fencepost.driver.recovery.bisection import Piece
from fencepost.errors import (
    DependencyDown,
    DriverError,
    as_worker_error,
    begin_attempt,
    suspects_record,
)
from fencepost.fence import FenceRow
from fencepost.spark import failures
from simulation.failure import require
from simulation.invariants import Output

if TYPE_CHECKING:
    from simulation.drivers import SimulatedDriver

TASK: Final = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 3.0 (TID 7) (10.0.0.9 executor 0): org.apache.spark.SparkNumberFormatException: "
)
LOSS: Final = '{"kind":"DataLoss","message":"x","reason":"OffsetOutOfRange","remedy":"y","ranges":{"orders/0":[0,9]}}'
VALUES: Final = {
    "loss": f"fencepost-error:{'0' * 64}:{LOSS}",
    "memory": "pod app-1 OOMKilled: ExecutorLostFailure, exited with code 137, MemoryError",
    "outage": "x\nfencepost.errors.DependencyDown: the index is down\nTimeoutError: none",
}
"""Values that Spark's texts quote."""
KINDS: Final = (*VALUES, "seal", "sink")
"""`seal`: a pipeline of logs reads what an earlier attempt of its own run sealed. `sink`: a sink cannot encode it."""


def failure(kind: str) -> DriverError:
    """Return what the engine makes of an attempt that reads a record of a kind."""
    begin_attempt()
    error: Exception
    if kind == "seal":
        text = str(as_worker_error(DependencyDown("the index is down")))
        begin_attempt()
        error = PythonException(f"ValueError: {text}")
    elif kind == "sink":
        raised = failures.of_worker(UnicodeEncodeError("utf-8", VALUES["memory"], 0, 1, "surrogates not allowed"))
        error = PythonException(f"{TASK}fencepost.errors.WorkerError: {as_worker_error(raised)}")
    else:
        error = NumberFormatException(f"{TASK}[CAST_INVALID_INPUT] The value '{VALUES[kind]}' cannot be cast to INT")
    found = failures.of_job(error, is_warm_up=False)
    require(suspects_record(found), f"a record's content decides the verdict: {kind} is {type(found).__name__}")
    return found


@dataclass(slots=True)
class Contents:
    """The records that fail: their kinds by partition and offset."""

    failing: dict[str, dict[int, str]] = field(default_factory=dict)
    micros: int = 0
    """By how much the time of day has moved with commits between two steps of the world."""

    def first(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[str, int, str] | None:
        """Return the first record in the ranges that fails, and its kind."""
        found = (
            (key, offset, kind)
            for key, (start, until) in ranges.items()
            for offset, kind in self.failing.get(key, {}).items()
            if start <= offset < until
        )
        return min(found, default=None)


@dataclass(slots=True)
class Attempts:
    """What the isolation of a driver's batch asks: engine, log, records, letters and the steps at the fence."""

    driver: SimulatedDriver
    contents: Contents
    output: Output
    log: Callable[[], Watermarks]

    # fencepost.driver.ports.Engine

    def write(self, batch: Batch, row: FenceRow) -> Written:
        """Write the rows up to the first record that fails."""
        failed = self.contents.first(batch.spans())
        if failed is not None:
            key, offset, kind = failed
            start = batch.spans()[key][0]
            if offset > start:
                self.output.write(row, self.driver.uid, self.driver.config.code, {key: (start, offset)})
            raise failure(kind)
        self.output.write(row, self.driver.uid, self.driver.config.code, batch.spans())
        return Written({"orders": SinkWork(rows=batch.records)})

    def rehearse(self, batch: Batch) -> None:
        """Fail where the transform does; only a sink fails for the others."""
        failed = self.contents.first(batch.spans())
        if failed is not None and failed[2] != "sink":
            raise failure(failed[2])

    def keep_warm(self) -> None:
        """Do nothing."""

    def progress(self) -> int:
        """Return that nothing is done."""
        return 0

    # Log, Records

    def state(self) -> Watermarks:
        """Return the log."""
        return self.log()

    def topic_ids(self) -> Mapping[str, str]:
        """Return the topics' ids."""
        return self.state().topic_ids

    def first(self, part: Range) -> Record | None:
        """Return the record at the start of a range."""
        if not part.records:
            return None
        return Record(
            topic=part.topic,
            partition=part.partition,
            offset=part.start,
            timestamp=None,
            key=None,
            value=b"",
            headers=(),
        )

    def check(self, parts: Sequence[Range], at_least: Mapping[str, int] | None = None) -> Mapping[str, int]:
        """Find every leader's log as it was; no record shows an epoch."""
        del parts, at_least
        return {}


@dataclass(frozen=True, slots=True)
class SetAside:
    """Takes records that fail, and no others."""

    contents: Contents
    output: Output

    def write(self, record: Record, part: Range, error: DriverError, row: FenceRow) -> None:
        """Note the record."""
        del row
        is_failing = record.offset in self.contents.failing.get(part.key, {})
        require(is_failing, f"a good record is set aside: {part.key} offset {record.offset}: {error.message[:80]}")
        self.output.letters.add((part.key, record.offset))
        self.output.met["record set aside"] += 1


@dataclass(frozen=True, slots=True)
class FenceSteps:
    """Plans and commits pieces for a driver, as `fencepost.driver.loop.Loop` does."""

    driver: SimulatedDriver
    contents: Contents

    @property
    def row(self) -> FenceRow:
        """The row."""
        assert self.driver.row is not None
        return self.driver.row

    @property
    def may_reach_further(self) -> bool:
        """Whether it finishes nothing but what its code began."""
        return not self.driver.config.finish_until

    def begin(self, piece: Piece) -> Batch:
        """Record the piece as the planned batch."""
        row = self.row
        until = {**row.offsets, **{part.key: part.until for part in piece}}
        self.driver.row = self.driver.fence.plan(row, offsets=row.offsets, planned=until)
        return between(row.offsets, until)

    def commit(self, part: Batch, written: Written, *, dead_letter: str | None = None) -> None:
        """Move the offsets past the piece."""
        del written
        self.contents.micros += 1
        self.driver.row = self.driver.fence.commit(
            self.row,
            offsets=part.until,
            planned=part.until,
            records=part.records,
            duration_ms=200,
            dead_letter=dead_letter,
        )
