"""What the operator writes, each kind as it is seen from outside: by the API server's watch, or in the fence row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from campaign.world import NAME, World
from fencepost.fence import FenceError
from fencepost.fence.cassandra.errors import translated
from flights.sink import CassandraDownError
from harness.faults.schedule import NoTargetError
from harness.kubernetes.kubectl import Object
from harness.kubernetes.object_changes import Change, changes
from harness.pipelines import PIPELINE_LABEL
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE

MANAGER: Final = "fencepost-operator"
"""The operator's field manager and the source of its Events."""
LOOK_SECONDS: Final = 0.05
"""Between two looks at the fence row, which has no watch."""
_CRDS: Final = "/apis/streaming.fencepost.dev/v1beta1/namespaces/{namespace}"


def status_of_pipeline(world: World, seconds: float) -> None:
    """Return when the operator has written the pipeline's status. Raises NoTargetError after so many seconds."""
    _await(world, f"{_CRDS}/streamingpipelines", is_status, seconds)


def status_of_rewind(world: World, seconds: float) -> None:
    """Return when the operator has written a rewind's status. Raises NoTargetError after so many seconds."""
    _await(world, f"{_CRDS}/pipelinerewinds", is_status, seconds)


def job(world: World, seconds: float) -> None:
    """Return when the operator has created a Job. Raises NoTargetError after so many seconds."""
    _await(world, "/apis/batch/v1/namespaces/{namespace}/jobs", is_created, seconds)


def config_map(world: World, seconds: float) -> None:
    """Return when the operator has created a run's ConfigMap. Raises NoTargetError after so many seconds."""
    _await(world, "/api/v1/namespaces/{namespace}/configmaps", is_created, seconds)


def deletion(world: World, seconds: float) -> None:
    """Return when a run's Job is being deleted, also by another fault. Raises NoTargetError after so many seconds."""
    _await(world, "/apis/batch/v1/namespaces/{namespace}/jobs", is_deletion, seconds)


def event(world: World, seconds: float) -> None:
    """Return when the operator has written an Event. Raises NoTargetError after so many seconds."""
    _await(world, "/api/v1/namespaces/{namespace}/events", is_event, seconds)


def release(world: World, seconds: float) -> None:
    """Return when Helm has written a revision for the operator. Raises NoTargetError after so many seconds."""
    _await(world, f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets", is_revision, seconds)


def epoch(world: World, seconds: float) -> None:
    """Return when the operator has taken the fence row over. Raises NoTargetError after so many seconds."""
    table = f"{world.place.fences}.fence"
    query = f"SELECT epoch FROM {table} WHERE pipeline = %s"  # noqa: S608 - a name of ours
    deadline = time.monotonic() + seconds
    try:
        with world.cassandra() as opened, translated("looking at the epoch"):
            before = _epoch(opened, query, world.key)
            while _epoch(opened, query, world.key) == before:
                if time.monotonic() > deadline:
                    raise NoTargetError(f"no new epoch within {seconds:.0f} s")
                time.sleep(LOOK_SECONDS)
    except (CassandraDownError, FenceError) as error:
        raise NoTargetError(str(error)) from error


WRITES: Final[Mapping[str, Callable[[World, float], None]]] = {
    "a ConfigMap": config_map,
    "a Job": job,
    "a deletion": deletion,
    "a release": release,
    "a rewind's status": status_of_rewind,
    "an Event": event,
    "the fence row": epoch,
    "the status": status_of_pipeline,
}
"""A Lease is left out: it is written every few seconds and says nothing about a pipeline."""


def _await(world: World, path: str, wanted: Callable[[Change], bool], seconds: float) -> None:
    found = changes(world.kubectl, path.format(namespace=world.place.namespace), seconds=seconds)
    if not any(wanted(one) for one in found):
        raise NoTargetError(f"nothing of the kind was written within {seconds:.0f} s")


def _epoch(opened: Any, query: str, key: str) -> int | None:
    row = opened.execute(query, (key,)).one()
    return None if row is None else int(row.epoch)


def is_status(change: Change) -> bool:
    """Return whether a status changed: only the operator may write it."""
    return change.before is not None and change.before.get("status") != change.after.get("status")


def is_created(change: Change) -> bool:
    """Return whether the operator created an object of the pipeline's; other faults create copies."""
    managers = {one["manager"] for one in change.after["metadata"].get("managedFields", [])}
    return change.kind == "ADDED" and _is_ours(change.after) and MANAGER in managers


def is_deletion(change: Change) -> bool:
    """Return whether a deletion of an object of the pipeline's begins."""
    return _is_ours(change.after) and not _is_leaving(change.before) and _is_leaving(change.after)


def is_event(change: Change) -> bool:
    """Return whether it is an Event of the operator's, new or counted up."""
    return change.kind != "DELETED" and change.after.get("reportingComponent") == MANAGER


def is_revision(change: Change) -> bool:
    """Return whether it is a revision of the pipeline's release."""
    labels = change.after["metadata"].get("labels", {})
    return change.kind != "DELETED" and labels.get("owner") == "helm" and _is_ours(change.after)


def _is_ours(found: Object) -> bool:
    return bool(found["metadata"].get("labels", {}).get(PIPELINE_LABEL) == NAME)


def _is_leaving(found: Object | None) -> bool:
    return found is not None and "deletionTimestamp" in found["metadata"]
