"""From what was seen to what is said and done.  Pure: the same snapshot always gives the same decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from fencepost_operator.actions import Action
from fencepost_operator.api import Condition, Event, Pipeline, Policy, Reason, Spec, Status
from fencepost_operator.errors import FencepostError
from fencepost_operator.observation import Observation, Unknown
from fencepost_operator.rules import deletion, gates, running, starting, stopping
from fencepost_operator.rules.housekeeping import tidy
from fencepost_operator.rules.situation import Ruling, Situation, advise
from fencepost_operator.rules.story import story
from fencepost_operator.rules.tracking import track

Rule: TypeAlias = Callable[[Situation], Ruling | None]

CHAIN: Final[tuple[Rule, ...]] = (
    deletion.is_deleted,
    gates.kubernetes_is_silent,
    gates.finalizer_is_missing,
    gates.spec_is_invalid,
    stopping.is_suspended,
    gates.references_are_missing,
    gates.checkpoint_is_silent,
    gates.fence_is_owned_elsewhere,
    gates.fence_is_lost,
    gates.fence_is_missing,
    # a run lives
    running.is_being_stopped,
    running.is_superseded,
    running.is_unresponsive,
    running.is_outdated,
    running.cluster_drifted,
    # a run lives on, or none does
    starting.doubtful_run_holds_the_fence,
    starting.doubtful_run_lingers,
    starting.is_beyond_repair,
    starting.is_backing_off,
    running.topics_are_missing,
    running.kafka_is_silent,
    running.is_starting,
    running.is_streaming,
    # no run lives
    starting.fence_is_held,
    starting.cluster_is_not_there,
    starting.cluster_is_not_ready,
    starting.epoch_is_spent,
    starting.run_is_due,
)
"""The first rule that has something to say decides.  A rule may rely on what those before it have ruled out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """An action that failed, and how often in a row; its words take the place of the rule's until it succeeds."""

    action: type[Action]
    reason: Reason
    error: FencepostError
    remedy: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to write, what to tell, what to do, when to look again (seconds). In that order: record before act."""

    reason: Reason
    status: Status
    events: tuple[Event, ...]
    action: Action | None
    again: float


def decide(pipeline: Pipeline, observation: Observation, policy: Policy, *, setback: Setback | None = None) -> Decision:
    """Return the one decision about a pipeline at this moment."""
    situation = Situation(
        pipeline=pipeline,
        status=track(pipeline, observation, policy),
        observation=observation,
        policy=policy,
    )
    ruling = _admit(rule(situation), setback)
    status = _status(situation, ruling)
    return Decision(
        reason=ruling.reason,
        status=status,
        events=story(pipeline.status, status, ruling),
        action=ruling.action or tidy(situation),
        again=policy.resync if ruling.again is None else ruling.again,
    )


def rule(situation: Situation) -> Ruling:
    """Return what the first rule says that has something to say."""
    for one in CHAIN:
        if ruling := one(situation):
            return ruling
    raise AssertionError("the chain ends with a rule that always has something to say")


def _admit(ruling: Ruling, setback: Setback | None) -> Ruling:
    """Say why an action does not succeed, as long as it is the one that is due."""
    if setback is None or ruling.action is None or type(ruling.action) is not setback.action:
        return ruling
    tries = f" (tried {setback.attempts} times)" if setback.attempts > 1 else ""
    message = advise(f"{ruling.message}: {setback.error}{tries}", setback.remedy)
    return replace(ruling, reason=setback.reason, message=message, warning=True)


def _status(situation: Situation, ruling: Ruling) -> Status:
    generation = situation.pipeline.generation
    return replace(
        ruling.status,
        observed_generation=generation,
        state=ruling.state,
        message=ruling.message,
        conditions=_conditions(situation, ruling),
    )


def _conditions(situation: Situation, ruling: Ruling) -> tuple[Condition, ...]:
    """Return kstatus' conditions: Ready always; Reconciling or Stalled while True, never both; and Streaming."""
    found = [_condition(situation, "Ready", "True" if ruling.ready else "False", ruling.reason, ruling.message)]
    if ruling.stalled:
        found.append(_condition(situation, "Stalled", "True", ruling.reason, ruling.message))
    elif not ruling.ready:
        found.append(_condition(situation, "Reconciling", "True", ruling.reason, ruling.message))
    found.append(_streaming(situation, ruling))
    return tuple(found)


def _streaming(situation: Situation, ruling: Ruling) -> Condition:
    run = ruling.status.run
    lives = run is not None and run.ended_at is None and run.claimed_at is not None
    if run is None or not lives:
        return _condition(situation, "Streaming", "False", ruling.reason, "No driver holds the fence")
    runs, fence = situation.observation.runs, situation.observation.fence
    asked = isinstance(situation.pipeline.spec, Spec)  # an invalid spec does not say where the fence is
    if isinstance(runs, Unknown) or (asked and isinstance(fence, Unknown)):
        message = f"{run.name} held the fence when it was last seen"
        return _condition(situation, "Streaming", "Unknown", ruling.reason, message)
    return _condition(situation, "Streaming", "True", Reason.STREAMING, f"{run.name} holds the fence")


def _condition(situation: Situation, kind: str, status: str, reason: Reason, message: str) -> Condition:
    before = next((c for c in situation.pipeline.status.conditions if c.type == kind), None)
    unchanged = before is not None and before.status == status
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=(
            before.last_transition_time if before is not None and unchanged else situation.now.replace(microsecond=0)
        ),
        observed_generation=situation.pipeline.generation,
    )
