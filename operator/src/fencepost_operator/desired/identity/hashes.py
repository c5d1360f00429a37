"""Fingerprints of what is desired: a run is replaced when its own changes, a cluster when its own does.

A field counts for what its `Effect` says. What can change under a live driver (workers, suspend, restart, the bounds of
batches) counts for neither, nor does a field at its default: an operator with new fields restarts nothing.  Whether
there are workers at all counts for the run: without them the driver's pod runs the tasks.

A hash is `v1:<16 digits of the spec>.<12 digits of the chart>`.  The chart's part is there when the chart is known,
and there are workers.
The version is for the first release that hashes in another way: runs with another version are replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from fencepost_operator.api import CheckpointSpec, PoisonAction, Spec
from fencepost_operator.api.effects import Effect, settings
from fencepost_operator.desired.identity.remembered import Remembered

VERSION: Final = "v1"
_OF_PODS: Final = (
    "cluster.image",
    "cluster.master",
    "cluster.worker.memory",
    "cluster.worker.resources",
    "cluster.worker.scratchSize",
)
"""What only pods of a Spark cluster have: nothing where there are no workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprints:
    """Of the cluster, '' without workers, and of the run (which counts the cluster's in)."""

    cluster: str
    run: str


_FINGERPRINTS: Final[Remembered[tuple[tuple[tuple[str, str | None], ...], str], Fingerprints]] = Remembered()
"""Each look at a pipeline compares them, and making them takes a tenth of its CPU time."""


def fingerprints(spec: Spec, references: Mapping[str, str | None], chart: str = "") -> Fingerprints:
    """Return both; `references` holds a hash of the content of each object that the spec names.

    `chart` is the digest of the Spark cluster's chart, '' where it is not known.
    """
    arguments = (tuple(references.items()), chart)
    return _FINGERPRINTS.value(spec, arguments, lambda: _fingerprints(spec, references, chart))


def _fingerprints(spec: Spec, references: Mapping[str, str | None], chart: str) -> Fingerprints:
    found = list(settings(replace(spec, state=spec.state or spec.stateful)))  # an absent state is one of defaults
    of_cluster = {each.path: each.value for each in found if each.effect is Effect.NEW_CLUSTER}
    of_run = {each.path: each.value for each in found if each.effect.starts_a_run}
    if spec.stateful:  # the data services beside the workers reach Cassandra too
        of_cluster |= {path: value for path, value in of_run.items() if path.startswith("checkpoint.")}
    if spec.cluster.image:
        del of_cluster["job.image"]  # the driver's alone
    if spec.on_poison.action is PoisonAction.STOP:
        of_run.pop("onPoison.retention", None)  # a run's configuration has it only where dead letters are written
    if not spec.cluster.exists:
        of_run = {path: value for path, value in of_run.items() if not path.startswith(_OF_PODS)}
        of_run["cluster.workers"] = 0
    run = digest({**of_run, "references": {name: references.get(name) for name in referenced(spec)}})
    if not spec.cluster.exists:
        return Fingerprints(cluster="", run=hash_of(run, ""))
    cluster = digest({**of_cluster, "references": {name: references.get(name) for name in worker_references(spec)}})
    return Fingerprints(cluster=hash_of(cluster, chart), run=hash_of(run, chart))


def hash_of(spec_digest: str, chart: str) -> str:
    """Return the hash with its version."""
    return f"{VERSION}:{spec_digest}.{chart}" if chart else f"{VERSION}:{spec_digest}"


def is_same_spec(one: str, other: str) -> bool:
    """Return whether two hashes differ in nothing but the chart."""
    return one.partition(".")[0] == other.partition(".")[0]


def digest(content: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits for a piece of JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def code_hash(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return the hash of the ConfigMap that the code comes from, '' when it comes from the image."""
    return references.get(f"ConfigMap/{spec.job.code_config_map}") or "" if spec.job.code_config_map else ""


def bounds_hash(spec: Spec) -> str:
    """Return the digest of what only the next run gets, as the bounds of batches, '' where all are at their default.

    They start no run, but another run may succeed with others where one failed.
    """
    found = {each.path: each.value for each in settings(spec) if each.effect is Effect.NEXT_RUN}
    return digest(found) if found else ""


def worker_references(spec: Spec) -> tuple[str, ...]:
    """Return the objects that workers see: the code, what the environment is filled from, and a data service's."""
    code = {f"ConfigMap/{spec.job.code_config_map}"} if spec.job.code_config_map else set[str]()
    secrets = checkpoint_secrets(spec.checkpoint) if spec.stateful else ()
    return tuple(sorted({*code, *secrets, *(name for name, _ in _env_references(spec))}))


def config_maps(spec: Spec) -> tuple[str, ...]:
    """Return the ConfigMaps that the code and its environment come from, as 'ConfigMap/name'."""
    return tuple(name for name in worker_references(spec) if name.startswith("ConfigMap/"))


def config_map_hashes(spec: Spec, references: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the hash of each of these ConfigMaps; a password, which may change at any time, is in none."""
    return {name: references.get(name) for name in config_maps(spec)}


def referenced(spec: Spec) -> tuple[str, ...]:
    """Return every object that the spec names and needs, as 'ConfigMap/name' or 'Secret/name'."""
    source = spec.source.kafka
    of_sinks = (sink.options_secret for sink in spec.sinks)
    optional = (source.properties_secret, source.registry_secret, *spec.observability.secrets.values(), *of_sinks)
    secrets = (*checkpoint_secrets(spec.checkpoint), *(f"Secret/{name}" for name in optional if name))
    return tuple(sorted({*worker_references(spec), *secrets}))


def checkpoint_secrets(checkpoint: CheckpointSpec) -> tuple[str, ...]:
    """Return the Secrets without which the fence cannot be reached, as 'Secret/name'."""
    return tuple(f"Secret/{name}" for name in checkpoint.secrets)


def optional_references(spec: Spec) -> frozenset[str]:
    """Return those of the referenced objects that the spec can do without."""
    needed = {name for name, optional in _env_references(spec) if not optional}
    return frozenset(name for name, optional in _env_references(spec) if optional and name not in needed)


def _env_references(spec: Spec) -> tuple[tuple[str, bool], ...]:
    whole = (
        reference
        for source in spec.job.env_from
        for reference in (("ConfigMap", source.config_map_ref), ("Secret", source.secret_ref))
    )
    keys = (
        reference
        for variable in spec.job.env
        if (source := variable.value_from)
        for reference in (("ConfigMap", source.config_map_key_ref), ("Secret", source.secret_key_ref))
    )
    return tuple((f"{kind}/{found.name}", bool(found.optional)) for kind, found in (*whole, *keys) if found)
