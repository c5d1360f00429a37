"""Chunks and file index in a SQLite file, for a run on a single machine."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from fencepost.fence.sqlite.database import Database
from fencepost.state.errors import ChunkMissing
from fencepost.state.file_ids import FileRange

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS fencepost_chunks (
  pipeline TEXT, file TEXT, part INTEGER, content BLOB NOT NULL, PRIMARY KEY (pipeline, file, part)
) STRICT;
CREATE TABLE IF NOT EXISTS fencepost_deleted_files (
  pipeline TEXT, file TEXT, PRIMARY KEY (pipeline, file)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fencepost_file_ranges (
  pipeline TEXT, first TEXT, remaining TEXT, unreached TEXT NOT NULL, PRIMARY KEY (pipeline, first)
) STRICT, WITHOUT ROWID;
"""


class SqliteChunks:
    """A ChunkStore in a database with the tables of SCHEMA."""

    def __init__(self, database: Database, pipeline: str) -> None:
        self._database = database
        self._pipeline = pipeline

    def write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        """Store parts, unless the file was deleted."""
        with self._database.changing() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO fencepost_chunks (pipeline, file, part, content) SELECT ?1, ?2, ?3, ?4"
                " WHERE NOT EXISTS (SELECT 1 FROM fencepost_deleted_files WHERE pipeline = ?1 AND file = ?2)",
                [(self._pipeline, str(file), part, content) for part, content in parts.items()],
            )

    def read(self, file: UUID, parts: range) -> Sequence[bytes]:
        """Return parts in their order. Raises ChunkMissing."""
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT content FROM fencepost_chunks WHERE pipeline = ? AND file = ? AND part >= ? AND part < ?"
                " ORDER BY part",
                (self._pipeline, str(file), parts.start, parts.stop),
            ).fetchall()
        if len(found) < len(parts):
            raise ChunkMissing(f"file {file} lacks some of the parts {parts.start} to {parts.stop - 1}")
        return [content for (content,) in found]

    def incomplete(self, files: Mapping[UUID, int]) -> frozenset[UUID]:
        """Return the files that lack a part."""
        with self._database.reading() as connection:
            there = {
                file: connection.execute(
                    "SELECT count(*) FROM fencepost_chunks WHERE pipeline = ? AND file = ? AND part < ?",
                    (self._pipeline, str(file), count),
                ).fetchone()[0]
                for file, count in files.items()
            }
        return frozenset(file for file, count in files.items() if there[file] < count)

    def delete(self, files: Collection[UUID]) -> None:
        """Delete files for good."""
        named = [(self._pipeline, str(file)) for file in files]
        with self._database.changing() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO fencepost_deleted_files (pipeline, file) VALUES (?, ?)", named
            )
            connection.executemany("DELETE FROM fencepost_chunks WHERE pipeline = ? AND file = ?", named)


class SqliteFileIndex:
    """A FileIndex in a database with the tables of SCHEMA."""

    def __init__(self, database: Database, pipeline: str) -> None:
        self._database = database
        self._pipeline = pipeline

    def add(self, found: FileRange) -> None:
        """Store a range; sent again, it takes back nothing that was collected."""
        with self._database.changing() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO fencepost_file_ranges (pipeline, first, remaining, unreached)"
                " VALUES (?, ?, NULL, '{}')",
                (self._pipeline, str(found.first)),
            )

    def ranges(self) -> Sequence[FileRange]:
        """Return all ranges."""
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT first, remaining, unreached FROM fencepost_file_ranges WHERE pipeline = ?", (self._pipeline,)
            ).fetchall()
        return [
            FileRange(
                first=UUID(first),
                left=None if remaining is None else frozenset(json.loads(remaining)),
                unreached={int(number): since for number, since in json.loads(unreached).items()},
            )
            for first, remaining, unreached in found
        ]

    def leave(self, found: FileRange) -> None:
        """Store what is left of a range, or delete it."""
        place = self._pipeline, str(found.first)
        remaining = None if found.left is None else json.dumps(sorted(found.left))
        with self._database.changing() as connection:
            if found.numbers:
                connection.execute(
                    "INSERT OR REPLACE INTO fencepost_file_ranges (pipeline, first, remaining, unreached)"
                    " VALUES (?, ?, ?, ?)",
                    (*place, remaining, json.dumps(dict(found.unreached))),
                )
            else:
                connection.execute("DELETE FROM fencepost_file_ranges WHERE pipeline = ? AND first = ?", place)
