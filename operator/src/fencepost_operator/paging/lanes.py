"""What is due to one receiver from one namespace, and when it may be sent: retries and token buckets.

Each lane waits for its own receiver only, so that one namespace never delays another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from fencepost_operator.backoff import jittered, retry_delay
from fencepost_operator.buckets import Bucket
from fencepost_operator.paging.delivery import Answer, Outcome
from fencepost_operator.paging.messages import BATCH, REPEAT
from fencepost_operator.paging.notices import Notice, notices_of
from fencepost_operator.paging.page import Page
from fencepost_operator.paging.receivers import Kind, Receiver

BURST: Final = 20
"""Messages of a lane that are sent at once."""
PER_MINUTE: Final = 20.0
"""Messages of a lane after those. What is over it waits."""
RESERVED: Final = 10
"""Of the burst, those that only critical pages use: a storm of warnings delays none of them."""
BUDGET: Final = 60
"""Messages that a receiver of the operator gets from one namespace, however fast."""
BUDGET_PER_HOUR: Final = 6.0
"""Those after that: a namespace whose incidents never cease is reported in digests."""
BUDGET_RESERVED: Final = 20
"""Of the budget, those that only critical pages use."""
REFUSED_WAIT: Final = 600.0
"""Seconds until a message is retried that was refused, or that only some recipients have: a user has to correct
something first, and each retry repeats the message to the recipients that have it."""
CORRECT: Final = "Correct the key, the account or the address."
PARTLY: Final = (
    "takes pages, and does not confirm that all its recipients have them. "
    "Give each recipient a line of its own, and correct the one that fails."
)
LONGEST_WAIT: Final = 120.0
"""Seconds between two attempts on a receiver that does not answer."""
UNREACHABLE_AFTER: Final = timedelta(minutes=2)
"""For how long a receiver must accept nothing before this is reported."""

Incident: TypeAlias = tuple[str, datetime]
"""Dedup key, and when it began."""


class Due(NamedTuple):
    """What to send now: `repeats` only where `fresh` leaves room."""

    fresh: list[Notice]
    """Urgent ones come first, then those that waited longest."""
    repeats: list[Page]
    """The one that waited longest comes first."""

    @property
    def is_urgent(self) -> bool:
        """Whether one of them is."""
        return any(notice.is_urgent for notice in self.fresh)


@dataclass(slots=True)
class Lane:
    """The state of one receiver for one namespace; `monotonic` is a clock in seconds that never steps."""

    receiver: Receiver
    monotonic: Callable[[], float]
    failures: int = 0
    retry_at: datetime | None = None
    failing_since: datetime | None = None
    """When the first of the attempts began that failed in a row."""
    refusal: str = ""
    """How the receiver refuses and what helps, '' while it does not."""
    noticed: str = ""
    """The trouble that was logged last."""
    is_slow: bool = False
    """Whether its last answers kept others waiting."""
    is_busy: bool = False
    last_start: datetime | None = None
    rate: Bucket = field(init=False)
    budget: Bucket = field(init=False)
    refused: dict[Incident, datetime] = field(default_factory=dict)
    """When a page that was refused is tried again."""
    repeated: dict[Incident, datetime] = field(default_factory=dict)
    """When an open alert was last sent to Alertmanager, or refused."""
    deferred: dict[Incident, datetime] = field(default_factory=dict)
    """When the bucket last had no token for a page."""

    def __post_init__(self) -> None:
        self.rate = Bucket(BURST, PER_MINUTE / 60, self.monotonic)
        self.budget = Bucket(BUDGET, BUDGET_PER_HOUR / 3600, self.monotonic)

    def due(self, pages: list[Page], delivered: set[tuple[Incident, str]], now: datetime) -> Due:
        """Return what to send now; `delivered` is what receivers have and the status does not record yet."""
        if self.is_busy or (self.retry_at is not None and now < self.retry_at):
            return Due([], [])
        fresh = [page for page in pages if self._is_fresh(page, delivered, now)]
        fresh.sort(key=lambda page: (not page.is_urgent, page.resolved_at or page.opened_at))
        most = self._left(urgent=True)
        affordable = self._affordable(notices_of(self.receiver.kind, fresh, pages, most=most))
        if not self.failures:  # otherwise it is not the bucket that keeps them
            sent = {incident_of(page) for notice in affordable for page in notice.pages}
            self.deferred |= {incident: now for page in fresh if (incident := incident_of(page)) not in sent}
        return Due(affordable, self._repeats(pages, delivered, now))

    def lacks(self, page: Page, delivered: set[tuple[Incident, str]]) -> bool:
        """Return whether the receiver does not have the page yet, due or not."""
        return self.receiver.accepts(page.severity) and not self._has(page, delivered)

    def due_since(self, page: Page, since: datetime) -> datetime:
        """Return when a page that waits `since` then could first be sent: a receiver is not late during a burst."""
        return max(since, self.deferred.get(incident_of(page), since))

    @property
    def is_failing(self) -> bool:
        """Whether its last message failed or was slow, so that other receivers come first."""
        return self.failures > 0 or self.is_slow

    def trouble(self, now: datetime) -> str:
        """Return what a user has to correct, '' for nothing.

        Neither the text nor the moment depends on how an attempt failed: tenants learn nothing about the network.
        """
        if self.refusal:
            return f"The receiver in Secret {self.receiver.where}, {self.refusal}"
        if self.failures > 1 and self.failing_since is not None and now - self.failing_since >= UNREACHABLE_AFTER:
            where = self.receiver.where
            return f"The receiver in Secret {where}, takes no messages, or may not be contacted. {CORRECT}"
        return ""

    def answered(self, page: Page, answer: Answer, now: datetime) -> bool:
        """Note how a message was received; return whether the page was delivered."""
        incident = incident_of(page)
        if answer.outcome is Outcome.DELIVERED:
            self._is_reached()
            self.refusal = ""
            self.refused.pop(incident, None)
            if page.resolved_at is None:
                self.repeated[incident] = now
            else:
                self.repeated.pop(incident, None)
            return True
        if answer.outcome in {Outcome.REFUSED, Outcome.PARTLY}:
            self.refused[incident] = now + timedelta(seconds=jittered(REFUSED_WAIT))
            self.repeated[incident] = now
            self.refusal = _refusal(answer)
            return False
        if self.retry_at is None or now >= self.retry_at:  # the messages of one process are one attempt
            self.failures += 1
        self.failing_since = self.failing_since or self.last_start or now
        wait = max(answer.retry_after, jittered(retry_delay(self.failures, first=2.0, longest=LONGEST_WAIT)))
        self.retry_at = max(self.retry_at or now, now + timedelta(seconds=wait))
        return False

    def correct(self, receiver: Receiver) -> None:
        """Follow a receiver whose line or account changed: what failed before says nothing of it."""
        self.receiver, self.refusal = receiver, ""
        self.refused.clear()
        self._is_reached()

    def _is_reached(self) -> None:
        self.failures, self.retry_at, self.failing_since = 0, None, None

    def forget(self, incidents: set[Incident]) -> None:
        """Drop what is known of incidents other than these."""
        for known in (self.refused, self.repeated, self.deferred):
            for gone in known.keys() - incidents:
                del known[gone]

    def _is_fresh(self, page: Page, delivered: set[tuple[Incident, str]], now: datetime) -> bool:
        again = self.refused.get(incident_of(page))
        return self.lacks(page, delivered) and (again is None or now >= again)

    def _has(self, page: Page, delivered: set[tuple[Incident, str]]) -> bool:
        return page.is_reported_to(self.receiver.id) or (incident_of(page), page.wanted) in delivered

    def _repeats(self, pages: list[Page], delivered: set[tuple[Incident, str]], now: datetime) -> list[Page]:
        """Return the alerts to repeat: once one has to be, all that are halfway there, so that messages are few."""
        if self.receiver.kind is not Kind.ALERTMANAGER:
            return []
        known = [page for page in pages if page.resolved_at is None and self._has(page, delivered)]
        since = {incident_of(page): self._since_repeat(page, now) for page in known}
        if max(since.values(), default=timedelta()) < REPEAT:
            return []
        late = [page for page in known if since[incident_of(page)] >= REPEAT / 2]
        return sorted(late, key=lambda page: since[incident_of(page)], reverse=True)

    def _since_repeat(self, page: Page, now: datetime) -> timedelta:
        last = self.repeated.get(incident_of(page))
        return now - last if last is not None else timedelta.max

    def _affordable(self, notices: list[Notice]) -> list[Notice]:
        """Return those that have tokens, urgent ones first: one message to Alertmanager holds as many as it takes."""
        if self.receiver.kind is Kind.ALERTMANAGER:
            return notices[: BATCH[Kind.ALERTMANAGER]] if notices and self._left(urgent=notices[0].is_urgent) else []
        found: list[Notice] = []
        for notice in notices:
            if len(found) < self._left(urgent=notice.is_urgent, alarms=self._alarms(notice)):
                found.append(notice)
        return found

    def _left(self, *, urgent: bool, alarms: bool = True) -> int:
        """Return how many messages may be sent now; only those that alarm people count for the budget."""
        left = self.rate.tokens - (0 if urgent else RESERVED)
        if self._has_budget and alarms:
            left = min(left, self.budget.tokens - (0 if urgent else BUDGET_RESERVED))
        return max(0, int(left))

    @property
    def _has_budget(self) -> bool:
        """Whether the platform's team reads what the namespace causes; Alertmanager has limits of its own."""
        return self.receiver.is_trusted and self.receiver.kind is not Kind.ALERTMANAGER

    def _alarms(self, notice: Notice) -> bool:
        """Whether the message alerts its readers: PagerDuty resolves an incident silently."""
        return self.receiver.kind is not Kind.PAGERDUTY or not notice.is_end

    def spend(self, fresh: Sequence[Notice]) -> None:
        """Take the messages of these notices off the buckets; a repeat costs nothing."""
        alertmanager = self.receiver.kind is Kind.ALERTMANAGER
        self.rate.spend(min(len(fresh), 1) if alertmanager else len(fresh))
        self.budget.spend(sum(map(self._alarms, fresh)))


def _refusal(answer: Answer) -> str:
    if answer.outcome is Outcome.PARTLY:
        return PARTLY
    status = answer.status
    return f"{f'answers with HTTP status {status}' if status else 'cannot be used as it is written'}. {CORRECT}"


def incident_of(page: Page) -> Incident:
    """Return what identifies a page's incident in its lane."""
    return page.dedup_key, page.opened_at
