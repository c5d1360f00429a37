"""Rows of a batch that was run again, compared with those of a table of Cassandra."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from fencepost_cli.ports import Column, Store

SHOWN: Final = 5
"""Differences of each kind that are kept."""
AT_ONCE: Final = 1_000
"""Keys that are asked for together."""


def _float32(value: Any) -> float:  # noqa: ANN401 - of either database
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _same(value: Any) -> Any:  # noqa: ANN401 - of either database
    return value


def _moment(value: Any) -> str:  # noqa: ANN401 - of either database
    return value.isoformat(" ", "milliseconds") if isinstance(value, datetime) else str(value)


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("ascii", "bigint", "blob", "double", "int", "smallint", "text", "tinyint", "varchar"), _same),
    "boolean": int,
    "date": str,
    "decimal": Decimal,
    "float": _float32,
    "inet": str,
    "timestamp": _moment,
    "timeuuid": str,
    "uuid": str,
    "varint": Decimal,
}
"""By CQL type: a value, of the table or as SQLite has it, in the form in which the two are equal."""
_BOUND: Final[Mapping[str, Callable[[Any], Any]]] = {
    "boolean": bool,
    "decimal": Decimal,
    "timestamp": datetime.fromisoformat,
    "timeuuid": UUID,
    "uuid": UUID,
    "varint": int,
}
"""By CQL type: a value of SQLite as a request has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A row that the table has otherwise; `column` is None for one that it does not have."""

    key: tuple[object, ...]
    column: str | None
    again: object = None
    there: object = None


@dataclass(slots=True, kw_only=True)
class Comparison:
    """What the table has of the rows.

    `newer` were written by a later batch; `left_out` are columns of other types, `beyond` rows that were not looked up.
    """

    table: str
    key: tuple[str, ...] = ()
    skipped: str | None = None
    left_out: tuple[str, ...] = ()
    equal: int = 0
    changed: int = 0
    missing: int = 0
    newer: int = 0
    beyond: int = 0
    differences: list[Difference] = field(default_factory=list)


def compare(store: Store, keyspace: str, table: str, rows: Iterable[Mapping[str, Any]], *, token: int) -> Comparison:
    """Look up each row by its key. `token` is the write timestamp of the batch. Raises CliError."""
    columns = store.columns(keyspace, table)
    name = f"{keyspace}.{table}"
    if not columns:
        return Comparison(table=name, skipped="the table does not exist")
    types = {column.name: column.type for column in columns}
    key = primary_key(columns)
    if wrong := [each for each in key if types[each] not in _READ]:
        return Comparison(table=name, skipped=f"key column {wrong[0]} is of type {types[wrong[0]]}")
    found = Comparison(table=name, key=key)
    timed = next((one.name for one in columns if one.kind == "regular" and one.type in _READ), None)
    for part in _parts(rows):
        names = [each for each in part[0] if each in types and types[each] in _READ and each not in key]
        found.left_out = tuple(each for each in part[0] if each in types and types[each] not in _READ)
        keys = [[_bound(types[each], row[each]) for each in key] for row in part]
        answers = store.rows(keyspace, table, key=key, columns=names, timed=timed, keys=keys)
        for row, answer in zip(part, answers, strict=True):
            _count(found, row, answer, names, types, token)
    return found


def primary_key(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the columns of a table's key in their order, none for a table that does not exist."""
    order = ("partition_key", "clustering")
    keys = sorted(
        (column for column in columns if column.kind in order), key=lambda one: (order.index(one.kind), one.position)
    )
    return tuple(column.name for column in keys)


def _parts(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    part: list[Mapping[str, Any]] = []
    for row in rows:
        part.append(row)
        if len(part) == AT_ONCE:
            yield part
            part = []
    if part:
        yield part


def _count(
    found: Comparison,
    row: Mapping[str, Any],
    answer: tuple[int | None, Sequence[Any]] | None,
    names: Sequence[str],
    types: Mapping[str, str],
    token: int,
) -> None:
    key = tuple(row[each] for each in found.key)
    if answer is None:
        found.missing += 1
        _keep(found, Difference(key=key, column=None))
        return
    written_at, values = answer
    for name, there in zip(names, values, strict=True):
        if _plain(types[name], row[name]) != _plain(types[name], there):
            if written_at is not None and written_at > token:
                found.newer += 1
                return
            found.changed += 1
            _keep(found, Difference(key=key, column=name, again=row[name], there=_plain(types[name], there)))
            return
    found.equal += 1


def _keep(found: Comparison, difference: Difference) -> None:
    if len(found.differences) < SHOWN:
        found.differences.append(difference)


def _plain(kind: str, value: Any) -> Any:  # noqa: ANN401 - of either database
    return None if value is None else _READ[kind](value)


def _bound(kind: str, value: Any) -> Any:  # noqa: ANN401 - of SQLite
    return None if value is None else _BOUND.get(kind, _same)(value)
