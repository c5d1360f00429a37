"""The primary keys of the tables that CQL files create."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_COMMENT: Final = re.compile(r"--[^\n]*|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TABLE: Final = re.compile(r"CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?([\w.\"]+)\s*\(([^;]*)", re.IGNORECASE)
_KEY: Final = re.compile(r"PRIMARY\s+KEY\s*\(((?:[^()]|\([^()]*\))*)\)", re.IGNORECASE)
_INLINE: Final = re.compile(r"(\w+|\"[^\"]+\")\s+\w+(?:<[\w<>, ]*>)?\s+PRIMARY\s+KEY", re.IGNORECASE)
_NAME: Final = re.compile(r"\"[^\"]+\"|\w+")


def primary_keys(files: Iterable[Path]) -> dict[str, tuple[str, ...]]:
    """Return the columns of each table's key, by 'keyspace.table', or 'table' where the file names no keyspace."""
    found: dict[str, tuple[str, ...]] = {}
    for path in files:
        for name, body in _TABLE.findall(_COMMENT.sub("", path.read_text(encoding="utf-8"))):
            if key := _key(body):
                found[_plain(name)] = key
    return found


def _key(body: str) -> tuple[str, ...]:
    if declared := _KEY.search(body):
        return tuple(_plain(name) for name in _NAME.findall(declared.group(1)))
    inline = _INLINE.search(body)
    return () if inline is None else (_plain(inline.group(1)),)


def _plain(name: str) -> str:
    """Return a name as Cassandra has it: without quotes, or in lower case."""
    return ".".join(part.strip('"') if part.startswith('"') else part.lower() for part in name.split("."))
