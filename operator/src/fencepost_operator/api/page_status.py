"""The pages about a pipeline, and the receivers that have them: an outbox that survives the operator's process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fencepost_operator.api.fields import Model, PageSeverity
from fencepost_operator.api.moments import MaybeSince


class PageState(StrEnum):
    """The last page about an incident that a receiver has."""

    OPENED = "opened"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSent(Model):
    """A page that one receiver has. `receiver` is its id, which reveals nothing of the Secret's content."""

    receiver: str
    at: datetime
    outcome: PageState


class Reported:
    """What receivers are to know of an incident, and which of them do."""

    __slots__ = ()
    resolved_at: datetime | None
    sent: tuple[PageSent, ...]

    @property
    def wanted(self) -> PageState:
        """The page that each receiver should have."""
        return PageState.OPENED if self.resolved_at is None else PageState.RESOLVED

    def is_reported_to(self, receiver: str) -> bool:
        """Whether the receiver knows how it is."""
        return any(sent.receiver == receiver and sent.outcome is self.wanted for sent in self.sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStatus(Reported, Model):
    """One incident, until it is over and every receiver has that page. At most one per reason is open.

    `condition` is the condition that it comes from, '' for an Event.  `renewed_at` is when that Event last came: such
    an incident is over when none comes for a while.  `quiet_since` is since when the condition is gone, None while it
    is there: an incident ends only when that has lasted, so that a condition that flaps is one incident.
    """

    reason: str
    condition: str
    severity: PageSeverity
    message: str
    opened_at: datetime
    renewed_at: MaybeSince = None
    quiet_since: MaybeSince = None
    resolved_at: MaybeSince = None
    sent: tuple[PageSent, ...] = ()
