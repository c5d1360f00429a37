"""Which incidents of a pipeline are open: a table of conditions and Events.  Pure.

An incident of readiness (Stalled, NotReady, BackingOff) lasts until the pipeline is ready: a failed retry does not
end it.  Any other one lasts as long as its condition, and one of an Event until none has come for `MOMENT`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fencepost.contract.guidance import GUIDANCE, Severity, guidance_of
from fencepost_operator.api import (
    Condition,
    Event,
    PageStatus,
    Pipeline,
    Reason,
    ReconcileConfig,
    State,
    Status,
    condition_of,
)
from fencepost_operator.decision.cluster.autoscale import SCALING_LIMITED
from fencepost_operator.decision.durability import DURABILITY_AT_RISK
from fencepost_operator.decision.kafka.retention_risk import RETENTION_RISK
from fencepost_operator.decision.reporting.conditions import FALLING_BEHIND, PARTITIONS_OFFLINE, TRANSACTION_STALLED
from fencepost_operator.decision.run.blindness import UNOBSERVED
from fencepost_operator.decision.run.restart_loop import is_looping, loop_message

STALLED: Final = "Stalled"
READY: Final = "Ready"
HELD_UP: Final = frozenset({STALLED, READY, UNOBSERVED})
"""Where incidents come from that keep a pipeline from its work, or may."""
PAGED: Final = frozenset(
    {
        STALLED, RETENTION_RISK, TRANSACTION_STALLED, FALLING_BEHIND, SCALING_LIMITED, DURABILITY_AT_RISK,
        PARTITIONS_OFFLINE, UNOBSERVED,
    }
)  # fmt: skip
"""Conditions whose reasons page, each as urgently as its guidance says."""
SETTINGS: Final = frozenset(
    {(DURABILITY_AT_RISK, Reason.DURABILITY_AT_RISK), (RETENTION_RISK, Reason.RETENTION_TOO_SHORT)}
)
"""Conditions with reasons that warn of a setting: nothing is at stake yet."""
PATIENCE: Final = timedelta(hours=1)
"""How long those last before they page: a setting that is being changed wakes no one."""
WHILE_SUSPENDED: Final = frozenset({RETENTION_RISK})
"""The others do not apply to a pipeline that a user suspended."""
WHILE_PAUSED: Final = frozenset({RETENTION_RISK})
"""The others are not looked at: what was open when the pause began stays as it is."""
MOMENTS: Final = frozenset({Reason.DEAD_LETTER_WRITTEN, Reason.MIXED_OUTPUT})
"""Reasons of Events that page."""
MOMENT: Final = timedelta(minutes=30)
"""Without another Event of its reason, such an incident is over."""
MOST_RESTARTS: Final = 3
"""Failed runs in a row without progress; one more pages."""
PLANNED: Final = frozenset(
    {
        Reason.UPGRADING, Reason.RESTART_QUEUED, Reason.SCALED, Reason.AUTOSCALED, Reason.STOPPING, Reason.REWINDING,
        Reason.REWOUND, Reason.DELETING, Reason.RELEASED, Reason.TRYING,
    }
)  # fmt: skip
"""Steps that a user asked for: their duration does not page, unless they are part of a restart after a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What is open now."""

    condition: str
    severity: Severity
    message: str
    renewed_at: datetime | None = None
    """When its Event last came, None without one."""


def not_ready_since(before: Status, status: Status, now: datetime) -> datetime | None:
    """Return since when the pipeline is on its way apart from planned steps, None where it is not.

    One that is not ready because its facts are too old has waited since they were fresh.
    """
    on_its_way = condition_of(status.conditions, "Reconciling")
    if on_its_way is None or (on_its_way.reason in PLANNED and status.state is not State.RESTARTING):
        return None
    since = before.not_ready_since or status.unobserved_since or now
    return since.replace(microsecond=0)


def open_incidents(
    pipeline: Pipeline,
    status: Status,
    events: Collection[Event],
    pages: Mapping[str, PageStatus],
    config: ReconcileConfig,
    now: datetime,
) -> Mapping[str, Incident]:
    """Return what is open by reason; `pages` are the recorded ones that are open, `events` those of this decision."""
    if pipeline.deleting_since is not None:
        return dict(_overdue(status, config, now))
    ready = condition_of(status.conditions, READY)
    suspended = ready is not None and ready.status == "True" and ready.reason == Reason.SUSPENDED
    found: dict[str, Incident] = {
        c.reason: Incident(condition=c.type, severity=severity_of(c), message=c.message)
        for c in status.conditions
        if _pages(c, now, suspended=suspended)
    }
    found |= dict(_moments(events, pages, now))
    if ready is not None and ready.status != "True":
        found = dict(_lasting(pages, found)) | found
        if not any(_is_critical(incident) for incident in found.values()):
            found |= dict(_not_ready(status, ready, config, now))
    if is_looping(status, now) and not suspended and not any(each.condition == STALLED for each in found.values()):
        looping = Incident(condition=READY, severity=Severity.CRITICAL, message=loop_message(status))
        found.setdefault(Reason.BACKING_OFF, looping)
    return found


def severity_of(condition: Condition) -> Severity:
    """Return how urgent a condition's reason is; a stalled pipeline pages whatever the reason."""
    guidance = guidance_of(condition.reason)
    severity = guidance.severity if guidance is not None else Severity.WARNING
    return Severity.CRITICAL if condition.type == STALLED and severity is Severity.NONE else severity


def _is_critical(incident: Incident) -> bool:
    """Return whether it pages for a pipeline that does not work; a warning of a refused spec says nothing of that."""
    return incident.condition in HELD_UP and incident.severity is Severity.CRITICAL


def _pages(condition: Condition, now: datetime, *, suspended: bool) -> bool:
    if condition.type not in PAGED or condition.status != "True":
        return False
    is_setting = (condition.type, condition.reason) in SETTINGS  # else it counts for nothing whose clock saw it first
    if is_setting and now - condition.last_transition_time < PATIENCE:
        return False
    if suspended and condition.type not in WHILE_SUSPENDED:
        return False
    return severity_of(condition) is not Severity.NONE


def _moments(
    events: Collection[Event], pages: Mapping[str, PageStatus], now: datetime
) -> Iterator[tuple[str, Incident]]:
    for reason, page in pages.items():
        if page.renewed_at is not None and now - page.renewed_at < MOMENT:
            yield reason, _of(page)
    for event in events:
        if event.reason in MOMENTS:
            severity = GUIDANCE[Reason(event.reason)].severity
            yield event.reason, Incident(condition="", severity=severity, message=event.message, renewed_at=now)


def _lasting(pages: Mapping[str, PageStatus], found: Mapping[str, Incident]) -> Iterator[tuple[str, Incident]]:
    """Yield what was open before and is not over, because the pipeline has not been ready since."""
    stalled = any(incident.condition == STALLED for incident in found.values())
    for reason, page in pages.items():
        if page.quiet_since is not None or page.condition not in HELD_UP:
            continue
        if page.condition == READY or not stalled:
            yield reason, _of(page)


def _not_ready(
    status: Status, ready: Condition, config: ReconcileConfig, now: datetime
) -> Iterator[tuple[str, Incident]]:
    """Yield the incident of a pipeline that is not Ready, or restarts too often."""
    failures = status.failure.count if status.failure is not None else 0
    if failures > MOST_RESTARTS:
        yield Reason.BACKING_OFF, Incident(condition=READY, severity=Severity.CRITICAL, message=ready.message)
    else:
        yield from _overdue(status, config, now)


def _overdue(status: Status, config: ReconcileConfig, now: datetime) -> Iterator[tuple[str, Incident]]:
    """Yield what has kept the pipeline on its way for too long; of a deletion, nothing else pages."""
    ready, since = condition_of(status.conditions, READY), status.not_ready_since
    if ready is not None and since is not None and (now - since).total_seconds() >= config.page_not_ready_after:
        yield Reason.NOT_READY, Incident(condition=READY, severity=Severity.CRITICAL, message=ready.message)


def _of(page: PageStatus) -> Incident:
    return Incident(condition=page.condition, severity=page.severity, message=page.message, renewed_at=page.renewed_at)
