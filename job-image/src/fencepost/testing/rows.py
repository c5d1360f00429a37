"""Rows that are compared: what a sink's table holds, and how two tables differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

Keys: TypeAlias = Mapping[str, Sequence[str]] | Sequence[str] | None
"""The columns of a table's primary key, by sink where there are several; None compares all rows."""
Values: TypeAlias = tuple[tuple[str, Any], ...]
"""A row: its columns by name, and their values."""
Table: TypeAlias = dict[tuple[Any, ...], Values]
"""The rows of one sink by their key."""

SHOWN: Final = 3
"""Rows of each kind in a message."""


def tables(rows: Iterable[tuple[str, Mapping[str, Any]]], keys: Keys) -> dict[str, Table]:
    """Return what each sink's table holds after these rows, (sink, row): a later row of a key replaces an earlier one.

    Columns are in the order of their names.
    """
    found: dict[str, Table] = {}
    for sink, row in rows:
        key = keys.get(sink) if isinstance(keys, Mapping) else keys
        values = tuple((name, _plain(row[name])) for name in sorted(row))
        place = values if key is None else tuple(_plain(row[name]) for name in key)
        found.setdefault(sink, {})[place] = values
    return found


def listed(title: str, rows: set[Values]) -> Iterator[str]:
    """Yield a line for each of the first rows, and one for the number of the others."""
    for row in sorted(rows, key=repr)[:SHOWN]:
        yield f"{title}: {dict(row)}"
    if len(rows) > SHOWN:
        yield f"{title}: {len(rows) - SHOWN} more rows"


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a row; one line per kind
    """Return a value that can be compared and hashed."""
    match value:
        case dict():
            return tuple(sorted(((_plain(key), _plain(one)) for key, one in value.items()), key=repr))
        case list() | tuple():
            return tuple(_plain(one) for one in value)
        case bytearray():
            return bytes(value)
        case float() if value != value:  # noqa: PLR0124 - NaN, which is not equal to itself
            return "NaN"
        case _:
            return value
