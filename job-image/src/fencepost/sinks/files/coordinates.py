"""Which rows of a file are those of ranges of offsets, by their columns topic, partition and offset."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import reduce
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from fencepost.contract import split_offset_key
from fencepost.sinks.files.manifest import Format

COORDINATES: Final = ("topic", "partition", "offset")
Ranges = Mapping[str, tuple[int, int]]
"""'topic/partition' to [start, until)."""
Rows: TypeAlias = "pa.Table | list[bytes]"
"""A table of Parquet, or lines of JSON with their ends."""


class MissingColumnsError(Exception):
    """A file lacks the columns of `args`."""


class _Coordinates(msgspec.Struct):
    topic: str | None
    partition: int | None
    offset: int | None


def decoded(content: bytes, form: Format) -> Rows:
    """Return the rows of a file. Raises pa.ArrowException."""
    if form == "parquet":
        return parquet.read_table(io.BytesIO(content))
    return content.splitlines(keepends=True)


def are_in(rows: Rows, ranges: Ranges) -> pa.BooleanArray | pa.ChunkedArray:
    """Return for each row whether it is of the ranges; one without coordinates is not. Raises MissingColumnsError."""
    if isinstance(rows, list):
        return pa.array([_is_in(line, ranges) for line in rows], pa.bool_())
    if missing := [name for name in COORDINATES if name not in rows.column_names]:
        raise MissingColumnsError(*missing)
    terms = [pc.is_in(rows["topic"], pa.array([], rows["topic"].type))]
    for key, (start, until) in ranges.items():
        topic, partition = split_offset_key(key)
        of_partition = pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition))
        of_range = pc.and_(pc.greater_equal(rows["offset"], start), pc.less(rows["offset"], until))
        terms.append(pc.and_(of_partition, of_range))
    return pc.fill_null(reduce(pc.or_kleene, terms), False)


def _is_in(line: bytes, ranges: Ranges) -> bool:
    try:
        row = msgspec.json.decode(line, type=_Coordinates)
    except msgspec.ValidationError:
        raise MissingColumnsError(*COORDINATES) from None
    start, until = ranges.get(f"{row.topic}/{row.partition}", (0, 0))
    return row.offset is not None and start <= row.offset < until
