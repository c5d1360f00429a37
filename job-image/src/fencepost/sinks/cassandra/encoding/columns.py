"""How Arrow columns become CQL's bytes.

`fencepost.sinks.cassandra.type_fit` says before the first record which columns fit.  Times are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from cassandra.cqltypes import TupleType, UserType

from fencepost.contract import Reason
from fencepost.errors import BadSpec
from fencepost.sinks.cassandra.encoding.cells import Cells, Layout, grouped

Encoder = Callable[[pa.Array], Cells]


class NullInCollection(ValueError):
    """A list, set or map holds a null: Cassandra has no representation for it."""


MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
"""What an encoder raises for a value that does not fit."""


def encoder(cql_type: Any, protocol_version: int) -> Encoder:  # noqa: ANN401 - a class of cassandra.cqltypes
    """Return the function from an Arrow column to a column of CQL's bytes, null for null.

    Columns are encoded as a whole, with the fields and elements in them; decimal, inet, uuid and varint value by value,
    by the Cassandra driver.
    The function raises NullInCollection for a null inside a collection, BadSpec for a struct with other fields than the
    table's type, and pyarrow.ArrowInvalid, TypeError or ValueError for a value that does not fit.
    """
    encode = _encoder(cql_type, protocol_version)

    def encoded(column: pa.Array) -> Cells:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_fixed_size_list(column.type):  # it has no offsets
            column = column.cast(pa.list_(column.type.value_field))
        return encode(column)

    return encoded


def _encoder(cql_type: Any, version: int) -> Encoder:  # noqa: ANN401, PLR0911 - one line per kind of type
    if issubclass(cql_type, UserType):  # before the names: a user-defined type may be called "text"
        fields = {
            name: encoder(kind, version) for name, kind in zip(cql_type.fieldnames, cql_type.subtypes, strict=True)
        }
        return _of_valid(lambda column: _user_type(column, fields, cql_type.typename))
    name = cql_type.typename
    if issubclass(cql_type, TupleType):
        elements = [encoder(kind, version) for kind in cql_type.subtypes]
        return _of_valid(lambda column: _tuple(column, elements))
    if name == "frozen":
        return _encoder(cql_type.subtypes[0], version)
    if name in {"list", "set"}:
        element = _not_null(encoder(cql_type.subtypes[0], version), f"an element of a {name}")
        return _of_valid(lambda column: _collection(column, [(column.values, element)]))
    if name == "map":
        key = _not_null(encoder(cql_type.subtypes[0], version), "a key of a map")
        value = _not_null(encoder(cql_type.subtypes[1], version), "a value of a map")
        return _of_valid(lambda column: _collection(column, [(column.keys, key), (column.items, value)]))
    if name in _FIXED:
        arrow_type, dtype = _FIXED[name]
        return lambda column: _fixed(column.cast(arrow_type), dtype)
    if name in {"text", "varchar", "ascii"}:
        return lambda column: column.cast(pa.string()).cast(pa.binary())
    if name == "blob":
        return lambda column: column.cast(pa.binary())
    if name in _COLUMNS:
        return _COLUMNS[name]
    convert = _CONVERSIONS.get(name, _unchanged)
    return lambda column: pa.array(
        [None if value is None else cql_type.serialize(convert(value), version) for value in column.to_pylist()],
        pa.binary(),
    )


def _address(value: str) -> str:
    """Return an IPv4 or IPv6 address in its one spelling. Raises ValueError.

    The Cassandra driver asks the C library, which reads 010.0.0.1 as octal and 10.1 as 10.0.0.1.
    """
    found = ip_address(value)
    if isinstance(found, IPv6Address) and found.scope_id is not None:
        raise ValueError(f"{value!r} names an interface, and Cassandra stores none")
    return str(found)


_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {"inet": _address, "uuid": UUID, "timeuuid": UUID}


def _unchanged(value: Any) -> Any:  # noqa: ANN401 - any value of the frame
    return value


def _of_valid(encode: Encoder) -> Encoder:
    """Return `encode` for columns with nulls: what lies below a null is not looked at."""

    def encoded(column: pa.Array) -> Cells:
        if not column.null_count:
            return encode(column)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        places = pa.array(np.cumsum(valid) - 1, mask=~valid)
        return encode(column.drop_null()).take(places)

    return encoded


def _user_type(column: pa.StructArray, fields: Mapping[str, Encoder], name: str) -> Cells:
    """Encode structs without nulls by the names of their fields; a field that the structs lack is null."""
    if unknown := [field.name for field in column.type if field.name not in fields]:
        raise _other_fields(f"type {name} has the fields {', '.join(fields)}, and the struct {', '.join(unknown)}")
    layout = Layout(len(column))
    for field, encode in fields.items():
        index = column.type.get_field_index(field)
        if index < 0:
            layout.null()
        else:
            layout.value(_field(field, encode, column.field(index)))
    return layout.joined()


def _tuple(column: pa.StructArray, elements: Sequence[Encoder]) -> Cells:
    """Encode structs without nulls by the order of their fields."""
    if column.type.num_fields != len(elements):
        raise _other_fields(f"the tuple has {len(elements)} elements, and the struct {column.type.num_fields} fields")
    layout = Layout(len(column))
    for index, encode in enumerate(elements):
        layout.value(_field(column.type.field(index).name, encode, column.field(index)))
    return layout.joined()


def _field(name: str, encode: Encoder, column: pa.Array) -> Cells:
    """Encode a field of structs; what it raises for a value begins with the field's name."""
    try:
        return encode(column)
    except NullInCollection as error:
        raise NullInCollection(f"field {name}: {error}") from error
    except MISFITS as error:
        raise ValueError(f"field {name}: {error}") from error


def _other_fields(message: str) -> BadSpec:
    """Return the error for a type that was altered between the check and the first rows."""
    return BadSpec(message, reason=Reason.SINK_MISMATCH, remedy="Make the transform's columns and the table agree.")


def _collection(column: pa.Array, parts: Sequence[tuple[pa.Array, Encoder]]) -> Cells:
    """Encode lists, sets or maps without nulls: the number of elements, then each one, of a map each key and value."""
    offsets = column.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    elements = Layout(last - first)
    for values, encode in parts:
        elements.value(encode(values.slice(first, last - first)))
    layout = Layout(len(column))
    layout.fixed(np.diff(offsets).astype(">i4"))
    layout.variable(grouped(elements.joined(), offsets - first))
    return layout.joined()


def _not_null(encode: Encoder, place: str) -> Encoder:
    """Return `encode` for the parts of a collection.

    The Cassandra driver serializes a null there as zero bytes: an empty text, or a number of no length.
    """

    def encoded(column: pa.Array) -> Cells:
        if column.null_count:
            raise NullInCollection(f"null is {place}, and Cassandra stores no nulls in collections")
        return encode(column)

    return encoded


_FIXED: Final = {
    "tinyint": (pa.int8(), ">i1"),
    "smallint": (pa.int16(), ">i2"),
    "int": (pa.int32(), ">i4"),
    "bigint": (pa.int64(), ">i8"),
    "time": (pa.int64(), ">i8"),
    "float": (pa.float32(), ">f4"),
    "double": (pa.float64(), ">f8"),
}


def _fixed(column: pa.Array, dtype: str) -> Cells:
    """Encode numbers of one width, big-endian."""
    filled = column.fill_null(0) if column.null_count else column
    return _cells(filled.to_numpy(zero_copy_only=False).astype(dtype), column)


def _cells(values: Any, column: pa.Array) -> Cells:  # noqa: ANN401 - a numpy array
    """Return the bytes of `values` as they lie in memory, null where `column` is."""
    validity = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(values.dtype.itemsize), len(values), [validity, pa.py_buffer(values)], column.null_count
    )


def _booleans(column: pa.Array) -> Cells:
    filled = column.cast(pa.bool_()).fill_null(False) if column.null_count else column.cast(pa.bool_())
    return _cells(filled.to_numpy(zero_copy_only=False).astype("u1"), column)


def _timestamps(column: pa.Array) -> Cells:
    """Encode as milliseconds since 1970; Cassandra stores no finer ones, the rest is truncated."""
    # By numpy: Arrow's first cast of a zoned timestamp loads the time zones, which took five seconds.
    raw = column.view(pa.int64())
    ticks = (raw.fill_null(0) if raw.null_count else raw).to_numpy(zero_copy_only=False)
    milliseconds = ticks // _PER_MILLISECOND[column.type.unit] if column.type.unit != "s" else ticks * 1000
    return _cells(milliseconds.astype(">i8"), column)


_PER_MILLISECOND: Final = {"ms": 1, "us": 1000, "ns": 1_000_000}


def _dates(column: pa.Array) -> Cells:
    """Encode as days, 1970-01-01 being 2**31 (CQL binary protocol, §6.5)."""
    days = column.cast(pa.date32()).cast(pa.int32())
    filled = (days.fill_null(0) if days.null_count else days).to_numpy(zero_copy_only=False)
    return _cells((filled.astype(np.int64) + 2**31).astype(">u4"), column)


_COLUMNS: Final[dict[str, Encoder]] = {"boolean": _booleans, "timestamp": _timestamps, "date": _dates}
