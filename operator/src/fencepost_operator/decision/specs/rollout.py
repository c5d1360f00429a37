"""Whether what runs is what the spec asks for: without that, Ready is never True."""

from __future__ import annotations

from fencepost_operator.api import ClusterStatus, Spec, condition_of
from fencepost_operator.decision.context import Context, RunContext
from fencepost_operator.desired.identity.hashes import Fingerprints, fingerprints
from fencepost_operator.observation import Known, Unknown


def is_rolled_out(context: Context) -> bool:
    """Return whether the run and its cluster are known to match this generation of the spec.

    While the references or the cluster cannot be read, a generation that was Ready before counts as rolled out, a new
    one does not.
    """
    run, spec, references = context.active_run, context.pipeline.spec, context.observation.references
    if run is None or not isinstance(spec, Spec):
        return False
    if isinstance(references, Unknown):
        return was_ready(context)
    if isinstance(context, RunContext):
        desired = context.desired
    else:
        desired = fingerprints(spec, references.value.hashes, context.config.chart)
    return run.spec_hash == desired.run and _cluster_matches(context, spec, desired)


def _cluster_matches(context: Context, spec: Spec, desired: Fingerprints) -> bool:
    recorded, cluster = context.status.cluster, context.observation.cluster
    if not spec.cluster.exists:
        return recorded is None or not recorded.config_hash
    if recorded is None or not _is_as_desired(recorded, spec, desired):
        return False
    if not isinstance(cluster, Known):
        return was_ready(context)
    seen = cluster.value
    return seen is not None and (seen.generation, seen.config_hash, seen.workers) == (
        recorded.generation,
        desired.cluster,
        spec.cluster.workers,
    )


def _is_as_desired(recorded: ClusterStatus, spec: Spec, desired: Fingerprints) -> bool:
    return (recorded.config_hash, recorded.workers) == (desired.cluster, spec.cluster.workers)


def was_ready(context: Context) -> bool:
    """Return whether this generation of the spec was Ready at the last look."""
    ready, generation = condition_of(context.pipeline.status.conditions, "Ready"), context.pipeline.generation
    return ready is not None and (ready.status, ready.observed_generation) == ("True", generation)
