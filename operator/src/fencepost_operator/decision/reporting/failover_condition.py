"""The condition FailoverBlocked: why a move to another Kubernetes cluster does not begin, and what to do about it."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance import remedy_of
from fencepost_operator.api import FAIL_OVER_ANNOTATION, Reason, State, condition_of
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.failover import MISSED, asked_move, asked_target, cluster_of
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.decision.wording import detail, with_remedy
from fencepost_operator.observation import Fact, Known, LifeSigns, NotAsked, Unknown

FAILOVER_BLOCKED: Final = "FailoverBlocked"


def failover_blocked(context: Context, outcome: Outcome) -> str:
    """Return why a move does not begin, '' where it does or none is asked for; without an answer it is as it was."""
    pipeline, fence, signs = context.pipeline, context.observation.fence, context.observation.other_cluster
    before = condition_of(pipeline.status.conditions, FAILOVER_BLOCKED)
    if isinstance(fence, Unknown) or (isinstance(signs, Unknown) and signs.is_transient):
        return before.message if before is not None and FAIL_OVER_ANNOTATION in pipeline.annotations else ""
    row = fence.value
    asked = asked_move(pipeline, row) if row is not None else None
    if row is None or asked is None or cluster_of(row) != context.config.cluster_uid or outcome.state is State.STANDBY:
        return ""
    move, key = f"The move to cluster {asked[0]} from epoch {asked[1]}", pipeline.key
    if asked_target(pipeline, row) is None:  # one that was done has left no condition
        again = f"run it again: fencepost failover {key} --to {asked[0]}"
        return with_remedy(f"{move} did not begin before that epoch ended", again) if before is not None else ""
    if not (why := _why(signs, asked[0], outcome)):  # as after a restart of this operator
        return before.message if before is not None and before.message.startswith(f"{move} ") else ""
    return with_remedy(
        f"{move} does not begin, and the pipeline stays here: {why}",
        remedy_of(Reason.FAILOVER_BLOCKED),
        f"or withdraw the request: kubectl annotate spl -n {key.namespace} {key.name} {FAIL_OVER_ANNOTATION}-",
    )


def _why(seen: Fact[LifeSigns | None] | NotAsked, target: str, outcome: Outcome) -> str:
    match seen:
        case Unknown():
            return f"signs of life from there cannot be read: {detail(seen.message)}"
        case Known(None):
            return "no sign of life came from there in the last hour"
        case Known(signs) if signs is not None and signs.cluster == target:
            return _why_not_there(signs, outcome)
        case _:
            return ""


def _why_not_there(signs: LifeSigns, outcome: Outcome) -> str:
    if signs.silent_for >= MISSED:
        return f"no sign of life has come from there for {format_duration(MISSED)}"
    if signs.note:
        return f"the pipeline in that cluster could not run, for the reason {signs.note}"
    return f"the state {outcome.reason} of this cluster comes first" if signs.has_moved else ""
