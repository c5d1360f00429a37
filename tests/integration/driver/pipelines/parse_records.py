"""Transforms of record batches of the integration tests: the rows of parse.py."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from fencepost import RecordContext, record_batches

VALUE = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("city", pa.string())])


@record_batches
def transform(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
    """One row a record; args: records in a bucket."""
    size = int(context.args[0])
    lines = b"\n".join(batch.column("value").to_pylist())
    options = json.ParseOptions(explicit_schema=VALUE)
    values = json.read_json(pa.py_buffer(lines), parse_options=options) if batch.num_rows else VALUE.empty_table()
    return pa.RecordBatch.from_pydict(
        {
            "partition": batch.column("partition"),
            "bucket": pc.divide(batch.column("offset"), size),
            "offset": batch.column("offset"),
            "at": batch.column("timestamp"),
            **{name: values.column(name).combine_chunks() for name in VALUE.names},
        }
    )


@record_batches
def two(batch: pa.RecordBatch, context: RecordContext) -> Mapping[str, pa.RecordBatch]:
    """The same rows to two sinks."""
    rows = transform(batch, context)
    return {"rows": rows, "even": rows.filter(pc.equal(pc.bit_wise_and(rows.column("n"), 1), 0))}


@record_batches
def null_key(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
    rows = transform(batch, context)
    return rows.set_column(1, "bucket", pa.nulls(rows.num_rows, pa.int64()))


@record_batches
def wrong_column(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
    return transform(batch, context).append_column("town", pa.nulls(batch.num_rows, pa.string()))


@record_batches
def failing(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
    if context.offsets:
        raise ArithmeticError("the author's own mistake")
    return transform(batch, context)
