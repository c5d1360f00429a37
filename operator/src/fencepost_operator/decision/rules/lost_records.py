"""After a run that found records lost in Kafka: wait for a user's acceptance, and record it before the next run."""

from __future__ import annotations

from fencepost.contract import ReportedLoss
from fencepost_operator.actions import AcceptLoss
from fencepost_operator.api import ACCEPT_LOSS_ANNOTATION, FailureStatus, Reason
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.kafka.loss_acceptance import Accepted, Refused, commands, read_acceptance
from fencepost_operator.decision.kafka.loss_status import counted, shown
from fencepost_operator.decision.outcome import Outcome, reconciling, stalled
from fencepost_operator.decision.rules.restart import current_failure
from fencepost_operator.decision.run.takeover import state_before_run
from fencepost_operator.decision.wording import with_remedy
from fencepost_operator.observation import Known, Unknown


def loss_needs_an_acceptance(context: RunContext) -> Outcome | None:
    """Wait until a user accepts exactly the loss that was reported; the acceptance is recorded first.

    A changed spec is tried without an acceptance: it may have nothing to do with the loss any more.
    """
    if context.active_run is not None:
        return None
    seen, failure = context.observation.loss, current_failure(context)
    if isinstance(seen, Unknown):
        return _unreadable(context, failure, seen)
    report = seen.value if isinstance(seen, Known) else None
    if report is None or context.status.loss is None:
        return None
    given = read_acceptance(context.pipeline.annotations.get(ACCEPT_LOSS_ANNOTATION, ""), report.loss)
    if isinstance(given, Accepted) and not _is_recorded(report, given):
        return _record(context, report, given)
    if failure is None or failure.loss != report.loss.id:
        return None
    return _stalled(context, failure, report, given)


def _is_recorded(report: ReportedLoss, given: Accepted) -> bool:
    acceptance = report.acceptance
    return acceptance is not None and (acceptance.by, acceptance.choice) == (given.by, given.choice)


def _record(context: RunContext, report: ReportedLoss, given: Accepted) -> Outcome:
    loss = report.loss
    return reconciling(
        context,
        Reason.LOSS_ACCEPTED,
        f"Recording that {given.by} accepts loss {loss.id}",
        state=state_before_run(context),
        action=AcceptLoss(committed_ms=loss.committed_ms, loss=loss.id, by=given.by, choice=given.choice),
    )


def _stalled(
    context: RunContext, failure: FailureStatus, report: ReportedLoss, given: Accepted | Refused | None
) -> Outcome:
    loss, status = report.loss, context.status.loss
    ranges, topics = (status.ranges, status.topics) if status is not None else ((), ())
    about = "an estimate" if status is not None and status.estimated else "exactly"
    message = (
        f"Run {report.epoch} stopped at loss {loss.id} ({loss.reason}): "
        f"{counted(loss.records, len(loss.ranges))}, {about} {shown(ranges)}"
    )
    if len(loss.ranges) > len(ranges):
        message += f" (status.loss has {len(ranges)} of {len(loss.ranges)} ranges, table fence_losses all)"
    if topics:
        message += "; " + "; ".join(f"topic {t.topic} had id {t.old_id}, now {t.new_id or 'none'}" for t in topics[:3])
    if isinstance(given, Refused):
        message += f". The annotation {ACCEPT_LOSS_ANNOTATION} {given.problem}"
    elif report.acceptance is not None:
        since = f"{report.acceptance.at:%Y-%m-%dT%H:%M:%SZ}"
        message += f". It was accepted at {since}, and run {failure.epoch} found it again: {failure.message}"
    remedies = ("restore the records if you can", commands(context.pipeline.key, loss))
    return stalled(context, loss.reason, message, *remedies)


def _unreadable(context: RunContext, failure: FailureStatus | None, unknown: Unknown) -> Outcome | None:
    """Report a loss that cannot be read, and so cannot be accepted."""
    if failure is None or not failure.loss:
        return None
    message = with_remedy(
        f"Run {failure.epoch} failed: {failure.message}", f"Its loss cannot be read: {unknown.message}"
    )
    return stalled(context, failure.reason, message, unknown.remedy)
