"""Rows as they stand in a BATCH message, laid out a column at a time.

A row is `1, id of the prepared statement, number of values`, then each value as its length and its bytes, with the
length -1 for null (CQL binary protocol v5, §4.1.7).  Fourteen columns took 6.6 CPU-µs per row value by value, with the
Cassandra driver's own loops, and take 0.64 like this (dev/bench/encoding.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.sinks.types import Cells

NULL: Final = -1
"""The length of a null."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one Arrow batch, those of one Cassandra partition next to each other."""

    encoded: pa.BinaryArray
    positions: np.ndarray[Any, np.dtype[np.int64]]
    """Where each row is in the Arrow batch."""
    partitions: tuple[int, ...]
    """The first row of each partition, and the number of rows."""

    def between(self, first: int, last: int) -> memoryview:
        """Return the rows [first, last) as they stand in a message."""
        _, offsets, data = self.encoded.buffers()
        ends = np.frombuffer(offsets, np.int32)
        return memoryview(data)[ends[first + self.encoded.offset] : ends[last + self.encoded.offset]]

    def pieces(self, *, rows: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield [first, last) of pieces of one partition: at most `rows` rows and `size` bytes, at least one row."""
        _, offsets, _ = self.encoded.buffers()
        start = self.encoded.offset
        ends = np.frombuffer(offsets, np.int32)[start : start + len(self.encoded) + 1]
        for begin, until in zip(self.partitions, self.partitions[1:], strict=False):
            first = begin
            while first < until:
                fitting = int(np.searchsorted(ends, int(ends[first]) + size, side="right")) - 1
                last = min(until, first + rows, max(fitting, first + 1))
                yield first, last
                first = last


def by_partition(encoded: pa.BinaryArray, keys: pa.BinaryArray) -> Rows:
    """Return the rows by the partition of each, in the order in which partitions and rows appear."""
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    positions = np.arange(len(codes))
    steps = np.diff(codes)
    if (steps < 0).any():
        positions = np.argsort(codes, kind="stable")
        encoded = encoded.take(pa.array(positions))
        steps = np.diff(codes[positions])
    starts = (np.flatnonzero(steps) + 1).tolist()
    return Rows(encoded, positions, (0, *starts, len(codes)))


def routing_keys(parts: Sequence[Cells]) -> pa.BinaryArray:
    """Return the partition key of each row as Cassandra hashes it; `parts` are its columns, without nulls.

    A key of several columns is each one's length in two bytes, its bytes, and a zero byte.
    """
    if len(parts) == 1:
        return parts[0].cast(pa.binary())
    pieces: list[Any] = []
    for part in parts:
        lengths = pc.binary_length(part).to_numpy(zero_copy_only=False).astype(">u2")
        pieces += [_column(lengths), part.cast(pa.binary()), pa.scalar(b"\0", pa.binary())]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def lay_out(
    query_id: bytes, columns: Sequence[Cells], timestamp: int, *, timestamp_first: bool = False
) -> pa.BinaryArray:
    """Return the rows of a prepared statement whose last value, or first, is `timestamp` (µs)."""
    stamp = struct.pack(">iq", 8, timestamp)
    row = _Row(len(columns[0]))
    row.constant(b"\x01" + struct.pack(">H", len(query_id)) + query_id + struct.pack(">H", len(columns) + 1))
    if timestamp_first:
        row.constant(stamp)
    for column in columns:
        if pa.types.is_fixed_size_binary(column.type) and not column.null_count:
            row.constant(struct.pack(">i", column.type.byte_width))
            row.fixed(_raw(column))
        else:
            lengths = pc.fill_null(pc.binary_length(column), NULL)
            row.fixed(lengths.to_numpy(zero_copy_only=False).astype(">i4").view("V4"))
            row.variable(column.cast(pa.binary()))
    if not timestamp_first:
        row.constant(stamp)
    return row.joined()


class _Row:
    """The parts of all rows, left to right: what has one width in all rows is gathered into one part."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[pa.BinaryArray] = []
        self._pending: list[bytes | np.ndarray[Any, Any]] = []

    def constant(self, value: bytes) -> None:
        """Append the same bytes to each row."""
        self._pending.append(value)

    def fixed(self, values: np.ndarray[Any, Any]) -> None:
        """Append to each row its element of `values`, of a void type."""
        self._pending.append(values)

    def variable(self, values: pa.BinaryArray) -> None:
        """Append to each row its value, nothing for null."""
        self._flush()
        self._parts.append(values.fill_null(b"") if values.null_count else values)

    def joined(self) -> pa.BinaryArray:
        """Return the rows."""
        self._flush()
        return pc.binary_join_element_wise(*self._parts, pa.scalar(b"", pa.binary()))

    def _flush(self) -> None:
        if not self._pending:
            return
        widths = [len(part) if isinstance(part, bytes) else part.dtype.itemsize for part in self._pending]
        template = b"".join(
            part if isinstance(part, bytes) else bytes(width) for part, width in zip(self._pending, widths, strict=True)
        )
        block = np.full(self._count, np.void(template))
        starts = np.cumsum([0, *widths])
        for part, start in zip(self._pending, starts, strict=False):
            if not isinstance(part, bytes):
                place = np.dtype(
                    {"names": ["v"], "formats": [part.dtype], "offsets": [start], "itemsize": len(template)}
                )
                block.view(place)["v"] = part
        self._parts.append(_column(block))
        self._pending.clear()


def _raw(column: pa.FixedSizeBinaryArray) -> np.ndarray[Any, Any]:
    width = column.type.byte_width
    values = np.frombuffer(column.buffers()[1], f"V{width}")
    return values[column.offset : column.offset + len(column)]


def _column(values: np.ndarray[Any, Any]) -> pa.BinaryArray:
    """Return elements of one width as a BinaryArray of their bytes."""
    width = values.dtype.itemsize
    offsets = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values).view("u1"))]
    )


def values_of(row: memoryview) -> list[bytes | None]:
    """Return the values of one row as it stands in a message."""
    (id_length,) = struct.unpack_from(">H", row, 1)
    place = 3 + id_length
    (count,) = struct.unpack_from(">H", row, place)
    place += 2
    values: list[bytes | None] = []
    for _ in range(count):
        (length,) = struct.unpack_from(">i", row, place)
        place += 4
        values.append(None if length == NULL else bytes(row[place : place + length]))
        place += max(0, length)
    return values
