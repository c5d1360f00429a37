"""Driver Jobs and their pods."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from fencepost.contract import Verdict
from fencepost_operator.actions import Manifest
from fencepost_operator.adapters import pods
from fencepost_operator.adapters.api_server import JOBS, NODES, PODS, AlreadyExists, ApiServer, Json
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels, names
from fencepost_operator.errors import PortError
from fencepost_operator.observation import DriverPod, NodeState, PodIssue, Run
from fencepost_operator.ports import Clock

_CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
_REFUSALS: Final = frozenset({"FailedCreate"})
_PROMPT: Final = timedelta(seconds=3)
"""A Job without a pod for longer than this may have been refused one."""
_REMEMBERED: Final = 10_000
"""Pods that ended, of which the newest are remembered until their runs are settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesRuns:
    """Implements the Runs port."""

    api: ApiServer
    clock: Clock
    _terminated: dict[str, None] = field(default_factory=dict)

    async def list(self, key: ObjectKey, uid: str) -> tuple[Run, ...]:
        """Return the pipeline's Jobs, oldest epoch first; a Job by another name or owner is none of ours."""
        marks = f"{labels.PIPELINE}={key.name}"
        found, drivers = await asyncio.gather(
            self.api.list(JOBS, namespace=key.namespace, labels=marks),
            self.api.list(PODS, namespace=key.namespace, labels=f"{marks},{labels.COMPONENT}={labels.DRIVER}"),
        )
        jobs = {epoch: job for job in found if (epoch := _epoch(key, job)) is not None and uid in pods.owner_uids(job)}
        present = {job["metadata"]["uid"] for job in found}
        left = _by_epoch(pod for pod in drivers if _job_uid(pod) not in present and pods.may_live(pod))
        runs = [self._run(job, epoch, _pods_of(job, drivers)) for epoch, job in jobs.items()]
        runs += [self._run_without_job(key, epoch, members) for epoch, members in left.items() if epoch not in jobs]
        return tuple(sorted(await asyncio.gather(*runs), key=lambda run: run.epoch))

    async def start(self, key: ObjectKey, job: Manifest) -> None:
        """Create the Job; nothing to do when one of that name exists."""
        try:
            await self.api.create(JOBS, namespace=key.namespace, body=job)
        except AlreadyExists:
            return

    async def stop(self, key: ObjectKey, name: str) -> None:
        """Delete the Job in the foreground; nothing to do when it is gone."""
        await self.api.delete(JOBS, namespace=key.namespace, name=name, propagation="Foreground")

    def note_pod(self, pod: Mapping[str, Any]) -> None:
        """Remember what a watch event says of a driver pod: between two passes, a pod may end and be gone."""
        if _driver_has_terminated(pod):
            self._terminated[pod["metadata"]["uid"]] = None
            while len(self._terminated) > _REMEMBERED:
                del self._terminated[next(iter(self._terminated))]

    def saw_termination(self, pod_uid: str) -> bool:
        """Return whether a watch event showed that the driver's container in this pod terminated."""
        return pod_uid in self._terminated

    async def node(self, name: str) -> NodeState:
        """Return the uid and readiness of a node; uid None when it is gone."""
        found = await self.api.get(NODES, name=name)
        if found is None:
            return NodeState(name=name, uid=None, ready=False)
        return NodeState(name=name, uid=found["metadata"]["uid"], ready=pods.is_true(found, "Ready"))

    async def _run(self, job: Json, epoch: int, members: Sequence[Json]) -> Run:
        metadata, created = job["metadata"], _created(job)
        finished = pods.is_true(job, "Complete") or pods.is_true(job, "Failed")
        trouble: PodIssue | None = None
        if not members and not finished and self.clock.now() - created > _PROMPT:
            trouble = await pods.newest_warning(self.api, job, _REFUSALS)
        return Run(
            name=metadata["name"],
            epoch=epoch,
            spec_hash=_note(job, labels.SPEC_HASH),
            cluster_generation=_generation(job),
            created_at=created,
            deleting="deletionTimestamp" in metadata,
            finished=finished,
            pod=await self._driver(max(members, key=_by_liveness)) if members else None,
            trouble=trouble,
        )

    async def _run_without_job(self, key: ObjectKey, epoch: int, members: Sequence[Json]) -> Run:
        """Return a run of which only pods are left; their Job may have been deleted in the background."""
        pod = max(members, key=_by_liveness)
        driver = await self._driver(pod)
        return Run(
            name=names.job_name(key.name, epoch),
            epoch=epoch,
            spec_hash=_note(pod, labels.SPEC_HASH),
            cluster_generation=_generation(pod),
            created_at=_created(pod),
            deleting=True,
            finished=False,
            pod=driver,
            # The garbage collector deletes a pod whose owner is gone, and takes the owner off one that is to stay.
            orphaned=driver.deleting_since is None and not pods.owner_uids(pod),
        )

    async def _driver(self, pod: Json) -> DriverPod:
        metadata, status = pod["metadata"], pod.get("status") or {}
        container: Json = next(iter(status.get("containerStatuses") or []), {})
        state = container.get("state") or {}
        ended = state.get("terminated") or {}
        node = None if ended else await self._node_of(pod)
        return DriverPod(
            name=metadata["name"],
            uid=metadata["uid"],
            phase=status.get("phase", "Pending"),
            node=pod["spec"].get("nodeName"),
            node_uid=node.uid if node else None,
            node_ready=node.ready if node else None,
            started_at=pods.instant((state.get("running") or ended).get("startedAt")),
            deleting_since=pods.instant(metadata.get("deletionTimestamp")),
            exit_code=ended.get("exitCode"),
            termination_reason=ended.get("reason") or (status.get("reason") if not state.get("running") else None),
            finished_at=pods.instant(ended.get("finishedAt")),
            verdict=Verdict.from_json(ended["message"]) if ended.get("message") else None,
            trouble=await pods.find_issue(self.api, pod, self.clock.now()),
        )

    async def _node_of(self, pod: Json) -> NodeState | None:
        """Return the node of a pod whose end nobody saw; None when it has none or that is not known."""
        name = pod["spec"].get("nodeName")
        if not name:
            return None
        try:
            return await self.node(name)
        except PortError:
            return None


def _driver_has_terminated(pod: Mapping[str, Any]) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any("terminated" in (status.get("state") or {}) for status in statuses if status["name"] == labels.DRIVER)


def _epoch(key: ObjectKey, job: Json) -> int | None:
    match = re.fullmatch(re.escape(key.name) + r"-run-(0|[1-9]\d*)", job["metadata"]["name"])
    return int(match[1]) if match else None


def _by_epoch(members: Iterable[Json]) -> Mapping[int, Sequence[Json]]:
    """Return pods by the epoch that their label names."""
    found: dict[int, list[Json]] = {}
    for pod in members:
        text = pod["metadata"].get("labels", {}).get(labels.EPOCH, "")
        if text.isdecimal():
            found.setdefault(int(text), []).append(pod)
    return found


def _pods_of(job: Json, members: Iterable[Json]) -> Sequence[Json]:
    """Return the pods of a Job by their label: an orphan loses its owner before the Job is gone, and lives."""
    return [pod for pod in members if _job_uid(pod) == job["metadata"]["uid"]]


def _job_uid(pod: Json) -> str:
    return _note(pod, _CONTROLLER_UID)


def _created(found: Json) -> datetime:
    created = pods.instant(found["metadata"]["creationTimestamp"])
    assert created is not None  # noqa: S101 - the API server sets it on every object
    return created


def _note(found: Json, name: str) -> str:
    """Return what an annotation or a label says, '' when there is none."""
    metadata = found["metadata"]
    text: str = {**metadata.get("labels", {}), **metadata.get("annotations", {})}.get(name, "")
    return text


def _generation(found: Json) -> int:
    text = _note(found, labels.GENERATION)
    return int(text) if text.isdecimal() else 0


def _by_liveness(pod: Json) -> tuple[bool, str]:
    """Order pods so that the one that may still run is last, the newest among equals."""
    return pods.may_live(pod), pod["metadata"].get("creationTimestamp", "")
