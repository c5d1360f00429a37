"""Hashes of an older release of the operator, told in those of this one: an upgrade replaces no run.

They stand in the status and in the annotations of Job and cluster.  One that says what the older release would have
said of the spec as it is now becomes the present hash; any other one stays, and differs from everything.

Such a release did not record the chart of its Spark clusters, so its hashes become ones without a chart.  A run goes on
with such a cluster as long as nothing has to be applied to it: in place, another chart would replace its pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fencepost_operator.api import Pipeline, ReconcileConfig, Spec, Status
from fencepost_operator.desired.hashes import Fingerprints, fingerprints, has_chart, is_present
from fencepost_operator.desired.hashes_v1 import fingerprints_v1
from fencepost_operator.observation import Known, Observation, ReleaseState


def in_present_hashes(
    pipeline: Pipeline, observation: Observation, config: ReconcileConfig
) -> tuple[Pipeline, Observation, ReconcileConfig]:
    """Return all as if this release had recorded every hash in them that is of the spec as it is now.

    The configuration is without a chart while the run goes on with a cluster whose chart is not recorded.
    While the references cannot be read nothing is told otherwise, and nothing is compared either.
    """
    spec, references = pipeline.spec, observation.references
    if not isinstance(spec, Spec) or not isinstance(references, Known):
        return pipeline, observation, config
    if all(_is_as_now(found, config.chart) for found in _recorded(pipeline.status, observation)):
        return pipeline, observation, config
    hashes = references.value.hashes
    before, unrecorded = fingerprints_v1(spec, hashes), fingerprints(spec, hashes)
    run = pipeline.status.run
    is_over = run is None or run.ended_at is not None
    run_hash = fingerprints(spec, hashes, config.chart).run if is_over else unrecorded.run
    present = {before.run: run_hash, unrecorded.run: run_hash, before.cluster: unrecorded.cluster}
    told = replace(pipeline, status=_status(pipeline.status, present))
    seen = _observation(observation, present)
    goes_on = not is_over and _is_complete(told.status, spec, seen, unrecorded)
    return told, seen, replace(config, chart="") if goes_on else config


def _is_complete(status: Status, spec: Spec, observation: Observation, unrecorded: Fingerprints) -> bool:
    """Return whether the run's cluster has no recorded chart, and nothing is known that would have to be applied."""
    run, cluster = status.run, status.cluster
    if run is None or cluster is None or cluster.workers != spec.cluster.workers:
        return False
    if (run.spec_hash, cluster.config_hash) != (unrecorded.run, unrecorded.cluster):
        return False
    release, seen = observation.release, observation.cluster
    if isinstance(release, Known) and (release.value is None or release.value.state is not ReleaseState.DEPLOYED):
        return False
    if not isinstance(seen, Known):
        return True
    there = (cluster.generation, cluster.config_hash, cluster.workers)
    return seen.value is not None and (seen.value.generation, seen.value.config_hash, seen.value.workers) == there


def _is_as_now(found: str, chart: str) -> bool:
    """Return whether this release would record a hash in this form, or there is none: nothing needs to be computed."""
    return not found or has_chart(found) or (is_present(found) and not chart)


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
