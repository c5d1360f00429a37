"""Nodes that are silent before Kubernetes says so, and what stood on them.

Silence alone decides nothing: a kubelet may be slow where its pods work. It counts beside a run that commits nothing
although records wait for it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.api import Pipeline, Spec, Status, UnprovenDeath
from fencepost_operator.decision.context import RunContext
from fencepost_operator.observation import NODE_LOST, Fact, Known, PodIssue, Run, SparkCluster

LOOK_AFTER: Final = timedelta(seconds=5)
"""Without a commit although records wait: from then on it is worth a request to know whether the nodes report."""


def nodes_to_watch(
    pipeline: Pipeline, runs: Fact[tuple[Run, ...]], cluster: Fact[SparkCluster | None], now: datetime
) -> frozenset[str]:
    """Return the nodes of the recorded run and its cluster, while records wait and nothing is committed."""
    status, quiet = pipeline.status, quiet_since(pipeline.status)
    if not isinstance(pipeline.spec, Spec) or pipeline.deleting_since is not None or status.run is None:
        return frozenset()
    if quiet is None or now - quiet < LOOK_AFTER:
        return frozenset()
    found = {status.run.node_name}
    if isinstance(runs, Known):
        found |= {run.pod.node for run in runs.value if run.name == status.run.name and run.pod is not None}
    if isinstance(cluster, Known) and cluster.value is not None:
        found |= {cluster.value.master_node, *cluster.value.worker_nodes}
    return frozenset(filter(None, found))


def quiet_since(status: Status) -> datetime | None:
    """Return since when records wait and nothing is committed or done inside a batch, None while none waits."""
    committed = status.committed
    if committed is None or committed.since is None:
        return None
    return max(committed.since, committed.done_at or committed.since)


def silent_nodes(context: RunContext) -> frozenset[str]:
    """Return the nodes that are known to be silent."""
    fact = context.observation.silent_nodes
    return fact.value if isinstance(fact, Known) else frozenset()


def silent_node_issue(context: RunContext) -> PodIssue | None:
    """Return the pod of the active run that is on a silent node, if the run cannot commit without it.

    With onUnprovenDeath: wait, a driver on a silent node may continue: only Kubernetes cannot see it.
    """
    run, silent = context.active_run, silent_nodes(context)
    if run is None or not silent:
        return None
    waits = context.spec.restart.on_unproven_death is UnprovenDeath.WAIT
    if run.node_name in silent and not waits:
        return _issue(run.pod_name or run.name, str(run.node_name))
    cluster = context.observation.cluster_of(run.cluster_generation)
    if cluster is None:
        return None
    if cluster.worker_nodes and cluster.worker_nodes <= silent:
        return _issue("of each worker", ", ".join(sorted(cluster.worker_nodes)))
    if run.claimed_at is None and cluster.master_node in silent:
        return _issue("of the master", str(cluster.master_node))
    return None


def has_lost_its_nodes(context: RunContext, generation: int) -> bool:
    """Return whether the next run would find no master or no worker in a cluster, for all are on silent nodes.

    Nodes that the cluster avoids already do not count: another one would be no better off.
    """
    recorded, cluster = context.status.cluster, context.observation.cluster_of(generation)
    if cluster is None or recorded is None:
        return False
    silent = silent_nodes(context) - set(recorded.avoided_nodes)
    return bool(silent) and (
        cluster.master_node in silent or (bool(cluster.worker_nodes) and cluster.worker_nodes <= silent)
    )


def nodes_to_avoid(context: RunContext) -> tuple[str, ...]:
    """Return where the next cluster had better not be: on silent nodes, or else where a driver may still live."""
    if silent := silent_nodes(context):
        return tuple(sorted(silent))
    run = context.unconfirmed_run
    return (run.node_name,) if run is not None and run.node_name else ()


def _issue(pod: str, nodes: str) -> PodIssue:
    return PodIssue(pod=pod, reason=NODE_LOST, message=f"the kubelet of {nodes} does not renew its Lease")
