"""Arrow batches as requests to Cassandra: unlogged batches of one partition, encoded before the driver sees them.

The Cassandra driver does everything else with such a request: routing, framing, timeouts, and preparing the statement
again where a node has forgotten it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cassandra.cluster import ResponseFuture
from cassandra.protocol import BatchMessage
from cassandra.query import BatchStatement, BatchType, BoundStatement

from fencepost.errors import PoisonRecord
from fencepost.sinks.cassandra.encoding.cells import Cells
from fencepost.sinks.cassandra.encoding.columns import MISFITS, Encoder, NullInCollection
from fencepost.sinks.cassandra.encoding.rows import Rows, by_partition, lay_out, routing_keys, values_of

BATCH_ROWS: Final = 1_000
BATCH_BYTES: Final = 64 * 1024
"""Bytes of rows in one request; a larger row has a request of its own."""
STEP_BYTES: Final = 32 * 1024 * 1024
"""Bytes of an Arrow batch that are encoded at once: the encoded rows are held beside it."""
KEY_BYTES: Final = 65_535
"""Longest value of a partition key's column: its length has two bytes in Cassandra and in the driver's routing."""
SOURCE_COLUMNS: Final = ("topic", "partition", "offset")
"""Columns of the author's input; a message about a row gives those that the frame keeps under these names."""
SHOWN: Final = 100
"""Characters of one value in a message."""
NULL_REMEDY: Final = (
    "Remove the nulls in the transform, for example with array_compact or map_filter, or drop such records."
)


class EncodedRows(BatchStatement):  # type: ignore[misc] # the library is untyped
    """An unlogged batch of rows that are encoded already. A session sends it once `send_encoded` listens to it."""

    def __init__(self, rows: memoryview, count: int, *, keyspace: str, routing_key: bytes) -> None:
        super().__init__(BatchType.UNLOGGED)
        self.rows = rows
        self.count = count
        self.keyspace = keyspace
        self.routing_key = routing_key


class _EncodedBatchMessage(BatchMessage):  # type: ignore[misc]
    """A BATCH message around rows that are encoded already. The driver registers classes without the underscore."""

    def __init__(self, plain: BatchMessage, rows: memoryview, count: int) -> None:
        super().__init__(
            plain.batch_type,
            [],
            plain.consistency_level,
            plain.serial_consistency_level,
            plain.timestamp,
            plain.keyspace,
        )
        self._rows = rows
        self._count = count

    def send_body(self, f: Any, protocol_version: int) -> None:  # noqa: ANN401 - a file of the driver's
        """Write the body: the driver's own around the rows, which are three bytes after its start."""
        frame = io.BytesIO()
        super().send_body(frame, protocol_version)
        around = frame.getvalue()
        f.write(around[:1] + self._count.to_bytes(2, "big"))
        f.write(self._rows)
        f.write(around[3:])


def send_encoded(future: ResponseFuture) -> None:
    """Give a request of EncodedRows its message: a request listener (`Session.add_request_init_listener`)."""
    query = future.query
    if isinstance(query, EncodedRows):
        future.message = _EncodedBatchMessage(future.message, query.rows, query.count)


@dataclass(frozen=True, slots=True)
class Request:
    """Some rows of one Arrow batch that have one partition key, as one statement."""

    change: Change
    source: pa.RecordBatch
    rows: Rows
    first: int
    last: int
    statement: EncodedRows | BoundStatement

    @property
    def count(self) -> int:
        """How many rows."""
        return self.last - self.first

    @property
    def size(self) -> int:
        """Bytes of the encoded rows."""
        return len(self.rows.between(self.first, self.last))

    def singles(self) -> Iterator[Request]:
        """Yield each row as a request of its own."""
        for index in range(self.first, self.last):
            statement = self.change.bound(self.rows.between(index, index + 1))
            yield Request(self.change, self.source, self.rows, index, index + 1, statement)

    def describe_first(self) -> str:
        """Return which row the first one is."""
        return self.change.describe(self.source, int(self.rows.positions[self.first]))


@dataclass(frozen=True, slots=True)
class Change:
    """A prepared INSERT or DELETE for one set of columns, with one encoder per column."""

    prepared: Any
    keyspace: str
    columns: tuple[str, ...]
    key: tuple[int, ...]
    """Positions of the partition key's columns."""
    primary: tuple[str, ...]
    """Columns of the primary key."""
    encoders: tuple[Encoder, ...]
    table: str
    patience: float
    timestamp_first: bool = False
    """Whether the write timestamp is the statement's first value, as in a DELETE, and not the last."""

    def requests(self, batch: pa.RecordBatch, timestamp: int) -> Iterator[Request]:
        """Yield the batch's rows as requests of one partition each, bounded in rows and bytes.

        Raises PoisonRecord naming the column and the row of a value that does not fit.
        """
        for part in steps(batch):
            yield from self._requests(part, timestamp)

    def encoded(self, batch: pa.RecordBatch, names: Sequence[str]) -> list[Cells]:
        """Return some columns of a batch, which has the statement's. Raises PoisonRecord as `requests` does."""
        return [self._encode(batch, self.columns.index(name)) for name in names]

    def _requests(self, batch: pa.RecordBatch, timestamp: int) -> Iterator[Request]:
        columns = [self._encode(batch, index) for index in range(len(self.columns))]
        self._check_keys(batch, columns)
        keys = routing_keys([columns[position] for position in self.key])
        rows = by_partition(self._lay_out(columns, timestamp), keys)
        for first, last in rows.pieces(rows=BATCH_ROWS, size=BATCH_BYTES):
            encoded = rows.between(first, last)
            if last - first == 1:
                yield Request(self, batch, rows, first, last, self.bound(encoded))
                continue
            key = keys[int(rows.positions[first])].as_py()
            statement = EncodedRows(encoded, last - first, keyspace=self.keyspace, routing_key=key)
            yield Request(self, batch, rows, first, last, statement)

    def _lay_out(self, columns: Sequence[Cells], timestamp: int) -> pa.BinaryArray:
        return lay_out(self.prepared.query_id, columns, timestamp, timestamp_first=self.timestamp_first)

    def bound(self, row: memoryview) -> BoundStatement:
        """Return the statement that writes one row: for Cassandra cheaper than a batch of one."""
        statement = BoundStatement(self.prepared)
        statement.values = values_of(row)
        return statement

    def describe(self, batch: pa.RecordBatch, index: int) -> str:
        """Return 'topic=…, partition=…, offset=…' and the primary key of a row, as far as the frame has the columns."""
        return f"row {self._named(batch, index, (*SOURCE_COLUMNS, *self.primary))}"

    def key_of(self, batch: pa.RecordBatch, index: int) -> str:
        """Return the primary key of a row, 'id=5, day=2026-01-31'."""
        return self._named(batch, index, self.primary)

    def _named(self, batch: pa.RecordBatch, index: int, names: Sequence[str]) -> str:
        found = [f"{name}={_shown(batch.column(name)[index])}" for name in dict.fromkeys(names) if name in self.columns]
        return ", ".join(found)

    def _encode(self, batch: pa.RecordBatch, index: int) -> Cells:
        name, one, column = self.columns[index], self.encoders[index], batch.column(index)
        if name in self.primary and column.null_count:
            raise PoisonRecord(
                f"{self.table}.{name} is part of the primary key, and null in {column.null_count} of {len(column)} rows"
                f"; the first is {self.describe(batch, _first_null(column))}"
            )
        try:
            return one(column)
        except MISFITS:
            position, error = _first_misfit(one, column)
            where = self.describe(batch, position)
            if isinstance(error, NullInCollection):
                raise PoisonRecord(f"{self.table}.{name}: {error}; {where}", remedy=NULL_REMEDY) from error
            raise PoisonRecord(
                f"{self.table}.{name}: a value of type {column.type} does not fit: {error}; {where}"
            ) from error

    def _check_keys(self, batch: pa.RecordBatch, columns: Sequence[Cells]) -> None:
        for position in self.key:
            sizes = pc.binary_length(columns[position]).to_numpy(zero_copy_only=False)
            longest = int(sizes.max(initial=0))
            if longest > KEY_BYTES:
                raise PoisonRecord(
                    f"{self.table}.{self.columns[position]} is part of the partition key, and takes {longest} bytes in"
                    f" a row; Cassandra takes {KEY_BYTES}; {self.describe(batch, int(sizes.argmax()))}"
                )


def steps(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in parts that are encoded at once."""
    step = max(1, batch.num_rows * STEP_BYTES // max(_decoded_bytes(batch), STEP_BYTES))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _decoded_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch whose dictionaries are decoded: one long value may be that of all rows."""
    return int(batch.nbytes) + sum(map(_repeated_bytes, batch.columns))


def _repeated_bytes(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_dictionary(kind) and any(is_one(kind.value_type) for is_one in _OF_ANY_LENGTH):
        return pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
    if pa.types.is_struct(kind):
        return sum(_repeated_bytes(column.field(index)) for index in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _repeated_bytes(column.keys) + _repeated_bytes(column.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _repeated_bytes(column.values)
    return 0


_OF_ANY_LENGTH: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def _first_null(column: pa.Array) -> int:
    return int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])


def _first_misfit(one: Encoder, column: pa.Array) -> tuple[int, Exception]:
    """Return the position of the first value that cannot be encoded, and why."""
    for index in range(len(column)):
        try:
            one(column.slice(index, 1))
        except MISFITS as error:
            return index, error
    raise RuntimeError("each value fits alone, and the column does not")


def _shown(value: pa.Scalar) -> str:
    try:
        text = str(value.as_py())
    except (ValueError, OverflowError) as error:  # of a string that is not UTF-8, of a time that Python does not have
        text = f"<{type(error).__name__}>"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
