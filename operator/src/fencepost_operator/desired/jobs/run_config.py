"""The ConfigMap with the configuration of one run, mounted as a file.

One per epoch and immutable: a run reads what it was started with, and the next run has its own.
"""

from __future__ import annotations

from typing import Any, Final

from fencepost.contract import DriverConfig
from fencepost_operator.api import Pipeline
from fencepost_operator.desired import labels, names
from fencepost_operator.desired.owner import owner_reference

MOUNT: Final = "/etc/fencepost/run"
KEY: Final = "config.json"
PATH: Final = f"{MOUNT}/{KEY}"


def run_config(*, pipeline: Pipeline, config: DriverConfig) -> dict[str, Any]:
    """Return the manifest of the ConfigMap that the Job of the same name mounts."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.job_name(pipeline.key.name, config.epoch),
            "namespace": pipeline.key.namespace,
            "labels": labels.run_labels(pipeline.key, config.epoch),
            "ownerReferences": [owner_reference(pipeline)],
        },
        "immutable": True,
        "data": {KEY: config.to_json()},
    }
