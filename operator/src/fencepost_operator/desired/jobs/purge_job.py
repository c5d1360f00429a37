"""The Job of a rewind that counts or deletes output: a pod like the driver's, with another command.

Deleting the same ranges at the same timestamp twice is deleting them once, so Kubernetes may repeat the pod.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from fencepost.contract import DriverConfig, ExitCode
from fencepost.contract.purge_request import PURGE_FILE, PurgeRequest
from fencepost_operator.api import REWIND_KIND, Pipeline, Rewind, Spec
from fencepost_operator.desired import labels
from fencepost_operator.desired.jobs.side_job import side_config, side_job, side_metadata

ATTEMPTS: Final = 6
"""Pods after the first one, with pauses of 10 s, 20 s and so on (Kubernetes' own)."""
UNKNOWN_COMMAND: Final = (2, 126, 127)
"""Exit codes of an image without `fencepost purge`: argparse refuses it, or there is no `fencepost` to call."""


def count_job_name(rewind: Rewind) -> str:
    """Return the name of the Job that counts before anything is stopped."""
    return f"{rewind.pipeline}-count-{hashlib.sha256(rewind.uid.encode()).hexdigest()[:8]}"


def purge_job_name(rewind: Rewind, epoch: int) -> str:
    """Return the name of the Job that deletes rows in this epoch, which has no driver."""
    return f"{rewind.pipeline}-purge-{epoch}"


def purge_job(*, pipeline: Pipeline, spec: Spec, config: DriverConfig, rewind: Rewind, name: str) -> dict[str, Any]:
    """Return the manifest of a Job that mounts the ConfigMap of the same name."""
    metadata = _metadata(pipeline, rewind, name)
    job = side_job(pipeline=pipeline, spec=spec, config=config, metadata=metadata, component=labels.PURGE)
    job["spec"] |= {
        "backoffLimit": ATTEMPTS,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": labels.PURGE,
                        "operator": "In",
                        "values": sorted([*UNKNOWN_COMMAND, int(ExitCode.BAD_SPEC)]),
                    },
                }
            ]
        },
    }
    return job


def purge_config(
    *, pipeline: Pipeline, config: DriverConfig, request: PurgeRequest, rewind: Rewind, name: str
) -> dict[str, Any]:
    """Return the ConfigMap that the Job mounts."""
    metadata = _metadata(pipeline, rewind, name)
    return side_config(config=config, metadata=metadata, files={PURGE_FILE: request.to_json()})


def _metadata(pipeline: Pipeline, rewind: Rewind, name: str) -> dict[str, Any]:
    return side_metadata(
        name=name,
        namespace=pipeline.key.namespace,
        labels=labels.purge_labels(pipeline.key),
        kind=REWIND_KIND,
        owner=rewind.key,
        uid=rewind.uid,
    )
