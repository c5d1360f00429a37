"""What a precondition or a rule concludes, and the three usual ways to conclude it, in the terms of kstatus."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fencepost.contract.guidance import remedy_of
from fencepost_operator.actions import Action
from fencepost_operator.api import Reason, State, Status
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.run.blindness import is_blind, unseen
from fencepost_operator.decision.specs.rollout import is_rolled_out
from fencepost_operator.decision.wording import with_remedy
from fencepost_operator.observation import Unknown, UnknownReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One conclusion. `status` is what must be recorded before the action; `requeue_after` is in seconds.

    Neither ready nor stalled means Reconciling.  `warning` makes its Event a Warning.
    """

    reason: Reason
    message: str
    state: State
    status: Status
    ready: bool = False
    stalled: bool = False
    warning: bool = False
    action: Action | None = None
    requeue_after: float | None = None

    def as_stalled(self, reason: Reason, message: str) -> Outcome:
        """Return the outcome of rules that continue with another spec, reported as the failure of the object's own."""
        return replace(
            self, reason=reason, message=message, state=State.STALLED, ready=False, stalled=True, warning=True
        )


def reconciling(
    context: Context,
    reason: Reason,
    message: str,
    *,
    remedy: str = "",
    state: State | None = None,
    action: Action | None = None,
    status: Status | None = None,
    warning: bool = False,
    requeue_after: float | None = None,
) -> Outcome:
    """Conclude that the pipeline is on its way to what the spec asks for; a warning always says what to do."""
    return Outcome(
        reason=reason,
        message=with_remedy(message, remedy or (remedy_of(reason) if warning else "")),
        state=state or context.state,
        status=status or context.status,
        action=action,
        warning=warning,
        requeue_after=context.config.poll_interval if requeue_after is None else requeue_after,
    )


KUBERNETES_REASONS: Final = {
    UnknownReason.UNREACHABLE: Reason.KUBERNETES_UNREACHABLE,
    UnknownReason.DENIED: Reason.KUBERNETES_FORBIDDEN,
    UnknownReason.REJECTED: Reason.KUBERNETES_REJECTED,
    UnknownReason.BUSY: Reason.OPERATOR_BUSY,
}
"""The reason for each way in which the API server does not show something; a refusal is not an outage, nor a queue."""


def unobservable(context: Context, reason: Reason, unknown: Unknown, *, what: str) -> Outcome:
    """Conclude that a fact is unknown: what runs keeps running, nothing is started or replaced.

    A pipeline that was ready stays so until its facts are older than `page_not_ready_after`.
    """
    effect = "nothing is started until it is known"
    if context.is_streaming:
        effect = unseen(context) if is_blind(context) else "the run continues"
    return Outcome(
        reason=reason,
        message=with_remedy(f"{what}: {unknown.message}; {effect}", unknown.remedy or remedy_of(reason)),
        state=context.state,
        status=context.status,
        ready=context.is_streaming and is_rolled_out(context) and not is_blind(context),
        warning=True,
        requeue_after=context.config.resync_interval,
    )


def unless_busy(reason: Reason, unknown: Unknown) -> Reason:
    """Return the reason, or OperatorBusy where the operator did not even ask: a queue is not an outage."""
    return Reason.OPERATOR_BUSY if unknown.reason is UnknownReason.BUSY else reason


def stalled(context: Context, reason: Reason, message: str, *remedies: str) -> Outcome:
    """Conclude that a user must act first."""
    return Outcome(
        reason=reason,
        message=with_remedy(message, *(remedies if any(remedies) else (remedy_of(reason),))),
        state=State.STALLED,
        status=context.status,
        stalled=True,
        warning=True,
        requeue_after=context.config.resync_interval,
    )
