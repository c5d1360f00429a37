"""Which of a pipeline's rewinds it is about: one at a time, the oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from fencepost_operator.actions import Action, CreateFence
from fencepost_operator.api import Reason, Rewind, RewindSpec
from fencepost_operator.decision.context import Context, RunContext
from fencepost_operator.decision.outcome import KUBERNETES_REASONS, Outcome, unobservable
from fencepost_operator.decision.rewind.machine import RewindContext, advance, is_set
from fencepost_operator.decision.rewind.step_status import Progress, RewindUpdate, failed, waiting
from fencepost_operator.decision.rules import preconditions
from fencepost_operator.decision.wording import detail, with_remedy
from fencepost_operator.observation import Unknown

NEVER_RAN: Final = with_remedy(
    "it is suspended and has never run, so that it has no checkpoint",
    "set spec.suspend to false, or delete this object",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewinding:
    """What all rewinds of a pipeline come to: what it does for them, if anything, and what is written of each."""

    outcome: Outcome | None = None
    aside: Action | None = None
    """What is done for a rewind while the pipeline's own rules decide, when these do nothing."""
    updates: tuple[RewindUpdate, ...] = ()
    in_progress: str | None = None
    """The name of the rewind that keeps the pipeline from running."""


def next_rewind(rewinds: Iterable[Rewind]) -> Rewind | None:
    """Return the rewind that is in progress, or the oldest one."""
    due = [rewind for rewind in rewinds if not rewind.status.is_finished and not rewind.is_cancelled]
    return min(due, key=_turn, default=None)


def rewinding(context: Context, prepared: RunContext | Outcome) -> Rewinding:
    """Return what is due for the rewinds; `prepared` is what the pipeline's preconditions conclude."""
    observed = context.observation.rewinds
    if isinstance(observed, Unknown):
        unlisted = _unlisted(context, prepared, observed)
        return Rewinding(outcome=unlisted, in_progress=context.pipeline.status.rewind)
    if context.pipeline.deleting_since is not None:
        return Rewinding(updates=_without(observed.value, "the pipeline is deleted", context.now))
    current = next_rewind(observed.value)
    updates = [_after(rewind, current, context.now) for rewind in observed.value if rewind is not current]
    if current is None:
        return Rewinding(updates=tuple(updates))
    progress = _progress(context, prepared, current)
    updates.append(RewindUpdate(rewind=current, status=progress.status, held=progress.held))
    keeps = progress.status.has_begun and not progress.status.is_finished and not is_set(progress.status)
    return Rewinding(
        outcome=progress.outcome,
        aside=progress.aside,
        updates=tuple(updates),
        in_progress=current.key.name if keeps else None,
    )


def without_pipeline(rewinds: Sequence[Rewind], now: datetime) -> tuple[RewindUpdate, ...]:
    """Return what is written of rewinds whose pipeline does not exist: those that had begun are over."""
    begun = [rewind for rewind in rewinds if rewind.status.has_begun or rewind.is_held]
    waits = [
        RewindUpdate(
            rewind=rewind,
            status=waiting(
                rewind,
                with_remedy(f"StreamingPipeline {rewind.pipeline} does not exist", "create it, or delete this object"),
                now,
            ),
        )
        for rewind in rewinds
        if rewind not in begun and not rewind.is_cancelled and not rewind.status.is_finished
    ]
    return (*_without(begun, "the pipeline was deleted", now), *waits)


def _progress(context: Context, prepared: RunContext | Outcome, rewind: Rewind) -> Progress:
    if not isinstance(rewind.spec, RewindSpec):
        what = "; ".join(str(violation) for violation in rewind.spec)
        return Progress(status=failed(rewind, rewind.status, f"Refused: {detail(what)}", context.now))
    found = _ready(context, prepared)
    if isinstance(found, RunContext):
        return advance(RewindContext(run=found, rewind=rewind, spec=rewind.spec))
    if not rewind.status.has_begun:
        return Progress(status=waiting(rewind, f"Waiting for the pipeline: {detail(found.message)}", context.now))
    return Progress(status=rewind.status, held=rewind.is_held)


def _ready(context: Context, prepared: RunContext | Outcome) -> RunContext | Outcome:
    """Return the context to rewind in. A suspended pipeline is rewound too, once its run and its cluster are gone."""
    if isinstance(prepared, RunContext) or prepared.reason is not Reason.SUSPENDED or not prepared.ready:
        return prepared
    with_spec = preconditions.require_spec(context)
    found = with_spec if isinstance(with_spec, Outcome) else preconditions.require_fence(with_spec)
    if isinstance(found, Outcome) and isinstance(found.action, CreateFence):  # a pipeline creates it when it runs
        return replace(found, message=NEVER_RAN)
    return found


def _unlisted(context: Context, prepared: RunContext | Outcome, unknown: Unknown) -> Outcome | None:
    """Start nothing while it is unknown whether a rewind is in progress."""
    if isinstance(prepared, Outcome) or context.active_run is not None:
        return None
    reason = KUBERNETES_REASONS[unknown.reason]
    return unobservable(context, reason, unknown, what="The PipelineRewinds cannot be listed")


def _after(rewind: Rewind, current: Rewind | None, now: datetime) -> RewindUpdate:
    """Return what is written of a rewind that is over, or that waits for the current one."""
    if current is None or rewind.status.is_finished or rewind.is_cancelled:
        return RewindUpdate(rewind=rewind, status=rewind.status)
    return RewindUpdate(rewind=rewind, status=waiting(rewind, f"Waiting for PipelineRewind {current.key.name}", now))


def _without(rewinds: Iterable[Rewind], why: str, now: datetime) -> tuple[RewindUpdate, ...]:
    return tuple(
        RewindUpdate(
            rewind=rewind,
            status=rewind.status if rewind.status.is_finished else failed(rewind, rewind.status, f"Over: {why}", now),
        )
        for rewind in rewinds
    )


def _turn(rewind: Rewind) -> tuple[bool, datetime, str]:
    return not rewind.status.has_begun, rewind.created_at, rewind.key.name
