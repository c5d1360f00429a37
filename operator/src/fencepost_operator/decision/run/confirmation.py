"""When proof that a driver is dead is late, and a user's confirmation where Kubernetes cannot prove it.

Deleting the Node object does not confirm it: Kubernetes then deletes the node's pods whether they have ended or not.
"""

from __future__ import annotations

from datetime import timedelta

from fencepost_operator.api import CONFIRM_DEAD_ANNOTATION, RunStatus
from fencepost_operator.decision.context import Context, RunContext
from fencepost_operator.observation import DriverPod, Known


def is_confirmed(context: Context, run: RunStatus) -> bool:
    """Return whether a user has confirmed, for this very run, that its driver is dead."""
    return context.pipeline.annotations.get(CONFIRM_DEAD_ANNOTATION) == run.name


def proof_is_late(context: RunContext, run: RunStatus) -> bool:
    """Return whether the proof that a run is dead is overdue, or needs a user's action.

    Normally the proof comes within the grace period, and nothing is reported until then.
    """
    job, requested = context.job, context.observation.stop_measured_since or context.now
    pod = job.pod if job is not None else None
    if run.stop_requested_at is None or run.force_deleted or _orphan(context) is not None:
        return True
    if pod is not None and pod.node_ready is False:
        return True
    node = context.observation.run_node
    if pod is None and isinstance(node, Known):
        if not node.value.ready or node.value.uid != run.node_uid:
            return True
        # A node that was unreachable learns of it when it is back.
        requested = max(requested, context.observation.node_measured_since or requested)
    return context.now - requested > timedelta(seconds=(run.termination_grace or 0) + context.config.stop_margin)


def _orphan(context: RunContext) -> DriverPod | None:
    """Return the driver's pod if its Job is gone, and its node would end the pod once it is deleted."""
    job = context.job
    if job is None or not job.orphaned or job.pod is None:
        return None
    return job.pod if job.pod.deleting_since is None and job.pod.node_ready is not False else None


def how_to_prove(context: RunContext, run: RunStatus) -> str:
    """Return what a user does about a driver that may still live."""
    key = context.pipeline.key
    if orphan := _orphan(context):
        return (
            "its Job is gone and nothing ends its pod, so run: kubectl delete pod "
            f"{orphan.name} --namespace {key.namespace}"
        )
    return (
        "bring the node back; or make sure that its machine is off and run: kubectl annotate streamingpipeline "
        f"{key.name} --namespace {key.namespace} --overwrite {CONFIRM_DEAD_ANNOTATION}={run.name}"
    )
