"""The PipelineTrial objects in the API server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fencepost_operator.actions import Manifest
from fencepost_operator.adapters.kubernetes import pods
from fencepost_operator.adapters.kubernetes.api_server import (
    METADATA_ONLY,
    AlreadyExists,
    ApiServer,
    Json,
    NotServed,
    Resource,
)
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.api import (
    GROUP,
    TRIAL_KIND,
    TRIAL_PLURAL,
    VERSION,
    Event,
    ObjectKey,
    Trial,
    TrialStatus,
    read_trial,
    write_trial_status,
)

_TRIALS: Final = Resource(prefix=f"/apis/{GROUP}/{VERSION}", plural=TRIAL_PLURAL)
_STATUS: Final = Resource(prefix=_TRIALS.prefix, plural=TRIAL_PLURAL, subresource="status")


@dataclass(frozen=True, slots=True)
class KubernetesTrials:
    """Implements the Trials and UpgradeTrials ports."""

    api: ApiServer
    recorder: EventRecorder

    async def read(self, key: ObjectKey) -> Trial | None:
        """Return the trial as it is now, or None when it is gone."""
        try:
            found = await self.api.get(_TRIALS, namespace=key.namespace, name=key.name)
        except NotServed:  # the CRDs are those of an older release
            return None
        return read_trial(found) if found is not None else None

    async def keys(self, namespaces: Sequence[str]) -> tuple[ObjectKey, ...]:
        """Return the trials of these namespaces, of all if empty; none where the CRDs are those of an older release."""
        try:
            found = [item["metadata"] async for item in self.api.items(_TRIALS, namespaces, accept=METADATA_ONLY)]
        except NotServed:
            return ()
        return tuple(ObjectKey(metadata["namespace"], metadata["name"]) for metadata in found)

    async def create(self, manifest: Manifest) -> None:
        """Create the trial; nothing to do when it exists. Raises Rejected when another object has its name."""
        metadata = manifest["metadata"]
        try:
            await self.api.create(_TRIALS, namespace=metadata["namespace"], body=manifest)
        except AlreadyExists:
            found = await self.api.get(_TRIALS, namespace=metadata["namespace"], name=metadata["name"])
            if found is not None:
                pods.refuse_another_owner(manifest, found)

    async def write_status(self, trial: Trial, status: TrialStatus) -> Trial:
        """Replace the status, on condition of the resourceVersion. Raises Conflict, also when the object is gone."""
        body, place = self._body(trial) | {"status": write_trial_status(status)}, trial.key
        return read_trial(await self.api.replace(_STATUS, namespace=place.namespace, name=place.name, body=body))

    async def publish(self, trial: Trial, events: Sequence[Event]) -> None:
        """Record Events; that one cannot be recorded stops nothing."""
        for event in events:
            await self.recorder.record(self._body(trial), event)

    async def delete(self, trial: Trial) -> None:
        """Delete the trial; nothing to do when it is gone, or another one has its name."""
        await self.api.delete(_TRIALS, namespace=trial.key.namespace, name=trial.key.name, uid=trial.uid)

    @staticmethod
    def _body(trial: Trial) -> Json:
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": TRIAL_KIND,
            "metadata": {
                "name": trial.key.name,
                "namespace": trial.key.namespace,
                "uid": trial.uid,
                "resourceVersion": trial.resource_version,
            },
        }
