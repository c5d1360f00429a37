"""Which of the unused connections is closed for a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

_K = TypeVar("_K")

_FORGOTTEN: Final = 60.0
"""Seconds without use after which no pipeline is expected to need a connection: passes come every few seconds."""
_IN_A_PASS: Final = 1.0
"""Seconds without use after which the pass that used a connection is over."""


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
