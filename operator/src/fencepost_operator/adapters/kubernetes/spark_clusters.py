"""The Spark cluster of a pipeline as it exists: its StatefulSets and their pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from fencepost_operator.adapters.kubernetes import pods
from fencepost_operator.adapters.kubernetes.api_server import PODS, STATEFUL_SETS, ApiServer, Json
from fencepost_operator.adapters.kubernetes.warning_events import NamespaceWarnings
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.observation import PodIssue, SparkCluster

_MASTER: Final = "master"


async def spark_cluster(api: ApiServer, key: ObjectKey, now: datetime) -> SparkCluster | None:
    """Return the cluster of the newest generation, with the older ones, or None when no StatefulSet is there."""
    selector = f"{labels.PIPELINE}={key.name},{labels.COMPONENT} in ({_MASTER},{labels.WORKER})"
    sets, members = await asyncio.gather(
        api.list(STATEFUL_SETS, namespace=key.namespace, labels=selector),
        api.list(PODS, namespace=key.namespace, labels=selector),
    )
    generations = sorted({generation_of(found) for found in sets}, reverse=True)
    warnings = NamespaceWarnings(api, key.namespace)
    found = [await _of_generation(each, sets, members, warnings, now) for each in generations]
    return replace(found[0], others=tuple(found[1:])) if found else None


async def _of_generation(
    generation: int, sets: list[Json], members: list[Json], warnings: NamespaceWarnings, now: datetime
) -> SparkCluster:
    current = {_component(found): found for found in sets if generation_of(found) == generation}
    mine = [pod for pod in members if generation_of(pod) == generation]
    master, worker = current.get(_MASTER), current.get(labels.WORKER)
    newest = worker or master
    master_ready = master is not None and any(_is_ready(pod, master) for pod in mine)
    forgets = next((pod["metadata"] for pod in mine if master and _forgets(pod, master)), None)
    return SparkCluster(
        generation=generation,
        config_hash=(newest or {}).get("metadata", {}).get("annotations", {}).get(labels.CONFIG_HASH, ""),
        workers=(worker or {}).get("spec", {}).get("replicas", 0),
        ready_workers=sum(_is_ready(pod, worker) for pod in mine) if worker else 0,
        master_ready=master_ready,
        master_runs=master is not None and any(_runs(pod, master) for pod in mine),
        master_uid=forgets["uid"] if forgets else None,
        master_created_at=datetime.fromisoformat(forgets["creationTimestamp"]) if forgets else None,
        master_node=next(iter(_nodes_of(mine, _MASTER)), None),
        worker_nodes=_nodes_of(mine, labels.WORKER),
        issues=await _issues(warnings, list(current.values()), mine, now, master_ready=master_ready),
        memory_kills=tuple(kill for pod in mine if (kill := pods.memory_kill(pod)) is not None),
    )


async def _issues(
    warnings: NamespaceWarnings, sets: list[Json], members: list[Json], now: datetime, *, master_ready: bool
) -> tuple[PodIssue, ...]:
    found = [
        await pods.find_issue(warnings, pod, now, may_wait=_component(pod) == labels.WORKER and not master_ready)
        for pod in members
    ]
    for stateful in sets:
        own = [pod for pod in members if stateful["metadata"]["uid"] in pods.owner_uids(pod)]
        if len(own) < stateful["spec"].get("replicas", 0):
            found.append(await pods.newest_warning(warnings, stateful, pods.REFUSALS))
    return tuple(issue for issue in found if issue is not None)


def without_status(metadata: Mapping[str, Any]) -> int:
    """Return a number that differs within a process after a change of a cluster's object, but for one of its status.

    A Service has no generation, and little of a status.  It is a hash: tenants decide how large annotations are.
    """
    version = metadata.get("generation") or metadata.get("resourceVersion")
    marks = [metadata.get(part) or {} for part in ("labels", "annotations")]
    return hash(json.dumps([metadata.get("uid"), version, metadata.get("deletionTimestamp"), *marks], sort_keys=True))


def generation_of(found: Json) -> int:
    """Return the generation that an object's label names, 0 without one."""
    return pods.integer(found["metadata"].get("labels", {}).get(labels.GENERATION, "")) or 0


def _nodes_of(members: Sequence[Json], component: str) -> frozenset[str]:
    """Return the nodes of a component's pods that have not ended."""
    placed = (pod["spec"].get("nodeName") for pod in members if _component(pod) == component and pods.may_live(pod))
    return frozenset(filter(None, placed))


def _forgets(pod: Json, master: Json) -> bool:
    """Return whether this is the master's pod, and its successor knows nothing of its applications."""
    volumes = pod["spec"].get("volumes") or []
    is_its = master["metadata"]["uid"] in pods.owner_uids(pod)
    return is_its and not any("persistentVolumeClaim" in volume for volume in volumes)


def _component(found: Json) -> str:
    component: str = found["metadata"].get("labels", {}).get(labels.COMPONENT, "")
    return component


def _is_ready(pod: Json, stateful: Json) -> bool:
    """Return whether a pod is ready, stays, and was made from the newest template of its StatefulSet."""
    return pods.is_true(pod, "Ready") and _stays(pod, stateful)


def _runs(pod: Json, stateful: Json) -> bool:
    """Return whether the containers of such a pod run, none of them for a second time."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    first = [not each.get("restartCount") and "running" in (each.get("state") or {}) for each in statuses]
    return bool(first) and all(first) and _stays(pod, stateful)


def _stays(pod: Json, stateful: Json) -> bool:
    metadata, status = pod["metadata"], stateful.get("status") or {}
    newest = metadata.get("labels", {}).get("controller-revision-hash") == status.get("updateRevision")
    settled = status.get("observedGeneration") == stateful["metadata"].get("generation")
    return (
        stateful["metadata"]["uid"] in pods.owner_uids(pod)
        and "deletionTimestamp" not in metadata
        and (newest or not settled)
    )
