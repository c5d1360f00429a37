"""Test a stateful function with pytest and a local Spark session alone: no Kafka, no Cassandra, no cluster.

from fencepost.testing.streams import StreamTest, disordered

def test_counts(spark):
    rows = StreamTest(spark, stream).rows([[{"value": b"a"}, {"value": b"b"}], [{"value": b"a"}]])
    assert {"key": "a", "count": 2} in rows["rows"]

def test_counts_do_not_depend_on_restarts(spark):
    records = [{"value": b"a"}, {"value": b"b"}] * 100
    StreamTest(spark, stream).check_restarts(disordered(records, batch=50), keys=["key"])
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost.testing.arrivals import Arrivals, Fields
from fencepost.testing.disturbances.authors_modules import disturbed
from fencepost.testing.disturbances.hash_seeds import SEEDS, of_workers
from fencepost.testing.memory_pipeline import Cut, MemoryPipeline, Step
from fencepost.testing.rows import Keys, Table, listed, tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import Finish, Stream

__all__ = ["StreamTest", "disordered"]


@dataclass(frozen=True, slots=True)
class StreamTest:
    """A stateful function under test, on a local Spark session.

    The driver's own code runs it, with the log, the fence row and the state in memory.  Each run has a new session
    with the settings of `spark`: use `context.spark` for tables and views.

    `sinks` are the names of `spec.sinks`, `args`, `output_mode` and `partitions` as in the spec.  `states` are what
    `context.state` returns, by the name of an entry of `spec.source.pinnedStates`.  `batches` of the
    methods are lists of records with the fields of `fencepost.testing.frame`; an offset that a record leaves out is the
    next one of its partition.  The batches follow each other without a pause, as in a backlog, and the stream is idle
    after the last one.  So Spark compares a record with the watermark of the batches before the last one.

    Methods raise DriverError as a run does, for example BadSpec for a function that does not return a stream; and
    ValueError for batches without any record, or with offsets that do not rise within a partition.
    """

    spark: SparkSession
    stream: Stream
    _: KW_ONLY
    finish: Finish | None = None
    sinks: Sequence[str] = ("rows",)
    args: tuple[str, ...] = ()
    output_mode: str = "update"
    partitions: int = 1
    states: Mapping[str, DataFrame] = field(default_factory=dict)

    def rows(self, batches: Sequence[Sequence[Fields]]) -> dict[str, list[dict[str, Any]]]:
        """Return the rows that each sink gets, in the order of the batches; within a batch they have no order.

        Timestamps are datetimes in the time zone of the session.
        """
        return self._rows(Arrivals(batches), ())

    def check_restarts(
        self, batches: Sequence[Sequence[Fields]], *, keys: Keys = None, cuts: int = 3, seed: int = 0
    ) -> dict[str, list[dict[str, Any]]]:
        """Compare the rows of an undisturbed run with those of runs that end too early and are resumed.

        Returns the rows of the undisturbed run, as `rows` does.

        `seed` decides the `cuts` places: after a batch is planned, after its rows are written and before its commit, or
        after its commit.  The next run resumes from the fence row.  Without `keys`, the sinks must get the same set of
        rows.  With `keys`, the columns of the table's primary key (per sink if there are several), the table must be
        the same: the row of a later batch replaces the row of an earlier one.

        It finds code whose rows depend on anything but the records and the state: the clock, random numbers, counters
        in the driver, the cut of earlier runs.  Timers of processing time depend on the clock.

        Raises AssertionError with the seed, the places, and by sink the rows that are missing or added.
        """
        arrivals = Arrivals(batches)
        places = _places(arrivals, cuts, random.Random(seed))  # noqa: S311 - places to cut, no secret
        rows = self._rows(arrivals, ())
        whole, found = _tables(rows, keys), _tables(self._rows(arrivals, places), keys)
        if whole != found:
            raise AssertionError(_difference(whole, found, places, seed))
        return rows

    def assert_deterministic(
        self, batches: Sequence[Sequence[Fields]], *, keys: Keys = None, cuts: int = 3, seed: int = 0
    ) -> dict[str, list[dict[str, Any]]]:
        """Do what `check_restarts` does, then run the batches with another clock, and with another hash seed.

        The clock is that of the modules of `stream`, 400 days ahead. Returns the rows of the undisturbed run. Raises
        AssertionError with the cause, and by sink the rows that are missing or added.
        """
        arrivals = Arrivals(batches)
        rows = self.check_restarts(batches, keys=keys, cuts=cuts, seed=seed)
        whole = _tables(rows, keys)
        with disturbed(self.stream):
            later = _tables(self._rows(arrivals, ()), keys)
        with of_workers(self.spark, SEEDS[0], self.stream):
            reseeded = _tables(self._rows(arrivals, ()), keys)
        for cause, found in (("the clock", later), ("Python's hash seed: on hash(), or on a set's order", reseeded)):
            if found != whole:
                raise AssertionError(_listing(f"the rows depend on {cause}", whole, found, "afterwards"))
        return rows

    def _rows(self, arrivals: Arrivals, cuts: Iterable[Cut]) -> dict[str, list[dict[str, Any]]]:
        with tempfile.TemporaryDirectory() as folder:
            pipeline = MemoryPipeline(
                spark=self.spark,
                stream=self.stream,
                finish=self.finish,
                sinks=self.sinks,
                args=self.args,
                output_mode=self.output_mode,
                partitions=self.partitions,
                states=self.states,
                arrivals=arrivals,
                cuts=cuts,
                folder=Path(folder),
            )
            while not pipeline.run():
                pass
            return {name: list(sink.rows()) for name, sink in pipeline.sinks.items()}


def disordered(
    records: Sequence[Fields],
    *,
    batch: int,
    late: float = 0.05,
    by: int = 100,
    shuffled: int = 10,
    repeated: float = 0,
    seed: int = 0,
) -> list[list[Fields]]:
    """Return records in batches of `batch` records, in an order in which they might arrive; `seed` decides it.

    Each record moves back by up to `shuffled` places, and the share `late` (0 to 1) by up to `by` places more.  The
    share `repeated` arrives twice, as from a producer that sends a record again.  Leave out the records' offsets: they
    follow the new order.
    """
    choice = random.Random(seed)  # noqa: S311 - an order, no secret
    sent = [record for record in records for _ in range(1 + (choice.random() < repeated))] if repeated else records

    def place(number: int) -> float:
        return number + choice.uniform(0, shuffled) + (choice.random() < late) * choice.uniform(0, by)

    arrived = [record for _, record in sorted(enumerate(sent), key=lambda item: place(item[0]))]
    return [arrived[start : start + batch] for start in range(0, len(arrived), batch)]


def _places(arrivals: Arrivals, number: int, choice: random.Random) -> tuple[Cut, ...]:
    """Return places to cut, in their order; not after the last commit: nothing is left to resume."""
    every = [Cut(batch, step) for batch in range(len(arrivals.ends)) for step in Step][:-1]
    return tuple(sorted(choice.sample(every, min(number, len(every)))))


def _tables(rows: Mapping[str, list[dict[str, Any]]], keys: Keys) -> dict[str, Table]:
    return tables(((sink, row) for sink, found in rows.items() for row in found), keys)


def _difference(whole: Mapping[str, Table], found: Mapping[str, Table], cuts: Sequence[Cut], seed: int) -> str:
    title = f"the rows depend on where runs end (seed {seed})\n  runs ended after {', '.join(map(str, cuts))}"
    return _listing(title, whole, found, "after restarts")


def _listing(title: str, whole: Mapping[str, Table], found: Mapping[str, Table], when: str) -> str:
    lines = [title]
    for sink in sorted({*whole, *found}):
        one, many = set(whole.get(sink, {}).values()), set(found.get(sink, {}).values())
        lines += listed(f"sink {sink!r}, missing {when}", one - many)
        lines += listed(f"sink {sink!r}, added {when}", many - one)
    return "\n  ".join(lines)
