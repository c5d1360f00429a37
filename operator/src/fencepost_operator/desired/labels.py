"""Labels and annotations on what the operator makes; adapters find things by them."""

from __future__ import annotations

from typing import Final

from fencepost_operator.api import GROUP, ObjectKey

PIPELINE: Final = f"{GROUP}/pipeline"
NAMESPACE: Final = f"{GROUP}/namespace"
"""On a Helm revision, which is in the operator's namespace: the pipeline's namespace."""
COMPONENT: Final = f"{GROUP}/component"
EPOCH: Final = f"{GROUP}/epoch"
GENERATION: Final = f"{GROUP}/generation"
"""A label of the cluster's parts; an annotation of a run, which only uses that generation."""
SPEC_HASH: Final = f"{GROUP}/spec-hash"
CONFIG_HASH: Final = f"{GROUP}/config-hash"
DRIVER: Final = "driver"
WORKER: Final = "worker"
PURGE: Final = "purge"
TRIAL: Final = "trial"
REVISION: Final = "revision"


def revision_labels(key: ObjectKey) -> dict[str, str]:
    """Return the labels of a ControllerRevision with a spec that was in effect."""
    return {"app.kubernetes.io/managed-by": "fencepost", PIPELINE: key.name, COMPONENT: REVISION}


def upgrade_labels(key: ObjectKey) -> dict[str, str]:
    """Return the labels of the PipelineTrial that an upgrade waits for."""
    return {"app.kubernetes.io/managed-by": "fencepost", PIPELINE: key.name}


def run_labels(key: ObjectKey, epoch: int) -> dict[str, str]:
    """Return the labels of a run's Job and pod."""
    return {**_labels(key, DRIVER), EPOCH: str(epoch)}


def purge_labels(key: ObjectKey) -> dict[str, str]:
    """Return the labels of the Job of a rewind, its pod and its ConfigMap."""
    return _labels(key, PURGE)


def trial_labels(key: ObjectKey) -> dict[str, str]:
    """Return the labels of the Job of a trial, its pod and its ConfigMap; `key` is the pipeline's."""
    return _labels(key, TRIAL)


def _labels(key: ObjectKey, component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": f"fencepost-{component}",
        "app.kubernetes.io/instance": key.name,
        "app.kubernetes.io/managed-by": "fencepost",
        "app.kubernetes.io/part-of": "fencepost",
        PIPELINE: key.name,
        COMPONENT: component,
    }


def worker_selector(pipeline: str, generation: int) -> str:
    """Return the selector of a generation's workers, for the scale subresource."""
    return f"{PIPELINE}={pipeline},{GENERATION}={generation},{COMPONENT}={WORKER}"
