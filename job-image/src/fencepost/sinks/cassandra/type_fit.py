"""Which Spark types fit which CQL types: known before the first record.

Nothing is narrowed silently: a long does not go into an int; the author casts.  Lists must be frozen: a list written
twice at one timestamp, as a repeated task does, would hold its elements twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from fencepost.sinks.cassandra.cql import CqlType

if TYPE_CHECKING:
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType

_TEXTS: Final = ("string", "varchar", "char")
_ACCEPTS: Final[dict[str, tuple[str, ...]]] = {
    "text": _TEXTS,
    "varchar": _TEXTS,
    "ascii": _TEXTS,
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


def problems(column: str, spark: DataType, cql: CqlType) -> Iterator[str]:
    """Yield why a column cannot be written, one sentence for each part of it that does not fit.

    A part is named as Spark names it: home.zip, tags.element, sizes.key, sizes.value.
    """
    if cql.kind == "list" and not cql.is_frozen:
        yield f"column {column!r}: a list that is not frozen doubles when a task is repeated; make it frozen<list<…>>"
        return
    for path, why in _misfits(column, spark, cql):
        yield f"column {column!r}: {why}" if path == column else f"column {column!r}, field {path}: {why}"


def misnamed(schema: StructType, name: str | None, why: str, wanted: str) -> Iterator[str]:
    """Yield what is wrong with a column that the sink itself uses; `why` says for what."""
    found = {column.name: column.dataType.simpleString() for column in schema.fields}
    if name is not None and found.get(name) != wanted:
        yield f"column {name!r}, which {why}, is {found.get(name, 'missing')}, and must be {wanted}"


def _misfits(path: str, spark: DataType, cql: CqlType) -> Iterator[tuple[str, str]]:
    """Yield the path of what cannot be written, and why."""
    match cql.kind:
        case "list" | "set" | "map":
            yield from _collection(path, spark, cql)
        case "tuple":
            yield from _tuple(path, spark, cql)
        case "udt":
            yield from _user_type(path, spark, cql)
        case "counter":
            yield path, "a counter cannot be written twice safely; keep rows and sum them when reading"
        case kind if kind not in _ACCEPTS:
            yield path, f"type {cql.text} is not supported; use another type in the table"
        case kind:
            accepted, found = _ACCEPTS[kind], spark.simpleString()
            if found.partition("(")[0] not in accepted:
                yield path, f"{cql.text} takes {' or '.join(accepted)}, not {found}; cast it in the transform"


def _collection(path: str, spark: DataType, cql: CqlType) -> Iterator[tuple[str, str]]:
    wanted = "map" if cql.kind == "map" else "array"
    if spark.typeName() != wanted:
        article = "a" if wanted == "map" else "an"
        yield path, f"{cql.text} takes {article} {wanted}, not {spark.simpleString()}; make one in the transform"
    elif wanted == "map":
        pairs = cast("MapType", spark)
        yield from _misfits(f"{path}.key", pairs.keyType, cql.parts[0])
        yield from _misfits(f"{path}.value", pairs.valueType, cql.parts[1])
    else:
        yield from _misfits(f"{path}.element", cast("ArrayType", spark).elementType, cql.parts[0])


def _tuple(path: str, spark: DataType, cql: CqlType) -> Iterator[tuple[str, str]]:
    if spark.typeName() != "struct":
        yield path, _no_struct(spark, cql)
        return
    fields = cast("StructType", spark).fields
    if len(fields) != len(cql.parts):
        counts = f"{cql.text} has {len(cql.parts)} elements, and the struct {len(fields)}: {spark.simpleString()}"
        yield path, f"{counts}; give the struct as many fields, in the tuple's order"
        return
    for field, part in zip(fields, cql.parts, strict=True):
        yield from _misfits(f"{path}.{field.name}", field.dataType, part)


def _user_type(path: str, spark: DataType, cql: CqlType) -> Iterator[tuple[str, str]]:
    if spark.typeName() != "struct":
        yield path, _no_struct(spark, cql)
        return
    known, seen = dict(zip(cql.fields, cql.parts, strict=True)), set[str]()
    for field in cast("StructType", spark).fields:
        place = f"{path}.{field.name}"
        if field.name in seen:
            yield place, "the struct has this field twice; rename or drop one in the transform"
        elif field.name not in known:
            has = f"type {cql.text} has no such field, it has {', '.join(cql.fields)}"
            yield place, f"{has}; rename or drop it in the transform, or add it with ALTER TYPE"
        else:
            yield from _misfits(place, field.dataType, known[field.name])
        seen.add(field.name)


def _no_struct(spark: DataType, cql: CqlType) -> str:
    return f"{cql.text} takes a struct, not {spark.simpleString()}; make one with struct(…) in the transform"
