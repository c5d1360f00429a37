"""What the loop needs of the world, as protocols, so that every failure can be tested in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from fencepost.batch import Batch, Range, Record, Watermarks, Written
from fencepost.errors import DriverError
from fencepost.fence import FenceRow


class Log(Protocol):
    """The source's log."""

    def state(self) -> Watermarks:
        """Return what the log holds now. Raises DependencyDown."""
        ...


class TimedLog(Log, Protocol):
    """A log whose records are found by their time."""

    def offsets_at(self, time: int, partitions: Collection[str]) -> Mapping[str, int | None]:
        """Return the offset of each partition's first record with a timestamp of at least `time`, in ms since 1970.

        None of a partition without such a record; one whose leader does not answer is absent.  Raises DependencyDown.
        """
        ...


class Engine(Protocol):
    """What turns a batch into rows in the sinks."""

    def write(self, batch: Batch, row: FenceRow) -> Written:
        """Read, transform and write the whole batch at `row.write_timestamp`, or raise."""
        ...

    def rehearse(self, batch: Batch) -> None:
        """Read and transform the whole batch and write nothing, or raise."""
        ...

    def keep_warm(self) -> None:
        """Exercise the same path with no records."""
        ...

    def progress(self) -> int:
        """Return the work done so far in the batch that is being written: it never falls. From any thread."""
        ...


class Records(Protocol):
    """Single records, read by the driver itself."""

    def first(self, part: Range) -> Record | None:
        """Return the first record of a range, None when none is left there. Raises DataLoss, DependencyDown."""
        ...

    def check(self, parts: Sequence[Range], at_least: Mapping[str, int] | None = None) -> Mapping[str, int]:
        """Read ranges whose first offset was reached under their leader epoch; return their first records' epochs.

        `at_least` has epochs that these must have: Kafka is asked until its answer is of so late a leader.
        Raises DataLoss with the offsets of all logs that were cut before that, DependencyDown.
        """
        ...


class Letters(Protocol):
    """Where records that are set aside go."""

    def write(self, record: Record, part: Range, error: DriverError, row: FenceRow) -> None:
        """Store a record and why it fails; a repetition overwrites it. Raises FenceError."""
        ...
