"""A batch of the past, as the fence's history has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fencepost.batch import Range, Watermarks, between
from fencepost.fence import FenceRow
from fencepost.fence.history import Change, history_hours, restored
from fencepost_cli.errors import CliError
from fencepost_cli.history.checks import is_commit, moved
from fencepost_cli.ports import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A batch: `row` is the fence row on which it began, and `committed` the version of its commit, None without one.

    `is_repeated` says whether an earlier run had planned some of it.
    """

    row: FenceRow
    committed: int | None
    is_repeated: bool

    @property
    def ranges(self) -> tuple[Range, ...]:
        """What it reads."""
        return between(self.row.offsets, self.row.planned, topic_ids=self.row.topic_ids).ranges


def find(store: Store, pipeline: str, version: int) -> Found:
    """Return the batch that this version of the row committed, else the one that began with it. Raises CliError."""
    rows = _rows(store, pipeline, version)
    row, before = rows.get(version), rows.get(version - 1)
    if row is None:
        raise CliError(
            f"the history of {pipeline} has no version {version}",
            remedy="choose one of `fencepost fence history`, which keeps seven days",
        )
    if before is not None and is_commit(before, row) and moved(before, row):
        return _found(store, before, committed=version)
    if before is None and row.driver is not None:
        raise CliError(f"the history has version {version}, and not the one before it", remedy="choose a later commit")
    found = _found(store, row, committed=None)
    if row.driver is None or not found.ranges:
        raise CliError(
            f"no batch ended or began with version {version}",
            remedy="choose a commit, a plan or a claim of `fencepost fence history`",
        )
    return found


def missing(ranges: Sequence[Range], log: Watermarks) -> list[str]:
    """Return the parts of ranges that Kafka does not have, 'topic/partition [start, until)', with the cause."""
    return [text for part in ranges for text in _missing(part, log)]


def _missing(part: Range, log: Watermarks) -> Iterator[str]:
    if log.topic_ids.get(part.topic) != part.topic_id:
        yield f"{part.key} [{part.start}, {part.until}) of a topic that was deleted"
    elif part.key not in log.begins:
        yield f"{part.key} [{part.start}, {part.until}), which has no leader now"
    else:
        if (begin := log.begins[part.key]) > part.start:
            yield f"{part.key} [{part.start}, {min(begin, part.until)})"
        if (end := log.ends[part.key]) < part.until:
            yield f"{part.key} [{max(end, part.start)}, {part.until})"


def _found(store: Store, row: FenceRow, *, committed: int | None) -> Found:
    found = Found(row=row, committed=committed, is_repeated=False)
    begun = _begun_before(store, row.epoch)
    is_repeated = any(
        start <= part.start < end for part in found.ranges for start, end in [begun.get(part.key, (0, 0))]
    )
    return Found(row=row, committed=committed, is_repeated=is_repeated)


def _rows(store: Store, pipeline: str, version: int) -> dict[int, FenceRow]:
    """Return the rows of the hour that has a version, and of the hour before it where that is its first one."""
    changes: list[Change] = []
    for hour in history_hours():
        first = store.first_change(hour)
        if first is None or first.version > version:
            continue
        changes += store.changes(hour)
        if first.version < version:
            break
    return {row.version: row for _, row in restored(pipeline, changes)}


def _begun_before(store: Store, epoch: int) -> Mapping[str, tuple[int, int]]:
    """Return by partition what was planned and not committed when an epoch began."""
    for hour in history_hours():
        first = store.first_change(hour, epoch=epoch)
        if first is not None and first.epoch == epoch and first.base and first.driver is None:
            return {key: (first.offsets.get(key, 0), end) for key, end in first.planned.items()}
    return {}
