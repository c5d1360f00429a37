"""The fence table in PostgreSQL: one conditional UPDATE for each change, and its record in the history with it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from types import SimpleNamespace
from typing import Any, Final

from fencepost.contract import Acceptance, Loss, Reason, ReportedLoss
from fencepost.errors import BadSpec, BatchFailed
from fencepost.fence import stored_losses
from fencepost.fence.batch_progress import BatchProgress
from fencepost.fence.errors import FenceRowInvalid, FenceSchemaInvalid, FenceUnavailable
from fencepost.fence.history import HISTORY_DAYS, change, hour_of
from fencepost.fence.postgresql.errors import divides_by_zero, refuses_a_move
from fencepost.fence.postgresql.schema import TABLES, bound, name_of
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.staging import StagedRows, StagedTable, drop_all
from fencepost.fence.row import FenceRow
from fencepost.fence.sealed_epochs import sealed
from fencepost.fence.stored_rows import COLUMNS, fence_row, flat
from fencepost.fence.table import MOST_LOSSES

PROGRESS_KEPT: Final = 3600
"""Seconds after which a report of progress counts no more."""
EXPIRE_EVERY: Final = 3600.0
"""Seconds between two deletions of what has expired."""
_EXPIRES: Final = {
    "fence_changes": f"hour < now() - interval '{HISTORY_DAYS} days'",
    "dead_letters": "expires_at < now()",
}
ROWS_AT_ONCE: Final = 1_000
"""Rows of one INSERT: the protocol allows 65,535 values."""
MOVED_PER_SECOND: Final = 5_000
"""Rows that a server moves to their table at least: a commit has its request time and that of its rows."""
RECORDED: Final = (
    "hour", "epoch", "version", "base", "owner", "driver", "clock", "offsets", "planned", "topic_ids", "leader_epochs",
    "growth_barrier", "figures", "code", "committed_at", "records", "duration_ms", "state_bytes", "committed", "lag",
)  # fmt: skip
"""The columns of a change, beside the pipeline and the moment of the write."""
_LOSS: Final = (
    "committed_ms", "id", "epoch", "reason", "from_offsets", "until_offsets", "old_topic_ids", "new_topic_ids", "at",
    "accepted_by", "accepted_at", "choice",
)  # fmt: skip


class PostgresqlFenceTable:
    """Fence rows in the tables of one schema.

    A row and the record of its change are one statement: the history has each change that was applied, and no other.
    So are a commit and the rows of its batch that sinks of this database have staged.
    """

    def __init__(self, session: Session, schema: str) -> None:
        self.session = session
        self.schema = schema
        self._recorded_last: tuple[FenceRow, datetime] | None = None
        self._staged: dict[str, StagedRows | None] = {}
        self._expire_at = time.monotonic()

    def close(self) -> None:
        """End the session."""
        self.session.close()

    def read(self, pipeline: str) -> FenceRow | None:
        """Return the row as the server that takes writes has it: with every change that was acknowledged.

        Raises FenceError, FenceRowInvalid for one that was changed by hand.
        """
        found = self._select("reading the fence row", "fence", COLUMNS, "WHERE pipeline = %s", (pipeline,))
        return fence_row(found[0]) if found else None

    def read_epoch(self, pipeline: str) -> int | None:
        """Return the row's epoch. Raises FenceError."""
        found = self._select("reading the epoch", "fence", ("epoch",), "WHERE pipeline = %s", (pipeline,))
        return int(found[0].epoch) if found else None

    def insert(self, row: FenceRow) -> bool:
        """Insert ON CONFLICT DO NOTHING."""
        values = _stored(row)
        made = f"INSERT INTO {self._name('fence')} ({', '.join(values)}) VALUES ({_marks(values)})"
        return self._change("creating the fence row", f"{made} ON CONFLICT DO NOTHING", values.values(), None, row)

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        """Update WHERE epoch, version and driver are those of `before`; only the columns that differ are sent.

        A commit that has output moves what is staged, if that is all that the tasks have reported.
        Raises BatchFailed where it is not, BadSpec where a table refuses a row of it.
        """
        moves = self._moves(before, after)
        old = _stored(before)
        changed = {name: value for name, value in _stored(after).items() if old[name] != value}
        update = (
            f"UPDATE {self._name('fence')} SET {', '.join(f'{name} = %s' for name in changed)}"
            " WHERE pipeline = %s AND epoch = %s AND version = %s AND driver IS NOT DISTINCT FROM %s"
            + "".join(f" AND ({one.table.counted}) = %s" for one in moves)
        )
        values = (*changed.values(), before.pipeline, before.epoch, before.version, before.driver)
        counted = (value for one in moves for value in (*one.batch, *one.batch, one.count))
        try:
            applied = self._change("changing the fence row", update, (*values, *counted), before, after, moves)
        except (FenceSchemaInvalid, FenceUnavailable) as error:
            if moves and divides_by_zero(error.__cause__):
                raise _changed_meanwhile(f"rows in {moves[0].table.name} were deleted") from error
            if moves and refuses_a_move(error.__cause__):
                raise BadSpec(
                    f"a table refuses a row of the batch when it is committed: {error}",
                    reason=Reason.SINK_MISMATCH,
                    remedy="Make the transform's rows fit the table's constraints and triggers, or remove these. The"
                    " message names one.",
                ) from error
            raise
        if not applied and moves:
            self._check_staged(before, moves)
        return applied

    def awaits_rows(self, table: StagedTable) -> None:
        """Refuse each commit with output for which the sink of this table has not finished the batch."""
        self._staged.setdefault(table.name, None)

    def stage(self, rows: StagedRows) -> None:
        """Let the commit of this batch move its rows."""
        self._staged[rows.table.name] = rows

    def _moves(self, before: FenceRow, after: FenceRow) -> tuple[StagedRows, ...]:
        """Return what moves with a change: of a commit with output, what is staged. Raises RuntimeError."""
        if after.output_token == before.output_token:
            return ()
        found = tuple(rows for rows in self._staged.values() if rows and rows.batch == (before.epoch, before.version))
        if len(found) != len(self._staged):
            raise RuntimeError("a sink beside the fence did not finish the batch that is committed")
        return tuple(rows for rows in found if rows.count)

    def _check_staged(self, before: FenceRow, moves: Sequence[StagedRows]) -> None:
        """Raise BatchFailed where a commit was refused for rows that are missing, and not for a rival."""
        seen = self.read(before.pipeline)
        if seen is None or not seen.is_held_as(before):
            return
        for rows in moves:
            doing = f"counting the rows in {rows.table.name}"
            ((count,),) = self.session.run(doing, rows.table.counted, (*rows.batch, *rows.batch))
            if count != rows.count:
                raise _changed_meanwhile(f"{rows.table.name} has {count} of {rows.count} rows of the batch")

    def _change(
        self,
        doing: str,
        statement: str,
        values: Iterable[object],
        before: FenceRow | None,
        after: FenceRow,
        moves: Sequence[StagedRows] = (),
    ) -> bool:
        """Run the statement, and with it add what it changed to the history, unless it releases the row."""
        sent = [*map(bound, values)]
        if after.is_released:  # its history was deleted before
            return bool(self.session.run(doing, f"{statement} RETURNING version", sent))
        now = datetime.now(UTC)
        follows = before is not None and self._recorded_last == (before, hour_of(now))
        record = change(before if follows else None, after, now)
        kept = {name: None if (value := getattr(record, name)) == {} else value for name in RECORDED}
        moving = [rows.table.moving(number) for number, rows in enumerate(moves)]
        moved = [value for rows in moves for value in (*rows.batch, *rows.batch)]
        whole = "".join(f" AND {rows.table.all_moved(number)}" for number, rows in enumerate(moves))
        applied = self.session.run(
            doing,
            f"{', '.join([f'WITH changed AS ({statement} RETURNING pipeline)', *moving])}"
            f" INSERT INTO {self._name('fence_changes')} (pipeline, {', '.join(kept)})"
            f" SELECT changed.pipeline, {_typed_marks('fence_changes', kept)} FROM changed"
            f" WHERE true{whole}"
            # Of a row that was set back by hand.
            f" ON CONFLICT (pipeline, hour, epoch, version) DO UPDATE SET {_replaced(kept)} RETURNING version",
            [*sent, *moved, *map(bound, kept.values()), *(rows.count for rows in moves)],
            limit=self.session.request_timeout + sum(rows.count for rows in moves) / MOVED_PER_SECOND,
        )
        if applied:
            self._recorded_last = after, hour_of(now)
        return bool(applied)

    def finish_history(self) -> None:
        """Return at once: the history has each change already."""

    def forget(self, pipeline: str) -> None:
        """Delete everything of the pipeline but its row."""
        self._recorded_last = None
        for table in TABLES:
            if table != "fence":
                statement = f"DELETE FROM {self._name(table)} WHERE pipeline = %s"
                self.session.run(f"deleting from {self.schema}.{table}", statement, (pipeline,))
        # Heartbeats, reports of trials, and signs of life of clusters: nothing expires here.
        statement = f"DELETE FROM {self._name('fence_progress')} WHERE starts_with(pipeline, %s)"
        self.session.run(f"deleting from {self.schema}.fence_progress", statement, (f"{pipeline}#",))
        drop_all(self.session, self.schema, pipeline)

    def report_progress(self, pipeline: str, *, epoch: int, version: int, done: int, note: str = "") -> None:
        """Keep the newest report, and now and then delete what has expired. Raises FenceError."""
        report = {"pipeline": pipeline, "epoch": epoch, "version": version, "done": done, "note": note}
        self._put("fence_progress", "pipeline", report, now="at")
        if time.monotonic() >= self._expire_at:
            self._expire_at = time.monotonic() + EXPIRE_EVERY
            for table, is_over in _EXPIRES.items():
                delete = f"DELETE FROM {self._name(table)} WHERE pipeline = %s AND {is_over}"
                self.session.run(f"deleting what has expired of {self.schema}.{table}", delete, (pipeline,))

    def read_progress(self, pipeline: str) -> BatchProgress | None:
        """Return the newest report of the last hour."""
        found = self._select(
            "reading the progress of a batch",
            "fence_progress",
            ("epoch", "version", "done", "note", "at"),
            f"WHERE pipeline = %s AND at > clock_timestamp() - interval '{PROGRESS_KEPT} seconds'",
            (pipeline,),
        )
        if not found:
            return None
        values = vars(found[0])
        if not isinstance(values["at"], datetime) or not all(isinstance(values[name], int) for name in _COUNTED):
            raise FenceRowInvalid("a report of progress that holds other values")
        return BatchProgress(**values)

    def report_loss(self, pipeline: str, report: ReportedLoss) -> None:
        """Record the loss; an acceptance that is there stays."""
        values = stored_losses.report_values(pipeline, report)
        self._put("fence_losses", "pipeline, committed_ms, id", values)

    def read_losses(self, pipeline: str, committed_ms: int | None) -> tuple[ReportedLoss, ...]:
        """Return the losses of that commit, or the newest ones; none that no driver wrote as it is."""
        of_commit = "" if committed_ms is None else " AND committed_ms = %s"
        found = self._select(
            "reading the losses",
            "fence_losses",
            _LOSS,
            f"WHERE pipeline = %s{of_commit} ORDER BY committed_ms DESC, id LIMIT {MOST_LOSSES}",
            (pipeline, *(() if committed_ms is None else (committed_ms,))),
        )
        reports = (stored_losses.reported_loss(row) for row in found[:MOST_LOSSES])
        return tuple(report for report in reports if report is not None)

    def accept_loss(self, pipeline: str, loss: Loss, acceptance: Acceptance) -> None:
        """Record each range, then mark the loss; done again, it is done once."""
        self._put_accepted(stored_losses.accepted_rows(pipeline, loss, acceptance, loss.ranges))
        self.session.run(
            "recording an acceptance",
            f"UPDATE {self._name('fence_losses')} SET accepted_by = %s, accepted_at = %s, choice = %s"
            " WHERE pipeline = %s AND committed_ms = %s AND id = %s",
            (acceptance.by, acceptance.at, acceptance.choice, pipeline, loss.committed_ms, loss.id),
        )

    def record_skipped(self, pipeline: str, report: ReportedLoss, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Record each range; one that begins at the same offset is replaced."""
        if report.acceptance is None:
            raise ValueError(f"loss {report.loss.id} is not accepted")
        self._put_accepted(stored_losses.accepted_rows(pipeline, report.loss, report.acceptance, ranges))

    def server_time(self) -> int:
        """Return the server's time in µs since 1970."""
        ((now,),) = self.session.run(
            "reading PostgreSQL's time", "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        )
        if not isinstance(now, int):
            raise FenceRowInvalid("PostgreSQL's time is not a number")
        return now

    def _put_accepted(self, rows: Iterable[Mapping[str, Any]]) -> None:
        left = iter(rows)
        while some := [*islice(left, ROWS_AT_ONCE)]:
            self._put("accepted_losses", "pipeline, topic, partition, from_offset", *some)

    def _put(self, table: str, key: str, *rows: Mapping[str, object], now: str = "") -> None:
        """Insert rows, or set these columns of those with their keys; the column `now` gets the server's time."""
        columns = [*rows[0], *([now] if now else [])]
        marks = f"({_marks(rows[0])}{', clock_timestamp()' if now else ''})"
        self.session.run(
            f"writing to {self.schema}.{table}",
            f"INSERT INTO {self._name(table)} ({', '.join(columns)}) VALUES {', '.join([marks] * len(rows))}"
            f" ON CONFLICT ({key}) DO UPDATE SET {_replaced(columns)}",
            [bound(value) for row in rows for value in row.values()],
        )

    def _select(
        self, doing: str, table: str, columns: Sequence[str], where: str, values: Sequence[object]
    ) -> list[SimpleNamespace]:
        found = self.session.run(doing, f"SELECT {', '.join(columns)} FROM {self._name(table)} {where}", values)
        return [named(columns, row) for row in found]

    def _name(self, table: str) -> str:
        return name_of(self.schema, table)


def _changed_meanwhile(what: str) -> BatchFailed:
    return BatchFailed(
        f"{what}: PostgreSQL restarted or failed over since they were staged, or a repeated task made other rows",
        reason=Reason.SINK_FAILED,
        remedy="Nothing is lost: the next run repeats the batch. If this recurs, the transform is not deterministic.",
    )


_COUNTED: Final = ("epoch", "version", "done")


def named(columns: Sequence[str], row: Sequence[object]) -> SimpleNamespace:
    """Return a row's values by column. Raises FenceRowInvalid: a server that a tenant runs may send others."""
    if len(columns) != len(row):
        raise FenceRowInvalid(f"an answer of {len(row)} columns where {len(columns)} were asked for")
    return SimpleNamespace(**dict(zip(columns, row, strict=True)))


def _marks(values: Iterable[object]) -> str:
    return ", ".join("%s" for _ in values)


def _replaced(columns: Iterable[str]) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in columns)


def _typed_marks(table: str, columns: Iterable[str]) -> str:
    """Return marks with their types, which a SELECT does not take from the table that it is inserted into."""
    declared = (line.split() for line in TABLES[table].splitlines())
    types = {line[0]: line[1].rstrip(",") for line in declared if len(line) > 1}
    return ", ".join(f"%s::{types[name]}" for name in columns)


def _stored(row: FenceRow) -> dict[str, Any]:
    """Return the row as its columns have it."""
    epochs = sealed(row.leader_epochs, row.offsets, row.topic_ids)
    stored = {name: getattr(row, name) for name in COLUMNS} | {"leader_epochs": epochs, "growths": flat(row.growths)}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in stored.items()}
