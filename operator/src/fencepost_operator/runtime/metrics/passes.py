"""The health of passes over all pipelines: loops that stand still, and passes that fail everywhere.

One pipeline's passes may fail because of what its tenant wrote, while the operator is healthy.  The operator is failing
when no pass succeeds anywhere; or when pipelines of more than one namespace fail, and no status was written meanwhile:
a pass over an unchanged pipeline writes none, so that it succeeds even where each write is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from fencepost_operator.api import ObjectKey

FAILING_AFTER: Final = 300.0
"""Seconds without a pass that succeeded after which the operator counts as failing."""


@dataclass(slots=True)
class Passes:
    """When passes over each pipeline began and succeeded last."""

    _first: dict[ObjectKey, datetime] = field(default_factory=dict)
    """When the pipeline's loop began."""
    _began: dict[ObjectKey, datetime] = field(default_factory=dict)
    _succeeded: dict[ObjectKey, datetime] = field(default_factory=dict)
    _recorded_at: datetime | None = None
    """When a status was written last, of whichever pipeline."""

    def began(self, key: ObjectKey, now: datetime) -> bool:
        """Note a pass that begins; return whether it is the first one of its loop."""
        is_first = key not in self._first
        self._first.setdefault(key, now)
        self._began[key] = now
        return is_first

    def succeeded(self, key: ObjectKey, now: datetime) -> None:
        """Note a pass that did all that it is there for."""
        self._succeeded[key] = now

    def recorded(self, now: datetime) -> None:
        """Note a status that was written."""
        self._recorded_at = now

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone."""
        for known in (self._first, self._began, self._succeeded):
            known.pop(key, None)

    def stuck(self, now: datetime, *, bound: float) -> Mapping[ObjectKey, float]:
        """Return the pipelines whose loop began no pass for more than `bound` seconds, and how long."""
        return _older(self._began, now, bound)

    def failing(self, now: datetime, *, bound: float = FAILING_AFTER) -> Mapping[ObjectKey, float]:
        """Return the pipelines over which no pass succeeded for more than `bound` seconds, and how long.

        None as long as it may be for what one of several tenants did.
        """
        found = _older(self._first | self._succeeded, now, bound)
        if not found:
            return {}
        succeed = {key for key, at in self._succeeded.items() if (now - at).total_seconds() <= bound}
        recorded = self._recorded_at is not None and (now - self._recorded_at).total_seconds() <= bound
        is_one_of_several = len({key.namespace for key in found}) == 1 < len({key.namespace for key in self._first})
        return {} if succeed and (recorded or is_one_of_several) else found


def _older(moments: Mapping[ObjectKey, datetime], now: datetime, bound: float) -> Mapping[ObjectKey, float]:
    ages = {key: (now - moment).total_seconds() for key, moment in moments.items()}
    return {key: age for key, age in ages.items() if age > bound}
