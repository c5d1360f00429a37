"""How many pipelines may be restarted by plan at the same time, as for a rotated Secret that all of them name.

Namespaces take turns, so that one tenant with many pipelines, or with some that never start, delays no other tenant.
Only the leader gives permits, and each check and its answer are one step of the event loop, so that no other task runs
in between.  The pipelines' statuses record which ones restart; a new leader begins from them.  `now` is in seconds of
the monotonic clock, so that a step of the wall clock ends no permit; `wall` is what the statuses' times compare with.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from fencepost_operator.api import ObjectKey

ASKS_AGAIN: Final = 180.0
"""Seconds. A pipeline that has not asked for so long has lost its place in the queue: it may be paused, or deleted."""


@dataclass(slots=True, kw_only=True)
class RestartPermits:
    """Permits of planned restarts: at most `limit` at the same time (0: any number), each for `timeout` seconds."""

    limit: int
    timeout: float
    _held: dict[ObjectKey, float] = field(default_factory=dict)
    """Since when each pipeline restarts."""
    _queue: dict[ObjectKey, float] = field(default_factory=dict)
    """When each pipeline that waits has asked last, in the order in which they began to wait."""
    _given: dict[str, float] = field(default_factory=dict)
    """When each namespace has got a permit last."""

    def begin(self, restarting: Mapping[ObjectKey, datetime], wall: datetime, now: float) -> None:
        """Take over from the leader before: these pipelines restart, as their statuses say."""
        for key, since in restarting.items():
            self.note(key, since=since, queued=False, wall=wall, now=now)

    def may_restart(self, key: ObjectKey, now: float) -> bool:
        """Return whether this pipeline's turn has come.

        The namespace with the fewest permits comes first, then the one that got none for longest, then whoever began
        to wait earlier.  One with half of the permits gets no more while another with less waits.
        """
        if not self.limit or self._is_held(key, now):
            return True
        if self.in_progress(now) >= self.limit:
            return False
        waiting = [other for other, asked in self._queue.items() if now - asked <= ASKS_AGAIN]
        if not waiting or waiting == [key]:
            return True
        if key not in waiting:
            waiting.append(key)
        held = Counter(other.namespace for other in self._held if self._is_held(other, now))
        share = max(1, self.limit // 2)
        others = {other.namespace for other in waiting} - {key.namespace}
        if held[key.namespace] >= share and any(held[other] < share for other in others):
            return False
        return held.total() + self._in_turn(waiting, held).index(key) < self.limit

    def note(self, key: ObjectKey, *, since: datetime | None, queued: bool, wall: datetime, now: float) -> None:
        """Note what was decided: the pipeline restarts since then, or waits for its turn, or neither."""
        if since is None:
            self._held.pop(key, None)
        else:
            was_held = self._is_held(key, now)
            self._held[key] = now - max(0.0, (wall - since).total_seconds())
            if not was_held and self._is_held(key, now):
                self._give(key.namespace, now)
        if queued:
            self._queue[key] = now
        else:
            self._queue.pop(key, None)

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone."""
        self._held.pop(key, None)
        self._queue.pop(key, None)

    def in_progress(self, now: float) -> int:
        """Return how many permits are in use; one that was given too long ago is not."""
        return sum(self._is_held(key, now) for key in self._held)

    def queued(self, now: float) -> int:
        """Return how many pipelines wait."""
        return sum(now - asked <= ASKS_AGAIN for asked in self._queue.values())

    def _give(self, namespace: str, now: float) -> None:
        """Note that a namespace has got a permit, and forget those whose last one is long over."""
        recent = {name: at for name, at in self._given.items() if now - at < 2 * self.timeout}
        self._given = {**recent, namespace: now}

    def _is_held(self, key: ObjectKey, now: float) -> bool:
        since = self._held.get(key)
        return since is not None and now - since < self.timeout

    def _in_turn(self, waiting: Sequence[ObjectKey], held: Counter[str]) -> list[ObjectKey]:
        """Return who waits, each namespace's first one before any other's second; permits that are held count."""
        turns, had = dict[ObjectKey, tuple[int, float]](), Counter(held)
        for key in waiting:
            turns[key] = (had[key.namespace], self._given.get(key.namespace, -math.inf))
            had[key.namespace] += 1
        return sorted(waiting, key=turns.__getitem__)
