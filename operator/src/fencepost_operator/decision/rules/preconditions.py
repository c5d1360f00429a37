"""What must be in order before a run is started or replaced.

`require_spec` and `require_fence` return either the richer context that the next chain takes, or an Outcome.
"""

from __future__ import annotations

from fencepost.fence import FenceRow
from fencepost_operator.actions import AddFinalizer, CreateFence
from fencepost_operator.api import ADOPT_ANNOTATION, JobMode, Reason, Spec, State
from fencepost_operator.decision.checkpoint_reasons import checkpoint_reasons, database_name
from fencepost_operator.decision.context import Context, RunContext, SpecContext
from fencepost_operator.decision.failover import cluster_of
from fencepost_operator.decision.outcome import KUBERNETES_REASONS, Outcome, reconciling, stalled, unobservable
from fencepost_operator.decision.rules import failover
from fencepost_operator.desired.identity.hashes import fingerprints, optional_references
from fencepost_operator.observation import References, Unknown


def kubernetes_is_unreachable(context: Context) -> Outcome | None:
    """Nothing can be concluded without the list of runs."""
    runs = context.observation.runs
    if isinstance(runs, Unknown):
        reason = KUBERNETES_REASONS[runs.reason]
        return unobservable(context, reason, runs, what="The driver's Jobs cannot be listed")
    return None


def finalizer_is_missing(context: Context) -> Outcome | None:
    """Add the finalizer before anything is created, so that a deletion waits for the cleanup."""
    if context.pipeline.has_finalizer:
        return None
    return reconciling(context, Reason.PENDING, "Adding the finalizer", action=AddFinalizer())


def require_spec(context: Context) -> SpecContext | Outcome:
    """Return the context with its spec; an invalid spec changes nothing that runs."""
    spec = context.pipeline.spec
    if not isinstance(spec, Spec):
        effect = "the run of the last valid spec continues" if context.active_run else "nothing is started"
        if context.pipeline.irretrievable:
            effect += f", and the last valid spec cannot be used: {context.pipeline.irretrievable.rstrip('.')}"
        fields = "; ".join(str(violation) for violation in spec)
        return stalled(context, Reason.INVALID_SPEC, f"{fields} ({effect})")
    return SpecContext(
        pipeline=context.pipeline,
        status=context.status,
        observation=context.observation,
        config=context.config,
        spec=spec,
    )


def require_fence(context: SpecContext) -> RunContext | Outcome:
    """Return the context with its references and its fence row, which must exist and be ours."""
    references, fence = context.observation.references, context.observation.fence
    if isinstance(references, Unknown):
        what = "The ConfigMaps and Secrets that the spec names cannot be read"
        return unobservable(context, KUBERNETES_REASONS[references.reason], references, what=what)
    if outcome := references_are_missing(context, references.value):
        return outcome
    if isinstance(fence, Unknown):
        reason = checkpoint_reasons(context.pipeline)[fence.reason]
        what = f"The checkpoint in {database_name(context.pipeline)} cannot be read"
        return unobservable(context, reason, fence, what=what)
    row = fence.value
    if row is None:
        return fence_is_lost(context) or fence_is_missing(context)
    if outcome := (
        fence_is_owned_elsewhere(context, row)
        or fence_was_rolled_back(context, row)
        or fence_is_of_another_mode(context, row)
    ):
        return outcome
    return RunContext(
        pipeline=context.pipeline,
        status=context.status,
        observation=context.observation,
        config=context.config,
        spec=context.spec,
        row=row,
        references=references.value,
        desired=fingerprints(context.spec, references.value.hashes, context.config.chart),
    )


def references_are_missing(context: SpecContext, references: References) -> Outcome | None:
    """Wait for the ConfigMaps and Secrets that the spec names; a run that has read them already continues."""
    optional = optional_references(context.spec)
    missing = [name for name in references.missing() if name not in optional]
    if not missing:
        return None
    kind = missing[0].partition("/")[0]
    reason = Reason.CONFIG_MAP_NOT_FOUND if kind == "ConfigMap" else Reason.SECRET_NOT_FOUND
    effect = "; the run continues, but could not be replaced" if context.active_run else ""
    return reconciling(
        context,
        reason,
        f"{', '.join(missing)} not found in namespace {context.pipeline.key.namespace}{effect}",
        warning=True,
        requeue_after=context.config.resync_interval,
    )


def fence_is_owned_elsewhere(context: SpecContext, row: FenceRow) -> Outcome | None:
    """Refuse another Kubernetes cluster's row until a user names that cluster, and the epoch, to take it over.

    With spec.failover it is waited for that the other cluster is lost.

    The epoch makes the annotation good for one takeover: left on two objects, it would let them take turns forever.
    """
    cluster = cluster_of(row)
    if cluster == context.config.cluster_uid:
        return None
    key, needed = context.pipeline.key, f"{cluster}@{row.epoch}"
    given = context.pipeline.annotations.get(ADOPT_ANNOTATION)
    if given == needed:
        return None
    if context.spec.failover is not None:
        return failover.another_cluster_owns(context, row, fence_is_of_another_mode(context, row))
    mismatch = f"; the annotation {ADOPT_ANNOTATION}={given} is not about this owner and epoch" if given else ""
    return stalled(
        context,
        Reason.FENCE_OWNED_ELSEWHERE,
        f"The checkpoint {row.pipeline} belongs to a pipeline of another Kubernetes cluster ({cluster}){mismatch}",
        f"delete that pipeline, then run: kubectl annotate streamingpipeline {key.name} "
        f"--namespace {key.namespace} --overwrite {ADOPT_ANNOTATION}={needed}; "
        "or give this operator a scope of its own",
    )


def fence_is_lost(context: SpecContext) -> Outcome | None:
    """Stall when a row that existed is gone: its progress is lost."""
    epoch = context.status.epoch
    if not epoch:
        return None
    return stalled(context, Reason.FENCE_LOST, f"The checkpoint's row is gone; it was at epoch {epoch}")


def fence_was_rolled_back(context: SpecContext, row: FenceRow) -> Outcome | None:
    """Stall when a row is behind what was seen: its progress is lost."""
    epoch = context.status.epoch
    if not epoch or row.epoch >= epoch:
        return None
    message = f"The checkpoint's row is at epoch {row.epoch}, but epoch {epoch} was seen before"
    return stalled(context, Reason.FENCE_ROLLED_BACK, message)


def fence_is_of_another_mode(context: SpecContext, row: FenceRow) -> Outcome | None:
    """Stall where the commits are of another mode: of a pipeline that was deleted, whose row was retained."""
    if row.committed_at is None or (row.checkpoint is None) == (context.spec.stateful is None):
        return None
    mode = JobMode.STATELESS if row.checkpoint is None else JobMode.STATEFUL
    return stalled(
        context,
        Reason.INVALID_SPEC,
        f"spec.job.mode: is {context.spec.job.mode}, and the fence row {row.pipeline} has the commits of a {mode}"
        " pipeline",
        f"set it to {mode}, or create a pipeline under another name with source.kafka.startingOffsets.partitions",
    )


def fence_is_missing(context: SpecContext) -> Outcome:
    """Create the first row: the operator does, never a driver."""
    return reconciling(
        context,
        Reason.PROVISIONING,
        "Creating the checkpoint",
        state=State.PROVISIONING,
        action=CreateFence(owner=context.owner),
    )
