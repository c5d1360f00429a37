"""The health of passes over all pipelines: loops that stand still, and passes that fail everywhere.

One pipeline's passes may fail because of what its tenant wrote, while the operator is healthy.  The operator is failing
when no pass succeeds anywhere; or when pipelines of more than one namespace fail, and no status was written meanwhile:
a pass over an unchanged pipeline writes none, so that it succeeds even where each write is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fencepost_operator.api import ObjectKey

FAILING_AFTER: Final = 300.0
"""Seconds without a pass that succeeded after which the operator counts as failing."""


@dataclass(slots=True)
class Passes:
    """When passes over each pipeline began and succeeded last, by the monotonic clock."""

    monotonic: Callable[[], float] = time.monotonic
    _first: dict[ObjectKey, float] = field(default_factory=dict)
    """When the pipeline's loop began."""
    _began: dict[ObjectKey, float] = field(default_factory=dict)
    _succeeded: dict[ObjectKey, float] = field(default_factory=dict)
    _recorded_at: float | None = None
    """When a status was written last, of whichever pipeline."""

    def began(self, key: ObjectKey) -> bool:
        """Note a pass that begins; return whether it is the first one of its loop."""
        is_first, now = key not in self._first, self.monotonic()
        self._first.setdefault(key, now)
        self._began[key] = now
        return is_first

    def succeeded(self, key: ObjectKey) -> None:
        """Note a pass that did all that it is there for."""
        self._succeeded[key] = self.monotonic()

    def recorded(self) -> None:
        """Note a status that was written."""
        self._recorded_at = self.monotonic()

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone."""
        for known in (self._first, self._began, self._succeeded):
            known.pop(key, None)

    def stuck(self, *, bound: float) -> Mapping[ObjectKey, float]:
        """Return the pipelines whose loop began no pass for more than `bound` seconds, and how long."""
        return _older(self._began, self.monotonic(), bound)

    def failing(self, *, bound: float = FAILING_AFTER) -> Mapping[ObjectKey, float]:
        """Return the pipelines over which no pass succeeded for more than `bound` seconds, and how long.

        None as long as it may be for what one of several tenants did.
        """
        now = self.monotonic()
        found = _older(self._first | self._succeeded, now, bound)
        if not found:
            return {}
        succeed = {key for key, at in self._succeeded.items() if now - at <= bound}
        recorded = self._recorded_at is not None and now - self._recorded_at <= bound
        is_one_of_several = len({key.namespace for key in found}) == 1 < len({key.namespace for key in self._first})
        return {} if succeed and (recorded or is_one_of_several) else found


def _older(moments: Mapping[ObjectKey, float], now: float, bound: float) -> Mapping[ObjectKey, float]:
    ages = {key: now - moment for key, moment in moments.items()}
    return {key: age for key, age in ages.items() if age > bound}
