"""The Jobs of trials, and what their pods reported."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.contract.trial import TrialReport
from fencepost_operator.actions import Manifest
from fencepost_operator.adapters.kubernetes import pods
from fencepost_operator.adapters.kubernetes.api_server import JOBS, PODS, ApiServer, Json
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.observation import TrialJob


@dataclass(frozen=True, slots=True)
class KubernetesTrialJobs:
    """Implements the TrialJobs port."""

    api: ApiServer
    runs: KubernetesRuns

    async def find(self, pipeline: ObjectKey, name: str, owner: str) -> TrialJob | None:
        """Return the Job of this name, None unless this owner has one."""
        found = await self.api.list(JOBS, namespace=pipeline.namespace, fields=f"metadata.name={name}")
        job = next((job for job in found if owner in pods.owner_uids(job)), None)
        if job is None:
            return None
        marks = f"{labels.PIPELINE}={pipeline.name},{labels.COMPONENT}={labels.TRIAL}"
        listed = await self.api.list(PODS, namespace=pipeline.namespace, labels=marks)
        members = [pod for pod in listed if job["metadata"]["uid"] in pods.owner_uids(pod)]
        text = next((said for pod in members if (said := _last_words(pod))), "")
        return TrialJob(
            run=await self.runs.run_of(pipeline, job, members),
            report=TrialReport.from_json(text) if pods.is_true(job, "Complete") else None,
            is_late=(pods.condition(job, "Failed") or {}).get("reason") == "DeadlineExceeded",
        )

    async def start(self, pipeline: ObjectKey, job: Manifest, config_map: Manifest) -> None:
        """Create the ConfigMap, then the Job; nothing to do when they exist. Raises Rejected as the Runs port does."""
        await self.runs.start(pipeline, job, config_map)

    async def stop(self, pipeline: ObjectKey, name: str, owner: str) -> None:
        """Delete the Job with its pod; nothing to do when it is gone, or another's."""
        if await self.find(pipeline, name, owner) is not None:
            await self.api.delete(JOBS, namespace=pipeline.namespace, name=name, propagation="Foreground")


def _last_words(pod: Json) -> str:
    """Return the termination message of the trial's container; the code that is tried may have written it."""
    for status in pods.statuses(pod):
        ended = (status.get("state") or {}).get("terminated") or {}
        if status.get("name") == labels.TRIAL:
            return str(ended.get("message") or "")
    return ""
