"""What is due to one receiver from one namespace, and when it may be sent: retries and a token bucket.

A lane of a receiver that does not answer waits by itself, so that one namespace never delays another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from fencepost_operator.backoff import jittered, retry_delay
from fencepost_operator.paging.delivery import Answer, Outcome
from fencepost_operator.paging.messages import REPEAT
from fencepost_operator.paging.page import Page
from fencepost_operator.paging.receivers import Kind, Receiver

BURST: Final = 20
"""Messages of a lane that are sent at once."""
PER_MINUTE: Final = 20.0
"""Messages of a lane after those. What is over it waits."""
REFUSED_WAIT: Final = 600.0
"""Seconds until a message that was refused is tried again: somebody has to correct something."""
LONGEST_WAIT: Final = 120.0
"""Seconds between two attempts on a receiver that does not answer."""

Incident: TypeAlias = tuple[str, datetime]
"""Dedup key, and when it began."""


@dataclass(slots=True)
class Lane:
    """The state of one receiver for one namespace."""

    receiver: Receiver
    failures: int = 0
    retry_at: datetime | None = None
    trouble: str = ""
    """Why the receiver refuses, '' while it does not."""
    is_busy: bool = False
    last_start: datetime | None = None
    tokens: float = BURST
    refilled_at: datetime | None = None
    refused: dict[Incident, datetime] = field(default_factory=dict)
    """When a page that was refused is tried again."""
    repeated: dict[Incident, datetime] = field(default_factory=dict)
    """When an open alert of Alertmanager was last told."""

    def due(self, pages: list[Page], told: set[tuple[Incident, str]], now: datetime) -> list[Page]:
        """Return what there is to tell now; `told` are incidents with what was delivered since they were recorded."""
        if self.is_busy or (self.retry_at is not None and now < self.retry_at):
            return []
        self._refill(now)
        fresh = [page for page in pages if self._is_fresh(page, told, now)][: int(self.tokens)]
        return fresh + [page for page in pages if page not in fresh and self._lapses(page, told, now)]

    def waits(self, pages: list[Page], told: set[tuple[Incident, str]]) -> list[Page]:
        """Return what the receiver was not told yet, due or not."""
        return [page for page in pages if not self._knows(page, told)]

    def answered(self, page: Page, answer: Answer, now: datetime) -> bool:
        """Note how a message was received; return whether the page was delivered."""
        incident = incident_of(page)
        if answer.outcome is Outcome.DELIVERED:
            self.failures, self.retry_at, self.trouble = 0, None, ""
            self.refused.pop(incident, None)
            if page.resolved_at is None:
                self.repeated[incident] = now
            else:
                self.repeated.pop(incident, None)
            return True
        if answer.outcome is Outcome.REFUSED:
            self.refused[incident] = now + timedelta(seconds=jittered(REFUSED_WAIT))
            what = f"answers with HTTP status {answer.status}" if answer.status else "cannot be used as it is written"
            self.trouble = f"The receiver in Secret {self.receiver.where}, {what}"
            return False
        self.failures += 1
        wait = max(answer.retry_after, jittered(retry_delay(self.failures, first=2.0, longest=LONGEST_WAIT)))
        self.retry_at = max(self.retry_at or now, now + timedelta(seconds=wait))
        return False

    def forget(self, incidents: set[Incident]) -> None:
        """Drop what is known of incidents other than these."""
        for known in (self.refused, self.repeated):
            for gone in known.keys() - incidents:
                del known[gone]

    def _is_fresh(self, page: Page, told: set[tuple[Incident, str]], now: datetime) -> bool:
        again = self.refused.get(incident_of(page))
        return not self._knows(page, told) and (again is None or now >= again)

    def _knows(self, page: Page, told: set[tuple[Incident, str]]) -> bool:
        return page.was_told(self.receiver.id) or (incident_of(page), page.wanted) in told

    def _lapses(self, page: Page, told: set[tuple[Incident, str]], now: datetime) -> bool:
        """Return whether an open alert has to be repeated."""
        if self.receiver.kind is not Kind.ALERTMANAGER or page.resolved_at is not None or not self._knows(page, told):
            return False
        last = self.repeated.get(incident_of(page))
        return last is None or now - last >= REPEAT

    def _refill(self, now: datetime) -> None:
        passed = (now - self.refilled_at).total_seconds() if self.refilled_at is not None else 0.0
        self.tokens = min(float(BURST), self.tokens + max(0.0, passed) * PER_MINUTE / 60)
        self.refilled_at = now

    def spend(self, messages: int) -> None:
        """Take that many messages off the bucket."""
        self.tokens = max(0.0, self.tokens - messages)


def incident_of(page: Page) -> Incident:
    """Return what tells a page from others of its lane."""
    return page.dedup_key, page.opened_at
