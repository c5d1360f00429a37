"""The fence table in Cassandra: lightweight transactions and serial reads, nothing else touches the row.

A request is tried once (see `fencepost.fence.cassandra.session`), and an error leaves its outcome open.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from cassandra import InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.concurrent import execute_concurrent_with_args

from fencepost.contract import Acceptance, CassandraEndpoint, Loss, ReportedLoss
from fencepost.fence import stored_losses
from fencepost.fence.batch_progress import BatchProgress, heartbeat_key
from fencepost.fence.cassandra import schema
from fencepost.fence.cassandra.errors import is_disk_full, translated
from fencepost.fence.cassandra.history import History
from fencepost.fence.cassandra.session import connect, is_applied
from fencepost.fence.errors import FenceSchemaInvalid, FenceSchemaMissing, FenceUnavailable
from fencepost.fence.history import history_hours
from fencepost.fence.row import FenceRow
from fencepost.fence.sealed_epochs import sealed
from fencepost.fence.stored_rows import fence_row, flat
from fencepost.fence.table import MOST_LOSSES
from fencepost.fence.tls import TlsMaterial

PROGRESS_KEPT: Final = 3600
"""Seconds after which a report of progress expires."""
_ABSENT: Final = re.compile(r"does not exist|unconfigured table|undefined column", re.IGNORECASE)
"""How Cassandra 3 to 5 refuse a request that names a table or a column that the asked node does not know."""
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def new_replication(session: Session, *, strategy: str, factor: int | None) -> Mapping[str, str | int]:
    """Return the replication for a keyspace that has to be created. Raises FenceUnavailable, FenceUnauthorized."""
    with translated("counting the nodes"):
        nodes = schema.nodes(session) if factor is None else {}
    return schema.replication(nodes, strategy=strategy, factor=factor)


def create_schema(session: Session, keyspace: str, replication: Mapping[str, str | int]) -> None:
    """Create the keyspace and the fence's tables, and add columns, where Cassandra says that they are missing.

    `replication` is CQL's map.  Concurrent calls for one keyspace can corrupt it: let one thread in at a time.
    Raises FenceUnavailable, FenceUnauthorized, FenceSchemaInvalid.
    """
    with translated(f"creating the schema of keyspace {keyspace}"):
        schema.apply_missing(session, keyspace, replication)


def is_current(session: Session, keyspace: str) -> bool:
    """Return whether nothing has to be added: the schema is of this release, or does not exist."""
    with translated(f"reading the schema of keyspace {keyspace}"):
        if not schema.columns_of(session, keyspace, schema.FENCE.name):
            return True
        return next(schema.missing_statements(session, keyspace, {}), None) is None


@dataclass(slots=True)
class CassandraFenceTable:
    """Fence rows in one keyspace, through a session made by `connect`; `close` ends the session.

    A table of an older release lacks columns.  What they hold is then neither read nor written, so that a new job image
    works before the operator has migrated the schema.  Only a change of a state is refused: it is as good as offsets.
    """

    session: Session
    keyspace: str
    _prepared: dict[str, Any] = field(default_factory=dict)
    _columns: tuple[str, ...] = ()
    _history: History = field(init=False)

    def __post_init__(self) -> None:
        self._history = History(self.session, self.keyspace)

    @classmethod
    def over(cls, session: Session, keyspace: str) -> Self:
        """Return the table of a keyspace; statements are prepared when first used, so the schema may come later."""
        return cls(session=session, keyspace=keyspace)

    @classmethod
    def connect(
        cls,
        endpoint: CassandraEndpoint,
        *,
        keyspace: str,
        credentials: tuple[str, str] | None,
        consistency: str = "LOCAL_QUORUM",
        tls: TlsMaterial | None = None,
    ) -> Self:
        """Connect and return the table; see `connect` for the errors."""
        session = connect(endpoint, credentials=credentials, consistency=consistency, tls=tls)
        return cls.over(session, keyspace)

    def finish_history(self) -> None:
        """Wait until the changes made so far are in the history, or logged as lost."""
        self._history.finish()

    def close(self) -> None:
        """End the session and its connections."""
        self._history.close()
        self.session.cluster.shutdown()

    def read(self, pipeline: str) -> FenceRow | None:
        """Return the row at the serial level, which settles a change in flight. Raises FenceError."""
        with self._asking("reading the fence row", schema.FENCE):
            columns = ", ".join(self._fence_columns())
            select = self._prepare(f"SELECT {columns} FROM {self._table(schema.FENCE)} WHERE pipeline = ?")
            select.consistency_level = self._serial
            found = self.session.execute(select, (pipeline,)).one()
        return fence_row(found) if found is not None else None

    def read_epoch(self, pipeline: str) -> int | None:
        """Return the row's epoch at the session's level, a local quorum: without Paxos, which would delay commits.

        Raises FenceError.
        """
        with self._asking("reading the epoch", schema.FENCE):
            select = self._prepare(f"SELECT epoch FROM {self._table(schema.FENCE)} WHERE pipeline = ?")
            found = self.session.execute(select, (pipeline,)).one()
        return int(found.epoch) if found is not None and found.epoch is not None else None

    @property
    def _serial(self) -> int:
        """The level of the session's lightweight transactions: a read at the other one does not settle them."""
        level: int = self.session.get_execution_profile(EXEC_PROFILE_DEFAULT).serial_consistency_level
        return level

    def insert(self, row: FenceRow) -> bool:
        """Insert IF NOT EXISTS."""
        with self._asking("creating the fence row", schema.FENCE):
            # A new row has no state, and a bound null costs a tombstone.
            of_state = ("watermark", "state_bytes", "checkpoint", "planned_log")
            unset = {name for name in of_state if getattr(row, name) is None}
            columns = tuple(name for name in self._fence_columns() if name not in unset)
            insert = self._prepare(
                f"INSERT INTO {self._table(schema.FENCE)} ({', '.join(columns)}) VALUES ({_marks(columns)})"
                " IF NOT EXISTS"
            )
            applied = is_applied(self.session.execute(insert, _values(_stored(row), columns)))
        if applied:
            self._history.record(None, row)
        return applied

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        """Update IF epoch, version and driver are those of `before`; only the columns that differ are sent."""
        with self._asking("changing the fence row", schema.FENCE):
            # A row of the same version has the same columns, and a map of 100 partitions is worth leaving out.
            old, new = _stored(before), _stored(after)
            changed = [name for name in schema.FENCE.all_columns if getattr(old, name) != getattr(new, name)]
            columns = [name for name in changed if name in self._fence_columns()]
            self._check_state(changed)
            assignments = ", ".join(f"{column} = ?" for column in columns)
            update = self._prepare(
                f"UPDATE {self._table(schema.FENCE)} SET {assignments} WHERE pipeline = ?"
                " IF epoch = ? AND version = ? AND driver = ?"
            )
            values = (*_values(new, columns), before.pipeline, before.epoch, before.version, before.driver)
            applied = is_applied(self.session.execute(update, values))
        if applied and not after.is_released:  # its history was deleted before
            self._history.record(before, after)
        return applied

    def forget(self, pipeline: str) -> None:
        """Delete everything of the pipeline but its row."""
        self.finish_history()
        hours = history_hours()
        for table, extra, values in (
            (schema.CHANGES.name, " AND hour IN ?", (pipeline, hours)),
            (schema.PROGRESS.name, "", (pipeline,)),
            (schema.PROGRESS.name, "", (heartbeat_key(pipeline),)),
            (schema.SNAPSHOTS.name, "", (pipeline,)),
            (schema.LOSSES.name, "", (pipeline,)),
            (schema.ACCEPTED_LOSSES.name, "", (pipeline,)),
            (schema.LEFT_OUT.name, "", (pipeline,)),
        ):
            with translated(f"deleting from {self.keyspace}.{table}"):
                if schema.columns_of(self.session, self.keyspace, table):
                    forget = self._prepare(f'DELETE FROM "{self.keyspace}".{table} WHERE pipeline = ?{extra}')
                    self.session.execute(forget, values)

    def report_progress(self, pipeline: str, *, epoch: int, version: int, done: int, note: str = "") -> None:
        """Record how many records of the batch in progress are finished; the record expires after an hour.

        Raises FenceError; the batch continues without it.
        """
        with self._asking("reporting the progress of a batch", schema.PROGRESS):
            insert = self._prepare(
                f"INSERT INTO {self._table(schema.PROGRESS)} (pipeline, epoch, version, done, note, at)"
                f" VALUES (?, ?, ?, ?, ?, toTimestamp(now())) USING TTL {PROGRESS_KEPT}"
            )
            self.session.execute(insert, (pipeline, epoch, version, done, note))

    def read_progress(self, pipeline: str) -> BatchProgress | None:
        """Return the newest report, None when it or its table does not exist yet."""
        try:
            with self._asking("reading the progress of a batch", schema.PROGRESS):
                select = self._prepare(
                    f"SELECT epoch, version, done, note, at FROM {self._table(schema.PROGRESS)} WHERE pipeline = ?"
                )
                found = self.session.execute(select, (pipeline,)).one()
        except FenceSchemaMissing:
            return None
        if found is None or None in {found.epoch, found.version, found.done, found.at}:
            return None  # a column set to null by hand: not a report
        return BatchProgress(
            epoch=found.epoch,
            version=found.version,
            done=found.done,
            note=found.note or "",
            at=found.at.replace(tzinfo=UTC),
        )

    def report_loss(self, pipeline: str, report: ReportedLoss) -> None:
        """Insert the loss without the columns of its acceptance, so that one that is there stays."""
        with self._asking("recording a loss", schema.LOSSES):
            values = stored_losses.report_values(pipeline, report)
            insert = self._prepare(
                f"INSERT INTO {self._table(schema.LOSSES)} ({', '.join(values)}) VALUES ({_marks(tuple(values))})"
            )
            self.session.execute(insert, tuple(values.values()))

    def read_losses(self, pipeline: str, committed_ms: int | None) -> tuple[ReportedLoss, ...]:
        """Return the losses of that commit, or the newest ones; none when their table does not exist yet.

        A row that does not hold a loss is left out.
        """
        which, values = (
            ("ORDER BY committed_ms DESC", ()) if committed_ms is None else ("AND committed_ms = ?", (committed_ms,))
        )
        try:
            with self._asking("reading the losses", schema.LOSSES):
                columns = ", ".join(schema.LOSSES.all_columns)
                select = self._prepare(
                    f"SELECT {columns} FROM {self._table(schema.LOSSES)} WHERE pipeline = ? {which} LIMIT {MOST_LOSSES}"
                )
                # One page: a Cassandra that a tenant runs could return pages forever.
                found = self.session.execute(select, (pipeline, *values)).current_rows[:MOST_LOSSES]
        except FenceSchemaMissing:
            return ()
        reports = (stored_losses.reported_loss(row) for row in found)
        return tuple(report for report in reports if report is not None)

    def accept_loss(self, pipeline: str, loss: Loss, acceptance: Acceptance) -> None:
        """Insert a row for each range, then mark the loss; done again, it is done once.

        The mark is one write, and what a driver reads: the rows before it are too many for one batch.
        """
        self._insert_accepted(stored_losses.accepted_rows(pipeline, loss, acceptance, loss.ranges))
        with self._asking("recording an acceptance", schema.LOSSES):
            mark = self._prepare(
                f"INSERT INTO {self._table(schema.LOSSES)}"
                " (pipeline, committed_ms, id, accepted_by, accepted_at, choice) VALUES (?, ?, ?, ?, ?, ?)"
            )
            key = (pipeline, loss.committed_ms, loss.id)
            self.session.execute(mark, (*key, acceptance.by, acceptance.at, acceptance.choice))

    def record_skipped(self, pipeline: str, report: ReportedLoss, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Insert a row for each range; one that begins at the same offset is replaced."""
        if report.acceptance is None:
            raise ValueError(f"loss {report.loss.id} is not accepted")
        self._insert_accepted(stored_losses.accepted_rows(pipeline, report.loss, report.acceptance, ranges))

    def _insert_accepted(self, rows: Iterable[Mapping[str, Any]]) -> None:
        with self._asking("recording an acceptance", schema.ACCEPTED_LOSSES):
            found = self._checked(schema.ACCEPTED_LOSSES)
            columns = tuple(name for name in schema.ACCEPTED_LOSSES.all_columns if name in found)
            insert = self._prepare(
                f"INSERT INTO {self._table(schema.ACCEPTED_LOSSES)} ({', '.join(columns)}) VALUES ({_marks(columns)})"
            )
            execute_concurrent_with_args(
                self.session, insert, [tuple(row[name] for name in columns) for row in rows], concurrency=16
            )

    def server_time(self) -> int:
        """Return the time of a Cassandra node in µs since 1970, as precise as a millisecond."""
        with translated("reading Cassandra's time"):
            select = self._prepare("SELECT toTimestamp(now()) AS now FROM system.local")
            now: datetime = self.session.execute(select, ()).one().now
        return (now.replace(tzinfo=UTC) - _UNIX_EPOCH) // timedelta(microseconds=1)

    def require(self, name: str) -> None:
        """Raise FenceSchemaInvalid where the table lacks one of the columns that an older release did not have."""
        if name not in self._fence_columns():
            self._columns = ()  # the operator may add it
            place, kind = f"{self.keyspace}.{schema.FENCE.name}", schema.FENCE.added[name]
            raise FenceSchemaInvalid(
                f"{place} has no column {name} ({kind}), which this run needs: ALTER TABLE {place} ADD {name} {kind}"
            )

    def _check_state(self, changed: Collection[str]) -> None:
        """Raise FenceSchemaInvalid where the table lacks a column for a state that changes."""
        for name in ("checkpoint", "planned_log"):
            if name in changed:
                self.require(name)

    def _fence_columns(self) -> tuple[str, ...]:
        """Return the columns of the fence row that the table has. Raises FenceSchemaMissing, FenceSchemaInvalid."""
        if not self._columns:
            found = self._checked(schema.FENCE)
            self._columns = tuple(name for name in schema.FENCE.all_columns if name in found)
        return self._columns

    def _checked(self, table: schema.Table) -> Mapping[str, str]:
        """Return the columns that a table has now. Raises FenceSchemaMissing, FenceSchemaInvalid."""
        place = f"{self.keyspace}.{table.name}"
        found = schema.columns_of(self.session, self.keyspace, table.name)
        if not found:
            there = schema.has_keyspace(self.session, self.keyspace)
            missing = f"table {place}" if there else f"keyspace {self.keyspace}"
            raise FenceSchemaMissing(f"{missing} does not exist (looking for {place})")
        for name, kind in table.all_columns.items():
            if name not in found and name in table.columns:
                raise FenceSchemaInvalid(f"{place} has no column {name} ({kind})")
            if name in found and found[name] != kind:
                raise FenceSchemaInvalid(f"{place}: column {name} is of type {found[name]}, not {kind}")
        return found

    @contextmanager
    def _asking(self, doing: str, table: schema.Table) -> Iterator[None]:
        """Translate errors; a refused request is a missing table only when Cassandra's schema says so now.

        A node that refuses what the schema has is one that the schema reaches this moment: the request is tried again.
        """
        with translated(doing):
            try:
                yield
            except InvalidRequest as error:
                if is_disk_full(error):
                    raise
                self._prepared.clear()
                self._columns = ()
                self._checked(table)
                kind = FenceUnavailable if _ABSENT.search(str(error)) else FenceSchemaInvalid
                raise kind(f"{doing} in {self.keyspace}.{table.name}: {error}") from error

    def _table(self, table: schema.Table) -> str:
        return f'"{self.keyspace}".{table.name}'

    def _prepare(self, statement: str) -> Any:  # noqa: ANN401 - the library is untyped
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = self._prepared[statement] = self.session.prepare(statement)
        return prepared


def _marks(columns: Sequence[str]) -> str:
    return ", ".join("?" * len(columns))


def _values(row: FenceRow, columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_plain(getattr(row, column)) for column in columns)


def _plain(value: Any) -> Any:  # noqa: ANN401 - of a column of any type
    if isinstance(value, tuple):
        return flat(value)
    return dict(value) if isinstance(value, Mapping) else value


def _stored(row: FenceRow) -> FenceRow:
    """Return the row as its columns have it."""
    return replace(row, leader_epochs=sealed(row.leader_epochs, row.offsets, row.topic_ids))
