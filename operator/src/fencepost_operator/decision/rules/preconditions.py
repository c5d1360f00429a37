"""What must be in order before a run is started or replaced."""

from __future__ import annotations

from fencepost.fence import FenceRow
from fencepost_operator.actions import AddFinalizer, CreateFence
from fencepost_operator.api import ADOPT_ANNOTATION, Reason, Spec, State
from fencepost_operator.decision.context import Context, Outcome, not_observable, stalled, waiting
from fencepost_operator.desired.hashes import optional_references
from fencepost_operator.observation import Unknown, UnknownReason


def kubernetes_is_unreachable(context: Context) -> Outcome | None:
    """Nothing can be told without the list of runs."""
    runs = context.observation.runs
    if isinstance(runs, Unknown):
        return not_observable(context, Reason.KUBERNETES_UNREACHABLE, runs, what="The driver's Jobs cannot be listed")
    return None


def finalizer_is_missing(context: Context) -> Outcome | None:
    """Before anything is made, the API server must be told to wait for its cleanup."""
    if context.pipeline.has_finalizer:
        return None
    return waiting(context, Reason.PENDING, "Taking charge of the pipeline", action=AddFinalizer())


def spec_is_invalid(context: Context) -> Outcome | None:
    """A spec that cannot be understood changes nothing that runs."""
    violations = context.pipeline.spec
    if isinstance(violations, Spec):
        return None
    effect = "the run of the last good spec goes on" if context.active_run else "nothing is started"
    fields = "; ".join(str(violation) for violation in violations)
    return stalled(context, Reason.INVALID_SPEC, f"{fields} ({effect})", remedy="correct the spec")


def references_are_missing(context: Context) -> Outcome | None:
    """ConfigMaps and Secrets that the spec names must be there; a run that has read them already goes on."""
    references = context.observation.references
    if isinstance(references, Unknown):
        what = "The ConfigMaps and Secrets that the spec names cannot be read"
        return not_observable(context, Reason.KUBERNETES_UNREACHABLE, references, what=what)
    optional = optional_references(context.spec)
    missing = [name for name in references.value.missing() if name not in optional]
    if not missing:
        return None
    kind = missing[0].partition("/")[0]
    reason = Reason.CONFIG_MAP_NOT_FOUND if kind == "ConfigMap" else Reason.SECRET_NOT_FOUND
    effect = "; the run goes on, but could not be replaced" if context.active_run else ""
    return waiting(
        context,
        reason,
        f"{', '.join(missing)} not found in namespace {context.pipeline.key.namespace}{effect}",
        remedy="create what is missing, or correct its name in the spec",
        warning=True,
        requeue_after=context.config.resync,
    )


def checkpoint_is_unreadable(context: Context) -> Outcome | None:
    """Without the fence row nobody may start or replace a run."""
    fence = context.observation.fence
    if not isinstance(fence, Unknown):
        return None
    reason = {
        UnknownReason.UNREACHABLE: Reason.CASSANDRA_UNREACHABLE,
        UnknownReason.DENIED: Reason.CASSANDRA_CREDENTIALS_REJECTED,
        UnknownReason.REJECTED: Reason.CASSANDRA_REJECTED,
    }[fence.reason]
    return not_observable(context, reason, fence, what="The checkpoint in Cassandra cannot be read")


def fence_is_owned_elsewhere(context: Context) -> Outcome | None:
    """A row of another Kubernetes cluster is taken over only when a person says from whom, and at which epoch.

    The epoch makes the word good for one takeover: left on two objects, it would let them take turns without end.
    """
    row = _row(context)
    if row is None:
        return None
    cluster = row.owner.partition("/")[0]
    if cluster == context.config.cluster_uid:
        return None
    key, asked, needed = context.pipeline.key, context.pipeline.annotations.get(ADOPT_ANNOTATION), _handover(row)
    if asked == needed:
        return None
    spent = f"; the annotation {ADOPT_ANNOTATION}={asked} is not about this owner and epoch" if asked else ""
    return stalled(
        context,
        Reason.FENCE_OWNED_ELSEWHERE,
        f"The checkpoint {row.pipeline} belongs to a pipeline of another Kubernetes cluster ({cluster}){spent}",
        remedy=f"delete that pipeline, then run: kubectl annotate streamingpipeline {key.name} "
        f"--namespace {key.namespace} --overwrite {ADOPT_ANNOTATION}={needed}; "
        "or give this operator a scope of its own",
    )


def _handover(row: FenceRow) -> str:
    """Return the annotation's value that allows to adopt a row as it stands."""
    return f"{row.owner.partition('/')[0]}@{row.epoch}"


def fence_is_lost(context: Context) -> Outcome | None:
    """A row that was there and is not, or is behind what was seen, means that progress is lost: a person decides."""
    row, epoch = _row(context), context.status.epoch
    if not epoch or (row is not None and row.epoch >= epoch):
        return None
    remedy = (
        "restore it from a backup; or, to begin at source.kafka.startingOffsets, "
        "delete the pipeline with its row and create it again"
    )
    if row is None:
        return stalled(
            context, Reason.FENCE_LOST, f"The checkpoint's row is gone; it was at epoch {epoch}", remedy=remedy
        )
    return stalled(
        context,
        Reason.FENCE_ROLLED_BACK,
        f"The checkpoint's row is at epoch {row.epoch}, but epoch {epoch} was there already",
        remedy=remedy,
    )


def fence_is_missing(context: Context) -> Outcome | None:
    """The first row is made by the operator, never by a driver."""
    if _row(context) is not None:
        return None
    return waiting(
        context,
        Reason.PROVISIONING,
        "Creating the checkpoint",
        state=State.PROVISIONING,
        action=CreateFence(owner=context.owner),
    )


def _row(context: Context) -> FenceRow | None:
    fence = context.observation.fence
    return None if isinstance(fence, Unknown) else fence.value
