"""Driver Jobs and their pods."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from fencepost.contract import Verdict, last_lines
from fencepost.contract.verdict import LONGEST_LINE
from fencepost_operator.actions import Manifest
from fencepost_operator.adapters.kubernetes import pods
from fencepost_operator.adapters.kubernetes.api_server import (
    CONFIG_MAPS,
    JOBS,
    METADATA_ONLY,
    NODES,
    PODS,
    AlreadyExists,
    ApiServer,
    Json,
)
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.warning_events import NamespaceWarnings
from fencepost_operator.adapters.recent_answers import RecentAnswers
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels, names
from fencepost_operator.errors import Conflict, PortError, Rejected
from fencepost_operator.masking import masked
from fencepost_operator.observation import DEFAULT_GRACE, DriverPod, NodeState, PodIssue, Run, RunList
from fencepost_operator.ports import Clock
from fencepost_operator.text import single_line

_CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
_HASH: Final = re.compile(r"[0-9A-Za-z:.]{1,64}")
_LONGEST_GRACE: Final = 3600
"""Seconds; the CRD's maximum."""
_PROMPT: Final = timedelta(seconds=3)
"""A Job without a pod for longer than this may have been refused one."""
_KUBELETS_TAIL: Final = 2048
"""Bytes of a log that the kubelet keeps of a container without a termination message; its cut ignores lines."""
_NODE_HOLDS: Final = 2.0
"""Seconds for which the state of a node stands for all pods on it that have not ended.

A Node has tens of KiB, and Kubernetes takes 40 s to call one unreachable.  A node that is to prove an end is read then.
"""
_REMEMBERED: Final = 10_000
"""Pods that ended, of which the newest are remembered until their runs are settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesRuns:
    """Implements the Runs port."""

    api: ApiServer
    clock: Clock
    kubelets: Kubelets
    monotonic: Callable[[], float] = time.monotonic
    _nodes: RecentAnswers[str, NodeState] = field(init=False)
    _terminated: dict[str, int] = field(default_factory=dict)
    """By the uid of a pod, the resourceVersion with which its end was first seen."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_nodes", RecentAnswers(self.monotonic))

    async def list(self, key: ObjectKey, uid: str) -> RunList:
        """Return the pipeline's Jobs, oldest epoch first; Jobs with another name or owner are left out."""
        marks = f"{labels.PIPELINE}={key.name}"
        found, (drivers, version) = await asyncio.gather(
            self.api.list(JOBS, namespace=key.namespace, labels=marks),
            self.api.versioned_list(
                PODS, namespace=key.namespace, labels=f"{marks},{labels.COMPONENT}={labels.DRIVER}"
            ),
        )
        jobs = {epoch: job for job in found if (epoch := _epoch(key, job)) is not None and uid in pods.owner_uids(job)}
        for pod in drivers:  # one that outlived its Job and has ended is not a run any more, and proves the end of one
            self.note_pod(pod)
        present = {job["metadata"]["uid"] for job in found}
        left = _by_epoch(pod for pod in drivers if _job_uid(pod) not in present and pods.may_live(pod))
        warnings = NamespaceWarnings(self.api, key.namespace)
        runs = [self._run(warnings, job, epoch, _pods_of(job, drivers)) for epoch, job in jobs.items()]
        runs += [
            self._run_without_job(warnings, key, epoch, members) for epoch, members in left.items() if epoch not in jobs
        ]
        listed = sorted(await asyncio.gather(*runs), key=lambda run: run.epoch)
        return RunList(runs=tuple(listed), version=pods.integer(version) or 0)

    async def start(self, key: ObjectKey, job: Manifest, config_map: Manifest | None = None) -> None:
        """Create the ConfigMap that the Job mounts, then the Job; nothing to do when these very objects exist.

        Raises Rejected when an object of that name has another owner, or is ours and of another spec.
        """
        if config_map is not None:
            await self._create_config(key, config_map)
        try:
            await self.api.create(JOBS, namespace=key.namespace, body=job)
        except AlreadyExists as error:
            name = job["metadata"]["name"]
            selector = f"metadata.name={name}"
            found = await self.api.list(JOBS, namespace=key.namespace, fields=selector, accept=METADATA_ONLY)
            if not found:
                raise Conflict(f"Job {name} existed a moment ago and is gone") from error
            _refuse_another_job(key, job, found[0])

    async def stop(self, key: ObjectKey, name: str) -> None:
        """Delete the run's ConfigMap, and its Job in the foreground; nothing to do when they are gone."""
        # The ConfigMap first: a driver has read it at its start, and a Job that is left brings us here again.
        config_map = await self.api.get(CONFIG_MAPS, namespace=key.namespace, name=name)
        if config_map is not None and _note(config_map, labels.COMPONENT) == labels.DRIVER:
            uid = config_map["metadata"]["uid"]
            await self.api.delete(CONFIG_MAPS, namespace=key.namespace, name=name, uid=uid)
        await self.api.delete(JOBS, namespace=key.namespace, name=name, propagation="Foreground")

    def note_pod(self, pod: Mapping[str, Any]) -> None:
        """Remember what a watch event or a list says of a driver pod: between two passes, a pod may end and be gone."""
        version = pods.integer(pod["metadata"].get("resourceVersion", ""))
        if version is not None and _driver_has_terminated(pod):
            self._terminated.setdefault(pod["metadata"]["uid"], version)
            while len(self._terminated) > _REMEMBERED:
                del self._terminated[next(iter(self._terminated))]

    def terminated_by(self, pod_uid: str, version: int) -> bool:
        """Return whether the driver's container in this pod was seen to have terminated by a version of a list.

        Kubernetes orders the resourceVersions of one kind as integers (KEP-5504).
        """
        return self._terminated.get(pod_uid, version + 1) <= version

    async def node(self, name: str) -> NodeState:
        """Return the uid and readiness of a node as they are now; uid None when it is gone."""
        asked_at = self.monotonic()
        state = _node_state(name, await self.api.get(NODES, name=name))
        self._nodes.keep(name, state, asked_at)
        return state

    async def silent_nodes(self, names: Collection[str]) -> frozenset[str]:
        """Return those of the nodes whose kubelet has not reported for some time, at each of several looks."""
        return await self.kubelets.silent(names)

    async def run_of(self, key: ObjectKey, job: Json, members: Sequence[Json]) -> Run:
        """Return another Job, with its pods, as a run of epoch 0."""
        return await self._run(NamespaceWarnings(self.api, key.namespace), job, 0, members)

    async def _create_config(self, key: ObjectKey, wanted: Manifest) -> None:
        """Create the ConfigMap; one of ours that a stopped operator left for this epoch is replaced.

        Raises Rejected when the existing one has another owner or cannot be deleted.
        """
        name = wanted["metadata"]["name"]
        for _ in range(2):
            try:
                await self.api.create(CONFIG_MAPS, namespace=key.namespace, body=wanted)
                return
            except AlreadyExists:
                found = await self.api.get(CONFIG_MAPS, namespace=key.namespace, name=name)
            if found is None:
                continue
            pods.refuse_another_owner(wanted, found)
            _refuse_a_kept_config(key, found)
            if found.get("data") == wanted["data"]:
                return
            await self.api.delete(CONFIG_MAPS, namespace=key.namespace, name=name, uid=found["metadata"]["uid"])
        raise Conflict(f"ConfigMap {name} changes while it is created")

    async def _run(self, warnings: NamespaceWarnings, job: Json, epoch: int, members: Sequence[Json]) -> Run:
        metadata, created = job["metadata"], _created(job)
        finished = pods.is_true(job, "Complete") or pods.is_true(job, "Failed")
        issue: PodIssue | None = None
        if not members and not finished and self.clock.now() - created > _PROMPT:
            issue = await pods.newest_warning(warnings, job, pods.REFUSALS)
        return Run(
            name=metadata["name"],
            epoch=epoch,
            spec_hash=_spec_hash(job),
            cluster_generation=_generation(job),
            created_at=created,
            deleting="deletionTimestamp" in metadata,
            finished=finished,
            pod=await self._driver(warnings, max(members, key=_by_liveness)) if members else None,
            issue=issue,
            termination_grace=_grace((job.get("spec") or {}).get("template") or {}),
            had_pod=bool(members) or _counts_a_pod(job),
        )

    async def _run_without_job(
        self, warnings: NamespaceWarnings, key: ObjectKey, epoch: int, members: Sequence[Json]
    ) -> Run:
        """Return a run of which only pods are left; their Job may have been deleted in the background."""
        pod = max(members, key=_by_liveness)
        driver = await self._driver(warnings, pod)
        return Run(
            name=names.job_name(key.name, epoch),
            epoch=epoch,
            spec_hash=_spec_hash(pod),
            cluster_generation=_generation(pod),
            created_at=_created(pod),
            deleting=True,
            finished=False,
            pod=driver,
            # The garbage collector deletes a pod whose owner is gone, and takes the owner off one that is to stay.
            orphaned=driver.deleting_since is None and not pods.owner_uids(pod),
            termination_grace=_grace(pod),
            had_pod=True,
        )

    async def _driver(self, warnings: NamespaceWarnings, pod: Json) -> DriverPod:
        metadata, status = pod["metadata"], pod.get("status") or {}
        state = _driver_container(status).get("state") or {}
        ended = state.get("terminated") or {}
        reason = ended.get("reason") or (status.get("reason") if not state.get("running") else None)
        node = None if ended else await self._node_of(pod)
        verdict, (disruption, why) = _verdict(ended), pods.disruption(pod)
        return DriverPod(
            name=metadata["name"],
            uid=metadata["uid"],
            phase=status.get("phase", "Pending"),
            node=pod["spec"].get("nodeName"),
            node_uid=node.uid if node else None,
            node_ready=node.ready if node else None,
            node_ready_since=node.ready_since if node else None,
            started_at=pods.instant((state.get("running") or ended).get("startedAt")),
            deleting_since=pods.instant(metadata.get("deletionTimestamp")),
            force_deleted=not ended and pods.may_live(pod) and _is_force_deleted(pod),
            exit_code=ended.get("exitCode"),
            termination_reason=single_line(reason, limit=64) or None,
            finished_at=pods.instant(ended.get("finishedAt")),
            verdict=verdict,
            log=_log(ended, verdict),
            disruption=disruption,
            disruption_message=why,
            issue=await pods.find_issue(warnings, pod, self.clock.now()),
            ready=pods.is_true(pod, "Ready"),
        )

    async def _node_of(self, pod: Json) -> NodeState | None:
        """Return the node of a pod whose end was not observed; None without one, or when it is not known."""
        name = pod["spec"].get("nodeName")
        if not name:
            return None
        try:
            known = self._nodes.find(name, _NODE_HOLDS) if pods.may_live(pod) else None
            return known or await self.node(name)
        except PortError:
            return None


def _node_state(name: str, found: Json | None) -> NodeState:
    if found is None:
        return NodeState(name=name, uid=None, ready=False)
    ready = pods.condition(found, "Ready") or {}
    return NodeState(
        name=name,
        uid=found["metadata"]["uid"],
        ready=pods.is_true(found, "Ready"),
        ready_since=pods.instant(ready.get("lastTransitionTime")),
    )


def _driver_has_terminated(pod: Mapping[str, Any]) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any("terminated" in (status.get("state") or {}) for status in statuses if status["name"] == labels.DRIVER)


def _refuse_another_job(key: ObjectKey, wanted: Manifest, found: Json) -> None:
    """Raise Rejected unless the Job that exists is the one that is wanted: same owner, epoch, spec and cluster."""
    pods.refuse_another_owner(wanted, found)
    name, marks = wanted["metadata"]["name"], (labels.EPOCH, labels.SPEC_HASH, labels.GENERATION)
    if any(_note(found, mark) != _note(wanted, mark) for mark in marks):
        raise Rejected(
            f"Job {key.namespace}/{name} exists and was created for another spec or another Spark cluster",
            remedy="wait: the operator stops that Job and starts a new one under the next epoch",
        )


def _epoch(key: ObjectKey, job: Json) -> int | None:
    name, prefix = job["metadata"]["name"], names.job_name(key.name, 0).removesuffix("0")
    return pods.integer(name.removeprefix(prefix)) if name.startswith(prefix) else None


def _by_epoch(members: Iterable[Json]) -> Mapping[int, Sequence[Json]]:
    """Return pods by the epoch that their label names."""
    found: dict[int, list[Json]] = {}
    for pod in members:
        epoch = pods.integer(pod["metadata"].get("labels", {}).get(labels.EPOCH, ""))
        if epoch is not None:
            found.setdefault(epoch, []).append(pod)
    return found


def _pods_of(job: Json, members: Iterable[Json]) -> Sequence[Json]:
    """Return the pods of a Job by their label: an orphan loses its owner before the Job is gone, and lives."""
    return [pod for pod in members if _job_uid(pod) == job["metadata"]["uid"]]


def _refuse_a_kept_config(key: ObjectKey, found: Json) -> None:
    """Raise Rejected when a finalizer keeps a deleted ConfigMap: waiting for its end may take forever."""
    metadata = found["metadata"]
    if "deletionTimestamp" not in metadata or not metadata.get("finalizers"):
        return
    raise Rejected(
        f"ConfigMap {key.namespace}/{metadata['name']} is being deleted, and finalizers keep it: "
        f"{', '.join(metadata['finalizers'])}",
        remedy=f"find out who added them, then run: kubectl patch configmap {metadata['name']}"
        f' --namespace {key.namespace} --type merge --patch \'{{"metadata":{{"finalizers":null}}}}\'',
    )


def _job_uid(pod: Json) -> str:
    return _note(pod, _CONTROLLER_UID)


def _created(found: Json) -> datetime:
    created = pods.instant(found["metadata"]["creationTimestamp"])
    assert created is not None  # noqa: S101 - the API server sets it on every object
    return created


def _note(found: Mapping[str, Any], name: str) -> str:
    """Return the value of an annotation or a label, '' without one."""
    metadata = found["metadata"]
    text: str = {**metadata.get("labels", {}), **metadata.get("annotations", {})}.get(name, "")
    return text


def _generation(found: Json) -> int:
    return pods.integer(_note(found, labels.GENERATION)) or 0


def _spec_hash(found: Json) -> str:
    """Return the hash that the operator noted, '' when something else stands there."""
    text = _note(found, labels.SPEC_HASH)
    return text if _HASH.fullmatch(text) else ""


def _grace(holder: Json) -> int:
    """Return the termination grace period of a pod or a pod template, in seconds, as far as the CRD allows it.

    A tenant may create a pod with any: it is neither waited for that long, nor added to a time that it overflows.
    """
    found: int | None = (holder.get("spec") or {}).get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE if found is None else min(max(found, 0), _LONGEST_GRACE)


def _counts_a_pod(job: Json) -> bool:
    """Return whether the Job controller has counted a pod, which may be gone by now."""
    status = job.get("status") or {}
    uncounted = status.get("uncountedTerminatedPods") or {}
    return any(status.get(part) for part in ("active", "succeeded", "failed", "terminating")) or any(uncounted.values())


def _is_force_deleted(pod: Json) -> bool:
    """Return whether a pod that a node has was deleted without waiting for its end.

    The kubelet deletes a pod in that way as well, after its containers have terminated.
    """
    metadata = pod["metadata"]
    placed = bool(pod["spec"].get("nodeName"))
    return placed and "deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds") == 0


def _driver_container(status: Json) -> Json:
    """Return the status of the driver's container; admission may have added others."""
    found: list[Json] = status.get("containerStatuses") or []
    named = (container for container in found if container.get("name") == labels.DRIVER)
    return next(named, found[0] if found else {})


def _verdict(ended: Json) -> Verdict | None:
    """Return the driver's verdict, its texts on one line: the author's code can write anything there."""
    reported = Verdict.from_json(ended.get("message") or "")
    if reported is None:
        return None
    return replace(
        reported,
        exit_code=ended["exitCode"],
        message=single_line(reported.message),
        remedy=single_line(reported.remedy, limit=512),
        log=tuple(single_line(line, limit=LONGEST_LINE) for line in reported.log),
    )


def _log(ended: Json, verdict: Verdict | None) -> tuple[str, ...]:
    """Return the last lines of the log: the kubelet keeps them where the driver wrote no verdict.

    These lines are not masked: only the driver masks its own log, because it knows its secrets.
    """
    if verdict is not None:
        return verdict.log
    text: str = ended.get("message") or ""
    if len(text.encode(errors="replace")) >= _KUBELETS_TAIL and "\n" in text:
        text = text.partition("\n")[2]  # what is left of the first line may begin inside a secret
    return last_lines(single_line(line, limit=LONGEST_LINE) for line in masked(text).splitlines())


def _by_liveness(pod: Json) -> tuple[bool, str]:
    """Order pods so that the one that may still run is last, the newest among equals.

    The phase follows seconds after the end of the container; until then the second pod of a Job would hide the first.
    """
    ended = "terminated" in (_driver_container(pod.get("status") or {}).get("state") or {})
    return pods.may_live(pod) and not ended, pod["metadata"].get("creationTimestamp", "")
