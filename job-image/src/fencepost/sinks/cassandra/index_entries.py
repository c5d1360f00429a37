"""The entries of a purge index for the rows of an Arrow batch, in the Python workers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from fencepost.sinks.cassandra.encoding.cells import Cells
from fencepost.sinks.cassandra.encoding.rows import joined_cells
from fencepost.sinks.cassandra.purge_index import BUCKET, COORDINATES, PRIMARY_KEY, Index


def entries(index: Index, coordinates: pa.RecordBatch, key: Sequence[Cells]) -> pa.RecordBatch:
    """Return an entry per row, with the index's columns in the order of its key.

    `coordinates` has the columns topic, partition and offset; `key` the table's primary key as CQL's bytes.
    """
    topic, partition, offset = (coordinates.column(name) for name in COORDINATES)
    columns = {
        "pipeline": pa.repeat(index.pipeline, coordinates.num_rows),
        "topic": topic,
        "partition": partition,
        "bucket": pc.divide(offset, BUCKET),
        "offset": offset,
        "key": joined_cells(key),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in PRIMARY_KEY], names=list(PRIMARY_KEY))
