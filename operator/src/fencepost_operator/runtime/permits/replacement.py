"""How many drivers without heartbeats may be replaced, where many lose them at once.

One whose process or node is lost is replaced at once.  Where many are silent together, the cause is what they share, as
a database that answers this operator and not them: to restart all of them helps none.  So, as Kubernetes evicts pods
more slowly where a large part of a zone's nodes is lost, there is a bound per time then.  A bound of what is in
progress, as in `restart`, would not do: during such an outage nothing that was started gets ready.

A namespace is slowed down for its own drivers alone, and all namespaces for their number, in which each counts once.
So a tenant with any number of silent drivers in one namespace delays no other one.

All of it is measured by this process, in seconds of the monotonic clock.  Another replica begins with nothing, and
counts the drivers in its own care.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from fencepost_operator.api import ObjectKey

FEW: Final = 3
"""So many silent drivers of a namespace, or namespaces with silent drivers, may be a coincidence; and so many may be
replaced within PERIOD where there are more."""
SHARE: Final = 0.25
"""Of the drivers that were seen alive or missed, from which on more than FEW are too many."""
PERIOD: Final = 30.0
REMEMBERED: Final = 60.0
"""For how long it counts that a driver was seen alive or missed: also after it was replaced."""
ASKS_AGAIN: Final = 5.0
"""Seconds. A pipeline that has not asked for so long does not wait any more."""
LONG_AGO: Final = 600.0
"""Seconds, after which it does not count for the turn of a namespace that it has had one."""


@dataclass(slots=True, kw_only=True)
class ReplacementPermits:
    """Which drivers were seen alive or missed, and which ones were replaced for that."""

    _alive: dict[ObjectKey, float] = field(default_factory=dict)
    """When drivers were last seen alive that are not silent since."""
    _silent: dict[ObjectKey, float] = field(default_factory=dict)
    """When drivers were last missed that were not seen alive since."""
    _waiting: dict[ObjectKey, float] = field(default_factory=dict)
    """When each pipeline that waits for a permit has asked for one last."""
    _given: dict[tuple[ObjectKey, int], float] = field(default_factory=dict)
    """When pipelines have got a permit, for the run of an epoch."""
    _counted: tuple[Counter[str], Counter[str]] | None = None
    """The silent drivers by namespace, and all that are known; None after one has come or gone."""
    _pruned: float = -math.inf
    """When what is over was last dropped: once per second, for there may be thousands of looks in it."""

    def note(self, key: ObjectKey, is_alive: bool | None, now: float) -> None:
        """Note whether a driver was seen alive, or missed; None where that is not known."""
        if is_alive is None:
            return
        found, other = (self._alive, self._silent) if is_alive else (self._silent, self._alive)
        if key not in found:
            other.pop(key, None)
            self._counted = None
        found[key] = now

    def take(self, key: ObjectKey, epoch: int, now: float) -> bool:
        """Return whether a silent driver may be replaced now: the run of an epoch, which may ask again soon afterwards.

        A further run of the pipeline needs another permit, or who is silent again and again would keep all of them.
        """
        given = {run: at for run, at in self._given.items() if now - at < PERIOD}
        run = (key, epoch)
        if run not in given and not self._may(key.namespace, given, now):
            self._waiting[key] = now
            return False
        self._waiting.pop(key, None)
        if run not in given:
            self._given = {other: at for other, at in self._given.items() if now - at < LONG_AGO} | {run: now}
        return True

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone; that it was replaced still counts, or a deletion would yield a permit."""
        for known in (self._alive, self._silent, self._waiting):
            known.pop(key, None)
        self._counted = None

    def silent(self, now: float) -> int:
        """Return how many drivers are silent, or were when they were replaced."""
        self._prune(now)
        return len(self._silent)

    def waiting(self, now: float) -> int:
        """Return how many of them wait for a permit."""
        self._prune(now)
        return len(self._waiting)

    def _prune(self, now: float) -> None:
        if now - self._pruned < 1:
            return
        self._pruned = now
        for known, lasts in ((self._alive, REMEMBERED), (self._silent, REMEMBERED), (self._waiting, ASKS_AGAIN)):
            for key in [key for key, at in known.items() if now - at >= lasts]:
                del known[key]
                self._counted = None

    def _may(self, namespace: str, given: Collection[tuple[ObjectKey, int]], now: float) -> bool:
        self._prune(now)
        if self._counted is None:
            silent = Counter(key.namespace for key in self._silent)
            self._counted = silent, silent + Counter(key.namespace for key in self._alive)
        silent, known = self._counted
        recent = Counter(key.namespace for key, _ in given)
        if _are_many(silent[namespace], known[namespace]) and recent[namespace] >= FEW:
            return False
        hit = sum(missed >= SHARE * known[name] for name, missed in silent.items())
        if not _are_many(hit, len(known)):
            return True
        return namespace not in recent and len(recent) < FEW and self._is_next(namespace, recent, now)

    def _is_next(self, namespace: str, recent: Collection[str], now: float) -> bool:
        """Return whether no other namespace that waits, and had none recently, has had a permit less recently."""
        last = dict[str, float]()
        for (key, _), at in self._given.items():
            last[key.namespace] = max(at, last.get(key.namespace, at))
        others = {key.namespace for key, asked in self._waiting.items() if now - asked < ASKS_AGAIN} - set(recent)
        return all(last.get(namespace, -math.inf) <= last.get(other, -math.inf) for other in others)


def _are_many(missed: int, known: int) -> bool:
    return missed > FEW and missed >= SHARE * known
