"""Hashes of an older release of the operator, told in those of this one: an upgrade replaces no run.

They stand in the status and in the annotations of Job and cluster.  One that says what the older release would have
said of the spec as it is now becomes the present hash; any other one stays, and differs from everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fencepost_operator.api import Pipeline, ReconcileConfig, Spec, Status
from fencepost_operator.desired.hashes import fingerprints
from fencepost_operator.desired.hashes_v1 import CHART, fingerprints_v1, is_v1
from fencepost_operator.observation import Known, Observation


def in_present_hashes(
    pipeline: Pipeline, observation: Observation, config: ReconcileConfig
) -> tuple[Pipeline, Observation]:
    """Return both as if this release had recorded every hash in them that is of the spec as it is now.

    While the references cannot be read nothing is told otherwise, and nothing is compared either.
    """
    spec, references = pipeline.spec, observation.references
    if not isinstance(spec, Spec) or not isinstance(references, Known):
        return pipeline, observation
    if not any(is_v1(found) for found in _recorded(pipeline.status, observation)):
        return pipeline, observation
    hashes = references.value.hashes
    before, now = fingerprints_v1(spec, hashes), fingerprints(spec, hashes, CHART if config.chart else "")
    present = {before.run: now.run, before.cluster: now.cluster}
    return replace(pipeline, status=_status(pipeline.status, present)), _observation(observation, present)


def _recorded(status: Status, observation: Observation) -> Iterator[str]:
    """Yield every hash that is recorded anywhere."""
    if status.run is not None:
        yield status.run.spec_hash
    if status.failure is not None:
        yield status.failure.spec_hash
    if status.cluster is not None:
        yield status.cluster.config_hash
    if isinstance(observation.runs, Known):
        yield from (run.spec_hash for run in observation.runs.value)
    if isinstance(observation.cluster, Known) and observation.cluster.value is not None:
        yield observation.cluster.value.config_hash


def _status(status: Status, present: Mapping[str, str]) -> Status:
    run, failure, cluster = status.run, status.failure, status.cluster
    return replace(
        status,
        run=replace(run, spec_hash=present.get(run.spec_hash, run.spec_hash)) if run else None,
        failure=replace(failure, spec_hash=present.get(failure.spec_hash, failure.spec_hash)) if failure else None,
        cluster=replace(cluster, config_hash=present.get(cluster.config_hash, cluster.config_hash))
        if cluster
        else None,
    )


def _observation(observation: Observation, present: Mapping[str, str]) -> Observation:
    runs, cluster = observation.runs, observation.cluster
    if isinstance(runs, Known):
        runs = Known(tuple(replace(run, spec_hash=present.get(run.spec_hash, run.spec_hash)) for run in runs.value))
    if isinstance(cluster, Known) and cluster.value is not None:
        seen = cluster.value
        cluster = Known(replace(seen, config_hash=present.get(seen.config_hash, seen.config_hash)))
    return replace(observation, runs=runs, cluster=cluster)
