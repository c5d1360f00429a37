"""The rows of a batch until its commit: tasks stage them, and the statement that commits the batch moves them.

A staging table is unlogged, so its rows are gone after a crash of the server and on a standby that took over.  The
commit compares their number with what the tasks have reported, and changes nothing where it differs.

Each attempt of a task stages its rows in one transaction, under a number of its own.  No attempt waits for another one,
which may be frozen in the middle of its transaction.  Of a task that several attempts have staged, one attempt's rows
move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fencepost.fence.errors import FenceUnauthorized
from fencepost.fence.postgresql.schema import LOCK, name_of, quoted
from fencepost.fence.postgresql.session import Session

MARKS: Final = ("fencepost_epoch", "fencepost_version", "fencepost_task", "fencepost_attempt")
"""The columns of a staging table beside the rows' own: the batch, the number of the Spark task, and the attempt."""
_PREFIX: Final = "staged_"
_DECLARED: Final = ", ".join(f"{name} bigint NOT NULL" for name in MARKS)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its type as in SQL, and PostgreSQL's own name of it, which begins with _ for an array."""

    name: str
    type: str
    internal: str
    is_required: bool
    """Whether it takes no null."""

    @property
    def declared(self) -> str:
        """As CREATE TABLE has it."""
        return f"{quoted(self.name)} {self.type}{' NOT NULL' if self.is_required else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTable:
    """The staging table of a sink, and the table to which its rows move; both names are as in SQL."""

    name: str
    target: str
    columns: tuple[str, ...]
    """Those of the rows, in their order."""

    @property
    def copied(self) -> str:
        """The statement with which a task stages rows."""
        return f"COPY {self.name} ({self._listed(self.columns)}, {', '.join(MARKS)}) FROM STDIN"

    @property
    def counted(self) -> str:
        """A SELECT of how many rows are staged, of one attempt of each task; its values: epoch and version, twice."""
        return (
            f"SELECT count(*) FROM {self.name} JOIN ({_CHOSEN.format(self.name)}) AS chosen USING {_ATTEMPT} {_BATCH}"
        )

    def moving(self, number: int) -> str:
        """Return the parts of a WITH that follow `changed`, and move the rows if that has a row.

        Its values are epoch and version, twice.
        """
        moved, chosen, listed = f"moved_{number}", f"chosen_{number}", self._listed(self.columns).replace("%", "%%")
        return (
            f"{chosen} AS ({_CHOSEN.format(self.name)}),"
            f" {moved} AS (DELETE FROM {self.name} AS staged USING changed {_BATCH} RETURNING staged.*),"
            f" stored_{number} AS (INSERT INTO {self.target} ({listed})"
            f" SELECT {listed} FROM {moved} JOIN {chosen} USING {_ATTEMPT})"
        )

    def all_moved(self, number: int) -> str:
        """Return a condition that fails the statement where it changed the row and moved another number than its value.

        A row that was deleted after the statement began is counted, and does not move.
        """
        moved = f"(SELECT count(*) FROM moved_{number} JOIN chosen_{number} USING {_ATTEMPT}) = %s"
        return f"1 / (CASE WHEN {moved} OR (SELECT count(*) FROM changed) = 0 THEN 1 ELSE 0 END) = 1"

    def _listed(self, columns: Sequence[str]) -> str:
        return ", ".join(map(quoted, columns))


_ATTEMPT: Final = "(fencepost_task, fencepost_attempt)"
_BATCH: Final = "WHERE fencepost_epoch = %s AND fencepost_version = %s"
_CHOSEN: Final = (
    f"SELECT fencepost_task, min(fencepost_attempt) AS fencepost_attempt FROM {{}} {_BATCH} GROUP BY fencepost_task"
)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What the tasks of a batch have staged, as they reported it."""

    table: StagedTable
    epoch: int
    version: int
    count: int

    @property
    def batch(self) -> tuple[int, int]:
        """The epoch and version of the row on which the batch began."""
        return self.epoch, self.version


def columns_of(session: Session, schema: str, table: str) -> tuple[Column, ...]:
    """Return the columns of a table that may be written, in order; none where it does not exist. Raises FenceError."""
    found = session.run(
        f"reading the columns of {schema}.{table}",
        "SELECT attname, format_type(atttypid, atttypmod), typname, attnotnull FROM pg_attribute"
        " JOIN pg_type ON pg_type.oid = atttypid WHERE attrelid = to_regclass(%s) AND attnum > 0"
        " AND NOT attisdropped AND attgenerated = '' AND attidentity <> 'a' ORDER BY attnum",
        (f"{quoted(schema)}.{quoted(table)}",),
    )
    return tuple(
        Column(str(name), str(kind), str(internal), bool(required)) for name, kind, internal, required in found
    )


def staged_table(fences: str, pipeline: str, sink: str, *, target: str, columns: Sequence[Column]) -> StagedTable:
    """Return the staging table of a pipeline's sink for these columns, in the schema of the fences.

    Rows of other columns have another table: a run that starts leaves that of the run that works as it is.
    """
    shape = ", ".join(column.declared for column in columns)
    name = _name(pipeline, sink, f"{target} {shape}")
    return StagedTable(name=name_of(fences, name), target=target, columns=tuple(column.name for column in columns))


def create(session: Session, table: StagedTable, fences: str, columns: Sequence[Column]) -> None:
    """Create a staging table with these columns, unless it is there. Raises FenceError."""
    name = table.name.rpartition(".")[2]
    if columns_of(session, fences, name):
        return
    declared = ", ".join(column.declared for column in columns)
    session.run(
        f"creating {table.name}",
        f"SELECT pg_advisory_xact_lock({LOCK});"
        f" CREATE UNLOGGED TABLE IF NOT EXISTS {table.name} ({declared}, {_DECLARED});"
        f" CREATE INDEX IF NOT EXISTS {name}_batch ON {table.name} (fencepost_epoch, fencepost_version)",
    )


def clear(session: Session, name: str, epoch: int) -> None:
    """Delete what this and earlier epochs have staged: none of it is committed, or to be. Raises FenceError."""
    session.run(f"emptying {name}", f"DELETE FROM {name} WHERE fencepost_epoch <= %s", (epoch,))


def tables_of(session: Session, fences: str, pipeline: str, *sink: str) -> list[str]:
    """Return the names of the staging tables of a pipeline, or of one sink of it. Raises FenceError."""
    found = session.run(
        f"looking for the staging tables of {pipeline}",
        "SELECT tablename FROM pg_tables WHERE schemaname = %s AND starts_with(tablename, %s)",
        (fences, _name(pipeline, *sink)),
    )
    return [str(name) for (name,) in found]


def drop_all(session: Session, fences: str, pipeline: str) -> None:
    """Drop the staging tables of a pipeline, but those of another account. Raises FenceError."""
    for name in tables_of(session, fences, pipeline):
        with suppress(FenceUnauthorized):
            session.run(f"dropping {fences}.{name}", f"DROP TABLE IF EXISTS {name_of(fences, quoted(name))}")


def _name(pipeline: str, *sink: str) -> str:
    """Return the name of a staging table, or the beginning of the names of a pipeline's."""
    return "_".join([f"{_PREFIX}{_hash(pipeline)}", *map(_hash, sink)])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
