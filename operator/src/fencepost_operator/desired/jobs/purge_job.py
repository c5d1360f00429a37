"""The Job of a rewind that counts or deletes output: a pod like the driver's, with another command.

Deleting the same ranges at the same timestamp twice is deleting them once, so Kubernetes may repeat the pod.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from fencepost.contract import DriverConfig, ExitCode, Variable
from fencepost.contract.purge_request import PURGE_FILE, PurgeRequest
from fencepost_operator.api import GROUP, REWIND_KIND, VERSION, Pipeline, Rewind, Spec
from fencepost_operator.api.codec import encode
from fencepost_operator.desired import labels
from fencepost_operator.desired.jobs import run_config
from fencepost_operator.desired.jobs.run_job import run_job

ATTEMPTS: Final = 6
"""Pods after the first one, with pauses of 10 s, 20 s and so on (Kubernetes' own)."""
UNKNOWN_COMMAND: Final = (2, 126, 127)
"""Exit codes of an image without `fencepost purge`: argparse refuses it, or there is no `fencepost` to call."""
_FOR_RUNS: Final = frozenset({Variable.SPARK_AUTH_SECRET, Variable.POD_IP})


def count_job_name(rewind: Rewind) -> str:
    """Return the name of the Job that counts before anything is stopped."""
    return f"{rewind.pipeline}-count-{hashlib.sha256(rewind.uid.encode()).hexdigest()[:8]}"


def purge_job_name(rewind: Rewind, epoch: int) -> str:
    """Return the name of the Job that deletes rows in this epoch, which has no driver."""
    return f"{rewind.pipeline}-purge-{epoch}"


def purge_job(*, pipeline: Pipeline, spec: Spec, config: DriverConfig, rewind: Rewind, name: str) -> dict[str, Any]:
    """Return the manifest of a Job that mounts the ConfigMap of the same name."""
    job = run_job(pipeline=pipeline, spec=spec, config=config, generation=0, spec_hash="")
    job["metadata"] = _metadata(pipeline, rewind, name)
    template, pod = job["spec"]["template"], job["spec"]["template"]["spec"]
    template["metadata"] = {
        "labels": labels.purge_labels(pipeline.key),
        "annotations": encode(spec.cluster.pod_annotations),
    }
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
    container = pod["containers"][0]
    del container["ports"]
    container |= {
        "name": labels.PURGE,
        "args": ["fencepost", "purge"],
        "env": [variable for variable in container["env"] if variable["name"] not in _FOR_RUNS],
    }
    for volume in pod["volumes"]:
        if volume["name"] == "config":
            volume["configMap"] = {"name": name}
    return job


def purge_config(
    *, pipeline: Pipeline, config: DriverConfig, request: PurgeRequest, rewind: Rewind, name: str
) -> dict[str, Any]:
    """Return the ConfigMap that the Job mounts."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(pipeline, rewind, name),
        "immutable": True,
        "data": {run_config.KEY: config.to_json(), PURGE_FILE: request.to_json()},
    }


def _metadata(pipeline: Pipeline, rewind: Rewind, name: str) -> dict[str, Any]:
    """Return metadata by which the garbage collector removes the object with the rewind."""
    owner = {"apiVersion": f"{GROUP}/{VERSION}", "kind": REWIND_KIND, "name": rewind.key.name, "uid": rewind.uid}
    return {
        "name": name,
        "namespace": pipeline.key.namespace,
        "labels": labels.purge_labels(pipeline.key),
        "ownerReferences": [{**owner, "controller": True}],
    }
