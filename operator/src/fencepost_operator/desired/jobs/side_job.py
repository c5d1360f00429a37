"""A Job beside a pipeline's runs, for an object that asks for something once: the driver's pod with another command.

It has the driver's image, service account, Secrets and placement, and not the secret of a Spark cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fencepost.contract import DriverConfig, Variable
from fencepost_operator.api import GROUP, VERSION, ObjectKey, Pipeline, Spec
from fencepost_operator.api.codec import encode
from fencepost_operator.desired.jobs import run_config
from fencepost_operator.desired.jobs.run_job import run_job

_FOR_RUNS: Final = frozenset({Variable.SPARK_AUTH_SECRET, Variable.POD_IP})


def side_job(
    *, pipeline: Pipeline, spec: Spec, config: DriverConfig, metadata: Mapping[str, Any], component: str
) -> dict[str, Any]:
    """Return the manifest of a Job that mounts the ConfigMap of the same name, and runs `fencepost <component>`."""
    job = run_job(pipeline=pipeline, spec=spec, config=config, generation=0, spec_hash="")
    job["metadata"] = dict(metadata)
    template, pod = job["spec"]["template"], job["spec"]["template"]["spec"]
    template["metadata"] = {"labels": metadata["labels"], "annotations": encode(spec.cluster.pod_annotations)}
    container = pod["containers"][0]
    del container["ports"]
    container |= {
        "name": component,
        "args": ["fencepost", component],
        "env": [variable for variable in container["env"] if variable["name"] not in _FOR_RUNS],
    }
    for volume in pod["volumes"]:
        if volume["name"] == "config":
            volume["configMap"] = {"name": metadata["name"]}
    return job


def side_config(*, config: DriverConfig, metadata: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """Return the ConfigMap that the Job mounts: the configuration of a run, and files beside it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": dict(metadata),
        "immutable": True,
        "data": {run_config.KEY: config.to_json(), **files},
    }


def side_metadata(
    *, name: str, namespace: str, labels: Mapping[str, str], kind: str, owner: ObjectKey, uid: str
) -> dict[str, Any]:
    """Return metadata by which the garbage collector removes the object with its owner, an object of a kind of ours."""
    reference = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "name": owner.name, "uid": uid}
    return {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels),
        "ownerReferences": [{**reference, "controller": True}],
    }
