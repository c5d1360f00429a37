"""The newest changes of one pipeline, each of which is read once while its page is open."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from fencepost.fence import FenceRow
from fencepost.fence.history import NO_CHANGE
from fencepost_cli.history.reading import Entry, entries, newest_changes, recorded_at
from fencepost_cli.ports import Store

MOST_CHANGES: Final = 50_000
"""Changes that one page shows and that are kept, the newest ones: some 400 bytes each."""
SETTLED: Final = timedelta(minutes=1)
"""A change that is so much older than the newest one is read no more: writers append on their own, and try again."""


@dataclass(slots=True)
class KeptHistory:
    """The changes of a pipeline in their order, and the row after the newest of those that are kept.

    What is on record does not change, and what comes later has a larger epoch or version.  So a read begins after the
    changes that are settled.  The maps that no chart draws are left out: they have an entry for each Kafka partition.
    """

    pipeline: str
    _since: datetime | None = None
    _kept: deque[Entry] = field(default_factory=lambda: deque(maxlen=MOST_CHANGES))
    _row: FenceRow | None = None

    def newest(self, store: Store, *, since: datetime) -> list[Entry]:
        """Return the newest changes, the newest first: at most MOST_CHANGES, and none recorded before `since`.

        Their `moved` and `figures` are empty.
        Raises CliError.
        """
        if self._since is None or (since < self._since and len(self._kept) < MOST_CHANGES):
            self._forget(since)
        last = self._kept[-1] if self._kept else None
        place = NO_CHANGE if last is None else (last.epoch, last.version)
        begin = since if last is None else last.recorded_at
        found = newest_changes(partial(store.changes, after=place), limit=MOST_CHANGES, since=begin)
        if len(found) > MOST_CHANGES:
            self._forget(since)  # there may be others in between, which were not read
        newest, fresh = max(filter(None, map(recorded_at, found)), default=None), list[Entry]()
        for entry, row in entries(self.pipeline, found, before=self._row):
            light = replace(entry, moved={}, figures={})
            if fresh or newest is None or entry.recorded_at is None or newest - entry.recorded_at < SETTLED:
                fresh.append(light)
            else:
                self._kept.append(light)
                self._row = row
        shown = (*reversed(fresh), *reversed(self._kept))
        return [entry for entry in shown if entry.recorded_at is None or entry.recorded_at >= since][:MOST_CHANGES]

    def _forget(self, since: datetime) -> None:
        self._since, self._row = since, None
        self._kept.clear()
