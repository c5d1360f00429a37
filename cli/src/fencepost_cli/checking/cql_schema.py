"""The tables that files of CQL statements create, with their columns, keys and types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from fencepost.contract import ClusteringColumn
from fencepost.contract.code_check import DeclaredTable
from fencepost_cli.errors import CliError

_IGNORED: Final = re.compile(r"'(?:[^']|'')*'|--[^\n]*|//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME: Final = r'(?:"(?:[^"]|"")+"|\w+)'
_CREATE: Final = re.compile(
    rf"CREATE\s+(TABLE|COLUMNFAMILY|TYPE)\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:({_NAME})\s*\.\s*)?({_NAME})\s*\(",
    re.IGNORECASE,
)
_USE: Final = re.compile(rf"\s*USE\s+({_NAME})\s*\Z", re.IGNORECASE)
_KEY: Final = re.compile(r"PRIMARY\s+KEY\s*\((.*)\)\s*\Z", re.IGNORECASE | re.DOTALL)
_COLUMN: Final = re.compile(rf"({_NAME})\s+(.+)\Z", re.DOTALL)
_SUFFIXES: Final = re.compile(r"\s+(PRIMARY\s+KEY|STATIC)\s*\Z", re.IGNORECASE)
_PIECES: Final = re.compile(r'"(?:[^"]|"")*"|.', re.DOTALL)
_ORDER: Final = re.compile(rf"({_NAME})\s+DESC", re.IGNORECASE)


def files_beside(manifest: Path) -> tuple[Path, ...]:
    """Return the files of CQL in a manifest's folder."""
    return tuple(sorted(manifest.parent.glob("*.cql")))


def read_tables(files: Iterable[Path]) -> dict[str, DeclaredTable]:
    """Return the tables of all files by 'keyspace.table'. Raises CliError for a file that cannot be read."""
    found = dict[str, DeclaredTable]()
    for file in files:
        try:
            found |= tables(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise CliError(
                f"cannot read {file}: {error}", remedy="name a file of CQL in UTF-8, or correct this one"
            ) from error
    return found


def tables(text: str) -> dict[str, DeclaredTable]:
    """Return the tables by 'keyspace.table'; those in no keyspace, and other statements, are left out."""
    keyspace, found = "", dict[str, DeclaredTable]()
    types: dict[str, dict[str, dict[str, str]]] = {}
    for statement in _IGNORED.sub(lambda part: "''" if part[0][0] == "'" else " ", text).split(";"):
        if used := _USE.match(statement):
            keyspace = _plain(used[1])
        elif (created := _CREATE.search(statement)) and (place := _plain(created[2]) if created[2] else keyspace):
            body, options = _parenthesized(statement[created.end() :])
            if created[1].upper() == "TYPE":
                types.setdefault(place, {})[_plain(created[3])] = _columns(body)[0]
            else:
                name = _plain(created[3])
                found[f"{place}.{name}"] = _table(place, name, body, options, types.setdefault(place, {}))
    return found


def _table(keyspace: str, name: str, body: str, options: str, types: Mapping[str, Mapping[str, str]]) -> DeclaredTable:
    columns, key = _columns(body)
    partition, clustering = key[0], key[1:]
    descending = {_plain(column) for column in _ORDER.findall(options)}
    return DeclaredTable(
        keyspace=keyspace,
        name=name,
        columns=columns,
        partition_key=tuple(map(_plain, _split(partition[1:-1] if partition.startswith("(") else partition))),
        clustering_key=tuple(
            ClusteringColumn(column=_plain(column), order="DESC" if _plain(column) in descending else "ASC")
            for column in clustering
        ),
        user_types=types,
    )


def _columns(body: str) -> tuple[dict[str, str], Sequence[str]]:
    """Return columns, or fields, with their types, and the parts of the primary key."""
    columns, key = dict[str, str](), [""]
    for part in _split(body):
        if named := _KEY.match(part):
            key = list(_split(named[1]))
        elif column := _COLUMN.match(part):
            kind = _SUFFIXES.sub("", column[2])
            if kind != column[2] and "KEY" in column[2].upper():
                key = [column[1]]
            columns[_plain(column[1])] = " ".join(kind.split()).lower()
    return columns, key


def _parenthesized(text: str) -> tuple[str, str]:
    """Return what is before the parenthesis that closes, and what is after it."""
    depth = 1
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[:index], text[index + 1 :]
    return text, ""


def _split(text: str) -> Iterator[str]:
    """Yield what is between the commas outside of parentheses and angle brackets."""
    part, depth = "", 0
    for piece in _PIECES.findall(text):
        depth += (piece in "(<") - (piece in ")>")
        if piece == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += piece
    if part.strip():
        yield part.strip()


def _plain(name: str) -> str:
    """Return a name as Cassandra stores it: in lower case unless it is quoted."""
    name = name.strip()
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
