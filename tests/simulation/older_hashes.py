"""What a release of the operator recorded whose hashes had no version, in the place of what this one recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost_operator.api import ObjectKey, Spec
from fencepost_operator.desired import labels
from fencepost_operator.desired.hashes import fingerprints, referenced
from fencepost_operator.desired.hashes_v1 import fingerprints_v1
from simulation.world import SimulatedWorld


def write(world: SimulatedWorld, key: ObjectKey, *, chart: str) -> None:
    """Write the older hashes wherever one of this release is of the pipeline's spec as it is."""
    pipeline = world.pipeline(key)
    if pipeline is None or not isinstance(pipeline.spec, Spec):
        return
    spec = pipeline.spec
    hashes = {name: world.references.get((key.namespace, name)) for name in referenced(spec)}
    now, before = fingerprints(spec, hashes, chart), fingerprints_v1(spec, hashes)
    older = {now.run: before.run, now.cluster: before.cluster}
    status = pipeline.status
    run, failure, cluster = status.run, status.failure, status.cluster
    world.pipelines[key] = replace(
        pipeline,
        status=replace(
            status,
            run=replace(run, spec_hash=older.get(run.spec_hash, run.spec_hash)) if run else None,
            failure=replace(failure, spec_hash=older.get(failure.spec_hash, failure.spec_hash)) if failure else None,
            cluster=replace(cluster, config_hash=older.get(cluster.config_hash, cluster.config_hash))
            if cluster
            else None,
        ),
    )
    for job in world.jobs:
        _rewrite(job.manifest["metadata"]["annotations"], labels.SPEC_HASH, older)
    for found in world.sets.get(key, {}).values():
        _rewrite(found.values["annotations"], labels.CONFIG_HASH, older)


def _rewrite(annotations: dict[str, Any], name: str, older: dict[str, str]) -> None:
    annotations[name] = older.get(annotations[name], annotations[name])
