"""How a rewind's status moves from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from fencepost_operator.actions import Action
from fencepost_operator.api import (
    COMPLETED,
    FAILED,
    WAITING,
    Event,
    EventType,
    Reason,
    Rewind,
    RewindStatus,
    RewindStep,
    StepState,
    StepStatus,
    conditions_after,
)
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.text import single_line

_ORDER: Final = tuple(RewindStep)
_STALLED: Final = frozenset({Reason.REWIND_REFUSED, Reason.PURGE_FAILED})
"""Reasons of a rewind that does not continue until a user acts; any other continues when its cause ends."""
_AS_USUAL: Final = frozenset({Reason.REWINDING, Reason.REWOUND})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a pass concludes about a rewind.

    `outcome` is what the pipeline does for it, None while its own rules decide.  `held` says whether the rewind can no
    longer be cancelled: the API server keeps the object until it is carried through.
    """

    status: RewindStatus
    outcome: Outcome | None = None
    aside: Action | None = None
    """What is done beside the pipeline's own actions, while its own rules decide."""
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindUpdate:
    """What is to be written of a rewind: its status, and whether it is held, before any action."""

    rewind: Rewind
    status: RewindStatus
    held: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        """The Events of the change, on the rewind."""
        return tuple(_events(self.rewind.status, self.status))


def waiting(rewind: Rewind, message: str, now: datetime) -> RewindStatus:
    """Return the status of a rewind that does nothing yet, and does not keep the pipeline from anything."""
    return reported(rewind, replace(rewind.status, phase=WAITING), message, now)


def reached(
    rewind: Rewind,
    status: RewindStatus,
    step: RewindStep,
    message: str,
    now: datetime,
    *,
    reason: Reason = Reason.REWINDING,
) -> RewindStatus:
    """Return the status in which all earlier steps are over, and the step is in progress or waits for a user."""
    place = _ORDER.index(step)
    steps = (*(_over(status, earlier, now) for earlier in _ORDER[:place]), _running(status, step, message, now))
    return reported(rewind, replace(status, phase=step.value, steps=steps), message, now, reason=reason)


def completed(rewind: Rewind, status: RewindStatus, message: str, now: datetime) -> RewindStatus:
    """Return the status of a rewind that arrived."""
    steps = tuple(_ended(step, StepState.DONE, now) for step in status.steps)
    return reported(rewind, replace(status, phase=COMPLETED, steps=steps), message, now, reason=Reason.REWOUND)


def failed(rewind: Rewind, status: RewindStatus, message: str, now: datetime) -> RewindStatus:
    """Return the status of a rewind that is over and has not arrived."""
    steps = tuple(_ended(step, StepState.FAILED, now) for step in status.steps)
    return reported(rewind, replace(status, phase=FAILED, steps=steps), message, now, reason=Reason.REWIND_REFUSED)


def _running(status: RewindStatus, step: RewindStep, message: str, now: datetime) -> StepStatus:
    before = status.step(step)
    started = before.started_at if before is not None and before.state is StepState.RUNNING else now
    return StepStatus(name=step.value, state=StepState.RUNNING, message=single_line(message), started_at=started)


def _over(status: RewindStatus, step: RewindStep, now: datetime) -> StepStatus:
    before = status.step(step)
    if before is None:
        skipped = StepState.SKIPPED
        return StepStatus(name=step.value, state=skipped, message="not needed", started_at=now, finished_at=now)
    return _ended(before, StepState.DONE, now)


def _ended(step: StepStatus, state: StepState, now: datetime) -> StepStatus:
    return step if step.state is not StepState.RUNNING else replace(step, state=state, finished_at=now)


def reported(
    rewind: Rewind, status: RewindStatus, message: str, now: datetime, *, reason: Reason = Reason.REWINDING
) -> RewindStatus:
    """Return the status with a message, as of a step whose action failed, and its conditions in kstatus' shape."""
    line = single_line(message)
    other = None if reason is Reason.REWOUND else "Stalled" if reason in _STALLED else "Reconciling"
    found = conditions_after(
        rewind.status.conditions,
        reason,
        line,
        is_ready=status.phase == COMPLETED,
        other=other,
        now=now,
        generation=rewind.generation,
    )
    return replace(status, observed_generation=rewind.generation, message=line, conditions=found)


def _events(before: RewindStatus, after: RewindStatus) -> Iterator[Event]:
    was = before.conditions[0].reason if before.conditions else ""
    if not after.conditions or (before.phase, was) == (after.phase, after.conditions[0].reason):
        return
    reason = after.conditions[0].reason
    yield Event(EventType.NORMAL if reason in _AS_USUAL else EventType.WARNING, reason, after.message)
