"""What one receiver lacks, and when it may be sent: the order, the limits of each namespace, and retries.

Moments are in seconds of the monotonic clock: after a step of the wall clock back, nothing would be sent for as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from fencepost_operator.backoff import jittered, retry_delay
from fencepost_operator.buckets import Bucket
from fencepost_operator.paging.delivery import Answer, Outcome
from fencepost_operator.paging.messages import BATCH, REPEAT
from fencepost_operator.paging.notices import Notice, notices_of
from fencepost_operator.paging.page import Page, PageId
from fencepost_operator.paging.receivers import Kind, Receiver

BURST: Final = 20
"""Messages of one namespace that are sent at once."""
PER_MINUTE: Final = 20.0
"""Messages of one namespace after those. What is over it waits."""
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
SLOW: Final = 5.0
"""Seconds for a process, or one per message if that is more; a namespace's receiver that takes longer is slow."""
LONGEST_WAIT: Final = 120.0
"""Seconds between two attempts on a receiver that does not answer."""
UNREACHABLE_AFTER: Final = 120.0
"""Seconds for which a receiver must accept nothing before this is reported."""
_CORRECT: Final = "Correct the key, the account or the address."
_PARTLY: Final = (
    "takes pages, and does not confirm that all its recipients have them. "
    "Give each recipient a line of its own, and correct the one that fails."
)

Pages: TypeAlias = Mapping[str, Sequence[Page]]
"""Pages by the namespace of their pipelines."""


@dataclass(slots=True)
class _Limits:
    """How many messages one namespace may still send to a receiver."""

    rate: Bucket
    budget: Bucket
    exceeded_at: float | None = None
    """When a page last had to wait for them."""

    @property
    def are_full(self) -> bool:
        """Whether they say as much as new ones."""
        return self.rate.tokens >= BURST and self.budget.tokens >= BUDGET


@dataclass(slots=True)
class ReceiverQueue:
    """The pages of one receiver; `monotonic` is a clock in seconds that never steps.

    What fails is repeated page by page, so that no page waits for another one that fails.
    """

    receiver: Receiver
    monotonic: Callable[[], float]
    is_busy: bool = False
    logged: str = ""
    """The trouble that was logged last."""
    _is_slow: bool = False
    """Whether its last answers kept others waiting."""
    _failures: int = 0
    """Attempts in a row without an answer."""
    _failing_since: float | None = None
    """When the first of these began."""
    _refusal: str = ""
    """How the receiver refuses and what helps, '' while it does not."""
    _paused_until: float | None = None
    """As the receiver asked for."""
    _next_try: dict[PageId, float] = field(default_factory=dict)
    """When a page that was sent before is sent again, unless the receiver has it."""
    _limits: dict[str, _Limits] = field(default_factory=dict)
    """By namespace."""

    @property
    def is_failing(self) -> bool:
        """Whether its last messages failed or were slow, so that other receivers come first."""
        return self._failures > 0 or self._is_slow

    def due(self, pages: Pages) -> list[Notice]:
        """Return what one process sends now: urgent notices first, then those that never failed, then the oldest."""
        now = self.monotonic()
        if self._paused_until is not None and now < self._paused_until:
            return []
        selected = {name: pages[name] for name in pages if self.receiver.covers(name)}
        most = BATCH[self.receiver.kind]
        if self.receiver.kind is Kind.ALERTMANAGER:
            alerts = [page for each in selected.values() for page in each if self.receiver.accepts(page.severity)]
            found = self._alerts(alerts, now)[:most]
            return [Notice(pages=tuple(found))] if found else []
        notices = [notice for name, each in selected.items() for notice in self._affordable(name, each, now)]
        return sorted(notices, key=self._order)[:most]

    def waits_since(self, page: Page, since: float) -> float | None:
        """Return since when a page of this moment could have been sent, None where the receiver has it.

        A receiver is not late with what exceeds the limits.
        """
        if page.is_reported_to(self.receiver.id):
            return None
        limits = self._limits.get(page.key.namespace)
        if limits is None or limits.exceeded_at is None or page.id in self._next_try:
            return since
        return max(since, limits.exceeded_at)

    def trouble(self) -> str:
        """Return what a user has to correct, '' for nothing.

        Neither the text nor the moment depends on how an attempt failed: tenants learn nothing about the network.
        """
        where = f"The receiver in Secret {self.receiver.where},"
        if self._refusal:
            return f"{where} {self._refusal}"
        failing_for = self.monotonic() - self._failing_since if self._failing_since is not None else 0.0
        if self._failures > 1 and failing_for >= UNREACHABLE_AFTER:
            return f"{where} takes no messages, or may not be contacted. {_CORRECT}"
        return ""

    def answered(self, answers: Sequence[tuple[Notice, Answer]], *, began: float) -> None:
        """Note how the messages of one process were received."""
        now = self.monotonic()
        self._is_slow = not self.receiver.is_trusted and now - began > max(SLOW, len(answers))
        outcomes = {answer.outcome for _, answer in answers}
        if Outcome.DELIVERED in outcomes:
            self._failures, self._failing_since = 0, None
        elif Outcome.FAILED in outcomes:
            self._failures, self._failing_since = self._failures + 1, self._failing_since or began
        for notice, answer in answers:
            self._spend(notice, answer)
            self._note(notice, answer, now)
        self._limits = {name: limits for name, limits in self._limits.items() if not limits.are_full}

    def correct(self, receiver: Receiver) -> None:
        """Follow a receiver whose line or account changed: what failed before says nothing of it."""
        self.receiver, self._refusal, self._paused_until = receiver, "", None
        self._failures, self._failing_since = 0, None
        self._next_try.clear()

    def keep_only(self, pages: Pages) -> None:
        """Forget all pages but these."""
        current = {page.id for each in pages.values() for page in each}
        self._next_try = {page: at for page, at in self._next_try.items() if page in current}

    def _is_due(self, page: Page, now: float) -> bool:
        return not page.is_reported_to(self.receiver.id) and self._next_try.get(page.id, now) <= now

    def _alerts(self, pages: Sequence[Page], now: float) -> list[Page]:
        """Return new alerts, then those to repeat: once one has to be, all that are halfway there."""
        fresh = sorted((page for page in pages if self._is_due(page, now)), key=_urgency)
        known = [page for page in pages if page.resolved_at is None and page.is_reported_to(self.receiver.id)]
        again = {page.id: self._next_try.get(page.id, now) for page in known}
        if not again or min(again.values()) > now:
            return fresh
        late = [page for page in known if again[page.id] - REPEAT.total_seconds() / 2 <= now]
        return [*fresh, *sorted(late, key=lambda page: again[page.id])]

    def _affordable(self, namespace: str, pages: Sequence[Page], now: float) -> Iterator[Notice]:
        """Yield the notices of a namespace's pages that are within its limits, urgent ones first."""
        accepted = [page for page in pages if self.receiver.accepts(page.severity)]
        fresh = sorted((page for page in accepted if self._is_due(page, now)), key=_urgency)
        limits = self._limits_of(namespace)
        found, left = 0, self._left(limits, urgent=True, alarms=True)
        for notice in notices_of(self.receiver.kind, fresh, accepted, most=left):
            if found < self._left(limits, urgent=notice.is_urgent, alarms=self._alarms(notice)):
                found += 1
                yield notice
            elif not self._failures:
                limits.exceeded_at = now

    def _order(self, notice: Notice) -> tuple[bool, bool, datetime]:
        is_retried = any(page.id in self._next_try for page in notice.pages)
        return not notice.is_urgent, is_retried, notice.pages[0].recorded_at

    def _limits_of(self, namespace: str) -> _Limits:
        if namespace not in self._limits:
            rate = Bucket(BURST, PER_MINUTE / 60, self.monotonic)
            self._limits[namespace] = _Limits(rate, Bucket(BUDGET, BUDGET_PER_HOUR / 3600, self.monotonic))
        return self._limits[namespace]

    def _left(self, limits: _Limits, *, urgent: bool, alarms: bool) -> int:
        """Return how many messages may be sent now; the budget is of those that alarm the platform's team."""
        left = limits.rate.tokens - (0 if urgent else RESERVED)
        if self.receiver.is_trusted and alarms:
            left = min(left, limits.budget.tokens - (0 if urgent else BUDGET_RESERVED))
        return max(0, int(left))

    def _alarms(self, notice: Notice) -> bool:
        """Whether the message alerts its readers: PagerDuty resolves an incident silently."""
        return self.receiver.kind is not Kind.PAGERDUTY or not notice.is_end

    def _spend(self, notice: Notice, answer: Answer) -> None:
        """Take a message off the limits of its namespace; Alertmanager has limits of its own."""
        if self.receiver.kind is Kind.ALERTMANAGER:
            return
        limits = self._limits_of(notice.pages[0].key.namespace)
        limits.rate.spend()
        if answer.outcome in {Outcome.DELIVERED, Outcome.PARTLY} and self._alarms(notice):
            limits.budget.spend()

    def _note(self, notice: Notice, answer: Answer, now: float) -> None:
        match answer.outcome:
            case Outcome.DELIVERED:
                self._refusal, wait = "", REPEAT.total_seconds()
            case Outcome.FAILED:
                wait = jittered(retry_delay(self._failures, first=2.0, longest=LONGEST_WAIT))
                if answer.retry_after:
                    wait = max(wait, answer.retry_after)
                    self._paused_until = now + answer.retry_after
            case Outcome.PARTLY | Outcome.REFUSED:
                self._refusal = _refusal(answer)
                wait = jittered(REFUSED_WAIT) if self.receiver.kind is not Kind.ALERTMANAGER else REPEAT.total_seconds()
        self._next_try |= {page.id: now + wait for page in notice.pages}


def _urgency(page: Page) -> tuple[bool, datetime]:
    return not page.is_urgent, page.recorded_at


def _refusal(answer: Answer) -> str:
    if answer.outcome is Outcome.PARTLY:
        return _PARTLY
    how = f"answers with HTTP status {answer.status}" if answer.status else "cannot be used as it is written"
    return f"{how}. {_CORRECT}"
