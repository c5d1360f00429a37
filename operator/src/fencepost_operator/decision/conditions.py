"""The conditions of a status: Ready and Streaming always, Reconciling or Stalled while True and never both."""

from __future__ import annotations

from fencepost_operator.api import Condition, Reason, Spec
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.observation import Unknown


def conditions(context: Context, outcome: Outcome) -> tuple[Condition, ...]:
    """Return all conditions of an outcome."""
    found = [_condition(context, "Ready", "True" if outcome.ready else "False", outcome.reason, outcome.message)]
    if outcome.stalled:
        found.append(_condition(context, "Stalled", "True", outcome.reason, outcome.message))
    elif not outcome.ready:
        found.append(_condition(context, "Reconciling", "True", outcome.reason, outcome.message))
    found.append(_streaming(context, outcome))
    return tuple(found)


def _streaming(context: Context, outcome: Outcome) -> Condition:
    run = outcome.status.run
    if run is None or run.ended_at is not None or run.claimed_at is None:
        return _condition(context, "Streaming", "False", outcome.reason, "No driver holds the fence")
    runs, fence = context.observation.runs, context.observation.fence
    readable = isinstance(context.pipeline.spec, Spec)  # an invalid spec does not say where the fence is
    if isinstance(runs, Unknown) or (readable and isinstance(fence, Unknown)):
        message = f"{run.name} held the fence when it was last seen"
        return _condition(context, "Streaming", "Unknown", outcome.reason, message)
    return _condition(context, "Streaming", "True", Reason.STREAMING, f"{run.name} holds the fence")


def _condition(context: Context, kind: str, status: str, reason: Reason, message: str) -> Condition:
    before = next((c for c in context.pipeline.status.conditions if c.type == kind), None)
    unchanged = before is not None and before.status == status
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=(
            before.last_transition_time if before is not None and unchanged else context.now.replace(microsecond=0)
        ),
        observed_generation=context.pipeline.generation,
    )
