"""Fence rows in a SQLite file: each method is one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from fencepost.contract import Acceptance, Loss, ReportedLoss
from fencepost.contract.codec import ContractError, decode, encode
from fencepost.fence.batch_progress import BatchProgress
from fencepost.fence.clock import wall_clock
from fencepost.fence.errors import FenceRowInvalid
from fencepost.fence.row import FenceRow
from fencepost.fence.sqlite.database import Database
from fencepost.fence.table import MOST_LOSSES

T = TypeVar("T")

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS fencepost_fence (
  pipeline TEXT PRIMARY KEY, epoch INTEGER NOT NULL, version INTEGER NOT NULL, driver TEXT, content TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fencepost_changes (
  pipeline TEXT, epoch INTEGER, version INTEGER, content TEXT NOT NULL, PRIMARY KEY (pipeline, epoch, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fencepost_progress (pipeline TEXT PRIMARY KEY, content TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fencepost_losses (
  pipeline TEXT, id TEXT, committed_ms INTEGER NOT NULL, content TEXT NOT NULL, PRIMARY KEY (pipeline, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fencepost_skipped (
  pipeline TEXT, loss TEXT, partition TEXT, start INTEGER, until INTEGER NOT NULL,
  PRIMARY KEY (pipeline, loss, partition, start)
) STRICT, WITHOUT ROWID;
"""
"""Rows, losses and reports are JSON; the columns beside it are what conditions and queries need."""


class SqliteFenceTable:
    """A FenceTable in a database with the tables of SCHEMA.

    The history has each change without the checkpoint: that would be a copy of it per batch.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, pipeline: str) -> FenceRow | None:
        """Return the row, or None. Raises FenceRowInvalid for one that was changed by hand."""
        return self._one(FenceRow, "SELECT content FROM fencepost_fence WHERE pipeline = ?", pipeline)

    def read_epoch(self, pipeline: str) -> int | None:
        """Return the row's epoch."""
        row = self.read(pipeline)
        return None if row is None else row.epoch

    def insert(self, row: FenceRow) -> bool:
        """Insert unless there is a row."""
        with self._database.changing() as connection:
            inserted = connection.execute(
                "INSERT INTO fencepost_fence (pipeline, epoch, version, driver, content) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (row.pipeline, row.epoch, row.version, row.driver, encode(row)),
            )
            if inserted.rowcount:
                connection.execute(_RECORD, _recorded(row))
        return bool(inserted.rowcount)

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        """Replace on condition of epoch, version and driver."""
        with self._database.changing() as connection:
            updated = connection.execute(
                "UPDATE fencepost_fence SET epoch = ?, version = ?, driver = ?, content = ?"
                " WHERE pipeline = ? AND epoch = ? AND version = ? AND driver IS ?",
                (
                    after.epoch, after.version, after.driver, encode(after),
                    before.pipeline, before.epoch, before.version, before.driver,
                ),
            )  # fmt: skip
            if updated.rowcount and not after.is_released:
                connection.execute(_RECORD, _recorded(after))
        return bool(updated.rowcount)

    def forget(self, pipeline: str) -> None:
        """Delete history, progress and losses."""
        with self._database.changing() as connection:
            for table in ("changes", "progress", "losses", "skipped"):
                connection.execute(f"DELETE FROM fencepost_{table} WHERE pipeline = ?", (pipeline,))

    def report_progress(self, pipeline: str, *, epoch: int, version: int, done: int, note: str = "") -> None:
        """Keep the newest report."""
        at = datetime.fromtimestamp(self.server_time() / 1e6, UTC)
        report = BatchProgress(epoch=epoch, version=version, done=done, note=note, at=at)
        with self._database.changing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO fencepost_progress (pipeline, content) VALUES (?, ?)",
                (pipeline, encode(report)),
            )

    def read_progress(self, pipeline: str) -> BatchProgress | None:
        """Return the newest report."""
        return self._one(BatchProgress, "SELECT content FROM fencepost_progress WHERE pipeline = ?", pipeline)

    def report_loss(self, pipeline: str, report: ReportedLoss) -> None:
        """Keep the loss; one that is known keeps its acceptance."""
        with self._database.changing():
            known = self._loss(pipeline, report.loss)
            self._put_loss(pipeline, replace(report, acceptance=None if known is None else known.acceptance))

    def read_losses(self, pipeline: str, committed_ms: int | None) -> tuple[ReportedLoss, ...]:
        """Return the losses of that commit, or the newest ones."""
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT content FROM fencepost_losses WHERE pipeline = ?1 AND (?2 IS NULL OR committed_ms = ?2)"
                " ORDER BY committed_ms DESC, id LIMIT ?3",
                (pipeline, committed_ms, MOST_LOSSES),
            ).fetchall()
        return tuple(_decoded(ReportedLoss, content) for (content,) in found)

    def accept_loss(self, pipeline: str, loss: Loss, acceptance: Acceptance) -> None:
        """Mark the loss as accepted. Raises KeyError for one that was not reported."""
        with self._database.changing():
            known = self._loss(pipeline, loss)
            if known is None:
                raise KeyError(loss.id)
            self._put_skipped(pipeline, loss, loss.ranges)
            self._put_loss(pipeline, replace(known, acceptance=acceptance))

    def record_skipped(self, pipeline: str, report: ReportedLoss, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Keep the ranges of an acceptance."""
        if report.acceptance is None:
            raise ValueError(f"loss {report.loss.id} is not accepted")
        with self._database.changing():
            self._put_skipped(pipeline, report.loss, ranges)

    def server_time(self) -> int:
        """Return the machine's wall time: the processes that write are on it."""
        return wall_clock()

    def _loss(self, pipeline: str, loss: Loss) -> ReportedLoss | None:
        return self._one(
            ReportedLoss, "SELECT content FROM fencepost_losses WHERE pipeline = ? AND id = ?", pipeline, loss.id
        )

    def _put_loss(self, pipeline: str, report: ReportedLoss) -> None:
        with self._database.reading() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO fencepost_losses (pipeline, id, committed_ms, content) VALUES (?, ?, ?, ?)",
                (pipeline, report.loss.id, report.loss.committed_ms, encode(report)),
            )

    def _put_skipped(self, pipeline: str, loss: Loss, ranges: Mapping[str, tuple[int, int]]) -> None:
        with self._database.reading() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO fencepost_skipped (pipeline, loss, partition, start, until)"
                " VALUES (?, ?, ?, ?, ?)",
                [(pipeline, loss.id, key, start, until) for key, (start, until) in ranges.items()],
            )

    def _one(self, kind: type[T], query: str, *values: str) -> T | None:
        with self._database.reading() as connection:
            found = connection.execute(query, values).fetchone()
        return None if found is None else _decoded(kind, found[0])


_RECORD: Final = "INSERT OR REPLACE INTO fencepost_changes (pipeline, epoch, version, content) VALUES (?, ?, ?, ?)"


def _recorded(row: FenceRow) -> tuple[str, int, int, str]:
    return row.pipeline, row.epoch, row.version, encode(replace(row, checkpoint=None, planned_log=None))


def _decoded(kind: type[T], content: str) -> T:
    try:
        return decode(kind, content, "the fence's file")
    except ContractError as error:
        raise FenceRowInvalid(str(error)) from error
