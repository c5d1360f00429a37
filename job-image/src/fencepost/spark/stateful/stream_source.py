"""The records of Kafka as a stream: batch after batch, each from a plan of the driver.

Spark gets the offsets of a batch as a text, and one row for each slice.  A `mapInArrow` over these rows reads the
slices, as for a batch without a stream (`fencepost.spark.source`): with the same slicing, counts and errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from fencepost.batch import Batch
from fencepost.contract import Reason
from fencepost.errors import BadSpec
from fencepost.formats.decoding import AS_BYTES, Decoding
from fencepost.spark.jvm.streaming_table import StreamingTable
from fencepost.spark.source import Read, columns, read_rows
from fencepost.spark.tasks.counts import ReadCounts
from fencepost.spark.tasks.slice_row import SliceRow
from fencepost.spark.tasks.slicing import NOTHING, LeftOut, slices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WITHOUT_RECORDS: Final = "spark.sql.streaming.noDataMicroBatches.enabled"
"""Spark's setting of batches without records, true unless an author changes it."""


class Plans(Protocol):
    """Chooses the batches. Spark's query asks, in its own thread; what is raised ends the query."""

    def start(self) -> Mapping[str, int]:
        """Return the offsets at which a query without a checkpoint starts."""
        ...

    def end(self, start: Mapping[str, int]) -> Mapping[str, int]:
        """Return where the next batch ends, `start` when there is nothing to read. May wait for records."""
        ...

    def batch(self, start: Mapping[str, int], end: Mapping[str, int]) -> Batch:
        """Return the batch from one to the other, which the fence row has as planned."""
        ...


def offsets_text(offsets: Mapping[str, int]) -> str:
    """Return offsets as Spark writes them into its checkpoint. Equal offsets have equal texts."""
    return json.dumps(dict(sorted(offsets.items())), separators=(",", ":"))


def other_text(text: str) -> str:
    """Return the second text of the same offsets. Spark compares texts, so it plans a batch from one to the other."""
    return text.removesuffix(" ") if text.endswith(" ") else f"{text} "


def offsets_of(text: str) -> dict[str, int]:
    """Return the offsets of `offsets_text`. Raises ValueError for another text."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(type(offset) is int for offset in found.values()):
        raise ValueError(f"not offsets of this source: {text[:200]!r}")
    return found


def end_of(offset_log: str) -> dict[str, int]:
    """Return where a batch ends, from Spark's log of it: a version, metadata, and a line for each source.

    Raises BadSpec for a query that has another source, ValueError for another text.
    """
    version, _, *sources = offset_log.splitlines()
    if version != "v1":
        raise ValueError(f"not an offset log that this release reads: {offset_log[:200]!r}")
    try:
        (found,) = map(offsets_of, dict.fromkeys(sources))
    except ValueError as error:
        raise BadSpec(
            "the query of stream reads another streaming source than its events",
            reason=Reason.TRANSFORM_INVALID,
            remedy="Read all streams as topics of spec.source.kafka, and filter the events by their topic.",
        ) from error
    return found


def with_end(offset_log: str, end: Mapping[str, int]) -> str:
    """Return Spark's log of a batch that ends there."""
    version, metadata, *sources = offset_log.splitlines()
    return "\n".join((version, metadata, *[offsets_text(end) for _ in sources]))


class StreamSource:
    """The source of one query. `counts` has what the tasks of the newest batch read."""

    def __init__(
        self,
        spark: SparkSession,
        plans: Plans,
        *,
        read: Read,
        decoding: Decoding = AS_BYTES,
        split: bool = True,
        name: str = "Kafka",
    ) -> None:
        self._spark = spark
        self._plans = plans
        self._read = read
        self._decoding = decoding
        self._split = split
        self._table = StreamingTable(spark, self, name=name)
        self.counts = ReadCounts(spark.sparkContext)
        self.left_out: LeftOut = NOTHING
        self._planned: tuple[str, str] | None = None
        self._rows: Sequence[str] = ()
        self._has_tasks = False
        """A batch had a task: each looks whether its worker can load what keeps the state."""
        self._record_size: float | None = None
        """Mean bytes of a record in the last batch that had some."""
        self._plans_without_records = spark.conf.get(WITHOUT_RECORDS) == "true"
        """Spark plans batches without records."""
        self._resumes = self._plans_without_records
        """Spark resumes from a committed batch and has run none since, so it plans none without records."""

    @property
    def failure(self) -> BaseException | None:
        """What the plans raised first; Spark has its text alone."""
        return self._table.failure

    def begin(self) -> None:
        """Begin a query: `failure` is of what it asks."""
        self._table.failure = None
        self._resumes = self._plans_without_records

    def frame(self) -> DataFrame:
        """Return the records as a streaming DataFrame with the columns of `fencepost.spark.source.columns`."""
        return self._decoded(self._table.frame())

    def batch(self, batch: Batch) -> DataFrame:
        """Return the records of a batch as a DataFrame that is not streaming; `counts` is of them then."""
        rows = self._spark.createDataFrame([(text,) for text in self._sliced(batch)], "value string")
        return self._decoded(rows)

    def _decoded(self, rows: DataFrame) -> DataFrame:
        reading = partial(read_rows, self._read, self.counts.counter, self._decoding)
        return rows.mapInArrow(reading, columns(self._decoding))

    def ran(self) -> None:
        """Learn that Spark has run a batch: from here on it plans those without records where they are due."""
        self._resumes = False

    def initial(self) -> str:
        """Return where a query without a checkpoint starts."""
        self._resumes = False
        return offsets_text(self._plans.start())

    def latest(self, start: str) -> str:
        """Return where the batch after `start` ends; `start` when there is nothing to read.

        From the last batch that it has run Spark knows whether one without records is due: the watermark may close
        windows, timers may fire.  A query that resumes has run none, and would wait for the next record.  So where it
        finds nothing to read, its first batch is one without records: it ends at the other text of `start`.
        """
        offsets = offsets_of(start)
        end = self._plans.end(offsets)
        if end != offsets:
            return offsets_text(end)
        if not self._resumes:
            return start
        self._resumes = False
        return other_text(start)

    def partitions(self, start: str, end: str) -> Sequence[str]:
        """Return a row for each slice of a batch: the same for each question about the batch."""
        if self._planned != (start, end):
            self._rows = self._sliced(self._plans.batch(offsets_of(start), offsets_of(end)))
            self._planned = start, end
        return self._rows

    def _sliced(self, batch: Batch) -> Sequence[str]:
        records, size = self.counts.total()
        if records:
            self._record_size = size / records
        number = self.counts.begin().batch
        cores = max(1, int(self._spark.sparkContext.defaultParallelism))
        parts = slices(batch.ranges, cores, split=self._split, record_size=self._record_size, left_out=self.left_out)
        rows = [SliceRow(number, index, part).to_json() for index, part in enumerate(parts) if part]
        if not (rows or self._has_tasks):
            rows = [SliceRow(number, 0, ()).to_json()]
        self._has_tasks = True
        return rows
