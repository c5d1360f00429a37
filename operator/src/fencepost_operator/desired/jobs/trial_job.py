"""The Job of a trial: a pod like the driver's, with Spark in local mode, other code and limits of its own.

Its pod runs once.  What it reads is pinned, and it writes nothing, so a second trial is a second object.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import fields, replace
from typing import Any, Final

from fencepost.contract import DriverConfig
from fencepost.contract.trial import TRIAL_FILE, TrialRequest
from fencepost_operator.api import TRIAL_KIND, Pipeline, Spec, Trial, TrialSpec
from fencepost_operator.api.quantities import MEBIBYTE, jvm_memory, mebibytes, parse_quantity
from fencepost_operator.desired import labels
from fencepost_operator.desired.jobs.driver_config import HEAP_SHARE
from fencepost_operator.desired.jobs.side_job import side_config, side_job, side_metadata
from fencepost_operator.desired.resources import executor_heap

KEPT: Final = 24 * 3600
"""Seconds for which Kubernetes keeps the Job after its end, for its log."""
START_ALLOWANCE: Final = 300
"""Seconds that the pod has for its image and its start, besides the trial's own time."""
LEAST_MEMORY: Final = 2048 * MEBIBYTE
SCRATCH: Final = 4096 * MEBIBYTE
"""For what is found of each key, some 100 bytes, and for Spark."""
OF_STATE: Final = 3
"""How often the state is in the scratch volume: as the trial stores it, as Spark has read it, and in Spark's stores."""


def trial_job_name(trial: Trial) -> str:
    """Return the name of the trial's Job."""
    return f"{trial.pipeline}-trial-{hashlib.sha256(trial.uid.encode()).hexdigest()[:8]}"


def tried_spec(spec: Spec, trial: TrialSpec) -> Spec:
    """Return the pipeline's spec with what the trial's job has instead."""
    given = ((part.name, getattr(trial.job, part.name)) for part in fields(trial.job))
    return replace(spec, job=replace(spec.job, **{name: value for name, value in given if value is not None}))


def trial_config(config: DriverConfig, spec: Spec, trial: TrialSpec) -> DriverConfig:
    """Return the configuration of a run of the spec, in local mode within the trial's limits."""
    heap = executor_heap(memory_of(spec, trial), is_stateful=spec.stateful is not None)
    return replace(
        config,
        spark_master=f"local[{cores_of(spec, trial)}]",
        executors=1,
        spark_conf={**config.spark_conf, "spark.driver.memory": jvm_memory(heap)},
        source=replace(config.source, mirror_to_group="", max_bytes_per_batch=heap // HEAP_SHARE),
    )


def trial_manifests(
    *, pipeline: Pipeline, spec: Spec, config: DriverConfig, trial: Trial, request: TrialRequest
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the Job, and the ConfigMap that it mounts; `spec` is the one that is tried."""
    asked = trial.spec
    if not isinstance(asked, TrialSpec):
        raise ValueError("a trial with an invalid spec has no Job")
    metadata = side_metadata(
        name=trial_job_name(trial),
        namespace=pipeline.key.namespace,
        labels=labels.trial_labels(pipeline.key),
        kind=TRIAL_KIND,
        owner=trial.key,
        uid=trial.uid,
    )
    job = side_job(pipeline=pipeline, spec=spec, config=config, metadata=metadata, component=labels.TRIAL)
    job["spec"] |= {
        "backoffLimit": 0,
        "activeDeadlineSeconds": math.ceil(asked.limits.max_duration) + START_ALLOWANCE,
        "ttlSecondsAfterFinished": KEPT,
    }
    pod = job["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = _resources(spec, asked)
    pod["volumes"] = [
        {**volume, "emptyDir": {"sizeLimit": mebibytes(_scratch(spec))}} if volume["name"] == "tmp" else volume
        for volume in pod["volumes"]
    ]
    return job, side_config(config=config, metadata=metadata, files={TRIAL_FILE: request.to_json()})


def memory_of(spec: Spec, trial: TrialSpec) -> int:
    """Return the memory of the trial's pod in bytes."""
    return trial.limits.memory or max(LEAST_MEMORY, spec.cluster.worker.memory)


def _scratch(spec: Spec) -> int:
    return SCRATCH + OF_STATE * (spec.stateful.max_bytes if spec.stateful else 0)


def cores_of(spec: Spec, trial: TrialSpec) -> int:
    """Return how many tasks run at the same time."""
    return max(1, math.ceil(parse_quantity(_cpu(spec, trial))))


def _cpu(spec: Spec, trial: TrialSpec) -> str:
    return trial.limits.cpu or str(spec.cluster.worker.cores)


def _resources(spec: Spec, trial: TrialSpec) -> dict[str, Any]:
    """Return requests and limits; CPU is limited only where the driver's is, as the namespace may demand it."""
    given = spec.job.resources
    sizes = {"memory": mebibytes(memory_of(spec, trial))}
    cpu = {"cpu": _cpu(spec, trial)}
    is_limited = given is not None and "cpu" in (given.limits or {})
    return {"requests": cpu | sizes, "limits": sizes | (cpu if is_limited else {})}
