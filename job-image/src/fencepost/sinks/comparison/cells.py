"""Whether two cells are the same as the table stores them.

Most are compared by their bytes.  Other bytes are equal where Cassandra stores them alike: a set is stored in order and
without duplicates, an empty collection that is not frozen is stored as no cell, and each NaN is one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from cassandra.cqltypes import TupleType, UserType

_NO_ELEMENTS: Final = b"\0\0\0\0"
_COLLECTIONS: Final = frozenset({"list", "set", "map"})


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column: a class of cassandra.cqltypes, and how its values are stored."""

    kind: Any
    version: int
    """Of the protocol."""
    is_frozen: bool
    """Whether the table stores the value as one cell: an empty one then differs from none."""

    def are_same(self, stored: bytes | None, produced: bytes | None) -> bool:
        """Return whether the table has the produced value."""
        if stored == produced:
            return True
        return self._canonical(stored) == self._canonical(produced)

    def shown(self, value: bytes | None) -> str:
        """Return a value for people."""
        return "null" if value is None else str(self.kind.from_binary(value, self.version))

    def _canonical(self, value: bytes | None) -> object:
        if value is None or (value == _NO_ELEMENTS and not self.is_frozen and self.kind.typename in _COLLECTIONS):
            return None
        found = _canonical(self.kind, self.kind.from_binary(value, self.version))
        is_empty = isinstance(found, tuple) and all(part is None for part in found)
        return None if is_empty and not self.is_frozen and issubclass(self.kind, UserType) else found


def _canonical(kind: Any, value: Any) -> object:  # noqa: ANN401, PLR0911 - a class of cassandra.cqltypes, and its value
    """Return what is equal for values that Cassandra stores alike, and for no others."""
    if value is None:
        return None
    if issubclass(kind, UserType | TupleType):
        return tuple(_canonical(part, found) for part, found in zip(kind.subtypes, value, strict=False))
    match kind.typename:
        case "frozen":
            return _canonical(kind.subtypes[0], value)
        case "list":
            return tuple(_canonical(kind.subtypes[0], found) for found in value)
        case "set":
            return frozenset(_canonical(kind.subtypes[0], found) for found in value)
        case "map":
            key, item = kind.subtypes
            return frozenset((_canonical(key, name), _canonical(item, found)) for name, found in value.items())
        case "float" | "double":
            return "NaN" if value != value else struct.pack(">d", value)  # noqa: PLR0124 - true of NaN alone
        case "decimal":
            return str(value)  # 1.0 and 1.00 are stored as they are
    return value
