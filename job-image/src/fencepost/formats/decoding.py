"""The columns `key` and `value` of Arrow batches: bytes in, typed columns out.

A Decoding is pickled into the tasks. The schemas that records name are kept in the Python worker, which Spark reuses
from task to task and batch to batch: a worker asks the registry once for each id. They are not kept on disk: a worker
starts rarely, and a file that others can write would decide what records mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from fencepost.contract import Reason, offset_key, record_place
from fencepost.contract.formats import Format, RecordFormat
from fencepost.errors import DriverError, RecordFailed, as_worker_error
from fencepost.formats import wire
from fencepost.formats.access import Access
from fencepost.formats.registry import Registry
from fencepost.formats.schema import Reader, Schema, unsupported

MOST_SCHEMAS: Final = 1000
"""Writers' schemas that a worker keeps, of all columns together."""
_LONGEST: Final = 300
"""Characters of what a library says of a record."""


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """A column, the schema to read with, and where those of the writers are. `patience` is in seconds."""

    name: str
    schema: Schema
    message: str
    access: Access
    patience: float

    @property
    def type(self) -> pa.DataType:
        """The column's type. Raises BadSpec for a schema that has none."""
        return _reader(self).type


@dataclass(frozen=True, slots=True)
class Decoding:
    """Decodes columns of a batch; without any, a batch stays as it is."""

    columns: tuple[DecodedColumn, ...] = ()

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a batch after decoding. Raises BadSpec."""
        for column in self.columns:
            schema = schema.set(schema.get_field_index(column.name), pa.field(column.name, column.type))
        return schema

    def __call__(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records with decoded columns.

        Raises WorkerError: of DependencyDown where the registry does not give a schema, of RecordFailed, which names
        the record, where a key or value is not what its schema says.
        """
        try:
            for column in self.columns:
                records = _decoded(records, column)
        except DriverError as error:
            raise as_worker_error(error) from error
        return records


AS_BYTES: Final = Decoding()


def decoded_column(name: str, declared: RecordFormat, access: Access, *, patience: float) -> DecodedColumn:
    """Ask for the schema to read with. Raises DependencyDown, and BadSpec for one that cannot be columns."""
    schema = Registry(access, declared.format, patience=patience).version(declared.subject, declared.version)
    if schema.format is not declared.format:
        raise unsupported(
            "",
            f"version {declared.version} of subject {declared.subject!r} is {schema.format}, and"
            f" spec.source.kafka.{name}.format is {declared.format}",
            f"Correct spec.source.kafka.{name}.",
        )
    column = DecodedColumn(name, schema, declared.message, access, patience)
    _ = column.type
    return column


@lru_cache(maxsize=16)
def _reader(column: DecodedColumn) -> Reader:
    # The libraries are imported where a pipeline needs them.
    match column.schema.format:
        case Format.AVRO:
            from fencepost.formats.avro import AvroReader  # noqa: PLC0415

            return AvroReader(column.schema)
        case Format.PROTOBUF:
            from fencepost.formats.protobuf import ProtobufReader  # noqa: PLC0415

            return ProtobufReader(column.schema, column.message)
        case Format.JSON_SCHEMA:
            from fencepost.formats.json_schema import JsonReader  # noqa: PLC0415

            return JsonReader(column.schema)


@lru_cache(maxsize=MOST_SCHEMAS)
def _decoder(column: DecodedColumn, schema_id: int) -> Callable[[bytes], object]:
    """Return what decodes the payloads of a writer's schema. Raises DependencyDown, and what the schema is wrong in."""
    registry = Registry(column.access, column.schema.format, patience=column.patience)
    writer = registry.by_id(schema_id)
    if writer.format is not column.schema.format:
        raise ValueError(f"it is {writer.format}, and not {column.schema.format}")
    return _reader(column).decoder(writer)


def _decoded(records: pa.RecordBatch, column: DecodedColumn) -> pa.RecordBatch:
    index = records.schema.get_field_index(column.name)
    raw: Sequence[bytes | None] = records.column(index).to_pylist()
    values = _values(records, column, raw)
    try:
        decoded = pa.array(values, column.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        for position, value in enumerate(values):
            _check_fits(records, column, position, value)
        raise
    return records.set_column(index, pa.field(column.name, column.type), decoded)


def _values(records: pa.RecordBatch, column: DecodedColumn, raw: Sequence[bytes | None]) -> list[object]:
    """Return what Arrow takes for each record. Raises DriverError."""
    found: list[object] = []
    last, decode = -1, None
    for position, record in enumerate(raw):
        if record is None:
            found.append(None)
            continue
        try:
            schema_id = wire.schema_id(record)
            if schema_id != last or decode is None:
                decode, last = _decoder(column, schema_id), schema_id
            found.append(decode(record[wire.HEADER :]))
        except (DriverError, MemoryError):
            raise
        except Exception as error:
            # Also StopIteration: libraries raise many kinds for bytes that are something else.
            raise _undecodable(records, column, position, error) from error
    return found


def _check_fits(records: pa.RecordBatch, column: DecodedColumn, position: int, value: object) -> None:
    try:
        pa.array([value], column.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise _undecodable(records, column, position, error) from error


def _undecodable(records: pa.RecordBatch, column: DecodedColumn, position: int, error: Exception) -> RecordFailed:
    topic, partition, offset = (records.column(name)[position].as_py() for name in ("topic", "partition", "offset"))
    place, text = record_place(offset_key(topic, partition), offset), f"{type(error).__name__}: {error}"[:_LONGEST]
    return RecordFailed(
        f"{place}: the {column.name} cannot be decoded as {column.schema.format}: {text}",
        reason=Reason.RECORD_UNDECODABLE,
        remedy="Correct the producer. spec.onPoison decides what happens to the record.",
    )
