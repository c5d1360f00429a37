"""Whether the columns of a frame fit a table of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fencepost.fence.postgresql.staging import MARKS, Column

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SMALL: Final = ("tinyint", "smallint")
_INT: Final = (*_SMALL, "int")
_BIG: Final = (*_INT, "bigint")
_TAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "bool": ("boolean",),
    "int2": _SMALL,
    "int4": _INT,
    "int8": _BIG,
    "numeric": (*_BIG, "decimal"),
    "float4": ("float",),
    "float8": ("float", "double"),
    "bytea": ("binary",),
    "date": ("date",),
    "timestamp": ("timestamp_ntz",),
    "timestamptz": ("timestamp",),
}
"""PostgreSQL's types by their own names, and the Spark types that they take. Each other one takes a string."""


def problems(schema: StructType, table: Sequence[Column]) -> Iterator[str]:
    """Yield what does not fit, naming the column."""
    known = {column.name: column for column in table}
    for field in schema.fields:
        column, kind = known.get(field.name), field.dataType.simpleString()
        taken = () if column is None else _taken(column)
        if field.name in MARKS:
            yield f"column {field.name!r} has a name that Fencepost uses itself"
        elif column is None:
            yield f"the table has no column {field.name!r}"
        elif kind.partition("<")[0].partition("(")[0] not in taken or "struct<" in kind or "map<" in kind:
            wanted = " or ".join(taken)
            yield f"column {field.name!r}: {column.type} takes {wanted}, not {kind}; cast it in the transform"
    if not schema.fields:
        yield "the frame has no column"


def _taken(column: Column) -> tuple[str, ...]:
    return ("array",) if column.internal.startswith("_") else _TAKES.get(column.internal, ("string",))
