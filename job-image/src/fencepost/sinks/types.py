"""Which Spark types fit which CQL types, and how Arrow columns become CQL's bytes.

Nothing is narrowed silently: a long does not go into an int; the author casts.  Times are UTC.  Lists must be frozen: a
list written twice at one timestamp, as a repeated task does, would hold its elements twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa

Cells: TypeAlias = pa.Array
"""A column of CQL's bytes: a BinaryArray, or a FixedSizeBinaryArray for a type of one width."""
Encoder = Callable[[pa.Array], Cells]


class NullInCollection(ValueError):
    """A list, set or map holds a null: Cassandra has no representation for it."""


_ACCEPTS: Final[dict[str, tuple[str, ...]]] = {
    "text": ("string", "varchar", "char"),
    "varchar": ("string", "varchar", "char"),
    "ascii": ("string", "varchar", "char"),
    "inet": ("string",),
    "uuid": ("string",),
    "timeuuid": ("string",),
    "blob": ("binary",),
    "boolean": ("boolean",),
    "tinyint": ("tinyint",),
    "smallint": ("smallint", "tinyint"),
    "int": ("int", "smallint", "tinyint"),
    "bigint": ("bigint", "int", "smallint", "tinyint"),
    "varint": ("bigint", "int", "smallint", "tinyint"),
    "float": ("float",),
    "double": ("double", "float"),
    "decimal": ("decimal",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "date": ("date",),
    "time": ("bigint",),
}
"""CQL type to the Spark types (`simpleString`, without parameters) that it takes."""


def mismatch(spark_type: str, cql_type: str) -> str | None:  # noqa: PLR0911 - one line per case
    """Return why a column of `spark_type` cannot be written to `cql_type`, or None when it can."""
    kind, inner = _parts(cql_type)
    if kind == "frozen":
        return (
            mismatch(spark_type, inner[0]) if inner[0].partition("<")[0] != "list" else _elements(spark_type, inner[0])
        )
    if kind == "list":
        return "a list that is not frozen doubles when a task is repeated; make it frozen<list<…>>"
    if kind in {"set", "map"}:
        return _elements(spark_type, cql_type)
    if kind == "counter":
        return "a counter cannot be written twice safely; keep rows and sum them when reading"
    accepted = _ACCEPTS.get(kind)
    if accepted is None:
        return f"type {cql_type} is not supported"
    if spark_type.partition("(")[0] in accepted:
        return None
    return f"{cql_type} takes {' or '.join(accepted)}, not {spark_type}; cast it in the transform"


def _elements(spark_type: str, cql_type: str) -> str | None:
    kind, inner = _parts(cql_type)
    spark_kind, spark_inner = _parts(spark_type)
    if spark_kind != ("map" if kind == "map" else "array") or len(spark_inner) != len(inner):
        return f"{cql_type} takes {'a map' if kind == 'map' else 'an array'}, not {spark_type}"
    for have, want in zip(spark_inner, inner, strict=True):
        problem = mismatch(have, want)
        if problem is not None:
            return problem
    return None


def _parts(name: str) -> tuple[str, list[str]]:
    """Split 'map<text, list<int>>' into ('map', ['text', 'list<int>'])."""
    found = re.fullmatch(r"([a-z_]+)<(.*)>", name)
    if found is None:
        return name, []
    parts, depth = [""], 0
    for character in found.group(2):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return found.group(1), [part.strip() for part in parts]


def encoder(cql_type: Any, protocol_version: int) -> Encoder:  # noqa: ANN401 - a class of cassandra.cqltypes
    """Return the function from an Arrow column to a column of CQL's bytes, null for null.

    The types that most tables consist of are encoded a column at a time; collections, decimal, inet, uuid and varint
    value by value, by the Cassandra driver.
    The function raises NullInCollection for a null inside a collection, and pyarrow.ArrowInvalid, TypeError or
    ValueError for a value that does not fit.
    """
    encode = _encoder(cql_type, protocol_version)

    def encoded(column: pa.Array) -> Cells:
        return encode(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)

    return encoded


def _encoder(cql_type: Any, protocol_version: int) -> Encoder:  # noqa: ANN401 - a class of cassandra.cqltypes
    name = cql_type.typename
    if name in _FIXED:
        arrow_type, dtype = _FIXED[name]
        return lambda column: _fixed(column.cast(arrow_type), dtype)
    if name in {"text", "varchar", "ascii"}:
        return lambda column: column.cast(pa.string()).cast(pa.binary())
    if name == "blob":
        return lambda column: column.cast(pa.binary())
    if name in _COLUMNS:
        return _COLUMNS[name]
    convert = _converter(cql_type)
    return lambda column: pa.array(
        [
            None if value is None else cql_type.serialize(convert(value), protocol_version)
            for value in column.to_pylist()
        ],
        pa.binary(),
    )


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


def _converter(cql_type: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - a class of cassandra.cqltypes
    """Return what turns Arrow's Python value into one the Cassandra driver serializes."""
    name = cql_type.typename
    inner: Sequence[Any] = getattr(cql_type, "subtypes", ())
    if name in {"uuid", "timeuuid"}:
        return UUID
    if name == "frozen":
        return _converter(inner[0])
    if name in {"list", "set"}:
        element = _not_null(inner[0], f"an element of a {name}")
        return lambda values: [element(value) for value in values]
    if name == "map":
        key, element = _not_null(inner[0], "a key of a map"), _not_null(inner[1], "a value of a map")
        return lambda pairs: {key(k): element(v) for k, v in pairs}
    return lambda value: value


def _not_null(cql_type: Any, place: str) -> Callable[[Any], Any]:  # noqa: ANN401 - a class of cassandra.cqltypes
    """Return `_converter` of a collection's part, which raises NullInCollection for null.

    The Cassandra driver serializes such a null as zero bytes: an empty text, or a number of no length.
    """
    convert = _converter(cql_type)

    def checked(value: Any) -> Any:  # noqa: ANN401 - any value of the frame
        if value is None:
            raise NullInCollection(f"null is {place}, and Cassandra stores no nulls in collections")
        return convert(value)

    return checked
