"""The batch on Spark: read, the author's transform, the sinks; one Spark job per batch, whatever the number of sinks.

Several sinks of DataFrames read Kafka once each, in one job: reading is several times cheaper than writing (1 M records
in 2.4 s against 20 s), so a cached batch would cost more than it saves. Record batches are read once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from fencepost.batch import Batch, Written
from fencepost.context import BatchContext, takes_record_batches
from fencepost.contract import DriverConfig, Reason
from fencepost.errors import ATTEMPT, BadSpec, BatchFailed, DriverError, begin_attempt
from fencepost.formats.decoding import AS_BYTES, Decoding
from fencepost.kafka.reader import read
from fencepost.sinks import Sink, task_half
from fencepost.spark import batch_context, call_sites, failures, python_workers, record_batches, sink_job, source
from fencepost.spark.interpreting import MOST_RECORDS, Interpreting
from fencepost.spark.prepared import PreparedQueries
from fencepost.spark.sink_job import SinkJob
from fencepost.spark.tasks import stragglers
from fencepost.spark.tasks.assignment import PROPERTY, Assignment
from fencepost.spark.tasks.counts import ReadCounts
from fencepost.spark.tasks.slicing import NOTHING, LeftOut, slices
from fencepost.spark.work_done import WorkDone

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.batch import Range
    from fencepost.context import RecordTransform, Transform
    from fencepost.fence import FenceRow
    from fencepost.spark.source import Read

    Slices = Sequence[tuple[Range, ...]]
    """What each task reads."""


class SparkEngine:
    """Runs batches in a session. The transform's frame is checked against the sinks once, on an empty batch.

    `records` reads them where it is not Kafka that has them, `decoding` decodes their keys and values; `properties` are
    librdkafka's.
    """

    def __init__(
        self,
        *,
        spark: SparkSession,
        config: DriverConfig,
        transform: Transform | RecordTransform,
        sinks: Mapping[str, Sink],
        properties: Mapping[str, str],
        records: Read | None = None,
        decoding: Decoding = AS_BYTES,
        states: Mapping[str, DataFrame] | None = None,
    ) -> None:
        self._spark = spark
        self._config = config
        self._states = states or {}
        self._warm_up = batch_context.of_warm_up(config, spark, states=self._states)
        self._transform = transform
        self._sinks = SinkJob(sinks)
        self._read = records or partial(read, properties=dict(properties), patience=config.task_patience)
        self._decoding = decoding
        self._progress = WorkDone(spark, start_timeout=config.start_timeout)
        self._schemas: Mapping[str, pa.Schema] | None = None
        """Of a transform of record batches: the columns of each sink."""
        self._counts = ReadCounts(spark.sparkContext)
        self._queries = PreparedQueries(spark, task_half.RESULT_COLUMNS, returned=task_half.REPORTED)
        self._interpreting = Interpreting(spark, config.spark_conf)
        self._record_size: float | None = None
        """Mean bytes of a record in the last batch that had some."""
        self._left_out: LeftOut = NOTHING
        self._idle: tuple[int, DataFrame] | None = None
        """What writes an empty batch, and from how many cores."""
        self._has_failed = False
        """Whether tasks of a failed job may still run."""

    def warm(self) -> None:
        """Run an empty batch on every core: analysis, code generation, Python workers, sessions of the sinks.

        Nothing is written: the fence is not held yet.
        Raises BadSpec when the transform or its columns do not fit.
        """
        self._run([()] * self._cores(), self._warm_up, check=True)

    def begin_workers(self) -> None:
        """Start the executors' Python workers beside what this thread does next."""
        python_workers.begin(self._spark, ended=self._progress.leave_out_ended_tasks)

    def check(self) -> None:
        """Plan an empty batch and run nothing, for code that has passed `warm` before. Raises BadSpec as `warm`."""
        context = self._warm_up
        frame = self._frame([()], context, check=True)
        with self._translated(context, check=True):
            # So that what planning needs is loaded.
            frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - Spark's public JVM API

    def keep_warm(self) -> None:
        """Run an empty batch, and write nothing.

        Raises DriverError, and never BadSpec: the same empty batch passed in `warm`, so the cause may pass too.
        """
        try:
            self._spark.sparkContext.setLocalProperty(ATTEMPT, begin_attempt())
            reports = self._idle_frame(self._cores())
            with self._translated(self._warm_up, check=False):
                self._sinks.run(reports)
        except BadSpec as error:
            raise BatchFailed(error.message, reason=error.reason, remedy=error.remedy) from error

    def _idle_frame(self, cores: int) -> DataFrame:
        """Return what writes an empty batch from so many cores, planned once: planning takes most of its CPU time."""
        if takes_record_batches(self._transform):
            return self._frame([()] * cores, self._warm_up, check=False)
        if self._idle is None or self._idle[0] != cores:
            self._idle = cores, self._frame([()] * cores, self._warm_up, check=False)
        return self._idle[1]

    def leave_out(self, records: LeftOut) -> None:
        """Read none of these records from here on."""
        self._left_out = records

    def write(self, batch: Batch, row: FenceRow) -> Written:
        """Read, transform and write a batch. Raises DriverError."""
        before = time.monotonic()
        self._let_failed_tasks_end()
        if batch.records > MOST_RECORDS:
            self._compile()
        context = batch_context.of_batch(
            self._config, self._spark, batch, row, is_repeated=batch.is_repeated, states=self._states
        )
        token = replace(record_batches.token_of(context), committed=row.output_token)
        self._sinks.begin(token)
        cores = self._cores()
        parts = slices(
            batch.ranges,
            cores,
            split=self._config.source.split_partitions,
            record_size=self._record_size,
            left_out=self._left_out,
        )
        written = self._run(parts, context, check=False, since=before)
        self._sinks.finish(token, written.work)
        call_sites.stop_recording(self._config.spark_conf)
        self._compile()
        if written.records:
            self._record_size = written.size / written.records
        return replace(written, cores=cores)

    def rehearse(self, batch: Batch) -> None:
        """Read and transform a batch, and write nothing: its token is WARM_TOKEN. Raises DriverError."""
        self._let_failed_tasks_end()
        self._compile()
        context = batch_context.of_warm_up(self._config, self._spark, batch, states=self._states)
        self._run(slices(batch.ranges, self._cores(), left_out=self._left_out), context, check=False)

    def progress(self) -> int:
        """Return a number that grows while the current batch makes progress, and does not change while it hangs.

        For any thread, every few seconds: it never falls, and takes a few calls to the JVM.
        """
        return self._progress.poll()

    def _run(self, parts: Slices, context: BatchContext, *, check: bool, since: float | None = None) -> Written:
        started = time.monotonic() if since is None else since
        self._spark.sparkContext.setLocalProperty(ATTEMPT, begin_attempt())
        reports = self._frame(parts, context, check=check)
        prepared = time.monotonic()
        with self._translated(context, check=check):
            work = self._sinks.run(reports)
        phases = {
            "transform": round((prepared - started) * 1000),
            "job": round((time.monotonic() - prepared) * 1000),
        }
        read, size = self._counts.total()
        return Written(
            work,
            phases=phases,
            records=read,
            size=size,
            reached=self._counts.reached(),
            epochs=self._counts.epochs(),
            memory=self._sinks.memory,
        )

    def _frame(self, parts: Slices, context: BatchContext, *, check: bool) -> DataFrame:
        with self._translated(context, check=check):
            if takes_record_batches(self._transform):
                return self._of_records(parts, context, check=check)
            return self._of_frames(parts, context, check=check)

    @contextmanager
    def _translated(self, context: BatchContext, *, check: bool) -> Iterator[None]:
        """Raise what Spark raises as a DriverError."""
        try:
            with sink_job.translated(context, is_warm_up=check):
                yield
        except DriverError:
            self._has_failed = True
            raise

    def _compile(self) -> None:
        if self._interpreting.end():
            self._queries.forget()
            self._idle = None

    def _let_failed_tasks_end(self) -> None:
        """Wait for the tasks of an attempt that failed: none may write beside the next one. Raises BatchFailed.

        The patience is that with a lost executor: until Spark gives it up, its tasks count as running.
        """
        if not self._has_failed:
            return
        patience = self._config.executor_patience
        try:
            is_over = stragglers.have_ended(self._spark, patience=patience)
        except Exception as error:
            raise failures.of_job(error, is_warm_up=False) from error
        if not is_over:
            raise BatchFailed(
                f"tasks of the attempt that failed still run after {patience:.0f} s",
                remedy="The next run has executors of its own. Look in the executors' logs for what holds the tasks.",
            )
        self._has_failed = False

    def _of_frames(self, parts: Slices, context: BatchContext, *, check: bool) -> DataFrame:
        """Return the lazy frame (sink, rows) that writes what the transform makes of a DataFrame."""
        batch = source.frame(self._spark, parts, self._read, self._counts.begin(), self._decoding)
        transform = cast("Transform", self._transform)
        outputs = sink_job.outputs(transform, batch, context, self._sinks.names, is_warm_up=check)
        if check:
            for name, frame in outputs.items():
                self._sinks.check(name, frame.schema)
        return self._sinks.reports(outputs, record_batches.token_of(context))

    def _of_records(self, parts: Slices, context: BatchContext, *, check: bool) -> DataFrame:
        """Return the lazy frame (sink, rows) that writes what the transform makes of record batches."""
        if check or self._schemas is None:
            self._schemas = self._described(is_warm_up=check)
        assignment = Assignment(
            slices=parts,
            number=self._counts.begin().batch,
            version=context.version,
            token=context.token,
            offsets=context.offsets,
            is_repeated=context.is_repeated,
        )
        self._spark.sparkContext.setLocalProperty(PROPERTY, assignment.to_json())
        return self._queries.of(self._work(self._schemas), len(parts))

    def _work(self, schemas: Mapping[str, pa.Schema]) -> record_batches.Work:
        """Return what the tasks do in each batch."""
        return record_batches.Work(
            read=self._read,
            decoding=self._decoding,
            counter=self._counts.counter,
            transform=cast("RecordTransform", self._transform),
            context=self._warm_up.without_spark(),
            schemas=schemas,
            sinks=self._sinks.tasks(),
        )

    def _described(self, *, is_warm_up: bool) -> dict[str, pa.Schema]:
        """Return the columns of each sink, by the empty batch. Raises BadSpec for columns that do not fit a sink."""
        from pyspark.errors import PySparkException  # noqa: PLC0415
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

        context = self._warm_up.without_spark()
        try:
            transform, names = cast("RecordTransform", self._transform), self._sinks.names
            schemas = record_batches.schemas(transform, context, names, self._decoding)
        except Exception as error:
            raise failures.of_transform(error, is_warm_up=is_warm_up) from error
        for name, schema in schemas.items():
            try:
                columns = from_arrow_schema(schema)
            except PySparkException as error:
                raise BadSpec(
                    f"for sink {name!r} the transform returned a column that Spark does not have: {error}",
                    reason=Reason.TRANSFORM_INVALID,
                    remedy="Cast it to a type of the table in docs/authors.md.",
                ) from error
            self._sinks.check(name, columns)
        return schemas

    def _cores(self) -> int:
        return python_workers.cores_of(self._spark)
