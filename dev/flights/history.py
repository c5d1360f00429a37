"""The fence's own story as the tests read it: every change of a row, and which of them are commits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeVar

from fencepost.fence.cassandra.history import read_changes
from fencepost.fence.history import restored
from fencepost_cli.history.checks import Change, is_commit, moved

_Kind = TypeVar("_Kind", bound=Change)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One change as read from the table. `written_at` is when its writer appended it, in µs since 1970."""

    epoch: int
    driver: str | None
    version: int
    clock: int
    offsets: Mapping[str, int] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    committed_at: datetime | None = None
    records: int | None = None
    duration_ms: int | None = None
    written_at: int | None = None


def commits(rows: Iterable[_Kind]) -> list[tuple[_Kind, _Kind]]:
    """(change before, commit) for each batch's commit whose change before is on record, oldest first."""
    changes = sorted(rows, key=lambda change: change.version)
    return [
        (before, after)
        for before, after in pairwise(changes)
        if after.version == before.version + 1 and is_commit(before, after) and moved(before, after) > 0
    ]


def read_history(session: Any, keyspace: str, pipeline: str) -> Sequence[HistoryRow]:
    """Every change of a pipeline that the table holds, oldest first. `session` is the Cassandra driver's."""
    return [
        HistoryRow(
            epoch=row.epoch,
            driver=row.driver,
            version=row.version,
            clock=row.clock,
            offsets=row.offsets,
            planned=row.planned,
            committed_at=row.committed_at,
            records=row.records,
            duration_ms=row.duration_ms,
            written_at=record.written_at,
        )
        for record, row in restored(pipeline, read_changes(session, keyspace, pipeline))
    ]
