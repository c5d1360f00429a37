"""Whether new code is tried before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fencepost_operator.api import Reason, Spec, UpgradeStrategy, UpgradeTrialStatus
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.outcome import Outcome, reconciling
from fencepost_operator.desired.identity.code import (
    code_identity,
    has_fixed_images,
    output_shape,
    revision_in,
    tried_identity,
)
from fencepost_operator.desired.upgrade_trial import trial_name
from fencepost_operator.observation import Known


def new_code_is_tried(context: RunContext) -> Outcome | None:
    """Keep the code that ran in effect, and try the new one first; recorded first, as any change of the status.

    A pipeline that has committed nothing has no rows to compare with.  What was stable before needs no trial, so that a
    revert of bad code does not wait; of a stateful pipeline it does, because the state may be of the bad code, and so
    does an image by its tag, which may have moved.
    """
    pipeline, own, references = context.pipeline, context.pipeline.spec, context.observation.references
    if not isinstance(own, Spec) or own.upgrade.strategy is not UpgradeStrategy.TRIAL:
        return None
    if pipeline.superseded is not None or pipeline.refused or not isinstance(references, Known):
        return None
    before = _revision_before(context, own)
    if not before or context.row.committed_at is None or _was_stable(context, own, references.value.hashes):
        return None
    code, known = tried_identity(own, references.value.hashes), context.status.upgrade_trial
    if known is not None and known.may_run and known.code == code:
        return None
    name = trial_name(pipeline, code)
    tried = UpgradeTrialStatus(name=name, revision=before, code=code, since=context.now)
    return reconciling(
        context,
        Reason.TRYING,
        f"PipelineTrial {name} tries the new code; revision {before} stays in effect until then",
        status=replace(context.status, upgrade_trial=tried),
        requeue_after=0.0,
    )


def _was_stable(context: RunContext, own: Spec, references: Mapping[str, str | None]) -> bool:
    stable = context.status.stable
    if stable is None or own.stateful is not None or not has_fixed_images(own):
        return False
    return output_shape(own, references) in stable.outputs


def _revision_before(context: RunContext, own: Spec) -> str:
    """Return the revision of other code that ran last, '' without one.

    That of a run without a Job may not be stored; that in the fence row is.
    """
    run = context.run
    if run is None or not run.code or run.code == code_identity(own):
        return ""
    return run.revision if run.created_at is not None else revision_in(context.pipeline.key.name, context.row.code)
