"""Which Spark cluster should be there, and whether it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost_operator.api import ClusterStatus
from fencepost_operator.decision.context import Context
from fencepost_operator.desired import labels, names
from fencepost_operator.desired.cluster_values import cluster_values
from fencepost_operator.observation import NODE_LOST, Known, ReleaseState, Unknown


def desired_cluster(context: Context) -> ClusterStatus | None:
    """Return the cluster to record; None while it is not known what is there.

    A new generation shares no name and no secret with the one before, so nothing of the old one can join it: for
    another configuration, when a driver that may live on used the old one, and when lost nodes hold what it lacks.
    """
    recorded, seen = context.status.cluster, context.observation.cluster
    workers, config = context.spec.cluster.workers, context.desired.cluster
    if recorded is not None and recorded.config_hash == config and not _needs_new_generation(context, recorded):
        return replace(recorded, workers=workers)
    if isinstance(seen, Unknown):
        return None
    newest = max(recorded.generation if recorded else 0, seen.value.generation if seen.value else 0)
    generation, name = newest + 1, context.pipeline.key.name
    return ClusterStatus(
        release=names.release_name(context.pipeline.key),
        generation=generation,
        config_hash=config,
        requested_at=context.now,
        workers=workers,
        selector=labels.worker_selector(name, generation),
    )


def _needs_new_generation(context: Context, recorded: ClusterStatus) -> bool:
    run = context.unconfirmed_run
    if run is not None and run.cluster_generation == recorded.generation:
        return True
    return context.active_run is None and _lost_its_pods(context, recorded)


def _lost_its_pods(context: Context, recorded: ClusterStatus) -> bool:
    """Return whether a pod on a lost node, which nothing replaces, leaves the cluster without master or workers.

    Pods of the next generation are not on a lost node, so whatever else keeps them from getting ready (a slow pull, no
    room), it makes no further generation.
    """
    cluster = context.observation.cluster
    seen = cluster.value if isinstance(cluster, Known) else None
    if seen is None or seen.generation != recorded.generation or (seen.master_ready and seen.ready_workers):
        return False
    return any(trouble.reason == NODE_LOST for trouble in seen.issues)


def is_outdated_cluster(context: Context) -> bool:
    """Return whether what is known to be there is_outdated_cluster from what the status and the spec ask for."""
    recorded, observation = context.status.cluster, context.observation
    wanted = desired_cluster(context)
    if wanted is None:
        return False
    if recorded is None or (recorded.generation, recorded.workers) != (wanted.generation, wanted.workers):
        return True
    if isinstance(observation.release, Known):
        release = observation.release.value
        if release is None or release.state is not ReleaseState.DEPLOYED:
            return True
    if not isinstance(observation.cluster, Known):
        return False
    seen = observation.cluster.value
    return seen is None or (seen.generation, seen.config_hash, seen.workers) != (
        wanted.generation,
        wanted.config_hash,
        wanted.workers,
    )


def values(context: Context, wanted: ClusterStatus) -> dict[str, Any]:
    """Return the chart's values for a cluster."""
    references = context.observation.references
    return cluster_values(
        pipeline=context.pipeline,
        spec=context.spec,
        references=references.value.hashes if isinstance(references, Known) else {},
        generation=wanted.generation,
        cluster_domain=context.config.cluster_domain,
    )
