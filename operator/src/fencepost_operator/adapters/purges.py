"""The Jobs that count or delete output for a rewind, and what their pods reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.contract import Verdict
from fencepost.contract.purge import PurgeReport
from fencepost_operator.actions import Manifest
from fencepost_operator.adapters import pods
from fencepost_operator.adapters.api_server import JOBS, PODS, ApiServer, Json
from fencepost_operator.adapters.runs import KubernetesRuns
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.observation import PurgeJob
from fencepost_operator.text import single_line


@dataclass(frozen=True, slots=True)
class KubernetesPurges:
    """Implements the Purges port."""

    api: ApiServer
    runs: KubernetesRuns

    async def find(self, key: ObjectKey, name: str, owner: str) -> PurgeJob | None:
        """Return the Job of this name, None where there is none of this owner's."""
        found = await self.api.list(JOBS, namespace=key.namespace, fields=f"metadata.name={name}")
        job = next((job for job in found if owner in pods.owner_uids(job)), None)
        if job is None:
            return None
        marks = f"{labels.PIPELINE}={key.name},{labels.COMPONENT}={labels.PURGE}"
        members = await self.api.list(PODS, namespace=key.namespace, labels=marks)
        ended = _ended([pod for pod in members if job["metadata"]["uid"] in pods.owner_uids(pod)])
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
        )

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
    told = Verdict.from_json(text)
    return f"{single_line(told.message)}. {single_line(told.remedy, limit=512)}" if told is not None else ""
