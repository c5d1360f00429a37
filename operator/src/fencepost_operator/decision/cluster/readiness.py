"""Which Spark cluster should exist, and whether it does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from fencepost_operator.api import ClusterStatus, Reason
from fencepost_operator.decision.cluster.silent_nodes import has_lost_its_nodes, nodes_to_avoid
from fencepost_operator.decision.cluster.spark_master import is_another_master
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.run.handoff import standby_of
from fencepost_operator.decision.run.liveness import may_have_a_driver
from fencepost_operator.desired import labels, names
from fencepost_operator.desired.cluster.cluster_values import cluster_values
from fencepost_operator.observation import NODE_LOST, Known, PodIssue, ReleaseState, Unknown

VOLUME_ELSEWHERE: Final = ("volume node affinity conflict", "PersistentVolume's node affinity")
"""What the scheduler says of a volume that no node can reach which takes pods; the second since Kubernetes 1.33."""
DEAF: Final = 2
"""Runs in a row that do not reach the master, until the next one gets a new cluster."""
NO_ROOM: Final = "Insufficient "
"""What it says of a node that is full."""


def target_cluster(context: RunContext) -> ClusterStatus | None:
    """Return the cluster to record; None while it is unknown what exists.

    A new generation shares no name and no secret with the one before, so nothing of the old one can join it.  It is
    due for another configuration, after a driver that may still use the old one, and when lost nodes took its pods.
    """
    recorded, workers, config = context.status.cluster, context.spec.cluster.workers, context.desired.cluster
    if recorded is not None and recorded.config_hash == config and not _needs_new_generation(context, recorded):
        return replace(recorded, workers=workers)
    return next_cluster(context)


def next_cluster(context: RunContext) -> ClusterStatus | None:
    """Return a cluster of a generation that never existed; None while it is unknown what exists."""
    recorded, seen, objects = context.status.cluster, context.observation.cluster, context.observation.cluster_objects
    if isinstance(seen, Unknown):
        return None
    # A new object has no record of what the one before made: that had no more generations than epochs.
    before = recorded.generation if recorded else max(context.row.epoch - 1, 0)
    handoff, found = context.status.handoff, objects.value.found if isinstance(objects, Known) else ()
    beside = (handoff.cluster_generation if handoff is not None else 0, *(each.generation for each in found))
    newest = max(before, seen.value.generation if seen.value else 0, *beside)
    generation, name = newest + 1, context.pipeline.key.name
    return ClusterStatus(
        release=names.release_name(context.pipeline.key),
        generation=generation,
        config_hash=context.desired.cluster,
        requested_at=context.now,
        workers=context.spec.cluster.workers,
        selector=labels.worker_selector(name, generation),
        avoided_nodes=nodes_to_avoid(context),
    )


def _needs_new_generation(context: RunContext, recorded: ClusterStatus) -> bool:
    run = context.unconfirmed_run
    if run is not None and run.cluster_generation == recorded.generation:
        return True
    if context.active_run is not None:
        return False
    if _is_deaf(context, recorded):
        return True
    if _has_an_unseen_driver(context, recorded.generation) or _has_an_older_driver(context, recorded.generation):
        return True
    return _lost_its_pods(context, recorded) or has_lost_its_nodes(context, recorded.generation)


def _is_deaf(context: RunContext, recorded: ClusterStatus) -> bool:
    """Return whether run after run does not reach a master that is ready: what is wrong is not seen from outside."""
    run, failure = context.run, context.status.failure
    seen = context.observation.cluster_of(recorded.generation)
    if run is None or failure is None or run.cluster_generation != recorded.generation:
        return False
    if seen is None or not seen.master_ready or failure.epoch != run.epoch:
        return False
    return failure.reason is Reason.SPARK_UNREACHABLE and failure.count > 0 and failure.repeats % DEAF == 0


def _has_an_unseen_driver(context: RunContext, generation: int) -> bool:
    """Return whether the last run may have a driver that no list has shown.

    That no pod of it was ever seen proves nothing: the list may be older than the pod, or the request that creates the
    Job still on its way.  While its epoch lasts, the run is not over: its Job is created again.
    """
    run = context.run
    if run is None or run.cluster_generation != generation or run.pod_uid is not None:
        return False
    return run.dead or run.epoch < context.row.epoch


def _has_an_older_driver(context: RunContext, generation: int) -> bool:
    """Return whether a run before the last one may have a driver: a create that timed out may take effect much later.

    The one of the last run itself is stopped first: see `start.late_job_is_stopped`.
    """
    run = context.run
    older = (job for job in context.runs if run is not None and job.epoch < run.epoch)
    return any(job.cluster_generation == generation and may_have_a_driver(job) for job in older)


def _lost_its_pods(context: RunContext, recorded: ClusterStatus) -> bool:
    """Return whether a pod that nothing replaces elsewhere leaves the cluster without master or workers.

    Pods of the next generation are not on a lost node, so whatever else keeps them from getting ready (a slow pull, no
    room) causes no further generation.
    """
    if has_lost_its_master(context, recorded):
        return True
    seen = context.observation.cluster_of(recorded.generation)
    if seen is None or (seen.master_ready and seen.ready_workers):
        return False
    return any(issue.reason == NODE_LOST for issue in seen.issues)


def has_lost_its_master(context: RunContext, recorded: ClusterStatus) -> bool:
    """Return whether a cluster's master is gone, and no successor knows the applications and workers."""
    return stranded_master(context, recorded) is not None or has_another_master(context, recorded.generation)


def stranded_master(context: RunContext, recorded: ClusterStatus) -> PodIssue | None:
    """Return why a cluster's master starts nowhere: its volume is on a node that takes no pods.

    That is so after a drain.  A new master needs nothing of the old volume.  Once for each cluster: where the volume of
    one that never got ready is in the wrong place, so is the next one's.  A node without room may get some.
    """
    if recorded.ready_at is None:
        return None
    seen = context.observation.cluster_of(recorded.generation)
    if seen is None or seen.master_ready:
        return None
    return next((issue for issue in seen.issues if _is_tied_to_a_node(issue)), None)


def _is_tied_to_a_node(issue: PodIssue) -> bool:
    if issue.reason != "Unschedulable" or NO_ROOM in issue.message:
        return False
    return any(text in issue.message for text in VOLUME_ELSEWHERE)


def has_another_master(context: RunContext, generation: int) -> bool:
    """Return whether the master of a generation is not the one that the newest run started with.

    Workers look for it again after 5 to 15 s, and less and less often; a new cluster is there sooner.
    """
    run, seen = context.run, context.observation.cluster_of(generation)
    if run is None or run.cluster_generation != generation:
        return False
    return seen is not None and is_another_master(run, seen)


def is_up_to_date(context: RunContext, target: ClusterStatus) -> bool:
    """Return whether nothing that is known differs from the target, so that there is nothing to apply now.

    What is unknown counts as equal here, but not for Ready: see `rollout.is_rolled_out`.
    """
    recorded, observation = context.status.cluster, context.observation
    if recorded is None or (recorded.generation, recorded.workers) != (target.generation, target.workers):
        return False
    standby = standby_of(context.status)  # while there is one, the release is that of its cluster
    is_of_release = standby is None or standby.cluster_generation == target.generation
    is_deployed = not isinstance(observation.release, Known) or observation.release.value is ReleaseState.DEPLOYED
    if is_of_release and not is_deployed:
        return False
    if not isinstance(observation.cluster, Known):
        return True
    seen = observation.cluster.value
    return seen is not None and (seen.generation, seen.config_hash, seen.workers) == (
        target.generation,
        target.config_hash,
        target.workers,
    )


def damage(context: RunContext) -> tuple[str, ...]:
    """Return which objects of the cluster were deleted or changed, as far as known."""
    found = context.observation.cluster_objects
    return found.value.damage if isinstance(found, Known) else ()


def values(context: RunContext, target: ClusterStatus) -> dict[str, Any]:
    """Return the chart's values for a cluster."""
    return cluster_values(
        pipeline=context.pipeline,
        spec=context.spec,
        references=context.references.hashes,
        generation=target.generation,
        scope=context.config.scope,
        cluster_domain=context.config.cluster_domain,
        config_hash=target.config_hash,
        avoided_nodes=target.avoided_nodes,
    )
