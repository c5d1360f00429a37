"""Recorded incidents from one decision to the next: new, lasting, quiet, over.  Pure.

An incident is over when its cause has been gone for a while, so that one that flaps is one incident.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from fencepost_operator.api import PageStatus, Pipeline, ReconcileConfig, Status, condition_of
from fencepost_operator.decision.reporting.incidents import HELD_UP, READY, Incident
from fencepost_operator.text import single_line

MESSAGE_LIMIT: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRecord:
    """What changes incidents: the pipeline, its status of this decision, and what is open now."""

    pipeline: Pipeline
    status: Status
    found: Mapping[str, Incident]
    silenced: bool
    config: ReconcileConfig
    now: datetime

    def after(self, before: Sequence[PageStatus]) -> Iterator[PageStatus]:
        """Yield recorded incidents as they are now, then new ones."""
        known = {page.reason for page in before if page.resolved_at is None}
        for page in before:
            if page.resolved_at is None and page.reason in self.found:
                yield replace(page, quiet_since=None, renewed_at=self.found[page.reason].renewed_at)
            else:
                yield self._absent(page)
        yield from (self._opened(reason, incident) for reason, incident in self.found.items() if reason not in known)

    def _opened(self, reason: str, incident: Incident) -> PageStatus:
        return PageStatus(
            reason=str(reason),
            condition=incident.condition,
            severity=incident.severity,
            message=single_line(incident.message, limit=MESSAGE_LIMIT),
            opened_at=self.now,
            renewed_at=incident.renewed_at,
        )

    def _absent(self, page: PageStatus) -> PageStatus:
        """Return a recorded page whose cause is gone: quiet, then over.

        A time ahead is another replica's, whose clock is; this one does not wait for it.
        """
        if page.resolved_at is not None:
            return page
        quiet = replace(page, quiet_since=min(page.quiet_since or self.now, self.now))
        is_over = self._is_over_at_once(quiet) or self._has_lasted(quiet)
        return replace(quiet, resolved_at=self.now) if is_over else quiet

    def _is_over_at_once(self, page: PageStatus) -> bool:
        """Return whether no receiver would get a second page if the cause came back."""
        is_moment, is_unknown = page.renewed_at is not None, self.silenced and not page.sent
        return is_moment or is_unknown or self.pipeline.deleting_since is not None

    def _has_lasted(self, page: PageStatus) -> bool:
        """Return whether the cause has been gone for so long that its return would be another incident.

        One that kept the pipeline from its work is gone when the pipeline is ready, or is kept by another.
        """
        since = page.quiet_since or self.now
        if page.condition in HELD_UP and not any(other.condition in HELD_UP for other in self.found.values()):
            ready = condition_of(self.status.conditions, READY)
            if ready is None or ready.status != "True":
                return False
            if ready.last_transition_time <= self.now:
                since = max(since, ready.last_transition_time)
        return (self.now - since).total_seconds() >= self.config.page_resolve_after
