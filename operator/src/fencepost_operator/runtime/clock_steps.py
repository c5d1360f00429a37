"""Steps of the wall clock, as the monotonic clock shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from fencepost_operator.api import ObjectKey

TOLERANCE: Final = 2.0
"""Seconds by which the two may differ between two passes: far more than a slew, far less than any timeout of a run."""


@dataclass(slots=True)
class ClockSteps:
    """Both clocks as they were at the last pass over each pipeline."""

    _seen: dict[ObjectKey, tuple[datetime, float]] = field(default_factory=dict)

    def is_steady(self, key: ObjectKey, wall: datetime, monotonic: float) -> bool:
        """Return whether the wall clock has moved like the monotonic one since the last pass; notes both.

        False at the first pass of this process: what passed before it was not measured.
        """
        before = self._seen.get(key)
        self._seen[key] = (wall, monotonic)
        if before is None:
            return False
        return abs((wall - before[0]).total_seconds() - (monotonic - before[1])) <= TOLERANCE

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone."""
        self._seen.pop(key, None)
