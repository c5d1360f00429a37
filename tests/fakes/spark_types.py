"""Spark's types from their text, as `simpleString` writes them: Spark's own parser needs a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_SIMPLE: Final = (
    BinaryType, BooleanType, ByteType, DateType, DoubleType, FloatType, IntegerType, LongType, NullType, ShortType,
    StringType, TimestampNTZType, TimestampType,
)  # fmt: skip
_BY_NAME: Final[dict[str, DataType]] = {kind().simpleString(): kind() for kind in _SIMPLE}


def frame(**columns: str) -> StructType:
    """Return the schema of a frame: name to type."""
    return StructType([StructField(name, spark_type(text)) for name, text in columns.items()])


def spark_type(text: str) -> DataType:
    """Return `array<int>`, `map<string,int>`, `struct<a:int>`, `decimal(10,2)`, `int`, …; raises KeyError."""
    name, _, rest = text.partition("<")
    parts = _split(rest.removesuffix(">"))
    match name:
        case "array":
            return ArrayType(spark_type(parts[0]))
        case "map":
            return MapType(spark_type(parts[0]), spark_type(parts[1]))
        case "struct":
            fields = [part.partition(":") for part in parts]
            return StructType([StructField(name, spark_type(kind)) for name, _, kind in fields])
        case _ if name.startswith("decimal("):
            precision, scale = name[len("decimal(") : -1].split(",")
            return DecimalType(int(precision), int(scale))
        case _:
            return _BY_NAME[name]


def _split(text: str) -> Sequence[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
