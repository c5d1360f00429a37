"""How many pipelines may be restarted by plan at the same time, as for a rotated Secret that all of them name.

Only the replica that leads gives permits, and it gives none while it waits for something: between a look and its answer
nobody else moves.  Who restarts is in the pipelines' statuses, from which a new leader begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.api import ObjectKey

ASKS_AGAIN: Final = timedelta(minutes=3)
"""A pipeline that has not asked for so long has lost its place in the queue: it may be paused, or deleted."""


@dataclass(slots=True, kw_only=True)
class RestartPermits:
    """Permits of planned restarts: at most `limit` at the same time (0: any number), each for at most `timeout`."""

    limit: int
    timeout: timedelta
    _held: dict[ObjectKey, datetime] = field(default_factory=dict)
    """Since when each pipeline restarts."""
    _queue: dict[ObjectKey, datetime] = field(default_factory=dict)
    """When each pipeline that waits has asked last, in the order in which they began to wait."""

    def begin(self, restarting: Mapping[ObjectKey, datetime], now: datetime) -> None:
        """Take over from the leader before: these pipelines restart, as their statuses say."""
        for key, since in restarting.items():
            self.note(key, since=since, queued=False, now=now)

    def may_restart(self, key: ObjectKey, now: datetime) -> bool:
        """Return whether this pipeline's turn has come; those that began to wait earlier come first."""
        if not self.limit or self._is_held(key, now):
            return True
        waiting = [other for other, asked in self._queue.items() if now - asked <= ASKS_AGAIN]
        ahead = waiting.index(key) if key in waiting else len(waiting)
        return self.in_progress(now) + ahead < self.limit

    def note(self, key: ObjectKey, *, since: datetime | None, queued: bool, now: datetime) -> None:
        """Note what was decided: the pipeline restarts since then, or waits for its turn, or neither."""
        if since is None:
            self._held.pop(key, None)
        else:
            self._held[key] = min(since, now)
        if queued:
            self._queue[key] = now
        else:
            self._queue.pop(key, None)

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone."""
        self._held.pop(key, None)
        self._queue.pop(key, None)

    def in_progress(self, now: datetime) -> int:
        """Return how many permits are in use; one that was given too long ago is not."""
        return sum(self._is_held(key, now) for key in self._held)

    def queued(self, now: datetime) -> int:
        """Return how many pipelines wait."""
        return sum(now - asked <= ASKS_AGAIN for asked in self._queue.values())

    def _is_held(self, key: ObjectKey, now: datetime) -> bool:
        since = self._held.get(key)
        return since is not None and now - since < self.timeout
