"""The outbox of pages in a status: open incidents, incidents that are over, and receivers that have them.  Pure.

An incident is recorded in the write that records its condition, before a page is sent.  It is over when its cause has
been gone for a while, and leaves the status when every receiver has that page.  So each page is sent at least once: an
operator that dies in between sends it again, with the same key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fencepost.contract.guidance import Severity
from fencepost_operator.actions import RemoveFinalizer
from fencepost_operator.api import (
    Event,
    EventType,
    PageStatus,
    Pipeline,
    Reason,
    ReconcileConfig,
    Status,
    condition_after,
    condition_of,
)
from fencepost_operator.decision.decision import Decision
from fencepost_operator.decision.pausing import is_paused
from fencepost_operator.decision.reporting.incident_record import MESSAGE_LIMIT, IncidentRecord
from fencepost_operator.decision.reporting.incidents import WHILE_PAUSED, not_ready_since, open_incidents
from fencepost_operator.decision.reporting.page_mute import silenced_until
from fencepost_operator.decision.run.restart_loop import restarted_at
from fencepost_operator.decision.wording import SHOWN, with_remedy
from fencepost_operator.paging.page import PagingFacts, PagingProblem
from fencepost_operator.text import single_line

PAGING_DEGRADED: Final = "PagingDegraded"
"""The condition while a receiver of the namespace, or the annotation that silences, cannot be used."""
MOST_PAGES: Final = 40
"""More than there are reasons to be open at a time; the CRD allows a few more."""
GIVE_UP: Final = timedelta(hours=24)
"""After which the end of an incident is no longer sent."""
HOLD_DELETION: Final = timedelta(seconds=15)
"""How long a deletion waits until all receivers know that its incidents are over."""
_RECHECK: Final = 1.0
"""Seconds between two checks of that."""


def with_pages(
    pipeline: Pipeline, decision: Decision, facts: PagingFacts, config: ReconcileConfig, now: datetime
) -> Decision:
    """Return the decision with the pages that are to be recorded with it."""
    before, status = [_received(page, facts) for page in pipeline.status.pages], decision.status
    paused = is_paused(pipeline)
    if not paused:
        since, restarts = not_ready_since(pipeline.status, status, now), restarted_at(pipeline.status, status, now)
        status = replace(status, not_ready_since=since, restarted_at=restarts)
    known = {page.reason: page for page in before if page.resolved_at is None}
    found = open_incidents(pipeline, status, decision.events, known, config, now)
    left: list[PageStatus] = []
    if paused:
        found = {reason: incident for reason, incident in found.items() if incident.condition in WHILE_PAUSED}
        left = [page for page in before if page.condition not in WHILE_PAUSED]
    until, wrong = silenced_until(pipeline, now)
    record = IncidentRecord(
        pipeline=pipeline, status=status, found=found, silenced=until is not None, config=config, now=now
    )
    followed = record.after([page for page in before if page not in left])
    pages = (*left, *(page for page in followed if not _is_done(page, found, facts, now, silenced=record.silenced)))
    decision = replace(decision, status=replace(status, pages=pages[-MOST_PAGES:]))
    if paused:
        return decision
    problems = [*([PagingProblem(reason=Reason.SILENCE_INVALID, message=wrong)] if wrong else []), *facts.problems]
    return _held(_with_problem(pipeline, decision, problems, now), now)


def due_pages(pipeline: Pipeline, status: Status, now: datetime) -> tuple[PageStatus, ...]:
    """Return the pages to send: while the annotation silences, only those that some receiver already has."""
    until, _ = silenced_until(pipeline, now)
    return status.pages if until is None else tuple(page for page in status.pages if page.sent)


def _received(page: PageStatus, facts: PagingFacts) -> PageStatus:
    """Return the page with the pager's receipts; a receiver whose line was removed is dropped.

    A receipt of an earlier incident of the reason is ignored, as is an OPENED one where RESOLVED is recorded: two
    operators that each keep a receipt would overwrite each other forever.
    """
    sent = {each.receiver: each for each in page.sent}
    for receipt in facts.receipts:
        if (receipt.reason, receipt.opened_at) != (page.reason, page.opened_at):
            continue
        known = sent.get(receipt.sent.receiver)
        if known is None or (known.outcome is not page.wanted and receipt.sent.outcome is page.wanted):
            sent[receipt.sent.receiver] = receipt.sent
    return replace(page, sent=tuple(sent[name] for name in sorted(sent) if _is_kept(name, facts.receivers)))


def _is_kept(receiver: str, receivers: Sequence[str] | None) -> bool:
    """Return whether a receiver is there, or may come back: a Secret that is being recreated names none at all."""
    if receivers is None or receiver in receivers:
        return True
    owner, _, _ = receiver.partition("/")
    return not any(other.startswith(f"{owner}/") for other in receivers)


def _is_done(page: PageStatus, found: Collection[str], facts: PagingFacts, now: datetime, *, silenced: bool) -> bool:
    """Return whether every receiver knows the end; unknown receivers are not absent.

    Where the reason is open again, a receiver that never got this incident gets only the new one.
    """
    if page.resolved_at is None:
        return False
    if now - page.resolved_at >= GIVE_UP or (silenced and not page.sent):
        return True
    reported_once = {sent.receiver for sent in page.sent}
    if page.reason in found:
        return all(map(page.is_reported_to, reported_once))
    if facts.receivers is None:
        return False
    excluded = frozenset[str]() if page.severity == Severity.CRITICAL else facts.critical_only
    return all(map(page.is_reported_to, reported_once | (set(facts.receivers) - excluded)))


def _with_problem(pipeline: Pipeline, decision: Decision, problems: Sequence[PagingProblem], now: datetime) -> Decision:
    """Report the first receivers or annotations that cannot be used, in a condition, and once in an Event."""
    if not problems:
        return decision
    first = problems[0]
    more = f" And {len(problems) - SHOWN} more." if len(problems) > SHOWN else ""
    shown = " ".join(problem.message for problem in problems[:SHOWN])
    message = single_line(f"{shown}{more}", limit=MESSAGE_LIMIT)
    conditions = pipeline.status.conditions
    before = condition_of(conditions, PAGING_DEGRADED)
    condition = condition_after(
        conditions, PAGING_DEGRADED, "True", first.reason, message, now=now, generation=pipeline.generation
    )
    is_new = before is None or before.message != message
    event = (Event(EventType.WARNING, first.reason, message),) if is_new else ()
    status = replace(decision.status, conditions=(*decision.status.conditions, condition))
    return replace(decision, status=status, events=(*decision.events, *event))


def _held(decision: Decision, now: datetime) -> Decision:
    """Keep the object for some seconds until all receivers know that its incidents are over."""
    if not isinstance(decision.action, RemoveFinalizer) or not decision.status.pages:
        return decision
    ends = [page.resolved_at for page in decision.status.pages if page.resolved_at is not None]
    if ends and now - max(ends) < HOLD_DELETION:
        return replace(decision, action=None, requeue_after=_RECHECK)
    reasons = ", ".join(page.reason for page in decision.status.pages)
    message = with_remedy(
        f"Not every receiver has the end of these incidents of the deleted pipeline: {reasons}",
        "resolve them manually where they are open",
    )
    return replace(decision, events=(*decision.events, Event(EventType.WARNING, Reason.PAGE_FAILED, message)))
