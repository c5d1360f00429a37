"""The kept specs: stored before the run that they start, and while a run continues under a spec that needs no other."""

from __future__ import annotations

from dataclasses import replace

from fencepost.fence import FenceRow
from fencepost_operator.actions import KeepRevision
from fencepost_operator.api import Reason, Spec, Status
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.decision.wording import detail, with_remedy
from fencepost_operator.desired.identity.code import revision_in
from fencepost_operator.desired.identity.hashes import fingerprints
from fencepost_operator.desired.identity.revision import controller_revision, revision_of
from fencepost_operator.observation import Known


def with_revision(context: Context, status: Status) -> tuple[Status, KeepRevision | None]:
    """Return the status with the revision of the spec that the run runs with, once that is stored, or its storing.

    Stored first and named then: an operator that dies in between stores the same one again.
    """
    run, spec, references = context.active_run, context.pipeline.spec, context.observation.references
    recorded, stored = status.run, context.observation.stored_revision
    if run is None or recorded is None or recorded.name != run.name or run.stop_requested_at is not None:
        return status, None
    is_deleted = context.pipeline.deleting_since is not None
    if is_deleted or not (isinstance(spec, Spec) and isinstance(references, Known) and isinstance(stored, Known)):
        return status, None
    hashes = references.value.hashes
    wanted = revision_of(context.pipeline, spec, hashes)
    if recorded.revision == wanted.name or run.spec_hash != fingerprints(spec, hashes, context.config.chart).run:
        return status, None
    if stored.value == wanted.name:
        return replace(status, run=replace(recorded, revision=wanted.name)), None
    fence = context.observation.fence
    if not isinstance(fence, Known):
        return status, None  # storing one deletes old ones, and the row may need one of those
    keep = needed_revisions(context.pipeline.key.name, status, fence.value)
    return status, KeepRevision(revision=controller_revision(context.pipeline, wanted), keep=keep)


def needed_revisions(pipeline: str, status: Status, row: FenceRow | None) -> tuple[str, ...]:
    """Return the revisions that must stay: of the kept specs that may run, and of the code in the row."""
    of_row = revision_in(pipeline, row.code) if row is not None else ""
    return tuple(sorted((status.kept_revisions | {of_row}) - {""}))


def under_invalid_spec(context: Context, outcome: Outcome) -> Outcome:
    """Report the spec that is refused, while all rules continue with the last valid one."""
    refused, run = context.pipeline.refused, context.status.run
    if not refused or context.pipeline.deleting_since is not None:
        return outcome
    fields = detail("; ".join(str(violation) for violation in refused))
    revision = run.revision if run is not None else ""
    message = f"{fields} (the last valid spec, revision {revision}, stays in effect: {outcome.message})"
    return outcome.as_stalled(Reason.INVALID_SPEC, with_remedy(message, "correct the spec"))
