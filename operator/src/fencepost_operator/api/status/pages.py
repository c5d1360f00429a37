"""The pages about a pipeline, and the receivers that have them: an outbox that survives the operator's process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fencepost_operator.api.fields import PageSeverity
from fencepost_operator.api.model import Model
from fencepost_operator.api.moments import MaybeSince


class PageState(StrEnum):
    """The last page about an incident that a receiver has."""

    OPENED = "opened"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSent(Model):
    """A page that one receiver has. `receiver` is its id, which reveals nothing of the Secret's content."""

    receiver: str
    """Owner of the Secret (operator or namespace), kind of receiver, and a hash that identifies it."""
    at: datetime
    """When."""
    outcome: PageState
    """What it knows: opened or resolved."""


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
    """One incident, until it is over and every receiver has that page. At most one per reason is open."""

    reason: str
    """Why; docs/decisions.md explains each reason."""
    condition: str
    """The condition that it comes from, empty for an Event."""
    severity: PageSeverity
    """critical or warning."""
    message: str
    """What happened when it began."""
    opened_at: datetime
    """When it began."""
    renewed_at: MaybeSince = None
    """When the Event that it comes from last occurred."""
    quiet_since: MaybeSince = None
    """Since when its condition is gone. When that has lasted it is over; what comes back before is the same
    incident."""
    resolved_at: MaybeSince = None
    """When it was over."""
    sent: tuple[PageSent, ...] = ()
    """Receivers that have the page."""
