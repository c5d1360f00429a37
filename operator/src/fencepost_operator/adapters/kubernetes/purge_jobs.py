"""The Jobs that count or delete output for a rewind, and what their pods reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.contract import Verdict
from fencepost.contract.purge_request import PurgeReport
from fencepost_operator.actions import Manifest
from fencepost_operator.adapters.kubernetes import pods
from fencepost_operator.adapters.kubernetes.api_server import JOBS, PODS, ApiServer, Json
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.adapters.kubernetes.warning_events import NamespaceWarnings
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.observation import PodIssue, PurgeJob
from fencepost_operator.ports import Clock
from fencepost_operator.text import single_line


@dataclass(frozen=True, slots=True)
class KubernetesPurges:
    """Implements the Purges port."""

    api: ApiServer
    runs: KubernetesRuns
    clock: Clock

    async def find(self, key: ObjectKey, name: str, owner: str) -> PurgeJob | None:
        """Return the Job of this name, None unless this owner has one."""
        found = await self.api.list(JOBS, namespace=key.namespace, fields=f"metadata.name={name}")
        job = next((job for job in found if owner in pods.owner_uids(job)), None)
        if job is None:
            return None
        marks = f"{labels.PIPELINE}={key.name},{labels.COMPONENT}={labels.PURGE}"
        members = await self.api.list(PODS, namespace=key.namespace, labels=marks)
        members = [pod for pod in members if job["metadata"]["uid"] in pods.owner_uids(pod)]
        ended = _ended(members)
        text = (ended or {}).get("message") or ""
        is_done, is_failed = pods.is_true(job, "Complete"), pods.is_true(job, "Failed")
        report = PurgeReport.from_json(text) if is_done else None
        code = (ended or {}).get("exitCode")
        return PurgeJob(
            name=name,
            is_done=is_done,
            is_failed=is_failed,
            report=report,
            message=_message(text),
            exit_code=code if type(code) is int else None,
            issue=None if is_done or is_failed else await self._issue(key, job, members),
        )

    async def _issue(self, key: ObjectKey, job: Json, members: Sequence[Json]) -> PodIssue | None:
        """Return why the newest pod cannot start, or why no pod exists."""
        warnings = NamespaceWarnings(self.api, key.namespace)
        living = [pod for pod in members if pods.may_live(pod)]
        if living:
            newest = max(living, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""))
            return await pods.find_issue(warnings, newest, self.clock.now())
        return await pods.newest_warning(warnings, job, pods.REFUSALS)

    async def start(self, key: ObjectKey, job: Manifest, config_map: Manifest) -> None:
        """Create the ConfigMap, then the Job; nothing to do when they exist. Raises Rejected as the Runs port does."""
        await self.runs.start(key, job, config_map)


def _ended(members: Sequence[Json]) -> Mapping[str, Any] | None:
    """Return the newest end of the container, of all pods."""
    ends = [
        ended
        for pod in members
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        if container.get("name") == labels.PURGE and (ended := (container.get("state") or {}).get("terminated"))
    ]
    return max(ends, key=lambda ended: str(ended.get("finishedAt") or ""), default=None)


def _message(text: str) -> str:
    """Return why the newest pod failed, '' where it does not say so."""
    reported = Verdict.from_json(text)
    return f"{single_line(reported.message)}. {single_line(reported.remedy, limit=512)}" if reported is not None else ""
