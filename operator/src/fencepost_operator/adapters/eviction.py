"""How the namespaces share the connections of a pool, and which of the unused ones is closed for a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

_K = TypeVar("_K")

_FORGOTTEN: Final = 60.0
"""Seconds without use after which no pipeline is expected to need a connection: passes come every few seconds."""
_IN_A_PASS: Final = 1.0
"""Seconds without use after which the pass that used a connection is over."""


class Pooled(Protocol):
    """A connection, the namespace that it counts for, how many use it, and when that began or ended last."""

    namespace: str
    users: int
    used_at: float


def room(
    pool: Mapping[_K, Pooled], namespace: str, opening: Counter[str], *, limit: int, share: int, now: float
) -> list[_K] | None:
    """Return what to close before a namespace opens another connection, if anything; None while all are in use.

    One that has its share gives up one of its own, else the one that has the most among those with an unused one does.
    """
    held = Counter(each.namespace for each in pool.values())
    idle = {key: each for key, each in pool.items() if not each.users}
    if held[namespace] + opening[namespace] >= share:
        idle = {key: each for key, each in idle.items() if each.namespace == namespace}
    elif len(pool) + opening.total() < limit:
        return []
    most = max((held[each.namespace] for each in idle.values()), default=0)
    used_at = {key: each.used_at for key, each in idle.items() if held[each.namespace] == most}
    return [to_close(used_at, now)] if used_at else None


def to_close(used_at: Mapping[_K, float], now: float) -> _K:
    """Return the one to close, by when each was used last.

    Passes over pipelines go round, so what was used longest ago is needed next: with a few connections too few, every
    pass would connect again if that one were closed.  So it is closed only when it seems forgotten; else the one that a
    pass which is over used last, since it is needed again later than any other.
    """
    oldest = min(used_at, key=lambda each: used_at[each])
    over = [each for each, at in used_at.items() if now - at >= _IN_A_PASS]
    if now - used_at[oldest] >= _FORGOTTEN or not over:
        return oldest
    return max(over, key=lambda each: used_at[each])
