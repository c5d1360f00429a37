"""The history of fence rows in Cassandra: for people, no decision reads it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from cassandra.cluster import Session
from cassandra.query import UNSET_VALUE

from fencepost.fence.cassandra import schema
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.errors import FenceUnavailable
from fencepost.fence.history import MAPS, NO_CHANGE, Change, change, history_hours, hour_of
from fencepost.fence.row import FenceRow

log = logging.getLogger(__name__)

HISTORY_ATTEMPTS: Final = 3
HISTORY_PAUSE: Final = 0.5
"""Seconds between two attempts to append a change."""


@dataclass(slots=True)
class History:
    """Appends applied changes, in a thread of its own: in the caller's it was a tenth of a commit's time."""

    session: Session
    keyspace: str
    _insert: Any = None
    _recorded_last: tuple[FenceRow, datetime] | None = None
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(max_workers=1, thread_name_prefix="fence-history")
    )

    def record(self, before: FenceRow | None, after: FenceRow) -> None:
        """Append a change without waiting; what cannot be appended is logged."""
        try:
            self._thread.submit(self._append, before, after, datetime.now(UTC))
        except RuntimeError as error:  # the process is ending
            _lost(error)  # the change itself is applied, and the caller must learn that

    def finish(self) -> None:
        """Wait until the changes made so far are appended, or logged as lost."""
        self._thread.submit(lambda: None).result()

    def close(self) -> None:
        """Wait likewise, and end the thread."""
        self._thread.shutdown()

    def _append(self, before: FenceRow | None, after: FenceRow, now: datetime) -> None:
        last, self._recorded_last = self._recorded_last, None
        follows = before is not None and last == (before, hour_of(now))
        record = change(before if follows else None, after, now)
        try:
            self._insert_change(after.pipeline, record)
        except Exception as error:  # noqa: BLE001 - no caller waits for this thread's result, so it logs the error itself
            self._insert = None
            _lost(error)
        else:
            self._recorded_last = after, hour_of(now)

    def _insert_change(self, pipeline: str, record: Change) -> None:
        """Append to the history, again when Cassandra does not answer: the same row twice is one row."""
        columns = tuple(schema.CHANGES.all_columns)
        values = {name: getattr(record, name) for name in columns if name != "pipeline"}
        # UNSET, not null: a null is a tombstone.
        bound = [values[name] if values[name] not in ({}, None) else UNSET_VALUE for name in columns[1:]]
        marks = ", ".join("?" * len(columns))
        text = f'INSERT INTO "{self.keyspace}".{schema.CHANGES.name} ({", ".join(columns)}) VALUES ({marks})'
        for attempt in range(HISTORY_ATTEMPTS):
            try:
                with translated("appending to the history"):
                    self._insert = self._insert or self.session.prepare(text)
                    self.session.execute(self._insert, (pipeline, *bound))
            except FenceUnavailable:
                if attempt == HISTORY_ATTEMPTS - 1:
                    raise
                time.sleep(HISTORY_PAUSE)
            else:
                return


def read_changes(session: Session, keyspace: str, pipeline: str) -> Sequence[Change]:
    """Return the history that the table still holds, in any order."""
    select = session.prepare(f"{_select(keyspace)} AND hour IN ?")
    return [_change(row) for row in session.execute(select, (pipeline, history_hours()))]


def changes_of_hour(
    session: Session, keyspace: str, pipeline: str, hour: datetime, *, after: tuple[int, int] = NO_CHANGE
) -> Iterator[Change]:
    """Yield the changes of an hour that came after this epoch and version, a page at a time, in any order.

    Raises FenceError.
    """
    with translated("reading the history"):
        select = session.prepare(f"{_select(keyspace)} AND hour = ? AND (epoch, version) > (?, ?)")
        yield from (_change(row) for row in session.execute(select, (pipeline, hour, *after)))


def changes_after(
    session: Session, keyspace: str, pipeline: str, hour: datetime, *, epoch: int, version: int, limit: int
) -> Sequence[Change]:
    """Return the first changes of an hour that came after this one, oldest first. Raises FenceError."""
    with translated("reading the history"):
        select = session.prepare(
            f"{_select(keyspace)} AND hour = ? AND (epoch, version) > (?, ?) ORDER BY epoch ASC, version ASC LIMIT ?"
        )
        return [_change(row) for row in session.execute(select, (pipeline, hour, epoch, version, limit))]


def _select(keyspace: str) -> str:
    columns = ", ".join(tuple(schema.CHANGES.all_columns)[1:])
    return (
        f'SELECT {columns}, WRITETIME(clock) AS written_at FROM "{keyspace}".{schema.CHANGES.name} WHERE pipeline = ?'
    )


def _lost(error: Exception) -> None:
    log.warning("a change of the fence row is missing in the history: %s", error)


def _change(found: Any) -> Change:  # noqa: ANN401 - a driver's named tuple
    values = {name: getattr(found, name) for name in (*schema.CHANGES.all_columns, "written_at") if name != "pipeline"}
    for name in MAPS:
        values[name] = dict(values[name].items()) if values[name] else {}
    for name in ("hour", "committed_at"):
        values[name] = _in_utc(values[name])
    return Change(**{**values, "base": bool(values["base"]), "committed": bool(values["committed"])})


def _in_utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment else None
