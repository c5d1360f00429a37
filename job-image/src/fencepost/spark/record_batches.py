"""A batch whose transform takes record batches: read, transform and write in one Python worker.

A DataFrame of the same transform is two Python functions with the JVM between them, which takes each record in and out
of Arrow twice. Here the JVM sees no record: one `mapInArrow` gives each task its slice and takes back the counts of
rows that the sinks report. It is a query and no plain RDD job, because what a running task has done is visible to the
driver in a query alone, and because both kinds of jobs would keep a daemon of Python workers each. The query is planned
once: what differs from batch to batch is the job's Assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from fencepost.batch import Range
from fencepost.contract import Reason
from fencepost.errors import BadSpec, RecordFailed, as_worker_error
from fencepost.formats.decoding import AS_BYTES, Decoding
from fencepost.kafka.reader import ARROW_SCHEMA
from fencepost.sinks import BatchToken, task_half
from fencepost.spark import failures
from fencepost.spark.outputs import named
from fencepost.spark.source import Read, counted
from fencepost.spark.tasks.assignment import PROPERTY, Assignment
from fencepost.spark.tasks.fan_out import write_all

if TYPE_CHECKING:
    from fencepost.context import RecordContext, RecordTransform
    from fencepost.sinks import SinkTask
    from fencepost.spark.tasks.counts import SliceCounter
    from fencepost.spark.tasks.fan_out import Write


def empty(decoding: Decoding = AS_BYTES) -> pa.RecordBatch:
    """Return the batch of a warm-up."""
    return decoding(pa.RecordBatch.from_pylist([], ARROW_SCHEMA))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is the same for each batch of a run. In a Python worker it does the slices of the job's Assignment."""

    read: Read
    decoding: Decoding
    counter: Callable[[int], SliceCounter]
    """The counter of the batch with a number."""
    transform: RecordTransform
    context: RecordContext
    """Of no batch: what differs is in the Assignment."""
    schemas: Mapping[str, pa.Schema]
    sinks: Mapping[str, SinkTask]

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the slices whose numbers are in `rows`; yield the sinks' reports. Raises WorkerError."""
        from pyspark import TaskContext  # noqa: PLC0415

        task = TaskContext.get()
        text = None if task is None else task.getLocalProperty(PROPERTY)
        if text is None:
            raise RuntimeError(f"the job has no property {PROPERTY}")
        return self.of(Assignment.of_json(text))(rows)

    def of(self, assignment: Assignment) -> BatchWork:
        """Return what the tasks of one batch do."""
        context = replace(
            self.context,
            version=assignment.version,
            token=assignment.token,
            offsets=assignment.offsets,
            is_repeated=assignment.is_repeated,
        )
        token = token_of(context)
        return BatchWork(
            slices=assignment.slices,
            read=self.read,
            decoding=self.decoding,
            counter=self.counter(assignment.number),
            transform=self.transform,
            context=context,
            schemas=self.schemas,
            writes={name: partial(task_half.write, task, token, name) for name, task in self.sinks.items()},
        )


def token_of(context: RecordContext) -> BatchToken:
    """Return what the sinks get to know about a batch."""
    return BatchToken(
        pipeline=context.pipeline,
        epoch=context.epoch,
        version=context.version,
        token=context.token,
        offsets=context.offsets,
        is_repeated=context.is_repeated,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWork:
    """What each task of a batch does with its slice."""

    slices: Sequence[Sequence[Range]]
    read: Read
    decoding: Decoding
    counter: SliceCounter
    transform: RecordTransform
    context: RecordContext
    schemas: Mapping[str, pa.Schema]
    """By sink: the schema that the transform gave the empty batch, which has been checked against the table."""
    writes: Mapping[str, Write]
    """By sink."""

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the slices whose numbers are in `rows`; yield the sinks' reports. Raises WorkerError."""
        outputs = (
            self._transformed(records)
            for batch in rows
            for number in batch.column(0).to_pylist()
            for records in self._records(number)
        )
        if len(self.writes) == 1:
            ((name, write),) = self.writes.items()
            yield from write(output[name] for output in outputs)
            return
        yield from write_all(outputs, self.writes)

    def _records(self, number: int) -> Iterator[pa.RecordBatch]:
        read = self.read(self.slices[number], reached=self.counter.reach, seen=self.counter.see)
        yield from map(self.decoding, counted(read, self.counter, number))
        if not self.context.offsets:  # of a warm-up
            yield empty(self.decoding)

    def _transformed(self, records: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
        try:
            return self._outputs(records)
        except Exception as error:
            raise as_worker_error(failures.of_worker(error)) from error

    def _outputs(self, records: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
        outputs = named(self.transform(records, self.context), tuple(self.writes), pa.RecordBatch)
        for name, output in outputs.items():
            if not output.schema.equals(self.schemas[name]):
                raise RecordFailed(
                    f"for sink {name!r} the transform returned the columns {_columns(output.schema)}, and for the empty"
                    f" batch {_columns(self.schemas[name])}",
                    reason=Reason.TRANSFORM_INVALID,
                    remedy="Return the same columns, of the same types, for every batch.",
                )
        return outputs


def schemas(
    transform: RecordTransform, context: RecordContext, sinks: Sequence[str], decoding: Decoding = AS_BYTES
) -> dict[str, pa.Schema]:
    """Return by sink what the transform makes of the empty batch. Raises BadSpec, and what the transform raises."""
    outputs = named(transform(empty(decoding), context), sinks, pa.RecordBatch)
    for name, output in outputs.items():
        if len(set(output.schema.names)) < len(output.schema.names):
            raise BadSpec(
                f"for sink {name!r} the transform returned two columns of one name: {', '.join(output.schema.names)}",
                reason=Reason.TRANSFORM_INVALID,
            )
    return {name: output.schema for name, output in outputs.items()}


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
