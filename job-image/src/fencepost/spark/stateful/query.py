"""The query of a stateful pipeline: what the author's `stream` makes of the records, batch after batch to the sinks.

Spark's query runs in threads of the JVM, which call Python for the source's plans and for each batch's rows.  What
Python raises there reaches the JVM as text, and the query ends; the exceptions themselves are kept here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fencepost.batch import Batch, EventTime, Range, Written
from fencepost.context import BatchContext, StreamContext
from fencepost.contract import DriverConfig, Reason, StateConfig
from fencepost.errors import ATTEMPT, BadSpec, BatchFailed, DriverError, begin_attempt
from fencepost.formats.decoding import AS_BYTES, Decoding
from fencepost.kafka.reader import read
from fencepost.spark import batch_context, call_sites, failures, python_workers, record_batches, sink_job
from fencepost.spark.jvm.query_progress import QueryProgress
from fencepost.spark.sink_job import SinkJob
from fencepost.spark.stateful.stream_source import StreamSource
from fencepost.spark.work_done import WorkDone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from fencepost.context import Finish, Stream
    from fencepost.fence import FenceRow
    from fencepost.sinks import Sink
    from fencepost.spark.source import Read
    from fencepost.spark.stateful.stream_source import Plans
    from fencepost.spark.tasks.slicing import LeftOut

log = logging.getLogger(__name__)

MODES: Final = ("append", "update")
"""The output modes. 'complete' would write the whole state with each batch."""
MOST_STARTS: Final = 3
"""Starts of a query whose Python process of the driver does not connect in time, as on a busy node."""
QUERY_LOGGER: Final = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
"""Logs what ends a query, with all stack traces; the verdict of the run says it once."""
CALLBACKS_LOGGER: Final = "py4j.clientserver"
"""Logs each exception of Python code that Java called; who gets the exception logs it too."""


class StatefulQuery:
    """Builds the query, and runs it. Methods raise DriverError; `run` also raises what the plans or `write` raise."""

    def __init__(
        self,
        *,
        spark: SparkSession,
        config: DriverConfig,
        state: StateConfig,
        stream: Stream,
        finish: Finish | None,
        sinks: Mapping[str, Sink],
        properties: Mapping[str, str],
        records: Read | None = None,
        decoding: Decoding = AS_BYTES,
        states: Mapping[str, DataFrame] | None = None,
    ) -> None:
        self._spark = spark
        self._config = config
        self._states = states or {}
        self._finish = finish
        self._sinks = SinkJob(sinks)
        self._progress = WorkDone(spark, start_timeout=config.start_timeout)
        self._mode = _mode(state.output_mode)
        self._plans = _LaterPlans()
        reading = records or partial(read, properties=dict(properties), patience=config.task_patience)
        self._source = StreamSource(
            spark, self._plans, read=reading, decoding=decoding, split=config.source.split_partitions
        )
        self._reports: QueryProgress | None = None
        self._failure: BaseException | None = None
        self._stream = stream
        self._frame = self._built()

    def begin_workers(self) -> None:
        """Start the executors' Python workers beside what this thread does next."""
        python_workers.begin(self._spark, ended=self._progress.leave_out_ended_tasks)

    def check(self) -> None:
        """Plan the query and an empty batch, for code that has passed `warm` before, and run nothing.

        What planning needs is loaded then before the executors are there.  Raises BadSpec as `warm`.
        """
        reports, context = self._empty_batch()
        jvm: Any = self._spark._jvm  # noqa: SLF001 - Spark's JVM API
        mode = jvm.org.apache.spark.sql.execution.ExplainMode.fromString("simple")
        with sink_job.translated(context, is_warm_up=True):
            reports._jdf.queryExecution().executedPlan()  # noqa: SLF001 - as above
            # Which plans a stream too, and starts none.
            self._frame._jdf.queryExecution().explainString(mode)  # noqa: SLF001 - as above

    def warm(self) -> None:
        """Write an empty batch from every core: Python workers, what `finish` makes of it, sessions of the sinks.

        Nothing is written: the fence is not held yet. What `stream` does with records is not tried. Raises BadSpec.
        """
        reports, context = self._empty_batch()
        with sink_job.translated(context, is_warm_up=True):
            self._sinks.run(reports)

    def leave_out(self, records: LeftOut) -> None:
        """Read none of these records. Call it before `run`."""
        self._source.left_out = records

    def run(self, location: str, plans: Plans, write: Callable[[DataFrame, int], None]) -> None:
        """Run the query on the checkpoint at a location until something is raised, and raise that.

        `write` gets the rows of each batch and its number.
        """
        from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's imports overlap the JVM's start
        from pyspark.errors import AnalysisException, PySparkException  # noqa: PLC0415

        self._plans.plans = plans
        self._quiet()

        def guarded(rows: DataFrame, batch: int) -> None:
            self._source.ran()
            try:
                write(rows, batch)
            except BaseException as error:
                self._failure = self._failure or error
                raise

        for starts in range(1, MOST_STARTS + 1):
            try:
                self._await(location, guarded)
            except AnalysisException as error:  # of the start
                raise _invalid(failures.short(error)) from error
            except (PySparkException, Py4JError) as error:
                if (found := self._source.failure or self._failure) is not None:
                    raise found from None
                # This process looks at a schema, before the tasks of the first batch.
                if starts < MOST_STARTS and failures.is_late_worker(error):
                    log.warning("the query starts again: %s", failures.short(error))
                    continue
                log.error("the query ended: %s", failures.with_stack(error))
                raise failures.of_query(error) from error
            raise BatchFailed("the query ended without an error")

    def _await(self, location: str, write: Callable[[DataFrame, int], None]) -> None:
        """Run one query to its end."""
        self._source.begin()
        query = self._started(location, write)
        self._reports = QueryProgress(query)
        query.awaitTermination()

    def write(self, rows: DataFrame, batch: Batch, row: FenceRow, *, is_repeated: bool) -> Written:
        """Write the rows of a batch at the row's timestamp; the state of the batch is written with them."""
        before = time.monotonic()
        context = batch_context.of_batch(
            self._config, rows.sparkSession, batch, row, is_repeated=is_repeated, states=self._states
        )
        token = replace(record_batches.token_of(context), committed=row.output_token)
        self._sinks.begin(token)
        rows.sparkSession.sparkContext.setLocalProperty(ATTEMPT, begin_attempt())
        with sink_job.translated(context, is_warm_up=False), self._once(rows) as shared:
            reports = self._sinks.reports(self._outputs(shared, context, is_warm_up=False), token)
            prepared = time.monotonic()
            work = self._sinks.run(reports)
        self._sinks.finish(token, work)
        phases = {
            "transform": round((prepared - before) * 1000),
            "job": round((time.monotonic() - prepared) * 1000),
        }
        call_sites.stop_recording(self._config.spark_conf)
        if batch.is_empty:  # the counts are of the last batch that read something
            return Written(work, phases=phases, memory=self._sinks.memory, cores=self._cores())
        counts = self._source.counts
        records, size = counts.total()
        return Written(
            work,
            phases=phases,
            records=records,
            size=size,
            reached=counts.reached(),
            epochs=counts.epochs(),
            record_times=counts.times(),
            memory=self._sinks.memory,
            cores=self._cores(),
        )

    def rehearse(self, parts: Sequence[Range]) -> int:
        """Do to these records what the query does, with empty state, and write nothing; return how many there are.

        Raises DriverError, also for operators that Spark has for streams alone.
        """
        batch = Batch(ranges=tuple(parts), until={part.key: part.until for part in parts})
        context = batch_context.of_warm_up(self._config, self._spark, batch, states=self._states)
        self._spark.sparkContext.setLocalProperty(ATTEMPT, begin_attempt())
        with sink_job.translated(context, is_warm_up=False):
            records = self._source.batch(batch)
            try:
                rows = self._stream(records, self._context())
            except Exception as error:
                raise failures.of_transform(error, is_warm_up=False) from error
            with self._once(rows) as shared:
                outputs = self._outputs(shared, context, is_warm_up=False)
                self._sinks.run(self._sinks.reports(outputs, record_batches.token_of(context)))
        return self._source.counts.total()[0]

    def event_time(self, batch: int) -> EventTime | None:
        """Return what the batches of this run before that one add, each once; None without such a batch."""
        return None if self._reports is None else self._reports.before(batch)

    def progress(self) -> int:
        """Return a number that grows while the current batch makes progress; see `SparkEngine.progress`."""
        return self._progress.poll()

    def _context(self) -> StreamContext:
        return StreamContext(
            pipeline=self._config.pipeline,
            epoch=self._config.epoch,
            args=self._config.args,
            spark=self._spark,
            states=self._states,
        )

    def _built(self) -> DataFrame:
        """Return the author's frame. Raises BadSpec unless it is a stream that Spark can run."""
        from pyspark.sql import DataFrame  # noqa: PLC0415

        try:
            found: object = self._stream(self._source.frame(), self._context())
        except Exception as error:
            raise _of_stream(error) from error
        # In this order: a query that reads the events has failed, or is active and about to fail.
        if self._spark.streams.active or self._source.failure is not None:
            raise _invalid(
                "stream started a query of its own",
                remedy="Return what stream derives from its events: Fencepost starts the only query.",
            )
        if not isinstance(found, DataFrame):
            raise _invalid(f"stream returned {type(found).__name__}, not a DataFrame")
        if not found.isStreaming:
            raise _invalid(
                "stream returned a DataFrame that is not streaming",
                remedy="Derive what stream returns from its events.",
            )
        self._check_mode(found)
        return found

    def _check_mode(self, frame: DataFrame) -> None:
        """Raise BadSpec for a query that Spark does not run in the output mode, before anything is claimed."""
        from pyspark.errors import AnalysisException  # noqa: PLC0415

        jvm: Any = self._spark._jvm  # noqa: SLF001 - Spark's JVM API
        sql = jvm.org.apache.spark.sql
        mode = getattr(sql.streaming.OutputMode, self._mode.capitalize())()
        try:
            plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark's JVM API
            sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
        except AnalysisException as error:
            raise _invalid(failures.short(error)) from error

    def _started(self, location: str, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
        writer = self._frame.writeStream.outputMode(self._mode).foreachBatch(write)
        return writer.option("checkpointLocation", location).start()

    def _outputs(self, rows: DataFrame, context: BatchContext, *, is_warm_up: bool) -> dict[str, DataFrame]:
        finish: Finish = self._finish or (lambda found, _context: found)
        return sink_job.outputs(finish, rows, context, self._sinks.names, is_warm_up=is_warm_up)

    @contextmanager
    def _once(self, rows: DataFrame) -> Iterator[DataFrame]:
        """Keep the rows for the block where they may be used twice: each use would update the state."""
        if self._finish is None:
            yield rows
            return
        kept = rows.persist()
        try:
            yield kept
        finally:
            kept.unpersist()

    def _empty_batch(self) -> tuple[DataFrame, BatchContext]:
        """Return what writes an empty batch. Raises BadSpec."""
        rows = python_workers.nothing(self._spark, self._cores(), self._frame.schema)
        context = batch_context.of_warm_up(self._config, self._spark, states=self._states)
        with sink_job.translated(context, is_warm_up=True):
            outputs = self._outputs(rows, context, is_warm_up=True)
            for name, frame in outputs.items():
                self._sinks.check(name, frame.schema)
            return self._sinks.reports(outputs, record_batches.token_of(context)), context

    def _cores(self) -> int:
        return python_workers.cores_of(self._spark)

    def _quiet(self) -> None:
        """Log once, as the verdict, what ends the query."""
        logging.getLogger(CALLBACKS_LOGGER).setLevel(logging.CRITICAL)
        jvm: Any = self._spark._jvm  # noqa: SLF001 - Spark's JVM API
        log4j = jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setLevel(QUERY_LOGGER, log4j.Level.OFF)


class _LaterPlans:
    """The plans of a query that is built before they are known: they begin with the claim."""

    plans: Plans

    def start(self) -> Mapping[str, int]:
        return self.plans.start()

    def end(self, start: Mapping[str, int]) -> Mapping[str, int]:
        return self.plans.end(start)

    def batch(self, start: Mapping[str, int], end: Mapping[str, int]) -> Batch:
        return self.plans.batch(start, end)


def _mode(name: str) -> str:
    if name not in MODES:
        raise BadSpec(
            f"output mode {name!r} is not {' or '.join(map(repr, MODES))}",
            reason=Reason.TRANSFORM_INVALID,
            remedy="Set spec.state.outputMode to update, and read the whole result from the sink's table.",
        )
    return name


def _invalid(message: str, *, remedy: str | None = None) -> BadSpec:
    return BadSpec(message, reason=Reason.TRANSFORM_INVALID, remedy=remedy)


def _of_stream(error: Exception) -> DriverError:
    """Return why `stream` raised: it gets no records, so it raises the same in each run."""
    found = failures.of_transform(error, is_warm_up=True)
    if not isinstance(found, BadSpec):
        return found
    return BadSpec(f"stream: {failures.short(error)}", reason=found.reason, remedy="Correct stream.")
