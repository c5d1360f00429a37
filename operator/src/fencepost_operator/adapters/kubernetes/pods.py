"""The status of pods: readiness, issues, how a container ended.

Tenants write much of it (annotations, termination messages, Events), so text is shortened and made printable, and text
that is not a number is not read as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from fencepost_operator.actions import Manifest
from fencepost_operator.adapters.kubernetes.api_server import NODES, ApiServer, Json
from fencepost_operator.adapters.kubernetes.warning_events import NamespaceWarnings
from fencepost_operator.errors import PortError, Rejected
from fencepost_operator.masking import masked
from fencepost_operator.observation import NODE_LOST, MemoryKill, PodIssue
from fencepost_operator.text import single_line

_ON_THE_WAY: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Waiting reasons that alone are not an issue."""
_SLOW: Final = timedelta(seconds=20)
"""A container that is being created for longer than this may have a volume or a sandbox that cannot be made."""
_SILENT: Final = timedelta(seconds=15)
"""A node is lost when it is silent for this long after Kubernetes noticed, which takes another 40 s and more.

A kubelet reports again within seconds of the API server's or its machine's return.
"""
_OVERDUE: Final = timedelta(seconds=60)
"""A pod whose grace period ended this long ago is on a lost node; a busy kubelet takes long to remove one."""
_OVER: Final = frozenset({"Succeeded", "Failed"})
_KUBELETS_REASONS: Final = frozenset({"Evicted", "Preempting", "NodeShutdown", "Terminated", "NodeAffinity"})
"""Of the status of a pod that its kubelet ended or did not admit."""
_INTEGER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_INT64: Final = 2**63 - 1
_PROBING: Final = frozenset({"Unhealthy"})
_UNREADY: Final = timedelta(seconds=60)
"""A container that runs for longer than this and is not ready may fail its probe."""
REFUSALS: Final = frozenset({"FailedCreate"})
"""Warnings about a Job or a StatefulSet that gets no pod: quota, admission."""
_MOUNTING: Final = frozenset({"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"})


def instant(text: str | None) -> datetime | None:
    """Return a Kubernetes time as a datetime in UTC; None without one."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def integer(text: str) -> int | None:
    """Return the natural number of at most 63 bits in a label or an annotation, or None when it is not one."""
    if _INTEGER.fullmatch(text) is None:
        return None
    found = int(text)
    return found if found <= _INT64 else None


def condition(found: Json, kind: str) -> Json | None:
    """Return the condition of this type in an object's status."""
    conditions: list[Json] = (found.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == kind), None)


def is_true(found: Json, kind: str) -> bool:
    """Return whether an object's condition of this type is True."""
    return (condition(found, kind) or {}).get("status") == "True"


def owner_uids(found: Json) -> frozenset[str]:
    """Return the uids of an object's owners."""
    return frozenset(owner["uid"] for owner in found["metadata"].get("ownerReferences") or [])


def owners(found: Json) -> str:
    """Return the owners of an object as text for a message."""
    references = found["metadata"].get("ownerReferences") or []
    named = (f"{owner.get('kind')} {owner.get('name')} (uid {owner.get('uid')})" for owner in references)
    return single_line(" and ".join(named), limit=200) or "no object"


def refuse_another_owner(wanted: Manifest, found: Json) -> None:
    """Raise Rejected where the object that exists under the name of the wanted one has another owner."""
    if wanted["metadata"]["ownerReferences"][0]["uid"] in owner_uids(found):
        return
    kind, name, namespace = wanted["kind"], wanted["metadata"]["name"], wanted["metadata"]["namespace"]
    raise Rejected(
        f"{kind} {namespace}/{name} exists and belongs to {owners(found)}",
        remedy=f"find out who created it, then run: kubectl delete {kind.lower()} {name} --namespace {namespace}",
    )


def statuses(pod: Json) -> Iterator[Json]:
    """Yield the statuses of a pod's containers, those for initialization first."""
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def startup_issue(pod: Json) -> PodIssue | None:
    """Return why a pod cannot start, as far as its own status shows."""
    name = pod["metadata"]["name"]
    for status in statuses(pod):
        waiting = (status.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in _ON_THE_WAY:
            return issue(name, waiting.get("reason") or "Waiting", _why(status, waiting))
    scheduled = condition(pod, "PodScheduled") or {}
    # SchedulerError is the scheduler's own hiccup (a conflict on a fresh volume claim, say): it retries on its own.
    if scheduled.get("status") == "False" and scheduled.get("reason") != "SchedulerError":
        return issue(name, scheduled.get("reason") or "Unschedulable", scheduled.get("message") or "")
    return None


def disruption(pod: Json) -> tuple[str, str]:
    """Return why Kubernetes itself ends or ended a pod, in its word and its text; '' where it did not.

    The condition DisruptionTarget (Kubernetes 1.26) names who asked; a kubelet under pressure writes its own reason.
    """
    status = pod.get("status") or {}
    if status.get("reason") in _KUBELETS_REASONS:
        return single_line(status["reason"], limit=64), single_line(status.get("message"), limit=512)
    found = condition(pod, "DisruptionTarget") or {}
    if found.get("status") != "True":
        return "", ""
    reason = single_line(found.get("reason") or "DisruptionTarget", limit=64)
    return reason, single_line(found.get("message"), limit=512)


def memory_kill(pod: Json) -> MemoryKill | None:
    """Return when the kernel last killed a container of a pod for memory, None when it is not known to have."""
    limits = {
        container.get("name"): ((container.get("resources") or {}).get("limits") or {}).get("memory")
        for container in (pod.get("spec") or {}).get("containers") or []
    }
    found: list[MemoryKill] = []
    for status in statuses(pod):
        for state in ("state", "lastState"):
            ended = (status.get(state) or {}).get("terminated") or {}
            at = instant(ended.get("finishedAt"))
            if ended.get("reason") == "OOMKilled" and at is not None:
                limit = single_line(limits.get(status.get("name")), limit=32)
                found.append(MemoryKill(pod=pod["metadata"]["name"], at=at, limit=limit))
    return max(found, key=lambda kill: kill.at, default=None)


def may_live(pod: Json) -> bool:
    """Return whether a pod has not ended for good, as far as the API server knows."""
    return (pod.get("status") or {}).get("phase") not in _OVER


def lost(pod: Json, now: datetime) -> PodIssue | None:
    """Return the issue of a pod whose node has not reported for long; no StatefulSet replaces it.

    When a node falls silent, the node controller sets a pod's Ready to False and leaves ContainersReady as the kubelet
    last reported it; the kubelet itself never reports these two (kubernetes, pkg/controller/util/node,
    MarkPodsNotReady).  Minutes later the pod is deleted, and stays: only its kubelet can confirm that.
    """
    if not may_live(pod):
        return None
    marked, deleted = _marked_at(pod), instant(pod["metadata"].get("deletionTimestamp"))
    if marked is not None and now - marked >= _SILENT:
        return _node_lost(pod, marked)
    return _node_lost(pod, deleted) if deleted is not None and now - deleted >= _OVERDUE else None


def _node_lost(pod: Json, since: datetime) -> PodIssue:
    node, name = pod.get("spec", {}).get("nodeName"), pod["metadata"]["name"]
    return PodIssue(pod=name, reason=NODE_LOST, message=f"node {node} is silent since {since:%Y-%m-%d %H:%M:%S} UTC")


async def _on_a_silent_node(api: ApiServer, pod: Json, now: datetime) -> PodIssue | None:
    """Return the issue of a pod that was placed on a node which has not reported since, so that it never got ready.

    The node controller marks only pods that were ready, and deletes these after minutes.
    """
    node = pod.get("spec", {}).get("nodeName")
    created = instant(pod["metadata"].get("creationTimestamp"))
    if not node or not may_live(pod) or is_true(pod, "Ready") or created is None or now - created < _SILENT:
        return None
    try:
        found = await api.get(NODES, name=node)
    except PortError:
        return None
    ready = condition(found or {}, "Ready") or {}
    since = instant(ready.get("lastTransitionTime")) if ready.get("status") in {"False", "Unknown"} else None
    return _node_lost(pod, since) if since is not None and now - since >= _SILENT else None


def _marked_at(pod: Json) -> datetime | None:
    """Return when the node controller marked a pod not ready; with readiness gates another controller could."""
    ready = condition(pod, "Ready") or {}
    if ready.get("status") != "False" or not is_true(pod, "ContainersReady"):
        return None
    return None if pod.get("spec", {}).get("readinessGates") else instant(ready.get("lastTransitionTime"))


async def find_issue(
    warnings: NamespaceWarnings, pod: Json, now: datetime, *, may_wait: bool = False
) -> PodIssue | None:
    """Return a pod's issue; its node and its Events show what its own status does not.

    `may_wait`: its probes fail while it waits for another pod, as a worker's do without a master.
    """
    found = lost(pod, now) or await _on_a_silent_node(warnings.api, pod, now) or startup_issue(pod)
    created = instant(pod["metadata"].get("creationTimestamp"))
    creating = any(
        ((status.get("state") or {}).get("waiting") or {}).get("reason") in _ON_THE_WAY for status in statuses(pod)
    )
    if found is not None or created is None or now - created < _SLOW:
        return found
    if creating:
        return await newest_warning(warnings, pod, _MOUNTING)
    return await newest_warning(warnings, pod, _PROBING) if _is_unready(pod, now) and not may_wait else None


def _is_unready(pod: Json, now: datetime) -> bool:
    """Return whether a container has run for long and its kubelet says that it is not ready."""
    started = (
        instant(((status.get("state") or {}).get("running") or {}).get("startedAt"))
        for status in statuses(pod)
        if status.get("ready") is False
    )
    return any(at is not None and now - at >= _UNREADY for at in started)


async def newest_warning(warnings: NamespaceWarnings, found: Json, reasons: frozenset[str]) -> PodIssue | None:
    """Return the newest Warning event about an object with one of the reasons."""
    metadata = found["metadata"]
    event = await warnings.newest(metadata["uid"], reasons)
    return issue(metadata["name"], event["reason"], event.get("message") or "") if event else None


def issue(pod: str, reason: str, message: str) -> PodIssue:
    """Return an issue in printable words of bounded length."""
    return PodIssue(pod=pod, reason=single_line(reason, limit=64), message=single_line(message))


def _why(status: Json, waiting: Json) -> str:
    """Return the cluster's message; for a container that keeps ending, how it ended."""
    message: str = waiting.get("message") or ""
    ended = (status.get("lastState") or {}).get("terminated")
    if ended:
        last = masked(ended.get("message") or "")  # the tail of its log
        message += (
            f" (it ended with exit code {ended.get('exitCode')}, {ended.get('reason')}{': ' if last else ''}{last})"
        )
    return message.strip()
