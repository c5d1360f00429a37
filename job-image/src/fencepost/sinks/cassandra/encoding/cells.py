"""Values after one another, as CQL lays them out: each one's length in four bytes and its bytes, a column at a time.

Rows of a BATCH message, the fields of tuples and user-defined types, and the elements of collections stand like this
(CQL binary protocol v5, §4.1.7 and §6); the length of a null is -1.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Cells: TypeAlias = pa.Array
"""A column of CQL's bytes: a BinaryArray, or a FixedSizeBinaryArray for a type of one width."""

NULL: Final = -1
"""The length of a null."""
_NULL_VALUE: Final = struct.pack(">i", NULL)


class Layout:
    """The parts of a column's values, left to right: what has one width in all of them is gathered into one part."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[pa.BinaryArray] = []
        self._pending: list[bytes | np.ndarray[Any, Any]] = []

    def constant(self, value: bytes) -> None:
        """Append the same bytes to each."""
        self._pending.append(value)

    def fixed(self, values: np.ndarray[Any, Any]) -> None:
        """Append to each its element of `values`, as it lies in memory."""
        self._pending.append(values.view(f"V{values.dtype.itemsize}"))

    def variable(self, values: pa.BinaryArray) -> None:
        """Append to each its bytes, without their length; nothing for null."""
        self._flush()
        self._parts.append(values.fill_null(b"") if values.null_count else values)

    def value(self, column: Cells) -> None:
        """Append to each its value of the column: the length and the bytes."""
        if pa.types.is_fixed_size_binary(column.type) and not column.null_count:
            self.constant(struct.pack(">i", column.type.byte_width))
            self.fixed(_raw(column))
        else:
            lengths = pc.fill_null(pc.binary_length(column), NULL)
            self.fixed(lengths.to_numpy(zero_copy_only=False).astype(">i4"))
            self.variable(column.cast(pa.binary()))

    def null(self) -> None:
        """Append a null to each."""
        self.constant(_NULL_VALUE)

    def joined(self) -> pa.BinaryArray:
        """Return the whole, which is not to be empty."""
        self._flush()
        if len(self._parts) == 1:
            return self._parts[0]
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
        self._parts.append(bytes_of(block))
        self._pending.clear()


def bytes_of(values: np.ndarray[Any, Any]) -> pa.BinaryArray:
    """Return elements of one width as a BinaryArray of their bytes."""
    width = values.dtype.itemsize
    offsets = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values).view("u1"))]
    )


def grouped(values: pa.BinaryArray, ends: np.ndarray[Any, Any]) -> pa.BinaryArray:
    """Return groups of adjacent values as one each: group i is of the values [ends[i], ends[i + 1])."""
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return pa.BinaryArray.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(places[ends]), data])


def _raw(column: pa.FixedSizeBinaryArray) -> np.ndarray[Any, Any]:
    width = column.type.byte_width
    values = np.frombuffer(column.buffers()[1], f"V{width}")
    return values[column.offset : column.offset + len(column)]
