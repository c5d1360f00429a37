"""The history of one pipeline, read hour by hour: the newest changes, or all of them in order beside the fence row."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from fencepost.fence import FenceRow
from fencepost.fence.history import Change, history_hours, hour_of, replayed
from fencepost_cli.errors import CliError
from fencepost_cli.history.checks import is_commit, is_rewind, moved

MOST: Final = 1_000_000
"""Changes that are held at once, of some 2 KB each."""
Hour = Callable[[datetime], Sequence[Change]]
"""Returns what the history has of an hour, in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change in readable form.

    `moved` maps 'topic/partition' to the committed offsets before and after.  `lag` is what the log held beyond them,
    as the driver saw it.  `contiguous` says whether the change before is on record; None for the oldest one that was
    read.  `state_bytes` is the size of a stateful pipeline's state after the change, and `figures` are those of a
    commit, by the names of `fencepost.fence.figures`.
    """

    epoch: int
    version: int
    kind: str
    recorded_at: datetime | None
    driver: str | None
    code: str | None
    records: int | None
    duration_ms: int | None
    lag: int | None = None
    moved: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    contiguous: bool | None = None
    state_bytes: int | None = None
    figures: Mapping[str, int] = field(default_factory=dict)


def newest(pipeline: str, hour: Hour, *, limit: int | None, since: datetime | None) -> list[Entry]:
    """Return the newest changes, the newest first: at most `limit`, and none recorded before `since`.

    Raises CliError where they are more than MOST.
    """
    kept: deque[Entry] = deque(maxlen=limit)
    for entry, _ in entries(pipeline, newest_changes(hour, limit=limit, since=since)):
        if since is None or entry.recorded_at is None or entry.recorded_at >= since:
            kept.append(entry)
    return list(reversed(kept))


def newest_changes(hour: Hour, *, limit: int | None, since: datetime | None) -> list[Change]:
    """Return all changes of the newest hours, in any order: at least `limit`, or those since the hour before `since`.

    Raises CliError where they are more than MOST.
    """
    found: list[Change] = []
    for start in history_hours():
        found += hour(start)
        if len(found) > MOST:
            raise CliError(
                f"the history has more than {MOST:,} changes since {start:%Y-%m-%dT%H:%MZ}, and no more are read",
                remedy="ask for fewer with --limit and --since",
            )
        if (since is not None and start < hour_of(since)) or (limit is not None and len(found) > limit):
            break
    return found


def entries(
    pipeline: str, changes: Iterable[Change], *, before: FenceRow | None = None
) -> Iterator[tuple[Entry, FenceRow]]:
    """Yield each change with the row after it, oldest first; `before` is the row that the first one changed."""
    last = before
    for record, row in replayed(pipeline, _by_version(changes), before=before):
        yield _entry(record, last, row), row
        last = row


def in_order(pipeline: str, hour: Hour, *, since: datetime | None = None) -> Iterator[tuple[Change, FenceRow]]:
    """Yield each change on record and the row after it, oldest first; a few hours' records are held at a time.

    Of a `since`, from the beginning of its hour on.
    """
    return replayed(pipeline, _merged(hour, since))


def up_to(rows: Iterable[FenceRow], current: FenceRow) -> Iterator[FenceRow]:
    """Yield the rows of a history with the fence row in its place, which the history may not have yet.

    What the history has of a later version comes after it.
    """
    is_out = False
    for row in rows:
        if row.version > current.version and not is_out:
            is_out = True
            yield current
        is_out = is_out or row.version == current.version
        yield row
    if not is_out:
        yield current


def _merged(hour: Hour, since: datetime | None) -> Iterator[Change]:
    """Yield all records by version: two writers' clocks may put neighbours into neighbouring hours."""
    pending: list[Change] = []
    for start in reversed(history_hours()):
        if since is not None and start < hour_of(since):
            continue
        found = hour(start)
        if not found:
            continue
        last = max((record.version for record in pending), default=-1)
        pending = _by_version([*pending, *found])
        yield from (record for record in pending if record.version <= last)
        pending = [record for record in pending if record.version > last]
    yield from pending


def _by_version(records: Iterable[Change]) -> list[Change]:
    return sorted(records, key=lambda record: (record.epoch, record.version))


def _entry(record: Change, before: FenceRow | None, row: FenceRow) -> Entry:
    follows = None if before is None else row.version == before.version + 1
    spans = {
        key: (start, offset)
        for key, offset in row.offsets.items()
        if (start := before.offsets.get(key, offset) if before else offset) != offset
    }
    return Entry(
        epoch=row.epoch,
        version=row.version,
        kind=_kind(before, row),
        recorded_at=recorded_at(record),
        driver=row.driver,
        code=row.code,
        records=row.records if spans else None,
        duration_ms=row.duration_ms if spans else None,
        lag=record.lag,
        moved=spans,
        contiguous=follows,
        state_bytes=row.state_bytes,
        figures=row.figures if spans else {},
    )


def _kind(before: FenceRow | None, row: FenceRow) -> str:
    if row.version == 0:
        return "created"
    if before is None:
        return "unknown"
    if row.epoch != before.epoch:
        return "takeover"
    if is_rewind(before, row):
        return "rewind"
    if is_commit(before, row):
        return "commit" if moved(before, row) else "plan"
    return "claim"


def recorded_at(record: Change) -> datetime | None:
    """Return when Cassandra took a change; None of one that was not read from there."""
    if record.written_at is None:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=record.written_at)
