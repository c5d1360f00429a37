"""Rows as they stand in a BATCH message, laid out a column at a time.

A row is `1, id of the prepared statement, number of values`, then each value as its length and its bytes, with the
length -1 for null (CQL binary protocol v5, §4.1.7).  Fourteen columns took 6.6 CPU-µs per row value by value, with the
Cassandra driver's own loops, and take 0.64 like this (dev/bench/costs/encoding.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.sinks.cassandra.encoding.cells import NULL, Cells, Layout, bytes_of


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
        pieces += [bytes_of(lengths), part.cast(pa.binary()), pa.scalar(b"\0", pa.binary())]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def lay_out(
    query_id: bytes, columns: Sequence[Cells], timestamp: int, *, timestamp_first: bool = False
) -> pa.BinaryArray:
    """Return the rows of a prepared statement whose last value, or first, is `timestamp` (µs)."""
    stamp = struct.pack(">iq", 8, timestamp)
    row = Layout(len(columns[0]))
    row.constant(b"\x01" + struct.pack(">H", len(query_id)) + query_id + struct.pack(">H", len(columns) + 1))
    if timestamp_first:
        row.constant(stamp)
    for column in columns:
        row.value(column)
    if not timestamp_first:
        row.constant(stamp)
    return row.joined()


def joined_cells(columns: Sequence[Cells]) -> pa.BinaryArray:
    """Return for each row its values, each as its length and its bytes."""
    row = Layout(len(columns[0]))
    for column in columns:
        row.value(column)
    return row.joined()


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
