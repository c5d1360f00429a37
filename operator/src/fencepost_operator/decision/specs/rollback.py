"""A spec that failed is replaced by the last stable one: how long that lasts, and how it is reported.

The object keeps its spec, so that whoever manages it sees no drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fencepost_operator.api import (
    RETRY_ANNOTATION,
    Pipeline,
    Reason,
    Rollback,
    Spec,
    State,
    Status,
    UpgradeStrategy,
)
from fencepost_operator.decision.context import Context, SpecContext, retry_token
from fencepost_operator.decision.outcome import Outcome, stalled
from fencepost_operator.decision.wording import with_remedy
from fencepost_operator.desired.identity.hashes import config_maps, optional_references
from fencepost_operator.desired.identity.spec_identity import attempt

REMEDY = f"apply a corrected spec; or, to try this one again, set the annotation {RETRY_ANNOTATION} to a new value"


def is_in_effect(pipeline: Pipeline, own: Spec, references: Mapping[str, str | None]) -> bool:
    """Return whether the object still asks for the spec that failed; `references` has the hashes of its ConfigMaps."""
    reported, upgrade = pipeline.status.rolled_back, own.upgrade
    if reported is None:
        return False
    if upgrade.rollback is not Rollback.ENABLED and upgrade.strategy is not UpgradeStrategy.HANDOFF:
        return False
    if reported.retry != retry_token(replace(pipeline, spec=own)):
        return False
    is_missing = any(references.get(name) is None for name in set(config_maps(own)) - optional_references(own))
    return is_missing or reported.failed_spec == attempt(own, references)


def with_rollback(pipeline: Pipeline, status: Status) -> Status:
    """Return the status without a rollback that is over: the object asks for something else."""
    if status.rolled_back is None or pipeline.deleting_since is not None:
        return status
    is_over = isinstance(pipeline.spec, Spec) and not (
        pipeline.superseded or pipeline.irretrievable or pipeline.refused
    )
    return replace(status, rolled_back=None) if is_over else status


def stable_spec_is_missing(context: SpecContext) -> Outcome | None:
    """Start nothing of the spec that failed while the stable one cannot be read."""
    reported = context.status.rolled_back
    if reported is None or context.pipeline.superseded is not None or context.pipeline.refused:
        return None
    effect = "the run continues" if context.active_run else "nothing is started"
    message = f"{reported.message}; the stable spec cannot be used, and {effect}: {context.pipeline.irretrievable}"
    return stalled(context, Reason.ROLLED_BACK, message, REMEDY)


def under_rollback(context: Context, outcome: Outcome) -> Outcome:
    """Report the spec that was rolled back, while all rules continue with the stable one.

    Where that is not ready either, its own reason is more urgent.
    """
    reported = context.status.rolled_back
    if reported is None or context.pipeline.superseded is None or outcome.state is State.SUSPENDED:
        return outcome
    message = with_remedy(
        f"{reported.message}; revision {reported.revision} is in effect instead: {outcome.message}", REMEDY
    )
    return outcome.as_stalled(Reason.ROLLED_BACK, message) if outcome.ready else replace(outcome, message=message)
