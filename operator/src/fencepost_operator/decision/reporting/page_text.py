"""What a page says: which pipeline, what happened, since when, what is at stake, what was tried, what to do.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from fencepost.contract.guidance import guidance_of
from fencepost_operator.api import PageStatus, Pipeline, ReconcileConfig, Status
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.observation import Backlog
from fencepost_operator.paging.page import Page
from fencepost_operator.text import single_line, without_links

_LINE: Final = 1024
_SHORT: Final = 200


def page_of(
    pipeline: Pipeline,
    status: Status,
    page: PageStatus,
    backlog: Backlog | None,
    config: ReconcileConfig,
    now: datetime,
) -> Page:
    """Return a recorded incident as receivers get it; figures are of this moment."""
    key, guidance = pipeline.key, guidance_of(page.reason)
    situation = guidance.situation.replace("`", "") if guidance is not None else "The pipeline needs attention"
    over = "" if page.resolved_at is None else "Resolved: "
    return Page(
        key=key,
        dedup_key=f"fencepost/{config.cluster_uid}/{key}/{page.reason}/{page.opened_at.isoformat(timespec='milliseconds')}",
        reason=page.reason,
        severity=page.severity,
        summary=_said(f"{over}{key} {page.reason}: {situation}", limit=_SHORT),
        opened_at=page.opened_at,
        resolved_at=page.resolved_at,
        details={name: _said(text, limit=_LINE) for name, text in _details(pipeline, status, page, backlog, now)},
        runbook=f"{config.runbook_url}/{page.reason}.md" if config.runbook_url else "",
        sent=page.sent,
    )


def _said(text: str, *, limit: int) -> str:
    """Return text that may be a tenant's: the only link of a page is its runbook."""
    return single_line(without_links(text), limit=limit)


def _details(
    pipeline: Pipeline, status: Status, page: PageStatus, backlog: Backlog | None, now: datetime
) -> Iterator[tuple[str, str]]:
    key, failure = pipeline.key, status.failure
    yield "Pipeline", str(key)
    yield "What happened", page.message
    yield "Since", _moment(page.opened_at)
    if page.resolved_at is not None:
        yield "Over since", _moment(page.quiet_since or page.resolved_at)
    elif page.quiet_since is not None:
        yield "Gone since", f"{_moment(page.quiet_since)}; it is over unless it comes back soon"
    yield "Lag", "not known" if status.lag is None else f"{status.lag} records"
    yield "Time to data loss", _time_to_loss(status, backlog, now)
    tried = f"{status.restarts} restarts, epoch {status.epoch or 0}"
    if failure is not None and failure.count:
        tried += f"; {failure.count} failures in a row, the last one {failure.reason} at {_moment(failure.at)}"
    yield "What was tried", tried
    guidance = guidance_of(page.reason)
    if guidance is not None and guidance.remedy and page.resolved_at is None:
        yield "What to do", f"{guidance.remedy[:1].upper()}{guidance.remedy[1:]}"
    yield "Look at it", f"kubectl describe spl -n {key.namespace} {key.name}"


def _time_to_loss(status: Status, backlog: Backlog | None, now: datetime) -> str:
    risk = status.data_risk
    if risk is not None and risk.lost_records:
        return f"{risk.lost_records} records of {risk.partition} are lost already"
    if risk is not None and risk.expires_at is not None:
        left = max(0.0, (risk.expires_at - now).total_seconds())
        return f"{format_duration(float(int(left)))}, at {_moment(risk.expires_at)}"
    if backlog is not None and backlog.time_to_loss is not None:
        return format_duration(float(int(max(0.0, backlog.time_to_loss))))
    return "not known"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
