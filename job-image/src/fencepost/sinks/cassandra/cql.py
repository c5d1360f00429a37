"""CQL's names and types, as Cassandra writes them in its schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(r'"((?:[^"]|"")+)"|\w+')


@dataclass(frozen=True, slots=True)
class CqlType:
    """A type: `kind` is text, list, tuple, …, and udt for a user-defined one.

    `parts` are the types in it, and `fields` the names of those of a user-defined type.
    """

    text: str
    """As in the schema, for messages."""
    kind: str
    parts: tuple[CqlType, ...] = ()
    fields: tuple[str, ...] = ()
    is_frozen: bool = False


UserTypes = Mapping[str, Mapping[str, str]]
"""User-defined types of a keyspace: name to field to CQL type."""


def quoted(name: str) -> str:
    """Return a name as CQL takes any name."""
    return '"' + name.replace('"', '""') + '"'


def full_name(keyspace: str, name: str) -> str:
    """Return a table's name with its keyspace, as CQL takes any names."""
    return f"{quoted(keyspace)}.{quoted(name)}"


def parsed(text: str, user_types: UserTypes) -> CqlType:
    """Return a column's type; one that the keyspace does not have has its name as the kind, and no parts."""
    text = text.strip()
    name, inner = _split(text)
    if name == "frozen" and len(inner) == 1:
        thawed = parsed(inner[0], user_types)
        return CqlType(text, thawed.kind, thawed.parts, thawed.fields, is_frozen=True)
    if inner:
        return CqlType(text, name, tuple(parsed(part, user_types) for part in inner), is_frozen=name == "tuple")
    fields = user_types.get(_unquoted(name)) if name.startswith('"') or name not in NATIVE else None
    if fields is None:
        return CqlType(text, name)
    kinds = tuple(parsed(kind, user_types) for kind in fields.values())
    return CqlType(text, "udt", kinds, tuple(fields))


NATIVE: Final = frozenset(
    {
        "ascii", "bigint", "blob", "boolean", "counter", "date", "decimal", "double", "duration", "float", "inet",
        "int", "smallint", "text", "time", "timestamp", "timeuuid", "tinyint", "uuid", "varchar", "varint", "vector",
    }
)  # fmt: skip
"""Names that are a user-defined type's only in quotes."""


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _split(text: str) -> tuple[str, list[str]]:
    """Split 'map<text, list<int>>' into ('map', ['text', 'list<int>']); a quoted name may hold any character."""
    head = _NAME.match(text)
    name = head.group() if head else text
    rest = text[len(name) :]
    if not (rest.startswith("<") and rest.endswith(">")):
        return text, []
    parts, depth = [""], 0
    for piece in re.findall(r'"(?:[^"]|"")*"|.', rest[1:-1]):
        depth += (piece == "<") - (piece == ">")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return name, [part.strip() for part in parts]
