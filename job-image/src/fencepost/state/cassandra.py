"""Chunks and file index of one pipeline in Cassandra. Every method raises FenceError; a change may be applied then."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final
from uuid import UUID

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.concurrent import execute_concurrent_with_args

from fencepost.fence.cassandra import schema
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.errors import FenceSchemaInvalid
from fencepost.state.chunks import CHUNK, WINDOW
from fencepost.state.errors import ChunkMissing
from fencepost.state.file_ids import RANGE, FileRange

DELETIONS: Final = 32
"""Deletions at the same time."""
PAGE: Final = 500
"""Rows of one answer: a range of ids has up to 30 KB."""
LOOKS: Final = 32
"""Files at the same time of which the parts are listed."""
AHEAD: Final = 24 * 3600 * 1_000_000
"""µs by which a deletion is ahead of the wall time: ids are never used again, and a write may arrive late."""
MOST_RANGES: Final = 1_000_000
MAJORITY: Final = {
    ConsistencyLevel.ONE: ConsistencyLevel.LOCAL_QUORUM,
    ConsistencyLevel.LOCAL_ONE: ConsistencyLevel.LOCAL_QUORUM,
    ConsistencyLevel.EACH_QUORUM: ConsistencyLevel.QUORUM,
}
"""The consistency of the state where a session has another one: what one replica has, a read of another may miss, and
Cassandra has no reads of a quorum in each datacenter."""


def prepared(session: Session, text: str) -> Any:  # noqa: ANN401 - the library is untyped
    """Return a statement of which a read sees each write before it."""
    statement = session.prepare(text)
    level = session.get_execution_profile(EXEC_PROFILE_DEFAULT).consistency_level
    statement.consistency_level = MAJORITY.get(level, level)
    statement.fetch_size = PAGE
    return statement


@dataclass(slots=True)
class _Statements:
    """Statements of one session, prepared when they are first used."""

    session: Session
    prepared: dict[str, Any] = field(default_factory=dict)

    def run(self, doing: str, statement: str, values: Iterable[Sequence[object]], *, at_once: int) -> list[Any]:
        """Execute a statement with each of these values, and return the answers in their order."""
        with translated(doing):
            if statement not in self.prepared:
                self.prepared[statement] = prepared(self.session, statement)
            answers = execute_concurrent_with_args(
                self.session, self.prepared[statement], list(values), concurrency=at_once, raise_on_first_error=True
            )
            return [answer.result_or_exc for answer in answers]


class CassandraChunks:
    """A ChunkStore: a partition per file, so that one deletion removes it. `now` is the wall time in µs."""

    def __init__(
        self, session: Session, keyspace: str, pipeline: str, *, now: Callable[[], int] = lambda: time.time_ns() // 1000
    ) -> None:
        self._statements = _Statements(session)
        self._table = f'"{keyspace}".{schema.CHECKPOINT_CHUNKS.name}'
        self._pipeline = pipeline
        self._now = now

    def write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        """Store parts."""
        self._statements.run(
            "storing chunks",
            f"INSERT INTO {self._table} (pipeline, file, part, content) VALUES (?, ?, ?, ?)",
            [(self._pipeline, file, part, content) for part, content in parts.items()],
            at_once=WINDOW,
        )

    def read(self, file: UUID, parts: range) -> Sequence[bytes]:
        """Return parts in their order. Raises ChunkMissing."""
        answers = self._statements.run(
            "reading chunks",
            f"SELECT content FROM {self._table} WHERE pipeline = ? AND file = ? AND part = ?",
            [(self._pipeline, file, part) for part in parts],
            at_once=WINDOW,
        )
        return [_content(answer.one(), file, part) for part, answer in zip(parts, answers, strict=True)]

    def incomplete(self, files: Mapping[UUID, int]) -> frozenset[UUID]:
        """Return the files that lack a part. A Cassandra of a tenant may send more rows than it was asked for."""
        found = [(file, count) for file, count in files.items() if count]
        answers = self._statements.run(
            "listing chunks",
            f"SELECT part FROM {self._table} WHERE pipeline = ? AND file = ? LIMIT ?",
            [(self._pipeline, file, count) for file, count in found],
            at_once=LOOKS,
        )
        with translated("listing chunks"):
            return frozenset(
                file
                for (file, count), answer in zip(found, answers, strict=True)
                if {row.part for row in islice(answer, count)} != set(range(count))
            )

    def delete(self, files: Collection[UUID]) -> None:
        """Delete files for good."""
        at = self._now() + AHEAD
        self._statements.run(
            "deleting chunks",
            f"DELETE FROM {self._table} USING TIMESTAMP ? WHERE pipeline = ? AND file = ?",
            [(at, self._pipeline, file) for file in files],
            at_once=DELETIONS,
        )


class CassandraFileIndex:
    """A FileIndex: a row per range in the pipeline's partition."""

    def __init__(self, session: Session, keyspace: str, pipeline: str) -> None:
        self._session, self._keyspace = session, keyspace
        self._statements = _Statements(session)
        self._table = f'"{keyspace}".{schema.CHECKPOINT_FILES.name}'
        self._pipeline = pipeline

    def is_there(self) -> bool:
        """Return whether the table exists: those of an earlier release lack it."""
        with translated("reading the schema"):
            return bool(schema.columns_of(self._session, self._keyspace, schema.CHECKPOINT_FILES.name))

    def add(self, found: FileRange) -> None:
        """Store a range; sent again, it takes back nothing that was collected."""
        self._run("storing file ids", f"INSERT INTO {self._table} (pipeline, first) VALUES (?, ?)", found.first)

    def ranges(self) -> Sequence[FileRange]:
        """Return all ranges. Raises FenceSchemaInvalid where a row is not one."""
        select = f"SELECT first, remaining, unreached FROM {self._table} WHERE pipeline = ? LIMIT {MOST_RANGES}"
        with translated("reading file ids"):
            return [_range(row) for row in self._run("reading file ids", select)]

    def leave(self, found: FileRange) -> None:
        """Store what is left of a range and what of it is unreached, or delete it."""
        if found.numbers:
            insert = f"INSERT INTO {self._table} (pipeline, first, remaining, unreached) VALUES (?, ?, ?, ?)"
            self._run("storing file ids", insert, found.first, found.left, dict(found.unreached) or None)
        else:
            self._run("deleting file ids", f"DELETE FROM {self._table} WHERE pipeline = ? AND first = ?", found.first)

    def _run(self, doing: str, statement: str, *values: object) -> Any:  # noqa: ANN401 - the library is untyped
        (answer,) = self._statements.run(doing, statement, [(self._pipeline, *values)], at_once=1)
        return answer


def _content(row: Any, file: UUID, part: int) -> bytes:  # noqa: ANN401 - a driver's named tuple
    if row is None or not isinstance(row.content, bytes) or len(row.content) > CHUNK:
        raise ChunkMissing(f"file {file} lacks part {part}")
    return row.content


def _range(row: Any) -> FileRange:  # noqa: ANN401 - a driver's named tuple
    left = None if row.remaining is None else frozenset(row.remaining)
    unreached = {} if row.unreached is None else dict(row.unreached.items())
    named = {*(left or ()), *unreached}
    if not isinstance(row.first, UUID) or row.first.int % RANGE or not named <= set(range(RANGE)):
        raise FenceSchemaInvalid(f"a row of {schema.CHECKPOINT_FILES.name} is not a range of file ids")
    return FileRange(first=row.first, left=left, unreached=unreached)
